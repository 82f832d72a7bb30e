"""The Python blocks of the README and of the documentation run as they stand, one page after another."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_code_blocks_run(page: Path) -> None:
    blocks = BLOCK.findall(page.read_text())
    exec(compile("\n".join(blocks), str(page), "exec"), {"__name__": "page"})
