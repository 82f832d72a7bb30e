"""Condition numbers of weights, states and gradients as the variables of a dataset."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy
from torch import nn

from skipscope.measure.gradient_ranks import GradientRanks
from skipscope.measure.layer_states import Row, State
from skipscope.spectrum.condition import Condition

RANKED = ("error", "input", "gradient")


def weight_labels(model: nn.Module, measured: Mapping[str, Condition]) -> dict[str, Any]:
    modules = dict(model.named_modules(remove_duplicate=False))
    return {
        "weight": list(measured),
        "weight_shape": ("weight", [_text(condition.shape) for condition in measured.values()]),
        "weight_kind": ("weight", [type(modules[name.rpartition(".")[0]]).__name__ for name in measured]),
    }


def layer_labels(rows: Sequence[Row]) -> dict[str, Any]:
    return {
        "layer": [row.name for row in rows],
        "layer_shape": ("layer", [_text(row.shape) for row in rows]),
        "layer_kind": ("layer", [row.kind for row in rows]),
        "sample_axis": ("layer", [row.sample_axis for row in rows]),
    }


def columns(name: str, dimension: str, rows: Sequence[Sequence[Condition]]) -> dict[str, Any]:
    dims = (dimension, "reduction")
    ranks = [[math.nan if one.rank is None else one.rank for one in row] for row in rows]
    return {
        f"{name}_condition": (dims, numpy.array([[one.value for one in row] for row in rows])),
        f"{name}_status": (dims, numpy.array([[one.status for one in row] for row in rows], dtype=object)),
        f"{name}_rank": (dims, numpy.array(ranks, dtype=float)),
        f"{name}_full_rank": (dims, numpy.array([[one.full_rank for one in row] for row in rows])),
    }


def by_mode(name: str, dimension: str, found: Sequence[Condition], modes: int) -> dict[str, Any]:
    """NaN and no status for modes that there are not or that are left out; a matrix has two, which agree."""
    values, slices = (numpy.full((len(found), modes), numpy.nan) for _ in range(2))
    statuses = numpy.full((len(found), modes), "", dtype=object)
    for row, condition in enumerate(found):
        for mode in condition.modes:
            places = [0, 1] if len(condition.shape) == 2 else [mode.mode]
            values[row, places], statuses[row, places] = mode.value, mode.status
        slices[row, : len(condition.shape)] = condition.zero_slices
    dims = (dimension, "mode")
    return {
        f"{name}_mode_condition": (dims, values),
        f"{name}_mode_status": (dims, statuses),
        f"{name}_zero_slices": (dims, slices),
    }


def state_columns(states: Sequence[State], modes: int) -> dict[str, Any]:
    data = columns("state", "layer", [state.reduced() for state in states])
    data |= by_mode("state", "layer", [state.condition for state in states], modes)
    data["state_zero_units"] = "layer", numpy.array([state.zero_units for state in states])
    data["state_limited"] = "layer", numpy.array([state.limited for state in states])
    return data


def gradient_columns(ranks: Sequence[GradientRanks | None]) -> dict[str, Any]:
    """NaN and no status for layers without factors, and for the output."""
    data: dict[str, Any] = {}
    for name in RANKED:
        found = [None if one is None else getattr(one, name) for one in ranks]
        rank, full, value = (
            numpy.array([math.nan if one is None else getattr(one, key) for one in found], dtype=float)
            for key in ("rank", "full_rank", "condition")
        )
        statuses = numpy.array(["" if one is None else one.status for one in found], dtype=object)
        data |= {
            f"{name}_condition": ("layer", value),
            f"{name}_status": ("layer", statuses),
            f"{name}_rank": ("layer", rank),
            f"{name}_full_rank": ("layer", full),
            f"{name}_share": ("layer", rank / full),
        }
    data["bound"] = "layer", numpy.array([math.nan if one is None else one.bound for one in ranks])
    return data


def _text(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape))
