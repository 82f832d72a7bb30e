"""The two kinds of optimiser that the check before training has thresholds for, by the names that people use."""

from __future__ import annotations

import difflib

from skipscope.errors import InputError

OPTIMISERS = {
    "sgd": "gradient descent with momentum, at one of the rates 0.1, 0.01, 0.001 and 0.0001",
    "adam": "Adam, or another that rescales the step of every weight, at one of the rates 0.01, 0.001 and 0.0001",
}
KINDS = {
    **{name: name for name in OPTIMISERS},
    **dict.fromkeys(("momentum", "nesterov"), "sgd"),
    **dict.fromkeys(("adamw", "nadam", "radam", "adamax", "adagrad", "adadelta", "rmsprop"), "adam"),
}


def kind_of(optimiser: str) -> str:
    """A key of OPTIMISERS, for the name of an optimiser in any case."""
    name = str(optimiser).lower()
    if name in KINDS:
        return KINDS[name]
    close = difflib.get_close_matches(name, KINDS, 1)
    meant = f" (did you mean {close[0]}?)" if close else ""
    known = "; ".join(f"{kind!r} for {what}" for kind, what in OPTIMISERS.items())
    raise InputError(
        f"optimiser={optimiser!r}{meant}: expected one that thresholds are known for: {known}; other names: "
        f"{', '.join(name for name in KINDS if name not in OPTIMISERS)}"
    )
