"""The kinds of networks that paper B compares."""

from __future__ import annotations

from typing import NamedTuple

from skipscope.papers.b.networks import ShortcutSpec
from skipscope.papers.b.whitened import COMPONENTS


class Architecture(NamedTuple):
    n: int  # shortcut depth; 0: no shortcuts
    init: str  # of the weights; the paper's "zero" is 0.01 times Xavier's weights

    def spec(self, depth: int, kind: str = "linear") -> ShortcutSpec:
        """kind: linear, or relu for ReLUs in the middle; plain networks then have one after each odd layer."""
        if kind == "linear":
            return ShortcutSpec(depth, COMPONENTS, self.n)
        if self.n:
            return ShortcutSpec(depth, COMPONENTS, self.n, mid="relu")
        return ShortcutSpec(depth, COMPONENTS, mid="relu").plain


ARCHITECTURES = {
    "xavier": Architecture(0, "xavier"),
    "orthogonal": Architecture(0, "orthogonal"),
    "1-shortcut": Architecture(1, "zero"),
    "2-shortcut": Architecture(2, "zero"),
    "3-shortcut": Architecture(3, "zero"),
}
WITH_HESSIANS = ("xavier", "orthogonal", "1-shortcut", "2-shortcut")  # those of figures 4 to 6
