"""`skipscope inspect --checkpoints`: one model with many weights, each in a run folder of its own."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from skipscope.cli.beforehand import require_data, require_device, require_folder
from skipscope.cli.options import ModelOptions, document, folder_name, prompts_of, shape_of
from skipscope.cli.talk import stopped, talk
from skipscope.errors import InputError
from skipscope.runs.executors.execution import Execution
from skipscope.sweeps.subjects import Subject, Subjects, subjects_of

if TYPE_CHECKING:
    from skipscope.inspection.many import Inspection

COMPARISON = "comparison.html"


def inspect_many(
    chosen: ModelOptions,
    checkpoints: Sequence[str],
    execution: Execution,
    *,
    seconds: float,
    normalise: str,
    text: str | None,
    text_file: Path | None,
    samples: int | None,
    modules: Sequence[str] | None,
    calibrate: bool,
    out: Path | None,
    resume: bool,
    as_json: bool,
) -> None:
    if chosen.weights is not None:
        raise InputError("--weights and --checkpoints both say which weights are measured; give one of them")
    if out is None:
        raise InputError("--checkpoints: expected a folder for all runs too, got none; name it with --out DIR")
    require_device(chosen.device)
    require_data(chosen.data, normalise)
    require_folder(out)
    subjects = subjects_of(chosen.model, checkpoints)
    if out.is_dir() and any(out.iterdir()) and not resume:
        raise InputError(f"--out {out}: it is not empty (--resume goes on with runs in it); choose another folder")
    folders_of(subjects)
    prompts = None if text_file is None else prompts_of(text_file, samples)
    shape = None if chosen.input_shape is None else shape_of(chosen.input_shape)
    with talk.loading():
        from skipscope.data import load
        from skipscope.inspection.many import Inspection, inspect_all, other_inspections
        from skipscope.models.recipe import BATCH_SIZE
        from skipscope.report import write_page, write_report

    batch, words = None, ""
    if chosen.data is not None:
        with talk.step(f"reading {chosen.data}"):
            batch = load(chosen.data, normalise=normalise).test_batch(samples or BATCH_SIZE, chosen.seed)
        words = f"{samples or BATCH_SIZE} test images of {chosen.data}"
    inspections: dict[str, Inspection] = {}
    for name, subject in folders_of(subjects).items():
        assert subject.weights is not None
        inspections[name] = Inspection(
            chosen.model,
            subject.weights,
            seconds,
            chosen.seed,
            chosen.device,
            chosen.dtype,
            shape,
            text if prompts is None else prompts,
            batch,
            samples,
            None if modules is None else tuple(modules),
            calibrate,
            chosen.trust_remote_code,
            words,
        )
    if others := other_inspections(out, inspections):
        raise InputError(
            f"--out {out}: {others[0]} holds a run of other weights, inputs or options; choose another folder"
        )
    with stopped(f"go on with --resume --out {shlex.quote(str(out))}"):
        folders, failures = inspect_all(
            inspections, out, execution, lambda done, total: talk.progress("inspecting checkpoints", done, total)
        )
    if not folders:
        name, why = next(iter(failures.items()))
        raise InputError(f"none of {len(failures)} checkpoints could be measured; {name}: {why}")
    with talk.step("writing the reports"):
        for folder in folders:
            write_report(folder)
        page = write_page(folders, out / COMPARISON) if len(folders) > 1 else folders[0] / "report.html"
    _say(folders, failures, page, as_json)


def folders_of(subjects: Subjects) -> dict[str, Subject]:
    """By the name of its run folder, each checkpoint; letters that folders are better without are replaced."""
    found: dict[str, Subject] = {}
    for subject in subjects.members:
        name = folder_name(subject.label)
        if name in found:
            both = f"{found[name].weights} and {subject.weights}"
            raise InputError(f"--checkpoints: {both} would both be written to {name}; rename one of them")
        found[name] = subject
    return found


def _say(folders: Sequence[Path], failures: dict[str, str], page: Path, as_json: bool) -> None:
    from skipscope.inspection.result import load

    found = {folder.name: load(folder) for folder in folders}
    if as_json:
        results = {
            name: {
                "folder": str(result.path),
                "notes": result.notes,
                "findings": [each.to_dict() for each in result.findings],
            }
            for name, result in found.items()
        }
        talk.result(document({"checkpoints": results, "failures": failures, "comparison": str(page)}))
    else:
        lines = [f"{name}: {result.findings[0]}" for name, result in found.items() if result.findings]
        lines += [f"{name}: not measured: {why}" for name, why in failures.items()]
        talk.result("\n".join(lines))
    talk.say(f"wrote {page}")
