"""B.theorem1: the network of small weights that interpolates, built and checked.

    skipscope study run B.theorem1 --preset quick --out DIR

The paper proves that a deep network of units x + W2 relu(W1 x + b) can take any m unit vectors to any others that keep
a distance rho, with weights that shrink like one over the square root of the number R of units. Lemma 1 makes a unit
that moves one column alone, lemma 2 a path on the sphere that keeps its distance, theorem 1 puts units along paths.

We expect all of it, and one thing more that the paper does not say: composed, the network is unstable. Rounding errors
grow by some 3 / rho decades for points that are 2.5 radians from their targets, so that float64 loses the output for
rho of 0.2 and less, though each unit is right to rounding and enough digits bring the output back. Three arrangements:
points on a great circle, where every path has all others in its way; random points with jittered labels; and pairs at a
given distance rho, which show the growth.

Lemma 1 is checked at random points, of which the one that moves keeps a distance of 0.4 from all others. That is our
choice: a unit's rounding errors grow like one over the square of that distance, and pass the threshold for points that
are closer, though the identities hold.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import torch
import xarray
from torch import Tensor

from skipscope.constraints import Constrained, above, at_least, at_most, each, not_empty
from skipscope.numerics import normal, seed_of
from skipscope.papers.b import PAPER
from skipscope.papers.b.theory import lemma1, theorem1, unit_labels
from skipscope.papers.kit import Bench, Claim, Evidence, Quantity, Study
from skipscope.papers.kit.tables import table
from skipscope.runs.sweep import Task

MEASURE_NAME = "theory_small_weights"
NEIGHBOUR_ANGLE = 0.16  # radians between neighbours on the great circle
TARGET_ANGLE = 2.5  # radians from a point to its target where the growth of errors is measured
LABEL_JITTER = 0.3
CLASSES = 10
RHO_SHARES = (0.25, 1.0)  # rho over the largest that lemma 1 allows
# Of a point that lemma 1 moves from others: a unit's rounding errors are its input's times 8 delta / rho^2.
LEAST_DISTANCE = 0.4
NEGLIGIBLE_ERROR = 1e-6  # end to end
DISTANCES = (0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.7, 1.0)  # rho, unless settings say otherwise
WIDE_RHO = 0.5  # from which on float64 holds end to end


# -- claims

IMAGE_ERROR = Quantity("largest error of equation 13")
NORM_ERROR = Quantity("largest error of equation 14")
UNITS_MADE = Quantity("units")
B15 = Claim(
    "B15",
    "Lemma 1: one unit moves one point and no other, with weights of a given norm.",
    "errors of equations 13 and 14",
    criteria=(IMAGE_ERROR.at_most(1e-12), NORM_ERROR.at_most(1e-12)),
    note=(
        "Random points, of which the one that moves is 0.4 or more from all others: our choice, since rounding "
        "errors of a unit grow like one over the square of that distance. B16 and B18 have points that are closer."
    ),
)

CLOSEST = Quantity("smallest distance on the way / (rho / 2)")
LENGTH = Quantity("longest path / its bound")
DETOURS = Quantity("detours")
B16 = Claim(
    "B16",
    "Lemma 2: points can be carried to their targets on short paths that keep their distance.",
    "smallest distance of any two points on the way; length of the longest path",
    criteria=(CLOSEST.at_least(1 - 1e-9), LENGTH.at_most(1.0)),
)

NORM_VARIATION = Quantity("CoV of largest |W|_F sqrt(R) over R")
UNITS_RATIO = Quantity("largest R / smallest R")
NORM_OVER_BOUND = Quantity("largest |W|_F / its bound")
B17 = Claim(
    "B17",
    "Theorem 1: the weights of the interpolating network shrink like one over the square root of R.",
    "largest |W|_F times the square root of R, over R",
    criteria=(NORM_VARIATION.at_most(0.02),),
    controls=(UNITS_RATIO.at_least(30.0),),
)

UNIT_ERROR = Quantity("largest error of a unit on exact inputs")
EXACT_ERROR = Quantity("error end to end in long arithmetic")
FLOAT64_ERROR = Quantity("largest error end to end in float64")
LOST_RHO = Quantity(f"largest rho at which float64 is off by more than {NEGLIGIBLE_ERROR:g}")
WIDE_FLOAT64_ERROR = FLOAT64_ERROR.of(f"rho >= {WIDE_RHO:g}")
B18 = Claim(
    "B18",
    "Theorem 1: the constructed network interpolates.",
    "error of every unit on exact inputs; error of the whole network in long arithmetic",
    criteria=(UNIT_ERROR.at_most(1e-12), EXACT_ERROR.at_most(1e-30)),
    note="The composed network is unstable: float64 holds end to end for rho of 0.5 or more only.",
)


@dataclass(frozen=True)
class Theorem1Settings(Constrained):
    draws: Annotated[int, at_least(1)] = 10  # random matrices of each size for lemma 1
    points: Annotated[int, at_least(1)] = 9  # m on the great circle
    labelled: Annotated[int, at_least(1)] = 30  # m of random points
    steps: Annotated[tuple[int, ...], not_empty, each(at_least(1))] = (30, 100, 300, 1000)  # R / m
    distances: Annotated[tuple[float, ...], not_empty, each(above(0), at_most(1))] = DISTANCES  # rho
    units: Annotated[int, at_least(2)] = 400  # R where rho is varied


def run(bench: Bench, settings: Theorem1Settings) -> Evidence:
    sets = arrangements(settings, bench.seed)
    parts = {
        "lemma1": partial(_lemma1, settings, bench.seed),
        "paths": partial(_paths, settings, sets),
        "norms": partial(_norms, settings, sets),
        "errors": partial(_errors, settings),
    }
    return evidence(*bench.sweep(Task(name, compute) for name, compute in parts.items()))


def evidence(units: xarray.Dataset, paths: xarray.Dataset, norms: xarray.Dataset, errors: xarray.Dataset) -> Evidence:
    scaled = norms["largest"] * norms["units"] ** 0.5
    spread = scaled.std("steps", ddof=1) / scaled.mean("steps")
    ratios = norms["units"].max("steps") / norms["units"].min("steps")
    wide = errors["composed"].sel(rho=errors["rho"] >= WIDE_RHO)
    lost = errors["rho"].values[errors["composed"].values > NEGLIGIBLE_ERROR]
    whole_networks: dict[Quantity, Any] = {
        UNIT_ERROR: max(float(part["by_unit"].max()) for part in (paths, errors)),
        EXACT_ERROR: max(float(part["exact"].max()) for part in (paths, errors)),
        FLOAT64_ERROR: float(errors["composed"].max()),
        LOST_RHO: float(lost.max()) if lost.size else 0.0,
    }
    if wide.size:
        whole_networks[WIDE_FLOAT64_ERROR] = float(wide.max())
    return {
        B15: {
            IMAGE_ERROR: float(units["image"].max()),
            NORM_ERROR: float(units["norm"].max()),
            UNITS_MADE: units.sizes["unit"],
        },
        B16: {
            CLOSEST: float(paths["distance"].min()),
            LENGTH: float(paths["length"].max()),
            DETOURS: int(paths["detours"].sum()),
        },
        B17: {
            NORM_VARIATION: float(spread.max(skipna=False)),
            UNITS_RATIO: float(ratios.min()),
            NORM_OVER_BOUND: float((norms["largest"] / norms["bound"]).max()),
        },
        B18: whole_networks,
    }


# -- what is arranged


def arrangements(settings: Theorem1Settings, seed: int) -> dict[str, tuple[Tensor, Tensor]]:
    """Inputs and targets, (d, m) with unit columns, under the names of their arrangement."""
    m = settings.points
    return {
        "great circle": (
            _circle([NEIGHBOUR_ANGLE * k for k in range(m)]),
            _circle([NEIGHBOUR_ANGLE * k for k in range(m, 2 * m)]),
        ),
        "jittered labels": (
            _sphere(CLASSES, settings.labelled, seed_of("inputs", seed)),
            unit_labels(torch.arange(settings.labelled, device="cpu") % CLASSES, CLASSES, LABEL_JITTER, seed=seed),
        ),
    }


def _circle(angles: list[float]) -> Tensor:
    """(3, m)"""
    t = torch.tensor(angles, dtype=torch.float64, device="cpu")
    return torch.stack([t.cos(), t.sin(), torch.zeros_like(t)])


def _sphere(size: int, count: int, seed: int) -> Tensor:
    points = normal((size, count), torch.Generator("cpu").manual_seed(seed))
    return points / points.norm(dim=0)


def _apart(size: int, count: int, seed: int) -> tuple[Tensor, float]:
    """Random points, and the distance of the first from the nearest other, which is no less than LEAST_DISTANCE."""
    for attempt in itertools.count():
        points = _sphere(size, count, seed_of(seed, attempt))
        nearest = float((points[:, 1:] - points[:, :1]).norm(dim=0).min())
        if nearest >= LEAST_DISTANCE:
            break
    return points, nearest


# -- what is measured


def _lemma1(settings: Theorem1Settings, seed: int) -> xarray.Dataset:
    """Units for random unit vectors: one that moves the first of them to a further one."""
    rows: list[dict[str, float]] = []
    for d, m, draw in itertools.product((3, 5, 10), (2, 8, 20), range(settings.draws)):
        points, nearest = _apart(d, m + 1, seed_of("lemma 1", seed, d, m, draw))
        A = points[:, :m]
        for share in RHO_SHARES:
            rho = min(2 * share * nearest, 2.0)
            errors = lemma1(A, 0, points[:, m], rho).check()
            rows.append({"image": errors.image, "norm": errors.norm, "size": d, "columns": m, "rho": rho})
    return table("unit", range(len(rows)), rows, measure=MEASURE_NAME, part="lemma1")


def _paths(settings: Theorem1Settings, sets: Mapping[str, tuple[Tensor, Tensor]]) -> xarray.Dataset:
    """Distances over rho / 2 and lengths over their bound, the worst of all columns; errors of the shortest network."""
    rows = []
    for X, Y in sets.values():
        network = theorem1(X, Y, units=min(settings.steps) * X.shape[1])
        checks = [path.check() for path in network.paths]
        rows.append(
            {
                "size": X.shape[0],
                "columns": X.shape[1],
                "rho": network.rho,
                "units": len(network),
                "distance": network.distance / (network.rho / 2),
                "length": max(check.length / check.length_at_most for check in checks),
                "detours": sum(path.detours for path in network.paths),
                "by_unit": network.unit_error(),
                "exact": network.exact_error(),
                "digits": network.digits,
            }
        )
    return table("arrangement", list(sets), rows, measure=MEASURE_NAME, part="paths")


def _norms(settings: Theorem1Settings, sets: Mapping[str, tuple[Tensor, Tensor]]) -> xarray.Dataset:
    parts = []
    for X, Y in sets.values():
        networks = [theorem1(X, Y, units=steps * X.shape[1]) for steps in settings.steps]
        rows = [
            {"units": len(net), "largest": net.largest_norm, "bound": net.bound, "printed": net.printed_bound}
            for net in networks
        ]
        limit = networks[-1].constant
        parts.append(table("steps", settings.steps, rows, measure=MEASURE_NAME, part="norms").assign(limit=limit))
    return xarray.concat(parts, xarray.DataArray(list(sets), dims="arrangement", name="arrangement"))


def _errors(settings: Theorem1Settings) -> xarray.Dataset:
    """Two points at distance rho that go to two others, half a turn away, on one great circle."""
    rows = []
    for rho in settings.distances:
        angle = 2 * math.asin(rho / 2)
        network = theorem1(
            _circle([0, angle]), _circle([TARGET_ANGLE, TARGET_ANGLE + angle]), units=settings.units, rho=rho
        )
        errors = network.check()
        rows.append(
            {
                "by_unit": errors.unit_by_unit,
                "composed": errors.composed,
                "exact": errors.exact,
                "digits": errors.digits,
                "growth": errors.growth,
                "measured_growth": max(network.measured_growth(column) for column in range(2)),
            }
        )
    return table("rho", settings.distances, rows, measure=MEASURE_NAME, part="errors", units=settings.units)


STUDY = Study(
    PAPER,
    "theorem1",
    paper_found="A network of R units interpolates with weights whose norms fall like one over the square root of R.",
    we_expect="It does, unit by unit and with enough digits; in float64 its output is lost for points that are close.",
    presets={
        "smoke": Theorem1Settings(1, points=3, labelled=10, steps=(10, 30), distances=(0.2, 0.5), units=60),
        "quick": Theorem1Settings(),
        "full": Theorem1Settings(50, labelled=60, steps=(30, 100, 300, 1000, 3000), units=1000),
        "paper": Theorem1Settings(50, labelled=60, steps=(30, 100, 300, 1000, 3000), units=1000),
    },
    cost={
        "smoke": "seconds",
        "quick": "seconds on 2 cores",
        "full": "a minute on 2 cores; a GPU is of no use to it",
        "paper": "as full: the paper has the proof alone",
    },
    run=run,
    claims=(B15, B16, B17, B18),
)
