"""Findings from datasets with known answers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy
import pytest
import torch
import xarray

import skipscope as ss
from skipscope.findings import SEVERITIES, Finding, as_html, findings_of, in_lines, summary_of
from skipscope.findings.ranking import ranked
from skipscope.findings.usual import Range, ranges, usual

UNITS = [f"body.{number}" for number in range(8)]


@pytest.fixture(autouse=True)
def _known_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges with round numbers, in place of those that were measured."""
    known = {
        "gain": Range(0.5, 1.0, 2.0, 40),
        "branch_over_skip": Range(0.001, 0.3, 3.0, 40),
        "gradient_growth": Range(0.1, 1.0, 10.0, 40),
        "state_growth": Range(0.1, 1.0, 10.0, 40),
        "rank_kept": Range(0.5, 1.0, 2.0, 40),
        "largest": Range(1.0, 1.5, 4.0, 40),
        "share_zero": Range(0.0, 0.0, 0.6, 40),
    }
    monkeypatch.setattr(
        "skipscope.findings.networks.usual", lambda quantity, kind: known.get(quantity) if kind != "other" else None
    )


def profile(samples: int = 8, network: str = "", **changed: Sequence[float]) -> xarray.Dataset:
    """Of a network that is usual in everything, but for what is changed; values by unit."""
    usual_values: dict[str, Any] = {
        "state_rms": [1.0] * 8,
        "gradient_rms": [1.0] * 8,
        "branch_over_skip": [0.3] * 8,
        "jacobian_square": [1.21] * 8,
    }
    values = {key: numpy.repeat(numpy.array([own]).T, samples, 1) for key, own in {**usual_values, **changed}.items()}
    rank = changed.get("effective_rank", [6.0] * 8)
    values.pop("effective_rank", None)
    return xarray.Dataset(
        {**{key: (("unit", "sample"), own) for key, own in values.items()}, "effective_rank": ("unit", list(rank))},
        {
            "unit": UNITS,
            "stage": ("unit", [1] * 8),
            "skip": ("unit", ["identity"] * 8),
            "branch": ("unit", ["linear"] * 8),
        },
        {"measure": "profile", **({"network": network} if network else {})},
    )


def only(findings: Sequence[Finding], severity: str) -> list[Finding]:
    return [finding for finding in findings if finding.severity == severity]


def test_nothing_unusual_is_said_so_with_the_numbers() -> None:
    ends, units = findings_of({"profile": profile()})
    assert (ends.severity, ends.measure) == (units.severity, units.measure) == ("normal", "profile")
    assert ends.sentence == (
        "As usual for units of linear layers: gradients come back about as large; the last state is about as large "
        "as the first."
    )
    assert ends.numbers == {"gradient_growth": 1, "state_growth": 1}
    assert units.sentence.startswith("Units are as usual for units of linear layers: they multiply random changes by 1")


def test_units_of_several_kinds_are_compared_each_with_its_own() -> None:
    mixed = profile().assign_coords(branch=("unit", ["attention", "linear"] * 4))
    units = next(finding for finding in findings_of({"profile": mixed}) if finding.name == "usual units")
    assert units.sentence.startswith("Units are as usual for attention and units of linear layers: ")


def leading(values: Sequence[float]) -> xarray.Dataset:
    return xarray.Dataset(
        {"value": (("unit", "sample", "rank"), numpy.array(values)[:, None, None])},
        {"unit": UNITS, "skip": ("unit", ["identity"] * 8), "stage": ("unit", [1] * 8)},
        {"measure": "leading"},
    )


def test_the_strongest_direction_is_compared_with_that_of_other_models() -> None:
    rising = [*numpy.linspace(2, 3.2, 7), 3.5]
    usual_one = findings_of({"profile": profile(), "leading": leading(rising)})
    assert len(usual_one) == 3  # a network without a flaw has as many findings as a reader expects
    assert usual_one[-1].sentence == (
        "body.7 amplifies its strongest direction most of all units: 3.5 times; usual for units of linear layers: "
        "1 to 4 (40 models)."
    )
    one_above = findings_of({"profile": profile(), "leading": leading([*rising[:7], 4.5])})
    assert not only(one_above, "unusual")  # one unit in twenty is above the range by chance
    halves = [*rising[:4], 4.1, 4.2, 4.3, 4.5]
    (several,) = only(findings_of({"profile": profile(), "leading": leading(halves)}), "unusual")
    assert (several.name, several.unit, several.measure) == ("strongest direction", "body.7", "leading")
    assert "4 of 8 units amplify their strongest direction more than is usual, most body.7: 4.5" in several.sentence
    climbing = [*numpy.geomspace(2, 13, 8)]  # none far from its neighbours, the last far above the range
    (far,) = only(findings_of({"profile": profile(), "leading": leading(climbing)}), "unusual")
    assert (far.unit, far.name) == ("body.7", "strongest direction")


