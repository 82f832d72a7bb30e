"""How a network uses its depth: one row per unit, curves over units and states, which units matter least."""

from __future__ import annotations

import math
from collections.abc import Mapping

import xarray

from skipscope.report.figures.depth_tokens import depth_tokens
from skipscope.report.figures.depth_use import depth_states, depth_use, in_scope
from skipscope.report.table import Cell, Table, number, table_of
from skipscope.report.views.view import (
    Picture,
    View,
    alike,
    described,
    made_by,
    named,
    samples_of,
    title_of,
    titles,
    unit_numbers,
)

COLUMNS = {
    "block_influence": "influence",
    "growth": "growth",
    "branch_share": "|branch| / |skip|",
    "branch_cosine": "cosine",
    "skip_kl": "KL without it",
    "skip_loss_change": "loss without it",
}
SIZES = {"total_growth": "size over the first", "massive_ratio": "largest / median", "lens_kl": "logit lens KL"}
ABOUT = (
    "Influence: 1 - cosine of the states at a unit's entry and exit. Growth: |exit| / |entry|, the geometric mean over "
    "positions. KL without it: how far the prediction moves, in nats, when the unit's branch is left out; loss without "
    "it: how much the loss rises. Medians over {samples} of means over {positions}."
)
ABOUT_STATES = (
    "At each unit's entry and at the last exit: the mean |h| over that of the first state; the largest entry over the "
    "median one, and the dimension that it is in most often; the distance in nats between what the head makes of the "
    "state and what the model predicts. Medians over {samples} of means over {positions}."
)
CAPTION = (
    "{title}: what the units do to the state and to the prediction. Medians over the samples of means over the "
    "positions; bars reach from the lower to the upper quartile."
)
STATES = (
    "{title}, state by state: how large states become, how far the largest entry stands out, and how early the head "
    "reads the model's own prediction from a state. Where states are sequences, with the first position and without it."
)
TOKENS = (
    "{title} at the first text, token by token: how far each unit turns the state of a token; how far what the head "
    "reads from a state is from the prediction; how far the prediction moves without a unit's branch. Empty: "
    "zero."
)
MAPPED = {"block_influence": "block influence", "skip_kl": "KL of the prediction without the branch"}


def depth_use_view(datasets: Mapping[str, xarray.Dataset]) -> View:
    tables, figures, numbers, of_words = [], {}, [], {}
    units, states = titles("Use of depth", datasets), titles("States along the depth", datasets)
    for name, data in datasets.items():
        tables += [_units(units[name], data), _states(states[name], data)]
        medians = in_scope(data, _scope(data)).median("sample")
        mapped = {title: medians[key] for key, title in MAPPED.items() if key in medians}
        numbers += unit_numbers(medians, mapped, scale="share")
        if "token" in data.coords:
            key = name if name.split("-")[-1] == "depth_use" else f"{name}-depth_use"
            words = Picture(TOKENS.format(title=units[name]), depth_tokens(data), made_by(data))
            of_words[f"{key}-tokens"] = words
    for group in alike(datasets, "unit"):
        first = next(iter(group))
        name = first if first.split("-")[-1] == "depth_use" else f"{first}-depth_use"
        title = title_of("Use of depth", group)
        figures[name] = Picture(CAPTION.format(title=title), depth_use(named(group)), made_by(group[first]))
        figures[f"{name}-states"] = Picture(
            STATES.format(title=title), depth_states(named(group)), made_by(group[first])
        )
    return View(tables, figures | of_words, described(datasets, _sentence, "Use of depth"), numbers)


def _scope(data: xarray.Dataset) -> str:
    """What the tables show: the first position is left out where there are others."""
    return str(data["scope"].values[-1])


def _words(data: xarray.Dataset) -> str:
    if data.attrs.get("positions") != "tokens":
        return "whole states"
    return "all positions but the first" if _scope(data) != "all" else "all positions"


def _units(title: str, data: xarray.Dataset) -> Table:
    columns: dict[str, Cell] = {short: key for key, short in COLUMNS.items() if key in data}
    about = ABOUT.format(samples=samples_of(data), positions=_words(data))
    medians = in_scope(data, _scope(data))[list(columns.values())].median("sample")
    return table_of(medians, title, columns, about, rows={"unit": "unit"})


def _states(title: str, data: xarray.Dataset) -> Table:
    reduced = in_scope(data, _scope(data))
    columns: dict[str, Cell] = {short: key for key, short in SIZES.items() if key in data}
    medians = reduced[list(columns.values())].median("sample")
    places = data["massive_dimension"].sel(scope=_scope(data)).transpose("state", "sample").values
    medians["massive_dimension"] = ("state", [_most_frequent(list(row)) for row in places])
    columns["its dimension"] = lambda here: str(int(here["massive_dimension"]))
    about = ABOUT_STATES.format(samples=samples_of(data), positions=_words(data))
    return table_of(medians, title, columns, about, rows={"state": "state"})


def _most_frequent(values: list[int]) -> int:
    return max(sorted(set(values)), key=values.count)


def _sentence(words: str, data: xarray.Dataset) -> str:
    medians = in_scope(data, _scope(data)).median("sample")
    text = f"{words}"
    influence = medians["block_influence"]
    if not bool(influence.isnull().all()):
        least = str(influence["unit"].values[int(influence.argmin("unit"))])
        text += f"{least} changes the direction of the state least (influence {number(float(influence.min()))}); "
    growth = float(medians["total_growth"][-1])
    text += f"the state grows {number(growth)}-fold from the first unit to the end"
    if "skip_kl" in medians:
        kl = medians["skip_kl"]
        least = str(kl["unit"].values[int(kl.argmin("unit"))])
        text += f", and the prediction moves least without {least} ({number(float(kl.min()))} nats)"
    ratio = float(medians["massive_ratio"].max())
    if math.isfinite(ratio):
        text += f". The largest entry of a state is up to {number(ratio)} times the median"
    return f"{text}."
