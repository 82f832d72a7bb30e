"""A user's own model: `file.py:factory`, a function that returns a module, or a module and an example input.

`sized` gives as many samples as were asked for, of the kind that the example has. In this order: the first of the
example's own; drawn from the example's own numbers, where these look independent of one another, as noise and random
tokens do; from further calls of the factory, as where it reads other data each time. A factory that always gives the
same few structured samples has no more of them, and the result says so.
"""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils import _pytree as pytree

from skipscope.errors import InputError
from skipscope.models.memory import ALLOCATE_AT_MOST, GIB, require_input_room, size_of
from skipscope.models.recipe import Batch, Recipe, Wish, random_images, refuse_text
from skipscope.models.request import require_model

EXAMPLE = "the example that its factory gives"
PAIRS = 64  # of neighbours; fewer do not tell whether numbers are independent
DEVIATIONS = 4.0  # of the correlation of independent numbers


def factory_recipe(file: str, name: str) -> Recipe:
    """The factory is called here: only the call tells whether an example input comes with the module."""
    require_model(f"{file}:{name}")
    path = Path(file)
    with _beside(path):
        module = _executed(path)
        if not name or not hasattr(module, name):
            own = {key: value for key, value in vars(module).items() if callable(value)}
            functions = [key for key, it in own.items() if getattr(it, "__module__", None) == module.__name__]
            known = f"; it has {', '.join(functions[:6])}" if functions else ""
            raise InputError(f"{file} has no '{name}'{known}")
        made = _called(path, getattr(module, name))
    model, batch = _taken_apart(made)
    if not isinstance(model, nn.Module):
        raise InputError(
            f"{file}:{name} gave {type(model).__name__}; expected a torch.nn.Module, or a module and an example input"
        )

    if isinstance(model, torch.jit.ScriptModule):
        raise InputError(
            f"{file}:{name} gave a TorchScript module, which has no Python code to follow; give the original"
        )
    if any(is_lazy(weight) for weight in (*model.parameters(), *model.buffers())):
        raise InputError(
            f"{file}:{name} gave lazy layers without weights; run it once on an example before it is given"
        )

    def example(model: nn.Module, wish: Wish) -> Batch | None:
        refuse_text(wish, f"{file}:{name}")
        return batch if wish.shape is None else random_images(wish.shape, wish)

    def another_example() -> Batch | None:
        if size_of(model) > ALLOCATE_AT_MOST:
            raise NotCalledAgainError(
                f"it was not called a second time: that would build a second model in addition to the first, of "
                f"{size_of(model) / GIB:.1f} GiB; let it give more samples"
            )
        with _beside(path):
            return _taken_apart(_called(path, getattr(module, name)))[1]

    return Recipe(
        f"{file}:{name}",
        build=lambda: model,
        example=example,
        another_example=another_example,
        weights="weights as the factory made them",
        random_weights=False,
    )


def _taken_apart(made: Any) -> tuple[Any, Batch | None]:
    return made if isinstance(made, tuple) and len(made) == 2 else (made, None)


@contextmanager
def _beside(path: Path) -> Iterator[None]:
    """Let the file import its neighbours, as it can when Python runs it."""
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


def _executed(path: Path) -> ModuleType:
    # The name keeps a user's torch.py or data.py from shadowing anything; dataclasses look their module up by it.
    name = f"skipscope_factory_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path} cannot be loaded as Python code; give a file whose name ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # the exit code is ours
        raise _explained(path, error) from error
    return module


def _called(path: Path, factory: Any) -> Any:
    if isinstance(factory, nn.Module) or not callable(factory):
        return factory
    try:
        return factory()
    except (Exception, SystemExit) as error:
        raise _explained(path, error) from error


