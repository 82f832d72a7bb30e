"""Estimates and their intervals, on simulated data with known answers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import scipy.stats

from skipscope.papers.kit.estimates import (
    Difference,
    Estimate,
    Jackknife,
    PerNetwork,
    RankCorrelation,
    Scale,
    Slope,
    estimated,
)
from tests.slow import thinned

SIMULATED = 4000
# From the scale on which networks spread evenly to the one on which they are measured.
BACK: dict[str, Callable[[Any], Any]] = {
    "plain": lambda values: values,
    "ratio": numpy.exp,
    "share": lambda values: 1 / (1 + numpy.exp(-values)),
    "correlation": numpy.tanh,
}


def covered(made: Callable[[], Estimate], truth: float, count: int) -> float:
    """How often the interval of a simulated estimate holds the truth."""
    intervals = [made().interval() for _ in range(count)]
    return sum(low <= truth <= high for low, high in intervals) / count


@pytest.mark.parametrize("n", thinned([3, 5, 8, 16], fast=[3, 8]))
@pytest.mark.parametrize("scale", BACK)
def test_the_intervals_of_student_cover_the_truth_as_often_as_they_say(n: int, scale: Scale) -> None:
    random, middle = numpy.random.default_rng(n), 0.4
    draws = iter(BACK[scale](random.normal(middle, 0.5, size=(SIMULATED, n))))
    found = covered(lambda: PerNetwork(next(draws), scale), float(BACK[scale](middle)), SIMULATED)
    assert 0.93 <= found <= 0.97


def correlated(random: numpy.random.Generator, count: int) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Pairs whose Spearman correlation is .7 over endless draws of two normal numbers."""
    pearson = 2 * math.sin(math.pi * 0.7 / 6)
    first = random.normal(size=count)
    return first, pearson * first + math.sqrt(1 - pearson**2) * random.normal(size=count)


@pytest.mark.parametrize("configurations", [20, *(pytest.param(count, marks=pytest.mark.slow) for count in (40, 80))])
def test_the_coverage_of_the_bootstrap_is_printed(configurations: int, capsys: pytest.CaptureFixture[str]) -> None:
    """A percentile bootstrap of a rank correlation covers a little less than it says: the number is shown, and bounded
    so that a broken one is seen."""
    random, count = numpy.random.default_rng(0), 40
    found = covered(lambda: RankCorrelation(*correlated(random, configurations)), 0.7, count)
    with capsys.disabled():
        print(f"\nbootstrap over {configurations} configurations: {found:.0%} of {count} intervals hold the truth")
    assert found >= 0.85


def test_the_interval_is_that_of_scipy_on_its_scale() -> None:
    values = numpy.array([1.2, 3.0, 0.7, 2.2])
    logs = numpy.log(values)
    expected = numpy.exp(scipy.stats.t.interval(0.99, 3, logs.mean(), scipy.stats.sem(logs)))
    assert PerNetwork(values, "ratio").interval(0.99) == pytest.approx(tuple(expected))
    assert PerNetwork(values, "ratio").value == pytest.approx(scipy.stats.gmean(values))


def test_values_that_do_not_spread_decide_themselves() -> None:
    for value, scale in ((0.0, "ratio"), (1.0, "share"), (-1.0, "correlation"), (math.inf, "ratio"), (7.0, "plain")):
        found = PerNetwork([value] * 3, scale)  # type: ignore[arg-type]
        assert (found.value, found.interval()) == (value, (value, value))


def test_one_network_has_no_interval() -> None:
    assert PerNetwork([2.0]).alike
    low, high = PerNetwork([1.0, 2.0]).interval()
    assert (low, high) == pytest.approx(scipy.stats.t.interval(0.95, 1, 1.5, 0.5))


def test_shares_and_correlations_are_kept_off_the_ends_of_their_scales() -> None:
    low, high = PerNetwork([1.0, 1.0, 0.9], "share").interval()
    assert 0 < low < high < 1
    low, high = PerNetwork([1.0, 0.999, 0.5], "correlation").interval()
    assert -1 < low < high < 1


