"""The studies of paper D: what they compute from datasets, and a whole run at its smallest."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
import xarray

from skipscope.errors import InputError
from skipscope.models import build
from skipscope.papers.d.measured_networks import NetworkSettings, evidence_by_subject
from skipscope.papers.d.studies import law, noise, perturbations, projections, proportions, scaling, spectra, verify
from skipscope.papers.d.subjects import together
from skipscope.papers.d.summaries import summarised, summary
from skipscope.papers.kit import Claim
from skipscope.papers.kit.running import run_studies
from skipscope.runs import load_run

SIZE, IMAGES = 40, 3


def require_all_quantities(claims: Sequence[Claim], found: Mapping[Claim, Any]) -> None:
    """Evidence for each claim, with all quantities that its criteria and controls refer to."""
    assert set(found) == set(claims)
    for claim, measured in found.items():
        assert {criterion.quantity for criterion in claim.rules} <= set(measured)


def networks(*parts: xarray.Dataset) -> xarray.Dataset:
    return xarray.concat(parts, "network", combine_attrs="drop")


def fake_spectra(subject: str = "small", whole: int = 1, **changes: Any) -> xarray.Dataset:
    """Three stages of one projecting and three regular units, and the stages themselves.

    Regular unit k of stage s: shares near one 0.1 (s + 1) + 0.05 k, zeros 0.2 - 0.05 k, above one 0.3 - 0.1 k.
    """
    names, kind, skip, stage, near, zero, above = [], [], [], [], [], [], []
    for s in range(3):
        for k in range(4):
            names.append(f"stage{s + 1}.{k}")
            kind.append("unit")
            skip.append("projection" if k == 0 and s else "identity")
            stage.append(s + 1)
            near.append(0.02 if skip[-1] == "projection" else 0.1 * (s + 1) + 0.05 * k)
            zero.append(0.2 - 0.05 * k)
            above.append(0.3 - 0.1 * k)
    for s in range(3):
        names.append(f"stage {s + 1}")
        kind.append("stage")
        skip.append("")
        stage.append(s + 1)
        near.append(0.01)
        zero.append(0.1)
        above.append(0.5)
    count = len(names)
    ranks = numpy.linspace(1, 0.1, SIZE)
    powers = 1 + numpy.arange(count)  # every unit has a spectrum of its own shape
    values = numpy.stack([numpy.stack([2 * ranks**p * (1 + 0.01 * i) for i in range(IMAGES)]) for p in powers])
    pair = ("unit", "sample")

    def over_images(column: list[float]) -> tuple[tuple[str, str], numpy.ndarray]:
        return pair, numpy.repeat(numpy.array(column)[:, None], IMAGES, 1)

    return xarray.Dataset(
        {
            "value": ((*pair, "index"), values),
            "largest": (pair, values[:, :, 0]),
            "mean": (pair, values.mean(2)),
            "share_near_one": over_images(near),
            "share_zero": over_images(zero),
            "share_above": over_images(above),
            "rank": over_images([0.8 * SIZE] * count),
            "size": ("unit", numpy.full(count, SIZE)),
        },
        {"unit": names, "kind": ("unit", kind), "skip": ("unit", skip), "stage": ("unit", stage)},
        {"network": "a network", "subject": subject, "whole": whole, **changes},
    )


def fake_summaries() -> xarray.Dataset:
    """With the shares of fake_spectra, 0.02 of the values in each neighbour of 1, and a median of 0.5."""
    data = fake_spectra()
    found = summarised(data)
    for name in ("share_near_one", "share_zero", "share_above"):
        found[name] = data[name]
    beside = xarray.full_like(data["share_above"], 0.02)
    median = xarray.full_like(data["share_above"], 0.5)
    return found.assign(share_just_below=beside, share_just_above=beside, median_positive=median)


def test_subjects_are_never_pooled() -> None:
    small, large = fake_spectra(network_seed=1000), fake_spectra(subject="large", network_seed=1001)
    part = fake_spectra(subject="large", whole=0)
    found = evidence_by_subject([small, small, large, part], lambda data: {spectra.D17: {spectra.MEAN: data["mean"]}})
    first, second = found[spectra.D17]
    assert (first.subject, first.count, first.seeds) == ("small", 2, (1000, 1000))
    assert (second.subject, second.count, second.seeds) == ("large", 1, (1001,))
    assert first.values[spectra.MEAN].sizes["network"] == 2


def test_a_summary_of_a_spectrum() -> None:
    values = numpy.array([3.0, 1.02, 1.005, 1.0, 0.98, 0.5, 1e-9, 0.0])
    found = summary(values, 1e-8)
    shares = {name.removeprefix("share_"): 8 * value for name, value in found.items() if name.startswith("share")}
    expected = {"above": 2, "near_one": 2, "below": 2, "zero": 2, "one": 1, "just_below": 1, "just_above": 1}
    assert shares == expected
    assert found["mean_positive"] == pytest.approx((3 + 1.02 + 1.005 + 1 + 0.98 + 0.5) / 6)
    assert found["median_positive"] == pytest.approx((1.005 + 1.0) / 2)
    off = numpy.array([3.0, 1.02, 1.005, 0.98, 0.5])  # neither 0 nor 1
    assert found["quantile_off"][100] == pytest.approx(numpy.quantile(off, 0.5025))
    assert numpy.isnan(summary(numpy.zeros(3), 0.0)["mean_positive"])


def test_full_spectra_are_summarised_with_their_own_zeros() -> None:
    data = summarised(fake_spectra())
    assert data["share_zero"].sel(unit="stage1.2", sample=0) == pytest.approx(0.1)
    assert data["largest"].sel(unit="stage1.0", sample=1) == pytest.approx(2.02)
    assert dict(data.sizes) == {"unit": 15, "sample": IMAGES, "level": 200, "level_of_all": 512}
    assert list(data["skip"].values[:5]) == ["identity"] * 4 + ["projection"]


def test_spectra_are_compared_across_images_against_a_baseline() -> None:
    found = spectra.of_spectra(networks(fake_summaries(), fake_summaries()))[spectra.D4]
    assert found[spectra.CORRELATION["spectra"]] == pytest.approx([1, 1])  # the images' spectra are proportional
    expected = numpy.std([1, 1.01, 1.02], ddof=1) / 1.01
    assert found[spectra.SPREAD["spectra"]] == pytest.approx([expected, expected], rel=1e-4)
    assert min(found[spectra.ABOVE_BASELINE["spectra"]]) > 0
    assert found[spectra.SEEDS_SPREAD["spectra"]] == 0  # the same network twice
    single = networks(fake_summaries()).isel(sample=[0])
    assert spectra.of_spectra(single)[spectra.D4] == {}


def test_the_numbers_of_figure_one() -> None:
    data = networks(fake_summaries(), fake_summaries())
    counts = xarray.Dataset(
        {"deviation": (("network", "unit", "quantity"), [[[0.02], [0.04]]])}, {"quantity": ["ones"]}
    )
    random = xarray.Dataset({"mean_positive": (("network", "unit", "sample"), [[[1.0], [1.1]]])})
    three = networks(*(fake_summaries() for _ in range(3)))
    three["quantile"] = three["quantile"] * xarray.DataArray([1.0, 1.1, 1.2], dims="network")
    depths = spectra.depths_alike(three, three)
    assert spectra.depths_alike(data, three) == {spectra.D18: {}}  # two networks cannot be left out in turn
    found = together(spectra.of_spectra(data), spectra.of_counts(counts), spectra.of_random_weights(random), depths)
    ratio = 0.02 / numpy.mean([0.25, 0.3, 0.35])
    assert found[spectra.D5][spectra.DOWN_SAMPLING[2]].values == pytest.approx([ratio, ratio])
    assert found[spectra.D4][spectra.WIDTH_DEVIATION].values == pytest.approx([0.03])
    assert found[spectra.D17][spectra.MEAN_OF_RANDOM].values == pytest.approx([1.05])
    assert found[spectra.D18][spectra.RANK[1]].values == pytest.approx([1 - 0.125] * 2)
    require_all_quantities([spectra.D4, spectra.D5, spectra.D6, spectra.D17, spectra.D18], found)


def test_a_stage_has_a_plateau_if_more_values_are_near_one_than_beside() -> None:
    data = networks(fake_summaries())
    found = spectra.of_spectra(data)[spectra.D6]
    assert found[spectra.NEAR_OVER_BESIDE[1]] == pytest.approx([0.01 / 0.02])
    assert found[spectra.LARGEST_OVER_MEDIAN[2]].values == pytest.approx([2.02 / 0.5], rel=1e-2)
    assert spectra.near_over_beside(0.01, 0.0) == 1  # nothing beside: a share of 0.02 is no plateau
    assert spectra.near_over_beside(0.03, 0.0) == numpy.inf


def test_ranks_are_compared_between_stages() -> None:
    data = networks(fake_summaries())
    late = data["stage"] == 3
    data["share_zero"] = xarray.where(late, 0.5, data["share_zero"])
    found = spectra.of_spectra(data)[spectra.D18]
    early = numpy.mean([0.8, 0.85, 0.9, 0.95, 0.85, 0.9, 0.95])
    assert found[spectra.LATE_RANK].values == pytest.approx([0.5 - early])


def test_the_distance_of_depths_is_measured_in_distances_of_seeds() -> None:
    """Spectra 1, 1.1 and 1.21 of one depth, and twice as large ones of the other."""
    data = networks(*(fake_summaries() for _ in range(3)))
    scale = xarray.DataArray([1.0, 1.1, 1.21], dims="network")
    data["quantile"] = data["quantile"] * scale
    found = spectra.depths_alike(data, data.assign(quantile=2 * data["quantile"]))[spectra.D18][spectra.DISTANCE[1]]
    seeds = numpy.mean([1 - 1 / 1.1, 1 - 1 / 1.21, 1 - 1 / 1.1])
    depths = numpy.mean([1 - a / (2 * b) for a in (1, 1.1, 1.21) for b in (1, 1.1, 1.21)])
    assert found.value == pytest.approx(depths / seeds, rel=1e-5)
    assert found.n == 6


def test_trends_are_those_of_the_regular_units() -> None:
    data = networks(fake_summaries(), fake_summaries())
    counts = xarray.Dataset(
        {"mean": (("network", "unit", "quantity"), [[[0.1 * k, 0.3 - 0.1 * k] for k in range(9)]])},
        {"quantity": ["ones", "zeros"], "stage": ("unit", [1, 1, 1, 2, 2, 2, 3, 3, 3])},
    )
    found = together(proportions.of_spectra(data), proportions.of_counts(counts))
    assert found[proportions.D7][proportions.ABOVE_ONE_IN_STAGE[2]] == pytest.approx([-1, -1])
    assert found[proportions.D8][proportions.NEAR_ONE_SLOPE[3]] == pytest.approx([0.05, 0.05])
    assert found[proportions.D8][proportions.ONES_SLOPE[2]] == pytest.approx([0.1])
    assert found[proportions.D9][proportions.ZEROS_SLOPE[3]] == pytest.approx([-0.1])
    assert found[proportions.D9][proportions.ZERO_SHARE_SLOPE[1]] == pytest.approx([-0.05, -0.05])
    # Units of stages 1 and 2 near 1: .1, .15, .2, .25 (the first stage has no down-sampling unit) and .25, .3, .35.
    assert found[proportions.D2][proportions.WITH_PLATEAU].values == pytest.approx([2 / 7, 2 / 7])
    assert found[proportions.D2][proportions.WITH_MOST].values == pytest.approx([0, 0])
    assert found[proportions.D2][proportions.DOWN_NEAR_ONE].values == pytest.approx([0.02, 0.02])
    require_all_quantities([proportions.D2, proportions.D7, proportions.D8, proportions.D9], found)


def fake_stability() -> xarray.Dataset:
    """Six units in three stages; adversarial changes grow by 1.5 a unit, random ones by 1.2, three images."""
    units = [f"stage{s}.{k}" for s in (1, 2, 3) for k in range(2)]
    growth = numpy.array([1.5, 1.2])[:, None, None]
    rms = growth ** numpy.arange(7)[None, :, None] * numpy.array([1.0, 2.0, 3.0])
    actual = numpy.broadcast_to(growth, (2, 6, 3)) * numpy.linspace(0.9, 1.1, 18).reshape(6, 3)
    share = numpy.array([[0.1, 0.2, 0.9], [0.1, 0.1, 0.3]])[:, :, None] * numpy.ones(3)
    return xarray.Dataset(
        {
            "rms": (("kind", "state", "sample"), rms),
            "actual": (("kind", "unit", "sample"), actual),
            "predicted": (("kind", "unit", "sample"), 1.02 * actual),
            "projection": (("kind", "project", "sample", "index"), numpy.sqrt(share[..., None] * [0.25, 0.75])),
        },
        {
            "kind": ["adversarial", "random"],
            "unit": units,
            "stage": ("unit", [1, 1, 2, 2, 3, 3]),
            "skip": ("unit", ["identity", "identity", "projection", "identity", "projection", "identity"]),
            "state": [*units, "exit of stage3.1"],
            "project": ["a", "b", "c"],
        },
        {"network": "a network", "large": 0},
    )


def test_growth_is_taken_from_the_start_to_the_end_of_a_stage() -> None:
    found = perturbations.of_perturbations(networks(fake_stability()))
    entry, exit_ = perturbations.STARTS
    d10, d11, d12, d13 = (found[claim] for claim in found)
    assert d10[perturbations.RANDOM_GROWTH[2, entry]].values == pytest.approx([1.44])
    assert d10[perturbations.RANDOM_GROWTH[2, exit_]].values == pytest.approx([1.2])
    assert d10[perturbations.GROWTH_RATIO[1, entry]].values == pytest.approx([1.5**2 / 1.44])
    assert d11[perturbations.RANDOM_GROWTH[3, entry]].values == pytest.approx([1.44])
    assert d12[perturbations.LAST_GROWTH].values == pytest.approx([1.5**3])
    assert d12[perturbations.LAST_OVER_MEDIAN].values == pytest.approx([1])  # one regular unit in stage 3
    assert d13[perturbations.PREDICTED].values == pytest.approx([1.02])
    assert d13[perturbations.CORRELATION] == pytest.approx([1])
    require_all_quantities([perturbations.D10, perturbations.D11, perturbations.D12, perturbations.D13], found)


def test_the_last_unit_is_compared_with_the_median_regular_one() -> None:
    data = networks(fake_stability())
    data["skip"] = ("unit", ["identity"] * 6)
    data["stage"] = ("unit", [1, 2, 3, 3, 3, 3])
    growth = xarray.DataArray([9.0, 9.0, 1.0, 2.0, 3.0, 5.0], dims="unit")
    data["actual"] = xarray.ones_like(data["actual"]) * growth
    found = perturbations.of_perturbations(data)[perturbations.D12][perturbations.LAST_OVER_MEDIAN]
    assert found.values == pytest.approx([5 / 2.5])


def test_projections_compare_the_last_unit_with_earlier_ones_and_with_random() -> None:
    """A quarter of each share is in the leading vector."""
    data = networks(fake_stability())["projection"].rename(project="unit")
    found = projections.of_projections(data)
    assert found[projections.D14][projections.SHARE_AT_LAST[1]].values == pytest.approx([0.9 / 4])
    assert found[projections.D14][projections.SHARE_AT_LAST[10]].values == pytest.approx([0.9])
    for top in (1, 10):
        assert found[projections.D14][projections.LAST_OVER_EARLIER[top]].values == pytest.approx([6])
        assert found[projections.D14][projections.ADVERSARIAL_OVER_RANDOM[top]].values == pytest.approx([3])
    require_all_quantities([projections.D14], found)


def test_the_peak_of_mixtures() -> None:
    """Three units: the largest share at t = 0.5, at t = 0.75, and one that never has a plateau."""
    peaks = numpy.array([[0.1, 0.2, 0.4, 0.3, 0.2], [0.1, 0.2, 0.2, 0.3, 0.2], [0, 0, 0.9, 0, 0]]).T
    shares = numpy.stack([peaks, numpy.roll(peaks, 1, axis=0)])[None, :, :, :, None, None]
    ones = shares * numpy.array([1, 1, 0])[:, None, None]
    names = ("network", "mixture", "t", "unit", "draw", "sample")
    part = xarray.Dataset(
        {"share_near_one": (names, shares), "share_one": (names, ones)},
        {"mixture": ["convex", "norm"], "t": [0, 0.25, 0.5, 0.75, 1]},
    )
    found = noise.of_mixtures(part)
    assert found[noise.D16][noise.PEAKS_IN_MIDDLE["convex"]] == pytest.approx([1 / 2])
    assert found[noise.D16][noise.PEAKS_IN_MIDDLE["norm"]] == pytest.approx([0])
    assert found[noise.D16][noise.WITHOUT_PLATEAU["convex"]].values == pytest.approx([1])
    assert found[noise.D16][noise.BEST["convex"]].values == pytest.approx([1.75 / 3])
    counts = part[["share_one"]].rename(share_one="ones").isel(draw=0, sample=0)
    exact = noise.of_counts(counts)[noise.D16]
    assert exact[noise.EXACT_IN_MIDDLE["convex"]] == pytest.approx([1 / 2])
    require_all_quantities([noise.D16], found)


def test_verification_counts_every_jacobian() -> None:
    def part(seen: list[str], rejected: bool = True) -> xarray.Dataset:
        column = ("unit", numpy.ones(len(seen)))
        return xarray.Dataset(
            {"seen": ("unit", numpy.array(seen, dtype=object)), "slope_zeroth": column, "adjoint_error": column},
            attrs={"control_passed": int(not rejected)},
        )

    found = verify.evidence([part(["smooth"]), part(["wrong", "not a derivative", "linear"])])
    assert found[verify.D1][verify.JACOBIANS] == 4
    assert found[verify.D1][verify.REJECTED] == 2
    assert found[verify.D1][verify.CONTROL_REJECTED] is True
    accepted = verify.evidence([part(["smooth"]), part(["smooth"], rejected=False)])
    assert accepted[verify.D1][verify.CONTROL_REJECTED] is False
    require_all_quantities(verify.STUDY.claims, found)


# -- networks whose weights are given


def cifar(root: Path, images: int = 6) -> Path:
    """A CIFAR-10 of random images, in the publisher's layout."""
    folder = root / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    generator = torch.Generator("cpu").manual_seed(0)
    for name in (*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"):
        records = torch.randint(256, (images, 3073), generator=generator, dtype=torch.uint8)
        records[:, 0] = torch.arange(images) % 10
        (folder / f"{name}.bin").write_bytes(records.numpy().tobytes())
    return root


def test_weights_that_are_given_are_looked_at_too(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    torch.manual_seed(0)
    save_file(build("resnet8-cifar-n8").state_dict(), tmp_path / "net.safetensors")
    changes = {
        "weights": f"resnet8-cifar-n8:{tmp_path / 'net.safetensors'}",
        "data": f"cifar10:{cifar(tmp_path / 'data')}",
        "units": "stage3.0",
        "large_images": "2",
        "networks": "0",
    }
    outcome = run_studies("D.spectra", tmp_path / "run", preset="smoke", changes=changes)
    dataset = load_run(outcome.folder).dataset("spectra-resnet8-cifar-n8-0")
    assert list(dataset["unit"].values) == ["stage3.0"]
    assert dataset.sizes["sample"] == 2
    assert "of 2" in dataset.attrs["right_answers"]


@pytest.mark.parametrize(
    ("weights", "message"), [("nowhere.pt", "no weights file nowhere.pt"), ("resnet8-digits:a.pt", "network for cifar")]
)
def test_wrong_weights_are_refused_before_any_work(weights: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        run_studies("D.verify", tmp_path / "run", preset="smoke", changes={"weights": weights})
    assert not (tmp_path / "run").exists()
    with pytest.raises(InputError, match="images: expected at least 1, got 0"):
        NetworkSettings(images=0)


# -- the whole paper


@pytest.mark.slow
def test_all_studies_into_one_folder(tmp_path: Path) -> None:
    from skipscope.report import write_report

    outcome = run_studies("D", tmp_path / "run", preset="smoke")
    assert [decision.id for decision in outcome.decisions] == [f"D{k}" for k in range(1, 19)]
    assert {decision.verdict for decision in outcome.decisions} == {"open"}
    for decision in outcome.decisions:
        assert decision.measured or decision.id in ("D8", "D9"), decision.id  # two units have no slope
        assert decision.reason, decision.id
    claims = json.loads((tmp_path / "run" / "claims.json").read_text())
    assert len(claims) == 18
    text = write_report(tmp_path / "run").read_text()
    assert "The exact law" in text
    figures = {path.stem for path in (tmp_path / "run" / "figures").glob("*.html")}
    for kind in ("scree", "proportions", "growth", "prediction", "projections", "plateau", "mixtures", "law"):
        assert [name for name in figures if name.endswith(kind)], (kind, figures)
    by_claim = {decision.id: decision.measured for decision in outcome.decisions}
    assert by_claim["D1"]["Jacobians with r1 neither of slope 1.9 nor at rounding"] == 0
    assert by_claim["D3"]["bounds violated"] == 0
    assert by_claim["D15"]["pairs with fewer"] == 0


def test_scaling_counts_at_the_factor() -> None:
    dims = ("alpha", "unit")
    part = xarray.Dataset(
        {
            "generic": (dims, numpy.array([[1, 0], [1, 1]])),
            "counted": (dims, numpy.array([[7, 3], [8, 4]])),
            "proved": (dims, numpy.array([[7, 0], [7, 5]])),
            "correlation": (dims, numpy.array([[0.5, numpy.nan], [1, 1]])),
            "departure": (dims, numpy.array([[0.25, numpy.nan], [0, 0]])),
        },
        {"alpha": [0.5, 1.0]},
    )
    found = scaling.evidence([part])
    counts = found[scaling.D15]
    assert counts[law.GENERIC_PAIRS] == 3
    assert counts[scaling.WITHOUT_EQUALITY] == 2
    assert counts[scaling.WITH_FEWER] == 1
    assert counts[scaling.CORRELATION] == [0.5]
    assert counts[scaling.DISTANCE] == [0.25]
    require_all_quantities(scaling.STUDY.claims, found)


def test_the_others_are_compared_without_the_plateau_and_the_zeros() -> None:
    unscaled = torch.tensor([[4.0, 3.0, 2.0, 1.0, 1.0, 0.5, 0.0]], dtype=torch.float64)
    correlation, distance = scaling.others_at(2 * unscaled, unscaled, 2.0)
    assert (float(correlation), float(distance)) == (pytest.approx(1), 0)
    moved = torch.tensor([[9.0, 6.0, 4.0, 2.0, 2.0, 0.5, 0.0]], dtype=torch.float64)
    correlation, distance = scaling.others_at(moved, unscaled, 2.0)
    mine, scaled = numpy.array([9, 6, 4, 0.5]), numpy.array([8, 6, 4, 1])
    assert float(correlation) == pytest.approx(numpy.corrcoef(mine, scaled)[0, 1])
    assert float(distance) == 0  # torch's median takes the lower of the two in the middle: 0, 0, 0.125, 0.5
    assert bool(torch.isnan(scaling.others_at(unscaled[:, 3:5], unscaled[:, 3:5], 1.0)[0]))


@pytest.mark.parametrize(
    ("study", "changes", "message"),
    [
        ("D.noise", {"mixing": "0,1"}, "mixing: expected 0.5 among them, got 0.0, 1.0"),
        ("D.noise", {"stages": "4"}, "stages: expected some of 1, 2, 3, got 4"),
        ("D.perturbations", {"perturbed": "0"}, "perturbed: expected at least 1, got 0"),
        ("D.projections", {"pictured": "0"}, "pictured: expected at least 1, got 0"),
        ("D.scaling", {"factors": "0,1"}, "factors: expected none that is zero"),
        ("D.law", {"random_model": "resnet8-cifar"}, "network for digits"),
        ("D.law", {"networks": "-1"}, "networks: expected at least 0, got -1"),
    ],
)
def test_wrong_settings_are_refused_before_any_work(
    study: str, changes: dict[str, str], message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        run_studies(study, tmp_path / "run", preset="smoke", changes=changes)
    assert not (tmp_path / "run").exists()
