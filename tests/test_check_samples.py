"""As many samples as were asked for: of a user's own example, and what a check says where there are too few."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from skipscope.data import digits
from skipscope.models import resolve
from skipscope.models.factory import samples_of, sized
from tests.commands import run_command
from tests.seeded import generator

PLAIN = """
import torch
from torch import nn

calls = 0

def network():
    torch.manual_seed(1)
    layers = [nn.Flatten()]
    for _ in range(59):
        layer = nn.Linear(64 if len(layers) == 1 else 96, 96)
        nn.init.orthogonal_(layer.weight, 2**0.5)
        nn.init.zeros_(layer.bias)
        layers += [layer, nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(96, 10))

def noise():
    return network(), torch.randn(3, 64)

def few_digits():
    from skipscope.data import digits
    return network(), digits().train.images(torch.arange(3))

def other_digits():
    from skipscope.data import digits
    global calls
    calls += 1
    return network(), digits().train.images(torch.arange(3 * calls, 3 * calls + 3))

def residual():
    class Unit(nn.Module):
        def __init__(self):
            super().__init__()
            self.branch = nn.Linear(8, 8)
        def forward(self, x):
            return x + self.branch(x).tanh()
    return nn.Sequential(nn.Linear(8, 8), Unit(), nn.Linear(8, 3)), torch.arange(24.0).view(3, 8)
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "own.py"
    path.write_text(PLAIN)
    return path


def never() -> Tensor:
    raise AssertionError("the factory is not needed again")


# -- the samples


def test_the_first_of_enough_samples() -> None:
    example = {"x": torch.arange(12.0).view(6, 2), "scale": torch.ones(5)}
    found = sized(example, 4, never)
    assert torch.equal(found.batch["x"], example["x"][:4])  # type: ignore[call-overload]
    assert torch.equal(found.batch["scale"], example["scale"])  # type: ignore[call-overload]
    assert found.words == "the first 4 of the 6 samples that its factory gives"
    assert not found.lacking


@pytest.mark.parametrize(
    "example",
    [
        5 + 3 * torch.randn(3, 64, generator=torch.Generator("cpu").manual_seed(0), device="cpu"),
        torch.rand(2, 3, 8, 8, generator=torch.Generator("cpu").manual_seed(1), device="cpu"),
        torch.randint(7, 900, (3, 40), generator=torch.Generator("cpu").manual_seed(2), device="cpu"),
        torch.randn(1, 128, generator=torch.Generator("cpu").manual_seed(3), device="cpu"),
    ],
    ids=["normal", "uniform", "tokens", "one sample"],
)
def test_independent_numbers_are_drawn_anew(example: Tensor) -> None:
    torch.manual_seed(0)
    found = sized((example, torch.ones(len(example), 4), torch.ones(9)), 40, never)
    drawn, mask, other = found.batch
    assert drawn.shape == (40, *example.shape[1:])
    assert drawn.dtype == example.dtype
    assert set(drawn.flatten().tolist()) <= set(example.flatten().tolist())
    assert float(drawn.double().mean()) == pytest.approx(
        float(example.double().mean()), abs=float(example.double().std()) / 4
    )
    assert torch.equal(mask, torch.ones(40, 4))
    assert torch.equal(other, torch.ones(9))
    assert f"40 samples drawn from the numbers of the {len(example)}" in found.words
    assert len({tuple(row.flatten().tolist()) for row in drawn}) == 40


def images(first: int, count: int = 3) -> Tensor:
    return digits().train.images(torch.arange(first, first + count))


def test_structured_samples_come_from_further_calls() -> None:
    calls = iter([images(2), images(6), images(9)])
    found = sized(images(0), 10, lambda: next(calls))
    chosen = torch.tensor([0, 1, 2, 3, 4, 6, 7, 8, 9, 10])  # the third image twice: once
    assert torch.equal(found.batch, digits().train.images(chosen))  # type: ignore[arg-type]
    assert found.words == "10 samples from 4 calls of its factory"


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (images(0), "every call gives the same"),
        (images(5)[:, :, 1:], "a further call gives an example of another kind"),
        (images(5).double(), "a further call gives an example of another kind"),
        (None, "a further call gives none"),
    ],
)
def test_what_has_no_more_samples_says_so(other: Tensor | None, said: str) -> None:
    found = sized(images(0), 8, lambda: other)
    assert torch.equal(found.batch, images(0))  # type: ignore[arg-type]
    assert found.lacking == f"the factory gives 3 samples ({said})"


def test_few_numbers_are_not_taken_for_noise() -> None:
    few = torch.randn(3, 4, generator=generator(0))
    assert sized(few, 8, lambda: few).lacking


@pytest.mark.parametrize(("factory", "count"), [("noise", 32), ("few_digits", 3), ("other_digits", 32)])
def test_a_factory_is_asked_for_samples(own: Path, factory: str, count: int) -> None:
    source = resolve(f"{own}:{factory}", samples=32)
    assert source.batch is not None
    assert samples_of(source.batch) == count
    assert bool(source.lacking) == (count < 32)
    assert samples_of(resolve(f"{own}:{factory}", samples=2).batch) == 2  # type: ignore[arg-type]
    assert samples_of(resolve(f"{own}:{factory}").batch) == 3  # type: ignore[arg-type]


def test_a_factory_of_a_large_model_is_not_called_again(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skipscope.models.factory.ALLOCATE_AT_MOST", 1)
    source = resolve(f"{own}:few_digits", samples=32)
    assert "the factory gives 3 samples (it was not called a second time: " in source.lacking
    assert source.inputs == "3 samples from 1 call of its factory"


def test_the_same_weights_and_samples_for_the_same_seed(own: Path) -> None:
    first, second = (resolve(f"{own}:noise", samples=32, seed=3) for _ in range(2))
    assert torch.equal(first.batch, second.batch)  # type: ignore[arg-type]


# -- check


def test_a_network_that_fails_is_not_expected_to_train_whatever_its_example(
    own: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found: dict[str, Any] = {}
    for factory in ("noise", "few_digits", "other_digits"):
        assert run_command(monkeypatch, "check", f"{own}:{factory}", "--no-units", "--json") == 0
        found[factory] = json.loads(capsys.readouterr().out)
    assert found["noise"]["trains"] is False
    assert found["other_digits"]["trains"] is False
    assert found["few_digits"]["trains"] is not True
    assert found["noise"]["layers"]["attrs"]["samples"] == 32
    assert any("32 samples drawn" in note for note in found["noise"]["notes"])
    assert found["few_digits"]["layers"]["attrs"]["samples"] == 3


# -- inspect


@pytest.mark.slow
@pytest.mark.parametrize(
    ("asked", "count", "said"),
    [
        (("--samples", 2), 2, "the first 2 of the 3 samples that its factory gives"),
        ((), 3, "the example that its factory gives"),
    ],
)
def test_inspect_measures_at_the_samples_asked_for(
    own: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    asked: tuple[Any, ...],
    count: int,
    said: str,
) -> None:
    command = ("inspect", f"{own}:residual", "--budget", "1s", "--json", "--out", tmp_path / "run")
    assert run_command(monkeypatch, *command, *asked) == 0
    run = json.loads(capsys.readouterr().out)
    assert run["measured"]["profile"]["dims"]["sample"] == count
    assert run["run"]["parameters"]["source"]["input"] == said


def test_inspect_refuses_samples_that_there_are_not(
    own: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(monkeypatch, "inspect", f"{own}:residual", "--samples", 9) == 2
    assert "--samples 9: the factory gives 3 samples (every call gives the same)" in capsys.readouterr().err
