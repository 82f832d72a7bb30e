"""All singular values of an operator, with a bound on their error.

The matrix is assembled in float64, and multiplied by a power of two where its scale is far from 1. Rows and columns
that are exactly zero (an inactive ReLU makes a zero row) are dropped and counted. Then one of three routes, the
cheapest whose bound is within the wanted accuracy and decides what is counted:

law    units with an identity skip: the eigenproblem of size 2 r of `linear.law`; the rest of the values are exactly 1
gram   square roots of the eigenvalues of A A^T (or A^T A, the smaller): values near zero lose half of the digits
svd    LAPACK's or cuSOLVER's QR iteration on the matrix itself: five to ten times the work, no loss

Bounds. With u the rounding unit and p the size of the eigenproblem, the computed Gram matrix and its eigenvalues are
off by at most d = C sqrt(p) u s1^2 (C = 10: rounding errors add up like a random walk; the worst case that could be
proved is sqrt(p) times larger and is never seen), so a value s is off by at most min(sqrt(d), d / s). On the law route
s1^2 is replaced by |R|^2 |M| where that is larger, and what its factors leave out of J is added. The svd route and the
assembly are off by C sqrt(p) u s1. To all of them comes C times the estimated difference between the matrix and
products from the other side with large vectors: what cancels or underflows inside the network is lost there. A zero row
or column counts as proved, with a bound of 0, where those products are zero too. Values near the smallest number of
float64 are known to that number.

Counts. `zeros` are values up to `tolerance`, `ones` values within 1e-7 of 1. A count that the bounds cannot decide is
NaN: zeros where the tolerance is above 1e-3 of s1, ones where a value may be one or not. The gram and law routes give
way to the svd where they leave such a doubt, and where they see zeros that are not proved: squares cannot distinguish
a value below 1e-7 of s1 from zero, at whatever scale.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from skipscope.cores import on_all_cores, one_thread
from skipscope.errors import InputError
from skipscope.linear.known_spectrum import KnownSpectrum
from skipscope.linear.memory import SHARE_OF_FREE_MEMORY, free_bytes
from skipscope.linear.operator import Operator, asked_once
from skipscope.progress import Progress, called, with_progress
from skipscope.renamed import renamed_parameters
from skipscope.spectrum.assembly import Assembled, assembled, svdvals, two_sided_error
from skipscope.spectrum.checks import named_route
from skipscope.spectrum.plan import Plan, check_fits, counted, in_words, plan
from skipscope.spectrum.scale import scaled, upper

Route = Literal["auto", "law", "gram", "svd"]
ROUNDING_MARGIN = 10.0  # the C of the bounds
COUNTS_AS_ONE = 1e-7  # a value this close to 1 counts as one (if its bound is small enough)
DECISIVE_TOLERANCE = 1e-3  # of s1: a larger tolerance at zero says nothing about a rank
# Operations, and products, below which nothing is timed: it is done in a few seconds, and timing is a part of that.
NOT_LONG = {"cpu": 1e10, "cuda": 2e12}
FEW_PRODUCTS = {"cpu": 1000, "cuda": 8192}
LONG = 10.0  # seconds from which on the cost is told
SMALL_MATRIX = 1 << 20  # entries up to which one thread is as good as several, and does not wait for them
LAW_GAIN = 0.85  # the reduced problem must be this much smaller than the active rows to be worth its QR
FEW_FOR_A_GPU = 4096  # active rows up to which a GPU waits longer for that QR than the smaller problem gains
TOGETHER_ON_A_GPU = 8  # samples at once: of more, the launches are a small part of the time already


@dataclass(frozen=True)
class Spectrum:
    """Singular values of each sample, descending, and what is known of them.

    The counts are NaN where the bounds cannot decide them.
    """

    values: Tensor  # (B, min(m, n)) in float64
    bound: Tensor  # (B, min(m, n)): how far each may be from the exact one
    tolerance: Tensor  # (B,) max(m, n) eps s1, or the bound at zero where that is larger
    zeros_at_least: Tensor  # (B,) proved: rows or columns that are exactly zero
    ones_at_least: Tensor  # (B,) proved: the law of units
    routes: tuple[str, ...]  # per sample
    shape: tuple[int, int, int]

    @property
    def zeros(self) -> Tensor:
        """(B,) values that are zero within the tolerance, in float64."""
        counted = (self.values <= self.tolerance[:, None]).sum(1)
        largest = self.values[:, 0] if self.values.shape[1] else torch.zeros_like(self.tolerance)
        decided = (self.tolerance <= DECISIVE_TOLERANCE * largest) | (counted <= self.zeros_at_least)
        return torch.where(decided, counted.double(), torch.nan)

    @property
    def rank(self) -> Tensor:
        """(B,) values above the tolerance."""
        return self.values.shape[1] - self.zeros

    @property
    def ones(self) -> Tensor:
        """(B,) values within 1e-7 of 1."""
        return _ones(self.values, self.bound)

    def share(self, low: float, high: float) -> Tensor:
        """(B,) the share of the values in [low, high]."""
        return ((self.values >= low) & (self.values <= high)).double().mean(1)

    def __repr__(self) -> str:
        largest = [float(f"{value:.4g}") for value in self.values[:, :1].flatten().tolist()]
        error = float(self.bound.max()) if self.bound.numel() else 0.0
        ranks = ", ".join(f"{rank:.0f}" for rank in self.rank.tolist())
        return (
            f"<Spectrum of {self.shape}: largest {largest}, rank [{ranks}], at least "
            f"{self.zeros_at_least.tolist()} zeros and {self.ones_at_least.tolist()} ones, error below {error:.1e}>"
        )


@renamed_parameters(accuracy="tol")
@with_progress
def singular_values(
    A: Operator, *, tol: float = 1e-6, route: Route = "auto", progress: Progress | bool | None = None
) -> Spectrum:
    """All singular values of every sample.

    tol: the largest acceptable bound, relative to the largest value; decides between the routes.
    route: "auto", or one of "law", "gram" and "svd" whatever it costs.
    progress: called with how many samples are done and how many there are; True draws a bar.

    Where it will take more than ten seconds a warning says so; `plan(A)` tells beforehand.
    """
    _tell_cost(A, check_fits(A))
    return full_spectrum(A, tol=tol, route=route, progress=called(progress))


@asked_once()
def full_spectrum(
    A: Operator, *, tol: float = 1e-6, route: Route = "auto", progress: Progress | None = None
) -> Spectrum:
    """`singular_values` for measurements of many spectra, which plan their time themselves: without a warning."""
    tell = progress or (lambda done, total: None)
    route = named_route(route)
    if route not in get_args(Route):
        raise InputError(f"route={route!r}: expected one of {', '.join(get_args(Route))}")
    check_fits(A)
    known = A.known_spectrum()
    if route == "law" and (known is None or not known.binary.all()):
        raise InputError(
            f"route='law': too little is known beforehand of the spectrum of {A.name}; "
            "choose route='auto', 'gram' or 'svd'"
        )
    wanted = Wanted(A, known, tol, route)
    found: list[Values] = []
    at_once = _at_once(A)
    for start in range(0, A.shape[0], at_once):
        tell(start, A.shape[0])
        found += _of_samples(wanted, range(start, min(start + at_once, A.shape[0])))
    tell(A.shape[0], A.shape[0])
    ones = known.ones_at_least if known is not None else torch.zeros(A.shape[0], dtype=torch.long, device="cpu")
    return Spectrum(
        values=torch.stack([one.values for one in found]),
        bound=torch.stack([one.bound for one in found]),
        tolerance=torch.stack([one.tolerance(max(A.shape[1:])) for one in found]),
        zeros_at_least=torch.tensor([one.zeros for one in found], device="cpu"),
        ones_at_least=ones.cpu(),
        routes=tuple(one.route for one in found),
        shape=A.shape,
    )


def _tell_cost(A: Operator, counts: Plan) -> None:
    kind = "cuda" if A.device.type == "cuda" else "cpu"
    if counts.operations <= NOT_LONG[kind] and counts.products <= FEW_PRODUCTS[kind]:
        return
    cost = plan(A)
    if cost.seconds > LONG:
        batch, m, n = A.shape
        warnings.warn(
            f"all singular values of {A.name} ({batch} of {m:,} x {n:,}) will take about {in_words(cost.seconds)} on "
            "this machine; for the leading ones, in a fraction of that: ss.svd(J, k=10)",
            stacklevel=5,
        )


@dataclass(frozen=True)
class Values:
    """Of one sample, by one route; on the CPU."""

    values: Tensor  # min(m, n)
    bound: Tensor
    zeros: int  # proved
    route: str

    def tolerance(self, size: int) -> Tensor:
        """For an m x n matrix, size = max(m, n)."""
        if not len(self.values):
            return self.values.new_zeros(())
        return torch.maximum(size * torch.finfo(torch.float64).eps * self.values[0], self.bound.max())

    def acceptable(self, tol: float, size: int) -> bool:
        """Within the tolerance, and no count in doubt that a more exact route could decide."""
        if not len(self.values):
            return True
        tolerance = self.tolerance(size)
        zeros = self.values <= tolerance
        proved = int(zeros.sum()) <= self.zeros  # below the bound of squares there may be values that are not zero
        counted = not _ones(self.values[None], self.bound[None]).isnan().any()
        return proved and counted and bool(self.bound.max() <= tol * self.values[0])


def _ones(values: Tensor, bound: Tensor) -> Tensor:
    """(B,) in float64, from (B, n) each."""
    distance = (values - 1).abs()
    doubtful = ((bound > COUNTS_AS_ONE) & (distance <= bound + COUNTS_AS_ONE)).any(1)
    return torch.where(doubtful, torch.nan, (distance <= COUNTS_AS_ONE).sum(1).double())


@dataclass(frozen=True)
class Wanted:
    """Of which operator, how exactly, and by which route."""

    A: Operator
    known: KnownSpectrum | None
    tol: float
    route: Route

    @property
    def size(self) -> int:
        return min(self.A.shape[1:])

    def by_law(self, sample: int) -> bool:
        if self.known is None:
            return False
        return self.route == "law" or (self.route == "auto" and _law_is_cheaper(self.known, sample))

    def enough(self, found: Values, by: Route) -> bool:
        return self.route == by or found.acceptable(self.tol, max(self.A.shape[1:]))


Decomposition = Callable[[], Values]  # what is left to do when all products are made


def _at_once(A: Operator) -> int:
    """Samples whose matrices are there together, where they fit: on a CPU one for each core, which decomposes it; on a
    GPU as many as make the launches of a small product worth while."""
    if A.shape[0] == 1:
        return 1
    most = torch.get_num_threads() if A.device.type == "cpu" else TOGETHER_ON_A_GPU
    return max(1, min(most, int(SHARE_OF_FREE_MEMORY * free_bytes(A.device)) // counted(A).bytes))


def _of_samples(wanted: Wanted, samples: Sequence[int]) -> list[Values]:
    """The products of all, then the decompositions: on a CPU side by side, each on a core of its own."""
    on_cpu = wanted.A.device.type == "cpu"
    with one_thread(on_cpu and wanted.A.shape[1] * wanted.A.shape[2] <= SMALL_MATRIX):
        by_law = {sample: _law_of(wanted, sample) for sample in samples if wanted.by_law(sample)}
        others = [sample for sample in samples if sample not in by_law]
        by_matrix = dict(zip(others, _matrices_of(wanted, others), strict=True)) if others else {}
        left = [by_law.get(sample) or by_matrix[sample] for sample in samples]
        if len(left) == 1 or not on_cpu:
            found = [decompose() for decompose in left]
    if len(left) > 1 and on_cpu:
        found = list(on_all_cores(lambda decompose: decompose(), left))
    for place, sample in enumerate(samples):
        if found[place].route == "law" and not wanted.enough(found[place], "law"):
            found[place] = _matrices_of(wanted, [sample])[0]()
    return found


def _law_of(wanted: Wanted, sample: int) -> Decomposition:
    known = wanted.known
    assert known is not None, "asked for where there is one"
    problem = _law_problem(known, sample, wanted.A.take([sample]).double())
    zeros = int(known.zeros_at_least[sample])

    def decompose() -> Values:
        values, bound = problem()
        return Values(_padded(values, wanted.size), _padded(bound, wanted.size), zeros, "law")

    return decompose


def _matrices_of(wanted: Wanted, samples: Sequence[int]) -> list[Decomposition]:
    """Assembled together; rows of which the operator knows beforehand that they are zero are left out."""
    A, known = wanted.A, wanted.known
    if known is not None:
        active = known.active[list(samples)].any(0)
        A = A if active.all() or not active.any() else A.restrict(active.nonzero()[:, 0])
    entries = assembled(A, samples)
    return [_matrix_of(wanted, entries, place) for place in range(len(samples))]


def _matrix_of(wanted: Wanted, entries: Assembled, place: int) -> Decomposition:
    A, size, assembly = wanted.A, wanted.size, wanted.A.double().eps
    exponent, lost = int(entries.exponent[place]), float(entries.margin[place])
    matrix = entries.matrix[place][~entries.zero_rows[place]][:, ~entries.zero_columns[place]]
    zeros = size - min(matrix.shape)

    def stated(values: Tensor, bound: Tensor, by: str) -> Values:
        """Out of the unit again."""
        found = scaled(_padded(values, size)[None], exponent)[0]
        if not found.isfinite().all():
            raise InputError(f"singular values of {A.name} are larger than float64 can hold; take them of 1e-100 * A")
        return Values(found, upper(_padded(bound + lost, size)[None], exponent)[0], zeros, by)

    def decompose() -> Values:
        if wanted.route != "svd" and min(matrix.shape):
            found = stated(*_by_gram(matrix, assembly), "gram")
            if wanted.enough(found, "gram"):
                return found
        return stated(*_by_svd(matrix, assembly), "svd")

    return decompose


def _by_gram(matrix: Tensor, assembly: float) -> tuple[Tensor, Tensor]:
    gram = matrix @ matrix.mT if matrix.shape[0] <= matrix.shape[1] else matrix.mT @ matrix
    squares = torch.linalg.eigvalsh(gram)
    return _from_squares(squares, max(matrix.shape), assembly)


def _by_svd(matrix: Tensor, assembly: float) -> tuple[Tensor, Tensor]:
    if min(matrix.shape) == 0:
        empty = torch.zeros(0, dtype=torch.float64, device="cpu")
        return empty, empty
    values = svdvals(matrix).cpu()
    eps = torch.finfo(torch.float64).eps
    rounding = ROUNDING_MARGIN * max(matrix.shape) ** 0.5 * (eps + _excess(assembly)) * values[0]
    return values, rounding.expand_as(values).clone()


def _law_problem(known: KnownSpectrum, sample: int, A: Operator) -> Callable[[], tuple[Tensor, Tensor]]:
    """What gives the values of the active rows: 2 r from the reduced eigenproblem, the rest exactly one.

    A: the operator of that sample alone, whose own products say what the factors leave out.
    """
    U, V = known.factors(sample)  # n, r
    active = known.active[sample]
    lost = ROUNDING_MARGIN * (two_sided_error(A) + known.error(A, sample, U, V))

    def decompose() -> tuple[Tensor, Tensor]:
        W = torch.cat([U[active], V[active]], 1)  # a, 2 r
        r = U.shape[1]
        M = torch.zeros(2 * r, 2 * r, dtype=torch.float64, device=U.device)
        M[:r, :r] = V.mT @ V
        M[:r, r:] = M[r:, :r] = torch.eye(r, dtype=torch.float64, device=U.device)
        R = torch.linalg.qr(W, mode="r").R  # min(a, 2 r), 2 r
        shifted = R @ M @ R.mT
        if not shifted.isfinite().all():  # factors near 1e77 and more: their fourth power is no number
            unknown = torch.zeros(int(active.sum()), dtype=torch.float64, device="cpu")
            return unknown, torch.full_like(unknown, torch.inf)
        squares = 1 + torch.linalg.eigvalsh((shifted + shifted.mT) / 2)
        rest = torch.ones(int(active.sum()) - len(squares), dtype=torch.float64, device=U.device)
        factors = _norm(R) ** 2 * _norm(M)  # what cancels in the product is lost from the values too
        eps = torch.finfo(torch.float64).eps
        values, bound = _from_squares(torch.cat([squares, rest]), max(W.shape), eps, factors)
        bound = bound + lost
        return values, torch.where(bound.isnan(), torch.inf, bound)  # where the factors' size is beyond float64

    return decompose


def _norm(matrix: Tensor) -> float:
    """The spectral norm, from thirty power iterations, rounded up."""
    vector = torch.ones(matrix.shape[1], dtype=matrix.dtype, device=matrix.device)
    for _ in range(30):
        vector = matrix.mT @ (matrix @ vector)
        vector = vector / vector.norm().clamp_min(torch.finfo(torch.float64).tiny)
    return 1.2 * float((matrix @ vector).norm())


def _from_squares(squares: Tensor, size: int, assembly: float, factors: float = 0.0) -> tuple[Tensor, Tensor]:
    """factors: the size of what the squares were computed from, where it is larger than the largest square."""
    values = squares.clamp_min(0).sqrt().sort(descending=True).values.cpu()
    if not len(values):
        return values, values
    eps = torch.finfo(torch.float64).eps
    shift = ROUNDING_MARGIN * size**0.5 * eps * (values[0] ** 2).clamp_min(factors)
    rounding = ROUNDING_MARGIN * size**0.5 * (eps + _excess(assembly)) * values[0]
    bound = torch.minimum(shift.sqrt(), shift / values.clamp_min(torch.finfo(torch.float64).tiny))
    return values, bound + rounding


def _excess(assembly: float) -> float:
    """What an assembly in lower precision adds to the rounding of float64."""
    return max(0.0, assembly - torch.finfo(torch.float64).eps)


def _law_is_cheaper(known: KnownSpectrum, sample: int) -> bool:
    active = known.active[sample].sum()
    worth = active > FEW_FOR_A_GPU or known.diagonal.device.type == "cpu"
    return bool(worth) and bool(known.binary[sample]) and bool(2 * known.rank[sample] < LAW_GAIN * active)


def _padded(values: Tensor, size: int) -> Tensor:
    """Zeros for the dropped rows and columns: exact, so their bound is zero too."""
    return torch.cat([values, values.new_zeros(size - len(values))])
