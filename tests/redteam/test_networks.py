"""The red team on networks: sums of every form, found and named units, every scale, no wrong number without a flag."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

import skipscope as ss
from tests.redteam.networks import Network, make_network
from tests.redteam.tally import FLAG, Outcome, Tally

ROUNDING = 1e-12  # of s1: the reference's own, whose matrix is made by a few dozen operations in float64
SINGLE = 1e-4  # of s1: a derivative whose every operation is in float32, through layers that amplify its rounding
ERRORS = 7.0  # standard errors
PROBES = 64  # with 8, the error that is taken from them is too small in one of some hundred units of low rank
SMALLEST = 1e-307


def attack(network: Network, tally: Tally) -> None:
    """All units of a network."""
    paths = [str(i) for i in range(len(network.model))] if network.named else None
    try:
        trunk = ss.trace(network.model, network.x, units=paths)
        point = trunk.at(network.x)
        profile = ss.profile(trunk, point, probes=PROBES)
    except ss.SkipscopeError as error:
        tally.add("trace and profile", "flagged", ordinary=network.ordinary, note=str(error))
        return
    by_block = {unit.name.split(".")[0].split("#")[0]: unit for unit in trunk.units}
    for block in range(len(network.model)):
        unit = by_block.get(str(block))
        if unit is None:  # left out, with its reason in trunk.left_out
            seen = any(entry.where.split(".")[0] == str(block) for entry in trunk.left_out)
            tally.add("units", "flagged" if seen else "wrong", note=f"{network.name}: no unit in block {block}")
            continue
        tally.add("units", "right", ordinary=network.ordinary)
        _attack_unit(network, trunk, point, profile, block, unit, tally)


def _attack_unit(
    network: Network, trunk: ss.Trunk, point: Any, profile: Any, block: int, unit: Any, tally: Tally
) -> None:
    matrices, exponent = network.matrices(block, point.entry(unit))
    expected = torch.linalg.svdvals(matrices)  # B, n
    own = ROUNDING * expected[:, :1]

    def in_unit(numbers: Tensor) -> Tensor:
        return torch.ldexp(numbers.double(), -exponent.reshape(-1, *[1] * (numbers.dim() - 1)))

    def full(route: str) -> tuple[Tensor, Tensor]:
        found = ss.singular_values(unit.jacobian(point), route=route)
        bound = in_unit(found.bound)
        wrong = ~((in_unit(found.values) - expected).abs() <= bound + own).all(1)  # a bound that is NaN is wrong too
        wrong |= found.zeros_at_least > (expected <= own).sum(1)
        at_one = (torch.ldexp(expected, exponent[:, None]) - 1).abs() <= 1e-7 + torch.ldexp(own, exponent[:, None])
        wrong |= found.ones_at_least > at_one.sum(1)
        return wrong, (bound > FLAG * expected[:, :1]).any(1)

    def leading() -> tuple[Tensor, Tensor]:
        found = ss.svd(unit.jacobian(point), k=3, route="iterative")
        allowed = in_unit(found.residuals) + (SINGLE if network.x.dtype == torch.float32 else 1e-9) * expected[:, :1]
        return ((in_unit(found.S) - expected[:, :3]).abs() > allowed).any(1), ~found.converged.all(1)

    def products() -> tuple[Tensor, Tensor]:
        """In float64, and in the model's own type as far as rounding goes: of a unit that amplifies it, as float64
        shows, farther."""
        own_type = unit.jacobian(point)
        v = torch.randn(*own_type.shape[::2], 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        size = 10 * torch.linalg.matrix_norm(matrices)
        off = {}
        for J in (own_type, own_type.double()):
            ahead, back = in_unit(J.matmat(v.to(J.dtype))), in_unit(J.rmatmat(v.to(J.dtype)))
            both = torch.cat([ahead - matrices @ v, back - matrices.mT @ v], 1)
            off[J.dtype] = both.flatten(1).norm(dim=1)
        wrong = off[torch.float64] > 1e-10 * size
        amplified = off[torch.float64] / torch.finfo(torch.float64).eps * torch.finfo(own_type.dtype).eps
        wrong |= off[own_type.dtype] > SINGLE * size + 8 * amplified
        return wrong, torch.zeros_like(wrong)

    def mean_square() -> tuple[Tensor, Tensor]:
        row = profile.sel(unit=unit.name)
        found, error = (torch.as_tensor(row[name].values) for name in ("jacobian_square", "jacobian_square_error"))
        exact = matrices.square().sum((1, 2)) / matrices.shape[2]
        lost = torch.ldexp(torch.full_like(exact, SMALLEST), -2 * exponent)  # squares may be below all numbers
        found, error = (torch.ldexp(number.double(), -2 * exponent) for number in (found, error))
        wrong = (found - exact).abs() > ERRORS * error + 10 * SINGLE * exact + lost
        return wrong, ~torch.isfinite(found)

    answers: dict[str, Callable[[], tuple[Tensor, Tensor]]] = {
        "singular_values of a unit": lambda: full("auto"),
        "svd of a unit": leading,
        "products of a unit": products,
        "profile of a unit": mean_square,
    }
    if unit.kind == "identity" and not network.named:
        answers["singular_values of a unit, by the law"] = lambda: full("law")
    for solver, answer in answers.items():
        try:
            wrong, flagged = answer()
        except ss.InputError as error:
            if "route='law'" not in str(error):
                tally.add(solver, "flagged", ordinary=network.ordinary, note=str(error))
            continue
        wrong = wrong & ~flagged
        outcome: Outcome = "wrong" if wrong.any() else "flagged" if flagged.any() else "right"
        note = f"{network.name}, block {block} ({network.model[block].total})"
        tally.add(solver, outcome, ordinary=network.ordinary, note=note)


def attacked(seeds: Sequence[int], blocks: int = 6) -> Tally:
    tally = Tally()
    for seed in seeds:
        attack(make_network(seed, blocks), tally)
    return tally


def test_three_networks() -> None:
    attacked((1, 2, 6), blocks=3).check()


@pytest.mark.slow
@pytest.mark.parametrize("start", range(100, 180, 10))
def test_eighty_networks_of_six_units(start: int) -> None:
    tally = attacked(range(start, start + 10))
    print(tally.table())
    tally.check()


if __name__ == "__main__":  # python -m tests.redteam.test_networks: the table of docs/numerics.md
    print(attacked(range(100, 180)).table())
