"""Numbers of a look, given to the tools that people log with, through their own clients.

A writer is a name or an object of one of them:

    "tensorboard"   a SummaryWriter in the run folder     or a SummaryWriter
    "wandb"         the run of this process               or a run, what `wandb.init` returns
    "mlflow"        the run of this process               or the module `mlflow`
                                                          or a logger of Lightning, or any object with `log_metrics`
                                                          or a function of the numbers (a dict) and the step

Names of numbers are skipscope/MEASURE/QUANTITY/UNIT. Weights & Biases has one counter of steps per run, which belongs
to the training: there the monitor's numbers have a step of their own, `skipscope/step`.
"""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy

from skipscope.errors import InputError

if TYPE_CHECKING:
    import xarray

Numbers = Mapping[str, float]
Write = Callable[[Numbers, int], Any]

PREFIX = "skipscope"
ALLOWED = re.compile(r"[^\w\-. /]")  # in names, by the strictest of them
NAMES = ("tensorboard", "wandb", "mlflow")


def numbers_of(part: str, look: xarray.Dataset) -> dict[str, float]:
    """Of one look: every number by its name; those that are not finite are left out."""
    found: dict[str, float] = {}
    for key, values in look.data_vars.items():
        if values.dtype.kind not in "biuf" or values.ndim > 1:
            continue
        members = [str(name) for name in values[values.dims[0]].values] if values.ndim else [""]
        for member, value in zip(members, numpy.atleast_1d(values.values).tolist(), strict=True):
            if math.isfinite(value):
                name = "/".join(filter(None, (PREFIX, part, str(key), member)))
                found[ALLOWED.sub("_", name)] = float(value)
    return found


def writers_of(wanted: Any, out: Path | None) -> list[Write]:
    """From what a user gave to functions of numbers and a step."""
    given: Sequence[Any] = wanted if isinstance(wanted, list | tuple) else [wanted] if wanted is not None else []
    return [_writer(_by_name(one, out) if isinstance(one, str) else one) for one in given]


def _writer(one: Any) -> Write:
    if hasattr(one, "add_scalar"):
        return partial(_to_tensorboard, one)
    if hasattr(one, "log_metrics"):
        return lambda numbers, step: one.log_metrics(dict(numbers), step=step)
    if hasattr(one, "define_metric") and hasattr(one, "log"):
        one.define_metric(f"{PREFIX}/step")
        one.define_metric(f"{PREFIX}/*", step_metric=f"{PREFIX}/step")
        return lambda numbers, step: one.log({**numbers, f"{PREFIX}/step": step})
    if callable(one):
        return lambda numbers, step: one(dict(numbers), step)
    raise InputError(
        f"writers: expected {', '.join(NAMES)}, a SummaryWriter, a run of wandb, mlflow, a logger of Lightning or a "
        f"function of the numbers and the step, got {type(one).__name__}"
    )


def _to_tensorboard(writer: Any, numbers: Numbers, step: int) -> None:
    for name, value in numbers.items():
        writer.add_scalar(name, value, step)
    writer.flush()  # so that a training that is killed has them too


def _by_name(name: str, out: Path | None) -> Any:
    if name not in NAMES:
        raise InputError(f"writers: expected one of {', '.join(NAMES)} or an object of theirs, got {name!r}")
    try:
        if name == "tensorboard":
            if out is None:
                raise InputError("writers: 'tensorboard' writes into the run folder; pass out=, or a SummaryWriter")
            return importlib.import_module("torch.utils.tensorboard").SummaryWriter(str(out / "tensorboard"))
        module = importlib.import_module(name)
    except ImportError as error:
        raise InputError(f"writers: {name} is not installed; pip install {name}, or skipscope[logging]") from error
    if name == "mlflow":
        return module
    if module.run is None:
        raise InputError("writers: no run of wandb is open; call wandb.init() before, or pass what it returns")
    return module.run
