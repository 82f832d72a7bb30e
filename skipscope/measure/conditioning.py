"""Condition numbers of all weights and of all hidden states of a model, and ranks of its gradients.

(O. Oyedotun, K. Al Ismaeil, D. Aouada: Training very deep neural networks: Rethinking the role of skip connections.)

A condition number is sigma_max / sigma_min. A tensor has one for every mode of its higher-order SVD, and they become
one number in several ways (dimension `reduction`):

    max       the largest over the modes
    global    the largest singular value of all modes over the smallest; grows with the imbalance of the shape
    channel   the mode of channels alone: Cout of a weight (Cin of a transposed convolution's), those of a state
    matrix    of the weight as the matrix Cout x (Cin kh kw), of the state as channels x (samples and places): the mode
              of channels once more, under the name that it has for matrices

A state is what enters a layer, over the whole batch, and at last the model's output. Of states of three axes or more
the mode of samples is left out, whose condition number grows with their number.

Each number has a status: finite; numerically infinite (rounding hides the smallest value); infinite (a slice that is
zero throughout, or sigma_min == 0); overflow (NaN or infinite entries). Weights are taken as they are, and eps is that
of float64, times the longer side of the unfolding. States were computed in the model's type: eps is that of float32, or
of float64 for a float64 model, times the largest dimension of the state. `state_limited` says where there are too few
samples and places for full rank in all channels.

With targets or a loss: ranks of gradients, see `gradient_ranks`.

Cost: per weight or state, and mode, 2 M m^2 operations for an m x M unfolding, M > m. States are measured as they pass.
For gradients there is one error in memory at a time beside what a backward pass keeps, which is refused where it does
not fit; a second pass, of two samples, finds which axis of every state runs over the samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from skipscope.errors import InputError
from skipscope.measure.descriptions import described
from skipscope.measure.gradient_ranks import GradientRanks
from skipscope.measure.layers import Chosen, acting_weights, main_tensor, modules_with_weights
from skipscope.measure.passed_states import Passed
from skipscope.memory_limit import Memory, with_memory
from skipscope.spectrum import condition_number
from skipscope.spectrum.condition import Condition, Reduction
from skipscope.trace.export import in_full_precision
from skipscope.trace.inputs import Inputs
from skipscope.trace.running_statistics import never_seen
from skipscope.trace.tracing import own_output
from skipscope.trace.undisturbed import unwrapped

if TYPE_CHECKING:
    import xarray

REDUCTIONS: tuple[Reduction, ...] = ("max", "global", "channel", "matrix")
RANKED = ("error", "input", "gradient")
MODES = 4  # of the weights of two-dimensional convolutions; more where a tensor has more

Loss = Callable[..., Tensor]


@with_memory
def conditioning(
    model: nn.Module,
    x: Any,
    *,
    targets: Any = None,
    loss: Loss | None = None,
    layers: str | Sequence[str] | None = None,
    states: bool = True,
    weights: bool = True,
    training: bool = False,
    batch_axis: int = 0,
    memory: Memory | None = None,
) -> xarray.Dataset:
    """Measure a model at a batch; dimensions `weight`, `layer`, `reduction`, `mode`.

    x: a batch (tensor, tuple or dict); it is not looked at where only weights are measured.
    targets: labels, with the cross-entropy of the model's output as the loss. loss: another one, a scalar function of
    the model's output, and of the targets where they are given. With either of them gradients are measured.
    layers: names or patterns of layers, of weights or of the modules that hold them; None for all.
    training: batch norms normalise with the batch's own statistics, as they do while the model is trained.
    """
    import xarray

    if not isinstance(model, nn.Module):
        raise InputError(f"conditioning: expected a torch.nn.Module as the model, got {type(model).__name__}")
    model, chosen = unwrapped(model), Chosen(layers)
    gradients = targets is not None or loss is not None
    if not (weights or states or gradients):
        raise InputError("conditioning: expected weights=True, states=True or targets, got none of them")
    if any(weight.is_meta for weight in model.parameters()):
        raise InputError("conditioning: the weights are on the meta device, which holds no values; load them first")
    found = _weights(model, chosen) if weights else {}
    measured = {name: condition for name, condition in found.items() if condition is not None}
    left_out = [name for name, condition in found.items() if condition is None]
    attributes: dict[str, Any] = {
        "measure": "conditioning",
        "mode": "batch statistics" if training else "eval",
        "computed_in": "float64",
        "weight_precision": "float64",  # whose eps decides ranks and statuses: weights are taken as they are
        "dtype": ", ".join(sorted({str(weight.dtype).removeprefix("torch.") for weight in model.parameters()})),
    }
    passed = Passed(chosen, states)
    if states or gradients:
        inputs = Inputs.of(model, x, batch_axis)
        inputs.check_values(model)
        inputs.check_device(model)
        whole, inputs, notes = in_full_precision(model, inputs)
        own_output(whole, inputs)  # refuses what is no function of its input
        exact = all(tensor.dtype == torch.float64 for tensor in inputs.tensors() if tensor.is_floating_point())
        attributes["state_precision"] = "float64" if exact and attributes["dtype"] == "float64" else "float32"
        notes = [*([] if training else never_seen(whole)), *notes]
        attributes |= {"samples": inputs.batch, "notes": "; ".join(notes)}
        wanted = partial(_loss, targets=targets, loss=loss) if gradients else None
        passed.through(whole, inputs, wanted, batch_statistics=training)
        attributes |= {"loss": passed.loss} if gradients else {}
    rows = passed.rows
    chosen.check([*acting_weights(model), *modules_with_weights(model)])
    if not measured and not rows:
        raise InputError(f"{type(model).__name__} has no weights with two dimensions or more")
    data: dict[str, Any] = {}
    coordinates: dict[str, Any] = {"reduction": list(REDUCTIONS)}
    conditions = [*measured.values(), *(row.state.condition for row in rows if row.state is not None)]
    modes = max([MODES, *(len(condition.shape) for condition in conditions)])
    if measured:
        reduced = [[condition.reduced(reduce) for reduce in REDUCTIONS] for condition in measured.values()]
        data |= _columns("weight", "weight", list(measured.values()), reduced, modes)
        modules = dict(model.named_modules(remove_duplicate=False))
        coordinates |= {
            "weight": list(measured),
            "weight_shape": ("weight", [_text(condition.shape) for condition in measured.values()]),
            "weight_kind": ("weight", [type(modules[name.rpartition(".")[0]]).__name__ for name in measured]),
        }
    if rows:
        coordinates |= {
            "layer": [row.name for row in rows],
            "layer_shape": ("layer", [_text(row.shape) for row in rows]),
            "layer_kind": ("layer", [row.kind for row in rows]),
            "sample_axis": ("layer", [row.sample_axis for row in rows]),
        }
    if rows and states:
        found_states = [row.state for row in rows if row.state is not None]
        reduced = [state.reduced() for state in found_states]
        data |= _columns("state", "layer", [state.condition for state in found_states], reduced, modes)
        data["state_zero_units"] = "layer", numpy.array([state.zero_units for state in found_states])
        data["state_limited"] = "layer", numpy.array([state.limited for state in found_states])
    if rows and gradients:
        data |= _gradient_columns([row.ranks for row in rows])
    coordinates |= {"mode": list(range(modes))} if conditions else {}
    attributes["left_out"] = "; ".join([*left_out, *passed.left_out])
    return described(xarray.Dataset(data, coordinates, attributes))


def _weights(model: nn.Module, chosen: Chosen) -> dict[str, Condition | None]:
    """None for those that are empty or not real."""
    return {
        name: condition_number(weight) if weight.numel() and weight.is_floating_point() else None
        for name, weight in acting_weights(model).items()
        if chosen.include(name, name.rpartition(".")[0])
    }


def _loss(output: Any, targets: Any, loss: Loss | None) -> Tensor:
    if loss is not None:
        value = loss(output) if targets is None else loss(output, targets)
        if not isinstance(value, Tensor) or value.numel() != 1:
            got = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise InputError(f"conditioning: expected loss to return one number as a tensor, got {got}")
        return value.reshape(())
    scores = main_tensor(output)
    if not isinstance(targets, Tensor) or scores is None or scores.dim() < 2:
        raise InputError(
            "conditioning: expected labels as a tensor and scores (N, classes) as the model's output, got "
            f"{type(targets).__name__} and {'none' if scores is None else tuple(scores.shape)}; pass loss="
        )
    places = (scores.shape[0], *scores.shape[2:])
    if targets.is_floating_point() or tuple(targets.shape) != places:
        raise InputError(
            f"conditioning: expected whole numbers of shape {places} as targets, got {targets.dtype} "
            f"{tuple(targets.shape)}; pass loss= for another loss than the cross-entropy"
        )
    if int(targets.min()) < 0 or int(targets.max()) >= scores.shape[1]:
        raise InputError(
            f"conditioning: expected labels from 0 to {scores.shape[1] - 1}, got {int(targets.min())} to "
            f"{int(targets.max())}"
        )
    return F.cross_entropy(scores, targets.to(scores.device))


# -- the variables of the dataset


def _columns(
    name: str, dimension: str, found: Sequence[Condition], reduced: Sequence[Sequence[Condition]], modes: int
) -> dict[str, Any]:
    """reduced: by REDUCTIONS. NaN and no status for modes that there are not or that are left out; a matrix has two,
    which agree."""
    ranks = [[math.nan if one.rank is None else one.rank for one in row] for row in reduced]
    values, slices = (numpy.full((len(found), modes), numpy.nan) for _ in range(2))
    statuses = numpy.full((len(found), modes), "", dtype=object)
    for row, condition in enumerate(found):
        for mode in condition.modes:
            places = [0, 1] if len(condition.shape) == 2 else [mode.mode]
            values[row, places], statuses[row, places] = mode.value, mode.status
        slices[row, : len(condition.shape)] = condition.zero_slices
    dims, by_mode = (dimension, "reduction"), (dimension, "mode")
    return {
        f"{name}_condition": (dims, numpy.array([[one.value for one in row] for row in reduced])),
        f"{name}_status": (dims, numpy.array([[one.status for one in row] for row in reduced], dtype=object)),
        f"{name}_rank": (dims, numpy.array(ranks, dtype=float)),
        f"{name}_full_rank": (dims, numpy.array([[one.full_rank for one in row] for row in reduced])),
        f"{name}_mode_condition": (by_mode, values),
        f"{name}_mode_status": (by_mode, statuses),
        f"{name}_zero_slices": (by_mode, slices),
    }


def _gradient_columns(ranks: Sequence[GradientRanks | None]) -> dict[str, Any]:
    """NaN and no status for layers without factors, and for the output."""
    data: dict[str, Any] = {}
    for name in RANKED:
        found = [None if one is None else getattr(one, name) for one in ranks]
        rank, full, value = (
            numpy.array([math.nan if one is None else getattr(one, key) for one in found], dtype=float)
            for key in ("rank", "full_rank", "condition")
        )
        statuses = numpy.array(["" if one is None else one.status for one in found], dtype=object)
        data |= {
            f"{name}_condition": ("layer", value),
            f"{name}_status": ("layer", statuses),
            f"{name}_rank": ("layer", rank),
            f"{name}_full_rank": ("layer", full),
            f"{name}_share": ("layer", rank / full),
        }
    data["bound"] = "layer", numpy.array([math.nan if one is None else one.bound for one in ranks])
    return data


def _text(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape))
