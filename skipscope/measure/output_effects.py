"""What a model's output says of its states and units: the logit lens, and the effect of a unit's branch.

The formulas are those of `depth_use`, which calls it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from skipscope.measure.chain import ChainAt, exit_of
from skipscope.measure.predictions import Targets, divergence, losses
from skipscope.progress import Progress
from skipscope.trace import Point, Unit


class Effects:
    """Of the chosen units of a chain, at a point."""

    def __init__(
        self,
        chain: ChainAt,
        point: Point,
        units: Sequence[Unit],
        positions: Sequence[int],
        targets: Targets,
    ) -> None:
        """positions: those that are reported, where each has a prediction."""
        head = chain.chain.head
        assert head is not None
        self.at, self.point, self.units, self.targets = chain, point, units, targets
        self.positions = list(positions)
        self.axis = head.batch_axis if head.exit_axis is None else head.exit_axis
        self.each = len(head.exit_shape) == 2  # a prediction at each position, not one for the sample

    def measured(self, skipping: bool, tell: Progress | None) -> dict[str, Any]:
        """Variables with their dimensions."""
        where = ("sample", "position") if self.each else ("sample",)
        own = self._logits(self.at.end(self.at.first, 0))
        targets = self.targets.values
        base = None if targets is None else losses(own, targets)
        total = len(self.units) * (1 + skipping) + 1
        lens: list[Tensor] = []
        effects: list[Tensor] = []
        changes: list[Tensor] = []

        def step() -> None:
            if tell is not None:
                tell(len(lens) + len(effects), total)

        last = self.at.chain.links[-1].span.exit_shape
        for state, shape in self._states():
            fits = shape == last
            value = divergence(own, self._logits(state)) if fits else own.new_full(own.shape[:-1], float("nan"))
            lens.append(self._picked(value.double()))
            step()
        for unit in self.units if skipping else []:
            logits = self._logits(self.at.end(self._without(unit), self.at.chain.place(unit) + 1))
            effects.append(self._picked(divergence(own, logits)))
            if base is not None and targets is not None:
                changes.append(self._picked(losses(logits, targets) - base))
            step()
        found: dict[str, Any] = {"lens_kl": (("state", *where), torch.stack(lens).numpy())}
        if base is not None:
            found["loss"] = (where, self._picked(base).numpy())
        if effects:
            found["skip_kl"] = (("unit", *where), torch.stack(effects).numpy())
        if changes:
            found["skip_loss_change"] = (("unit", *where), torch.stack(changes).numpy())
        return found

    def _states(self) -> list[tuple[Tensor, tuple[int, ...]]]:
        entries = [(self.point.entry(unit), unit.entry_shape) for unit in self.units]
        return [*entries, (exit_of(self.point, self.units[-1])[0], self.units[-1].exit_shape)]

    def _without(self, unit: Unit) -> Tensor:
        """The exit of a unit whose branch adds nothing."""
        with torch.no_grad():
            kept = unit.skip.bound(self.point)(self.point.entry(unit))
            return unit.tail.bound(self.point)(kept) if unit.tail else kept

    def _logits(self, state: Tensor) -> Tensor:
        """(B, positions, classes) or (B, classes)."""
        return self.at.output(state).movedim(self.axis, 0)

    def _picked(self, values: Tensor) -> Tensor:
        return (values[:, self.positions] if self.each else values).cpu()
