"""What the names of our networks have in common: parts between hyphens, and errors that say what is allowed.

A paper with networks of its own has a family of names (`NetworkNames`), so that skipscope:NAME can mean one of them.
Nothing here imports torch: names are read, and wrong ones refused, before it is loaded.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from skipscope.errors import InputError

if TYPE_CHECKING:
    from torch import nn

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


class NetworkNames(Protocol):
    """The names of one family of networks."""

    @property
    def beginnings(self) -> Sequence[str]:
        """Such as type1: for help, for completion, and to know whose a name is."""

    def parse(self, name: str) -> dict[str, Any]:
        """The options that a name stands for, `input_shape` (channels, height, width) and `classes` among them."""

    def build(self, name: str) -> nn.Module:
        """The network, with new weights."""

    def fitting(self, name: str, shape: tuple[int, ...], classes: int) -> str:
        """The same network for other images; empty where no name stands for it."""

    def any_size(self, name: str) -> bool:
        """Whether the network takes images of other heights and widths than its input's."""
