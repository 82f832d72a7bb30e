"""D.scaling: figure 5 (left) of paper D, the spectrum of a unit whose skip is scaled by alpha.

    skipscope study run D.scaling --preset quick --out DIR

The paper finds that the plateau at 1 moves to alpha. By the law (`linear.law`) at least n - z(alpha) - 2 r values are
exactly |alpha|, where the mask of the last ReLU depends on alpha; generically no more. The others are not scaled by
alpha: their correlation with alpha times those at alpha = 1, rank by rank, is reported. Measured on random units with
few active inner ReLUs, and on units of the networks whose weights are given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy
import torch

from skipscope.errors import InputError
from skipscope.linear.law import Law, law_or_reason
from skipscope.measure.law import counts_around
from skipscope.spectrum import singular_values
from skipscope.studies.bench import Bench
from skipscope.studies.d.law import random_images, random_network
from skipscope.studies.d.measured import described, middle_unit
from skipscope.studies.d.subjects import Subject, Subjects, require_digits, subjects
from skipscope.studies.study import Evidence, Study
from skipscope.trace import Point, Trunk, trace
from skipscope.trace.surgery import with_scaled_skip

if TYPE_CHECKING:
    import xarray

CLOSE = 1e-7
SPARSE = (-2.5, -1.0)  # thresholds of the inner ReLUs of random units, in standard deviations: few are active


@dataclass(frozen=True)
class ScalingSettings(Subjects):
    random_model: str = "resnet14-digits-n2"
    factors: tuple[float, ...] = (0.5, 1.0, 2.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_digits(self.random_model)
        if not self.factors or 0 in self.factors:
            raise InputError(f"expected factors that are not zero, got {self.factors}")


def run(bench: Bench, settings: ScalingSettings) -> Evidence:
    parts = [bench.part("random", lambda: _random(bench, settings))]
    for subject in subjects(bench, settings):
        if subject.large or subject.units:
            parts.append(
                bench.part(subject.key, lambda subject=subject: _of(subject, settings.factors))  # type: ignore[misc]
            )
    return evidence(parts)


def evidence(parts: Sequence[xarray.Dataset]) -> dict[str, dict[str, Any]]:
    """Pairs are of a unit and sample, and an alpha; equality is asked where 2 r < n - z."""
    generic = [part["generic"].astype(bool) for part in parts]
    other = [which & (part["counted"] != part["proved"]) for which, part in zip(generic, parts, strict=True)]
    fewer = [part["counted"] < part["proved"] for part in parts]
    correlations = [float(value) for part in parts for value in part["correlation"].values.ravel()]
    return {
        "D15": {
            "pairs with 2 r < n - z": sum(int(which.sum()) for which in generic),
            "pairs without exactly n - z - 2 r values at |alpha|": sum(int(which.sum()) for which in other),
            "pairs with fewer": sum(int(which.sum()) for which in fewer),
            "correlation of the others with alpha times those at alpha = 1": [
                value for value in correlations if numpy.isfinite(value)
            ],
        }
    }


def _random(bench: Bench, settings: ScalingSettings) -> xarray.Dataset:
    model = random_network(settings.random_model, bench.seed, thresholds=SPARSE).to(bench.device)
    images = random_images(model, settings.images, bench.seed)
    trunk = trace(model, images)
    regular = [unit.name for unit in trunk.units if unit.kind == "identity"]
    return _scaled(trunk, trunk.at(images), regular, settings.factors).assign_attrs(network="random units", large=0)


def _of(subject: Subject, factors: Sequence[float]) -> xarray.Dataset:
    """The middle regular unit of the last stage, as in the paper, and of the one before."""
    chosen = subject.units or tuple(middle_unit(subject, stage) for stage in (2, 3))
    return described(_scaled(subject.trunk, subject.trunk.at(subject.images), chosen, factors), subject)


def _scaled(trunk: Trunk, point: Point, names: Sequence[str], factors: Sequence[float]) -> xarray.Dataset:
    import xarray

    cells = [[_cell(trunk, point, name, alpha) for name in names] for alpha in factors]
    base = cells[list(factors).index(1.0)] if 1.0 in factors else [_cell(trunk, point, name, 1.0) for name in names]
    longest = max(cell["value"].shape[1] for row in cells for cell in row)
    for row, alpha in zip(cells, factors, strict=True):
        for cell, unscaled in zip(row, base, strict=True):
            cell["correlation"] = _others(cell, unscaled, alpha)
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
        {"measure": "scaling", "route": "gram or svd", "tolerance": CLOSE},
    )


def _filled(values: torch.Tensor, longest: int) -> torch.Tensor:
    return torch.nn.functional.pad(values, (0, longest - values.shape[1]), value=float("nan"))


def _cell(trunk: Trunk, point: Point, name: str, alpha: float) -> dict[str, torch.Tensor]:
    """One unit at one alpha: counts per sample (B,), and the values (B, size)."""
    unit = with_scaled_skip(trunk[name], alpha)
    law = law_or_reason(unit, point)
    assert isinstance(law, Law), law
    size = min(unit.jacobian(point).shape[1:])  # type: ignore[attr-defined]
    spectrum = singular_values(unit.jacobian(point), route="svd" if size <= 1024 else "gram")  # type: ignore[attr-defined]
    factor = torch.full((len(law.rank),), abs(alpha), dtype=torch.float64)
    return {
        "value": spectrum.values.cpu(),
        "size": torch.full((len(law.rank),), size),
        "inactive": law.inactive.cpu(),
        "inner_active": law.rank.cpu(),
        "proved": law.ones_at_least.cpu(),
        "generic": law.generic.cpu().to(torch.int64),
        "counted": counts_around(spectrum, factor, CLOSE, CLOSE)["ones"].cpu(),
        "close": (spectrum.values.cpu() - abs(alpha)).abs().le(0.01 * abs(alpha)).sum(1),
    }


def _others(cell: dict[str, torch.Tensor], unscaled: dict[str, torch.Tensor], alpha: float) -> torch.Tensor:
    """Correlation of the values away from |alpha| and from zero with alpha times those at alpha = 1, rank by rank."""
    found = []
    for mine, theirs in zip(cell["value"], unscaled["value"], strict=True):
        first = mine[((mine - abs(alpha)).abs() > CLOSE) & (mine > CLOSE)]
        second = abs(alpha) * theirs[((theirs - 1).abs() > CLOSE) & (theirs > CLOSE)]
        count = min(len(first), len(second))
        found.append(
            float(numpy.corrcoef(first[:count].numpy(), second[:count].numpy())[0, 1]) if count > 2 else float("nan")
        )
    return torch.tensor(found, dtype=torch.float64)


SCALING = Study(
    id="D.scaling",
    title="The plateau of a scaled skip (figure 5, left)",
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
)