def test_shares_of_lost_directions_are_compared_with_those_of_other_models() -> None:
    (more,) = only(findings_of({"spectra": spectra("", 0.1, lost_in_unit=0.7)}), "unusual")
    assert more.sentence == (
        "body.0 loses more directions than is usual (zero singular values): 70 %; usual for residual networks: 0 % to "
        "60 % (40 models)."
    )
    assert (more.name, more.unit) == ("directions are lost", "body.0")
    kept = next(one for one in findings_of({"spectra": spectra("", 0.1)}) if one.name == "directions are kept")
    assert kept.sentence == "No unit loses 20 % of the directions (body.0 most: 10 %)."


def test_weights_that_are_well_conditioned_are_said_so() -> None:
    data = xarray.Dataset(
        {"weight_condition": (("weight", "reduction"), [[3.0], [7.5]])},
        {"weight": ["a", "b"], "reduction": ["max"]},
        {"measure": "conditioning"},
    )
    (finding,) = findings_of({"conditioning": data})
    assert finding.sentence == "Weights are well conditioned: their ratios of singular values are at most 7.5 (b)."
    assert (finding.severity, finding.unit) == ("normal", "b")


def test_weights_that_are_zero_throughout_are_not_called_badly_conditioned() -> None:
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    torch.nn.init.zeros_(network[0].weight)
    torch.nn.init.orthogonal_(network[1].weight)
    with torch.no_grad():
        network[2].weight[1:] = 0
    data = ss.conditioning(network, torch.randn(3, 4), states=False)
    (finding,) = findings_of({"conditioning": data})
    assert finding.sentence.startswith("1 of 2 weights are badly conditioned")
    assert finding.sentence.endswith(": 2.weight.")
    (finding,) = findings_of({"conditioning": data.sel(weight=["0.weight", "1.weight"])})
    assert finding.sentence == "Weights are well conditioned: their ratios of singular values are at most 1 (1.weight)."
    assert not findings_of({"conditioning": data.sel(weight=["0.weight"])})


def test_a_network_whose_norms_have_never_seen_data_is_not_compared_with_others() -> None:
    grown = profile(state_rms=numpy.geomspace(1, 1e3, 8))
    assert any("usual for" in finding.sentence for finding in findings_of({"profile": grown}))
    unseen = grown.assign_attrs(notes="4 of 4 batch norms have never seen data (mean 0, variance 1)")
    (finding,) = findings_of({"profile": unseen})
    assert finding.sentence == (
        "Sizes are not compared with other models, because batch norms have never seen data: gradients come back "
        "about as large; the last state is 1000 times as large as the first."
    )
    assert finding.severity == "notable"


def test_a_unit_that_amplifies_is_named_with_its_neighbours() -> None:
    squares = [4.0] * 8
    squares[5] = 36.0
    finding = findings_of({"profile": profile(jacobian_square=squares)})[0]
    assert (finding.severity, finding.unit) == ("unusual", "body.5")
    assert "body.5 multiplies a random change 6 times, 3 times as much as its neighbours (2)" in finding.sentence
    assert finding.numbers == {"gain": 6.0, "neighbours": 2.0}


def test_others_that_stand_out_are_counted() -> None:
    squares = [4.0] * 8
    squares[1], squares[6] = 36.0, 64.0
    finding = findings_of({"profile": profile(jacobian_square=squares)})[0]
    assert finding.sentence.endswith("; so does one other unit.")


def test_the_largest_singular_value_is_what_counts_where_it_is_known() -> None:
    largest = [2.0] * 8
    largest[3] = 9.0
    finding = findings_of({"profile": profile(), "leading": leading(largest)})[0]
    assert "body.3 amplifies its strongest direction 9 times, 4.5 times as much" in finding.sentence
    assert finding.measure == "leading"


