"""Small networks with known residual units: the hard cases of the rule, one class each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

D = 8


def mlp(width: int = D, hidden: int = 12) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, width))


class Residual(nn.Module):
    def __init__(self, branch: nn.Module) -> None:
        super().__init__()
        self.branch = branch

    def forward(self, x: Tensor) -> Tensor:
        return x + self.branch(x)


class FlatLoop(nn.Module):
    """No module around a unit: everything happens in the model's own forward."""

    def __init__(self, norm_at_end: bool = False) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(D, D) for _ in range(3))
        self.norms = nn.ModuleList(nn.LayerNorm(D) for _ in range(3))
        self.last = nn.LayerNorm(D) if norm_at_end else nn.Identity()
        self.head = nn.Linear(D, 4)

    def forward(self, x: Tensor) -> Tensor:
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = x + torch.relu(layer(norm(x)))
        return self.head(self.last(x))


class FlatLoopWithTail(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(D, D) for _ in range(3))
        self.head = nn.Linear(D, 4)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.relu(x + layer(x))
        return self.head(x.flatten(1))


class BareParameters(nn.Module):
    """A model without a single child module."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ParameterList(nn.Parameter(torch.randn(D, D) / 4) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        for weight in self.weights:
            x = x + torch.tanh(x @ weight)
        return x


class Highway(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.transform, self.gate = nn.Linear(D, D), nn.Linear(D, D)

    def forward(self, x: Tensor) -> Tensor:
        t = torch.sigmoid(self.gate(x))
        return t * torch.relu(self.transform(x)) + (1 - t) * x


class UNet(nn.Module):
    """Residual blocks on two levels; the encoder's state is concatenated (or added) to the decoder's."""

    def __init__(self, join: str) -> None:
        super().__init__()
        self.join = join
        self.stem = nn.Conv2d(1, 4, 3, padding=1)
        self.encode, self.middle, self.decode = (Residual(conv_block(4)) for _ in range(3))
        self.down, self.up = nn.Conv2d(4, 4, 2, 2), nn.ConvTranspose2d(4, 4, 2, 2)
        self.fuse = nn.Conv2d(8 if join == "cat" else 4, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        high = self.encode(self.stem(x))
        low = self.up(self.middle(self.down(high)))
        joined = torch.cat([high, low], 1) if self.join == "cat" else high + low
        return self.decode(self.fuse(joined))


def conv_block(channels: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU(), nn.Conv2d(channels, channels, 3, padding=1)
    )


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(D, D) for _ in range(4))

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        return self.out(F.scaled_dot_product_attention(self.q(x), self.k(context), self.v(context)))


class Decoder(nn.Module):
    """Self-attention, cross-attention and feed-forward; the memory is a second input."""

    def __init__(self) -> None:
        super().__init__()
        self.own, self.cross, self.mlp = Attention(), Attention(), mlp()
        self.norms = nn.ModuleList(nn.LayerNorm(D) for _ in range(3))

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        h = self.norms[0](x)
        x = x + self.own(h, h)
        x = x + self.cross(self.norms[1](x), memory)
        return x + self.mlp(self.norms[2](x))


class Twice(nn.Module):
    """One residual module called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.block = Residual(mlp())

    def forward(self, x: Tensor) -> Tensor:
        return self.block(self.block(x))


class TimeBlock(nn.Module):
    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(inside, outside, 3, padding=1), nn.Conv2d(outside, outside, 3, padding=1)
        self.time = nn.Linear(D, outside)
        self.skip = nn.Conv2d(inside, outside, 1) if inside != outside else nn.Identity()

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        h = self.first(F.silu(x)) + self.time(F.silu(t))[:, :, None, None]
        return self.skip(x) + self.second(F.silu(h))


