"""How far a signal would move with other samples: its standard error, by leaving samples out in turn.

The jackknife (Quenouille 1956, Tukey 1958): with t_j a statistic of all samples but those of group j, of g groups, its
variance is about (g - 1) / g times the sum of (t_j - mean of t)^2. The functionals whose gradients are followed back
are drawn for every sample, so that their own scatter is part of it. With few samples the error is itself rough;
what the weights would be with another seed is no part of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from skipscope.measure.states import effective_rank

GROUPS = 32
CALIBRATED = 32  # samples with which the thresholds were found: the rank of states grows with their number


@dataclass(frozen=True)
class End:
    """What the first or the last state has of every sample, and the gradients of all functionals there.

    entries: of a sample. energies, gradient_squares, gradient_ranks: (B,). grams: of every group of samples whose rank
    is taken, products of the centred rows.
    """

    entries: int
    energies: Tensor
    grams: list[Tensor]
    gradient_squares: Tensor
    gradient_ranks: Tensor

    @classmethod
    def of(cls, rows: Tensor, gradients: Tensor) -> End:
        """rows: (B, n). gradients: (B, functionals, n)."""
        centred = [group - group.mean(0) for group in groups_of(rows)]
        squares = gradients.square().sum((1, 2))
        ranks = torch.stack([effective_rank(each) if bool(each.any()) else each.new_zeros(()) for each in gradients])
        return cls(
            rows.shape[1], rows.square().sum(1).cpu(), [(g @ g.mT).cpu() for g in centred], squares.cpu(), ranks.cpu()
        )


def groups_of(rows: Tensor) -> list[Tensor]:
    """As many samples in a group as the thresholds know, so that more of them make a rank steadier, not larger."""
    return [group for group in rows.split(CALIBRATED) if len(group) == min(len(rows), CALIBRATED)]


def errors(first: End, last: End, losses: Tensor | None) -> dict[str, float]:
    """Standard errors of the signals that rules look at; losses: (B,)."""
    batch = len(first.energies)

    def growth(kept: Tensor) -> float:
        return _log_ratio(last.energies[kept], first.energies[kept]) / 2

    def gradient_growth(kept: Tensor) -> float:
        return _log_ratio(first.gradient_squares[kept], last.gradient_squares[kept]) / 2

    def gradient_rank(kept: Tensor) -> float:
        return float(first.gradient_ranks[kept].mean()) / min(float(last.gradient_ranks[kept].mean()), first.entries)

    def loss(kept: Tensor) -> float:
        return math.nan if losses is None else float(losses[kept].mean())

    of_groups = [
        jackknife(partial(_rank_kept, before, after, last.entries), len(before))
        for before, after in zip(first.grams, last.grams, strict=True)
    ]
    return {
        "growth": jackknife(growth, batch),
        "rank": math.sqrt(sum(error**2 for error in of_groups)) / len(of_groups),
        "gradient_growth": jackknife(gradient_growth, batch),
        "gradient_rank": jackknife(gradient_rank, batch),
        "loss": jackknife(loss, batch),
    }


def jackknife(statistic: Callable[[Tensor], float], batch: int) -> float:
    """statistic: of the samples whose numbers it is given."""
    groups = min(batch, GROUPS)
    number = torch.arange(batch, device="cpu")
    values = torch.tensor([statistic(number[number % groups != group]) for group in range(groups)], dtype=torch.float64)
    return math.sqrt((groups - 1) / groups * float((values - values.mean()).square().sum()))


def _rank_kept(first: Tensor, last: Tensor, entries: int, kept: Tensor) -> float:
    """first, last: Gram matrices."""
    before = _rank(first[kept][:, kept])
    return _rank(last[kept][:, kept]) / min(before, entries) if before else 0.0


def _rank(gram: Tensor) -> float:
    """Effective rank of the rows behind a Gram matrix, centred once more: some of them were left out."""
    centred = gram - gram.mean(0) - gram.mean(1, keepdim=True) + gram.mean()
    squares = torch.linalg.eigvalsh(centred).clamp_min(0)
    return float(torch.exp(torch.special.entr(squares / squares.sum()).sum())) if float(squares.sum()) > 0 else 0.0


def _log_ratio(above: Tensor, below: Tensor) -> float:
    smallest = torch.finfo(torch.float64).tiny
    return math.log10(max(float(above.sum()), smallest)) - math.log10(max(float(below.sum()), smallest))
