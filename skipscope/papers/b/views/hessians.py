"""Hessians of n-shortcut networks before training and on its way: figures 4, 5 and 6 of Demystifying ResNet."""

from __future__ import annotations

import math
from collections.abc import Mapping

import xarray

from skipscope.papers.b.figures.hessians import against_depth, against_loss, learning_dynamics, mean_and_spread
from skipscope.report.style import names_of
from skipscope.report.table import Columns, EachOf, Table, number, table_of
from skipscope.report.views.view import Picture, View, counted, made_by

DEPTH = (
    "Condition number of the Hessian before training against depth, on {data}: the largest |lambda| over the 10th "
    "percentile of |lambda|. Points are means over {runs}{fewer}, bars a standard deviation. The paper (Li et al., "
    "figure 4) shows it level for 2-shortcut networks, growing for plain ones, and growing fastest from Xavier's "
    "weights. 1-shortcut networks from zero are said to be like orthogonal weights. {masked}"
)
EIGENVALUES = (
    "The largest |lambda| of the Hessian and the 10th percentile of |lambda|, as networks of depth {depth} are trained "
    "on {data} and the loss falls from left to right. Lines are means over {runs}, bands a standard deviation. The "
    "paper (figure 5) shows that the two are closest for 2-shortcut networks, above all where the loss is large. A "
    "network that is better conditioned has the lower curve on the left and the higher one on the right."
)
CONDITION = (
    "The ratio of the two quantities above, and the index: the share of negative eigenvalues. The paper (figures 5 and "
    "6, left) says that 2-shortcut networks have the lower curves at every loss, and that orthogonal weights end up "
    "with a like condition number: the curves meet at the right. At the optimum itself the rank is the square of the "
    "width at most, so that all ratios grow without bound towards it."
)
EPOCHS = (
    "Norm of the gradient and index of one 2-shortcut run of depth {depth} on {data}, learning rate {rate:g}. The "
    "paper (figure 6, right) shows that the index drops where the gradient peaks. Grey lines: the peak of the gradient "
    "(solid), the steepest drop of the index (dotted)."
)
RATIO = "log10 of largest / 10th percentile of |lambda|"


def initial_view(datasets: Mapping[str, xarray.Dataset]) -> View:
    tables, figures, sentences = [], {}, []
    for name, data in datasets.items():
        tables.append(_by_depth(data))
        counts = data["log_condition"].notnull() | (data["masked"] == 1)
        runs = counts.sum("seed").max("architecture")
        fewer = [
            f"{int(n)} at depth {int(depth)}" for depth, n in zip(data["depth"], runs, strict=True) if n < runs.max()
        ]
        lost = int(data["masked"].sum())
        caption = DEPTH.format(
            data=data.attrs["data"],
            runs=counted(int(runs.max()), "run"),
            fewer=f" ({', '.join(fewer)})" if fewer else "",
            masked=f"{counted(lost, 'value')} above {_ceiling(data)}, noise of float64, left out and marked by crosses."
            if lost
            else "",
        ).strip()
        figures[f"{name}-depth"] = Picture(caption, against_depth(data, title=RATIO), made_by(data))
        flat = data["log_condition"].sel(architecture="2-shortcut").mean("seed")
        sentences.append(
            f"Before training, log10 of the condition number of 2-shortcut networks is {float(flat.min()):.3f} to "
            f"{float(flat.max()):.3f} at depths {int(data['depth'].min())} to {int(data['depth'].max())}."
        )
    return View(tables, figures, sentences)


def dynamics_view(datasets: Mapping[str, xarray.Dataset]) -> View:
    tables, figures = [], {}
    for name, data in datasets.items():
        words = {"depth": data.attrs["depth"], "data": data.attrs["data"], "runs": counted(data.sizes["seed"], "run")}
        tables += [_by_loss(data, "log_condition", RATIO), _by_loss(data, "index", "Index")]
        if "at_excess" in data:  # version 0.1.0 has no such numbers
            tables.append(_at_excess(data))
        eigenvalues = {"log_largest": "log10 of the largest |lambda|", "log_tenth": "log10 of the 10th percentile"}
        condition = {"log_condition": "log10 of their ratio", "index": "share of negative eigenvalues"}
        figures[f"{name}-eigenvalues"] = Picture(
            EIGENVALUES.format(**words), against_loss(data, eigenvalues), made_by(data)
        )
        figures[f"{name}-condition"] = Picture(CONDITION, against_loss(data, condition), made_by(data))
    return View(tables, figures)


