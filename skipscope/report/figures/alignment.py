"""Residual alignment: Jacobians in each other's singular vectors, and their largest values against depth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy
import xarray

from skipscope.errors import InputError
from skipscope.measure.alignment_summary import depth_fit
from skipscope.report.charts import Series, axis, chart, reference
from skipscope.report.style import COLOURS, GREY, marked, named_ticks, names_of, styled, thinned

WAYS = {"ujv": "|U<sub>j</sub>' J<sub>i</sub> V<sub>j</sub>|", "vju": "|V<sub>j</sub>' J<sub>i</sub> U<sub>j</sub>|"}
UNITS_IN_GRID = 18  # panels in a row of the grid
VECTORS_IN_PANEL = 10  # rows and columns of a panel
VALUES_AGAINST_DEPTH = 15
SCALE = "Cividis"


def alignment(dataset: xarray.Dataset, way: str = "ujv", sample: int = 0) -> Any:
    """All panels |U_j' J_i V_j| (or "vju") of one sample as one picture, each relative to its own largest entry.

    dataset: of `ss.alignment`. Rows of panels: whose Jacobian; columns: whose vectors; blank where states differ in
    shape. sample: its place in the dataset.
    """
    import plotly.graph_objects as go

    if way not in WAYS:
        raise InputError(f"way={way!r}: expected one of {', '.join(WAYS)}")
    if way not in dataset:
        raise InputError(f"the dataset has no grids '{way}'; measure with ss.alignment(..., grids=True)")
    if not 0 <= sample < dataset.sizes["sample"]:
        raise InputError(f"sample={sample}: expected a place below {dataset.sizes['sample']}")
    units = shown_units(dataset)
    size = min(VECTORS_IN_PANEL, dataset.sizes["row"])
    picked = dataset[way].isel(unit=units, other=units, sample=sample, row=slice(size), column=slice(size))
    panels = abs(picked.transpose("unit", "row", "other", "column").values.astype(numpy.float32))
    largest = numpy.where(numpy.isnan(panels), 0, panels).max((1, 3), keepdims=True)
    with numpy.errstate(invalid="ignore"):
        relative = panels / largest  # a panel of zeros is blank
    count = len(units)
    names = [marked(dataset, names_of(dataset, "unit")[k]) for k in units]
    figure = go.Figure()
    figure.add_heatmap(
        z=relative.reshape(count * size, count * size),
        colorscale=SCALE,
        zmin=0,
        zmax=1,
        colorbar={"title": "of the<br>largest", "thickness": 12},
        hoverongaps=False,
        hovertemplate="%{z:.3f} of the panel's largest entry<extra></extra>",
    )
    x, y = _lines(count, size)
    line, only = {"color": GREY, "width": 0.6}, {"drawn": "only"}
    figure.add_scatter(x=x, y=y, mode="lines", line=line, hoverinfo="skip", showlegend=False, meta=only)
    ticks = named_ticks(names)
    centres = [(place + 0.5) * size - 0.5 for place in ticks["tickvals"]]
    edges = [-0.5, count * size - 0.5]
    axis = {"tickvals": centres, "ticktext": ticks["ticktext"], "showgrid": False, "zeroline": False}
    figure.update_xaxes(**axis, range=edges, tickangle=-45, title_text="j: whose vectors", constrain="domain")
    figure.update_yaxes(
        **axis, range=edges[::-1], title_text="i: whose Jacobian", scaleanchor="x", scaleratio=1, constrain="domain"
    )
    return styled(figure, height=640).update_layout(margin={"t": 20})


def coupling(dataset: xarray.Dataset) -> Any:
    """m_K of every pair of units, means over the samples: with U_j' J_i V_j and with V_j' J_i U_j."""
    from plotly.subplots import make_subplots

    figure = make_subplots(1, 2, subplot_titles=list(WAYS.values()), horizontal_spacing=0.08, shared_yaxes=True)
    names = [marked(dataset, name) for name in names_of(dataset, "unit")]
    top = max(1.0, *(float(dataset[f"coupling_{way}"].mean("sample").max()) for way in WAYS))
    for place, way in enumerate(WAYS):
        figure.add_heatmap(
            z=dataset[f"coupling_{way}"].mean("sample").transpose("unit", "other").values.astype(numpy.float32),
            coloraxis="coloraxis",
            hoverongaps=False,
            customdata=[[f"{i}, in the vectors of {j}" for j in names] for i in names],
            hovertemplate="%{customdata}: %{z:.3f}<extra></extra>",
            row=1,
            col=place + 1,
        )
        ticks = named_ticks(names)
        edges = [-0.5, len(names) - 0.5]
        figure.update_xaxes(
            **{**ticks, "range": edges}, showgrid=False, zeroline=False, title_text="j: whose vectors", col=place + 1
        )
        figure.update_yaxes(
            **{**ticks, "range": edges[::-1], "tickangle": 0}, showgrid=False, zeroline=False, col=place + 1
        )
    figure.update_yaxes(title_text="i: whose Jacobian", col=1)
    figure.update_layout(
        coloraxis={
            "colorscale": SCALE,
            "reversescale": True,
            "cmin": 0,
            "cmax": top,
            "colorbar": {"title": "m", "thickness": 12},
        }
    )
    return styled(figure, height=480)


def decay(dataset: xarray.Dataset) -> Any:
    """1 / s_1 against depth with the least-squares line that leaves out the first quarter of the units; and the largest
    singular values, those up to the number of classes in one colour and the rest in another.

    Means over the samples, with the standard deviation of 1 / s_1; open markers did not converge.
    """
    names, classes = names_of(dataset, "unit"), int(dataset.attrs["classes"])
    values = dataset["value"].isel(rank=slice(VALUES_AGAINST_DEPTH)).mean("sample").transpose("rank", "unit").values
    labels = [marked(dataset, name) for name in names]
    with numpy.errstate(divide="ignore"):
        inverse = numpy.where(values[0] > 0, 1 / values[0], numpy.nan)
    fit = depth_fit(dataset)
    colours = [COLOURS[0] if place >= fit.first else GREY for place in range(len(names))]
    points = {"line": None, "legendgroup": None, "name": None, "marker": {"size": 8, "color": colours}}
    hover, heading = "1 / s1: %{y:.3g}", "%{text}, unit %{x}"
    units = range(1, len(names) + 1)
    inverses = Series(
        "units", units, inverse, hover, heading, 0, 0, "markers", labelled=False, text=labels, more=points
    )
    first = dataset["value"].isel(rank=0).transpose("unit", "sample").values
    with numpy.errstate(divide="ignore"):
        spread = numpy.where(first > 0, 1 / first, numpy.nan).std(1)
    series = [inverses.with_error(spread if first.shape[1] > 1 else None)]
    if numpy.isfinite(fit.slope):
        ends = [fit.first + 1, len(names)]
        line: dict[str, Any] = {"color": COLOURS[1], "dash": "dash", "width": 2}
        name = f"line: slope {fit.slope:.3g}, R² {fit.r_squared:.3f}"
        fitted = reference(ends, [fit.slope * end + fit.intercept for end in ends], name, **line)
        series.append(replace(fitted, more={**fitted.more, "hoverinfo": None}))
    series += leading_values(values, classes, f"the first {classes}", 1, names, labels)
    return chart(
        series,
        panels=["1 / s<sub>1</sub>", "singular values"],
        x=axis("unit"),
        y=[axis("1 / singular value", rangemode="tozero"), axis("singular value", rangemode="tozero")],
        height=400,
        horizontal_spacing=0.1,
    )


def leading_values(
    values: numpy.ndarray,
    classes: int,
    title: str,
    panel: int,
    names: Sequence[str] = (),
    labels: Sequence[str] = (),
) -> Iterator[Series]:
    """Singular values (rank, unit) against depth: those up to the number of classes in one look, others in another.

    names, labels: of the units, without and with the mark of those that did not converge.
    """
    for place, row in enumerate(values):
        inside = place < classes
        name, group, symbol = (title, "inside", "circle") if inside else ("after them", "after", "diamond")
        open_markers = [symbol + ("" if label == own else "-open") for own, label in zip(names, labels, strict=True)]
        more = {
            "legendgroup": group,
            "line": {"color": COLOURS[0 if inside else 1], "width": 1.2, "dash": "solid" if inside else "dot"},
            "marker": {"size": 5 if names else 4, "symbol": open_markers or symbol},
        }
        number = f"s{place + 1}: %{{y:.3g}}"
        heading, hover = ("%{text}, unit %{x}", number) if names else (f"unit %{{x}}, {number}", "")
        units = range(1, len(row) + 1)
        yield Series(name, units, row, hover, heading, panel, 0, text=list(labels) or None, more=more)


def energy(dataset: xarray.Dataset) -> Any:
    """The share of |J|_F^2 in the first C singular values, and s_{C+1} / s_1: markers are samples, the line medians."""
    classes, names = int(dataset.attrs["classes"]), names_of(dataset, "unit")
    titles = {
        "energy": f"share of |J|² in the first {classes} singular values",
        "gap": f"s<sub>{classes + 1}</sub> / s<sub>1</sub>",
    }
    units, labels = list(range(len(names))), [marked(dataset, name) for name in names]
    one = {"legendgroup": "sample", "line": None, "marker": {"size": 5, "color": COLOURS[5]}}
    median = {"line": {"color": COLOURS[0], "width": 2}, "marker": None}
    series = []
    for panel, key in enumerate(titles):
        for sample in thinned(dataset.sizes["sample"], 20):
            heading = f"%{{text}}, sample {dataset['sample'].values[sample]}: %{{y:.3g}}"
            values = dataset[key].isel(sample=sample)
            series.append(Series("one sample", units, values, "", heading, panel, 0, "markers", text=names, more=one))
        heading = "%{text}, median: %{y:.3g}"
        values = dataset[key].median("sample")
        series.append(Series("median", units, values, "", heading, panel, 0, "lines", text=labels, more=median))
    panels, x = list(titles.values()), {**named_ticks(names), **axis("unit")}
    y = [axis("share", range=[0, 1.03]), axis("ratio", range=[0, 1.03])]
    return chart(series, panels=panels, x=x, y=y, height=400, horizontal_spacing=0.1)


def shown_units(dataset: xarray.Dataset) -> list[int]:
    """Places of the units in the grid: all, or evenly spaced ones."""
    return thinned(dataset.sizes["unit"], UNITS_IN_GRID)


def _lines(count: int, size: int) -> tuple[list[float | None], list[float | None]]:
    """Between panels, all as one trace."""
    x: list[float | None] = []
    y: list[float | None] = []
    end = count * size - 0.5
    for place in range(count + 1):
        at = place * size - 0.5
        x += [at, at, None, -0.5, end, None]
        y += [-0.5, end, None, at, at, None]
    return x, y
