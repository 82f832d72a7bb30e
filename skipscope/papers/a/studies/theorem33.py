"""A.theorem33: the optimum of the unconstrained Jacobians model, the inequality behind it, the logit that motivates it.

    skipscope study run A.theorem33 --preset quick --out DIR

The paper replaces a network by free Jacobians J_i and a free last layer w, with a penalty on their squares, and proves
that some global optimum has rank-one Jacobians with equal singular values and one singular vector. The proof rests on a
trace inequality of Miranda and Thompson; the model is motivated by the first Taylor term of the logit around a point of
the decision boundary.

We expect all optima to be so, from random starts, at every depth, width, penalty and loss, on the scalar problem that
the theorem reduces it to; |w|^2 = s (1 + s); growth (1 + s)^i, which is exponential, not the linear one that RA4's 1/i
gives. Other stationary points exist (some units flipped): in one dimension they are local minima, else saddles that
no run ends at. With a large penalty (2.0) the optimum is small, but not zero, unless the loss is flat at zero: such a
loss is reported besides and not judged, as the theorem's inequalities are no longer strict.

The inequality is compared with an ascent over rotations that does not know it. The linearised logit is off by tens of
percent at training samples of a trained network: they are not "next to" the boundary. Closer to it the error falls.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy
import torch
from torch import Tensor

from skipscope.errors import InputError
from skipscope.numerics import seed_of
from skipscope.papers.a import PAPER
from skipscope.papers.a.claims import decided_by
from skipscope.papers.a.theory import (
    LOSSES,
    Solution,
    UnconstrainedJacobians,
    boundary_points,
    linearised_logit,
    theorem33,
    trace_inequality,
)
from skipscope.papers.kit.bench import Bench
from skipscope.papers.kit.study import Evidence, Study
from skipscope.papers.kit.tables import table
from skipscope.trace import trace
from skipscope.training import Settings

if TYPE_CHECKING:
    import xarray

MEASURE = "theory_unconstrained_jacobians"
FLAT = "flat at zero"
JUDGED = tuple(name for name in LOSSES if name != FLAT)
SHARES = (1.0, 0.5, 0.25, 0.1, 0.03, 0.01)  # of the way from the boundary to a sample
SAMPLED = 2000  # rotations
STATIONARY = (3, 0.1)  # depth and weight where all stationary points are listed


@dataclass(frozen=True)
class Theorem33Settings:
    depths: tuple[int, ...] = (2, 5, 10)  # L
    sizes: tuple[int, ...] = (2, 6)  # D
    weights: tuple[float, ...] = (0.01, 0.1, 2.0)  # lambda
    starts: int = 4
    matrices: tuple[int, ...] = (2, 3, 4, 5)  # m of the trace inequality
    orders: tuple[int, ...] = (2, 3, 4, 5, 6)  # n
    ascents: int = 2  # starts of each
    model: str = "type1-digits-c2-w32-b8-preactivation"
    classes: tuple[int, ...] = (3, 8)
    epochs: int = 60
    samples: int = 20  # whose logit is linearised

    def __post_init__(self) -> None:
        for name in ("depths", "sizes", "weights", "matrices", "orders"):
            if not getattr(self, name) or not min(getattr(self, name)) > 0:
                raise InputError(f"expected {name} above 0, got {getattr(self, name)}")
        if min(self.starts, self.ascents, self.epochs, self.samples) < 1:
            raise InputError("expected starts, ascents, epochs and samples of at least 1")
        if min(self.matrices) < 2 or min(self.orders) < 2:
            raise InputError(f"expected matrices and orders of at least 2, got {self.matrices} and {self.orders}")
        if len(self.classes) != 2:
            raise InputError(f"expected two classes, got {self.classes}")


def run(bench: Bench, settings: Theorem33Settings) -> Evidence:
    return evidence(
        bench.part("optima", lambda: _optima(settings, bench.seed, JUDGED, "optima")),
        bench.part("flat", lambda: _optima(settings, bench.seed, (FLAT,), "flat")),
        bench.part("stationary", lambda: _stationary(settings, bench.seed)),
        bench.part("traces", lambda: _traces(settings, bench.seed)),
        bench.part("logits", lambda: _logits(bench, settings)),
    )


def evidence(
    optima: xarray.Dataset,
    flat: xarray.Dataset,
    stationary: xarray.Dataset,
    traces: xarray.Dataset,
    logits: xarray.Dataset,
) -> dict[str, dict[str, Any]]:
    best = optima.isel(start=0)
    off = abs(traces["ascended"] - traces["formula"])
    error = logits["error"].median("sample")
    saddles = stationary["curvature"].values[(stationary["size"].values > 1) & (stationary["flipped"].values > 0)]
    minima = stationary["curvature"].values[(stationary["size"].values == 1) & (stationary["flipped"].values > 0)]
    return {
        "A15": {
            "objective - scalar optimum": float(abs(best["excess"]).max()),
            "CoV of s_1 over blocks": float(best["variation"].max()),
            "s_2 / s_1": float(best["second"].max()),
            "1 - u . v": float(best["left_right"].max()),
            "1 - |u . delta|": float(best["direction"].max()),
            "1 - cos(w, delta)": float(best["head"].max()),
            "| |w|^2 - s (1 + s) |": float(best["invariant"].max()),
            "| |w|^2 - s (1 + s) | of the scalar optimum": float(abs(optima["scalar_invariant"]).max()),
            "largest gradient that is left": float(optima["gradient"].max()),
            "largest gradient of a scalar optimum": float(optima["scalar_gradient"].max()),
            "runs": int(optima["excess"].size),
            "runs that end above the optimum": int((~optima["optimal"]).sum()),
            "smallest |w| at an optimum": float(optima["omega"].min()),
            "relative error of growth (1 + s)^L": float(best["growth_error"].max()),
            "flipped stationary points with negative curvature, D > 1": f"{int((saddles < 0).sum())} of {saddles.size}",
            "flipped stationary points that are minima, D = 1": f"{int((minima > 0).sum())} of {minima.size}",
            "optima at zero, loss flat at zero": int(flat["zero_optimum"].sum()),
            "runs that end above the optimum, loss flat at zero": int((~flat["optimal"]).sum()),
        },
        "A17": {
            "|supremum over rotations - formula|": float(off.max()),
            "largest sample - formula": float((traces["sampled"] - traces["formula"]).max()),
            "ascents of which the worst start is lower": int((traces["worst"] < traces["formula"] - 1e-8).sum()),
            "|logit at the boundary|": float(abs(logits["at_boundary"]).max()),
            "median relative error of the linearised logit": float(error.sel(share=1.0)),
            f"the same at {SHARES[-3]:g} of the distance": float(error.sel(share=SHARES[-3])),
            f"the same at {SHARES[-1]:g} of the distance": float(error.sel(share=SHARES[-1])),
        },
    }


# -- the model


def _delta(size: int, seed: int) -> Tensor:
    generator = torch.Generator("cpu").manual_seed(seed_of("Delta", seed, size))
    delta = torch.randn(size, dtype=torch.float64, generator=generator, device="cpu")
    return delta / delta.norm()


def _optima(settings: Theorem33Settings, seed: int, losses: Sequence[str], part: str) -> xarray.Dataset:
    """Runs from all starts, the lowest first, for every loss, width, depth and weight, beside the scalar optimum."""
    cases = [
        (loss, size, depth, weight)
        for loss in losses
        for size in settings.sizes
        for depth in settings.depths
        for weight in settings.weights
    ]
    rows, runs, values = [], [], numpy.full((len(cases), max(settings.depths)), numpy.nan)
    for place, (loss, size, depth, weight) in enumerate(cases):
        problem = theorem33(_delta(size, seed), depth=depth, weight=weight, loss=LOSSES[loss])
        solutions = problem.solve(settings.starts, seed_of("starts", seed, *map(str, cases[place])))
        runs.append([_run(solution) for solution in solutions])
        values[place, :depth] = solutions[0].singular_values[:, 0]
        rows.append({"loss": loss, "size": size, "depth": depth, "weight": weight, **_scalar(problem)})
    data = table("case", range(len(cases)), rows, measure=MEASURE, part=part)
    data["top"] = (("case", "unit"), values)
    for key in runs[0][0]:
        data[key] = (("case", "start"), [[one[key] for one in of_case] for of_case in runs])
    return data


def _scalar(problem: UnconstrainedJacobians) -> dict[str, Any]:
    scalar = problem.scalar_optimum
    return {
        "omega": scalar.omega,
        "s": scalar.s,
        "scalar_objective": scalar.objective,
        "scalar_gradient": scalar.gradient,
        "scalar_invariant": scalar.invariant,
        "zero_optimum": scalar.zero,
    }


def _run(solution: Solution) -> dict[str, Any]:
    found, s = solution.structure, solution.problem.scalar_optimum.s
    return {
        "objective": solution.objective,
        "excess": solution.excess,
        "gradient": solution.gradient,
        "iterations": solution.iterations,
        "flipped": solution.flipped,
        "zero": solution.zero,
        "optimal": solution.optimal,
        "variation": found.variation,
        "second": found.second,
        "left_right": found.left_right,
        "direction": found.direction,
        "head": found.head,
        "invariant": found.invariant,
        "w_square": float(solution.w.square().sum()),
        "growth_error": abs(float(solution.growth[-1]) / (1 + s) ** solution.problem.depth - 1),
    }


def _stationary(settings: Theorem33Settings, seed: int) -> xarray.Dataset:
    """All stationary points of one problem, in one dimension and in more."""
    depth, weight = STATIONARY
    rows = []
    for size in (1, max(settings.sizes)):
        problem = theorem33(_delta(size, seed), depth=depth, weight=weight)
        for point in problem.stationary_points:
            there = problem.at(point)
            rows.append(
                {
                    "size": size,
                    "flipped": point.flipped,
                    "s": point.s,
                    "objective": point.objective,
                    "gradient": there.gradient,
                    "curvature": there.curvature,
                }
            )
    return table("point", range(len(rows)), rows, measure=MEASURE, part="stationary", depth=depth, weight=weight)


# -- the trace inequality


def _traces(settings: Theorem33Settings, seed: int) -> xarray.Dataset:
    """Random matrices whose product has a determinant of either sign, over rotations and orthogonal matrices."""
    rows = []
    for count in settings.matrices:
        for order in settings.orders:
            for sign in (1, -1):
                own = seed_of("trace", seed, count, order, sign)
                generator = torch.Generator("cpu").manual_seed(own)
                A = torch.randn(count, order, order, dtype=torch.float64, generator=generator, device="cpu")
                A /= torch.linalg.matrix_norm(A, 2)[:, None, None]
                A[0, 0] *= sign * torch.linalg.slogdet(A).sign.prod()
                for rotations_only in (True, False):
                    inequality = trace_inequality(A, rotations_only=rotations_only)
                    ascent = inequality.ascend(settings.ascents, own)
                    rows.append(
                        {
                            "matrices": count,
                            "order": order,
                            "sign": sign,
                            "rotations_only": rotations_only,
                            "formula": inequality.supremum,
                            "ascended": ascent.value,
                            "worst": min(ascent.values),
                            "attained": float(inequality.trace(inequality.attained_at)),
                            "sampled": inequality.sampled(SAMPLED, own),
                            "sweeps": ascent.sweeps,
                        }
                    )
    return table("case", range(len(rows)), rows, measure=MEASURE, part="traces")


# -- the linearised logit


def _logits(bench: Bench, settings: Theorem33Settings) -> xarray.Dataset:
    """Training samples of one class, boundary points on the way to samples of the other, and points between."""
    import xarray

    data = bench.data("digits").subset(classes=settings.classes)
    way = Settings(epochs=settings.epochs, rate=0.05, weight_decay=5e-3)
    found = bench.trained(settings.model, data, way, seed=bench.seeds(1)[0])
    model = copy.deepcopy(found.model).to("cpu", torch.float64)
    images, labels = data.train.images().to("cpu", torch.float64), data.train.labels.cpu()
    with torch.no_grad():
        output = model(images)
    weights = torch.zeros(output.shape[1], dtype=torch.float64, device="cpu")
    weights[0], weights[1] = -1, 1
    right = (output @ weights > 0) == (labels == 1)
    ends = [images[right & (labels == label)][: settings.samples] for label in (1, 0)]
    count = min(map(len, ends))
    if not count:
        raise InputError(f"expected samples of both classes that {settings.model} gets right: train it longer")
    x, other = (end[:count] for end in ends)
    boundary = boundary_points(lambda batch: model(batch) @ weights, x, other)
    trunk = trace(model, x[:2])
    logits = [linearised_logit(trunk, boundary + share * (x - boundary), boundary, weights) for share in SHARES]
    return xarray.Dataset(
        {
            "logit": (("share", "sample"), torch.stack([one.logit for one in logits]).numpy()),
            "linearised": (("share", "sample"), torch.stack([one.linearised for one in logits]).numpy()),
            "error": (("share", "sample"), torch.stack([one.relative_error for one in logits]).numpy()),
            "error_from_first_state": (
                ("share", "sample"),
                torch.stack([one.relative_error_from_first_state for one in logits]).numpy(),
            ),
            "at_boundary": ("sample", logits[0].at_boundary.numpy()),
            "distance": ("sample", logits[0].distance.numpy()),
        },
        {"share": list(SHARES), "sample": range(count)},
        {
            "measure": MEASURE,
            "part": "logits",
            "title": f"{settings.model} on {data.name}",
            "test_accuracy": found.test_accuracy,
            "train_accuracy": float(right.double().mean()),
            "units": len(trunk.units),
        },
    )


STUDY = Study(
    PAPER,
    "theorem33",
    paper_found="A global optimum of the unconstrained Jacobians model has aligned, equal, rank-one Jacobians.",
    we_expect="Every one does, with |w|^2 = s (1 + s); states then grow exponentially, not linearly.",
    presets={
        "smoke": Theorem33Settings(
            depths=(2, 3),
            sizes=(3,),
            weights=(0.1, 2.0),
            starts=2,
            matrices=(2, 3),
            orders=(2, 3),
            ascents=1,
            model="type1-digits-c2-w16-b2-preactivation",
            epochs=5,
            samples=4,
        ),
        "quick": Theorem33Settings(),
        "full": Theorem33Settings(
            depths=(1, 2, 5, 10, 20), sizes=(1, 2, 6, 16), weights=(0.001, 0.01, 0.1, 0.5, 2.0), starts=8, ascents=8
        ),
        "paper": Theorem33Settings(
            depths=(1, 2, 5, 10, 20), sizes=(1, 2, 6, 16), weights=(0.001, 0.01, 0.1, 0.5, 2.0), starts=8, ascents=8
        ),
    },
    cost={
        "smoke": "seconds",
        "quick": "a minute on 2 cores",
        "full": "minutes on 2 cores; a GPU is of no use to it",
        "paper": "as full: the paper has the proof alone",
    },
    run=run,
    claims=decided_by("A.theorem33"),
)
