"""One module at several paths (ALBERT's one layer for all blocks): measurements leave each weight in its place."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import skipscope as ss
from skipscope.data.dataset import Images
from skipscope.models import memory, resolve
from skipscope.training import History
from skipscope.training.trackers import Tracker

WIDTH = 6


class Block(nn.Module):
    def __init__(self, shared: nn.Linear, norm: nn.BatchNorm1d) -> None:
        super().__init__()
        self.shared, self.norm = shared, norm

    def forward(self, x: Tensor) -> Tensor:
        return x + 0.5 * torch.tanh(self.shared(self.norm(x)))


class Shared(nn.Module):
    """Three blocks around one layer and one norm, and a head that is tied to the layer's weight."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        linear, norm = nn.Linear(width, width), nn.BatchNorm1d(width)
        self.blocks = nn.ModuleList(Block(linear, norm) for _ in range(3))
        self.head = nn.Linear(width, width, bias=False)
        self.head.weight = linear.weight

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(x)


BLOCKS = [f"blocks.{index}" for index in range(3)]


def _check(model: nn.Module, x: Tensor) -> None:
    ss.check(model, x)


def _hessian(model: nn.Module, x: Tensor) -> None:
    H = ss.Hessian(model, nn.functional.mse_loss, [(x, torch.ones_like(x))])
    H.matmat(torch.randn(1, H.shape[1], 3, dtype=H.dtype))


def _curvature(model: nn.Module, x: Tensor) -> None:
    ss.curvature(model, nn.functional.mse_loss, [(x, torch.ones_like(x))], k=1, density=False)


def _room(model: nn.Module, x: Tensor) -> None:
    memory.require_forward_room(model, torch.zeros(memory.SMALL_BATCH, WIDTH), "it")


def _named_span(model: nn.Module, x: Tensor) -> None:
    trunk = ss.trace(model, x, units=BLOCKS)
    ss.singular_values(trunk.span(0, 2).jacobian(x).double())


def _named_unit(model: nn.Module, x: Tensor) -> None:
    trunk = ss.trace(model, x, units=BLOCKS)
    trunk[1](trunk.at(x).entry(trunk[1]).double())
    trunk.run_module(trunk[1], x.double())


def _traced(model: nn.Module, x: Tensor) -> None:
    ss.singular_values(ss.trace(model, x)[1].jacobian(x).double())


def _tracked(model: nn.Module, x: Tensor) -> None:
    split = Images(x, torch.arange(len(x)) % WIDTH)
    Tracker(None, split, what=["activations"], batches=1, batch=4)(model, 0, History())


USES = [_check, _hessian, _curvature, _room, _named_span, _named_unit, _traced, _tracked]


@pytest.mark.parametrize("use", USES)
def test_every_weight_is_where_it_was(use: Callable[[nn.Module, Tensor], None]) -> None:
    torch.manual_seed(0)
    model, x = Shared(), torch.randn(4, WIDTH)
    places = [(home, dict(home)) for module in model.modules() for home in (module._parameters, module._buffers)]
    values = copy.deepcopy(model.state_dict())
    use(model, x)
    for home, before in places:
        assert list(home) == list(before)
        assert all(home[name] is before[name] for name in before)
    assert all(torch.equal(value, values[name]) for name, value in model.state_dict().items())
    assert all(weight.requires_grad and weight.dtype == torch.float32 for weight in model.parameters())


def test_float64_spans_of_named_units_are_right() -> None:
    torch.manual_seed(0)
    model, x = Shared().eval(), torch.randn(3, WIDTH)
    trunk = ss.trace(model, x, units=BLOCKS)
    twin = copy.deepcopy(model).double()

    def stack(state: Tensor) -> Tensor:
        for block in twin.blocks:
            state = block(state[None])[0]
        return state

    for _ in range(2):  # a later use finds the same network
        found = trunk.span(0, 2).jacobian(x).double().dense()
        dense = torch.stack([torch.func.jacrev(stack)(sample) for sample in x.double()])
        torch.testing.assert_close(
            torch.linalg.svdvals(found), torch.linalg.svdvals(dense.detach()), rtol=1e-12, atol=1e-12
        )


def test_the_hessian_of_tied_and_shared_weights_is_right() -> None:
    torch.manual_seed(0)
    model, x = Shared(3).double().eval(), torch.randn(4, 3).double()
    names = {name: weight.detach() for name, weight in model.named_parameters()}
    sizes = [weight.numel() for weight in names.values()]

    def loss(theta: Tensor) -> Tensor:
        parts = {n: p.view_as(w) for (n, w), p in zip(names.items(), theta.split(sizes), strict=True)}
        weight, bias = parts["blocks.0.shared.weight"], parts["blocks.0.shared.bias"]
        state, norm = x, model.blocks[0].norm
        for _ in range(3):
            scaled = state / (1 + norm.eps) ** 0.5 * parts["blocks.0.norm.weight"] + parts["blocks.0.norm.bias"]
            state = state + 0.5 * torch.tanh(scaled @ weight.mT + bias)
        return (state @ weight.mT).square().mean()

    expected = torch.func.hessian(loss)(torch.cat([weight.flatten() for weight in names.values()]))
    H = ss.Hessian(model, nn.functional.mse_loss, [(x, torch.zeros_like(x))])
    torch.testing.assert_close(H.matmat(torch.eye(sum(sizes)).double()[None])[0], expected)


def test_a_resolved_model_has_its_values(tmp_path: Path) -> None:
    file = tmp_path / "sharing.py"
    file.write_text(
        "import torch\nfrom tests.trace.test_shared_modules import Shared\n"
        "def model():\n    return Shared(), torch.randn(4000, 6)\n"
    )
    model = resolve(f"{file}:model").model
    assert not any(tensor.is_meta for tensor in (*model.parameters(), *model.buffers()))
    assert model.head.weight is model.blocks[2].shared.weight
