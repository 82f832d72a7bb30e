"""`ss.sweep`: its numbers against the measures themselves, units that correspond, failures, and going on."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from functools import reduce
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
import xarray

import skipscope as ss
from skipscope.cli.beforehand import require_run_folder
from skipscope.errors import InputError
from skipscope.report.views.sweeps import sweep_view
from skipscope.runs import load_run
from skipscope.runs.executors import Execution
from skipscope.runs.files import digest_of_object
from skipscope.sweeps import measuring
from skipscope.sweeps.joining import failed, member, merge
from tests.commands import run_command

SHALLOW, DEEP, WRONG = "skipscope:resnet8-digits-n4", "skipscope:resnet14-digits-n4", "torchvision:resnet999"


@pytest.fixture(name="x", scope="module")
def _x() -> torch.Tensor:
    return torch.rand(2, 1, 8, 8, generator=torch.Generator("cpu").manual_seed(1), device="cpu")


@pytest.fixture(name="networks", scope="module")
def _networks() -> dict[str, torch.nn.Module]:
    found = {}
    for seed in range(2):
        torch.manual_seed(seed)
        found[f"seed {seed}"] = ss.build("resnet8-digits-n4").cpu().eval()
    return found


def test_numbers_are_those_of_the_measures(networks: Mapping[str, torch.nn.Module], x: torch.Tensor) -> None:
    found = ss.sweep(networks, x, measures=["profile", "spectra"])
    assert found.sizes == {"model": 2, "unit": 3}
    assert found.attrs["aligned"].startswith("by name")
    for label, network in list(networks.items())[1:]:
        trunk = ss.trace(network, x)
        for measure, data in {"profile": ss.profile(trunk, x), "spectra": ss.spectra(trunk, x, stages=False)}.items():
            for variable in measuring.VARIABLES[measure]:
                own = data[variable].mean("sample") if "sample" in data[variable].dims else data[variable]
                numpy.testing.assert_array_equal(found[f"{measure}_{variable}"].sel(model=label), own)


def test_models_of_other_depth_correspond_by_relative_depth_and_failures_are_told(x: torch.Tensor) -> None:
    found = ss.sweep([SHALLOW, WRONG, DEEP], x)
    assert found.sizes == {"model": 3, "position": 6}
    assert "nothing is interpolated" in found.attrs["aligned"]
    assert found["relative_depth"].sel(model=SHALLOW).values[:3].tolist() == [1 / 6, 3 / 6, 5 / 6]
    assert found["unit"].sel(model=DEEP).values.tolist()[-1] == "stage3.1"
    assert found["units"].values.tolist() == [3, 0, 6]
    assert "no model 'resnet999'" in str(found["failure"].sel(model=WRONG).values)
    assert bool(found["profile_state_rms"].sel(model=WRONG).isnull().all())
    assert bool(found["profile_state_rms"].sel(model=SHALLOW)[:3].notnull().all())
    view = sweep_view({"sweep": found})
    assert view.tables[0].rows[1][:3] == [WRONG, "0", "-"]
    assert any("Not measured: torchvision:resnet999" in sentence for sentence in view.sentences)
    assert {trace.name for trace in view.figures["sweep"].figure.data} == {SHALLOW, DEEP}


def test_where_no_model_can_be_measured_the_reason_is_raised(x: torch.Tensor) -> None:
    with pytest.raises(InputError, match=r"none of 1 models could be measured; torchvision:resnet999: .* did you mean"):
        ss.sweep(WRONG, x)
    with pytest.raises(InputError, match="'spectrum' is no measure of a sweep; choose of profile"):
        ss.sweep(SHALLOW, x, measures="spectrum")
    with pytest.raises(InputError, match="get no GPU unless gpus_per_task asks for one"):
        ss.sweep(SHALLOW, x, device="cuda", executor="processes")


def piece(units: int, value: float) -> xarray.Dataset:
    names = [f"u{number}" for number in range(units)]
    data = {"profile_cosine": ("position", numpy.full(units, value))}
    coordinates = {"position": range(units), "unit": ("position", names), "relative_depth": ("position", [0.5] * units)}
    return xarray.Dataset(data, coordinates, {"notes": "random weights; all alike"})


def test_the_merge_is_associative() -> None:
    parts = [member("a", piece(2, 1.0)), failed("b", "why"), member("c", piece(4, 2.0)), member("d", piece(3, 3.0))]
    left = reduce(merge, parts)
    right = merge(parts[0], merge(parts[1], merge(parts[2], parts[3])))
    middle = merge(merge(parts[0], parts[1]), merge(parts[2], parts[3]))
    assert left.identical(right)
    assert left.identical(middle)
    assert left["profile_cosine"].sel(model="d").values.tolist()[:3] == [3.0] * 3
    assert left["unit"].sel(model="a").values.tolist() == ["u0", "u1", "", ""]


def test_a_sweep_goes_on_where_it_was(
    networks: dict[str, torch.nn.Module], x: torch.Tensor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[int] = []
    prepare = measuring._model_and_batch

    def counting(*args: Any, **options: Any) -> Any:
        measured.append(1)
        if len(measured) == 2:
            raise KeyboardInterrupt
        return prepare(*args, **options)

    monkeypatch.setattr(measuring, "_model_and_batch", counting)
    with pytest.raises(KeyboardInterrupt):
        ss.sweep(networks, x, out=tmp_path / "run")
    assert load_run(tmp_path / "run").record["status"] == "interrupted"
    found = ss.sweep(networks, x, out=tmp_path / "run", resume=True)
    assert len(measured) == 3  # the first model was not measured again
    assert not bool(found["profile_cosine"].isnull().any())


class Scaled(torch.nn.Module):
    """A number that neither its words nor its state know."""

    def __init__(self, scale: Any) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 3)
        self.scale = scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.scale * self.layer(x)


def test_a_module_is_recognised_by_all_its_attributes() -> None:
    model = Scaled(1.0)
    same = copy.deepcopy(model)
    first = digest_of_object(model)
    assert first is not None
    assert digest_of_object(same) == first
    same.scale = 2.0
    assert digest_of_object(same) != first
    same.scale = 1.0
    with torch.no_grad():
        same.layer.weight[0, 0] += 1
    assert digest_of_object(same) != first


def test_a_module_that_cannot_be_recognised_is_not_resumed(tmp_path: Path) -> None:
    unknown = Scaled(1.0)
    unknown.extra = lambda: 1  # type: ignore[assignment]
    with pytest.raises(InputError, match="mine: a module that cannot be pickled cannot be recognised"):
        ss.sweep({"mine": unknown}, torch.rand(2, 3), out=tmp_path / "run", resume=True)
    assert not (tmp_path / "run").exists()


def test_a_sweep_that_failed_at_once_is_not_in_the_way(
    x: torch.Tensor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    run = tmp_path / "run"
    with pytest.raises(InputError, match="enough for 0"):
        ss.sweep(SHALLOW, x, out=run, executor=Execution("processes", 1, gpus_per_task=1))
    assert not run.exists()
    with pytest.raises(InputError, match="none of 1 models could be measured"):
        ss.sweep(WRONG, x, out=run)
    assert load_run(run).record["status"] == "failed"
    require_run_folder(run, "sweep", resume=False)
    ss.sweep(SHALLOW, x, out=run)
    assert load_run(run).record["status"] == "finished"
    with pytest.raises(InputError, match="holds a run of sweep with status 'finished'"):
        ss.sweep(SHALLOW, x, out=run)


@pytest.mark.slow
def test_a_sweep_is_in_its_folder_and_goes_by_what_the_models_are(
    networks: dict[str, torch.nn.Module], x: torch.Tensor, tmp_path: Path
) -> None:
    found = ss.sweep(networks, x, out=tmp_path / "run")
    assert found.identical(ss.sweep(networks, x))
    saved = ss.load(tmp_path / "run")
    assert saved["sweep"].equals(found)
    assert "sweep" in saved.figures
    changed = {**networks, "seed 1": networks["seed 0"]}
    again = ss.sweep(changed, x, out=tmp_path / "run", resume=True)  # another model under the same label is measured
    assert again["profile_cosine"][0].values.tolist() == again["profile_cosine"][1].values.tolist()


@pytest.mark.slow
def test_many_checkpoints_are_summarised_over_their_units(tmp_path: Path, x: torch.Tensor) -> None:
    network = ss.build("resnet8-digits-n4").cpu()
    for step in (1, 10, 100):
        with torch.no_grad():
            for weight in network.parameters():
                weight.mul_(1.1)
        torch.save(network.state_dict(), tmp_path / f"step{step}.pt")
    found = ss.sweep(SHALLOW, x, checkpoints=[f"{tmp_path}/step*.pt"])
    assert found.sizes == {"step": 3, "unit": 3}
    assert found["step"].values.tolist() == [1, 10, 100]
    assert found["checkpoint"].values.tolist() == ["step1", "step10", "step100"]
    sizes = found["profile_state_rms"].isel(unit=0).values
    assert all(later > former for former, later in pairwise(sizes))
    many = xarray.concat([found] * 3, "step").assign_coords(step=[1, 2, 4, 8, 16, 32, 64, 128, 256])
    (line, *_) = ss.plot.sweep(many).data
    assert list(line.x) == many["step"].values.tolist()
    numpy.testing.assert_array_equal(line.y, many["profile_state_rms"].median("unit"))


@pytest.mark.slow
def test_revisions_in_the_local_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Laid out as huggingface_hub does: a file per branch or tag names a commit, whose folder holds the model."""
    transformers = pytest.importorskip("transformers")
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    home = tmp_path / "models--owner--tiny"
    (home / "refs").mkdir(parents=True)
    config = transformers.GPT2Config(n_embd=16, n_layer=2, n_head=2, vocab_size=50, n_positions=32)
    for step, commit in ((20, "b" * 40), (3, "a" * 40)):
        torch.manual_seed(step)
        transformers.GPT2Model(config).save_pretrained(home / "snapshots" / commit)
        (home / "refs" / f"step{step}").write_text(commit)
    found = ss.sweep("hf:owner/tiny", revisions=["step20", "step3"])
    assert found["step"].values.tolist() == [3, 20]
    folders = ss.sweep(f"hf:{home / 'snapshots'}", revisions=["a" * 40, "b" * 40])
    numpy.testing.assert_array_equal(found["profile_state_rms"].values, folders["profile_state_rms"].values)
    with pytest.raises(InputError, match="not in the local cache"):
        ss.sweep("hf:owner/tiny", revisions=["step4"])


