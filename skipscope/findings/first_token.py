"""A first token that is far larger than the others, as in most trained language models (massive activations, arXiv
2402.17762): sizes of whole states are then those of that token, and say nothing of the others.

Where `depth_use` was measured and shows one, sizes of states and branches are taken from it, without the first
position; sentences say so.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy
import xarray

WITHOUT = "without the first"  # the name of the scope in `depth_use`
APART = 10.0  # times the others' mean size, at one state: the first token is another matter


@dataclass(frozen=True)
class FirstToken:
    """times: how much larger it is than the others' mean at the state where that is most. unit: at whose entry, or the
    last one's exit. dimension: the channel of its largest entry there."""

    data: xarray.Dataset
    times: float
    unit: str
    dimension: int

    def state_growth(self) -> float:
        """Of the other tokens, from the first unit's entry to the last one's."""
        growth = self.data["total_growth"].sel(scope=WITHOUT).median("sample").values
        return float(growth[-2] / growth[0])

    def branch_over_skip(self) -> dict[str, float]:
        """Of the other tokens: the median over positions, then over samples."""
        shares = self.data["branch_share"].sel(position=self.data["position"] != 0)
        middle = shares.median("position").median("sample")
        return dict(zip(map(str, middle["unit"].values), middle.values.astype(float).tolist(), strict=True))


def first_token_of(data: xarray.Dataset | None) -> FirstToken | None:
    """data: of `depth_use`. None where the first token is like the others, or was not looked at."""
    if data is None or "scope" not in data.coords or WITHOUT not in data["scope"].values:
        return None
    norms = data["state_norm"]  # state, sample, position
    first = norms.sel(position=0).median("sample")
    others = norms.sel(position=norms["position"] != 0).mean("position").median("sample")
    times = (first / others).fillna(0).values
    place = int(times.argmax())
    if not numpy.isfinite(times[place]) or times[place] < APART:
        return None
    state = str(data["state"].values[place])
    dimension = int(data["massive_dimension"].sel(scope="all").isel(state=place, sample=0))
    return FirstToken(data, float(times[place]), state, dimension)
