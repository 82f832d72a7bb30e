"""Measuring while training."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
import torch
import xarray
from torch import nn

from skipscope.errors import InputError
from skipscope.training import At, History, Settings, train
from tests.training.nets import assert_same, blobs, net, picture_net, pictures, weights

SETTINGS = Settings(epochs=3, batch=16)


def test_they_are_called_after_their_epochs_and_change_nothing() -> None:
    def disturb(model: nn.Module, epoch: int, history: History) -> dict[str, Any]:
        assert not any(module.training for module in model.modules())
        assert history.epochs == epoch
        model(pictures(6).images()).sum().backward()
        return {"drawn": torch.rand(2, device="cpu"), "loss": history.loss[-1] if history.loss else None}

    hook = At([3, 0, 1], disturb)
    with_hook, without = picture_net(), picture_net()
    train(with_hook, pictures(), SETTINGS, hooks=[hook])
    train(without, pictures(), SETTINGS)
    assert_same(weights(with_hook), weights(without))
    assert hook.name == "disturb"
    assert list(hook.results) == [0, 1, 3]
    assert hook.results[0]["loss"] is None
    drawn = [result["drawn"].tolist() for result in hook.results.values()]
    assert drawn[0] != drawn[1]
    train(picture_net(), pictures(), SETTINGS, hooks=[hook])
    assert [result["drawn"].tolist() for result in hook.results.values()] == drawn


def test_results_are_numbers_arrays_and_datasets() -> None:
    dataset = xarray.Dataset(
        {"s": (("unit", "k"), numpy.ones((2, 3), numpy.float32), {"unit": "1"}), "n": ("unit", [1, 2])},
        coords={"unit": ["a", "b"]},
        attrs={"what": "test", "count": 3},
    )
    plain = At([1], lambda *_: {"x": numpy.float64(0.5), "deep": {"t": torch.ones(2), "n": [1, "a"]}}, name="plain")
    labelled = At([1], lambda *_: dataset, name="labelled")
    train(net(), blobs(), SETTINGS, hooks=[plain, labelled])
    assert plain.results[1]["x"] == 0.5
    assert plain.results[1]["deep"]["n"] == [1, "a"]
    assert plain.results[1]["deep"]["t"].tolist() == [1.0, 1.0]
    xarray.testing.assert_identical(labelled.results[1], dataset)
    assert labelled.results[1].s.dtype == numpy.float32


@pytest.mark.parametrize("wrong", [3.0, {"x": {1, 2}}, {1: 2.0}, [1.0]], ids=repr)
def test_other_results_are_refused(wrong: Any) -> None:
    with pytest.raises(InputError, match="the hook 'odd' returned"):
        train(net(), blobs(), SETTINGS, hooks=[At([1], lambda *_: wrong, name="odd")])


def test_hooks_that_make_no_sense_are_refused() -> None:
    def nothing(model: nn.Module, epoch: int, history: History) -> None:
        return None

    for epochs in ([], [-1]):
        with pytest.raises(InputError, match="epochs of at least 0"):
            At(epochs, nothing)
    with pytest.raises(InputError, match="waits for epoch 4 of 3"):
        train(net(), blobs(), SETTINGS, hooks=[At([4], nothing)])
    with pytest.raises(InputError, match="two hooks have one name"):
        train(net(), blobs(), SETTINGS, hooks=[At([1], nothing), At([2], nothing)])
