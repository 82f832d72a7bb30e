"""A quantity is what a study measures and a claim is judged by: one object that both refer to.

    NEAR_ONE = Quantity("share near 1, regular units", "share")

    Claim("D2", ..., parts=(Part("a plateau", NEAR_ONE.at_least(0.3)), Part("most values", NEAR_ONE.above(0.5))))
    return {D2: [Measured({NEAR_ONE: shares}, subject="resnet56", seeds=seeds)]}

A claim and the study that decides it are joined by this object, so that a slip in its name is an error when Python
imports the study.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

from skipscope.papers.kit.estimates import Scale

if TYPE_CHECKING:
    from skipscope.papers.kit.criteria import Criterion


@dataclass(frozen=True, eq=False)
class Quantity:
    """Its value is a number, one number per network, or an estimate with an interval of its own.

    scale: on which the numbers of networks spread evenly; it says what values there can be, too.
    """

    name: str
    scale: Scale = "plain"

    def __post_init__(self) -> None:
        if self.scale not in get_args(Scale):
            raise ValueError(f"{self.name}: the scale is one of {', '.join(get_args(Scale))}, not {self.scale!r}")

    def at_least(self, threshold: float, *, every: bool = False) -> Criterion:
        return _criterion(self, ">=", threshold, every)

    def at_most(self, threshold: float, *, every: bool = False, floor: Quantity | None = None) -> Criterion:
        """floor: the same quantity between networks that differ in nothing but their seed; where it is larger than the
        threshold, it takes its place."""
        return _criterion(self, "<=", threshold, every, floor)

    def above(self, threshold: float, *, every: bool = False) -> Criterion:
        return _criterion(self, ">", threshold, every)

    def below(self, threshold: float, *, every: bool = False) -> Criterion:
        return _criterion(self, "<", threshold, every)

    def exactly(self, value: float, *, every: bool = True) -> Criterion:
        return _criterion(self, "==", value, every)

    def within(self, low: float, high: float, *, every: bool = False) -> Criterion:
        """Both ends belong to the range."""
        return _criterion(self, "within", (low, high), every)

    def of(self, what: str) -> Quantity:
        """The same quantity of something else, which is reported beside the one that is judged."""
        return Quantity(f"{self.name}, {what}", self.scale)

    def __str__(self) -> str:
        return self.name

    def __copy__(self) -> Quantity:
        """Itself: a copy would be another quantity."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Quantity:
        return self


def _criterion(
    quantity: Quantity,
    relation: str,
    threshold: float | tuple[float, float],
    every: bool,
    floor: Quantity | None = None,
) -> Criterion:
    """every: each network has to pass, whatever their mean; for what is exact."""
    from skipscope.papers.kit.criteria import Criterion

    return Criterion(quantity, relation, threshold, every, floor)  # type: ignore[arg-type]
