"""What a user's type checker sees: the README's examples as a file of their own, under `mypy --strict`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# After the examples: what is Any would pass every check.
TYPES = """
from typing import assert_type

from skipscope.spectrum import Spectrum

assert_type(trunk, ss.Trunk)
assert_type(point, ss.Point)
assert_type(unit, ss.Unit)
assert_type(h, torch.Tensor)
assert_type(J, ss.Operator)
assert_type(unit.jacobian(point, of="branch", tail=True), ss.Operator)
assert_type(trunk.stages[2].jacobian(point), ss.Operator)
assert_type(trunk.span("layer1.0", "layer2.1").jacobian(point), ss.Operator)
assert_type(spectrum, Spectrum)
"""
# Each must be an error: the checker sees the signature and not only the name.
WRONG = """
unit.jacobian(point, of="brunch")
unit.jacobian(point, part="branch")
unit.jacobian()
"""
# Of --strict, what the package itself does without.
STRICT = """
[[tool.mypy.overrides]]
module = ["example"]
disallow_untyped_calls = true
disallow_subclassing_any = true
disallow_any_generics = true
warn_return_any = true
"""


@pytest.mark.slow
def test_the_examples_of_the_readme_pass_a_strict_type_checker(tmp_path: Path) -> None:
    blocks = re.findall(
        r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    program = "".join(blocks) + TYPES
    (tmp_path / "example.py").write_text(program + WRONG, encoding="utf-8")
    # With the settings of `make lint`, whose cache makes this quick, and the whole of --strict for the example.
    settings = (ROOT / "pyproject.toml").read_text(encoding="utf-8") + STRICT
    (tmp_path / "pyproject.toml").write_text(settings, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--config-file", str(tmp_path / "pyproject.toml"), tmp_path / "example.py"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    # The package's own errors are not this user's.
    errors = [line for line in run.stdout.splitlines() if re.search(r"\bexample\.py:\d+: error:", line)]
    lines = [int(re.findall(r":(\d+): error:", error)[0]) for error in errors]
    first = program.count("\n") + 2  # of WRONG, which begins with an empty line
    assert lines == [first, first + 1, first + 2], run.stdout + run.stderr
