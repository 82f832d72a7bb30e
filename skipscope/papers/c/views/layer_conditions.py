"""Condition numbers of weights and hidden states of trained networks, layer by layer; ranks of their gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy
import xarray

from skipscope.papers.c.figures.layer_conditions import (
    SHARES,
    between_blocks,
    conditions_along,
    hidden_conditions,
    rank_shares,
    weight_conditions,
)
from skipscope.papers.c.views.twins import by_title, drawn, mean_and_spread, sentence_case
from skipscope.report.style import names_of
from skipscope.report.table import Cell, Table, number, table_of_each
from skipscope.report.views.view import NETWORKS_IN_SUMMARY, Picture, View, counted, made_by, others_named

WEIGHTS = (
    "{title}: condition number of the weights against the layer, one line per seed, by the reduction '{reduction}' of "
    "their singular values; compare layers of one shape. The paper (Oyedotun et al., {figure}) shows condition numbers "
    "of PlainNet above those of residual networks, and growing with depth."
)
HIDDEN = (
    "{title}: condition number of the hidden states between blocks over {samples}, by the reduction '{reduction}'; "
    "below it their numerical rank, and the units that are zero for all samples; one line per seed. Triangles and "
    "crosses on the dotted lines, one line per network, are not finite, the fainter the fewer seeds: infinite (a unit "
    "or a singular value is exactly zero), numerically infinite (rounding hides the smallest one), overflow. The paper "
    "(Oyedotun et al., {figure}) leaves infinite ones out, and does not tell these apart: {found}. {order}"
)
RELU = (
    "PlainNet is infinite in its early layers and finite in late ones, residual networks are high early and fall fast",
    "That is the opposite order to the paper's theory, in which states lose rank with depth; where units die, the "
    "rank falls at least by as many as the last panel has.",
)
LINEAR = (
    "PlainNet is infinite in its first layer and above residual networks in the others",
    "By the paper's theory states lose rank with depth: PlainNet's rank should fall to the right.",
)
RANKS = (
    "{title}: numerical rank over full rank against the layer, of the errors that come back to a layer's output and of "
    "the gradients of its weight; one line per seed. The paper (Oyedotun et al., section 5) argues that both are "
    "singular in PlainNet and not in residual networks: PlainNet's curves should lie low, the others at 1. It shows no "
    "figure."
)
ALONG = (
    "{title}, seed {seed}: condition numbers of weights and of hidden states between blocks against the layer, at "
    "every look along the training; epoch 0 is before it. What is not finite is left out, and counted in the table. "
    "The paper shows the end of the training alone."
)
ABOUT_ALONG = "log10 of condition numbers, median over the layers where it is finite."
ABOUT_WEIGHTS = (
    "log10 of condition numbers, mean and standard deviation over seeds. Spearman: rank correlation of layer and "
    "condition number. Not finite: layers, of all seeds."
)
ABOUT_HIDDEN = (
    "States between blocks: log10 of condition numbers; shares of layers whose condition number is not finite, and "
    "from where to where in any seed there are infinite ones; smallest rank over full rank and most dead units of a "
    "layer. Inside too: the share of infinite ones with the states inside branches. Mean and standard deviation over "
    "seeds. Numerically infinite ones have their computed value, infinite ones are infinite, overflow is left out."
)
ABOUT_RANKS = "Rank over full rank, median and smallest over layers; mean and standard deviation over seeds."


def layer_conditions_view(datasets: Mapping[str, xarray.Dataset]) -> View:
    cases = by_title(datasets)
    names = dict(zip(cases, datasets, strict=True))
    shown, figures = drawn(cases), {}
    for title, data in shown.items():
        studies = made_by(data)
        linear = "C.linear" in studies
        words = {
            "title": sentence_case(title),
            "reduction": str(data.attrs["reduction"]),
            "samples": counted(int(data.attrs["samples"]), "sample"),
        }
        weights = WEIGHTS.format(figure="figure 12" if linear else "figures 7, 8 and 10", **words)
        found, order = LINEAR if linear else RELU
        states = HIDDEN.format(figure="figure 13" if linear else "figures 9 and 11", found=found, order=order, **words)
        of_weights, of_states = (tuple(id for id in studies if id != other) for other in ("C.hidden", "C.weights"))
        figures[f"{names[title]}-weights"] = Picture(weights, weight_conditions(data), of_weights)
        figures[f"{names[title]}-hidden"] = Picture(states, hidden_conditions(data), of_states)
    sentences = [_sentence(title, data) for title, data in list(shown.items())[:NETWORKS_IN_SUMMARY]]
    return View(
        [_weights(cases), _hidden(cases)], figures, [*sentences, *others_named(list(shown), "Condition numbers")]
    )


def conditions_along_view(datasets: Mapping[str, xarray.Dataset]) -> View:
    cases = by_title(datasets)
    names = dict(zip(cases, datasets, strict=True))
    figures = {
        f"{names[title]}-looks": Picture(
            ALONG.format(title=sentence_case(title), seed=int(data.attrs["seed"])),
            conditions_along(data),
            made_by(data),
        )
        for title, data in cases.items()
    }
    columns: dict[str, Cell] = {
        "weights, median": _median_along("weight"),
        "states, median": _median_along("hidden"),
        "states that are not finite": _not_finite,
    }
    title, rows = "Condition numbers along the training", {"network": "network", "epoch": "epoch"}
    return View([table_of_each(cases, title, columns, ABOUT_ALONG, what="case", rows=rows, names=3)], figures)


def _median_along(key: str) -> Callable[[xarray.Dataset], str]:
    def cell(here: xarray.Dataset) -> str:
        finite = here[f"{key}_condition"].values[_finite(here, key)]
        return number(float(numpy.median(numpy.log10(finite)))) if finite.size else "-"

    return cell


def _not_finite(here: xarray.Dataset) -> str:
    between = here["between"].values == 1
    return f"{int((between & ~_finite(here, 'hidden')).sum())} of {int(between.sum())}"


def _finite(here: xarray.Dataset, key: str) -> numpy.ndarray:
    """At which layers; of states those between blocks."""
    finite: numpy.ndarray = here[f"{key}_status"].values.astype(str) == "finite"
    return finite & (here["between"].values == 1) if key == "hidden" else finite


def gradient_ranks_view(datasets: Mapping[str, xarray.Dataset]) -> View:
    cases = by_title(datasets)
    names = dict(zip(cases, datasets, strict=True))
    figures = {
        f"{names[title]}-shares": Picture(RANKS.format(title=sentence_case(title)), rank_shares(data), made_by(data))
        for title, data in cases.items()
    }
    columns: dict[str, Cell] = {}
    for key, what in SHARES.items():
        columns |= {f"{what}, median": _over_layers(key, "median"), f"{what}, least": _over_layers(key, "min")}
    title, rows = "Ranks of errors and gradients", {"network": "network", "when": "when"}
    return View([table_of_each(cases, title, columns, ABOUT_RANKS, what="case", rows=rows, names=3)], figures)


def _over_layers(key: str, reduction: str) -> Callable[[xarray.Dataset], str]:
    return lambda here: mean_and_spread(getattr(here[key], reduction)("layer").values)


# -- numbers; of one network: seed, layer


def _logarithms(here: xarray.Dataset, key: str) -> numpy.ndarray:
    """Infinite ones are infinite, whatever was computed for them; NaN after overflow."""
    values, statuses = (here[f"{key}_{what}"].transpose("seed", "layer").values for what in ("condition", "status"))
    statuses = statuses.astype(str)
    values = numpy.where(statuses == "infinite", numpy.inf, numpy.where(statuses == "overflow", numpy.nan, values))
    return numpy.log10(values)


def _share(here: xarray.Dataset, status: str) -> numpy.ndarray:
    """Of layers, per seed."""
    return (here["hidden_status"].transpose("seed", "layer").values.astype(str) == status).mean(1)


def _medians(logarithms: numpy.ndarray) -> numpy.ndarray:
    return numpy.array(
        [float(numpy.median(row[~numpy.isnan(row)])) if (~numpy.isnan(row)).any() else numpy.nan for row in logarithms]
    )


def _spearman(logarithms: numpy.ndarray) -> numpy.ndarray:
    from scipy.stats import spearmanr

    found = []
    for row in logarithms:
        there = numpy.flatnonzero(~numpy.isnan(row))
        varied = len(there) > 2 and len(set(row[there])) > 1
        found.append(float(spearmanr(there, row[there]).statistic) if varied else numpy.nan)
    return numpy.array(found)


def _sentence(title: str, data: xarray.Dataset) -> str:
    words = []
    for name in names_of(data, "network"):
        share = _share(between_blocks(data).sel(network=name), "infinite").mean()
        words.append(f"{share:.0%} of {name}'s")
    return f"{title}: infinite condition numbers of the hidden states between blocks, {', '.join(words)}."


# -- tables


def _weights(cases: Mapping[str, xarray.Dataset]) -> Table:
    rows = []
    for title, data in cases.items():
        for name in names_of(data, "network"):
            here = data.sel(network=name)
            logs = _logarithms(here, "weight")
            statistics = (_medians(logs), logs[:, 0], logs[:, -1], _spearman(logs))
            beyond = int((here["weight_status"].astype(str) != "finite").sum())
            rows.append([title, name, *map(mean_and_spread, statistics), f"{beyond} of {logs.size}"])
    columns = ["case", "network", "median", "first layer", "last layer", "Spearman", "not finite"]
    return Table("Condition numbers of weights", columns, rows, ABOUT_WEIGHTS, names=2)


def _hidden(cases: Mapping[str, xarray.Dataset]) -> Table:
    rows = []
    for title, data in cases.items():
        for name in names_of(data, "network"):
            here, every = (some.sel(network=name) for some in (between_blocks(data), data.isel(layer=slice(-1))))
            logs = _logarithms(here, "hidden")
            shares = [_share(here, status) for status in ("infinite", "numerically infinite", "overflow")]
            ranks = (here["hidden_rank"] / here["hidden_full_rank"]).min("layer")
            dead = here["dead_units"].max("layer")
            rows.append(
                [title, name]
                + [mean_and_spread(values) for values in (logs[:, 0], _medians(logs[:, 1:]), logs[:, -1], *shares)]
                + [mean_and_spread(_share(every, "infinite")), _where(here)]
                + [mean_and_spread(ranks.values), mean_and_spread(dead.values)]
            )
    columns = ["case", "network", "first layer", "median of the rest", "last layer", "infinite", "numerically infinite"]
    columns += ["overflow", "infinite, inside too", "from / to", "smallest rank", "dead units"]
    return Table("Condition numbers of hidden states", columns, rows, ABOUT_HIDDEN, names=2)


def _where(here: xarray.Dataset) -> str:
    infinite = here["layer"].values[(here["hidden_status"].astype(str) == "infinite").any("seed").values]
    return f"{number(float(infinite[0]))} / {number(float(infinite[-1]))}" if infinite.size else "-"
