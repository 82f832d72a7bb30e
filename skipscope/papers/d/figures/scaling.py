"""Singular values of units whose skip is multiplied by alpha."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from skipscope.report.figures.spectra import known_units, middle_units
from skipscope.report.style import GREY, look, styled, thinned

if TYPE_CHECKING:
    import xarray


def plateau(dataset: xarray.Dataset, units: Sequence[str] | None = None) -> Any:
    """Scree plots, one panel per unit, one curve per alpha (and sample), a grey line at each |alpha|.

    dataset: `value` with dimensions alpha, unit, sample, index; NaN after the last value.
    """
    from plotly.subplots import make_subplots

    units = middle_units(dataset) if units is None else known_units(dataset, units)
    alphas = [float(alpha) for alpha in dataset["alpha"].values]
    figure = make_subplots(1, len(units), subplot_titles=list(units), shared_yaxes=True, horizontal_spacing=0.03)
    labelled: set[int] = set()
    for panel, unit in enumerate(units):
        here = {"row": 1, "col": panel + 1}
        for place, alpha in enumerate(alphas):
            scree = dataset["value"].isel(alpha=place).sel(unit=unit)
            for sample in range(dataset.sizes["sample"]):
                values = scree.isel(sample=sample).dropna("index").values
                if not values.size:
                    continue
                shown = thinned(len(values))
                figure.add_scatter(
                    x=[(k + 1) / len(values) for k in shown],
                    y=values[shown],
                    showlegend=place not in labelled,
                    mode="lines",
                    meta={"series": f"alpha = {alpha:g}, sample {sample}"},
                    **look(f"alpha = {alpha:g}", place, width=2 if sample == 0 else 1),
                    hovertemplate=(
                        f"alpha = {alpha:g}, sample {sample}<br>share %{{x:.3f}}, value %{{y:.6g}}<extra></extra>"
                    ),
                    **here,
                )
                labelled.add(place)
        for level in sorted({abs(alpha) for alpha in alphas}):
            figure.add_hline(y=level, line={"color": GREY, "width": 1}, layer="below", **here)
        figure.update_xaxes(title_text="rank / size", range=[0, 1], **here)
    figure.update_yaxes(showgrid=False, rangemode="tozero")  # the only lines across are those at |alpha|
    figure.update_yaxes(title_text="singular value", row=1, col=1)
    return styled(figure, height=460)
