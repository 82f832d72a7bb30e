"""Small networks written for the corpus from published designs: one class for each way to carry a state on.

Each class says in its docstring what counts as one residual unit; `known` is that number times its layers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scripts.architecture_models.common import Batch, Model, images
from tests.trace.nets import CASES, Coupling

D = 8  # the width of every state
LENGTH = 5  # the number of tokens
HEADS = 2


def vectors(batch: int) -> Tensor:
    return torch.randn(batch, D)


def sequences(batch: int) -> Tensor:
    return torch.randn(batch, LENGTH, D)


def signals(batch: int) -> Tensor:
    """Channels before time, as one-dimensional convolutions read it."""
    return torch.randn(batch, D, 16)


def conditioned(batch: int) -> tuple[Tensor, Tensor]:
    return sequences(batch), vectors(batch)


def graphs(batch: int) -> tuple[Tensor, Tensor]:
    """Node states and a dense adjacency matrix for each graph."""
    return sequences(batch), torch.rand(batch, LENGTH, LENGTH).round()


def mlp(width: int = D, hidden: int = 12) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))


def convolutions(channels: int = 4) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, channels, 3, padding=1),
        nn.BatchNorm2d(channels),
        nn.ReLU(),
        nn.Conv2d(channels, channels, 3, padding=1),
        nn.BatchNorm2d(channels),
    )


class Attention(nn.Module):
    """Attention with several heads; keys and values may come from elsewhere."""

    def __init__(self, width: int = D, causal: bool = False) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.causal = causal

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        context = x if context is None else context
        query, key, value = (
            layer(tensor).unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for layer, tensor in ((self.query, x), (self.key, context), (self.value, context))
        )
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Residual(nn.Module):
    """The plain sum: one unit."""

    def __init__(self, branch: nn.Module) -> None:
        super().__init__()
        self.branch = branch

    def forward(self, x: Tensor) -> Tensor:
        return x + self.branch(x)


class Block(nn.Module):
    """A pre-norm transformer block: two units."""

    def __init__(self, width: int = D, causal: bool = False) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.mlp = Attention(width, causal), mlp(width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


# -- gates and interpolations


class Highway(nn.Module):
    """t F(x) + (1 - t) x with a gate t(x): one unit."""

    def __init__(self) -> None:
        super().__init__()
        self.transform, self.gate = nn.Linear(D, D), nn.Linear(D, D)

    def forward(self, x: Tensor) -> Tensor:
        gate = torch.sigmoid(self.gate(x))
        return gate * torch.relu(self.transform(x)) + (1 - gate) * x


class ConvolutionalHighway(nn.Module):
    """A highway whose gate and transform are convolutions: one unit."""

    def __init__(self) -> None:
        super().__init__()
        self.transform, self.gate = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.lerp(x, torch.relu(self.transform(x)), torch.sigmoid(self.gate(x)))


class GatedUnit(nn.Module):
    """The gate of a gated recurrent unit, between a skip and a branch."""

    def __init__(self) -> None:
        super().__init__()
        self.of_branch, self.of_skip = nn.Linear(D, 3 * D), nn.Linear(D, 2 * D)
        self.candidate = nn.Linear(D, D)

    def forward(self, skip: Tensor, branch: Tensor) -> Tensor:
        reset, update, candidate = self.of_branch(branch).chunk(3, -1)
        reset_skip, update_skip = self.of_skip(skip).chunk(2, -1)
        reset, update = torch.sigmoid(reset + reset_skip), torch.sigmoid(update + update_skip)
        candidate = torch.tanh(candidate + self.candidate(reset * skip))
        return (1 - update) * skip + update * candidate


class GatedTransformerXL(nn.Module):
    """GTrXL: a recurrent unit's gate in place of each of the two sums: two units."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.attention, self.mlp = Attention(), mlp()
        self.gate1, self.gate2 = GatedUnit(), GatedUnit()

    def forward(self, x: Tensor) -> Tensor:
        x = self.gate1(x, torch.relu(self.attention(self.norm1(x))))
        return self.gate2(x, torch.relu(self.mlp(self.norm2(x))))


class GatedSkipByParameter(nn.Module):
    """A learned scalar mixes skip and branch: one unit."""

    def __init__(self) -> None:
        super().__init__()
        self.mix, self.branch = nn.Parameter(torch.tensor(0.3)), mlp()

    def forward(self, x: Tensor) -> Tensor:
        mix = torch.sigmoid(self.mix)
        return mix * x + (1 - mix) * self.branch(x)


class GateOnSkip(nn.Module):
    """Squeeze and excitation on the skip instead of the branch: one unit."""

    def __init__(self) -> None:
        super().__init__()
        self.branch = convolutions()
        self.squeeze, self.excite = nn.Linear(4, 2), nn.Linear(2, 4)

    def forward(self, x: Tensor) -> Tensor:
        gate = torch.sigmoid(self.excite(torch.relu(self.squeeze(x.mean((2, 3))))))
        return torch.relu(x * gate[:, :, None, None] + self.branch(x))


class AdaptiveNormBlock(nn.Module):
    """DiT: a condition gives shift, scale and gate of both branches: two units."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = (nn.LayerNorm(D, elementwise_affine=False) for _ in range(2))
        self.attention, self.mlp = Attention(), mlp()
        self.modulation = nn.Linear(D, 6 * D)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        shift1, scale1, gate1, shift2, scale2, gate2 = self.modulation(F.silu(condition))[:, None].chunk(6, -1)
        x = x + gate1 * self.attention(self.norm1(x) * (1 + scale1) + shift1)
        return x + gate2 * self.mlp(self.norm2(x) * (1 + scale2) + shift2)


class DiffusionTransformer(nn.Module):
    """Patches, time embedding, blocks with adaptive norms, and back to an image."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.time = nn.Conv2d(4, D, 2, 2), nn.Sequential(nn.Linear(1, D), nn.SiLU(), nn.Linear(D, D))
        self.blocks = nn.ModuleList(AdaptiveNormBlock() for _ in range(2))
        self.norm, self.head = nn.LayerNorm(D), nn.Linear(D, 16)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        condition = self.time(time[:, None])
        tokens = self.embed(x).flatten(2).transpose(1, 2)
        for block in self.blocks:
            tokens = block(tokens, condition)
        patches = self.head(self.norm(tokens)).unflatten(1, (4, 4)).unflatten(-1, (4, 2, 2))
        return patches.permute(0, 3, 1, 4, 2, 5).flatten(4, 5).flatten(2, 3)


class Conditioned(nn.Module):
    """Blocks that all read a second input."""

    def __init__(self, blocks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x, condition)
        return x


class NormalizedBlock(nn.Module):
    """nGPT: the state moves on the sphere towards the normalised branch: two units."""

    def __init__(self) -> None:
        super().__init__()
        self.attention, self.mlp = Attention(), mlp()
        self.rates = nn.Parameter(torch.full((2, D), 0.2))

    def forward(self, x: Tensor) -> Tensor:
        for rate, branch in zip(self.rates, (self.attention, self.mlp), strict=True):
            target = F.normalize(branch(x), dim=-1)
            x = F.normalize(x + rate * (target - x), dim=-1)
        return x


# -- steps of differential equations


class RungeKutta(nn.Module):
    """x + h (weighted slopes): one unit for each step; the points in between are no states that go on."""

    def __init__(self, order: int, steps: int) -> None:
        super().__init__()
        self.order = order
        self.slopes = nn.ModuleList(mlp() for _ in range(steps))

    def forward(self, x: Tensor) -> Tensor:
        for slope in self.slopes:
            first = slope(x)
            if self.order == 2:
                x = x + 0.5 * (first + slope(x + first))
            else:
                second = slope(x + 0.5 * first)
                third = slope(x + 0.5 * second)
                x = x + (first + 2 * second + 2 * third + slope(x + third)) / 6
        return x


class Euler(nn.Module):
    """One field, several steps of Euler's method: one unit for each step."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.field, self.steps = nn.Sequential(nn.Linear(D, 12), nn.Tanh(), nn.Linear(12, D)), steps

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.steps):
            x = x + self.field(x) / self.steps
        return x


class Equilibrium(nn.Module):
    """A damped fixed-point iteration, unrolled: z moves a part of the way to tanh(W z + U x): one unit for each."""

    def __init__(self, iterations: int) -> None:
        super().__init__()
        self.start, self.state, self.inject = nn.Linear(D, D), nn.Linear(D, D), nn.Linear(D, D)
        self.iterations = iterations

    def forward(self, x: Tensor) -> Tensor:
        z, injected = self.start(x), self.inject(x)
        for _ in range(self.iterations):
            z = z + 0.5 * (torch.tanh(self.state(z) + injected) - z)
        return z


class Momentum(nn.Module):
    """Momentum ResNet: v = g v + (1 - g) F(x), x = x + v: one unit for each layer, with the pair (x, v) as state."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(mlp() for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        velocity = torch.zeros_like(x)
        for layer in self.layers:
            velocity = 0.9 * velocity + 0.1 * layer(x)
            x = x + velocity
        return x


# -- couplings