class TimeConditioned(nn.Module):
    """A diffusion net's blocks: a time embedding enters every branch, one block has a projection."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 4, 3, padding=1)
        self.time = nn.Sequential(nn.Linear(1, D), nn.SiLU(), nn.Linear(D, D))
        self.blocks = nn.ModuleList([TimeBlock(4, 4), TimeBlock(4, 6), TimeBlock(6, 6)])

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        x, embedded = self.stem(x), self.time(t[:, None])
        for block in self.blocks:
            x = block(x, embedded)
        return x


class Scaled(nn.Module):
    """ReZero, LayerScale, and a skip with a factor."""

    def __init__(self) -> None:
        super().__init__()
        self.branches = nn.ModuleList(mlp() for _ in range(3))
        self.rezero = nn.Parameter(torch.tensor(0.1))
        self.scale = nn.Parameter(torch.full((D,), 0.1))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.rezero * self.branches[0](x)
        x = x + self.scale * self.branches[1](x)
        return 0.5 * x + self.branches[2](x)


class ThreeBranches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = mlp(), mlp()

    def forward(self, x: Tensor) -> Tensor:
        return x + self.a(x) + self.b(x)


class OddSums(nn.Module):
    """sub, addcmul, alpha, lerp, a Python sum, a summed stack, a fused matrix product."""

    def __init__(self) -> None:
        super().__init__()
        self.branches = nn.ModuleList(mlp() for _ in range(7))
        self.gamma = nn.Parameter(torch.full((D,), 0.3))
        self.weight = nn.Parameter(torch.randn(D, D) / 4)

    def forward(self, x: Tensor) -> Tensor:
        x = x - self.branches[0](x)
        x = torch.addcmul(x, self.gamma, self.branches[1](x), value=0.5)
        x = torch.add(x, self.branches[2](x), alpha=0.25)
        x = torch.lerp(x, self.branches[3](x), 0.3)
        x = sum([x, self.branches[4](x)])
        x = torch.stack([x, self.branches[5](x)]).sum(0)
        x = self.branches[6](x) - x
        return torch.addmm(x, torch.relu(x), self.weight)


class Nested(nn.Module):
    """Residual in residual: two inner units in an outer one, then a plain one."""

    def __init__(self) -> None:
        super().__init__()
        self.outer = Residual(nn.Sequential(Residual(mlp()), Residual(mlp())))
        self.after = Residual(mlp())

    def forward(self, x: Tensor) -> Tensor:
        return self.after(self.outer(x))


class HandWritten(nn.Module):
    """A plain net: the sums inside its GELU, its norm and its rotation are no units."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(D, D), nn.Linear(D, D)
        self.gain = nn.Parameter(torch.ones(D))

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        h = 0.5 * h * (1 + torch.tanh(0.79788456 * (h + 0.044715 * h**3)))
        h = (h - h.mean(-1, keepdim=True)) / (h.var(-1, keepdim=True) + 1e-5).sqrt() * self.gain
        angle = torch.arange(D, dtype=h.dtype, device=h.device)
        turned = torch.cat([-h[..., D // 2 :], h[..., : D // 2]], -1)
        return self.second(h * angle.cos() + turned * angle.sin())


class Coupling(nn.Module):
    """A reversible block: each half is added to a function of the other."""

    def __init__(self) -> None:
        super().__init__()
        self.f, self.g = mlp(D // 2), mlp(D // 2)

    def forward(self, x: Tensor) -> Tensor:
        a, b = x.chunk(2, -1)
        a = a + self.f(b)
        b = b + self.g(a)
        return torch.cat([a, b], -1)


class Parallel(nn.Module):
    """Two branches added, no skip."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = mlp(), mlp()

    def forward(self, x: Tensor) -> Tensor:
        return self.a(x) + self.b(x)


class LowRank(nn.Module):
    """A linear layer with a low-rank adapter."""

    def __init__(self) -> None:
        super().__init__()
        self.base, self.down, self.up = nn.Linear(D, D), nn.Linear(D, 2, bias=False), nn.Linear(2, D, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.up(self.down(x))


class Preactivation(nn.Module):
    """Pre-activation blocks with batch norm, a projection at the change of width, and a norm at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 4, 3, padding=1)
        self.blocks = nn.Sequential(PreactivationBlock(4, 4), PreactivationBlock(4, 6), PreactivationBlock(6, 6))
        self.norm, self.head = nn.BatchNorm2d(6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.blocks(self.stem(x))))
        return self.head(x.mean((2, 3)))


class PreactivationBlock(nn.Module):
    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.BatchNorm2d(inside), nn.BatchNorm2d(outside)
        self.conv1, self.conv2 = nn.Conv2d(inside, outside, 3, padding=1), nn.Conv2d(outside, outside, 3, padding=1)
        self.project = nn.Conv2d(inside, outside, 1) if inside != outside else None

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.norm1(x))
        skip = x if self.project is None else self.project(h)
        return skip + self.conv2(torch.relu(self.norm2(self.conv1(h))))


class ZeroPadding(nn.Module):
    """The shortcut of the first CIFAR ResNets: subsample, pad the channels with zeros."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, stride=2, padding=1)
        self.last = nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        skip = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 1, 1))
        return torch.relu(self.last(torch.relu(self.conv(x))) + skip)


class PoolSkip(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 2, 3, stride=2, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return F.avg_pool2d(x, 2) + torch.relu(self.conv(x))


class SequenceFirst(nn.Module):
    """The batch is the second axis of every state."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(D, 2)
        self.mlp = mlp()

    def forward(self, x: Tensor) -> Tensor:
        x = x.transpose(0, 1)
        x = x + self.attention(x, x, x, need_weights=False)[0]
        x = x + self.mlp(x)
        return x.transpose(0, 1)


class StructuredOutputs(nn.Module):
    """Several inputs by keyword, a dict of outputs, one of them from the middle."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Residual(mlp()), Residual(mlp())

    def forward(self, left: Tensor, right: Tensor, scale: float = 1.0) -> dict[str, Any]:
        middle = self.first(left * right)
        return {"middle": middle, "end": (self.second(middle) * scale, None)}


class FoldedBatch(nn.Module):
    """The batch and the tokens are in one axis while it adds; one block at a time, or for all of them."""

    def __init__(self, blocks: int) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(Residual(mlp()) for _ in range(blocks)))

    def forward(self, x: Tensor) -> Tensor:
        return self.blocks(x.reshape(-1, D)).reshape(x.shape)


class LeafBlock(nn.Module):
    """A unit written as one leaf module with bare weights."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Parameter(torch.randn(D, D) / 4), nn.Parameter(torch.randn(D, D) / 4)

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.relu(x @ self.inner) @ self.outer


class ModulatedBlock(nn.Module):
    """A second input scales and shifts the branch."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.scale, self.shift = (nn.Linear(D, D) for _ in range(4))

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        h = self.first(x) * (1 + self.scale(t)) + self.shift(t)
        return x + self.second(torch.relu(h))


class Modulated(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(ModulatedBlock(), ModulatedBlock())

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        return self[1](self[0](x, t), t)


class AddedContext(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mlp, self.bring = mlp(), nn.Linear(D, D)

    def forward(self, x: Tensor, c: Tensor) -> Tensor:
        return x + (self.mlp(x) + self.bring(c))


class InPlaceOnSlice(nn.Module):
    """The sum is written into a slice of a concatenation."""

    def __init__(self) -> None:
        super().__init__()
        self.main, self.cheap = nn.Conv2d(4, 2, 1), nn.Conv2d(2, 2, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        first = torch.relu(self.main(x))
        h = torch.cat([first, torch.relu(self.cheap(first))], 1)[:, :4]
        h += x
        return h


class ReadForShape(nn.Module):
    """A value inside the branch is also asked for its shape."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(D, D), nn.Linear(D, D)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.inner(x))
        return x + self.outer(torch.maximum(h, torch.zeros_like(h[:, :1])))


class SliceSkip(nn.Module):
    """The first token alone goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.mlp = mlp()

    def forward(self, x: Tensor) -> Tensor:
        return x[:, :1] + self.mlp(x).mean(1, keepdim=True)


class BesideChain(nn.Module):
    """A branch beside a chain of inner units."""

    def __init__(self) -> None:
        super().__init__()
        self.branch, self.chain = nn.Linear(D, D), nn.Sequential(Residual(mlp()), Residual(mlp(D, 14)))

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.relu(self.branch(x)) + self.chain(x)


class SeveralTails(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.branches = nn.ModuleList(mlp() for _ in range(3))
        self.norm, self.head = nn.LayerNorm(D), nn.Linear(D, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(x + self.branches[0](x))
        x = self.norm(x + self.branches[1](x))
        return self.head(x + self.branches[2](x))


def vector(batch: int = 3) -> Tensor:
    return torch.randn(batch, D)


def tokens(batch: int = 3) -> Tensor:
    return torch.randn(batch, 5, D)


def image(batch: int = 3, channels: int = 1) -> Tensor:
    return torch.randn(batch, channels, 8, 8)


@dataclass(frozen=True)
class Case:
    """A network, its input, and what must be found: (name, skip) of each unit, and what must be left out."""

    make: Callable[[], nn.Module]
    x: Callable[[int], Any]
    units: list[tuple[str, str]]
    tails: list[list[str]] | None = None
    left_out: list[str] = field(default_factory=list)  # kinds, without `pointwise`
    contexts: list[bool] | None = None
    parents: list[int | None] | None = None
    branches: list[int] | None = None


CASES: dict[str, Case] = {
    "flat loop": Case(FlatLoop, vector, [(f"layers.{i}", "identity") for i in range(3)], tails=[[], [], []]),
    "flat loop, final norm": Case(
        lambda: FlatLoop(True), vector, [(f"layers.{i}", "identity") for i in range(3)], tails=[[], [], []]
    ),
    "flat loop, relu": Case(
        FlatLoopWithTail, vector, [(f"layers.{i}", "identity") for i in range(3)], tails=[["relu"]] * 3
    ),
    "bare parameters": Case(BareParameters, vector, [(f"weights.{i}", "identity") for i in range(3)]),
    "residual, relu": Case(
        lambda: nn.Sequential(*[m for _ in range(3) for m in (Residual(mlp()), nn.ReLU())], nn.Linear(D, 2)),
        vector,
        [("0", "identity"), ("2", "identity"), ("4", "identity")],
        tails=[["relu"]] * 3,
    ),
    "highway": Case(lambda: nn.Sequential(Highway(), Highway()), vector, [("0", "gated"), ("1", "gated")]),
    "u-net, concatenated": Case(
        lambda: UNet("cat"),
        image,
        [("encode", "identity"), ("middle", "identity"), ("decode", "identity")],
        left_out=["concatenation"],
    ),
    "u-net, added": Case(
        lambda: UNet("add"),
        image,
        [("encode", "identity"), ("middle", "identity"), ("middle#2", "identity"), ("decode", "identity")],
        parents=[None, 2, None, None],
    ),
    "cross-attention": Case(
        Decoder,
        lambda batch: (tokens(batch), torch.randn(batch, 7, D)),
        [("own", "identity"), ("cross", "identity"), ("mlp", "identity")],
        contexts=[False, True, False],
    ),
    "called twice": Case(Twice, vector, [("block", "identity"), ("block#2", "identity")]),
    "time conditioning": Case(
        TimeConditioned,
        lambda batch: (image(batch), torch.rand(batch)),
        [("blocks.0", "identity"), ("blocks.1", "projection"), ("blocks.2", "identity")],
        contexts=[True, True, True],
    ),
    "rezero, layer scale, factor": Case(
        Scaled, vector, [("branches.0", "identity"), ("branches.1", "identity"), ("branches.2", "scaled")]
    ),
    "three branches": Case(lambda: nn.Sequential(ThreeBranches()), vector, [("0", "identity")], branches=[2]),
    "odd sums": Case(
        OddSums,
        vector,
        [
            ("branches.0", "identity"),
            ("branches.1", "identity"),
            ("branches.2", "identity"),
            ("branches.3", "scaled"),
            ("branches.4", "identity"),
            ("branches.5", "identity"),
            ("branches.6", "scaled"),
            ("weight", "identity"),
        ],
    ),
    "residual in residual": Case(
        Nested,
        vector,
        [("outer.branch.0", "identity"), ("outer.branch.1", "identity"), ("outer", "identity"), ("after", "identity")],
        parents=[2, 2, None, None],
    ),
    "one unit inside another": Case(
        lambda: Residual(Residual(mlp())), vector, [("branch", "identity"), ("branch#2", "identity")], parents=[1, None]
    ),
    "hand-written gelu, norm, rotation": Case(HandWritten, vector, []),
    "coupling": Case(Coupling, vector, [("f", "identity"), ("g", "identity")]),
    "parallel branches": Case(Parallel, vector, [], left_out=["parallel"]),
    "low-rank adapter": Case(
        lambda: nn.Sequential(Residual(nn.Sequential(LowRank(), nn.ReLU(), LowRank()))),
        vector,
        [("0", "identity")],
    ),
    "pre-activation": Case(
        Preactivation,
        image,
        [("blocks.0", "identity"), ("blocks.1", "projection"), ("blocks.2", "identity")],
        tails=[[], [], []],
    ),
    "zero padding": Case(ZeroPadding, lambda b: image(b, 2), [("last", "pad")], tails=[["relu"]]),
    "pooled skip": Case(PoolSkip, lambda b: image(b, 2), [("conv", "pool")]),
    "sequence first inside": Case(SequenceFirst, tokens, [("attention", "identity"), ("mlp", "identity")]),
    "dict inputs, nested outputs": Case(
        StructuredOutputs,
        lambda batch: {"left": vector(batch), "right": vector(batch), "scale": 2.0},
        [("first", "identity"), ("second", "identity")],
    ),
    "batch folded into tokens around a sum": Case(lambda: FoldedBatch(1), tokens, [("blocks.0", "identity")]),
    "batch folded into tokens": Case(
        lambda: FoldedBatch(2), tokens, [("blocks.0", "identity"), ("blocks.1", "identity")]
    ),
    "modulated by a context": Case(
        Modulated,
        lambda batch: (vector(batch), vector(batch)),
        [("0", "identity"), ("1", "identity")],
        contexts=[True, True],
    ),
    "context added inside the sum": Case(
        AddedContext, lambda batch: (vector(batch), vector(batch)), [("mlp", "identity")], contexts=[True]
    ),
    "sum in place on a slice": Case(InPlaceOnSlice, lambda b: image(b, 4), [("cheap", "identity")]),
    "read for its shape alone": Case(ReadForShape, vector, [("inner", "identity")]),
    "a slice as skip": Case(SliceSkip, tokens, [("mlp", "layout")]),
    "parallel to a chain": Case(
        BesideChain,
        vector,
        [("chain.0", "identity"), ("chain.1", "identity"), ("chain", "identity")],
        parents=[2, 2, None],
        branches=[1, 1, 2],
    ),
    "several tails in flat code": Case(
        SeveralTails,
        vector,
        [(f"branches.{i}", "identity") for i in range(3)],
        tails=[["relu"], ["layer_norm"], []],
    ),
    "leaf block": Case(lambda: nn.Sequential(LeafBlock(), LeafBlock()), vector, [("0", "identity"), ("1", "identity")]),
    "post-norm encoder": Case(
        lambda: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(D, 2, 16, batch_first=True), 2, norm=nn.LayerNorm(D), enable_nested_tensor=False
        ),
        tokens,
        [(f"layers.{i}.{part}", "identity") for i in range(2) for part in ("self_attn", "linear1")],
        tails=[["layer_norm"]] * 4,
    ),
    "no skip at all": Case(lambda: mlp(), vector, []),
}
