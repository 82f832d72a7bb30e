"""Mean, standard error and split-half agreement of matrices that come row by row, one prompt after another.

The mean and the sum of squared deviations are updated prompt by prompt (Welford 1962), in float64, so that a small
spread around a large mean is not lost. Prompts go to two halves in turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor


class Statistics:
    """Of one matrix (d, d) for each of several layers."""

    def __init__(self, layers: Sequence[int], size: int, device: torch.device) -> None:
        """layers: keys of the matrices."""
        self.layers, self.prompts = list(layers), 0
        shape = (len(self.layers), size, size)
        self.mean, self._squares, self._half = (
            torch.zeros(shape, dtype=torch.float64, device=device) for _ in range(3)
        )

    def add_rows(self, rows: Sequence[int], found: Mapping[int, Tensor]) -> None:
        """found: by layer (B, rows, d). All rows of a batch of prompts, then `count`."""
        some = slice(rows[0], rows[-1] + 1)
        for place, layer in enumerate(self.layers):
            mean, squares, half = (one[place, some] for one in (self.mean, self._squares, self._half))
            for number, value in enumerate(found[layer], start=self.prompts + 1):
                before = value - mean
                mean += before / number
                squares += before * (value - mean)
                if number % 2:
                    half += value

    def count(self, prompts: int) -> None:
        self.prompts += prompts

    def error(self) -> Tensor:
        """Standard error of the mean, entry by entry; NaN of one prompt."""
        if self.prompts < 2:
            return torch.full_like(self.mean, float("nan"))
        return (self._squares / (self.prompts - 1) / self.prompts).sqrt()

    def relative_error(self) -> Tensor:
        """|standard error|_F / |mean|_F of each layer; NaN of one prompt."""
        if self.prompts < 2:
            return torch.full_like(self.mean[:, 0, 0], float("nan"))
        squares = self._squares.sum((1, 2)) / (self.prompts - 1) / self.prompts
        return squares.sqrt() / torch.linalg.matrix_norm(self.mean)

    def split_half_cosine(self) -> Tensor:
        """Cosine of the means of the two halves, as vectors, of each layer; NaN of one prompt."""
        if self.prompts < 2:
            return torch.full_like(self.mean[:, 0, 0], float("nan"))
        odd, even = self._half, self.prompts * self.mean - self._half
        product = (odd * even).sum((1, 2))
        return product / (torch.linalg.matrix_norm(odd) * torch.linalg.matrix_norm(even))
