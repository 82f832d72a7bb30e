"""One figure as a file: a page of its own, or a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from skipscope.errors import InputError
from skipscope.report.document import drawn, rendered, source
from skipscope.runs.files import write_whole

LIBRARY = "plotly.min.js"
PICTURES = ("png", "svg", "pdf", "jpg", "webp")


def library() -> str:
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


def figure_page(figure: Any, title: str, *, alone: bool = False) -> str:
    """alone: with the library inside; otherwise it is taken from LIBRARY in the page's folder."""
    scripts = {"script": source("figure.js"), **({"library": library()} if alone else {"library": ""})}
    return rendered("figure.html.jinja", scripts, files=not alone, title=title, figure=drawn(figure), beside=LIBRARY)


def save(figure: Any, path: Path | str, *, width: int = 1100, scale: float = 2) -> Path:
    """Write a figure as .png, .svg or .pdf (the extra `export` must be installed) or as an .html page of its own."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = path.suffix.removeprefix(".").lower()
    if kind == "html":
        text = figure_page(figure, path.stem, alone=True)
        write_whole(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))
        return path
    if kind not in PICTURES:
        raise InputError(f"{path}: expected a name that ends in .html or .{', .'.join(PICTURES)}")
    try:
        import kaleido  # noqa: F401
    except ImportError:
        raise InputError(f"{path}: pictures need the package kaleido: pip install 'skipscope[export]'") from None
    try:
        figure.write_image(path, width=width, scale=scale)
    except Exception as error:  # kaleido raises its own kinds, and there are many ways for a browser not to start
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InputError(
            f"{path}: the picture could not be drawn; kaleido needs Chrome or Chromium ({reason})"
        ) from error
    return path
