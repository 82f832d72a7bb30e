"""Residual alignment: do the branches' Jacobians share their leading singular vectors (Li and Papyan 2023)?

J_i is the Jacobian of unit i's branch with the tail's derivative applied, diag(sigma'(sum)) dF/dh, the skip left out;
of a unit that has no skip (a module of a plain network) that of the whole module. One matrix per unit and sample. With
J_i = U_i S_i V_i^T, `unit` i is whose Jacobian, `other` j is whose vectors, K leading ones:

value, residual, converged      s_1, s_2, ... and max(|J v - s u|, |J^T u - s v|)
ujv, vju                        the grids U_j^T J_i V_j and V_j^T J_i U_j, K x K, with signs
coupling_ujv, coupling_vju      m_K = | |grid| - diag(S_i) |_F / |S_i|, 0 where i and j share their leading triplets
..._signed                      the same without the absolute value
chance, chance_signed           the mean of m_K with random orthonormal vectors for U_j and V_j; ..._error: of the mean
left_cosine, right_cosine       cosines of the principal angles between the spans of U_i and U_j, of V_i and V_j
u1v1                            <u_1, v_1>, with its sign
energy                          (s_1^2 + ... + s_C^2) / |J|_F^2 for C classes; energy_error: standard error
gap                             s_{C+1} / s_1
frobenius                       |J|_F; where it is not `exact` an estimate with a standard error, frobenius_error
large                           how many values are above 5 % of the first; NaN where more are than were computed
exact                           whether the whole matrix was decomposed, which makes |J|_F exact and the rank known
numerical_rank                  values above max(m, n) eps s_1; NaN where they are more than were computed
k_used                          min(K, the values of J_i that are not zero within rounding)
repeated                        the value has a neighbour within 1e-6 s_1 or its residual: its vectors are not unique
reason_ujv, reason_vju          why there is no coupling: states of other shapes, or a Jacobian that is zero

A pair counts min(k_used of i, k_used of j) rows and columns. U_j^T J_i V_j needs i and j to have entries of one shape
and exits of one shape; V_j^T J_i U_j an entry of i like the exit of j and the other way round. u_k and v_k come from
one decomposition, so that signs mean something: the sign of the pair (u_k, v_k) is free, that of u_k v_k^T is not.

Cost per unit and sample: a decomposition (`ss.svd`), then K products for every unit that fits and every random
draw; no pair needs a decomposition of its own. Between chosen tokens (`tokens=`) only their own path is differentiated
where that is exact (coordinate `token_route`), and up to d = 8192 its matrix is made, with d transposed products.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, get_args

import numpy
import torch
from torch import Tensor

from skipscope.errors import InputError
from skipscope.linear import Operator
from skipscope.linear.memory import SHARE_OF_FREE_MEMORY, free_bytes
from skipscope.linear.positions import Tokens
from skipscope.measure.descriptions import described
from skipscope.measure.jacobian_pairs import WAYS, Member, Options, frame, pairs, repeated
from skipscope.measure.selection import (
    Samples,
    Units,
    attributes,
    chosen_units,
    filled,
    labels,
    point_of,
    refuse_batch_statistics,
    sample_indices,
)
from skipscope.measure.token_matrices import KeptMatrices, as_matrix
from skipscope.memory_limit import Memory, with_memory
from skipscope.progress import Progress, called, with_progress
from skipscope.renamed import renamed_parameters
from skipscope.spectrum import SVD, svd
from skipscope.spectrum.plan import Route
from skipscope.spectrum.truncated_svd import square_norm
from skipscope.trace import Point, Trunk, Unit
from skipscope.trace.freshness import asked_once
from skipscope.trace.trunk import Part

if TYPE_CHECKING:
    import xarray

LARGE_SHARE = 0.05  # of the first value: values above it count as large
REPEATED_WITHIN = 1e-6  # of the first value: neighbours that are closer count as repeated
PAIR = ("unit", "other", "sample")
ONE = ("unit", "sample")
DIMENSIONS = {
    **dict.fromkeys(("value", "residual", "converged", "repeated"), (*ONE, "rank")),
    **dict.fromkeys(WAYS, (*PAIR, "row", "column")),
    **{f"coupling_{name}{signed}": PAIR for name in WAYS for signed in ("", "_signed")},
    **{f"chance{signed}{error}": PAIR for signed in ("", "_signed") for error in ("", "_error")},
    **dict.fromkeys(("left_cosine", "right_cosine"), (*PAIR, "row")),
    **dict.fromkeys(("u1v1", "energy", "energy_error", "gap", "frobenius", "frobenius_error"), ONE),
    **dict.fromkeys(("exact", "large", "numerical_rank", "k_used"), ONE),
    **dict.fromkeys(("entries", "exits"), ("unit",)),
}


@renamed_parameters(positional=("k",), tolerance="tol")
@with_progress
@asked_once()
@with_memory
def alignment(
    trunk: Trunk,
    x: Any,
    *,
    k: int = 10,
    classes: int | None = None,
    units: Units = None,
    samples: Samples = None,
    of: str = "branch",
    tail: bool = True,
    tokens: tuple[Any, Any] | None = None,
    grids: bool = True,
    chance: int = 8,
    route: Route = "auto",
    tol: float | None = None,
    max_products: int | None = None,
    seed: int = 0,
    memory: Memory | None = None,
    progress: Progress | bool | None = None,
) -> xarray.Dataset:
    """Measure at a batch of model inputs or a point.

    k: leading vectors of the grids. classes: C of `energy` and `gap`, k by default. units: names or indices, all by
    default. samples: how many of the first, or which of the batch; all by default.
    of: "branch", or "unit" for the whole unit with its skip. tail: apply the tail's derivative to the branch.
    tokens: (entry, exit) positions of sequences that Jacobians are restricted to, such as (-1, -1).
    grids: keep `ujv` and `vju`. chance: random draws for the chance level, 0 for none.
    route: "dense" or "iterative" for all; "auto" is dense where the matrix is small.
    tol: of the iteration's residuals, relative to s_1; eps^(2/3) by default. max_products: of the iteration.
    """
    import xarray

    options = Options(k, k if classes is None else classes, tail, tokens, grids, chance, route, tol, max_products, seed)
    _check(options, of)
    refuse_batch_statistics(trunk.model)
    chosen = chosen_units(trunk, units)
    if not chosen:
        raise InputError("units=[] names no unit; leave it out for all")
    given = point_of(trunk, x)
    indices, point = sample_indices(given.batch, samples), point_of(trunk, given, samples)
    members = [_member(unit, "unit" if of == "unit" or unit.without_skip else "branch", tokens) for unit in chosen]
    pieces = _pieces(members, point, options)
    done, tell = itertools.count(1), called(progress)

    def step() -> None:
        """Of all units in all pieces of the batch: a decomposition, then the pairs."""
        if tell is not None:
            tell(next(done), 2 * len(members) * len(pieces))

    routes: dict[int, str] = {}
    rows = [_measured(members, point, some, options, routes, step) for some in pieces]
    data: dict[str, Any] = {}
    for name, dimensions in DIMENSIONS.items():
        if name in rows[0]:
            along = dimensions.index("sample") if "sample" in dimensions else None
            column = rows[0][name] if along is None else torch.cat([row[name] for row in rows], along)
            data[name] = (dimensions, column.cpu().numpy())
    arithmetic = ["float64" if unit.in_any_type else _name(point.entry(unit).dtype) for unit in chosen]
    coordinates = {
        **labels(chosen),
        "other": [unit.name for unit in chosen],
        "part": ("unit", [member.part for member in members]),
        "arithmetic": ("unit", arithmetic),
        **({} if tokens is None else {"token_route": ("unit", [routes[place] for place in range(len(members))])}),
        "sample": indices,
    }
    about = attributes(
        "alignment",
        trunk,
        k=k,
        classes=options.classes,
        of=of,
        tail=int(tail),
        tokens="" if tokens is None else str(tokens),
        draws=chance,
        large_from=LARGE_SHARE,
        near=REPEATED_WITHIN,
        seed=seed,
        dtype=_name(point.entry(chosen[0]).dtype),
        computed_in=", ".join(sorted(set(arithmetic))),
    )
    return described(xarray.Dataset(data | _reasons(members, data["k_used"][1]), coordinates, about))


def _check(options: Options, of: str) -> None:
    if of not in ("branch", "unit"):
        raise InputError(f"of={of!r}: expected branch or unit")
    for name, value in (("k", options.k), ("classes", options.classes)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InputError(f"{name}={value!r}: expected a whole number from 1 on")
    if options.chance < 0 or options.chance == 1:
        raise InputError(f"chance={options.chance}: expected 0, or at least 2 draws for a mean with an error")
    if options.tolerance is not None and not 0 < options.tolerance < 1:
        raise InputError(f"tol={options.tolerance}: expected a share of s_1, above 0 and below 1")
    if options.route not in get_args(Route):
        raise InputError(f"route={options.route!r}: expected one of {', '.join(get_args(Route))}")


def _member(unit: Unit, part: Part, tokens: tuple[Any, Any] | None) -> Member:
    if tokens is None:
        return Member(unit, part, unit.entry_shape, unit.exit_shape)
    chosen = Tokens.of(unit, tokens)
    sides = ((chosen.entries, unit.entry_shape[1]), (chosen.exits, unit.exit_shape[1]))
    entry, exit_ = ((len(positions) * width, width) for positions, width in sides)
    return Member(unit, part, entry, exit_)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


# -- a piece of the batch


def _pieces(members: Sequence[Member], point: Point, options: Options) -> list[list[int]]:
    """Samples whose vectors of all units are in memory together."""
    whole = options.tokens is None
    sides = [prod(shape) if whole else shape[0] for one in members for shape in (one.entry, one.exit)]
    blocks = 2 * len(members) + options.chance
    needed = 8 * (options.kept * sum(sides) + 4 * blocks * options.k * max(sides))
    at_once = max(1, int(SHARE_OF_FREE_MEMORY * free_bytes(point.entry(members[0].unit).device) / needed))
    return [list(range(start, min(start + at_once, point.batch))) for start in range(0, point.batch, at_once)]


def _measured(
    members: Sequence[Member],
    point: Point,
    samples: Sequence[int],
    options: Options,
    routes: dict[int, str],
    step: Callable[[], None],
) -> dict[str, Tensor]:
    """Every variable, for some of the samples. routes: filled with the way that each unit's tokens were followed."""
    found, norms = [], []
    kept = KeptMatrices()

    def jacobian(place: int) -> Operator:
        (J,) = kept.of(place, lambda: [as_matrix(members[place].jacobian(point, samples, options), options.route)])
        return J

    for place in range(len(members)):
        J = jacobian(place)
        routes[place] = J.token_route or ""
        triplets, square, error = _decomposed(J, options)
        found.append(triplets)
        norms.append((square, error))
        step()
    width = min(options.k, max(triplets.S.shape[1] for triplets in found))
    longest = max(triplets.S.shape[1] for triplets in found)
    frames = [frame(triplets, width) for triplets in found]
    rows = []
    for place, (member, triplets) in enumerate(zip(members, found, strict=True)):
        J = jacobian(place)
        alone = _alone(triplets, norms[place], frames[place].counts, member.fits(member, "vju"), longest, options)
        rows.append(alone | pairs(J, place, members, frames, samples, options))
        step()
    return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}


