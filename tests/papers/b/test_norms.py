"""Norms of weights and branches by depth, and shortcuts of several depths: what the studies make of their data."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
import xarray

from skipscope.data import Dataset, Images
from skipscope.papers.b.measurements.depth import mean_norm, residual_norms
from skipscope.papers.b.studies import norms, shortcuts
from skipscope.papers.b.studies.norms import B14, B22
from skipscope.papers.b.studies.norms import STUDY as NORMS
from skipscope.papers.b.studies.shortcuts import B19
from skipscope.papers.b.studies.shortcuts import STUDY as SHORTCUT_DEPTHS
from skipscope.papers.b.studies.theorem2 import B23, ERROR_GAP
from skipscope.papers.b.studies.theorem2 import STUDY as THEOREM2
from skipscope.papers.b.subjects import residual_training
from skipscope.papers.kit import Bench
from skipscope.runs import RunFolder
from tests.papers.b.evidence import values

NORM_SEEDS = list(range(1000, 1008))
FACTORS = numpy.linspace(0.9, 1.1, 8)


def fake_norms(depth: int, power: float, data: str = "mnist", epochs: int = 80) -> xarray.Dataset:
    """Norms of 8 networks at three steps; the middle ones are the square roots of the last."""
    last = 5 * depth**power * FACTORS
    return xarray.Dataset(
        {
            "norm": (("seed", "step"), numpy.stack([0 * last + 1, last**0.5, last], 1)),
            "loss": (("seed", "step"), [[3.0, 2.0, 1.0]] * 8),
            "branch": ("seed", last),
        },
        {"seed": NORM_SEEDS},
        {"depth": depth, "data": data, "epochs": epochs},
    )


def fake_states(with_norms: float) -> xarray.Dataset:
    units = numpy.arange(1, 11)
    starts = {"without BatchNorm": 0.7, "with BatchNorm": with_norms, "from zero": 0.0}
    rows = [[numpy.exp(slope * units)] * 8 for slope in starts.values()]
    return xarray.Dataset(
        {"variance": (("start", "seed", "unit"), rows)}, {"start": list(starts), "seed": NORM_SEEDS, "unit": units}
    )


def fake_branches(power: float) -> list[xarray.Dataset]:
    return [
        xarray.Dataset({"branch": ("seed", depth**power * FACTORS)}, {"seed": NORM_SEEDS}, {"depth": depth})
        for depth in (8, 20, 50)
    ]


def fake_kinds(relu: float, **residual: Any) -> dict[str, list[xarray.Dataset]]:
    found = {
        kind: [fake_norms(depth, power) for depth in (6, 12, 24)] for kind, power in (("linear", -0.4), ("relu", relu))
    }
    resnets = [fake_norms(depth, -0.3, "cifar10", **residual).isel(seed=slice(3)) for depth in (20, 56, 110)]
    return {**found, "residual": resnets} if residual else found


def test_slopes_of_power_laws_are_found() -> None:
    found = norms.evidence(fake_kinds(-0.1), fake_states(0.2), fake_branches(-0.5))
    slopes, states = values(found[B14]), values(found[B22])
    assert slopes[norms.NORM_SLOPE["linear"]] == pytest.approx([-0.4] * 8)
    assert slopes[norms.NORM_SLOPE["relu"]] == pytest.approx([-0.1] * 8)
    assert slopes[norms.EQUAL_LOSS_SLOPE["relu"]] == pytest.approx([-0.1] * 8)
    assert slopes[norms.FALLING_SHARE["linear"]] == [1.0] * 8
    assert states[norms.GROWTH_BY_BATCH_NORM] == pytest.approx([-0.5] * 8)
    assert states[norms.BRANCH_SLOPE] == pytest.approx([-0.5] * 8)
    for claim, expected in ((B14, ["reproduced", "not reproduced"]), (B22, ["reproduced"] * 4)):
        decision = NORMS.decide(claim, found[claim], "quick")
        assert decision.verdict == "open"
        assert [part.verdict for part in decision.parts if part.verdict != "open"] == expected
        assert "B.norms --preset full" in decision.cost
    found = norms.evidence(fake_kinds(-0.1), fake_states(0.8), fake_branches(0.1))
    parts = NORMS.decide(B22, found[B22], "quick").parts
    assert [part.verdict for part in parts[1:4]] == ["not reproduced", "reproduced", "not reproduced"]


def test_slopes_of_resnets_go_through_all_networks() -> None:
    found = norms.evidence(fake_kinds(-0.4, epochs=80), fake_states(0.2), fake_branches(-0.5))
    slopes = values(found[B14])
    assert slopes[norms.NORM_SLOPE["residual"]].value == pytest.approx(-0.3)
    # Of the two epochs after the first, one has the square root of the other's norms: -.15 and -.3 in the mean.
    assert slopes[norms.RESIDUAL_SLOPE_IN_TRAINING].value == pytest.approx(-0.225)
    assert slopes[norms.NORM_SLOPE["residual"]].n == 9
    assert [NORMS.decide(claim, found[claim], "full").verdict for claim in (B14, B22)] == ["reproduced"] * 2
    found = norms.evidence(fake_kinds(-0.4, epochs=40), fake_states(0.2), fake_branches(-0.5))
    decision = NORMS.decide(B14, found[B14], "full")
    assert decision.verdict == "open"
    assert "40 of the 80 epochs" in decision.reason


def test_norms_are_those_of_convolutions() -> None:
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 1, 2, bias=False), torch.nn.Conv2d(1, 4, 1), torch.nn.Linear(3, 3))
    for parameter in model.parameters():
        torch.nn.init.constant_(parameter, 2.0)
    assert mean_norm(model) == pytest.approx(4.0)


def colours() -> Dataset:
    """Images of CIFAR-10's size, of noise."""
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (24, 3, 32, 32), dtype=torch.uint8, generator=generator)
    images = Images(pixels, torch.arange(24) % 10)
    return Dataset("noise", tuple(map(str, range(10))), images, images.select(torch.arange(10)))


