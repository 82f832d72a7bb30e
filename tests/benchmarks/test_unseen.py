"""The networks that judge the check: what they are, what the figures mean, and that page and rules have them."""

from __future__ import annotations

import json
from collections import Counter

import pytest
import torch
from sklearn.metrics import balanced_accuracy_score

from benchmarks.check import PAGE, read, some_digits
from benchmarks.unseen import courses, judging, training
from benchmarks.unseen.__main__ import COUNTS, WRITTEN, list_of, networks, stored
from benchmarks.unseen.networks import drawn
from skipscope.check.rules import Rule, rules_for
from skipscope.check.short_training import ENOUGH, LAST, LONGEST, QUICKLY
from skipscope.optimisers import OPTIMISERS


@pytest.mark.parametrize("judging", WRITTEN)
def test_the_list_is_what_is_drawn(judging: str) -> None:
    listed = json.loads(list_of(judging).read_text(encoding="utf-8"))
    assert listed["trains"] == training.__doc__
    for of in WRITTEN[judging]:
        assert listed[of] == [{**each.record, "seed": each.seed} for each in networks(of)]  # type: ignore[union-attr]
        assert set(stored(of)["networks"]) == {each.name for each in networks(of)}
    assert {each["number"] for each in listed[judging]} == set(range(COUNTS[judging]))


def test_plain_networks_are_what_was_missed() -> None:
    listed = json.loads(list_of("judging").read_text(encoding="utf-8"))
    assert all(24 <= each["depth"] <= 44 and each["norm"] == "batch" and not each["skips"] for each in listed["plain"])


@pytest.mark.parametrize("number", range(6))
def test_drawn_networks_are_the_same_again_and_give_scores(number: int) -> None:
    network = drawn("test", 6)[number]
    first, second = network.build(), network.build()
    x = some_digits()[:4]
    assert first(x).shape == (4, 10)
    assert torch.equal(first(x), second(x))
    assert network.optimiser == judging.optimiser_of({"words": network.words})


@pytest.mark.parametrize("of", WRITTEN)
def test_each_class_has_two_fifths_at_least(of: str) -> None:
    trains = [each["trains"] for each in stored(of)["networks"].values()]
    assert 0.4 <= sum(trains) / len(trains) <= 0.6
    assert len(trains) >= 200


def test_balanced_accuracy_agrees_with_another_library() -> None:
    counts: Counter[tuple[bool, bool]] = Counter(
        {(True, True): 17, (True, False): 3, (False, True): 1, (False, False): 9}
    )
    pairs = list(counts.elements())
    share, low, high = judging.balanced(counts)
    assert share == pytest.approx(balanced_accuracy_score(*zip(*pairs, strict=True)))
    assert 0 < low < share < high < 1


def test_thresholds_are_those_with_the_largest_balanced_accuracy() -> None:
    """Of one rule, against all places that there are."""
    values = [(0.1, True), (0.4, True), (0.5, False), (0.7, True), (0.9, False), (1.5, False)]
    rule = Rule("one", "growth", True, 0.0, "")
    records = [{"trains": trains, "signals": {"growth": v, "gradient_growth": 0.0}} for v, trains in values]
    (found,) = judging.fitted([rule], records, [{"growth": 0.0}])
    assert found.threshold == pytest.approx(0.8)  # no false alarm, one miss: as good as 0.45 is
    (found,) = judging.fitted([rule], records, [{"growth": 1.0}])
    assert found.threshold == pytest.approx(1.25)  # what is published may not break it
    assert judging.rounded(1.234, above=True) == pytest.approx(1.3)
    assert judging.rounded(-1.234, above=False) == pytest.approx(-1.3)
    assert judging.rounded(0.1234, above=False) == pytest.approx(0.12)


def test_the_thresholds_are_those_of_the_stored_networks() -> None:
    for line in judging.fit(stored("calibration")["networks"].values(), stored("earlier")["networks"].values()).split(
        "\n"
    ):
        if "   now " in line:
            fitted, _, rest = line.partition("   now ")
            assert float(fitted.split()[-1]) == float(rest.split()[0]), line
    published = read()["published"].values()
    for optimiser in OPTIMISERS:
        assert not any(rule.broken(signals) for rule in rules_for(optimiser) for signals in published)


def test_the_page_has_the_stored_results() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert judging.report(stored("judging")["networks"], stored("plain")["networks"]) in page
    assert judging.report_of_short_training(stored("third")["networks"]) in page
    first_form = judging.figure(judging.counted(stored("second")["networks"].values(), judging.learns))
    assert first_form.replace(", 95", " balanced accuracy, 95") in page.replace("\n", " ")
    present, _ = courses.outcomes(ENOUGH, LONGEST)
    assert f"they have {judging.figure(present).partition(',')[0]}" in page.replace("\n", " ")


@pytest.mark.parametrize("name", ["README.md", "docs/check.md"])
def test_other_pages_quote_the_same_figures(name: str) -> None:
    text = " ".join((PAGE.parent.parent / name).read_text(encoding="utf-8").split())
    for of, said in (("judging", judging.expected_to_train), ("third", judging.learns)):
        share, low, high = (
            f"{100 * number:.1f}" for number in judging.balanced(judging.counted(stored(of)["networks"].values(), said))
        )
        assert f"{share} %" in text
        assert f"{low} to {high} %" in text


def test_courses_give_the_verdicts_of_the_first_form() -> None:
    """Which ended after 528 steps, with two thirds as enough."""
    counts, _ = courses.outcomes(QUICKLY, LAST)
    assert counts == judging.counted(stored("second")["networks"].values(), judging.learns)


def test_courses_say_when_enough_is_learnt() -> None:
    slow, fast, lost = [0.0, 0.02, *[0.1] * 5, *[0.5] * 18, *[0.9] * 30], [0.0, 0.1, 0.7], [0.0] * 7
    assert courses.verdict([lost, fast], 0.8, 1056) == (True, 132 + 44)
    assert courses.verdict([lost, slow], 0.8, 1056) == (True, 2 * 132 + (528 - 132) + 22)
    assert courses.verdict([lost, slow], 0.8, 528) == (False, 2 * 132 + (528 - 132))
    assert courses.verdict([lost], 0.8, 1056) == (False, 132)
