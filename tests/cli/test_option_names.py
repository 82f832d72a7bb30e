"""The library speaks of parameters; the command line says the same of its options."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import skipscope
from skipscope.cli.inspect import inspect
from skipscope.cli.option_names import in_commands, in_options, options_of
from skipscope.cli.train import train
from skipscope.cli.units import units
from skipscope.errors import InputError
from skipscope.models.request import require_dtype, require_text, require_trust
from skipscope.numerics import usable_device
from tests.commands import run_command

PACKAGE = Path(skipscope.__file__).parent


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("dtype='int8' is not a type", "--dtype int8 is not a type"),
        ("a smaller input_shape=", "a smaller --input-shape"),
        ("read it, and give trust_remote_code=True if you", "read it, and give --trust-remote-code if you"),
        ("samples=9: expected positions", "--samples 9: expected positions"),
        ("text= needs a tokenizer; or input_shape=", "--text needs a tokenizer; or --input-shape"),
        ("units: ss.trace(model, x, units=['path.of.module', ...])", "units: --units path.of.module,..."),
        ("context=3 and k=5 are not options", "context=3 and k=5 are not options"),
    ],
)
def test_parameters_become_options(message: str, said: str) -> None:
    assert in_options(message, options_of(inspect)) == said


def test_paths_stay_as_they_are() -> None:
    message = "no weights file /tmp/seed=1/none.pt; seed=3 is another"
    assert in_options(message, ["--seed"]) == "no weights file /tmp/seed=1/none.pt; --seed 3 is another"


def test_only_options_of_the_command_are_named() -> None:
    assert in_options("calibrate=True or resume=True", options_of(units)) == "calibrate=True or resume=True"
    assert in_options("a run (former='resume' goes on with it)", options_of(train)).endswith(
        "(--resume goes on with it)"
    )


def test_options_are_those_that_typer_makes() -> None:
    assert {"--weights", "--input-shape", "--units", "--trust-remote-code", "--json"} <= set(options_of(units))
    assert "--model" not in options_of(units)  # an argument


def test_notes_name_the_command_that_calibrates() -> None:
    from torch import nn

    from skipscope.trace.running_statistics import never_seen

    (note,) = never_seen(nn.BatchNorm2d(3))
    assert "; inspect --calibrate takes the statistics of the batch" in in_commands(note)


def test_the_library_speaks_of_parameters(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for refuse, message in (
        (lambda: require_dtype("int8"), "dtype='int8' is not"),
        (lambda: require_trust("torchvision:resnet18", True), "trust_remote_code=True is for"),
        (lambda: require_text("torchvision:resnet18"), "text= needs"),
        (lambda: usable_device("bogus"), "device='bogus' cannot"),
    ):
        with pytest.raises(InputError, match=message):
            refuse()
    assert run_command(monkeypatch, "units", "skipscope:resnet8-digits", "--dtype", "int8") == 2
    assert "error: --dtype int8 is not a type to measure in" in capsys.readouterr().err


def test_no_message_of_the_library_names_an_option() -> None:
    """Docstrings may: a study's says how it is run, and `cli` and the papers' own command are the command line."""
    own = [PACKAGE / "cli", PACKAGE / "papers", PACKAGE / "registration.py"]
    named = []
    for path in sorted(PACKAGE.rglob("*.py")):
        if any(path.is_relative_to(place) for place in own):
            continue
        code = re.sub(r'""".*?"""', "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        named += [f"{path.relative_to(PACKAGE)}: {line.strip()}" for line in code.splitlines() if OPTION.search(line)]
    assert named == []


OPTION = re.compile(r"""["'(\s]--[a-z][a-z-]+""")
