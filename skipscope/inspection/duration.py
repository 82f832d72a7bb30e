"""A time as a user writes it; read without torch, so that a wrong one is refused at once."""

from __future__ import annotations

import re

from skipscope.errors import InputError

UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


def in_words(seconds: float) -> str:
    """Whole seconds from 10 on, two digits below: a short time is not 0 s."""
    if seconds >= 9.5:
        return f"{seconds:.0f} s"
    return f"{seconds:.2g} s" if seconds >= 0.01 or seconds == 0 else f"{1000 * seconds:.2g} ms"


def seconds_in(text: str | float, name: str = "budget", *, or_none: bool = False) -> float:
    """`90`, `90s`, `5m` or `1.5h` as seconds. name: what it is; or_none: 0 is a time, too."""
    found = re.fullmatch(r"\s*(\d{1,12}(?:\.\d+)?)\s*([smh]?)\s*", str(text))
    if not found or (float(found.group(1)) <= 0 and not or_none):
        raise InputError(f"{name} {text}: expected a time such as 90s, 5m or 1.5h")
    return float(found.group(1)) * UNITS[found.group(2)]
