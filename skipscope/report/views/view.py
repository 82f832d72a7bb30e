"""What a report shows of one kind of measurement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy
import xarray

from skipscope.report.style import converged, marked, names_of
from skipscope.report.table import Table
from skipscope.wording import counted as counted

NETWORKS_IN_SUMMARY = 8  # that have sentences of their own; more are named
Scale = Literal["gain", "share", "size"]  # a factor, where 1 keeps sizes; a share, from 0; any other size


@dataclass(frozen=True)
class Picture:
    caption: str
    figure: Any  # of Plotly
    studies: tuple[str, ...] = ()  # whose claims it shows


@dataclass(frozen=True)
class UnitNumbers:
    """One number per unit, by which the map of a trunk can be coloured."""

    network: str
    title: str
    values: Mapping[str, float]  # unit: number; NaN or infinite where there is none
    logarithmic: bool = False
    unsure: frozenset[str] = frozenset()  # units whose numbers did not converge
    words: Mapping[str, str] = field(default_factory=dict)  # unit: what to say where there is no number
    scale: Scale = "size"  # of colours


@dataclass(frozen=True)
class Curve:
    name: str
    x: Sequence[float] | numpy.ndarray
    y: Sequence[float] | numpy.ndarray
    points: bool = False  # markers, not a line


@dataclass(frozen=True)
class UnitCurves:
    """One small figure per unit, shown when the reader picks it in the map."""

    network: str
    title: str
    x: str
    y: str
    of: Mapping[str, Sequence[Curve]]
    logarithmic: str = ""  # axes that start so: "x", "y", "xy"
    about: str = ""  # what the reader must know


@dataclass(frozen=True)
class View:
    tables: Sequence[Table] = ()
    figures: Mapping[str, Picture] = field(default_factory=dict)
    sentences: Sequence[str] = ()  # of the summary
    numbers: Sequence[UnitNumbers] = ()
    curves: Sequence[UnitCurves] = ()


@dataclass(frozen=True)
class PictureOf:
    """How one part of a measurement, a dataset with that attribute `part`, becomes a picture."""

    part: str
    caption: str  # may name attributes of the dataset
    figure: Callable[[xarray.Dataset], Any]


@dataclass(frozen=True)
class ViewOfParts:
    """How datasets that are different parts of one measurement become a view; tables: by part, pictures: by name."""

    tables: Mapping[str, Callable[[xarray.Dataset], Table]]
    pictures: Mapping[str, PictureOf]
    sentences: Callable[[Mapping[str, xarray.Dataset]], Sequence[str]]

    def __call__(self, datasets: Mapping[str, xarray.Dataset]) -> View:
        parts = {str(data.attrs["part"]): data for data in datasets.values()}
        figures = {}
        for name, one in self.pictures.items():
            if one.part in parts:
                data = parts[one.part]
                figures[name] = Picture(one.caption.format(**data.attrs), one.figure(data), made_by(data))
        tables = [show(parts[part]) for part, show in self.tables.items() if part in parts]
        return View(tables, figures, self.sentences(parts))


def unit_numbers(
    data: xarray.Dataset,
    columns: Mapping[str, xarray.DataArray],
    *,
    along: str = "unit",
    logarithmic: bool = False,
    scale: Scale = "size",
) -> list[UnitNumbers]:
    """For the map of the trunk: by title, one number per unit; along: the dimension that has the units' names."""
    names = names_of(data, along)
    unsure = frozenset(name for name in names if not converged(data, name, along))
    network = str(data.attrs.get("network", ""))
    return [
        UnitNumbers(
            network,
            title,
            dict(zip(names, map(float, values.values), strict=True)),
            logarithmic,
            unsure,
            scale=scale,
        )
        for title, values in columns.items()
    ]


def with_marks(data: xarray.Dataset) -> xarray.Dataset:
    """The dataset with a star behind the names of units that did not converge."""
    return data.assign_coords(unit=("unit", [marked(data, name) for name in names_of(data, "unit")]))


def not_converged(data: xarray.Dataset) -> str:
    """A sentence about them, where there are any."""
    names = [name for name in names_of(data, "unit") if not converged(data, name)]
    return f" Not converged: {', '.join(names)}." if names else ""