class ReversibleTransformer(nn.Module):
    """Reformer: two copies of the embedding, attention updates one, the feed-forward the other: two units a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.attentions = nn.ModuleList(Attention() for _ in range(2))
        self.mlps = nn.ModuleList(mlp() for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(D) for _ in range(4))
        self.head = nn.Linear(2 * D, D)

    def forward(self, x: Tensor) -> Tensor:
        a, b = x, x
        for layer, (attention, feed) in enumerate(zip(self.attentions, self.mlps, strict=True)):
            a = a + attention(self.norms[2 * layer](b))
            b = b + feed(self.norms[2 * layer + 1](a))
        return self.head(torch.cat([a, b], -1))


class InvertibleDownsampling(nn.Module):
    """i-RevNet: space is folded into channels, then an additive coupling of one half: one unit."""

    def __init__(self) -> None:
        super().__init__()
        self.branch = convolutions(8)

    def forward(self, x: Tensor) -> Tensor:
        a, b = F.pixel_unshuffle(x, 2).chunk(2, 1)
        return torch.cat([b + self.branch(a), a], 1)


class AffineCoupling(nn.Module):
    """Glow: b exp(s(a)) + t(a), a gated skip of one half: one unit; the channels are then mixed."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Conv2d(4, 4, 1, bias=False)
        self.branch = nn.Sequential(nn.Conv2d(2, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 4, 3, padding=1))

    def forward(self, x: Tensor) -> Tensor:
        a, b = self.mix(x).chunk(2, 1)
        scale, shift = self.branch(a).chunk(2, 1)
        return torch.cat([a, b * torch.exp(torch.tanh(scale)) + shift], 1)


# -- several streams


class TwoStreams(nn.Module):
    """ResiDual: one branch is added to a post-norm stream and to one without norms: one unit for each branch."""

    def __init__(self) -> None:
        super().__init__()
        self.branches = nn.ModuleList([Attention(), mlp(), Attention(), mlp()])
        self.norms = nn.ModuleList(nn.LayerNorm(D) for _ in range(4))
        self.last = nn.LayerNorm(D)

    def forward(self, x: Tensor) -> Tensor:
        dual = x
        for branch, norm in zip(self.branches, self.norms, strict=True):
            added = branch(x)
            x = norm(x + added)
            dual = dual + added
        return x + self.last(dual)


