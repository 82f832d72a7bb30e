"""How a paper joins skipscope: the one place where the core learns of papers.

The core measures networks and knows no paper. A paper is a guest: it brings studies with their claims, and where it
needs them, networks of its own, views and figures for its datasets, and measures. It says so in one object, a `Paper`.
Ours are listed in `skipscope/papers/__init__.py`. Another package adds its own by an entry point:

    [project.entry-points."skipscope.papers"]
    anything = "their_package:PAPER"

A `Paper` names what it brings and imports none of it: every part is a function that is called on first use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from skipscope.errors import SkipscopeError

if TYPE_CHECKING:
    from skipscope.models.families import NetworkNames
    from skipscope.report.views import ViewOfMeasure

OURS = "skipscope.papers"  # the package that holds our papers; it may be missing
GROUP = "skipscope.papers"  # of entry points by which other packages add theirs


def _nothing() -> dict[str, Any]:
    return {}


@dataclass(frozen=True)
class Paper:
    """studies: name and title; the module PACKAGE.studies.NAME has the study itself, as STUDY."""

    letter: str  # A: its studies are A.NAME, its claims A1, A2, ...
    title: str  # authors and title
    package: str  # __name__ of the package that holds it
    studies: Mapping[str, str]
    networks: Callable[[], Sequence[NetworkNames]] = tuple  # networks that skipscope:NAME can mean
    views: Callable[[], Mapping[str, ViewOfMeasure]] = _nothing  # by measure: what a report shows of such datasets
    figures: Callable[[], Mapping[str, Callable[..., Any]]] = _nothing  # by name: ss.plot.NAME
    measures: Callable[[], Mapping[str, Callable[..., Any]]] = _nothing  # by name


def on_first_use(module: str, name: str) -> Callable[[], Any]:
    """A part of a paper: what a module has under a name. The module is imported when the function is called."""
    return lambda: getattr(import_module(module), name)


@cache
def papers() -> tuple[Paper, ...]:
    """Ours, where they are installed, then those of other packages; two papers with one letter are an error."""
    found: list[Paper] = list(import_module(OURS).PAPERS) if find_spec(OURS) else []
    for entry in entry_points(group=GROUP):
        paper = entry.load()
        if not isinstance(paper, Paper):
            raise SkipscopeError(
                f"the entry point {entry.name} = {entry.value} of the group {GROUP}: expected a skipscope Paper, "
                f"got {type(paper).__name__}; correct or uninstall the package that has it"
            )
        found.append(paper)
    letters = [paper.letter for paper in found]
    for paper in found:
        if letters.count(paper.letter) > 1:
            packages = ", ".join(other.package for other in found if other.letter == paper.letter)
            raise SkipscopeError(f"several papers have the letter {paper.letter}: {packages}; uninstall all but one")
    return tuple(found)


@cache
def networks() -> tuple[NetworkNames, ...]:
    return tuple(names for paper in papers() for names in paper.networks())


@cache
def views() -> Mapping[str, ViewOfMeasure]:
    return _together("view", {paper.letter: paper.views() for paper in papers()})


@cache
def figures() -> Mapping[str, Callable[..., Any]]:
    return _together("figure", {paper.letter: paper.figures() for paper in papers()})


@cache
def measures() -> Mapping[str, Callable[..., Any]]:
    return _together("measure", {paper.letter: paper.measures() for paper in papers()})


def _together(kind: str, parts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Of all papers; a name that two of them use is an error."""
    found: dict[str, Any] = {}
    for letter, part in parts.items():
        for name, value in part.items():
            if name in found:
                raise SkipscopeError(f"paper {letter} has the {kind} '{name}', which another paper has as well")
            found[name] = value
    return found
