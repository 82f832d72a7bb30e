"""C.theorems: products of many weights, with and without skips, as the paper's theorems have them.

    skipscope study run C.theorems --preset quick --out DIR

The paper proves for commuting weights that a PlainNet's last state collapses onto one direction (theorem 1) and that
those of ResNet and ResNeXt keep all directions (theorems 2 and 3, by approximations 16 and 22); that random weights are
not singular (proposition 1); and that the condition number of the inputs bounds how errors in them move the weights
(proposition 3).

We expect the exact sums of all three theorems, to rounding. The collapse too, but only with one leading direction in
all layers and a gap that does not close with depth. Not so approximation 16: it leaves out what the other directions
gain, and holds where the residual network itself collapses, or does nothing. What skips do is in the condition number,
of products I + s W2 W1 as of those without: at He's scale it grows past what float64 can hold either way, and with any
fixed s it grows exponentially with depth, slowly where s is small. Condition numbers are those of exact products, which
float64 cannot compute; what it does compute is also reported.

For proposition 3 we derive the exact largest ratio, 1 / (1 - cond eps), which is attained; with targets that the
weights do not fit, it is exceeded. Every draw has to pass what is exact; the others are judged over 64 draws.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import xarray

from skipscope.constraints import Constrained, at_least, each, from_to, not_empty
from skipscope.papers.c import PAPER
from skipscope.papers.c.measurements import commuting_weights, random_matrices
from skipscope.papers.c.measurements.commuting_weights import LED
from skipscope.papers.c.measurements.random_matrices import TENTH
from skipscope.papers.kit import Bench, Claim, Evidence, Part, Quantity, Study
from skipscope.runs.sweep import Task

LARGEST = 80  # width of random products
HOLDS = 0.1  # an error of approximation 16 up to which it is said to hold


COSINE = Quantity("cosine of last state and leading eigenvector")
EIGENVALUE_RATIO = Quantity("largest eigenvalue ratio")
PLAIN_SUM_ERROR = Quantity("relative error of the exact sum")
APPROXIMATION_16 = Quantity("relative error of approximation 16")
ERROR_BY_CASE = Quantity("median error relative to the state alone, by case")
SUM_ERROR = Quantity("relative error of the exact sums")
HOLDS_IN = Quantity("cases where it holds")
APPROXIMATION_22 = Quantity("relative error of approximation 22, paths ordered and their sums not")
UNITS = Quantity("units")
BETTER = Quantity("log10 cond at He scale, with skips / without")
HE_SCALE = Quantity("log10 cond / numerical infinity, He scale")
WITHOUT_SKIPS = Quantity("log10 cond / numerical infinity, without skips")
TENTH_OF_HE_SCALE = Quantity("log10 cond / numerical infinity, a tenth of He scale")
IN_FLOAT64 = Quantity("log10 cond that float64 computes, He scale")
BY_SCALE = Quantity("median log10 cond by scale")
MOMENT_ERROR = Quantity("largest relative error of the moments at fixed c")
SIDES = Quantity("largest of left / right side / (1 + 10 cond eps)")
FIRST_ORDER = Quantity("largest ratio to first order")
OVER_LARGEST = Quantity("largest ratio / (1 / (1 - cond eps))")
RANDOM_CHANGES = Quantity("largest ratio, random changes")
MISFIT = Quantity("largest ratio, targets that the weights do not fit")
MISFIT_SIDES = Quantity("largest of left / right side / (1 + 10 cond eps), targets that the weights do not fit")
SINGULAR_DRAWS = Quantity("singular draws")
DRAWS = Quantity("draws")
SMALLEST = Quantity("smallest singular value")
SINGULAR_SIGNS = Quantity("share of singular matrices of signs, by size")

C9 = Claim(
    "C9",
    "Theorem 1: a deep product of commuting weights collapses onto one direction.",
    "cosine of the last state and the common leading eigenvector, 60 layers",
    criteria=(COSINE.at_least(0.999, every=True),),
    controls=(EIGENVALUE_RATIO.at_most(0.8),),
    note="It takes commuting symmetric weights with the same leading direction in every layer.",
)
C10 = Claim(
    "C10",
    "Theorem 2: a residual network's last state is close to approximation 16.",
    "relative error of the approximation in generic cases",
    criteria=(APPROXIMATION_16.at_most(0.1, every=True),),
    note=(
        "A member is a case; the error is relative to the longer of state and approximation. The exact sum before "
        "it holds; the approximation only where the residual network itself collapses or does nothing."
    ),
)
C11 = Claim(
    "C11",
    "Skips keep the states of a deep linear network with random weights well conditioned.",
    "log10 cond of the product of I + s W2 W1 against the branch's scale s",
    parts=(
        Part("better than without skips", (BETTER.below(0.0),), (WITHOUT_SKIPS.at_least(0.0),)),
        Part("well conditioned", (HE_SCALE.below(0.0),), (WITHOUT_SKIPS.at_least(0.0), TENTH_OF_HE_SCALE.below(0.0))),
    ),
    note=(
        "Judged at He's scale. Well conditioned for small branches only: with 110 units at He scale cond is about "
        "1e100 with skips, 1e200 without; "
        "float64 computes about 1e18 for both."
    ),
)
C12 = Claim(
    "C12",
    "Proposition 3: the condition number of the inputs bounds how errors in them move the weights.",
    "|dW| / |W| over cond(X) |dX| / |X|, to first order",
    parts=(
        Part("targets that the weights fit", (SIDES.at_most(1.0, every=True),)),
        Part("targets that the weights do not fit", (MISFIT_SIDES.at_most(1.0, every=True),)),
    ),
    note="A statement about least squares, not about the generalisation of trained networks.",
)
C13 = Claim(
    "C13",
    "Proposition 1: random weights are almost never singular.",
    "smallest singular value of 1000 draws",
    criteria=(SINGULAR_DRAWS.exactly(0.0),),
    controls=(DRAWS.at_least(1000.0),),
)


@dataclass(frozen=True)
class TheoremsSettings(Constrained):
    draws: Annotated[int, at_least(1)] = 64  # of eigenvalues, of products and of perturbations
    size: Annotated[int, from_to(3, LARGEST)] = 20  # n; products of larger matrices take gigabytes
    layers: Annotated[int, at_least(1)] = 60  # of networks with commuting weights
    # Of products of random matrices.
    units: Annotated[tuple[int, ...], not_empty, each(at_least(1))] = (1, 2, 5, 10, 20, 50, 110)
    matrices: Annotated[int, at_least(1)] = 1000  # of proposition 1, for each kind and size


def run(bench: Bench, settings: TheoremsSettings) -> Evidence:
    seed, draws, size, layers = bench.seed, settings.draws, settings.size, settings.layers
    drawn = {"draws": draws, "size": size, "layers": layers, "seed": seed}
    parts = {
        "sums": partial(commuting_weights.sums, **drawn),
        "collapse": partial(commuting_weights.collapse, **drawn),
        "powers": partial(commuting_weights.powers, layers=layers),
        "approximation": partial(commuting_weights.approximation, **drawn),
        "paths": partial(commuting_weights.paths, **drawn),
        "products": partial(random_matrices.products, draws=draws, size=size, units=settings.units, seed=seed),
        "moments": partial(random_matrices.moments, size=5 * size, units=10 * size, seed=seed),
        "singularity": partial(random_matrices.singularity, draws=settings.matrices, sizes=(2, size), seed=seed),
        "perturbations": partial(random_matrices.perturbations, draws=draws, size=size, seed=seed),
        "ranks": partial(random_matrices.ranks, size=size, seed=seed),
    }
    found = bench.sweep([Task(name, compute) for name, compute in parts.items()])
    return evidence(**dict(zip(parts, found, strict=True)))


def evidence(
    *,
    sums: xarray.Dataset,
    collapse: xarray.Dataset,
    powers: xarray.Dataset,
    approximation: xarray.Dataset,
    paths: xarray.Dataset,
    products: xarray.Dataset,
    moments: xarray.Dataset,
    singularity: xarray.Dataset,
    perturbations: xarray.Dataset,
    ranks: xarray.Dataset,
) -> Evidence:
    """`powers` and `ranks` are shown alone."""
    last = collapse["cosine"].isel(layer=-1)
    return {
        C9: {
            COSINE: last.sel(case=LED).values.tolist(),
            EIGENVALUE_RATIO: float(collapse["ratio"].sel(case=LED).max()),
            PLAIN_SUM_ERROR: float(sums["error"].values[sums["kind"].values == "PlainNet"].max()),
            **{
                Quantity(f"median cosine, {case}"): float(last.sel(case=case).median())
                for case in collapse["case"].values
                if case != LED
            },
        },
        C10: _approximated(sums, approximation, paths),
        C11: _conditioned(products, moments),
        C12: _moved(perturbations),
        C13: _never_singular(singularity),
    }


def _approximated(sums: xarray.Dataset, approximation: xarray.Dataset, paths: xarray.Dataset) -> dict[Quantity, Any]:
    holds = approximation.isel(case=approximation["bounded"].values <= HOLDS)
    unordered = paths.isel(case=paths["ratio_of_sums"].values > 1)
    return {
        APPROXIMATION_16: approximation["bounded"].values.tolist(),
        ERROR_BY_CASE: approximation["error"].values.tolist(),
        SUM_ERROR: float(sums["error"].values[sums["kind"].values != "PlainNet"].max()),
        HOLDS_IN: [
            f"{signs}, {scale:g}: cosine {cosine:.3f}, log10 cond {cond:.2g}"
            for signs, scale, cosine, cond in zip(
                *(holds[key].values for key in ("signs", "scale", "cosine", "log10_condition")), strict=True
            )
        ],
        APPROXIMATION_22: float(unordered["bounded"].median()),
    }


def _conditioned(products: xarray.Dataset, moments: xarray.Dataset) -> dict[Quantity, Any]:
    last = products.isel(units=-1)
    infinity = float(products.attrs["numerical_infinity"])
    skips = last["log10_condition"]
    return {
        UNITS: int(last["units"]),
        BETTER: (skips.sel(scale=1.0) - last["log10_condition_plain"]).values.tolist(),
        HE_SCALE: (skips.sel(scale=1.0) - infinity).values.tolist(),
        WITHOUT_SKIPS: (last["log10_condition_plain"] - infinity).values.tolist(),
        TENTH_OF_HE_SCALE: (skips.sel(scale=TENTH) - infinity).values.tolist(),
        IN_FLOAT64: float(last["float64"].sel(scale=1.0).median()),
        BY_SCALE: {f"{scale:g}": float(skips.sel(scale=scale).median()) for scale in products["scale"].values},
        MOMENT_ERROR: float(abs(moments["measured"] / moments["formula"] - 1).max()),
    }


def _moved(perturbations: xarray.Dataset) -> dict[Quantity, Any]:
    fits = perturbations.isel(case=perturbations["kind"].values != "residual")
    misfits = perturbations.isel(case=perturbations["kind"].values == "residual")
    random = perturbations.isel(case=perturbations["kind"].values == "random")
    return {
        SIDES: _largest_side(fits),
        MISFIT_SIDES: _largest_side(misfits),
        FIRST_ORDER: float(fits["first_order"].max()),
        OVER_LARGEST: float((fits["ratio"] / fits["largest"]).max()),
        RANDOM_CHANGES: float(random["ratio"].max()),
        MISFIT: float(misfits["ratio"].max()),
    }


def _largest_side(cases: xarray.Dataset) -> float:
    return float((cases["ratio"] / (1 + 10 * cases["condition"] * cases["size"])).max())


def _never_singular(singularity: xarray.Dataset) -> dict[Quantity, Any]:
    continuous = singularity.isel(case=singularity["entries"].values != "signs")
    signs = singularity.isel(case=singularity["entries"].values == "signs")
    return {
        SINGULAR_DRAWS: int(continuous["singular"].sum()),
        DRAWS: int(continuous["draws"].sum()),
        SMALLEST: float(continuous["smallest"].min()),
        SINGULAR_SIGNS: {
            str(int(size)): float(share)
            for size, share in zip(signs["size"].values, (signs["singular"] / signs["draws"]).values, strict=True)
        },
    }


STUDY = Study(
    PAPER,
    "theorems",
    paper_found="Deep products of weights collapse onto one direction; with skips all directions stay.",
    we_expect="The exact sums hold, approximation 16 does not; skips condition products well if branches are small.",
    presets={
        "smoke": TheoremsSettings(draws=3, size=8, units=(1, 5, 110), matrices=250),
        "quick": TheoremsSettings(),
        "full": TheoremsSettings(draws=100, units=(1, 2, 5, 10, 20, 50, 110, 200)),
        "paper": TheoremsSettings(draws=100, units=(1, 2, 5, 10, 20, 50, 110, 200)),
    },
    cost={"smoke": "seconds", "quick": "a minute on one core", "full": "minutes on one core", "paper": "as full"},
    run=run,
    claims=(C9, C10, C11, C12, C13),
)
