"""The demo at a tiny setting: what it writes, what paper D's rules say of it, how it ends early."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

import skipscope.demo
from skipscope.data import digits
from skipscope.demo import Result, demo
from skipscope.demo.twins import twins, with_raised_thresholds
from skipscope.measure.profile import chain_profile
from skipscope.models.resnet import ResNet
from skipscope.papers.d.studies import law, verify
from skipscope.papers.kit import Claim, Evidence, Quantity
from skipscope.papers.kit.catalogue import study_of
from skipscope.sealed import KEY
from skipscope.training import accuracy
from tests.commands import run_command
from tests.conftest import SMALL_DEMO as TINY

MEASURES = ("history", "profile", "spectra", "verification", "conditioning")
NETWORKS = {
    **{f"{measure}-{network}": (measure, network) for measure in MEASURES for network in ("residual", "plain")},
    "stability-residual": ("stability", "residual"),
    "law-as-trained": ("law", "residual"),
    "law-raised": ("law", "residual, thresholds raised"),
    "law-control": ("spectra", "plain, thresholds raised"),
}
JACOBIAN, LAW = verify.D1, law.D3


@pytest.fixture(name="result")
def _result(small_demo: Result) -> Result:
    return small_demo


def trained(result: Result, name: str) -> ResNet:
    """As the run left it, in float64."""
    from safetensors.torch import load_file

    model = twins(0, TINY["depth"], TINY["channels"], 10)[name]
    model.load_state_dict(load_file(result.folder / f"checkpoints/{name}.safetensors"))
    return model.eval().double()


def first_image() -> torch.Tensor:
    return digits().test_batch(TINY["images"], 0)[:1].double()


def test_the_folder_is_complete(result: Result) -> None:
    record = json.loads((result.folder / "run.json").read_text())
    assert len(record.pop(KEY)) == 64  # the file's own digest, which is no part of what it records
    assert record == result.record
    assert record["what"] == "demo"
    assert record["status"] == "finished"
    names = {str(path.relative_to(result.folder)) for path in result.folder.rglob("*") if path.is_file()}
    assert names == {*record["hashes"], "run.json"}
    assert {
        *("report.html", "checkpoints/residual.safetensors", "checkpoints/plain.safetensors"),
        *(f"data/{name}.nc" for name in NETWORKS),
    } <= names


def test_every_dataset_says_what_it_is(result: Result) -> None:
    found = {name: (data.attrs["measure"], data.attrs["network"]) for name, data in result.datasets.items()}
    assert found == NETWORKS


def evidence_of(result: Result) -> Evidence:
    """For the two exact claims of paper D, from what the demo measured."""
    tests = [result.datasets[f"verification-{network}"] for network in ("residual", "plain")]
    laws = [result.datasets[f"law-{which}"] for which in ("as-trained", "raised")]
    return {**verify.evidence(tests), **law.evidence(laws, result.datasets["law-control"])}


def verdict(claim: Claim, evidence: Mapping[Quantity, Any]) -> str:
    return study_of(claim).decide(claim, evidence, "quick").verdict


def test_both_exact_claims_are_reproduced(result: Result) -> None:
    found = evidence_of(result)
    assert {claim.id: verdict(claim, found[claim]) for claim in found} == {"D1": "reproduced", "D3": "reproduced"}
    assert found[JACOBIAN][verify.JACOBIANS] == 6
    assert found[LAW][law.GENERIC_PAIRS] > 0
    assert found[LAW][law.TRAINED_NETWORKS] >= 1


def test_the_plain_network_has_what_needs_no_skip(result: Result) -> None:
    residual, plain = (result.datasets[f"profile-{name}"] for name in ("residual", "plain"))
    assert set(residual.data_vars) - set(plain.data_vars) == {
        "cosine",
        "branch_over_skip",
        "branch_spread",
        "sum_zeros",
    }
    assert all(bool(residual[name].notnull().all()) for name in residual.data_vars)
    assert all(bool(plain[name].notnull().all()) for name in plain.data_vars)


@pytest.mark.parametrize("measure", ["profile", "spectra", "verification", "conditioning"])
def test_both_networks_have_the_same_labels_but_for_their_skips(result: Result, measure: str) -> None:
    residual, plain = (result.datasets[f"{measure}-{name}"] for name in ("residual", "plain"))
    assert set(residual.coords) == set(plain.coords)
    for name in set(residual.coords) - {"skip"}:
        numpy.testing.assert_array_equal(residual[name], plain[name], err_msg=str(name))
    if "skip" in plain.coords:
        assert set(plain["skip"].values) <= {"none", ""}


@pytest.mark.parametrize("network", ["residual", "plain"])
def test_the_spectra_are_those_of_a_dense_jacobian(result: Result, network: str) -> None:
    model = trained(result, network)
    with torch.no_grad():
        entry = model.stage1(model.stem(first_image()))
    found = result.datasets[f"spectra-{network}"]["value"].isel(sample=0)
    for name, function in (("stage2.0", model.blocks["stage2.0"]), ("stage 2", model.stage2)):
        dense = torch.autograd.functional.jacobian(function, entry).reshape(96, 256)
        expected = torch.linalg.svdvals(dense).numpy()
        numpy.testing.assert_allclose(found.sel(unit=name).dropna("index"), expected, atol=1e-12)


def test_the_conditions_of_the_plain_network_are_those_of_its_states(result: Result) -> None:
    model = trained(result, "plain").float()
    with torch.no_grad():
        state = model.stem(digits().test_batch(TINY["images"], 0))
    values = torch.linalg.svdvals(state.double().movedim(1, 0).flatten(1))
    found = result.datasets["conditioning-plain"]["state_condition"].sel(layer="stage1.0.conv1", reduction="channel")
    assert found.item() == pytest.approx(float(values[0] / values[-1]), rel=1e-5)


def test_the_notes_are_true(result: Result) -> None:
    networks, training, last_stage, law = result.record["notes"]
    models = {name: trained(result, name) for name in ("residual", "plain")}
    (weights,) = {sum(weight.numel() for weight in model.parameters()) for model in models.values()}
    assert f"8 layers and {weights:,} weights" in networks
    right = {name: accuracy(model, digits().test) for name, model in models.items()}
    assert f"{right['residual']:.1%} with skips, {right['plain']:.1%} without" in training
    ranks = {}
    for name, model in models.items():
        with torch.no_grad():
            entries = model.stage2(model.stage1(model.stem(digits().test_batch(TINY["images"], 0)[:2].double())))
        dense = [torch.autograd.functional.jacobian(model.stage3, entry[None]).reshape(32, 96) for entry in entries]
        ranks[name] = numpy.mean([int(torch.linalg.matrix_rank(matrix)) for matrix in dense])
    expected = f"Of 32 directions at the last stage's exit, {ranks['residual']:.0f} can be reached"
    assert last_stage.startswith(expected)
    assert f"with skips and {ranks['plain']:.0f} without" in last_stage
    assert "mean over 2 images" in last_stage
    ones = result.datasets["law-raised"]["ones_at_least"]
    assert f"in {int((ones > 0).sum())} of 6 pairs" in law
    assert law.endswith("in the plain twin, treated alike, 0.")


def test_perturbations_are_followed_through_every_unit(result: Result) -> None:
    stability = result.datasets["stability-residual"]
    assert list(stability["kind"].values) == ["adversarial", "random"]
    assert list(stability["unit"].values) == list(trained(result, "residual").blocks)
    assert bool((stability["actual"] > 0).all())


def test_the_report_needs_no_network(result: Result) -> None:
    text = (result.folder / "report.html").read_text()
    assert re.findall(r'<(?:script|img|iframe)[^>]* src="|<link[^>]*href=', text) == []
    for expected in ("D1", "D3", "residual", "plain", "an example, not a statistic"):
        assert expected in text


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


def test_the_evidence_has_every_quantity_of_its_claim(result: Result) -> None:
    for claim, measured in evidence_of(result).items():
        assert {criterion.quantity for criterion in (*claim.criteria, *claim.controls)} <= set(measured)


@pytest.mark.parametrize(
    ("claim", "quantity", "bad", "expected"),
    [
        (JACOBIAN, verify.REJECTED, 1, "not reproduced"),
        (JACOBIAN, verify.ADJOINT_ERROR, 1e-3, "not reproduced"),
        (JACOBIAN, verify.SMALLEST_SLOPE, 0.8, "not reproduced"),
        (JACOBIAN, verify.CONTROL_REJECTED, False, "inconclusive"),
        (LAW, law.VIOLATED, 1, "not reproduced"),
        (LAW, law.EQUALITY, 0.89, "not reproduced"),
        (LAW, law.GENERIC_PAIRS, 0, "inconclusive"),
        (LAW, law.ONES_WITHOUT_SKIPS, 1, "inconclusive"),
    ],
    ids=lambda value: getattr(value, "id", str(value)),
)
def test_the_rules_reject_what_they_should(
    result: Result, claim: Claim, quantity: Quantity, bad: Any, expected: str
) -> None:
    assert verdict(claim, {**evidence_of(result)[claim], quantity: bad}) == expected


def test_a_law_that_predicts_nothing_is_not_decided(result: Result) -> None:
    laws = [result.datasets[name] for name in ("law-as-trained", "law-raised")]
    nowhere = [data.assign(generic=0 * data["generic"]) for data in laws]
    found = law.evidence(nowhere, result.datasets["law-control"])[LAW]
    assert found[law.GENERIC_PAIRS] == 0
    assert verdict(LAW, found) == "inconclusive"


def test_raised_thresholds_leave_the_network_itself_alone() -> None:
    model = twins(0, 8, (2, 3, 4), 10)["residual"]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    raised = with_raised_thresholds(model, 0.5)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    for name, value in raised.state_dict().items():
        lowered = before[name] - 0.5 if name.endswith("norm1.bias") else before[name]  # its weights are still 1
        assert torch.equal(value, lowered)


def test_the_command_prints_one_document(
    result: Result, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(skipscope.demo, "demo", lambda out, seed, announce: result)
    assert run_command(monkeypatch, "demo", "--json") == 0
    captured = capsys.readouterr()
    document = json.loads(captured.out, parse_constant=pytest.fail)
    assert document["run"] == result.record
    assert [finding["sentence"] for finding in document["findings"]] == [each.sentence for each in result.findings]
    assert set(document["measured"]) == set(NETWORKS)
    assert "report.html" in captured.err
    assert run_command(monkeypatch, "demo") == 0
    short = capsys.readouterr().out
    assert len(short.splitlines()) < 20
    assert " ".join(result.findings[0].sentence.split()) in " ".join(short.split())
    assert run_command(monkeypatch, "demo", "--full") == 0
    out = capsys.readouterr().out
    assert len(out.splitlines()) < 65
    for expected in (*result.record["notes"], "Training", "Spectra of plain", "stage 3"):
        assert expected in out


def test_a_network_that_diverges_is_an_error_that_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from skipscope.errors import SkipscopeError

    def broken(*arguments: Any, **options: Any) -> dict[str, ResNet]:
        made = twins(*arguments, **options)
        torch.nn.init.constant_(made["residual"].classifier.bias, float("nan"))
        return made

    monkeypatch.setattr("skipscope.demo.twins.twins", broken)
    with pytest.raises(SkipscopeError, match="the residual network diverged at step 0"):
        demo(tmp_path / "run", **TINY)
    assert json.loads((tmp_path / "run/run.json").read_text())["status"] == "failed"


def test_ctrl_c_leaves_whole_files_and_a_second_run_replaces_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(what: str, done: int, total: int) -> None:
        if what == "measuring" and done == 1:
            raise KeyboardInterrupt

    real = demo
    monkeypatch.setattr(skipscope.demo, "demo", lambda out, seed, announce: real(out, announce=interrupt, **TINY))
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
