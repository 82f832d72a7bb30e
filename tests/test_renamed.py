"""Old names work for one release, and say what the new ones are."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import skipscope
from skipscope.renamed import MOVED, old_names, renamed_parameters

ROOT = Path(skipscope.__file__).parent.parent


@renamed_parameters(positional=("k",), tolerance="tol", mode="route")
def measure(trunk: str, x: str, *, k: int = 1, tol: float = 0.1, route: str = "auto") -> tuple[object, ...]:
    return trunk, x, k, tol, route


def test_an_old_parameter_is_passed_on_with_a_warning() -> None:
    with pytest.warns(FutureWarning, match=r"measure: tolerance= is now tol=; .*next release") as caught:
        assert measure("trunk", "x", tolerance=0.5) == ("trunk", "x", 1, 0.5, "auto")  # type: ignore[call-arg]
    assert caught[0].filename == __file__  # it points at the caller


def test_a_parameter_that_was_positional_is_passed_on_with_a_warning() -> None:
    with pytest.warns(FutureWarning, match=r"give k by its name, k=\.\.\."):
        assert measure("trunk", "x", 3) == ("trunk", "x", 3, 0.1, "auto")  # type: ignore[misc]


@pytest.mark.filterwarnings("error::FutureWarning")
def test_new_names_do_not_warn() -> None:
    assert measure("trunk", x="x", k=2, tol=0.2, route="fast") == ("trunk", "x", 2, 0.2, "fast")


def test_the_old_and_the_new_name_together_are_refused() -> None:
    with pytest.warns(FutureWarning), pytest.raises(TypeError, match="tol= is given as tolerance= too"):
        measure("trunk", "x", tol=1.0, tolerance=0.5)  # type: ignore[call-arg]
    with pytest.warns(FutureWarning), pytest.raises(TypeError, match="k= is given by position and by name"):
        measure("trunk", "x", 3, k=3)  # type: ignore[misc]


def test_wrong_calls_are_refused_as_usual() -> None:
    with pytest.raises(TypeError, match="positional"):
        measure("trunk", "x", 3, 0.1)  # type: ignore[misc]
    with pytest.raises(TypeError, match="unexpected"):
        measure("trunk", "x", wrong=1)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("package", "old", "place", "new"), old_names(), ids=[f"{package}.{old}" for package, old, _, _ in old_names()]
)
def test_old_places_to_import_from(package: str, old: str, place: str, new: str) -> None:
    with pytest.warns(FutureWarning, match=re.escape(f"{package}.{old} is now {place}.{new}")):
        found = getattr(importlib.import_module(package), old)
    assert found is getattr(importlib.import_module(place), new)


@pytest.mark.parametrize("package", MOVED)
def test_other_names_are_still_unknown(package: str) -> None:
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'nosuch'"):
        _ = importlib.import_module(package).nosuch


def test_a_script_sees_the_warning() -> None:
    code = "from skipscope.training import train_ensemble"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert run.returncode == 0, run.stderr
    assert "FutureWarning: skipscope.training.train_ensemble is now skipscope.papers.b.networks.train_" in run.stderr


def test_the_changelog_lists_every_old_name() -> None:
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    missing = [f"{package}.{old}" for package, old, _, _ in old_names() if f"`{old}`" not in changes]
    assert missing == []
