"""Curves over units, layers, stages or epochs, one panel per quantity, one curve per network; and paths of samples
through a trunk, in a plane."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any, NamedTuple

import numpy
import xarray

from skipscope.report.charts import Axis, Series, axis, chart
from skipscope.report.style import (
    COLOURS,
    by_network,
    kinds_of_branch,
    look,
    middle_and_spread,
    named_ticks,
    names_of,
    needs_logarithm,
    thinned,
)


class Quantity(NamedTuple):
    """What a panel shows: its title and the label of its axis."""

    title: str
    label: str


PROFILE = {
    "state_rms": Quantity("state RMS at a unit's entry", "RMS"),
    "gradient_rms": Quantity("gradient RMS at a unit's entry", "RMS"),
    "jacobian_square": Quantity("mean square of a unit's singular values", "mean square"),
    "effective_rank": Quantity("effective rank of the entries of all samples", "rank"),
    "branch_over_skip": Quantity("|branch| / |skip|", "ratio"),
    "cosine": Quantity("cosine of branch and skip", "cosine"),
}
TRAINING = {
    "loss": Quantity("training loss", "loss"),
    "rate": Quantity("learning rate", "rate"),
    "train_accuracy": Quantity("training accuracy", "accuracy"),
    "test_accuracy": Quantity("test accuracy", "accuracy"),
}
COLLAPSE = {
    "nc1": Quantity("NC1: within classes / between", "NC1"),
    "cdnv": Quantity("CDNV, distance-normalised variance", "CDNV"),
    "nc2_maximal_angle": Quantity("NC2: |cosine + 1/(C-1)|, mean", "distance"),
    "nearest_mean_accuracy": Quantity("accuracy of the nearest class mean", "accuracy"),
}
RANKS = {
    "error_share": Quantity("rank share of the error at its output", "share"),
    "gradient_share": Quantity("rank share of the weight gradient", "share"),
}
STEPS = {
    "step_norm": Quantity("length of the step", "length"),
    "cosine": Quantity("cosine with the next step", "cosine"),
}
STRAIGHTNESS = {
    "line_shape": Quantity("line shape score, 1 = straight", "score"),
    "step_variation": Quantity("variation of the steps, 0 = equal", "variation"),
    "first_component": Quantity("share of the first component, 1 = straight", "share"),
    "chord_ratio": Quantity("path / distance, 1 = straight", "ratio"),
}
PATHS_DRAWN = 100  # of more samples, evenly spaced


def profile(datasets: xarray.Dataset | Mapping[str, xarray.Dataset]) -> Any:
    """Profiles over the units, one curve per network. The effective rank is at most the number of samples."""
    caps = sorted({data.sizes["sample"] for data in by_network(datasets).values() if "sample" in data.dims})
    rank = PROFILE["effective_rank"]
    title = f"effective rank of all entries, at most {' or '.join(map(str, caps))}" if caps else rank.title
    return curves(datasets, {**PROFILE, "effective_rank": rank._replace(title=title)}, "unit")


def training(datasets: xarray.Dataset | Mapping[str, xarray.Dataset]) -> Any:
    """Loss, learning rate and accuracies, epoch by epoch, one curve per network."""
    return curves(datasets, TRAINING, "epoch", named=False)


def collapse(datasets: xarray.Dataset | Mapping[str, xarray.Dataset]) -> Any:
    """NC1, CDNV, NC2 and the nearest class mean layer by layer, one curve per network."""
    return curves(datasets, COLLAPSE, "layer")


def gradient_ranks(datasets: xarray.Dataset | Mapping[str, xarray.Dataset]) -> Any:
    """Rank over full rank of back-propagated errors and of weight gradients, layer by layer, one curve per network."""
    return curves({name: data for name, data in by_network(datasets).items() if "bound" in data}, RANKS, "layer")


def steps(datasets: xarray.Dataset | Mapping[str, xarray.Dataset]) -> Any:
    """Lengths of the steps and their cosines, medians over the samples, one curve per network."""
    return curves(datasets, STEPS, "step")


def straightness(datasets: xarray.Dataset | Mapping[str, xarray.Dataset]) -> Any:
    """The metrics stage by stage, medians over the samples, one curve per network."""
    return curves(datasets, STRAIGHTNESS, "stage", named=False).update_xaxes(dtick=1)


def curves(
    datasets: xarray.Dataset | Mapping[str, xarray.Dataset],
    quantities: Mapping[str, Quantity],
    along: str,
    *,
    named: bool = True,
) -> Any:
    """One panel per quantity that some dataset has, one curve per network, over a dimension.

    Where a quantity has samples, the curve is their median, with bars from the lower to the upper quartile; where it
    has a standard error instead, bars of that length. Units with different kinds of branch (attention, MLP) are
    separate curves. named: the dimension has names, not numbers.
    """
    networks = by_network(datasets)
    panels = {key: own for key, own in quantities.items() if any(_measured(d, key) for d in networks.values())}
    columns = 2 if len(panels) > 1 else 1
    rows = -(-len(panels) // columns)
    unnamed = len(networks) == 1 and "network" not in next(iter(networks.values())).attrs
    parts = [part for name, data in networks.items() for part in _parts("" if unnamed else name, data, along)]
    labelled = None if len(parts) > 1 else False
    series: list[Series] = []
    y: list[Axis] = []
    for panel, (key, own) in enumerate(panels.items()):
        values = []
        for look_at, (name, data, places) in enumerate(parts):
            if _measured(data, key):
                middle, below, above = middle_and_spread(data, key)
                x, text = (places, names_of(data, along)) if named else (data[along], None)
                hover = "%{text}: %{y:.3g}" if named else f"{along} %{{x}}: %{{y:.3g}}"
                line = Series(
                    name,
                    x,
                    middle,
                    hover,
                    panel=panel,
                    place=look_at,
                    size=8,
                    labelled=labelled,
                    text=text,
                    more={"meta": {"quantity": key}},
                )
                series.append(line.with_error(below, above))
                values.append(middle)
        y.append(axis(own.label, log=needs_logarithm(numpy.concatenate(values))))
    longest = max(networks.values(), key=lambda data: data.sizes[along])
    # Labels of the axis are below the last panel of a column: others would run into titles.
    last = [panel + columns >= len(panels) for panel in range(rows * columns)]
    ticks = named_ticks(names_of(longest, along)) if named else {}
    return chart(
        series,
        panels=[own.title for own in panels.values()],
        columns=columns,
        x=[{**ticks, "showticklabels": here, **axis(along if here else "")} for here in last],
        y=y,
        height=260 * rows + 140,
        vertical_spacing=0.25 / rows,
        horizontal_spacing=0.1,
    )


def _parts(network: str, data: xarray.Dataset, along: str) -> Iterator[tuple[str, xarray.Dataset, list[int]]]:
    """A network's curve, or one curve per kind of branch: its name, its members and their places on the axis."""
    kinds = kinds_of_branch(data) if along == "unit" else {}
    if len(kinds) < 2:
        yield network, data, list(range(data.sizes[along]))
        return
    for kind, places in kinds.items():
        yield ", ".join(filter(None, (network, kind))), data.isel(unit=places), places


def _measured(dataset: xarray.Dataset, key: str) -> bool:
    return key in dataset and not bool(dataset[key].isnull().all())


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
        x=axis("first axis of the plane"),
        y=axis("second axis of the plane"),
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
