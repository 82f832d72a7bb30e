"""Whether a Jacobian between tokens is that of their own path, with all other tokens as constants, or takes the whole
sequence.

The path alone (`skipscope.trace.tokens`) is exact under the conditions that are stated there, and costs as much as a
sequence of the followed tokens. Before it is used, one random cotangent is pulled back both ways, in float64: where
they differ, or where the path cannot be followed, the whole sequence is differentiated, and the operator says so in
`token_route`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from skipscope.linear.derivative import attempt, by_sample
from skipscope.linear.memory import out_of_memory
from skipscope.linear.positions import Tokens, token_axis
from skipscope.numerics import measuring, normal, random_numbers
from skipscope.trace.tokens.path import TokenPath
from skipscope.trace.trunk import Function, Point

OWN_PATH = "path of the chosen tokens"
WHOLE_SEQUENCE = "whole sequence"
SAME_WITHIN = 1e-8  # of what comes back at each entry token of each sample, in float64
NOT_ZERO = 1e-12  # times the cotangent: a difference below it is rounding of terms that cancel


def token_route(function: Function, axis: int, point: Point, tokens: Tokens) -> tuple[str, TokenPath | None]:
    """Found out once per point; and the path, where it was just made. axis: of the samples in the argument."""
    key = (function, tokens, "route")
    if (known := point.remembered.get(key)) is not None:
        return known, None
    path = function.at_tokens(point, tokens.entries, tokens.exits) if tokens.each_once else "a token is named twice"
    route = f"{WHOLE_SEQUENCE}: {path}" if isinstance(path, str) else _compared(function, axis, point, tokens, path)
    point.remembered[key] = route
    return route, path if isinstance(path, TokenPath) else None


def _compared(function: Function, axis: int, point: Point, tokens: Tokens, path: TokenPath) -> str:
    try:
        difference = attempt(lambda: _difference(function, axis, point, tokens, path))
    except Exception as error:
        if not out_of_memory(error):
            raise
        return f"{OWN_PATH}, not compared with the whole sequence, for which there is no memory"
    if isinstance(difference, str):
        return f"{WHOLE_SEQUENCE}: the two could not be compared ({difference})"
    if difference > SAME_WITHIN:
        return f"{WHOLE_SEQUENCE}: the path of the chosen tokens differs from it by {difference:.1e}"
    return OWN_PATH


def _difference(function: Function, axis: int, point: Point, tokens: Tokens, path: TokenPath) -> float:
    """Between a cotangent pulled back through the whole sequence and through the path, relative; of all samples and
    entry tokens the largest. One after the other: each holds the weights in float64."""
    state = function.argument(point).double()
    exit_axis = axis if function.exit_axis is None else function.exit_axis
    with torch.no_grad(), measuring():
        cotangent, pulled = _through_all(function, axis, exit_axis, point, tokens, state)
        pull = torch.func.vjp(path.bound(), tokens.entry_rows(state, axis))[1]
        alone = _by_token(pull(cotangent)[0], axis, tokens)
    whole = _by_token(pulled, axis, tokens)  # B, tokens, d
    size = whole.norm(dim=2).clamp_min(NOT_ZERO / SAME_WITHIN * float(by_sample(cotangent, exit_axis).norm()))
    return float(((alone - whole).norm(dim=2) / size).nan_to_num(nan=torch.inf).max())


def _by_token(rows: Tensor, axis: int, tokens: Tokens) -> Tensor:
    """Each by itself: beside a token's own block, that from another token can be a millionth of it."""
    return by_sample(rows, axis).unflatten(1, (len(tokens.entries), -1))


def _through_all(
    function: Function, axis: int, exit_axis: int, point: Point, tokens: Tokens, state: Tensor
) -> tuple[Tensor, Tensor]:
    """A random cotangent of the exit tokens, and what comes back at the entry tokens."""
    value, pull = torch.func.vjp(function.bound(point), state)[:2]
    shape = tokens.exit_rows(value, exit_axis).shape
    cotangent = normal(shape, random_numbers("probes", 0)).to(value)
    exits = torch.tensor(tokens.exits, device=value.device)
    among = torch.zeros_like(value).index_copy(token_axis(exit_axis), exits, cotangent)
    return cotangent, tokens.entry_rows(pull(among)[0], axis)
