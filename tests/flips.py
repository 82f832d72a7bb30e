"""Files with one flipped bit."""

from __future__ import annotations

import random
from collections.abc import Iterator

HEADER = 64  # bytes at the start, all of them tried


def flipped(content: bytes, count: int, seed: int = 0) -> Iterator[tuple[int, bytes]]:
    """The bit's place and the whole content: at `count` random places, and once in each of the first bytes."""
    chosen = random.Random(seed)
    places = [chosen.randrange(8 * len(content)) for _ in range(count)]
    places += [8 * byte + chosen.randrange(8) for byte in range(min(HEADER, len(content)))]
    for place in places:
        changed = bytearray(content)
        changed[place // 8] ^= 1 << place % 8
        yield place, bytes(changed)
