"""Figures from labelled datasets.

Colours are those of Okabe and Ito, which readers with any colour vision can tell apart; dashes and markers say the same
once more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import xarray

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
DASHES = ("solid", "dash", "dot", "dashdot")
MARKERS = ("circle", "diamond", "square", "triangle-up")


def profile_figure(dataset: xarray.Dataset, quantities: Mapping[str, str]) -> Any:
    """Curves over the units, one panel a quantity (name: title), one curve a network.

    dataset: dimensions network, unit and, for some quantities, sample; the curve is the median over the samples.
    """
    from plotly.subplots import make_subplots

    columns = 2
    rows = -(-len(quantities) // columns)
    figure = make_subplots(rows, columns, subplot_titles=list(quantities.values()), vertical_spacing=0.32 / rows)
    for panel, quantity in enumerate(quantities):
        row, column = panel // columns + 1, panel % columns + 1
        values = dataset[quantity]
        if "sample" in values.dims:
            values = values.median("sample")
        for number, network in enumerate(dataset["network"].values):
            curve = values.sel(network=network)
            if bool(curve.isnull().all()):
                continue
            figure.add_scatter(
                x=dataset["unit"].values,
                y=curve.values,
                name=str(network),
                legendgroup=str(network),
                showlegend=panel == 0,
                mode="lines+markers",
                line={"color": COLOURS[number], "dash": DASHES[number]},
                marker={"symbol": MARKERS[number], "size": 8},
                row=row,
                col=column,
            )
        if float(values.min()) > 0 and float(values.max()) > 20 * float(values.min()):
            figure.update_yaxes(type="log", exponentformat="power", row=row, col=column)
    figure.update_xaxes(tickangle=-45)
    return _styled(figure, height=300 * rows + 60)


def scree_figure(dataset: xarray.Dataset, units: Sequence[str]) -> Any:
    """Singular values in descending order, one panel a unit, one curve a sample of each network.

    dataset: `value` with dimensions network, unit, sample, index; NaN after the last value.
    """
    from plotly.subplots import make_subplots

    figure = make_subplots(1, len(units), subplot_titles=list(units), shared_yaxes=True, horizontal_spacing=0.03)
    for panel, unit in enumerate(units):
        for number, network in enumerate(dataset["network"].values):
            for sample in range(dataset.sizes["sample"]):
                values = dataset["value"].sel(network=network, unit=unit).isel(sample=sample).dropna("index").values
                figure.add_scatter(
                    x=[(k + 1) / len(values) for k in range(len(values))],
                    y=values,
                    name=str(network),
                    legendgroup=str(network),
                    showlegend=panel == 0 and sample == 0,
                    mode="lines",
                    line={"color": COLOURS[number], "dash": DASHES[number], "width": 1.5},
                    hovertemplate=f"{network}, sample {sample}<br>share %{{x:.3f}}, value %{{y:.4f}}<extra></extra>",
                    row=1,
                    col=panel + 1,
                )
        # After the curves: a line across an empty panel is not drawn.
        figure.add_hline(y=1, line={"color": "#999999", "width": 1}, row=1, col=panel + 1)
        figure.update_xaxes(title_text="rank / size", range=[0, 1], row=1, col=panel + 1)
    figure.update_yaxes(title_text="singular value", rangemode="tozero", row=1, col=1)
    return _styled(figure, height=420)


def _styled(figure: Any, height: int) -> Any:
    figure.update_layout(
        template="plotly_white",
        height=height,
        font={"family": "system-ui, sans-serif", "size": 13, "color": "#222222"},
        legend={"orientation": "h", "yref": "container", "y": 1, "yanchor": "top", "x": 0, "xanchor": "left"},
        margin={"l": 60, "r": 20, "t": 80, "b": 70},
    )
    return figure
