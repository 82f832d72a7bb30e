"""Running studies into a run folder, from the settings to the verdicts."""

from __future__ import annotations

import dataclasses
import difflib
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skipscope.errors import InputError
from skipscope.papers.kit.bench import Bench
from skipscope.papers.kit.catalogue import claims_of, find, study_of
from skipscope.papers.kit.claims import Claim, Measured
from skipscope.papers.kit.study import Study
from skipscope.progress import Announce
from skipscope.renamed import renamed_parameters
from skipscope.runs import RunFolder
from skipscope.runs.decisions import Decision
from skipscope.runs.executors import Execution
from skipscope.training.processes import launched

Say = Callable[[str], None]


@dataclass(frozen=True)
class Outcome:
    folder: Path
    record: Mapping[str, Any]  # of run.json
    decisions: tuple[Decision, ...]

    @property
    def failed(self) -> list[str]:
        return [decision.id for decision in self.decisions if decision.verdict == "not reproduced"]


@renamed_parameters(progress="announce")
def run_studies(
    name: str,
    out: Path,
    *,
    preset: str = "quick",
    changes: Mapping[str, str] | None = None,
    seed: int = 0,
    device: str = "cpu",
    resume: bool = False,
    announce: Announce | None = None,
    execution: Execution | None = None,
) -> Outcome:
    """Run a study (`D.law`), several (`D.law,D.spectra`) or all of a paper that have the preset (`D`).

    changes: of settings, as written after --set. announce: called with what is done now, how much of it is done and how
    much there is. execution: where datasets are computed and networks trained; None for this process, on all cores.
    """
    if launched()[1] > 1:
        raise InputError("a study runs in one process; to train in several: accelerate launch -m skipscope train NAME")
    studies = find(name, preset)
    _require_names_apart(studies)
    settings = settings_of(studies, preset, changes or {})
    parameters = {study.id: dataclasses.asdict(settings[study.id]) for study in studies}
    folder = RunFolder(
        out,
        what_is_run(name, studies),
        parameters=parameters,
        preset=preset,
        seed=seed,
        device=device,
        former="resume" if resume else "refuse",
    )
    with folder as run:
        if execution is not None:
            run.record["execution"] = execution.to_dict()
        if changes:
            run.note(f"settings that differ from the preset: {', '.join(f'{k}={v}' for k, v in changes.items())}")
        evidence: dict[Claim, Sequence[Measured]] = {}
        for study in studies:
            bench = Bench(
                study.id, run, preset=preset, seed=seed, device=device, announce=announce, execution=execution
            )
            for claim, found in study.evidence(bench, settings[study.id]).items():
                evidence[claim] = together(evidence.get(claim, ()), found)
        decisions = tuple(_decided(claim, evidence, preset, studies) for claim in claims_of(name, studies, evidence))
        run.write_claims(decisions)
    return Outcome(run.path, run.record, decisions)


def _require_names_apart(studies: tuple[Study, ...]) -> None:
    """Datasets are named after their study without the paper's letter, so that two of one name would share them."""
    for study in studies:
        others = [other.id for other in studies if other.name == study.name and other is not study]
        if others:
            raise InputError(f"{study.id} and {others[0]} have the same name; run them into folders of their own")


def what_is_run(name: str, studies: tuple[Study, ...]) -> str:
    """As the record of the run has it."""
    return f"study {name.upper() if len(name) == 1 else ', '.join(study.id for study in studies)}"


def settings_of(studies: tuple[Study, ...], preset: str, changes: Mapping[str, str]) -> dict[str, Any]:
    """Of every study; a key that none of them has is an error. `law.images` is meant for the study law alone."""
    changes = by_new_names(studies, changes)
    known = sorted({key for study in studies for key in study.keys})
    one_study = {f"{study.name}.{key}" for study in studies for key in study.keys}
    unknown = [key for key in changes if key not in one_study.union(known)]
    if unknown:
        close = difflib.get_close_matches(unknown[0], [*known, *one_study], n=1)
        meant = f" (did you mean {close[0]}?)" if close else ""
        ids = ", ".join(study.id for study in studies)
        raise InputError(f"no setting '{unknown[0]}' in {ids}{meant}; known: {', '.join(known)}")
    return {study.id: study.settings(preset, changes) for study in studies}


def by_new_names(studies: tuple[Study, ...], changes: Mapping[str, str], say: Say | None = None) -> dict[str, str]:
    """Changes of settings with old names replaced. say: what to do with the sentence on each; a warning by default."""
    say = say or (lambda sentence: warnings.warn(sentence, FutureWarning, stacklevel=3))
    found = {}
    for key, text in changes.items():
        before, _, last = key.rpartition(".")
        meant = [study for study in studies if before in ("", study.name)]
        renamed = [study for study in meant if last in study.old_names]
        for study in renamed:
            new = study.old_names[last]
            sentence = f"the setting {last} of {study.id} is now {new}"
            if {new, f"{study.name}.{new}"} & changes.keys():
                raise InputError(f"{sentence}, and both are given; give {new} alone")
            say(f"{sentence}; the old name works until the next release")
            found[f"{study.name}.{new}"] = text
        if not renamed or any(last in study.keys for study in meant):
            found[key] = text
    return found


def together(first: Sequence[Measured], second: Sequence[Measured]) -> list[Measured]:
    """Evidence for one claim from two studies: of one subject it is joined, on the networks that both measured."""
    merged = {measured.subject: measured for measured in first}
    for measured in second:
        known = merged.get(measured.subject)
        merged[measured.subject] = _joined(known, measured) if known else measured
    return list(merged.values())


def _joined(one: Measured, other: Measured) -> Measured:
    """It has as many networks as the one that has fewer."""
    fewer = min(one, other, key=lambda each: each.count)
    values = {**one.values, **other.values}
    unmet = "; ".join(filter(None, (one.unmet, other.unmet)))
    return Measured(values, one.subject, fewer.seeds, fewer.networks, unmet)


def _decided(
    claim: Claim, evidence: Mapping[Claim, Sequence[Measured]], preset: str, studies: tuple[Study, ...]
) -> Decision:
    study = study_of(claim)
    if claim in evidence:
        return study.decide(claim, evidence[claim], preset)
    if study not in studies:
        return study.decide(claim, (), preset, reason=f"its study {study.id} was not run")
    return study.decide(claim, (), preset, reason=f"{study.id} made no evidence for it")
