"""Batch norms that have never seen data: every result says so, and a copy can take the statistics of the batch."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import skipscope as ss
from skipscope.errors import InputError
from skipscope.inspection import Result
from skipscope.trace.running_statistics import never_seen


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(6, 6), nn.BatchNorm1d(6)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.norm(self.linear(x)))


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 6, bias=False), nn.BatchNorm1d(6), Block(), Block(), nn.Linear(6, 3)).eval()


def batch(count: int = 16) -> Tensor:
    return 5 * torch.randn(count, 6, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def result() -> Result:
    return ss.inspect(network(), batch(2), budget="60s")


def test_every_result_says_that_batch_norms_have_never_seen_data(result: Result) -> None:
    trunk = ss.trace(network(), batch())
    assert trunk.notes[0].startswith("3 of 3 batch norms have never seen data")
    assert "never seen data" in str(trunk)
    assert "never seen data" in str(result).splitlines()[0]
    assert len(result.datasets) == 8
    for name, dataset in result.datasets.items():
        assert "never seen data" in dataset.attrs["notes"], name


def test_measures_without_a_trunk_say_it_too() -> None:
    model, x, labels = network(), batch(), torch.arange(16) % 3
    assert "never seen data" in ss.conditioning(model, x).attrs["notes"]
    assert ss.conditioning(model, x, training=True).attrs["notes"] == ""
    loss = torch.nn.functional.cross_entropy
    assert "never seen data" in ss.curvature(model, loss, (x, labels), params=["4"]).attrs["notes"]
    assert "never seen data" in ss.collapse(model, (x, labels)).attrs["notes"]
    assert "never seen data" in ss.collapse(model, (x, labels), layers=["3"], classifier="4").attrs["notes"]


def test_the_note_is_that_of_the_weights_as_they_are_now() -> None:
    """A trunk made before training measures the trained weights afterwards."""
    model, x = network(), batch()
    trunk = ss.trace(model, x)
    model.train()(x)
    assert trunk.notes == ()
    assert ss.profile(trunk, x).attrs["notes"] == ""


def test_statistics_from_a_file_without_a_counter_have_seen_data() -> None:
    norm = nn.BatchNorm1d(3)
    assert never_seen(norm)
    norm.running_mean = torch.tensor([0.1, 0.0, 0.0])
    assert never_seen(norm) == []


@pytest.mark.parametrize(
    ("model", "noted"),
    [
        (nn.BatchNorm1d(3, track_running_stats=False), False),
        (nn.LayerNorm(3), False),
        (nn.InstanceNorm1d(3), False),
        (nn.InstanceNorm1d(3, track_running_stats=True), True),
        (nn.SyncBatchNorm(3), True),
        (nn.BatchNorm2d(3, device="meta"), False),
    ],
)
def test_which_norms_count(model: nn.Module, noted: bool) -> None:
    assert bool(never_seen(model)) is noted


def test_a_calibrated_trunk_computes_what_training_computes_and_the_model_stays_as_it_was() -> None:
    model, x = network(), batch()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    trunk = ss.trace(model, x, calibrate=True)
    (note,) = trunk.notes
    assert "3 batch norms that had never seen data have the statistics of the traced batch (16 samples)" in note
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    expected = model.train()(x)
    torch.testing.assert_close(trunk.at(x).output, expected, rtol=1e-4, atol=1e-5)


def test_calibration_undoes_the_error_of_fresh_norms() -> None:
    """Where nothing is normalised, inputs of five times the size give states of five times the size."""
    model, x = network(), batch()
    sizes = {
        calibrate: float(ss.profile(ss.trace(model, x, calibrate=calibrate), x)["state_rms"].mean())
        for calibrate in (False, True)
    }
    grown = {
        calibrate: float(ss.profile(ss.trace(model, 5 * x, calibrate=calibrate), 5 * x)["state_rms"].mean())
        for calibrate in (False, True)
    }
    assert grown[False] / sizes[False] == pytest.approx(5, rel=0.05)
    assert grown[True] / sizes[True] == pytest.approx(1, rel=0.01)


def test_norms_that_have_seen_data_keep_their_statistics() -> None:
    model = nn.Sequential(nn.BatchNorm1d(4), nn.BatchNorm1d(4)).eval()
    first, second = model
    assert isinstance(first, nn.BatchNorm1d)
    assert isinstance(second, nn.BatchNorm1d)
    first.running_mean = torch.full((4,), 3.0)
    trunk = ss.trace(model, torch.randn(8, 4), calibrate=True)
    assert trunk.model is not model
    assert torch.equal(trunk.model[0].running_mean, torch.full((4,), 3.0))  # type: ignore[index,union-attr]
    assert (trunk.model[1].running_mean < -2).all()  # type: ignore[index,union-attr]


def test_nothing_to_calibrate_is_said() -> None:
    model = nn.Sequential(nn.Linear(4, 4))
    trunk = ss.trace(model, torch.randn(2, 4), calibrate=True)
    assert trunk.model is model
    assert "nothing was changed" in trunk.notes[0]


def test_an_instance_norm_gets_the_mean_of_its_instances() -> None:
    model, x = nn.Sequential(nn.InstanceNorm1d(3, track_running_stats=True)).eval(), torch.randn(4, 3, 50)
    trunk = ss.trace(model, x, calibrate=True)
    norm = trunk.model[0]  # type: ignore[index]
    torch.testing.assert_close(norm.running_mean, x.mean((0, 2)))
    torch.testing.assert_close(norm.running_var, x.var(2, correction=0).mean(0))


def test_one_value_per_channel_cannot_be_calibrated() -> None:
    with pytest.raises(InputError, match="give more samples"):
        ss.trace(nn.Sequential(nn.BatchNorm1d(4)).eval(), torch.randn(1, 4), calibrate=True)


@pytest.mark.slow
def test_a_saved_result_and_its_report_say_it(result: Result, tmp_path: Path) -> None:
    page = result.report(tmp_path / "run").read_text()
    assert '<p class="failure">3 of 3 batch norms have never seen data' in page
    assert "never seen data" in str(ss.load(tmp_path / "run")).splitlines()[0]


def test_inspect_takes_it_too() -> None:
    result = ss.inspect(network(), batch(), budget=0.01, calibrate=True)
    assert "on a copy of the model" in str(result).splitlines()[0]
