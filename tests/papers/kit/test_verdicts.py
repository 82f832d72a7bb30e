"""All verdicts in one table: which run's evidence is taken, and what is shown of it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from skipscope.errors import InputError
from skipscope.papers.kit import Measured, Quantity
from skipscope.papers.kit.catalogue import claims, study_of
from skipscope.papers.kit.editions import first_edition
from skipscope.papers.kit.verdicts import judged, numbers
from skipscope.runs import RunFolder
from skipscope.runs.decisions import Decision
from tests.commands import run_command

LAW = next(claim for claim in claims() if claim.id == "D3")


def decision(verdict: str, networks: int = 0, edition: int = 2) -> Decision:
    made = study_of(LAW).decide(LAW, [Measured({Quantity("pairs"): 3})], "quick")
    parts = tuple(dataclasses.replace(part, networks=networks, verdict=verdict) for part in made.parts)
    return dataclasses.replace(made, verdict=verdict, parts=parts, edition=edition)


def run_of(path: Path, *decisions: Decision) -> Path:
    with RunFolder(path, "study D.law", parameters={}, preset="quick", seed=0, device="cpu") as run:
        run.write_claims(decisions)
    return path


def verdict_of(*runs: Path) -> tuple[str, str]:
    (row,) = [row for row in judged(runs) if row.claim.id == "D3"]
    return row.decision.verdict, row.source


def test_more_networks_come_first_whatever_they_found(tmp_path: Path) -> None:
    many = run_of(tmp_path / "many", decision("inconclusive", networks=20))
    few = run_of(tmp_path / "few", decision("not reproduced", networks=3))
    more = run_of(tmp_path / "more", decision("reproduced", networks=8))
    not_run = run_of(tmp_path / "open", decision("open", networks=50))
    older = run_of(tmp_path / "older", decision("reproduced", networks=99, edition=1))
    assert verdict_of(many, few) == ("inconclusive", str(many))
    assert verdict_of(few, more) == ("reproduced", str(more))
    assert verdict_of(not_run, few) == ("not reproduced", str(few))
    assert verdict_of(older, few) == ("not reproduced", str(few))


def test_of_as_many_networks_the_larger_preset_comes_first_whatever_it_found(tmp_path: Path) -> None:
    found = {
        (preset, verdict): run_of(
            tmp_path / f"{preset}-{verdict}", dataclasses.replace(decision(verdict, networks=8), preset=preset)
        )
        for preset in ("quick", "full")
        for verdict in ("reproduced", "not reproduced")
    }
    for verdict, other in (("reproduced", "not reproduced"), ("not reproduced", "reproduced")):
        large, small = found["full", verdict], found["quick", other]
        assert verdict_of(small, large) == verdict_of(large, small) == (verdict, str(large))


SADDLE = next(claim for claim in claims() if claim.id == "B23")


def of_parts(*verdicts: str) -> Decision:
    made = study_of(SADDLE).decide(SADDLE, [], "quick")
    parts = tuple(
        dataclasses.replace(part, verdict=verdict, reason=f"{verdict}!")
        for part, verdict in zip(made.parts, verdicts, strict=True)
    )
    return dataclasses.replace(made, verdict="open", parts=parts)


def test_parts_of_a_claim_may_come_from_different_runs(tmp_path: Path) -> None:
    small = run_of(tmp_path / "small", of_parts("reproduced", "reproduced", "open"))
    large = run_of(tmp_path / "large", of_parts("open", "open", "not reproduced"))
    (alone,) = [row for row in judged([small]) if row.claim.id == "B23"]
    assert alone.decision.verdict == "open"
    assert alone.decision.cost
    assert alone.sources == (str(small), str(small), "")
    (row,) = [row for row in judged([small, large]) if row.claim.id == "B23"]
    assert row.decision.verdict == "partly reproduced"
    assert row.decision.cost == ""
    assert row.sources == (str(small), str(small), str(large))
    assert list(row.commands) == [str(small), str(large)]
    assert [part["source"] for part in row.to_dict()["parts"]] == list(row.sources)


def test_a_run_with_other_parts_is_passed_over(tmp_path: Path) -> None:
    """The claim had other parts then."""
    made = of_parts("reproduced", "reproduced", "open")
    turned = run_of(tmp_path / "turned", dataclasses.replace(made, parts=made.parts[::-1]))
    today = run_of(tmp_path / "today", made)
    for runs in ([turned, today], [today, turned]):
        (row,) = [row for row in judged(runs) if row.claim.id == "B23"]
        assert row.source == str(today)


def test_every_claim_has_a_row_and_those_without_evidence_say_what_they_cost(tmp_path: Path) -> None:
    rows = judged([run_of(tmp_path / "run", decision("reproduced"))])
    assert [row.claim for row in rows] == list(claims())
    first = rows[0]
    assert (first.decision.verdict, first.source) == ("open", "")
    assert "none of these runs judged it" in first.decision.reason
    assert first.decision.cost
    assert first.commands[""].startswith("skipscope study run A.")


def test_without_runs_it_is_what_ships_with_the_package() -> None:
    rows = judged([])
    assert len(rows) == len(claims())
    assert {row.decision.edition for row in rows} == {2}


def test_the_first_edition_is_kept() -> None:
    assert first_edition("A4") == "not reproduced (full)"
    assert first_edition("Z1") == ""
    assert all(first_edition(claim.id) for claim in claims())


def test_the_numbers_of_a_part_are_its_value_and_interval() -> None:
    size = Quantity("size")
    claim = dataclasses.replace(LAW, parts=(), criteria=(size.at_most(1.0),), controls=())
    (part,) = study_of(LAW).decide(LAW, [], "quick").parts
    assert numbers(part) == ""
    (part,) = claim.decide([Measured({size: [0.1, 0.2, 0.3]})], "quick", study="D.law", paper="").parts
    assert numbers(part) == "0.2 (-0.0484 to 0.448)"


def test_the_command_shows_a_table_or_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_of(tmp_path / "run", decision("partly reproduced", networks=5))
    assert run_command(monkeypatch, "study", "verdicts", str(run), "--paper", "d") == 0
    lines = capsys.readouterr().out.splitlines()
    (line,) = [line for line in lines if line.startswith("D3 ")]
    assert "partly reproduced" in line
    assert not [line for line in lines if line.startswith("A1 ")]
    assert run_command(monkeypatch, "study", "verdicts", str(run), "--json") == 0
    document = json.loads(capsys.readouterr().out)
    (entry,) = [entry for entry in document["claims"] if entry["id"] == "D3"]
    assert (entry["verdict"], entry["source"]) == ("partly reproduced", str(run))


def test_a_paper_that_is_not_there_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(monkeypatch, "study", "verdicts", "--paper", "Q") == 2
    assert "no such paper; there are A, B, C, D" in capsys.readouterr().err


def test_a_changed_run_is_refused(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", decision("reproduced"))
    (run / "claims.json").write_text("[]\n")
    with pytest.raises(InputError, match=r"not as the run wrote them: claims\.json"):
        judged([run])
