"""Networks that are trained together: kept one by one, under the keys that they have alone."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from skipscope.data import digits
from skipscope.progress import Progress
from skipscope.runs import RunFolder
from skipscope.training import FleetMember, Settings, network_fleets
from skipscope.training.network_files import HEADER, Trained, keep
from skipscope.training.network_fleets import train_fleet_into, trained_fleet
from skipscope.training.networks import Network, trained

TYPE1, CONVOLUTIONAL = "type1-digits-w8-b2", "resnet8-digits-n4"
SETTINGS = Settings(epochs=2, batch=32, rate=0.05)
DATA = digits().subset(samples=128, test_samples=64)


def networks(count: int = 3, model: str = TYPE1, **options: object) -> list[Network]:
    return [Network(model, DATA, SETTINGS, 1000 + number, **options) for number in range(count)]  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SKIPSCOPE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "networks"


class Watched:
    """What was trained, by the titles of the progress."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.titles: list[str] = []
        self._stop_after = stop_after

    def __call__(self, what: str) -> Progress:
        def progress(done: int, total: int) -> None:
            if what not in self.titles:
                self.titles.append(what)
            if self._stop_after is not None and done >= self._stop_after:
                raise KeyboardInterrupt

        return progress


def assert_close(one: Trained, other: Trained, tolerance: float) -> None:
    for name, value in one.model.state_dict().items():
        torch.testing.assert_close(value, other.model.state_dict()[name], rtol=tolerance, atol=tolerance)


def test_a_fleet_is_trained_together_and_found_one_by_one(tmp_path: Path, cache: Path) -> None:
    watched = Watched()
    with RunFolder(tmp_path / "run", "test") as run:
        together = trained_fleet(networks(), run, watched)
        assert watched.titles == [f"training 3 networks {TYPE1}"]
        assert {file.name for file in cache.iterdir()} == {f"{network.key}.safetensors" for network in networks()}
        assert not list((run.path / "checkpoints").glob("*.training.*"))
        assert {result.file for result in together} <= run.record["hashes"].keys()
    for network, result in zip(networks(), together, strict=True):
        with safe_open(cache / f"{network.key}.safetensors", "pt") as file:
            assert json.loads(file.metadata()[HEADER])["fleet"] == 3
        with RunFolder(tmp_path / f"alone-{network.seed}", "test") as run:
            watched = Watched()
            found = trained(network, run, watched("training alone"))
        assert not watched.titles
        assert_close(found, result, 0)
        assert found.history == result.history
        assert not found.model.training


def test_members_are_what_they_are_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with RunFolder(tmp_path / "run", "test") as run:
        together = trained_fleet(networks(snapshots=(0, 1)), run, Watched())
    monkeypatch.setenv("SKIPSCOPE_CACHE", str(tmp_path / "another"))
    for network, result in zip(networks(snapshots=(0, 1)), together, strict=True):
        with RunFolder(tmp_path / f"alone-{network.seed}", "test") as run:
            alone = trained(network, run, Watched()("alone"))
        assert alone.file == result.file
        assert_close(alone, result, 1e-3)  # float32
        assert alone.snapshots.keys() == result.snapshots.keys() == {0, 1}
        assert_same_first_weights(alone, result)


def assert_same_first_weights(one: Trained, other: Trained) -> None:
    for name, value in one.snapshots[0].items():
        assert torch.equal(value, other.snapshots[0][name])


def test_only_those_that_are_missing_are_trained(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "run", "test") as run:
        first = trained(networks()[1], run, Watched()("alone"))
        watched = Watched()
        together = trained_fleet(networks(), run, watched)
        assert watched.titles == [f"training 2 networks {TYPE1}"]
        assert_close(together[1], first, 0)
        watched = Watched()
        again = trained_fleet(networks(), run, watched)
    assert not watched.titles
    for one, other in zip(together, again, strict=True):
        assert_close(one, other, 0)


def test_a_run_that_was_stopped_goes_on_and_ends_with_the_same_bits(tmp_path: Path, cache: Path) -> None:
    with RunFolder(tmp_path / "whole", "test") as run:
        whole = trained_fleet(networks(), run, Watched())
    for file in cache.iterdir():
        file.unlink()
    with pytest.raises(KeyboardInterrupt), RunFolder(tmp_path / "run", "test") as run:
        trained_fleet(networks(), run, Watched(stop_after=15))  # 24 steps in all
    assert len(list((tmp_path / "run" / "checkpoints").glob("fleet-*.training.safetensors"))) == 1
    with RunFolder(tmp_path / "run", "test", former="resume") as run:
        resumed = trained_fleet(networks(), run, Watched())
        assert not list((run.path / "checkpoints").glob("*.training.*"))
    for one, other in zip(whole, resumed, strict=True):
        assert_close(one, other, 0)


