"""Curves over units or epochs, one panel a quantity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from skipscope.report.figures.style import LOGARITHMIC_FROM, look, named_ticks, names_of, networks_in, styled

if TYPE_CHECKING:
    import xarray

PROFILE = {
    "state_rms": "state RMS at a unit's entry",
    "gradient_rms": "gradient RMS at a unit's entry",
    "jacobian_square": "mean square of a unit's singular values",
    "effective_rank": "effective rank of the entries of all samples",
    "branch_over_skip": "|branch| / |skip|",
    "cosine": "cosine of branch and skip",
}
TRAINING = {
    "loss": "training loss",
    "rate": "learning rate",
    "train_accuracy": "training accuracy",
    "test_accuracy": "test accuracy",
}


def curves(datasets: Mapping[str, xarray.Dataset], panels: Mapping[str, str], *, along: str) -> Any:
    """One panel a quantity (name: title), one curve a dataset, over the coordinate `along`.

    Where a quantity has samples, the curve is their median.
    """
    from plotly.subplots import make_subplots

    columns = 2 if len(panels) > 1 else 1
    rows = -(-len(panels) // columns)
    figure = make_subplots(rows, columns, subplot_titles=list(panels.values()), vertical_spacing=0.25 / rows)
    labelled: set[str] = set()
    for panel, quantity in enumerate(panels):
        row, column = panel // columns + 1, panel % columns + 1
        lowest, highest = float("inf"), 0.0
        for place, (name, dataset) in enumerate(datasets.items()):
            if quantity not in dataset:
                continue
            curve = dataset[quantity]
            if "sample" in curve.dims:
                curve = curve.median("sample")
            if bool(curve.isnull().all()):
                continue
            lowest, highest = min(lowest, float(curve.min())), max(highest, float(curve.max()))
            by_name = along == "unit"  # names as numbers, as in a Sequential, are names
            figure.add_scatter(
                x=list(range(dataset.sizes[along])) if by_name else dataset[along].values,
                y=curve.values,
                text=names_of(dataset, along) if by_name else None,
                showlegend=name not in labelled and len(datasets) > 1,
                mode="lines+markers",
                **look(name, place, size=8),
                hovertemplate=f"{name}<br>{'%{text}' if by_name else f'{along} %{{x}}'}: %{{y:.6g}}<extra></extra>",
                row=row,
                col=column,
            )
            labelled.add(name)
        if lowest > 0 and highest > LOGARITHMIC_FROM * lowest:
            figure.update_yaxes(type="log", exponentformat="power", row=row, col=column)
    if along == "unit":
        longest = max(datasets.values(), key=lambda data: data.sizes["unit"])
        figure.update_xaxes(showticklabels=False, **named_ticks(names_of(longest, "unit")))
        for column in range(1, columns + 1):  # names below the last panel of a column: others would run into titles
            figure.update_xaxes(showticklabels=True, row=rows - (column > (len(panels) - 1) % columns + 1), col=column)
    else:
        figure.update_xaxes(title_text=along)
    return styled(figure, height=260 * rows + 140)


def profile(datasets: xarray.Dataset | Mapping[str, xarray.Dataset]) -> Any:
    """Profiles over the units, one curve a network."""
    return _side_by_side(datasets, PROFILE, along="unit")


def training(datasets: xarray.Dataset | Mapping[str, xarray.Dataset]) -> Any:
    """Loss, learning rate and accuracies, epoch by epoch, one curve a network."""
    return _side_by_side(datasets, TRAINING, along="epoch")


def _side_by_side(
    datasets: xarray.Dataset | Mapping[str, xarray.Dataset], panels: Mapping[str, str], along: str
) -> Any:
    import xarray

    named = networks_in(datasets) if isinstance(datasets, xarray.Dataset) else datasets
    there = {key: title for key, title in panels.items() if any(_measured(data, key) for data in named.values())}
    return curves(named, there, along=along)


def _measured(dataset: xarray.Dataset, key: str) -> bool:
    return key in dataset and not bool(dataset[key].isnull().all())
