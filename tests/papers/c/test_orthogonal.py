"""PlainNets with equal singular values: what is trained, at which rate, and what that decides."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
import xarray

from skipscope.errors import InputError
from skipscope.models import names
from skipscope.papers.c.measurements import equal_values
from skipscope.papers.c.studies import orthogonal
from skipscope.papers.c.studies.orthogonal import STUDY as ORTHOGONAL
from skipscope.papers.c.views.theory import plain_accuracies, products_view
from skipscope.papers.kit import Bench, Evidence, Measured
from skipscope.runs import RunFolder, load_run
from tests.papers.c.named import decided

JUDGED = tuple(orthogonal.C16.subjects)


def accuracies(**given: float) -> Evidence:
    """By the options of the networks without norms: he, orthogonal, looks, tanh; eight networks of each."""
    values = numpy.full((4, 2, 8), numpy.nan)
    for place, accuracy in enumerate(given.values()):
        values[place, place % 2] = accuracy + numpy.linspace(-0.01, 0.01, 8)
    coordinates = {"network": list(given), "rate": [0.1, 0.01], "seed": range(1000, 1008)}
    training = xarray.Dataset({"train_accuracy": (("network", "rate", "seed"), values)}, coordinates)
    kept = xarray.Dataset(
        {"train_accuracy": (("network", "rate", "seed"), [[[0.2]]])},
        {"network": [equal_values.KEPT], "rate": [0.1], "seed": [1000]},
    )
    return orthogonal.evidence(training.assign_coords(subject=("network", list(JUDGED))), kept)


@pytest.mark.parametrize(
    ("given", "parts", "together"),
    [
        ((0.44, 0.47, 0.99, 0.98), ["reproduced", "not reproduced", "reproduced", "reproduced"], "partly reproduced"),
        ((0.44, 0.95, 0.99, 0.98), ["reproduced"] * 4, "reproduced"),
        ((0.95, 0.3, 0.3, 0.3), ["not reproduced"] * 4, "not reproduced"),
    ],
)
def test_each_kind_of_network_is_a_part(given: tuple[float, ...], parts: list[str], together: str) -> None:
    found = accuracies(**dict(zip(("he", "orthogonal", "looks", "tanh"), given, strict=True)))
    decision = decided(ORTHOGONAL, "C16", found, "quick")
    assert [part.verdict for part in decision.parts] == parts
    assert decision.verdict == together
    assert {part.networks for part in decision.parts} == {8}
    beside = decision.subjects[-1]
    assert (beside.subject, beside.decides) == (equal_values.KEPT, False)


@pytest.fixture(scope="module", name="done")
def _done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Evidence, dict[str, xarray.Dataset]]:
    path = tmp_path_factory.mktemp("c") / "orthogonal"
    with RunFolder(path, "study C.orthogonal") as run:
        bench = Bench("C.orthogonal", run, preset="smoke", seed=0, device="cpu")
        found = ORTHOGONAL.run(bench, ORTHOGONAL.presets["smoke"])
    saved = load_run(path)
    return found, {name.removeprefix("orthogonal-"): saved.dataset(name) for name in saved.names}


def test_smoke(done: tuple[Evidence, dict[str, xarray.Dataset]]) -> None:
    found, data = done
    measured = found[orthogonal.C16]
    assert isinstance(measured, list)
    assert [(one.subject, one.count) for one in measured if isinstance(one, Measured)] == [
        ("digits-4-connected-nonorm", 3),
        ("digits-4-connected-nonorm-orthogonal", 3),
        ("digits-4-connected-nonorm-lookslinear", 3),
        ("digits-4-connected-nonorm-orthogonal-tanh", 3),
        ("digits-4-connected", 1),
        ("digits-4-connected-orthogonal", 1),
        (equal_values.KEPT, 1),
    ]
    assert decided(ORTHOGONAL, "C16", found, "smoke").verdict == "open"
    networks = plain_accuracies(data["training"]).data
    assert [len(network.x) for network in networks] == [3, 3, 3, 3, 1, 1]
    view = products_view({name: data[name] for name in ("training", "kept")})
    assert list(view.figures) == ["plain-accuracies"]
    assert [len(table.rows) for table in view.tables] == [6, 1]


def test_subjects_of_the_claim_are_those_that_quick_trains() -> None:
    plan = ORTHOGONAL.presets["quick"].plan
    assert plan.subjects[:4] == JUDGED == plan.most_networks_of
    assert (plan.networks, plan.go_on, len(plan.recipes)) == (8, 1, 8)
    for text in plan.subjects:
        assert names.parse(f"plainnet60-{text.replace('-60', '')}")
    assert equal_values.plan("mnist:some/path", 4, networks=1, other_networks=1).subjects[1] == (
        "mnist-4-connected-nonorm-orthogonal:some/path"
    )
    with pytest.raises(InputError, match="rates: expected at least one value"):
        dataclasses.replace(ORTHOGONAL.presets["smoke"], rates=())


def test_weights_are_kept_orthogonal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    models: list[Any] = []

    def seen(model: Any, split: Any) -> float:
        models.append(model)
        return 0.5

    monkeypatch.setattr(equal_values, "accuracy", seen)
    plan = equal_values.plan(
        "digits", 4, samples=150, epochs=1, rates=(0.1,), warmups=(0,), networks=1, other_networks=1
    )
    with RunFolder(tmp_path / "run", "study C.orthogonal") as run:
        kept = equal_values.kept(Bench("C.orthogonal", run, preset="smoke", seed=0, device="cpu"), plan)
    assert kept["train_accuracy"].values.tolist() == [[[0.5]]]
    (block,) = models[0].stage1
    for layer in (block.linear1, block.linear2):
        assert (layer.weight @ layer.weight.T - torch.eye(64)).abs().max() < 1e-4
    first = models[0].first.weight  # not in a block, and square for these images
    assert (first @ first.T - torch.eye(64)).abs().max() > 1e-2
