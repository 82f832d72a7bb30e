"""`skipscope study list | show | run | verdicts`."""

from __future__ import annotations

import dataclasses
import difflib
import shlex
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skipscope.cli.beforehand import (
    require_data,
    require_device,
    require_folder,
    require_run_folder,
    require_runs,
)
from skipscope.cli.completion import Offered, offered, one_of
from skipscope.cli.executing import ExecutionOptions
from skipscope.cli.options import Device, Json, document, say_where
from skipscope.cli.report import report_written
from skipscope.cli.talk import CLAIM_FAILED, Quiet, Verbose, command, help_without_command, stopped, talk
from skipscope.data.specs import NAMES
from skipscope.errors import InputError
from skipscope.papers.kit.names import PRESETS, ids, require_known, require_possible_settings
from skipscope.registration import papers
from skipscope.text_table import in_columns

if TYPE_CHECKING:
    from skipscope.papers.kit.claims import Claim
    from skipscope.papers.kit.study import Study
    from skipscope.papers.kit.verdicts import Judged
    from skipscope.runs.decisions import Decision

NOT_RUN = "not run"
WIDTH = 116  # of lines that are wrapped

study = typer.Typer(invoke_without_command=True, rich_markup_mode=None)


def complete_study(incomplete: str) -> Offered:
    """Of several the last one."""
    letters = {paper.letter: f"all studies of paper {paper.letter}" for paper in papers()}
    before, comma, last = incomplete.rpartition(",")
    return [(f"{before}{comma}{value}", explained) for value, explained in offered(letters | ids(), last)]


Id = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="A study such as D.law, several with commas between them, or a paper's letter for all of its own.",
        autocompletion=complete_study,
    ),
]
Preset = Annotated[str, typer.Option(help="smoke, quick, full or paper.", autocompletion=one_of(**PRESETS))]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting; may be given several times.")
]


@study.callback()
def options(context: typer.Context, quiet: Quiet = False, verbose: Verbose = False) -> None:
    """The papers' experiments: list them, look at one, run it.

    Example: skipscope study list
    """
    talk.set(quiet, verbose)
    help_without_command(context)


@study.command("list")
@command
def list_studies(
    runs: Annotated[
        list[Path] | None, typer.Argument(metavar="RUN", help="Run folders, whose verdicts are shown instead.")
    ] = None,
    as_json: Json = False,
) -> None:
    """All papers and their studies, with the verdicts on their claims: those shipped, or those of run folders.

    Example: skipscope study list runs/D.law-quick
    """
    require_runs(runs or [])
    with talk.loading():
        from skipscope.papers.kit.catalogue import claims, studies, study_of
        from skipscope.papers.kit.verdicts import shipped

    committed = {row.claim.id: row.decision.verdict for row in shipped()}
    decided = _decisions(runs or [])
    found = {id: decision.verdict for id, decision in decided.items()} if runs else committed
    rows = [
        _claim_row(claim.id, claim.text, study_of(claim).id, decided.pop(claim.id, None))
        | {"verdict": committed[claim.id]}
        for claim in claims()
    ]
    # Of papers that are not installed here.
    rows += [_claim_row(one.id, one.claim, one.study, one) | {"verdict": "open"} for one in decided.values()]
    if as_json:
        listed = [
            {
                "id": study.id,
                "title": study.title,
                "paper": study.paper.letter,
                "presets": list(study.presets),
                "verdicts": {claim.id: committed[claim.id] for claim in study.claims},
            }
            for study in studies()
        ]
        titles = [{"letter": paper.letter, "title": paper.title} for paper in papers()]
        talk.result(document({"papers": titles, "studies": listed, "claims": rows}))
        return
    lines: list[str] = []
    for paper in papers():
        lines += [*([""] if lines else []), f"{paper.letter}  {paper.title}"]
        for study in studies():
            if study.paper == paper:
                lines += [f"  {study.id}  {study.title} ({', '.join(study.presets)})"]
                lines += _verdicts_of([claim.id for claim in study.claims if claim.id in found], found)
    if runs:
        judged_here = [row for row in rows if row["state"] != NOT_RUN]
        lines += ["", *in_columns([[row["id"], row["study"], row["state"], row["claim"]] for row in judged_here])]
    lines += ["", "The claims in full: skipscope study verdicts; of one study: skipscope study show ID"]
    talk.result("\n".join(lines))


