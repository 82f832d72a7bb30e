"""The axis of the samples where several axes have their number: as many tokens as samples."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import skipscope as ss

B = T = 4
C = 6


class Mixer(nn.Module):
    """Mixes tokens; its state is (tokens, samples, channels) for a batch of (samples, tokens, channels)."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.channels = nn.Linear(T, T), nn.Linear(C, C)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.channels(torch.tanh(self.tokens(x.transpose(0, 2)).transpose(0, 2)))


class Net(nn.Module):
    """branching: no graph; fixed: a graph for one batch size only."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.blocks = kind, nn.ModuleList(Mixer() for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        h = x.transpose(0, 1)
        if self.kind == "branching" and h.sum() > 1e6:
            return h
        if self.kind == "fixed":
            h = h.reshape(T, B, C)
        for block in self.blocks:
            h = block(h)
        return h.transpose(0, 1)


def exact(net: Net, x: Tensor) -> Tensor:
    """Of the first block, per sample."""
    return torch.stack(
        [
            torch.func.jacrev(lambda h: net.blocks[0](h[:, None])[:, 0])(sample).reshape(T * C, T * C)
            for sample in x.double()
        ]
    ).detach()


@pytest.mark.parametrize(
    ("kind", "units"),
    [
        ("free", None),
        ("fixed", None),
        ("free", ["blocks.0", "blocks.1"]),
        ("branching", ["blocks.0", "blocks.1"]),
        ("fixed", ["blocks.0", "blocks.1"]),
    ],
)
def test_as_many_tokens_as_samples(kind: str, units: list[str] | None) -> None:
    torch.manual_seed(0)
    net, x = Net(kind).double().eval(), torch.randn(B, T, C).double()
    trunk = ss.trace(net, x, units=units)
    assert [unit.batch_axis for unit in trunk.units] == [1, 1]
    assert [unit.exit_axis for unit in trunk.units] == [1, 1]
    torch.testing.assert_close(trunk[0].jacobian(x).dense(), exact(net, x))


def test_one_sample_and_one_token() -> None:
    class Channels(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = nn.Linear(C, C)

        def forward(self, x: Tensor) -> Tensor:
            h = x.transpose(0, 1)
            return h + self.block(h) if h.sum() < 1e6 else h

    for shape in ((1, 3, C), (3, 1, C), (1, 1, C)):
        x = torch.randn(*shape)
        trunk = ss.trace(Channels().eval(), x, units=["block"])
        assert trunk[0].jacobian(x).shape == (shape[0], shape[1] * C, shape[1] * C)


def test_a_state_without_an_axis_of_its_own_for_the_batch() -> None:
    class Folded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = nn.Sequential(nn.Linear(B, B), nn.ReLU(), nn.Linear(B, B))

        def forward(self, x: Tensor) -> Any:
            h = x.reshape(-1, B)  # samples and tokens in one axis; the other has their number by chance
            return (h + self.block(h)).reshape(x.shape)

    x = torch.randn(B, T, B)
    with pytest.raises(ss.TraceError, match="no axis of the batch's size"):
        ss.trace(Folded().eval(), x, units=["block"])
