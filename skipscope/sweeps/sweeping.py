"""`ss.sweep`: models through tasks, with a run folder where one is wanted.

Every model is a task of its own, whose dataset goes into the run folder as soon as it is there; a sweep that goes on
finds it by the hash of all that determines it. At the end all of them become data/sweep.nc.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skipscope.errors import InputError
from skipscope.models.request import read_model, there
from skipscope.progress import Progress, called, with_progress
from skipscope.runs import RunFolder, digest
from skipscope.runs.datasets import dataset_in
from skipscope.runs.executors import Execution, Task, perform_all
from skipscope.runs.executors.engine import Engine
from skipscope.runs.files import digest_of_object, digest_of_tensors, key_of
from skipscope.runs.folder import Former
from skipscope.runs.record import UNMIXED, versions
from skipscope.runs.sweep import SHOWN_OF_KEY
from skipscope.sweeps.joining import joined
from skipscope.sweeps.measuring import How, Inputs, measured_file, reason_in_words, require_measures
from skipscope.sweeps.subjects import Models, Subject, Subjects, subjects_of

if TYPE_CHECKING:
    import xarray

WHAT = "sweep"
HASHED = ("*.safetensors", "*.bin", "*.gguf", "config.json")  # of the directory of an hf: model


@with_progress
def sweep(
    models: Models,
    x: Any = None,
    *,
    measures: Sequence[str] | str = ("profile",),
    checkpoints: Sequence[str | Path] = (),
    revisions: Sequence[str] = (),
    units: Sequence[str] | None = None,
    seed: int = 0,
    device: str = "cpu",
    dtype: str | None = None,
    calibrate: bool = False,
    executor: Execution | str = "here",
    workers: int = 1,
    out: Path | str | None = None,
    resume: bool = False,
    progress: Progress | bool | None = None,
) -> xarray.Dataset:
    """Measure many models, checkpoints or steps: one dataset with the dimension `model`, `checkpoint` or `step`.

    models: names as the command line takes them ("torchvision:resnet18"), or names or modules by labels of your own.
    x: the batch that all are measured at; without it every model gets random inputs of its usual shape. measures: of
    profile, spectra, leading, alignment, normality, depth_use, verification; variables are named MEASURE_VARIABLE, one
    number per unit, the mean over the samples. checkpoints: files of weights, or patterns of such, for models given by
    name. revisions: of hf: models. units: modules that are residual units, where a model cannot be exported. calibrate:
    give batch norms that have never seen data the statistics of the batch.

    executor, workers: where models are measured, see `Execution`; the numbers are the same. out: a run folder, which
    gets every model's numbers as they come; resume: go on with the one that is there.

    Units correspond by name where all models have the same, otherwise by relative depth (attribute `aligned`). A model
    that cannot be measured has NaN, and the reason in `failure`; where that holds of all, the reason is raised.
    """
    execution = executor if isinstance(executor, Execution) else Execution(executor, workers)
    how = How(require_measures(measures), None if units is None else tuple(units), seed, device, dtype, calibrate)
    subjects = subjects_of(models, checkpoints, revisions)
    former: Former = "resume" if resume else "refuse"
    return swept(subjects, Inputs(x), how, execution, None if out is None else Path(out), former, called(progress))


def swept(
    subjects: Subjects,
    inputs: Inputs,
    how: How,
    execution: Execution,
    out: Path | None = None,
    former: Former = "refuse",
    progress: Progress | None = None,
) -> xarray.Dataset:
    """As `sweep`, of what that makes of its arguments."""
    require_gpus(how.device, execution)
    common = {
        "inputs": digest_of_tensors(inputs.batch),
        "made": [inputs.input_shape, inputs.text, inputs.samples],
        "how": [how.measures, how.units, how.seed, how.device.partition(":")[0], how.dtype, how.calibrate],
        **{name: versions()[name] for name in UNMIXED},
    }
    if former == "resume":
        _require_known(subjects)
    tasks = [_task(subject, inputs, how, common) for subject in subjects.members]
    with ExitStack() as stack:
        engine = stack.enter_context(execution.engine())  # one that cannot be had leaves no run folder behind
        run: RunFolder | None = None
        if out is not None:
            parameters = {
                "over": subjects.dimension,
                "models": [each.label for each in subjects.members],
                "measures": how.measures,
                "inputs": common["inputs"] if inputs.batch is not None else common["made"],
            }
            run = stack.enter_context(
                RunFolder(out, WHAT, parameters=parameters, seed=how.seed, device=how.device, former=former)
            )
            run.record["execution"] = execution.to_dict()
        pieces = _measured(tasks, run, execution, engine, progress)
        if all(isinstance(piece, str) for piece in pieces.values()):
            label, reason = next(iter(pieces.items()))
            raise InputError(f"none of {len(pieces)} models could be measured; {label}: {reason}")
        about = {"seed": how.seed, "mode": "eval", "measures": ", ".join(how.measures)}
        whole = joined(pieces, subjects, **about)  # type: ignore[arg-type]
        if run is not None:
            for label, piece in pieces.items():
                if isinstance(piece, str):
                    run.note(f"not measured: {label}: {piece}")
            run.write_dataset("sweep", whole)
    return whole


def _measured(
    tasks: Sequence[Task], run: RunFolder | None, execution: Execution, engine: Engine, progress: Progress | None
) -> dict[str, xarray.Dataset | str]:
    """By the name of its model, the result of each task, or why there is none: those that the run has, and those that
    are made now. They are read when all are there: no worker waits for that."""
    contents: dict[str, bytes] = {}
    reasons: dict[str, str] = {}

    def report() -> None:
        if progress is not None:
            progress(len(contents) + len(reasons), len(tasks))

    def made(task: Task, content: bytes) -> None:
        if run is not None:
            run.write(_file(task), content)
        contents[task.name] = content
        report()

    def failed(task: Task, error: Exception) -> None:
        reasons[task.name] = reason_in_words(error)
        report()

    report()
    missing = []
    for task in tasks:
        if run is not None and run.has(_file(task)):
            contents[task.name] = (run.path / _file(task)).read_bytes()
        else:
            missing.append(task)
    perform_all(missing, execution, made, failed, None if run is None else run.note, engine)
    found = {task.name: Path(_file(task)) for task in tasks if task.name in contents}
    return {**reasons, **{name: dataset_in(contents[name], file) for name, file in found.items()}}


def _file(task: Task) -> str:
    return f"data/model-{task.key[: 2 * SHOWN_OF_KEY]}.nc"


def _task(subject: Subject, inputs: Inputs, how: How, common: Mapping[str, Any]) -> Task:
    key = key_of({**common, "label": subject.label, "model": _identity(subject)})
    return Task(subject.label, measured_file, {"subject": subject, "inputs": inputs, "how": how}, key)


def _identity(subject: Subject) -> dict[str, Any]:
    """What determines the weights, as far as it is known before the model is built."""
    if not isinstance(subject.model, str):
        known = digest_of_object(subject.model)
        shape = hashlib.sha256(repr(subject.model).encode()).hexdigest()
        return {"structure": shape, "values": known or digest_of_tensors(subject.model.state_dict())}
    source, name = read_model(subject.model)
    places = [] if subject.weights is None else [subject.weights]
    places += [Path(name)] if source == "hf" else [Path(source)] if source.endswith(".py") else []
    return {"name": subject.model, "files": [_digest_of(place) for place in places]}


def _require_known(subjects: Subjects) -> None:
    """A module whose attributes are not known may have other ones than when it was measured."""
    for each in subjects.members:
        if not isinstance(each.model, str) and digest_of_object(each.model) is None:
            raise InputError(
                f"{each.label}: a module that cannot be pickled cannot be recognised, and a sweep with it not "
                "resumed; choose another folder, or define its classes and functions at the top of a module"
            )


def _digest_of(place: Path) -> Any:
    if there(place.is_dir):
        return [digest(file) for pattern in HASHED for file in sorted(place.glob(pattern))]
    return digest(place) if there(place.is_file) else None


def require_gpus(device: str, execution: Execution) -> None:
    """A share of a GPU is asked for, and never taken for granted."""
    if execution.executor != "here" and device.startswith("cuda") and not execution.gpus_per_task:
        raise InputError(
            f"device={device}: tasks of '{execution.executor}' get no GPU unless gpus_per_task asks for one"
        )
