"""What a benchmark says of the machine that it ran on."""

from __future__ import annotations

import platform
from pathlib import Path


def processor() -> str:
    """Its name, where the system gives one."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
