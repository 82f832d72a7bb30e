"""One signature of `progress=`: done, total."""

from __future__ import annotations

import pytest

from skipscope.progress import Parts, announced


def test_parts_are_one_count() -> None:
    seen: list[tuple[int, int]] = []
    parts = Parts(lambda done, total: seen.append((done, total)), 3)
    parts("first", 0, 4)
    parts("first", 1, 4)
    parts("first", 4, 4)
    parts("third", 0, 1)  # the second was left out
    parts("third", 1, 1)
    parts.finish()
    assert seen == [(0, 300), (25, 300), (100, 300), (100, 300), (200, 300), (300, 300)]


def test_the_count_never_goes_back_nor_beyond_its_end() -> None:
    seen: list[int] = []
    parts = Parts(lambda done, total: seen.append(done), 2)
    for name in ("a", "b", "c", "a"):
        parts(name, 1, 2)
    parts("nothing to do", 0, 0)
    assert seen == sorted(seen)
    assert max(seen) <= 200


def test_no_progress_is_asked_for() -> None:
    announce, finish = announced("measure", None, 2)
    announce("part", 0, 1)
    finish()


def test_a_function_of_three_is_still_called_as_before() -> None:
    seen: list[tuple[str, int, int]] = []
    with pytest.warns(FutureWarning, match="measure: progress= is now called with two numbers, done and total"):
        announce, finish = announced("measure", lambda part, done, total: seen.append((part, done, total)), 2)  # type: ignore
    announce("part", 1, 2)
    finish()
    assert seen == [("part", 1, 2)]


@pytest.mark.filterwarnings("error::FutureWarning")
def test_any_function_of_two_is_taken() -> None:
    for progress in (lambda done, total: None, lambda *numbers: None, print, max):
        announced("measure", progress, 2)
