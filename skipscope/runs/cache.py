"""Things that are costly to make and determined by what they are made from, kept between runs.

The key is a hash of everything that is known to determine the thing, so nothing has to be invalidated by hand: delete
the folder whenever you like. What a key cannot see is code that changes between releases and makes the same settings
mean something else. A file in the cache may be anybody's: whoever reads it checks that it holds what its key says.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from skipscope.runs.files import plain


def cache_root() -> Path:
    """SKIPSCOPE_CACHE, or skipscope in the user's cache folder."""
    own = os.environ.get("SKIPSCOPE_CACHE")
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "skipscope"


def key_of(content: Mapping[str, Any]) -> str:
    """The same for the same content, whatever the order of its keys."""
    text = json.dumps(plain(dict(content)), sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
