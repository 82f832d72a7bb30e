"""Networks of commuting weights: theorems 1 to 3, and where one of their conditions is missing."""

from __future__ import annotations

import math
from itertools import product

import torch
import xarray
from torch import Tensor

from skipscope.numerics import random_numbers
from skipscope.papers.c.theory import commuting_product, random_matrices
from skipscope.papers.kit.tables import table

MEASURE = "theory_products"
RATIO = 0.8  # |lambda_i / lambda_1| at most, where a product is to collapse
PATHS = 4  # of a ResNeXt
LED, ALTERNATING, CLOSING, APART = (
    "one direction",
    "direction alternates",
    "ratios approach 1",
    "weights do not commute",
)
SIGNS = ("all positive", "leading negative", "all negative", "either")  # of eigenvalues
EIGENVALUES = (0.01, 0.1, 0.3, 0.9)  # largest absolute values


def drawing(*parts: int | str) -> torch.Generator:
    return random_numbers("theorems of C", *parts)


def frame(size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """A start (n), and an orthonormal basis (n, n)."""
    normal = random_matrices("normal", 2, size, generator)
    return normal[0, 0], torch.linalg.qr(normal[1])[0]


def uniform(shape: tuple[int, ...], low: float, high: float, generator: torch.Generator) -> Tensor:
    drawn = torch.rand(shape, dtype=torch.float64, generator=generator, device="cpu")
    return low + (high - low) * drawn


def _led(layers: int, size: int, generator: torch.Generator, ratio: float = RATIO) -> Tensor:
    """(layers, n): eigenvalues of either sign around 1, the others at most `ratio` of the first."""
    leading = uniform((layers, 1), 0.5, 1.5, generator)
    others = leading * uniform((layers, size - 1), -ratio, ratio, generator)
    return torch.cat([leading, others], 1)


def sums(*, draws: int, size: int, layers: int, seed: int) -> xarray.Dataset:
    """Of theorems 1 to 3: the sum over eigenvectors against dense weights, layer by layer."""
    rows = []
    for (kind, paths), draw in product({"PlainNet": 1, "ResNet": 1, "ResNeXt": PATHS}.items(), range(draws)):
        generator = drawing("sums", seed, kind, draw)
        start, basis = frame(size, generator)
        values = torch.stack([_led(layers, size, generator) for _ in range(paths)], 1)
        network = commuting_product(start, basis, values, skips=kind != "PlainNet")
        rows.append({"kind": kind, "paths": paths, "error": network.error})
    return table("case", range(len(rows)), rows, measure=MEASURE, part="sums", layers=layers, width=size)


def collapse(*, draws: int, size: int, layers: int, seed: int) -> xarray.Dataset:
    """Theorem 1, and where one of its conditions is missing: cosine of state and v_1 by layer.

    `colinear` is the cosine of the states of two inputs. Without commuting weights v_1 is that of the last layer so
    far.
    """
    cases = (LED, ALTERNATING, CLOSING, APART)
    shape = (len(cases), draws, layers)
    cosine, colinear = torch.empty(shape, dtype=torch.float64), torch.empty(shape, dtype=torch.float64)
    ratio = torch.empty(shape[:2], dtype=torch.float64)
    for (place, case), draw in product(enumerate(cases), range(draws)):
        generator = drawing("collapse", seed, case, draw)
        bases = [frame(size, generator)[1] for _ in range(layers)]
        first, basis = frame(size, generator)
        second = frame(size, generator)[0]
        values = _eigenvalues(case, layers, size, generator)
        states = torch.stack([first, second], 1)
        largest = values.abs().topk(2).values
        ratio[place, draw] = (largest[:, 1] / largest[:, 0]).max()
        for layer in range(layers):
            V = bases[layer] if case == APART else basis
            states = V @ (values[layer, :, None] * (V.T @ states))
            states = states / states.norm(dim=0)
            cosine[place, draw, layer] = (V[:, 0] @ states[:, 0]).abs()
            colinear[place, draw, layer] = (states[:, 0] @ states[:, 1]).abs()
    return xarray.Dataset(
        {
            "cosine": (("case", "draw", "layer"), cosine.numpy()),
            "colinear": (("case", "draw", "layer"), colinear.numpy()),
            "ratio": (("case", "draw"), ratio.numpy()),
        },
        {"case": list(cases), "draw": range(draws), "layer": range(1, layers + 1)},
        {"measure": MEASURE, "part": "collapse", "width": size},
    )


def _eigenvalues(case: str, layers: int, size: int, generator: torch.Generator) -> Tensor:
    """(layers, n)"""
    values = _led(layers, size, generator)
    if case == ALTERNATING:  # the first and the second direction lead in turn, equally often in the end
        values[:, 1] = RATIO * values[:, 0]
        values[1::2, :2] = values[0::2, :2].flip(1)[: len(values[1::2])]
    if case == CLOSING:
        layer = torch.arange(1, layers + 1, dtype=torch.float64, device="cpu")
        values[:, 1:] = values[:, :1] * (1 - 1 / (layer + 1).square())[:, None]
    return values


def powers(*, layers: int) -> xarray.Dataset:
    """The product in 14 with l as the layer's index, and with l as a power, for a ratio that is the same everywhere."""
    start = torch.ones(2, dtype=torch.float64, device="cpu")
    rows = []
    for ratio in (0.8, 0.95, 0.99, 0.999):
        values = torch.tensor([[1.0, ratio]] * layers, dtype=torch.float64, device="cpu")
        network = commuting_product(start, torch.eye(2, dtype=torch.float64, device="cpu"), values)
        growth = network.growth
        power = ratio ** (layers * (layers + 1) / 2)
        rows.append(
            {
                "ratio": ratio,
                "index": float(growth[1] / growth[0]),
                "power": power,
                "cosine": network.cosine,
                "cosine_by_power": 1 / math.hypot(1, power),
            }
        )
    return table("case", range(len(rows)), rows, measure=MEASURE, part="powers", layers=layers)


def _drawn_eigenvalues(signs: str, scale: float, layers: int, size: int, generator: torch.Generator) -> Tensor:
    """(layers, n): absolute values uniform up to `scale`, in every layer the largest one first."""
    values = uniform((layers, size), 0.0, scale, generator)
    leads = values.argmax(1, keepdim=True)
    first = values[:, :1].clone()
    values[:, :1] = values.gather(1, leads)
    values.scatter_(1, leads, torch.where(leads == 0, values[:, :1], first))
    if signs == "either":
        return values * torch.where(torch.rand(values.shape, generator=generator, device="cpu") < 0.5, -1.0, 1.0)
    if signs == "all negative":
        return -values
    if signs == "leading negative":
        values[:, 0] *= -1
    return values


def approximation(*, draws: int, size: int, layers: int, seed: int) -> xarray.Dataset:
    """Approximation 16 for eigenvalues of all signs and sizes: medians over draws."""
    rows = []
    for signs, scale in product(SIGNS, EIGENVALUES):
        found, plain = [], []
        for draw in range(draws):
            generator = drawing("approximation", seed, signs, str(scale), draw)
            start, basis = frame(size, generator)
            values = _drawn_eigenvalues(signs, scale, layers, size, generator)
            found.append(commuting_product(start, basis, values, skips=True))
            plain.append(commuting_product(start, basis, values).log10_condition)
        rows.append(
            {
                "signs": signs,
                "scale": scale,
                "bounded": _median([network.bounded_error for network in found]),
                "error": _median([network.approximation_error for network in found]),
                "cosine": _median([network.cosine for network in found]),
                "log10_condition": _median([network.log10_condition for network in found]),
                "log10_condition_plain": _median(plain),
            }
        )
    return table("case", range(len(rows)), rows, measure=MEASURE, part="approximation", layers=layers)


def _median(values: list[float]) -> float:
    return float(torch.tensor(values, dtype=torch.float64, device="cpu").median())


def paths(*, draws: int, size: int, layers: int, seed: int) -> xarray.Dataset:
    """Theorem 3: in every path the first eigenvalue leads. Of their sums it does, or paths cancel and it does not."""
    rows = []
    for kind, draw in product(("sums ordered", "sums not ordered"), range(draws)):
        generator = drawing("paths", seed, kind, draw)
        start, basis = frame(size, generator)
        values = uniform((layers, PATHS, size), 0.2, RATIO, generator)
        values[..., 0] = 1.0
        if kind == "sums not ordered":
            values[:, 1::2, 0] = -1.0
        network = commuting_product(start, basis, values, skips=True)
        rows.append(
            {
                "kind": kind,
                "ratio": network.largest_ratio,
                "ratio_of_sums": network.largest_ratio_of_sums,
                "cosine": network.cosine,
                "bounded": network.bounded_error,
            }
        )
    return table("case", range(len(rows)), rows, measure=MEASURE, part="paths", layers=layers, paths=PATHS)
