"""The curvature of a loss: the eigenvalues of its Hessian with respect to a model's parameters.

With lambda_1 >= ... >= lambda_p the eigenvalues of H (`linear.hessian` has its definition), n the samples:

value, residual     all eigenvalues (exact), or the k largest and the k smallest (lanczos); some eigenvalue lies within
                    the residual. Coordinate `eigenvalue`: the place in descending order, from 0 to p - 1
converged           whether the residual is within the solver's tolerance
loss, gradient_norm L and |grad L|
trace               of H
index               the share of negative eigenvalues, those below minus the tolerance
share_zero          the share of those within the tolerance of zero
largest_magnitude   |lambda|_max
tenth_percentile    the 10th percentile of |lambda|, linearly interpolated
cond10              |lambda|_max / tenth_percentile, the form of Li, Jiao, Han and Weissman (Demystifying ResNet)
condition           |lambda|_max / |lambda|_min; each of the two ratios has a status
density             of the eigenvalues, smoothed, along `grid` (lanczos only)

exact: H is assembled in blocks of columns, made symmetric, and all its eigenvalues are computed in float64. Rows that
are zero throughout are set aside: they are eigenvalues that are exactly zero. Residual and tolerance are one number,
p eps |lambda|_max + |H - H^T|_F / 2: the second part shows the rounding of the products, whose eps is that of `dtype`.
A ratio is "infinite" over an exact zero, "numerically infinite" over what is within the tolerance of zero.

lanczos: both ends by block Lanczos (`spectrum.eigs`), the rest from random probes (`spectrum.spectral_density`). Errors
of estimates are `..._error`: a standard error over the probes, for shares with the quadrature's bias added. What lies
inside the spectrum (`tenth_percentile`, `cond10`, and `condition` of an indefinite H) is NaN, and the attribute
`not_measured` says why. Tolerance: 8 sqrt(p) eps |lambda|_max.

Cost: exact p products, 24 p^2 bytes, 4/3 p^3 operations; lanczos some hundred products, 4 bytes x p x some hundred.
"""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any, Literal

import numpy
import torch
from torch import Tensor, nn

from skipscope.errors import InputError
from skipscope.linear.hessian import Hessian
from skipscope.linear.hessian_options import Loss, Params, Reduction, chosen_parameters
from skipscope.linear.memory import free_bytes
from skipscope.measure.descriptions import described
from skipscope.memory_limit import Memory, with_memory
from skipscope.numerics import measuring
from skipscope.progress import Progress, called, with_progress
from skipscope.renamed import renamed_parameters
from skipscope.spectrum import Density, Eigs, eigs, percentile_condition, spectral_density
from skipscope.spectrum.checks import TRANSPOSE_TOLERANCE
from skipscope.spectrum.lanczos import Which
from skipscope.spectrum.plan import costs
from skipscope.spectrum.scale import default_tolerance
from skipscope.trace.running_statistics import never_seen
from skipscope.trace.undisturbed import unwrapped

if TYPE_CHECKING:
    import xarray

Route = Literal["auto", "exact", "lanczos"]
Numbers = dict[str, Any]  # variables of the dataset

EXACT = 3000  # parameters up to which "auto" takes all eigenvalues: a minute on two cores for a small network
COPIES = 3  # of the matrix: itself, its symmetric part, the eigensolver's
CONVERGED = 1e-3  # residual over |lambda|_max up to which an exact spectrum is one
COLUMNS = 256  # of the matrix that are assembled at a time
INSIDE = "is inside the spectrum, which only route='exact' sees"


