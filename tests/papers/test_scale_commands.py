"""The commands of docs/studies.md for one GPU: each names studies, settings and networks that there are."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from skipscope.models import names
from skipscope.papers.a.studies.alignment import ALL_SUBJECTS
from skipscope.papers.a.subjects import AUTHORS, PREACTIVATION
from skipscope.papers.c import subjects as of_c
from skipscope.papers.c.subjects import TwinSettings
from skipscope.papers.kit import catalogue, running

PAGE = Path(__file__).parents[2] / "docs" / "studies.md"
SECTION = PAGE.read_text().partition("## At the papers' own scale")[2].partition("\n## ")[0]
SHAPES = {"mnist": (1, 28, 28), "imagenette": (3, 64, 64)}  # all others are 3 x 32 x 32
GREY = ("mnist", "fashion-mnist")


def commands() -> dict[str, list[str]]:
    """By the name of the run folder: the arguments of `skipscope study run`."""
    found = re.findall(r"`((?:[AC]\.\w+,?)+ FULL [^`]*)`", SECTION)
    found += re.findall(r"^skipscope study run (B\.\S+ .*?) +#", SECTION, re.M)
    every = [shlex.split(text.replace("FULL", "--preset full --device cuda")) for text in found]
    return {words[words.index("--out") + 1]: words for words in every}


COMMANDS = commands()


def settings_of(words: list[str]) -> dict[str, Any]:
    """By study; a setting that none of them has is an error."""
    changes = dict(words[place + 1].split("=", 1) for place, word in enumerate(words) if word == "--set")
    return running.settings_of(catalogue.find(words[0], "full"), "full", changes)


def test_all_parts_have_commands() -> None:
    started = [words[0][0] for words in COMMANDS.values()]
    assert {letter: started.count(letter) for letter in "ABC"} == {"A": 15, "B": 1, "C": 10}
    assert all("cuda" in words for words in COMMANDS.values())


@pytest.mark.parametrize("name", COMMANDS)
def test_settings_are_known(name: str) -> None:
    assert settings_of(COMMANDS[name])


@pytest.mark.parametrize("name", [name for name, words in COMMANDS.items() if words[0].startswith("C")])
def test_networks_of_paper_c_are_known(name: str) -> None:
    for settings in settings_of(COMMANDS[name]).values():
        assert isinstance(settings, TwinSettings)
        for text in settings.subjects:
            source, depth, options, _ = of_c._parts(text)
            shape, classes = SHAPES.get(source, (3, 32, 32)), 100 if source == "cifar100" else 10
            large = "-large" if of_c._is_large(source, depth, options) else ""
            for title in settings.titles:
                family, _, own = of_c.KNOWN[title].partition("-")
                form = f"{options}{large}-{own}" if own else options + large
                fitting = names.fitting(f"{family}{depth}-mnist{form}", shape, classes)
                assert names.parse(fitting)["depth"] == depth


def test_all_pairs_of_paper_a_have_a_command() -> None:
    asked: dict[str, int] = {}
    for words in COMMANDS.values():
        if words[0] == "A.alignment":
            (settings,) = settings_of(words).values()
            for place, text in enumerate(settings.subjects):
                asked[text] = settings.other_networks if place else settings.networks
    each = [f"type{kind}-{data}" for kind in (2, 3) for data in GREY] + ["type3-cifar10"]
    assert all(part in SECTION for part in ("`mnist`", "`fashion-mnist`", "`type3`"))  # named beside that of type 2
    asked |= dict.fromkeys(each, asked["type2-cifar10"])
    assert set(ALL_SUBJECTS) <= set(asked)
    assert asked["type1-mnist"] == 8
    assert {asked[text] for text in ("type1-cifar10-w512", "type1-cifar100-w512", *each)} == {5}
    assert asked[f"type1-mnist{PREACTIVATION}"] == 8
    assert f"type1-mnist{AUTHORS}" in asked
