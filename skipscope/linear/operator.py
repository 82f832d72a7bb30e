"""Linear operators: a batch of matrices known by their products.

An operator has a shape (B, m, n), one m x n matrix per sample, and multiplies a block of k vectors per sample from the
left side, `matmat`, and from the right, `rmatmat`. Everything else follows from these two: sums, products,
transposes, restrictions, the dense matrices. Solvers live in `spectrum`; in addition to products they may ask an
operator what is known of its spectrum beforehand.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import reduce
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from skipscope.errors import InputError
from skipscope.linear.memory import in_blocks
from skipscope.trace.freshness import asked_once as asked_once  # for solvers: their many products are one measurement

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator

    from skipscope.linear.jacobian import Jacobian
    from skipscope.linear.known_spectrum import KnownSpectrum

DENSE_BLOCK = 512  # columns per product when a matrix is assembled


class Operator(ABC):
    shape: tuple[int, int, int]  # B, m, n
    dtype: torch.dtype
    device: torch.device
    name: str = "operator"
    pushes_take_rows: bool = False  # whether a product from the left first takes all rows, by a product each
    token_route: str | None = None  # of a Jacobian between tokens: "path of the chosen tokens", or the whole sequence

    def matmat(self, V: Tensor) -> Tensor:
        """A V: (B, n, k) -> (B, m, k)."""
        self._check(V, self.shape[2], "matmat")
        return self._matmat(V)

    def rmatmat(self, U: Tensor) -> Tensor:
        """A^T U: (B, m, k) -> (B, n, k)."""
        self._check(U, self.shape[1], "rmatmat")
        return self._rmatmat(U)

    @abstractmethod
    def _matmat(self, V: Tensor) -> Tensor: ...

    @abstractmethod
    def _rmatmat(self, U: Tensor) -> Tensor: ...

    @abstractmethod
    def take(self, samples: Sequence[int]) -> Operator:
        """The same operator for some of the samples."""

    def go_on_with(self, samples: Sequence[int]) -> Operator:
        """As `take`, for an iteration that goes on with those that have not converged: as products are cheapest."""
        return self.take(samples)

    @property
    def eps(self) -> float:
        """The rounding unit of the arithmetic behind the products."""
        return torch.finfo(self.dtype).eps

    @property
    def vectors_at_once(self) -> int | None:
        """In a product of an iteration, where that is not the usual number."""
        return None

    def double(self) -> Operator:
        """The operator in float64; one that cannot be evaluated so gives its own products, converted."""
        return self if self.dtype == torch.float64 else _Cast(self, torch.float64)

    def derivative_of(self) -> tuple[Jacobian, list[int]] | None:
        """The Jacobian, and its samples, that the entries come from; None where they are no function's derivative."""
        return None

    def known_spectrum(self) -> KnownSpectrum | None:
        """What is known of the singular values before any is computed, for solvers; None where nothing is."""
        return None

    @property
    def by_rows(self) -> bool:
        """Whether `dense` takes products from the left: where there are no more rows than columns. Rows lie in memory
        as products give them, and a derivative's pulls are cheaper than its pushes."""
        return self.shape[1] <= self.shape[2]

    def dense(self, block: int = DENSE_BLOCK) -> Tensor:
        """The matrices themselves, (B, m, n), from products with the unit vectors of the smaller side."""
        batch, m, n = self.shape
        side = m if self.by_rows else n
        result = torch.empty(batch, m, n, dtype=self.dtype, device=self.device)
        for start in range(0, side, block):
            stop = min(start + block, side)
            units = torch.zeros(stop - start, batch, side, dtype=self.dtype, device=self.device)
            units[range(stop - start), :, range(start, stop)] = 1
            vectors = units.permute(1, 2, 0)  # B, side, block
            if self.by_rows:
                result[:, start:stop] = self._rmatmat(vectors).mT
            else:
                result[:, :, start:stop] = self._matmat(vectors)
        return result

    @property
    def T(self) -> Operator:  # noqa: N802 - the field's own name
        return Transposed(self)

    def __add__(self, other: Operator) -> Operator:
        return Sum((self, other)) if isinstance(other, Operator) else NotImplemented

    def __sub__(self, other: Operator) -> Operator:
        return Sum((self, -1.0 * other)) if isinstance(other, Operator) else NotImplemented

    def __matmul__(self, other: Operator) -> Operator:
        return Product((self, other)) if isinstance(other, Operator) else NotImplemented

    def __rmul__(self, factor: float) -> Operator:
        return Scaled(self, float(factor))

    def restrict(
        self, rows: Tensor | Sequence[int] | None = None, columns: Tensor | Sequence[int] | None = None
    ) -> Operator:
        """Some rows and columns of every matrix, by index."""
        return Restricted(self, rows, columns)

    def to_scipy(self, sample: int = 0) -> LinearOperator:
        """One sample's matrix as a `scipy.sparse.linalg.LinearOperator`."""
        from scipy.sparse.linalg import LinearOperator

        one = self.take([sample])
        _, m, n = self.shape

        def product(apply: Any) -> Any:
            def multiply(vectors: Any) -> Any:
                block = torch.as_tensor(vectors, dtype=self.dtype, device=self.device).reshape(vectors.shape[0], -1)
                return apply(block[None])[0].cpu().numpy().reshape(-1, *vectors.shape[1:])

            return multiply

        forward, backward = product(one.matmat), product(one.rmatmat)
        dtype = torch.empty(0, dtype=self.dtype, device="cpu").numpy().dtype
        return LinearOperator((m, n), matvec=forward, matmat=forward, rmatvec=backward, rmatmat=backward, dtype=dtype)

    def _check(self, block: Tensor, size: int, product: str) -> None:
        if block.dim() != 3 or block.shape[0] != self.shape[0] or block.shape[1] != size:
            raise InputError(
                f"{product} of {self.name} of shape {self.shape}: expected a block of vectors of shape "
                f"({self.shape[0]}, {size}, k), got {tuple(block.shape)}"
            )
        if block.dtype != self.dtype:
            raise InputError(
                f"{product} of {self.name}: the operator is {self.dtype} and the vectors are {block.dtype}; "
                "convert one of them"
            )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} {self.shape} {str(self.dtype).removeprefix('torch.')}>"


