"""Eigenvalues of square unit Jacobians and how far these are from normal.

A normal matrix has orthogonal eigenvectors: its eigenvalues are all there is to know of its size. The Jacobian of a
unit is rarely normal; then perturbations can grow in one unit although every eigenvalue is below 1. With the Schur form
J = Q (D + N) Q^*, D the diagonal of eigenvalues and N strictly upper triangular:

eigenvalue_real, eigenvalue_imaginary   lambda_1, lambda_2, ..., the largest magnitude first
condition          1 / |y^* x| of an eigenvalue with unit right and left eigenvectors x, y: how much an error of J moves
                   it, at most condition times |error| to first order; 1 where J is normal, infinite where an
                   eigenvector is missing. Eigenvalues that are equal to rounding (1, where a branch has no full rank)
                   have the norm of their projector X (Y^* X)^-1 Y^*, X, Y all their vectors: so far their mean moves
spectral_radius    |lambda_1|
departure          |N|_F / |J|_F = sqrt(|J|_F^2 - sum |lambda|^2) / |J|_F, Henrici's departure from normality (1962),
                   from 0 for a normal matrix to 1 for a nilpotent one
amplification      s_1 / |lambda_1|, the largest singular value over the spectral radius: 1 for a normal matrix
rotation           sum (Im lambda)^2 / sum |lambda|^2: 0 where all eigenvalues are real
frobenius          |J|_F
residual           |J - Q (D + N) Q^*|_F / |J|_F, of the decomposition itself

Only units whose entry and exit are of one shape have eigenvalues; for others `reason` says why there are none. The
matrix is assembled and decomposed in float64. Cost per unit and sample for n numbers in a state: n products and about
60 n^3 operations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy
import torch
from torch import Tensor

from skipscope.errors import InputError
from skipscope.linear.positions import one_position
from skipscope.measure.descriptions import described
from skipscope.measure.selection import (
    Samples,
    Units,
    attributes,
    chosen_units,
    labels,
    point_of,
    refuse_batch_statistics,
    sample_indices,
)
from skipscope.memory_limit import Memory, with_memory
from skipscope.progress import Progress, called, with_progress
from skipscope.spectrum.plan import check_fits
from skipscope.trace import Trunk, Unit
from skipscope.trace.freshness import asked_once

if TYPE_CHECKING:
    import xarray

LARGEST = 4096  # numbers in a state: all eigenvalues of such a matrix take minutes
OF_MATRIX = ("spectral_radius", "departure", "amplification", "rotation", "frobenius", "residual")
OF_VALUES = ("eigenvalue_real", "eigenvalue_imaginary", "condition")


@with_progress
@asked_once()
@with_memory
def normality(
    trunk: Trunk,
    x: Any,
    *,
    units: Units = None,
    samples: Samples = None,
    tokens: int | tuple[int, int] | None = None,
    of: str = "unit",
    memory: Memory | None = None,
    progress: Progress | bool | None = None,
) -> xarray.Dataset:
    """Measure at a batch of model inputs or a point; dimensions `unit`, `sample` and `index`.

    units: names or indices, all by default. samples: how many of the first, or which of the batch; all by default.
    tokens: one position of sequences, whose entry and exit the Jacobians are restricted to, such as -1 or (-1, -1);
    all of a state by default.
    of: "unit" with its skip, or "branch" alone.
    """
    import xarray

    if of not in ("unit", "branch"):
        raise InputError(f"of={of!r}: expected unit or branch")
    tokens = one_position(tokens)
    refuse_batch_statistics(trunk.model)
    chosen = chosen_units(trunk, units)
    if not chosen:
        raise InputError("units=[] names no unit; leave it out for all")
    given = point_of(trunk, x)
    indices, point = sample_indices(given.batch, samples), point_of(trunk, given, samples)
    reasons = [_reason(unit, tokens) for unit in chosen]
    if all(reasons):
        raise InputError(f"no unit of {type(trunk.model).__name__} has eigenvalues to compute: {reasons[0]}")
    tell = called(progress)
    rows: list[list[dict[str, Any]]] = []
    for place, (unit, reason) in enumerate(zip(chosen, reasons, strict=True), start=1):
        if reason:
            rows.append([{} for _ in indices])
        else:
            pair = None if tokens is None else (tokens, tokens)
            J = unit.jacobian(point, of="branch" if of == "branch" else "unit", tokens=pair).double()
            check_fits(J)
            # One sample at a time, so that one matrix of each unit is in memory.
            rows.append([_measured(J.take([sample]).dense()[0]) for sample in range(point.batch)])
        if tell is not None:
            tell(place, len(chosen))
    size = max(len(row[0]["eigenvalue_real"]) for row in rows if row[0])
    data: dict[str, Any] = {
        name: (("unit", "sample"), numpy.array([[one.get(name, numpy.nan) for one in row] for row in rows]))
        for name in OF_MATRIX
    }
    for name in OF_VALUES:
        filled = numpy.full((len(rows), len(indices), size), numpy.nan)
        for i, row in enumerate(rows):
            for k, one in enumerate(row):
                if one:
                    filled[i, k, : len(one[name])] = one[name]
        data[name] = (("unit", "sample", "index"), filled)
    coordinates = {**labels(chosen), "reason": ("unit", reasons), "sample": indices, "index": numpy.arange(size)}
    about = attributes("normality", trunk, of=of, tokens="all" if tokens is None else tokens, computed_in="float64")
    return described(xarray.Dataset(data, coordinates, about))


def _reason(unit: Unit, tokens: int | None) -> str:
    """Why a unit has no eigenvalues; empty where it has."""
    if unit.entry_shape != unit.exit_shape:
        return f"{unit.name} goes from a state of shape {unit.entry_shape} to one of shape {unit.exit_shape}"
    if tokens is not None:
        if len(unit.entry_shape) != 2:
            return f"{unit.name} has states of shape {unit.entry_shape}, and tokens= needs (tokens, channels)"
        if not -unit.entry_shape[0] <= tokens < unit.entry_shape[0]:
            raise InputError(f"tokens={tokens}: expected a position among the {unit.entry_shape[0]} of {unit.name}")
    size = torch.Size(unit.entry_shape).numel() if tokens is None else unit.entry_shape[1]
    if size > LARGEST:
        words = "choose one position with tokens=" if len(unit.entry_shape) == 2 else "use a smaller input"
        return f"{unit.name} has states of {size:,} numbers, more than {LARGEST:,}; {words}"
    return ""


def _measured(matrix: Tensor) -> dict[str, Any]:
    """Of one matrix (n, n)."""
    from scipy.linalg import schur, svdvals

    J = matrix.cpu().numpy()
    size = numpy.linalg.norm(J)
    triangle, vectors = schur(J, output="complex")
    above = numpy.triu(triangle, 1)
    values, conditions = _conditions(J)
    order = numpy.argsort(-abs(values), kind="stable")
    values, conditions = values[order], conditions[order]
    radius = float(abs(values[0]))
    with numpy.errstate(divide="ignore", invalid="ignore"):
        return {
            "eigenvalue_real": values.real,
            "eigenvalue_imaginary": values.imag,
            "condition": conditions,
            "spectral_radius": radius,
            "departure": numpy.linalg.norm(above) / size,
            "amplification": numpy.float64(svdvals(J)[0]) / radius,
            "rotation": numpy.square(values.imag).sum() / numpy.square(abs(values)).sum(),
            "frobenius": size,
            "residual": numpy.linalg.norm(J - vectors @ triangle @ vectors.conj().T) / size,
        }


def _conditions(J: numpy.ndarray) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Eigenvalues and their condition numbers, from right and left eigenvectors of length 1."""
    from scipy.linalg import eig

    values, left, right = eig(J, left=True, right=True)
    with numpy.errstate(divide="ignore"):
        conditions = 1 / abs((left.conj() * right).sum(0))
    eps = numpy.finfo(J.dtype).eps
    for equal in _groups(values, len(J) * eps * numpy.linalg.norm(J)):
        Y, X = left[:, equal], right[:, equal]
        r_X, r_Y = (numpy.linalg.qr(vectors).R for vectors in (X, Y))
        if max(numpy.linalg.cond(r_X), numpy.linalg.cond(r_Y)) < eps**-0.5:  # else an eigenvector is missing
            conditions[equal] = numpy.linalg.norm(r_X @ numpy.linalg.solve(Y.conj().T @ X, r_Y.conj().T), 2)
    return values, conditions


def _groups(values: numpy.ndarray, within: float) -> list[numpy.ndarray]:
    """Which values are equal, two or more at a time."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    close = csr_array(abs(values[:, None] - values) <= within)
    groups = connected_components(close, directed=False)[1]
    return [numpy.flatnonzero(groups == group) for group in numpy.flatnonzero(numpy.bincount(groups) > 1)]
