"""Text for a terminal.

Names of units, networks, files and claims may come from anybody's model or run folder, and a terminal obeys what is in
them: sequences that move the cursor, rename the window or hide a line, and marks that reverse the order of letters.
"""

from __future__ import annotations

import re

# Control characters but line ends and tabs; marks of direction.
_OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    r"""The text with what a terminal would obey written out: \x1b, \u202e."""
    return _OBEYED.sub(lambda found: repr(found[0])[1:-1], text)
