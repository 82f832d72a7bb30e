"""B.theorem2: the loss around zero weights, closed form against differentiation that does not know it.

    skipscope study run B.theorem2 --preset quick --out DIR

The paper finds that shortcuts of depth 2 are special. At zero weights their Hessian consists of copies of one matrix
M = S^XX - S^YX, so that its condition number is that of M at every depth; with shortcuts of depth 1 it explodes with
depth, and from depth 3 on gradient and Hessian vanish. Hence zero is a saddle that 2-shortcut networks leave and deeper
ones do not.

We expect the forms to hold to rounding, for all smooth activations. Not so for the true ReLU: at exact zero automatic
differentiation gives a Hessian of 0, and near zero the blocks depend on which entries are active, not on M / 2. Nor
with the biases of equation 3: the block form holds on the weights, but each bias adds a zero to the spectrum, so that
the strict condition number is infinite and the finite one of theorem 2 is refuted for that network. Equation 3 has
ReLUs; tanh stands in for them, since a Hessian that is 0 would have all zeros. The growth for depth 1 depends on M:
like R in simple cases, like R^2 with jumps where some of its eigenvalues are complex, as they are on MNIST, and it can
be faster still. It is judged from R = 4 on: with whitened inputs the condition number is 1 at R = 1, and a single jump
would pass for growth.

Random data for what is differentiated; MNIST whitened to 10 components with one-hot targets for the known numbers,
which depend on the signs of the components: each has its largest entry positive, and all other signs are reported too.
From the paper's 0.01 times Xavier's weights no network with shortcuts of depth 4 or more gains anything within the
paper's 1000 steps: all stay at zero, or leave it and diverge. So they are trained from 0.1 times Xavier's weights as
well, each shortcut depth at the rate that is best on seeds of their own, and that is what decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import xarray

from skipscope.constraints import Constrained, at_least, each, multiple_of, not_empty, several
from skipscope.papers.b import PAPER
from skipscope.papers.b.learning_rates import NONE_ON_EDGE, ON_EDGE
from skipscope.papers.b.measurements import zero_weights
from skipscope.papers.b.measurements.depth import log_slope
from skipscope.papers.b.measurements.zero_weights import SHORTCUT_DEPTHS, START_FACTORS, at_best_rates
from skipscope.papers.b.subjects import CIFAR10, COMPONENTS, LOWEST_LOSS, MNIST, subject_on, whitened_data
from skipscope.papers.kit import Bench, Claim, Evidence, Measured, Part, Quantity, Study
from skipscope.runs.sweep import Task

GROWTH_FROM = 4  # units from which on growth is judged
ZERO_WEIGHTS = "zero weights"  # the subject of what needs no training


# -- claims

BLOCK_FORM_ERROR = Quantity("largest difference of Hessian and block form")
NETWORKS_COMPARED = Quantity("networks compared")
B1 = Claim(
    "B1",
    "With shortcuts of depth 2 and zero weights the Hessian is block diagonal, with blocks made of M alone.",
    "closed form against automatic differentiation, for several activations",
    criteria=(BLOCK_FORM_ERROR.at_most(1e-12),),
)


CONDITION_ON_DATA = Quantity(f"cond(H) on the data with {COMPONENTS} components")
SPREAD_OVER_UNITS = Quantity("relative spread of cond(H) over R")
OFF_CONDITION_OF_M = Quantity("relative difference of cond(H) and cond(M)")
PERCENTILE_CONDITION = Quantity("with the 10th percentile for the smallest eigenvalue")
OVER_ALL_SIGNS = Quantity("over all signs")
LOSS_AT_IDENTITY = Quantity("loss at the identity")
B2 = Claim(
    "B2",
    "With shortcuts of depth 2 the condition number at zero is that of M, at every depth.",
    "condition number of the Hessian for R = 1 to 16",
    parts=(
        Part("that of M, at every depth", (SPREAD_OVER_UNITS.at_most(1e-8), OFF_CONDITION_OF_M.at_most(1e-8))),
        Part("1.4907 on MNIST", (CONDITION_ON_DATA.within(1.49065, 1.49075),), subject=MNIST),
    ),
    subjects={ZERO_WEIGHTS: 1, MNIST: 1},
    note=(
        "M depends on the signs of the principal components: in descending order, each with its largest entry "
        "positive, cond is 1.4907; over all signs it ranges from 1.408 to 1.634."
    ),
)

FIRST_FORM_ERROR = Quantity("largest difference of Hessian and form for n = 1")
GROWTH = Quantity("slope of log cond(H) over log R, n = 1")
COMPLEX_EIGENVALUES = Quantity("M with complex eigenvalues")
B3 = Claim(
    "B3",
    "With shortcuts of depth 1 the Hessian at zero has its own closed form, and its condition number explodes.",
    "closed form against automatic differentiation; slope of log cond(H) over log R, from R = 4 to 32",
    parts=(
        Part("closed form", (FIRST_FORM_ERROR.at_most(1e-12),)),
        Part("condition number explodes", (GROWTH.at_least(0.8),)),
    ),
)

HESSIAN_AT_ZERO = Quantity("norm of the Hessian at zero, n >= 3")
ORDER_ERROR = Quantity("slope of log |L(t u) - L(0)| over log t, minus n")
B4 = Claim(
    "B4",
    "With shortcuts of depth 3 or more zero is a stationary point of order n - 1: gradient and Hessian vanish.",
    "norm of the Hessian; slope of log |L(t u) - L(0)| over log t",
    criteria=(HESSIAN_AT_ZERO.exactly(0.0), ORDER_ERROR.within(-0.05, 0.05, every=True)),
    note="A member is a shortcut depth.",
)

RELU_RANGE = Quantity("range of log10 cond over depths 2 to 32, ReLUs in the middle")
ORTHOGONAL_RANGE = Quantity("range of log10 cond over depths 2 to 32, orthogonal")
OFF_FORMULA = Quantity("largest |log10 cond - that of the formula| over depths, ReLUs in the middle")
RELU_MEANS = Quantity("mean log10 cond by depth, ReLUs in the middle")
FORMULA = Quantity("log10 cond of the formula")
RELU_AT_ZERO = Quantity("norm of the Hessian at exact zero")
RELU_CONDITION = Quantity("cond(H) at 0.01 Xavier", "ratio")
RELU_CONDITION_RATIO = Quantity("cond(H) at 0.01 Xavier / cond(M)", "ratio")
RELU_FORM_ERROR = Quantity("largest difference of Hessian and form of slope 1/2, over its largest entry")
B5 = Claim(
    "B5",
    "Networks with ReLUs in the middle follow theorem 2.",
    "log10 cond at 0.01 Xavier weights, with the 10th percentile for the smallest eigenvalue, by depth and against the "
    "formula",
    parts=(
        Part("the same at every depth", (RELU_RANGE.at_most(0.1),), (ORTHOGONAL_RANGE.at_least(0.5),)),
        Part("that of the formula", (OFF_FORMULA.at_most(0.05),)),
    ),
    subjects={MNIST: 10},
    note=(
        "With the true ReLU, differentiation at exact zero gives a Hessian of 0, and near zero the blocks depend "
        "on the activation pattern; the paper's smoothed ReLU is consistent by construction. The formula has the slope "
        "1/2 at zero."
    ),
)

BIASED_FORM_ERROR = Quantity("largest difference of Hessian and block form on the weights")
WHOLE_FORM_ERROR = Quantity("largest difference of Hessian and form with biases, which gives the non-zero spectrum")
ADDED_ZEROS = Quantity("zero eigenvalues beyond those without biases, minus d R")
ZEROS = Quantity("zero eigenvalues")
CONDITION_WITHOUT_ZEROS = Quantity("cond(H) without the zeros / cond(M)", "ratio")
B21 = Claim(
    "B21",
    "The network of equation 3, with biases, follows theorem 2.",
    "eigenvalues of the Hessian at zero; closed form on the weights",
    parts=(
        Part("as written: the condition number is finite", (ZEROS.exactly(0.0),)),
        Part(
            "corrected: block form on the weights, d R zeros, and the form of the rest",
            (
                BIASED_FORM_ERROR.at_most(1e-12),
                ADDED_ZEROS.exactly(0.0),
                WHOLE_FORM_ERROR.at_most(1e-12),
            ),
        ),
    ),
    note=(
        "Biases add d R zero eigenvalues, so that the strict condition number is infinite. tanh stands in for the ReLU "
        "of equation 3, which has no derivative at zero (see B5)."
    ),
)

SMALLEST_EIGENVALUE = Quantity("smallest eigenvalue at zero, n = 2")
OFF_SINGULAR_VALUE = Quantity("|smallest eigenvalue + largest singular value of M|")
LOSS_RATIO = {n: Quantity(f"final loss, {n}-shortcut / 4-shortcut", "ratio") for n in SHORTCUT_DEPTHS[1:]}
ERROR_GAP = {n: Quantity(f"test error, shortcut depth {n} - 4") for n in SHORTCUT_DEPTHS[1:]}
NO_BEST_RATE = Quantity("shortcut depths without a best learning rate, since all end alike")
FINAL_LOSS = Quantity("final loss, 4-shortcut")
BEST_RATES = Quantity("best learning rates for n = 4, 5, 6")
LEFT_FROM_PAPERS_START = Quantity("smallest share of the loss at zero that is left, from 0.01 Xavier")
B23 = Claim(
    "B23",
    "Zero is a strict saddle for shortcuts of depth 2; shortcuts deeper than 4 are worse still.",
    "smallest eigenvalue of the Hessian; final losses and test errors for shortcut depths 4, 5 and 6",
    parts=(
        Part("strict saddle", (SMALLEST_EIGENVALUE.below(0.0), OFF_SINGULAR_VALUE.at_most(1e-12))),
        Part(
            "linear networks: 5 and 6 are not better than 4",
            tuple(ratio.at_least(1.0) for ratio in LOSS_RATIO.values()),
            (NONE_ON_EDGE,),
            subject=MNIST,
        ),
        Part(
            "pre-activation ResNets: 5 and 6 are worse than 4",
            tuple(gap.above(0.0) for gap in ERROR_GAP.values()),
            subject=CIFAR10,
        ),
    ),
    subjects={ZERO_WEIGHTS: 1, MNIST: 8, CIFAR10: 3},
    cost=(
        "skipscope study run B.shortcuts --preset full --device cuda (12 minutes on one H200 for the ResNets near 110 "
        "layers with shortcuts of depth 4, 5 and 6, three networks each, 40 epochs), in one run with B.theorem2"
    ),
    note=(
        "Linear networks of 60 layers from 0.1 times Xavier's weights, each shortcut depth at the learning rate that "
        "is best on other seeds; from the paper's 0.01 no shortcut of depth 4 or more leaves zero. The paper's "
        "sentence is about ResNets on CIFAR-10, which are measured by B.shortcuts."
    ),
)


@dataclass(frozen=True)
class Theorem2Settings(Constrained):
    data: str = "mnist"  # whitened
    sizes: Annotated[tuple[int, ...], not_empty, each(at_least(1))] = (3, 6, 10)  # widths of networks on random data
    sets: Annotated[int, at_least(1)] = 3  # of random data, for the growth with R
    units: Annotated[tuple[int, ...], several, each(at_least(1))] = (1, 2, 4, 8, 16, 32)  # R
    networks: Annotated[int, at_least(1)] = 8  # of each kind that are trained and judged; as many choose their rates
    relu_networks: Annotated[int, at_least(1)] = 10  # with ReLUs in the middle, whose conditioning is measured
    relu_depths: Annotated[tuple[int, ...], several, each(at_least(2), multiple_of(2))] = (2, 4, 8, 16, 32)
    per_decade: Annotated[int, at_least(1)] = 4  # learning rates of these
    steps: Annotated[int, at_least(1)] = 600


def run(bench: Bench, settings: Theorem2Settings) -> Evidence:
    white = whitened_data(bench, settings.data)
    bench.note(
        f"the losses of B23 are from {START_FACTORS[1]:g} times Xavier's weights: from the paper's "
        f"{START_FACTORS[0]:g} no shortcut of depth 4 or more leaves zero, so that their losses are alike (reported)"
    )
    sizes, units, networks = settings.sizes, settings.units, settings.networks
    parts = {
        "forms": partial(zero_weights.forms, bench, sizes),
        "conditions": partial(zero_weights.conditions, bench, white, sizes=sizes, sets=settings.sets, units=units),
        "whitened": partial(zero_weights.whitened, white),
        "spectrum": partial(zero_weights.spectrum, white),
        "stationarity": partial(zero_weights.stationarity, bench),
        "relu": partial(zero_weights.relu, bench, white, networks=min(networks, 3)),
        "relu_by_depth": partial(
            zero_weights.relu_by_depth, bench, white, networks=settings.relu_networks, depths=settings.relu_depths
        ),
        "biases": partial(zero_weights.biases, bench, sizes),
        "escape": partial(
            zero_weights.escape, bench, white, networks=networks, steps=settings.steps, per_decade=settings.per_decade
        ),
    }
    found = bench.sweep(Task(name, compute) for name, compute in parts.items())
    return evidence(**dict(zip(parts, found, strict=True)))


def evidence(
    *,
    forms: xarray.Dataset,
    conditions: xarray.Dataset,
    whitened: xarray.Dataset,
    spectrum: xarray.Dataset,
    stationarity: xarray.Dataset,
    relu: xarray.Dataset,
    relu_by_depth: xarray.Dataset,
    biases: xarray.Dataset,
    escape: xarray.Dataset,
) -> Evidence:
    two, one = (forms.isel(case=(forms["n"] == n).values) for n in (2, 1))
    many = conditions.sel(units=conditions["units"] >= GROWTH_FROM)
    deep = stationarity.sel(n=stationarity["n"] >= 3)
    return {
        B1: {BLOCK_FORM_ERROR: float(two["hessian_error"].max()), NETWORKS_COMPARED: two.sizes["case"]},
        B2: _same_at_every_depth(conditions.sel(n=2), whitened),
        B3: {
            FIRST_FORM_ERROR: float(one["hessian_error"].max()),
            GROWTH: [log_slope(many["units"].values, row) for row in many["condition"].sel(n=1).values],
            COMPLEX_EIGENVALUES: f"{int(conditions['complex'].sum())} of {conditions.sizes['data']}",
        },
        B4: {
            HESSIAN_AT_ZERO: deep["hessian"].values.tolist(),
            ORDER_ERROR: (stationarity["slope"] - stationarity["n"]).values.tolist(),
        },
        B5: [_with_relus(relu, relu_by_depth)],
        B21: {
            BIASED_FORM_ERROR: float(biases["error"].max()),
            WHOLE_FORM_ERROR: float(biases["whole_error"].max()),
            ADDED_ZEROS: (biases["zeros"] - biases["zeros_without"] - biases["size"] * biases["units"]).values.tolist(),
            ZEROS: biases["zeros"].values.tolist(),
            CONDITION_WITHOUT_ZEROS: (biases["condition_without_zeros"] / biases["condition_of_M"]).values.tolist(),
        },
        B23: _saddle(two, spectrum, escape),
    }


def _same_at_every_depth(two: xarray.Dataset, whitened: xarray.Dataset) -> list[Measured]:
    condition, name = two["condition"], str(whitened.attrs["data"])
    signs = whitened["condition_by_signs"]
    of_all: dict[Quantity, Any] = {
        SPREAD_OVER_UNITS: float((condition.max("units") / condition.min("units") - 1).max()),
        OFF_CONDITION_OF_M: float(abs(condition / two["condition_of_M"] - 1).max()),
    }
    of_images: dict[Quantity, Any] = {
        CONDITION_ON_DATA: float(condition.sel(data=name).max()),
        PERCENTILE_CONDITION: float(whitened["percentile_condition"]),
        OVER_ALL_SIGNS: [float(signs.min()), float(signs.max())],
        LOSS_AT_IDENTITY: float(whitened["loss_at_identity"]),
        LOWEST_LOSS: float(whitened["lowest_loss"]),
    }
    return [Measured(of_all, ZERO_WEIGHTS, networks=1), Measured(of_images, subject_on(name), networks=1)]


def _with_relus(relu: xarray.Dataset, by_depth: xarray.Dataset) -> Measured:
    logs, formula = by_depth["log_condition"], float(by_depth.attrs["formula"])
    ranges = logs.max("depth", skipna=False) - logs.min("depth", skipna=False)
    ours = logs.sel(architecture="ReLU in the middle")
    values = {
        RELU_RANGE: ranges.sel(architecture="ReLU in the middle").values.tolist(),
        ORTHOGONAL_RANGE: ranges.sel(architecture="orthogonal").values.tolist(),
        OFF_FORMULA: abs(ours - formula).max("depth", skipna=False).values.tolist(),
        RELU_MEANS: ours.mean("seed").values.tolist(),
        FORMULA: formula,
        RELU_AT_ZERO: relu["at_zero"].max().item(),
        RELU_CONDITION: relu["condition"].values.ravel().tolist(),
        RELU_CONDITION_RATIO: (relu["condition"] / relu["condition_of_M"]).values.ravel().tolist(),
        RELU_FORM_ERROR: float(relu["error"].max()),
    }
    return Measured(values, subject_on(by_depth.attrs["data"]), by_depth["seed"].values.tolist())


def _saddle(two: xarray.Dataset, spectrum: xarray.Dataset, escape: xarray.Dataset) -> list[Measured]:
    """The eigenvalues of all cases with n = 2; of the trained networks those at their best learning rate."""
    lowest = [*two["lowest"].values, float(spectrum["value"].sel(n=2).min())]
    largest = [*two["largest_singular"].values, float(spectrum.attrs["largest_singular"])]
    paper, decides = (at_best_rates(escape["loss"].sel(start=start)) for start in START_FACTORS)
    loss = decides["loss"]
    at_zero = {
        SMALLEST_EIGENVALUE: max(lowest),
        OFF_SINGULAR_VALUE: max(abs(a + b) for a, b in zip(lowest, largest, strict=True)),
    }
    trained = {
        **{ratio: (loss.sel(n=n) / loss.sel(n=4)).values.tolist() for n, ratio in LOSS_RATIO.items()},
        ON_EDGE: int(decides["on_edge"].sum()),
        NO_BEST_RATE: [int(n) for n, flat in zip(decides["n"].values, decides["flat"].values, strict=True) if flat],
        FINAL_LOSS: loss.sel(n=4).values.tolist(),
        BEST_RATES: decides["rate"].values.tolist(),
        LEFT_FROM_PAPERS_START: float(paper["loss"].min() / escape.attrs["loss_at_zero"]),
    }
    return [
        Measured(at_zero, ZERO_WEIGHTS, networks=1),
        Measured(trained, subject_on(escape.attrs["data"]), loss["network"].values.tolist()),
    ]


FULL = Theorem2Settings(sets=6, units=(1, 2, 3, 4, 6, 8, 12, 16, 24, 32), networks=10, per_decade=6, steps=1000)
STUDY = Study(
    PAPER,
    "theorem2",
    paper_found="With shortcuts of depth 2 the condition number at zero does not depend on depth; with 1 it explodes.",
    we_expect="All closed forms to rounding; not with the true ReLU, nor with biases, whose Hessians are singular.",
    presets={
        "smoke": Theorem2Settings(
            "digits",
            (2, 3),
            sets=1,
            units=(1, 2),
            networks=1,
            relu_networks=2,
            relu_depths=(2, 4),
            per_decade=2,
            steps=3,
        ),
        "quick": Theorem2Settings(),
        "full": FULL,
        "paper": FULL,
    },
    cost={
        "smoke": "seconds",
        "quick": "2 minutes on 2 cores",
        "full": "a few minutes on 2 cores or one GPU",
        "paper": "as full: MNIST with 10 components is what the paper has",
    },
    run=run,
    claims=(B1, B2, B3, B4, B5, B21, B23),
)
