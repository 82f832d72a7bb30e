"""The package as a whole: what importing it costs, who imports whom, what its files may not name."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import skipscope

PACKAGE = Path(skipscope.__file__).parent
ROOT = PACKAGE.parent
HEAVY = ("h5netcdf", "jinja2", "plotly", "rich", "scipy", "sklearn", "timm", "torchvision", "transformers", "xarray")

# The way of the data: a room imports only rooms before it. `errors` and other single modules are below them all.
ROOMS = (
    *("trace", "linear", "spectrum", "measure", "theory", "models", "data"),
    *("runs", "training", "studies", "report", "plot", "inspection", "check", "demo", "cli", "__main__"),
)

# Against that way, and only inside a function or for the type checker: a user asks a unit for its Jacobian, so that
# the method is the unit's, and what it returns is an operator.
DEFERRED = {("skipscope/trace/trunk.py", "linear")}


def loaded_after(statement: str, names: tuple[str, ...]) -> list[str]:
    """Which of `names` a fresh interpreter has imported after `statement`."""
    code = f"{statement}\nimport sys\nprint(*(name for name in {names!r} if name in sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    return run.stdout.split()


def test_importing_skipscope_brings_only_torch_and_numpy() -> None:
    assert loaded_after("import skipscope", (*HEAVY, "typer")) == []


def test_importing_the_command_line_is_light() -> None:
    assert loaded_after("import skipscope.cli", HEAVY) == []


def test_tracing_brings_no_linear_algebra() -> None:
    assert loaded_after("import skipscope.trace", ("skipscope.trace.trunk", "skipscope.linear")) == [
        "skipscope.trace.trunk"
    ]


def test_a_unit_has_its_jacobian_whatever_was_imported() -> None:
    assert loaded_after("from skipscope.trace import Unit\nUnit.jacobian", ("skipscope.linear",)) == []


def room_of(module: str) -> str:
    """The room of `skipscope.trace.rule` is `trace`; of the package itself, the empty string."""
    return [*module.split("."), ""][1]


def imports() -> Iterator[tuple[str, str, str, bool]]:
    """Every import of one part of the package by another: the file, its room, the imported room, and whether it happens
    when the file is imported."""
    for path in sorted(PACKAGE.rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        tree = ast.parse(path.read_text(encoding="utf-8"))
        at_once = {id(node) for node in tree.body}
        for node in ast.walk(tree):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{path}: relative imports hide which room they go to"
                names = [node.module or ""]
            for name in names:
                if name.split(".")[0] == "skipscope" and room_of(name) != room_of(module):
                    yield str(path.relative_to(ROOT)), room_of(module), room_of(name), id(node) in at_once


def test_rooms_import_only_to_the_left() -> None:
    wrong = []
    for file, importer, imported, at_once in imports():
        if importer == "":
            continue  # the public list may name everything
        if imported == "":
            allowed = importer == "cli"  # the version; anyone else would go in a circle
        elif imported not in ROOMS:
            allowed = True
        elif importer not in ROOMS:
            allowed = False
        else:
            deferred = (file, imported) in DEFERRED and not at_once
            allowed = deferred or ROOMS.index(imported) < ROOMS.index(importer)
        if not allowed:
            wrong.append(f"{file}: {importer} imports {imported or 'the package itself'}")
    assert wrong == []


def committed_files() -> list[Path]:
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], capture_output=True, text=True, cwd=ROOT
    )
    if listing.returncode != 0:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listing.stdout.splitlines() if (ROOT / name).is_file()]


def test_requirements_name_no_host() -> None:
    for path in sorted((ROOT / "requirements").glob("*.txt")):
        text = path.read_text(encoding="utf-8")
        assert re.findall(r"\w+://\S*|^-\S+.*|@ \S+", text, flags=re.MULTILINE) == [], path
        pins = re.findall(r"^[\w.-]+(?:\[[\w,]+\])?==.*?(?=^\S|\Z)", text, flags=re.MULTILINE | re.DOTALL)
        assert pins
        assert all("--hash=sha256:" in pin for pin in pins), path


def test_no_file_names_a_registry() -> None:
    # In pieces, so that this file passes its own test.
    registry = re.compile(
        "|".join(["pypi" + r"\.org", "python" + "hosted", "--(extra-)?index" + "-url", "--find" + "-links"])
    )
    named = []
    for path in committed_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        named += [f"{path.relative_to(ROOT)}: {found.group()}" for found in registry.finditer(text)]
    assert named == []
