"""Figures as pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from skipscope.errors import InputError
from skipscope.report.figure_page import figure_page
from skipscope.runs.files import write_whole

PICTURES = ("png", "svg", "pdf", "jpg", "webp")


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
