"""The claims of the four papers: each is there once, says what it needs, and keeps its thresholds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import isclose
from typing import Any

import pytest

from skipscope.papers.kit import Claim, Criterion, Measured, Part, Quantity
from skipscope.papers.kit.catalogue import claims, claims_of_paper, study_of
from skipscope.papers.kit.estimates import DOMAINS
from skipscope.runs.decisions import Decision

ALL = {claim.id: claim for claim in claims()}


def decided(made: Claim, evidence: Mapping[Quantity, Any], preset: str) -> Decision:
    """On the subject that decides each part, with as many networks as it takes."""
    subjects = {part.subject or next(iter(made.subjects), "") for part in made.parts}
    measured = [Measured(evidence, subject, networks=made.subjects.get(subject)) for subject in sorted(subjects)]
    return study_of(made).decide(made, measured, preset)


def test_every_claim_is_there_once() -> None:
    for letter, count in (("A", 17), ("B", 23), ("C", 17), ("D", 18)):
        own = claims_of_paper(letter)
        assert [made.id for made in own] == [f"{letter}{number}" for number in range(1, count + 1)]
        assert {study_of(made).paper.letter for made in own} == {made.letter for made in own} == {letter}


@pytest.mark.parametrize("made", ALL.values(), ids=ALL)
def test_every_claim_says_what_it_needs(made: Claim) -> None:
    assert made.statistic
    assert made.text.endswith(".")
    assert made.rules or made.note
    nothing = study_of(made).decide(made, (), "paper")
    assert nothing.verdict == ("open" if made.parts else "reported")
    assert nothing.reason
    # No rule of a part is stated twice.
    assert all(max(Counter(map(str, part.rules)).values()) == 1 for part in made.parts)


# -- every part can be reproduced and refuted

STEPS = (0.0, 1e-9, 1e-6, 1e-3, 0.01, 0.1, 0.5, 1.0, 10.0, 1e3)


def synthetic(part: Part, failing: Criterion | None = None) -> dict[Quantity, Any]:
    """Evidence that meets all rules of a part but one, found among values that the quantities can have."""
    evidence: dict[Quantity, Any] = {}
    floors = {rule.floor for rule in part.rules if rule.floor}
    for quantity in dict.fromkeys(rule.quantity for rule in part.rules):
        rules = [rule for rule in part.rules if rule.quantity is quantity]
        low, high = DOMAINS[quantity.scale]
        ends = [end for rule in rules for end in rule.ends]
        near = [end + sign * step for end in ends for step in STEPS for sign in (1, -1)]
        possible = [value for value in [*near, low, high] if low <= value <= high and abs(value) != float("inf")]
        fitting = [value for value in possible if all(_meets(value, rule) != (rule is failing) for rule in rules)]
        assert fitting, f"{part.expected}: no value of '{quantity}' does it"
        evidence[quantity] = [fitting[0]] * 3
    return {**evidence, **{floor: [0.0] * 3 for floor in floors}}


def _meets(value: float, rule: Criterion) -> bool:
    if rule.relation == "within":
        return rule.ends[0] <= value <= rule.ends[1]
    return {
        "<=": value <= rule.ends[0],
        ">=": value >= rule.ends[0],
        "<": value < rule.ends[0],
        ">": value > rule.ends[0],
        "==": value == rule.ends[0],
    }[rule.relation]


PARTS = {f"{made.id} {part.name}".strip(): (made, part) for made in ALL.values() for part in made.parts}


@pytest.mark.parametrize(("made", "part"), PARTS.values(), ids=PARTS)
def test_every_part_can_be_reproduced_and_refuted(made: Claim, part: Part) -> None:
    """And every one of its criteria and controls counts."""
    good = synthetic(part)
    assert part.judge(good)[0] == "reproduced"
    for criterion in part.criteria:
        refuted = "inconclusive" if part.too_short else "not reproduced"
        assert part.judge(synthetic(part, criterion))[0] == refuted
    for control in part.controls:
        assert part.judge(synthetic(part, control))[0] == "inconclusive"
    assert decided(made, good, "smoke").verdict == "open"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("A1", "LSS at most 1.15; control: (LSS at initialisation - 1) / (LSS - 1) at least 5"),
        (
            "A2",
            "nearly equal steps: step CoV at most 0.25; control: step CoV at initialisation at least 0.8 | a third of "
            "what it was: step CoV / its own at initialisation at most 0.333333; control: step CoV at initialisation "
            "at least 0.8",
        ),
        (
            "A3",
            "K = C: m_K adjacent / chance at most 0.62; m_K all pairs / chance at most 0.77; control: m_K all pairs / "
            "chance at initialisation at least 0.97 | K = 30: m_30 adjacent / chance at most 0.62; m_30 all pairs / "
            "chance at most 0.77; control: m_30 all pairs / chance at initialisation at least 0.97",
        ),
        (
            "A7",
            "a line: R2 of 1 / s_1 over depth at least 0.9; control: R2 of 1 / s_1 over depth at initialisation below "
            "0.9 | a slope near 1: slope of 1 / s_1 over depth within 0.5 to 2; control: slope of 1 / s_1 over depth "
            "at initialisation below 0.5",
        ),
        (
            "A16",
            "LSS without weight decay at least 3; control: LSS with weight decay at most 1.15",
        ),
        ("B1", "largest difference of Hessian and block form at most 1e-12"),
        ("B8", "largest index, 2-shortcut - orthogonal, on the loss grid below 0"),
        ("B9", "|epoch of index drop - of gradient peak| / epochs to convergence at most 0.1"),
        (
            "B17",
            "CoV of largest |W|_F sqrt(R) over R at most 0.02; control: largest R / smallest R at least 30",
        ),
        (
            "C1",
            "train accuracy above chance / what is possible, PlainNet at most 0.25; control: train accuracy, ResNet / "
            "what is asked (0.95; 0.7 with 100 classes) at least 1",
        ),
        ("C2", "test accuracy, ResNeXt - ResNet above 0"),
        ("C3", "median log10 cond of weights, PlainNet - ResNet at least 0.5"),
        (
            "C4",
            "Spearman of layer and cond of weights, PlainNet at least 0.5; control: log10 of the largest cond of "
            "weights, PlainNet / ResNet at least 1",
        ),
        ("C10", "relative error of approximation 16 at most 0.1 (each)"),
        (
            "D11",
            "from the entry: growth of random perturbations in stage 3 from the entry below 1 | from the exit of the "
            "first unit: growth of random perturbations in stage 3 from the exit of the first unit below 1",
        ),
        (
            "D3",
            "bounds violated exactly 0; share of generic pairs with equality at least 0.9; "
            "control: pairs with 2 r < n - z at least 1; control: ones without skips exactly 0; "
            "control: trained networks at least 1",
        ),
        (
            "D13",
            "median of predicted / actual growth within 0.9 to 1.1; correlation of predicted and actual growth at "
            "least 0.9",
        ),
        ("D7", "Spearman of unit and share above 1, all regular units below 0"),
    ],
)
def test_thresholds_stay_where_they_were_set(name: str, expected: str) -> None:
    assert ALL[name].expected == expected


@pytest.mark.parametrize(
    ("name", "thresholds"),
    [
        ("A5", [0.99, 0.05, 0.8, 5]),
        ("A4", [0.9, 0.3, 0.9, 0.6, 0.8, 0.6, 0.6, 0.8, 0.6, 0.9, 0.9]),
        ("A8", [0.62, 0.9, 0.99, 0.99, 0.9, 0.9, -0.7]),
        ("A9", [0.9, 1, 1, 1, 1, 1]),
        ("A10", [1.15, 0.62, 0.77, 0.99, 0.05, 0.9, 5, 0.97, 0.8] * 9),
        ("A12", [0.5, 0.77]),
        ("A13", [-0.5, 0.5, 2, 0.77]),
        ("A15", [1e-4] * 7),
        ("B6", [0.05, 0.5, 0, 0, 1]),
        ("B7", [0, 0, 0, 0, 0.5, 0]),
        ("B10", [-3, 0, -0.3, 0, -1.5, 0]),
        ("B14", [-0.25, -0.25, 0, 0]),
        ("B18", [1e-12, 1e-30]),
        ("B5", [0.1, 0.5, 0.05]),
        (
            "B11",
            [*[1] * 4, 0, 4, *[3] * 4, 0, 4, *2 * [*[1] * 5, 0, 4, *[3] * 5, 0, 4], *[1] * 3, 0, 4, *[3] * 3, 0, 4],
        ),
        ("B12", [1, 0, 3, 0, 3, 0]),
        ("B13", [3, 0]),
        ("B20", [0.05, *[0.3] * 8, 0, *[0.3] * 8, 0]),
        ("B21", [0, 1e-12, 0, 1e-12]),
        ("B23", [0, 1e-12, 1, 1, 0, 0, 0]),
        ("B19", [0, 0, 0, 0]),
        ("B22", [0, 0, 1e-3, 0, 0]),
        ("C5", [0.3, 0] * 4),
        ("C6", [0, 2] * 2),
        ("C7", [3, 0, 0]),
        ("C8", [2, 2, 1, -1, 1, -1, 1, -1]),
        ("C11", [0] * 5),
        ("C12", [1, 1]),
        ("C14", [-0.5]),
        ("C15", ([0.5, 0.9] * 4 + [0.5] * 8) * 2),
        ("C16", [0.6, 0.9, 0.9, 0.9]),
        ("C17", [0]),
        ("D1", [0.9, 1.1, 0, 1e-10, 1, 1]),
        ("D2", [2 / 3, 0.3] * 2 + [2 / 3, 0.5] * 2),
        ("D4", [0.95, 0.05, 0] * 2 + [0.05] * 2),
        ("D5", [1 / 3] * 4),
        ("D6", [1.5, 1.5, 10, 10] * 3),
        ("D10", [1] * 8),
        ("D12", [2, 1.5, 1]),
        ("D14", [3] * 4),
        ("D16", [0.5] * 4),
        ("D17", [0.9, 1.1] * 6),
        ("D18", [0.75] * 4 + [0] + [1.5] * 3 + [0.95, 0.05, 0] * 2),
    ],
)
def test_thresholds_by_number(name: str, thresholds: list[float]) -> None:
    made = ALL[name]
    found = [end for criterion in made.rules for end in criterion.ends]
    assert len(found) == len(thresholds)
    assert all(isclose(a, b) for a, b in zip(found, thresholds, strict=True))


def test_the_signs_of_paper_d() -> None:
    assert [criterion.relation for criterion in ALL["D8"].rules] == [">", ">", "<"]
    assert [criterion.relation for criterion in ALL["D9"].rules] == ["<", "<", ">"]


def test_claims_of_ours_say_so() -> None:
    assert {name for name, made in ALL.items() if made.ours} == {"A16", "D3"}
    law = ALL["D3"]
    assert study_of(law).decide(law, (), "quick").paper.startswith("ours, on Rothauge")
    assert {name for name, made in ALL.items() if not made.parts} == {"A6", "A11"}