def test_gradients_that_vanish_are_a_problem_and_come_first() -> None:
    squares = [1.21] * 8
    squares[5] = 36.0
    found = findings_of({"profile": profile(gradient_rms=numpy.geomspace(1e-6, 1, 8), jacobian_square=squares)})
    assert [finding.severity for finding in found[:2]] == ["problem", "unusual"]
    assert found[0].name == "gradients vanish"
    assert found[0].remedies
    assert found[0].numbers["gradient_growth"] == pytest.approx(1e-6)


def test_numbers_out_of_the_usual_range_say_what_is_usual() -> None:
    found = only(findings_of({"profile": profile(state_rms=numpy.geomspace(1, 30, 8))}), "unusual")
    assert [finding.name for finding in found] == ["state growth"]
    assert (
        "30 times as large at the last unit as at the first; usual for units of linear layers: 0.1 to 10 (40 models)"
        in (found[0].sentence)
    )


def test_samples_that_become_alike_are_found_with_enough_samples_alone() -> None:
    falling = numpy.linspace(6, 1.5, 8)
    found = only(findings_of({"profile": profile(effective_rank=falling)}), "unusual")
    assert "from 6 to 1.5 (at most 8, the number of samples)" in found[0].sentence
    assert not only(findings_of({"profile": profile(2, effective_rank=falling)}), "unusual")


def test_units_that_do_nothing_and_branches_that_drown_the_skip() -> None:
    ratios = [0.3, 0.3, 0.3, 0.001, 0.002, 0.3, 0.3, 12.0]
    found = {finding.name: finding for finding in findings_of({"profile": profile(branch_over_skip=ratios)})}
    assert "2 of 8 units hardly change their state" in found["idle units"].sentence
    assert found["branch over skip"].unit == "body.7"
    assert "the branch is larger than the skip: 12 times as large" in found["branch over skip"].sentence


def test_a_branch_that_is_smaller_than_the_skip_is_not_called_larger(monkeypatch: pytest.MonkeyPatch) -> None:
    small = Range(0.001, 0.3, 0.604, 40)
    monkeypatch.setattr(
        "skipscope.findings.networks.usual", lambda quantity, kind: small if quantity == "branch_over_skip" else None
    )
    ratios = [0.3] * 3 + [0.7] * 4 + [0.99]
    found = {finding.name: finding for finding in findings_of({"profile": profile(branch_over_skip=ratios)})}
    assert (
        "In 5 of 8 units the branch is large beside the skip, most in body.7: 0.99 times as large"
        in found["branch over skip"].sentence
    )


def test_numbers_that_are_not_finite_come_before_all_others() -> None:
    states = [1.0, 1.0, numpy.nan, *[numpy.nan] * 5]
    finding = findings_of({"profile": profile(state_rms=states)})[0]
    assert (finding.name, finding.unit) == ("not finite", "body.2")
    assert "(6 units in all)" in finding.sentence


def test_a_kind_of_which_no_models_are_known_is_not_judged() -> None:
    other = profile(state_rms=numpy.geomspace(1, 1e9, 8)).assign_coords(branch=("unit", ["other"] * 8))
    assert not only(findings_of({"profile": other}), "unusual")


def spectra(network: str, lost: float, lost_in_unit: float = 0.1) -> xarray.Dataset:
    shares = numpy.array([[lost_in_unit], [lost]])
    return xarray.Dataset(
        {
            **dict.fromkeys(("share_zero", "share_near_one"), (("unit", "sample"), shares)),
            "largest": (("unit", "sample"), numpy.ones((2, 1))),
        },
        {"unit": ["body.0", "stage 1"], "kind": ("unit", ["unit", "stage"]), "stage": ("unit", [1, 1])},
        {"measure": "spectra", "network": network},
    )


def test_lost_directions_say_of_what_there_are_others() -> None:
    data = spectra("", 0.5)
    data = xarray.concat([data, data.isel(unit=[1]).assign_coords(unit=["stage 2"])], "unit")
    (finding,) = [one for one in findings_of({"spectra": data}) if one.name == "directions are lost"]
    assert finding.sentence.endswith("; one other stage at least 20 %.")
    assert str(finding) == f"notable: {finding.sentence}"


def history(network: str, accuracy: float) -> xarray.Dataset:
    return xarray.Dataset(
        {"test_accuracy": ("epoch", [0.1, accuracy])}, attrs={"measure": "history", "network": network}
    )


