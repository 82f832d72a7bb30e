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

from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import nn

from skipscope.errors import InputError
from skipscope.linear.hessian import Hessian
from skipscope.linear.hessian_options import Loss, Params, Reduction, chosen_parameters
from skipscope.linear.memory import free_bytes
from skipscope.measure.hessian_eigenvalues import COPIES, all_eigenvalues, both_ends, fitting
from skipscope.numerics import measuring
from skipscope.progress import Progress
from skipscope.renamed import renamed_parameters
from skipscope.trace.running_statistics import never_seen
from skipscope.trace.undisturbed import unwrapped

if TYPE_CHECKING:
    import xarray

Route = Literal["auto", "exact", "lanczos"]

EXACT = 3000  # parameters up to which "auto" takes all eigenvalues: a minute on two cores for a small network


@renamed_parameters(mode="route")
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
    progress: Progress | None = None,
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
            numbers, attributes = all_eigenvalues(H, progress)
        else:
            probes, steps, memory = fitting(H, k, probes, steps if density else 1)
            numbers, attributes = both_ends(H, k, max_products, probes, steps, seed, progress)
            attributes["memory_bytes"] = memory
    numbers |= {
        "loss": H.loss,
        "gradient_norm": float(H.gradient.double().norm()),
        "size": ("parameter", [shape.numel() for shape in H.sizes.values()]),
    }
    return xarray.Dataset(
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
