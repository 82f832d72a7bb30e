"""One HTML file that needs nothing else: tables, figures and the library that draws them, all inside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from skipscope.report.table import Table

TEMPLATE = "page.html.jinja"


def page(
    *,
    title: str,
    summary: Sequence[str],
    record: Mapping[str, Any],
    claims: Sequence[Mapping[str, Any]],
    tables: Sequence[Table],
    figures: Mapping[str, Any],
) -> str:
    """The report as text. figures: Plotly figures by their captions."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs

    environment = Environment(
        loader=PackageLoader("skipscope.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    drawn = {
        caption: Markup(
            figure.to_html(
                full_html=False,
                include_plotlyjs=False,
                div_id=f"figure-{number}",
                config={"displaylogo": False, "responsive": True},
            )
        )
        for number, (caption, figure) in enumerate(figures.items(), 1)
    }
    return environment.get_template(TEMPLATE).render(
        title=title,
        summary=summary,
        record=record,
        claims=[{**claim, "measured": in_words(claim["measured"])} for claim in claims],
        tables=tables,
        figures=drawn,
        plotly=Markup(get_plotlyjs()) if drawn else "",
    )


def in_words(measured: Mapping[str, Any]) -> str:
    return "; ".join(
        f"{key}: {value:.3g}" if isinstance(value, float) else f"{key}: {value}" for key, value in measured.items()
    )
