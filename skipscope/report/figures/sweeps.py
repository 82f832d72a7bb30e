"""Many models in one figure: units by their depth, or, of many checkpoints, how units change from one to the next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy
import xarray

from skipscope.report.charts import Axis, Series, axis, chart
from skipscope.report.style import named_ticks, names_of, needs_logarithm

CURVES = 8  # members that have a curve each over the units; of more, units are summarised
TITLES = {
    "profile_state_rms": "state RMS at a unit's entry",
    "profile_gradient_rms": "gradient RMS at a unit's entry",
    "profile_branch_over_skip": "|branch| / |skip|",
    "profile_cosine": "cosine of branch and skip",
    "profile_jacobian_square": "mean square of a unit's singular values",
    "profile_effective_rank": "effective rank of all entries",
    "spectra_largest": "largest singular value",
    "spectra_mean": "mean singular value",
    "spectra_share_above": "share of singular values above 1.01",
    "spectra_share_near_one": "share within 1 % of 1",
    "spectra_share_zero": "share of singular values that are 0",
    "leading_largest": "largest singular value",
    "leading_share_above": "share above 1.01, estimated",
    "leading_share_near_one": "share within 1 % of 1, estimated",
    "alignment_u1v1": "cosine of first left and right vector",
    "alignment_energy": "share of energy in the leading vectors",
    "alignment_frobenius": "norm of the branch's Jacobian",
    "normality_spectral_radius": "spectral radius",
    "normality_departure": "departure from normality",
    "normality_amplification": "amplification",
    "depth_use_skip_kl": "change of the output without the unit",
}
IN_TABLES_ONLY = ("profile_cosine", "profile_effective_rank", "spectra_mean", "alignment_frobenius")


def sweep(dataset: xarray.Dataset) -> Any:
    """One panel per quantity. Up to 8 models or checkpoints: one curve each over the units, by name where all have the
    same and by relative depth otherwise. More: the median over the units of each, with bars from the lower to the upper
    quartile, over models, checkpoints or steps.

    dataset: of `ss.sweep`.
    """
    panels = {key: title for key, title in panels_of(dataset).items() if key not in IN_TABLES_ONLY}
    over = dimension_of(dataset)
    drawn = _over_units if dataset.sizes[over] <= CURVES else _over_members
    series, x = drawn(dataset, over, panels)
    columns = 2 if len(panels) > 1 else 1
    rows = -(-len(panels) // columns)
    y = [axis(log=needs_logarithm(dataset[key].values.ravel())) for key in panels]
    below = [panel + columns >= len(panels) for panel in range(len(panels))]
    axes: list[Axis] = [{**x, "title_text": x["title_text"] if bottom else ""} for bottom in below]
    spacing = {"vertical_spacing": 0.3 / rows} if rows > 1 else {}
    return chart(series, panels=list(panels.values()), columns=columns, x=axes, y=y, height=220 * rows + 100, **spacing)


def dimension_of(dataset: xarray.Dataset) -> str:
    return str(dataset["failure"].dims[0])


def panels_of(dataset: xarray.Dataset) -> dict[str, str]:
    """The quantities that there are numbers of, with their titles."""
    return {key: title for key, title in TITLES.items() if key in dataset and not bool(dataset[key].isnull().all())}


def _over_units(dataset: xarray.Dataset, over: str, panels: Mapping[str, str]) -> tuple[list[Series], dict[str, Any]]:
    by_name = "unit" in dataset.dims
    series = []
    for panel, (key, title) in enumerate(panels.items()):
        for place, member in enumerate(names_of(dataset, over)):
            here = dataset.isel({over: place})
            values = here[key].values
            there = ~numpy.isnan(values)
            names = here["unit"].values[there].astype(str).tolist()
            x = numpy.arange(len(values))[there] if by_name else here["relative_depth"].values[there]
            if there.any():
                more = {"meta": {"panel": title}}
                hover = f"{title} of %{{text}}: %{{y:.3g}}"
                series.append(
                    Series(member, x, values[there], hover, panel=panel, place=place, text=names, size=5, more=more)
                )
    if by_name:
        return series, {**named_ticks(names_of(dataset, "unit")), **axis("unit")}
    return series, dict(axis("relative depth of the unit", range=[0, 1]))


def _over_members(dataset: xarray.Dataset, over: str, panels: Mapping[str, str]) -> tuple[list[Series], dict[str, Any]]:
    along = "unit" if "unit" in dataset.dims else "position"
    numbers = over == "step"
    x = dataset[over].values if numbers else numpy.arange(dataset.sizes[over])
    series = []
    for panel, (key, title) in enumerate(panels.items()):
        there = ~dataset[key].isnull().all(along).values
        low, middle, high = dataset[key].isel({over: there}).quantile([0.25, 0.5, 0.75], along).values
        names = [name for name, shown in zip(names_of(dataset, over), there, strict=True) if shown]
        hover = f"{title}, median over the units of %{{text}}: %{{y:.3g}}"
        line = Series("median over the units", x[there], middle, hover, panel=panel, text=names, labelled=panel == 0)
        series.append(line.with_error(middle - low, high - middle))
    if numbers:
        return series, dict(axis("step", log=bool((x > 0).all()) and needs_logarithm(x.astype(float))))
    return series, {**named_ticks(names_of(dataset, over)), **axis(over)}
