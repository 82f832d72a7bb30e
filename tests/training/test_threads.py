"""One thread for little work, and the user's number again afterwards."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from skipscope.cores import one_thread
from skipscope.data import digits
from skipscope.models.names import build
from skipscope.training import Settings, train
from skipscope.training.surroundings import little_work


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_networks_of_small_matrices_are_little_work() -> None:
    assert little_work(build("resnet60-mnist-connected"), 128)
    assert not little_work(build("resnet60-mnist-connected"), 4096)
    assert not little_work(nn.Linear(512, 512), 128)
    assert not little_work(nn.Sequential(nn.Linear(8192, 512), nn.Linear(64, 64), nn.Linear(64, 64)), 128)
    assert not little_work(build("resnet8-digits"), 16)
    assert not little_work(nn.ReLU(), 128)


@one_thread()
def _fail() -> None:
    assert torch.get_num_threads() == 1
    raise ValueError("stop")


def test_the_number_is_put_back(two_threads: None) -> None:
    with one_thread(False):
        assert torch.get_num_threads() == 2
    with pytest.raises(ValueError, match="stop"):
        _fail()
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize(("name", "threads"), [("resnet4-digits-connected-n4", 1), ("resnet8-digits-n4", 2)])
def test_in_training(name: str, threads: int, two_threads: None) -> None:
    seen: set[int] = set()
    model = build(name).cpu()
    train(
        model,
        digits().train.to("cpu"),
        Settings(epochs=1, batch=718),
        progress=lambda done, total: seen.add(torch.get_num_threads()),
    )
    assert seen == {threads}
    assert torch.get_num_threads() == 2