def epochs_view(datasets: Mapping[str, xarray.Dataset]) -> View:
    tables, figures = [], {}
    for name, data in datasets.items():
        tables.append(_turning_points(data))
        figures[name] = Picture(EPOCHS.format(**data.attrs), learning_dynamics(data), made_by(data))
    return View(tables, figures)


def _over_runs(quantity: str, digits: int) -> EachOf:
    """For each kind of network: mean and standard deviation of several runs, one run's value, a dash for none."""

    def cell(here: xarray.Dataset) -> str:
        mean, spread, count = map(float, mean_and_spread(here[quantity]))
        if not count or math.isnan(mean):
            return "-"
        return f"{mean:.{digits}f} ± {spread:.{digits}f}" if count > 1 else f"{mean:.{digits}f}"

    return EachOf("architecture", cell)


def _ceiling(data: xarray.Dataset) -> str:
    return f"1e{data.attrs['log_ceiling']:g}"


def _by_depth(data: xarray.Dataset) -> Table:
    about = (
        "log10 of the largest |lambda| over the 10th percentile of |lambda|, mean and standard deviation over runs; "
        f"one number where there is one run. Masked: values above {_ceiling(data)}, which are rounding noise."
    )
    columns: Columns = {"{0}": _over_runs("log_condition", 3), "masked": ("masked", "sum")}
    return table_of(data, "Conditioning before training, by depth", columns, about, rows={"depth": "depth"})


def _by_loss(data: xarray.Dataset, quantity: str, title: str) -> Table:
    rates = ", ".join(
        f"{name} {float(data['rate'].sel(architecture=name)):g}" for name in names_of(data, "architecture")
    )
    about = (
        f"Mean and standard deviation over {counted(data.sizes['seed'], 'run')} of depth {data.attrs['depth']}, "
        f"interpolated at these losses; one number where one run passes a loss, a dash where none does. The best "
        f"linear map has {float(data.attrs['lowest_loss']):.4f}. Learning rates: {rates}."
    )
    columns: Columns = {
        "loss": lambda here: f"{float(here['level']):.4f}",
        "{0}": _over_runs(quantity, 4 if quantity == "index" else 2),
    }
    return table_of(data, f"{title}, by loss", columns, about, rows={"level": ""})


def _at_excess(data: xarray.Dataset) -> Table:
    about = (
        f"{RATIO}, mean and standard deviation over {counted(data.sizes['seed'], 'run')} where they first fall to "
        "these losses above that of the best linear map. A dash where none does: a run can begin below, or end above."
    )
    columns: Columns = {"{0}": _over_runs("at_excess", 2)}
    return table_of(data, "Conditioning at equal distances from the optimum", columns, about, rows={"excess": "excess"})


def _turning_points(data: xarray.Dataset) -> Table:
    rows = []
    for seed in data["seed"].values:
        one = data.sel(seed=seed).dropna("epoch", subset=["step"])
        steps = [number(float(one[key])) for key in ("peak", "drop", "fall", "converged")]
        first, last = (f"{float(one['index'][place]):.4f}" for place in (0, -1))
        rows.append([str(int(seed)), *steps, first, f"{float(one['index'].min()):.4f}", last])
    columns = ["run", "gradient peaks", "index drops", "fall", "converged", "first index", "lowest", "last"]
    about = (
        "2-shortcut networks: the steps of the largest gradient, of the steepest drop of the index, and at which 99 % "
        "of the loss above that of the best linear map is gone. Fall: how many steps it takes from 90 % to 10 % of it."
    )
    return Table("Index and gradient", columns, rows, about)
