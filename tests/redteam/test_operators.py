"""The red team on operators: random ones at every scale, all solvers, no wrong number without a flag."""

from __future__ import annotations

import pytest

from tests.redteam.operators import make_case
from tests.redteam.solvers import judge
from tests.redteam.tally import Tally


def attacked(seeds: range) -> Tally:
    tally = Tally()
    for seed in seeds:
        judge(make_case(seed), tally)
    return tally


def test_forty_operators() -> None:
    attacked(range(40)).check()


@pytest.mark.slow
@pytest.mark.parametrize("start", range(100, 900, 200))
def test_eight_hundred_operators(start: int) -> None:
    tally = attacked(range(start, start + 200))
    print(tally.table())
    tally.check()


if __name__ == "__main__":  # python -m tests.redteam.test_operators: the table of docs/numerics.md
    print(attacked(range(100, 900)).table())
