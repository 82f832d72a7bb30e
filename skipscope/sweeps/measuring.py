"""One model of a sweep: what a task does, and what it gives back.

From every measure the variables below, one number per unit: the mean over the samples (of flags such as `converged` the
share of samples). The name in the sweep is that of the measure, an underscore, and that of the variable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from skipscope.errors import InputError, SkipscopeError, first_line, out_of_memory
from skipscope.sweeps.subjects import Subject

if TYPE_CHECKING:
    import xarray

LEADING = 4  # singular values that `leading` looks for


@dataclass(frozen=True)
class Inputs:
    """What every model is measured at: a batch, or what its own example is made from."""

    batch: Any = None
    input_shape: tuple[int, ...] | None = None
    text: str | tuple[str, ...] | None = None
    samples: int | None = None


@dataclass(frozen=True)
class How:
    """What is measured, and under which conditions."""

    measures: tuple[str, ...]
    units: tuple[str, ...] | None = None  # modules that are residual units, where a model cannot be exported
    seed: int = 0
    device: str = "cpu"
    dtype: str | None = None
    calibrate: bool = False  # batch norms that have never seen data get the statistics of the batch
    trust_remote_code: bool = False


VARIABLES: Mapping[str, tuple[str, ...]] = {
    "profile": ("state_rms", "gradient_rms", "branch_over_skip", "cosine", "jacobian_square", "effective_rank"),
    "spectra": ("largest", "mean", "share_above", "share_near_one", "share_below", "share_zero", "converged"),
    "leading": ("largest", "share_above", "share_near_one", "converged"),
    "alignment": ("u1v1", "energy", "gap", "frobenius"),
    "normality": ("spectral_radius", "departure", "amplification", "rotation"),
    "depth_use": ("skip_kl",),
    "verification": ("adjoint_error", "slope_first", "passed"),
}


def measured_file(subject: Subject, inputs: Inputs, how: How) -> bytes:
    """The dataset of a model as the content of a file: what a worker sends, so that the driver has only to write it."""
    from skipscope.runs import dataset_bytes

    return dataset_bytes(measured_model(subject, inputs, how))


def measured_model(subject: Subject, inputs: Inputs, how: How) -> xarray.Dataset:
    """Along the dimension `position`, the units of this model from the first to the last."""
    import xarray

    from skipscope.measure.descriptions import described
    from skipscope.trace import trace

    model, batch, about = _model_and_batch(subject, inputs, how)
    trunk = trace(model, batch, units=how.units, calibrate=how.calibrate)
    if not trunk.units:
        raise InputError(f"{type(model).__name__} has no residual units to measure")
    point = trunk.at(batch)
    names = [unit.name for unit in trunk.units]
    columns: dict[str, Any] = {}
    for measure in how.measures:
        found = _measures(how.seed)[measure](trunk, point)
        described(found, measure)
        for variable in VARIABLES[measure]:
            values = found[variable]
            of_samples = values.mean("sample", skipna=False) if "sample" in values.dims else values
            words = str(values.attrs.get("long_name", variable))
            attributes = {"long_name": f"{words}, mean over the samples", "units": values.attrs.get("units", "1")}
            columns[f"{measure}_{variable}"] = ("position", of_samples.values.astype("float64"), attributes)
    count = len(names)
    coordinates = {
        "position": range(count),
        "unit": ("position", names),
        "relative_depth": ("position", [(position + 0.5) / count for position in range(count)]),
    }
    notes = "; ".join([*filter(None, [about]), *trunk.notes])
    return xarray.Dataset(columns, coordinates, {"part": "sweep", "notes": notes})


def require_measures(measures: Sequence[str]) -> tuple[str, ...]:
    if isinstance(measures, str):
        measures = [name.strip() for name in measures.split(",")]
    wrong = [name for name in measures if name not in VARIABLES]
    if wrong or not measures:
        got = f"'{wrong[0]}' is no measure of a sweep" if wrong else "a sweep needs a measure or more"
        raise InputError(f"{got}; choose of {', '.join(VARIABLES)}")
    return tuple(dict.fromkeys(measures))


def reason_in_words(error: Exception) -> str:
    """Why a model has no numbers, for the dataset; a lack of memory is no fault of one model, and raised."""
    if out_of_memory(error):
        raise error
    if isinstance(error, SkipscopeError):
        return " ".join(str(error).split())
    return f"{type(error).__name__}: {first_line(error)}"


def _measures(seed: int) -> dict[str, Callable[..., xarray.Dataset]]:
    import skipscope.measure as measure

    return {
        "profile": partial(measure.profile, seed=seed),
        "spectra": partial(measure.spectra, stages=False),
        "leading": partial(_leading, seed=seed),
        "alignment": partial(measure.alignment, seed=seed),
        "normality": measure.normality,
        "depth_use": measure.depth_use,
        "verification": measure.verification,
    }


def _leading(trunk: Any, point: Any, seed: int) -> xarray.Dataset:
    import skipscope.measure as measure

    found = measure.leading(trunk, point, k=LEADING, seed=seed)
    first = found[["value", "converged"]].isel(rank=0, drop=True)
    return found.drop_vars(["value", "converged"]).assign(largest=first["value"], converged=first["converged"])


def _model_and_batch(subject: Subject, inputs: Inputs, how: How) -> tuple[Any, Any, str]:
    """And what a reader must know of them."""
    from skipscope.models.source import resolved_at

    if not isinstance(subject.model, str):
        if inputs.batch is None:
            raise InputError("a module needs a batch to be measured at; give x")
        return subject.model, inputs.batch, ""
    source = resolved_at(
        subject.model,
        inputs.batch,
        weights=subject.weights,
        input_shape=inputs.input_shape,
        text=inputs.text,
        device=how.device,
        dtype=how.dtype,
        seed=how.seed,
        samples=inputs.samples,
        trust_remote_code=how.trust_remote_code,
    )
    return source.model, source.batch, f"random weights: {subject.label}" if source.random_weights else ""
