"""One HTML file that needs nothing else: tables, figures and the library that draws them, all inside."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from skipscope.report.table import Table

TEMPLATE = "page.html.jinja"
SHOWN = 4  # members of a quantity that are shown one by one


def page(
    *,
    title: str,
    summary: Sequence[str],
    record: Mapping[str, Any],
    claims: Sequence[Mapping[str, Any]],
    tables: Sequence[Table],
    figures: Sequence[tuple[str, Any]],
) -> str:
    """The report as text. figures: captions and Plotly figures."""
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
    drawn = [
        (
            caption,
            Markup(
                figure.to_html(
                    full_html=False,
                    include_plotlyjs=False,
                    div_id=f"figure-{number}",
                    config={"displaylogo": False, "responsive": True},
                )
            ),
        )
        for number, (caption, figure) in enumerate(figures, 1)
    ]
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
    return "; ".join(f"{key}: {_in_words(value)}" for key, value in measured.items())


def _in_words(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, Mapping):  # members that were too many to keep
        return ", ".join(f"{key} {_in_words(part)}" for key, part in value.items())
    if isinstance(value, (list, tuple)) and len(value) > SHOWN and all(isinstance(v, (int, float)) for v in value):
        finite = [v for v in value if math.isfinite(v)]
        mean = f"mean {sum(finite) / len(finite):.3g}, " if len(finite) == len(value) else ""
        return f"{mean}{min(value):.3g} to {max(value):.3g} ({len(value)})"
    if isinstance(value, (list, tuple)):
        return ", ".join(_in_words(v) for v in value) or "none"
    return str(value)
