"""How a paper joins skipscope: the one place where the core learns of papers.

The core measures networks and knows no paper. A paper is a guest: it brings studies with their claims, and where it
needs them, networks of its own, views and figures for its datasets, and measures. It says so in one object, a `Paper`.
Ours are listed in `skipscope/papers/__init__.py`. Another package adds its own by an entry point:

    [project.entry-points."skipscope.papers"]
    anything = "their_package:PAPER"

A `Paper` names what it brings and imports none of it: every part is a function that is called on first use. A guest
that cannot be used, or a part of it, is left out with a warning that names it: what the core does goes on without it.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skipscope.models.names import NetworkNames
    from skipscope.report.views import ViewOfMeasure

OURS = "skipscope.papers"  # the package that holds our papers; it may be missing
GROUP = "skipscope.papers"  # of entry points by which other packages add theirs


@dataclass(frozen=True)
class Paper:
    """studies: name and title; the module PACKAGE.studies.NAME has the study itself, as STUDY."""

    letter: str  # A: its studies are A.NAME, its claims A1, A2, ...
    title: str  # authors and title
    package: str  # __name__ of the package that holds it
    studies: Mapping[str, str]
    networks: Callable[[], Sequence[NetworkNames]] = tuple  # networks that skipscope:NAME can mean
    views: Callable[[], Mapping[str, ViewOfMeasure]] = dict  # by measure: what a report shows of such datasets
    figures: Callable[[], Mapping[str, Callable[..., Any]]] = dict  # by name: ss.plot.NAME
    measures: Callable[[], Mapping[str, Callable[..., Any]]] = dict  # by name

    def __post_init__(self) -> None:
        if not re.fullmatch("[A-Z]", self.letter):
            raise ValueError(f"{self.package}: the letter of a paper is one capital letter, not {self.letter!r}")


def on_first_use(module: str, name: str) -> Callable[[], Any]:
    """A part of a paper: what a module has under a name. The module is imported when the function is called."""
    return partial(_imported, module, name)


def _imported(module: str, name: str) -> Any:
    return getattr(import_module(module), name)


def ours_are_installed() -> bool:
    """Not so where a folder of that name was left without its modules."""
    spec = find_spec(OURS)
    return spec is not None and spec.origin is not None


@cache
def papers() -> tuple[Paper, ...]:
    """Ours, where they are installed, then those of other packages."""
    found: list[Paper] = list(import_module(OURS).PAPERS) if ours_are_installed() else []
    for entry in entry_points(group=GROUP):
        named = f"the paper of the entry point {entry.name} = {entry.value}"
        try:
            paper = entry.load()
        except Exception as error:  # whatever a foreign module raises
            _leave_out(named, f"{type(error).__name__}: {error}")
            continue
        other = next((one for one in found if isinstance(paper, Paper) and one.letter == paper.letter), None)
        if not isinstance(paper, Paper):
            _leave_out(named, f"expected a skipscope Paper, got {type(paper).__name__}")
        elif other is not None:
            _leave_out(named, f"{other.package} has the letter {paper.letter} already")
        else:
            found.append(paper)
    return tuple(found)


@cache
def networks() -> tuple[NetworkNames, ...]:
    return tuple(names for paper in papers() for names in _part(paper, "networks", ()))


@cache
def views(taken: Collection[str] = frozenset()) -> Mapping[str, ViewOfMeasure]:
    """taken: measures that the core has views for; so with the others."""
    return _together("views", taken)


@cache
def figures(taken: Collection[str] = frozenset()) -> Mapping[str, Callable[..., Any]]:
    return _together("figures", taken)


@cache
def measures() -> Mapping[str, Callable[..., Any]]:
    """What papers measure beside the core, by name: `measures()["sensitivity"](model, x)`."""
    return _together("measures", ())


def _together(kind: str, taken: Collection[str]) -> dict[str, Any]:
    """A part of all papers; a name that is taken already is left out."""
    found: dict[str, Any] = {}
    for paper in papers():
        for name, value in _part(paper, kind, {}).items():
            if name in found or name in taken:
                _leave_out(f"'{name}' among the {kind} of paper {paper.letter}", "the name is taken already")
            else:
                found[name] = value
    return found


def _part(paper: Paper, kind: str, nothing: Any) -> Any:
    try:
        return getattr(paper, kind)()
    except Exception as error:  # of a guest; what the core has is worth having without it
        _leave_out(f"the {kind} of paper {paper.letter} ({paper.package})", f"{type(error).__name__}: {error}")
        return nothing


def _leave_out(what: str, why: str) -> None:
    warnings.warn(
        f"{what}: left out ({why}); correct or uninstall the package that has it", RuntimeWarning, stacklevel=3
    )
