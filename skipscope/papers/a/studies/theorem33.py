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
loss is also reported, but not judged, as the theorem's inequalities are no longer strict.

The inequality is compared with an ascent over rotations that does not know it. The linearised logit is off by tens of
percent at training samples of a trained network: they are not "next to" the boundary. Closer to it the error falls.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Annotated, Any

import numpy
import torch
import xarray
from torch import Tensor

from skipscope.constraints import Constrained, Expectation, above, at_least, each, not_empty
from skipscope.data import Dataset
from skipscope.errors import InputError
from skipscope.numerics import normal, random_numbers, seed_of
from skipscope.papers.a import PAPER
from skipscope.papers.a.theory import (
    LOSSES,
    Solution,
    UnconstrainedJacobians,
    boundary_points,
    linearised_logit,
    theorem33,
    trace_inequality,
)
from skipscope.papers.kit import Bench, Claim, Evidence, Quantity, Study
from skipscope.papers.kit.tables import table
from skipscope.trace import trace
from skipscope.training import Settings
from skipscope.training.networks import Network

MEASURE = "theory_unconstrained_jacobians"
FLAT_LOSS = "flat at zero"
JUDGED_LOSSES = tuple(name for name in LOSSES if name != FLAT_LOSS)
SHARES = (1.0, 0.5, 0.25, 0.1, 0.03, 0.01)  # of the way from the boundary to a sample
SAMPLED_ROTATIONS = 2000
STATIONARY_PROBLEM = (3, 0.1)  # depth and weight of the problem whose stationary points are all listed

EXCESS = Quantity("objective - scalar optimum")
STRUCTURE = {  # by variable of the dataset
    "variation": Quantity("CoV of s_1 over blocks"),
    "second": Quantity("s_2 / s_1"),
    "left_right": Quantity("1 - u . v"),
    "direction": Quantity("1 - |u . delta|"),
    "head": Quantity("1 - cos(w, delta)"),
    "invariant": Quantity("| |w|^2 - s (1 + s) |"),
}
SCALAR_INVARIANT = Quantity(f"{STRUCTURE['invariant']} of the scalar optimum")
GRADIENT = Quantity("largest gradient that is left")
SCALAR_GRADIENT = Quantity("largest gradient of a scalar optimum")
RUNS = Quantity("runs")
RUNS_ABOVE = Quantity("runs that end above the optimum")
SMALLEST_HEAD = Quantity("smallest |w| at an optimum")
GROWTH = Quantity("relative error of growth (1 + s)^L")
SADDLES = Quantity("flipped stationary points with negative curvature, D > 1")
MINIMA = Quantity("flipped stationary points that are minima, D = 1")
FLAT_ZEROS = Quantity("optima at zero, loss flat at zero")
FLAT_RUNS_ABOVE = RUNS_ABOVE.of("loss flat at zero")
A15 = Claim(
    "A15",
    "Theorem 3.3: the optimum of the unconstrained Jacobians model has equal, aligned, rank-one Jacobians.",
    "minimiser from random starts against the scalar reduction, and the structure of its Jacobians",
    criteria=tuple(quantity.at_most(1e-4) for quantity in (EXCESS, *STRUCTURE.values())),
    note=(
        "Each quantity is the worst over depths and regularisations. Equal s_i let states grow exponentially: "
        "analogous to RA4's 1 / i, not the same."
    ),
)

SUPREMUM = Quantity("|supremum over rotations - formula|")
LARGEST_SAMPLE = Quantity("largest sample - formula")
LOWER_ASCENTS = Quantity("ascents of which the worst start is lower")
AT_BOUNDARY = Quantity("|logit at the boundary|")
LOGIT_ERROR = Quantity("median relative error of the linearised logit", "ratio")
CLOSER_ERROR = {
    share: Quantity(f"the same at {share:g} of the distance", "ratio") for share in (SHARES[-3], SHARES[-1])
}
BINARY_NETWORKS = Quantity("networks")  # whose logit is linearised, in words
A17 = Claim(
    "A17",
    "The trace inequality behind theorem 3.3, and the linearised logit that motivates its model.",
    "supremum of the trace over rotations, by optimisation, against the formula; logit against its linearisation",
    criteria=(SUPREMUM.at_most(1e-8),),
    note="The relative error of the linearised logit at a boundary point of a trained network is also reported.",
)


