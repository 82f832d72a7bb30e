"""One signature of `progress=`: done, total."""

from __future__ import annotations

import pytest
import torch

import skipscope as ss
from skipscope.progress import Bar, Parts, Progress, announced, called, with_progress


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


# -- progress=True


@with_progress
def counting(*, fail: bool = False, progress: Progress | bool | None = None) -> Progress | None:
    tell = called(progress)
    for done in range(3):
        if tell is not None:
            tell(done, 2)
    if fail:
        raise ValueError
    return tell


def test_true_is_a_bar_and_false_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[Bar] = []
    monkeypatch.setattr(Bar, "stop", lambda bar: stopped.append(bar))
    assert counting() is None
    assert counting(progress=False) is None
    assert stopped == []
    assert isinstance(counting(progress=True), Bar)
    with pytest.raises(ValueError):  # noqa: PT011
        counting(progress=True, fail=True)
    assert len(stopped) == 2


def test_a_function_is_called_as_it_is() -> None:
    seen: list[tuple[int, int]] = []
    counting(progress=lambda done, total: seen.append((done, total)))
    assert seen == [(0, 2), (1, 2), (2, 2)]


def test_nothing_is_drawn_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    counting(progress=True)
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes it for a terminal
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    ss.singular_values(ss.Dense(torch.eye(3).expand(2, 3, 3)), progress=True)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "singular_values" in captured.err