def _verdicts_of(ids: Sequence[str], found: Mapping[str, str]) -> list[str]:
    """Claims of a study, in lines of their own: B7 partly, B8 not reproduced."""
    told = [f"{id} {found[id].replace('partly reproduced', 'partly')}" for id in ids]
    whole = ", ".join(each.replace(" ", "\N{NO-BREAK SPACE}") for each in told)  # not broken between lines
    lines = textwrap.wrap(whole, WIDTH, initial_indent=6 * " ", subsequent_indent=6 * " ")
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]


@study.command()
@command
def show(
    id: Id,
    preset: Annotated[
        str | None,
        typer.Option(
            help="smoke, quick, full or paper; by default the first of quick, full and paper that the study has.",
            autocompletion=one_of(**PRESETS),
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """What a study does, what it costs, its settings and its claims.

    Example: skipscope study show D.law --preset full
    """
    if preset is not None:
        _require_preset(preset)
    require_known(id)
    with talk.loading():
        from skipscope.papers.kit.catalogue import claims_of, find

    found = [_described(one, preset or one.usual_preset, claims_of(one.id, (one,))) for one in find(id, preset or "")]
    talk.result(document({"studies": found}) if as_json else "\n\n".join(_shown(one) for one in found))


@study.command()
@command
def run(
    id: Id,
    preset: Preset = "quick",
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="The run folder; by default runs/ID-PRESET.")] = None,
    changes: Set = None,
    weights: Annotated[str | None, typer.Option(metavar="FILE", help="The same as --set weights=FILE.")] = None,
    data: Annotated[
        str | None,
        typer.Option(metavar="NAME[:PATH]", help="The same as --set data=...", autocompletion=one_of(*NAMES)),
    ] = None,
    device: Device = "cpu",
    seed: Annotated[int, typer.Option(min=0, max=2**31, help="The first of the seeds.")] = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in this folder.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit code 1 if a claim is not reproduced.")] = False,
    *,
    executing: ExecutionOptions,
    as_json: Json = False,
) -> None:
    """Run studies, or all studies of a paper, and decide their claims. Networks are trained once in a run.

    Example: skipscope study run D.law --preset quick --out law
    """
    settings = _changes(changes or [], weights, data)
    _require_preset(preset)
    require_known(id)
    require_possible_settings(id, settings)
    require_device(device)
    require_data(data)
    require_folder(out)
    execution = executing.execution(device)
    with talk.loading():
        from skipscope.numerics import usable_device
        from skipscope.papers.kit.catalogue import find
        from skipscope.papers.kit.running import by_new_names, run_studies, settings_of, what_is_run

    usable_device(device)
    studies = find(id, preset)
    settings = by_new_names(studies, settings, talk.say)
    settings_of(studies, preset, settings)  # a wrong one is refused before anything is printed
    named = id.upper() if len(id) == 1 else ",".join(found.id for found in studies)
    folder = out or Path("runs") / f"{named}-{preset}"
    require_run_folder(folder, what_is_run(id, studies), resume)
    for found in studies:
        talk.say(f"{found.id}: {found.title}; {found.cost.get(preset, 'cost unknown')}")
    say_where(device)
    with (
        stopped(f"go on with --resume --out {shlex.quote(str(folder))}"),
        talk.step(f"{named}, {preset}"),
    ):
        outcome = run_studies(
            id,
            folder,
            preset=preset,
            changes=settings,
            seed=seed,
            device=device,
            resume=resume,
            announce=talk.progress,
            execution=execution,
        )
    with report_written(outcome.folder):
        if as_json:
            claims = [decision.to_dict() for decision in outcome.decisions]
            talk.result(document({"folder": str(outcome.folder), "run": outcome.record, "claims": claims}))
        else:
            decided = [str(decision) for decision in outcome.decisions]
            talk.result("\n".join(decided) or "decides no claim of its own: its numbers are in the report")
        for note in outcome.record.get("notes", []):
            talk.say(f"note: {note}")
    if strict and outcome.failed:
        talk.say(f"not reproduced: {', '.join(outcome.failed)}")
        raise typer.Exit(CLAIM_FAILED)


@study.command()
@command
def verdicts(
    runs: Annotated[
        list[Path] | None, typer.Argument(metavar="RUN", help="Run folders; by default those shipped.")
    ] = None,
    paper: Annotated[str | None, typer.Option(metavar="LETTER", help="Only the claims of this paper.")] = None,
    as_json: Json = False,
) -> None:
    """All claims in one table, each with the best evidence of the runs: parts, subjects, networks, intervals.

    Example: skipscope study verdicts --paper D
    """
    require_runs(runs or [])
    letters = [known.letter for known in papers()]
    if paper is not None and paper.upper() not in letters:
        raise InputError(f"--paper {paper}: no such paper; there are {', '.join(letters)}")
    with talk.loading():
        from skipscope.papers.kit.verdicts import judged

    rows = [row for row in judged(runs or []) if paper is None or row.claim.letter == paper.upper()]
    if as_json:
        talk.result(document({"claims": [row.to_dict() for row in rows]}))
        return
    talk.result("\n".join(in_columns([line for row in rows for line in _verdict_lines(row)])))


def _verdict_lines(row: Judged) -> list[list[str]]:
    """One line per claim, and one for each part where it has several."""
    from skipscope.papers.kit.verdicts import numbers

    decision, parts = row.decision, row.decision.parts
    alone = parts[0] if len(parts) == 1 else None
    first = f"first edition: {decision.first_edition}" if decision.first_edition else ""
    networks = f"{row.networks} network{'' if row.networks == 1 else 's'}" if row.networks else ""
    lines = [[decision.id, decision.verdict, numbers(alone) if alone else "", networks, first, decision.claim]]
    if not alone:
        lines += [["", f"  {part.verdict}", numbers(part), part.subject, "", f"  {part.name}"] for part in parts]
    return lines


def _require_preset(preset: str) -> None:
    if preset not in PRESETS:
        close = difflib.get_close_matches(preset, PRESETS, n=1)
        meant = f" (did you mean {close[0]}?)" if close else ""
        raise InputError(f"no preset '{preset}'{meant}; there are {', '.join(PRESETS)}")


def _changes(pairs: list[str], weights: str | None, data: str | None) -> dict[str, str]:
    changes = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise InputError(f"--set {pair}: expected KEY=VALUE, such as --set epochs=5")
        changes[key] = value
    for key, given in (("weights", weights), ("data", data)):
        if given is not None:
            changes[key] = given
    return changes


def _decisions(runs: list[Path]) -> dict[str, Decision]:
    from skipscope.runs import load_run

    decided = {}
    for path in runs:
        saved = load_run(path)
        saved.require("run.json", "claims.json")
        for flaw in saved.flaws:
            talk.say(f"note: {path}: {flaw}")
        decided.update({decision.id: decision for decision in saved.claims})
    return decided


def _claim_row(id: str, claim: str, study: str, decision: Decision | None) -> dict[str, str]:
    state = NOT_RUN if decision is None else f"{decision.verdict} ({decision.preset})"
    return {"id": id, "study": study, "state": state, "claim": claim}


def _described(described: Study, preset: str, claims: Sequence[Claim]) -> dict[str, Any]:
    return {
        "id": described.id,
        "title": described.title,
        "paper_found": described.paper_found,
        "we_expect": described.we_expect,
        "cost": dict(described.cost),
        "preset": preset,
        "settings": dataclasses.asdict(described.settings(preset, {})),
        "claims": [
            {"id": claim.id, "claim": claim.text, "statistic": claim.statistic, "expected": claim.expected}
            for claim in claims
        ],
    }


def _shown(found: dict[str, Any]) -> str:
    lines = [
        f"{found['id']}: {found['title']}",
        f"  the paper: {found['paper_found']}",
        f"  expected: {found['we_expect']}",
    ]
    lines += [f"  {name}: {cost}" for name, cost in found["cost"].items()]
    lines += [f"  settings of the preset {found['preset']}, changed with --set KEY=VALUE:"]
    lines += [f"    {key} = {value}" for key, value in found["settings"].items()]
    for claim in found["claims"]:
        lines += [f"  {claim['id']}: {claim['claim']}", f"    {claim['statistic']}", f"    {claim['expected']}"]
    return "\n".join(lines)
