"""Every solver's answer to a case, judged against the reference: right, flagged or wrong (see `tally`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from skipscope.errors import InputError
from skipscope.spectrum.condition import condition_number
from skipscope.spectrum.density import spectral_density
from skipscope.spectrum.full import singular_values
from skipscope.spectrum.lanczos import eigs, inertia
from skipscope.spectrum.quadrature import random_signs
from skipscope.spectrum.scale import default_tolerance, scaled
from skipscope.spectrum.truncated_svd import svd
from tests.redteam.operators import Case
from tests.redteam.tally import FLAG, Outcome, Tally

SMALLEST = 5e-324


def judge(case: Case, tally: Tally) -> None:
    """All solvers that can take the operator."""
    solvers: dict[str, Callable[[], tuple[bool, bool, Any]]] = {
        f"singular_values, {route}": lambda route=route: full(case, route) for route in ("auto", "gram", "svd")
    }
    for route in ("dense", "iterative"):
        for which in ("largest", "smallest"):
            solvers[f"svd, {route}, {which}"] = lambda route=route, which=which: triplets(case, route, which)
    for budget in (20, 60):
        solvers[f"svd, iterative, {budget} products"] = lambda budget=budget: triplets(
            case, "iterative", "largest", budget
        )
    solvers["condition_number"] = lambda: condition(case)
    solvers["spectral_density"] = lambda: density(case, False)
    if case.symmetric:
        for route in ("dense", "iterative"):
            for which in ("largest", "smallest", "magnitude"):
                solvers[f"eigs, {route}, {which}"] = lambda route=route, which=which: pairs(case, route, which)
        solvers["eigs, iterative, 30 products"] = lambda: pairs(case, "iterative", "magnitude", 30)
        solvers["inertia"] = lambda: signs(case)
        solvers["spectral_density, symmetric"] = lambda: density(case, True)
    for solver, answer in solvers.items():
        try:
            wrong, flagged, what = answer()
        except InputError as error:
            wrong, flagged, what = False, True, error
        outcome: Outcome = "wrong" if wrong else "flagged" if flagged else "right"
        tally.add(solver, outcome, ordinary=case.ordinary, note=f"{case.name}: {what}")


def full(case: Case, route: str) -> tuple[bool, bool, Any]:
    found = singular_values(case.operator, route=route)
    values, bound = case.in_unit(found.values), case.in_unit(found.bound)
    expected = torch.linalg.svdvals(case.exact.unit)
    own = _own(case, torch.float64)[:, None]  # the bound has all the rest
    flagged = (bound > FLAG * expected[:, :1]).any(1)
    off = ((values - expected).abs() > bound + own).any(1)
    unproved = found.zeros_at_least > (expected <= own).sum(1)
    return bool(((off | unproved) & ~flagged).any()), bool(flagged.any()), (values - expected).abs().amax(1)


def triplets(case: Case, route: Any, which: Any, budget: int | None = None) -> tuple[bool, bool, Any]:
    k = min(4, *case.operator.shape[1:])
    found = svd(case.operator, k, route=route, which=which, max_products=budget)
    expected = torch.linalg.svdvals(case.exact.unit)
    wanted = expected[:, :k] if which == "largest" else expected[:, -k:].flip(1)
    return _compared(case, found.S, found.residuals, found.converged, wanted, expected[:, 0])


def pairs(case: Case, route: Any, which: Any, budget: int | None = None) -> tuple[bool, bool, Any]:
    k = min(3, case.operator.shape[2])
    found = eigs(case.operator, k, route=route, which=which, max_products=budget)
    values = torch.linalg.eigvalsh(case.exact.unit)
    key = values.abs() if which == "magnitude" else values
    order = key.argsort(1, descending=which != "smallest")[:, :k]
    wanted, answer = values.gather(1, order), found.values
    if which == "magnitude":
        wanted, answer = wanted.abs(), answer.abs()  # l and -l come in either order
    return _compared(case, answer, found.residuals, found.converged, wanted, values.abs().amax(1))


def _compared(
    case: Case, found: Tensor, residuals: Tensor, converged: Tensor, wanted: Tensor, largest: Tensor
) -> tuple[bool, bool, Any]:
    """A converged value is within its residual, and the tolerance, of the one that was asked for."""
    off = (case.in_unit(found) - wanted).abs()
    allowed = default_tolerance(case.operator.dtype) * largest[:, None] + case.in_unit(residuals) + _own(case)[:, None]
    converged = converged.cpu()
    return bool(((off > allowed) & converged).any()), not converged.all(), off.amax(1)


def signs(case: Case) -> tuple[bool, bool, Any]:
    counts = inertia(case.operator)
    values, tolerance = torch.linalg.eigvalsh(case.exact.unit), case.in_unit(counts.tolerance)
    flagged = tolerance > FLAG * values.abs().amax(1)
    wrong = torch.zeros(len(values), dtype=torch.bool)
    own = 4 * _own(case)
    for sign, count in ((-1, counts.negative), (1, counts.positive)):
        least = (sign * values > (tolerance + own)[:, None]).sum(1)
        most = (sign * values > (tolerance - own)[:, None]).sum(1)
        wrong |= (count.cpu() < least) | (count.cpu() > most)
    return bool((wrong & ~flagged).any()), bool(flagged.any()), (counts.negative, counts.positive)


def density(case: Case, symmetric: bool) -> tuple[bool, bool, Any]:
    """The second moment of every probe, which the quadrature has exactly, and the mass at zero where it is exact."""
    found = spectral_density(case.operator, symmetric=symmetric, probes=3, steps=40)
    matrix = case.exact.unit if case.exact.unit.shape[1] >= case.exact.unit.shape[2] else case.exact.unit.mT
    probes = random_signs(matrix.shape[2], 3, 0).mT  # n, probes
    expected = (matrix @ probes).square().sum(1)  # B, probes
    nodes = case.in_unit(found.nodes)
    moments = (found.weights * nodes**2).sum(-1)
    largest = torch.linalg.matrix_norm(matrix, ord=2)
    own = 40 * (_own(case) + torch.finfo(case.operator.dtype).eps * largest) * largest
    wrong = (moments - expected).abs() > own[:, None]
    _, sizes, rows = torch.linalg.svd(matrix, full_matrices=False)
    null = case.in_unit(found.rounding)[:, None]
    clear = ((sizes <= null) | (sizes > 1e-2 * largest[:, None])).all(1)  # nothing lies near zero but zeros
    share = ((rows @ probes).square() * (sizes <= null)[:, :, None]).sum(1).mean(1)  # B
    mass = found.mass_at(0)
    far = (mass.value - share).abs() > 1e-3 + mass.bias
    wrong = wrong.any(1) | (far & clear & found.exact.all(1))
    return bool(wrong.any()), False, ((moments - expected).abs().amax(1), mass.value, share)


def condition(case: Case) -> tuple[bool, bool, Any]:
    wrong, flagged, seen = False, False, []
    expected, own = torch.linalg.svdvals(case.exact.unit), 4 * _own(case)
    size = max(case.operator.shape[1:])
    for sample, found in enumerate(condition_number(case.operator)):
        largest, least = float(expected[sample, 0]), float(expected[sample, -1])
        seen.append((found.value, found.status, largest, least))
        off = float(own[sample])
        if found.status == "finite":
            low, high = (largest - off) / (least + off), (largest + off) / max(least - off, SMALLEST)
            wrong |= not low <= found.value <= high
        elif found.status == "infinite":
            wrong |= least > off
        else:
            flagged |= least > off + 4 * size * torch.finfo(torch.float64).eps * largest
    return wrong, flagged, seen


def _own(case: Case, dtype: torch.dtype | None = None) -> Tensor:
    """(B,) what the reference is off by, in the unit, or a product of the operator's type; and what float64 cannot hold
    of an answer."""
    smallest = scaled(torch.full((len(case.exact.exponent),), SMALLEST).double(), -torch.tensor(case.exact.exponent))
    return case.rounding(dtype or case.operator.dtype) + smallest
