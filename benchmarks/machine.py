"""What a benchmark says of the machine that it ran on."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any


def processor() -> str:
    """Its name, where the system gives one."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def load() -> list[float]:
    """Processes that want to run, in the mean of the last 1, 5 and 15 minutes."""
    return [round(mean, 2) for mean in os.getloadavg()]


def described(device: str = "cpu") -> dict[str, Any]:
    import torch

    import skipscope as ss

    about = {
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": load(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "skipscope": ss.__version__,
    }
    return {"device": torch.cuda.get_device_name(), **about} if device == "cuda" else about
