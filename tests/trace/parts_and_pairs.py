"""Small networks whose state stands in parts, or is a pair of streams, and sums that only look like theirs.

Each has a known number of units: what a reader of its forward would call its residual updates.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tests.trace.nets import Case, D, Residual, mlp, tokens, vector

HALF = D // 2


# -- a state in parts


class FirstTokenApart(nn.Module):
    """As in Timesformer: the first token is put before the others only where both are added to."""

    def __init__(self) -> None:
        super().__init__()
        self.early, self.late, self.head = mlp(), mlp(), nn.Linear(D, D)

    def forward(self, x: Tensor) -> Tensor:
        first, rest = x[:, :1], x[:, 1:] + self.early(x[:, 1:])
        mixed = self.late(torch.cat([first + 0.5, rest], 1).flip(1))
        return torch.cat([first, rest], 1) + torch.cat([mixed[:, :2].mean(1, True), mixed[:, 1:]], 1)


class DualPath(nn.Module):
    """Some channels are added to, the others are kept, and new ones are put behind them."""

    def __init__(self, kept: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(nn.Linear(D + kept, 12), nn.ReLU(), nn.Linear(12, D + 3))

    def forward(self, x: Tensor) -> Tensor:
        y = self.branch(x)
        return torch.cat([x[..., :D] + y[..., :D], x[..., D:], y[..., D:]], -1)


class DualPathOfTwo(nn.Module):
    """The same with both paths handed on one by one."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(D + 2 + 3 * i, 12), nn.ReLU(), nn.Linear(12, D + 3)) for i in range(3)
        )

    def forward(self, x: Tensor) -> Tensor:
        both = torch.cat([x, 2 * x[..., :2]], -1)
        total, dense = both[..., :D], both[..., D:]
        for block in self.blocks:
            y = block(torch.cat([total, dense], -1))
            total, dense = total + y[..., :D], torch.cat([dense, y[..., D:]], -1)
        return torch.cat([total, dense], -1)


# -- pairs of streams


class PixelsAndPatches(nn.Module):
    """As in TNT: a patch gets what became of its pixels, in every block, and gives them nothing. folded: the pixels
    have the batch and the patches in one axis."""

    def __init__(self, folded: bool) -> None:
        super().__init__()
        self.folded = folded
        self.pixels, self.patches = (nn.ModuleList(Residual(mlp(w)) for _ in range(2)) for w in (2, D))
        self.up, self.first = nn.ModuleList(nn.Linear(D, D) for _ in range(2)), nn.Linear(D, D)

    def forward(self, x: Tensor) -> Tensor:
        """(B, tokens, D): a token is a patch of four pixels."""
        patches, pixels = self.first(x), x.unflatten(-1, (4, 2))
        pixels = pixels.flatten(0, 1) if self.folded else pixels
        for inner, up, outer in zip(self.pixels, self.up, self.patches, strict=True):
            pixels = inner(pixels)
            patches = outer(patches + up(pixels.reshape(-1, *x.shape[1:])))
        return patches


class AffineCoupling(nn.Module):
    """One half is scaled and shifted by functions of the other; then all channels are mixed."""

    def __init__(self) -> None:
        super().__init__()
        self.branch, self.mix = nn.Sequential(nn.Linear(HALF, 12), nn.ReLU(), nn.Linear(12, D)), nn.Linear(D, D)

    def forward(self, x: Tensor) -> Tensor:
        kept, changed = self.mix(x).chunk(2, -1)
        scale, shift = self.branch(kept).chunk(2, -1)
        return torch.cat([kept, changed * torch.exp(torch.tanh(scale)) + shift], -1)


class FusedResolutions(nn.Module):
    """As in HRNet: each of two streams gets something of the other at once; that fuses them, and is no unit."""

    def __init__(self) -> None:
        super().__init__()
        self.fine, self.coarse = (nn.ModuleList(Residual(mlp(w)) for _ in range(3)) for w in (D, HALF))
        self.up, self.down = (
            nn.ModuleList(nn.Linear(HALF, D) for _ in range(3)),
            nn.ModuleList(nn.Linear(D, HALF) for _ in range(3)),
        )

    def forward(self, x: Tensor) -> Tensor:
        fine, coarse = x, x[..., :HALF]
        for one, two, up, down in zip(self.fine, self.coarse, self.up, self.down, strict=True):
            fine, coarse = one(fine), two(coarse)
            fine, coarse = torch.relu(fine + up(coarse)), torch.relu(down(fine) + coarse)
        return torch.cat([fine, coarse], -1)


class TimeInEveryBlock(nn.Module):
    """A context that is added inside every branch and stays what it is."""

    def __init__(self) -> None:
        super().__init__()
        self.time = mlp()
        self.into, self.first, self.last = (nn.ModuleList(nn.Linear(D, D) for _ in range(3)) for _ in range(3))

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        time = self.time(time)
        for into, first, last in zip(self.into, self.first, self.last, strict=True):
            x = x + last(torch.relu(first(x) + into(time)))
        return x


