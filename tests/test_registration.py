"""How papers join: guests that cannot be used are left out with a warning, and the core goes on without them."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from skipscope import registration
from skipscope.models import names
from skipscope.papers.kit import Quantity
from skipscope.registration import Paper, on_first_use
from skipscope.report.views import VIEWS

CACHED = (registration.papers, registration.networks, registration.views, registration.figures, registration.measures)


class Entry:
    """Of another package."""

    name, value = "theirs", "example:PAPER"

    def __init__(self, load: Callable[[], Any]) -> None:
        self.load = load


def paper(letter: str = "E", **parts: Any) -> Paper:
    return Paper(letter=letter, title="a paper", package="example", studies={}, **parts)


@pytest.fixture(name="install")
def _install(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Callable[[], Any]], None]]:
    def install(load: Callable[[], Any]) -> None:
        monkeypatch.setattr(registration, "entry_points", lambda group: [Entry(load)])
        for function in CACHED:
            function.cache_clear()

    yield install
    monkeypatch.undo()
    for function in CACHED:
        function.cache_clear()


def letters() -> list[str]:
    return [found.letter for found in registration.papers()]


def broken() -> Any:
    raise ModuleNotFoundError("No module named 'example'")


@pytest.mark.parametrize(
    ("load", "why"),
    [
        (broken, "ModuleNotFoundError: No module named 'example'"),
        (lambda: "a text", "expected a skipscope Paper, got str"),
        (lambda: paper("D"), r"skipscope\.papers\.d has the letter D already"),
        (lambda: paper("ab"), "one capital letter, not 'ab'"),
    ],
)
def test_a_paper_that_cannot_be_used_is_left_out(install: Any, load: Callable[[], Any], why: str) -> None:
    install(load)
    with pytest.warns(RuntimeWarning, match=rf"the entry point theirs = example:PAPER: left out \(.*{why}"):
        assert letters() == ["A", "B", "C", "D"]


def test_a_part_that_cannot_be_imported_is_left_out(install: Any) -> None:
    install(lambda: paper(networks=broken, views=broken, figures=lambda: {"theirs": print}))
    assert letters() == ["A", "B", "C", "D", "E"]
    with pytest.warns(RuntimeWarning, match=r"the networks of paper E \(example\): left out"):
        assert names.parse("type1-mnist")["kind"] == 1
    with pytest.warns(RuntimeWarning, match=r"the views of paper E \(example\): left out"):
        assert "noise" in registration.views()
    assert registration.figures()["theirs"] is print


def test_names_that_are_taken_are_left_out(install: Any) -> None:
    install(lambda: paper(views=lambda: {"history": None, "noise": None, "new": None}))
    with pytest.warns(RuntimeWarning, match="among the views of paper E: left out") as caught:
        found = registration.views(frozenset(VIEWS))
    assert len(caught) == 2
    assert "history" not in found
    assert found["noise"] is not None
    assert "new" in found


def test_names_of_the_core_need_no_paper(install: Any) -> None:
    class Resnets:
        beginnings = ("resnet",)

    install(lambda: paper(networks=lambda: (Resnets(),)))
    assert names.parse("resnet8-digits")["depth"] == 8


def test_measures_of_papers_are_found_by_name() -> None:
    from skipscope.papers.c.measures import sensitivity

    assert registration.measures()["sensitivity"] is sensitivity


def test_a_paper_can_be_copied_and_a_copied_quantity_is_the_same() -> None:
    made = paper(views=on_first_use("skipscope.papers.d.views", "VIEWS"))
    assert pickle.loads(pickle.dumps(made)).letter == "E"
    assert "noise" in pickle.loads(pickle.dumps(made)).views()
    quantity = Quantity("a")
    assert copy.deepcopy({quantity: 1}) == {quantity: 1}
