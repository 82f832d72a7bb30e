"""How a network uses its depth, token by token: units or states below one another, the words of a text side by side."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy
import xarray

from skipscope.report.style import named_ticks, names_of, styled


class Panel(NamedTuple):
    title: str
    along: str  # the dimension that goes down
    unit: str  # of measurement


PANELS = {
    "influence": Panel("influence", "unit", ""),
    "lens_kl": Panel("logit lens, distance from the prediction", "state", " nats"),
    "skip_kl": Panel("change of the prediction without the branch", "unit", " nats"),
}
WORDS_ON_AXIS, NAMES_ON_AXIS = 40, 16
ROW_HEIGHT = 340
SCALE = "Cividis"


def depth_tokens(dataset: xarray.Dataset, sample: int = 0) -> Any:
    """Numbers of one sample, with the text of its tokens on the axis. Colours are on a logarithmic scale.

    dataset: of `ss.depth_use`, with the coordinate `token`. sample: its place in the dataset.
    """
    from plotly.subplots import make_subplots

    here = dataset.isel(sample=sample)
    panels = {key: one for key, one in PANELS.items() if key in here and "position" in here[key].dims}
    words = [f"{place}: {text}" for place, text in zip(here["position"].values, here["token"].values, strict=True)]
    figure = make_subplots(len(panels), 1, subplot_titles=[one.title for one in panels.values()])
    for row, (key, one) in enumerate(panels.items(), start=1):
        names = names_of(here, one.along)
        values = here[key].transpose(one.along, "position").values.astype(float)
        with numpy.errstate(divide="ignore", invalid="ignore"):
            shades = numpy.log10(numpy.where(values > 0, values, numpy.nan))
        colours = {"coloraxis": f"coloraxis{row if row > 1 else ''}"}
        hover = [[f"{name}, {word}: {value:.3g}{one.unit}" for word, value in zip(words, line, strict=True)]
                 for name, line in zip(names, values, strict=True)]  # fmt: skip
        figure.add_heatmap(
            z=shades.astype(numpy.float32),
            customdata=hover,
            hovertemplate="%{customdata}<extra></extra>",
            hoverongaps=False,
            row=row,
            col=1,
            **colours,
        )
        figure.update_xaxes(
            **{**named_ticks(words, WORDS_ON_AXIS), "range": [-0.5, len(words) - 0.5]},
            showgrid=False,
            zeroline=False,
            row=row,
        )
        figure.update_yaxes(
            **{**named_ticks(names, NAMES_ON_AXIS), "range": [len(names) - 0.5, -0.5], "tickangle": 0},
            showgrid=False,
            zeroline=False,
            row=row,
        )
        figure.update_layout({colours["coloraxis"]: _colours(shades, row, len(panels))})
    return styled(figure, height=ROW_HEIGHT * len(panels) + 80)


def _colours(shades: numpy.ndarray, row: int, rows: int) -> dict[str, Any]:
    """A logarithmic scale from the 2nd percentile on: a zero within rounding is not worth most of the colours."""
    there = shades[numpy.isfinite(shades)]
    low, high = (float(numpy.percentile(there, 2)), float(there.max())) if there.size else (0.0, 1.0)
    ticks = [float(tick) for tick in range(int(numpy.ceil(low)), int(numpy.floor(high)) + 1)] or [low, high]
    bar = {
        "thickness": 12,
        "len": 0.8 / rows,
        "y": 1 - (row - 0.5) / rows,
        "tickvals": ticks,
        "ticktext": [f"{10.0**tick:.3g}" for tick in ticks],
    }
    return {"colorscale": SCALE, "cmin": low, "cmax": high if high > low else low + 1, "colorbar": bar}