def test_a_run_that_was_killed_while_networks_were_kept_trains_nothing_again(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[object] = []

    def killed(*arguments: object) -> bytes:
        if len(kept) == 1:
            raise KeyboardInterrupt
        kept.append(arguments)
        return keep(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(network_fleets, "keep", killed)
    with pytest.raises(KeyboardInterrupt), RunFolder(tmp_path / "run", "test") as run:
        trained_fleet(networks(), run, Watched())
    monkeypatch.undo()
    monkeypatch.setenv("SKIPSCOPE_CACHE", str(cache.parent))
    watched = Watched()
    with RunFolder(tmp_path / "run", "test", former="resume") as run:
        found = trained_fleet(networks(), run, watched)
        assert not list((run.path / "checkpoints").glob("*.training.*"))
    assert not watched.titles
    assert len(found) == 3


def test_convolutional_networks_of_one_name_come_into_one_stack() -> None:
    """On a GPU a few are trained at a time; whatever their order, those of one name are not divided needlessly."""
    names = [CONVOLUTIONAL, "plainnet8-digits-n4"]
    wanted = [
        network_fleets._Place(Network(name, DATA, SETTINGS, 1000 + seed), "", "") for seed in range(6) for name in names
    ]
    members = [(place, FleetMember(place.network.initial(), DATA.train, SETTINGS)) for place in wanted]
    groups = network_fleets._a_few(members)
    assert [[place.network.model for place, _ in group] for group in groups] == [[name] * 6 for name in names]


def test_different_architectures_are_one_fleet_and_convolutions_are_trained_alone(tmp_path: Path) -> None:
    deeper = networks(2, "type1-digits-w8-b3")
    faster = [dataclasses.replace(one, settings=dataclasses.replace(SETTINGS, rate=0.2)) for one in networks(2)]
    watched = Watched()
    with RunFolder(tmp_path / "run", "test") as run:
        wanted = [*networks(2), *deeper, *networks(2, CONVOLUTIONAL), *faster]
        found = trained_fleet(wanted, run, watched)
    assert watched.titles == [
        f"training 6 networks {TYPE1} and 1 more",
        f"training {CONVOLUTIONAL}, seed 1000",
        f"training {CONVOLUTIONAL}, seed 1001",
    ]
    assert [len(one.model.blocks) for one in found] == [2, 2, 3, 3, 3, 3, 2, 2]
    assert len({one.file for one in found}) == len(found)


def test_a_member_that_diverges_is_kept_as_such(tmp_path: Path) -> None:
    model = "resnet8-digits-connected-n8-nonorm"
    wanted = networks(3, model)
    wanted[1] = dataclasses.replace(wanted[1], settings=dataclasses.replace(SETTINGS, rate=1e9))
    with RunFolder(tmp_path / "run", "test") as run:
        found = trained_fleet(wanted, run, Watched())
    assert [one.diverged for one in found] == [False, True, False]
    assert found[1].history.diverged_at is not None


@pytest.mark.parametrize("model", [TYPE1, CONVOLUTIONAL])
def test_a_command_trains_whatever_the_cache_has(tmp_path: Path, cache: Path, model: str) -> None:
    with RunFolder(tmp_path / "first", "test") as run:
        trained_fleet(networks(model=model), run, Watched())
    watched = Watched()
    with RunFolder(tmp_path / "run", "train") as run:
        found = train_fleet_into(networks(model=model), run, watched)
        assert len(watched.titles) == (1 if model == TYPE1 else 3)
        assert [one.file for one in found] == [f"checkpoints/{model}-{1000 + n}.safetensors" for n in range(3)]
        assert all(run.has(f"data/history-{1000 + number}.nc") for number in range(3))
        watched = Watched()
        train_fleet_into(networks(model=model), run, watched)
    assert not watched.titles


def test_a_cache_that_cannot_be_written_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("SKIPSCOPE_CACHE", str(tmp_path / "file"))
    with RunFolder(tmp_path / "run", "test") as run:
        trained_fleet(networks(2), run, Watched())
        assert any("cannot be kept in the cache" in note for note in run.record["notes"])
