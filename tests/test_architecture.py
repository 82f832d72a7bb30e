"""The page on the architecture: every step of its two paths names a function or class that is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import skipscope

PACKAGE = Path(skipscope.__file__).parent
PAGE = PACKAGE.parent / "docs" / "architecture.md"
STEP = re.compile(r"^\d+\. `([\w/]+\.py):(\w+)` \S", flags=re.MULTILINE)


def paths() -> list[list[tuple[str, str]]]:
    listed = re.findall(r"<!-- steps -->\n(.*?)<!-- end of steps -->", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    for text in listed:
        assert len(STEP.findall(text)) == len(text.strip().splitlines()), "a line that is no step"
    return [STEP.findall(text) for text in listed]


def test_there_are_two_paths() -> None:
    assert len(paths()) == 2
    assert all(len(path) > 10 for path in paths())


@pytest.mark.parametrize(("file", "name"), [step for path in paths() for step in path])
def test_every_step_exists(file: str, name: str) -> None:
    defined = ast.parse((PACKAGE / file).read_text(encoding="utf-8")).body
    names = {node.name for node in defined if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    assert name in names, f"{file} has no {name}"


def test_no_file_is_longer_than_500_lines() -> None:
    longer = {
        str(path.relative_to(PACKAGE)): lines
        for path in PACKAGE.rglob("*.py")
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > 500
    }
    assert longer == {}
