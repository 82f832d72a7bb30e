"""All eigenvalues of a Hessian, from its whole matrix in float64: the route `exact` of `curvature`."""

from __future__ import annotations

import math
from typing import Any

import numpy
import torch
from torch import Tensor

from skipscope.errors import InputError
from skipscope.linear.hessian import Hessian
from skipscope.progress import Progress
from skipscope.spectrum import percentile_condition
from skipscope.spectrum.checks import TRANSPOSE_TOLERANCE

Numbers = dict[str, Any]  # variables of the dataset

COPIES = 3  # of the matrix: itself, its symmetric part, the eigensolver's
CONVERGED = 1e-3  # residual over |lambda|_max up to which an exact spectrum is one
COLUMNS = 256  # of the matrix that are assembled at a time


def all_eigenvalues(H: Hessian, progress: Progress | None) -> tuple[Numbers, dict[str, Any]]:
    size = H.shape[1]
    matrix = _assembled(H, progress)
    entry = float(matrix.abs().max())
    difference = matrix - matrix.T
    asymmetry, spread = float(difference.abs().max()), float(difference.norm()) / 2
    del difference
    if asymmetry > TRANSPOSE_TOLERANCE * entry:
        raise InputError(
            f"{H.name} is not symmetric: two entries that must be equal differ by {asymmetry / entry:.1e} of the "
            "largest; an operation of the model or the loss has a wrong second derivative"
        )
    matrix = (matrix + matrix.T).div_(2)
    kept = (matrix != 0).any(1)  # the others are zero in every entry
    values = matrix.new_zeros(size)
    if kept.any():
        values[: int(kept.sum())] = torch.linalg.eigvalsh(matrix if kept.all() else matrix[kept][:, kept])
    values = values.sort(descending=True).values.cpu()
    magnitudes = values.abs()
    largest, tenth = float(magnitudes.max()), float(numpy.quantile(magnitudes.numpy(), 0.1))
    smallest = 0.0 if not kept.all() else float(magnitudes.min())
    tolerance = size * H.eps * largest + spread
    numbers: Numbers = {
        "eigenvalue": numpy.arange(size),
        "value": ("eigenvalue", values.numpy()),
        "residual": ("eigenvalue", numpy.full(size, tolerance)),
        "converged": ("eigenvalue", numpy.full(size, tolerance <= CONVERGED * largest)),
        "trace": float(values.sum()),
        "trace_error": 0.0,
        "index": float((values < -tolerance).double().mean()),
        "index_error": 0.0,
        "share_zero": float((magnitudes <= tolerance).double().mean()),
        "share_zero_error": 0.0,
        "largest_magnitude": largest,
        "tenth_percentile": tenth,
        "cond10": float(percentile_condition(values)),
        "cond10_status": status(tenth, tolerance),
        "condition": largest / smallest if smallest else math.inf,
        "condition_status": status(smallest, tolerance),
        "zero_rows": int((~kept).sum()),
        "symmetry_error": asymmetry / entry if entry else 0.0,
        "products": size,
    }
    return numbers, {
        "solver": "exact",
        "tolerance": tolerance,
        "memory_bytes": COPIES * 8 * size**2,
        "not_measured": "",
    }


def _assembled(H: Hessian, progress: Progress | None) -> Tensor:
    """The matrix in float64, (p, p), some columns at a time."""
    size = H.shape[1]
    matrix = torch.empty(size, size, dtype=torch.float64, device=H.device)
    for start in range(0, size, COLUMNS):
        stop = min(start + COLUMNS, size)
        units = torch.zeros(1, size, stop - start, dtype=H.dtype, device=H.device)
        units[0, range(start, stop), range(stop - start)] = 1
        columns = H.matmat(units)[0]
        if not columns.isfinite().all():
            raise InputError(f"{H.name} has NaN or infinite entries; check the weights and the batches")
        matrix[:, start:stop] = columns
        if progress is not None:
            progress(stop, size)
    return matrix


def status(smallest: float, tolerance: float) -> str:
    """Of a ratio over this magnitude."""
    if smallest == 0:
        return "infinite"
    return "numerically infinite" if smallest <= tolerance else "finite"
