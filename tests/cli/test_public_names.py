"""`import skipscope` is quick, and its public names are what they are whatever was imported before."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import skipscope

ROOT = Path(skipscope.__file__).parent.parent


def fresh(code: str, *arguments: str) -> str:
    """What a new interpreter prints."""
    run = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, cwd=ROOT)
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_neither_import_nor_help_nor_completion_brings_torch() -> None:
    code = """
import os, sys
import skipscope, skipscope.cli
def left(*arguments):
    sys.argv = ["skipscope", *arguments]
    try:
        skipscope.cli.main()
    except SystemExit:
        pass
left("--help"); left("--version"); left("study", "run", "--help"); left("study", "run", "D.law", "--preset", "nosuch")
os.environ |= {"_SKIPSCOPE_COMPLETE": "complete_bash", "COMP_WORDS": "skipscope study run D.la", "COMP_CWORD": "3"}
left()
print("loaded:", *(name for name in ("torch", "numpy", "rich", "xarray") if name in sys.modules))
"""
    out = fresh(code)
    assert out.endswith("D.law\nloaded:\n")


# Each in a package that is imported anew.
BEFORE = (
    "import skipscope",
    "import skipscope.trace",
    "import skipscope.trace.trunk",
    "import skipscope.trace as folder",
    "from skipscope.trace import trace",
    "from skipscope.trace.trunk import Trunk",
    "from skipscope import trace; import skipscope.trace.rule",
    "import skipscope.cli, skipscope.papers.kit.running",
)


def test_trace_is_the_function_whatever_was_imported_before() -> None:
    code = """
import sys, types
for statement in sys.argv[1:]:
    for name in [name for name in sys.modules if name.partition(".")[0] == "skipscope"]:
        del sys.modules[name]
    exec(statement, {})
    import skipscope as ss
    import skipscope.trace.trunk
    from skipscope import trace
    assert isinstance(ss.trace, types.FunctionType), statement
    assert ss.trace is trace is sys.modules["skipscope.trace"].trace, statement
    assert ss.Trunk is sys.modules["skipscope.trace.trunk"].Trunk, statement
    assert ss.trace is skipscope.trace
    print("right")
"""
    assert fresh(code, *BEFORE).split() == ["right"] * len(BEFORE)


def test_every_public_name_is_there_and_nothing_else() -> None:
    for name in skipscope.__all__:
        if name != "plot":  # a module
            assert getattr(skipscope, name).__name__ == name
    assert set(skipscope.__all__) <= set(dir(skipscope))
    with pytest.raises(AttributeError, match="no attribute 'nosuch'"):
        skipscope.nosuch  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(ImportError):
        from skipscope import nosuch  # type: ignore[attr-defined]  # noqa: F401


def test_what_type_checkers_see_is_what_there_is() -> None:
    tree = ast.parse(Path(skipscope.__file__).read_text(encoding="utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {}
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)
        for alias in node.names:  # "as" says to a type checker that the name is public, and so does a star
            assert alias.name == (alias.asname or "*")
            names = importlib.import_module(str(node.module)).__all__ if alias.name == "*" else [alias.name]
            seen |= dict.fromkeys(names, node.module)
    assert sorted(seen) == skipscope.__all__
    assert seen == skipscope._HOMES


def test_a_public_name_can_be_replaced_for_a_test(monkeypatch: pytest.MonkeyPatch) -> None:
    real = skipscope.trace
    with monkeypatch.context() as patch:
        patch.setattr(skipscope, "trace", print)
        assert skipscope.trace is print
    assert skipscope.trace is real


def test_plot_is_the_module() -> None:
    plot = pytest.importorskip("skipscope.plot")
    assert skipscope.plot is plot