@renamed_parameters(mode="route")
@with_progress
@with_memory
def curvature(
    model: nn.Module,
    loss: Loss,
    batches: Any,
    *,
    params: Params = None,
    route: Route = "auto",
    k: int = 10,
    density: bool = True,
    reduction: Reduction | None = None,
    dtype: torch.dtype | None = None,
    probes: int = 8,
    steps: int = 64,
    max_products: int | None = None,
    seed: int = 0,
    memory: Memory | None = None,
    progress: Progress | bool | None = None,
) -> xarray.Dataset:
    """Measure `loss(model(input), target)` over all batches; dimension `eigenvalue`, and `grid` for the density.
    Dimension `parameter` lists what was chosen, with the `size` of each.

    batches: pairs (input, target) that can be read more than once, such as a list or a data loader, or one pair.
    params: names of parameters or modules, or a predicate of name and parameter; all that require gradients by default.
    route: "exact", "lanczos", or "auto": exact up to 3000 parameters, where it fits in memory.
    k, max_products: eigenvalues at each end, and products at most for each end (lanczos).
    density, probes, steps: of the stochastic quadrature (lanczos); without density there is a trace but no shares.
    reduction: whether the loss gives a batch's "mean" or "sum", and so what L is over all samples; the loss's own
    attribute `reduction` by default, else "mean".
    dtype: to evaluate a copy of the model in; float64 for exact, for lanczos the model's own, but at least float32.
    """
    import xarray

    _check_options(route, k, probes, steps)
    chosen = list(chosen_parameters(unwrapped(model), params).values())
    exact = _is_exact(route, sum(parameter.numel() for parameter in chosen), chosen[0].device)
    dtype = torch.float64 if exact and dtype is None else dtype
    H = Hessian(model, loss, batches, params=params, reduction=reduction, dtype=dtype)
    with measuring():
        if exact:
            numbers, attributes = _all_eigenvalues(H, called(progress))
        else:
            probes, steps, memory = _fitting(H, k, probes, steps if density else 1)
            numbers, attributes = _both_ends(H, k, max_products, probes, steps, seed, called(progress))
            attributes["memory_bytes"] = memory
    numbers |= {
        "loss": H.loss,
        "gradient_norm": float(H.gradient.double().norm()),
        "size": ("parameter", [shape.numel() for shape in H.sizes.values()]),
    }
    dataset = xarray.Dataset(
        {name: value for name, value in numbers.items() if name not in ("eigenvalue", "grid")},
        {name: numbers[name] for name in ("eigenvalue", "grid") if name in numbers} | {"parameter": list(H.sizes)},
        {
            "measure": "curvature",
            "mode": "eval",
            "batch_norm": "by running statistics, where a layer has them",
            "parameters": H.shape[1],
            "reduction": H.reduction,
            "total": "mean over all samples, sum_b (n_b / n) loss_b" if H.reduction == "mean" else "sum over batches",
            "samples": H.samples,
            "batches": H.batch_count,
            "dtype": str(H.dtype).removeprefix("torch."),
            "products_by": H.route,
            "products_reason": H.reason,
            "products_agreement": H.agreement,
            "index": "share of the eigenvalues below -tolerance",
            "cond10": "|lambda|_max over the 10th percentile of |lambda|, linearly interpolated",
            "seed": seed,
            "notes": "; ".join(never_seen(unwrapped(model))),
            **attributes,
        },
    )
    return described(dataset)


def _is_exact(route: Route, size: int, device: torch.device) -> bool:
    needed, free = COPIES * 8 * size**2, free_bytes(device)
    if route == "exact" and needed > free:
        raise InputError(
            f"all eigenvalues for {size:,} parameters need {needed / 2**30:,.1f} GiB, {free / 2**30:,.1f} GiB are "
            "free; choose fewer parameters with params=, or route='lanczos'"
        )
    return route == "exact" or (route == "auto" and size <= EXACT and needed <= free)


def _check_options(route: str, k: int, probes: int, steps: int) -> None:
    if route not in ("auto", "exact", "lanczos"):
        raise InputError(f"route={route!r}: expected auto, exact or lanczos")
    if k < 1:
        raise InputError(f"k={k}: expected at least one eigenvalue at each end")
    if probes < 2 or steps < 2:
        raise InputError(f"probes={probes}, steps={steps}: at least 2 of each are needed for an error estimate")


# -- the two routes


def _all_eigenvalues(H: Hessian, progress: Progress | None) -> tuple[Numbers, dict[str, Any]]:
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
        "cond10_status": _status(tenth, tolerance),
        "condition": largest / smallest if smallest else math.inf,
        "condition_status": _status(smallest, tolerance),
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


def _status(smallest: float, tolerance: float) -> str:
    """Of a ratio over this magnitude."""
    if smallest == 0:
        return "infinite"
    return "numerically infinite" if smallest <= tolerance else "finite"


