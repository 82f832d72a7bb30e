"""How tables are printed."""

from __future__ import annotations

from skipscope.text_table import in_columns


def test_words_to_the_left_and_numbers_to_the_right() -> None:
    lines = in_columns([["a", "1", ""], ["long name", "100", "x"]], right=[1], titles=["name", "n", "note"])
    assert lines == [
        "name         n  note",
        "---------  ---  ----",
        "a            1",
        "long name  100  x",
    ]


def test_without_titles_there_is_no_rule() -> None:
    assert in_columns([["a", "b"], ["ccc", "d"]]) == ["a    b", "ccc  d"]


def test_nothing_and_titles_alone() -> None:
    assert in_columns([]) == []
    assert in_columns([], titles=["unit", "skip"]) == ["unit  skip", "----  ----"]
