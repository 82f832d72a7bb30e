"""Known mistakes that a forward pass and the weights show. They explain; the rules alone decide the verdict."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.overrides import TorchFunctionMode

from skipscope.check.origin import running_modules
from skipscope.check.states import floats, training_pass
from skipscope.measure.layers import OUTPUT
from skipscope.trace.undisturbed import unwrapped

NAMES_IN_A_SENTENCE = 5
DEAD = 0.9  # of the outputs of a ReLU that are zero for all samples; half of them are where samples have one direction
RECTIFIERS = ("relu", "relu_", "relu6")
ROUNDING = 1e-4  # of sums of probabilities, in half precision too


def diagnoses(model: nn.Module, x: Any, branch_ends: Collection[str] = ()) -> list[str]:
    """One sentence for each mistake. branch_ends: weights that may be zero, as those of branches that start so."""
    model = unwrapped(model)
    with running_modules(model) as running, _Rectified(running) as rectified, training_pass(model, x) as run:
        output = next(iter(floats(run.output)), None)
        probabilities = output is not None and _are_probabilities(output.detach())
        last = run.states[-1].layer
    return [
        *_equal_rows(model, {*branch_ends, *([f"{last}.weight"] if last != OUTPUT else [])}),
        *_dead(rectified.dead),
        *_softmax(probabilities),
    ]


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


def _dead(found: dict[str, float]) -> list[str]:
    if not found:
        return []
    named = [f"{place} ({share:.0%})" for place, share in found.items()]
    return [
        f"ReLUs are dead: zero for every sample, so that no gradient passes, at {listed(named, 'module')}. Look at the "
        "weights and biases before them."
    ]


def _softmax(probabilities: bool) -> list[str]:
    if not probabilities:
        return []
    return [
        "The output is probabilities, as after a softmax. Cross-entropy takes scores: a second softmax makes its "
        "gradients small. Leave the softmax out of the model, or take the logarithm and nll_loss."
    ]


def _are_probabilities(output: Tensor) -> bool:
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
