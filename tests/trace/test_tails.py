"""Activations and norms that are written by hand after a sum are tails as their named forms are."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import skipscope as ss
from tests.slow import thinned
from tests.trace.nets import D, mlp

TAILS: dict[str, Callable[[Tensor], Tensor]] = {
    "product with a mask": lambda z: z * (z > 0),
    "product with a mask of floats": lambda z: z * (z > 0).to(z.dtype),
    "where": lambda z: torch.where(z > 0, z, 0.0),
    "where with zeros": lambda z: torch.where(z > 0, z, torch.zeros_like(z)),
    "maximum": lambda z: torch.maximum(z, torch.zeros((), dtype=z.dtype)),
    "max": lambda z: torch.max(z, torch.zeros_like(z)),
    "clamp": lambda z: z.clamp(min=0),
    "masked_fill": lambda z: z.masked_fill(z < 0, 0),
    "absolute": lambda z: (z + z.abs()) / 2,
    "leaky": lambda z: torch.where(z > 0, z, 0.1 * z),
    "silu": lambda z: z * torch.sigmoid(z),
    "gelu": lambda z: 0.5 * z * (1 + torch.tanh(0.8 * (z + 0.044 * z**3))),
    "rms norm": lambda z: z * torch.rsqrt(z.pow(2).mean(-1, keepdim=True) + 1e-6),
    "layer norm": lambda z: (z - z.mean(-1, keepdim=True)) / (z.var(-1, keepdim=True) + 1e-5).sqrt(),
}


class Block(nn.Module):
    def __init__(self, tail: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.branch, self.tail = mlp(), tail

    def forward(self, x: Tensor) -> Tensor:
        return self.tail(x + self.branch(x))


BY_MODULES = ("product with a mask", "max", "absolute", "rms norm")  # a flat forward is tested with all tails


@pytest.mark.parametrize(
    ("name", "loop"),
    thinned(
        itertools.product(TAILS, (False, True)),
        fast=[*((name, True) for name in TAILS), *((name, False) for name in BY_MODULES)],
    ),
)
def test_a_tail_by_hand(name: str, loop: bool) -> None:
    class Loop(nn.Module):
        """The same in one flat forward."""

        def __init__(self) -> None:
            super().__init__()
            self.branches, self.head = nn.ModuleList(mlp() for _ in range(3)), nn.Linear(D, 2)

        def forward(self, x: Tensor) -> Tensor:
            for branch in self.branches:
                x = TAILS[name](x + branch(x))
            return self.head(x)

    torch.manual_seed(0)
    blocks = nn.Sequential(Block(TAILS[name]), Block(TAILS[name]), nn.Linear(D, 2))
    model, x = (Loop() if loop else blocks).double().eval(), torch.randn(3, D).double()
    trunk = ss.trace(model, x)
    assert [bool(unit.tail) for unit in trunk.units] == [True] * len(trunk)
    point = trunk.at(x)
    for unit in trunk.units:
        sums = point.sum(unit)
        torch.testing.assert_close(point.exit(unit), TAILS[name](sums))
        torch.testing.assert_close(unit.tail(sums), TAILS[name](sums))
        J = torch.func.vmap(torch.func.jacrev(TAILS[name]))(sums)
        inner = unit.jacobian(point, of="branch").dense()
        torch.testing.assert_close(unit.jacobian(point, of="branch", tail=True).dense(), J @ inner)
        found = ss.singular_values(unit.jacobian(point))
        exact = torch.linalg.svdvals(unit.jacobian(point).dense()).cpu()
        assert ((found.values - exact).abs() <= found.bound + 1e-13).all()


def test_what_belongs_together_is_not_cut_by_a_module() -> None:
    class Masks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.branch = mlp()

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            z = x + self.branch(x)
            return z, z > 0

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks, self.head = nn.ModuleList(Masks() for _ in range(3)), nn.Linear(D, 2)

        def forward(self, x: Tensor) -> Tensor:
            for block in self.blocks:
                z, mask = block(x)
                x = z * mask
            return self.head(x)

    torch.manual_seed(0)
    x = torch.randn(3, D)
    trunk = ss.trace(Net().eval(), x)
    point = trunk.at(x)
    for unit in trunk.units:
        assert point.exit(unit).is_floating_point()
        torch.testing.assert_close(unit(point.entry(unit)), point.exit(unit))
        torch.testing.assert_close(unit.tail(point.sum(unit)), point.exit(unit))
