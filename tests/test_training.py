"""The training loop."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from skipscope.errors import InputError
from skipscope.training import Settings, accuracy, train
from tests import seeded


def blobs(samples: int = 96) -> tuple[Tensor, Tensor]:
    """Three classes, far apart."""
    generator = seeded.generator(0)
    labels = torch.arange(samples) % 3
    return 4 * torch.eye(3)[labels] + torch.randn(samples, 3, generator=generator), labels


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


def test_it_learns_and_says_how_far_it_is() -> None:
    model, (x, y) = net(), blobs()
    model.eval()
    calls: list[tuple[int, int]] = []
    history = train(model, x, y, Settings(epochs=5, batch=20), progress=lambda done, total: calls.append((done, total)))
    assert calls == [(k, 20) for k in range(1, 21)]  # 96 samples hold four whole batches of 20
    assert history.status == "finished"
    assert history.loss[-1] < 0.5 * history.loss[0]
    assert history.rate == sorted(history.rate, reverse=True)
    assert accuracy(model, x, y, batch=10) > 0.9
    assert not model.training


def test_one_seed_gives_one_result() -> None:
    x, y = blobs()
    weights = []
    for seed in (3, 3, 4):
        model = net()
        train(model, x, y, Settings(epochs=2, batch=16, seed=seed))
        weights.append(model[0].weight.detach().clone())  # type: ignore[index]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_a_loss_that_is_not_finite_stops_it_and_is_recorded() -> None:
    x, y = blobs()
    model = nn.Linear(3, 3)
    with torch.no_grad():
        model.weight.fill_(float("inf"))
    history = train(model, x, y, Settings(epochs=5, batch=16))
    assert history.diverged_at == 0
    assert len(history.loss) == 1
    assert history.to_dict()["status"] == "diverged"


def test_wrong_settings_are_refused() -> None:
    x, y = blobs()
    for wrong in ({"epochs": 0}, {"batch": 1}, {"rate": 0.0}, {"momentum": 1.0}, {"weight_decay": -1.0}):
        with pytest.raises(InputError):
            Settings(**{"epochs": 1, **wrong})  # type: ignore[arg-type]
    with pytest.raises(InputError, match="96 images and 95 labels"):
        train(net(), x, y[:-1], Settings(epochs=1))