@pytest.mark.parametrize("threshold", [0.5, 1.4])
def test_the_number_of_networks_that_would_decide(threshold: float) -> None:
    values = [0.8, 0.9, 1.2, 1.1]
    needed = PerNetwork(values).needed([threshold])
    assert needed is not None
    spread = numpy.std(values, ddof=1)

    def half(count: int) -> float:
        return float(scipy.stats.t.ppf(0.975, count - 1) * spread / math.sqrt(count))

    assert half(needed) < abs(threshold - 1.0)
    assert needed == 5 or half(needed - 2) >= abs(threshold - 1.0)
    assert PerNetwork([1.0, 3.0]).needed([2.0]) is None  # the mean is on the threshold


def test_a_rank_correlation_is_that_of_scipy() -> None:
    random = numpy.random.default_rng(3)
    first, second = correlated(random, 30)
    second[:4] = second[4]  # ties
    found = RankCorrelation(first, second)
    assert found.value == pytest.approx(scipy.stats.spearmanr(first, second).statistic)
    low, high = found.interval()
    assert low < found.value < high
    assert found.interval() == (low, high)
    assert RankCorrelation([1.0] * 20, list(range(20))).value == 0


def test_few_configurations_are_resampled_inside() -> None:
    """Networks within each configuration: the order of configurations is never shuffled."""
    doses = [0.0, 0.5, 1.0]
    at = numpy.repeat(doses, 5)
    values = at + numpy.tile(numpy.linspace(0, 0.1, 5), 3)
    low, high = RankCorrelation(at, values, at).interval()
    assert 0.9 < low <= high <= 1
    with pytest.raises(ValueError, match="needs 5 networks of each, or 20 configurations; the smallest has 1"):
        RankCorrelation(doses, doses)
    with pytest.raises(ValueError, match="as many first as second"):
        RankCorrelation([1.0], [1.0, 2.0])


def test_many_configurations_are_resampled_whole() -> None:
    random = numpy.random.default_rng(1)
    first, second = correlated(random, 50)
    names = numpy.repeat(numpy.arange(25), 2)
    low, high = RankCorrelation(first, second, names).interval()
    assert low < RankCorrelation(first, second, names).value < high


def test_a_slope_has_the_interval_of_least_squares() -> None:
    random = numpy.random.default_rng(0)
    at = numpy.repeat([1.0, 2.0, 3.0], 3)

    def made() -> Slope:
        return Slope(at, 0.5 - 0.3 * at + 0.1 * random.normal(size=9))

    assert made().n == 9
    assert 0.92 <= covered(made, -0.3, 1000) <= 0.98


def test_a_difference_uses_the_variance_of_all_cells() -> None:
    random = numpy.random.default_rng(0)

    def made() -> Difference:
        cells = [random.normal(size=2) for _ in range(6)]
        return Difference(cells[0] + 1.0, cells[1], cells[2:])

    found = made()
    assert found.n == 2
    assert 0.92 <= covered(made, 1.0, 1000) <= 0.98
    alone = Difference(found.one, found.other).interval()
    assert alone[1] - alone[0] > found.interval()[1] - found.interval()[0]
    same = scipy.stats.ttest_ind(found.one, found.other).confidence_interval()
    assert alone == pytest.approx((same.low, same.high))
    assert Difference([1.0], [2.0]).interval() == (-math.inf, math.inf)


def test_the_jackknife_of_a_mean_is_the_interval_of_student() -> None:
    values = numpy.random.default_rng(0).normal(5, 1, size=7)
    without = [numpy.delete(values, place).mean() for place in range(7)]
    assert Jackknife(values.mean(), without).interval() == pytest.approx(PerNetwork(values).interval())


def test_numbers_become_estimates_and_estimates_stay() -> None:
    slope = Slope([1.0, 2.0, 3.0], [1.0, 2.0, 3.1])
    assert estimated(slope) is slope
    assert estimated([1.0, 2.0]).members == [1.0, 2.0]
    with pytest.raises(ValueError, match="the scale is one of plain"):
        PerNetwork([1.0], "percent")  # type: ignore[arg-type]


def test_the_interval_of_a_rank_correlation_has_its_value() -> None:
    """Drawn twice, a network is tied with itself, which raises the correlation of well separated configurations."""
    first = [configuration for configuration in range(5) for _ in range(5)]
    second = [configuration + number / 100 for configuration in range(5) for number in range(5)]
    found = RankCorrelation(first, second, first)
    assert found.interval()[0] == pytest.approx(found.value)
    assert found.interval()[1] > found.value
