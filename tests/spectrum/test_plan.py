"""What a spectrum costs, in seconds of this machine, and who is told."""

from __future__ import annotations

import math
import sys
import warnings

import pytest
import torch
from torch import Tensor, nn

import skipscope as ss
from skipscope.spectrum import full
from skipscope.spectrum.plan import in_words
from skipscope.spectrum.rates import VECTORS


def test_a_plan_has_the_seconds_of_this_machine() -> None:
    small, large = (ss.plan(ss.Dense(torch.zeros(1, size, size))) for size in (64, 640))
    assert 0 < small.seconds < large.seconds < 600
    assert "about a second or less" in str(small)


def test_slow_products_cost_time() -> None:
    class Slow(ss.Dense):
        def matmat(self, V: Tensor) -> Tensor:
            import time

            time.sleep(0.05)
            return super().matmat(V)

    A = Slow(torch.zeros(2, 160, 160))
    assert ss.plan(A).seconds > 0.05 * 160 / VECTORS[A.device.type]


def test_what_does_not_fit_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["skipscope.spectrum.plan"], "free_bytes", lambda device: 10)
    found = ss.plan(ss.Dense(torch.zeros(1, 9, 9)))
    assert not found.fits
    assert math.isnan(found.seconds)
    assert "about" not in str(found)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.2, "a second or less"),
        (45.4, "45 seconds"),
        (150, "2.5 minutes"),
        (1200, "20 minutes"),
        (9000, "2.5 hours"),
        (72000, "20 hours"),
    ],
)
def test_an_estimate_in_words(seconds: float, words: str) -> None:
    assert in_words(seconds) == words


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything takes long."""
    monkeypatch.setattr(full, "LONG", 0)
    for name in ("NOT_LONG", "FEW_PRODUCTS"):
        monkeypatch.setattr(full, name, {"cpu": 0, "cuda": 0})


@pytest.mark.usefixtures("impatient")
def test_a_user_is_told_once_what_a_long_spectrum_will_take() -> None:
    with pytest.warns(UserWarning, match=r"2 of 4 x 4\) will take about .*ss\.svd\(J, k=10\)") as told:
        ss.singular_values(ss.Dense(torch.eye(4).expand(2, 4, 4)))
    assert len(told) == 1
    assert told[0].filename == __file__


@pytest.mark.usefixtures("impatient")
def test_measurements_of_many_spectra_are_silent() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return x + torch.relu(self.linear(x))

    x = torch.randn(2, 4)
    trunk = ss.trace(nn.Sequential(Block(), Block()), x)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        ss.spectra(trunk, x)


def test_what_is_quick_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(full, "plan", None)
    seen: list[tuple[int, int]] = []
    matrices = ss.Dense(torch.eye(4).expand(2, 4, 4))
    ss.singular_values(matrices, progress=lambda *numbers: seen.append(numbers))
    alone = [(1, 2)] if matrices.device.type == "cpu" else []  # a GPU takes both together
    assert seen == [(0, 2), *alone, (2, 2)]
