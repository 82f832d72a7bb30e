"""Trajectories: are the paths of samples through the trunk straight, and their steps equal?"""

from __future__ import annotations

from collections.abc import Mapping

import numpy
import xarray

from skipscope.report.figures import steps, straightness, trajectories
from skipscope.report.figures.curves import shown_paths, stages_with_steps
from skipscope.report.table import Table, number
from skipscope.report.views.view import (
    Picture,
    View,
    described,
    made_by,
    named,
    samples_of,
    title_of,
    titles,
    unit_numbers,
)

COLUMNS = {
    "line_shape": "line shape",
    "step_variation": "step variation",
    "first_component": "first component",
    "chord_ratio": "path / distance",
}
LENGTH = "length of the step from the unit's entry to the next state"
PATHS = (
    "{title}: the states of {samples}{thinning}, from a stage's first to its last, one polyline per sample{colours}. "
    "Left: a fixed random Gaussian plane, as in the paper (Li and Papyan, figures 1 to 9), which shows equally spaced "
    "points on straight lines for trained residual networks. Right: the plane of the first two principal components "
    "of all these states ({shares} of their variance). A random plane can hide curvature; the line shape score "
    "cannot, 1 is straight: {scores}."
)
STEPS = (
    "{title}: |d|, the distance from a state to the next, and the cosine of a step and the next one of the same "
    "stage; medians over {samples}. A straight path with equal steps has a flat line at the left and 1 at the right."
)
STRAIGHTNESS = "{title}, stage by stage: medians over the samples. Stages with fewer than two steps have none."
ABOUT = (
    "Medians over {samples}, with quartiles. Line shape: number of steps over the length of the sum of their "
    "directions; 1 is straight, a random walk of L steps has about sqrt(L). Step variation: standard deviation over "
    "mean of the steps' lengths. First component: its share of the variance of a sample's states. Path / distance: "
    "the length of the path over that from its first state to its last. Steps of length zero have no direction and "
    "are left out of the line shape; they are counted over all samples."
)


def trajectories_view(datasets: Mapping[str, xarray.Dataset]) -> View:
    tables, figures, numbers = [], {}, []
    paths, lengths = titles("Trajectories", datasets), titles("Steps", datasets)
    for name, data in datasets.items():
        tables.append(_table(paths[name], data))
        if data.sizes["step"] == 0:
            continue
        study = made_by(data)
        if "projection" in data:
            figures[f"{name}-paths"] = Picture(_caption(paths[name], data), trajectories(data), study)
        caption = STEPS.format(title=lengths[name], samples=samples_of(data))
        figures[f"{name}-steps"] = Picture(caption, steps(data), study)
        medians = data["step_norm"].median("sample")
        numbers += unit_numbers(data, {LENGTH: medians}, along="step")
    several = {name: data for name, data in datasets.items() if len(_measured_stages(data)) > 1}
    if several:
        caption = STRAIGHTNESS.format(title=title_of("Straightness", several))
        figures[f"{next(iter(several))}-straightness"] = Picture(caption, straightness(named(several)))
    return View(tables, figures, described(datasets, _sentence, "Trajectories"), numbers)


def _caption(title: str, data: xarray.Dataset) -> str:
    shown, count = len(shown_paths(data)), data.sizes["sample"]
    stages = stages_with_steps(data)
    return PATHS.format(
        title=title,
        samples=samples_of(data),
        thinning=f" ({shown} of them drawn, evenly spaced)" if shown < count else "",
        colours=", coloured by class" if "label" in data.coords else "",
        shares=", ".join(f"{float(data['principal_share'].sel(stage=stage)):.1%}" for stage in stages),
        scores="; ".join(f"stage {stage} {_quartiles(data['line_shape'].sel(stage=stage))}" for stage in stages),
    )


def _table(title: str, data: xarray.Dataset) -> Table:
    rows = [
        [
            f"{stage}: {data['shape'].sel(stage=stage).item()}",
            str(_steps(data, stage)),
            *(_quartiles(data[key].sel(stage=stage)) for key in COLUMNS),
            str(int(data["zero_steps"].sel(stage=stage).sum())),
        ]
        for stage in data["stage"].values
    ]
    columns = ["stage: state", "steps", *COLUMNS.values(), "zero steps"]
    return Table(title, columns, rows, ABOUT.format(samples=samples_of(data)))


def _sentence(words: str, data: xarray.Dataset) -> str:
    measured = _measured_stages(data)
    if not measured:
        return f"{words}no stage has two steps, so that there are no trajectories to speak of."
    longest = max(measured, key=lambda stage: _steps(data, stage))
    count = _steps(data, longest)
    medians = {key: float(data[key].sel(stage=longest).median("sample")) for key in COLUMNS}
    where = f" of stage {longest}" if data.sizes["stage"] > 1 else ""
    return (
        f"{words}the paths of {samples_of(data)} through the {count} steps{where} have a line shape score of "
        f"{number(medians['line_shape'])} (1 is straight, a random walk has about {number(count**0.5)}), "
        f"their steps vary by {medians['step_variation']:.0%}, and the first principal component holds "
        f"{medians['first_component']:.1%} of the states' variance (medians)."
    )


def _measured_stages(data: xarray.Dataset) -> list[int]:
    """Their numbers."""
    return [int(stage) for stage in data["stage"].values if bool(data["line_shape"].sel(stage=stage).notnull().any())]


def _steps(data: xarray.Dataset, stage: int) -> int:
    return int((data["step_stage"].values == stage).sum())


def _quartiles(values: xarray.DataArray) -> str:
    there = values.values[~numpy.isnan(values.values)]
    if not there.size:
        return "-"
    if there.size == 1 or not numpy.isfinite(there).all():
        return number(float(numpy.median(there)))
    low, middle, high = numpy.quantile(there, [0.25, 0.5, 0.75])
    return f"{number(float(middle))} [{number(float(low))}, {number(float(high))}]"
