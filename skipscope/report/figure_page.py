"""One figure as a page of its own."""

from __future__ import annotations

from typing import Any

from skipscope.report.document import drawn, rendered, source

LIBRARY = "plotly.min.js"


def library() -> str:
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


def figure_page(figure: Any, title: str, *, alone: bool = False) -> str:
    """alone: with the library inside; otherwise it is taken from LIBRARY in the page's folder."""
    scripts = {"script": source("figure.js"), **({"library": library()} if alone else {"library": ""})}
    return rendered("figure.html.jinja", scripts, files=not alone, title=title, figure=drawn(figure), beside=LIBRARY)
