"""Trainings as tasks: the same networks, found by the same keys, whatever executes them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from skipscope.runs import RunFolder
from skipscope.runs.executors import Execution
from skipscope.training.network_files import Trained
from skipscope.training.network_fleets import train_fleet_into, trained_fleet
from skipscope.training.network_tasks import Group, train_group
from skipscope.training.networks import Network
from tests.training.test_network_fleets import CONVOLUTIONAL, TYPE1, Watched, networks

HERE, PROCESSES = Execution(), Execution("processes", 2)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKIPSCOPE_CACHE", str(tmp_path / "cache"))


def made(folder: Path, wanted: list[Network], execution: Execution | None) -> list[Trained]:
    """Whatever the cache has."""
    with RunFolder(folder, "test") as run:
        return train_fleet_into(wanted, run, Watched(), execution=execution)


def assert_same_bits(one: list[Trained], other: list[Trained]) -> None:
    for first, second in zip(one, other, strict=True):
        assert first.test_accuracy == second.test_accuracy
        assert first.history.loss == second.history.loss
        for name, value in first.model.state_dict().items():
            assert torch.equal(value, second.model.state_dict()[name])


@pytest.mark.parametrize("model", [TYPE1, CONVOLUTIONAL])
@pytest.mark.parametrize(
    "execution", [pytest.param(HERE, id="here"), pytest.param(PROCESSES, id="processes", marks=pytest.mark.slow)]
)
def test_networks_are_the_same_bits(model: str, execution: Execution, tmp_path: Path) -> None:
    """TYPE1 is trained as one stack, which is one task; convolutional networks are a task each."""
    wanted = networks(2, model)
    assert_same_bits(made(tmp_path / "usual", wanted, None), made(tmp_path / "tasks", wanted, execution))
    assert not list((tmp_path / "tasks" / "checkpoints").glob("*.training.safetensors"))


def test_a_fleet_that_was_kept_in_part_is_not_split(tmp_path: Path) -> None:
    """The others go on from the checkpoint of the whole fleet: in a smaller one they would be others by rounding."""
    wanted = networks(3)
    usual = made(tmp_path / "usual", wanted, None)
    files = [f"checkpoints/{network.model}-{network.seed}.safetensors" for network in wanted]
    group = Group(wanted, [network.key for network in wanted], files)
    with RunFolder(tmp_path / "run", "test") as run:
        contents = train_group(group, run.path.resolve(), 0.0)  # leaves its last checkpoint, as a worker does
        assert (run.path / group.checkpoint).is_file()
        run.write(files[0], contents[0])
        again = train_fleet_into(wanted, run, Watched(), execution=HERE)
        assert not (run.path / group.checkpoint).exists()
    assert_same_bits(usual, again)


def test_a_worker_that_does_not_see_the_run_leaves_nothing(tmp_path: Path) -> None:
    wanted = networks(1, CONVOLUTIONAL)
    group = Group(wanted, [wanted[0].key], ["checkpoints/one.safetensors"])
    (content,) = train_group(group, tmp_path / "elsewhere", 0.0)
    assert content
    assert not (tmp_path / "elsewhere").exists()


def test_what_tasks_made_is_in_the_cache(tmp_path: Path) -> None:
    wanted = networks(1, CONVOLUTIONAL)
    watched = Watched()
    with RunFolder(tmp_path / "run", "test") as run:
        first = trained_fleet(wanted, run, Watched(), HERE)
    with RunFolder(tmp_path / "other", "test") as run:
        second = trained_fleet(wanted, run, watched, HERE)
    assert watched.titles == []
    assert_same_bits(first, second)
