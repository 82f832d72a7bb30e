"""Which statements of the paper hold with batch norms, and which without."""

from __future__ import annotations

from collections.abc import Mapping

import numpy
import xarray

from skipscope.report.style import names_of
from skipscope.report.table import Table, number
from skipscope.report.views.view import View, counted, distinct

ABOUT = (
    "PlainNet and ResNet with batch norms and without, {networks} of each, in everything else trained alike. The rule "
    "is that of the claim; behind the answer, the mean over networks of what the rule compares first. Open: the ResNet "
    "of that form is not trained, so that its PlainNet shows nothing. The paper does not say which form it has."
)
SENTENCES = {
    "both": "hold with norms and without",
    "with norms": "hold with norms alone",
    "without norms": "hold without norms alone",
    "none": "hold in neither form",
}


def norms_view(datasets: Mapping[str, xarray.Dataset]) -> View:
    from skipscope.papers.c.studies.norms import needs

    tables, sentences = [], []
    titles = distinct({name: str(data.attrs["title"]) for name, data in datasets.items()})
    for name, data in datasets.items():
        title = titles[name]
        tables.append(_table(title, data))
        by_form = needs(data)
        words = [f"{', '.join(_ids(by_form[key]))} {what}" for key, what in SENTENCES.items() if by_form[key]]
        if words:
            sentences.append(f"{title}: of the paper's statements {'; '.join(words)}.")
    return View(tables, {}, sentences)


def _ids(statements: list[str]) -> list[str]:
    """Of the claims, each with the number of its parts where there are several."""
    ids = [statement.partition(" ")[0] for statement in statements]
    return [f"{id} ({counted(ids.count(id), 'part')})" if ids.count(id) > 1 else id for id in dict.fromkeys(ids)]


def _table(title: str, data: xarray.Dataset) -> Table:
    forms = names_of(data, "form")
    rows = []
    for place, statement in enumerate(names_of(data, "statement")):
        here = data.isel(statement=place)
        cells = [_cell(here.sel(form=form)) for form in forms]
        rows.append([str(here["claim"].item()), statement, _rule(str(here["rule"].item())), *cells])
    about = ABOUT.format(networks=counted(int(data.attrs["networks"]), "network"))
    return Table(f"Statements with and without norms: {title}", ["claim", "statement", "rule", *forms], rows, about, 5)


def _rule(text: str) -> str:
    """The first of several conditions, which the number beside the answer is about."""
    first, *others = text.split("; ")
    return f"{first}, and {counted(len(others), 'condition')} more" if others else first


def _cell(here: xarray.Dataset) -> str:
    value, outcome, why = float(here["value"]), str(here["outcome"].item()), str(here["why"].item())
    text = outcome if numpy.isnan(value) else f"{outcome} ({number(value)})"
    return f"{text}: {why}" if why else text
