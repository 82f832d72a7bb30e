"""The studies of paper C that train: subjects and their rates, condition numbers against dense ones, and whole runs at
their smallest."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from math import nan
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import torch
import xarray

from skipscope.errors import InputError
from skipscope.measure import conditioning
from skipscope.models import names
from skipscope.papers.c import layer_conditions, twins
from skipscope.papers.c import subjects as networks
from skipscope.papers.c.studies import dirac, hidden, histograms, weights
from skipscope.papers.c.studies.accuracy import STUDY as ACCURACY
from skipscope.papers.c.studies.deeper import STUDY as DEEPER
from skipscope.papers.c.studies.dirac import STUDY as DIRACNETS
from skipscope.papers.c.studies.generalisation import STUDY as GENERALISATION
from skipscope.papers.c.studies.generalisation import GeneralisationSettings
from skipscope.papers.c.studies.hidden import STUDY as HIDDEN
from skipscope.papers.c.studies.histograms import STUDY as HISTOGRAMS
from skipscope.papers.c.studies.histograms import HistogramSettings
from skipscope.papers.c.studies.linear import STUDY as LINEAR
from skipscope.papers.c.studies.weights import STUDY as WEIGHTS
from skipscope.papers.c.subjects import FOUR_PATHS, PATHS, PLAIN, RESIDUAL, SMOKE, Recipe, TwinSettings, subject
from skipscope.papers.kit import Bench, Claim, Evidence, Measured, Study
from skipscope.papers.kit.running import together
from skipscope.runs import RunFolder, load_run
from skipscope.training import accuracy as accuracy_of
from tests.papers.c.named import by_name, decided

STUDIES = (ACCURACY, HISTOGRAMS, WEIGHTS, HIDDEN, LINEAR, DEEPER, DIRACNETS, GENERALISATION)
TINY = TwinSettings(**{**SMOKE, "subjects": ("digits-4-connected-n4",), "titles": (PLAIN, RESIDUAL)})
TITLES = (PLAIN, RESIDUAL, PATHS)
INFINITY = 1e12


DECIDED_BY = {claim.id: study for study in STUDIES for claim in study.claims}


# -- condition numbers


def test_condition_numbers_are_those_of_dense_matrices() -> None:
    torch.manual_seed(0)
    model = names.build("resnet8-digits-connected-n4").eval()
    with torch.no_grad():
        model.stage1[1].norm1.weight[3] = 0.0  # a unit inside a branch that is zero for every image
    images = torch.randn(400, 1, 8, 8)
    found = layer_conditions.conditions(model, images)
    states, h = [], model.stem(images.double())
    states.append(h)
    for block in model.stage1:
        states.append(torch.relu(block.norm1(block.linear1(h))))
        h = block(h)
        states.append(h)
    states.append(model.head(h))
    matrices = [model.first.weight, *(w for b in model.stage1 for w in (b.linear1.weight, b.linear2.weight))]
    for name, tensors in (("hidden", states), ("weight", [*matrices, model.classifier.weight])):
        assert len(found[f"{name}_condition"]) == len(tensors) == 8
        for place, tensor in enumerate(tensors):
            matrix = tensor.detach().numpy()
            values = numpy.linalg.svd(matrix, compute_uv=False)
            zero = int((matrix == 0).all(0).sum())
            if name == "hidden":
                assert found["dead_units"][place] == zero
                alive = numpy.linalg.svd(matrix[:, (matrix != 0).any(0)], compute_uv=False)
                if found["alive_status"][place] == "finite":
                    assert found["alive_condition"][place] == pytest.approx(alive[0] / alive[-1], rel=1e-9)
                assert found["hidden_rank"][place] == numpy.linalg.matrix_rank(matrix)
            assert (found[f"{name}_status"][place] == "infinite") == bool(zero)
            if not zero:
                assert found[f"{name}_condition"][place] == pytest.approx(values[0] / values[-1], rel=1e-9)
            longest = max(tensor.shape)
            assert found[f"{name}_infinity"][place] == 1 / (numpy.finfo(float).eps * longest)
    assert found["dead_units"][3] >= 1
    assert (found["hidden_status"][3], found["alive_status"][3]) == ("infinite", "finite")
    assert (found["hidden_status"] == "finite").sum() >= 4
    assert found["between"].tolist() == [True, False, True, False, True, False, True, False]


def test_plainnet_and_resnet_have_the_same_layers() -> None:
    images = torch.rand(20, 1, 8, 8)
    rows = [
        layer_conditions.conditions(names.build(name).eval(), images)
        for name in ("resnet8-digits-n4-projection", "plainnet8-digits-n4")
    ]
    assert [len(row["weight_condition"]) for row in rows] == [8, 8]
    assert rows[0]["between"].tolist() == rows[1]["between"].tolist()


# -- forms


def test_networks_without_norms_are_reported_of_fewer_seeds() -> None:
    settings = HistogramSettings(networks=3, other_networks=2, linear_titles=TITLES, forms=tuple(histograms.FORMS))
    assert [settings.seeds_of("mnist-60-connected", form) for form in settings.ordered_forms] == [3, 3, 2, 2]
    assert [settings.of_form(form).titles for form in settings.forms] == [TITLES, TITLES, *[(PLAIN, RESIDUAL)] * 2]
    with pytest.raises(InputError, match="forms: expected some of relu, linear, nonorm, linear-nonorm, got relu, bare"):
        replace(settings, forms=("relu", "bare"))


def test_linear_networks_have_epochs_of_their_own() -> None:
    settings = HISTOGRAMS.presets["full"]
    assert [settings.of_form(form).epochs for form in histograms.FORMS] == [60, 20, 60, 20]
    assert HISTOGRAMS.presets["quick"].of_form("linear").epochs == LINEAR.presets["quick"].epochs


def test_quick_trains_the_networks_of_other_studies() -> None:
    """So that a run of the whole paper trains them once: of the same rates, looks and seeds."""
    for form, study in (("relu", ACCURACY), ("linear", LINEAR)):
        ours, theirs = HISTOGRAMS.presets["quick"].of_form(form), study.presets["quick"]
        assert replace(ours, subjects=theirs.subjects) == theirs


def test_forms_have_one_order() -> None:
    """The first ones decide, whatever the order in which they are named."""
    assert HistogramSettings(forms=("nonorm", "relu", "nonorm")).ordered_forms == ["relu", "nonorm"]


# -- DiracNets


def test_the_identity_of_a_diracnet() -> None:
    for name, count in (("diracnet8-digits-connected-n4", 6), ("diracnet8-digits-connected-n4-additive", 6)):
        model = names.build(name)
        assert torch.equal(dirac.identity_factors(model), torch.ones(16 * count))
    assert dirac.identity_factors(names.build("resnet8-digits-connected-n4")).numel() == 0


def test_the_distance_of_the_last_state() -> None:
    images = torch.rand(5, 1, 8, 8)
    model = names.build("diracnet8-digits-connected-n4").eval().requires_grad_(False)
    first = model.stem(images)
    last = model.stage1(first)
    expected = ((last - first).norm(dim=1) / first.norm(dim=1)).mean()
    assert dirac.distance(model, images) == pytest.approx(float(expected), rel=1e-6)
    stages = names.build("resnet14-digits-n4").eval().requires_grad_(False)
    h, moved = stages.stem(images), []
    for stage in (stages.stage1, stages.stage2, stages.stage3):
        start = h if stage is stages.stage1 else stage[0](h)
        h = stage(h)
        moved.append(float(((h - start).flatten(1).norm(dim=1) / start.flatten(1).norm(dim=1)).mean()))
    assert dirac.distance(stages, images) == pytest.approx(numpy.mean(moved), rel=1e-5)


# -- subjects


@pytest.fixture(name="bench")
def _bench(tmp_path: Path) -> Iterator[Bench]:
    with RunFolder(tmp_path / "run", "study C") as run:
        yield Bench("C.accuracy", run, preset="smoke", seed=1, device="cpu")


def test_a_subject_says_what_it_is(bench: Bench) -> None:
    of = subject(bench, replace(TINY, titles=TITLES), "digits-6-connected-n4-linear")
    assert dict(of.models) == {
        title: f"{family}6-digits-connected-n4-linear" for title, family in networks.FAMILIES.items()
    }
    assert of.title == "6 layers, fully connected, n4, linear units, on digits, 100 samples"
    assert (of.depth, of.epochs, of.looks, of.seeds) == (6, 1, (), (2000,))
    long = subject(bench, replace(TINY, epochs=2, least_steps=9), "digits-6-connected")
    assert (long.epochs, long.looks) == (5, (1,))
    assert subject(bench, replace(TINY, titles=(dirac.ADDITIVE,)), "digits-8").models == {
        dirac.ADDITIVE: "diracnet8-digits-additive"
    }
    ways = [TINY, replace(TINY, rates=(0.2,)), replace(TINY, images=40), replace(TINY, titles=(PLAIN,))]
    keys = [subject(bench, way, "digits-4-connected-n4").key("cpu") for way in ways]
    assert len(set(keys)) == len(keys)
    images, labels = of.samples("cpu")
    assert (len(images), numpy.bincount(labels).tolist()) == (50, [5] * 10)
    few = subject(bench, replace(TINY, samples=None, test_samples=100), "digits-4-connected-n4").data
    assert (len(few.train) > 1000, len(few.test)) == (True, 100)


def test_digits_stand_in_for_mnist(bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SKIPSCOPE_DATA", str(tmp_path / "nothing"))
    of = subject(bench, TINY, "mnist-8-connected-n4")
    assert of.models[PLAIN] == "plainnet8-digits-connected-n4"
    assert "digits stand in" in load_run(bench.run.path).record["notes"][0]


@pytest.mark.parametrize("text", ["mnist", "mnist-", "60-connected", "mnist-connected", "mnist-60_connected", ""])
def test_bad_subjects_are_named(text: str) -> None:
    with pytest.raises(InputError, match=f"subject '{text}': expected a data set, a depth and options"):
        replace(TINY, subjects=(text,))


def test_paths_and_data_of_subjects() -> None:
    assert networks._parts("imagenet-101:/data/image-net-1") == ("imagenet", 101, "", "/data/image-net-1")
    assert networks._parts("fashion-mnist-60-connected") == ("fashion-mnist", 60, "-connected", "")
    assert networks._parts("cifar100-110-n2-scale10") == ("cifar100", 110, "-n2-scale10", "")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"subjects": ()}, "subjects: expected at least one value, got none"),
        ({"most_networks_of": ("mnist-8",)}, "most_networks_of: expected some of the subjects digits-4.*, got mnist-8"),
        ({"titles": ("AlexNet",)}, "titles: expected some of PlainNet, .*, got AlexNet"),
        ({"titles": ()}, "titles: .* got none"),
        ({"samples": 0}, "samples: expected at least 1, got 0"),
        ({"networks": 0}, "networks: expected at least 1, got 0"),
        ({"images": -1}, "images: expected at least 1, got -1"),
        ({"epochs": 0}, "epochs: expected at least 1, got 0"),
        ({"rates": ()}, "rates: expected at least one value, got none"),
        ({"rates": (-0.1,)}, "rate: expected above 0, got -0.1"),
        ({"looks": (3, 1)}, "looks: expected values that rise, none twice, got 3, 1"),
        ({"looks": (0, 1)}, "looks: expected each at least 1, got 0, 1"),
        ({"augmentation": "mirrors"}, "augmentation: expected one of none, .* got 'mirrors'"),
        ({"schedule": "weekly"}, "schedule: expected one of cosine, .* got 'weekly'"),
        ({"test_samples": 0}, "test_samples: expected at least 1, got 0"),
    ],
)
def test_bad_settings_are_named(change: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        replace(TINY, **change)


# -- rates that are chosen on a calibration seed

FAST, MIDDLE, SLOW = Recipe(0.1), Recipe(0.01, 2), Recipe(0.001)


def test_recipes_are_ranked_by_train_accuracy() -> None:
    assert twins.best_first([FAST, MIDDLE, SLOW], [nan, 0.2, 0.3]) == [SLOW, MIDDLE, FAST]
    assert twins.best_first([FAST, MIDDLE, SLOW], [0.3, 0.3, 0.3]) == [FAST, MIDDLE, SLOW]
    assert [str(recipe) for recipe in (FAST, MIDDLE)] == ["0.1", "0.01, 2 of warm-up"]


def test_the_best_of_both_twins_go_on_and_they_are_measured_at_resnets() -> None:
    ranked = {PLAIN: [FAST, SLOW, MIDDLE], RESIDUAL: [MIDDLE, FAST, SLOW]}
    found = twins.choice(ranked, TITLES, 2, equal=True)
    assert found.go_on == (MIDDLE, FAST)
    assert found.measured == dict.fromkeys(TITLES, MIDDLE)
    # PlainNet's next best, where both agree.
    agreed = twins.choice({PLAIN: [MIDDLE, SLOW, FAST], RESIDUAL: [MIDDLE, FAST, SLOW]}, TITLES, 2, equal=True)
    assert agreed.go_on == (MIDDLE, SLOW)
    assert twins.choice({PLAIN: [SLOW, FAST]}, (PLAIN,), 1, equal=True).go_on == (SLOW,)
    own = twins.choice(ranked, (PLAIN, RESIDUAL), 2, equal=False)
    assert (own.go_on, own.measured) == ((FAST, MIDDLE), {PLAIN: FAST, RESIDUAL: MIDDLE})


def test_calibration_is_on_a_seed_of_its_own(bench: Bench) -> None:
    settings = replace(TINY, rates=(0.5, 1e-6), warmups=(0, 1), epochs=3, least_steps=8, calibration_epochs=2)
    of = subject(bench, settings, "digits-4-connected-n4")
    assert (of.training(Recipe(0.5)).epochs, of.calibration(PLAIN, Recipe(0.5)).training.epochs) == (4, 2)
    found = twins.calibration(bench, of)
    assert found["train_accuracy"].shape == (2, 4)
    assert (found.attrs["seed"], found["rate"].values.tolist()) == (0, [0.5, 0.5, 1e-6, 1e-6])
    assert found["warmup"].values.tolist() == [0, 1, 0, 1]
    expected = accuracy_of(of.calibration(PLAIN, Recipe(0.5, 1)).trained(bench, 0).model, of.data.train)
    assert float(found["train_accuracy"].sel(network=PLAIN)[1]) == expected
    table = twins.twins(bench, of)
    assert (table.sizes["rate"], table["seed"].values.tolist()) == (2, [2000])
    # Both twins at one rate.
    assert len(set(table["best_rate"].values.ravel())) == len(set(table["best_warmup"].values.ravel())) == 1


def test_networks_that_diverge_are_measured_at_their_last_look() -> None:
    assert twins.last_epoch(network(1, 3), 6) == 6
    assert twins.last_epoch(network(1, 3, diverged=True), 6) == 3
    assert twins.last_epoch(network(diverged=True), 6) == 0


def network(*snapshots: int, diverged: bool = False) -> Any:
    return SimpleNamespace(diverged=diverged, snapshots={epoch: {} for epoch in snapshots})


def test_diverged_networks_are_measured_before_the_training_and_the_run_says_so(bench: Bench) -> None:
    of = subject(bench, replace(TINY, rates=(1e30,), titles=(PLAIN,)), "digits-4-connected-n4-nonorm")
    table = twins.twins(bench, of)
    assert table["status"].values.tolist() == [[["diverged"]]]
    assert numpy.isnan(table["train_accuracy"]).all()
    assert table["reached_epoch"].values.tolist() == [[0]]
    assert 0 <= table["reached_train_accuracy"].item() < 0.5
    reached = twins.reached(bench, of, PLAIN, of.seeds[0], table)
    initial = of.twin(PLAIN, Recipe(1e30)).network(of.seeds[0], "cpu").initial()
    assert torch.equal(reached.at(reached.epoch).first.weight, initial.first.weight)
    assert reached.looks == (0,)
    notes = load_run(bench.run.path).record["notes"]
    assert any("diverged: it is measured after 0 of 1 epochs" in note for note in notes)
    found = histograms.gradient_ranks(bench, of, 20)
    assert found.attrs["samples"] == 20 < of.settings.images
    ranks = found["error_share"].sel(network=PLAIN)
    assert numpy.isfinite(ranks.sel(when="at initialisation")).all()
    assert numpy.isnan(ranks.sel(when="early in training")).all()


def test_each_rate_has_its_accuracy(bench: Bench) -> None:
    settings = replace(TINY, rates=(0.5, 1e-6), epochs=3, calibration_epochs=3, titles=(RESIDUAL,))
    of = subject(bench, settings, "digits-4-connected")
    table = twins.twins(bench, of).isel(network=0, seed=0)
    assert float(table["best_rate"]) == 0.5
    assert float(table["reached_train_accuracy"]) == float(table["train_accuracy"].sel(rate=0.5))
    assert float(table["train_accuracy"].sel(rate=0.5)) > float(table["train_accuracy"].sel(rate=1e-6))
    assert float(table["reached_test_accuracy"]) == float(table["test_accuracy"].sel(rate=0.5))
    assert table["loss"].sizes["epoch"] == 3
    kept = twins.reached(bench, of, RESIDUAL, of.seeds[0], twins.twins(bench, of))
    assert kept.looks == (0, 1, 3)
    answers = kept.at(3)(of.data.test.images())
    expected = torch.nn.functional.cross_entropy(answers, of.data.test.labels)
    assert float(table["test_loss_along"][2]) == pytest.approx(float(expected.detach()), rel=1e-5)
    assert table["test_loss_along"].notnull().values.tolist() == [True, False, True]
    weight = [kept.at(epoch).first.weight for epoch in kept.looks]
    assert not torch.equal(weight[0], weight[1])
    assert not torch.equal(weight[1], weight[2])


# -- whole runs


@pytest.fixture(name="whole", scope="module")
def _whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Evidence]:
    """All studies at their smallest, in one run."""
    found: dict[Claim, list[Measured]] = {}
    with RunFolder(tmp_path_factory.mktemp("c") / "run", "study C") as run:
        for study in STUDIES:
            bench = Bench(study.id, run, preset="smoke", seed=0, device="cpu")
            for claim, measured in study.evidence(bench, study.presets["smoke"]).items():
                found[claim] = together(found.get(claim, ()), measured)
    return run.path, found


def test_every_claim_finds_its_quantities(whole: tuple[Path, Evidence]) -> None:
    assert set(whole[1]) == {claim for study in STUDIES for claim in study.claims}
    for claim, found in whole[1].items():
        assert found
        for measured in found:
            assert isinstance(measured, Measured)
            assert {criterion.quantity for criterion in claim.rules} <= set(measured.values)
            assert min(measured.seeds) >= 1000
        assert decided(DECIDED_BY[claim.id], claim.id, whole[1], "smoke").verdict == "open"


DIMENSIONS = {
    "twins": {"network", "seed", "rate", "epoch"},
    "layer_conditions": {"network", "seed", "layer"},
    "distributions": {"network", "what", "layer", "quantile", "bin", "epoch"},
    "gradient_ranks": {"network", "seed", "when", "layer"},
    "drift": {"network", "seed"},
    "generalisation": {"case"},
}


def test_datasets_are_what_the_report_expects(whole: tuple[Path, Evidence]) -> None:
    saved = load_run(whole[0])
    kinds: dict[str, list[xarray.Dataset]] = {}
    for name in saved.names:
        dataset = saved.dataset(name)
        kinds.setdefault(str(dataset.attrs.get("measure", "")), []).append(dataset)
    for measure, dimensions in DIMENSIONS.items():
        assert kinds[measure]
        for dataset in kinds[measure]:
            assert set(dataset.dims) == dimensions
            assert {"title", "data"} <= set(dataset.attrs)
    # Six layers: the same in all studies, and one subject with linear units, one that is deeper.
    assert sorted(dataset.sizes["layer"] for dataset in kinds["layer_conditions"]) == [6, 6, 8]
    shown = [name for dataset in kinds["distributions"] for name in dataset["network"].values]
    assert len(set(shown)) == len(shown) == 5
    for dataset in kinds["twins"]:
        assert set(json.loads(dataset.attrs["models"])) == set(dataset["network"].values)
        assert dataset.attrs["chance"] == pytest.approx(0.1)
        assert dataset.attrs["paper_train"] == ""


def test_the_papers_numbers_stand_beside_its_own_networks() -> None:
    assert set(twins.PAPER) >= {"mnist-110", "cifar10-110", "cifar100-110", "imagenet-101"}
    assert twins.PAPER["cifar100-110"][RESIDUAL] == (0.9984, 0.7227)
    assert twins.in_tables("cifar10-110", TITLES) == (twins.PAPER["cifar10-110"], "")
    assert twins.in_tables("mnist-60-connected", TITLES) == ({}, "")


def test_the_papers_numbers_stand_beside_other_forms_of_its_networks() -> None:
    """Whose blocks and paths the paper does not say; and Imagenette is in the place of ImageNet, and says so."""
    paths, none = twins.in_tables("cifar10-110-bottleneck", (RESIDUAL, FOUR_PATHS))
    assert (paths[FOUR_PATHS], none) == (twins.PAPER["cifar10-110"][PATHS], "")
    assert twins.in_tables("cifar100-101", (PLAIN,)) == ({PLAIN: (0.0372, 0.0368)}, "")
    large, data = twins.in_tables("imagenette-101", TITLES)
    assert (large, data) == (twins.PAPER["imagenet-101"], "ImageNet")


@pytest.mark.parametrize(
    ("text", "large"),
    [
        ("imagenette-101", True),
        ("cifar100-101", True),
        ("cifar100-101-bottleneck", False),
        ("mnist-50", False),  # 6 n + 2
        ("mnist-101-connected", False),
        ("imagenet-50", True),
    ],
)
def test_networks_of_101_layers_are_those_for_large_images(text: str, large: bool) -> None:
    source, depth, options, _ = networks._parts(text)
    assert networks._is_large(source, depth, options) == large


def test_a_network_is_trained_once_in_a_run(whole: tuple[Path, Evidence]) -> None:
    trained = [path.name.rpartition("-")[0] for path in (whole[0] / "checkpoints").iterdir()]
    assert len(set(trained)) == len(trained)


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.id)
def test_every_preset_has_a_cost_and_names_networks_that_there_are(study: Study) -> None:
    population = study is GENERALISATION  # of many networks, no part of quick
    assert set(study.presets) == set(study.cost) == {"smoke", *([] if population else ["quick"]), "full", "paper"}
    for settings in study.presets.values():
        if isinstance(settings, GeneralisationSettings):
            plans = [settings.plan(configuration) for configuration in settings.population]
        else:
            plans = [settings]
        forms = histograms.FORMS if isinstance(settings, HistogramSettings) else ("relu",)
        for plan in plans:
            for text in [histograms.in_form(text, form) for text in plan.subjects for form in forms]:
                _, depth, options, _ = networks._parts(text)
                large = "-large" if text.startswith("imagenet-") else ""
                for title in plan.titles:
                    family, _, own = networks.KNOWN[title].partition("-")
                    assert names.parse("-".join(filter(None, [f"{family}{depth}", "mnist", own])) + options + large)


@pytest.mark.parametrize(
    ("study", "titles", "missing"),
    [
        (WEIGHTS, (PLAIN,), "got no ResNet"),
        (HIDDEN, (RESIDUAL,), "got no PlainNet"),
        (LINEAR, (RESIDUAL,), "got no PlainNet"),
        (DEEPER, (PLAIN,), "got no ResNet"),
        (HISTOGRAMS, (PLAIN,), "got no ResNet"),
        (DIRACNETS, (dirac.DIRAC,), "got no DiracNet, additive and no ResNet"),
    ],
)
def test_titles_that_a_study_compares_are_asked_for_before_the_training(
    bench: Bench, study: Study, titles: tuple[str, ...], missing: str
) -> None:
    with pytest.raises(InputError, match=missing):
        study.run(bench, replace(study.presets["smoke"], titles=titles))


def test_the_ends_of_the_singular_layers() -> None:
    """By layer, not by place between blocks; none where no state is singular."""
    status = [["finite", "infinite", "infinite", "infinite", "finite"], ["finite"] * 5]
    between = [True, False, True, True, True]
    data = xarray.Dataset(
        {
            "hidden_status": (("network", "seed", "layer"), [status]),
            "between": (("network", "seed", "layer"), [[between] * 2]),
        },
        {"network": [PLAIN], "seed": [0, 1]},
    )
    assert hidden._end(data, first=True).tolist()[0] == 3
    assert hidden._end(data, first=False).tolist()[0] == 4
    assert numpy.isnan(hidden._end(data, first=True)[1])


def test_networks_that_were_never_trained_decide_nothing(bench: Bench) -> None:
    """At the first step all weights are lost: what is measured is the network before, with the batch's statistics."""
    settings = replace(TINY, rates=(1e30,), titles=(PLAIN, RESIDUAL))
    of = subject(bench, settings, "digits-4-connected-n4")
    measured = layer_conditions.layer_conditions(bench, of)
    assert measured[networks.MEASURED_EPOCH].values.tolist() == [[0], [0]]
    images, _ = of.samples("cpu")
    initial = of.twin(PLAIN, Recipe(1e30)).network(of.seeds[0], "cpu").initial()
    expected = layer_conditions.conditions(initial, images, batch_statistics=True)
    found = measured.sel(network=PLAIN).isel(seed=0)
    assert numpy.allclose(found["hidden_condition"], expected["hidden_condition"])
    claims = {**weights.evidence({of.text: measured}), **hidden.evidence({of.text: measured})}
    for claim in (weights.C3, weights.C4, hidden.C5):
        assert decided(DECIDED_BY[claim.id], claim.id, claims).verdict == "open"
    assert numpy.isnan(by_name(claims)["C3"]["median log10 cond of weights, PlainNet - ResNet"]).all()


@pytest.mark.parametrize("family", ["plainnet", "resnet"])
def test_the_first_state_of_a_linear_network_at_grey_images_is_singular(family: str) -> None:
    """With skips or without: 16 channels are made of 9 pixels (and of a constant, once norms have shifts)."""
    torch.manual_seed(0)
    model = names.build(f"{family}8-digits-linear").double()
    found = conditioning(model, torch.rand(64, 1, 8, 8, dtype=torch.float64), weights=False, training=True)
    state = found.sel(reduction="channel").isel(layer=1)
    assert state["layer_shape"] == "64 x 16 x 8 x 8"
    assert (int(state["state_rank"]), int(state["state_full_rank"])) == (9, 16)
    assert state["state_status"] == "numerically infinite"
