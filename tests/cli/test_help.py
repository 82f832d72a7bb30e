"""What the command line says about itself: help, examples, completion."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from skipscope.cli import app, completion
from tests.commands import run_command

DOCS = Path(__file__).parents[2] / "docs" / "command-line.md"


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The whole tree, groups included."""
    yield path, command
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(below, (*path, name))


ALL: dict[str, Any] = {" ".join(path): command for path, command in commands(typer.main.get_command(app))}


def parse(words: list[str]) -> None:
    """Raises where there is no such command or option."""
    command, context = ALL[""], None
    while getattr(command, "commands", None):
        name, command = words[0], command.commands[words[0]]
        words = words[1:]
    context = command.make_context(name, list(words))
    context.close()


@pytest.mark.parametrize("name", ALL)
def test_every_help_has_an_example_that_parses(name: str) -> None:
    text = " ".join(ALL[name].help.split())
    example = text.partition("Example: ")[2]
    words = shlex.split(example)
    assert words[: 1 + len(name.split())] == ["skipscope", *name.split()]
    parse(words[1:])


def test_the_commands_of_the_documentation_parse() -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```", DOCS.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if re.match(r"skipscope [a-z]", line)]
    assert len(lines) > 8
    for line in lines:
        parse(shlex.split(re.split(r" (?:\||2>) ", line, maxsplit=1)[0], comments=True)[1:])


@pytest.mark.parametrize("name", [name for name in ALL if not getattr(ALL[name], "commands", None)])
def test_every_command_takes_the_common_options(name: str) -> None:
    taken = {option for parameter in ALL[name].params for option in parameter.opts}
    assert {"-q", "--quiet", "-v", "--verbose", "--json"} <= taken
    assert all(parameter.help for parameter in ALL[name].params)


def test_every_command_is_documented() -> None:
    text = DOCS.read_text(encoding="utf-8")
    assert [name for name in ALL if name and f"skipscope {name}" not in text] == []


def test_the_help_tells_the_exit_codes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for option in ("--help", "-h"):
        assert run_command(monkeypatch, option) == 0
        out = capsys.readouterr().out
        for code in ("0    done", "1    a claim", "2    bad input", "130  interrupted"):
            assert code in out


@pytest.mark.parametrize("arguments", [(), ("study",), ("-q",)])
def test_no_command_is_bad_input_and_shows_the_help(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(monkeypatch, *arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("Usage: skipscope")


# -- completion


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("un", {"units"}),
        ("study run D", {"D", "D.law", "D.spectra"}),
        ("study show D.la", {"D.law"}),
        ("study run D --preset ", {"smoke", "quick", "full", "paper"}),
        ("study run D --q", {"--quiet"}),
        ("units ", {"skipscope:", "torchvision:", "timm:", "hf:"}),
        ("units skipscope:pla", {"skipscope:plainnet"}),
        ("inspect skipscope:resnet20-", {"skipscope:resnet20-digits", "skipscope:resnet20-cifar"}),
        ("units ne", {"net.py:", "nets/"}),
        ("units nets/", {"nets/deep.py:"}),
        ("train resnet8", {"resnet8-digits"}),
        ("train resnet8-digits --data cif", {"cifar10", "cifar100"}),
        ("units x --device c", {"cpu", "cuda"}),
    ],
)
def test_completion(
    typed: str,
    offered: set[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "nets").mkdir()
    for file in ("net.py", "nets/deep.py", "nets/notes.txt"):
        (tmp_path / file).touch()
    monkeypatch.chdir(tmp_path)
    words = f"skipscope {typed}"
    monkeypatch.setenv("_SKIPSCOPE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
    run_command(monkeypatch)
    found = capsys.readouterr().out.split()
    assert offered <= set(found)
    assert all(value.startswith(typed.split(" ")[-1]) for value in found)


def test_what_is_offered_is_what_the_library_knows() -> None:
    from skipscope.data.augmentation import augmentation
    from skipscope.data.catalogue import ENTRIES
    from skipscope.data.dataset import choose
    from skipscope.data.specs import AUGMENTATIONS, NAMES, NORMALISATIONS
    from skipscope.models import blocks, names, specification
    from skipscope.models.request import SOURCES
    from skipscope.models.source import RECIPES
    from skipscope.models.specification import LAYERS
    from skipscope.papers.kit.catalogue import studies
    from skipscope.papers.kit.command import study
    from skipscope.papers.kit.names import ids

    assert ids() == {study.id: study.title for study in studies()}
    assert tuple(completion.SOURCES) == SOURCES == (*RECIPES, "hf")
    assert ("digits", *ENTRIES) == NAMES
    for name in AUGMENTATIONS:
        assert augmentation(name)
    for name in NORMALISATIONS:
        assert choose(name, "cifar10", channels=3)
    assert tuple(blocks.ACTIVATIONS) == specification.ACTIVATIONS
    assert {name: blocks.BLOCKS[name, False, False].layers for name in LAYERS} == LAYERS
    for name, _ in completion.complete_network("preresnext"):
        assert names.parse(name)
    assert len(study.registered_commands) == 4
