"""How numbers are written: one rule for sentences, tables, tiles and maps."""

from __future__ import annotations

import math


def number(value: float) -> str:
    """A whole number to a million in full, others to three digits, six near 1; a dash where there is nothing."""
    if math.isnan(value):
        return "-"
    if abs(value) <= 1e6 and value == round(value):
        return str(round(value))
    if 0 < abs(value - 1) < 5e-3:
        return f"{value:.6g}"  # what is near 1 is not 1
    return f"{value:.3g}" if 1e-3 <= abs(value) < 1e5 or value == 0 or math.isinf(value) else f"{value:.1e}"


def without_one_times(text: str) -> str:
    """A sentence about a factor, "1 times as large", where the factor is 1 in as many digits as are shown: "about as
    large"."""
    return text.replace(" 1 times as ", " about as ")


def share(value: float) -> str:
    """In per cent: no decimals from 1 % on, unless it is nearly all."""
    if math.isnan(value):
        return "-"
    percent = 100 * value
    return f"{percent:.0f} %" if percent == 0 or 1 <= percent < 99.5 or percent >= 100 else f"{percent:.1f} %"


def counted(count: int, one: str, several: str = "") -> str:
    return f"{count} {one if count == 1 else several or one + 's'}"