# -- products with a function of the state


class TimesItsGate(nn.Module):
    """x + x g(x): the branch is the product."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(D, D)

    def forward(self, x: Tensor) -> Tensor:
        return x + x * torch.sigmoid(self.gate(x))


class PredictedStreams(nn.Module):
    """As in AltUp: all streams get a mixture of them whose weights come from the first; at the end they are read out,
    each by a map of its own, which is no unit."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ModuleList(nn.Linear(D, 9) for _ in range(2))
        self.heads = nn.ModuleList(nn.Linear(D, D) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        """(B, tokens, D)."""
        streams = torch.stack([x, 0.5 * x, -x], -1)
        for weights in self.weights:
            mixing = torch.tanh(weights(streams[..., 0])).unflatten(-1, (3, 3))
            streams = streams + streams @ mixing
        return (streams[..., 0] + self.heads[0](streams[..., 1]) + self.heads[1](streams[..., 2])) / 3


# -- averages that are taken out of the state


class Trends(nn.Module):
    """As in Autoformer: after every sum its moving average is taken out, and the averages are collected."""

    def __init__(self) -> None:
        super().__init__()
        self.branches = nn.ModuleList(nn.ModuleList(mlp() for _ in range(3)) for _ in range(2))
        self.project = nn.ModuleList(nn.Linear(D, D) for _ in range(2))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        total = 0.1 * x
        for branches, project in zip(self.branches, self.project, strict=True):
            trends = []
            for branch in branches:
                x = x + branch(x)
                trends.append(nn.functional.avg_pool1d(x.transpose(1, 2), 3, 1, 1).transpose(1, 2))
                x = x - trends[-1]
            total = total + project(trends[0] + trends[1] + trends[2])
        return x, total


# -- the last block of a list


class TwoSumsAndNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.norm = mlp(), mlp(), nn.LayerNorm(D)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.one(x)
        return self.norm(x + self.two(x))


class NormAfterLast(nn.Module):
    """As in a conformer: the norm that ends a block is a tail in the last as well, where another norm follows."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks, self.norm = nn.ModuleList(TwoSumsAndNorm() for _ in range(3)), nn.LayerNorm(D)
        self.head = nn.Linear(D, D)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def pair(batch: int) -> tuple[Tensor, Tensor]:
    return vector(batch), vector(batch)


PATCHES = [
    unit
    for i in range(2)
    for unit in ((f"pixels.{i}", "identity"), (f"up.{i}", "identity"), (f"patches.{i}", "identity"))
]
RESIDUALS = [unit for i in range(3) for unit in ((f"fine.{i}", "identity"), (f"coarse.{i}", "identity"))]
PARTS: dict[str, Case] = {
    "first token apart": Case(
        lambda: nn.Sequential(FirstTokenApart(), FirstTokenApart()),
        tokens,
        [(f"{i}.{name}", "identity") for i in range(2) for name in ("early", "late")],
    ),
    "dual path": Case(
        lambda: nn.Sequential(DualPath(0), DualPath(3), DualPath(6)), vector, [(str(i), "pad") for i in range(3)]
    ),
    "dual path of two": Case(DualPathOfTwo, vector, [(f"blocks.{i}", "pad") for i in range(3)]),
    "pixels and patches": Case(lambda: PixelsAndPatches(False), tokens, PATCHES),
    "pixels and patches, folded": Case(lambda: PixelsAndPatches(True), tokens, PATCHES),
    "affine coupling": Case(
        lambda: nn.Sequential(AffineCoupling(), AffineCoupling()), vector, [("0", "gated"), ("1", "gated")]
    ),
    "fused resolutions": Case(FusedResolutions, vector, RESIDUALS, left_out=["concatenation", *["parallel"] * 6]),
    "time in every block": Case(TimeInEveryBlock, pair, [(f"first.{i}", "identity") for i in range(3)]),
    "times its gate": Case(
        lambda: nn.Sequential(TimesItsGate(), TimesItsGate()), vector, [("0", "identity"), ("1", "identity")]
    ),
    "predicted streams": Case(
        PredictedStreams, tokens, [("weights.0", "identity"), ("weights.1", "identity")], left_out=["collecting"]
    ),
    "trends": Case(
        Trends,
        tokens,
        [(f"branches.{i}.{k}", "identity") for i in range(2) for k in range(3)],
        left_out=["collecting"] * 4,
    ),
    "norm after the last block": Case(
        NormAfterLast,
        vector,
        [(f"blocks.{i}.{name}", "identity") for i in range(3) for name in ("one", "two")],
        tails=[[], ["layer_norm"]] * 3,
    ),
}
