"""Streams of numbers against the same numbers as one sorted array."""

from __future__ import annotations

from fractions import Fraction

import numpy
import pytest
import torch
from torch import Tensor

from skipscope.errors import InputError
from skipscope.training.streaming import COARSE, RELATIVE_ERROR, Distribution, Stream, bin_edges, rebinned
from tests import seeded

SHARES = (0.0, 0.001, 0.01, 0.05, 0.07, 0.25, 0.5, 0.75, 0.95, 0.99, 0.999, 1.0)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=seeded.generator(seed))


SAMPLES = {
    "normal": lambda: normal(5000),
    "float64": lambda: normal(777).double() * 1e-150,
    "float16": lambda: (normal(3000) * 100).half(),
    "bfloat16": lambda: (normal(3000) * 1e30).bfloat16(),
    "ReLU": lambda: normal(40, 50).relu(),
    "huge and tiny": lambda: normal(4000) * 10.0 ** (10 * normal(4000, seed=1)),
    "exponential": lambda: -normal(2500).abs().log() * 1e6,
    "two far heaps": lambda: torch.cat([normal(300) * 1e-8 - 1e5, normal(700) + 1e5]),
    "denormal in float32": lambda: normal(500) * 1e-41,
    "all the same": lambda: torch.full((100,), -0.3),
    "one": lambda: torch.tensor([5e8]),
    "zeros": lambda: torch.zeros(7),
    "whole numbers": lambda: torch.arange(-50.0, 51.0),
    "powers of two": lambda: 2.0 ** torch.arange(-120.0, 121.0),
    "infinite": lambda: torch.cat([normal(95), torch.tensor([torch.inf] * 3 + [-torch.inf] * 2)]),
}


def streamed(*tensors: Tensor) -> Distribution:
    stream = Stream(tensors[0].device)
    for tensor in tensors:
        stream.update(tensor)
    return stream.distribution()