@dataclass(frozen=True)
class Theorem33Settings(Constrained):
    depths: Annotated[tuple[int, ...], not_empty, each(at_least(1))] = (2, 5, 10)  # L
    sizes: Annotated[tuple[int, ...], not_empty, each(at_least(1))] = (2, 6)  # D
    weights: Annotated[tuple[float, ...], not_empty, each(above(0))] = (0.01, 0.1, 2.0)  # lambda
    starts: Annotated[int, at_least(1)] = 4
    matrices: Annotated[tuple[int, ...], not_empty, each(at_least(2))] = (2, 3, 4, 5)  # m of the trace inequality
    orders: Annotated[tuple[int, ...], not_empty, each(at_least(2))] = (2, 3, 4, 5, 6)  # n
    ascents: Annotated[int, at_least(1)] = 2  # starts of each
    model: str = "type1-digits-c2-w32-b8-preactivation"
    classes: tuple[int, ...] = (3, 8)
    epochs: Annotated[int, at_least(1)] = 60
    samples: Annotated[int, at_least(1)] = 20  # whose logit is linearised
    networks: Annotated[int, at_least(1)] = 8  # in which it is

    def expectations(self) -> Iterator[Expectation]:
        yield len(self.classes) == 2, f"classes: expected two, got {self.classes}"


def run(bench: Bench, settings: Theorem33Settings) -> Evidence:
    return evidence(
        bench.part("optima", lambda: _optima(settings, bench.seed, JUDGED_LOSSES, "optima")),
        bench.part("flat", lambda: _optima(settings, bench.seed, (FLAT_LOSS,), "flat")),
        bench.part("stationary", lambda: _stationary(settings, bench.seed)),
        bench.part("traces", lambda: _traces(settings, bench.seed)),
        bench.part("logits", lambda: _logits(bench, settings, bench.seeds(1)[0])),
        bench.part("networks", lambda: _networks(bench, settings)),
    )


def evidence(
    optima: xarray.Dataset,
    flat: xarray.Dataset,
    stationary: xarray.Dataset,
    traces: xarray.Dataset,
    logits: xarray.Dataset,
    networks: xarray.Dataset,
) -> Evidence:
    """networks: of these one value each; `logits`, sample by sample of the first one, are for the picture."""
    best = optima.isel(start=0)
    error = networks["error"]
    size, flipped = stationary["size"].values, stationary["flipped"].values > 0
    curvature = stationary["curvature"].values
    saddles, minima = curvature[(size > 1) & flipped], curvature[(size == 1) & flipped]
    return {
        A15: {
            EXCESS: float(abs(best["excess"]).max()),
            **{quantity: float(best[name].max()) for name, quantity in STRUCTURE.items()},
            SCALAR_INVARIANT: float(abs(optima["scalar_invariant"]).max()),
            GRADIENT: float(optima["gradient"].max()),
            SCALAR_GRADIENT: float(optima["scalar_gradient"].max()),
            RUNS: int(optima["excess"].size),
            RUNS_ABOVE: int((~optima["optimal"]).sum()),
            SMALLEST_HEAD: float(optima["omega"].min()),
            GROWTH: float(best["growth_error"].max()),
            SADDLES: f"{int((saddles < 0).sum())} of {saddles.size}",
            MINIMA: f"{int((minima > 0).sum())} of {minima.size}",
            FLAT_ZEROS: int(flat["zero_optimum"].sum()),
            FLAT_RUNS_ABOVE: int((~flat["optimal"]).sum()),
        },
        A17: {
            SUPREMUM: float(abs(traces["ascended"] - traces["formula"]).max()),
            LARGEST_SAMPLE: float((traces["sampled"] - traces["formula"]).max()),
            LOWER_ASCENTS: int((traces["worst"] < traces["formula"] - 1e-8).sum()),
            AT_BOUNDARY: float(networks["at_boundary"].max()),
            LOGIT_ERROR: error.sel(share=1.0).values.tolist(),
            **{quantity: error.sel(share=share).values.tolist() for share, quantity in CLOSER_ERROR.items()},
            BINARY_NETWORKS: f"{networks.sizes['network']} of {networks.attrs['title']}",
        },
    }


