"""Criteria and claims: the rule that decides them, and the record that is left of it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from math import inf, nan
from typing import Any

import numpy
import pytest
import scipy.stats
import torch
import xarray

from skipscope.papers.kit import Claim, Criterion, Measured, Part, Quantity
from skipscope.papers.kit.estimates import Slope
from skipscope.runs import as_json, plain
from skipscope.runs.decisions import Decision

Q = Quantity("q")


def passed(members: Any, relation: Any = "<=", threshold: Any = 1.0, **options: Any) -> bool | None:
    return Criterion(Q, relation, threshold, **options).judge({Q: members}).passed


def claim(*criteria: Criterion, **options: Any) -> Claim:
    return Claim("A1", "it is small", "the value", criteria, **{"note": "why", **options})


def decided(made: Claim, evidence: Mapping[Quantity, Any], preset: str, **options: Any) -> Decision:
    return made.decide([Measured(evidence)], preset, study="A.alignment", paper="Authors: Title", **options)


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
    outcome = Criterion(Q, relation, threshold).judge({Q: passing[0]})
    assert (outcome.n, outcome.passing, outcome.interval, outcome.mean) == (1, 1, None, float(passing[0]))


def test_the_interval_of_the_mean_decides_and_no_share_of_the_networks() -> None:
    assert passed([0.1, 0.2, 0.3]) is True
    assert passed([2.1, 2.2, 2.3]) is False
    # Most networks are on the other side; the interval of the mean is not.
    low = [-9.0] * 8 + [1.01] * 10
    outcome = Criterion(Q, "<=", 1.0).judge({Q: low})
    assert (outcome.passed, outcome.passing, outcome.n) == (True, 8, 18)


def test_an_interval_across_the_threshold_says_how_many_networks_would_decide() -> None:
    outcome = Criterion(Q, "<=", 1.0).judge({Q: [0.7, 0.9, 1.1]})
    assert outcome.passed is None
    assert outcome.needed is not None
    assert outcome.needed > 3
    assert f"{outcome.needed} networks would decide it" in outcome.reason


def test_joined_conditions_fail_by_a_wider_interval() -> None:
    """At 95 % the interval of the mean is above 1; at 99 %, which five joined conditions ask for, it is not."""
    members = [1.05, 1.3, 1.15, 1.02, 1.2]
    criterion = Q.at_most(1.0)
    assert criterion.judge({Q: members}).passed is False
    assert criterion.judge({Q: members}, conditions=5).passed is None


def test_a_scale_says_on_what_the_interval_is_taken() -> None:
    ratio = Quantity("growth", "ratio")
    outcome = ratio.above(1.0).judge({ratio: [1.1, 1.2, 9.0]})
    logs = numpy.log([1.1, 1.2, 9.0])
    assert outcome.interval is not None
    expected = numpy.exp(scipy.stats.t.interval(0.95, 2, logs.mean(), scipy.stats.sem(logs)))
    assert outcome.interval == pytest.approx(tuple(expected))
    assert outcome.scale == "ratio"
    with pytest.raises(ValueError, match="x: the scale is one of plain, ratio, share, correlation, not 'log'"):
        Quantity("x", "log")  # type: ignore[arg-type]


def test_an_estimate_brings_its_own_interval() -> None:
    slope = Slope([1.0, 1.0, 2.0, 2.0, 3.0, 3.0], [3.0, 3.1, 2.0, 2.1, 1.0, 1.1])
    outcome = Q.below(0.0).judge({Q: slope})
    assert (outcome.passed, outcome.n) == (True, 6)
    assert outcome.mean == pytest.approx(-1.0)
    assert outcome.interval == slope.interval()


def test_a_floor_takes_the_place_of_a_smaller_threshold() -> None:
    """What differs no more than networks of other seeds do is alike."""
    floor = Quantity("between seeds")
    alike = Q.at_most(0.3, floor=floor)
    assert alike.judge({Q: [0.4, 0.41], floor: [0.1, 0.1]}).passed is False
    outcome = alike.judge({Q: [0.4, 0.4], floor: [0.5, 0.7]})
    assert (outcome.passed, outcome.threshold) == (True, 0.6)
    assert alike.judge({Q: [0.1, 0.1]}).reason == "between seeds: not measured"
    assert str(alike) == "q at most 0.3, or between seeds where that is larger"
    with pytest.raises(ValueError, match="a floor belongs to 'at most'"):
        Criterion(Q, ">=", 1.0, floor=floor)


@pytest.mark.parametrize("seed", range(5))
def test_the_interval_is_that_of_student(seed: int) -> None:
    members = numpy.random.default_rng(seed).normal(2, 3, size=2 + 3 * seed)
    found = Criterion(Q, "<=", 100.0).judge({Q: members})
    expected = scipy.stats.t.interval(0.95, members.size - 1, members.mean(), scipy.stats.sem(members))
    assert found.interval == pytest.approx(expected, rel=1e-12)
    assert found.mean == pytest.approx(members.mean())
    assert found.worst == members.max()


@pytest.mark.parametrize("relation", ["<=", ">=", "<", ">"])
def test_an_interval_that_straddles_the_threshold_decides_nothing(relation: Any) -> None:
    speed = Quantity("speed")
    outcome = Criterion(speed, relation, 1.0).judge({speed: [0.8, 0.9, 1.2]})
    assert outcome.passed is None
    assert "speed" in outcome.reason
    assert "is on both sides of 1" in outcome.reason


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
    outcome = Criterion(Q, "<=", 1.0).judge({Q: [0.5]})
    assert (outcome.passed, outcome.interval, outcome.n) == (True, None, 1)


def test_the_worst_member_is_the_farthest_on_the_failing_side() -> None:
    members = [0.2, 0.9, 1.5]
    found = {
        relation: Criterion(Q, relation, threshold).judge({Q: members}).worst  # type: ignore[arg-type]
        for relation, threshold in (("<=", 1.0), (">", 1.0), ("within", (0.8, 1.0)), ("==", 1.5))
    }
    assert found == {"<=": 1.5, ">": 0.2, "within": 0.2, "==": 0.2}
    assert Criterion(Q, "<=", 1.0).judge({Q: [1, inf]}).worst == inf


@pytest.mark.parametrize(
    ("evidence", "message"),
    [
        ({}, "not measured"),
        ({Q: None}, "not measured"),
        ({Q: []}, "no networks"),
        ({Q: nan}, "not a number"),
        ({Q: [nan, nan]}, "not a number"),
        ({Q: [0.1, nan, 0.2, None]}, "2 of 4 values are not a number"),
        ({Q: "much"}, "'much' is not a number"),
        ({Q: {"a": 1}}, "not a number"),
    ],
)
@pytest.mark.parametrize("every", [False, True])
def test_what_is_missing_is_named(evidence: dict[Quantity, Any], message: str, every: bool) -> None:
    outcome = Criterion(Q, "<=", 1.0, every=every).judge(evidence)
    assert outcome.passed is None
    assert outcome.reason.startswith("q: ")
    assert message in outcome.reason


def test_members_that_are_numbers_are_still_shown() -> None:
    outcome = Criterion(Q, "<=", 1.0).judge({Q: [0.1, nan, 0.3]})
    assert (outcome.mean, outcome.worst, outcome.n, outcome.passing) == (0.2, 0.3, 3, 2)


def test_infinite_members_decide_if_they_agree_with_the_others() -> None:
    assert passed([inf, 500, 800], ">=", 100.0) is True
    assert passed([inf, inf, inf], ">=", 100.0) is True
    assert passed([inf, inf, inf], "<=", 100.0) is False
    assert passed([inf, 200, 300], "<=", 100.0) is False
    outcome = Criterion(Q, ">=", 100.0).judge({Q: [inf, 50, 500, 500]})
    assert (outcome.passed, outcome.mean, outcome.interval) == (None, inf, None)
    assert "1 of 4 values are infinite" in outcome.reason
    assert passed([inf, -inf, 0.0], "<=", 1.0) is None


def test_a_ratio_of_zero_has_no_logarithm_and_the_networks_decide_if_they_agree() -> None:
    ratio = Quantity("ratio", "ratio")
    assert ratio.at_most(0.5).judge({ratio: [0.0, 0.01, 0.02]}).passed is True
    assert ratio.at_most(0.015).judge({ratio: [0.0, 0.01, 0.02]}).passed is None


def test_a_value_that_its_scale_cannot_have_decides_nothing() -> None:
    for scale, wrong in (("ratio", -1.0), ("share", 1.2), ("correlation", -1.1)):
        quantity = Quantity("odd", scale)  # type: ignore[arg-type]
        outcome = quantity.at_most(0.5).judge({quantity: [0.1, wrong]})
        assert outcome.passed is None
        assert f"a {scale} is from" in outcome.reason


def test_exact_members_have_to_pass_one_and_all() -> None:
    assert passed([0.9, 0.95, 1.0], every=True) is True  # the interval of the mean reaches beyond 1
    assert passed([0.0] * 99 + [1.1], every=True) is False
    assert passed([0, 0, 0], "==", 0.0) is True
    assert passed([0] * 99 + [1], "==", 0.0) is False
    assert passed([True, True], "==", 1.0) is True


def test_members_come_in_any_array() -> None:
    members = [0.1, 0.2, 0.3]
    for same in (tuple(members), numpy.array([members]), torch.tensor(members), xarray.DataArray(members)):
        outcome = Criterion(Q, "<=", 1.0).judge({Q: same})
        assert outcome.n == 3
        assert outcome.mean == pytest.approx(0.2)


@pytest.mark.parametrize(
    "arguments",
    [
        (Q, "=<", 1.0),
        (Q, "within", 1.0),
        (Q, "<=", (0.0, 1.0)),
        (Q, "within", (1.0, 0.0)),
        (Q, "<=", nan),
    ],
)
def test_a_criterion_is_checked_when_it_is_made(arguments: Any) -> None:
    with pytest.raises(ValueError, match=r"^q: "):
        Criterion(*arguments)


def test_a_criterion_is_about_a_quantity_and_not_about_a_text() -> None:
    with pytest.raises(TypeError, match="a criterion is about a Quantity, not 'share near 1'"):
        Criterion("share near 1", "<=", 1.0)  # type: ignore[arg-type]


def test_a_quantity_makes_its_criteria() -> None:
    made = [Q.at_least(1), Q.at_most(1), Q.above(1), Q.below(1), Q.exactly(1), Q.within(0, 1)]
    assert [criterion.relation for criterion in made] == [">=", "<=", ">", "<", "==", "within"]
    assert {criterion.quantity for criterion in made} == {Q}
    assert [criterion.every for criterion in made] == [False] * 4 + [True, False]
    assert Q.above(0, every=True).every


def test_a_claim_has_criteria_and_no_quantities_of_one_name() -> None:
    with pytest.raises(TypeError, match="criteria and controls are Criteria, not Quantity"):
        claim(Q)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="A1: several quantities have the name 'q'; use one object"):
        claim(Q.at_least(1), Quantity("q").at_most(2))
    with pytest.raises(ValueError, match="A1: several quantities have the name 'q'"):
        decided(claim(Q.at_least(1)), {Q: 1, Quantity("q"): 2}, "quick")


def test_quantities_of_one_name_are_two_quantities() -> None:
    """Evidence and criterion are joined by the object: its name alone is not enough."""
    assert Quantity("q") != Q
    assert Q.at_most(1.0).judge({Quantity("q"): 0.5}).passed is None
    assert str(Q.of("mnist-20")) == "q, mnist-20"


# -- claims

SIZE, AT_START = Quantity("size"), Quantity("size at initialisation")
SMALL, INITIAL = SIZE.at_most(1.0), AT_START.at_least(2.0)
GOOD = {SIZE: [0.1, 0.2, 0.3], AT_START: [5.1, 5.2, 5.3]}


@pytest.mark.parametrize(
    ("change", "verdict", "message"),
    [
        ({}, "reproduced", ""),
        (
            {SIZE: [1.9, 2.0, 2.1]},
            "not reproduced",
            "found a mean of 2 (1.752 to 2.248), and 0 of 3 pass",
        ),
        ({SIZE: 7}, "not reproduced", "size at most 1, found 7"),
        ({SIZE: [0.8, 0.9, 1.2]}, "inconclusive", "on both sides"),
        ({SIZE: [0.1, nan, 0.3]}, "inconclusive", "1 of 3 values are not a number"),
        ({AT_START: [0.1, 0.2, 0.3]}, "inconclusive", "not specific, the control does not hold: size at init"),
        ({SIZE: 7, AT_START: 1}, "inconclusive", "not specific, the control does not hold: size at init"),
        ({AT_START: None}, "inconclusive", "size at initialisation: not measured"),
        ({SIZE: 7, AT_START: None}, "inconclusive", "size at initialisation: not measured"),
    ],
)
def test_a_verdict_follows_from_criteria_and_controls(change: dict[Quantity, Any], verdict: str, message: str) -> None:
    decision = decided(claim(SMALL, controls=(INITIAL,)), {**GOOD, **change}, "quick")
    assert decision.verdict == verdict
    assert message in decision.reason
    assert bool(decision.reason) == bool(message)


def test_the_smallest_preset_decides_nothing() -> None:
    decision = decided(claim(SMALL), {SIZE: 7.0}, "smoke")
    assert (decision.verdict, decision.reason) == (
        "open",
        "the preset smoke decides nothing: needs quick or full or paper",
    )
    assert decision.outcomes[0].passed is False  # shown all the same


def test_a_given_reason_leaves_it_open() -> None:
    decision = decided(claim(SMALL), {}, "full", reason="A.alignment was not run", cost="an hour of one GPU")
    assert (decision.verdict, decision.reason) == ("open", "A.alignment was not run")
    assert decision.cost == "an hour of one GPU"
    assert str(decision).endswith("what would decide it: an hour of one GPU")


def test_a_claim_without_criteria_is_reported() -> None:
    decision = decided(claim(note="nobody knows the sign"), {Quantity("sign"): -1}, "paper")
    assert (decision.verdict, decision.reason) == ("reported", "nobody knows the sign")
    assert decision.measured == {"sign": -1}
    with pytest.raises(ValueError, match="note"):
        claim(note="")


# -- parts and subjects

LOW, HIGH = Quantity("low"), Quantity("high")
TWO_PARTS = Claim(
    "A2",
    "It is small, and large later.",
    "sizes",
    parts=(Part("small", (LOW.at_most(1.0),)), Part("large later", (HIGH.at_least(2.0),))),
    subjects={"mnist": 3, "cifar10": 2},
)
SMALL_ENOUGH, TOO_LARGE, UNCLEAR = [0.1, 0.2, 0.3], [1.9, 2.0, 2.1], [0.8, 0.9, 1.2]
LARGE_ENOUGH, TOO_SMALL = [5.0, 5.1, 5.2], [0.1, 0.2, 0.3]


def on(subject: str, low: Any, high: Any, first: int = 1000, **options: Any) -> Measured:
    return Measured({LOW: low, HIGH: high}, subject, range(first, first + len(low)), **options)


def of(*evidence: Measured, made: Claim = TWO_PARTS, preset: str = "full") -> Decision:
    return made.decide(evidence, preset, study="A.alignment", paper="Authors: Title", cost="an hour")


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (SMALL_ENOUGH, LARGE_ENOUGH, "reproduced"),
        (TOO_LARGE, TOO_SMALL, "not reproduced"),
        (SMALL_ENOUGH, TOO_SMALL, "partly reproduced"),
        (UNCLEAR, LARGE_ENOUGH, "inconclusive"),
        (UNCLEAR, TOO_SMALL, "inconclusive"),
    ],
)
def test_a_claim_follows_from_its_parts(low: Any, high: Any, verdict: str) -> None:
    decision = of(on("mnist", low, high))
    assert decision.verdict == verdict
    assert [part.name for part in decision.parts] == ["small", "large later"]
    assert [(part.subject, part.networks) for part in decision.parts] == [("mnist", 3)] * 2


def test_the_first_subject_decides_and_the_others_stand_beside_it() -> None:
    decision = of(on("cifar10", TOO_LARGE[:2], TOO_SMALL[:2]), on("mnist", SMALL_ENOUGH, LARGE_ENOUGH))
    assert decision.verdict == "reproduced"
    found = {each.subject: (each.decides, each.verdict, each.networks) for each in decision.subjects}
    assert found == {"cifar10": (False, "not reproduced", 2), "mnist": (True, "reproduced", 3)}
    assert decision.measured["low"] == SMALL_ENOUGH


def test_a_claim_whose_subject_was_not_run_is_open_and_says_what_it_costs() -> None:
    decision = of(on("digits", SMALL_ENOUGH, LARGE_ENOUGH))
    assert (decision.verdict, decision.reason, decision.cost) == ("open", "mnist was not measured", "an hour")
    assert decision.subjects[0].decides is False
    assert of().verdict == "open"


@pytest.mark.parametrize(
    ("measured", "message"),
    [
        (on("mnist", SMALL_ENOUGH[:2], LARGE_ENOUGH[:2]), "2 of the 3 networks"),
        (on("mnist", SMALL_ENOUGH, LARGE_ENOUGH, first=998), r"seeds below 1000 are for choosing settings"),
        (on("mnist", SMALL_ENOUGH, LARGE_ENOUGH, unmet="train accuracy .91, expected .99"), "train accuracy .91"),
    ],
)
def test_a_subject_that_does_not_qualify_leaves_the_claim_open(measured: Measured, message: str) -> None:
    decision = of(measured)
    assert decision.verdict == "open"
    assert message in decision.reason
    assert decision.parts[0].outcomes[0].passed is True  # shown all the same


def test_a_part_may_be_about_a_subject_of_its_own() -> None:
    made = Claim(
        "A3",
        "It is small on both.",
        "sizes",
        parts=(
            Part("small on mnist", (LOW.at_most(1.0),), subject="mnist"),
            Part("small on cifar10", (LOW.at_most(1.0),), subject="cifar10"),
        ),
        subjects={"mnist": 3, "cifar10": 2},
    )
    both = on("mnist", SMALL_ENOUGH, LARGE_ENOUGH), on("cifar10", TOO_LARGE[:2], TOO_SMALL[:2])
    assert of(*both, made=made).verdict == "partly reproduced"
    assert of(both[0], made=made).verdict == "open"
    assert made.deciding == ("mnist", "cifar10")
    with pytest.raises(ValueError, match="A3: x: 'svhn' is none of its subjects"):
        Claim("A3", "t", "s", parts=(Part("x", (LOW.at_most(1),), subject="svhn"),), subjects={"mnist": 3})


def test_parts_are_checked_when_they_are_made() -> None:
    rule = LOW.at_most(1.0)
    with pytest.raises(ValueError, match="A1: parts have names, each its own"):
        Claim("A1", "t", "s", parts=(Part("a", (rule,)), Part("a", (rule,))))
    with pytest.raises(ValueError, match="A1: criteria and controls belong to its parts"):
        Claim("A1", "t", "s", (rule,), parts=(Part("a", (rule,)),))
    with pytest.raises(ValueError, match="a: a part has criteria"):
        Part("a", ())
    with pytest.raises(ValueError, match="A2: a subject was measured twice"):
        of(on("mnist", SMALL_ENOUGH, LARGE_ENOUGH), on("mnist", SMALL_ENOUGH, LARGE_ENOUGH))


def test_what_is_expected_is_the_rule_in_words() -> None:
    slope, bad = Quantity("slope").within(0.5, 2.0), Quantity("bad").exactly(0.0)
    made = claim(SMALL, slope, bad, controls=(INITIAL,))
    assert made.expected == (
        "size at most 1; slope within 0.5 to 2; bad exactly 0; control: size at initialisation at least 2"
    )
    assert str(Quantity("x").below(1e-12, every=True)) == "x below 1e-12 (each)"
    assert TWO_PARTS.expected == "small: low at most 1 | large later: high at least 2"


@pytest.mark.parametrize("change", [{"id": "1"}, {"id": "A0"}, {"id": "a1"}, {"id": "AB1"}, {"subjects": {"mnist": 0}}])
def test_a_claim_is_checked_when_it_is_made(change: dict[str, Any]) -> None:
    given: dict[str, Any] = {"id": "A1", "text": "t", "statistic": "s", "criteria": (SMALL,)}
    Claim(**given)
    with pytest.raises(ValueError, match=rf"^{change.get('id', 'A1')}: "):
        Claim(**{**given, **change})


def test_a_decision_survives_its_document() -> None:
    infinite = Quantity("infinite")
    evidence = {
        **GOOD,
        infinite: [inf, -inf, nan],
        Quantity("many"): numpy.arange(100.0),
        Quantity("few"): torch.tensor([1, 2]),
        Quantity("labelled"): xarray.DataArray([1.0, 2.0]),
        Quantity("names"): ["a", "b"],
        Quantity("text"): "words",
        Quantity("flag"): True,
    }
    decision = decided(claim(SMALL, infinite.at_most(1.0), controls=(INITIAL,)), evidence, "quick")
    document = decision.to_dict()
    assert list(document) == [
        *("id", "paper", "claim", "statistic", "expected", "measured", "verdict", "preset", "reason", "study"),
        *("cost", "edition", "first_edition", "schema", "outcomes", "parts", "subjects"),
    ]
    assert (document["edition"], document["schema"]) == (2, 2)
    assert {"quantity", "relation", "threshold", "mean", "worst", "n", "passing", "interval", "passed", "control"} <= (
        set(document["outcomes"][0])
    )
    assert [outcome["control"] for outcome in document["outcomes"]] == [False, False, True]
    assert (document["paper"], document["study"]) == ("Authors: Title", "A.alignment")
    assert document["measured"]["many"] == {"mean": 49.5, "min": 0.0, "max": 99.0, "n": 100}
    assert document["measured"]["infinite"] == ["inf", "-inf", "nan"]
    assert (document["measured"]["few"], document["measured"]["labelled"]) == ([1, 2], [1.0, 2.0])
    assert plain(document) == document
    again = Decision.from_dict(json.loads(as_json(document)))
    assert again.to_dict() == document
    assert again.measured["infinite"][0] == inf
    assert again.outcomes[0] == decision.outcomes[0]
    assert again.parts[0].verdict == decision.parts[0].verdict


def test_a_document_of_the_first_edition_is_still_read() -> None:
    now = decided(claim(SMALL), GOOD, "quick").to_dict()
    old = {key: now[key] for key in ("id", "paper", "claim", "statistic", "expected", "measured", "preset", "outcomes")}
    again = Decision.from_dict({**old, "verdict": "inconclusive", "reason": "straddles"})
    assert (again.edition, again.schema, again.parts, again.subjects) == (1, 1, (), ())


def test_the_parts_of_a_document_have_verdict_interval_and_networks() -> None:
    part = of(on("mnist", UNCLEAR, LARGE_ENOUGH)).to_dict()["parts"][0]
    assert (part["verdict"], part["networks"], part["subject"]) == ("inconclusive", 3, "mnist")
    assert part["interval"][0] < part["value"] < part["interval"][1]
    assert part["needed"] > 3


def test_many_members_are_summarised_and_twenty_are_not() -> None:
    made = claim(SMALL)
    assert decided(made, {SIZE: [0.5] * 20}, "quick").measured == {"size": [0.5] * 20}
    found = decided(made, {SIZE: [0.5] * 20 + [nan]}, "quick").measured
    assert found == {"size": {"mean": 0.5, "min": 0.5, "max": 0.5, "n": 21, "not a number": 1}}


def test_claims_can_be_listed_without_scipy() -> None:
    code = "import sys, skipscope.papers.kit.claims; sys.exit('scipy' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
