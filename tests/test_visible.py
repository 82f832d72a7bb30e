"""Text on its way to a terminal."""

from __future__ import annotations

import io
import sys
import warnings
from typing import Any

import pytest

from skipscope.cli.talk import talk
from skipscope.visible import VisibleStream, visible


def test_what_a_terminal_would_obey_is_written_out() -> None:
    assert visible("a\x1b[2Jb\r\x9b\u202e\ud800\n\té") == "a\\x1b[2Jb\\r\\x9b\\u202e\\ud800\n\té"


def test_a_stream_lets_bars_go_back_and_nothing_else() -> None:
    below = io.StringIO()
    stream: Any = VisibleStream(below)
    assert stream.write("10 %\r\x1b[A") == 8
    stream.writelines(["\x07", "\n"])
    assert below.getvalue() == "10 %\r\\x1b[A\\x07\n"
    assert stream.isatty() is False


def test_what_libraries_and_warnings_say_during_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    with talk.during("test", {}):
        print("printed \x1b[31m")
        sys.stderr.write("written \x1b[32m\n")
        sys.stderr.write(warnings.formatwarning("warned \x1b[33m", UserWarning, "file.py", 1))
    captured = capsys.readouterr()
    assert captured.out == ""
    assert [f"\\x1b[{code}m" in captured.err for code in (31, 32, 33)] == [True] * 3
    assert "\x1b" not in captured.err


def test_the_traceback_of_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    talk.traceback(ValueError("\x1b[31m"))
    assert "ValueError: \\x1b[31m" in capsys.readouterr().err
