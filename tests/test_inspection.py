"""`ss.inspect` and `skipscope inspect`: all measurements on any model, within a budget."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
import xarray
from torch import Tensor, nn

import skipscope as ss
from skipscope.errors import InputError
from skipscope.inspection.duration import in_words, seconds_in
from skipscope.inspection.inspecting import Budget, Work, _conditioning, steps
from skipscope.inspection.result import Result
from skipscope.models import build
from tests.commands import run_command

SMALL = "resnet8-digits-n8"


class Wide(nn.Module):
    """One small unit and one whose full spectrum is out of reach."""

    def __init__(self) -> None:
        super().__init__()
        self.small = nn.Linear(8, 8)
        self.widen = nn.Linear(8, 30_000)
        self.a, self.b = nn.Linear(30_000, 2), nn.Linear(2, 30_000)

    def forward(self, x: Tensor) -> Tensor:
        h = self.widen(x + torch.tanh(self.small(x)))
        return h + self.b(torch.tanh(self.a(h)))


@pytest.fixture(scope="module")
def result() -> Result:
    torch.manual_seed(0)
    return ss.inspect(build(SMALL), torch.randn(2, 1, 8, 8), budget="5m")


def test_all_there_is_comes_out(result: Result) -> None:
    cheap = {"profile", "verification", "trajectories", "stability", "conditioning"}
    assert set(result.datasets) == cheap | {"spectra", "alignment", "law"}
    assert result.left_out == {}
    spectra = result["spectra"]
    assert list(spectra["unit"].values) == ["stage1.0", "stage2.0", "stage3.0"]
    assert bool((result["verification"]["passed"] == 1).all())
    assert {"weight_condition", "state_condition"} <= set(result["conditioning"])
    with pytest.raises(InputError, match="there are profile"):
        result["curvature"]


@pytest.mark.slow
def test_spectra_that_were_joined_are_those_of_one_measurement() -> None:
    torch.manual_seed(1)
    model, x = build("resnet14-digits-n8"), torch.randn(2, 1, 8, 8)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = ss.inspect(model, x)["spectra"]
    assert model.training
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    together = ss.spectra(ss.trace(model, x), x)
    assert list(found["unit"].values) == list(together["unit"].values)
    for name in together.data_vars:
        if together[name].dtype != object:
            numpy.testing.assert_allclose(found[name], together[name], rtol=1e-9, atol=1e-9, err_msg=str(name))


@pytest.mark.slow
def test_it_is_saved_read_again_and_drawn(result: Result, tmp_path: Path) -> None:
    path = result.report(tmp_path / "run")
    text = path.read_text()
    for title in ("Profile", "Spectra", "The exact law", "Condition numbers of weights", "Tests of the linearisation"):
        assert title in text
    assert "<h2>Claims</h2>" not in text  # there are none
    again = ss.load(tmp_path / "run")
    assert set(again.datasets) == set(result.datasets)
    xarray.testing.assert_equal(again["spectra"], result["spectra"])
    for name in ("scree", "proportions", "profile", "growth"):
        assert again.plot(name).data
    with pytest.raises(InputError, match="there is no figure 'alignment'"):
        again.plot("alignment")
    assert "stage1.0" in str(again)
    with pytest.raises(InputError, match="not saved yet"):
        result.report()


class Mixing(nn.Module):
    """Streams that a matrix of weights mixes."""

    def __init__(self, streams: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
        self.matrix = nn.Linear(8 * streams, streams * streams)
        self.streams = streams

    def forward(self, x: Tensor) -> Tensor:  # batch, streams, 8
        matrix = torch.softmax(self.matrix(x.flatten(1)).unflatten(1, (self.streams, self.streams)), -1)
        return matrix @ x + self.branch(x.mean(1))[:, None]


def test_several_streams_are_measured_and_shown(tmp_path: Path) -> None:
    torch.manual_seed(0)
    result = ss.inspect(nn.Sequential(Mixing(3), Mixing(3)), torch.randn(2, 3, 8), budget="20s")
    assert result["streams"].sizes["unit"] == 2
    assert "Residual streams" in result.report(tmp_path / "run").read_text(encoding="utf-8")


@pytest.mark.slow
def test_what_does_not_fit_is_left_out_with_the_reason_and_its_largest_values_are_there() -> None:
    torch.manual_seed(0)
    result = ss.inspect(Wide(), torch.randn(2, 8), budget="60s")
    assert list(result["spectra"]["unit"].values) == ["small"]
    leading = result["leading"]
    assert leading.sizes["unit"] == 1
    assert bool(leading["converged"].all())
    (what,) = [what for what in result.left_out if what.startswith("all singular values of")]
    assert "GiB" in result.left_out[what] or "were left" in result.left_out[what]


def test_what_was_made_before_an_interruption_is_kept() -> None:
    torch.manual_seed(0)
    model, x = build("resnet14-digits-n8").eval(), torch.randn(2, 1, 8, 8)
    made: dict[str, xarray.Dataset] = {}

    def stop(what: str, done: int, total: int) -> None:
        if what == "all singular values" and done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        dict(steps(ss.trace(model, x), x, 300, seed=0, announce=stop, keep=made.__setitem__))
    assert made["spectra"].sizes["unit"] == 3


@pytest.mark.slow
def test_every_measurement_has_its_share_of_the_time() -> None:
    """A budget that is too small for all spectra leaves time for the largest values and the law."""
    torch.manual_seed(0)
    result = ss.inspect(build("resnet8-cifar"), torch.randn(2, 3, 32, 32), budget="40s")
    assert any(what.startswith("all singular values") for what in result.left_out)
    assert result["leading"].sizes["unit"] >= 1


def test_a_budget_that_is_used_up_ends_it() -> None:
    torch.manual_seed(0)
    model, x = build(SMALL).eval(), torch.randn(2, 1, 8, 8)
    made: dict[str, xarray.Dataset] = {}
    left_out = dict(steps(ss.trace(model, x), x, 1e-9, seed=0, announce=lambda *_: None, keep=made.__setitem__))
    assert "spectra" not in made
    assert {"profile", "all singular values of stage1.0"} <= set(left_out)
    assert "used up" in left_out["profile"]


def test_a_model_without_units_says_so() -> None:
    with pytest.raises(InputError, match="no residual units"):
        ss.inspect(nn.Linear(3, 3), torch.randn(2, 3))


def test_a_budget_is_read() -> None:
    assert [seconds_in(text) for text in ("90", "90s", "1.5m", "2h", 30.0)] == [90, 90, 90, 7200, 30]
    for wrong in ("", "soon", "-3", "0", "5 days"):
        with pytest.raises(InputError, match="such as 90s"):
            seconds_in(wrong)


def test_estimates_follow_what_the_last_piece_took(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where every spectrum is estimated at a tenth of a second and takes half of one, fewer are begun."""
    torch.manual_seed(0)
    model, x = build("resnet14-digits-n8").eval(), torch.randn(2, 1, 8, 8)
    trunk = ss.trace(model, x)
    real = ss.spectra

    def slow(*arguments: Any, **options: Any) -> xarray.Dataset:
        time.sleep(0.5)
        return real(*arguments, **options)

    monkeypatch.setattr("skipscope.measure.spectra", slow)
    monkeypatch.setattr(Budget, "for_spectrum", lambda self, J: 0.1)
    work = Work(
        trunk, trunk.units, trunk.at(x), Budget(1.6, torch.device("cpu")), lambda name, made: None, lambda *_: None
    )
    left_out = dict(work.through("spectra", "all", trunk.units, work.spectrum, 1.0))
    assert len(work.done["spectra"]) + len(left_out) == len(trunk.units)
    assert 1 <= len(work.done["spectra"]) <= 3
    estimate, _, left = next(iter(left_out.values())).partition(", of which ")
    assert 0.5 <= float(estimate.removeprefix("about ").removesuffix(" s")) < 1.6  # what the last one took
    assert left.endswith(" were left")


