"""Random matrices: products of many of them, with and without skips, and how often one is singular (proposition 1);
least squares with inputs that change a little (proposition 3); ranks of gradients."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
import xarray

from skipscope.papers.c.measurements.commuting_weights import MEASURE, drawing, frame
from skipscope.papers.c.theory import (
    ENTRIES,
    PerturbedLeastSquares,
    linear_gradients,
    proposition3,
    random_matrices,
    random_product,
    rank_of_product,
    residual_isometry,
    singular,
    small_branch_exponents,
    worst_change,
)
from skipscope.papers.kit.tables import table

TENTH = 0.1
SCALES = (1.0, 0.5, 0.3, TENTH, 0.05, 0.01)  # of branches, times He's; 0.5: two weights of variance 1/n
VARIANCES = (0.25, 1.0)  # c, of all branches together
CONDITIONS = (10.0, 1e3, 1e5)  # of inputs
CHANGES = (1e-4, 1e-2, 0.1)  # cond times eps


def products(*, draws: int, size: int, units: Sequence[int], seed: int) -> xarray.Dataset:
    """log10 cond of I + s W2 W1 and of W2 W1, by the number of units; `float64`: as it is computed there.

    What small branches are predicted to have: in short networks, where c is far below 1, and in long ones.
    """
    depths = sorted(set(units))
    at = torch.tensor(depths, device="cpu") - 1
    shape = (len(SCALES) + 1, draws, len(depths))
    true, computed = torch.empty(shape, dtype=torch.float64), torch.empty(shape, dtype=torch.float64)
    for (place, scale), draw in itertools.product(enumerate((*SCALES, None)), range(draws)):
        product = random_product(
            size,
            depths[-1],
            seed=drawing("products", seed, draw),
            skips=scale is not None,
            scale=1.0 if scale is None else scale,
        )
        true[place, draw] = product.log10_condition[at]
        for column, depth in enumerate(depths):
            computed[place, draw, column] = math.log10(product.in_float64(depth).value)
    growth = [small_branch_exponents(size, 4 * scale**2 / size) for scale in SCALES]
    long = [[float(line[0] - line[-1]) * depth / math.log(10) for depth in depths] for line in growth]
    short = [[2 * math.sqrt(8 * scale**2 * depth) / math.log(10) for depth in depths] for scale in SCALES]
    return xarray.Dataset(
        {
            "log10_condition": (("scale", "draw", "units"), true[:-1].numpy()),
            "float64": (("scale", "draw", "units"), computed[:-1].numpy()),
            "predicted_long": (("scale", "units"), long),
            "predicted_short": (("scale", "units"), short),
            "log10_condition_plain": (("draw", "units"), true[-1].numpy()),
            "float64_plain": (("draw", "units"), computed[-1].numpy()),
        },
        {"scale": list(SCALES), "draw": range(draws), "units": depths},
        {"measure": MEASURE, "part": "products", "width": size, "numerical_infinity": product.numerical_infinity},
    )


def moments(*, size: int, units: int, seed: int) -> xarray.Dataset:
    """Squared singular values of many units whose branches have the variance c in all, against the limit."""
    rows = []
    for c in VARIANCES:
        product = random_product(size, units, seed=drawing("moments", seed), scale=math.sqrt(c / (4 * units)))
        values = product.squared_singular_values()
        measured = (float(values.mean()), float(values.square().mean()))
        for moment, found in enumerate(measured, 1):
            formula = residual_isometry(c).moment(moment)
            condition = float(product.log10_condition[-1])
            rows.append({"c": c, "moment": moment, "measured": found, "formula": formula, "log10_condition": condition})
    return table("case", range(len(rows)), rows, measure=MEASURE, part="moments", width=size, units=units)


def singularity(*, draws: int, sizes: Sequence[int], seed: int) -> xarray.Dataset:
    rows: list[dict[str, Any]] = []
    for entries, size in itertools.product(ENTRIES, sizes):
        drawn = random_matrices(entries, draws, size, drawing("singular", seed, entries, size))
        rows.append(
            {
                "entries": entries,
                "size": size,
                "draws": draws,
                "singular": int(singular(drawn).sum()),
                "smallest": float(torch.linalg.svdvals(drawn)[:, -1].min()),
            }
        )
    return table("case", range(len(rows)), rows, measure=MEASURE, part="singularity")


def perturbations(*, draws: int, size: int, seed: int) -> xarray.Dataset:
    """Left over right side: the largest over draws. `worst`: the worst change; `aligned`: for the worst weights too."""
    rows = []
    for condition, change, kind in itertools.product(CONDITIONS, CHANGES, ("random", "worst", "aligned", "residual")):
        cases = [
            _perturbed(kind, condition, change / condition, size, drawing("moved", seed, kind, draw))
            for draw in range(draws)
        ]
        rows.append(
            {
                "kind": kind,
                "condition": condition,
                "size": change / condition,
                "ratio": max(case.ratio for case in cases),
                "first_order": max(case.first_order_ratio for case in cases),
                "largest": 1 / (1 - change),
                "residual": max(case.relative_residual for case in cases),
            }
        )
    return table("case", range(len(rows)), rows, measure=MEASURE, part="perturbations", width=size)


def _perturbed(kind: str, condition: float, size: float, n: int, generator: torch.Generator) -> PerturbedLeastSquares:
    """Inputs (n, 3 n) with singular values from 1 to 1 / cond, evenly in logarithms."""
    left, right = frame(n, generator)[1], torch.linalg.qr(random_matrices("normal", 1, 3 * n, generator)[0])[0]
    values = torch.logspace(0, -math.log10(condition), n, dtype=torch.float64, device="cpu")
    X = left @ torch.diag(values) @ right[:n]
    W, noise = random_matrices("normal", 2, n, generator)
    if kind == "aligned":  # the leading right singular vector of W is the left one of the smallest singular value of X
        W = torch.linalg.qr(W)[0] @ torch.diag(torch.linspace(1, 2, n, dtype=torch.float64, device="cpu")) @ left.T
    change = worst_change(X, W, size)
    targets = W @ X
    if kind == "random":
        change = random_matrices("normal", 1, 3 * n, generator)[0, :n]
        change = change * size / torch.linalg.matrix_norm(change, 2)
    if kind == "residual":  # of the norm of the targets, orthogonal to all inputs; and a change that moves it most
        residual = torch.linalg.matrix_norm(targets, 2) * torch.outer(noise[0] / noise[0].norm(), right[n])
        targets, change = targets + residual, size * torch.outer(left[:, -1], right[n])
    return proposition3(X, targets, change)


def ranks(*, size: int, seed: int) -> xarray.Dataset:
    """Back-propagation through linear layers: against autograd, and ranks of errors, states and gradients.

    Inputs of full rank, and of half of it; equation 23 against the true errors.
    """
    n, rows = size, []
    for skips, rank in itertools.product((False, True), (n, n // 2)):
        generator = drawing("ranks", seed, int(skips), rank)
        weights = random_matrices("normal", 4, n, generator) / math.sqrt(n)
        X, Y = random_matrices("normal", 2, n, generator)
        X = X[:, :rank] @ X[:rank]
        found = linear_gradients(weights, X, Y @ X, skips=skips)
        wrong = (found.printed_errors - found.errors[:-1]).norm() / found.errors[:-1].norm()
        errors, states, gradients = found.ranks.amin(0).tolist()
        rows.append(
            {
                "skips": skips,
                "input_rank": rank,
                "autograd": found.error,
                "errors": errors,
                "states": states,
                "gradients": gradients,
                "bounded": found.bounded,
                "equation_23": float(wrong),
            }
        )
    lemma2 = rank_of_product(torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0], [1.0]]))
    lemma3 = rank_of_product(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0], [1.0]]))
    return table(
        *("case", range(len(rows)), rows),
        measure=MEASURE,
        part="ranks",
        width=n,
        layers=len(weights),
        lemma2=lemma2.product,
        lemma3=lemma3.product,
    )
