"""Figures of several runs side by side: axes that show the same have the same range, so that eyes can compare."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy

MARGIN = 0.05  # of the range, at both ends
TIME = "step"  # the title of axes along which trainings of different length are compared


def share_axes(figures: Sequence[Any]) -> None:
    """Give equal ranges to the y axes of figures of Plotly with the same panels, in place.

    Left alone: an axis that has a range already, one of a heat map or of stacked bars, and one that is logarithmic in
    some of the figures only where another has values that a logarithm cannot show.
    """
    if len(figures) < 2 or len({_axes(figure) for figure in figures}) > 1:
        return
    _share_time(figures)
    for key in _axes(figures[0]):
        axes = [figure.layout[key] for figure in figures]
        if any(axis.range is not None or axis.type == "category" for axis in axes):
            continue
        found = [list(_values(figure, key)) for figure in figures]
        values = numpy.array([value for own in found for value in own])
        if not all(found) or not values.size:
            continue
        logarithmic = any(axis.type == "log" for axis in axes)
        if logarithmic and not bool((values > 0).all()):
            continue
        low, high = _ends(values, logarithmic, any(axis.rangemode == "tozero" for axis in axes))
        for figure in figures:
            shown = {"type": "log", "exponentformat": "power"} if logarithmic else {}
            figure.layout[key].update(range=[low, high], **shown)


def _share_time(figures: Sequence[Any]) -> None:
    """A longer training has more steps: all panels along steps reach to the last one of all."""
    axes = [axis for figure in figures for axis in figure.select_xaxes()]
    if {axis.title.text for axis in axes} - {None, ""} != {TIME} or any(axis.ticktext for axis in axes):
        return  # steps that have names are those of a path through units
    steps = [_numbers(trace.x) for figure in figures for trace in figure.data]
    ends = [float(along.max()) for along in steps if along.size]
    for figure in figures if ends else ():
        figure.update_xaxes(range=[-0.02 * max(ends), 1.02 * max(ends)])


def _axes(figure: Any) -> tuple[str, ...]:
    return tuple(sorted(key for key in figure.layout.to_plotly_json() if key.startswith("yaxis")))


def _ends(values: numpy.ndarray, logarithmic: bool, from_zero: bool) -> tuple[float, float]:
    shown = numpy.log10(values) if logarithmic else values
    low, high = float(shown.min()), float(shown.max())
    margin = MARGIN * (high - low) or 0.1
    if from_zero and not logarithmic and low >= 0:
        return 0.0, high + margin
    return low - margin, high + margin


def _values(figure: Any, key: str) -> Iterator[float]:
    """Finite ones of all curves on an axis, with the ends of their error bars; none where there is anything else."""
    name = key.replace("axis", "")
    traces = [trace for trace in figure.data if (trace.yaxis or "y") == name]
    if any(trace.type != "scatter" for trace in traces):
        return
    for trace in traces:
        y = _numbers(trace.y)
        ends: list[numpy.ndarray] = [y]
        bars: Mapping[str, Any] = trace.error_y.to_plotly_json()
        if bars.get("array") is not None:
            ends += [y + _numbers(bars["array"]), y - _numbers(bars["arrayminus"])]
        for end in ends:
            yield from end[numpy.isfinite(end)].tolist()


def _numbers(values: Any) -> numpy.ndarray:
    """Of a trace: a sequence, nothing, or what plotly writes for an array in JSON, its bytes in base64."""
    if isinstance(values, Mapping):
        return numpy.frombuffer(base64.b64decode(values["bdata"]), numpy.dtype(values["dtype"])).astype(float)
    return numpy.asarray([] if values is None else values, float)
