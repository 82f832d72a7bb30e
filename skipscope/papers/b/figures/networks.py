"""How n-shortcut networks look: the same in all figures."""

from __future__ import annotations

NETWORKS = ("xavier", "orthogonal", "1-shortcut", "2-shortcut", "3-shortcut")


def place_of(name: str, otherwise: int) -> int:
    """The place by which a network looks; otherwise: that of a curve that is none of them."""
    return NETWORKS.index(name.lower()) if name.lower() in NETWORKS else otherwise
