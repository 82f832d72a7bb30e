"""Paths of samples through a trunk: in a plane, step by step, and how straight they are."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy
import xarray

from skipscope.report.charts import Series, chart
from skipscope.report.style import COLOURS, look, names_of, thinned

PATHS_DRAWN = 100  # of more samples, evenly spaced


def trajectories(dataset: xarray.Dataset) -> Any:
    """One polyline per sample with one marker per state, one colour per class; one row per stage that has steps, a
    random plane at the left and the principal plane at the right."""
    stages, planes = stages_with_steps(dataset), names_of(dataset, "plane")
    shown = dataset.isel(sample=shown_paths(dataset))
    labels = names_of(shown, "label") if "label" in shown.coords else [""] * shown.sizes["sample"]
    rows = max(1, len(stages))
    series = []
    for panel, (stage, plane) in enumerate(product(stages, planes)):
        here = shown.isel(state=numpy.flatnonzero(dataset["state_stage"].values == stage))
        points = here["projection"].sel(plane=plane).transpose("sample", "state", "axis").values
        for place, label in enumerate(_in_order(labels)):
            members = [k for k, own in enumerate(labels) if own == label]
            text = [text for k in members for text in _texts(here, k)]
            name, labelled = f"class {label}" if label else "samples", panel == 0 and bool(label)
            x, y = _polylines(points[members])
            more = {"opacity": 0.75, **_look(name, place)}
            heading = "%{text}<br>%{x:.3g}, %{y:.3g}"
            series.append(Series(name, x, y, "", heading, panel, labelled=labelled, text=text, more=more))
    titles = [f"stage {stage}, {plane} plane" for stage, plane in product(stages, planes)]
    return chart(
        series,
        panels=titles or [""] * len(planes),
        columns=len(planes),
        x={},
        y={},
        height=380 * rows + 120,
        vertical_spacing=0.25 / rows,
    )


def stages_with_steps(dataset: xarray.Dataset) -> list[int]:
    """Their numbers."""
    of_state = dataset["state_stage"].values
    return [int(stage) for stage in dataset["stage"].values if (of_state == stage).sum() >= 2]


def shown_paths(dataset: xarray.Dataset) -> list[int]:
    return thinned(dataset.sizes["sample"], PATHS_DRAWN)


def _look(name: str, place: int) -> dict[str, Any]:
    """Classes after the last colour begin again with open markers."""
    found = look(name, place, size=5, width=1.2)
    found["marker"]["symbol"] += "-open" if place >= len(COLOURS) else ""
    return found


def _in_order(labels: list[str]) -> list[str]:
    """Each once; numbers by size."""
    return sorted(set(labels), key=lambda label: (0, int(label), "") if label.isdigit() else (1, 0, label))


def _polylines(points: numpy.ndarray) -> tuple[numpy.ndarray, numpy.ndarray]:
    """One after another with a gap behind each: (samples, states, 2)."""
    with_gap = numpy.pad(points, ((0, 0), (0, 1), (0, 0)), constant_values=numpy.nan)
    return with_gap[..., 0].ravel(), with_gap[..., 1].ravel()


def _texts(dataset: xarray.Dataset, sample: int) -> list[str]:
    name = f"sample {dataset['sample'].values[sample]}"
    return [*(f"{name}, {state}" for state in names_of(dataset, "state")), ""]