def test_two_networks_are_compared_and_that_comes_first() -> None:
    datasets = {
        "history-residual": history("residual", 0.981),
        "history-plain": history("plain", 0.863),
        "spectra-residual": spectra("residual", 0.34),
        "spectra-plain": spectra("plain", 0.56),
    }
    datasets["profile-plain"] = profile(state_rms=numpy.geomspace(1, 30, 8), network="plain")
    datasets["profile-residual"] = profile(network="residual")
    first, second, third, *_ = findings_of(datasets)
    assert third.severity == "unusual"  # graver than the first two, and about one network alone
    assert first.sentence == "The residual network reaches 98.1 % on test images, the plain network 86.3 %."
    assert "the plain network loses 56 % of all directions" in second.sentence
    assert "the residual one 34 %" in second.sentence
    overview = summary_of(datasets, about="two networks", figures=["history-residual", "spectra-residual-together"])
    assert overview.headline == first.sentence
    assert overview.figure == "history-residual"
    assert overview.tiles[0].value == "98.1 % | 86.3 %"
    assert overview.tiles[1].about == "residual | plain"


def test_a_study_is_summed_up_by_its_verdicts() -> None:
    claims = [
        {"id": "A1", "claim": "Paths are straight.", "verdict": "reproduced", "reason": ""},
        {"id": "A2", "claim": "Steps are equal.", "verdict": "not reproduced", "reason": "found 0.5"},
        {"id": "A3", "claim": "Vectors are shared.", "verdict": "open", "reason": "not run"},
    ]
    overview = summary_of({}, claims=claims, figures=["first"])
    assert overview.headline == "1 of 2 decided claims reproduced."
    assert overview.findings[0].sentence == "A2 is not reproduced. Steps are equal. Found: found 0.5."
    assert [tile.value for tile in overview.tiles] == ["1", "1", "1"]
    assert overview.figure == "first"
    assert summary_of({}, claims=claims[2:]).headline == "Its claim could not be decided by this run: not run."
    assert summary_of({}, claims=2 * claims[2:]).headline == "None of 2 claims could be decided by this run: not run."
    other = {**claims[2], "reason": "no data"}
    assert summary_of({}, claims=[*claims[2:], other]).headline == "None of 2 claims could be decided by this run."
    (undecided,) = summary_of({}, claims=claims[2:]).findings
    assert undecided.sentence == "A3 is open. Vectors are shared. Why: not run."
    assert undecided.severity == "notable"  # not a tick: nothing was confirmed


def test_the_picture_of_a_study_is_the_one_that_has_its_name() -> None:
    claim = {"id": "D3", "claim": "Zeros are counted.", "verdict": "reproduced", "study": "D.law"}
    assert summary_of({}, claims=[claim], figures=["spectra-control-scree", "law-trained"]).figure == "law-trained"
    assert summary_of({}, claims=[claim], figures=["law-control-scree", "law"]).figure == "law"
    assert summary_of({}, claims=[claim], figures=["spectra-control-scree"]).figure == "spectra-control-scree"


def test_an_empty_run_has_a_headline() -> None:
    overview = summary_of({})
    assert overview.headline.startswith("Nothing was measured")
    assert overview.findings == ()


def test_findings_are_ranked_by_severity_then_weight_and_one_name_comes_once() -> None:
    made = [
        Finding("a", "a1", severity="notable", weight=1),
        Finding("a", "a2", severity="notable", weight=2),
        Finding("b", "b", severity="normal"),
        Finding("c", "c", severity="problem"),
        Finding("d", "d", severity="unusual"),
    ]
    assert [finding.sentence for finding in ranked(made)] == ["c", "d", "a2", "b"]
    assert [finding.sentence for finding in ranked(made[:2])] == ["a2", "a1"]
    assert len(ranked([Finding(str(k), str(k)) for k in range(20)])) == 6
    fine = [Finding(f"fine {k}", f"fine {k}", severity="normal", weight=-k) for k in range(9)]
    assert [finding.sentence for finding in ranked(fine)] == ["fine 0", "fine 1", "fine 2"]
    assert [finding.sentence for finding in ranked([*made[1:], *fine])] == ["c", "d", "a2", "b"]
    compared = [Finding("d", "d of two", severity="notable")]
    assert [finding.sentence for finding in ranked(made, before=compared)] == ["d of two", "c", "a2", "b"]


