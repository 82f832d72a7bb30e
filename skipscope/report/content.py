"""What a report says of one run, from its folder alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, get_args

import xarray

from skipscope.findings import Summary, summary_of
from skipscope.findings.networks import networks_of
from skipscope.registration import papers
from skipscope.report.trunk_map import trunk_maps
from skipscope.report.views import Section, sections_of
from skipscope.runs import SavedRun
from skipscope.runs.decisions import Verdict
from skipscope.wording import counted

NETWORKS_IN_FACTS = 6
WITHOUT_STUDY = (
    "Made at least in part by an older version, which did not write which study claims and datasets belong to: "
    "pictures stand without those claims."
)


@dataclass(frozen=True)
class Content:
    title: str
    path: Path
    overview: Summary  # what a reader sees first
    facts: Mapping[str, str]  # what was measured, on what, with what
    warnings: tuple[str, ...]  # what must be known before the numbers are read
    summary: str  # a paragraph
    notes: tuple[str, ...]
    claims: tuple[Mapping[str, Any], ...]
    sections: tuple[Section, ...]  # one per measure
    maps: list[dict[str, Any]]
    record: Mapping[str, Any]

    @property
    def failures(self) -> list[Exception]:
        """Of views that could not show their datasets: bugs, to be raised once the report is written."""
        return [section.failure for section in self.sections if section.failure is not None]


def content_of(saved: SavedRun) -> Content:
    datasets = {name: saved.dataset(name) for name in saved.readable}
    sections = tuple(sections_of(datasets))
    # Whether the Jacobians are right comes before what they say.
    spoken = sorted(sections, key=lambda section: section.measure != "verification")
    sentences = [sentence[:1].upper() + sentence[1:] for section in spoken for sentence in section.view.sentences]
    claims = tuple(decision.to_dict() for decision in saved.claims)
    known = facts(saved.record, _networks(datasets.values()))
    figures = [name for section in sections for name in section.view.figures]
    return Content(
        f"skipscope: {saved.record['what']}",
        saved.path,
        summary_of(datasets, about=_about(saved.record, known, datasets), claims=claims, figures=figures),
        known,
        (*_warnings(saved), *_older(saved, datasets)),
        " ".join([*_verdicts(saved), *sentences]),
        tuple(saved.record.get("notes", ())),
        claims,
        sections,
        trunk_maps(datasets, [section.view for section in sections], _side_outputs(saved.record["parameters"])),
        saved.record,
    )


def _about(record: Mapping[str, Any], known: Mapping[str, str], datasets: Mapping[str, xarray.Dataset]) -> str:
    """What was looked at, in one line: of a study its title first; of several networks those that were measured in
    full, where some were."""
    networks = _networks(data for network in networks_of(datasets) for _, data in network.datasets.values())
    shown = {**known, "model": networks or known["model"]} if "model" in known and not _has_source(record) else known
    parts = [_title_of_study(str(record["what"])), *(shown.get(key, "") for key in ("model", "weights", "data"))]
    return "; ".join(filter(None, [*parts, f"preset {known['preset']}" if "preset" in known else ""]))


def _title_of_study(what: str) -> str:
    """Empty where it is no study, or one of a paper that is not installed."""
    letter, _, name = what.removeprefix("study ").partition(".")
    return next(
        (str(paper.studies[name]) for paper in papers() if paper.letter == letter and name in paper.studies), ""
    )


def _has_source(record: Mapping[str, Any]) -> bool:
    """Whether the run names its model itself, as `inspect` does."""
    source = record["parameters"].get("source", {})
    return isinstance(source, Mapping) and bool(source.get("description"))


def _networks(datasets: Iterable[xarray.Dataset]) -> str:
    """Large ones first, and no more than can be read."""
    order = sorted(datasets, key=lambda data: -int(data.attrs.get("large", 0)))
    names = list(dict.fromkeys(str(data.attrs["network"]) for data in order if "network" in data.attrs))
    more = f"; and {len(names) - NETWORKS_IN_FACTS} more" if len(names) > NETWORKS_IN_FACTS else ""
    return "; ".join(names[:NETWORKS_IN_FACTS]) + more


def facts(record: Mapping[str, Any], networks: str) -> dict[str, str]:
    source = record["parameters"].get("source", {})
    source = source if isinstance(source, Mapping) else {}
    weights = [name.removeprefix("weights ") for name in record.get("inputs", {}) if name.startswith("weights ")]
    data = [name.removeprefix("data ") for name in record.get("inputs", {}) if name.startswith("data ")]
    found = {
        "model": str(source.get("description", "")) or networks,
        "weights": str(source.get("weights", "")) or ", ".join(weights),
        "data": str(source.get("input", "")) or ", ".join(data),
        "preset": str(record.get("preset") or ""),
        "seed": "" if record.get("seed") is None else str(record["seed"]),
        "device": str(record.get("device", "")),
        "versions": ", ".join(f"{name} {version}" for name, version in record["versions"].items()),
        "made": _when(record),
    }
    return {key: value for key, value in found.items() if value}


def _when(record: Mapping[str, Any]) -> str:
    start, end = str(record.get("start", "")), str(record.get("end", ""))
    try:
        seconds = (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()
    except (TypeError, ValueError):  # not finished, or written by hand
        return start
    return f"{start}, in {seconds:.0f} s" if seconds < 120 else f"{start}, in {seconds / 60:.0f} minutes"


def notes_of_trunk(parameters: Mapping[str, Any]) -> list[str]:
    """Of the model that a run measured, as its trunk had them; none where it measured several, or has another form."""
    trunk = parameters.get("trunk", {})
    notes = trunk.get("notes", []) if isinstance(trunk, Mapping) else []
    return [note for note in notes if isinstance(note, str)] if isinstance(notes, list | tuple) else []


def _side_outputs(parameters: Mapping[str, Any]) -> dict[str, list[str]]:
    """By unit, where it has some; of the model that a run measured, as its trunk had them."""
    trunk = parameters.get("trunk", {})
    units = trunk.get("units", []) if isinstance(trunk, Mapping) else []
    units = [unit for unit in units if isinstance(unit, Mapping)] if isinstance(units, list | tuple) else []
    found = {str(unit.get("name")): unit.get("side_outputs") for unit in units}
    return {name: [str(one) for one in some] for name, some in found.items() if some and isinstance(some, list | tuple)}


def _warnings(saved: SavedRun) -> list[str]:
    """What must be known of the model and the run before its numbers are read."""
    lines = [f"{note[:1].upper()}{note[1:]}." for note in notes_of_trunk(saved.record["parameters"])]
    if saved.record["status"] != "finished":
        lines.append(f"This run is not complete: its status is '{saved.record['status']}'.")
    lines += saved.flaws
    if saved.withheld:
        lines.append(f"Left out for that reason: {', '.join(saved.withheld)}.")
    return lines


def _verdicts(saved: SavedRun) -> list[str]:
    verdicts = [decision.verdict for decision in saved.claims]
    counts = ", ".join(f"{verdicts.count(each)} {each}" for each in get_args(Verdict) if each in verdicts)
    return [f"Of {counted(len(verdicts), 'claim')}: {counts}."] if verdicts else []


def _older(saved: SavedRun, datasets: Mapping[str, xarray.Dataset]) -> list[str]:
    """That claims are missing beside pictures, where an older version wrote the claims or the datasets shown there."""
    if not saved.claims:
        return []
    shown = [data for data in datasets.values() if "measure" in data.attrs]
    complete = all(decision.study for decision in saved.claims) and all("study" in data.attrs for data in shown)
    return [] if complete else [WITHOUT_STUDY]
