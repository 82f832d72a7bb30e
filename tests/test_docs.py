"""The README and the documentation: Python blocks run as they stand, one page after another; commands, options, make
targets, files and Python names that they mention exist; the site builds strictly and loads nothing from the network."""

from __future__ import annotations

import html
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
import typer

import skipscope as ss
from skipscope import plot, registration
from skipscope.cli import app
from skipscope.papers.kit import catalogue
from skipscope.papers.kit.catalogue import find, studies
from skipscope.report import figures as report_figures
from tests.commands import run_command

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
BY_SCRIPTS = {ROOT / "docs" / "gallery.md", *(ROOT / "docs" / "tutorials").glob("*.md")}  # tests/test_tutorials.py
BLOCK = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"^```\w* title=\"([^\"]+)\"\n(.*?)^```", re.MULTILINE | re.DOTALL)  # a block that is a file
SHELL = re.compile(r"\||&&|;|\d?[<>]")
ROW = re.compile(r"^\| `([A-Z]\.\w+)` \|[^|]*\| ([^|]*) \|", re.MULTILINE)
OPTION = re.compile(r"`(--[a-z][a-z-]*)")
NAME = re.compile(r"`(ss|skipscope)((?:\.[A-Za-z_]\w*)+)")
SOURCE = re.compile(r"`((?:skipscope|docs|tests|benchmarks|scripts)/[\w./-]+\.\w+)`")
PLACEHOLDER = re.compile(r"[A-Z]{4,}")  # NAME, PAPER
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")
LOADED = re.compile(r"<(?:script|img|iframe)\b[^>]*\bsrc=[\"']?(?:https?:)?//|<link\b[^>]*\bhref=[\"']?(?:https?:)?//")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, *languages: str) -> list[str]:
    return [text for language, text in BLOCK.findall(page.read_text(encoding="utf-8")) if language in languages]


def program_of(page: Path) -> str:
    """All Python blocks but files, each on its own lines of the page, so that an error points to the page."""
    text, program = page.read_text(encoding="utf-8"), ""
    for block in BLOCK.finditer(text):
        if block.group(1) == "python" and not FILE.match(block.group()):
            program += "\n" * (text.count("\n", 0, block.start(2)) - program.count("\n")) + block.group(2)
    return program


def test_readme_runs_in_a_fresh_interpreter(tmp_path: Path) -> None:
    """The first lines of a new user: nothing else has imported a part of the package before."""
    run = subprocess.run(
        [sys.executable, "-c", program_of(ROOT / "README.md")],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},  # other tests run beside it
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize(
    "page", [page for page in PAGES[1:] if page not in BY_SCRIPTS and blocks(page, "python")], ids=name_of
)
def test_code_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # what a page writes stays out of the checkout
    exec(compile(program_of(page), str(page), "exec"), {"__name__": "page"})