def test_text_has_one_line_per_finding_with_its_severity() -> None:
    text = in_lines([Finding("a", "First.", severity="problem"), Finding("b", "Second.", severity="normal")])
    assert text == "problem  First.\nnormal   Second."
    assert in_lines([Finding("a", "First.", ("x", "y"), severity="problem")]) == "problem  First. To try: x; y."


def test_names_are_text_in_html() -> None:
    shown = as_html([Finding("a", "<b>body.0</b> amplifies.", severity="unusual")])
    assert shown == "<ul><li><b>unusual</b> &lt;b&gt;body.0&lt;/b&gt; amplifies.</li></ul>"
    result = ss.Result({"profile": profile()}, {"trunk": {"notes": ["<i>calibrated</i>"]}})
    assert "&lt;i&gt;calibrated" in result._repr_html_()
    assert "<b>normal</b>" in result._repr_html_()


def test_findings_are_json() -> None:
    finding = findings_of({"profile": profile()})[0]
    assert json.loads(json.dumps(finding.to_dict()))["severity"] == "normal"


def test_the_stored_ranges_are_ordered_and_of_enough_models() -> None:
    stored = ranges()
    assert {"gain", "branch_over_skip", "gradient_growth", "state_growth", "rank_kept"} <= set(stored)
    for kinds in stored.values():
        assert "any" in kinds
        for found in kinds.values():
            assert found.low <= found.middle <= found.high
            assert found.models >= 5
    assert usual("gain", "convolution") is not None
    assert usual("gain", "no such kind") is None


def test_a_network_of_ours_has_findings_from_its_own_measurements() -> None:
    torch.manual_seed(0)
    model, x = ss.build("resnet8-digits").eval(), torch.randn(6, 1, 8, 8)
    with torch.no_grad():
        for weight in model.stage2[1].parameters() if len(model.stage2) > 1 else model.stage2[0].parameters():
            weight.mul_(3)
    result = ss.inspect(model, x, budget="3s", calibrate=True)
    assert 3 <= len(result.findings) <= 6
    severities = [SEVERITIES.index(finding.severity) for finding in result.findings]
    assert severities == sorted(severities)
    assert result.findings[0].sentence.split()[0] in str(result)


def depth_use(first: float) -> xarray.Dataset:
    """Of tokens of size 1, with branches of a fifth, and a first token of another size in the middle of the network."""
    norms = numpy.ones((9, 2, 5))
    norms[3:7, :, 0] = first
    growth = numpy.stack([norms.mean(2), norms[:, :, 1:].mean(2)], 2)
    shares = numpy.full((8, 2, 5), 0.2)
    shares[:, :, 0] = 0.2 / first
    return xarray.Dataset(
        {
            "state_norm": (("state", "sample", "position"), norms),
            "total_growth": (("state", "sample", "scope"), growth / growth[:1]),
            "branch_share": (("unit", "sample", "position"), shares),
            "massive_dimension": (("state", "sample", "scope"), numpy.full((9, 2, 2), 4)),
        },
        {
            "unit": UNITS,
            "state": [*UNITS, f"exit of {UNITS[-1]}"],
            "position": range(5),
            "scope": ["all", "without the first"],
        },
        {"measure": "depth_use"},
    )


def test_sizes_are_those_of_the_other_tokens_where_the_first_is_massive() -> None:
    """Of the whole states the branches look idle and the state seems to grow 60 times: all that is the first token."""
    leaning = profile(branch_over_skip=[0.3, 0.3, 0.3, *[0.001] * 4, 0.3], state_rms=[*[1.0] * 3, *[60.0] * 5])
    assert {"idle units", "state growth"} <= {finding.name for finding in findings_of({"profile": leaning}, most=20)}
    found = {f.name: f for f in findings_of({"profile": leaning, "depth_use": depth_use(500.0)}, most=20)}
    assert not {"idle units", "state growth"} & set(found)
    massive = found["massive first token"]
    assert massive.sentence == (
        "The state of the first token is 500 times as large as those of the others at the entry of body.3, most in "
        "channel 4; sizes of states and branches here are without it."
    )
    assert "the last state is about as large as the first (without the first token)" in found["usual ends"].sentence
    assert "branches are 0.2 of their skips (without the first token)" in found["usual units"].sentence
    like_others = findings_of({"profile": leaning, "depth_use": depth_use(2.0)}, most=20)
    assert {"idle units", "state growth"} <= {finding.name for finding in like_others}
    assert "massive first token" not in {finding.name for finding in like_others}
