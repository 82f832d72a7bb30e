"""The layers of a model as they are called: modules with a weight of two dimensions or more of their own.

A layer's state is what enters it, so that an activation that is written as a function is seen after it has acted. A
second call of a module is a layer of its own, `name#2`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils.parametrize import ParametrizationList
from torch.utils import _pytree as pytree

from skipscope.errors import InputError
from skipscope.module_hooks import Call, following
from skipscope.trace.export import does_not_run
from skipscope.trace.inputs import Inputs
from skipscope.trace.undisturbed import undisturbed

OUTPUT = "output"  # the name of what leaves the last one


class Chosen:
    """Names or patterns such as `stage1.*`; None for all. Each has to match something."""

    def __init__(self, patterns: str | Sequence[str] | None) -> None:
        self.patterns = [patterns] if isinstance(patterns, str) else patterns and list(patterns)
        if self.patterns is not None and not (self.patterns and all(isinstance(p, str) for p in self.patterns)):
            raise InputError(f"layers={patterns!r}: expected names or patterns such as 'stage1.*'")
        self._used: set[str] = set()

    def include(self, *names: str) -> bool:
        """names: a pattern may match any of them."""
        if self.patterns is None:
            return True
        found = {pattern for pattern in self.patterns if any(fnmatchcase(name, pattern) for name in names)}
        self._used |= found
        return bool(found)

    def check(self, known: Sequence[str]) -> None:
        unused = [pattern for pattern in self.patterns or () if pattern not in self._used]
        if unused:
            shown = ", ".join(known[:5]) + (", ..." if len(known) > 5 else "")
            raise InputError(f"layers: {unused[0]!r} matches no layer and no weight; there are {shown or 'none'}")


Entered = Callable[[Call, Tensor | None], None]  # None: no floating-point tensor enters it
Left = Callable[[Call, Tensor], Tensor | None]  # what goes on in place of the output; None: the output itself


def modules_with_weights(model: nn.Module) -> dict[str, nn.Module]:
    """By path. The model itself is one only where it has no parts, under the name of its class."""
    found = {path: module for path, module in model.named_modules() if path and _has_weight(module)}
    if not found and next(model.children(), None) is None and _has_weight(model):
        return {type(model).__name__: model}
    return found


def acting_weights(model: nn.Module) -> dict[str, Tensor]:
    """All weights of two dimensions or more by name: what layers multiply by, where they make it from parameters too.

    Such a layer has torch's parametrizations, or says what it makes as `effective_weight`.
    """
    found: dict[str, Tensor] = {}
    for name, weight in model.named_parameters():
        before, parametrised, after = f".{name}".partition(".parametrizations.")
        path, _, own = (
            f"{before[1:]}.{after.partition('.')[0]}".rpartition(".") if parametrised else name.rpartition(".")
        )
        module = model.get_submodule(path)
        made = getattr(module, "effective_weight", None) if own == "weight" else None
        value = made if isinstance(made, Tensor) else getattr(module, own) if parametrised else weight
        if value.dim() >= 2:
            found.setdefault(f"{path}.{own}" if path else own, value.detach())
    return found


@contextmanager
def undisturbed_run(model: nn.Module, *, gradients: bool = False, batch_statistics: bool = False) -> Iterator[None]:
    """Evaluation mode, everything put back; with `batch_statistics` batch norms normalise as in training, and their
    running statistics are put aside, so that it is copies of them that move."""
    norms = [module for module in model.modules() if batch_statistics and isinstance(module, _BatchNorm)]
    aside = [dict(norm._buffers) for norm in norms]
    with undisturbed(model), torch.set_grad_enabled(gradients):
        try:
            for norm, buffers in zip(norms, aside, strict=True):
                norm.training = True
                norm._buffers.update({name: None if old is None else old.clone() for name, old in buffers.items()})
            yield
        finally:
            for norm, buffers in zip(norms, aside, strict=True):
                norm._buffers.update(buffers)


def run(model: nn.Module, inputs: Inputs, entered: Entered, left: Left | None = None) -> Any:
    """The model's output; `entered` is called with every layer's state, `left` with what it returns."""

    def enter(call: Call) -> None:
        entered(call, main_tensor((call.args, call.kwargs)))

    def leave(call: Call, output: Any) -> Tensor | None:
        return left(call, output) if left is not None and isinstance(output, Tensor) else None

    with following(modules_with_weights(model), entered=enter, left=None if left is None else leave):
        try:
            return model(*inputs.args, **inputs.kwargs)
        except InputError:
            raise
        except Exception as error:  # whatever the user's forward raises
            raise does_not_run(model, inputs, error) from error


def float_tensors(values: Any) -> list[Tensor]:
    """The floating-point tensors of arguments or outputs."""
    return [leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, Tensor) and leaf.is_floating_point()]


def main_tensor(values: Any) -> Tensor | None:
    return next(iter(float_tensors(values)), None)


def _has_weight(module: nn.Module) -> bool:
    if isinstance(module, nn.ParameterList | nn.ParameterDict | ParametrizationList):
        return False
    if any(weight.dim() >= 2 for weight in module.parameters(recurse=False)):
        return True
    return "weight" in getattr(module, "parametrizations", {}) and module.weight.dim() >= 2  # type: ignore[operator]


def operations(shape: Sequence[int]) -> float:
    """About how many operations the condition number of a weight or a state takes."""
    sizes = [(size, math.prod(shape) // max(size, 1)) for size in (shape[:1] if len(shape) == 2 else shape)]
    return float(sum(8 * max(sides) * min(sides) ** 2 for sides in sizes))
