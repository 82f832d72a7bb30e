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
well, each shortcut depth at its own best learning rate, and that is what decides.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from skipscope.errors import InputError
from skipscope.papers.b import PAPER
from skipscope.papers.b.checks import zero_weights
from skipscope.papers.b.checks.leaving_zero import DEEP, STARTS, best_of, escape
from skipscope.papers.b.checks.zero_weights import slope
from skipscope.papers.b.claims import decided_by
from skipscope.papers.b.subjects import COMPONENTS, task
from skipscope.papers.kit.bench import Bench
from skipscope.papers.kit.study import Evidence, Study

if TYPE_CHECKING:
    import xarray

MANY = 4  # units from which on growth is judged


@dataclass(frozen=True)
class Theorem2Settings:
    data: str = "mnist"  # whitened
    sizes: tuple[int, ...] = (3, 6, 10)  # widths of networks on random data
    sets: int = 3  # of random data, for the growth with R
    units: tuple[int, ...] = (1, 2, 4, 8, 16, 32)  # R
    networks: int = 3  # seeds of those that are trained
    per_decade: int = 4  # learning rates of these
    steps: int = 600

    def __post_init__(self) -> None:
        if not self.sizes or len(self.units) < 2:
            raise InputError(f"expected a size and two numbers of units, got sizes={self.sizes}, units={self.units}")
        for key in ("sizes", "units", "sets", "networks", "per_decade", "steps"):
            given = getattr(self, key)
            if min(given) < 1 if isinstance(given, tuple) else given < 1:
                raise InputError(f"{key}: expected at least 1, got {given}")


def run(bench: Bench, settings: Theorem2Settings) -> Evidence:
    subject = task(bench, settings.data)
    bench.note(
        f"the losses of B23 are from {STARTS[1]:g} times Xavier's weights: from the paper's {STARTS[0]:g} no shortcut "
        "of depth 4 or more leaves zero, so that their losses are alike (reported)"
    )
    sizes, units, networks = settings.sizes, settings.units, settings.networks
    parts = {
        "forms": partial(zero_weights.forms, bench, sizes),
        "conditions": partial(zero_weights.conditions, bench, subject, sizes=sizes, sets=settings.sets, units=units),
        "whitened": partial(zero_weights.whitened, subject),
        "spectrum": partial(zero_weights.spectrum, subject),
        "stationarity": partial(zero_weights.stationarity, bench),
        "relu": partial(zero_weights.relu, bench, subject, networks=networks),
        "biases": partial(zero_weights.biases, bench, sizes),
        "escape": partial(
            escape, bench, subject, networks=networks, steps=settings.steps, per_decade=settings.per_decade
        ),
    }
    return evidence(**{name: bench.part(name, compute) for name, compute in parts.items()})


def evidence(
    *,
    forms: xarray.Dataset,
    conditions: xarray.Dataset,
    whitened: xarray.Dataset,
    spectrum: xarray.Dataset,
    stationarity: xarray.Dataset,
    relu: xarray.Dataset,
    biases: xarray.Dataset,
    escape: xarray.Dataset,
) -> dict[str, dict[str, Any]]:
    two, one = (forms.isel(case=(forms["n"] == n).values) for n in (2, 1))
    turning = int(conditions["complex"].sum())
    many = conditions.sel(units=conditions["units"] >= MANY)
    deep = stationarity.sel(n=stationarity["n"] >= 3)
    return {
        "B1": {
            "largest difference of Hessian and block form": float(two["hessian_error"].max()),
            "networks compared": two.sizes["case"],
        },
        "B2": _flat(conditions.sel(n=2), whitened),
        "B3": {
            "largest difference of Hessian and form for n = 1": float(one["hessian_error"].max()),
            "slope of log cond(H) over log R, n = 1": [
                slope(many["units"].values, row) for row in many["condition"].sel(n=1).values
            ],
            "M with complex eigenvalues": f"{turning} of {conditions.sizes['data']}",
        },
        "B4": {
            "norm of the Hessian at zero, n >= 3": deep["hessian"].values.tolist(),
            "slope of log |L(t u) - L(0)| over log t, minus n": (
                stationarity["slope"] - stationarity["n"]
            ).values.tolist(),
        },
        "B5": {
            "norm of the Hessian at exact zero": relu["at_zero"].max().item(),
            "cond(H) at 0.01 Xavier": relu["condition"].values.ravel().tolist(),
            "cond(H) at 0.01 Xavier / cond(M)": (relu["condition"] / relu["condition_of_M"]).values.ravel().tolist(),
            "largest difference of Hessian and form of slope 1/2, over its largest entry": float(relu["error"].max()),
        },
        "B21": {
            "largest difference of Hessian and block form on the weights": float(biases["error"].max()),
            "zero eigenvalues beyond those without biases, minus d R": (
                biases["zeros"] - biases["zeros_without"] - biases["size"] * biases["units"]
            ).values.tolist(),
            "cond(H) with biases": math.inf if bool((biases["zeros"] > 0).all()) else "finite",
            "cond(H) without the zeros / cond(M)": (
                biases["condition_without_zeros"] / biases["condition_of_M"]
            ).values.tolist(),
        },
        "B23": _saddle(two, spectrum, escape),
    }


