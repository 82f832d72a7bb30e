"""Settings that check themselves: each field declares what it may be, and a wrong value is refused when it is made.

For example:

    @dataclass(frozen=True)
    class Training(Constrained):
        epochs: Annotated[int, at_least(1)] = 10
        rates: Annotated[tuple[float, ...], not_empty, each(above(0))] = (0.1,)
        clip: Annotated[float | None, above(0)] = None  # None is left alone where the type has it

        def expectations(self) -> Iterator[Expectation]:  # what one field alone cannot tell
            yield self.last >= self.first, f"last: expected at least first = {self.first}, got {self.last}"
"""

from __future__ import annotations

import math
import typing
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

from skipscope.errors import InputError

Expectation = tuple[bool, str]  # whether it is met, and what to say if not


@dataclass(frozen=True)
class Constraint:
    words: str  # what is expected: "at least 1"
    holds: Callable[[Any], bool]


def at_least(least: float) -> Constraint:
    return Constraint(f"at least {least:g}", lambda value: value >= least)


def above(limit: float) -> Constraint:
    return Constraint(f"above {limit:g}", lambda value: value > limit)


def at_most(most: float) -> Constraint:
    return Constraint(f"at most {most:g}", lambda value: value <= most)


def below(limit: float) -> Constraint:
    return Constraint(f"below {limit:g}", lambda value: value < limit)


def from_to(low: float, high: float) -> Constraint:
    """Both ends belong to the range."""
    return Constraint(f"from {low:g} to {high:g}", lambda value: low <= value <= high)


def multiple_of(number: int) -> Constraint:
    words = "an even number" if number == 2 else f"a multiple of {number}"
    return Constraint(words, lambda value: value % number == 0)


def one_of(*known: Any) -> Constraint:
    return Constraint(f"one of {', '.join(map(str, known))}", lambda value: value in known)


def some_of(*known: Any) -> Constraint:
    """Of a sequence: each member is known, and there is at least one."""
    return Constraint(
        f"some of {', '.join(map(str, known))}", lambda values: bool(values) and set(values) <= set(known)
    )


def including(*wanted: Any) -> Constraint:
    """Of a sequence: these are among its members."""
    return Constraint(f"{', '.join(map(str, wanted))} among them", lambda values: set(wanted) <= set(values))


def each(*constraints: Constraint) -> Constraint:
    """Of a sequence: every member meets all of the constraints."""
    words = " and ".join(constraint.words for constraint in constraints)
    return Constraint(
        f"each {words}", lambda values: all(constraint.holds(value) for value in values for constraint in constraints)
    )


whole = Constraint("a whole number", lambda value: isinstance(value, int) and not isinstance(value, bool))
finite = Constraint("a finite number", math.isfinite)
not_empty = Constraint("at least one value", bool)
several = Constraint("at least two values", lambda values: len(values) >= 2)
rising = Constraint("values that rise, none twice", lambda values: list(values) == sorted(set(values)))


class Constrained:
    """A dataclass whose fields are checked when it is made, as their annotations say, and then `expectations`."""

    named: ClassVar[str] = ""  # what the messages begin with: "ResNet" gives "ResNet: depth: expected ..."

    def __post_init__(self) -> None:
        kind: Any = type(self)
        begin = f"{self.named}: " if self.named else ""
        for name, (constraints, optional) in _declared(kind).items():
            value = getattr(self, name)
            if value is None and optional:
                continue
            for constraint in constraints:
                if not _holds(constraint, value):
                    raise InputError(f"{begin}{name}: expected {constraint.words}, got {_shown(value)}")
        for met, message in self.expectations():
            if not met:
                raise InputError(f"{begin}{message}")

    def expectations(self) -> Iterable[Expectation] | Iterator[Expectation]:
        """Of several fields together. A class that adds some yields those of its parent first."""
        return ()


@cache
def _declared(kind: type) -> dict[str, tuple[tuple[Constraint, ...], bool]]:
    """Of each field that has some: its constraints, and whether it may be None."""
    found = {}
    for name, hint in typing.get_type_hints(kind, include_extras=True).items():
        extras = getattr(hint, "__metadata__", ())
        constraints = tuple(extra for extra in extras if isinstance(extra, Constraint))
        if constraints:
            found[name] = constraints, type(None) in typing.get_args(typing.get_args(hint)[0])
        elif any(hasattr(part, "__metadata__") for part in typing.get_args(hint)):
            raise TypeError(f"{kind.__name__}.{name}: Annotated goes around the whole type, None included")
    return found


def _holds(constraint: Constraint, value: Any) -> bool:
    try:
        return constraint.holds(value)
    except TypeError:  # None, or a text, in place of a number; a number in place of a sequence
        return False


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    return repr(value)
