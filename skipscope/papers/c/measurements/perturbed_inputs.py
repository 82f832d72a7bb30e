"""Least squares with inputs that change a little (proposition 3), and ranks of gradients."""

from __future__ import annotations

import math

import torch
import xarray

from skipscope.papers.c.measurements.commuting_weights import MEASURE, drawing, frame
from skipscope.papers.c.theory import (
    PerturbedLeastSquares,
    linear_gradients,
    proposition3,
    random_matrices,
    rank_of_product,
    worst_change,
)
from skipscope.papers.kit.tables import table

CONDITIONS = (10.0, 1e3, 1e5)  # of inputs
CHANGES = (1e-4, 1e-2, 0.1)  # cond times eps


def perturbations(*, draws: int, size: int, seed: int) -> xarray.Dataset:
    """Left over right side: the largest over draws. `worst`: the worst change; `aligned`: for the worst weights too."""
    rows = []
    for condition in CONDITIONS:
        for change in CHANGES:
            for kind in ("random", "worst", "aligned", "residual"):
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
    for skips in (False, True):
        for rank in (n, n // 2):
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
