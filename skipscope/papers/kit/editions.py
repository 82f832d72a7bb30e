"""The verdicts of the first edition of the rules, which stand beside those of today."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any


def first_edition(claim: str) -> str:
    """The verdict and where it was run; empty for a claim that the first edition did not judge."""
    found = _verdicts().get(claim)
    return f"{found['verdict']} ({found['preset']})" if found else ""


@cache
def _verdicts() -> dict[str, Any]:
    return dict(json.loads(files("skipscope.papers").joinpath("first_edition.json").read_text()))