def ranked(values: numpy.ndarray, share: float) -> float:
    """The smallest value with at least this share of all values at or below it, in exact arithmetic."""
    need = Fraction(str(share)) * values.size
    return float(numpy.sort(values)[max(0, -(-need.numerator // need.denominator) - 1)])


def within(found: float, true: float) -> bool:
    return found == true or abs(found - true) <= RELATIVE_ERROR * abs(true) * (1 + 1e-12)


@pytest.mark.parametrize("name", SAMPLES)
def test_order_statistics_are_within_the_stated_error(name: str) -> None:
    tensor = SAMPLES[name]()
    values = tensor.double().cpu().numpy().ravel()
    found = streamed(tensor)
    for share, value, absolute in zip(SHARES, found.quantile(SHARES), found.absolute_quantile(SHARES), strict=True):
        assert within(value, ranked(values, share)), share
        assert within(absolute, ranked(abs(values), share)), share
    assert (found.minimum, found.maximum) == (values.min(), values.max())
    assert (found.quantile(0.0), found.quantile(1.0)) == (values.min(), values.max())
    assert found.absolute_quantile(1.0) == abs(values).max()
    finite = values[numpy.isfinite(values)]
    assert found.mean == pytest.approx(finite.mean(), rel=1e-10, abs=1e-13 * abs(finite).max())
    assert found.deviation == pytest.approx(finite.std(), rel=1e-10, abs=1e-13 * abs(finite).max())
    assert (found.count, found.zeros, found.nan) == (values.size, (values == 0).sum(), 0)
    assert found.infinite == values.size - finite.size


def test_they_are_numpys_quantiles() -> None:
    values = normal(1237).double()
    expected = numpy.quantile(values.cpu().numpy(), SHARES, method="inverted_cdf")
    numpy.testing.assert_allclose(streamed(values).quantile(SHARES), expected, rtol=RELATIVE_ERROR)


def test_the_stated_error_is_reached_and_not_passed() -> None:
    """Numbers close to both edges of the widest bin, and all over the range of float64."""
    edges = torch.tensor([1.0, 1.0625 * (1 - 1e-15)], dtype=torch.float64)
    errors = [float(streamed(torch.stack([x / 2, x, x * 2])).quantile(0.5)) / float(x) - 1 for x in edges]
    assert errors == pytest.approx([RELATIVE_ERROR, -RELATIVE_ERROR])
    sizes = torch.tensor([2.3e-308, 1e-300, 1e-38, 1.0, 1e38, 1e300, 1.79e308], dtype=torch.float64)
    for size in sizes:
        assert within(float(streamed(torch.stack([-size, size, size])).quantile(0.5)), float(size))
        assert within(float(streamed(torch.stack([-size, -size, size])).quantile(0.5)), -float(size))


def test_the_smallest_numbers_of_float64() -> None:
    tiny = torch.tensor([-5e-324, 5e-324, 1e-310, 2e-308], dtype=torch.float64)
    found = streamed(tiny)
    assert (found.zeros, found.minimum) == (0, -5e-324)
    assert abs(found.quantile(0.75) - 1e-310) <= 7e-310


def test_pieces_and_their_order_do_not_matter() -> None:
    values = normal(4097) * 10 ** normal(4097, seed=1)
    whole = streamed(values)
    found = streamed(*reversed(values.split(301)))
    assert (found.counts == whole.counts).all()
    assert (found.minimum, found.maximum) == (whole.minimum, whole.maximum)
    assert (found.mean, found.deviation) == pytest.approx((whole.mean, whole.deviation), rel=1e-12)


def test_the_deviation_does_not_suffer_from_a_large_mean() -> None:
    """Means of pieces are rounded by 1e9 eps, and so are their differences; squares of 1e18 would lose everything."""
    values = 1e9 + normal(3000).double()
    found = streamed(*values.split(7))
    assert found.deviation == pytest.approx(float(values.std(correction=0)), rel=1e9 * numpy.finfo(float).eps)


def test_what_is_not_a_number_is_counted_apart() -> None:
    found = streamed(torch.tensor([torch.nan, 1.0, -torch.inf, 3.0, torch.nan, 0.0]))
    assert (found.count, found.nan, found.infinite, found.zeros) == (6, 2, 1, 1)
    assert (found.minimum, found.maximum) == (-torch.inf, 3.0)
    assert found.mean == pytest.approx(4 / 3)
    assert found.quantile([0.25, 0.5, 1.0]).tolist() == [-torch.inf, 0.0, 3.0]
    assert found.bins()[1].tolist() == [1, 1, 1]
    only = streamed(torch.full((3,), torch.nan))
    assert only.count == 3
    assert numpy.isnan([only.minimum, only.maximum, only.mean, only.deviation, only.quantile(0.5)]).all()


def test_nothing_has_no_order() -> None:
    found = streamed(torch.zeros(0, 4))
    assert found.count == 0
    assert numpy.isnan(found.quantile(SHARES)).all()
    assert found.bins()[0].size == 0
    assert rebinned(*found.bins(), [-1, 1]).tolist() == [0.0]


def test_histograms_count_as_numpys_do() -> None:
    values = normal(3000).double()
    found = streamed(values)
    edges = [-64.0, -4, -1.25, -0.5, 0, 0.75, 1, 1.75, 2, 64]  # edges of bins, so nothing is divided
    counts, _ = numpy.histogram(values.cpu().numpy(), edges)
    assert rebinned(*found.bins(), edges).tolist() == counts.tolist()
    assert rebinned(*found.bins(), [-numpy.inf, 0.1234, numpy.inf]).sum() == pytest.approx(3000)
    assert rebinned(*streamed(torch.zeros(5)).bins(), [-1, 0, 1]).tolist() == [0, 5]


def test_bins_that_are_kept_hold_what_lies_between_their_edges() -> None:
    values = torch.cat([normal(2000).double() * 1e3, torch.zeros(11, dtype=torch.float64)])
    bins, counts = streamed(values).bins()
    array = values.cpu().numpy()
    for low, high, count in zip(*bin_edges(bins), counts, strict=True):
        inside = (array > low) & (array <= high) if high <= 0 else (array >= low) & (array < high)
        assert count == ((array == 0).sum() if low == high else inside.sum())
    assert rebinned(bins, counts, [-1e9, 0, 1e9]).sum() == counts.sum() == 2011
    low, high = bin_edges(bins[bins > 0])
    assert (high / low - 1 <= 1 / COARSE).all()


def test_what_is_no_stream_of_floats_is_refused() -> None:
    stream = Stream()
    with pytest.raises(InputError, match=r"floating-point numbers, got torch\.int64"):
        stream.update(torch.arange(3))
    with pytest.raises(InputError, match="got one on meta"):
        stream.update(torch.zeros(3, device="meta"))
    with pytest.raises(InputError, match=r"shares from 0 to 1, got 1\.5"):
        stream.distribution().quantile(1.5)
    with pytest.raises(InputError, match="rising edges"):
        rebinned(*stream.distribution().bins(), [1, 1])
