"""Random residual networks at any scale: sums of every form, tails, branches; with references from plain autograd.

A network is a chain of blocks. A block is one residual unit, written in one of the forms that people write sums in; its
derivative is taken from a float64 copy of the block alone, row by row, in reverse mode, with its own scale taken out:
nothing of the tracing, of forward mode or of a solver is in it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tests import seeded

F32, F64 = torch.float32, torch.float64
REACH = {F64: 140, F32: 16}  # powers of ten of a state, and of a branch's factor: their product has to stay a number

Sum = Callable[[Tensor, Tensor, Tensor], Tensor]
SUMS: dict[str, Sum] = {
    "x + f": lambda x, f, g: x + f,
    "f + x": lambda x, f, g: f + x,
    "x - f": lambda x, f, g: x - f,
    "f - x": lambda x, f, g: f - x,
    "x + f + f": lambda x, f, g: x + f + f,
    "sum of f, x, f": lambda x, f, g: sum([f, x, f]),  # type: ignore[arg-type, return-value]
    "x - f - f": lambda x, f, g: x - f - f,
    "x + f + g": lambda x, f, g: x + f + g,
    "x + f + g + f": lambda x, f, g: x + f + g + f,
    "x + (f - g)": lambda x, f, g: x + (f - g),
    "x + 2 f": lambda x, f, g: torch.add(x, f, alpha=2),
    "x / 2 + f": lambda x, f, g: torch.add(f, x, alpha=0.5),
    "lerp": lambda x, f, g: torch.lerp(x, f, 0.3),
    "stack": lambda x, f, g: torch.stack([x, f, g]).sum(0),
    "in place": lambda x, f, g: f.clone().add_(x),
    "addcmul": lambda x, f, g: torch.addcmul(x, f, torch.full_like(f, 0.5)),
    "written": lambda x, f, g: torch.empty_like(x).copy_(f) + x,
}
TAILS: dict[str, Callable[[Tensor], Tensor]] = {
    "": lambda z: z,
    "relu": torch.relu,
    "leaky": lambda z: nn.functional.leaky_relu(z, 0.1),
    "where": lambda z: torch.where(z > 0, z, 0.0),
    "product": lambda z: z * (z > 0),
    "maximum": lambda z: torch.maximum(z, torch.zeros_like(z)),
    "clamp": lambda z: z.clamp(min=0),
}


class Scaled(nn.Module):
    """factor * inner(x / size): a branch of any size at states of any size."""

    def __init__(self, inner: nn.Module, size: float, factor: float) -> None:
        super().__init__()
        self.inner, self.size, self.factor = inner, size, factor

    def forward(self, x: Tensor) -> Tensor:
        return self.factor * self.inner(x / self.size)


class Block(nn.Module):
    def __init__(self, first: nn.Module, second: nn.Module, total: str, tail: str) -> None:
        super().__init__()
        self.first, self.second, self.total, self.tail = first, second, total, tail

    def forward(self, x: Tensor) -> Tensor:
        return TAILS[self.tail](SUMS[self.total](x, self.first(x), self.second(x)))


class Mixing(nn.Module):
    """Attention without a softmax, over tokens."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.queries, self.values = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        scores = torch.softmax(self.queries(x) @ x.mT, -1)
        return scores @ self.values(x)


def branch(kind: str, width: int, inner: int) -> nn.Module:
    """Of a vector (width), of tokens (3, width) or of an image (width, 3, 3)."""
    layers: dict[str, Callable[[], list[nn.Module]]] = {
        "relu": lambda: [nn.Linear(width, inner), nn.ReLU(), nn.Linear(inner, width)],
        "tanh": lambda: [nn.Linear(width, inner), nn.Tanh(), nn.Linear(inner, width)],
        "linear": lambda: [nn.Linear(width, inner, bias=False), nn.Linear(inner, width)],
        "norm": lambda: [nn.LayerNorm(width), nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width)],
        "zero": lambda: [nn.Linear(width, inner), nn.ReLU(), nn.Linear(inner, width)],
        "attention": lambda: [Mixing(width)],
        "convolution": lambda: [
            nn.Conv2d(width, inner, 3, padding=1),
            nn.BatchNorm2d(inner),
            nn.ReLU(),
            nn.Conv2d(inner, width, 3, padding=1),
        ],
    }
    made = nn.Sequential(*layers[kind]())
    if kind == "zero":
        nn.init.zeros_(made[-1].weight)
    for module in made.modules():
        if isinstance(module, nn.BatchNorm2d):
            assert module.running_mean is not None
            assert module.running_var is not None
            module.running_mean.normal_(0, 0.3)
            module.running_var.uniform_(0.5, 2)
            module.num_batches_tracked += 1
    return made


@dataclass(frozen=True)
class Network:
    name: str
    model: nn.Sequential  # of blocks
    x: Tensor
    ordinary: bool
    named: bool  # to be traced by the names of its blocks

    def matrices(self, block: int, entry: Tensor) -> tuple[Tensor, Tensor]:
        """(B, m, n): the block's derivative at its entry, sample by sample, over (B,) powers of two, in float64."""
        exact = copy.deepcopy(self.model[block]).double().eval()
        parts = []
        for sample in entry.double():
            rows = torch.autograd.functional.jacobian(exact, sample[None])
            parts.append(rows.reshape(sample.numel(), sample.numel()))
        whole = torch.stack(parts)
        exponent = torch.frexp(whole.abs().flatten(1).amax(1).clamp_min(torch.finfo(F64).tiny)).exponent
        return torch.ldexp(whole, -exponent[:, None, None]), exponent


def make_network(seed: int, blocks: int = 6) -> Network:
    """Everything follows from the seed."""
    generator = seeded.generator(seed)

    def pick(choices: list[str]) -> str:
        return choices[int(torch.randint(len(choices), (1,), generator=generator))]

    def power(reach: float) -> float:
        return 10 ** (float(torch.rand(1, generator=generator) * 2 - 1) * reach)

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        dtype = (F64, F32)[seed % 2]
        shape, kinds = {
            0: ((8,), ["relu", "tanh", "linear", "norm", "zero"]),
            1: ((3, 6), ["relu", "tanh", "norm", "attention"]),
            2: ((4, 3, 3), ["convolution"]),
        }[seed % 3]
        width = shape[0] if seed % 3 == 2 else shape[-1]
        ordinary = seed % 4 < 2
        size = power(12.0 if ordinary else REACH[dtype])
        chain = []
        for _ in range(blocks):
            factor = size * power(3.0 if ordinary else REACH[dtype])
            inner = (2, 3, width, 2 * width)[int(torch.randint(4, (1,), generator=generator))]
            first, second = (Scaled(branch(pick(kinds), width, inner), size, factor) for _ in range(2))
            # A tail that shuts off everything would leave nothing to look at further on.
            chain.append(Block(first, second, pick(list(SUMS)), pick(["", "", "", *TAILS])))
        batch = 2 + seed % 3
        unequal = torch.tensor([10.0 ** (-3 * sample) for sample in range(batch)]).reshape(-1, *[1] * len(shape))
        x = torch.randn(batch, *shape, dtype=F64) * size * (unequal if seed % 5 == 0 else 1)
    names = ", ".join(f"{block.total} {block.tail}".strip() for block in chain)
    return Network(
        f"network {seed} ({names}; size {size:.1e})",
        nn.Sequential(*chain).to(dtype),
        x.to(dtype),
        ordinary,
        named=seed % 7 == 0,
    )
