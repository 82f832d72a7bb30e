"""Claims: the rule that decides them, the record that is left of it, and the tables of the four papers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from math import inf, isclose, nan
from typing import Any

import numpy
import pytest
import scipy.stats
import torch
import xarray

from skipscope.papers.a.claims import CLAIMS as A
from skipscope.papers.b.claims import CLAIMS as B
from skipscope.papers.c.claims import CLAIMS as C
from skipscope.papers.d.claims import CLAIMS as D
from skipscope.papers.kit.claims import PAPERS, PRESETS, Claim, Criterion, Decision
from skipscope.runs import as_json, plain

ALL = {claim.id: claim for claim in (*A, *B, *C, *D)}


def passed(members: Any, relation: Any = "<=", threshold: Any = 1.0, **options: Any) -> bool | None:
    return Criterion("q", relation, threshold, **options).judge({"q": members}).passed


def claim(*criteria: Criterion, **options: Any) -> Claim:
    return Claim("A1", "A", "it is small", "the value", "A.alignment", criteria, **{"note": "why", **options})


# -- criteria


@pytest.mark.parametrize(
    ("relation", "threshold", "passing", "failing"),
    [
        ("<=", 1.0, [1.0, 0.0, -inf], [1.0001, inf]),
        (">=", 1.0, [1.0, 2, inf, True], [0.9999, False, -inf]),
        ("<", 1.0, [0.99], [1.0]),
        (">", 1.0, [1.01], [1.0]),
        ("==", 0.0, [0, 0.0, False], [1e-300, True]),
        ("within", (0.9, 1.1), [0.9, 1, 1.1], [0.89, 1.11, inf]),
    ],
)
def test_a_number_is_compared_as_it_is(relation: Any, threshold: Any, passing: Any, failing: Any) -> None:
    for value in passing:
        for same in (value, numpy.float64(value), torch.tensor(float(value), dtype=torch.float64)):
            assert passed(same, relation, threshold) is True
    for value in failing:
        assert passed(value, relation, threshold) is False
    outcome = Criterion("q", relation, threshold).judge({"q": passing[0]})
    assert (outcome.n, outcome.passing, outcome.interval, outcome.mean) == (1, 1, None, float(passing[0]))


def test_the_mean_and_two_thirds_of_the_members_have_to_pass() -> None:
    assert passed([0.1, 0.2, 0.3]) is True
    assert passed([2.1, 2.2, 2.3]) is False
    # Two of three pass, and so does the mean, with its interval.
    members = [0.5, 0.55, 1.01] * 6
    assert passed(members) is True
    # A mean that clearly passes does not outweigh members that do not: 11 of 18.
    low = [-9.0] * 11 + [1.01] * 7
    assert numpy.mean(low) < 1
    outcome = Criterion("q", "<=", 1.0).judge({"q": low})
    assert outcome.interval is not None
    assert outcome.interval[1] < 1
    assert (outcome.passed, outcome.passing, outcome.n) == (False, 11, 18)
    # Nor do members that pass outweigh a mean that clearly does not.
    high = [0.99] * 13 + [9.0, 9.1, 9.2, 9.3, 9.4, 9.5]
    assert passed(high, share=2 / 3) is False
    assert passed(low, share=0.6) is True


def test_two_of_three_is_two_thirds() -> None:
    assert passed([0.5] * 2000 + [1.1] * 1000) is True
    assert passed([0.5] * 1999 + [1.1] * 1001) is False


@pytest.mark.parametrize("seed", range(5))
def test_the_interval_is_that_of_student(seed: int) -> None:
    members = numpy.random.default_rng(seed).normal(2, 3, size=2 + 3 * seed)
    found = Criterion("q", "<=", 100.0).judge({"q": members})
    expected = scipy.stats.t.interval(0.95, members.size - 1, members.mean(), scipy.stats.sem(members))
    assert found.interval == pytest.approx(expected, rel=1e-12)
    assert found.mean == pytest.approx(members.mean())
    assert found.worst == members.max()


def test_the_interval_covers_the_mean_as_often_as_it_says() -> None:
    generator = numpy.random.default_rng(0)
    inside = 0
    for _ in range(1000):
        interval = Criterion("q", "<=", 0.0).judge({"q": generator.normal(size=4)}).interval
        assert interval is not None
        inside += interval[0] <= 0 <= interval[1]
    assert 930 <= inside <= 970


@pytest.mark.parametrize("relation", ["<=", ">=", "<", ">"])
def test_an_interval_that_straddles_the_threshold_decides_nothing(relation: Any) -> None:
    outcome = Criterion("speed", relation, 1.0).judge({"speed": [0.8, 0.9, 1.2]})
    assert outcome.passed is None
    assert "speed" in outcome.reason
    assert "straddles 1" in outcome.reason


def test_a_range_is_straddled_at_either_end() -> None:
    assert passed([0.95, 1.0, 1.05] * 4, "within", (0.9, 1.1)) is True
    for members in ([0.85, 0.9, 0.97], [1.05, 1.1, 1.14], [0.0, 1.0, 2.0]):
        assert passed(members, "within", (0.9, 1.1)) is None
    assert passed([1.5, 1.51, 1.52], "within", (0.9, 1.1)) is False
    assert passed([0.5, 0.51, 0.52], "within", (0.9, 1.1)) is False


@pytest.mark.parametrize("value", [0.1, 0.3, 0.7, 1 / 3])
@pytest.mark.parametrize("n", [2, 3, 10, 17])
def test_equal_members_on_the_threshold_are_not_moved_by_rounding(value: float, n: int) -> None:
    assert passed([value] * n, "<=", value) is True
    assert passed([value] * n, ">=", value) is True
    assert passed([value] * n, "<", value) is False


def test_one_member_has_no_interval() -> None:
    outcome = Criterion("q", "<=", 1.0).judge({"q": [0.5]})
    assert (outcome.passed, outcome.interval, outcome.n) == (True, None, 1)


def test_the_worst_member_is_the_farthest_on_the_failing_side() -> None:
    members = [0.2, 0.9, 1.5]
    found = {
        relation: Criterion("q", relation, threshold).judge({"q": members}).worst  # type: ignore[arg-type]
        for relation, threshold in (("<=", 1.0), (">", 1.0), ("within", (0.8, 1.0)), ("==", 1.5))
    }
    assert found == {"<=": 1.5, ">": 0.2, "within": 0.2, "==": 0.2}
    assert Criterion("q", "<=", 1.0).judge({"q": [1, inf]}).worst == inf


@pytest.mark.parametrize(
    ("evidence", "said"),
    [
        ({}, "not measured"),
        ({"q": None}, "not measured"),
        ({"q": []}, "no members"),
        ({"q": nan}, "not a number"),
        ({"q": [nan, nan]}, "not a number"),
        ({"q": [0.1, nan, 0.2, None]}, "2 of 4 members are not a number"),
        ({"q": "much"}, "'much' is not a number"),
        ({"q": {"a": 1}}, "not a number"),
    ],
)
@pytest.mark.parametrize("exact", [False, True])
def test_what_is_missing_is_named(evidence: dict[str, Any], said: str, exact: bool) -> None:
    outcome = Criterion("q", "<=", 1.0, exact=exact).judge(evidence)
    assert outcome.passed is None
    assert outcome.reason.startswith("q: ")
    assert said in outcome.reason


def test_members_that_are_numbers_are_still_shown() -> None:
    outcome = Criterion("q", "<=", 1.0).judge({"q": [0.1, nan, 0.3]})
    assert (outcome.mean, outcome.worst, outcome.n, outcome.passing) == (0.2, 0.3, 3, 2)


def test_infinite_members_decide_if_they_agree_with_the_others() -> None:
    assert passed([inf, 500, 800], ">=", 100.0) is True
    assert passed([inf, inf, inf], ">=", 100.0) is True
    assert passed([inf, inf, inf], "<=", 100.0) is False
    assert passed([inf, 200, 300], "<=", 100.0) is False
    outcome = Criterion("q", ">=", 100.0).judge({"q": [inf, 50, 500, 500]})
    assert (outcome.passed, outcome.mean, outcome.interval) == (None, inf, None)
    assert "1 of 4 members are infinite" in outcome.reason
    assert passed([inf, -inf, 0.0], "<=", 1.0) is None


def test_exact_members_have_to_pass_one_and_all() -> None:
    assert passed([0.9, 0.95, 1.0], exact=True) is True  # the interval of the mean reaches beyond 1
    assert passed([0.0] * 99 + [1.1], exact=True) is False
    assert passed([0, 0, 0], "==", 0.0) is True
    assert passed([0] * 99 + [1], "==", 0.0) is False
    assert passed([True, True], "==", 1.0) is True
    assert passed([True, True, False], ">=", 2 / 3) is None


def test_members_come_in_any_array() -> None:
    members = [0.1, 0.2, 0.3]
    for same in (tuple(members), numpy.array([members]), torch.tensor(members), xarray.DataArray(members)):
        outcome = Criterion("q", "<=", 1.0).judge({"q": same})
        assert outcome.n == 3
        assert outcome.mean == pytest.approx(0.2)


@pytest.mark.parametrize(
    "arguments",
    [
        ("q", "=<", 1.0),
        ("q", "within", 1.0),
        ("q", "<=", (0.0, 1.0)),
        ("q", "within", (1.0, 0.0)),
        ("q", "<=", nan),
        ("q", "<=", 1.0, 0.0),
        ("q", "<=", 1.0, 1.1),
    ],
)
def test_a_criterion_is_checked_when_it_is_made(arguments: Any) -> None:
    with pytest.raises(ValueError, match=r"^q: "):
        Criterion(*arguments)


# -- claims

SMALL, INITIAL = Criterion("size", "<=", 1.0), Criterion("size at initialisation", ">=", 2.0)
GOOD = {"size": [0.1, 0.2, 0.3], "size at initialisation": [5.1, 5.2, 5.3], "seeds": 3}


@pytest.mark.parametrize(
    ("change", "verdict", "said"),
    [
        ({}, "reproduced", ""),
        ({"size": [1.9, 2.0, 2.1]}, "not reproduced", "size at most 1, found a mean of 2, and 0 of 3 members pass"),
        ({"size": 7}, "not reproduced", "size at most 1, found 7"),
        ({"size": [0.8, 0.9, 1.2]}, "inconclusive", "straddles"),
        ({"size": [0.1, nan, 0.3]}, "inconclusive", "1 of 3 members are not a number"),
        ({"size at initialisation": [0.1, 0.2, 0.3]}, "inconclusive", "the control fails: size at initialisation"),
        ({"size": 7, "size at initialisation": 1}, "inconclusive", "the control fails: size at initialisation"),
        ({"size at initialisation": None}, "inconclusive", "size at initialisation: not measured"),
        ({"size": 7, "size at initialisation": None}, "not reproduced", "size at most 1"),
        ({"seeds": 3}, "reproduced", ""),
        ({"seeds": 2}, "inconclusive", "2 of the 3 networks"),
        ({"seeds": 2, "size": 7}, "inconclusive", "2 of the 3 networks"),
    ],
)
def test_a_verdict_follows_from_criteria_controls_and_seeds(change: dict[str, Any], verdict: str, said: str) -> None:
    decision = claim(SMALL, controls=(INITIAL,), seeds=3).decide({**GOOD, **change}, "quick")
    assert decision.verdict == verdict
    assert said in decision.reason
    assert bool(decision.reason) == bool(said)


@pytest.mark.parametrize("size", [[0.1, 0.2, 0.3], 7.0])
def test_only_its_presets_decide_a_claim(size: Any) -> None:
    large = claim(SMALL, presets=("full", "paper"))
    decision = large.decide({"size": size}, "quick")
    assert decision.verdict == "inconclusive"
    assert decision.reason == "the preset quick cannot decide it: needs full or paper"
    assert decision.outcomes[0].passed is (size != 7.0)  # shown all the same
    for preset in ("full", "paper"):
        assert large.decide({"size": size}, preset).verdict != "inconclusive"
    assert claim(SMALL).decide({"size": size}, "smoke").verdict == "inconclusive"
    with pytest.raises(ValueError, match="smoke"):
        claim(SMALL, presets=("smoke",))


def test_a_given_reason_leaves_it_open() -> None:
    decision = claim(SMALL).decide({}, "full", reason="A.alignment was not run")
    assert (decision.verdict, decision.reason) == ("inconclusive", "A.alignment was not run")


def test_a_claim_without_criteria_is_reported() -> None:
    decision = claim(note="nobody knows the sign").decide({"sign": -1}, "paper")
    assert decision.verdict == "inconclusive"
    assert decision.reason == "reported, not judged: nobody knows the sign"
    assert decision.measured == {"sign": -1}
    with pytest.raises(ValueError, match="note"):
        claim(note="")


def test_what_is_expected_is_the_rule_in_words() -> None:
    made = claim(SMALL, Criterion("slope", "within", (0.5, 2.0)), Criterion("bad", "==", 0.0), controls=(INITIAL,))
    assert made.expected == (
        "size at most 1; slope within 0.5 to 2; bad exactly 0; control: size at initialisation at least 2"
    )
    assert str(Criterion("x", ">", 0.0, share=0.9)) == "x above 0 (at least 90% of the members)"
    assert str(Criterion("x", "<", 1e-12, exact=True)) == "x below 1e-12 (every member)"


@pytest.mark.parametrize("change", [{"id": "B1"}, {"paper": "E", "id": "E1"}, {"study": "B.norms"}, {"seeds": 0}])
def test_a_claim_is_checked_when_it_is_made(change: dict[str, Any]) -> None:
    given = {"id": "A1", "paper": "A", "text": "t", "statistic": "s", "study": "A.x", "criteria": (SMALL,)}
    Claim(**given)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^[A-E]1: "):
        Claim(**{**given, **change})  # type: ignore[arg-type]


def test_a_decision_survives_its_document() -> None:
    evidence = {
        **GOOD,
        "infinite": [inf, -inf, nan],
        "many": numpy.arange(100.0),
        "few": torch.tensor([1, 2]),
        "labelled": xarray.DataArray([1.0, 2.0]),
        "names": ["a", "b"],
        "text": "words",
        "flag": True,
    }
    decision = claim(SMALL, Criterion("infinite", "<=", 1.0), controls=(INITIAL,)).decide(evidence, "quick")
    document = decision.to_dict()
    assert list(document) == [
        *("id", "paper", "claim", "statistic", "expected", "measured", "verdict", "preset", "reason", "outcomes")
    ]
    assert {"quantity", "relation", "threshold", "mean", "worst", "n", "passing", "interval", "passed", "control"} <= (
        set(document["outcomes"][0])
    )
    assert [outcome["control"] for outcome in document["outcomes"]] == [False, False, True]
    assert document["paper"] == PAPERS["A"]
    assert document["measured"]["many"] == {"mean": 49.5, "min": 0.0, "max": 99.0, "n": 100}
    assert document["measured"]["infinite"] == ["inf", "-inf", "nan"]
    assert (document["measured"]["few"], document["measured"]["labelled"]) == ([1, 2], [1.0, 2.0])
    assert plain(document) == document
    again = Decision.from_dict(json.loads(as_json(document)))
    assert again.to_dict() == document
    assert again.measured["infinite"][0] == inf
    assert again.outcomes[0] == decision.outcomes[0]


def test_many_members_are_summarised_and_twenty_are_not() -> None:
    made = claim(SMALL)
    assert made.decide({"size": [0.5] * 20}, "quick").measured == {"size": [0.5] * 20}
    found = made.decide({"size": [0.5] * 20 + [nan]}, "quick").measured
    assert found == {"size": {"mean": 0.5, "min": 0.5, "max": 0.5, "n": 21, "not a number": 1}}


def test_claims_can_be_listed_without_scipy() -> None:
    code = "import sys, skipscope.runs.claims; sys.exit('scipy' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


# -- the claims of the papers


def test_every_claim_is_there_once() -> None:
    for paper, claims, count in (("A", A, 17), ("B", B, 23), ("C", C, 17), ("D", D, 18)):
        assert [made.id for made in claims] == [f"{paper}{number}" for number in range(1, count + 1)]
        assert {made.paper for made in claims} == {paper}


@pytest.mark.parametrize("made", ALL.values(), ids=ALL)
def test_every_claim_says_what_it_needs(made: Claim) -> None:
    assert made.statistic
    assert made.text.endswith(".")
    assert made.study.startswith(f"{made.paper}.")
    rules = (*made.criteria, *made.controls)
    assert rules or made.note
    assert made.decide({}, "paper").verdict == "inconclusive"
    assert made.decide({}, "paper").reason
    assert made.presets[-1] == "paper"
    # No rule is stated twice, and none contradicts another.
    assert max(Counter(map(str, rules)).values(), default=1) == 1


def good(criterion: Criterion) -> float:
    """A value that passes with room to spare, computed from the rule's words."""
    ends = criterion.ends
    far = {"<=": -1e3, "<": -1e3, ">=": 1e3, ">": 1e3, "==": 0.0, "within": 0.0}[criterion.relation]
    return sum(ends) / len(ends) + far