class HyperConnections(nn.Module):
    """n streams: x = H_res x + H_post F(H_pre x), H fixed, dependent on x, or doubly stochastic: one unit a branch."""

    def __init__(self, kind: str, streams: int = 3) -> None:
        super().__init__()
        self.kind, self.streams = kind, streams
        self.branches = nn.ModuleList([Attention(), mlp(), Attention(), mlp()])
        self.norms = nn.ModuleList(nn.LayerNorm(D) for _ in range(4))
        self.residual = nn.ParameterList(nn.Parameter(torch.eye(streams) + 0.1) for _ in range(4))
        self.before = nn.ParameterList(nn.Parameter(torch.rand(streams)) for _ in range(4))
        self.after = nn.ParameterList(nn.Parameter(torch.rand(streams)) for _ in range(4))
        self.dynamic = nn.ModuleList(nn.Linear(streams * D, streams * (streams + 2)) for _ in range(4))

    def mixing(self, layer: int, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """H_res (n x n), H_pre (n) and H_post (n), for each token where they depend on it."""
        n = self.streams
        residual, before, after = self.residual[layer], self.before[layer], self.after[layer]
        if self.kind == "static":
            return residual, before, after
        change = torch.tanh(self.dynamic[layer](x.flatten(-2)))
        residual = residual + change[..., : n * n].unflatten(-1, (n, n))
        before, after = before + change[..., n * n : n * (n + 1)], after + change[..., n * (n + 1) :]
        if self.kind == "dynamic":
            return residual, before, after
        residual = torch.exp(residual)
        for _ in range(6):
            residual = residual / residual.sum(-1, keepdim=True)
            residual = residual / residual.sum(-2, keepdim=True)
        return residual, torch.sigmoid(before), 2 * torch.sigmoid(after)

    def forward(self, x: Tensor) -> Tensor:
        x = x.unsqueeze(-2).expand(-1, -1, self.streams, -1)
        for layer, (branch, norm) in enumerate(zip(self.branches, self.norms, strict=True)):
            residual, before, after = self.mixing(layer, x)
            added = branch(norm((before.unsqueeze(-1) * x).sum(-2)))
            x = residual @ x + after.unsqueeze(-1) * added.unsqueeze(-2)
        return x.sum(-2)


class AlternatingUpdates(nn.Module):
    """AltUp: all streams are predicted, one is computed, all are corrected: two units a layer.

    The prediction adds a mixture of the streams to them; the correction adds the computed stream's surprise.
    The block's own sums, here one, are units besides.
    """

    def __init__(self) -> None:
        super().__init__()
        self.predict = nn.ParameterList(nn.Parameter(0.1 * torch.randn(3, 3)) for _ in range(2))
        self.correct = nn.ParameterList(nn.Parameter(torch.rand(3)) for _ in range(2))
        self.blocks = nn.ModuleList(Residual(nn.Sequential(nn.LayerNorm(D), mlp())) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        streams = torch.stack([x, 2 * x, -x], -2)
        for layer, block in enumerate(self.blocks):
            predicted = streams + self.predict[layer] @ streams
            active = predicted[..., layer, :]
            surprise = block(active) - active
            streams = predicted + self.correct[layer][:, None] * surprise.unsqueeze(-2)
        return streams.mean(-2)


class LearnedAugmentedResidual(nn.Module):
    """LAuReL: the skip is x plus a low-rank map of x: one unit, with two branches."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.up, self.branch = nn.Linear(D, 2, bias=False), nn.Linear(2, D, bias=False), mlp()

    def forward(self, x: Tensor) -> Tensor:
        return self.branch(x) + x + self.up(self.down(x))


# -- sums over depth


class DenseFormer(nn.Module):
    """After each block a weighted average over all states so far: the average is no unit, the block has two."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.weights = nn.ParameterList(nn.Parameter(torch.rand(index + 2)) for index in range(3))

    def forward(self, x: Tensor) -> Tensor:
        states = [x]
        for block, weight in zip(self.blocks, self.weights, strict=True):
            states.append(block(x))
            x = torch.tensordot(weight, torch.stack(states), 1)
        return x


class AttentionOverDepth(nn.Module):
    """Attention residuals: each branch reads a softmax mixture of all earlier outputs; no sum with a skip remains."""

    def __init__(self) -> None:
        super().__init__()
        self.branches = nn.ModuleList(nn.Sequential(nn.LayerNorm(D), mlp()) for _ in range(3))
        self.queries = nn.ParameterList(nn.Parameter(torch.randn(D)) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        states = [x]
        for query, branch in zip(self.queries, [*self.branches, None], strict=True):
            stacked = torch.stack(states)
            weights = torch.softmax(F.normalize(stacked, dim=-1) @ query, 0)
            x = (weights.unsqueeze(-1) * stacked).sum(0)
            if branch is not None:
                states.append(branch(x))
        return x


class MultiwayDense(nn.Module):
    """MUDD: weights over all earlier states come from the current one; the block before them has two units."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.weights = nn.ModuleList(nn.Linear(D, index + 2) for index in range(2))

    def forward(self, x: Tensor) -> Tensor:
        states = [x]
        for block, weigh in zip(self.blocks, self.weights, strict=True):
            x = block(x)
            states.append(x)
            x = torch.einsum("btl,lbtd->btd", weigh(x), torch.stack(states))
        return x


class ValueResidual(nn.Module):
    """The first layer's values are mixed into later ones; only attention and feed-forward are units."""

    def __init__(self) -> None:
        super().__init__()
        self.projections = nn.ModuleList(nn.Linear(D, 3 * D) for _ in range(2))
        self.mlps = nn.ModuleList(mlp() for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(D) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        first: Tensor | None = None
        for layer, (project, feed) in enumerate(zip(self.projections, self.mlps, strict=True)):
            query, key, value = project(self.norms[2 * layer](x)).chunk(3, -1)
            first = value if first is None else first
            x = x + F.scaled_dot_product_attention(query, key, 0.5 * value + 0.5 * first)
            x = x + feed(self.norms[2 * layer + 1](x))
        return x


class BackcastForecast(nn.Module):
    """N-BEATS: each block subtracts its backcast, one unit, and its forecast is collected, none.

    What the last block subtracts is never read, so that the last block has no unit.
    """

    def __init__(self) -> None:
        super().__init__()
        self.trunks = nn.ModuleList(nn.Sequential(nn.Linear(D, 12), nn.ReLU()) for _ in range(3))
        self.backcasts, self.forecasts = (nn.ModuleList(nn.Linear(12, D) for _ in range(3)) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        forecast = torch.zeros_like(x)
        for trunk, backcast, future in zip(self.trunks, self.backcasts, self.forecasts, strict=True):
            hidden = trunk(x)
            x = x - backcast(hidden)
            forecast = forecast + future(hidden)
        return forecast


class WaveNet(nn.Module):
    """Gated dilated convolutions: the state's sum is one unit a layer; the collected skips are none.

    What the last layer adds to the state is never read, so that the last layer has no unit.
    """

    def __init__(self) -> None:
        super().__init__()
        self.filters = nn.ModuleList(nn.Conv1d(D, 2 * D, 2, dilation=2**layer) for layer in range(4))
        self.states, self.skips = (nn.ModuleList(nn.Conv1d(D, D, 1) for _ in range(4)) for _ in range(2))
        self.head = nn.Conv1d(D, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        collected = torch.zeros_like(x)
        for layer, (filtered, state, skip) in enumerate(zip(self.filters, self.states, self.skips, strict=True)):
            value, gate = filtered(F.pad(x, (2**layer, 0))).chunk(2, 1)
            hidden = torch.tanh(value) * torch.sigmoid(gate)
            collected = collected + skip(hidden)
            x = x + state(hidden)
        return self.head(torch.relu(collected))


class Fractal(nn.Module):
    """FractalNet: means of paths of different length, all of them convolutions: no unit."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.short = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
        self.long = nn.Sequential(Fractal(columns - 1), Fractal(columns - 1)) if columns > 1 else None

    def forward(self, x: Tensor) -> Tensor:
        return self.short(x) if self.long is None else (self.short(x) + self.long(x)) / 2


# -- convolutional blocks


class StochasticDepth(nn.Module):
    """In evaluation a branch is multiplied by its probability of survival: one unit."""

    def __init__(self, survival: float) -> None:
        super().__init__()
        self.branch, self.survival = convolutions(), survival

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            keep = torch.rand(x.shape[0], 1, 1, 1, device=x.device) < self.survival
            return torch.relu(x + keep * self.branch(x))
        return torch.relu(x + self.survival * self.branch(x))


class SqueezeExcite(nn.Module):
    """The branch is rescaled channel by channel: one unit."""

    def __init__(self) -> None:
        super().__init__()
        self.branch = convolutions()
        self.squeeze, self.excite = nn.Conv2d(4, 2, 1), nn.Conv2d(2, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        branch = self.branch(x)
        pooled = F.adaptive_avg_pool2d(branch, 1)
        return torch.relu(x + branch * torch.sigmoid(self.excite(torch.relu(self.squeeze(pooled)))))


class ConvolutionalBlockAttention(nn.Module):
    """CBAM: gates from the sum of two pools, then from a map of pools: one unit, and the pools' sum is none."""

    def __init__(self) -> None:
        super().__init__()
        self.branch, self.shared = convolutions(), nn.Sequential(nn.Linear(4, 2), nn.ReLU(), nn.Linear(2, 4))
        self.spatial = nn.Conv2d(2, 1, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        branch = self.branch(x)
        gate = torch.sigmoid(self.shared(branch.mean((2, 3))) + self.shared(branch.amax((2, 3))))
        branch = branch * gate[:, :, None, None]
        pooled = torch.cat([branch.mean(1, keepdim=True), branch.amax(1, keepdim=True)], 1)
        return torch.relu(x + branch * torch.sigmoid(self.spatial(pooled)))


class Downsampling(nn.Module):
    """ResNet-D: the skip of a strided block is pooled, then projected: one unit."""

    def __init__(self) -> None:
        super().__init__()
        self.skip = nn.Sequential(nn.AvgPool2d(2), nn.Conv2d(4, 8, 1, bias=False), nn.BatchNorm2d(8))
        self.branch = nn.Sequential(
            nn.Conv2d(4, 4, 1), nn.ReLU(), nn.Conv2d(4, 4, 3, 2, 1), nn.ReLU(), nn.Conv2d(4, 8, 1), nn.BatchNorm2d(8)
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.skip(x) + self.branch(x))


class Preactivation(nn.Module):
    """Norm and activation stand before the convolutions and before a projecting skip: one unit."""

    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)
        self.branch = nn.Sequential(
            nn.Conv2d(channels, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU(), nn.Conv2d(out, out, 3, padding=1)
        )
        self.skip = nn.Conv2d(channels, out, 1) if channels != out else None

    def forward(self, x: Tensor) -> Tensor:
        active = torch.relu(self.norm(x))
        return (x if self.skip is None else self.skip(active)) + self.branch(active)


class SplitTransformSum(nn.Module):
    """ResNeXt as it is drawn: many narrow paths are summed with the skip: one unit."""

    def __init__(self) -> None:
        super().__init__()
        self.paths = nn.ModuleList(
            nn.Sequential(nn.Conv2d(4, 2, 1), nn.ReLU(), nn.Conv2d(2, 2, 3, padding=1), nn.ReLU(), nn.Conv2d(2, 4, 1))
            for _ in range(3)
        )

    def forward(self, x: Tensor) -> Tensor:
        total = x
        for path in self.paths:
            total = total + path(x)
        return torch.relu(total)


class InceptionResidual(nn.Module):
    """Concatenated paths, projected, scaled and added: one unit."""

    def __init__(self) -> None:
        super().__init__()
        self.narrow, self.wide = nn.Conv2d(4, 3, 1), nn.Sequential(nn.Conv2d(4, 3, 1), nn.Conv2d(3, 3, 3, padding=1))
        self.project = nn.Conv2d(6, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + 0.17 * self.project(torch.cat([self.narrow(x), self.wide(x)], 1)))


class DualPath(nn.Module):
    """DPN: the first channels are added, the rest is concatenated: one unit."""

    def __init__(self, dense: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(nn.Conv2d(4 + dense, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 6, 1))

    def forward(self, x: Tensor) -> Tensor:
        branch = self.branch(x)
        return torch.cat([x[:, :4] + branch[:, :4], x[:, 4:], branch[:, 4:]], 1)


class BottleneckTransformer(nn.Module):
    """Attention over places in a bottleneck: one unit."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.up, self.attention = nn.Conv2d(4, D, 1), nn.Conv2d(D, 4, 1), Attention()

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(self.down(x))
        mixed = self.attention(hidden.flatten(2).transpose(1, 2)).transpose(1, 2).unflatten(2, hidden.shape[2:])
        return torch.relu(x + self.up(torch.relu(mixed)))


class Fixup(nn.Module):
    """No norms: scalar biases around convolutions and a scalar factor of the branch: one unit."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv2d(4, 4, 3, padding=1, bias=False) for _ in range(2))
        self.biases, self.scale = nn.Parameter(0.1 * torch.randn(4)), nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(self.conv1(x + self.biases[0]) + self.biases[1])
        return torch.relu(x + self.scale * self.conv2(hidden + self.biases[2]) + self.biases[3])


class Scaled(nn.Module):
    """The branch has a factor, a number or a vector, before the sum: one unit."""

    def __init__(self, branch: nn.Module, factor: Tensor, learned: bool = True) -> None:
        super().__init__()
        self.branch, self.factor = branch, nn.Parameter(factor, requires_grad=learned)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.factor * self.branch(x)


class SnakeBlock(nn.Module):
    """A vocoder's block: x + conv(snake(conv(snake(x)))): one unit; snake itself, x + sin(ax)^2 / a, is none."""

    def __init__(self, dilation: int) -> None:
        super().__init__()
        self.frequency = nn.Parameter(torch.ones(2, D, 1))
        self.dilated, self.plain = nn.Conv1d(D, D, 3, padding=dilation, dilation=dilation), nn.Conv1d(D, D, 1)

    def snake(self, x: Tensor, frequency: Tensor) -> Tensor:
        return x + torch.sin(frequency * x) ** 2 / (frequency + 1e-6)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.dilated(self.snake(x, self.frequency[0]))
        return x + self.plain(self.snake(hidden, self.frequency[1]))


class NeuralAutoencoderCell(nn.Module):
    """NVAE: x + 0.1 gate(branch(x)) with depthwise convolutions: one unit."""

    def __init__(self) -> None:
        super().__init__()
        self.branch = nn.Sequential(
            nn.BatchNorm2d(4),
            nn.Conv2d(4, 12, 1),
            nn.SiLU(),
            nn.Conv2d(12, 12, 5, padding=2, groups=12),
            nn.SiLU(),
            nn.Conv2d(12, 4, 1),
        )
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(4, 2, 1), nn.ReLU(), nn.Conv2d(2, 4, 1))

    def forward(self, x: Tensor) -> Tensor:
        branch = self.branch(x)
        return x + 0.1 * branch * torch.sigmoid(self.gate(branch))


class TemporalBlock(nn.Module):
    """TCN: causal dilated convolutions, cut at the end: one unit."""

    def __init__(self, dilation: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv1d(D, D, 3, padding=2 * dilation, dilation=dilation) for _ in range(2))
        self.cut = 2 * dilation

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(self.conv1(x)[..., : -self.cut])
        hidden = torch.relu(self.conv2(hidden)[..., : -self.cut])
        return torch.relu(x + hidden)


class GatedMaskedConvolution(nn.Module):
    """Gated PixelCNN: a vertical stack feeds a horizontal one, and only the horizontal one has a skip: one unit."""

    def __init__(self) -> None:
        super().__init__()
        self.vertical, self.horizontal = nn.Conv2d(4, 8, (2, 3)), nn.Conv2d(4, 8, (1, 2))
        self.across, self.out = nn.Conv2d(8, 8, 1), nn.Conv2d(4, 4, 1)

    def forward(self, vertical: Tensor, horizontal: Tensor) -> tuple[Tensor, Tensor]:
        down = self.vertical(F.pad(vertical, (1, 1, 1, 0)))
        right = self.horizontal(F.pad(horizontal, (1, 0))) + self.across(down)
        value, gate = down.chunk(2, 1)
        value_right, gate_right = right.chunk(2, 1)
        moved = self.out(torch.tanh(value_right) * torch.sigmoid(gate_right))
        return torch.tanh(value) * torch.sigmoid(gate), horizontal + moved


class PixelNetwork(nn.Module):
    """Gated blocks on two stacks; the image starts both."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(GatedMaskedConvolution() for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        vertical, horizontal = x, x
        for block in self.blocks:
            vertical, horizontal = block(vertical, horizontal)
        return horizontal


class TimeBlock(nn.Module):
    """A diffusion U-Net's block: the time embedding is added between two convolutions: one unit."""

    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(2, channels), nn.GroupNorm(2, out)
        self.conv1, self.conv2 = nn.Conv2d(channels, out, 3, padding=1), nn.Conv2d(out, out, 3, padding=1)
        self.time = nn.Linear(D, out)
        self.skip = nn.Conv2d(channels, out, 1) if channels != out else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        hidden = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(time))[:, :, None, None]
        return self.skip(x) + self.conv2(F.silu(self.norm2(hidden)))


class SpatialAttention(nn.Module):
    """Attention over the places of an image, added to it: one unit."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm, self.attention = nn.GroupNorm(2, channels), Attention(channels)

    def forward(self, x: Tensor) -> Tensor:
        mixed = self.attention(self.norm(x).flatten(2).transpose(1, 2))
        return x + mixed.transpose(1, 2).reshape(x.shape)


class DiffusionUNet(nn.Module):
    """Down, middle, up, with concatenated skips: four blocks, four units, and one more with attention."""

    def __init__(self, attention: bool) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(1, D), nn.SiLU(), nn.Linear(D, D))
        self.stem, self.head = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.down, self.middle1, self.middle2, self.up = (
            TimeBlock(4, 8),
            TimeBlock(8, 8),
            TimeBlock(8, 8),
            TimeBlock(16, 4),
        )
        self.shrink, self.grow = nn.Conv2d(8, 8, 3, 2, 1), nn.Conv2d(8, 8, 3, padding=1)
        self.attention = SpatialAttention(8) if attention else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        embedded = self.time(time[:, None])
        high = self.down(self.stem(x), embedded)
        low = self.middle1(self.shrink(high), embedded)
        low = self.middle2(self.attention(low), embedded)
        grown = self.grow(F.interpolate(low, scale_factor=2.0, mode="nearest"))
        return self.head(self.up(torch.cat([high, grown], 1), embedded))


# -- mixtures of experts


class Experts(nn.Module):
    """A block whose feed-forward is a mixture of experts; the router's logits are an output: one unit."""

    def __init__(self, way: str, experts: int = 3) -> None:
        super().__init__()
        self.way = way
        self.norm, self.router = nn.LayerNorm(D), nn.Linear(D, experts)
        self.experts = nn.ModuleList(mlp() for _ in range(experts))
        self.inner, self.outer = (nn.Parameter(torch.randn(experts, D, D) / D**0.5) for _ in range(2))

    def mixed(self, tokens: Tensor, logits: Tensor) -> Tensor:
        weights = torch.softmax(logits, -1)
        if self.way == "dense":
            return torch.stack([expert(tokens) for expert in self.experts], -1) @ weights.unsqueeze(-1)
        top, chosen = weights.topk(2, -1)
        if self.way == "gather":
            hidden = torch.relu(torch.einsum("nd,nkde->nke", tokens, self.inner[chosen]))
            return torch.einsum("nke,nked,nk->nd", hidden, self.outer[chosen], top)
        result = torch.zeros_like(tokens)
        for index, expert in enumerate(self.experts):
            weight = (top * (chosen == index)).sum(-1, keepdim=True)
            everyone = torch.arange(tokens.shape[0], device=tokens.device)
            if self.way == "index_add":
                result = result.index_add(0, everyone, weight * expert(tokens))
            else:
                result = result.scatter_add(0, everyone[:, None].expand_as(tokens), weight * expert(tokens))
        return result

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        normed = self.norm(x)
        tokens = normed.flatten(0, 1)
        logits = self.router(tokens)
        return x + self.mixed(tokens, logits).reshape(x.shape), logits.unflatten(0, x.shape[:2])


class ExpertModel(nn.Module):
    """Attention and a mixture of experts in each layer: two units; all router logits leave the model."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.attentions = nn.ModuleList(Residual(nn.Sequential(nn.LayerNorm(D), Attention())) for _ in range(2))
        self.experts = nn.ModuleList(Experts(way) for _ in range(2))

    def forward(self, x: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        logits = []
        for attention, experts in zip(self.attentions, self.experts, strict=True):
            x, routed = experts(attention(x))
            logits.append(routed)
        return x, tuple(logits)


class MixtureOfDepths(nn.Module):
    """Only the two tokens of highest score are computed and added where they came from: one unit."""

    def __init__(self) -> None:
        super().__init__()
        self.score, self.branch = nn.Linear(D, 1), mlp()

    def forward(self, x: Tensor) -> Tensor:
        scores, places = self.score(x).squeeze(-1).topk(2, -1)
        index = places.unsqueeze(-1).expand(-1, -1, D)
        return x.scatter_add(1, index, torch.sigmoid(scores).unsqueeze(-1) * self.branch(x.gather(1, index)))


# -- sums written in other ways


class OddSum(nn.Module):
    """One residual sum, written in an unusual way: one unit."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way, self.branch = way, mlp()
        self.register_buffer("weights", torch.tensor([0.7, 0.6]))
        self.register_buffer("places", torch.arange(LENGTH))

    def forward(self, x: Tensor) -> Tensor:
        branch = self.branch(x)
        match self.way:
            case "mean of a stack":
                return torch.stack([x, branch]).mean(0)
            case "sum of a stack":
                return torch.stack([x, branch], -1).sum(-1)
            case "tensordot":
                return torch.tensordot(self.weights, torch.stack([x, branch]), dims=1)
            case "einsum":
                return torch.einsum("s,sbtd->btd", self.weights, torch.stack([x, branch]))
            case "addcmul":
                return torch.addcmul(x, branch, self.weights[0])
            case "index_add":
                return x.index_add(1, self.places, branch)
            case "index_add, some places":
                return x.index_add(1, self.places[1:], branch[:, 1:])
            case "scatter_add":
                return x.scatter_add(1, self.places[:, None].expand_as(branch), branch)
            case "slice_scatter":
                return x.slice_scatter(x[:, 1:] + branch[:, 1:], 1, 1)
            case "in place on a slice":
                result = x.clone()
                result[:, 1:] += branch[:, 1:]
                return result
            case "in place, first half of channels":
                result = x.clone()
                result[..., : D // 2] += branch[..., : D // 2]
                return result
            case "concatenated slices":
                return torch.cat([x[:, :1], x[:, 1:] + branch[:, 1:]], 1)
            case "subtraction":
                return x - branch
            case "add_":
                return branch.add_(x)
            case _:
                raise ValueError(f"no such way: {self.way}")


class SequenceFirst(nn.Module):
    """Tokens are the first axis inside the model: two units a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.attentions = nn.ModuleList(nn.MultiheadAttention(D, HEADS) for _ in range(2))
        self.mlps = nn.ModuleList(mlp() for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(D) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        x = x.transpose(0, 1)
        for layer, (attention, feed) in enumerate(zip(self.attentions, self.mlps, strict=True)):
            normed = self.norms[2 * layer](x)
            x = x + attention(normed, normed, normed, need_weights=False)[0]
            x = x + feed(self.norms[2 * layer + 1](x))
        return x.transpose(0, 1)


class ChannelsLast(nn.Module):
    """The sum happens with channels last, the convolution with channels first: one unit."""

    def __init__(self) -> None:
        super().__init__()
        self.depthwise, self.pointwise = nn.Conv2d(4, 4, 3, padding=1, groups=4), mlp(4)
        self.norm = nn.LayerNorm(4)

    def forward(self, x: Tensor) -> Tensor:
        last = x.permute(0, 2, 3, 1)
        branch = self.pointwise(self.norm(self.depthwise(x).permute(0, 2, 3, 1)))
        return (last + branch).permute(0, 3, 1, 2)


class FlattenedSum(nn.Module):
    """Skip and branch are flattened before the sum and shaped back after it: one unit."""

    def __init__(self) -> None:
        super().__init__()
        self.branch = mlp()

    def forward(self, x: Tensor) -> Tensor:
        return (x.flatten(1) + self.branch(x).flatten(1)).unflatten(1, x.shape[1:])


# -- batch folded with something else


class ChannelIndependent(nn.Module):
    """PatchTST: every channel is a sample of its own inside: two units a block."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.blocks, self.head = nn.Linear(4, D), nn.Sequential(Block(), Block()), nn.Linear(D, 4)

    def forward(self, x: Tensor) -> Tensor:
        patches = self.embed(x.unfold(-1, 4, 4))
        batch, channels = patches.shape[:2]
        hidden = self.blocks(patches.flatten(0, 1))
        return self.head(hidden).unflatten(0, (batch, channels)).flatten(2)


class InnerAndOuter(nn.Module):
    """TNT: pixels inside patches, patches inside the image: four sums of blocks and the pixels added to the patch."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.ModuleList(Block() for _ in range(2)), nn.ModuleList(Block() for _ in range(2))
        self.project = nn.ModuleList(nn.Linear(4 * D, D) for _ in range(2))
        self.embed, self.first = nn.Linear(4, D), nn.Linear(4 * D, D)

    def forward(self, x: Tensor) -> Tensor:
        batch = x.shape[0]
        pixels = F.unfold(x, 2, stride=2).transpose(1, 2).unflatten(-1, (4, 4)).transpose(-1, -2)
        pixels = self.embed(pixels).flatten(0, 1)
        patches = self.first(pixels.flatten(1)).unflatten(0, (batch, -1))
        for inner, project, outer in zip(self.inner, self.project, self.outer, strict=True):
            pixels = inner(pixels)
            patches = outer(patches + project(pixels.flatten(1)).unflatten(0, (batch, -1)))
        return patches


class Windows(nn.Module):
    """Swin: attention in windows, shifted in every other block; the sums are outside of the windows: two units."""

    def __init__(self, shift: int) -> None:
        super().__init__()
        self.norm1, self.norm2, self.attention, self.mlp = nn.LayerNorm(4), nn.LayerNorm(4), Attention(4), mlp(4)
        self.shift = shift

    def forward(self, x: Tensor) -> Tensor:
        batch, height, width, channels = x.shape
        moved = torch.roll(self.norm1(x), (-self.shift, -self.shift), (1, 2))
        windows = moved.view(batch, height // 4, 4, width // 4, 4, channels).transpose(2, 3).reshape(-1, 16, channels)
        windows = self.attention(windows).view(batch, height // 4, width // 4, 4, 4, channels)
        merged = windows.transpose(2, 3).reshape(batch, height, width, channels)
        x = x + torch.roll(merged, (self.shift, self.shift), (1, 2))
        return x + self.mlp(self.norm2(x))


class WindowModel(nn.Module):
    """Window blocks with channels last."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(Windows(0), Windows(2))

    def forward(self, x: Tensor) -> Tensor:
        return self.blocks(x.permute(0, 2, 3, 1)).mean((1, 2))


class WindowsInside(nn.Module):
    """The whole block, sums included, runs inside windows that are folded with the batch: two units."""

    def __init__(self) -> None:
        super().__init__()
        self.block = Block(4)

    def forward(self, x: Tensor) -> Tensor:
        windows = x.unfold(2, 4, 4).unfold(3, 4, 4).permute(0, 2, 3, 4, 5, 1)
        shape = windows.shape
        return self.block(windows.reshape(-1, 16, 4)).view(shape).mean((1, 2))


class SpaceAndTime(nn.Module):
    """Blocks over places (batch folded with frames), then over frames (batch folded with places): four units."""

    def __init__(self) -> None:
        super().__init__()
        self.space, self.time = Block(), Block(causal=True)

    def forward(self, x: Tensor) -> Tensor:
        batch, frames = x.shape[:2]
        x = self.space(x.flatten(0, 1)).unflatten(0, (batch, frames))
        x = self.time(x.transpose(1, 2).flatten(0, 1)).unflatten(0, (batch, -1))
        return x.transpose(1, 2)


# -- transformers of other kinds


class PostNorm(nn.Module):
    """Norms after the sums; DeepNorm multiplies the skip by alpha: two units."""

    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__()
        self.attention, self.mlp, self.alpha = Attention(), mlp(), alpha
        self.norm1, self.norm2 = nn.LayerNorm(D), nn.LayerNorm(D)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm1(self.alpha * x + self.attention(x))
        return self.norm2(self.alpha * x + self.mlp(x))


class Sandwich(nn.Module):
    """A norm before and one after each branch: two units."""

    def __init__(self) -> None:
        super().__init__()
        self.attention, self.mlp = Attention(), mlp()
        self.norms = nn.ModuleList(nn.RMSNorm(D) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.norms[1](self.attention(self.norms[0](x)))
        return x + self.norms[3](self.mlp(self.norms[2](x)))


class ParallelBlock(nn.Module):
    """Attention and feed-forward read the same norm and are added together: one unit with two branches."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.attention, self.mlp = nn.LayerNorm(D), Attention(), mlp()

    def forward(self, x: Tensor) -> Tensor:
        normed = self.norm(x)
        return x + self.attention(normed) + self.mlp(normed)


class Universal(nn.Module):
    """One block, called three times, with the number of the step added before: two units each time."""

    def __init__(self) -> None:
        super().__init__()
        self.block, self.steps = Block(), nn.Parameter(torch.randn(3, D))

    def forward(self, x: Tensor) -> Tensor:
        for step in self.steps:
            x = self.block(x + step)
        return x


class JointAttention(nn.Module):
    """MM-DiT: text and image have weights of their own and one attention: four units a block."""

    def __init__(self) -> None:
        super().__init__()
        self.projections = nn.ModuleList(nn.Linear(D, 3 * D) for _ in range(2))
        self.outs = nn.ModuleList(nn.Linear(D, D) for _ in range(2))
        self.mlps = nn.ModuleList(mlp() for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(D) for _ in range(4))

    def forward(self, image: Tensor, text: Tensor) -> tuple[Tensor, Tensor]:
        streams = [image, text]
        parts = [
            project(norm(stream)).chunk(3, -1)
            for project, norm, stream in zip(self.projections, self.norms[:2], streams, strict=True)
        ]
        query, key, value = (torch.cat(pair, 1) for pair in zip(*parts, strict=True))
        mixed = F.scaled_dot_product_attention(query, key, value).split([image.shape[1], text.shape[1]], 1)
        streams = [stream + out(part) for stream, out, part in zip(streams, self.outs, mixed, strict=True)]
        streams = [
            stream + feed(norm(stream)) for stream, feed, norm in zip(streams, self.mlps, self.norms[2:], strict=True)
        ]
        return streams[0], streams[1]


class JointModel(nn.Module):
    """Two blocks of joint attention; both streams are outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(JointAttention() for _ in range(2))

    def forward(self, image: Tensor, text: Tensor) -> tuple[Tensor, Tensor]:
        for block in self.blocks:
            image, text = block(image, text)
        return image, text


class Memory(nn.Module):
    """Transformer-XL: keys and values also come from a memory of earlier states: two units a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.attentions, self.mlps = (
            nn.ModuleList(Attention() for _ in range(2)),
            nn.ModuleList(mlp() for _ in range(2)),
        )
        self.norms = nn.ModuleList(nn.LayerNorm(D) for _ in range(4))

    def forward(self, x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        kept = []
        for layer, (attention, feed) in enumerate(zip(self.attentions, self.mlps, strict=True)):
            kept.append(x)
            x = self.norms[2 * layer](x + attention(x, torch.cat([memory[:, layer], x], 1)))
            x = self.norms[2 * layer + 1](x + feed(x))
        return x, torch.stack(kept, 1)


class Perceiver(nn.Module):
    """Learned latents read the input, then themselves: the first sum's skip is a parameter and no unit.

    First reading: one unit (feed-forward); two blocks of latents: two each; second reading: two.
    """

    def __init__(self) -> None:
        super().__init__()
        self.latents = nn.Parameter(torch.randn(3, D))
        self.reads, self.feeds = nn.ModuleList(Attention() for _ in range(2)), nn.ModuleList(mlp() for _ in range(2))
        self.blocks = nn.ModuleList(Block() for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        latents = self.latents.expand(x.shape[0], -1, -1)
        for read, feed, block in zip(self.reads, self.feeds, self.blocks, strict=True):
            latents = latents + read(latents, x)
            latents = latents + feed(latents)
            latents = block(latents)
        return latents


class SetAttention(nn.Module):
    """Set Transformer's block MAB(X, Y): queries plus attention, normed, then a feed-forward: two units."""

    def __init__(self) -> None:
        super().__init__()
        self.attention, self.mlp = Attention(), mlp()
        self.norm1, self.norm2 = nn.LayerNorm(D), nn.LayerNorm(D)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        hidden = self.norm1(x + self.attention(x, y))
        return self.norm2(hidden + self.mlp(hidden))


class SetTransformer(nn.Module):
    """Inducing points read the set (their first sum is no unit), the set reads them, and a seed pools (likewise)."""

    def __init__(self) -> None:
        super().__init__()
        self.points, self.seed = nn.Parameter(torch.randn(2, D)), nn.Parameter(torch.randn(1, D))
        self.induce, self.back, self.pool = SetAttention(), SetAttention(), SetAttention()

    def forward(self, x: Tensor) -> Tensor:
        batch = x.shape[0]
        induced = self.induce(self.points.expand(batch, -1, -1), x)
        x = self.back(x, induced)
        return self.pool(self.seed.expand(batch, -1, -1), x)


class TokenMixer(nn.Module):
    """MLP-Mixer: a feed-forward over tokens, then one over channels: two units."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.over_tokens, self.over_channels = mlp(LENGTH), mlp()

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.over_tokens(self.norm1(x).mT).mT
        return x + self.over_channels(self.norm2(x))


class SpatialGate(nn.Module):
    """gMLP: half of the channels gate the other half after a map over tokens: one unit."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.gate_norm = nn.LayerNorm(D), nn.LayerNorm(D)
        self.up, self.down, self.over_tokens = nn.Linear(D, 2 * D), nn.Linear(D, D), nn.Linear(LENGTH, LENGTH)

    def forward(self, x: Tensor) -> Tensor:
        value, gate = F.gelu(self.up(self.norm(x))).chunk(2, -1)
        return x + self.down(value * self.over_tokens(self.gate_norm(gate).mT).mT)


class HyperMixer(nn.Module):
    """The token mixer's weights come from the tokens: two units."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2, self.feed = nn.LayerNorm(D), nn.LayerNorm(D), mlp()
        self.first, self.second = mlp(), mlp()

    def forward(self, x: Tensor) -> Tensor:
        normed = self.norm1(x)
        first, second = self.first(normed), self.second(normed)
        x = x + second @ F.gelu(first.mT @ normed)
        return x + self.feed(self.norm2(x))


class Hyena(nn.Module):
    """A long convolution by Fourier transforms between two gates: one unit and the feed-forward's.

    The long convolution's own bias term, a factor times its input, is added to its result: a third unit.
    """

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2, self.feed = nn.LayerNorm(D), nn.LayerNorm(D), mlp()
        self.project, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.filter, self.bias = nn.Parameter(torch.randn(D, LENGTH) / 4), nn.Parameter(torch.randn(D))

    def convolution(self, x: Tensor) -> Tensor:
        spectrum = torch.fft.rfft(x.mT, 2 * LENGTH) * torch.fft.rfft(self.filter, 2 * LENGTH)
        return torch.fft.irfft(spectrum, 2 * LENGTH)[..., :LENGTH].mT + x * self.bias

    def forward(self, x: Tensor) -> Tensor:
        left, right, value = self.project(self.norm1(x)).chunk(3, -1)
        x = x + self.out(left * self.convolution(right * value))
        return x + self.feed(self.norm2(x))


class StateSpace(nn.Module):
    """A diagonal state space by a cumulative sum, with its own skip D x: two units."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.into, self.out = nn.LayerNorm(D), nn.Linear(D, D), nn.Linear(D, D)
        self.decay, self.direct = nn.Parameter(0.1 * torch.rand(D)), nn.Parameter(torch.ones(D))

    def forward(self, x: Tensor) -> Tensor:
        driven = self.into(self.norm(x))
        grown = torch.exp(self.decay * torch.arange(x.shape[1], device=x.device)[:, None])
        scanned = torch.cumsum(driven * grown, 1) / grown
        return x + self.out(F.silu(scanned + self.direct * driven))


class Retention(nn.Module):
    """RetNet in its parallel form: a decay in place of the softmax, a group norm and a gate: two units."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2, self.feed = nn.LayerNorm(D), nn.LayerNorm(D), mlp()
        self.project, self.gate, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D), nn.Linear(D, D)
        self.inner = nn.LayerNorm(D)

    def forward(self, x: Tensor) -> Tensor:
        normed = self.norm1(x)
        query, key, value = self.project(normed).chunk(3, -1)
        place = torch.arange(x.shape[1], device=x.device)
        distance = (place[:, None] - place).clamp(min=0)
        decay = torch.tril(0.9**distance)
        retained = (query @ key.mT * decay) @ value
        x = x + self.out(F.silu(self.gate(normed)) * self.inner(retained))
        return x + self.feed(self.norm2(x))


class LinearAttention(nn.Module):
    """Attention by sums of key-value products: two units."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2, self.feed = nn.LayerNorm(D), nn.LayerNorm(D), mlp()
        self.project, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.project(self.norm1(x)).chunk(3, -1)
        query, key = F.elu(query) + 1, F.elu(key) + 1
        states = torch.cumsum(key.unsqueeze(-1) * value.unsqueeze(-2), 1)
        mixed = torch.einsum("btd,btde->bte", query, states)
        mixed = mixed / (query * torch.cumsum(key, 1)).sum(-1, keepdim=True)
        x = x + self.out(mixed)
        return x + self.feed(self.norm2(x))


class ConvolutionModule(nn.Module):
    """Conformer's convolution: gated, depthwise, normed."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(D), nn.Linear(D, 2 * D), nn.Linear(D, D)
        self.depthwise, self.batch_norm = nn.Conv1d(D, D, 3, padding=1, groups=D), nn.BatchNorm1d(D)

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.glu(self.up(self.norm(x)), -1).mT
        return self.down(F.silu(self.batch_norm(self.depthwise(hidden))).mT)


class Conformer(nn.Module):
    """Half a feed-forward, attention, convolution, half a feed-forward, a norm: four units."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = (nn.Sequential(nn.LayerNorm(D), mlp()) for _ in range(2))
        self.attention, self.convolution = nn.Sequential(nn.LayerNorm(D), Attention()), ConvolutionModule()
        self.norm = nn.LayerNorm(D)

    def forward(self, x: Tensor) -> Tensor:
        x = x + 0.5 * self.before(x)
        x = x + self.attention(x)
        x = x + self.convolution(x)
        return self.norm(x + 0.5 * self.after(x))


class Squeezeformer(nn.Module):
    """Post-norm blocks; in the middle the sequence is halved, and its old length added back at the end.

    Four units a block, and the long skip around the halved part.
    """

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.ModuleList([Attention(), mlp(), ConvolutionModule(), mlp()]) for _ in range(2))
        self.norms = nn.ModuleList(nn.ModuleList(nn.LayerNorm(D) for _ in range(4)) for _ in range(2))
        self.shrink, self.grow = nn.Conv1d(D, D, 2, 2), nn.Linear(D, D)

    def block(self, index: int, x: Tensor) -> Tensor:
        for branch, norm in zip(self.blocks[index], self.norms[index], strict=True):
            x = norm(x + branch(x))
        return x

    def forward(self, x: Tensor) -> Tensor:
        x = self.block(0, x)
        short = self.block(1, self.shrink(x.mT).mT)
        return x + self.grow(short.repeat_interleave(2, 1))


class Recurrent(nn.Module):
    """A stack of recurrent layers with sums around each: one unit a layer."""

    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(kind(D, D, batch_first=True) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + layer(x)[0]
        return x


# -- graphs


class EdgeConvolution(nn.Module):
    """Messages along an edge list, gathered by index_add into the nodes, then added to them: one unit."""

    def __init__(self) -> None:
        super().__init__()
        self.message, self.update = nn.Linear(2 * D, D), nn.Linear(D, D)
        self.register_buffer("edges", torch.tensor([[0, 1, 2, 3, 4, 0], [1, 2, 3, 4, 0, 2]]))

    def forward(self, x: Tensor) -> Tensor:
        source, target = self.edges
        messages = torch.relu(self.message(torch.cat([x[:, source], x[:, target]], -1)))
        return x + self.update(torch.zeros_like(x).index_add(1, target, messages))


class GraphConvolution(nn.Module):
    """Dense adjacency: x + relu(A x W): one unit."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(D, D)

    def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
        normalised = adjacency / adjacency.sum(-1, keepdim=True).clamp(min=1)
        return x + torch.relu(self.layer(normalised @ x))


class DeepGraph(nn.Module):
    """DeepGCN in its pre-activation form, with a softmax over neighbours: one unit."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.feed = nn.LayerNorm(D), mlp()

    def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
        messages = torch.relu(self.norm(x)) + 1e-7
        weights = torch.softmax(messages.unsqueeze(1) + torch.log(adjacency + 1e-6).unsqueeze(-1), 2)
        return x + self.feed((weights * messages.unsqueeze(1)).sum(2))


class GraphIsomorphism(nn.Module):
    """GIN: the feed-forward of (1 + e) x + A x: the sum with the neighbours is one unit."""

    def __init__(self) -> None:
        super().__init__()
        self.epsilon, self.feed = nn.Parameter(torch.tensor(0.1)), mlp()

    def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
        return self.feed((1 + self.epsilon) * x + adjacency @ x)


# -- several outputs


class AuxiliaryHeads(nn.Module):
    """A residual network with classifiers after every stage, all of them outputs: one unit a block."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Residual(convolutions()) for _ in range(4))
        self.heads = nn.ModuleList(nn.Linear(4, 3) for _ in range(2))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        auxiliary = None
        for index, block in enumerate(self.blocks):
            x = torch.relu(block(x))
            if index == 1:
                auxiliary = self.heads[0](x.mean((2, 3)))
        assert auxiliary is not None
        return self.heads[1](x.mean((2, 3))), auxiliary


class HeadInsideBranch(nn.Module):
    """A classifier reads the middle of each branch: one unit a layer, with a side output."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.ModuleList(nn.Linear(D, 12) for _ in range(3))
        self.outer = nn.ModuleList(nn.Linear(12, D) for _ in range(3))
        self.heads = nn.ModuleList(nn.Linear(12, 3) for _ in range(3))

    def forward(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        seen = []
        for inner, outer, head in zip(self.inner, self.outer, self.heads, strict=True):
            hidden = torch.relu(inner(x))
            seen.append(head(hidden))
            x = x + outer(hidden)
        return x, seen


class HiddenStates(nn.Module):
    """All states and all attention maps are outputs: two units a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.projections = nn.ModuleList(nn.Linear(D, 3 * D) for _ in range(2))
        self.mlps = nn.ModuleList(mlp() for _ in range(2))

    def forward(self, x: Tensor) -> tuple[Tensor, tuple[Tensor, ...], tuple[Tensor, ...]]:
        states, maps = [x], []
        for project, feed in zip(self.projections, self.mlps, strict=True):
            query, key, value = project(x).chunk(3, -1)
            maps.append(torch.softmax(query @ key.mT / D**0.5, -1))
            x = x + maps[-1] @ value
            x = x + feed(x)
            states.append(x)
        return x, tuple(states), tuple(maps)


class EarlyExits(nn.Module):
    """A head after every block; their logits are averaged: one unit a block, and the average is none."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Residual(mlp()) for _ in range(3))
        self.heads = nn.ModuleList(nn.Linear(D, 4) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        logits = []
        for block, head in zip(self.blocks, self.heads, strict=True):
            x = block(x)
            logits.append(head(x))
        return torch.stack(logits).mean(0)


# -- what an exporter dislikes


class BranchOnValue(nn.Module):
    """A Python `if` on a value of the state: one unit on either way."""

    def __init__(self) -> None:
        super().__init__()
        self.small, self.large = mlp(), mlp()

    def forward(self, x: Tensor) -> Tensor:
        if float(x.abs().mean()) > 1e6:
            return x + self.large(x)
        return x + self.small(x)


class ModuleOnTheFly(nn.Module):
    """The forward pass assigns a module to itself: one unit a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(mlp() for _ in range(2))
        self.current: nn.Module = self.layers[0]

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            self.current = layer
            x = x + self.current(x)
        return x


class SizeFromItem(nn.Module):
    """The number of tokens that are computed is read from a tensor by `.item()`: one unit."""

    def __init__(self) -> None:
        super().__init__()
        self.branch = mlp()
        self.register_buffer("kept", torch.tensor(3))

    def forward(self, x: Tensor) -> Tensor:
        kept = int(self.kept.item())
        return torch.cat([x[:, :kept] + self.branch(x[:, :kept]), x[:, kept:]], 1)


class LoopUntil(nn.Module):
    """A `while` on a value, left after two rounds here: one unit for each round."""

    def __init__(self) -> None:
        super().__init__()
        self.branch = mlp()
        self.register_buffer("budget", torch.tensor(2.0))

    def forward(self, x: Tensor) -> Tensor:
        spent = torch.zeros(())
        while spent.item() < self.budget.item():
            x = x + self.branch(x)
            spent = spent + 1
        return x


class ThroughNumpy(nn.Module):
    """Order from NumPy in the middle of the forward pass: one unit a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(mlp() for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        order = x.detach().numpy().shape[1]
        for layer in self.layers:
            x = x + layer(x)
        return x[:, :order]


def timed(batch: int) -> tuple[Tensor, Tensor]:
    return torch.randn(batch, 4, 8, 8), torch.rand(batch)


def written(make: Callable[[], nn.Module], x: Batch, known: int, count: str, remark: str = "") -> Model:
    """An entry of this file; `count` names the class whose sums were counted."""
    return Model(make, x, known, f"scripts/architecture_models/handwritten_models.py: {count}", remark)


def case(name: str, known: int, count: str, remark: str = "") -> Model:
    """A hand-written case of the tests; the number is what its design has, which the tests' may be short of."""
    return Model(CASES[name].make, CASES[name].x, known, f"tests/trace/nets.py: {count}", remark)


ODD_SUMS = (
    "mean of a stack",
    "sum of a stack",
    "tensordot",
    "einsum",
    "addcmul",
    "index_add",
    "index_add, some places",
    "scatter_add",
    "slice_scatter",
    "in place on a slice",
    "in place, first half of channels",
    "concatenated slices",
    "subtraction",
    "add_",
)
MODELS: dict[str, Model] = {
    "(ours) highway": case("highway", 2, "Highway, 2 of them"),
    "(ours) u-net, concatenated": case("u-net, concatenated", 3, "UNet, 3 residual blocks"),
    "(ours) cross-attention": case("cross-attention", 3, "Decoder, 3 sums"),
    "(ours) time conditioning": case("time conditioning", 3, "TimeConditioned, 3 blocks"),
    "(ours) coupling": case("coupling", 2, "Coupling, 2 sums"),
    # -- gates and interpolations
    "(ours) highway, convolutional": written(
        lambda: nn.Sequential(ConvolutionalHighway(), ConvolutionalHighway()),
        images(8, 4),
        2,
        "ConvolutionalHighway, 2 of them",
    ),
    "(ours) GTrXL": written(
        lambda: nn.Sequential(GatedTransformerXL(), GatedTransformerXL()),
        sequences,
        4,
        "GatedTransformerXL, 2 blocks x 2",
    ),
    "(ours) learned mix": written(
        lambda: nn.Sequential(GatedSkipByParameter(), GatedSkipByParameter()),
        vectors,
        2,
        "GatedSkipByParameter, 2 of them",
    ),
    "(ours) gate on the skip": written(
        lambda: nn.Sequential(GateOnSkip(), GateOnSkip()), images(8, 4), 2, "GateOnSkip, 2 of them"
    ),
    "(ours) adaptive norms": written(
        lambda: Conditioned([AdaptiveNormBlock(), AdaptiveNormBlock()]),
        conditioned,
        4,
        "AdaptiveNormBlock, 2 blocks x 2",
    ),
    "(ours) DiT": written(DiffusionTransformer, timed, 4, "DiffusionTransformer, 2 blocks x 2"),
    "(ours) nGPT": written(
        lambda: nn.Sequential(NormalizedBlock(), NormalizedBlock()), sequences, 4, "NormalizedBlock, 2 blocks x 2"
    ),
    # -- steps of differential equations
    "(ours) Heun": written(
        lambda: RungeKutta(2, 3),
        vectors,
        3,
        "RungeKutta, 3 steps",
        "the point at which the second slope is taken is a sum too, but no state that goes on",
    ),
    "(ours) Runge-Kutta": written(
        lambda: RungeKutta(4, 2),
        vectors,
        2,
        "RungeKutta, 2 steps",
        "the points at which the slopes are taken are sums too, but no states that go on",
    ),
    "(ours) Euler": written(lambda: Euler(3), vectors, 3, "Euler, 3 steps"),
    "(ours) equilibrium": written(lambda: Equilibrium(3), vectors, 3, "Equilibrium, 3 iterations"),
    "(ours) momentum": written(
        lambda: Momentum(3),
        vectors,
        3,
        "Momentum, 3 layers",
        "two streams; the velocity's own sum and the state's are one update",
    ),
    # -- couplings
    "(ours) RevNet": written(lambda: nn.Sequential(Coupling(), Coupling()), vectors, 4, "Coupling, 2 blocks x 2"),
    "(ours) Reformer": written(ReversibleTransformer, sequences, 4, "ReversibleTransformer, 2 layers x 2"),
    "(ours) i-RevNet": written(
        lambda: nn.Sequential(InvertibleDownsampling(), nn.PixelShuffle(2), InvertibleDownsampling()),
        images(8, 4),
        2,
        "InvertibleDownsampling, 2 of them",
    ),
    "(ours) Glow": written(
        lambda: nn.Sequential(AffineCoupling(), AffineCoupling()),
        images(8, 4),
        2,
        "AffineCoupling, 2 of them",
        "the skip of one half is multiplied by a function of the other",
    ),
    # -- several streams
    "(ours) ResiDual": written(
        TwoStreams, sequences, 4, "TwoStreams, 4 branches", "each branch is added to two streams: one update"
    ),
    "(ours) hyper-connections, static": written(
        lambda: HyperConnections("static"), sequences, 4, "HyperConnections, 4 branches"
    ),
    "(ours) hyper-connections, dynamic": written(
        lambda: HyperConnections("dynamic"), sequences, 4, "HyperConnections, 4 branches"
    ),
    "(ours) hyper-connections, doubly stochastic": written(
        lambda: HyperConnections("doubly stochastic"), sequences, 4, "HyperConnections, 4 branches"
    ),
    "(ours) AltUp": written(
        AlternatingUpdates,
        sequences,
        6,
        "AlternatingUpdates, 2 layers x (prediction, block, correction)",
    ),
    "(ours) LAuReL": written(
        lambda: nn.Sequential(LearnedAugmentedResidual(), LearnedAugmentedResidual()),
        vectors,
        2,
        "LearnedAugmentedResidual, 2 of them",
    ),
    # -- sums over depth
    "(ours) DenseFormer": written(DenseFormer, sequences, 6, "DenseFormer, 3 blocks x 2"),
    "(ours) attention over depth": written(AttentionOverDepth, sequences, 0, "AttentionOverDepth, no skip"),
    "(ours) MUDD": written(MultiwayDense, sequences, 4, "MultiwayDense, 2 blocks x 2"),
    "(ours) value residual": written(ValueResidual, sequences, 4, "ValueResidual, 2 layers x 2"),
    "(ours) N-BEATS": written(
        BackcastForecast,
        vectors,
        2,
        "BackcastForecast, 3 blocks less the last, whose backcast is never read",
    ),
    "(ours) WaveNet": written(WaveNet, signals, 3, "WaveNet, 4 layers less the last, whose state is never read"),
    "(ours) FractalNet": written(lambda: Fractal(3), images(8, 4), 0, "Fractal, no path without a convolution"),
    # -- convolutional blocks
    "(ours) stochastic depth": written(
        lambda: nn.Sequential(StochasticDepth(0.9), StochasticDepth(0.8)), images(8, 4), 2, "StochasticDepth, 2 of them"
    ),
    "(ours) squeeze and excitation": written(
        lambda: nn.Sequential(SqueezeExcite(), SqueezeExcite()), images(8, 4), 2, "SqueezeExcite, 2 of them"
    ),
    "(ours) CBAM": written(
        lambda: nn.Sequential(ConvolutionalBlockAttention(), ConvolutionalBlockAttention()),
        images(8, 4),
        2,
        "ConvolutionalBlockAttention, 2 of them",
    ),
    "(ours) ResNet-D": written(
        lambda: nn.Sequential(
            Residual(convolutions()), nn.ReLU(), Downsampling(), Residual(convolutions(8)), nn.ReLU()
        ),
        images(8, 4),
        3,
        "Residual, Downsampling, Residual",
    ),
    "(ours) pre-activation": written(
        lambda: nn.Sequential(Preactivation(4, 4), Preactivation(4, 6), Preactivation(6, 6)),
        images(8, 4),
        3,
        "Preactivation, 3 of them",
    ),
    "(ours) ResNeXt, split and summed": written(
        lambda: nn.Sequential(SplitTransformSum(), SplitTransformSum()), images(8, 4), 2, "SplitTransformSum, 2 of them"
    ),
    "(ours) Inception-ResNet": written(
        lambda: nn.Sequential(InceptionResidual(), InceptionResidual()), images(8, 4), 2, "InceptionResidual, 2 of them"
    ),
    "(ours) dual path": written(
        lambda: nn.Sequential(DualPath(0), DualPath(2)), images(8, 4), 2, "DualPath, 2 of them"
    ),
    "(ours) bottleneck transformer": written(
        lambda: nn.Sequential(BottleneckTransformer(), BottleneckTransformer()),
        images(8, 4),
        2,
        "BottleneckTransformer, 2 of them",
    ),
    "(ours) Fixup": written(lambda: nn.Sequential(Fixup(), Fixup()), images(8, 4), 2, "Fixup, 2 of them"),
    "(ours) SkipInit": written(
        lambda: nn.Sequential(Scaled(convolutions(), torch.tensor(0.2)), Scaled(convolutions(), torch.tensor(0.1))),
        images(8, 4),
        2,
        "Scaled, 2 of them",
    ),
    "(ours) ReZero": written(
        lambda: nn.Sequential(Scaled(mlp(), torch.tensor(0.0)), Scaled(mlp(), torch.tensor(0.0))),
        vectors,
        2,
        "Scaled, 2 of them",
        "the factor is zero at the start",
    ),
    "(ours) LayerScale": written(
        lambda: nn.Sequential(Scaled(Attention(), torch.full((D,), 0.1)), Scaled(mlp(), torch.full((D,), 0.1))),
        sequences,
        2,
        "Scaled, 2 of them",
    ),
    "(ours) snake": written(
        lambda: nn.Sequential(SnakeBlock(1), SnakeBlock(3), SnakeBlock(5)),
        signals,
        3,
        "SnakeBlock, 3 of them",
    ),
    "(ours) NVAE cell": written(
        lambda: nn.Sequential(NeuralAutoencoderCell(), NeuralAutoencoderCell()),
        images(8, 4),
        2,
        "NeuralAutoencoderCell, 2 of them",
    ),
    "(ours) TCN": written(
        lambda: nn.Sequential(TemporalBlock(1), TemporalBlock(2), TemporalBlock(4)),
        signals,
        3,
        "TemporalBlock, 3 of them",
    ),
    "(ours) gated PixelCNN": written(PixelNetwork, images(8, 4), 3, "GatedMaskedConvolution, 3 of them"),
    "(ours) diffusion U-Net": written(lambda: DiffusionUNet(False), timed, 4, "TimeBlock, 4 of them"),
    "(ours) diffusion U-Net with attention": written(
        lambda: DiffusionUNet(True), timed, 5, "TimeBlock, 4 of them, and SpatialAttention"
    ),
    # -- mixtures of experts
    **{
        f"(ours) experts, {way}": written(
            lambda way=way: ExpertModel(way), sequences, 4, "ExpertModel, 2 layers x 2", "router logits are outputs"
        )
        for way in ("dense", "gather", "index_add", "scatter_add")
    },
    "(ours) mixture of depths": written(
        lambda: nn.Sequential(MixtureOfDepths(), MixtureOfDepths()), sequences, 2, "MixtureOfDepths, 2 of them"
    ),
    # -- sums written in other ways
    **{
        f"(ours) sum by {way}": written(
            lambda way=way: nn.Sequential(OddSum(way), OddSum(way)), sequences, 2, "OddSum, 2 of them"
        )
        for way in ODD_SUMS
    },
    "(ours) sequence first": written(SequenceFirst, sequences, 4, "SequenceFirst, 2 layers x 2"),
    "(ours) channels last": written(
        lambda: nn.Sequential(ChannelsLast(), ChannelsLast()), images(8, 4), 2, "ChannelsLast, 2 of them"
    ),
    "(ours) flattened sum": written(
        lambda: nn.Sequential(FlattenedSum(), FlattenedSum()), sequences, 2, "FlattenedSum, 2 of them"
    ),
    # -- batch folded with something else
    "(ours) channel independence": written(ChannelIndependent, signals, 4, "ChannelIndependent, 2 blocks x 2"),
    "(ours) inner and outer": written(
        InnerAndOuter,
        images(8, 4),
        10,
        "InnerAndOuter, 2 layers x (2 inner, 2 outer, 1 from pixels to patches)",
    ),
    "(ours) shifted windows": written(WindowModel, images(8, 4), 4, "Windows, 2 blocks x 2"),
    "(ours) sums inside windows": written(WindowsInside, images(8, 4), 2, "Block, 2 sums"),
    "(ours) space and time": written(
        SpaceAndTime, lambda batch: torch.randn(batch, 3, 4, D), 4, "SpaceAndTime, 2 blocks x 2"
    ),
    # -- transformers of other kinds
    "(ours) pre-norm, causal": written(
        lambda: nn.Sequential(Block(causal=True), Block(causal=True)), sequences, 4, "Block, 2 x 2"
    ),
    "(ours) DeepNorm": written(
        lambda: nn.Sequential(PostNorm(1.5), PostNorm(1.5)), sequences, 4, "PostNorm, 2 blocks x 2"
    ),
    "(ours) post-norm": written(lambda: nn.Sequential(PostNorm(), PostNorm()), sequences, 4, "PostNorm, 2 blocks x 2"),
    "(ours) sandwich norms": written(
        lambda: nn.Sequential(Sandwich(), Sandwich()), sequences, 4, "Sandwich, 2 blocks x 2"
    ),
    "(ours) parallel branches": written(
        lambda: nn.Sequential(ParallelBlock(), ParallelBlock()), sequences, 2, "ParallelBlock, 2 of them"
    ),
    "(ours) universal transformer": written(Universal, sequences, 6, "Universal, 3 calls x 2"),
    "(ours) MM-DiT": written(
        JointModel,
        lambda batch: (sequences(batch), torch.randn(batch, 3, D)),
        8,
        "JointAttention, 2 blocks x 4",
        "two streams, each with an attention sum and a feed-forward sum",
    ),
    "(ours) memory": written(
        Memory, lambda batch: (sequences(batch), torch.randn(batch, 2, 3, D)), 4, "Memory, 2 layers x 2"
    ),
    "(ours) Perceiver": written(
        Perceiver,
        sequences,
        7,
        "Perceiver, 1 + 2 for the first reading and its block, 2 + 2 for the second",
        "the first latents are a parameter, not a state",
    ),
    "(ours) Set Transformer": written(
        SetTransformer,
        sequences,
        4,
        "SetAttention, 3 x 2 less the sums with inducing points and with the seed",
        "inducing points and seed are parameters, not states",
    ),
    "(ours) mixer": written(
        lambda: nn.Sequential(TokenMixer(), TokenMixer()), sequences, 4, "TokenMixer, 2 blocks x 2"
    ),
    "(ours) gMLP": written(lambda: nn.Sequential(SpatialGate(), SpatialGate()), sequences, 2, "SpatialGate, 2 of them"),
    "(ours) HyperMixer": written(
        lambda: nn.Sequential(HyperMixer(), HyperMixer()), sequences, 4, "HyperMixer, 2 blocks x 2"
    ),
    "(ours) Hyena": written(
        lambda: nn.Sequential(Hyena(), Hyena()),
        sequences,
        6,
        "Hyena, 2 blocks x (2 + the long convolution's direct term)",
    ),
    "(ours) state space": written(
        lambda: nn.Sequential(StateSpace(), StateSpace()),
        sequences,
        4,
        "StateSpace, 2 layers x (1 + the scan's own skip)",
    ),
    "(ours) RetNet": written(lambda: nn.Sequential(Retention(), Retention()), sequences, 4, "Retention, 2 blocks x 2"),
    "(ours) linear attention": written(
        lambda: nn.Sequential(LinearAttention(), LinearAttention()), sequences, 4, "LinearAttention, 2 blocks x 2"
    ),
    "(ours) Conformer": written(
        lambda: nn.Sequential(Conformer(), Conformer()), sequences, 8, "Conformer, 2 blocks x 4"
    ),
    "(ours) Squeezeformer": written(
        Squeezeformer,
        lambda batch: torch.randn(batch, 6, D),
        9,
        "Squeezeformer, 2 blocks x 4 and the long skip",
    ),
    "(ours) residual LSTM": written(lambda: Recurrent(nn.LSTM), sequences, 2, "Recurrent, 2 layers"),
    "(ours) residual GRU": written(lambda: Recurrent(nn.GRU), sequences, 2, "Recurrent, 2 layers"),
    # -- graphs
    "(ours) edge list": written(
        lambda: nn.Sequential(EdgeConvolution(), EdgeConvolution()), sequences, 2, "EdgeConvolution, 2 of them"
    ),
    "(ours) graph convolution": written(
        lambda: Conditioned([GraphConvolution(), GraphConvolution()]), graphs, 2, "GraphConvolution, 2 of them"
    ),
    "(ours) DeepGCN": written(lambda: Conditioned([DeepGraph(), DeepGraph()]), graphs, 2, "DeepGraph, 2 of them"),
    "(ours) GIN": written(
        lambda: Conditioned([GraphIsomorphism(), GraphIsomorphism()]), graphs, 2, "GraphIsomorphism, 2 of them"
    ),
    # -- several outputs
    "(ours) auxiliary heads": written(AuxiliaryHeads, images(8, 4), 4, "AuxiliaryHeads, 4 blocks"),
    "(ours) heads inside branches": written(HeadInsideBranch, vectors, 3, "HeadInsideBranch, 3 layers"),
    "(ours) hidden states and maps": written(HiddenStates, sequences, 4, "HiddenStates, 2 layers x 2"),
    "(ours) early exits": written(
        EarlyExits, vectors, 3, "EarlyExits, 3 blocks", "the mean of all heads collects, and is no unit"
    ),
    # -- what an exporter dislikes
    "(ours) branch on a value": written(
        lambda: nn.Sequential(BranchOnValue(), BranchOnValue()), vectors, 2, "BranchOnValue, 2 of them"
    ),
    "(ours) module on the fly": written(ModuleOnTheFly, vectors, 2, "ModuleOnTheFly, 2 layers"),
    "(ours) size from an item": written(
        lambda: nn.Sequential(SizeFromItem(), SizeFromItem()), sequences, 2, "SizeFromItem, 2 of them"
    ),
    "(ours) loop until": written(LoopUntil, vectors, 2, "LoopUntil, 2 rounds"),
    "(ours) through NumPy": written(ThroughNumpy, sequences, 2, "ThroughNumpy, 2 layers"),
}
