"""Where numbers that are not finite come from: a weight that holds them, or the operation that makes them.

The model runs once more while every operation is looked at. What is not finite in its result comes from what was not
finite in its arguments, or else arises there; so each such tensor carries its origins along until a state or the output
holds it. A minus infinity that a mask holds is an origin of last resort: a softmax makes it finite again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from skipscope.check.states import floats, training_pass
from skipscope.module_hooks import Call, following
from skipscope.trace.undisturbed import unwrapped


@dataclass(frozen=True)
class Origin:
    """words: what holds or makes them. overflow: some are infinite and none is undefined."""

    words: str
    overflow: bool
    weight: bool = False
    mask: bool = False


def origin_of_not_finite(model: nn.Module, x: Any) -> Origin | None:
    """Of the first state, or the output, that is not finite; None where an operation could not be followed."""
    model = unwrapped(model)
    with running_modules(model) as running, _Followed(model, running) as followed, training_pass(model, x) as run:
        tensors = [state.tensor for state in run.states] + floats(run.output)
        bad = next((tensor for tensor in tensors if not tensor.isfinite().all()), None)
    origins = [] if bad is None else followed.origins(bad)
    return next(iter(sorted(origins, key=lambda origin: origin.mask)), None)


@contextmanager
def running_modules(model: nn.Module) -> Iterator[list[str]]:
    """The paths of the modules that run at the moment, the innermost last."""
    running: list[str] = []

    def leave(call: Call, output: Any) -> None:
        running.pop()

    modules = dict(model.named_modules())
    with following(modules, entered=lambda call: running.append(call.path), left=leave, after_errors=True):
        yield running


class _Followed(TorchFunctionMode):
    def __init__(self, model: nn.Module, running: list[str]) -> None:
        super().__init__()
        self.model, self.running = model, running
        self._found: dict[int, tuple[Tensor, list[Origin]]] = {}  # the tensor is kept, so that its number stays its own

    def origins(self, tensor: Tensor) -> list[Origin]:
        return self._found[id(tensor)][1] if id(tensor) in self._found else []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name.startswith("__get") and name != "__getitem__":  # an attribute, such as a shape
            return func(*args, **kwargs)
        entering = [origin for tensor in _not_finite((args, kwargs)) for origin in self._of_argument(tensor)]
        result = func(*args, **kwargs)
        written = args[:1] if name.endswith("_") else kwargs.get("out")  # in place, __setitem__ too
        for tensor in _not_finite((result, written)):
            self._found[id(tensor)] = (tensor, list(dict.fromkeys(entering)) or [self._here(name, tensor)])
        return result

    def _of_argument(self, tensor: Tensor) -> list[Origin]:
        if id(tensor) in self._found:
            return self._found[id(tensor)][1]
        holds = f"has {_count(tensor)} that are not finite"
        for kind, named in (("weight", self.model.named_parameters()), ("buffer", self.model.named_buffers())):
            for path, value in named:  # within a pass these are the tensors that the modules compute with
                if value is tensor:
                    return [Origin(f"the {kind} {path} {holds}", _overflow(tensor), weight=True, mask=_is_mask(tensor))]
        return [Origin(f"a tensor that enters {self._place()} {holds}", _overflow(tensor), mask=_is_mask(tensor))]

    def _here(self, name: str, tensor: Tensor) -> Origin:
        made = f"{name.strip('_')} in {self._place()} gives {_count(tensor)} that are not finite, from finite ones"
        return Origin(made, _overflow(tensor), mask=_is_mask(tensor))

    def _place(self) -> str:
        path = self.running[-1] if self.running else ""
        kind = type(self.model.get_submodule(path)).__name__
        return f"{path} ({kind})" if path else f"the model itself ({kind})"


def _not_finite(tree: Any) -> list[Tensor]:
    leaves = pytree.tree_leaves(tree)
    with torch._C.DisableTorchFunction():
        return [t for t in leaves if isinstance(t, Tensor) and t.is_floating_point() and not bool(t.isfinite().all())]


def _count(tensor: Tensor) -> str:
    with torch._C.DisableTorchFunction():
        return f"{int((~tensor.isfinite()).sum())} of {tensor.numel()} numbers"


def _overflow(tensor: Tensor) -> bool:
    with torch._C.DisableTorchFunction():
        return bool(tensor.isinf().any()) and not bool(tensor.isnan().any())


def _is_mask(tensor: Tensor) -> bool:
    with torch._C.DisableTorchFunction():
        return not bool(tensor.isnan().any()) and not bool((tensor == torch.inf).any())
