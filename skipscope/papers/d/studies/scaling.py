"""D.scaling: figure 5 (left) of paper D, the spectrum of a unit whose skip is scaled by alpha.

    skipscope study run D.scaling --preset quick --out DIR

The paper finds that the plateau at 1 moves to alpha. By the law (`linear.law`) at least n - z(alpha) - 2 r values are
exactly |alpha|, where the mask of the last ReLU depends on alpha; generically no more. The others are not scaled by
alpha: their correlation with alpha times those at alpha = 1 is reported, rank by rank, and, since sorted values always
correlate, how far they are from them. Measured on random units with few active inner ReLUs, and on units of the
networks whose weights are given.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Annotated

import numpy
import torch
import xarray

from skipscope.constraints import Expectation, not_empty
from skipscope.errors import InputError
from skipscope.linear.law import Law, law_or_reason
from skipscope.measure.law import counts_around
from skipscope.papers.d import PAPER
from skipscope.papers.d.measured_networks import MeasuredNetwork, NetworkSettings, measured_networks, require_digits
from skipscope.papers.d.studies.law import GENERIC_PAIRS, random_images, random_network
from skipscope.papers.kit import Bench, Claim, Evidence, Quantity, Study
from skipscope.runs.sweep import Task
from skipscope.spectrum.full import full_spectrum
from skipscope.trace import Point, Trunk, trace
from skipscope.trace.surgery import with_scaled_skip

EQUAL_WITHIN = 1e-7  # a value that is as close to |alpha|, 1 or 0 counts as equal to it
FEW_ACTIVE = (-2.5, -1.0)  # thresholds of the inner ReLUs of random units, in standard deviations: few are active

WITHOUT_EQUALITY = Quantity("pairs without exactly n - z - 2 r values at |alpha|")
WITH_FEWER = Quantity("pairs with fewer")
CORRELATION = Quantity("correlation of the others with alpha times those at alpha = 1")
DISTANCE = Quantity("median relative distance of the others from alpha times those at alpha = 1")
D15 = Claim(
    "D15",
    "With a skip of factor alpha the plateau moves to alpha.",
    "singular values within 1e-7 of |alpha| against n - z - 2 r, where z and r depend on alpha",
    criteria=(WITHOUT_EQUALITY.exactly(0.0),),
    controls=(GENERIC_PAIRS.at_least(1.0),),
    note=(
        "Pairs of unit and alpha with 2 r < n - z. The other singular values are not scaled by alpha; their "
        "correlation with alpha times those of the network as it is, is reported."
    ),
)


@dataclass(frozen=True)
class ScalingSettings(NetworkSettings):
    random_model: str = "resnet14-digits-n2"
    factors: Annotated[tuple[float, ...], not_empty] = (0.5, 1.0, 2.0)

    def expectations(self) -> Iterator[Expectation]:
        require_digits(self.random_model)
        yield from super().expectations()
        yield 0 not in self.factors, f"factors: expected none that is zero, got {self.factors}"


def run(bench: Bench, settings: ScalingSettings) -> Evidence:
    networks = (
        network.task(partial(_measured, factors=settings.factors))
        for network in measured_networks(bench, settings)
        if network.large
    )
    return evidence(bench.sweep(chain([Task("random", partial(_random, bench, settings))], networks)))


def evidence(parts: Sequence[xarray.Dataset]) -> Evidence:
    """Pairs are of a unit and sample, and an alpha; equality is asked where 2 r < n - z."""
    generic = [part["generic"].astype(bool) for part in parts]
    other = [which & (part["counted"] != part["proved"]) for which, part in zip(generic, parts, strict=True)]
    fewer = [part["counted"] < part["proved"] for part in parts]
    return {
        D15: {
            GENERIC_PAIRS: sum(int(which.sum()) for which in generic),
            WITHOUT_EQUALITY: sum(int(which.sum()) for which in other),
            WITH_FEWER: sum(int(which.sum()) for which in fewer),
            CORRELATION: _away_from_one(parts, "correlation"),
            DISTANCE: _away_from_one(parts, "departure"),
        }
    }


def _random(bench: Bench, settings: ScalingSettings) -> xarray.Dataset:
    model = random_network(settings.random_model, bench.seed, thresholds=FEW_ACTIVE).to(bench.device)
    images = random_images(model, settings.images, bench.seed)
    trunk = trace(model, images)
    regular = [unit.name for unit in trunk.units if unit.kind == "identity"]
    return _scaled(trunk, trunk.at(images), regular, settings.factors).assign_attrs(network="random units", large=0)


def _measured(network: MeasuredNetwork, factors: Sequence[float]) -> xarray.Dataset:
    """The middle regular unit of the last stage, as in the paper, and of the one before."""
    chosen = network.units or tuple(network.middle_unit(stage) for stage in (2, 3))
    return _scaled(network.trunk, network.trunk.at(network.images), chosen, factors)


def _scaled(trunk: Trunk, point: Point, names: Sequence[str], factors: Sequence[float]) -> xarray.Dataset:
    cells = [[_cell(trunk, point, name, alpha) for name in names] for alpha in factors]
    base = cells[list(factors).index(1.0)] if 1.0 in factors else [_cell(trunk, point, name, 1.0) for name in names]
    longest = max(cell["value"].shape[1] for row in cells for cell in row)
    for row, alpha in zip(cells, factors, strict=True):
        for cell, unscaled in zip(row, base, strict=True):
            cell["correlation"], cell["departure"] = others_at(cell["value"], unscaled["value"], alpha)
    dims = ("alpha", "unit", "sample")
    data = {
        name: (dims, torch.stack([torch.stack([cell[name] for cell in row]) for row in cells]).numpy())
        for name in cells[0][0]
        if name != "value"
    }
    values = torch.stack([torch.stack([_filled(cell["value"], longest) for cell in row]) for row in cells])
    return xarray.Dataset(
        {**data, "value": ((*dims, "index"), values.numpy())},
        {"alpha": list(factors), "unit": list(names)},
        {"measure": "scaling", "route": "gram or svd", "tolerance": EQUAL_WITHIN},
    )


def _filled(values: torch.Tensor, longest: int) -> torch.Tensor:
    return torch.nn.functional.pad(values, (0, longest - values.shape[1]), value=float("nan"))


def _cell(trunk: Trunk, point: Point, name: str, alpha: float) -> dict[str, torch.Tensor]:
    """One unit at one alpha: counts per sample (B,), and the values (B, size)."""
    unit = with_scaled_skip(trunk[name], alpha)
    law = law_or_reason(unit, point)
    if not isinstance(law, Law):
        raise InputError(f"D.scaling: no law for the unit {name}: {law}; name others in the setting units")
    size = min(unit.jacobian(point).shape[1:])
    spectrum = full_spectrum(unit.jacobian(point), route="svd" if size <= 1024 else "gram")
    factor = torch.full((len(law.rank),), abs(alpha), dtype=torch.float64)
    return {
        "value": spectrum.values.cpu(),
        "size": torch.full((len(law.rank),), size),
        "inactive": law.inactive.cpu(),
        "inner_active": law.rank.cpu(),
        "proved": law.ones_at_least.cpu(),
        "generic": law.generic.cpu().to(torch.int64),
        "counted": counts_around(spectrum, factor, EQUAL_WITHIN, EQUAL_WITHIN)["ones"].cpu(),
    }


def others_at(values: torch.Tensor, unscaled: torch.Tensor, alpha: float) -> tuple[torch.Tensor, torch.Tensor]:
    """The values away from |alpha| and from zero beside |alpha| times those at alpha = 1, rank by rank, per sample:
    their correlation, and the median of |a - b| / b. values, unscaled: (B, size), descending."""
    correlations, distances = [], []
    for mine, theirs in zip(values, unscaled, strict=True):
        first = mine[((mine - abs(alpha)).abs() > EQUAL_WITHIN) & (mine > EQUAL_WITHIN)]
        second = abs(alpha) * theirs[((theirs - 1).abs() > EQUAL_WITHIN) & (theirs > EQUAL_WITHIN)]
        count = min(len(first), len(second))
        pair = torch.stack([first[:count], second[:count]])
        correlations.append(torch.corrcoef(pair)[0, 1] if count > 2 else torch.tensor(float("nan")))
        distances.append(((pair[0] - pair[1]).abs() / pair[1]).median() if count else torch.tensor(float("nan")))
    return torch.stack(correlations).double(), torch.stack(distances).double()


def _away_from_one(parts: Sequence[xarray.Dataset], name: str) -> list[float]:
    """Of all units and samples at the factors other than 1, which would be compared with themselves."""
    chosen = [part[name].sel(alpha=[a for a in part["alpha"].values if a != 1]).values.ravel() for part in parts]
    return [float(value) for values in chosen for value in values if numpy.isfinite(value)]


STUDY = Study(
    PAPER,
    "scaling",
    paper_found="With a skip of factor alpha the plateau is at alpha.",
    we_expect="Exactly n - z(alpha) - 2 r singular values are |alpha|; the others are not scaled.",
    presets={
        "smoke": ScalingSettings(networks=0, images=2, random_model="resnet8-digits-n8"),
        "quick": ScalingSettings(networks=0, images=3, units=("stage3.4",), large_images=(1,)),
        "full": ScalingSettings(networks=0, images=5, large_images=(2, 1), train110=True),
        "paper": ScalingSettings(networks=0, train110=True),
    },
    cost={
        "smoke": "seconds",
        "quick": "half a minute on 2 cores; minutes more for a unit of a ResNet-56",
        "full": "a minute on one GPU",
        "paper": "minutes on one GPU, and the training of a ResNet-110 where no weights are given",
    },
    run=run,
    claims=(D15,),
)
