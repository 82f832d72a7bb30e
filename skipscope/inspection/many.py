"""One model with many checkpoints, each inspected as a task and kept as a run folder of its own.

The budget is that of one checkpoint. What fits into it depends on the speed of the machine: with a budget that is not
used up the numbers are the same wherever they are computed. A worker gives back the content of all files and the driver
writes them; finished runs are not made again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skipscope.errors import SkipscopeError
from skipscope.inspection.inspecting import require_units, steps
from skipscope.inspection.language import TokenText
from skipscope.inspection.result import WHAT, leave_out
from skipscope.models.source import resolved_at
from skipscope.runs import RunFolder, dataset_bytes, digest
from skipscope.runs.executors import Execution, Task, perform_all
from skipscope.runs.files import digest_of_tensors, key_of
from skipscope.runs.record import NAME, UNMIXED, read_record, versions
from skipscope.trace import trace


@dataclass(frozen=True)
class Inspection:
    """What determines the result for one checkpoint; the words are for the record of its run."""

    model: str
    weights: Path
    budget: float
    seed: int = 0
    device: str = "cpu"
    dtype: str | None = None
    input_shape: tuple[int, ...] | None = None
    text: str | tuple[str, ...] | None = None
    batch: Any = None
    samples: int | None = None
    units: tuple[str, ...] | None = None
    calibrate: bool = False
    trust_remote_code: bool = False
    input_words: str = ""

    @property
    def key(self) -> str:
        own = {name: value for name, value in vars(self).items() if name not in ("weights", "batch", "device")}
        where = {"device": self.device.partition(":")[0], **{name: versions()[name] for name in UNMIXED}}
        files = [self.weights] if self.weights.is_file() else sorted(self.weights.glob("*"))
        content = [digest(file) for file in files if file.is_file()]
        return key_of({**own, **where, "weights": content, "batch": digest_of_tensors(self.batch)})


@dataclass(frozen=True)
class Inspected:
    parameters: Mapping[str, Any]
    inputs: Mapping[str, Mapping[str, str]]
    datasets: Mapping[str, bytes]
    left_out: Mapping[str, str]


def inspected(asked: Inspection) -> Inspected:
    """In a worker."""
    source = resolved_at(
        asked.model,
        asked.batch,
        weights=asked.weights,
        input_shape=asked.input_shape,
        text=asked.text,
        device=asked.device,
        dtype=asked.dtype,
        seed=asked.seed,
        samples=asked.samples,
        trust_remote_code=asked.trust_remote_code,
    )
    values = digest_of_tensors(source.model.state_dict())
    trunk = trace(source.model, source.batch, units=asked.units, calibrate=asked.calibrate)
    require_units(trunk)
    prompts = source.prompts
    words = None if prompts is None else TokenText(prompts.tokens, padded=prompts.mask is not None)
    made: dict[str, bytes] = {}
    left_out = dict(
        steps(
            trunk,
            source.batch,
            asked.budget,
            seed=asked.seed,
            announce=lambda part, done, total: None,
            keep=lambda name, dataset: made.update({name: dataset_bytes(dataset)}),
            text=words,
        )
    )
    weights = digest(asked.weights) if asked.weights.is_file() else None
    about = {
        "model": asked.model,
        **source.to_dict(),
        "input": asked.input_words or source.inputs or "random inputs of the model's usual shape",
        "dtype": asked.dtype,
        "weights_sha256": weights,
        **({} if source.origin is None else source.origin.to_dict()),
    }
    return Inspected(
        {"source": about, "budget": asked.budget, "trunk": trunk.to_dict()},
        {"the model's values": {"sha256": values}, "the input's values": {"sha256": digest_of_tensors(source.batch)}},
        made,
        left_out,
    )


def inspect_all(
    inspections: Mapping[str, Inspection],
    folder: Path,
    execution: Execution,
    progress: Callable[[int, int], None],
) -> tuple[list[Path], dict[str, str]]:
    """By the name of its folder in `folder`, each inspection. The run folders, and why others could not be made."""
    done = [name for name in inspections if is_finished(folder / name)]
    failures: dict[str, str] = {}

    def keep(task: Task, found: Inspected) -> None:
        write_inspected(folder / str(task.about), inspections[str(task.about)], found, task.key)
        count(task)

    def failed(task: Task, error: Exception) -> None:
        if not isinstance(error, SkipscopeError):
            raise error
        failures[str(task.about)] = " ".join(str(error).split())
        count(task)

    def count(task: Task) -> None:
        done.append(str(task.about))
        progress(len(done), len(inspections))

    tasks = [
        Task(f"inspect {asked.model} {name}", inspected, {"asked": asked}, asked.key, about=name)
        for name, asked in inspections.items()
        if name not in done
    ]
    progress(len(done), len(inspections))
    perform_all(tasks, execution, keep, failed)
    return [folder / name for name in inspections if name not in failures], failures


def write_inspected(folder: Path, asked: Inspection, found: Inspected, key: str) -> None:
    with RunFolder(
        folder, WHAT, parameters=found.parameters, seed=asked.seed, device=asked.device, former="replace"
    ) as run:
        run.record["task"] = key
        for name, description in found.inputs.items():
            run.used(name, description)
        for name, content in found.datasets.items():
            run.write(f"data/{name}.nc", content)
        leave_out(run, found.left_out)


def is_finished(folder: Path) -> bool:
    return (folder / NAME).is_file() and read_record(folder)[0]["status"] == "finished"


def other_inspections(folder: Path, inspections: Mapping[str, Inspection]) -> Sequence[str]:
    """Names of finished runs in a folder that were made from something else than is asked for now."""
    return [
        name
        for name, asked in inspections.items()
        if is_finished(folder / name) and read_record(folder / name)[0].get("task") != asked.key
    ]
