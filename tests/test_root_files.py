"""The files beside the package: how to cite, contribute and report, and what changed."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import skipscope

ROOT = Path(__file__).parent.parent


def released() -> str:
    """The last version that was released, by the changelog."""
    titles = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert titles[0] == "Unreleased"
    return str(titles[1])


def test_the_citation_has_this_version_and_the_four_papers() -> None:
    citation = pytest.importorskip("yaml").safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= set(citation)
    assert citation["version"] == released()
    assert [entry["notes"][:7] for entry in citation["references"]] == ["Paper A", "Paper B", "Paper C", "Paper D"]
    for entry in citation["references"]:
        assert {"type", "title", "authors", "year"} <= set(entry)
        assert all(set(author) == {"given-names", "family-names"} for author in entry["authors"])


def test_this_version_is_the_released_one_or_on_the_way_to_the_next() -> None:
    """Results of two versions are not mixed, so that what is not released has a version of its own."""
    version, _, development = skipscope.__version__.partition(".dev")
    numbers = [tuple(map(int, text.split("."))) for text in (version, released())]
    assert numbers[0] > numbers[1] if development else numbers[0] == numbers[1]


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "SECURITY.md"])
def test_commands_and_paths_of_a_page_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert set(re.findall(r"(?:^|`)make ([\w-]+)", text, re.MULTILINE)) <= set(targets)
    paths = re.findall(r"`((?:skipscope|tests|docs|scripts|requirements|benchmarks)/[\w./*-]*)`", text)
    assert paths
    for path in paths:
        assert "NAME" in path or list(ROOT.glob(path)), path


def test_the_page_on_installing_has_every_extra_and_the_extras_in_it() -> None:
    """The table of docs/install.md against pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", page, re.MULTILINE))
    extras = project["optional-dependencies"]
    assert rows.keys() == extras.keys()
    for name in ("dev", "integrations"):  # of `tutorials`, kaleido is named instead of the extra
        (inside,) = re.findall(r"skipscope\[([\w,]+)\]", " ".join(extras[name]))
        assert re.findall(r"`(\w+)`", rows[name]) == inside.split(",")