def alike(datasets: Mapping[str, xarray.Dataset], *dimensions: str) -> list[dict[str, xarray.Dataset]]:
    """Datasets whose members of these dimensions have the same names: they can share a figure."""
    groups: dict[tuple[tuple[str, ...], ...], dict[str, xarray.Dataset]] = {}
    for name, data in datasets.items():
        key = tuple(tuple(names_of(data, dimension)) for dimension in dimensions if dimension in data.dims)
        groups.setdefault(key, {})[name] = data
    return list(groups.values())


def title_of(title: str, group: Mapping[str, xarray.Dataset], several: str = "") -> str:
    """Of a figure of one or several networks; several: what it is called if there are several."""
    if len(group) == 1:
        return next(iter(titles(title, group).values()))
    return f"{several or title} of {', '.join(named(group))}"


def network_of(dataset: xarray.Dataset) -> str:
    """What a dataset was measured on."""
    return str(dataset.attrs.get("network", "the model"))


def distinct(texts: Mapping[str, str], behind: Mapping[str, str] | None = None) -> dict[str, str]:
    """Texts by the names of datasets; that name, or what is given for it, stands behind texts that several have."""
    counts = Counter(texts.values())
    return {
        name: text if counts[text] == 1 else f"{text} ({behind[name] if behind else name})"
        for name, text in texts.items()
    }


def named(datasets: Mapping[str, xarray.Dataset]) -> dict[str, xarray.Dataset]:
    """By network; several datasets of one network have their own names behind it."""
    texts = distinct({name: network_of(data) for name, data in datasets.items()})
    return {texts[name]: data for name, data in datasets.items()}


def titles(title: str, datasets: Mapping[str, xarray.Dataset]) -> dict[str, str]:
    """By the dataset's name, which is part of the title where several datasets are of one network."""
    networks = {name: data.attrs.get("network", "") for name, data in datasets.items()}
    return distinct({name: f"{title} of {network}" if network else title for name, network in networks.items()})


def in_groups(name: str, cases: Mapping[str, xarray.Dataset], most: int) -> dict[str, dict[str, xarray.Dataset]]:
    """At most so many cases in each, which share a figure; by the names of the figures: NAME, NAME-2, ..."""
    whole = list(cases.items())
    groups = [dict(whole[start : start + most]) for start in range(0, len(whole), most)]
    return {f"{name}-{place}" if place > 1 else name: group for place, group in enumerate(groups, start=1)}


def in_summary(datasets: Mapping[str, xarray.Dataset]) -> list[tuple[str, xarray.Dataset]]:
    """The datasets that the summary speaks of, each with the words that begin its sentence.

    One per network, that with the most units; large networks first.
    """
    whole = list(_of_networks(datasets).items())
    return [(f"On {network}, " if network else "", data) for network, data in whole[:NETWORKS_IN_SUMMARY]]


def described(
    datasets: Mapping[str, xarray.Dataset], sentence: Callable[[str, xarray.Dataset], str], what: str
) -> list[str]:
    """One sentence per network of the summary, and one that names the networks without; what: was measured of them."""
    return [*(sentence(*one) for one in in_summary(datasets)), *others_named(networks_of(datasets), what)]


def networks_of(datasets: Mapping[str, xarray.Dataset]) -> list[str]:
    """Names in the order of the summary."""
    return list(_of_networks(datasets))


def others_named(networks: Sequence[str], what: str, shown: int = NETWORKS_IN_SUMMARY) -> list[str]:
    """That the networks after the first ones have no sentence and are in the tables."""
    others = networks[shown:]
    if not others:
        return []
    verb = "is" if len(others) == 1 else "are"
    return [f"{what}: {counted(len(others), 'more network')} {verb} in the tables below ({', '.join(others)})."]


def _of_networks(datasets: Mapping[str, xarray.Dataset]) -> dict[str, xarray.Dataset]:
    found: dict[str, xarray.Dataset] = {}
    for data in sorted(
        datasets.values(), key=lambda data: (-int(data.attrs.get("large", 0)), -data.sizes.get("unit", 0))
    ):
        found.setdefault(str(data.attrs.get("network", "")), data)
    return found


def samples_of(dataset: xarray.Dataset) -> str:
    return counted(dataset.sizes["sample"], "sample")


def made_by(dataset: xarray.Dataset) -> tuple[str, ...]:
    """The studies that a dataset was made for: a picture of it shows their claims."""
    return tuple(filter(None, str(dataset.attrs.get("study", "")).split(", ")))
