"""Every figure of the reports as a function of a dataset: `ss.plot.scree(dataset)` gives a Plotly figure.

`ss.plot.save(figure, "scree.svg")` writes it as a picture. The names are those of `skipscope.report.figures` and of the
figures that installed papers register.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from skipscope.registration import figures
from skipscope.report.figures import *  # noqa: F403
from skipscope.report.figures import __all__ as _core

_CORE = frozenset(_core)


def __getattr__(name: str) -> Callable[..., Any]:
    if name.startswith("_") or name not in figures(_CORE):
        raise AttributeError(f"there is no figure '{name}'; there are {', '.join(__dir__())}")
    return figures(_CORE)[name]


def __dir__() -> list[str]:
    return sorted({*_CORE, *figures(_CORE)})
