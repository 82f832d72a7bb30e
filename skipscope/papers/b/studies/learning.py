"""B.learning: figures 7 and 8 of paper B, how far gradient descent gets at its best learning rate.

    skipscope study run B.learning --preset quick --out DIR
    skipscope study run B.learning --preset full --device cuda --out DIR

The paper finds that linear networks with 2-shortcuts, begun near zero, stay close to the optimum however deep they are
and take higher learning rates, while plain networks get worse; with ReLUs in the middle those fail altogether at depth
64, and networks with 2-shortcuts get better with depth.

We expect that, and that linear 3-shortcut networks leave zero within 1000 steps too. Their losses are then nearly those
of 2-shortcut ones, since the optimum is far above zero, though they are farther from it; and the deepest of them take
learning rates that are nearly as high.

Full-batch gradient descent on whitened data with one-hot targets. A learning rate is judged by the mean final loss over
seeds, infinite if one diverges, and chosen by the seeds whose losses are then compared, as in the paper: these are
optimistic for every kind of network alike. The grid is logarithmic, and grows until the best rate is inside; where all
rates end alike there is none, and the paper leaves it out too. Each round of learning rates is kept as soon as it is
trained, so that a stopped run goes on within a network's grid.

Plain networks have a ReLU after each odd layer, so that all networks of one depth have as many ReLUs. float64, but
networks with ReLUs on a GPU are in float32. At the preset quick, figure 8 is shown but not judged: 300 steps on 1000
samples are not the paper's experiment.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy
import torch

from skipscope.errors import InputError
from skipscope.papers.b import PAPER
from skipscope.papers.b.claims import decided_by
from skipscope.papers.b.networks import Moments, Samples, ShortcutSpec, grid, member_weights, train_ensemble
from skipscope.papers.b.networks.loss import Data
from skipscope.papers.b.networks.network import ZERO_FACTOR
from skipscope.papers.b.subjects import ARCHITECTURES, lowest, spec_of, task
from skipscope.papers.kit.bench import Bench
from skipscope.papers.kit.study import Evidence, Study

if TYPE_CHECKING:
    import xarray

MEASURE = "shortcut_learning"
FIRST = (-1.5, 0.0)  # decades of the first learning rates
LIMITS = (-5.0, 2.0)  # decades between which a grid grows
MARGIN = 0.5  # decades on either side of the best rate that a grid has, unless they diverge
FLAT = 0.01  # where losses differ by less of themselves, at all rates that do not diverge, none is best;
ALIKE = 3  # it takes so many rates to say so
DEEP = 16  # layers from which on networks are called deep
SMALLEST = 1e-15  # a distance from the optimum that is not rounding
EQUAL_RELUS = ("xavier", "orthogonal", "2-shortcut")  # architectures with as many ReLUs at every depth
COMPARED = ("2-shortcut", "3-shortcut")  # with ReLUs in the middle, besides
COUNTS = ("networks", "steps", "per_decade", "relu_networks", "relu_steps", "relu_per_decade", "relu_samples")

Found = Mapping[tuple[str, str, int], "xarray.Dataset"]  # kind (linear, relu), architecture, depth


@dataclass(frozen=True)
class LearningSettings:
    data: str = "mnist"
    depths: tuple[int, ...] = (4, 6, 12, 16, 24, 32, 48, 96)  # of linear networks; not all are a multiple of 3
    networks: int = 10  # seeds
    steps: int = 1000
    per_decade: int = 4  # learning rates
    relu_depths: tuple[int, ...] = (4, 8, 16, 32, 64)
    besides: tuple[int, ...] = (12, 24)  # depths where 3-shortcut networks with ReLUs are compared with 2-shortcut ones
    relu_networks: int = 3
    relu_steps: int = 300
    relu_per_decade: int = 2
    relu_samples: int | None = 1000  # the first so many, for networks with ReLUs; linear ones have all

    def __post_init__(self) -> None:
        depths = (*self.depths, *self.relu_depths, *self.besides)
        if not depths or min(depths) < 1 or any(depth % 2 for depth in depths):
            raise InputError(f"depths, relu_depths, besides: expected even depths, got {depths}")
        if any(depth % 3 for depth in self.besides):
            raise InputError(f"besides: expected multiples of 6, got {self.besides}")
        for key in COUNTS:
            count = getattr(self, key)
            if count is not None and count < 1:
                raise InputError(f"{key}: expected at least 1, got {count}")


def run(bench: Bench, settings: LearningSettings) -> Evidence:
    subject = task(bench, settings.data)
    some = Samples(subject.samples.x[: settings.relu_samples], subject.samples.y[: settings.relu_samples])
    cases = list(dict.fromkeys(_cases(settings)))
    found = {}
    for done, case in enumerate(cases):
        kind, architecture, depth = case
        linear = kind == "linear"
        besides = not linear and (architecture not in EQUAL_RELUS or depth not in settings.relu_depths)
        bench.steps("learning rates of n-shortcut networks")(done, len(cases))
        name = f"{kind}-{architecture}-{depth}"
        found[case] = bench.part(
            name,
            partial(
                learnt,
                bench,
                spec_of(architecture, depth, kind),
                subject.moments if linear else some,
                ARCHITECTURES[architecture][1],
                networks=settings.networks if linear else settings.relu_networks,
                steps=settings.steps if linear else settings.relu_steps,
                per_decade=settings.per_decade if linear else settings.relu_per_decade,
                name=name,
                attrs={
                    "measure": MEASURE,
                    "kind": kind,
                    "architecture": architecture,
                    "besides": int(besides),
                    "data": subject.name,
                    "samples": len(subject.samples.x if linear else some.x),
                },
            ),
        )
    return evidence(found)


def _cases(settings: LearningSettings) -> Iterator[tuple[str, str, int]]:
    for architecture, (n, _) in ARCHITECTURES.items():
        yield from (("linear", architecture, depth) for depth in settings.depths if depth % max(n, 1) == 0)
    for architecture in EQUAL_RELUS:
        yield from (("relu", architecture, depth) for depth in settings.relu_depths)
    for architecture in COMPARED:
        yield from (("relu", architecture, depth) for depth in settings.besides)


# -- the best learning rate


def learnt(
    bench: Bench,
    spec: ShortcutSpec,
    data: Data,
    init: str,
    *,
    networks: int,
    steps: int,
    per_decade: int,
    attrs: Mapping[str, Any],
    factor: float = ZERO_FACTOR,
    name: str = "",
) -> xarray.Dataset:
    """Final losses (seed, rate), infinite where a network diverged, and those at the rate of the lowest mean (seed).

    factor: of the initialisation "zero". attrs: of the dataset; it says the rest itself. name: that of the dataset;
    each round of learning rates is kept beside it. Without one they are not kept.
    """
    import xarray

    seeds = bench.seeds(networks)
    dtype = torch.float64 if spec.linear or bench.device == "cpu" else torch.float32

    def trained(rates: Sequence[float]) -> xarray.Dataset:
        members = grid([init], seeds, rates)
        weights = member_weights(spec, members, factor=factor, dtype=dtype, device=bench.device)
        ended = train_ensemble(spec, weights, data, [member.rate for member in members], steps, record=[])
        final = ended.final_losses.reshape(len(seeds), len(rates)).numpy()
        return xarray.Dataset(
            {"loss": (("seed", "rate"), final)}, {"seed": seeds, "rate": list(rates)}, {"part": "piece"}
        )

    def losses(rates: Sequence[float]) -> numpy.ndarray:
        if not name:
            return trained(rates)["loss"].values
        return bench.part(f"{name}-rates-{rates[0]:g}-{rates[-1]:g}", lambda: trained(rates))["loss"].values

    lowest_loss = data.lowest_loss if isinstance(data, Moments) else 0.0
    rates, found = tuned(losses, per_decade, lowest_loss)
    best, alike = lowest(found), flat(found, lowest_loss)
    final = found[:, best]
    return xarray.Dataset(
        {
            "loss": (("seed", "rate"), found),
            "final": ("seed", final),
            "log_excess": ("seed", log_excess(final, lowest_loss)),
        },
        {"seed": seeds, "rate": rates},
        {
            **attrs,
            "depth": spec.depth,
            "n": spec.n,
            "init": init,
            "steps": steps,
            "precision": str(dtype).removeprefix("torch."),
            "best_rate": rates[best],
            "lowest_loss": lowest_loss,
            "flat": int(alike),
            "on_edge": int(best in (0, len(rates) - 1) and not alike),
        },
    )


def log_excess(losses: numpy.ndarray, lowest_loss: float) -> numpy.ndarray:
    """log10 of what losses are above the lowest one."""
    return numpy.log10(numpy.maximum(losses - lowest_loss, SMALLEST))


def tuned(
    losses: Callable[[list[float]], numpy.ndarray], per_decade: int, lowest_loss: float = 0.0
) -> tuple[list[float], numpy.ndarray]:
    """Learning rates and the losses (seeds, rates) that a function gives for them.

    The rates are 10^(k / per_decade): those of FIRST, and more of them where the lowest mean loss is close to an end,
    until there is a MARGIN, or rates that diverge, or LIMITS. Where all losses are alike there is nothing to look for.
    """
    least, most = (round(decade * per_decade) for decade in LIMITS)
    first, last = (round(decade * per_decade) for decade in FIRST)
    margin = max(1, round(MARGIN * per_decade))
    found: dict[int, numpy.ndarray] = {}
    wanted = range(first, last + 1)
    while wanted and not (found and flat(_columns(found), lowest_loss)):
        found |= zip(wanted, losses([rate_of(k, per_decade) for k in wanted]).T, strict=True)
        first, last = min(found), max(found)
        best = first + lowest(_columns(found))
        wanted = range(max(best - margin, least), first)
        if not wanted and numpy.isfinite(found[last]).all():
            wanted = range(last + 1, min(best + margin, most) + 1)
    return [rate_of(k, per_decade) for k in sorted(found)], _columns(found)


def rate_of(k: int, per_decade: int) -> float:
    return float(f"{10 ** (k / per_decade):.4g}")


def flat(losses: numpy.ndarray, lowest_loss: float = 0.0) -> bool:
    """Do all learning rates end alike, by what they leave above the lowest loss?"""
    means = losses.mean(0) - lowest_loss
    means = means[numpy.isfinite(means)]
    return len(means) >= ALIKE and bool(means.max() - means.min() <= FLAT * means.min())


def _columns(found: Mapping[int, numpy.ndarray]) -> numpy.ndarray:
    return numpy.stack([found[k] for k in sorted(found)], 1)


# -- what it decides


def evidence(found: Found) -> dict[str, dict[str, Any]]:
    linear = {name: _of(found, "linear", name) for name in ARCHITECTURES}
    relu = {name: _of(found, "relu", name, besides=False) for name in EQUAL_RELUS}
    two, plain = linear["2-shortcut"], linear["orthogonal"]
    everywhere = [part for parts in linear.values() for part in parts.values()]
    return {
        "B10": {
            "seeds": _seeds(two),
            "largest log10 excess loss over depths, 2-shortcut": over(
                [excess(part) for part in two.values()], numpy.max
            ),
            "largest log10 excess loss from depth 16 on, 2-shortcut - orthogonal": over(
                [excess(a) - excess(b) for a, b in _deep(two, plain)], numpy.max
            ),
            "log10 excess loss at depth 32, Xavier": excess(linear["xavier"][32]).tolist()
            if 32 in linear["xavier"]
            else [],
            **_on_edges(everywhere),
        },
        "B11": {"seeds": _seeds(two), **_rates(linear), **_on_edges(everywhere)},
        "B12": {"seeds": _seeds(relu["2-shortcut"]), **_with_relus(relu)},
        "B13": {"seeds": _seeds(two), **_three(found)},
        "B20": {"seeds": _seeds(plain), **_alike(linear["1-shortcut"], plain)},
    }


def excess(part: xarray.Dataset) -> numpy.ndarray:
    """log10 of the final loss minus the lowest one, by seed, at the learning rate that is best for all."""
    return part["log_excess"].values


def _on_edges(parts: Iterable[xarray.Dataset]) -> dict[str, int]:
    """Of the networks that a claim compares."""
    return {"best learning rates on the edge of their grid": sum(int(part.attrs["on_edge"]) for part in parts)}


def _rates(linear: Mapping[str, Mapping[int, xarray.Dataset]]) -> dict[str, Any]:
    """Ratios of the best rates of deep networks, which are one a depth; not a number where either has none."""
    two = linear["2-shortcut"]
    pairs = {name: list(_deep(two, parts)) for name, parts in linear.items() if name != "2-shortcut"}
    ratios = {name: [_ratio(a, b) for a, b in each] for name, each in pairs.items()}
    every = [ratio for each in ratios.values() for ratio in each]
    known = [ratio for ratio in every if not math.isnan(ratio)]
    return {
        "smallest ratio of best learning rates from depth 16 on, 2-shortcut / others": min(known, default=None),
        "pairs left out, since all learning rates of one end alike": len(every) - len(known),
        "pairs compared": len(known),
        **{f"ratios by depth, 2-shortcut / {name}": each for name, each in ratios.items()},
        **{f"depths, 2-shortcut / {name}": [int(a.attrs["depth"]) for a, _ in each] for name, each in pairs.items()},
    }


def _ratio(first: xarray.Dataset, second: xarray.Dataset) -> float:
    if first.attrs["flat"] or second.attrs["flat"]:
        return math.nan
    return float(first.attrs["best_rate"] / second.attrs["best_rate"])


def _alike(one: Mapping[int, xarray.Dataset], plain: Mapping[int, xarray.Dataset]) -> dict[str, Any]:
    """Losses of 1-shortcut networks and of plain ones from orthogonal weights."""
    pairs = list(_pairs(one, plain))
    apart = [abs(excess(a) - excess(b)) for a, b in pairs]
    return {
        "largest |log10 excess loss, 1-shortcut - orthogonal| over depths": over(apart, numpy.max),
        "mean |log10 excess loss, 1-shortcut - orthogonal| by depth": [float(row.mean()) for row in apart],
        "depths of the losses": [int(a.attrs["depth"]) for a, _ in pairs],
        "depths compared after training (by B.learning)": len(pairs),
        **_on_edges(part for pair in pairs for part in pair),
    }


def over(rows: Sequence[numpy.ndarray], extreme: Callable[..., Any]) -> list[float]:
    """One value a seed from rows of them; none where there are no rows."""
    return extreme(rows, axis=0).tolist() if len(rows) else []


def _with_relus(relu: Mapping[str, Mapping[int, xarray.Dataset]]) -> dict[str, Any]:
    two = relu["2-shortcut"]
    losses = [two[depth]["final"].values for depth in sorted(two)]
    ratios = {
        f"best loss at depth 64, {title} / 2-shortcut": (
            relu[name][64]["final"].values / two[64]["final"].values
        ).tolist()
        if 64 in two
        else []
        for name, title in (("xavier", "Xavier"), ("orthogonal", "orthogonal"))
    }
    return {
        "largest ratio of best loss to that of the next smaller depth, 2-shortcut": over(
            [deeper / shallower for shallower, deeper in pairwise(losses)], numpy.max
        ),
        **ratios,
        "mean best loss by depth, 2-shortcut": [float(row.mean()) for row in losses],
        **_on_edges(part for parts in relu.values() for part in parts.values()),
    }


def _three(found: Found) -> dict[str, Any]:
    """Linear networks decide; the optimum is far above zero, so that distances from it are reported besides."""
    pairs = {
        kind: list(_pairs(_of(found, kind, "3-shortcut"), _of(found, kind, "2-shortcut")))
        for kind in ("linear", "relu")
    }
    losses = {kind: [a["final"].values / b["final"].values for a, b in each] for kind, each in pairs.items()}
    distances = [10 ** (excess(a) - excess(b)) for a, b in pairs["linear"]]
    return {
        "smallest ratio of final losses over depths, 3-shortcut / 2-shortcut": over(losses["linear"], numpy.min),
        "smallest ratio of excess losses over depths": over(distances, numpy.min),
        "smallest ratio of final losses over depths, ReLUs in the middle": over(losses["relu"], numpy.min),
        **_on_edges(part for pair in pairs["linear"] for part in pair),
    }


def _of(found: Found, kind: str, architecture: str, besides: bool = True) -> dict[int, xarray.Dataset]:
    return {
        depth: part
        for (its_kind, name, depth), part in sorted(found.items())
        if (its_kind, name) == (kind, architecture) and (besides or not part.attrs["besides"])
    }


def _pairs(
    first: Mapping[int, xarray.Dataset], second: Mapping[int, xarray.Dataset]
) -> Iterator[tuple[xarray.Dataset, xarray.Dataset]]:
    """Networks of the same depth."""
    return ((first[depth], second[depth]) for depth in first if depth in second)


def _deep(
    first: Mapping[int, xarray.Dataset], second: Mapping[int, xarray.Dataset]
) -> Iterator[tuple[xarray.Dataset, xarray.Dataset]]:
    return ((a, b) for a, b in _pairs(first, second) if a.attrs["depth"] >= DEEP)


def _seeds(parts: Mapping[int, xarray.Dataset]) -> int:
    return min((part.sizes["seed"] for part in parts.values()), default=0)


FULL = LearningSettings(per_decade=6, besides=(12, 24, 48), relu_networks=5, relu_steps=1000, relu_samples=None)
STUDY = Study(
    PAPER,
    "learning",
    paper_found="2-shortcut networks reach the optimum at every depth and take higher rates; deep plain networks fail.",
    we_expect="The same; but linear 3-shortcut networks leave zero as well, and their losses are hardly higher.",
    presets={
        "smoke": LearningSettings(
            "digits",
            (6, 12),
            2,
            steps=20,
            per_decade=2,
            relu_depths=(4, 8),
            besides=(6,),
            relu_networks=2,
            relu_steps=10,
            relu_samples=50,
        ),
        "quick": LearningSettings(),
        "full": FULL,
        "paper": FULL,
    },
    cost={
        "smoke": "seconds",
        "quick": "7 minutes on 2 cores",
        "full": "6 minutes on one H200",
        "paper": "as full: whitened MNIST is what the paper has; it does not say how many learning rates",
    },
    run=run,
    claims=decided_by("B.learning"),
)
