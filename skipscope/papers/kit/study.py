"""What a study is: an experiment of a paper, with the settings of each preset and the claims that it decides.

A study's function gets a bench and its settings. It makes datasets with `bench.part`, so that a killed run goes on
where it was, and returns the evidence for each claim; the verdicts are computed from that by the claims' own rules.
Pictures and tables are made from the datasets alone, by the report.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from skipscope.errors import InputError
from skipscope.papers.kit.claims import DECIDING, Claim, Measured
from skipscope.papers.kit.quantities import Quantity
from skipscope.registration import Paper
from skipscope.runs.decisions import Decision

if TYPE_CHECKING:
    from skipscope.papers.kit.bench import Bench

Found = Sequence[Measured] | Mapping[Quantity, Any]  # by subject; quantities alone where no network is trained
Evidence = Mapping[Claim, Found]


@dataclass(frozen=True)
class Study:
    paper: Paper
    name: str  # law: the study D.law of paper D; the names of its datasets begin with it
    paper_found: str
    we_expect: str
    presets: Mapping[str, Any]  # preset: an instance of the study's settings, all of one frozen dataclass
    cost: Mapping[str, str]  # preset: in words, with the machine
    run: Callable[[Bench, Any], Evidence]
    claims: tuple[Claim, ...] = ()

    def __post_init__(self) -> None:
        if self.name not in self.paper.studies:
            raise ValueError(f"paper {self.paper.letter} lists no study '{self.name}'; add it to its `studies`")
        for claim in self.claims:
            if not isinstance(claim, Claim):
                raise TypeError(f"{self.id}: a study decides Claims, not {claim!r}")
            if claim.letter != self.paper.letter:
                raise ValueError(f"{self.id}: {claim.id} is no claim of paper {self.paper.letter}")

    @property
    def id(self) -> str:
        return f"{self.paper.letter}.{self.name}"

    @property
    def title(self) -> str:
        return self.paper.studies[self.name]

    @property
    def usual_preset(self) -> str:
        """The cheapest that decides its claims; `smoke` where it has no other."""
        return next((preset for preset in DECIDING if preset in self.presets), next(iter(self.presets)))

    def evidence(self, bench: Bench, settings: Any) -> dict[Claim, list[Measured]]:
        """Runs it. Claims and quantities are objects: a text in the place of one would decide nothing."""
        evidence: dict[Claim, list[Measured]] = {}
        for claim, found in self.run(bench, settings).items():
            if not isinstance(claim, Claim):
                raise TypeError(f"{self.id}: evidence is for a Claim, not for {claim!r}")
            evidence[claim] = _by_subject(found)
            for measured in evidence[claim]:
                wrong = [quantity for quantity in measured.values if not isinstance(quantity, Quantity)]
                if wrong:
                    raise TypeError(f"{self.id}: the evidence for {claim.id} is of Quantities, not of {wrong[0]!r}")
        return evidence

    def decide(self, claim: Claim, found: Found, preset: str, *, reason: str | None = None) -> Decision:
        """One of its claims."""
        dearest = "full" if "full" in self.cost else ([*self.cost] or [""])[-1]
        cost = f"skipscope study run {self.id} --preset {dearest} ({self.cost[dearest]})" if dearest else ""
        return claim.decide(_by_subject(found), preset, study=self.id, paper=self.paper.title, reason=reason, cost=cost)

    @property
    def keys(self) -> dict[str, Any]:
        """The settings that can be changed, with their types."""
        hints = typing.get_type_hints(self._kind)
        return {field.name: hints[field.name] for field in dataclasses.fields(self._kind)}

    @property
    def _kind(self) -> Any:
        """The dataclass of its settings."""
        return type(next(iter(self.presets.values())))

    @property
    def old_names(self) -> Mapping[str, str]:
        """Settings that were renamed: the old name, which still works, and the new one."""
        return getattr(self._kind, "OLD_NAMES", {})

    def settings(self, preset: str, changes: Mapping[str, str]) -> Any:
        if preset not in self.presets:
            raise InputError(f"{self.id} has no preset '{preset}'; it has {', '.join(self.presets)}")
        mine = {key: text for key, text in changes.items() if key in self.keys}
        prefix = f"{self.name}."
        mine |= {key.removeprefix(prefix): text for key, text in changes.items() if key.startswith(prefix)}
        values = {key: _read(text, self.keys[key], key) for key, text in mine.items()}
        return dataclasses.replace(self.presets[preset], **values)


def _by_subject(found: Found) -> list[Measured]:
    return [Measured(found)] if isinstance(found, Mapping) else list(found)


def _read(text: str, kind: Any, key: str) -> Any:
    """A value as a user writes it, in the type of the setting."""
    try:
        return _value(text, kind)
    except ValueError as error:
        raise InputError(f"the setting {key}={text}: expected {_in_words(kind)}") from error


WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}


def _in_words(kind: Any) -> str:
    arguments = [part for part in typing.get_args(kind) if part not in (type(None), ...)]
    if typing.get_origin(kind) is tuple:
        return f"values with commas between them and no brackets, each {_in_words(arguments[0])}"
    if arguments:
        return f"{_in_words(arguments[0])}, or none"
    return WORDS.get(kind, str(kind))


def _value(text: str, kind: Any) -> Any:
    origin = typing.get_origin(kind)
    if origin is tuple:
        member = typing.get_args(kind)[0]
        return tuple(_value(part, member) for part in text.split(",") if part)
    if origin in (typing.Union, types.UnionType):
        options = [option for option in typing.get_args(kind) if option is not type(None)]
        return None if text.lower() == "none" else _value(text, options[0])
    if kind is bool:
        words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
        if text.lower() not in words:
            raise ValueError(text)
        return words[text.lower()]
    return kind(text)
