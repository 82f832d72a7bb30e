"""Text for a terminal.

Names of units, networks, files and claims may come from anybody's model or run folder, and a terminal obeys what is in
them: sequences that move the cursor, rename the window or hide a line, and marks that reverse the order of letters.
Halves of characters, which a file's name or a JSON document may hold, cannot be printed at all.
"""

from __future__ import annotations

import re
from typing import Any, TextIO

# Control characters but line ends and tabs; marks of direction; halves of characters.
_OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
# What libraries draw their bars with goes back to the beginning of a line.
_OBEYED_BUT_RETURN = re.compile(_OBEYED.pattern.replace(r"\x0b-\x1f", r"\x0b\x0c\x0e-\x1f"))


def visible(text: str) -> str:
    r"""The text with what a terminal would obey written out: \x1b, \u202e."""
    return _OBEYED.sub(_written_out, text)


class VisibleStream:
    """A stream through which libraries, warnings and models write to a terminal; all else is the stream's own."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        self.stream.write(_OBEYED_BUT_RETURN.sub(_written_out, text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def _written_out(found: re.Match[str]) -> str:
    return repr(found[0])[1:-1]