def _explained(path: Path, error: BaseException) -> InputError:
    """The line of the user's file that failed: the part of a traceback that the user can act on."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).name == path.name]
    line = frames[-1].lineno if frames else getattr(error, "lineno", None)
    return InputError(f"{path}{f', line {line}' if line else ''}: {type(error).__name__}: {error}")


class NotCalledAgainError(InputError):
    """A factory was not asked for another example, and why."""


@dataclass(frozen=True)
class Sized:
    """words: what the samples are. lacking: why there are fewer than were asked for, if so."""

    batch: Batch
    words: str
    lacking: str = ""


def sized(example: Batch, wanted: int, another_example: Callable[[], Batch | None]) -> Sized:
    """another_example: one more, as the factory gives it, or None where it then gives a model alone.

    Random numbers are drawn from torch's own generator.
    """
    batch = samples_of(example)
    if batch is None or batch == wanted:
        return Sized(example, EXAMPLE)
    if batch > wanted:
        taken = _map(example, batch, lambda tensor: tensor[:wanted])
        return Sized(taken, f"the first {wanted} of the {batch} samples that its factory gives")
    if all(_alike(t) or _independent(t) for t in _carriers(example, batch)):
        drawn = _map(example, batch, lambda tensor: _drawn(tensor, wanted))
        words = f"{wanted} samples drawn from the numbers of the {batch} that its factory gives, which look independent"
        return Sized(drawn, words)
    return _from_further_calls(example, batch, wanted, another_example)


def samples_of(example: Batch) -> int | None:
    """The size of the first axis of the first tensor that has one."""
    return next((len(t) for t in _tensors(example) if t.dim()), None)


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Tensor)]


def _carriers(example: Batch, batch: int) -> list[Tensor]:
    return [tensor for tensor in _tensors(example) if tensor.dim() and len(tensor) == batch]


def _map(example: Batch, batch: int, change: Callable[[Tensor], Tensor]) -> Any:
    """Of the tensors that carry the batch; others stay."""
    return pytree.tree_map_only(Tensor, lambda t: change(t) if t.dim() and len(t) == batch else t, example)


def _alike(tensor: Tensor) -> bool:
    """Whether all samples are the same, as a mask of ones or positions are."""
    return bool((tensor == tensor.flatten()[:1]).all()) or (len(tensor) > 1 and bool((tensor == tensor[:1]).all()))


def _independent(tensor: Tensor) -> bool:
    """Whether neighbours along every axis are as uncorrelated as independent numbers are."""
    values = tensor.detach().double()
    values = values - values.mean()
    variance = values.square().mean()
    for axis in (axis for axis, size in enumerate(values.shape) if size > 1):
        ahead, behind = values.narrow(axis, 1, values.shape[axis] - 1), values.narrow(axis, 0, values.shape[axis] - 1)
        correlation = (ahead * behind).mean() / variance
        if ahead.numel() < PAIRS or not abs(float(correlation)) <= DEVIATIONS / ahead.numel() ** 0.5:
            return False
    return True


def _drawn(tensor: Tensor, wanted: int) -> Tensor:
    if _alike(tensor):
        return tensor[:1].expand(wanted, *tensor.shape[1:]).clone()
    require_input_room((wanted, *tensor.shape[1:]), torch.int64)
    places = torch.randint(tensor.numel(), (wanted, *tensor.shape[1:]), device="cpu")
    return tensor.flatten()[places.to(tensor.device)]


def _from_further_calls(example: Batch, batch: int, wanted: int, another_example: Callable[[], Batch | None]) -> Sized:
    found, calls, lacking = _samples(example, batch), 1, ""
    seen = {_content(sample) for sample in found}
    while len(found) < wanted:
        try:
            other = another_example()
        except NotCalledAgainError as error:
            lacking = str(error)
            break
        except InputError as error:
            lacking = f"a further call fails: {error}"
            break
        calls += 1
        other_batch = None if other is None else samples_of(other)
        if other is None or other_batch is None:
            lacking = "a further call gives none"
            break
        if _kind(other, other_batch) != _kind(example, batch):
            lacking = "a further call gives an example of another kind"
            break
        new = [sample for sample in _samples(other, other_batch) if _content(sample) not in seen]
        seen |= {_content(sample) for sample in new}
        found += new
        if not new:
            lacking = "every call gives the same"
            break
    kept = iter([torch.cat(parts) for parts in zip(*found[:wanted], strict=True)])
    batched = _map(example, batch, lambda _: next(kept))
    count = min(len(found), wanted)
    has = f"{count} sample{'s' if count > 1 else ''}"
    words = f"{has} from {calls} call{'s' if calls > 1 else ''} of its factory"
    return Sized(batched, words, f"the factory gives {has} ({lacking})" if lacking else "")


def _samples(example: Batch, batch: int) -> list[list[Tensor]]:
    """For each sample a row of every tensor that carries the batch."""
    return [[tensor[i : i + 1] for tensor in _carriers(example, batch)] for i in range(batch)]


def _content(sample: list[Tensor]) -> bytes:
    return b"".join(t.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() for t in sample)


def _kind(example: Batch, batch: int) -> Any:
    leaves, structure = pytree.tree_flatten(example)
    tensors = [t for t in leaves if isinstance(t, Tensor)]
    return structure, [(t.dtype, t.shape[1:] if t.dim() and len(t) == batch else t.shape) for t in tensors]