def test_a_resnet_is_followed_through_its_training(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run", f"study {NORMS.id}")
    bench = Bench(NORMS.id, run, preset="smoke", seed=0, device="cpu")
    training = dataclasses.replace(residual_training(5, (0.4, 0.605)), batch=8, precision="float32")
    with run:
        (found,) = residual_norms(bench, colours(), training, [8], 2)
    assert found["norm"].shape == (2, 6)
    assert numpy.isfinite(found["norm"]).all()
    assert len(set(found["norm"].values.ravel().tolist())) == 12
    assert numpy.isnan(found["loss"][0, 0])
    assert float(found["branch"][0]) > 0
    assert list(found.attrs["drops"]) == [2, 3]
    assert not list((tmp_path / "run").rglob("*.training.*"))


def test_drops_are_the_papers() -> None:
    assert residual_training(200, norms.DROPS).milestones == (80, 122)
    assert residual_training(40, norms.DROPS).milestones == (16, 24)
    assert residual_training(164, shortcuts.DROPS).milestones == (81, 122)


def fake_errors(by_depth: dict[int, float], data: str = "cifar10", epochs: int = 20) -> dict[int, xarray.Dataset]:
    """Two networks of each depth, .002 apart."""
    return {
        depth: xarray.Dataset(
            {"error": ("seed", error + numpy.array([-1e-3, 1e-3]))},
            {"seed": [1000, 1001]},
            {"data": data, "epochs": epochs},
        )
        for depth, error in by_depth.items()
    }


WORSE, BETTER = {110: 0.06, 434: 0.08}, {110: 0.06, 434: 0.04}


def test_shortcuts_past_depth_400() -> None:
    residual = {n: fake_errors(BETTER if n == 2 else WORSE) for n in (1, 2, 3, 4)}
    found = shortcuts.evidence(residual, {})[B19]
    change = values(found)[shortcuts.CHANGE[3]]
    assert change.value == pytest.approx(0.02)
    # Eight cells of two networks each: a variance of 2e-6 with 8 degrees of freedom, and t = 2.306.
    assert change.interval()[1] - change.value == pytest.approx(2.306 * (2e-6) ** 0.5, rel=1e-3)
    assert SHORTCUT_DEPTHS.decide(B19, found, "full").verdict == "reproduced"
    assert SHORTCUT_DEPTHS.decide(B19, found, "smoke").verdict == "open"
    residual[3] = fake_errors(BETTER)
    decision = SHORTCUT_DEPTHS.decide(B19, shortcuts.evidence(residual, {})[B19], "full")
    assert [part.verdict for part in decision.parts] == ["reproduced", "reproduced", "inconclusive", "reproduced"]
    assert "20 of 200 epochs are too few to refute it" in decision.reason
    shallow = {n: {110: parts[110]} for n, parts in residual.items()}
    assert SHORTCUT_DEPTHS.decide(B19, shortcuts.evidence(shallow, {})[B19], "full").verdict == "inconclusive"
    other = {n: fake_errors(WORSE, epochs=164) for n in (1, 2, 3, 4)}
    assert SHORTCUT_DEPTHS.decide(B19, shortcuts.evidence(other, {})[B19], "paper").verdict == "open"


def test_errors_of_shortcuts_deeper_than_four_are_compared_with_those_of_four() -> None:
    deep = {
        n: xarray.Dataset(
            {"error": ("seed", error + numpy.array([-1e-3, 0, 1e-3]))},
            {"seed": [1000, 1001, 1002]},
            {"data": "cifar10", "epochs": 40},
        )
        for n, error in ((4, 0.06), (5, 0.07), (6, 0.08))
    }
    measured = shortcuts.evidence({}, {}, deep)[B23]
    assert values(measured)[ERROR_GAP[6]].value == pytest.approx(0.02)
    assert THEOREM2.decide(B23, measured, "full").parts[2].verdict == "reproduced"
    deep[5]["error"] -= 0.02
    part = THEOREM2.decide(B23, shortcuts.evidence({}, {}, deep)[B23], "full").parts[2]
    assert part.verdict == "not reproduced"
