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
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from skipscope.errors import InputError
from skipscope.numerics import seed_of
from skipscope.papers.b import PAPER
from skipscope.papers.b.claims import decided_by
from skipscope.papers.b.theory import lemma1, theorem1, unit_labels
from skipscope.papers.kit.bench import Bench
from skipscope.papers.kit.study import Evidence, Study
from skipscope.papers.kit.tables import table

if TYPE_CHECKING:
    import xarray

MEASURE = "theory_small_weights"
GAP = 0.16  # radians between neighbours on the great circle
WAY = 2.5  # radians from a point to its target where the growth of errors is measured
JITTER = 0.3  # of the labels
CLASSES = 10
SHARES = (0.25, 1.0)  # rho over the largest that lemma 1 allows
APART = 0.4  # of a point that lemma 1 moves from others: a unit's rounding errors are its input's times 8 delta / rho^2
HOLDS = 1e-6  # an error end to end that is none


@dataclass(frozen=True)
class Theorem1Settings:
    draws: int = 10  # random matrices of each size for lemma 1
    points: int = 9  # m on the great circle
    labelled: int = 30  # m of random points
    steps: tuple[int, ...] = (30, 100, 300, 1000)  # R / m
    distances: tuple[float, ...] = (0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.7, 1.0)  # rho
    units: int = 400  # R where rho is varied

    def __post_init__(self) -> None:
        for key in ("draws", "points", "labelled"):
            if getattr(self, key) < 1:
                raise InputError(f"{key}: expected at least 1, got {getattr(self, key)}")
        if self.units < 2:
            raise InputError(f"units: expected two or more, got {self.units}")
        if not self.steps or min(self.steps) < 1:
            raise InputError(f"steps: expected one number of at least 1 or more, got {self.steps}")
        if not self.distances or not all(0 < rho <= 1 for rho in self.distances):
            raise InputError(f"distances: expected some above 0 and up to 1, got {self.distances}")


def run(bench: Bench, settings: Theorem1Settings) -> Evidence:
    sets = arrangements(settings, bench.seed)
    return evidence(
        bench.part("lemma1", lambda: _lemma1(settings, bench.seed)),
        bench.part("paths", lambda: _paths(settings, sets)),
        bench.part("norms", lambda: _norms(settings, sets)),
        bench.part("errors", lambda: _errors(settings)),
    )


def evidence(
    units: xarray.Dataset, paths: xarray.Dataset, norms: xarray.Dataset, errors: xarray.Dataset
) -> dict[str, dict[str, Any]]:
    scaled = norms["largest"] * norms["units"] ** 0.5
    spread = scaled.std("steps", ddof=1) / scaled.mean("steps")
    ratios = norms["units"].max("steps") / norms["units"].min("steps")
    wide = errors["composed"].sel(rho=errors["rho"] >= 0.5)
    lost = errors["rho"].values[errors["composed"].values > HOLDS]
    found: dict[str, dict[str, Any]] = {
        "B15": {
            "largest error of equation 13": float(units["image"].max()),
            "largest error of equation 14": float(units["norm"].max()),
            "units": units.sizes["unit"],
        },
        "B16": {
            "smallest distance on the way / (rho / 2)": float(paths["distance"].min()),
            "longest path / its bound": float(paths["length"].max()),
            "detours": int(paths["detours"].sum()),
        },
        "B17": {
            "CoV of largest |W|_F sqrt(R) over R": float(spread.max(skipna=False)),
            "largest R / smallest R": float(ratios.min()),
            "largest |W|_F / its bound": float((norms["largest"] / norms["bound"]).max()),
        },
        "B18": {
            "largest error of a unit on exact inputs": max(float(part["by_unit"].max()) for part in (paths, errors)),
            "error end to end in long arithmetic": max(float(part["exact"].max()) for part in (paths, errors)),
            "largest error end to end in float64": float(errors["composed"].max()),
            f"largest rho at which float64 is off by more than {HOLDS:g}": float(lost.max()) if lost.size else 0.0,
        },
    }
    if wide.size:
        found["B18"]["largest error end to end in float64, rho >= 0.5"] = float(wide.max())
    return found


