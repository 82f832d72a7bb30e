"""What a sweep goes through: models, or one model with several weights, each with a label of its own.

Without checkpoints and revisions the dimension of the result is `model`. Of one model with several of them it is
`checkpoint`; where all of these have a number of a step in their names (step1000, checkpoint-500) it is `step`, in
ascending order. Several models with several of them each are a sweep over `model`, labelled MODEL @ CHECKPOINT.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skipscope.errors import InputError
from skipscope.models.request import read_model, require_weights, there

if TYPE_CHECKING:
    from torch import nn

Models = Mapping[str, Any] | Sequence[str] | str
STEP = re.compile(r"(?:^|[^a-z])(?:global[-_]?)?(?:step|checkpoint)[-_=]?0*(\d+)", re.IGNORECASE)
PARTS_OF_NUMBERS = re.compile(r"(\d+)")


@dataclass(frozen=True)
class Subject:
    """A model that is measured."""

    label: str
    model: str | nn.Module
    weights: Path | None = None
    step: int | None = None


@dataclass(frozen=True)
class Subjects:
    dimension: str  # model, checkpoint or step
    members: tuple[Subject, ...]


def subjects_of(models: Models, checkpoints: Sequence[str | Path] = (), revisions: Sequence[str] = ()) -> Subjects:
    """models: names as `skipscope units` takes them, or modules or names by labels of your own.

    checkpoints: files of weights for every model, or patterns of such (run/step*.safetensors). revisions: of hf:
    models; of a directory the folder of that name in it, of OWNER/NAME a branch, tag or commit in the local cache.
    """
    named = _named(models)
    if checkpoints and revisions:
        raise InputError("checkpoints and revisions both say which weights are measured; give one of them")
    files = [file for pattern in checkpoints for file in _files(str(pattern))]
    if not files and not revisions:
        return Subjects("model", _with_own_labels([Subject(label, model) for label, model in named.items()]))
    variants = [(label, *own) for label, model in named.items() for own in _variants(model, files, revisions)]
    several = len(named) > 1
    found = [
        Subject(f"{label} @ {name}" if several else name, model, weights, _step(name))
        for label, name, model, weights in variants
    ]
    if several:
        return Subjects("model", _with_own_labels([dataclasses.replace(each, step=None) for each in found]))
    steps = [each.step for each in found if each.step is not None]
    if len(set(steps)) < len(found):
        return Subjects("checkpoint", _with_own_labels([dataclasses.replace(each, step=None) for each in found]))
    return Subjects("step", tuple(sorted(found, key=lambda each: each.step or 0)))


def _named(models: Models) -> dict[str, Any]:
    if isinstance(models, str):
        models = [models]
    found = dict(models) if isinstance(models, Mapping) else {str(model): model for model in models}
    if not found:
        raise InputError("a sweep needs a model or more; name them, such as torchvision:resnet18")
    if not isinstance(models, Mapping) and len(found) < len(models):
        twice = next(label for label, count in Counter(map(str, models)).items() if count > 1)
        raise InputError(f"{twice} is named twice; name every model once")
    for label, model in found.items():
        if isinstance(model, str):
            read_model(model)
        elif not callable(getattr(model, "state_dict", None)):
            raise InputError(f"{label}: expected a name such as torchvision:resnet18 or a module, got {model!r:.60}")
    return found


def _variants(model: Any, files: Sequence[Path], revisions: Sequence[str]) -> list[tuple[str, Any, Path | None]]:
    """A name, the model and the weights of each."""
    if files and not isinstance(model, str):
        raise InputError("checkpoints are for models that are given by name; load the weights into modules yourself")
    for file in files:
        require_weights(file, model)
    if files:
        return [(name, model, file) for name, file in _short_names(files).items()]
    return [(revision, _at_revision(model, revision), None) for revision in revisions]


def _at_revision(model: Any, revision: str) -> str:
    source, name = read_model(model) if isinstance(model, str) else ("", "")
    if source != "hf":
        raise InputError(f"revisions={revision}: only hf: models have revisions, and {model!r:.60} is none")
    if there(Path(name).is_dir):
        if not there((Path(name) / revision).is_dir):
            held = sorted(each.name for each in Path(name).iterdir() if each.is_dir())
            there_are = ", ".join(held[:8]) or "none"
            raise InputError(f"revisions={revision}: no such folder in {name}; there are {there_are}")
        return f"hf:{Path(name) / revision}"
    if "/" not in name:
        raise InputError(f"revisions={revision}: hf:{name} is a type of models; name a directory or OWNER/NAME")
    return f"hf:{name}@{revision}"


def _files(pattern: str) -> list[Path]:
    if not any(sign in pattern for sign in "*?["):
        return [Path(pattern)]
    found = sorted(glob(pattern), key=_by_numbers)  # noqa: PTH207  (the pattern may be absolute)
    if not found:
        raise InputError(f"checkpoints={pattern}: no file has such a name")
    return [Path(file) for file in found]


def _by_numbers(name: str) -> list[tuple[bool, int, str]]:
    """step9 before step10."""
    return [(part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in PARTS_OF_NUMBERS.split(name)]


def _short_names(files: Sequence[Path]) -> dict[str, Path]:
    """Files by their names without folders and endings, or by whole paths where those are not unique."""
    short = {file.stem if file.suffix else file.name: file for file in files}
    return short if len(short) == len(files) else {str(file): file for file in files}


def _step(name: str) -> int | None:
    found = STEP.findall(name)
    return int(found[0]) if len(found) == 1 else None


def _with_own_labels(members: Sequence[Subject]) -> tuple[Subject, ...]:
    count = Counter(each.label for each in members)
    for label, number in count.items():
        if number > 1:
            raise InputError(f"{label} is named twice; name every model and every checkpoint once")
    return tuple(members)
