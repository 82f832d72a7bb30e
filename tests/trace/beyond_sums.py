"""Small networks in which a residual sum is not one plain sum: side outputs, gates, streams, collected states.

Each has a known number of units: what a reader of its forward would call its residual updates.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.trace.nets import Case, D, Residual, mlp, tokens, vector


class Chain(nn.Module):
    def __init__(self, *blocks: nn.Module) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)


# -- something inside a unit is also returned, or used elsewhere


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(D, D) for _ in range(4))

    def forward(self, x: Tensor, value: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """The result, the attention map and the values; value: of another layer, mixed with its own."""
        own = self.value(x)
        used = own if value is None else 0.5 * own + 0.5 * value
        weights = torch.softmax(self.query(x) @ self.key(x).transpose(1, 2) / D**0.5, -1)
        return self.out(weights @ used), weights, own


class ReturnsMaps(Chain):
    """Attention maps and all hidden states are returned beside the result."""

    def forward(self, x: Tensor) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        maps, states = [], [x]
        for block in self.blocks:
            change, weights, _ = block(x)
            x = x + change
            maps.append(weights)
            states.append(x)
        return x, maps, states


class Experts(nn.Module):
    """A mixture of experts with the best one for each token."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(D, 3)
        self.experts = nn.ModuleList(mlp() for _ in range(3))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.router(x)
        weights, best = torch.softmax(logits, -1).topk(1)
        every = torch.stack([expert(x) for expert in self.experts], -2)
        chosen = every.gather(-2, best[..., None].expand(*best.shape, D)).squeeze(-2)
        return chosen * weights, logits


class ReturnsLogits(Chain):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        every = []
        for block in self.blocks:
            change, logits = block(x)
            x = x + change
            every.append(logits)
        return x, torch.stack(every)


class AuxiliaryHead(Chain):
    """A second classifier reads a value inside the first unit."""

    def __init__(self) -> None:
        super().__init__(mlp(), mlp())
        self.first, self.head, self.auxiliary = nn.Linear(D, D), nn.Linear(D, 3), nn.Linear(D, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        inner = torch.relu(self.first(x))
        x = x + self.blocks[0](inner)
        x = x + self.blocks[1](x)
        return self.head(x), self.auxiliary(inner)


class ValueResidual(Chain):
    """All later layers read the values of the first."""

    def forward(self, x: Tensor) -> Tensor:
        first = None
        for block in self.blocks:
            change, _, own = block(x, first)
            first = own if first is None else first
            x = x + change
        return x


# -- gates


class HighwayOfDifference(nn.Module):
    """x + t (f(x) - x)."""

    def __init__(self) -> None:
        super().__init__()
        self.transform, self.gate = nn.Linear(D, D), nn.Linear(D, D)

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.sigmoid(self.gate(x)) * (torch.relu(self.transform(x)) - x)


class GatedRecurrent(nn.Module):
    """The gate of a recurrent unit around a branch, as in GTrXL."""

    def __init__(self) -> None:
        super().__init__()
        self.branch = mlp()
        self.wr, self.ur, self.wz, self.uz, self.wh, self.uh = (nn.Linear(D, D, bias=False) for _ in range(6))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.branch(x))
        r = torch.sigmoid(self.wr(y) + self.ur(x))
        z = torch.sigmoid(self.wz(y) + self.uz(x) - 1)
        return (1 - z) * x + z * torch.tanh(self.wh(y) + self.uh(r * x))


class Interpolated(nn.Module):
    """On the sphere, as in nGPT: learned steps from the state towards the branch, then back to length 1."""

    def __init__(self) -> None:
        super().__init__()
        self.branch, self.rate = mlp(), nn.Parameter(torch.full((D,), 0.1))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.rate * (F.normalize(self.branch(x), dim=-1) - x)
        return x / x.norm(dim=-1, keepdim=True)


class MixerDifference(nn.Module):
    """x + scale (mixer(norm(x)) - norm(x)), as in FastViT."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.mixer = nn.LayerNorm(D), mlp()
        self.scale = nn.Parameter(torch.full((D,), 0.1))

    def forward(self, x: Tensor) -> Tensor:
        normed = self.norm(x)
        return x + self.scale * (self.mixer(normed) - normed)


class Midpoint(nn.Module):
    """A Runge-Kutta step of order two."""

    def __init__(self) -> None:
        super().__init__()
        self.f = mlp()

    def forward(self, x: Tensor) -> Tensor:
        return x + 0.5 * self.f(x + 0.25 * self.f(x))


class RungeKutta4(Midpoint):
    def forward(self, x: Tensor) -> Tensor:
        f, h = self.f, 0.5
        k1 = f(x)
        k2 = f(x + h / 2 * k1)
        k3 = f(x + h / 2 * k2)
        k4 = f(x + h * k3)
        return x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


# -- several streams

STREAMS = 3


class HyperConnection(nn.Module):
    """x' = M(x) x + p(x) f(w(x) x) over streams; static: M, p and w are weights."""

    def __init__(self, static: bool = False) -> None:
        super().__init__()
        self.branch, self.static = mlp(), static
        self.mixing = nn.Parameter(torch.eye(STREAMS) + 0.1 * torch.randn(STREAMS, STREAMS))
        self.weights = nn.Linear(STREAMS * D, STREAMS * STREAMS + 2 * STREAMS)

    def forward(self, x: Tensor) -> Tensor:
        """(B, tokens, streams, D)."""
        dynamic = torch.tanh(self.weights(F.layer_norm(x.flatten(2), (STREAMS * D,))))
        mixing, before, after = dynamic.split([STREAMS * STREAMS, STREAMS, STREAMS], -1)
        mixing = self.mixing if self.static else self.mixing + mixing.unflatten(-1, (STREAMS, STREAMS))
        collapsed = (torch.sigmoid(before)[..., None] * x).sum(2)
        return mixing @ x + torch.sigmoid(after)[..., None] * self.branch(collapsed)[:, :, None]


