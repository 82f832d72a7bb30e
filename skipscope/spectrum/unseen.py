"""How large a value can be that an iteration from random vectors has not seen, and with what probability.

**The norm of an operator.** b random vectors, uniform on the sphere in n dimensions, and q steps of a Krylov method
show a largest singular value s. Let S be the true one, and c the part of one of these vectors along its singular
vector. With y = sqrt(1 - (x / s)^2), the odd Chebyshev polynomial T_(2q-1)(y) is y times a polynomial in x^2 of degree
q - 1, and at most 1 where x <= s. That no vector of the Krylov space shows more than s therefore means

    S <= s cosh(arccosh(1 / c) / (2 q - 1)),

and c is below x with a probability of at most x sqrt(2 n / pi), independently for each of the b vectors. So with a
probability of at least 1 - f

    S <= s cosh(arccosh(sqrt(2 n / pi) / f^(1/b)) / (2 q - 1)).

Eigenvalues of a symmetric operator have two ends. With all that was seen in mid +- h, the Gauss rule of the Lanczos
process and the weight (x - lowest)(highest - x), whose polynomials are those of the second kind, give in the same way

    mid +- h cosh(arccosh(sqrt(2 n / pi) / f^(1/b)) / (q - 1)),

each of the two with a probability of at least 1 - f, both together with 1 - 2 f. One step says nothing.

Nothing is asked of the spectrum. Kuczynski and Wozniakowski (SIAM J. Matrix Anal. Appl. 13, 1992) bound the same
probability; this proof has the better constant and bounds both ends.

**All values.** Let W and U be orthonormal with A W = U D, D diagonal, and A^T U = W D + N K with N orthonormal, and
let a be at least the norm of (I - U U^T) A (I - W W^T). Then for all j the j-th largest singular value of A is at most
that of

    ( D  K^T )
    ( 0  a I ),

or at most a, where that is more: with this in place of A, and a for all that is left, every product A z keeps its
length or becomes longer. Eigenvalues likewise, of

    ( D  K^T )
    ( K  a I ),    a the upper end of what is left of H; the smallest are those of -H.

These hold up to the rounding of products.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

FAILURE = 1e-6  # the probability over random starts that a value was not seen though the bound says that there is none


def angle(size: int, width: int, failure: float = FAILURE) -> float:
    """arccosh(sqrt(2 n / pi) / f^(1/b)), for b vectors with n entries."""
    return math.acosh(max(1.0, math.sqrt(2 * size / math.pi) / failure ** (1 / width)))


def norm_bound(seen: Tensor, angle: float, steps: int) -> Tensor:
    """What the norm is at most, by the largest singular value (B,) that was seen."""
    return seen * math.cosh(min(angle / (2 * steps - 1), 100.0))


def steps_for_norm(seen: Tensor, angle: float, target: Tensor) -> Tensor:
    """(B,) steps until the norm is known to be at most `target`, as things look now; infinite where it is larger."""
    ratio = target / seen
    return torch.where(ratio > 1, (angle / torch.acosh(ratio.clamp(min=1)) + 1) / 2, torch.inf)


def ends_bound(lowest: Tensor, highest: Tensor, angle: float, steps: int) -> tuple[Tensor, Tensor]:
    """What all eigenvalues lie between, by the ends (B,) of what was seen."""
    middle, half = (lowest + highest) / 2, (highest - lowest) / 2
    reach = half * math.cosh(min(angle / (steps - 1), 100.0)) if steps > 1 else torch.full_like(half, torch.inf)
    return middle - reach, middle + reach


def steps_for_end(lowest: Tensor, highest: Tensor, angle: float, target: Tensor) -> Tensor:
    """(B,) steps until all eigenvalues are known to be at most `target`; infinite where one is larger."""
    middle, half = (lowest + highest) / 2, (highest - lowest) / 2
    ratio = (target - middle) / half
    return torch.where(ratio > 1, angle / torch.acosh(ratio.clamp(min=1)) + 1, torch.inf)


def singular_value_bounds(values: Tensor, coupling: Tensor, norm: Tensor) -> Tensor:
    """(B, w + b), descending: what the largest singular values are at most, a at least. values: D (B, w); coupling: K
    (B, b, w); norm: a (B,)."""
    count = values.shape[1]
    bound = _corner(values, coupling, norm)
    bound[:, :count, count:] = coupling.mT
    return torch.maximum(torch.linalg.svdvals(bound), norm[:, None])


def eigenvalue_bounds(values: Tensor, coupling: Tensor, end: Tensor) -> Tensor:
    """(B, w + b), descending: what the largest eigenvalues are at most, a at least. end: a (B,), the upper end of what
    is left."""
    count = values.shape[1]
    bound = _corner(values, coupling, end)
    bound[:, :count, count:], bound[:, count:, :count] = coupling.mT, coupling
    return torch.maximum(torch.linalg.eigvalsh(bound).flip(1), end[:, None])


def _corner(values: Tensor, coupling: Tensor, rest: Tensor) -> Tensor:
    return torch.diag_embed(torch.cat([values, rest[:, None].expand(-1, coupling.shape[1])], 1))
