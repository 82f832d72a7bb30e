"""How a perturbation of the input travels through a trunk, and how well the units' Jacobians predict it.

With x_k the clean state at unit k's entry (n entries) and d_k its change when the input is perturbed (Rothauge, Yao, Hu
and Mahoney, linearised stability):

rms             |d_k| / sqrt(n), which compares states of different sizes
relative        |d_k| / |x_k|
per_entry       |d_k| / n
actual          |R(x_k + d_k) - R(x_k)| / |d_k|: the growth from the unit's entry to its own exit; what else the unit
                reads (its context) is that of the clean point in both, as it is for the Jacobian
predicted       |J d_k| / |d_k| with the unit's Jacobian J at the clean state
projection      alpha_i = <v_i, d_k> / |d_k| on the right singular vectors v_i of J, for the units in `project`
singular_value  sigma_1 >= sigma_2 >= ... of J
share_top10     alpha_1^2 + ... + alpha_10^2
share_rest      |d_k - sum_i alpha_i |d_k| v_i|^2 / |d_k|^2: outside of the vectors that were computed; the null space
                of a unit with fewer exits than entries, rounding otherwise
identity_error  | predicted^2 - sum_i alpha_i^2 sigma_i^2 | / sigma_1^2, the two from a product and from the SVD
converged       whether the triplet's residual is within its tolerance; always so where all were computed

States are those of the model's own type. From there units, Jacobians, differences and norms are evaluated in float64,
so that predicted and actual growth do not depend on float32 rounding; d_k does where it is hardly larger than it
(`relative` near 1e-7): convert model and batch with .double() for so small a perturbation. Growth of no change is NaN.

The sign of v_i is fixed: its largest entry is positive. Where singular values are equal (the plateau at 1) their
vectors are any basis of one space, and only the sum of alpha_i^2 over them means something.

Cost: a forward pass for every kind of perturbation, one product with each unit's Jacobian. For each projected unit
and sample: min(m, n) products and an SVD of m x n, one in memory at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy
import torch
from torch import Tensor

from skipscope.errors import InputError
from skipscope.linear import Operator
from skipscope.linear.derivative import by_sample
from skipscope.measure.descriptions import described
from skipscope.measure.selection import (
    Samples,
    Units,
    attributes,
    chosen_units,
    exit_axis,
    filled,
    labels,
    point_of,
    sample_indices,
)
from skipscope.memory_limit import Memory, with_memory
from skipscope.renamed import renamed_parameters
from skipscope.spectrum import svd
from skipscope.spectrum.assembly import thin_svd
from skipscope.spectrum.orthonormal import fixed_signs
from skipscope.spectrum.plan import counted
from skipscope.trace import Point, Trunk, Unit
from skipscope.trace.freshness import asked_once
from skipscope.trace.inputs import Inputs

if TYPE_CHECKING:
    import xarray

LEADING = 10  # vectors of `share_top10`


@dataclass(frozen=True)
class Ends:
    """A unit's entry (B, n) and exit (B, m) at a point, in float64; the exit with the unit's context there."""

    state: Tensor  # the entry in its own form and type
    entry: Tensor
    exit: Tensor


States = dict[int, Ends]  # by a unit's index


@renamed_parameters(positional=("perturbation",), top="k")
@asked_once()
@with_memory
def stability(
    trunk: Trunk,
    x: Any,
    *,
    perturbation: Tensor | Mapping[str, Tensor],
    units: Units = None,
    project: Units = None,
    k: int | None = None,
    samples: Samples = None,
    memory: Memory | None = None,
) -> xarray.Dataset:
    """Measure at a batch of model inputs with one float tensor, and at the same batch with the perturbation added.

    perturbation: of the shape of that tensor, or several by name (dimension `kind`). units: names or indices, all by
    default. Sizes have dimensions `kind`, `state` (the units' entries, then the last one's exit) and `sample`, growth
    `kind`, `unit` and `sample`.
    project: units whose singular vectors the perturbation is projected on; dimensions `kind`, `project`, `sample` and
    `index`, NaN after the last. k: only on the k leading ones, by `ss.svd`; then there is no `identity_error`, and
    no `share_top10` if they are fewer than ten.
    samples: how many of the first, or which of the batch; all by default.
    """
    import xarray

    chosen = chosen_units(trunk, units)
    projected = [] if project is None else chosen_units(trunk, project)
    for name, given, found in (("units", units, chosen), ("project", project, projected)):
        if given is not None and not found:
            raise InputError(f"{name}=[] names no unit; leave it out for {'all' if name == 'units' else 'none'}")
    if k is not None and (k < 1 or not projected):
        raise InputError(f"k={k}: expected at least 1, together with project=, the units to project on")
    inputs = _inputs(trunk, x)
    indices = sample_indices(inputs.batch, samples)
    perturbed_inputs = _perturbed(inputs, perturbation, indices)
    needed = {unit.index: unit for unit in [*chosen, *projected]}
    perturbed = {kind: _ends(needed, point_of(trunk, trunk.at(some), samples)) for kind, some in perturbed_inputs}
    # The clean point comes last: units that were named as modules run with the other inputs of the trunk's last point.
    point = point_of(trunk, trunk.at(inputs), samples)
    clean = _ends(needed, point)
    data = _sizes(chosen, clean, perturbed) | _growth(chosen, point, clean, perturbed)
    if projected:
        data |= _projections(projected, point, clean, perturbed, k)
    states = [*(unit.name for unit in chosen), f"exit of {chosen[-1].name}"]
    coordinates = {**labels(chosen), "kind": [kind for kind, _ in perturbed_inputs], "state": states, "sample": indices}
    if projected:
        coordinates["project"] = [unit.name for unit in projected]
    dataset = xarray.Dataset(
        data,
        coordinates,
        attributes(
            "stability",
            trunk,
            dtype=str(point.entry(chosen[0]).dtype).removeprefix("torch."),
            computed_in="float64",
            sizes="rms = |d|/sqrt(n), relative = |d|/|x|, per_entry = |d|/n of the change d of a state x",
            growth="across each unit, from its entry to its own exit; predicted by its Jacobian at the clean state",
            vectors="" if not projected else "all" if k is None else f"the {k} leading ones",
        ),
    )
    return described(dataset)


# -- states


def _inputs(trunk: Trunk, x: Any) -> Inputs:
    if isinstance(x, Point):
        raise InputError("stability: expected a batch of model inputs, got a point, which nothing can be added to")
    inputs = trunk.inputs(x)
    floats = [tensor for tensor in inputs.tensors() if tensor.is_floating_point()]
    if len(floats) != 1:
        raise InputError(f"stability: expected a batch with one float tensor to perturb, got {len(floats)}")
    return inputs


def _perturbed(
    inputs: Inputs, perturbation: Tensor | Mapping[str, Tensor], samples: Sequence[int]
) -> list[tuple[str, Inputs]]:
    """The batch with every kind of perturbation added, checked at the samples that are measured."""
    kinds = {"perturbation": perturbation} if isinstance(perturbation, Tensor) else dict(perturbation)
    if not kinds:
        raise InputError("stability: expected a perturbation, or several by name, got none")
    clean = next(tensor for tensor in inputs.tensors() if tensor.is_floating_point()).detach()
    found = []
    for kind, given in kinds.items():
        if not isinstance(given, Tensor) or given.shape != clean.shape:
            got = tuple(given.shape) if isinstance(given, Tensor) else type(given).__name__
            raise InputError(f"{kind}: expected a tensor of the batch's shape {tuple(clean.shape)}, got {got}")
        if not torch.isfinite(given).all():
            raise InputError(f"{kind}: the perturbation has NaN or infinite entries")
        sum_ = clean + given.detach().to(clean)
        changed = by_sample(sum_ != clean, inputs.axis)[list(samples)].any(1)
        if not changed.all():
            still = [sample for sample, moves in zip(samples, changed.tolist(), strict=True) if not moves]
            raise InputError(
                f"{kind}: the perturbation of sample {', '.join(map(str, still))} is zero, or too small to change an "
                f"input in {clean.dtype}; leave these samples out"
            )
        found.append((kind, inputs.map(lambda t, value=sum_: value if t.is_floating_point() else t)))  # type: ignore[misc]
    return found


def _ends(units: Mapping[int, Unit], point: Point) -> dict[int, Ends]:
    found = {}
    for index, unit in units.items():
        state = point.entry(unit)
        ends = Ends(state, by_sample(state, unit.batch_axis), _exit(unit, point, state))
        if not all(torch.isfinite(end).all() for end in (ends.entry, ends.exit)):
            raise InputError(
                f"the states of {unit.name} have NaN or infinite entries, first in {point.first_not_finite()}; check "
                "the weights, the batch and the perturbation"
            )
        found[index] = ends
    return found


def _exit(unit: Unit, point: Point, state: Tensor) -> Tensor:
    """R(state) with the context of a point, in float64 where the unit can be: with it a growth has no rounding."""
    with torch.no_grad():
        exit_ = unit.bound(point)(state.double() if unit.in_any_type else state)
    return by_sample(exit_, exit_axis(unit, unit))


def _differences(clean: States, perturbed: Mapping[str, States], unit: Unit, end: str) -> Tensor:
    """(kinds, B, n); end: "entry" or "exit"."""
    return torch.stack(
        [getattr(ends[unit.index], end) - getattr(clean[unit.index], end) for ends in perturbed.values()]
    )


# -- sizes and growth


def _sizes(units: Sequence[Unit], clean: States, perturbed: Mapping[str, States]) -> dict[str, Any]:
    columns: dict[str, list[Tensor]] = {"rms": [], "relative": [], "per_entry": []}
    sizes = []
    for unit, end in [*((unit, "entry") for unit in units), (units[-1], "exit")]:
        state = getattr(clean[unit.index], end)
        norm, n = _differences(clean, perturbed, unit, end).norm(dim=2), state.shape[1]  # kinds, B
        columns["rms"].append(norm / n**0.5)
        columns["relative"].append(norm / state.norm(dim=1))
        columns["per_entry"].append(norm / n)
        sizes.append(n)
    found: dict[str, Any] = {name: (("kind", "state", "sample"), _stacked(rows)) for name, rows in columns.items()}
    return found | {"size": (("state",), numpy.array(sizes))}


def _growth(units: Sequence[Unit], point: Point, clean: States, perturbed: Mapping[str, States]) -> dict[str, Any]:
    """Of the unit as a function of its entry: what else it reads (its context) stays that of the clean point."""
    actual, predicted = [], []
    for unit in units:
        entry, start = _differences(clean, perturbed, unit, "entry"), clean[unit.index].exit
        ends = [ends[unit.index] for ends in perturbed.values()]
        moved = [_exit(unit, point, end.state) if unit.context else end.exit for end in ends]
        exit_ = torch.stack(moved) - start
        actual.append(exit_.norm(dim=2) / entry.norm(dim=2))
        predicted.append(_pushed(unit.jacobian(point).double(), entry) / entry.norm(dim=2))
    dimensions = ("kind", "unit", "sample")
    return {"actual": (dimensions, _stacked(actual)), "predicted": (dimensions, _stacked(predicted))}


def _pushed(J: Operator, vectors: Tensor) -> Tensor:
    """|J d|: (kinds, B, n) -> (kinds, B)."""
    return J.matmat(vectors.permute(1, 2, 0)).norm(dim=1).mT  # B, m, kinds -> B, kinds -> kinds, B


# -- projections


def _projections(
    units: Sequence[Unit], point: Point, clean: States, perturbed: Mapping[str, States], k: int | None
) -> dict[str, Any]:
    rows = []
    for unit in units:
        J, changes = unit.jacobian(point).double(), _differences(clean, perturbed, unit, "entry")
        directions = changes / changes.norm(dim=2, keepdim=True)  # kinds, B, n
        squares = _pushed(J, directions).square()  # kinds, B
        samples = range(J.shape[0])
        rows.append([_on_vectors(J.take([b]), directions[:, b], squares[:, b], k) for b in samples])
    longest = max(row["singular_value"].shape[-1] for unit_rows in rows for row in unit_rows)
    place = ("project", "sample")
    found: dict[str, Any] = {}
    for name in rows[0][0]:
        indexed = name in ("projection", "singular_value", "converged")
        parts = [[filled(row[name], longest) if indexed else row[name] for row in unit_rows] for unit_rows in rows]
        # project, sample, then kind and index where there are
        whole = torch.stack([torch.stack(some) for some in parts])
        of_kind = name not in ("singular_value", "converged")
        dimensions = (*(("kind",) if of_kind else ()), *place, *(("index",) if indexed else ()))
        found[name] = (dimensions, (whole.movedim(2, 0) if of_kind else whole).cpu().numpy())
    return found | {"converged": (found["converged"][0], found["converged"][1] != 0)}  # True after the last


def _on_vectors(J: Operator, directions: Tensor, squares: Tensor, k: int | None) -> dict[str, Tensor]:
    """J: of one sample. directions: (kinds, n) of unit length. squares: (kinds,) the predicted growth, squared."""
    values, vectors, converged = _all_vectors(J) if k is None else _leading_vectors(J, k)
    alpha = directions @ vectors  # kinds, k
    leading = min(LEADING, *J.shape[1:])
    missing = torch.full_like(squares, float("nan"))
    error = (squares - alpha.square() @ values.square()).abs()
    scale = values[0].square().clamp_min(torch.finfo(torch.float64).tiny)
    return {
        "projection": alpha,
        "singular_value": values,
        "converged": converged.double(),
        "share_top10": alpha[:, :leading].square().sum(1) if len(values) >= leading else missing,
        "share_rest": (directions - alpha @ vectors.mT).square().sum(1),
        "identity_error": error / scale if k is None else missing,
    }


def _all_vectors(J: Operator) -> tuple[Tensor, Tensor, Tensor]:
    """min(m, n) singular values, right vectors (n, k) and converged flags."""
    _check_fits(J)
    _, S, Vt = thin_svd(J.dense()[0])
    V = Vt.mT
    return S, V * fixed_signs(V[None])[0], torch.ones_like(S)


def _leading_vectors(J: Operator, k: int) -> tuple[Tensor, Tensor, Tensor]:
    found = svd(J, k=min(k, *J.shape[1:]))
    return found.S[0].double(), found.V[0].double(), found.converged[0]


def _check_fits(J: Operator) -> None:
    """The matrix and the solver's copy of it, both sets of vectors, and work of four times the smaller side squared."""
    _, m, n = J.shape
    small, free = min(m, n), counted(J).free
    needed = 8 * (2 * m * n + small * (m + n) + 4 * small**2)
    if needed > free:
        raise InputError(
            f"all singular vectors of {J.name} ({m:,} x {n:,}) need {needed / 2**30:,.2f} GiB in float64, "
            f"{free / 2**30:,.2f} GiB are free; use k= for the leading ones alone, or leave {J.name} out of project="
        )


def _stacked(rows: list[Tensor]) -> numpy.ndarray:
    """(kinds, B) of every unit or state -> (kinds, units, B)."""
    return torch.stack(rows, 1).cpu().numpy()
