"""Weights of the same networks under the names that other libraries give them.

A scheme is a list of rules, each from a foreign name to ours. A file is taken by the first scheme under which every
tensor fits by name and shape; nothing is loaded by half. What names and shapes do not show stays the user's to know:
a network trained without skips, or one whose zero channels are not half in front and half behind, fits as well.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from skipscope.errors import InputError
from skipscope.models.anatomy import differences
from skipscope.models.fit import misfits
from skipscope.models.resnet import ResNet

NORM = r"\.(weight|bias|running_mean|running_var|num_batches_tracked)"


@dataclass(frozen=True)
class Scheme:
    """OUTER in a rule's result is the network's one norm outside blocks: `norm`, or `final_norm` (pre-activation)."""

    name: str
    rules: tuple[tuple[str, str], ...]

    def ours(self, foreign: str, outer: str = "norm") -> str | None:
        """Our name; None for a name that the scheme does not know."""
        for pattern, result in self.rules:
            if found := re.fullmatch(pattern, foreign):
                return _counted(found.expand(result)).replace("OUTER", outer)
        return None


def _counted(name: str) -> str:
    """Units that are counted from one (`unit3`) become our blocks, counted from zero (`2`)."""
    return re.sub(r"unit(\d{1,6})(?!\d)", lambda found: str(int(found[1]) - 1), name)


def _layered(name: str, shortcut: str, classifier: str) -> Scheme:
    return Scheme(
        name,
        (
            (r"conv1\.weight", "conv.weight"),
            (rf"bn1?{NORM}", r"OUTER.\1"),
            (r"layer(\d+)\.(\d+)\.conv(\d)\.weight", r"stage\1.\2.conv\3.weight"),
            (rf"layer(\d+)\.(\d+)\.bn(\d){NORM}", r"stage\1.\2.norm\3.\4"),
            (rf"layer(\d+)\.(\d+)\.{shortcut}\.(0|1){NORM}", r"stage\1.\2.shortcut.\3.\4"),
            (rf"{classifier}\.(weight|bias)", r"classifier.\1"),
        ),
    )


OWN = Scheme("skipscope", ((r"(.*)", r"\1"),))
SCHEMES = (
    OWN,
    _layered("CIFAR port (layer1.0.conv1, shortcut, linear)", "shortcut", "linear"),
    _layered("torchvision and timm (layer1.0.conv1, downsample, fc)", "downsample", "fc"),
    _layered("mixed (layer1.0.conv1)", "(?:shortcut|downsample)", "(?:linear|fc|classifier|output)"),
    Scheme(
        "pytorchcv (features.stage1.unit1.body.conv1.conv)",
        (
            (r"features\.init_block\.(?:conv\.)?weight", "conv.weight"),
            (rf"features\.init_block\.bn{NORM}", r"OUTER.\1"),
            (rf"features\.post_activ\.bn{NORM}", r"final_norm.\1"),
            (r"features\.stage(\d+)\.(unit\d+)\.body\.conv(\d)\.conv\.weight", r"stage\1.\2.conv\3.weight"),
            (rf"features\.stage(\d+)\.(unit\d+)\.body\.conv(\d)\.bn{NORM}", r"stage\1.\2.norm\3.\4"),
            (r"features\.stage(\d+)\.(unit\d+)\.identity_conv\.(?:conv\.)?weight", r"stage\1.\2.shortcut.0.weight"),
            (rf"features\.stage(\d+)\.(unit\d+)\.identity_conv\.bn{NORM}", r"stage\1.\2.shortcut.1.\3"),
            (r"output\.(?:fc\.)?(weight|bias)", r"classifier.\1"),
        ),
    ),
)


def translated(model: ResNet, state: Mapping[str, Tensor], path: Path) -> dict[str, Tensor]:
    """The tensors under our names; an InputError that speaks of the closest scheme where none fits."""
    renamed = [(scheme, _renamed(scheme, state, model)) for scheme in SCHEMES]
    for _, candidate in renamed:
        if not misfits(model, candidate):
            return candidate
    own = model.state_dict()
    scheme, closest = max(renamed, key=lambda pair: sum(_known(name) for name in pair[1]))
    different = differences(closest, own)
    stated = [f"{key} {theirs} in the file, {ours} in the model" for key, (theirs, ours) in different.items()]
    raise InputError(
        f"{path} does not fit the network. Read by the names of {scheme.name}: "
        f"{'; '.join([*stated, *misfits(model, closest)])}. {_advice(different)}"
    )


def _renamed(scheme: Scheme, state: Mapping[str, Tensor], model: ResNet) -> dict[str, Tensor]:
    outer = "final_norm" if model.preactivation else "norm"
    return {scheme.ours(name, outer) or name: tensor for name, tensor in state.items()}


def _known(name: str) -> bool:
    """Is it a name that some network of ours has?"""
    return re.match(r"stage\d+\.\d+\.(conv|norm|shortcut)|(conv|norm|final_norm|classifier)\.", name) is not None


def _advice(different: Mapping[str, tuple[object, object]]) -> str:
    """What to write in place of the model's name."""
    parts = []
    if "shortcut" in different:
        projection = different["shortcut"][0] == "projection"
        parts.append(
            "the file has weights on its shortcuts: build with -projection (shortcut='projection')"
            if projection
            else "the file has no weights on its shortcuts: build without -projection (shortcut='pad')"
        )
    if "block" in different:
        parts.append("build with -bottleneck" if different["block"][0] == "bottleneck" else "build without -bottleneck")
    if "preactivation" in different:
        parts.append("name the family with pre" if different["preactivation"][0] else "name the family without pre")
    if "depth" in different:
        parts.append(f"name the depth {different['depth'][0]}")
    advice = "; ".join(parts) or "name the network that was trained, for example skipscope:resnet56-cifar"
    return advice[0].upper() + advice[1:]