@pytest.mark.slow
def test_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert run_command(monkeypatch, "sweep", SHALLOW, WRONG, "--data", "digits", "--out", out, "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["sweep"]["coords"]["model"]["data"] == [SHALLOW, WRONG]
    assert (out / "report.html").is_file()
    assert run_command(monkeypatch, "sweep", SHALLOW, WRONG, "--data", "digits", "--out", out) == 2
    assert "--resume goes on with it" in capsys.readouterr().err
    assert run_command(monkeypatch, "sweep", SHALLOW, "--workers", "2", "--out", tmp_path / "other") == 2
    assert "--workers is for tasks; choose --executor" in capsys.readouterr().err
    assert run_command(monkeypatch, "sweep", SHALLOW, "--executor", "slurm", "--slurm", "gpu") == 2
    assert "expected KEY=VALUE" in capsys.readouterr().err


@pytest.mark.slow
def test_two_processes_give_the_same_bits(
    networks: Mapping[str, torch.nn.Module], x: torch.Tensor, tmp_path: Path
) -> None:
    models = {**networks, "deep": DEEP, "none": WRONG}
    here = ss.sweep(models, x, measures="profile,spectra,leading", out=tmp_path / "here")
    execution = Execution("processes", 2)
    there = ss.sweep(models, x, measures="profile,spectra,leading", out=tmp_path / "there", executor=execution)
    assert here.identical(there)
    names = [f"data/{name}.nc" for name in load_run(tmp_path / "here").names]
    assert len(names) == 4
    for name in names:
        assert (tmp_path / "here" / name).read_bytes() == (tmp_path / "there" / name).read_bytes()
