"""The datasets of a run, network by network, and the numbers that findings look at.

Of each unit:

gain                root mean square of the singular values of its Jacobian: what a random change of its entry is
                    multiplied by
largest             the largest singular value
branch_over_skip    |branch| / |skip|
share_zero          the share of singular values that are zero: directions that are lost
share_near_one      the share in [0.99, 1.01]

Of the whole network:

state_growth        size of the state at the last unit's entry over that at the first one's
gradient_growth     size of the gradient at the first unit's entry over that at the last one's
rank_kept           effective rank of the states of all samples at the last unit's entry over that at the first one's

Medians over the samples; shares are means. Where the first token of sequences is far larger than the others
(`first_token`), branch_over_skip and state_growth are those of the other tokens.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy
import xarray

from skipscope.findings.first_token import FirstToken, first_token_of
from skipscope.findings.usual import Range, usual
from skipscope.trace.running_statistics import NEVER_SEEN

OF_UNITS = ("gain", "largest", "branch_over_skip", "share_zero", "share_near_one")
OF_NETWORKS = ("state_growth", "gradient_growth", "rank_kept")
FAR_ABOVE = 3.0  # times the upper end of a range: no chance
UNKNOWN = "any"  # kind of a branch that a dataset does not name


@dataclass(frozen=True)
class MeasuredNetwork:
    """name: empty where a run has one network. datasets: by measure, each with its own name."""

    name: str
    datasets: dict[str, tuple[str, xarray.Dataset]] = field(default_factory=dict)

    def get(self, measure: str) -> xarray.Dataset | None:
        return self.datasets[measure][1] if measure in self.datasets else None

    def figure(self, measure: str, end: str = "") -> str:
        """The name that the report gives to a figure of a measure."""
        return f"{self.datasets[measure][0]}{f'-{end}' if end else ''}" if measure in self.datasets else ""

    @property
    def words(self) -> str:
        """What a sentence about this network begins with."""
        return f"{self.name}: " if self.name else ""

    def coordinate(self, name: str) -> dict[str, str]:
        """Of units: their stage, skip or branch, by name."""
        found: dict[str, str] = {}
        for _, data in self.datasets.values():
            if "unit" in data.dims and name in data.coords and data[name].dims == ("unit",):
                found.update(zip(map(str, data["unit"].values), map(str, data[name].values), strict=True))
        return found

    @property
    def kind(self) -> str:
        """That of most units."""
        return self.kinds[0]

    @property
    def kinds(self) -> list[str]:
        """Those of all units, the most frequent first; whole stages have none."""
        counts = Counter(filter(None, self.coordinate("branch").values()))
        return [kind for kind, _ in counts.most_common()] or [UNKNOWN]

    @property
    def comparable(self) -> bool:
        """Not so where batch norms have never seen data: they normalise nothing, as in no network that is trained."""
        notes = (str(data.attrs.get("notes", "")) for _, data in self.datasets.values())
        return not any(NEVER_SEEN in note for note in notes)

    def usual(self, quantity: str, kind: str) -> Range | None:
        """What models of that kind have. None where none were measured, and for a network that is not comparable."""
        return usual(quantity, kind) if self.comparable else None

    @property
    def first_token(self) -> FirstToken | None:
        return first_token_of(self.get("depth_use"))

    @property
    def sizes_by(self) -> str:
        """The measure that sizes of states and branches are taken from."""
        return "profile" if self.first_token is None else "depth_use"

    @property
    def sizes_of(self) -> str:
        """What a sentence about sizes of states and branches adds."""
        return "" if self.first_token is None else " (without the first token)"

    def measured_by(self, quantity: str) -> str:
        """The measure that has the numbers of the units."""
        measures = {"largest": "leading" if self.get("spectra") is None else "spectra"}
        return measures.get(quantity, "profile")

    def above_usual(self, quantity: str) -> dict[str, tuple[float, Range]]:
        """Units whose number is above the range of their kind, with the range; those farthest above it first.

        One unit in twenty of a usual network is above it by chance. So there are none unless half of the units are, or
        one is FAR_ABOVE times the end of its range; a unit that differs from its neighbours is another question.
        """
        kinds, values = self.coordinate("branch"), self.of_units(quantity)
        known = {unit: self.usual(quantity, kinds.get(unit, UNKNOWN)) for unit in values}
        above = {
            unit: (values[unit], range_)
            for unit, range_ in known.items()
            if range_ is not None and values[unit] > range_.high
        }
        farthest = sorted(above, key=lambda unit: -above[unit][1].beyond(above[unit][0]))
        if not above or not (
            2 * len(above) >= len(values) or above[farthest[0]][1].beyond(above[farthest[0]][0]) >= FAR_ABOVE
        ):
            return {}
        return {unit: above[unit] for unit in farthest}

    def of_units(self, quantity: str) -> dict[str, float]:
        """By unit, those that have a finite number."""
        profile, spectra, leading = self.get("profile"), self.get("spectra"), self.get("leading")
        found: dict[str, float] = {}
        if quantity == "gain" and profile is not None and "jacobian_square" in profile:
            found = _by_unit(_median(profile["jacobian_square"]) ** 0.5)
        elif quantity == "branch_over_skip" and profile is not None and quantity in profile:
            found = _by_unit(_median(profile[quantity]))
            found |= {} if self.first_token is None else self.first_token.branch_over_skip()
        elif quantity == "largest":
            if leading is not None:
                found |= _by_unit(_median(leading["value"].isel(rank=0)))
            if spectra is not None:
                found |= _by_unit(_median(_units_of(spectra)["largest"]))
        elif quantity in ("share_zero", "share_near_one") and spectra is not None:
            found = _by_unit(_units_of(spectra)[quantity].mean("sample"))
        return {unit: value for unit, value in found.items() if math.isfinite(value)}

    def of_stages(self, quantity: str) -> dict[str, float]:
        """Of whole stages, from the entry of the first unit to the exit of the last."""
        spectra = self.get("spectra")
        if spectra is None or "kind" not in spectra.coords:
            return {}
        stages = spectra.isel(unit=numpy.flatnonzero(spectra["kind"].values == "stage"))
        return _by_unit(stages[quantity].mean("sample"))

    def whole(self, quantity: str) -> float:
        """Not a number where it was not measured."""
        profile = self.get("profile")
        if profile is None or profile.sizes["unit"] < 2:
            return math.nan
        if quantity == "state_growth" and self.first_token is not None:
            return self.first_token.state_growth()
        names = {"state_growth": "state_rms", "gradient_growth": "gradient_rms", "rank_kept": "effective_rank"}
        values = _median(profile[names[quantity]]).values
        first, last = (values[-1], values[0]) if quantity == "gradient_growth" else (values[0], values[-1])
        return float(last / first) if first > 0 else math.nan


def networks_of(datasets: Mapping[str, xarray.Dataset]) -> list[MeasuredNetwork]:
    """In the order of their first datasets. Where one was measured several times, the dataset with the most units.

    Beside networks that were measured in full, which have a profile, there may be others that were changed for one
    test: they are left out.
    """
    found: dict[str, MeasuredNetwork] = {}
    for name, data in datasets.items():
        measure = str(data.attrs.get("measure", ""))
        if not measure:
            continue
        network = found.setdefault(own := str(data.attrs.get("network", "")), MeasuredNetwork(own))
        before = network.get(measure)
        if before is None or before.sizes.get("unit", 0) < data.sizes.get("unit", 0):
            network.datasets[measure] = (name, data)
    networks = list(found.values())
    return [network for network in networks if "profile" in network.datasets] or networks


def _median(values: xarray.DataArray) -> xarray.DataArray:
    return values.median("sample") if "sample" in values.dims else values


def _units_of(spectra: xarray.Dataset) -> xarray.Dataset:
    if "kind" not in spectra.coords:
        return spectra
    return spectra.isel(unit=numpy.flatnonzero(spectra["kind"].values == "unit"))


def _by_unit(values: xarray.DataArray) -> dict[str, float]:
    return dict(zip(map(str, values["unit"].values), values.values.astype(float).tolist(), strict=True))
