"""From one dataset per model to one dataset of all: an associative merge, and how units of different models correspond.

Merging pads: the dimension `position` is as long as the deepest model, and what a model does not have is NaN, and an
empty name. Merging in any grouping gives the same, so that results may come in any order and be merged as they come.

Where all models have units of the same names in the same order, `unit` takes the place of `position`. Otherwise units
correspond by relative depth: unit i of n, counted from 0, is at (i + 1/2) / n. Nothing is interpolated: every number
stays that of one unit, and `relative_depth` says where it belongs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy

from skipscope.sweeps.subjects import Subjects

if TYPE_CHECKING:
    import xarray

BY_NAME = "by name: all models have units of the same names in the same order"
BY_DEPTH = "by relative depth: unit i of n, counted from 0, is at (i + 1/2) / n; nothing is interpolated"


def member(label: str, piece: xarray.Dataset) -> xarray.Dataset:
    """The dataset of one model, with the dimension `model`."""
    found = piece.reset_coords(["unit", "relative_depth"]).expand_dims(model=[label])
    return found.assign(failure=("model", [""]), units=("model", [piece.sizes["position"]]))


def failed(label: str, reason: str) -> xarray.Dataset:
    """In place of the dataset of a model that could not be measured."""
    import xarray

    return xarray.Dataset({"failure": ("model", [reason]), "units": ("model", [0])}, {"model": [label]})


def merge(one: xarray.Dataset, other: xarray.Dataset) -> xarray.Dataset:
    """Two datasets of models as one, in this order. Associative."""
    import xarray

    names = list(dict.fromkeys([*one.data_vars, *other.data_vars]))
    depth = max(data.sizes.get("position", 0) for data in (one, other))
    described = {name: (one if name in one else other)[name].attrs for name in names}
    columns = {
        name: (
            _dimensions(one if name in one else other, str(name)),
            numpy.concatenate(
                [_padded(data, str(name), depth, one if name in one else other) for data in (one, other)]
            ),
            described[name],
        )
        for name in names
    }
    labels = [*one["model"].values.tolist(), *other["model"].values.tolist()]
    sentences = [note for data in (one, other) for note in str(data.attrs.get("notes", "")).split("; ") if note]
    notes = "; ".join(dict.fromkeys(sentences))
    coordinates: dict[str, object] = {"model": labels} | ({"position": numpy.arange(depth)} if depth else {})
    return xarray.Dataset(columns, coordinates, {"notes": notes} if notes else {})


def joined(pieces: Mapping[str, xarray.Dataset | str], subjects: Subjects, **about: str) -> xarray.Dataset:
    """All models of a sweep, in its order. pieces: by label a dataset, or why there is none."""
    parts: Sequence[xarray.Dataset] = [
        failed(each.label, piece) if isinstance(piece, str) else member(each.label, piece)
        for each in subjects.members
        for piece in [pieces[each.label]]
    ]
    whole = _merged(parts)
    found = _aligned(whole)
    if subjects.dimension == "step":
        steps = [each.step for each in subjects.members]
        found = found.rename_vars(model="checkpoint").assign_coords(step=("model", steps))
        found = found.swap_dims(model="step")
    elif subjects.dimension == "checkpoint":
        found = found.rename(model="checkpoint")
    notes = {key: value for key, value in found.attrs.items() if key in ("notes", "aligned")}
    found.attrs = {"measure": "sweep", "over": subjects.dimension, **notes, **about}
    return found


def _merged(parts: Sequence[xarray.Dataset]) -> xarray.Dataset:
    """In halves, which copies every number only as often as the parts can be halved."""
    if len(parts) == 1:
        return parts[0]
    middle = len(parts) // 2
    return merge(_merged(parts[:middle]), _merged(parts[middle:]))


def _aligned(whole: xarray.Dataset) -> xarray.Dataset:
    there = whole["units"].values > 0
    names = whole["unit"].values[there]
    if (names == names[0]).all():
        unit, depth = names[0], whole["relative_depth"].values[there][0]
        found = whole.drop_vars(["unit", "relative_depth", "position"]).rename_dims(position="unit")
        found = found.assign_coords(unit=unit.astype(str), relative_depth=("unit", depth))
        return found.assign_attrs(aligned=BY_NAME)
    return whole.set_coords(["unit", "relative_depth"]).assign_attrs(aligned=BY_DEPTH)


def _dimensions(data: xarray.Dataset, name: str) -> tuple[str, ...]:
    return tuple(str(each) for each in data[name].dims)


def _padded(data: xarray.Dataset, name: str, depth: int, like: xarray.Dataset) -> numpy.ndarray:
    """(models, depth) or (models,), with NaN or empty names where there is nothing."""
    whole = like[name]
    text = whole.dtype.kind in "OU"
    shape = (data.sizes["model"], depth)[: whole.ndim]
    values = numpy.full(
        shape, "" if text else numpy.nan if whole.dtype.kind == "f" else 0, object if text else whole.dtype
    )
    if name in data:
        given = data[name].values
        values[tuple(slice(size) for size in given.shape)] = given
    return values
