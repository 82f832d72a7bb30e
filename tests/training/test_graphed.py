"""A captured step gives what an eager one gives. On a GPU: SKIPSCOPE_TEST_DEVICE=cuda."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from skipscope.errors import InputError
from skipscope.training import Settings, train
from tests.training.nets import net, picture_net, pictures, weights

pytestmark = pytest.mark.skipif(torch.get_default_device().type != "cuda", reason="CUDA graphs need a GPU")

SETTINGS = Settings(epochs=4, batch=16, weight_decay=1e-3, warmup=1)


@pytest.fixture(autouse=True)
def deterministic() -> Iterator[None]:
    before = torch.backends.cudnn.deterministic, torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.deterministic, torch.backends.cudnn.allow_tf32 = True, False
    yield
    torch.backends.cudnn.deterministic, torch.backends.cudnn.allow_tf32 = before


def both(settings: Settings, **changed: Any) -> list[tuple[dict[str, Tensor], list[float]]]:
    results = []
    for graph in (False, True):
        model = picture_net(dropout=0.0)
        history = train(model, pictures(), settings, graph=graph, **changed)
        results.append((weights(model), history.loss))
    return results


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"schedule": "step", "milestones": (2, 3)},
        {"nesterov": True, "clip": 0.5, "label_smoothing": 0.1, "decay_norms": False},
        {"momentum": 0.0},
        {"augmentation": "crop-flip"},
    ],
    ids=str,
)
@pytest.mark.parametrize("channels_last", [True, False])
def test_graphed_is_eager(changed: dict[str, Any], channels_last: bool, captures: list[bool]) -> None:
    eager, graphed = both(Settings(**{**vars(SETTINGS), **changed}), channels_last=channels_last)
    assert captures == [True]
    assert graphed[1] == pytest.approx(eager[1], rel=1e-4)
    for name, value in eager[0].items():
        torch.testing.assert_close(graphed[0][name], value, rtol=1e-3, atol=1e-5)


def test_bfloat16(captures: list[bool]) -> None:
    eager, graphed = both(Settings(**{**vars(SETTINGS), "precision": "bfloat16"}))
    assert captures == [True]
    assert graphed[1] == pytest.approx(eager[1], rel=0.05)


def test_the_rate_takes_effect_inside_the_graph(captures: list[bool]) -> None:
    """From the milestone on nothing moves: the graph was captured before it."""
    settings = Settings(
        epochs=4, batch=16, momentum=0.0, weight_decay=0.0, schedule="step", milestones=(2,), factor=1e-30
    )
    model, seen = picture_net(), []

    def progress(done: int, total: int) -> None:
        seen.append(model[0].weight.detach().clone())

    train(model, pictures(), settings, graph=True, progress=progress)
    assert captures == [True]
    assert not torch.equal(seen[4], seen[5])  # a replayed step of the second epoch
    for later in seen[6:]:
        assert torch.equal(later, seen[5])


def test_dropout_is_drawn_anew_in_every_replay(captures: list[bool]) -> None:
    kept = []

    class Watched(nn.Dropout):
        def __init__(self) -> None:
            super().__init__(0.5)
            self.register_buffer("pattern", torch.zeros(16, 64))

        def forward(self, x: Tensor) -> Tensor:
            self.pattern.copy_(super().forward(torch.ones_like(x)))
            return x * self.pattern

    model = picture_net()
    model[4][2] = Watched()
    train(model, pictures(), SETTINGS, graph=True, progress=lambda *_: kept.append(model[4][2].pattern.clone()))
    assert captures == [True]
    assert len({tuple(pattern.flatten().tolist()) for pattern in kept}) == len(kept) == 12


def test_weights_keep_their_layout() -> None:
    model = picture_net()
    train(model, pictures(), SETTINGS)
    assert all(weight.is_contiguous() for weight in model.parameters())


class Waiting(nn.Module):
    """Asks the device for a value, which a capture does not allow."""

    def forward(self, x: Tensor) -> Tensor:
        return x if float(x.sum()) > -1e9 else -x


class Deciding(nn.Module):
    """Stochastic depth with a choice of the host."""

    def forward(self, x: Tensor) -> Tensor:
        return x if random.random() < 0.5 else 0.9 * x


@pytest.mark.parametrize("odd", [Waiting(), Deciding()], ids=lambda odd: type(odd).__name__)
def test_what_cannot_be_captured_runs_eagerly_and_says_so(odd: nn.Module) -> None:
    results = []
    for graph in (False, None):
        model = picture_net().append(odd)
        random.seed(0)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            train(model, pictures(), SETTINGS, graph=graph)
        said = [w for w in caught if "without a CUDA graph" in str(w.message)]
        assert len(said) == (graph is None)
        results.append(weights(model))
    for name, value in results[0].items():
        torch.testing.assert_close(results[1][name], value, rtol=1e-3, atol=1e-5)
    with pytest.raises(InputError, match="cannot be a CUDA graph"):
        train(picture_net().append(odd), pictures(), SETTINGS, graph=True)
    assert torch.rand(3).shape == (3,)  # the device's generator works as before


def test_float16_is_refused() -> None:
    from tests.training.nets import blobs

    with pytest.raises(InputError, match="take bfloat16"):
        train(net(), blobs(), Settings(epochs=1, batch=16, precision="float16"), graph=True)
