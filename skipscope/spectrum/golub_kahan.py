"""Block Golub-Kahan-Lanczos bidiagonalisation (Golub and Kahan 1965; in blocks, Golub, Luk and Overton 1981) with thick
restart (Baglama and Reichel 2005): from an orthonormal block N on the smaller side,

    A N = U C + U' R,        A^T U' = V D + N' K,

both by full orthogonalisation; U' and N join the bases and N' is next. The projected matrix U^T A V is upper triangular
but for the columns after a restart. A^T A is never formed: a value is as exact as the operator's products, at eps |A|,
not at sqrt(eps) |A|. All samples move together; those that have converged leave.

Cost of a cycle: (p - keep) products on each side, 8 (m + n) p (p - keep) operations to orthogonalise, an SVD of p x p.
"""

from __future__ import annotations

import torch
from torch import Tensor

from skipscope.linear.operator import Operator
from skipscope.spectrum.checks import check_adjoint
from skipscope.spectrum.krylov import Krylov
from skipscope.spectrum.orthonormal import orthonormalise


class GolubKahan(Krylov):
    def __init__(self, operator: Operator, which: str, tolerance: float, block: int, seed: int) -> None:
        super().__init__(operator, block, seed)
        self.which, self.zero = which, tolerance / 4

    def expand(self) -> None:
        old, new = self.size, self.next.shape[2]
        image = self.multiply(self.next)  # B, m, b
        left, C, R = orthonormalise(image, self.left, self.scale[self.samples], self.generator)
        lower = torch.cat([R.new_zeros(len(R), new, old), R], 2)
        self.projected = torch.cat([torch.cat([self.projected, C], 2), lower], 1)
        self.left, self.right = torch.cat([self.left, left], 2), torch.cat([self.right, self.next], 2)
        back = self.multiply(left, transposed=True)  # B, n, b
        self.next, D, K = orthonormalise(back, self.right, self.scale[self.samples], self.generator)
        if not old:
            check_adjoint(D, R.mT, self.operator, self.scale[self.samples])
        self.coupling = torch.cat([K.new_zeros(len(K), K.shape[1], old), K], 2)
        self.count_step()

    def decompose(self) -> tuple[Tensor, Tensor, Tensor]:
        x, values, yt = torch.linalg.svd(self.projected.double().cpu())
        y = yt.mT
        if self.which == "smallest":
            x, values, y = x.flip(2), values.flip(1), y.flip(2)
        return values.to(self.projected), x.to(self.projected), y.to(self.projected)

    def estimates(self, values: Tensor, left: Tensor) -> Tensor:
        """Where s = |A v| is as good as zero, v is a null vector, whatever u is: there is nothing to wait for."""
        residuals = super().estimates(values, left)
        zero = values <= self.zero * self.scale[self.samples, None]
        return torch.where(zero, 0.0, residuals) if self.which == "smallest" else residuals
