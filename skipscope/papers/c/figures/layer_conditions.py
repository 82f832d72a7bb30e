"""Condition numbers and ranks of trained networks against the layer: one colour a network, thin lines a seed.

Layers are counted from 1 on, as in the paper. States are those between blocks, the h of its theory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy

from skipscope.papers.c.figures.twins import draw_seeds, places
from skipscope.report.style import GREY, look, names_of, styled

if TYPE_CHECKING:
    import xarray

SYMBOLS = {"infinite": "triangle-up", "numerically infinite": "triangle-up-open", "overflow": "x"}
APART = 0.09  # of the finite values' decades, between the lines of two networks
SHARES = {"error_share": "back-propagated errors", "gradient_share": "weight gradients"}
LINE = {"color": GREY, "width": 1, "dash": "dot"}


def weight_conditions(dataset: xarray.Dataset) -> Any:
    """Condition number of the weights against the layer: the paper's figures 7, 8, 10 and 12."""
    from plotly.subplots import make_subplots

    figure = make_subplots(1, 1)
    _conditions(figure, numbered(dataset), "weight")
    figure.update_xaxes(title_text="layer")
    return styled(figure, height=420)


def hidden_conditions(dataset: xarray.Dataset) -> Any:
    """Condition number, rank over full rank and dead units of the hidden states: the paper's figures 9, 11 and 13."""
    from plotly.subplots import make_subplots

    titles = ["condition number", "numerical rank / full rank", "units that are zero for all samples"]
    figure = make_subplots(
        3, 1, subplot_titles=titles, shared_xaxes=True, vertical_spacing=0.07, row_heights=[0.5, 0.25, 0.25]
    )
    states = between_blocks(dataset)
    _conditions(figure, states, "hidden")
    panels = {2: states["hidden_rank"] / states["hidden_full_rank"], 3: states["dead_units"]}
    for row, values in panels.items():
        for name, place in places(names_of(dataset, "network")).items():
            draw_seeds(figure, values.sel(network=name), name, place, labelled=False, row=row, col=1)
    figure.update_yaxes(range=[0, 1.05], row=2, col=1)
    figure.update_yaxes(rangemode="tozero", row=3, col=1)
    figure.update_xaxes(title_text="layer", row=3, col=1)
    return styled(figure, height=780)


def rank_shares(dataset: xarray.Dataset) -> Any:
    """Rank over full rank of back-propagated errors and of weight gradients against the layer, a row a time."""
    from plotly.subplots import make_subplots

    times = names_of(dataset, "when")
    titles = [f"{what}, {when}" for when in times for what in SHARES.values()]
    figure = make_subplots(
        len(times),
        2,
        subplot_titles=titles,
        shared_yaxes=True,
        vertical_spacing=0.25 / len(times),
        horizontal_spacing=0.05,
    )
    for row, when in enumerate(times):
        for column, key in enumerate(SHARES):
            for name, place in places(names_of(dataset, "network")).items():
                values = numbered(dataset)[key].sel(network=name, when=when)
                draw_seeds(figure, values, name, place, labelled=row == column == 0, row=row + 1, col=column + 1)
    figure.update_xaxes(title_text="layer", row=len(times))
    figure.update_yaxes(range=[0, 1.05])
    figure.update_yaxes(title_text="rank / full rank", col=1)
    return styled(figure, height=300 * len(times) + 110)


def numbered(dataset: xarray.Dataset) -> xarray.Dataset:
    return dataset.assign_coords(layer=range(1, dataset.sizes["layer"] + 1))


def between_blocks(dataset: xarray.Dataset) -> xarray.Dataset:
    """At the layers whose states are between blocks; without the output, which is no hidden state."""
    first = dataset["between"].isel(network=0, seed=0).values
    return numbered(dataset).isel(layer=numpy.flatnonzero(first))


def _conditions(figure: Any, dataset: xarray.Dataset, key: str) -> None:
    """Finite ones as lines; above them a dotted line for each network that has others, with a mark a layer."""
    here: dict[str, Any] = {"row": 1, "col": 1}
    values, statuses = dataset[f"{key}_condition"], dataset[f"{key}_status"].astype(str)
    finite = values.where(statuses == "finite")
    drawn = finite.values[numpy.isfinite(finite.values)]
    low, high = numpy.log10([drawn.min(), drawn.max()]) if drawn.size else (0.0, 1.0)
    step = APART * max(high - low, 1.0)
    level = high + step
    met: set[str] = set()
    for name, place in places(names_of(dataset, "network")).items():
        draw_seeds(figure, finite.sel(network=name), name, place, labelled=True, **here)
        mine = statuses.sel(network=name).transpose("seed", "layer")
        beyond = [status for status in SYMBOLS if bool((mine == status).any())]
        for status in beyond:
            _marks(figure, (mine == status), status, name, place, 10**level, **here)
        if beyond:
            figure.add_hline(y=10**level, line=LINE, **here)
            level += step
            met |= set(beyond)
    for status in [status for status in SYMBOLS if status in met]:
        figure.add_scatter(
            x=[None],
            y=[None],
            mode="markers",
            name=status,
            marker={"symbol": SYMBOLS[status], "size": 9, "color": GREY},
            meta={"drawn": "only"},
            **here,
        )
    figure.update_yaxes(type="log", exponentformat="power", title_text="condition number", **here)


def _marks(figure: Any, there: xarray.DataArray, status: str, name: str, place: int, level: float, **here: int) -> None:
    """One mark a layer, the fainter the fewer seeds have it; there: seed, layer."""
    counts, seeds = there.values.sum(0), there.sizes["seed"]
    layers = numpy.flatnonzero(counts)
    style = look(name, place)
    texts = [f"{status} in {counts[k]} of {seeds} seeds" if seeds > 1 else status for k in layers]
    figure.add_scatter(
        x=there["layer"].values[layers],
        y=numpy.full(len(layers), level),
        text=texts,
        mode="markers",
        name=name,
        legendgroup=style["legendgroup"],
        showlegend=False,
        marker={
            "symbol": SYMBOLS[status],
            "size": 8,
            "color": style["marker"]["color"],
            "opacity": 0.3 + 0.7 * counts[layers] / seeds,
        },
        meta={"y": texts},
        hovertemplate=f"{name}, layer %{{x}}<br>%{{text}}<extra></extra>",
        **here,
    )