# -- what is arranged


def arrangements(settings: Theorem1Settings, seed: int) -> dict[str, tuple[Tensor, Tensor]]:
    """Inputs and targets, (d, m) with unit columns, under the names of their arrangement."""
    m = settings.points
    return {
        "great circle": (_circle([GAP * k for k in range(m)]), _circle([GAP * k for k in range(m, 2 * m)])),
        "jittered labels": (
            _sphere(CLASSES, settings.labelled, seed_of("inputs", seed)),
            unit_labels(torch.arange(settings.labelled, device="cpu") % CLASSES, CLASSES, JITTER, seed=seed),
        ),
    }


def _circle(angles: list[float]) -> Tensor:
    """(3, m)"""
    t = torch.tensor(angles, dtype=torch.float64, device="cpu")
    return torch.stack([t.cos(), t.sin(), torch.zeros_like(t)])


def _sphere(size: int, count: int, seed: int) -> Tensor:
    generator = torch.Generator("cpu").manual_seed(seed)
    points = torch.randn(size, count, dtype=torch.float64, generator=generator, device="cpu")
    return points / points.norm(dim=0)


def _apart(size: int, count: int, seed: int) -> tuple[Tensor, float]:
    """Random points, and the distance of the first from the nearest other, which is no less than APART."""
    for attempt in itertools.count():
        points = _sphere(size, count, seed_of(seed, attempt))
        nearest = float((points[:, 1:] - points[:, :1]).norm(dim=0).min())
        if nearest >= APART:
            break
    return points, nearest


# -- what is measured


def _lemma1(settings: Theorem1Settings, seed: int) -> xarray.Dataset:
    """Units for random unit vectors: one that moves the first of them to a further one."""
    rows: list[dict[str, float]] = []
    for d in (3, 5, 10):
        for m in (2, 8, 20):
            for draw in range(settings.draws):
                points, nearest = _apart(d, m + 1, seed_of("lemma 1", seed, d, m, draw))
                A = points[:, :m]
                for share in SHARES:
                    rho = min(2 * share * nearest, 2.0)
                    errors = lemma1(A, 0, points[:, m], rho).check()
                    rows.append({"image": errors.image, "norm": errors.norm, "size": d, "columns": m, "rho": rho})
    return table("unit", range(len(rows)), rows, measure=MEASURE, part="lemma1")


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
    return table("arrangement", list(sets), rows, measure=MEASURE, part="paths")


def _norms(settings: Theorem1Settings, sets: Mapping[str, tuple[Tensor, Tensor]]) -> xarray.Dataset:
    import xarray

    parts = []
    for X, Y in sets.values():
        networks = [theorem1(X, Y, units=steps * X.shape[1]) for steps in settings.steps]
        rows = [
            {"units": len(net), "largest": net.largest_norm, "bound": net.bound, "printed": net.printed_bound}
            for net in networks
        ]
        limit = networks[-1].constant
        parts.append(table("steps", settings.steps, rows, measure=MEASURE, part="norms").assign(limit=limit))
    return xarray.concat(parts, xarray.DataArray(list(sets), dims="arrangement", name="arrangement"))


def _errors(settings: Theorem1Settings) -> xarray.Dataset:
    """Two points at distance rho that go to two others, half a turn away, on one great circle."""
    rows = []
    for rho in settings.distances:
        angle = 2 * math.asin(rho / 2)
        network = theorem1(_circle([0, angle]), _circle([WAY, WAY + angle]), units=settings.units, rho=rho)
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
    return table("rho", settings.distances, rows, measure=MEASURE, part="errors", units=settings.units)


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
    claims=decided_by("B.theorem1"),
)
