"""When an iteration from products has found the values that were asked for: the stopping rule.

A Krylov space holds no more copies of a repeated value than its block is wide, so that small residuals do not say that
the triplets are the wanted ones. There are up to three rounds.

search   from a random block, with restarts, until the residuals of the wanted values are small.
trial    from a fresh random block beside the wanted vectors and some more, without restarts, until a value that was
         missed would have come up: with a probability of 1 - 1e-6 over the random block, none is above what was found
         by more than the tolerance (`unseen`). What is kept beside the wanted vectors makes this quick: a missed value
         is compared with what is left, not with its neighbours.
confirm  where the trial finds other values, or cannot end in the memory that it may take because very many values are
         nearly as large as the wanted ones: everything but the wanted vectors is dropped, the iteration starts from a
         fresh random block, and ends when the same values have come back and the next one, seen from there, is known to
         a tenth of its distance to the last of them. That takes a whole cycle at least: of n entries a fresh block has
         about 1 / sqrt(n) of a vector that was missed, which has not come up after a few steps, while all else seems to
         hold. The next vector begins as small, and a missed one grows faster; so where the next one is well known, a
         missed one would have come up. This is no proof.

What has not been through one of the last two when the products are spent has not converged, however small its residual:
it is a triplet, but perhaps not the one that was asked for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from skipscope.cores import threads_for
from skipscope.spectrum.krylov import Krylov
from skipscope.spectrum.plan import Costs
from skipscope.spectrum.unseen import FAILURE

WELL_KNOWN = 0.1  # of its distance to the last wanted value: up to so large a residual the next value is well known
FIRST_LOOK = 7  # steps of a trial
SHORTEST = 2  # steps between looks
MOST = 0.75  # of the samples have as many steps as they seem to need at the next look: what leaves, leaves together


def iterate(krylov: Krylov, k: int, sizes: Costs, tolerance: float, budget: int) -> tuple[Tensor, Tensor, Tensor]:
    """Ritz values (B, k) and left and right vectors (B, m, k) and (B, n, k) of every sample, converged or at the end of
    its products."""
    batch, m, n = krylov.whole.shape
    rounds = Rounds(krylov, k, sizes, tolerance, budget)
    with threads_for(batch * max(m, n) * sizes.block, krylov.whole.device):
        waiting = sorted(rounds.search(range(batch)))
        if waiting and rounds.trial_room > sizes.subspace:
            waiting = sorted(rounds.trial(waiting))
        while waiting:
            waiting = sorted(rounds.search(waiting, confirm=True))
    return rounds.values[:, :k], rounds.left[:, :k].mT, rounds.right[:, :k].mT


class Rounds:
    """What the samples have left each round with; every round returns those that need another one."""

    def __init__(self, krylov: Krylov, k: int, sizes: Costs, tolerance: float, budget: int) -> None:
        self.krylov, self.k, self.sizes, self.tolerance, self.budget = krylov, k, sizes, tolerance, budget
        batch, m, n = krylov.whole.shape
        dtype, device = krylov.whole.dtype, krylov.whole.device
        self.small = min(m, n)
        self.inner = max(tolerance / 4, 4 * torch.finfo(dtype).eps)
        vector_bytes = batch * (m + n if krylov.sides == 2 else n) * dtype.itemsize
        room = min(self.small, sizes.trial_room(vector_bytes, device))
        self.trial_room = room if krylov.can_bound else 0  # vectors
        # Triplets that are stored: the second half of what a restart keeps is not yet known well enough to help.
        self.width = (k + sizes.keep + 1) // 2 if self.trial_room > sizes.subspace else k
        self.values = krylov.scale.new_zeros(batch, self.width)
        self.left = torch.zeros(batch, self.width, m, dtype=dtype, device=device)
        self.right = self.left if krylov.sides == 1 else self.left.new_zeros(batch, self.width, n)
        self.coupling = krylov.scale.new_zeros(batch, sizes.block, self.width)

    def search(self, samples: Sequence[int], *, confirm: bool = False) -> list[int]:
        """With restarts, until the values have converged; to confirm, until they are the same again and the next one is
        well known."""
        krylov, k, sizes = self.krylov, self.k, self.sizes
        self._begin(samples, k if confirm else 0, sizes.subspace + sizes.block)
        again: list[int] = []
        while krylov.samples:
            krylov.advance(math.ceil((sizes.subspace - krylov.size) / sizes.block))
            krylov.check()
            now = krylov.samples
            ritz, x, y = krylov.decompose()  # B, p  B, p, p  B, p, p
            krylov.scale[now] = scale = torch.maximum(krylov.scale[now], ritz.abs().amax(1))  # B
            residuals = krylov.estimates(ritz, x)  # B, p
            converged = (residuals[:, :k] <= self.inner * scale[:, None]).all(1)
            ranks = krylov.rank(ritz)
            difference = (ranks[:, :k] - krylov.rank(self.values[now, :k])).abs()
            same = (difference <= self.tolerance * scale[:, None]).all(1)
            next_known = converged
            if not krylov.complete:
                distance = ranks[:, k - 1] - ranks[:, k]
                next_known = residuals[:, k] <= WELL_KNOWN * distance + self.inner * scale
            confirmed = converged & same & next_known & confirm
            krylov.settled[now] = settled = confirmed | krylov.complete
            if krylov.complete:
                krylov.missed[now] = 0.0
            over = self._spent() | settled
            retry = ~over & converged & ~(same & confirm)
            leave = over | retry
            self._store(leave, ritz, x, y)
            again += [now[position] for position in _positions(retry)]
            krylov.restart(_positions(~leave), *(part[..., : sizes.keep] for part in (ritz, x, y)))
        return again

    def trial(self, samples: Sequence[int]) -> list[int]:
        """Without restarts, until nothing can have been missed. The triplets that were found stay as they are."""
        krylov, k, sizes, block = self.krylov, self.k, self.sizes, self.sizes.block
        self._begin(samples, self.width, self.width + (FIRST_LOOK + 1) * block)
        look = FIRST_LOOK
        again: list[int] = []
        while krylov.samples:
            krylov.advance(look - krylov.steps)
            krylov.check()
            now = krylov.samples
            values, coupling, scale = (part[now] for part in (self.values, self.coupling, krylov.scale))
            ranks, allowed = krylov.rank(values[:, :k]), self.tolerance * scale
            bounds, steps_needed = krylov.bounds(values, coupling)
            settled = (bounds[:, :k] - ranks <= allowed[:, None]).all(1)  # B
            krylov.settled[now] = settled
            for sample, whether in zip(now, settled.tolist(), strict=True):
                if whether:
                    krylov.missed[sample] = 0.0 if krylov.complete else FAILURE
            needed = steps_needed(ranks[:, -1] + allowed)  # B
            affordable = self._products_left() // krylov.sides  # B, vectors
            room = affordable.clamp(max=self.trial_room - krylov.size)
            # Where little is left of the whole space, taking all of it costs less than to confirm.
            others = self.small - krylov.size
            ending = 0 < others <= sizes.subspace - k and self.trial_room == self.small
            go_on = ~settled & (room >= block) & (needed < krylov.steps + room // block)
            if ending:
                go_on = ~settled & (affordable >= others)
            again += [now[position] for position in _positions(~(go_on | settled | self._spent()))]
            krylov.only(_positions(go_on))
            if krylov.samples:
                until = self.small if ending else needed[go_on].quantile(MOST).item()  # steps
                look = min(krylov.steps + math.ceil(others / block), max(krylov.steps + SHORTEST, math.ceil(until)))
                krylov.reserve(self.width + (look + 1) * block)
        return again

    def _begin(self, samples: Sequence[int], kept: int, room: int) -> None:
        samples = list(samples)
        found = (self.values[samples, :kept], self.left[samples, :kept], self.right[samples, :kept])
        self.krylov.begin(samples, *found, room)

    def _products_left(self) -> Tensor:  # B
        used = [self.krylov.products[sample] for sample in self.krylov.samples]
        return self.budget - torch.tensor(used, device="cpu")

    def _spent(self) -> Tensor:  # B
        return self._products_left() <= 0

    def _store(self, chosen: Tensor, ritz: Tensor, x: Tensor, y: Tensor) -> None:
        """What the chosen ones (B) of the samples have found."""
        krylov, width = self.krylov, self.width
        positions = _positions(chosen)
        if not positions:
            return
        gone = [krylov.samples[position] for position in positions]
        self.values[gone] = ritz[positions, :width]
        self.right[gone] = krylov.right.rotated(positions, y[positions, :, :width])
        if krylov.sides == 2:
            self.left[gone] = krylov.left.rotated(positions, x[positions, :, :width])
        coupling = krylov.coupling[positions] @ x[positions, :, :width]
        self.coupling[gone, : coupling.shape[1]] = coupling


def _positions(mask: Tensor) -> list[int]:
    return mask.nonzero()[:, 0].tolist()
