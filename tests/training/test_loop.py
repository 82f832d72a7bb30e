"""The training loop in one process."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from skipscope.data.dataset import Images
from skipscope.errors import InputError
from skipscope.training import At, History, Settings, accuracy, train
from tests.training.nets import assert_same, blobs, net, picture_net, pictures, plain_net, weights


def test_it_learns_and_says_how_far_it_is() -> None:
    model, split = net(), blobs()
    model.eval()
    model[1].train()
    calls: list[tuple[int, int]] = []
    history = train(model, split, Settings(epochs=5, batch=20), progress=lambda *call: calls.append(call))
    assert calls == [(k, 20) for k in range(1, 21)]  # 96 samples hold four whole batches of 20
    assert history.status == "finished"
    assert history.epochs == 5
    assert history.loss[-1] < 0.5 * history.loss[0]
    assert history.train_accuracy[-1] > 0.9
    assert history.test_accuracy == [None] * 5
    assert history.rate == sorted(history.rate, reverse=True)
    assert accuracy(model, split, batch=10) > 0.9
    assert [module.training for module in model] == [False, True, False, False]
    assert all(weight.grad is None for weight in model.parameters())


def test_it_is_torch_s_own_gradient_descent() -> None:
    """The whole set in each batch, so that the order does not matter, against a loop as everyone writes it."""
    split = blobs(24)
    settings = Settings(
        epochs=6, batch=24, nesterov=True, label_smoothing=0.1, clip=0.5, decay_norms=False, schedule="constant"
    )
    ours, theirs = plain_net(), plain_net()
    history = train(ours, split, settings)
    groups = [
        {"params": [theirs[0].weight, theirs[2].weight], "weight_decay": 5e-4},
        {"params": [theirs[0].bias, theirs[2].bias], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.SGD(groups, 0.1, momentum=0.9, nesterov=True)
    losses = []
    for _ in range(6):
        loss = F.cross_entropy(theirs(split.images()), split.labels, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(theirs.parameters(), 0.5)
        optimizer.step()
        losses.append(loss.item())
    assert history.loss == pytest.approx(losses, rel=1e-5)
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_one_seed_gives_one_result_and_the_random_state_is_left_alone() -> None:
    before = torch.get_rng_state()
    results = []
    for seed in (3, 3, 4):
        model = picture_net()
        train(model, pictures(), Settings(epochs=2, batch=16, seed=seed, augmentation="crop-flip"))
        results.append(weights(model))
        torch.rand(1, device="cpu")  # what the caller draws between runs makes no difference
    assert_same(results[0], results[1])
    assert not torch.allclose(results[0]["0.weight"], results[2]["0.weight"], atol=1e-3)
    torch.set_rng_state(before)
    train(picture_net(), pictures(), Settings(epochs=1, batch=16))
    assert torch.equal(torch.get_rng_state(), before)


def test_accuracy_after_epochs() -> None:
    model, split = net(), blobs()
    history = train(model, split, Settings(epochs=5, batch=16), test=split, test_every=2)
    assert [tested is not None for tested in history.test_accuracy] == [False, True, False, True, True]
    assert history.test_accuracy[-1] == accuracy(model, split)


def test_a_loss_that_is_not_finite_stops_it_and_is_recorded() -> None:
    model = nn.Linear(3, 3)
    with torch.no_grad():
        model.weight.fill_(math.inf)
    called: list[int] = []
    hook = At([0, 1], lambda model, epoch, history: called.append(epoch))
    history = train(model, blobs(), Settings(epochs=5, batch=16), test=blobs(), hooks=[hook])
    assert history.diverged_at == 0
    assert len(history.loss) == 1
    assert history.test_accuracy == [None]
    assert called == [0]
    assert history.to_dict()["status"] == "diverged"


def test_the_step_at_which_it_diverged() -> None:
    split = blobs()
    model = plain_net()
    history = train(model, split, Settings(epochs=50, batch=16, rate=1e30, schedule="constant"))
    assert history.diverged_at is not None
    assert history.diverged_at // 6 == history.epochs - 1  # six steps an epoch


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_mixed_precision(precision: str) -> None:
    model, seen = picture_net(), []
    model[0].register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
    history = train(model, pictures(), Settings(epochs=4, batch=16, precision=precision, clip=5.0))
    assert seen[0] == getattr(torch, precision)
    assert history.loss[-1] < history.loss[0]
    assert all(weight.dtype == torch.float32 for weight in model.parameters())


def test_the_model_s_own_precision() -> None:
    model = net().double()
    train(model, blobs(), Settings(epochs=1, batch=16), test=blobs())
    assert model[0].weight.dtype == torch.float64


def test_frozen_weights_stay() -> None:
    model = net()
    model[0].weight.requires_grad_(False)
    before = weights(model)
    train(model, blobs(), Settings(epochs=1, batch=16))
    assert torch.equal(model[0].weight, before["0.weight"])
    assert not torch.equal(model[3].weight, before["3.weight"])


def test_images_of_another_device_are_brought(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    to = Images.to
    monkeypatch.setattr(Images, "to", lambda self, device: asked.append(device) or to(self, device))
    train(net(), blobs().to("cpu"), Settings(epochs=1, batch=16))
    assert asked[-1] == net()[0].weight.device


def test_wrong_input_is_refused() -> None:
    with pytest.raises(InputError, match=r"batch of 64 images.*got 20 images"):
        train(net(), blobs(20), Settings(epochs=1))
    with pytest.raises(InputError, match="Flatten has no weight"):
        train(nn.Flatten(), blobs(), Settings(epochs=1))
    with pytest.raises(InputError, match="batch of at least 1"):
        accuracy(net(), blobs(), batch=0)
    if torch.get_default_device().type == "cpu":
        with pytest.raises(InputError, match="graph=True, but the model is on cpu"):
            train(net(), blobs(), Settings(epochs=1), graph=True)


def test_history_as_document_and_dataset() -> None:
    history = train(net(), blobs(), Settings(epochs=3, batch=16), test=blobs(), test_every=2)
    assert History.from_dict(history.to_dict()) == history
    dataset = history.to_dataset()
    assert dataset.sizes == {"epoch": 3}
    assert dataset.epoch.values.tolist() == [1, 2, 3]
    assert dataset.test_accuracy.isnull().values.tolist() == [True, False, False]
    assert dataset.attrs == {"status": "finished"}
    broken = History([math.nan], [0.1], [1.0], [0.0], [None], diverged_at=0)
    document = {**broken.to_dict(), "loss": [None]}  # as strict JSON has it
    assert math.isnan(History.from_dict(document).loss[0])
    assert broken.to_dataset().attrs == {"status": "diverged", "diverged_at": 0}


def test_accuracy_counts_every_image() -> None:
    class Fixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(1))

        def forward(self, x: Tensor) -> Tensor:
            return F.one_hot(torch.zeros(len(x), dtype=torch.int64), 3).float()

    model = Fixed()
    assert accuracy(model, blobs(10), batch=4) == 0.4  # four of ten are of class 0
    assert model.training
