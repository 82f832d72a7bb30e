"""What a truncated SVD says of the values that it does not return: rank, counts and the Frobenius norm."""

from __future__ import annotations

import sys

import pytest
import torch

import skipscope as ss
from skipscope.linear import Dense
from skipscope.spectrum.plan import DENSE_BYTES, DENSE_SIDE, costs
from skipscope.spectrum.truncated_svd import square_norm
from tests.seeded import generator

PLAN = sys.modules["skipscope.spectrum.plan"]  # the name in its package is the function
VALUES = torch.tensor([8.0, 4.0, 2.0, 1.0, 0.5, 0.25, 0.0, 0.0, 0.0, 0.0], dtype=torch.float64)


def matrix(m: int = 14, n: int = 10) -> Dense:
    numbers = generator(0)
    left, right = (
        torch.linalg.qr(torch.randn(2, size, 10, dtype=torch.float64, generator=numbers)).Q for size in (m, n)
    )
    return Dense((left * VALUES) @ right.mT)


def test_matrices_that_were_decomposed_tell_everything() -> None:
    A = matrix()
    found = ss.svd(A, 3, route="dense")
    assert found.all_values is not None
    torch.testing.assert_close(found.all_values, VALUES.expand(2, -1), rtol=0, atol=1e-13)
    assert found.rank.tolist() == [6, 6]
    assert found.counted.tolist() == [3, 3]
    assert found.count_above(0.1).tolist() == [4, 4]
    square, error = square_norm(A, found)
    torch.testing.assert_close(square, A.dense().square().sum((1, 2)), rtol=1e-14, atol=0)
    assert error.tolist() == [0, 0]


@pytest.mark.parametrize(("k", "rank", "above"), [(3, float("nan"), float("nan")), (5, float("nan"), 4), (8, 6, 4)])
def test_an_iteration_tells_what_its_values_decide(k: int, rank: float, above: float) -> None:
    A = matrix()
    found = ss.svd(A, k, route="iterative")
    assert found.all_values is None
    assert found.square_norm is None
    assert found.counted.tolist() == [min(k, 6)] * 2
    assert found.rank.tolist() == pytest.approx([rank] * 2, nan_ok=True)
    assert found.count_above(0.1).tolist() == pytest.approx([above] * 2, nan_ok=True)


def test_the_smallest_values_tell_the_rank_once_one_of_them_is_not_zero() -> None:
    A = matrix()
    some, more = (ss.svd(A, k, which="smallest", route="iterative") for k in (3, 6))
    assert some.counted.tolist() == [0, 0]
    assert some.rank.isnan().all()
    assert more.counted.tolist() == [2, 2]
    assert more.rank.tolist() == [6, 6]
    assert some.count_above(0.1).isnan().all()
    assert ss.svd(A, 3, which="smallest", route="dense").rank.tolist() == [6, 6]


def test_the_norm_is_estimated_from_what_the_values_leave() -> None:
    numbers = generator(1)
    A = Dense(torch.randn(3, 60, 80, dtype=torch.float64, generator=numbers))
    exact = A.dense().square().sum((1, 2))
    square, error = square_norm(A, ss.svd(A, 4, route="iterative"))
    assert (error > 0).all()
    assert ((square - exact).abs() < 4 * error).all()
    whole, rest = square_norm(A, ss.svd(A, 60, route="iterative"))
    torch.testing.assert_close(whole, exact)
    assert (rest < 1e-6 * exact).all()


def test_small_matrices_are_decomposed_where_the_rank_is_wanted() -> None:
    numbers = generator(2)
    A = Dense(torch.randn(1, 900, 900, generator=numbers))
    assert ss.svd(A, 2).route == "iterative"
    assert ss.svd(A, 2, with_rank=True).route == "dense"


def test_one_rule_decides_between_the_routes(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = torch.device("cpu")
    small = costs((1, 100, 100), 5, None, decomposition=26.0 * 100**3, sides=2)
    large = costs((1, 4 * DENSE_SIDE, 4 * DENSE_SIDE), 5, None, decomposition=26.0 * (4 * DENSE_SIDE) ** 3, sides=2)
    huge = costs((1, 20_000, 20_000), 5, None, decomposition=26.0 * 20_000**3, sides=2)
    assert (small.route(cpu), large.route(cpu)) == ("dense", "iterative")
    monkeypatch.setattr(PLAN, "free_bytes", lambda device: 2 * DENSE_BYTES)
    assert large.route(cpu, prefer_dense=True) == "dense"
    assert huge.route(cpu, prefer_dense=True) == "iterative"  # above the limit for all machines
    monkeypatch.setattr(PLAN, "free_bytes", lambda device: small.dense_bytes - 1)
    assert small.route(cpu, prefer_dense=True) == "iterative"  # there is no room for it
    monkeypatch.setattr(PLAN, "free_bytes", lambda device: 100)
    with pytest.raises(ss.InputError, match="GiB free"):
        ss.svd(matrix(), 2, route="dense")


def test_the_old_name_of_the_automatic_route_warns() -> None:
    A = matrix()
    for solver in (ss.svd, ss.singular_values):
        with pytest.warns(FutureWarning, match='route="auto"'):
            solver(A, route=None)  # type: ignore[arg-type, operator]
    with pytest.warns(FutureWarning, match="tol="):
        ss.singular_values(A, accuracy=1e-6)  # type: ignore[call-arg]