@pytest.mark.parametrize(
    ("seconds", "words"), [(0, "0 s"), (2e-4, "0.2 ms"), (0.034, "0.034 s"), (2.96, "3 s"), (123.4, "123 s")]
)
def test_short_times_are_not_nothing(seconds: float, words: str) -> None:
    assert in_words(seconds) == words


def test_condition_numbers_that_are_left_out_say_what_they_take_and_what_was_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Budget, "for_operations", lambda self, operations: 0.4)
    model, x = build(SMALL), torch.rand(2, 1, 8, 8)
    trunk, kept = ss.trace(model, x), dict[str, xarray.Dataset]()
    left_out = dict(_conditioning(trunk, x, Budget(8, torch.device("cpu")), kept.__setitem__))
    (why,) = {why for name, why in left_out.items() if name.endswith(".weight")}
    assert why == "about 0.4 s, and condition numbers of weights had 0.2 s of the time left"  # 0.15 * 8 / 2 - 0.4
    assert kept["conditioning"].sizes["weight"] == 1


@pytest.mark.slow
def test_the_command_writes_a_run_folder_with_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ("inspect", f"skipscope:{SMALL}", "--data", "digits", "--samples", 3)
    assert run_command(monkeypatch, *arguments, "--full") == 0
    captured = capsys.readouterr()
    assert "random weights" in captured.out
    assert "Spectra" in captured.out
    folder = Path("runs") / f"inspect-skipscope-{SMALL}"
    record = json.loads((folder / "run.json").read_text())
    assert record["status"] == "finished"
    assert record["parameters"]["source"]["input"] == "3 test images of digits"
    assert (folder / "report.html").is_file()
    assert run_command(monkeypatch, *arguments, "--json", "--budget", "90s") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["folder"] == f"{folder}-2"
    assert document["measured"]["profile"]["dims"]["sample"] == 3
    assert run_command(monkeypatch, *arguments, "--budget", "soon") == 2
    assert capsys.readouterr().err.startswith("error: budget soon")


class Branching(nn.Module):
    """Cannot be exported: which way it goes depends on values."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return -x if x.sum() > 1e6 else x


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.tanh(self.inner(x))


def test_a_model_that_cannot_be_exported_is_measured_at_named_units() -> None:
    torch.manual_seed(0)
    model, x = Branching().eval(), torch.randn(3, 6)
    result = ss.inspect(model, x, units=["blocks.0", "blocks.1"], budget=30)
    assert result["spectra"]["unit"].values.tolist()[:2] == ["blocks.0", "blocks.1"]
    entry = model.blocks[0](x[:1])
    dense = torch.autograd.functional.jacobian(model.blocks[1], entry).reshape(6, 6)
    found = result["spectra"]["value"].sel(unit="blocks.1").isel(sample=0).values
    numpy.testing.assert_allclose(found, torch.linalg.svdvals(dense).numpy(), rtol=1e-5)
    assert {"profile", "stability"} <= set(result.datasets)
