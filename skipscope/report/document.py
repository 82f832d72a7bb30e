"""HTML documents: a figure as a page of its own, and what all pages have in common: escaping, and a policy under which
nothing runs but our own scripts.

A run folder may come from anybody, and names of units, networks, datasets and claims are in it. They are text
everywhere: the templates escape them, JSON inside a page cannot end its element, and should something slip through, the
policy lets no script run that is not one of ours, to the letter, and no request leave the page.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from skipscope.errors import InputError
from skipscope.runs.whole_files import write_whole

FOLDER = "skipscope.report"
LIBRARY = "plotly.min.js"
POWER_OF_TEN = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?e-\d+(?![\w.]\w|\w)")
PICTURES = ("png", "svg", "pdf", "jpg", "webp")


def rendered(template: str, scripts: Mapping[str, str], *, files: bool = False, **content: Any) -> str:
    """A template with its content. scripts: those that may run. files: scripts beside the page may run too."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader(FOLDER, "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["json"] = lambda value: Markup(_embedded(value))
    environment.filters["numbers"] = lambda text: Markup(with_whole_numbers(text))
    code = {name: Markup(text) for name, text in scripts.items()}
    policy = policy_for(scripts.values(), files=files)
    return environment.get_template(template).render(**content, **code, policy=policy)


def source(name: str) -> str:
    """A file of the templates' folder as it is."""
    from importlib.resources import files

    return files(FOLDER).joinpath("templates", name).read_text(encoding="utf-8")


def script(*names: str) -> str:
    """Scripts of the templates' folder as one, which leaves no name behind on the page."""
    parts = "\n".join(source(f"{name}.js") for name in names)
    return f'"use strict";\n(() => {{\n{parts}}})();\n'


def policy_for(scripts: Iterable[str], *, files: bool = False) -> str:
    allowed = [f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in scripts]
    if files:  # a page from disk has no origin of its own in some browsers
        allowed += ["'self'", "file:"]
    return (
        f"default-src 'none'; script-src {' '.join(allowed)}; style-src 'unsafe-inline'; img-src data: blob:; "
        "font-src data:; base-uri 'none'; form-action 'none'"
    )


def drawn(figure: Any) -> dict[str, Any]:
    """A Plotly figure as JSON gives it back."""
    return json.loads(figure.to_json())


def file_names(names: Iterable[str]) -> dict[str, str]:
    """For each name one that is safe as a file's, no two of them the same, also where capitals do not count."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    for name in names:
        base = re.sub(r"[^\w.-]+", "-", name)[:100].strip("-.") or "figure"
        found[name] = next(
            one for k in range(1, len(taken) + 2) if (one := f"{base}-{k}" if k > 1 else base).casefold() not in taken
        )
        taken.add(found[name].casefold())
    return found


def with_whole_numbers(text: str) -> str:
    """Text as HTML in which no line ends inside of a number such as 6.7e-05, after whose hyphen a browser may break."""
    from markupsafe import escape

    return POWER_OF_TEN.sub(r'<span class="number">\g<0></span>', str(escape(text)))


def _embedded(value: Any) -> str:
    """JSON that cannot end the element that it stands in."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def library() -> str:
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


def figure_page(figure: Any, title: str, *, alone: bool = False) -> str:
    """alone: with the library inside; otherwise it is taken from LIBRARY in the page's folder."""
    scripts = {"script": script("config", "figure"), **({"library": library()} if alone else {"library": ""})}
    return rendered("figure.html.jinja", scripts, files=not alone, title=title, figure=drawn(figure), beside=LIBRARY)


def save(figure: Any, path: Path | str, *, width: int = 1100, scale: float = 2) -> Path:
    """Write a figure as .png, .svg or .pdf (the extra `export` must be installed) or as an .html page of its own."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = path.suffix.removeprefix(".").lower()
    if kind == "html":
        text = figure_page(figure, path.stem, alone=True)
        write_whole(path, text.encode("utf-8", errors="backslashreplace"))
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