def _flat(two: xarray.Dataset, whitened: xarray.Dataset) -> dict[str, Any]:
    cond, name = two["condition"], str(whitened.attrs["data"])
    signs = whitened["condition_by_signs"]
    return {
        "relative spread of cond(H) over R": float((cond.max("units") / cond.min("units") - 1).max()),
        "relative difference of cond(H) and cond(M)": float(abs(cond / two["condition_of_M"] - 1).max()),
        f"cond(H) on {name_of(name)} with {COMPONENTS} components": float(cond.sel(data=name).max()),
        "with the 10th percentile for the smallest eigenvalue": float(whitened["percentile_condition"]),
        "over all signs": [float(signs.min()), float(signs.max())],
        "loss at the identity": float(whitened["loss_at_identity"]),
        "lowest loss of a linear map": float(whitened["lowest_loss"]),
    }


def _saddle(two: xarray.Dataset, spectrum: xarray.Dataset, escape: xarray.Dataset) -> dict[str, Any]:
    """The eigenvalues of all cases with n = 2; of the trained networks those at their best learning rate."""
    lowest = [*two["lowest"].values, float(spectrum["value"].sel(n=2).min())]
    largest = [*two["largest_singular"].values, float(spectrum.attrs["largest_singular"])]
    paper, decides = (best_of(escape["loss"].sel(start=start)) for start in STARTS)
    ratios = {n: decides["loss"].sel(n=n) / decides["loss"].sel(n=4) for n in DEEP[1:]}
    return {
        "seeds": escape.sizes["network"],
        "smallest eigenvalue at zero, n = 2": max(lowest),
        "|smallest eigenvalue + largest singular value of M|": max(
            abs(a + b) for a, b in zip(lowest, largest, strict=True)
        ),
        **{f"final loss, {n}-shortcut / 4-shortcut": ratio.values.tolist() for n, ratio in ratios.items()},
        "best learning rates on the edge of their grid": int(decides["on_edge"].sum()),
        "shortcut depths without a best learning rate, since all end alike": [
            int(n) for n, alike in zip(decides["n"].values, decides["flat"].values, strict=True) if alike
        ],
        "final loss, 4-shortcut": decides["loss"].sel(n=4).values.tolist(),
        "best learning rates for n = 4, 5, 6": decides["rate"].values.tolist(),
        "smallest share of the loss at zero that is left, from 0.01 Xavier": float(
            paper["loss"].min() / escape.attrs["loss_at_zero"]
        ),
    }


def name_of(data: str) -> str:
    return {"mnist": "MNIST"}.get(data, data)


FULL = Theorem2Settings(sets=6, units=(1, 2, 3, 4, 6, 8, 12, 16, 24, 32), networks=5, per_decade=6, steps=1000)
STUDY = Study(
    PAPER,
    "theorem2",
    paper_found="With shortcuts of depth 2 the condition number at zero does not depend on depth; with 1 it explodes.",
    we_expect="All closed forms to rounding; not with the true ReLU, nor with biases, whose Hessians are singular.",
    presets={
        "smoke": Theorem2Settings("digits", (2, 3), sets=1, units=(1, 2), networks=1, per_decade=2, steps=3),
        "quick": Theorem2Settings(),
        "full": FULL,
        "paper": FULL,
    },
    cost={
        "smoke": "seconds",
        "quick": "half a minute on 2 cores",
        "full": "a few minutes on 2 cores or one GPU",
        "paper": "as full: MNIST with 10 components is what the paper has",
    },
    run=run,
    claims=decided_by("B.theorem2"),
)
