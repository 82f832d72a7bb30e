"""The demo at a tiny setting: what it writes, what it claims, how it ends early."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
import xarray

import skipscope.demo
from skipscope.demo import Result, claims, demo
from skipscope.demo.twins import Twin, twins
from skipscope.measure.chain import chain_profile
from skipscope.studies.d.verify import evidence as jacobian_evidence
from tests.commands import run_command

TINY: dict[str, Any] = {"depth": 8, "channels": (4, 6, 8), "epochs": 2, "images": 16, "samples": 2}


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return demo(tmp_path_factory.mktemp("demo") / "run", **TINY)


def test_the_folder_is_complete(result: Result) -> None:
    record = json.loads((result.folder / "run.json").read_text())
    assert record["what"] == "demo"
    assert record["status"] == "finished"
    names = {str(path.relative_to(result.folder)) for path in result.folder.rglob("*") if path.is_file()}
    assert names == {*record["hashes"], "run.json"}
    assert {
        *("claims.json", "networks.json", "report.html", "figures/profile.html", "figures/spectra.html"),
        *("checkpoints/residual.safetensors", "checkpoints/plain.safetensors"),
        *(f"data/{name}.nc" for name in ("profile", "condition", "spectra", "verification", "law")),
    } <= names


def test_both_exact_claims_are_reproduced(result: Result) -> None:
    found = json.loads((result.folder / "claims.json").read_text())
    assert {claim["id"]: claim["verdict"] for claim in found} == {"D1": "reproduced", "D3": "reproduced"}
    assert found[1]["measured"]["pairs with 2 r < n - z"] > 0


def test_the_plain_network_has_what_needs_no_skip(result: Result) -> None:
    with xarray.open_dataset(result.folder / "data/profile.nc", engine="h5netcdf") as profile:
        plain, residual = profile.sel(network="plain"), profile.sel(network="residual")
        assert bool(plain["cosine"].isnull().all())
        assert bool(plain["branch_over_skip"].isnull().all())
        assert bool(plain["gradient_rms"].notnull().all())
        assert bool(residual["cosine"].notnull().all())


def test_the_spectra_of_the_plain_network_are_those_of_a_dense_jacobian(result: Result) -> None:
    from safetensors.torch import load_file

    from skipscope.data import digits

    model = twins(0, TINY["depth"], TINY["channels"], 10)["plain"]
    model.load_state_dict(load_file(result.folder / "checkpoints/plain.safetensors"))
    model.eval().double()
    x = digits().test_batch(TINY["images"], 0)[:1].double()
    with torch.no_grad():
        entry = model.stage1(model.stem(x))
    dense = torch.autograd.functional.jacobian(model.stage2, entry).reshape(96, 256)
    found = result.measured["spectra"]["value"].sel(network="plain", unit="stage2").isel(sample=0).dropna("index")
    numpy.testing.assert_allclose(found.values, torch.linalg.svdvals(dense).numpy(), atol=1e-12)


def test_the_report_needs_no_network(result: Result) -> None:
    text = (result.folder / "report.html").read_text()
    assert len(re.findall("plotly.js v", text)) == 1
    assert re.findall(r'<(?:script|img|iframe)[^>]* src="|<link[^>]*href=', text) == []
    for table in result.tables:
        assert f"<h2>{table.title}</h2>" in text
    assert "D3" in text


def test_both_networks_get_the_same_profile_where_a_chain_is_all_there_is() -> None:
    """A chain's profile of the residual network's own blocks agrees with the trunk's."""
    import skipscope as ss

    model = twins(1, 8, (2, 3, 4), 10)["residual"].eval()
    x = torch.randn(5, 1, 8, 8)
    trunk = ss.trace(model, x)
    expected = ss.profile(trunk, x, seed=4)
    with torch.no_grad():
        first = model.stem(x)
    found = chain_profile(model.blocks, model.head, first, seed=4)
    for name in found.data_vars:
        numpy.testing.assert_allclose(found[name], expected[name], rtol=1e-4, err_msg=str(name))


