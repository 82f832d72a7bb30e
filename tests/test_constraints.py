"""Settings that check themselves: every constraint accepts what it should and refuses the rest in plain words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import pytest

from skipscope.constraints import (
    Constrained,
    Constraint,
    Expectation,
    above,
    at_least,
    at_most,
    below,
    each,
    from_to,
    including,
    multiple_of,
    not_empty,
    one_of,
    rising,
    some_of,
)
from skipscope.errors import InputError


@dataclass(frozen=True)
class Sample(Constrained):
    count: Annotated[int, at_least(1)] = 1
    clip: Annotated[float | None, above(0)] = None
    rates: Annotated[tuple[float, ...], not_empty, each(above(0))] = (0.1,)
    plain: int = -5  # nothing is declared


@dataclass(frozen=True)
class Longer(Sample):
    last: int = 3
    depths: Annotated[tuple[int, ...], rising, each(multiple_of(2))] = (2, 4)

    def expectations(self) -> Iterator[Expectation]:
        yield from super().expectations()
        yield self.last >= self.count, f"last: expected at least count = {self.count}, got {self.last}"


@pytest.mark.parametrize(
    ("constraint", "good", "bad"),
    [
        (at_least(2), [2, 3], [1]),
        (above(0), [0.1], [0, -1]),
        (at_most(2), [2, 1], [3]),
        (below(1), [0.9], [1]),
        (from_to(0, 1), [0, 0.5, 1], [-0.1, 1.1]),
        (multiple_of(2), [0, 4], [3]),
        (multiple_of(3), [6], [4]),
        (one_of("a", "b"), ["a"], ["c"]),
        (some_of(1, 2), [(1,), (2, 1)], [(), (3,), (1, 3)]),
        (including(0.5), [(0.5, 1)], [(1,), ()]),
        (each(above(0), below(2)), [(1, 1.5), ()], [(0, 1), (1, 2)]),
        (not_empty, [(1,)], [()]),
        (rising, [(1, 2), ()], [(2, 1), (1, 1)]),
    ],
    ids=lambda value: value.words if isinstance(value, Constraint) else "",
)
def test_what_a_constraint_accepts(constraint: Constraint, good: list[Any], bad: list[Any]) -> None:
    assert all(constraint.holds(value) for value in good)
    assert not any(constraint.holds(value) for value in bad)


@pytest.mark.parametrize("nan", [float("nan")])
def test_no_range_accepts_what_is_not_a_number(nan: float) -> None:
    assert not any(constraint.holds(nan) for constraint in (at_least(0), above(0), at_most(1), below(1), from_to(0, 1)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"count": 0}, "count: expected at least 1, got 0"),
        ({"clip": 0.0}, r"clip: expected above 0, got 0\.0"),
        ({"rates": ()}, "rates: expected at least one value, got none"),
        ({"rates": (0.1, -1.0)}, r"rates: expected each above 0, got 0\.1, -1\.0"),
        ({"depths": (4, 2)}, "depths: expected values that rise, none twice, got 4, 2"),
        ({"depths": (2, 3)}, "depths: expected each an even number, got 2, 3"),
        ({"count": 4}, "last: expected at least count = 4, got 3"),
    ],
)
def test_a_wrong_value_is_refused_in_plain_words(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}$"):
        Longer(**changes)


@dataclass(frozen=True)
class Named(Longer):
    named = "Network"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"count": 0}, "Network: count: expected at least 1, got 0"),
        ({"count": 4}, "Network: last: expected at least count = 4, got 3"),
    ],
)
def test_messages_begin_with_the_name_of_the_class_where_it_has_one(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}$"):
        Named(**changes)


@pytest.mark.parametrize("changes", [{"count": None}, {"rates": None}, {"rates": 3}, {"count": "many"}])
def test_none_and_other_types_are_refused_where_the_type_has_them_not(changes: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="expected"):
        Longer(**changes)


def test_an_annotation_inside_a_union_is_a_slip() -> None:
    @dataclass(frozen=True)
    class Slip(Constrained):
        clip: Annotated[float, above(0)] | None = None

    with pytest.raises(TypeError, match="clip: Annotated goes around the whole type"):
        Slip()


def test_none_is_left_alone_and_fields_without_constraints_may_be_anything() -> None:
    assert Longer(clip=None, plain=-7).plain == -7
