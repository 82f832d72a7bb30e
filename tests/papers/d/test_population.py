"""The population of paper D: given weights are measured piece by piece, stored datasets are judged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
import xarray

from skipscope.data import load
from skipscope.errors import InputError
from skipscope.models import build
from skipscope.papers.d.population.stored import joined_by_subject, read_folders, write
from skipscope.papers.d.studies import perturbations, population, spectra
from skipscope.papers.d.subjects import BOTH_DEPTHS, DIGITS, RECIPE2, RESNET56, RESNET110, subject_of
from skipscope.papers.kit import Measured
from skipscope.papers.kit.running import run_studies
from skipscope.runs import load_run

RESULTS = Path(__file__).parents[3] / "docs" / "results" / "D"
FOLDERS = f"{RESULTS / 'population'},{RESULTS / 'recipe2'}"
SMALL = "resnet20-cifar-projection-n2"


@pytest.fixture(scope="module")
def decisions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    out = tmp_path_factory.mktemp("population") / "run"
    outcome = run_studies("D.population", out, changes={"datasets": FOLDERS})
    assert "D11, from the entry: depends on the recipe" in " ".join(outcome.record["notes"])
    return {decision.id: decision for decision in outcome.decisions}


def test_the_stored_datasets_are_judged_without_measuring(decisions: dict[str, Any]) -> None:
    """The verdicts that are committed beside the datasets."""
    numbers = [2, *range(4, 15), 16, 17, 18]
    assert list(decisions) == [f"D{number}" for number in numbers]
    committed = {entry["id"]: entry for entry in json.loads((RESULTS / "population" / "claims.json").read_text())}
    for name, decision in decisions.items():
        assert decision.verdict == committed[name]["verdict"], name
        verdicts = {part.name: part.verdict for part in decision.parts}
        assert verdicts == {part["name"]: part["verdict"] for part in committed[name]["parts"]}, name
        assert all(part.networks in (5, 10) for part in decision.parts)


@pytest.mark.parametrize(
    ("claim", "subject", "quantity", "expected"),
    [
        ("D2", RESNET110, "share near 1, mean over regular units of stages 1 and 2", [0.518, 0.505, 0.515, 0.5, 0.492]),
        ("D6", RESNET56, "largest / median of the values other than 0, stage 1", [30.8, 49.6, 43.6, 43.3, 38.2]),
        (
            "D7",
            RESNET56,
            "Spearman of unit and share above 1, all regular units",
            [-0.878, -0.853, -0.839, -0.897, -0.828],
        ),
        ("D18", BOTH_DEPTHS, "median relative distance between depths, stage 3", 0.029),
    ],
)
def test_each_network_has_the_number_of_the_former_tables(
    claim: str, subject: str, quantity: str, expected: Any, decisions: dict[str, Any]
) -> None:
    (found,) = [each for each in decisions[claim].subjects if each.subject == subject]
    assert found.measured[quantity] == pytest.approx(expected, rel=5e-3)


def test_each_subject_is_judged_alone(decisions: dict[str, Any]) -> None:
    d11 = {each.subject: each for each in decisions["D11"].subjects}
    beside = dict.fromkeys((RESNET56, RECIPE2, subject_of(RESNET56, 2)), False)
    assert {name: each.decides for name, each in d11.items()} == {RESNET110: True, **beside}
    assert d11[RECIPE2].verdict == "partly reproduced"
    assert d11[RESNET110].verdict == "not reproduced"
    d18 = {part.name: (part.subject, part.networks) for part in decisions["D18"].parts}
    assert d18["both depths alike"] == (BOTH_DEPTHS, 10)
    assert d18["lower rank in stage 3 of ResNet-56"] == (RESNET56, 5)


def test_recipes_are_subjects_of_their_own() -> None:
    assert subject_of(RESNET110, 1) == RESNET110
    assert subject_of(RESNET110, 2) == RECIPE2
    assert DIGITS in spectra.D4.subjects


def test_recipes_that_contradict_each_other_are_named() -> None:
    start = perturbations.RANDOM_GROWTH[3, "entry"]

    def found(first: float, second: float) -> list[str]:
        pairs = {RESNET110: first, RECIPE2: second}
        evidence = [Measured({start: [value] * 5}, subject, networks=5) for subject, value in pairs.items()]
        return list(population.depends_on_recipe({perturbations.D11: evidence}))

    assert found(1.2, 1.3) == []
    (sentence,) = found(1.2, 0.7)
    assert sentence.startswith("D11, from the entry: depends on the recipe, not reproduced with the first one")


# -- datasets


def piece(part: str, seed: int, units: list[str], recipe: int = 1) -> xarray.Dataset:
    return xarray.Dataset(
        {"mean": ("unit", numpy.full(len(units), float(seed)))},
        {"unit": units},
        {
            "network": RESNET56,
            "recipe": recipe,
            "seed": seed,
            "part": part,
            "weights_sha256": f"{seed:x}",
            "seconds": 1.5,
            "device": "cpu",
        },
    )


def test_pieces_of_networks_are_joined(tmp_path: Path) -> None:
    units = {"random1": ["a"], "random2": ["longer"], "random3": ["c"]}
    pieces = [piece(name, seed, own) for seed in (1001, 1000) for name, own in units.items()]
    notes: list[str] = []
    found = joined_by_subject([*pieces, piece("count", 1000, ["a"]), piece("count", 7, ["a"], recipe=2)], notes.append)
    assert notes == [f"{RESNET56}: counts was left out, since seeds [1001] lack some of count"]
    assert {subject: list(kinds) for subject, kinds in found.items()} == {
        RESNET56: ["random"],
        f"{RESNET56}, recipe 2": ["counts"],
    }
    data = found[RESNET56]["random"]
    assert list(data["network"].values) == [1000, 1001]
    assert list(data["unit"].values) == ["a", "longer", "c"]
    assert data["mean"].values.tolist() == [[1000.0] * 3, [1001.0] * 3]
    assert data.attrs["weights_sha256"] == ["3e8", "3e9"]
    assert data.attrs["seconds"] == [4.5, 4.5]
    write(data, tmp_path / "resnet56-random.nc")
    back = read_folders([tmp_path], notes.append)
    assert back[RESNET56]["random"]["mean"].values.tolist() == data["mean"].values.tolist()


def test_datasets_that_are_given_twice_or_are_none(tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()
    with pytest.raises(InputError, match=r"expected datasets of D\.population, found none"):
        read_folders([tmp_path / "nothing"], print)
    with pytest.raises(InputError, match="given twice"):
        read_folders([RESULTS / "population", RESULTS / "population"], print)
    with pytest.raises(InputError, match="expected folders, got nowhere"):
        run_studies("D.population", tmp_path / "run", changes={"datasets": "nowhere"})
    with pytest.raises(InputError, match=r"expected the weights of a network as NAME-seedS\.safetensors"):
        run_studies("D.population", tmp_path / "run", changes={"files": "net.pt"})
    assert not (tmp_path / "run").exists()


def test_without_networks_everything_stays_open(tmp_path: Path) -> None:
    outcome = run_studies("D.population", tmp_path / "run")
    assert {decision.verdict for decision in outcome.decisions} == {"open"}
    assert "no datasets and no weights" in outcome.record["notes"][0]
    assert "--preset full" in outcome.decisions[0].cost


# -- measuring


@pytest.fixture
def given(tmp_path: Path) -> Callable[[int], dict[str, str]]:
    """Settings of a small network with random weights, and a CIFAR-10 of noise whose labels are its answers."""
    from safetensors.torch import save_file

    folder = tmp_path / "data" / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    generator = torch.Generator("cpu").manual_seed(0)
    records = torch.randint(256, (12, 3073), generator=generator, dtype=torch.uint8)
    files = [folder / f"{name}.bin" for name in (*(f"data_batch_{k}" for k in range(1, 6)), "test_batch")]

    def made(seed: int) -> dict[str, str]:
        torch.manual_seed(seed)
        model = build(SMALL).eval()
        records[:, 0] = torch.arange(12) % 10
        for file in files:
            file.write_bytes(records.numpy().tobytes())
        data = load(f"cifar10:{tmp_path / 'data'}")
        with torch.no_grad():
            records[:, 0] = model(data.test.images()).argmax(1).to(torch.uint8)
        files[-1].write_bytes(records.numpy().tobytes())
        weights = tmp_path / f"{SMALL}-seed{seed}.safetensors"
        save_file(model.state_dict(), weights)
        return {"files": str(weights), "data": f"cifar10:{tmp_path / 'data'}"}

    return made


@pytest.mark.slow
def test_networks_with_given_weights_are_measured_and_judged(
    given: Callable[[int], dict[str, str]], tmp_path: Path
) -> None:
    changes = {**given(1000), "parts": "count,perturb,project,spectra", "measured_stages": "3"}
    outcome = run_studies("D.population", tmp_path / "run", preset="smoke", changes=changes)
    saved = load_run(outcome.folder)
    title = f"population-{SMALL}-seed1000"
    counts = saved.dataset(f"{title}-count")
    assert (counts.attrs["seed"], counts.attrs["recipe"]) == (1000, 1)
    assert counts.sizes["unit"] == 7  # regular ones of 9
    third = saved.dataset(f"{title}-spectra3")
    assert list(third["kind"].values) == ["unit"] * 3 + ["stage"]
    proved = third["ones_proved"] / third["size"]
    assert bool((third["share_one"] >= proved - 1e-9).all())
    d13 = next(decision for decision in outcome.decisions if decision.id == "D13")
    (subject,) = d13.subjects
    assert (subject.subject, subject.networks) == (SMALL, 1)
    assert subject.measured["median of predicted / actual growth"] == pytest.approx([1], abs=0.2)
    assert d13.verdict == "open"
    again = run_studies("D.population", tmp_path / "again", changes={"datasets": str(outcome.folder)})
    by_id = {decision.id: decision for decision in again.decisions}
    assert by_id["D13"].subjects[0].measured == subject.measured


def test_a_network_is_not_measured_on_other_images(given: Callable[[int], dict[str, str]], tmp_path: Path) -> None:
    changes = {**given(1000), "data": f"cifar10:{tmp_path / 'nowhere'}"}
    with pytest.raises(InputError, match="cifar"):
        run_studies("D.population", tmp_path / "run", preset="smoke", changes=changes)
