"""Trained n-shortcut networks: how far they get, how large their weights are, and which shortcuts gain from depth."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy
import xarray

from skipscope.papers.b.figures.training import (
    by_depth,
    log_losses,
    norms_in_training,
    spread,
    state_variances,
    tuned_losses,
)
from skipscope.report.table import Table, number, with_error
from skipscope.report.views.view import Picture, View, counted

LEARNING, NORMS, SHORTCUTS = ("B.learning",), ("B.norms",), ("B.shortcuts",)
MARKS = "Means and standard deviations over seeds; an open marker is a rate on the edge of its grid."

LINEAR = (
    "Linear networks after {steps} steps of gradient descent on {data}, at the learning rate that is best on other "
    "seeds. Left: how far they are from the lowest loss of a linear map; right: that rate. The paper (Li et al., "
    "figure 7) shows 2-shortcut networks close to the optimum at every depth, and at higher rates than plain ones, "
    f"which get worse with depth: its curve should be the lowest on the left and the highest on the right. {MARKS}"
)
RELU = (
    "Networks with ReLUs in the middle, as many in each of them, after {steps} steps on {samples} samples of {data}. "
    "The paper (Li et al., figure 8) shows 2-shortcut networks that get better with depth, and plain ones that fail at "
    "depth 64: the curves should part to the right. A network that ends alike at all learning rates has no best one, "
    f"and no point on the right. {MARKS}"
)
UNEQUAL_RELUS = (
    "The same for shortcuts of depths 2 and 3, whose numbers of ReLUs differ; the paper leaves 3-shortcut networks out "
    f"of its figure 8 for that reason. {MARKS}"
)
FIGURE3 = (
    "Frobenius norms of the weights, mean over the layers, in the training of 2-shortcut networks from zero on {data}; "
    "one curve per depth, with a band of one standard deviation over seeds. The paper (Li et al., figure 3) shows that "
    "deeper networks have smaller weights all through the training: the curves should lie in the order of depths."
)
FIGURE2 = (
    "The same for pre-activation ResNets on {data}, mean over the convolutions, by epoch; dotted: where the learning "
    "rate drops. The paper (Li et al., figure 2) shows the same order of depths."
)
STATES = (
    "Variance of the states of an untrained pre-activation ResNet after each unit of its first stage, with bands of "
    "one standard deviation over seeds. The paper argues that it explodes (a straight line that rises), that batch "
    "normalisation slows that down (a curve that flattens), and that from zero it stays the same."
)
BRANCHES = (
    "Standard deviation of the branches' outputs, mean over the units, of trained pre-activation ResNets against their "
    "depth. The paper recalls from He et al. that deeper networks have smaller responses: curves should fall."
)
FIGURE9 = (
    "Test error of pre-activation ResNets on {data} after {epochs} epochs, by depth; one curve per number of "
    "convolutions under each shortcut. The paper (Li et al., figure 9) shows that past depth 400 only shortcuts of "
    "depth 2 get better with depth; nothing here speaks of depths that are not on the axis."
)
STAND_IN = (
    "A stand-in, which decides nothing about the paper's figure 9: fully connected networks with a ReLU before each "
    "layer, from 0.1 times Xavier's weights, after {steps} steps on {samples} samples of {data}; training loss, not "
    "test error. The paper shows test errors of convolutional networks, with batch normalisation, of more than 400 "
    f"layers. {MARKS}"
)

Parts = Sequence[xarray.Dataset]


def learning_view(datasets: Mapping[str, xarray.Dataset]) -> View:
    linear, relu = _of_kind(datasets, "linear"), _of_kind(datasets, "relu")
    figures, tables, sentences = {}, [], []
    if linear:
        curves = _curves(linear, _architecture)
        figures["learning-linear"] = Picture(_caption(LINEAR, linear), tuned_losses(curves, excess=True), LEARNING)
        tables.append(_rates("Linear networks", curves, excess=True))
        sentences += _best(curves)
    if relu:
        fair = [part for part in relu if not _also_reported(part)]
        others = [part for part in relu if part.attrs["n"] in (2, 3) and _also_reported(part)]
        for name, caption, parts in (("relu", RELU, fair), ("relu-unequal", UNEQUAL_RELUS, others)):
            if parts:
                figure = tuned_losses(_curves(parts, _architecture), excess=False)
                figures[f"learning-{name}"] = Picture(_caption(caption, parts), figure, LEARNING)
        tables.append(_rates("Networks with ReLUs in the middle", _curves(relu, _architecture), excess=False))
    return View(tables, figures, sentences)


def norms_view(datasets: Mapping[str, xarray.Dataset]) -> View:
    kinds = {"linear": "linear", "relu": "ReLUs in the middle"}
    panels = {title: parts for kind, title in kinds.items() if (parts := _of_kind(datasets, kind))}
    residual, branches = _of_kind(datasets, "residual"), _of_kind(datasets, "branches")
    figures, tables = {}, []
    if panels:
        some = next(iter(panels.values()))
        figures["norms-shortcut"] = Picture(_caption(FIGURE3, some), norms_in_training(panels, "step"), NORMS)
    if residual:
        figure = norms_in_training({"pre-activation ResNets": residual}, "epoch")
        figures["norms-residual"] = Picture(_caption(FIGURE2, residual), figure, NORMS)
        panels["pre-activation ResNets"] = residual
    if panels:
        tables.append(_norms(panels))
    for states in _of_kind(datasets, "states"):
        figures["norms-states"] = Picture(STATES, state_variances(states), NORMS)
    responses = {parts[0].attrs["data"]: parts for parts in (branches, residual) if parts}
    if responses:
        figure = by_depth(responses, "branch", "standard deviation of branches", logarithmic=True)
        figures["norms-branches"] = Picture(BRANCHES, figure, NORMS)
        tables.append(_responses(responses))
    return View(tables, figures)


def shortcuts_view(datasets: Mapping[str, xarray.Dataset]) -> View:
    residual, connected = _of_kind(datasets, "residual"), _of_kind(datasets, "connected")
    figures, tables = {}, []
    if residual:
        curves = _curves(residual, _shortcut)
        figure = by_depth(curves, "error", "test error")
        figures["shortcuts-residual"] = Picture(_caption(FIGURE9, residual), figure, SHORTCUTS)
        tables.append(_errors(curves))
    if deep := _of_kind(datasets, "deep"):
        about = f"Near 110 layers, after {deep[0].attrs['epochs']} epochs. Mean and standard deviation over networks."
        tables.append(_errors(_curves(deep, _shortcut), "Shortcuts deeper than 4", about))
    if connected:
        curves = _curves(connected, _shortcut)
        figure = tuned_losses(curves, excess=False)
        figures["shortcuts-connected"] = Picture(_caption(STAND_IN, connected), figure, SHORTCUTS)
        tables.append(_rates("Fully connected stand-in", curves, excess=False))
    return View(tables, figures)


def _of_kind(datasets: Mapping[str, xarray.Dataset], kind: str) -> list[xarray.Dataset]:
    found = [data for data in datasets.values() if data.attrs["kind"] == kind]
    return sorted(
        found, key=lambda data: (int(data.attrs.get("n", 0)), str(data.attrs.get("init", "")), data.attrs["depth"])
    )


def _also_reported(part: xarray.Dataset) -> bool:
    """Whether claims leave it out; version 0.1.0 called the attribute `besides`."""
    return bool(part.attrs["also_reported"] if "also_reported" in part.attrs else part.attrs["besides"])


def _curves(parts: Parts, name: Callable[[xarray.Dataset], str]) -> dict[str, list[xarray.Dataset]]:
    """By name, one dataset per depth; plain networks first."""
    found: dict[str, list[xarray.Dataset]] = {}
    for part in parts:
        found.setdefault(name(part), []).append(part)
    return found


def _architecture(part: xarray.Dataset) -> str:
    name = str(part.attrs["architecture"])
    return "Xavier" if name == "xavier" else name


def _shortcut(part: xarray.Dataset) -> str:
    return f"shortcuts of depth {part.attrs['n']}"


def _caption(caption: str, parts: Parts) -> str:
    return caption.format_map(parts[0].attrs)


def _best(curves: Mapping[str, Parts]) -> list[str]:
    deepest = {name: parts[-1] for name, parts in curves.items()}
    depth = max(int(part.attrs["depth"]) for part in deepest.values())
    losses = {
        name: float(log_losses(part, excess=True).mean())
        for name, part in deepest.items()
        if part.attrs["depth"] == depth
    }
    best = min(losses, key=lambda name: losses[name])
    return [
        f"Of linear networks of {depth} layers, {best} gets closest to the lowest loss (10^{losses[best]:.2f} above)."
    ]


# -- tables


def _by_depth(
    title: str, curves: Mapping[str, Parts], cells: Mapping[str, Callable[[xarray.Dataset], str]], about: str, what: str
) -> Table:
    """One row per network and depth; cells: by the titles of their columns. what: the title of the first column."""
    rows = [
        [name, str(part.attrs["depth"]), *(cell(part) for cell in cells.values())]
        for name, parts in curves.items()
        for part in parts
    ]
    return Table(title, [what, "depth", *cells], rows, about)


def _over_seeds(values: numpy.ndarray) -> str:
    return with_error(float(values.mean()), spread(values))


def _best_rate(part: xarray.Dataset) -> str:
    best = "all alike" if part.attrs["flat"] else f"{part.attrs['best_rate']:g}"
    return best + (" (edge)" if part.attrs["on_edge"] else "")


def _rates(title: str, curves: Mapping[str, Parts], *, excess: bool) -> Table:
    cells = {
        "log10 loss": lambda part: _over_seeds(log_losses(part, excess=excess)),
        "best rate": _best_rate,
        "learning rates": lambda part: f"{float(part['rate'].min()):g} to {float(part['rate'].max()):g}",
        "diverged": lambda part: f"{int(numpy.isinf(part['loss']).sum())} of {int(part['loss'].notnull().sum())}",
    }
    some = next(iter(curves.values()))[0]
    what = "the final loss minus the lowest one of a linear map" if excess else "the final loss"
    about = (
        f"log10 of {what} after {some.attrs['steps']} steps, mean and standard deviation over "
        f"{counted(some.sizes['seed'], 'seed')}, at the learning rate that is best on others. Diverged: of all "
        f"seeds and learning rates. {some.attrs['precision']}."
    )
    return _by_depth(title, curves, cells, about, "network")


def _norms(panels: Mapping[str, Parts]) -> Table:
    cells = {
        "mean |W|_F": lambda part: _over_seeds(part["norm"].isel(step=-1).values),
        "loss": lambda part: number(float(part["loss"].isel(step=-1).mean())),
        "learning rate": lambda part: f"{part.attrs['rate']:g}",
    }
    about = (
        "Frobenius norm, mean over the layers, after training; mean and standard deviation over seeds. Theorem 1 says "
        "that a network can interpolate with weights that fall like the depth to the power -0.5."
    )
    return _by_depth("Weights after training", panels, cells, about, "network")


def _responses(curves: Mapping[str, Parts]) -> Table:
    cells = {
        "standard deviation": lambda part: _over_seeds(part["branch"].values),
        "test error": lambda part: _over_seeds(part["test_error"].values),
    }
    about = (
        "Trained pre-activation ResNets: standard deviation of a branch's output on test images, mean over the units."
    )
    return _by_depth("Responses of branches", curves, cells, about, "data")


EQUAL_WEIGHTS = "Networks of one depth have equal numbers of weights. Mean and standard deviation over networks."


def _errors(
    curves: Mapping[str, Parts], title: str = "Shortcut depth and test error", about: str = EQUAL_WEIGHTS
) -> Table:
    cells = {
        "test error": lambda part: _over_seeds(part["error"].values),
        "networks": lambda part: str(part["error"].size),
    }
    return _by_depth(title, curves, cells, about, "network")
