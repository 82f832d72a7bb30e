"""Singular values: scree plots and shares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from skipscope.report.figures.style import COLOURS, GREY, look, networks_in, styled, thinned

if TYPE_CHECKING:
    import xarray


def scree_figure(dataset: xarray.Dataset, units: Sequence[str]) -> Any:
    """Singular values in descending order, one panel a unit, one curve a sample (of each network, where there are
    several).

    dataset: `value` with dimensions (network,) unit, sample, index; NaN after the last value.
    """
    from plotly.subplots import make_subplots

    networks = networks_in(dataset)
    figure = make_subplots(1, len(units), subplot_titles=list(units), shared_yaxes=True, horizontal_spacing=0.03)
    for panel, unit in enumerate(units):
        for place, (network, data) in enumerate(networks.items()):
            for sample in range(data.sizes["sample"]):
                values = data["value"].sel(unit=unit).isel(sample=sample).dropna("index").values
                shown = thinned(len(values))
                figure.add_scatter(
                    x=[(k + 1) / len(values) for k in shown],
                    y=values[shown],
                    showlegend=panel == 0 and sample == 0 and len(networks) > 1,
                    mode="lines",
                    **look(network, place, width=1.5),
                    hovertemplate=f"{network}, sample {sample}<br>share %{{x:.3f}}, value %{{y:.4f}}<extra></extra>",
                    row=1,
                    col=panel + 1,
                )
        # After the curves: a line across an empty panel is not drawn.
        figure.add_hline(y=1, line={"color": GREY, "width": 1}, row=1, col=panel + 1)
        figure.update_xaxes(title_text="rank / size", range=[0, 1], row=1, col=panel + 1)
    figure.update_yaxes(title_text="singular value", rangemode="tozero", row=1, col=1)
    return styled(figure, height=420)


def proportions_figure(dataset: xarray.Dataset) -> Any:
    """Shares of singular values above 1.01, within 1 % of 1, below, and zero; stacked, one bar a unit."""
    import plotly.graph_objects as go

    shares = {
        "share_above": "above 1.01",
        "share_near_one": "in [0.99, 1.01]",
        "share_below": "in (0, 0.99)",
        "share_zero": "zero",
    }
    figure = go.Figure()
    for place, (key, title) in enumerate(shares.items()):
        figure.add_bar(
            x=dataset["unit"].values,
            y=dataset[key].mean("sample").values,
            name=title,
            marker={"color": COLOURS[place], "pattern": {"shape": ("", "/", ".", "x")[place], "fgopacity": 0.4}},
        )
    figure.update_layout(barmode="stack")
    figure.update_xaxes(tickangle=-45)
    figure.update_yaxes(title_text="share of singular values", range=[0, 1])
    return styled(figure, height=420)