def _both_ends(
    H: Hessian, k: int, max_products: int | None, probes: int, steps: int, seed: int, progress: Progress | None
) -> tuple[Numbers, dict[str, Any]]:
    """With one step there is a trace but no density."""
    tell = progress or (lambda done, parts: None)
    size = H.shape[1]
    ends: list[tuple[Which, int]] = [("largest", min(k, size)), ("smallest", min(k, size - min(k, size)))]
    found = []
    for part, (which, count) in enumerate(ends):
        tell(part, 3)
        if count:
            found.append(eigs(H, count, which=which, max_products=max_products, seed=seed, route="iterative"))
    tell(2, 3)
    spectrum = spectral_density(H, symmetric=True, probes=probes, steps=steps, seed=seed)
    tell(3, 3)
    value, residual, converged = (
        torch.cat([_descending(getattr(end, name), end) for end in found]).cpu().numpy()
        for name in ("values", "residuals", "converged")
    )
    trace = spectrum.moment(1)
    condition, condition_status = _condition_of_definite(H, value, residual, converged)
    missing = {"tenth_percentile, cond10": f"the 10th percentile {INSIDE}"}
    if condition_status == "not measured":
        missing["condition"] = f"H is not seen to be definite, so that |lambda|_min {INSIDE}"
    if steps == 1:
        missing["index, share_zero"] = "density=False"
    numbers: Numbers = {
        "eigenvalue": numpy.concatenate([numpy.arange(ends[0][1]), numpy.arange(size - ends[1][1], size)]),
        "value": ("eigenvalue", value.astype(float)),
        "residual": ("eigenvalue", residual.astype(float)),
        "converged": ("eigenvalue", converged),
        "trace": size * float(trace.value[0]),
        "trace_error": size * float(trace.standard_error[0]),
        **_shares(spectrum),
        "largest_magnitude": float(numpy.abs(value).max()),
        "tenth_percentile": math.nan,
        "cond10": math.nan,
        "cond10_status": "not measured",
        "condition": condition,
        "condition_status": condition_status,
        "products": sum(int(end.products[0]) for end in found) + spectrum.products,
    }
    return numbers, {
        "solver": "lanczos",
        "tolerance": float(spectrum.rounding[0]),
        "eigenvalue_tolerance": default_tolerance(H.dtype),
        "probes": spectrum.probes,
        "steps": spectrum.steps,
        "width": spectrum.width,
        "not_measured": "; ".join(f"{name}: {reason}" for name, reason in missing.items()),
    }


def _descending(numbers: Tensor, end: Eigs) -> Tensor:
    """One matrix's numbers (1, k) in the order of descending eigenvalues."""
    return numbers[0][end.values[0].argsort(descending=True)]


def _shares(spectrum: Density) -> Numbers:
    if spectrum.steps == 1 and spectrum.shape[1] > 1:
        return dict.fromkeys(("index", "index_error", "share_zero", "share_zero_error"), math.nan)
    # `count` widens its ends by the rounding: twice leaves out what is within it of zero. Of H = 0 it is 0 itself.
    below_zero = spectrum.count(-math.inf, -max(2 * float(spectrum.rounding[0]), sys.float_info.min))
    numbers: Numbers = {}
    for name, share in (("index", below_zero), ("share_zero", spectrum.mass_at(0.0))):
        numbers[name] = float(share.value[0])
        numbers[f"{name}_error"] = float(share.standard_error[0] + share.bias[0])
    return numbers | {
        "grid": spectrum.values.numpy(),
        "density": ("grid", spectrum.density[0].numpy()),
        "density_error": ("grid", spectrum.standard_error[0].numpy()),
        "density_bias": ("grid", spectrum.bias[0].numpy()),
    }


def _fitting(H: Hessian, k: int, probes: int, steps: int) -> tuple[int, int, int]:
    """Probes and steps whose bases fit in half of the free memory, and the bytes of the larger solver.

    Probes are given up first: with many parameters, one alone averages over many eigenvalues. What is used stands in
    the attributes `probes` and `steps`."""
    size, vector = H.shape[1], H.shape[1] * H.dtype.itemsize
    free = free_bytes(H.device)
    ends = 2 * costs(H.shape, min(k, size), None, decomposition=0.0, sides=1).subspace * vector
    if ends > free:
        raise InputError(
            f"{k} eigenvalues of {H.name} with {size:,} parameters need {ends / 2**30:.1f} GiB for vectors, "
            f"{free / 2**30:.1f} GiB are free; choose fewer parameters with params=, or a smaller k"
        )
    while probes * steps * vector > free / 2 and (probes > 2 or steps > 2):
        probes, steps = (max(2, probes // 2), steps) if probes > 2 else (probes, max(2, steps // 2))
    return probes, steps, max(ends, probes * steps * vector)


def _condition_of_definite(
    H: Hessian, value: numpy.ndarray, residual: numpy.ndarray, converged: numpy.ndarray
) -> tuple[float, str]:
    """Both ends tell where all eigenvalues have one sign; otherwise |lambda|_min is inside."""
    ends = [0, -1]
    magnitudes = numpy.abs(value[ends]).astype(float)
    definite = numpy.sign(value[0]) == numpy.sign(value[-1]) != 0 and bool((magnitudes > residual[ends]).all())
    if not definite or not converged[ends].all():
        return math.nan, "not measured"
    tolerance = H.shape[1] * H.eps * magnitudes.max()
    return float(magnitudes.max() / magnitudes.min()), _status(float(magnitudes.min()), tolerance)