def bad(criterion: Criterion) -> float:
    return (
        criterion.ends[0] + {"<=": 1e3, "<": 1e3, ">=": -1e3, ">": -1e3, "==": 1.0, "within": -1e3}[criterion.relation]
    )


@pytest.mark.parametrize("made", [made for made in ALL.values() if made.criteria], ids=lambda made: made.id)
def test_every_claim_can_be_reproduced_and_refuted(made: Claim) -> None:
    """And every one of its criteria and controls counts."""
    evidence: dict[str, Any] = {"seeds": made.seeds}
    for criterion in (*made.criteria, *made.controls):
        evidence[criterion.quantity] = [good(criterion)] * 3
    assert made.decide(evidence, "paper").verdict == "reproduced"
    if made.seeds > 1:
        unsaid = {key: value for key, value in evidence.items() if key != "seeds"}
        assert made.decide(unsaid, "paper").verdict == "inconclusive"
    for criterion in made.criteria:
        assert made.decide({**evidence, criterion.quantity: bad(criterion)}, "paper").verdict == "not reproduced"
    for control in made.controls:
        assert made.decide({**evidence, control.quantity: bad(control)}, "paper").verdict == "inconclusive"
    assert made.decide(evidence, "smoke").verdict == "inconclusive"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("A1", "LSS at most 1.15; control: LSS at initialisation at least 2.5"),
        ("A2", "step CoV at most 0.25; control: step CoV at initialisation at least 0.8"),
        (
            "A3",
            "m_K adjacent / chance at most 0.62; m_K all pairs / chance at most 0.77; "
            "control: m_K all pairs at initialisation / chance at least 0.97",
        ),
        ("A7", "R2 of 1 / s_1 over depth at least 0.9; slope of 1 / s_1 over depth within 0.5 to 2"),
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
        ("C1", "train accuracy, PlainNet at most 0.35; control: train accuracy, ResNet at least 0.95"),
        ("C2", "test accuracy, ResNeXt - ResNet above 0"),
        ("C3", "median log10 cond of weights, PlainNet - ResNet at least 0.5"),
        ("C10", "relative error of approximation 16 at most 0.1"),
        (
            "D2",
            "share near 1, regular units of stages 1-2 at least 0.3; share near 1, regular units of stages 1-2 above "
            "0.5",
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
        ("D17", "mean singular value, regular units within 0.9 to 1.1"),
    ],
)
def test_thresholds_stay_where_they_were_set(name: str, expected: str) -> None:
    assert ALL[name].expected == expected


