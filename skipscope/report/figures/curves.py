"""Curves over units or epochs, one panel a quantity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from skipscope.report.figures.style import LOGARITHMIC_FROM, look, networks_in, styled

if TYPE_CHECKING:
    import xarray


def curves_figure(curves: Mapping[str, xarray.Dataset], panels: Mapping[str, str], *, along: str) -> Any:
    """One panel a quantity (name: title), one curve a dataset, over the coordinate `along`.

    Where a quantity has samples, the curve is their median.
    """
    from plotly.subplots import make_subplots

    columns = 2 if len(panels) > 1 else 1
    rows = -(-len(panels) // columns)
    figure = make_subplots(rows, columns, subplot_titles=list(panels.values()), vertical_spacing=0.32 / rows)
    for panel, quantity in enumerate(panels):
        row, column = panel // columns + 1, panel % columns + 1
        lowest, highest = float("inf"), 0.0
        for place, (name, dataset) in enumerate(curves.items()):
            if quantity not in dataset:
                continue
            curve = dataset[quantity]
            if "sample" in curve.dims:
                curve = curve.median("sample")
            if bool(curve.isnull().all()):
                continue
            lowest, highest = min(lowest, float(curve.min())), max(highest, float(curve.max()))
            figure.add_scatter(
                x=dataset[along].values,
                y=curve.values,
                showlegend=panel == 0 and len(curves) > 1,
                mode="lines+markers",
                **look(name, place, size=8),
                row=row,
                col=column,
            )
        if lowest > 0 and highest > LOGARITHMIC_FROM * lowest:
            figure.update_yaxes(type="log", exponentformat="power", row=row, col=column)
    figure.update_xaxes(tickangle=-45 if along == "unit" else 0, title_text="" if along == "unit" else along)
    return styled(figure, height=300 * rows + 60)


def profile_figure(dataset: xarray.Dataset, panels: Mapping[str, str]) -> Any:
    """A profile over the units; where the dataset has a dimension `network`, one curve each."""
    return curves_figure(networks_in(dataset), panels, along="unit")