# -- the model


def _delta(size: int, seed: int) -> Tensor:
    delta = normal((size,), random_numbers("Delta", seed, size))
    return delta / delta.norm()


def _optima(settings: Theorem33Settings, seed: int, losses: Sequence[str], part: str) -> xarray.Dataset:
    """Runs from all starts, the lowest first, for every loss, width, depth and weight, beside the scalar optimum."""
    cases = list(product(losses, settings.sizes, settings.depths, settings.weights))
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
    s = solution.problem.scalar_optimum.s
    return {
        "objective": solution.objective,
        "excess": solution.excess,
        "gradient": solution.gradient,
        "iterations": solution.iterations,
        "flipped": solution.flipped,
        "zero": solution.zero,
        "optimal": solution.optimal,
        **asdict(solution.structure),
        "w_square": float(solution.w.square().sum()),
        "growth_error": abs(float(solution.growth[-1]) / (1 + s) ** solution.problem.depth - 1),
    }


def _stationary(settings: Theorem33Settings, seed: int) -> xarray.Dataset:
    """All stationary points of one problem, in one dimension and in more."""
    depth, weight = STATIONARY_PROBLEM
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
    for count, order, sign in product(settings.matrices, settings.orders, (1, -1)):
        own = seed_of("trace", seed, count, order, sign)
        A = normal((count, order, order), torch.Generator("cpu").manual_seed(own))
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
                    "sampled": inequality.sampled(SAMPLED_ROTATIONS, own),
                    "sweeps": ascent.sweeps,
                }
            )
    return table("case", range(len(rows)), rows, measure=MEASURE, part="traces")


# -- the linearised logit


def _networks(bench: Bench, settings: Theorem33Settings) -> xarray.Dataset:
    """(network, share): medians over the samples of each network."""
    seeds = bench.seeds(settings.networks)
    data, way = _binary(bench, settings)
    bench.trained_fleet([Network(settings.model, data, way, seed, bench.device) for seed in seeds])
    found = [_logits(bench, settings, seed) for seed in seeds]
    return xarray.Dataset(
        {
            "error": (("network", "share"), [one["error"].median("sample").values for one in found]),
            "at_boundary": ("network", [float(abs(one["at_boundary"]).max()) for one in found]),
            "train_accuracy": ("network", [one.attrs["train_accuracy"] for one in found]),
            "test_accuracy": ("network", [one.attrs["test_accuracy"] for one in found]),
        },
        {"network": seeds, "share": list(SHARES)},
        {"measure": MEASURE, "part": "networks", "title": found[0].attrs["title"], "samples": settings.samples},
    )


def _binary(bench: Bench, settings: Theorem33Settings) -> tuple[Dataset, Settings]:
    """What networks of two classes are trained on, and how."""
    data = bench.data("digits").subset(classes=settings.classes)
    return data, Settings(epochs=settings.epochs, rate=0.05, weight_decay=5e-3)


def _logits(bench: Bench, settings: Theorem33Settings, seed: int) -> xarray.Dataset:
    """Training samples of one class, boundary points on the way to samples of the other, and points between."""
    data, way = _binary(bench, settings)
    found = bench.trained(settings.model, data, way, seed=seed)
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


FULL = Theorem33Settings(
    depths=(1, 2, 5, 10, 20), sizes=(1, 2, 6, 16), weights=(0.001, 0.01, 0.1, 0.5, 2.0), starts=8, ascents=8
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
            networks=2,
        ),
        "quick": Theorem33Settings(),
        "full": FULL,
        "paper": FULL,
    },
    cost={
        "smoke": "seconds",
        "quick": "a minute on 2 cores",
        "full": "minutes on 2 cores; a GPU is of no use to it",
        "paper": "as full: the paper has the proof alone",
    },
    run=run,
    claims=(A15, A17),
)