class Streams(Chain):
    def forward(self, x: Tensor) -> Tensor:
        streams = x[:, :, None].expand(-1, -1, STREAMS, -1)
        for block in self.blocks:
            streams = block(streams)
        return streams.sum(2)


class ResiDual(Chain):
    """A post-norm stream, and one that only collects."""

    def __init__(self) -> None:
        super().__init__(*(mlp() for _ in range(4)))
        self.norms = nn.ModuleList(nn.LayerNorm(D) for _ in range(5))

    def forward(self, x: Tensor) -> Tensor:
        collected = x
        for block, norm in zip(self.blocks, self.norms, strict=False):
            change = block(x)
            collected = collected + change
            x = norm(x + change)
        return x + self.norms[4](collected)


class Momentum(Chain):
    def __init__(self) -> None:
        super().__init__(*(mlp() for _ in range(3)))

    def forward(self, x: Tensor) -> Tensor:
        velocity = torch.zeros_like(x)
        for block in self.blocks:
            velocity = 0.9 * velocity + 0.1 * block(x)
            x = x + velocity
        return x


# -- sums over many earlier states


class DenseFormer(Chain):
    """After each block a learned average of all states so far. written: how the average is."""

    def __init__(self, written: str) -> None:
        super().__init__(*(Residual(mlp()) for _ in range(3)))
        self.written = written
        self.weights = nn.ParameterList(torch.rand(n + 2) for n in range(3))

    def forward(self, x: Tensor) -> Tensor:
        states = [x]
        for block, weights in zip(self.blocks, self.weights, strict=True):
            states.append(block(x))
            if self.written == "sum":
                x = sum(weight * state for weight, state in zip(weights, states, strict=True))
            elif self.written == "tensordot":
                x = torch.tensordot(weights, torch.stack(states), dims=1)
            elif self.written == "einsum":
                x = torch.einsum("n,nbd->bd", weights, torch.stack(states))
            else:
                x = (weights[:, None, None] * torch.stack(states)).sum(0)
        return x


