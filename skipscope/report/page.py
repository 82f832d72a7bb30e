"""One HTML file that needs nothing else: tables, figures, the map, and the library that draws them, all inside.

Several runs stand side by side: each thing that they have in common is a row, each run a column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from skipscope.report.content import Content
from skipscope.report.document import drawn, rendered, source
from skipscope.report.figure_page import library
from skipscope.report.trunk_map import naturally
from skipscope.report.views import Picture
from skipscope.runs.decisions import in_words

TEMPLATE = "page.html.jinja"


def page(contents: Sequence[Content]) -> str:
    """The report of one run, or of several side by side, as text."""
    from markupsafe import Markup

    labels = distinct_labels([one.path for one in contents])
    title = contents[0].title if len(contents) == 1 else f"skipscope: {', '.join(labels)}"
    return rendered(
        TEMPLATE,
        {"plotly": library(), "script": source("report.js")},
        title=title,
        runs=contents,
        labels=labels,
        claims=_claims(contents),
        sections=_sections(contents, labels),
        maps=[{"run": label, "maps": one.maps} for label, one in zip(labels, contents, strict=True) if one.maps],
        style=Markup(source("report.css")),
    )


def distinct_labels(paths: Sequence[Path]) -> list[str]:
    """The last parts of the runs' paths, as many as it takes for no two to be the same."""
    whole = [path.resolve().parts for path in paths]
    for count in range(1, max(map(len, whole)) + 1):
        labels = ["/".join(parts[-count:]) for parts in whole]
        if len(set(labels)) == len(labels):
            return labels
    return [f"{paths[place]} ({place + 1})" for place in range(len(paths))]  # one run twice


def _claims(contents: Sequence[Content]) -> list[dict[str, Any]]:
    """One row per claim, one result per run."""
    rows: dict[str, dict[str, Any]] = {}
    for place, content in enumerate(contents):
        for claim in content.claims:
            row = rows.setdefault(claim["id"], {**claim, "results": [None] * len(contents)})
            row["results"][place] = {**claim, "measured": in_words(claim["measured"])}
    return sorted(rows.values(), key=lambda row: naturally(row["id"]))


def _sections(contents: Sequence[Content], labels: Sequence[str]) -> list[dict[str, Any]]:
    """One per measure: rows of pictures and of tables with the same name, one cell per run."""
    found = []
    for measure, heading in _headings(contents).items():
        sections = [
            next((section for section in content.sections if section.measure == measure), None) for content in contents
        ]
        pictures = [
            {name: _picture(picture, content) for name, picture in section.view.figures.items()} if section else {}
            for section, content in zip(sections, contents, strict=True)
        ]
        # By number, since titles hold the networks' names.
        tables = [dict(enumerate(section.view.tables)) if section else {} for section in sections]
        failures = [
            {"run": label, "error": repr(section.failure)}
            for label, section in zip(labels, sections, strict=True)
            if section and section.failure is not None
        ]
        found.append(
            {
                "id": measure,
                "heading": heading,
                "pictures": _rows(pictures),
                "tables": _rows(tables),
                "failures": failures,
            }
        )
    return found


def _headings(contents: Sequence[Content]) -> dict[str, str]:
    """By measure, in the order of the run that has the most; what only others have comes behind it."""
    ordered = sorted(contents, key=lambda content: -len(content.sections))
    return {section.measure: section.heading for content in ordered for section in content.sections}


def _rows(columns: Sequence[Mapping[Any, Any]]) -> list[dict[str, Any]]:
    names = list(dict.fromkeys(name for column in columns for name in column))
    return [{"name": name, "cells": [column.get(name) for column in columns]} for name in names]


def _picture(picture: Picture, content: Content) -> dict[str, Any]:
    figure = drawn(picture.figure)
    figure["layout"].pop("template", None)  # the page has one for each of its themes
    return {
        "caption": picture.caption,
        "figure": figure,
        "height": figure["layout"].get("height", 400),
        "claims": [claim for claim in content.claims if claim["study"] and claim["study"] in picture.studies],
    }
