"""A.theorem31: aligned Jacobians and the line that states follow, formula against recursion.

    skipscope study run A.theorem31 --preset quick --out DIR

The paper proves that in a network of linear units h + J_i h, whose Jacobians have one and the same singular vector u
and singular values 1/i, the states of an input are equally spaced on a line: h_k = k u u^T h_1.

We expect the line and the spacing, but another formula: h_k = (I - u u^T) h_1 + k u u^T h_1, since units leave alone
what is orthogonal to u. The printed one holds only if h_1 is parallel to u. And we expect more than is printed: steps
are equal if and only if 1/s_i is affine in i with slope 1. For 1/s_i = a + b i states grow like k^(1/b), on the same
line. With several directions the line stays one as long as every slope is 1, whatever the offsets are; other slopes
bend it.

The theorem takes the branches of a network for linear, F(h) = J h. That assumption is measured in trained networks,
with ReLUs after the sum and with pre-activation, and reported.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from typing import Annotated, Any

import torch
import xarray
from torch import Tensor

from skipscope.constraints import Expectation, above, at_least, each, not_empty
from skipscope.numerics import normal, random_numbers
from skipscope.papers.a import PAPER
from skipscope.papers.a.subjects import ENDS, PREACTIVATION, SMOKE, TrainingSettings, subject
from skipscope.papers.a.theory import gamma_growth, inverse_affine, linear_branches, theorem31
from skipscope.papers.kit import Bench, Claim, Evidence, Part, Quantity, Study
from skipscope.papers.kit.tables import table
from skipscope.runs.sweep import Task

MEASURE = "theory_straight_lines"
OFFSETS = (0.0, 3.0)  # a
DRAWN_UNITS = 16  # of the states that are shown
LARGEST_OFFSET = 4.0  # where directions differ

CORRECTED = Quantity("error of the corrected formula")
PRINTED_PARALLEL = Quantity("error of the printed formula, h_1 parallel to u")
PRINTED = Quantity("error of the printed formula, any h_1")
TELESCOPING = Quantity("error of the telescoping product")
STEPS = Quantity("largest difference of steps, s_i = 1 / i")
GAMMA = Quantity("relative error of the Gamma form of the growth")
EXPONENT = Quantity("largest |growth exponent - 1 / slope|")
FROM_LINE = {slope: Quantity(f"distance from a line, several directions of slope {slope}") for slope in (1, 2)}
STEP_COV = Quantity("step CoV, slope 1")
OTHER_STEP_COV = Quantity("smallest step CoV, other slopes")
FORMS = {"post-activation": "", "pre-activation": PREACTIVATION}
NOT_LINEAR = {form: Quantity(f"median |step - J h| / |step|, {form}", "ratio") for form in FORMS}
BIAS = {form: Quantity(f"median share of a step that is bias, {form}", "ratio") for form in FORMS}
NETWORKS = {form: Quantity(f"networks, {form}") for form in FORMS}  # in words
A14 = Claim(
    "A14",
    "Theorem 3.1: aligned rank-one Jacobians with s_i = 1 / i give equally spaced states on a line.",
    "recursion against h_k = (I - u u^T) h_1 + k u u^T h_1, and against the printed k u u^T h_1",
    parts=(
        Part("as written", (PRINTED.at_most(1e-10, every=True),)),
        Part(
            "corrected",
            (CORRECTED.at_most(1e-10), PRINTED_PARALLEL.at_most(1e-10)),
            (PRINTED.above(1e-10, every=True),),
        ),
    ),
    note=(
        "Erratum: the printed formula drops the part of h_1 orthogonal to u; the conclusion survives. Steps are "
        "constant if and only if 1 / s_i is affine in i with slope 1. That branches are linear is an assumption: how "
        "far trained networks are from it is reported."
    ),
)


@dataclass(frozen=True)
class Theorem31Settings(TrainingSettings):
    draws: Annotated[int, at_least(1)] = 10  # random directions and starts
    sizes: Annotated[tuple[int, ...], not_empty, each(at_least(2))] = (2, 16, 64)  # d
    depths: Annotated[tuple[int, ...], not_empty, each(at_least(1))] = (16, 100, 1000)  # units
    slopes: Annotated[tuple[float, ...], not_empty, each(above(0))] = (0.5, 0.8, 1.0, 1.25, 2.0)  # b
    directions: Annotated[int, at_least(2)] = 10  # C, where there are several
    subject: str = "type1-mnist"  # networks in which the assumption is measured
    preactivation_epochs: Annotated[int, at_least(1)] = 250

    def expectations(self) -> Iterator[Expectation]:
        yield from super().expectations()
        most = max(self.sizes)
        yield self.directions <= most, f"directions: expected at most the largest size, {most}, got {self.directions}"


def run(bench: Bench, settings: Theorem31Settings) -> Evidence:
    parts = {"formulas": _formulas, "growth": _growth, "directions": _directions, "states": _states}
    tasks = [Task(name, partial(compute, settings, bench.seed)) for name, compute in parts.items()]
    assumption = Task("assumption", partial(_assumption, bench, settings))
    return evidence(*bench.sweep([*tasks, assumption]))


def evidence(
    formulas: xarray.Dataset,
    growth: xarray.Dataset,
    directions: xarray.Dataset,
    states: xarray.Dataset,
    assumption: xarray.Dataset,
) -> Evidence:
    """`states` is for the picture alone."""
    parallel = formulas["parallel"].values
    straight = growth["slope"].values == 1
    found: dict[Quantity, Any] = {
        CORRECTED: float(formulas["corrected"].max()),
        PRINTED_PARALLEL: float(formulas["printed"].values[parallel].max()),
        PRINTED: formulas["printed"].values[~parallel].tolist(),
        TELESCOPING: float(formulas["telescoping"].max()),
        STEPS: float(formulas["steps"].max()),
        GAMMA: float(growth["gamma_error"].max()),
        EXPONENT: float(abs(growth["exponent"] - 1 / growth["slope"]).max()),
        FROM_LINE[1]: float(directions["from_line"].values[:2].max()),
        FROM_LINE[2]: float(directions["from_line"].values[-1]),
    }
    if straight.any():
        found[STEP_COV] = float(growth["variation"].values[straight].max())
    if (~straight).any():
        found[OTHER_STEP_COV] = float(growth["variation"].values[~straight].min())
    for form in FORMS:
        own = assumption.isel(network=assumption["form"].values == form)
        found[NOT_LINEAR[form]] = own["error"].values.tolist()
        found[BIAS[form]] = own["bias"].values.tolist()
        found[NETWORKS[form]] = f"{own.sizes['network']} of {own['trained'].values[0]}"
    return {A14: found}


def _drawn(size: int, count: int, *parts: int | str) -> tuple[Tensor, Tensor]:
    """A start of length 1 (size), and orthonormal directions (size, count)."""
    drawn = normal((size, count + 1), random_numbers("theorem 3.1", *parts))
    return drawn[:, -1] / drawn[:, -1].norm(), torch.linalg.qr(drawn[:, :-1])[0]


def _formulas(settings: Theorem31Settings, seed: int) -> xarray.Dataset:
    """s_i = 1/i: the recursion against both formulas, for any start and for one that is parallel to u."""
    rows: list[dict[str, Any]] = []
    for size, depth, draw in product(settings.sizes, settings.depths, range(settings.draws)):
        k = torch.arange(1, depth + 2, dtype=torch.float64, device="cpu")
        start, directions = _drawn(size, 1, seed, size, depth, draw)
        for parallel in (False, True):
            way = theorem31(directions[:, 0] if parallel else start, directions, inverse_affine(depth))
            telescoping = float((way.growth[:, 0] / k - 1).abs().max())
            case = {"size": size, "depth": depth, "parallel": parallel}
            rows.append({**case, "telescoping": telescoping, **asdict(way.check())})
    return table("case", range(len(rows)), rows, measure=MEASURE, part="formulas")


def _growth(settings: Theorem31Settings, seed: int) -> xarray.Dataset:
    """1/s_i = a + b i, through all units of the deepest network."""
    depth = max(settings.depths)
    start, directions = _drawn(max(settings.sizes), 1, seed, "growth")
    rows = []
    for slope, offset in product(settings.slopes, OFFSETS):
        way = theorem31(start, directions, inverse_affine(depth, offset, slope))
        closed = gamma_growth(depth, offset, slope)
        rows.append(
            {
                "slope": slope,
                "offset": offset,
                "growth": float(way.growth[-1, 0]),
                "exponent": way.exponent,
                "gamma_error": float((way.growth[:, 0] / closed - 1).abs().max()),
                "variation": way.step_variation,
                "score": way.line_shape_score,
            }
        )
    return table("case", range(len(rows)), rows, measure=MEASURE, part="growth", units=depth)


def _directions(settings: Theorem31Settings, seed: int) -> xarray.Dataset:
    """Several directions: all alike, with offsets of their own, and with offsets and slope 2."""
    count = settings.directions
    start, directions = _drawn(max(settings.sizes), count, seed, "directions")
    offsets = [LARGEST_OFFSET * place / (count - 1) for place in range(count)]
    kinds = {
        "1 / i": inverse_affine(DRAWN_UNITS),
        "1 / (a + i), an a for each": torch.stack([inverse_affine(DRAWN_UNITS, a) for a in offsets], 1),
        "1 / (a + 2 i), an a for each": torch.stack([inverse_affine(DRAWN_UNITS, a, 2.0) for a in offsets], 1),
    }
    rows = []
    for values in kinds.values():
        way = theorem31(start, directions, values)
        errors = way.check()
        rows.append(
            {
                "corrected": errors.corrected,
                "from_line": errors.from_line,
                "steps": errors.steps,
                "variation": way.step_variation,
                "score": way.line_shape_score,
            }
        )
    return table("kind", list(kinds), rows, measure=MEASURE, part="directions", directions=count, units=DRAWN_UNITS)


def _states(settings: Theorem31Settings, seed: int) -> xarray.Dataset:
    """Coordinates of states along u and along what of h_1 is orthogonal to it, recursion and printed formula."""
    start, directions = _drawn(max(settings.sizes), 1, seed, "states")
    u = directions[:, 0]
    across = start - (u @ start) * u
    frame = torch.stack([u * (u @ start).sign(), across / across.norm()], 1)  # d, 2
    slopes = sorted({1.0, min(settings.slopes), max(settings.slopes)})
    ways = [theorem31(start, directions, inverse_affine(DRAWN_UNITS, 0.0, slope)) for slope in slopes]
    return xarray.Dataset(
        {
            "state": (("slope", "k", "axis"), torch.stack([way.recursion @ frame for way in ways]).numpy()),
            "printed": (("slope", "k", "axis"), torch.stack([way.printed @ frame for way in ways]).numpy()),
            "variation": ("slope", [way.step_variation for way in ways]),
        },
        {"slope": slopes, "k": range(1, DRAWN_UNITS + 2), "axis": ["along u", "across"]},
        {"measure": MEASURE, "part": "states"},
    )


def _assumption(bench: Bench, settings: Theorem31Settings) -> xarray.Dataset:
    """(network): medians over blocks and images. Networks with post-activation are those of A.alignment."""
    ways = {
        "post-activation": settings,
        "pre-activation": replace(settings, epochs=settings.preactivation_epochs, looks=ENDS),
    }
    rows: list[dict[str, Any]] = []
    for form, way in ways.items():
        chosen = subject(bench, way, settings.subject + FORMS[form])
        images, _ = chosen.samples(bench.device)
        for seed, network in chosen.trained_all(bench).items():
            found = linear_branches(network.model.double(), images.double())
            rows.append(
                {
                    "form": form,
                    "trained": f"{chosen.model} on {chosen.data.name}, {way.epochs} epochs",
                    "seed": seed,
                    "error": found.median_error,
                    "bias": found.median_bias,
                    "test_accuracy": network.test_accuracy,
                }
            )
    return table("network", range(len(rows)), rows, measure=MEASURE, part="assumption", images=settings.images)


STUDY = Study(
    PAPER,
    "theorem31",
    paper_found="Rank-one Jacobians of one direction, with singular values 1/i, put states equally spaced on a line.",
    we_expect="They do, though not at the printed places; and steps are equal only if 1/s_i has slope 1.",
    presets={
        "smoke": Theorem31Settings(
            **SMOKE,
            draws=1,
            sizes=(4,),
            depths=(16,),
            slopes=(1.0, 2.0),
            directions=3,
            subject="type1-digits",
            preactivation_epochs=2,
        ),
        "quick": Theorem31Settings(preactivation_epochs=100),
        "full": Theorem31Settings(draws=50),
        "paper": Theorem31Settings(draws=50),
    },
    cost={
        "smoke": "seconds",
        "quick": "4 minutes on 2 cores after A.alignment: 8 networks with pre-activation, for 100 of 250 epochs",
        "full": "15 minutes on 2 cores: 16 networks",
        "paper": "as full: the paper has the proof alone",
    },
    run=run,
    claims=(A14,),
)
