"""The studies of paper D: what they compute from datasets, and a whole run at its smallest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
import xarray

from skipscope.errors import InputError
from skipscope.models import build
from skipscope.papers.d.measured_networks import NetworkSettings, judged
from skipscope.papers.d.studies import law, noise, perturbations, projections, proportions, scaling, spectra, verify
from skipscope.papers.kit import SEEDS, Evidence, Study
from skipscope.papers.kit.running import run_studies
from skipscope.runs import load_run

SIZE, IMAGES = 40, 3


def require_all_quantities(study: Study, found: Evidence) -> None:
    """Evidence for each claim of the study, with all quantities that its criteria and controls refer to."""
    assert set(found) == set(study.claims)
    for claim, measured in found.items():
        assert {criterion.quantity for criterion in (*claim.criteria, *claim.controls)} <= set(measured)


def fake_spectra(title: str = "a network", large: int = 0, **changes: Any) -> xarray.Dataset:
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
        {"network": title, "large": large, **changes},
    )


def test_small_networks_do_not_vote_on_large_ones() -> None:
    small, large = fake_spectra(), fake_spectra("resnet56-cifar", large=1)
    assert judged([small, small]) == [small, small]
    assert judged([small, large]) == [large]


def test_spectra_are_compared_across_images_against_a_baseline() -> None:
    found = spectra.evidence([fake_spectra(), fake_spectra()])
    d4 = found[spectra.D4]
    assert d4[SEEDS] == 2
    assert len(d4[spectra.CORRELATION["spectra"]]) == 24
    assert numpy.allclose(d4[spectra.CORRELATION["spectra"]], 1)  # the images' spectra are proportional
    expected = numpy.std([1, 1.01, 1.02], ddof=1) / 1.01
    assert numpy.allclose(d4[spectra.SPREAD["spectra"]], expected)
    assert min(d4[spectra.ABOVE_BASELINE["spectra"]]) > 0
    single = fake_spectra().isel(sample=[0])
    assert spectra.evidence([single])[spectra.D4][spectra.CORRELATION["spectra"]] == []


def test_the_numbers_of_figure_one() -> None:
    found = spectra.evidence([fake_spectra("resnet56-cifar", 1), fake_spectra("resnet110-cifar-projection", 1)])
    ratio = 0.02 / numpy.mean([0.25, 0.3, 0.35])
    assert found[spectra.D5][spectra.DOWN_SAMPLING[2]] == pytest.approx([ratio, ratio])
    assert found[spectra.D5][SEEDS] == 2
    assert found[spectra.D6][spectra.STAGE_NEAR_ONE] == pytest.approx([0.01] * 6)
    stage = fake_spectra().sel(unit="stage 1")["value"].isel(sample=0)
    measured = found[spectra.D6][spectra.LARGEST_OVER_MEDIAN][0]
    assert measured == pytest.approx(float(stage.max() / stage.median()))
    assert len(found[spectra.D17][spectra.MEAN_VALUE]) == 2 * 10
    assert found[spectra.D18][spectra.RANK] == pytest.approx([0.8] * 14)
    assert found[spectra.D18][spectra.DISTANCE] == pytest.approx([0, 0, 0])
    require_all_quantities(spectra.STUDY, found)


def test_a_stage_of_low_rank_has_an_infinite_ratio() -> None:
    low = fake_spectra()
    low["rank"] = low["rank"] * 0
    found = spectra.evidence([low])[spectra.D6][spectra.LARGEST_OVER_MEDIAN]
    assert found == [numpy.inf] * 3


def test_trends_are_those_of_the_regular_units_of_each_stage() -> None:
    found = proportions.evidence([fake_spectra(), fake_spectra()])
    assert found[proportions.D7][proportions.ABOVE_ONE_TREND[2]] == pytest.approx([-1, -1])
    assert found[proportions.D8][proportions.NEAR_ONE_SLOPE[3]] == pytest.approx([0.05, 0.05])
    assert found[proportions.D9][proportions.ZEROS_SLOPE[1]] == pytest.approx([-0.05, -0.05])
    near = found[proportions.D2][proportions.NEAR_ONE]
    assert near[:4] == pytest.approx([0.1, 0.15, 0.2, 0.25])  # the first stage has no down-sampling unit
    assert len(near) == 14
    require_all_quantities(proportions.STUDY, found)


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
            "share_top10": (("kind", "project", "sample"), share),
        },
        {
            "kind": ["adversarial", "random"],
            "unit": units,
            "stage": ("unit", [1, 1, 2, 2, 3, 3]),
            "state": [*units, "exit of stage3.1"],
            "project": ["a", "b", "c"],
        },
        {"network": "a network", "large": 0},
    )


def test_growth_is_taken_from_the_start_to_the_end_of_a_stage() -> None:
    found = perturbations.evidence([fake_stability()])
    assert found[perturbations.D10][perturbations.RANDOM_GROWTH[2]] == pytest.approx([1.44])
    assert found[perturbations.D10][perturbations.GROWTH_RATIO[1]] == pytest.approx([1.5**2 / 1.44])
    assert found[perturbations.D11][perturbations.RANDOM_IN_STAGE_3] == pytest.approx([1.44])
    assert found[perturbations.D12][perturbations.LAST_GROWTH] == pytest.approx([1.5**3])
    assert found[perturbations.D13][perturbations.PREDICTED] == pytest.approx([1.02])
    assert found[perturbations.D13][perturbations.CORRELATION] == pytest.approx([1])
    require_all_quantities(perturbations.STUDY, found)


def test_projections_compare_the_last_unit_with_earlier_ones_and_with_random() -> None:
    found = projections.evidence([fake_stability()])
    assert found[projections.D14][projections.LAST_OVER_EARLIER] == pytest.approx([6])
    assert found[projections.D14][projections.ADVERSARIAL_OVER_RANDOM] == pytest.approx([3])
    require_all_quantities(projections.STUDY, found)


def test_the_peak_of_mixtures() -> None:
    shares = numpy.array([[0.1, 0.2, 0.4, 0.3, 0.2], [0.1, 0.2, 0.2, 0.3, 0.2]])[:, :, None, None, None]
    part = xarray.Dataset(
        {"share_near_one": (("mixture", "t", "unit", "draw", "sample"), shares)},
        {"mixture": ["convex", "norm"], "t": [0, 0.25, 0.5, 0.75, 1]},
        {"large": 0},
    )
    found = noise.evidence([part])
    assert found[noise.D16][noise.PEAK["convex"]] == pytest.approx([0.1])
    assert found[noise.D16][noise.PEAK["norm"]] == pytest.approx([-0.1])
    require_all_quantities(noise.STUDY, found)


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
    require_all_quantities(verify.STUDY, found)


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
        assert decision.measured, decision.id
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
    require_all_quantities(scaling.STUDY, found)


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