@pytest.mark.parametrize(
    ("name", "thresholds"),
    [
        ("A5", [0.99, 0.05, 0.8, 5]),
        ("A9", [0.9, 1]),
        ("A12", [1, 1, 0.7]),
        ("A13", [0.5, 2, 0.77, 0.99, 0.99]),
        ("A15", [1e-4] * 7),
        ("B6", [0.05, 0, 0, 1]),
        ("B7", [0, 0, 0.5]),
        ("B10", [-3, -0.3, -1.5, 0]),
        ("B14", [-0.25, -0.25]),
        ("B18", [1e-12, 1e-30]),
        ("B12", [1, 3, 3, 0]),
        ("B13", [3, 0]),
        ("B20", [0.05, 0.3, 1, 0]),
        ("B22", [0, 0, 1e-3, 0]),
        ("C5", [0.3, 0]),
        ("C7", [0, 3, 0]),
        ("C14", [-0.5, 10, 0.99]),
        ("C16", [0.9, 0.35]),
        ("D1", [0.9, 1.1, 0, 1e-10, 1, 1]),
        ("D4", [0.95, 0.05, 0]),
        ("D6", [10, 0.02]),
        ("D7", [-0.3] * 3),
        ("D12", [2, 1.5]),
        ("D14", [3, 3]),
        ("D18", [0.75, 0.1, 0.95, 0.05, 0]),
    ],
)
def test_thresholds_by_number(name: str, thresholds: list[float]) -> None:
    made = ALL[name]
    found = [end for criterion in (*made.criteria, *made.controls) for end in criterion.ends]
    assert len(found) == len(thresholds)
    assert all(isclose(a, b) for a, b in zip(found, thresholds, strict=True))


def test_the_signs_of_paper_d() -> None:
    assert [criterion.relation for criterion in ALL["D8"].criteria] == [">", ">", "<"]
    assert [criterion.relation for criterion in ALL["D9"].criteria] == ["<", "<", ">"]


def test_small_networks_do_not_decide_what_takes_large_ones() -> None:
    large = {name for name, made in ALL.items() if "quick" not in made.presets}
    assert large == {"A8", "A10", "A11", "A13", "B12", "B19", "C2", "D2", "D7", "D8", "D9", "D11", "D12", "D16", "D18"}
    assert all(set(made.presets) <= set(PRESETS) for made in ALL.values())


def test_claims_of_ours_say_so() -> None:
    assert {name for name, made in ALL.items() if made.ours} == {"A16", "D3"}
    assert ALL["D3"].title.startswith("ours, on Rothauge")
    assert {name for name, made in ALL.items() if not made.criteria} == {"A6", "A11", "B5", "C17"}
