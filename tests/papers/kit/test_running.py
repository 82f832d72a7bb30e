"""Studies: their settings, how they run, how they are killed and go on, and what they decide."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy
import pytest
import xarray

from skipscope.errors import InputError
from skipscope.papers.d.studies.law import D3, PAIRS, TRAINED_NETWORKS, evidence
from skipscope.papers.d.studies.law import STUDY as LAW
from skipscope.papers.kit import Bench, Measured, Quantity
from skipscope.papers.kit.catalogue import claims_of, claims_of_paper, find, studies
from skipscope.papers.kit.names import PRESETS
from skipscope.papers.kit.running import by_new_names, run_studies, settings_of, together
from skipscope.papers.kit.verdicts import shipped as shipped_verdicts
from skipscope.runs import RunFolder, load_run
from skipscope.runs.sweep import Task
from tests.commands import run_command

TINY = "resnet8-digits-n8"


@pytest.fixture(scope="module")
def law_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("studies") / "law"
    run_studies("D.law", out, preset="smoke")
    return out


def datasets(path: Path) -> dict[str, xarray.Dataset]:
    saved = load_run(path)
    return {name: saved.dataset(name) for name in saved.names}


# -- what a study is


def test_every_study_has_claims_presets_and_costs() -> None:
    beside = {"D.spectra", "D.proportions", "D.perturbations", "D.projections", "D.noise"}  # D.population decides
    without = {study.id for study in studies() if not study.claims}
    # C.deeper has 200 layers, A.decay is a grid, C.norms says which statements need norms; others decide.
    assert without == {"C.deeper", "A.decay", "C.norms", *beside}
    for study in studies():
        assert {"smoke", "full"} <= set(study.presets) <= set(PRESETS)  # many networks take longer than quick
        assert set(study.cost) == set(study.presets)
        assert len({type(settings) for settings in study.presets.values()}) == 1


def test_settings_are_changed_by_key_in_their_own_type() -> None:
    changed = LAW.settings(
        "smoke", {"epochs": "3", "units": "stage3.1,stage3.2", "data": "cifar10:a", "train110": "yes"}
    )
    assert (changed.epochs, changed.units, changed.data) == (3, ("stage3.1", "stage3.2"), "cifar10:a")
    assert changed.train110 is True
    back = dataclasses.replace(changed, epochs=1, units=(), data="cifar10", train110=False)
    assert back == LAW.settings("smoke", {})
    with pytest.raises(InputError, match=r"the setting epochs=many: expected a whole number$"):
        LAW.settings("smoke", {"epochs": "many"})
    with pytest.raises(InputError, match="has no preset 'huge'"):
        LAW.settings("huge", {})


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("D.lwa", "did you mean D.law"),
        ("Z", "no study 'Z'"),
        ("c.hiden", "did you mean C.hidden"),
    ],
)
def test_a_study_that_is_not_there(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        find(name)


def test_several_studies_by_their_names() -> None:
    """In the order of the list, each once."""
    assert [study.id for study in find("D.spectra, d.law,D.spectra")] == ["D.law", "D.spectra"]
    assert find("D.law,D") == find("D")
    both = find("C.weights,C.hidden")
    assert {claim.id for claim in claims_of("C.weights,C.hidden", both)} == {"C3", "C4", "C5", "C6"}
    everything = {claim.id for claim in claims_of("D,C.weights", find("D,C.weights"))}
    assert everything == {claim.id for claim in claims_of_paper("D")} | {"C3", "C4"}
    noise = find("D.noise")
    peak = next(claim for claim in claims_of_paper("D") if claim.id == "D16")
    assert claims_of("D.noise", noise) == ()
    assert claims_of("D.noise", noise, [peak]) == (peak,)  # D.population decides it
    assert find("d") == find("D")
    assert claims_of("d", find("d")) == claims_of("D", find("D"))
    with pytest.raises(InputError, match="got an empty one"):
        find("D.law,")


def test_a_setting_for_one_study_alone() -> None:
    settings = settings_of(find("D"), "quick", {"images": "4", "law.images": "1"})
    assert settings["D.law"].images == 1
    assert settings["D.spectra"].images == 4
    with pytest.raises(InputError, match=r"no setting 'law\.image'"):
        settings_of(find("D"), "quick", {"law.image": "1"})


def test_settings_that_were_renamed() -> None:
    """One old name may have become another new one in each study."""
    said: list[str] = []
    both = find("B.learning,C.linear")
    found = by_new_names(both, {"besides": "6", "learning.steps": "3"}, said.append)
    assert found == {"learning.other_depths": "6", "linear.other_networks": "6", "learning.steps": "3"}
    assert [sentence.partition(";")[0] for sentence in said] == [
        "the setting besides of B.learning is now other_depths",
        "the setting besides of C.linear is now other_networks",
    ]
    with pytest.warns(FutureWarning, match="besides of C.linear is now other_networks"):
        assert settings_of(find("C.linear"), "smoke", {"linear.besides": "2"})["C.linear"].other_networks == 2
    with pytest.raises(InputError, match="is now other_networks, and both are given; give other_networks alone"):
        by_new_names(find("C.linear"), {"besides": "2", "other_networks": "3"}, said.append)


def test_studies_of_one_name_are_not_run_into_one_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    other = dataclasses.replace(
        find("C.accuracy")[0], paper=dataclasses.replace(LAW.paper, studies={"law": ""}), name="law", claims=()
    )
    monkeypatch.setattr("skipscope.papers.kit.running.find", lambda name, preset: (LAW, other))
    with pytest.raises(InputError, match=r"D\.law and D\.law have the same name; run them into folders of their own"):
        run_studies("D.law,E.law", tmp_path / "run", preset="smoke")
    assert not (tmp_path / "run").exists()


def test_evidence_of_two_studies_for_one_claim_is_put_together() -> None:
    a, b = Quantity("a"), Quantity("b")
    alone = Measured({a: 1})
    assert together([], [alone]) == [alone]
    one, other = Measured({a: 1}, "mnist", (1000, 1001)), Measured({b: 2}, "mnist", (1000,), unmet="not fitted")
    found = together([one, Measured({a: 3}, "cifar10", (1000,))], [other])
    assert [(each.subject, each.count) for each in found] == [("mnist", 1), ("cifar10", 1)]
    assert (found[0].values, found[0].unmet) == ({a: 1, b: 2}, "not fitted")


def test_a_key_that_no_study_has_is_refused_before_a_folder_is_made(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no setting 'epoch'.*known: .*epochs"):
        run_studies("D.law", tmp_path / "run", preset="smoke", changes={"epoch": "3"})
    assert not (tmp_path / "run").exists()


# -- the law


def test_the_law_at_smoke_decides_nothing_and_finds_no_violation(law_run: Path) -> None:
    (decision,) = load_run(law_run).claims
    assert (decision.id, decision.verdict) == ("D3", "open")
    assert "smoke" in decision.reason
    assert decision.measured["bounds violated"] == 0
    assert decision.measured["pairs"] > 0
    assert json.loads((law_run / "run.json").read_text())["notes"]


def test_the_law_is_decided_from_counts() -> None:
    def part(ones: list[float], generic: list[float], violated: bool = False) -> xarray.Dataset:
        return xarray.Dataset(
            {
                "size": ("unit", numpy.array([9.0, 9.0, float("nan")])),
                "ones": ("unit", numpy.array(ones)),
                "ones_at_least": ("unit", numpy.array([4.0, 0.0, float("nan")])),
                "generic": ("unit", numpy.array(generic)),
                "violated": (("unit", "bound"), numpy.array([[violated], [False], [False]])),
            },
            {"skip": ("unit", ["identity", "pad", "identity"])},
            {"network": "a trained network"},
        )

    def verdict(ones: list[float], generic: list[float], **changes: Any) -> str:
        counted = part(ones, generic, changes.get("violated", False)).assign_attrs(changes.get("attrs", {}))
        control = xarray.Dataset({"ones": ("unit", numpy.array([changes.get("ones_of_control", 0)]))})
        found = evidence([counted], control)[D3]
        assert (found[PAIRS], found[TRAINED_NETWORKS]) == (2, 0 if "attrs" in changes else 1)
        return LAW.decide(D3, found, "quick").verdict

    nan = float("nan")
    assert verdict([4, 3, nan], [1, 0, nan]) == "reproduced"
    assert verdict([4, 3, nan], [1, 0, nan], violated=True) == "not reproduced"
    assert verdict([5, 3, nan], [1, 0, nan]) == "not reproduced"
    assert verdict([4, 3, nan], [0, 0, nan]) == "inconclusive"
    assert verdict([4, 3, nan], [1, 0, nan], attrs={"random": 1}) == "inconclusive"  # no network was trained
    assert verdict([4, 3, nan], [1, 0, nan], ones_of_control=1) == "inconclusive"


def test_a_run_that_was_stopped_ends_with_the_same_numbers(law_run: Path, tmp_path: Path) -> None:
    """Stopped once after every part."""
    out = tmp_path / "law"
    for parts in range(1, len(load_run(law_run).names)):

        class Stopped(RunFolder):
            def part(self, name: str, compute: Any, limit: int = parts) -> xarray.Dataset:
                if len([key for key in self.record["hashes"] if key.startswith("data/")]) >= limit and not self.has(
                    f"data/{name}.nc"
                ):
                    raise KeyboardInterrupt
                return super().part(name, compute)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("skipscope.papers.kit.running.RunFolder", Stopped)
            with pytest.raises(KeyboardInterrupt):
                run_studies("D.law", out, preset="smoke", resume=True)
    run_studies("D.law", out, preset="smoke", resume=True)
    assert load_run(out).claims == load_run(law_run).claims
    expected = datasets(law_run)
    assert list(expected) == list(datasets(out))
    for name, found in datasets(out).items():
        xarray.testing.assert_identical(found, expected[name])


@pytest.mark.slow
def test_a_run_that_was_killed_while_it_trained_ends_with_the_same_numbers(tmp_path: Path) -> None:
    """A real kill, at whatever it was doing; the cache of networks is another one each time."""
    changes = ("--set", "epochs=6", "--set", f"model={TINY}", "--preset", "smoke")

    def start(out: Path, cache: Path, *more: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "skipscope", "study", "run", "D.law", *changes, "--out", str(out), *more]
        environment = {**os.environ, "SKIPSCOPE_CACHE": str(cache), "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)

    assert start(tmp_path / "whole", tmp_path / "cache1").wait() == 0
    process = start(tmp_path / "killed", tmp_path / "cache2")
    training = tmp_path / "killed" / "checkpoints"
    deadline = time.monotonic() + 120
    while not training.is_dir() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert json.loads((tmp_path / "killed" / "run.json").read_text())["status"] == "running"
    assert start(tmp_path / "killed", tmp_path / "cache2", "--resume").wait() == 0
    expected = datasets(tmp_path / "whole")
    for name, found in datasets(tmp_path / "killed").items():
        xarray.testing.assert_identical(found, expected[name])
    assert load_run(tmp_path / "killed").claims == load_run(tmp_path / "whole").claims


# -- the bench


def test_what_is_done_is_announced(tmp_path: Path) -> None:
    heard: list[tuple[str, int, int]] = []
    with RunFolder(tmp_path / "run", "a test") as run:
        bench = Bench("D.law", run, preset="smoke", seed=0, device="cpu", announce=lambda *said: heard.append(said))
        bench.sweep([Task(name, xarray.Dataset) for name in "ab"], "two empty datasets")
    assert heard == [("two empty datasets", done, 2) for done in range(3)]
    with pytest.warns(FutureWarning, match="progress= is now announce="), pytest.raises(InputError, match="no study"):
        run_studies("Z", tmp_path / "other", progress=print)


def test_digits_stand_in_for_data_that_is_not_there_and_the_run_says_so(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "run", "a test") as run:
        data = Bench("D.law", run, preset="quick", seed=0, device="cpu").data("mnist")
        assert (data.classes, data.stands_in_for) == (10, "mnist")
        with pytest.raises(InputError):
            Bench("D.law", run, preset="full", seed=0, device="cpu").data("mnist")
    assert "digits stand in" in json.loads((tmp_path / "run" / "run.json").read_text())["notes"][0]


# -- the command line


def test_the_list_shows_every_claim_with_its_state(
    law_run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(monkeypatch, "study", "list", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    claims = {claim["id"]: claim for claim in document["claims"]}
    assert len(claims) == 75
    assert (claims["D3"]["state"], claims["D3"]["verdict"]) == ("not run", "reproduced")
    studies = {study["id"]: study for study in document["studies"]}
    assert (studies["D.law"]["paper"], studies["D.law"]["verdicts"]) == ("D", {"D3": "reproduced"})
    assert [paper["letter"] for paper in document["papers"]] == ["A", "B", "C", "D"]
    assert run_command(monkeypatch, "study", "list", law_run) == 0
    shown = capsys.readouterr().out
    assert "open (smoke)" in shown
    assert "D3 open" in shown
    assert "B7" not in shown


def test_the_list_shows_papers_and_the_verdicts_that_ship(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(monkeypatch, "study", "list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert "B  Li, Jiao, Han, Weissman: Demystifying ResNet" in lines
    shipped = {row.claim.id: row.decision.verdict.replace("partly reproduced", "partly") for row in shipped_verdicts()}
    place = next(place for place, line in enumerate(lines) if line.startswith("  B.dynamics  "))
    assert lines[place + 1].strip() == ", ".join(f"{claim} {shipped[claim]}" for claim in ("B7", "B8", "B9"))
    assert max(map(len, lines)) <= 140


def test_the_list_reports_files_that_were_changed(
    law_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(law_run, folder)
    changed = folder / "data" / "law-random-0.nc"
    changed.write_bytes(changed.read_bytes() + b"\0")
    assert run_command(monkeypatch, "study", "list", folder) == 0
    shown = capsys.readouterr()
    assert "open (smoke)" in shown.out
    assert "Not as the run wrote them: data/law-random-0.nc." in shown.err
    for name in ("claims.json", "run.json"):
        file = folder / name
        file.write_text(file.read_text().replace('"smoke"', '"quick"'))
        assert run_command(monkeypatch, "study", "list", folder) == 2
        shown = capsys.readouterr()
        assert name in shown.err
        assert shown.out == ""


def test_a_study_is_shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(monkeypatch, "study", "show", "D.law", "--preset", "smoke") == 0
    shown = capsys.readouterr().out
    for word in ("D3", "epochs = 1", "the paper:", "bounds violated"):
        assert word in shown


def test_a_study_without_a_quick_preset_is_shown_by_its_next_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(monkeypatch, "study", "show", "A.decay,D.law", "--json") == 0
    assert [study["preset"] for study in json.loads(capsys.readouterr().out)["studies"]] == ["full", "quick"]


def test_a_study_is_run(
    law_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("study", "run", "D.law", "--preset", "smoke", "--out", tmp_path / "run", "--json", "--strict")
    assert run_command(monkeypatch, *arguments) == 0
    document = json.loads(capsys.readouterr().out)
    assert [claim["id"] for claim in document["claims"]] == ["D3"]
    for file in ("report.html", "figures/law.html", "claims.json", "data/law-random-0.nc"):
        assert (tmp_path / "run" / file).is_file()
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert {"report.html", "figures/law.html"} <= set(record["hashes"])
    assert record["status"] == "finished"
    assert run_command(monkeypatch, *arguments) == 2
    assert "--resume" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--set", "epochs"), "expected KEY=VALUE"),
        (("--weights", "nowhere.pt"), "no weights file"),
        (("--preset", "huge"), "no preset 'huge'"),
        (("--set", "epochs=0"), "epoch"),
    ],
)
def test_wrong_options_are_one_line(
    arguments: tuple[str, ...],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = ("--preset", "smoke", *arguments) if "--preset" not in arguments else arguments
    assert run_command(monkeypatch, "study", "run", "D.law", "--out", tmp_path / "run", *options) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1
    assert message in lines[0]


def test_progress_through_items_begins_at_nothing_and_ends() -> None:
    told: list[tuple[str, int, int]] = []
    bench = Bench("X.some", None, preset="smoke", seed=0, device="cpu", announce=lambda *one: told.append(one))  # type: ignore[arg-type]
    assert list(bench.each("looking", "ab")) == ["a", "b"]
    assert told == [("looking", 0, 2), ("looking", 1, 2), ("looking", 2, 2)]
