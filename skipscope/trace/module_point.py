"""The states of named units at one batch, from a recording of the model's own forward pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from skipscope.trace.freshness import WeightsSeen
from skipscope.trace.inputs import Inputs
from skipscope.trace.outer_sum import OuterPiece, OuterSum
from skipscope.trace.recording import Place, Recording
from skipscope.trace.trunk import Point, Unit

if TYPE_CHECKING:
    from skipscope.trace.module_trunk import ModuleTrunk
    from skipscope.trace.module_unit import ModuleUnit


class ModulePoint(Point):
    def __init__(
        self,
        trunk: ModuleTrunk,
        inputs: Inputs,
        recording: Recording,
        sums: Sequence[OuterSum | None],
        seen: WeightsSeen,
    ) -> None:
        """sums: of each unit, where the code around its module makes one."""
        self.trunk, self.inputs, self.batch = trunk, inputs, inputs.batch
        self.sums, self.seen = list(sums), seen
        needed: set[int] = set()
        for some in sums:
            if some is not None:
                needed |= OuterPiece(recording, some.entry, some.exit).needed() | {some.sum}
        self.recording = recording.only(needed)
        self._pieces: dict[tuple[Place, int], OuterPiece] = {}

    def piece(self, entry: Place, exit: int) -> OuterPiece:
        if (entry, exit) not in self._pieces:
            self._pieces[entry, exit] = OuterPiece(self.recording, entry, exit)
        return self._pieces[entry, exit]

    @property
    def units(self) -> Sequence[ModuleUnit]:
        return self.trunk.units

    @property
    def output(self) -> Any:
        self.seen.check()
        return self.recording.output

    def entry(self, unit: ModuleUnit) -> Tensor:  # type: ignore[override]
        self.seen.check()
        outer = self.sums[unit.index]
        return self.recording.named[unit.order].entry if outer is None else self.recording.value(outer.entry)

    def exit(self, unit: ModuleUnit) -> Tensor:  # type: ignore[override]
        self.seen.check()
        outer = self.sums[unit.index]
        return self.recording.named[unit.order].exit if outer is None else self.recording.value(Place(outer.exit))

    def sum(self, unit: ModuleUnit) -> Tensor:  # type: ignore[override]
        self.seen.check()
        outer = self.sums[unit.index]
        if outer is not None:
            return self.recording.value(Place(outer.sum))
        entry = self.entry(unit)
        with torch.no_grad():
            return unit.skip.bound(self)(entry) + unit.branch.bound(self)(entry)

    def take(self, samples: Sequence[int]) -> None:
        return None

    def gradients(self, scalar: Callable[[Any], Tensor]) -> list[Tensor | None]:
        self.seen.check()
        return self.trunk.gradients(self, scalar)

    def first_not_finite(self) -> str:
        model = self.trunk.model
        weights = ((f"the weight {name}", weight) for name, weight in model.named_parameters())
        states = ((f"the {what} of {u.name}", state(u)) for u in self.units for what, state in self._states())
        found = (where for some in (weights, states) for where, value in some if not torch.isfinite(value).all())
        return next(found, "")

    def _states(self) -> list[tuple[str, Callable[[Unit], Tensor]]]:
        return [("entry", self.entry), ("exit", self.exit)]  # type: ignore[list-item]