def _decomposed(J: Operator, options: Options) -> tuple[SVD, Tensor, Tensor]:
    """The leading triplets, |J|_F^2 and its standard error."""
    triplets = svd(
        J,
        min(options.kept, *J.shape[1:]),
        route=options.route,
        tol=options.tolerance or J.eps ** (2 / 3),  # what the operator's own arithmetic can reach
        max_products=options.max_products,
        seed=options.seed,
        with_rank=True,
    )
    return triplets, *square_norm(J, triplets, seed=options.seed)


def _alone(
    triplets: SVD, norm: tuple[Tensor, Tensor], used: Tensor, square: bool, longest: int, options: Options
) -> dict[str, Tensor]:
    """What needs no other unit. norm: |J|_F^2 and its standard error. square: is J a square matrix?"""
    square_of_norm, error = norm
    S, classes = triplets.S, options.classes
    missing = torch.full_like(S[:, 0], float("nan"))
    frobenius = square_of_norm.sqrt()
    energy = S[:, :classes].square().sum(1) / square_of_norm
    return {
        "value": filled(S, longest),
        "residual": filled(triplets.residuals, longest),
        "converged": filled(triplets.converged, longest, True),
        "repeated": filled(repeated(S, triplets.residuals, REPEATED_WITHIN), longest, False),
        "u1v1": torch.where(used > 0, (triplets.U[..., 0] * triplets.V[..., 0]).sum(1), missing) if square else missing,
        "energy": energy,
        "energy_error": energy * error / square_of_norm,
        "gap": S[:, classes] / S[:, 0] if S.shape[1] > classes else missing,
        "frobenius": frobenius,
        "frobenius_error": error / (2 * frobenius),
        "exact": torch.full_like(S[:, 0], triplets.route == "dense", dtype=torch.bool),
        "large": triplets.count_above(LARGE_SHARE),
        "numerical_rank": triplets.rank,
        "k_used": used,
        "entries": torch.tensor(triplets.V.shape[1], device="cpu"),
        "exits": torch.tensor(triplets.U.shape[1], device="cpu"),
    }


def _reasons(members: Sequence[Member], used: numpy.ndarray) -> dict[str, Any]:
    """used: (unit, sample)."""
    count, samples = used.shape
    found = {}
    for way in WAYS:
        reason = numpy.full((count, count, samples), "", dtype=object)
        zero = used == 0
        reason[zero[:, None] | zero[None]] = "zero Jacobian"
        for i, j in numpy.ndindex(count, count):
            if not members[i].fits(members[j], way):
                reason[i, j] = "states of other shapes"
        found[f"reason_{way}"] = (PAIR, reason)
    return found
