"""The class means of one layer's features, and how far its samples are from them; `collapse` has the formulas."""

from __future__ import annotations

import torch
from torch import Tensor


class ClassMeans:
    """Class means of one layer's features, and what else is summed over the samples."""

    def __init__(self, name: str, means: Tensor, scale: Tensor, dtype: torch.dtype, counts: Tensor) -> None:
        """means: (C, n), which becomes `centred`. scale: the size of the features."""
        self.name, self.scale, self.dtype, self.counts = name, scale, dtype, counts
        self.classes, self.size = means.shape
        self.mean = means.mean(0)
        self.centred = means.sub_(self.mean)
        self.gram = self.centred @ self.centred.mT
        _, S, Vt = torch.linalg.svd(torch.linalg.qr(self.centred.mT, mode="r").R, full_matrices=False)
        rounding = torch.finfo(dtype).eps * self.classes**0.5 * self.scale
        above = rounding.clamp_min(max(means.shape) * torch.finfo(torch.float64).eps * S[0]) < S
        self.rank = min(int(above.sum()), self.classes - 1)
        self.values, self.vectors = S[: self.rank], Vt[: self.rank]  # (r,), (r, C)
        self._along = torch.zeros_like(self.values)
        self._squares = self.gram.new_zeros(self.classes)
        self._nearest_right = 0

    @property
    def about(self) -> str:
        if self.rank == self.classes - 1:
            return ""
        return f"at {self.name} the class means span {self.rank} dimensions, fewer than {self.classes - 1}"

    def add(self, value: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """h - m_c of every sample, (B, n), and the class of its nearest mean."""
        from_mean = value.double() - self.mean - self.centred[labels]
        products = from_mean @ self.centred.mT  # B, C
        components = products @ self.vectors.mT / self.values  # B, r: u_k^T (h - m_c)
        self._along += (components.square() / self.counts[labels, None]).sum(0)
        self._squares.index_add_(0, labels, from_mean.square().sum(1))
        nearest = self._nearest(products, labels)
        self._nearest_right += int((nearest == labels).sum())
        return from_mean, nearest

    def _nearest(self, products: Tensor, labels: Tensor) -> Tensor:
        """|h - m_d|^2 - |h - m_c|^2 = |m_d - m_c|^2 - 2 (h - m_c) (m_d - m_c): the smallest over d; c is the sample's
        own class."""
        norms = self.gram.diagonal()
        apart = norms[:, None] + norms - 2 * self.gram  # C, C
        own = products.gather(1, labels[:, None])
        return (apart[labels] - 2 * (products - own)).argmin(1)

    def numbers(self) -> dict[str, float | int]:
        norms = self.centred.norm(dim=1)
        first, second = torch.triu_indices(self.classes, self.classes, 1, device=norms.device)  # all pairs
        cosines = (self.gram / (norms[:, None] * norms))[first, second]
        apart = torch.cdist(self.centred, self.centred, compute_mode="donot_use_mm_for_euclid_dist")[first, second]
        variances = self._squares / self.counts
        within = self._along / self.classes  # mean squares along u_k
        return {
            "nc1": float((within / self.values.square()).sum()) if self.rank else float("nan"),
            "cdnv": float(((variances[first] + variances[second]) / (2 * apart.square())).mean()),
            "nc2_equinorm": float(norms.std(correction=0) / norms.mean()),
            "nc2_equiangular": float(cosines.std(correction=0)),
            "nc2_maximal_angle": float((cosines + 1 / (self.classes - 1)).abs().mean()),
            "nearest_mean_accuracy": self._nearest_right / int(self.counts.sum()),
            "rank": self.rank,
            "size": self.size,
        }