class Dense(Operator):
    """Matrices that are there: (B, m, n) or one (m, n)."""

    def __init__(self, matrix: Tensor, name: str = "matrix", *, eps: float | None = None) -> None:
        """eps: the rounding unit of the arithmetic that the entries come from, where it is not that of their type."""
        if matrix.dim() not in (2, 3):
            raise InputError(f"expected a matrix (m, n) or a batch of them (B, m, n), got shape {tuple(matrix.shape)}")
        self.matrix = matrix if matrix.dim() == 3 else matrix[None]
        self.shape = (self.matrix.shape[0], self.matrix.shape[1], self.matrix.shape[2])
        self.dtype, self.device, self.name = matrix.dtype, matrix.device, name
        self._eps = eps

    @property
    def eps(self) -> float:
        return super().eps if self._eps is None else self._eps

    def _matmat(self, V: Tensor) -> Tensor:
        return self.matrix @ V

    def _rmatmat(self, U: Tensor) -> Tensor:
        return self.matrix.mT @ U

    def take(self, samples: Sequence[int]) -> Dense:
        return Dense(self.matrix[list(samples)], self.name, eps=self._eps)

    def double(self) -> Dense:
        return Dense(self.matrix.double(), self.name, eps=self._eps)

    def dense(self, block: int = DENSE_BLOCK) -> Tensor:
        return self.matrix


class _Derived(Operator):
    """An operator made of others."""

    def __init__(self, parts: Sequence[Operator], shape: tuple[int, int, int], name: str) -> None:
        self.parts, self.shape, self.name = tuple(parts), shape, name
        self.dtype, self.device = parts[0].dtype, parts[0].device
        self.pushes_take_rows = any(part.pushes_take_rows for part in parts)
        self.token_route = next((part.token_route for part in parts if part.token_route is not None), None)
        for part in parts[1:]:
            if part.dtype != self.dtype or part.shape[0] != shape[0]:
                raise InputError(f"{parts[0]!r} and {part!r} differ in their type or in their number of samples")

    @abstractmethod
    def _with(self, parts: Sequence[Operator]) -> Operator:
        """The same combination of other parts."""

    @property
    def eps(self) -> float:
        return max(part.eps for part in self.parts)

    def take(self, samples: Sequence[int]) -> Operator:
        return self._with([part.take(samples) for part in self.parts])

    def go_on_with(self, samples: Sequence[int]) -> Operator:
        return self._with([part.go_on_with(samples) for part in self.parts])

    def double(self) -> Operator:
        return self._with([part.double() for part in self.parts])


class Transposed(_Derived):
    def __init__(self, part: Operator) -> None:
        batch, m, n = part.shape
        super().__init__([part], (batch, n, m), f"{part.name}^T")
        self.pushes_take_rows = False

    def _with(self, parts: Sequence[Operator]) -> Operator:
        return Transposed(parts[0])

    def derivative_of(self) -> tuple[Jacobian, list[int]] | None:
        return self.parts[0].derivative_of()

    def _matmat(self, V: Tensor) -> Tensor:
        return self.parts[0]._rmatmat(V)

    def _rmatmat(self, U: Tensor) -> Tensor:
        return self.parts[0]._matmat(U)

    @property
    def by_rows(self) -> bool:
        return not self.parts[0].by_rows

    def dense(self, block: int = DENSE_BLOCK) -> Tensor:
        return self.parts[0].dense(block).mT

    @property
    def T(self) -> Operator:  # noqa: N802
        return self.parts[0]


