"""What the names of our networks have in common: parts between hyphens, and errors that say what is allowed."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

from skipscope.errors import InputError

LARGEST = 10_000  # of a number in an option


def options_given_once(name: str, options: Sequence[str], meaning: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    """What the options of a name mean together."""
    given: dict[str, Any] = {}
    for option in options:
        meant = meaning(option)
        if meant.keys() & given.keys():
            raise InputError(f"skipscope:{name}: '{option}' says {', '.join(meant)} a second time; leave one out")
        given |= meant
    return given


def whole(name: str, what: str, digits: str, most: int) -> int:
    """Python itself refuses to read thousands of digits."""
    digits = digits.lstrip("0") or "0"
    value = int(digits) if len(digits) <= len(str(most)) else most + 1
    if not 1 <= value <= most:
        raise InputError(f"skipscope:{short(name)}: {what} expected a number of at least 1 and at most {most}")
    return value


def short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:40]}..."


def refuse(name: str, what: str, kind: str, got: str, known: Iterable[str], grammar: str) -> NoReturn:
    known = list(known)
    close = difflib.get_close_matches(got, known, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    raise InputError(f"skipscope:{short(name)}: {what}{hint} ({kind}: {', '.join(known)}; a name is {grammar})")