class WaveNet(Chain):
    """Gated convolutions with a residual and a collected output each."""

    def __init__(self) -> None:
        super().__init__(*(nn.Conv1d(D, 2 * D, 3, padding=1) for _ in range(3)))
        self.residual = nn.ModuleList(nn.Conv1d(D, D, 1) for _ in range(3))
        self.skips = nn.ModuleList(nn.Conv1d(D, D, 1) for _ in range(3))
        self.head = nn.Conv1d(D, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        x, collected = x.transpose(1, 2), torch.zeros(())
        for block, residual, skip in zip(self.blocks, self.residual, self.skips, strict=True):
            a, b = block(x).chunk(2, 1)
            z = torch.tanh(a) * torch.sigmoid(b)
            collected = collected + skip(z)
            x = x + residual(z)
        return self.head(torch.relu(collected))


class NBeats(Chain):
    def __init__(self) -> None:
        super().__init__(*(mlp() for _ in range(4)))
        self.backcasts = nn.ModuleList(nn.Linear(D, D) for _ in range(4))
        self.forecasts = nn.ModuleList(nn.Linear(D, 2) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        total = 0.0
        for block, backcast, forecast in zip(self.blocks, self.backcasts, self.forecasts, strict=True):
            h = torch.relu(block(x))
            x = x - backcast(h)
            total = total + forecast(h)
        return total


# -- sums that are not `add`


class OtherSum(nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.branch, self.how = mlp(), how
        self.weights = nn.Parameter(torch.tensor([1.0, 0.5]))

    def forward(self, x: Tensor) -> Tensor:
        if self.how == "mean of a stack":
            return torch.stack([x, self.branch(x)]).mean(0)
        if self.how == "weighted stack":
            return (self.weights[:, None, None, None] * torch.stack([x, self.branch(x)])).sum(0)
        if self.how == "tensordot":
            return torch.tensordot(self.weights, torch.stack([x, self.branch(x)]), dims=1)
        if self.how == "index_add":
            return x.index_add(1, torch.tensor([0, 2]), self.branch(x[:, [0, 2]]))
        if self.how == "scatter_add":
            chosen = x[..., 0].topk(2, 1).indices[..., None].expand(-1, -1, D)
            return x.scatter_add(1, chosen, self.branch(x.gather(1, chosen)))
        x = x.clone()
        x[:, 1:] += self.branch(x)[:, :-1]
        return x


# -- sums that are no residual units


class Snake(nn.Module):
    """x + sin(a x)^2 / a: an activation with a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.rate = nn.Linear(D, D), nn.Parameter(torch.ones(D))

    def forward(self, x: Tensor) -> Tensor:
        x = self.linear(x)
        return x + torch.sin(self.rate * x) ** 2 / self.rate


class TwoPools(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(D, D, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x.transpose(1, 2))
        return F.avg_pool1d(x, 3, 1, 1) + F.max_pool1d(x, 3, 1, 1)


class ParallelMaps(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.maps = nn.ModuleList(nn.Linear(D, D) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(sum(each(x) for each in self.maps))


class TypedPosition(nn.Module):
    """The table of positions is given the type of the state."""

    def __init__(self) -> None:
        super().__init__()
        self.position, self.block = nn.Parameter(torch.randn(5, D)), Residual(mlp())

    def forward(self, x: Tensor) -> Tensor:
        return self.block(x + self.position.type_as(x).clone().detach())


def chain(make: type[nn.Module], count: int = 3) -> nn.Sequential:
    return nn.Sequential(*(make() for _ in range(count)))


def blocks(kind: str, count: int, first: int = 0) -> list[tuple[str, str]]:
    return [(f"blocks.{i}", kind) for i in range(first, first + count)]


OTHER_SUMS = {
    "mean of a stack": "scaled",
    "weighted stack": "scaled",
    "tensordot": "scaled",
    "index_add": "identity",
    "scatter_add": "identity",
    "slice in place": "identity",
}
BEYOND: dict[str, Case] = {
    "attention maps returned": Case(lambda: ReturnsMaps(Attention(), Attention()), tokens, blocks("identity", 2)),
    "router logits returned": Case(lambda: ReturnsLogits(Experts(), Experts()), tokens, blocks("identity", 2)),
    "auxiliary head": Case(AuxiliaryHead, vector, blocks("identity", 2)),
    "value residual": Case(
        lambda: ValueResidual(Attention(), Attention(), Attention()),
        tokens,
        blocks("identity", 3),
        contexts=[False, True, True],
    ),
    "highway as a difference": Case(lambda: chain(HighwayOfDifference), vector, [(str(i), "gated") for i in range(3)]),
    "gated recurrent": Case(lambda: chain(GatedRecurrent), vector, [(str(i), "gated") for i in range(3)]),
    "interpolated": Case(lambda: chain(Interpolated), vector, [(str(i), "scaled") for i in range(3)]),
    "mixer less its input": Case(lambda: chain(MixerDifference), vector, [(str(i), "identity") for i in range(3)]),
    "midpoint": Case(lambda: chain(Midpoint), vector, [(str(i), "identity") for i in range(3)]),
    "Runge-Kutta": Case(lambda: chain(RungeKutta4), vector, [(str(i), "identity") for i in range(3)]),
    "hyper-connections": Case(lambda: Streams(*(HyperConnection() for _ in range(3))), tokens, blocks("streams", 3)),
    "static hyper-connections": Case(
        lambda: Streams(*(HyperConnection(static=True) for _ in range(3))), tokens, blocks("streams", 3)
    ),
    "ResiDual": Case(
        ResiDual, vector, blocks("identity", 4), tails=[["layer_norm"]] * 4, left_out=["collecting", "parallel"]
    ),
    "momentum": Case(Momentum, vector, blocks("identity", 3), contexts=[False, True, True]),
    **{
        f"DenseFormer, {written}": Case(
            lambda written=written: DenseFormer(written), vector, blocks("identity", 3), left_out=["collecting"] * 3
        )
        for written in ("sum", "stack", "tensordot", "einsum")
    },
    # What the last block would add to the trunk is used by nothing.
    "WaveNet": Case(WaveNet, tokens, blocks("identity", 2), left_out=["collecting"]),
    "N-BEATS": Case(NBeats, vector, blocks("identity", 3), left_out=["collecting"]),
    **{
        how: Case(lambda how=how: nn.Sequential(OtherSum(how), OtherSum(how)), tokens, [("0", kind), ("1", kind)])
        for how, kind in OTHER_SUMS.items()
    },
    "snake": Case(lambda: chain(Snake, 2), vector, []),
    "two pools": Case(TwoPools, tokens, []),
    "three parallel maps": Case(lambda: chain(ParallelMaps, 2), vector, [], left_out=["parallel"] * 2),
    "typed positions": Case(TypedPosition, tokens, [("block", "identity")]),
}