def test_the_evidence_names_every_quantity_of_its_claim(result: Result) -> None:
    for claim, evidence in (
        (claims.JACOBIAN, jacobian_evidence([result.measured["verification"]])),
        (claims.LAW, claims.law_evidence(result.measured["law"])),
    ):
        assert {criterion.quantity for criterion in (*claim.criteria, *claim.controls)} <= set(evidence)


def test_the_rules_reject_what_they_should(result: Result) -> None:
    good = jacobian_evidence([result.measured["verification"]])
    for key, bad, verdict in (
        ("Jacobians with r1 neither of slope 1.9 nor at rounding", 1, "not reproduced"),
        ("largest adjoint error", 1e-3, "not reproduced"),
        ("slope of r0, smallest", 0.8, "not reproduced"),
        ("wrong Jacobian rejected", False, "inconclusive"),
    ):
        assert claims.JACOBIAN.decide({**good, key: bad}, "quick").verdict == verdict
    exact = claims.law_evidence(result.measured["law"])
    for key, bad, verdict in (
        ("bounds violated", 1, "not reproduced"),
        ("share of generic pairs with equality", 0.89, "not reproduced"),
        ("pairs with 2 r < n - z", 0, "inconclusive"),
        ("ones without skips", 1, "inconclusive"),
    ):
        assert claims.LAW.decide({**exact, key: bad}, "quick").verdict == verdict


def test_a_law_that_predicts_nothing_is_not_decided(result: Result) -> None:
    law = result.measured["law"]
    everywhere = law.assign(inner_active=law["size"])
    evidence = claims.law_evidence(everywhere.assign(ones=law["ones"] * 0, zeros=law["inactive"]))
    assert evidence["pairs with 2 r < n - z"] == 0
    assert claims.LAW.decide(evidence, "quick").verdict == "inconclusive"


def test_raised_thresholds_leave_the_network_itself_alone() -> None:
    twin = Twin("residual", twins(0, 8, (2, 3, 4), 10)["residual"], torch.rand(3, 1, 8, 8))
    before = {name: value.clone() for name, value in twin.model.state_dict().items()}
    other = twin.with_raised_thresholds(1.0)
    assert all(torch.equal(before[name], value) for name, value in twin.model.state_dict().items())
    assert not torch.equal(other.model.stage1[0].norm1.bias, twin.model.stage1[0].norm1.bias)  # type: ignore[union-attr, arg-type]


def test_the_command_prints_one_document(
    result: Result, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(skipscope.demo, "demo", lambda out, seed, progress: result)
    assert run_command(monkeypatch, "demo", "--json") == 0
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert document["run"]["status"] == "finished"
    assert {"profile", "condition", "spectra", "law"} <= set(document["measured"])
    assert "report.html" in captured.err
    assert run_command(monkeypatch, "demo") == 0
    out = capsys.readouterr().out
    for title in ("Networks", "Profile", "Spectra", "Condition numbers", "D1 reproduced"):
        assert title in out


def test_ctrl_c_leaves_whole_files_and_a_second_run_replaces_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(what: str, done: int, total: int) -> None:
        if what == "measuring" and done == 1:
            raise KeyboardInterrupt

    real = demo
    monkeypatch.setattr(skipscope.demo, "demo", lambda out, seed, progress: real(out, progress=interrupt, **TINY))
    for _ in range(2):
        assert run_command(monkeypatch, "demo", "--out", tmp_path / "run") == 130
        captured = capsys.readouterr()
        assert captured.out == ""
        assert "interrupted" in captured.err
        record = json.loads((tmp_path / "run/run.json").read_text())
        assert record["status"] == "interrupted"
        names = {str(p.relative_to(tmp_path / "run")) for p in (tmp_path / "run").rglob("*") if p.is_file()}
        assert names == {*record["hashes"], "run.json"}


def test_a_folder_with_other_things_is_refused_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "thesis.tex").write_text("")
    assert run_command(monkeypatch, "demo", "--out", tmp_path) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    assert "thesis.tex" in captured.err
