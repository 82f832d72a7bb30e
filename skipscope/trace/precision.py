"""A model run in another floating type than its own, on converted weights that follow the model's."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from skipscope.trace.freshness import WeightsSeen
from skipscope.trace.program import in_type
from skipscope.trace.undisturbed import kept_places


class OtherPrecision:
    """Calls a model, or one of its modules, in the floating type of the state that it is given."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        floats = [weight.dtype for weight in model.parameters() if weight.is_floating_point()]
        self.dtype = floats[0] if floats else torch.get_default_dtype()
        self._converted: tuple[WeightsSeen, torch.dtype, dict[str, Any]] | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> OtherPrecision:
        return OtherPrecision(copy.deepcopy(self.model, memo))

    def seen(self) -> WeightsSeen:
        return WeightsSeen(self.model, self._own_weights())

    def _own_weights(self) -> dict[str, Tensor]:
        """Under all of their names: a module that is called alone finds weights that it shares with others."""
        parameters = self.model.named_parameters(remove_duplicate=False)
        return {**dict(parameters), **dict(self.model.named_buffers(remove_duplicate=False))}

    def forget(self) -> None:
        """Give up the converted weights: they take memory, and may have changed in ways that torch does not count."""
        self._converted = None

    def call(self, path: str, args: Any, kwargs: Any, dtype: torch.dtype) -> Any:
        """path: of a module; empty for the model itself."""
        module = self.model.get_submodule(path)
        if dtype == self.dtype:
            return module(*args, **kwargs)
        prefix = f"{path}." if path else ""
        weights = {
            name.removeprefix(prefix): weight
            for name, weight in self._weights(dtype).items()
            if name.startswith(prefix)
        }
        # A forward pass may write to a buffer: the converted one is kept for the next.
        clones = {id(weight): weight.clone() for weight in weights.values() if not isinstance(weight, nn.Parameter)}
        weights = {name: clones.get(id(weight), weight) for name, weight in weights.items()}
        args, kwargs = pytree.tree_map_only(Tensor, lambda value: in_type(value, dtype), (args, kwargs))
        with kept_places(module):
            return torch.func.functional_call(module, weights, args, kwargs)

    def works(self, args: Any, kwargs: Any, dtype: torch.dtype) -> bool:
        """Does the whole model run in this type, and nothing in it fall back to a narrower one?"""
        if dtype == self.dtype:
            return True
        try:
            with _Casts() as casts:
                self.call("", args, kwargs, dtype)
        except Exception:  # whatever the user's code, or the device, says to another type
            return False
        return not casts.found

    def _weights(self, dtype: torch.dtype) -> dict[str, Any]:
        known = self._converted
        if known is None or known[1] != dtype or known[0].changed() is not None:
            own = self._own_weights()
            converted = {id(weight): _converted(weight, dtype) for weight in own.values()}
            self._converted = known = (self.seen(), dtype, {name: converted[id(own[name])] for name in own})
        return known[2]


def _converted(weight: Tensor, dtype: torch.dtype) -> Tensor:
    value: Tensor = in_type(weight.detach(), dtype)
    return nn.Parameter(value, requires_grad=False) if isinstance(weight, nn.Parameter) else value


class _Casts(TorchDispatchMode):
    """Finds operations that make a narrow number of a wide one."""

    def __init__(self) -> None:
        super().__init__()
        self.found = False

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        before, after = (
            [leaf.dtype.itemsize for leaf in pytree.tree_leaves(tree) if _is_real(leaf)]
            for tree in ((args, kwargs), result)
        )
        self.found |= bool(before and after) and min(after) < max(before)
        return result


def _is_real(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and leaf.is_floating_point()
