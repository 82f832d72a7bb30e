"""What paper C alone measures: how a least-squares solution moves when its inputs move, beside the bound by their
condition number.

(Oyedotun, Al Ismaeil, Aouada, proposition 3.) W is the solution of Y = W X, X of n x N with full row rank. For a change
dX with |dX| = eps |X|, spectral norms throughout:

    |dW| / |W| <= cond(X) eps                                to first order, where Y = W X holds exactly
    |dW| / |W| <= cond(X) eps / (1 - cond(X) eps)            without that approximation, where cond(X) eps < 1

because W' = Y X'^+ = W - W dX X'^+. Where Y is not W X but leaves a residual R, a second term joins, up to
cond(X)^2 eps |R| / (|W| |X|), which the proposition does not have; `residual_term` is its size.

Random changes stay well below. The worst are known: eps |X| w v^T, with w the leading right singular vector of W and v
the right singular vector of X's smallest singular value, attains the first bound; eps |X| u r^T, with u the left one
and r the leading right singular vector of R, the second term. Both are tried, with either sign, and the solution is
found again each time.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy
import torch
from torch import Tensor, nn

from skipscope.errors import InputError
from skipscope.measure.gradient_ranks import factors, has_factors
from skipscope.measure.layers import run, undisturbed_run
from skipscope.module_hooks import Call
from skipscope.numerics import normal, random_numbers
from skipscope.spectrum.assembly import svdvals, thin_svd
from skipscope.spectrum.condition import condition_of
from skipscope.trace.export import in_full_precision
from skipscope.trace.inputs import Inputs
from skipscope.trace.undisturbed import unwrapped

if TYPE_CHECKING:
    import xarray


def sensitivity(X: Tensor, Y: Tensor, *, relative: float = 1e-6, draws: int = 16, seed: int = 0) -> xarray.Dataset:
    """Move X (n x N) and solve Y = W X (Y: p x N) again; dimension `change`, random and worst ones.

    relative: |dX| / |X|. draws: random changes, Gaussian. Variables `moved` (|dW| / |W|) and `ratio` (over the bound),
    `condition`, `bound`, `bound_without_approximation` (infinite where there is none), `residual` (|R| / |Y|) and
    `residual_term`. Computed in float64.
    """
    import xarray

    _check(X, Y, relative, draws)
    X, Y = X.detach().double(), Y.detach().double()
    U, S, Vt = thin_svd(X)
    largest, smallest = float(S[0]), float(S[-1])
    rank = condition_of(S, torch.float64, max(X.shape))[2]
    if rank < len(S):
        raise InputError(f"sensitivity: expected X of full row rank, {len(S)}, got {rank}: its solution is not unique")
    W = _solution(X, Y)
    size = _norm(W)
    if size == 0:
        raise InputError("sensitivity: expected a solution W that is not zero, got Y with nothing along the rows of X")
    R = Y - W @ X
    w = thin_svd(W)[2][0]
    r = thin_svd(R)[2][0]
    changes = {f"random {k + 1}": change for k, change in enumerate(_random(X, draws, seed))}
    for sign, word in ((1, "+"), (-1, "-")):
        changes[f"worst for W {word}"] = sign * torch.outer(w, Vt[-1])
        changes[f"worst for the residual {word}"] = sign * torch.outer(U[:, -1], r)
    moved = [_norm(_solution(X + relative * largest * change, Y) - W) / size for change in changes.values()]
    bound = relative * largest / smallest
    return xarray.Dataset(
        {
            "moved": ("change", numpy.array(moved)),
            "ratio": ("change", numpy.array(moved) / bound),
            "condition": largest / smallest,
            "bound": bound,
            "bound_without_approximation": bound / (1 - bound) if bound < 1 else math.inf,
            "residual": _norm(R) / _norm(Y),
            "residual_term": relative * largest * _norm(R) / (size * smallest**2),
        },
        {"change": list(changes), "kind": ("change", [name.split()[0] for name in changes])},
        {"measure": "sensitivity", "relative": relative, "inputs": X.shape[0], "samples": X.shape[1], "seed": seed},
    )


def layer_sensitivity(
    model: nn.Module, x: Any, layer: str, *, relative: float = 1e-6, draws: int = 16, seed: int = 0
) -> xarray.Dataset:
    """The same for a linear layer or a convolution: X are the states that enter it at a batch (of a convolution the
    patches under its kernel, inputs x places), Y is what it makes of them, without its bias."""
    if not isinstance(model, nn.Module):
        raise InputError(f"layer_sensitivity: expected a torch.nn.Module as the model, got {type(model).__name__}")
    model = unwrapped(model)
    model, inputs, notes = in_full_precision(model, Inputs.of(model, x))
    inputs.check_device(model)
    entries: dict[str, Tensor] = {}
    exits: dict[str, tuple[Call, Tensor]] = {}

    def entered(called: Call, state: Tensor | None) -> None:
        if called.name == layer and state is not None:
            entries[layer] = state.detach().clone()

    def left(called: Call, output: Tensor) -> None:
        if called.name == layer:
            exits[layer] = (called, output.detach().clone())

    with undisturbed_run(model):
        run(model, inputs, entered, left)
    if layer not in entries or layer not in exits:
        raise InputError(f"layer_sensitivity: {type(model).__name__} calls no layer {layer!r}")
    module, entry, exit = exits[layer][0].module, entries[layer], exits[layer][1]
    if getattr(module, "groups", 1) != 1 or not has_factors(module, entry, exit):
        raise InputError(f"layer_sensitivity: expected a linear layer or a convolution of one group, got {layer!r}")
    blocks = list(factors(module, entry, exit))
    X, Y = (torch.cat([block[part] for block in blocks]).mT for part in range(2))
    bias = getattr(module, "bias", None)
    if isinstance(bias, Tensor):
        Y = Y - bias.detach().double()[:, None]
    found = sensitivity(X, Y, relative=relative, draws=draws, seed=seed)
    return found.assign_attrs(layer=layer, notes="; ".join(notes))


def _check(X: Tensor, Y: Tensor, relative: float, draws: int) -> None:
    if X.dim() != 2 or Y.dim() != 2 or X.shape[1] != Y.shape[1] or X.shape[1] < X.shape[0] or not X.numel():
        raise InputError(
            "sensitivity: expected X (n x N) and Y (p x N) with N at least n, got "
            f"{tuple(X.shape)} and {tuple(Y.shape)}"
        )
    if not X.isfinite().all() or not Y.isfinite().all():
        raise InputError("sensitivity: expected finite numbers in X and Y, got NaN or infinite ones")
    if not 0 < relative < 1 or draws < 1:
        raise InputError(
            f"sensitivity: expected relative between 0 and 1 and draws of 1 or more, got {relative}, {draws}"
        )


def _random(X: Tensor, draws: int, seed: int) -> list[Tensor]:
    """Of spectral norm 1."""
    numbers = random_numbers("sensitivity", seed)
    found = [normal(X.shape, numbers) for _ in range(draws)]
    return [(change / svdvals(change)[0]).to(X.device) for change in found]


def _solution(X: Tensor, Y: Tensor) -> Tensor:
    Q, R = torch.linalg.qr(X.mT)
    return torch.linalg.solve_triangular(R, Q.mT @ Y.mT, upper=True).mT


def _norm(matrix: Tensor) -> float:
    """The largest singular value."""
    return float(svdvals(matrix)[0])


MEASURES = {"sensitivity": sensitivity, "layer_sensitivity": layer_sensitivity}
