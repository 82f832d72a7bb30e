"""The report of a run, from its folder alone: one HTML file that needs nothing else, with tables, figures, the map, and
the library that draws them, all inside.

Several runs stand side by side: each thing that they have in common is a row, each run a column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from skipscope.errors import InputError
from skipscope.report.comparison import comparison
from skipscope.report.content import Content, content_of
from skipscope.report.document import LIBRARY, drawn, figure_page, file_names, library, rendered, script, source
from skipscope.report.first_screen import first_screen
from skipscope.report.shared_axes import share_axes
from skipscope.report.table import number
from skipscope.report.trunk_map import naturally, scales
from skipscope.report.views import Picture
from skipscope.runs import RunFolder, load_run
from skipscope.runs.decisions import in_words
from skipscope.runs.whole_files import write_whole

TEMPLATE = "page.html.jinja"
SCRIPTS = ("config", "theme", "figures", "files", "map")
# Of a run that is still going on; the command line has its own words for it.
OUTSIDE = "write the page outside of its folder, with skipscope.report.write_page(paths, out)"


def write_report(path: Path | str) -> Path:
    """Write report.html and figures/ into a run folder and give the report's path.

    A bug in a view does not keep the rest from being written: its section is marked, and the bug is raised at the end.
    """
    saved = load_run(path)
    content = content_of(saved)
    figures = {name: picture.figure for section in content.sections for name, picture in section.view.figures.items()}
    with RunFolder.reopened(saved.path, OUTSIDE) as run:
        for name, file in file_names(figures).items():
            run.write_text(f"figures/{file}.html", figure_page(figures[name], name))
        if figures:  # one copy of the library beside the figures serves them all
            run.write_text(f"figures/{LIBRARY}", library())
        written = run.write_text("report.html", page([content]))
    raise_failures([content])
    return written


def write_page(paths: Sequence[Path | str], out: Path | str) -> Path:
    """One page with the report of a run, or of several side by side; the run folders are not touched."""
    out = Path(out)
    if out.is_dir():
        raise InputError(f"{out}: expected the name of a file to write, got a folder; try {out / 'report.html'}")
    contents = [content_of(load_run(path)) for path in paths]
    text = page(contents)
    write_whole(out, text.encode("utf-8", errors="backslashreplace"))
    raise_failures(contents)
    return out


def raise_failures(contents: Sequence[Content]) -> None:
    """Of views that have bugs, once everything else is there."""
    failures = [failure for content in contents for failure in content.failures]
    if failures:
        raise failures[0] if len(failures) == 1 else ExceptionGroup("views of the report that failed", failures)


def page(contents: Sequence[Content]) -> str:
    """The report of one run, or of several side by side, as text."""
    from markupsafe import Markup

    labels = distinct_labels([one.path for one in contents])
    title = contents[0].title if len(contents) == 1 else f"skipscope: {', '.join(labels)}"
    compared = comparison(labels, [one.maps for one in contents])
    return rendered(
        TEMPLATE,
        {"plotly": library(), "script": script(*SCRIPTS)},
        title=title,
        runs=contents,
        labels=labels,
        claims=_claims(contents),
        sections=_sections(contents, labels),
        differences=compared and {"table": compared.table, "picture": _picture(compared.picture, contents[0])},
        screens=[first_screen(one) for one in contents],
        maps=[
            {"run": labels[place], "place": place, "maps": one.maps} for place, one in enumerate(contents) if one.maps
        ],
        scales=scales(one for content in contents for one in content.maps),
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
            parts = [{**part, "numbers": _numbers(part)} for part in claim["parts"]]
            row["results"][place] = {**claim, "measured": in_words(claim["measured"]), "parts": parts}
    return sorted(rows.values(), key=lambda row: naturally(row["id"]))


def _numbers(part: Mapping[str, Any]) -> str:
    """Of a part of a claim: its value, the interval and how many networks it comes from."""
    if part["value"] is None:
        return ""
    interval = " to ".join(_short(end) for end in part["interval"] or ())
    networks = f", {part['networks']} {'network' if part['networks'] == 1 else 'networks'}" if part["networks"] else ""
    return f"{_short(part['value'])}{f' ({interval})' if interval else ''}{networks}"


def _short(value: float | str) -> str:
    return value if isinstance(value, str) else number(value)


def _sections(contents: Sequence[Content], labels: Sequence[str]) -> list[dict[str, Any]]:
    """One per measure: rows of pictures and of tables with the same name, one cell per run."""
    found = []
    for measure, heading in _headings(contents).items():
        sections = [
            next((section for section in content.sections if section.measure == measure), None) for content in contents
        ]
        for name in dict.fromkeys(name for section in sections if section for name in section.view.figures):
            share_axes([one.view.figures[name].figure for one in sections if one and name in one.view.figures])
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
