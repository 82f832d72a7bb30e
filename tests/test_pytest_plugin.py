"""The fixture `assert_trainable`, in a pytest of its own."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]
ROOT = Path(__file__).parent.parent
TESTS = """
import torch
from skipscope.models import build

def batch():
    torch.manual_seed(0)
    return torch.randn(32, 1, 8, 8)

def net(name):
    torch.manual_seed(0)
    return build(name)

def test_bad(assert_trainable):
    assert_trainable(net("plainnet8-digits-connected-n2-nonorm-small"), batch(), unit_spectra=False)

def test_no_model(assert_trainable):
    assert_trainable(3, batch())
"""
MORE = """
def test_good(assert_trainable):
    assert assert_trainable(net("resnet8-digits-connected-n2"), batch()).trains

def test_cannot_say(assert_trainable):
    assert_trainable(net("resnet8-digits-connected-n2-nonorm-scale10"), batch()[:3])
"""
# Where skipscope was installed with its entry point, pytest has loaded the plugin already, and takes it once.
INSTALLED = any(point.value == "skipscope.pytest_plugin" for point in entry_points(group="pytest11"))
OPTIONS = ("-p", "no:cacheprovider", *(() if INSTALLED else ("-p", "skipscope.pytest_plugin")))


def test_it_fails_with_the_words_of_the_check(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS)
    result = pytester.runpytest_inprocess(*OPTIONS)
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(
        [
            "*ConnectedNet: Not expected to train*",
            "*Gradients vanish*",
            "*expected a torch.nn.Module as the model, got int*",
        ]
    )
    result.stdout.no_fnmatch_line("*Traceback*")
    result.stdout.no_fnmatch_line("*another exception*")


@pytest.mark.slow
def test_it_passes_and_cannot_say(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS.partition("def test_bad")[0] + MORE)
    result = pytester.runpytest_inprocess(*OPTIONS)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*ConnectedNet: Cannot say whether it is expected to train*"])


def test_the_entry_point_names_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {"skipscope": "skipscope.pytest_plugin"}


def test_pytest_starts_without_torch() -> None:
    code = "import sys, skipscope.pytest_plugin; print('torch' in sys.modules, 'numpy' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert run.stdout.split() == ["False", "False"]
