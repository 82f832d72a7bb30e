"""Figures from labelled datasets.

Colours are those of Okabe and Ito, which readers with any colour vision can tell apart; dashes and markers say the same
once more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import xarray

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES = ("solid", "dash", "dot", "dashdot")
MARKERS = ("circle", "diamond", "square", "triangle-up", "x", "cross", "star")
GREY = "#999999"
LOGARITHMIC_FROM = 20  # largest over smallest value, from which on an axis is logarithmic
SHOWN_POINTS = 500  # of a curve with more of them, evenly spaced; the ends are always there


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
                **_look(name, place, size=8),
                row=row,
                col=column,
            )
        if lowest > 0 and highest > LOGARITHMIC_FROM * lowest:
            figure.update_yaxes(type="log", exponentformat="power", row=row, col=column)
    figure.update_xaxes(tickangle=-45 if along == "unit" else 0, title_text="" if along == "unit" else along)
    return _styled(figure, height=300 * rows + 60)


def profile_figure(dataset: xarray.Dataset, panels: Mapping[str, str]) -> Any:
    """A profile over the units; where the dataset has a dimension `network`, one curve each."""
    return curves_figure(_networks(dataset), panels, along="unit")


def scree_figure(dataset: xarray.Dataset, units: Sequence[str]) -> Any:
    """Singular values in descending order, one panel a unit, one curve a sample (of each network, where there are
    several).

    dataset: `value` with dimensions (network,) unit, sample, index; NaN after the last value.
    """
    from plotly.subplots import make_subplots

    networks = _networks(dataset)
    figure = make_subplots(1, len(units), subplot_titles=list(units), shared_yaxes=True, horizontal_spacing=0.03)
    for panel, unit in enumerate(units):
        for place, (network, data) in enumerate(networks.items()):
            for sample in range(data.sizes["sample"]):
                values = data["value"].sel(unit=unit).isel(sample=sample).dropna("index").values
                shown = _thinned(len(values))
                figure.add_scatter(
                    x=[(k + 1) / len(values) for k in shown],
                    y=values[shown],
                    showlegend=panel == 0 and sample == 0 and len(networks) > 1,
                    mode="lines",
                    **{**_look(network, place), "line": {**_look(network, place)["line"], "width": 1.5}},
                    hovertemplate=f"{network}, sample {sample}<br>share %{{x:.3f}}, value %{{y:.4f}}<extra></extra>",
                    row=1,
                    col=panel + 1,
                )
        # After the curves: a line across an empty panel is not drawn.
        figure.add_hline(y=1, line={"color": GREY, "width": 1}, row=1, col=panel + 1)
        figure.update_xaxes(title_text="rank / size", range=[0, 1], row=1, col=panel + 1)
    figure.update_yaxes(title_text="singular value", rangemode="tozero", row=1, col=1)
    return _styled(figure, height=420)


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
    return _styled(figure, height=420)


def law_figure(datasets: Mapping[str, xarray.Dataset]) -> Any:
    """Counted ones against proved ones, as shares of n; one point a unit and sample, one colour a network."""
    import plotly.graph_objects as go

    figure = go.Figure()
    figure.add_scatter(x=[0, 1], y=[0, 1], mode="lines", line={"color": GREY, "width": 1}, showlegend=False)
    seen: list[str] = []
    for name, data in datasets.items():
        network = str(data.attrs.get("network", name))
        new = network not in seen
        seen += [network] if new else []
        figure.add_scatter(
            x=(data["ones_at_least"] / data["size"]).values.ravel(),
            y=(data["ones"] / data["size"]).values.ravel(),
            text=[f"{unit}, sample {sample}" for unit in data["unit"].values for sample in range(data.sizes["sample"])],
            mode="markers",
            showlegend=new,
            **_look(network, seen.index(network), size=9),
            hovertemplate=f"{network}<br>%{{text}}<br>proved %{{x:.4f}}, counted %{{y:.4f}}<extra></extra>",
        )
    figure.update_xaxes(title_text="proved to be 1, as a share of n: (n - z - 2 r) / n, or 0", range=[-0.02, 1.02])
    figure.update_yaxes(title_text="counted, as a share of n", range=[-0.02, 1.02])
    return _styled(figure, height=520)


def _networks(dataset: xarray.Dataset) -> dict[str, xarray.Dataset]:
    if "network" not in dataset.dims:
        return {str(dataset.attrs.get("network", "")): dataset}
    return {str(name): dataset.sel(network=name) for name in dataset["network"].values}


def _look(name: str, place: int, size: int = 6) -> dict[str, Any]:
    colour = COLOURS[place % len(COLOURS)]
    return {
        "name": name,
        "legendgroup": name,
        "line": {"color": colour, "dash": DASHES[place % len(DASHES)]},
        "marker": {"symbol": MARKERS[place % len(MARKERS)], "size": size, "color": colour},
    }


def _thinned(count: int) -> list[int]:
    if count <= SHOWN_POINTS:
        return list(range(count))
    return [round(k * (count - 1) / (SHOWN_POINTS - 1)) for k in range(SHOWN_POINTS)]


def _styled(figure: Any, height: int) -> Any:
    figure.update_layout(
        template="plotly_white",
        height=height,
        font={"family": "system-ui, sans-serif", "size": 13, "color": "#222222"},
        legend={"orientation": "h", "yref": "container", "y": 1, "yanchor": "top", "x": 0, "xanchor": "left"},
        margin={"l": 60, "r": 20, "t": 80, "b": 70},
    )
    return figure
