"""A study and its paper: a slip in a claim, in a quantity or in a name is an error, not an inconclusive verdict."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from skipscope.errors import SkipscopeError
from skipscope.papers.kit import Bench, Claim, Evidence, Measured, Quantity, Study, catalogue, names
from skipscope.registration import Paper
from skipscope.runs import RunFolder

Q = Quantity("a number")
PAPER = Paper(letter="E", title="Authors: Title", package="example", studies={"first": "A", "second": "B"})


def claim(id: str) -> Claim:
    return Claim(id, "it is small", "the number", criteria=(Q.at_most(1.0),))


def study(name: str, *claims: Claim, paper: Paper = PAPER, run: Callable[..., Any] | None = None) -> Study:
    return Study(
        paper,
        name,
        paper_found="",
        we_expect="",
        presets={"smoke": None},
        cost={"smoke": "nothing"},
        run=run or (lambda bench, settings: {}),
        claims=claims,
    )


@pytest.fixture(name="bench")
def _bench(tmp_path: Path) -> Bench:
    return Bench("E.first", RunFolder(tmp_path / "run", "study E"), preset="smoke", seed=0, device="cpu")


# -- one study


def test_a_study_that_its_paper_does_not_list() -> None:
    with pytest.raises(ValueError, match="paper E lists no study 'third'; add it to its `studies`"):
        study("third")


def test_a_claim_of_another_paper() -> None:
    with pytest.raises(ValueError, match=r"E\.first: D3 is no claim of paper E"):
        study("first", claim("E1"), claim("D3"))


def test_a_study_decides_claims_and_not_their_names() -> None:
    with pytest.raises(TypeError, match=r"E\.first: a study decides Claims, not 'E1'"):
        study("first", "E1")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("evidence", "message"),
    [
        ({"E1": {Q: 1}}, "E.first: evidence is for a Claim, not for 'E1'"),
        ({claim("E1"): {"a number": 1}}, "E.first: the evidence for E1 is of Quantities, not of 'a number'"),
    ],
)
def test_evidence_has_objects_and_not_their_names(evidence: Any, message: str, bench: Bench) -> None:
    with pytest.raises(TypeError, match=message):
        study("first", run=lambda bench, settings: evidence).evidence(bench, None)


def test_evidence_that_has_objects_is_taken_as_it_is(bench: Bench) -> None:
    made = claim("E1")
    for found in ({Q: 1}, [Measured({Q: 1})]):
        evidence: Evidence = {made: found}
        run = study("first", run=lambda bench, settings, evidence=evidence: evidence)
        assert run.evidence(bench, None) == {made: [Measured({Q: 1})]}


# -- the studies of a paper


@pytest.fixture(name="installed")
def _installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Makes PAPER the only one, with these studies in its modules."""

    def install(**studies: Study) -> None:
        for name, made in studies.items():
            module = ModuleType(f"example.studies.{name}")
            module.STUDY = made  # type: ignore[attr-defined]
            monkeypatch.setitem(sys.modules, module.__name__, module)

    for module in (catalogue, names):
        monkeypatch.setattr(module, "papers", lambda: (PAPER,))
    for cached in (catalogue.studies_of, catalogue.claims_of_paper):
        cached.cache_clear()
    yield install
    for cached in (catalogue.studies_of, catalogue.claims_of_paper):
        cached.cache_clear()


def test_claims_are_sorted_by_number_and_know_their_study(installed: Callable[..., None]) -> None:
    first, second = study("first", claim("E10"), claim("E2")), study("second", claim("E1"))
    installed(first=first, second=second)
    assert catalogue.studies() == (first, second)
    assert [made.id for made in catalogue.claims()] == ["E1", "E2", "E10"]
    assert [catalogue.study_of(made).name for made in catalogue.claims()] == ["second", "first", "first"]


def test_two_studies_that_decide_one_claim(installed: Callable[..., None]) -> None:
    both = claim("E1")
    for first, second in ((both, both), (both, claim("E1"))):  # the same object, or another with its name
        installed(first=study("first", first), second=study("second", second, claim("E2")))
        catalogue.studies_of.cache_clear()
        with pytest.raises(SkipscopeError, match=r"claims that several studies decide, or one study twice: E1$"):
            catalogue.claims()


def test_a_module_with_the_study_of_another(installed: Callable[..., None]) -> None:
    installed(first=study("second"), second=study("second"))
    with pytest.raises(SkipscopeError, match=r"example\.studies\.first has the study E\.second, not E\.first"):
        catalogue.studies()


def test_a_paper_runs_the_studies_that_have_the_preset(installed: Callable[..., None]) -> None:
    first, second = study("first"), study("second")
    object.__setattr__(second, "presets", {"full": None})  # many networks: no preset smoke
    installed(first=first, second=second)
    assert catalogue.find("E") == (first, second)
    assert catalogue.find("E", "smoke") == (first,)
    assert catalogue.find("e.second,E", "smoke") == (first, second)  # named itself: it says that it has no such preset
