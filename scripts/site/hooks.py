"""What mkdocs does to pages besides Markdown (mkdocs.yml): formulas, and tables of variables.

Formulas in $...$ and $$...$$ become MathML, which browsers show by themselves: no script and no fonts to load.
`<!-- variables: profile -->` becomes a table of what the dataset of that measurement holds.
"""

from __future__ import annotations

import html
import re
import runpy
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert

FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)
VARIABLES = re.compile(r"<!-- variables: (\w+) -->")
DESCRIPTIONS = Path(__file__).parents[2] / "skipscope" / "measure" / "descriptions.py"


def on_page_markdown(markdown: str, /, **kwargs: Any) -> str:
    return VARIABLES.sub(lambda found: variables(found.group(1)), markdown) if VARIABLES.search(markdown) else markdown


def on_page_content(content: str, /, **kwargs: Any) -> str:
    return FORMULA.sub(lambda found: formula(found.group(3), block=found.group(1) == "div"), content)


def formula(latex: str, *, block: bool) -> str:
    return convert(html.unescape(latex).strip(), display="block" if block else "inline")


def variables(measure: str) -> str:
    found = runpy.run_path(str(DESCRIPTIONS))  # without importing torch
    rows = [
        f"| `{name}` | {about} | {units or 'text'} |" for name, (about, units) in found["MEASURES"][measure].items()
    ]
    return "\n".join(["| variable | what it is | unit |", "|---|---|---|", *rows])
