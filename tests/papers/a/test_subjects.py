"""What paper A's studies train: subjects by their names, their samples, and the settings that are refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

from skipscope.cli import completion
from skipscope.errors import InputError
from skipscope.models import names
from skipscope.papers.a.emergence import emergence, portraits, traced
from skipscope.papers.a.networks.names import NAMES as TYPES
from skipscope.papers.a.studies.alignment import AlignmentSettings
from skipscope.papers.a.studies.classes import ClassesSettings
from skipscope.papers.a.studies.counterfactuals import CounterfactualSettings
from skipscope.papers.a.studies.labels import LabelsSettings
from skipscope.papers.a.studies.sizes import SizesSettings
from skipscope.papers.a.studies.skips import SkipsSettings
from skipscope.papers.a.subjects import TrainingSettings, is_changed, judged_as, subject
from skipscope.papers.kit import Bench
from skipscope.runs import RunFolder, load_run

TINY = TrainingSettings(width=50, channels=4, blocks=2, samples=100, networks=2, epochs=10, batch=50, images=2)


@pytest.fixture(name="bench")
def _bench(tmp_path: Path) -> Bench:
    return Bench("A.alignment", RunFolder(tmp_path / "run", "study A"), preset="smoke", seed=1, device="cpu")


def test_a_subject_says_what_it_is(bench: Bench) -> None:
    of = subject(bench, TINY, "type1-digits")
    assert (of.model, of.title, of.seeds) == (
        "type1-digits-w50-b2",
        "type1 on digits, 100 samples",
        tuple(bench.seeds(2)),
    )
    assert of.looks == (0, 1, 2, 4, 7, 10)
    assert len(of.data.train) == 100
    assert subject(bench, TINY, "type2-digits").model == "type2-digits-w4-b2"
    form = subject(bench, replace(TINY, clip=0.5), "type1-digits-preactivation")
    assert (form.model, form.title) == (of.model + "-preactivation", "type1 with pre-activation on digits, 100 samples")
    assert form.training.clip == 0.5
    few = subject(bench, TINY, "type1-digits", classes=3, seeds=[7], options="-noskips", title="3 classes")
    assert (few.model, few.title, len(few.data.train)) == ("type1-digits-w50-b2-c3-noskips", "3 classes", 100)
    assert few.seeds == (7,)
    assert subject(bench, TINY, "type1-digits-w60").model == "type1-digits-w60-b2"
    assert subject(bench, TINY, "type1-digits-w60-preactivation").model == "type1-digits-w60-b2-preactivation"
    assert len(subject(bench, replace(TINY, samples=None), "type1-digits").data.train) > 1000
    shuffled = subject(bench, TINY, "type1-digits", label_noise=1.0)
    assert not torch.equal(shuffled.data.train.labels, of.data.train.labels)


def test_subjects_that_differ_have_datasets_of_their_own(bench: Bench) -> None:
    ways = [
        subject(bench, TINY, "type1-digits"),
        subject(bench, replace(TINY, weight_decay=0.0), "type1-digits"),
        subject(bench, replace(TINY, looks=(0.0, 1.0)), "type1-digits"),
        subject(bench, TINY, "type1-digits", label_noise=1.0),
        subject(bench, TINY, "type1-digits", options="-drop20"),
    ]
    keys = [of.key("cpu") for of in ways]
    assert len(set(keys)) == len(keys)
    assert keys[0] == subject(bench, TINY, "type1-digits", title="by another name").key("cpu")


@pytest.mark.parametrize("text", ["type4-digits", "resnet8-digits", "type1", "type1-", ""])
def test_bad_subjects_are_named(bench: Bench, text: str) -> None:
    with pytest.raises(InputError, match=f"'{text}': expected one of type1, type2, type3 and a data set"):
        subject(bench, TINY, text)


def test_unknown_data_are_named(bench: Bench) -> None:
    with pytest.raises(InputError, match="nowhere"):
        subject(bench, TINY, "type1-nowhere")


def test_digits_stand_in_for_mnist(bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SKIPSCOPE_DATA", str(tmp_path / "nothing"))
    with bench.run:
        of = subject(bench, TINY, "type1-mnist")
    assert of.model == "type1-digits-w50-b2"
    assert of.data.stands_in_for == "mnist"
    assert "digits stand in" in load_run(bench.run.path).record["notes"][0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"width": 0}, "width: expected at least 1, got 0"),
        ({"networks": 0}, "networks: expected at least 1, got 0"),
        ({"images": -1}, "images: expected at least 1, got -1"),
        ({"samples": -5}, "samples: expected at least 1, got -5"),
        ({"samples": 0}, "samples: expected at least 1, got 0"),
        ({"looks": ()}, "looks: expected 0.0, 1.0 among them, got none"),
        ({"looks": (0.5, 1.0)}, "looks: expected 0.0, 1.0 among them, got 0.5, 1.0"),
        ({"looks": (0.0, 1.0, 1.5)}, "looks: expected each from 0 to 1, got 0.0, 1.0, 1.5"),
        ({"decay_budget": -1.0}, "decay_budget: expected at least 0, got -1.0"),
        ({"decay_budget": numpy.nan}, "decay_budget: expected at least 0, got nan"),
        ({"epochs": 0}, "epochs"),
        ({"rate": -1.0}, "rate"),
    ],
)
def test_bad_settings_are_named(change: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        replace(TrainingSettings(), **change)


def test_bad_choices_are_named() -> None:
    with pytest.raises(InputError, match="subjects: expected at least one value, got none"):
        AlignmentSettings(subjects=())
    with pytest.raises(InputError, match=r"changes: expected some of decay, .*, got decay, weather"):
        CounterfactualSettings(changes=("decay", "weather"))
    with pytest.raises(InputError, match="got none"):
        CounterfactualSettings(changes=())
    with pytest.raises(InputError, match="depths: expected each at least 1, got 0"):
        SizesSettings(depths=(0,))
    with pytest.raises(InputError, match="classes: expected each at least 2, got 1"):
        ClassesSettings(classes=(1,))
    with pytest.raises(InputError, match=r"noises: expected 0\.0, 1\.0 among them, got 0\.5"):
        LabelsSettings(noises=(0.5,))
    with pytest.raises(InputError, match=r"factors: expected each from 0 to 1, got 2\.0"):
        SkipsSettings(factors=(2.0,))
    with pytest.raises(InputError, match=r"looks: expected 0\.0, 1\.0 among them"):
        SkipsSettings(looks=(1.0,))


@pytest.mark.parametrize(("count", "each"), [(10, [1] * 10), (20, [2] * 10), (40, [4] * 10), (500, [10] * 10)])
def test_samples_are_taken_equally_from_all_classes(bench: Bench, count: int, each: list[int]) -> None:
    images, labels = subject(bench, TINY, "type1-digits").samples("cpu", count)
    assert images.shape == (sum(each), 1, 8, 8)
    assert torch.bincount(labels, minlength=10).tolist() == each


def test_fewer_samples_than_classes_are_of_different_ones(bench: Bench) -> None:
    images, labels = subject(bench, TINY, "type1-digits").samples("cpu", 3)
    assert (len(images), len(set(labels.tolist()))) == (3, 3)


def test_a_shell_offers_the_names_of_the_networks() -> None:
    assert [name for name, _ in completion.complete_network("ty")] == [f"{kind}-" for kind in TYPES]
    assert list(TYPES) == ["type1", "type2", "type3"]
    offered = [name for name, _ in completion.complete_network("type2-")]
    assert "type2-mnist" in offered
    for name in offered:
        assert names.parse(name)


def test_a_subject_is_judged_without_the_path_of_its_data(bench: Bench) -> None:
    of = subject(bench, TINY, "type1-digits")
    for text in ("type1-mnist", "type1-mnist:a/path", "type1-mnist:/some-where/else"):
        assert judged_as(text, of) == "type1-mnist"
    assert judged_as("type1-cifar10:a/b-w512", of) == "type1-cifar10-w512"
    assert judged_as("type1-cifar10:a/b-preactivation", of) == "type1-cifar10-preactivation"
    assert judged_as("type1-mnist:b-w60-preactivation", of) == "type1-mnist-w60-preactivation"
    stand_in = replace(of, data=replace(of.data, stands_in_for="mnist"))
    assert judged_as("type1-mnist-preactivation", stand_in) == "type1-digits-preactivation"


def test_numbers_of_classes(bench: Bench) -> None:
    with pytest.raises(InputError, match="classes: expected 2 to 10, which digits has, got 20"):
        subject(bench, TINY, "type1-digits", classes=20)


def test_the_block_that_halves_is_no_unit_of_a_network_without_skips(bench: Bench) -> None:
    of = subject(bench, TINY, "type3-digits", options="-noskips")
    model = of.network(0, "cpu").initial().eval()
    trunk = traced(model, of.data.train.images(torch.arange(2)))
    assert [unit.name for unit in trunk.units] == ["stage1.0"]


def test_networks_that_all_diverge_leave_a_note(tmp_path: Path) -> None:
    settings = replace(TINY, rate=1e12, epochs=2, networks=1, looks=(0.0, 1.0), images=2)
    with RunFolder(tmp_path / "run", "study A") as run:
        own = Bench("A.alignment", run, preset="smoke", seed=0, device="cpu")
        of = subject(own, settings, "type1-digits")
        assert emergence(own, of)["line_shape"].isel(epoch=-1).isnull().all()
        portraits(own, of)
    assert "all networks diverged" in load_run(tmp_path / "run").record["notes"][0]


def test_the_authors_training_is_a_subject_of_its_own(bench: Bench) -> None:
    """Another recipe: it must not count among the networks that decide a claim."""
    settings = replace(TINY, samples=None, decay_budget=15.0)
    of = subject(bench, settings, "type1-digits-w60-preactivation-authors")
    assert of.model == "type1-digits-w60-b2-preactivation"
    assert of.title == "type1 with pre-activation on digits, trained as by the authors"
    training = of.training
    assert (training.epochs, training.batch, training.rate) == (50, 1024, 0.1)
    assert (training.momentum, training.weight_decay, training.schedule) == (0.0, 1e-2, "cosine")
    assert of.looks[-1] == 50
    assert not is_changed(of)
    assert judged_as("type1-mnist:a/b-w60-preactivation-authors", of) == "type1-mnist-w60-preactivation-authors"
    assert of.key("cpu") != subject(bench, settings, "type1-digits-w60-preactivation").key("cpu")


def test_augmentation_and_precision_are_those_of_the_training(bench: Bench) -> None:
    of = subject(bench, replace(TINY, augmentation="paper-a", precision="bfloat16"), "type2-digits")
    assert (of.training.augmentation, of.training.precision) == ("paper-a", "bfloat16")
    with pytest.raises(InputError, match="augmentation"):
        replace(TINY, augmentation="rain")


def test_what_a_run_has_drawn_needs_no_weights(tmp_path: Path) -> None:
    """So that a run goes on where only its datasets were kept."""
    settings = replace(TINY, networks=1, epochs=1, looks=(0.0, 1.0))
    with RunFolder(tmp_path / "run", "study A") as run:
        own = Bench("A.alignment", run, preset="smoke", seed=0, device="cpu")
        of = subject(own, settings, "type3-digits")  # stages of one block each, which have no line
        portraits(own, of)
        assert {name.partition("-")[0] for name in run.datasets()} >= {"alignment", "grids", "trajectories"}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(of), "trained", None)
            portraits(own, of)
