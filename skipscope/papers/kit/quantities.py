"""A quantity is what a study measures and a claim is judged by: one object that both refer to.

    NEAR_ONE = Quantity("share near 1, regular units")

    Claim("D2", ..., criteria=(NEAR_ONE.at_least(0.3), NEAR_ONE.above(0.5)))
    return {D2: {NEAR_ONE: shares}}

A claim and the study that decides it are joined by this object, so that a slip in its name is an error when Python
imports the study.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skipscope.papers.kit.criteria import Criterion


@dataclass(frozen=True, eq=False)
class Quantity:
    """Its value is a number, or one number per member: per network, unit or image, as its name says."""

    name: str

    def at_least(self, threshold: float, *, share: float | None = None, every: bool = False) -> Criterion:
        return _criterion(self, ">=", threshold, share, every)

    def at_most(self, threshold: float, *, share: float | None = None, every: bool = False) -> Criterion:
        return _criterion(self, "<=", threshold, share, every)

    def above(self, threshold: float, *, share: float | None = None, every: bool = False) -> Criterion:
        return _criterion(self, ">", threshold, share, every)

    def below(self, threshold: float, *, share: float | None = None, every: bool = False) -> Criterion:
        return _criterion(self, "<", threshold, share, every)

    def exactly(self, value: float, *, share: float | None = None, every: bool = False) -> Criterion:
        return _criterion(self, "==", value, share, every)

    def within(self, low: float, high: float, *, share: float | None = None, every: bool = False) -> Criterion:
        """Both ends belong to the range."""
        return _criterion(self, "within", (low, high), share, every)

    def of(self, what: str) -> Quantity:
        """The same quantity of something else, which is reported beside the one that is judged."""
        return Quantity(f"{self.name}, {what}")

    def __str__(self) -> str:
        return self.name

    def __copy__(self) -> Quantity:
        """Itself: a copy would be another quantity."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Quantity:
        return self


def _criterion(
    quantity: Quantity, relation: str, threshold: float | tuple[float, float], share: float | None, every: bool
) -> Criterion:
    """share: of the members, that have to pass; two thirds where nothing is said. every: whatever their mean."""
    from skipscope.papers.kit.criteria import TWO_THIRDS, Criterion

    return Criterion(quantity, relation, threshold, TWO_THIRDS if share is None else share, every)  # type: ignore[arg-type]


SEEDS = Quantity("seeds")  # how many networks the evidence for a claim comes from
