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

# The way of the data: a room of the core imports only rooms before it. `errors` and other single modules are below them
# all. The papers are guests: they may use everything, and no room imports them.
CORE = (
    *("trace", "linear", "spectrum", "measure", "models", "data", "runs", "training"),
    *("findings", "report", "plot", "inspection", "sweeps", "check", "monitor", "pytest_plugin", "demo"),
    *("cli", "__main__"),
)
ROOMS = (*CORE, "papers")

# Against that way, and only inside a function or for the type checker: a user asks a unit for its Jacobian, so that
# the method is the unit's, and what it returns is an operator; a paper says which networks and views it brings.
DEFERRED = {
    ("skipscope/trace/trunk.py", "linear"),
    ("skipscope/registration.py", "models"),
    ("skipscope/registration.py", "report"),
}


# One after another in one interpreter, since each takes seconds: what a later one may not bring, those before it may
# not either.
STATEMENTS = (
    *("import skipscope", "import skipscope.trace", "from skipscope.trace import Unit\nUnit.jacobian"),
    *("from skipscope.data import load", "import skipscope as ss; ss.singular_values"),
)


@pytest.fixture(scope="module", name="loaded")
def _loaded() -> dict[str, set[str]]:
    """All modules that a fresh interpreter has after each of the statements."""
    return dict(zip(STATEMENTS, loaded_after(*STATEMENTS), strict=True))


def loaded_after(*statements: str) -> list[set[str]]:
    code = "import sys\n" + "".join(f"{statement}\nprint(*sys.modules)\n" for statement in statements)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    return [set(line.split()) for line in run.stdout.splitlines()]


def test_importing_skipscope_brings_only_torch_and_numpy(loaded: dict[str, set[str]]) -> None:
    assert not loaded["import skipscope"] & {*HEAVY, "typer"}


def test_importing_the_command_line_is_light() -> None:
    (modules,) = loaded_after("import skipscope.cli")
    assert "skipscope.cli" in modules
    assert not modules & set(HEAVY)


def test_tracing_brings_no_linear_algebra(loaded: dict[str, set[str]]) -> None:
    modules = loaded["import skipscope.trace"]
    assert "skipscope.trace.trunk" in modules
    assert "skipscope.linear" not in modules


def test_a_unit_has_its_jacobian_whatever_was_imported(loaded: dict[str, set[str]]) -> None:
    assert "skipscope.linear" not in loaded[STATEMENTS[2]]


def test_importing_data_is_light(loaded: dict[str, set[str]]) -> None:
    modules = loaded["from skipscope.data import load"]
    assert "skipscope.data.catalogue" in modules
    assert not modules & {"sklearn", "torchvision", "PIL", "scipy"}


def test_the_library_of_bars_is_imported_only_for_a_bar(loaded: dict[str, set[str]]) -> None:
    modules = loaded["import skipscope as ss; ss.singular_values"]
    assert "skipscope.spectrum" in modules
    assert "rich" not in modules


def room_of(module: str) -> str:
    """The room of `skipscope.trace.rule` is `trace`; of the package itself, the empty string."""
    return [*module.split("."), ""][1]


def is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def imports(folder: Path = PACKAGE) -> Iterator[tuple[str, str, str, bool]]:
    """Every import of a module of the package: the file, its module, the imported module, and whether it happens when
    the file is imported."""
    for path in sorted(folder.rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        tree = ast.parse(path.read_text(encoding="utf-8"))
        at_once = {id(node) for node in tree.body}
        for node in ast.walk(tree):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{path}: relative imports hide which room they go to"
                names = [f"{node.module}.{alias.name}" for alias in node.names]
                if node.module == "skipscope":  # modules of it, or names of the public list
                    names = [name if is_module(name) else "skipscope" for name in names]
            for name in names:
                if name.split(".")[0] == "skipscope":
                    yield str(path.relative_to(ROOT)), module, name, id(node) in at_once


def test_rooms_import_only_to_the_left() -> None:
    wrong = []
    for file, module, name, at_once in imports():
        importer, imported = room_of(module), room_of(name)
        if importer in ("", imported):
            continue  # the public list may name everything
        if imported == "":
            allowed = importer == "cli"  # the version; anyone else would go in a circle
        elif imported not in ROOMS:
            allowed = True
        elif (file, imported) in DEFERRED:
            allowed = not at_once
        else:
            allowed = importer in ROOMS and ROOMS.index(imported) < ROOMS.index(importer)
        if not allowed:
            wrong.append(f"{file}: {importer} imports {imported or 'the package itself'}")
    assert wrong == []


def test_no_paper_imports_another() -> None:
    """They share what is in the kit, which knows none of them."""
    wrong = []
    for file, module, name, _ in imports(PACKAGE / "papers"):
        importer, imported = module.split("."), name.split(".")
        if imported[:2] == ["skipscope", "papers"] and len(importer) > 2:  # papers/__init__.py lists them
            own = [importer[2], "kit"] if importer[2] != "kit" else ["kit"]
            if imported[2] not in own:
                wrong.append(f"{file}: {importer[2]} imports {name}")
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