@pytest.fixture
def installed_paper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The package that docs/studies.md shows, file by file, as pip would install it; gone again after the test."""
    files = dict(FILE.findall((ROOT / "docs" / "studies.md").read_text(encoding="utf-8")))
    for name, text in {**files, "identity_paper/studies/__init__.py": ""}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    project = tomllib.loads(files["pyproject.toml"])["project"]
    described = tmp_path / "identity_paper-1.0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 1.0\n")
    ((group, entries),) = project["entry-points"].items()
    lines = [f"{name} = {target}\n" for name, target in entries.items()]
    (described / "entry_points.txt").write_text(f"[{group}]\n{''.join(lines)}")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    forget_papers()
    yield tmp_path
    monkeypatch.undo()
    forget_papers()
    for module in [name for name in sys.modules if name.split(".")[0] == "identity_paper"]:
        del sys.modules[module]


def forget_papers() -> None:
    """What is installed is looked up once in a process."""
    for module in (registration, catalogue):
        for function in vars(module).values():
            if hasattr(function, "cache_clear"):
                function.cache_clear()


def test_the_paper_of_another_package_runs(
    installed_paper: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(monkeypatch, "study", "run", "E.isometry", "--out", "isometry", "--strict") == 0
    assert "E1 reproduced" in capsys.readouterr().out
    assert "Singular values" in (installed_paper / "isometry" / "report.html").read_text(encoding="utf-8")


# -- commands


def command_lines(program: str) -> list[Any]:
    """Of all pages, as parameters of a test; also those of blocks that show a command and its output."""
    found = []
    for page in PAGES:
        for block in blocks(page, "sh", "bash", "console", ""):
            for line in block.replace("\\\n", " ").splitlines():
                words = shlex.split(line.removeprefix("$ "), comments=True) if program in line else []
                if words[:1] == [program]:
                    words = list(takewhile(lambda word: not SHELL.match(word), words))
                    found.append(pytest.param(words[1:], id=f"{name_of(page)}: {' '.join(words)}"))
    return found


@pytest.mark.parametrize("words", command_lines("skipscope"))
def test_command_lines_parse(words: list[str]) -> None:
    command: Any = typer.main.get_command(app)
    names = ["skipscope"]
    while hasattr(command, "resolve_command"):  # a group: its own options first, then the name of a command
        context = command.context_class(command)
        _, words, _ = command.make_parser(context).parse_args(list(words))
        if not words:
            return
        name, command, words = command.resolve_command(context, words)
        names.append(name)
    context = command.make_context(" ".join(names), words)  # an error names what is wrong; nothing is run
    if names[1] == "study" and "id" in context.params:
        preset = context.params["preset"]
        found = find(context.params["id"], preset or "")
        assert found
        assert all(preset in study.presets for study in found if preset is not None)


@pytest.mark.parametrize("words", command_lines("make"))
def test_make_targets_exist(words: list[str]) -> None:
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {word for word in words if "=" not in word} <= set(targets)


def options(command: Any) -> Iterator[str]:
    for parameter in command.params:
        yield from (*parameter.opts, *parameter.secondary_opts)
    for inner in getattr(command, "commands", {}).values():
        yield from options(inner)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_options_exist(page: Path) -> None:
    named = set(OPTION.findall(page.read_text(encoding="utf-8")))
    assert named - set(options(typer.main.get_command(app))) - {"--help"} == set()


# -- names and files


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_names_and_files_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    names = [(first, rest) for first, rest in NAME.findall(text) if not PLACEHOLDER.search(rest)]
    missing = {f"{first}{rest}" for first, rest in names if not known(rest.split(".")[1:])}
    missing |= {file for file in SOURCE.findall(text) if not PLACEHOLDER.search(file) and not (ROOT / file).exists()}
    missing |= {link for link in LINK.findall(BLOCK.sub("", text)) if not (page.parent / link).exists()}
    assert missing == set()


def known(path: list[str]) -> bool:
    """Whether a name of the package exists: attributes of the longest part of it that is a module."""
    for length in range(len(path), -1, -1):
        try:
            found: Any = import_module(".".join(["skipscope", *path[:length]]))
        except ModuleNotFoundError:
            continue
        for name in path[length:]:
            if not hasattr(found, name):
                return False
            found = getattr(found, name)
        return True
    return False


# -- the reference

ENTRY = re.compile(
    r"^::: (\S+)\n    options:\n      heading: (ss|skipscope\.\w+)\.([\w.]+)\n(.*?)(?=^:::|\Z)", re.M | re.S
)
REFERENCE = [
    (page, *found) for page in sorted((ROOT / "docs" / "api").glob("*.md")) for found in ENTRY.findall(page.read_text())
]


def test_every_public_name_is_in_the_reference() -> None:
    listed = [name for _, _, package, name, _ in REFERENCE if package == "ss"]
    figures = [f"plot.{name}" for name in report_figures.__all__]
    assert sorted(listed) == sorted([*(name for name in ss.__all__ if name != "plot"), *figures])


@pytest.mark.parametrize(("page", "path", "package", "name", "text"), REFERENCE, ids=lambda part: str(part)[-40:])
def test_an_entry_of_the_reference_is_what_it_says_and_has_an_example(
    page: Path, path: str, package: str, name: str, text: str
) -> None:
    """`test_code_blocks_run` runs the examples."""
    module, _, last = path.rpartition(".")
    found: Any = ss if package == "ss" else import_module(package)
    for part in name.split("."):
        found = getattr(found, part)
    assert getattr(import_module(module), last) is found
    if name.startswith("plot."):  # the gallery has their examples
        return
    examples = "".join(block for language, block in BLOCK.findall(text) if language == "python")
    assert re.search(rf"\b{name}\b", examples), f"{page.name}: no example of {name}"


# -- tables


@pytest.mark.parametrize("paper", ["A", "B", "C", "D"])
def test_the_table_of_studies_lists_the_claims_that_each_decides(paper: str) -> None:
    text = (ROOT / "docs" / f"paper-{paper.lower()}.md").read_text(encoding="utf-8")
    listed = {study: numbers(claims) for study, claims in ROW.findall(text)}
    own = [study for study in studies() if study.paper.letter == paper]
    decided = {study.id: sorted(claim.number for claim in study.claims) for study in own if study.claims}
    assert listed == decided


def test_the_table_of_figures_lists_all_of_them() -> None:
    text = (ROOT / "docs" / "report.md").read_text(encoding="utf-8")
    rows = text.partition("| function | dataset | picture |")[2].partition("\n\n")[0].splitlines()[2:]
    listed = [name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert sorted([*listed, "save"]) == dir(plot)


def numbers(claims: str) -> list[int]:
    """Of claims in words: "B1 to B5, B21" """
    found: list[int] = []
    for part in claims.split(", "):
        ends = [int(end[1:]) for end in part.split(" to ")]
        found += range(ends[0], ends[-1] + 1)
    return sorted(found)


# -- the site


def build_site(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`mkdocs build --strict`, in this process, which has imported torch already."""
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    monkeypatch.chdir(ROOT)
    config = load_config(str(ROOT / "mkdocs.yml"), strict=True, site_dir=str(folder))
    config.plugins.on_startup(command="build", dirty=False)
    try:
        build(config)
    except SystemExit as left:  # mkdocs leaves with it where there was a warning
        pytest.fail(f"the site does not build: {left}; the warnings are in the log")
    finally:
        config.plugins.on_shutdown()


def test_site_builds_and_loads_nothing_from_the_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if any(find_spec(name) is None for name in ("material", "mkdocstrings", "latex2mathml")):
        pytest.skip("what builds the pages is not installed: skipscope[docs]")
    build_site(tmp_path, monkeypatch)
    pages = list(tmp_path.glob("**/*.html"))
    assert pages
    texts = {str(page.relative_to(tmp_path)): page.read_text(encoding="utf-8") for page in pages}
    assert [name for name, text in texts.items() if LOADED.search(text)] == []
    assert [name for name, text in texts.items() if "arithmatex" in text] == []  # formulas are MathML
    assert "<math" in (tmp_path / "measures" / "profile.html").read_text(encoding="utf-8")
    reference = (tmp_path / "api" / "measurements.html").read_text(encoding="utf-8")
    assert "chance level, 0 for none" in reference  # a docstring
    assert "root mean square of the state at the unit's entry" in html.unescape(reference)  # a table of variables
