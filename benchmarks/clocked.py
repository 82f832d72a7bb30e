"""A task of `benchmarks.scaling`, in a module that workers can import."""

from __future__ import annotations

import os
import time
from typing import NamedTuple

from skipscope.runs import dataset_bytes
from skipscope.sweeps.measuring import How, Inputs, measured_model
from skipscope.sweeps.subjects import Subject


class Clocked(NamedTuple):
    content: bytes  # of the dataset's file
    process: int  # of the worker
    processor_seconds: float


def clocked(subject: Subject, inputs: Inputs, how: How) -> Clocked:
    """One model of a sweep, with the time that the worker's processor needed for it."""
    start = time.process_time()
    found = measured_model(subject, inputs, how)
    return Clocked(dataset_bytes(found), os.getpid(), time.process_time() - start)
