"""Known mistakes that a forward pass and the weights show, and where numbers that are not finite come from.

They explain; the rules alone decide the verdict. What is not finite comes from a weight that holds it, or from the
operation that makes it. The model runs once more while every operation is looked at: what is not finite in its result
comes from what was not finite in its arguments, or else arises there; so each such tensor carries its origins along
until a state or the output holds it. A minus infinity that a mask holds is an origin of last resort: a softmax makes it
finite again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from skipscope.check.states import floats, training_pass
from skipscope.measure.layers import OUTPUT
from skipscope.module_hooks import Call, following
from skipscope.trace.undisturbed import unwrapped

NAMES_IN_A_SENTENCE = 5
DEAD = 0.9  # of the outputs of a ReLU that are zero for all samples; half of them are where samples have one direction
RECTIFIERS = ("relu", "relu_", "relu6")
ROUNDING = 1e-4  # of sums of probabilities, in half precision too


def diagnoses(model: nn.Module, x: Any, branch_ends: Collection[str] = ()) -> list[str]:
    """One sentence for each mistake. branch_ends: weights that may be zero, as those of branches that start so."""
    model = unwrapped(model)
    with _running_modules(model) as running, _Rectified(running) as rectified, training_pass(model, x) as run:
        output = next(iter(floats(run.output)), None)
        probabilities = output is not None and are_probabilities(output.detach())
        last = run.states[-1].layer
    sentences = _equal_rows(model, {*branch_ends, *([f"{last}.weight"] if last != OUTPUT else [])})
    if rectified.dead:
        named = [f"{place} ({share:.0%})" for place, share in rectified.dead.items()]
        sentences.append(
            f"ReLUs are dead: zero for every sample, so that no gradient passes, at {listed(named, 'module')}. Look at "
            "the weights and biases before them."
        )
    if probabilities:
        sentences.append(
            "The output is probabilities, as after a softmax. Cross-entropy takes scores: a second softmax makes its "
            "gradients small. Leave the softmax out of the model, or take the logarithm and nll_loss."
        )
    return sentences


def listed(names: Sequence[str], kind: str = "layer") -> str:
    shown, more = ", ".join(names[:NAMES_IN_A_SENTENCE]), len(names) - NAMES_IN_A_SENTENCE
    return f"{kind if len(names) == 1 else f'{kind}s'} {shown}{f' and {more} more' if more > 0 else ''}"


def _equal_rows(model: nn.Module, usual: Collection[str]) -> list[str]:
    """Layers whose outputs are the same, up to their biases. usual: weights that may be zero, those of a last layer
    and at the end of a branch; by any of the names that tied ones have."""
    may_be_zero = {id(weight) for name, weight in model.named_parameters(remove_duplicate=False) if name in usual}
    zero, equal = [], []
    for path, module in model.named_modules():
        if not isinstance(module, nn.Linear | _ConvNd) or len(module.weight) < 2:
            continue
        weight = module.weight.detach()
        if not bool(weight.any()):
            if id(module.weight) not in may_be_zero:
                zero.append(path)
        elif weight[0].numel() > 1 and bool((weight == weight[:1]).all()):
            equal.append(path)
    sentences = []
    if zero:
        sentences.append(
            f"All weights are zero in {listed(zero)}: nothing of the input passes, and no gradient. Draw them at "
            "random, unless a branch starts at zero there."
        )
    if equal:
        sentences.append(
            f"All rows of the weights are the same in {listed(equal)}: so are the outputs, and training "
            "keeps them the same. Draw the weights at random."
        )
    return sentences


def are_probabilities(output: Tensor) -> bool:
    if output.dim() < 2 or not bool(((output >= 0) & (output <= 1)).all()):
        return False
    for axis in {1, output.dim() - 1}:
        sums = output.double().sum(axis)
        if output.shape[axis] > 1 and bool((sums - 1).abs().max() <= ROUNDING * output.shape[axis] ** 0.5):
            return True
    return False


class _Rectified(TorchFunctionMode):
    """Modules with rectifiers of which nearly all outputs are zero for all samples, with the largest share."""

    def __init__(self, running: list[str]) -> None:
        super().__init__()
        self.running = running
        self.dead: dict[str, float] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in RECTIFIERS and args and isinstance(args[0], Tensor) and args[0].dim() > 1:
            with torch._C.DisableTorchFunction():
                entering = args[0].detach()
                share = float((entering <= 0).all(0).double().mean()) if bool((entering < 0).any()) else 0.0
            place = (self.running[-1] if self.running else "") or "the model itself"
            if share >= DEAD:
                self.dead[place] = max(share, self.dead.get(place, 0.0))
        return func(*args, **(kwargs or {}))


# -- the origin of what is not finite


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
    with _running_modules(model) as running, _Followed(model, running) as followed, training_pass(model, x) as run:
        tensors = [state.tensor for state in run.states] + floats(run.output)
        bad = next((tensor for tensor in tensors if not tensor.isfinite().all()), None)
    origins = [] if bad is None else followed.origins(bad)
    return next(iter(sorted(origins, key=lambda origin: origin.mask)), None)


@contextmanager
def _running_modules(model: nn.Module) -> Iterator[list[str]]:
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
            self._found[id(tensor)] = (tensor, list(dict.fromkeys(entering)) or [self._made(name, tensor)])
        return result

    def _of_argument(self, tensor: Tensor) -> list[Origin]:
        if id(tensor) in self._found:
            return self._found[id(tensor)][1]
        for kind, named in (("weight", self.model.named_parameters()), ("buffer", self.model.named_buffers())):
            for path, value in named:  # within a pass these are the tensors that the modules compute with
                if value is tensor:
                    return [_origin(f"the {kind} {path} has", tensor, weight=True)]
        return [_origin(f"a tensor that enters {self._place()} has", tensor)]

    def _made(self, name: str, tensor: Tensor) -> Origin:
        return _origin(f"{name.strip('_')} in {self._place()} gives", tensor, ", from finite ones")

    def _place(self) -> str:
        path = self.running[-1] if self.running else ""
        kind = type(self.model.get_submodule(path)).__name__
        return f"{path} ({kind})" if path else f"the model itself ({kind})"


def _not_finite(tree: Any) -> list[Tensor]:
    leaves = pytree.tree_leaves(tree)
    with torch._C.DisableTorchFunction():
        return [t for t in leaves if isinstance(t, Tensor) and t.is_floating_point() and not bool(t.isfinite().all())]


def _origin(what: str, tensor: Tensor, more: str = "", *, weight: bool = False) -> Origin:
    """what, more: the words before and after how many of the numbers are not finite."""
    with torch._C.DisableTorchFunction():
        undefined, above = bool(tensor.isnan().any()), bool((tensor == torch.inf).any())
        overflow = bool(tensor.isinf().any()) and not undefined
        count = int((~tensor.isfinite()).sum())
    words = f"{what} {count} of {tensor.numel()} numbers that are not finite{more}"
    return Origin(words, overflow, weight, mask=not undefined and not above)
