"""Runs the tutorials of the documentation and writes what they give.

    python scripts/tutorials.py                 # all
    python scripts/tutorials.py deep-network    # one

The source of a tutorial is docs/tutorials/NAME.py, cells in jupytext's percent format. It is executed as a Jupyter
notebook, from the root of the checkout. Written are NAME.ipynb, the notebook with its outputs, and NAME.md with
NAME-*.png, what mkdocs shows. Needs the extra `tutorials`, and Chromium for figures.
"""

from __future__ import annotations

import argparse
import base64
import os
import re
import time
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).parent.parent
TUTORIALS = ROOT / "docs" / "tutorials"
TIMEOUT = 1800  # seconds, of one cell


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="of tutorials; all by default")
    names = parser.parse_args().names or sorted(path.stem for path in TUTORIALS.glob("*.py"))
    for name in names:
        start = time.monotonic()
        notebook = executed(TUTORIALS / f"{name}.py")
        for old in TUTORIALS.glob(f"{name}-[0-9]*.png"):
            old.unlink()
        nbformat.write(notebook, TUTORIALS / f"{name}.ipynb")
        (TUTORIALS / f"{name}.md").write_text(markdown(notebook, name), encoding="utf-8")
        print(f"{name}: {time.monotonic() - start:.0f} s")


def executed(source: Path) -> Any:
    """The notebook of a source, with outputs. Figures are pictures: the documentation loads no scripts."""
    notebook = jupytext.read(source)
    notebook.metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    os.environ["PLOTLY_RENDERER"] = "png"
    NotebookClient(notebook, timeout=TIMEOUT, resources={"metadata": {"path": str(ROOT)}}).execute()
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
        cell.metadata = {}  # times of execution change from run to run
        if cell.cell_type == "code":  # progress and warnings have paths of this machine
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    return notebook


def markdown(notebook: Any, name: str) -> str:
    parts = []
    for number, cell in enumerate(notebook.cells):
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        parts += [text for place, output in enumerate(cell.outputs) if (text := shown(output, name, number, place))]
    link = f"This page is a Jupyter notebook: [{name}.ipynb]({name}.ipynb)."
    return "\n\n".join([*parts[:1], link, *parts[1:]]) + "\n"


def shown(output: Any, name: str, number: int, place: int) -> str:
    """An output as Markdown."""
    if output.output_type == "stream":
        return f"```text\n{output.text.rstrip()}\n```"
    content = output.data
    if "image/png" in content:
        picture = TUTORIALS / f"{name}-{number}-{place}.png"
        picture.write_bytes(base64.b64decode(content["image/png"]))
        return f"![Output of the code above]({picture.name})"
    if "text/markdown" in content:
        return str(content["text/markdown"]).strip()
    if table := re.search(r"<table.*</table>", content.get("text/html", ""), re.DOTALL):  # of pandas
        return table.group()
    return f"```text\n{content['text/plain'].rstrip()}\n```"


if __name__ == "__main__":
    main()