class Scaled(_Derived):
    def __init__(self, part: Operator, factor: float) -> None:
        super().__init__([part], part.shape, f"{factor:g} {part.name}")
        self.factor = factor
        # In two steps: a factor of 1e-50 is 0 in float32, and one of 1e-42 has lost digits, where the product has not.
        mantissa, exponent = math.frexp(factor)
        self.first, self.second = math.ldexp(mantissa, exponent // 2), 2.0 ** (exponent - exponent // 2)

    def _with(self, parts: Sequence[Operator]) -> Operator:
        return Scaled(parts[0], self.factor)

    def _matmat(self, V: Tensor) -> Tensor:
        return self.second * (self.first * self.parts[0]._matmat(V))

    def _rmatmat(self, U: Tensor) -> Tensor:
        return self.second * (self.first * self.parts[0]._rmatmat(U))


class Sum(_Derived):
    def __init__(self, parts: Sequence[Operator]) -> None:
        if any(part.shape != parts[0].shape for part in parts):
            raise InputError(f"operators of shapes {[part.shape for part in parts]} cannot be added")
        super().__init__(parts, parts[0].shape, " + ".join(part.name for part in parts))

    def _with(self, parts: Sequence[Operator]) -> Operator:
        return Sum(parts)

    def _matmat(self, V: Tensor) -> Tensor:
        return reduce(torch.add, (part._matmat(V) for part in self.parts))

    def _rmatmat(self, U: Tensor) -> Tensor:
        return reduce(torch.add, (part._rmatmat(U) for part in self.parts))


class Product(_Derived):
    """The product of operators, the last one applied first."""

    def __init__(self, parts: Sequence[Operator]) -> None:
        for left, right in pairwise(parts):
            if left.shape[2] != right.shape[1]:
                raise InputError(f"operators of shapes {left.shape} and {right.shape} cannot be multiplied")
        batch, m, n = parts[0].shape[0], parts[0].shape[1], parts[-1].shape[2]
        super().__init__(parts, (batch, m, n), " @ ".join(part.name for part in parts))

    def _with(self, parts: Sequence[Operator]) -> Operator:
        return Product(parts)

    def _matmat(self, V: Tensor) -> Tensor:
        for part in reversed(self.parts):
            V = part._matmat(V)
        return V

    def _rmatmat(self, U: Tensor) -> Tensor:
        for part in self.parts:
            U = part._rmatmat(U)
        return U


class Restricted(_Derived):
    """Some rows and columns, by index."""

    def __init__(
        self, part: Operator, rows: Tensor | Sequence[int] | None, columns: Tensor | Sequence[int] | None
    ) -> None:
        batch, m, n = part.shape
        self.rows, self.columns = _indices(rows, m, part.device), _indices(columns, n, part.device)
        super().__init__([part], (batch, len(self.rows), len(self.columns)), f"part of {part.name}")

    def _with(self, parts: Sequence[Operator]) -> Operator:
        return Restricted(parts[0], self.rows, self.columns)

    def _matmat(self, V: Tensor) -> Tensor:
        part, size = self.parts[0], self.parts[0].shape[2]
        return in_blocks(lambda v: part._matmat(self._spread(v, self.columns, size))[:, self.rows], V, self._bytes)

    def _rmatmat(self, U: Tensor) -> Tensor:
        part, size = self.parts[0], self.parts[0].shape[1]
        return in_blocks(lambda u: part._rmatmat(self._spread(u, self.rows, size))[:, self.columns], U, self._bytes)

    @property
    def _bytes(self) -> int:
        """Of one vector and its product, of all rows and columns."""
        return self.dtype.itemsize * sum(self.parts[0].shape[1:]) * self.shape[0]

    def _spread(self, block: Tensor, indices: Tensor, size: int) -> Tensor:
        whole = block.new_zeros(block.shape[0], size, block.shape[2])
        return whole.index_add_(1, indices, block)  # an index may be there twice


class _Cast(_Derived):
    """The products of an operator in another type; no more exact than the operator itself."""

    def __init__(self, part: Operator, dtype: torch.dtype) -> None:
        super().__init__([part], part.shape, part.name)
        self.dtype = dtype

    def _with(self, parts: Sequence[Operator]) -> Operator:
        return _Cast(parts[0], self.dtype)

    def derivative_of(self) -> tuple[Jacobian, list[int]] | None:
        return self.parts[0].derivative_of()

    def _matmat(self, V: Tensor) -> Tensor:
        return self.parts[0]._matmat(V.to(self.parts[0].dtype)).to(self.dtype)

    def _rmatmat(self, U: Tensor) -> Tensor:
        return self.parts[0]._rmatmat(U.to(self.parts[0].dtype)).to(self.dtype)


def _indices(chosen: Tensor | Sequence[int] | None, size: int, device: torch.device) -> Tensor:
    if chosen is None:
        return torch.arange(size, device=device)
    indices = torch.as_tensor(chosen, dtype=torch.long, device=device)
    if indices.dim() != 1 or (len(indices) and (indices.min() < 0 or indices.max() >= size)):
        raise InputError(f"expected indices from 0 to {size - 1}, got {chosen}")
    return indices
