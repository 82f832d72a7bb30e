"""The studies of paper B's theorems: what they find, what it decides, and what would not pass."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy
import pytest

from skipscope.errors import InputError
from skipscope.runs import RunFolder, load_run
from skipscope.studies.b import theorem1, theorem2
from skipscope.studies.b.claims import CLAIMS
from skipscope.studies.b.theorem1 import THEOREM1, Theorem1Settings
from skipscope.studies.b.theorem2 import THEOREM2, Theorem2Settings
from skipscope.studies.bench import Bench
from skipscope.studies.study import Study
from tests.data.real import require

CLAIMED = {claim.id: claim for claim in CLAIMS}
MNIST = "cond(H) on MNIST with 10 components"
SMALL1 = Theorem1Settings(2, points=5, labelled=10, steps=(30, 1000), distances=(0.1, 0.25, 0.5), units=100)
SMALL2 = Theorem2Settings("digits", (3,), sets=4, units=(1, 2, 4, 8, 16, 32), rates=(0.3, 1.0), steps=400)

Found = Mapping[str, Mapping[str, Any]]


def found_by(study: Study, settings: Any, path: Path) -> Found:
    with RunFolder(path, f"study {study.id}") as run:
        return study.run(Bench(study.name, run, preset="quick", seed=0, device="cpu"), settings)


@pytest.fixture(scope="module", name="first")
def _first(tmp_path_factory: pytest.TempPathFactory) -> Found:
    return found_by(THEOREM1, SMALL1, tmp_path_factory.mktemp("b") / "theorem1")


@pytest.fixture(scope="module", name="second_path")
def _second_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("b") / "theorem2"


@pytest.fixture(scope="module", name="second")
def _second(second_path: Path) -> Found:
    return found_by(THEOREM2, SMALL2, second_path)


@pytest.mark.parametrize("study", [THEOREM1, THEOREM2], ids=lambda study: study.name)
def test_smoke_has_evidence_for_every_criterion(study: Study, tmp_path: Path) -> None:
    found = found_by(study, study.presets["smoke"], tmp_path / "run")
    own = {claim.id for claim in CLAIMS if claim.study == study.id}
    assert set(found) == own
    for name in own:
        asked = {criterion.quantity for criterion in (*CLAIMED[name].criteria, *CLAIMED[name].controls)}
        assert asked - set(found[name]) == ({MNIST} if name == "B2" else set())
        assert CLAIMED[name].decide(found[name], "smoke").verdict == "inconclusive"


@pytest.mark.parametrize("name", ["B15", "B16", "B17", "B18"])
def test_theorem_1_is_reproduced(name: str, first: Found) -> None:
    decision = CLAIMED[name].decide(first[name], "quick")
    assert decision.verdict == "reproduced", decision.reason


def test_float64_loses_close_points_and_keeps_far_ones(first: Found) -> None:
    assert first["B18"]["largest error end to end in float64"] > 0.1
    assert first["B18"]["largest error end to end in float64, rho >= 0.5"] < 1e-6
    assert first["B16"]["detours"] == 5 * 4


@pytest.mark.parametrize("name", ["B1", "B3", "B4", "B21", "B23"])
def test_theorem_2_is_reproduced(name: str, second: Found) -> None:
    decision = CLAIMED[name].decide(second[name], "quick")
    assert decision.verdict == "reproduced", decision.reason


def test_digits_do_not_decide_the_number_of_mnist(second: Found) -> None:
    decision = CLAIMED["B2"].decide(second["B2"], "quick")
    assert decision.verdict == "inconclusive"
    assert decision.reason == f"{MNIST}: not measured"
    assert second["B2"]["relative spread of cond(H) over R"] <= 1e-12
    assert second["B2"]["cond(H) on digits with 10 components"] == pytest.approx(1.5919, abs=1e-4)


def test_a_true_relu_does_not_follow_the_formula(second: Found) -> None:
    found = second["B5"]
    assert found["norm of the Hessian at exact zero"] == 0
    assert min(found["cond(H) at 0.01 Xavier / cond(M)"]) > 1.5
    assert CLAIMED["B5"].decide(found, "quick").reason.startswith("reported, not judged")


def test_all_deep_shortcuts_stay_at_zero_from_the_papers_start(second: Found) -> None:
    assert second["B23"]["smallest share of the loss at zero that is left, from 0.01 Xavier"] > 0.999
    assert max(second["B23"]["final loss, 4-shortcut"]) < 1  # but not from 0.1 Xavier


def test_wrong_forms_are_not_reproduced(second: Found, second_path: Path) -> None:
    saved = load_run(second_path)
    parts = {name.removeprefix("theorem2-"): saved.dataset(name) for name in saved.names}
    assert theorem2.evidence(**parts)["B1"] == second["B1"]
    parts["forms"]["hessian_error"][:] = 1e-9
    jump_and_rise = [[1.0, 60, 60, 60, 60, 60], [1.0, 1.01, 1.02, 1.03, 1.04, 1.05]]  # n = 1, n = 2
    parts["conditions"]["condition"][:] = numpy.array(jump_and_rise)
    parts["stationarity"]["hessian"][-1] = 1e-20
    parts["biases"]["zeros"][0] += 1
    parts["escape"]["loss"].loc[{"n": 5}] = 0.1
    found = theorem2.evidence(**parts)
    for name in ("B1", "B2", "B3", "B4", "B21", "B23"):
        assert CLAIMED[name].decide(found[name], "quick").verdict == "not reproduced", name


def test_norms_that_do_not_shrink_are_not_reproduced(tmp_path: Path) -> None:
    found_by(THEOREM1, THEOREM1.presets["smoke"], tmp_path / "run")
    saved = load_run(tmp_path / "run")
    parts = [saved.dataset(f"theorem1-{name}") for name in ("lemma1", "paths", "norms", "errors")]
    parts[2]["largest"][:] = 1.0
    parts[2]["units"][:] = [10, 1000]
    assert CLAIMED["B17"].decide(theorem1.evidence(*parts)["B17"], "quick").verdict == "not reproduced"


def test_bad_settings_are_named() -> None:
    with pytest.raises(InputError, match="of at least 1, and two units or more"):
        dataclasses.replace(SMALL1, units=1)
    with pytest.raises(InputError, match="distances above 0 and up to 1"):
        dataclasses.replace(SMALL1, distances=(1.5,))
    with pytest.raises(InputError, match="two numbers of units"):
        dataclasses.replace(SMALL2, units=(4,))
    with pytest.raises(InputError, match="steps of at least 1"):
        dataclasses.replace(SMALL2, steps=0)


def test_the_known_numbers_of_mnist(tmp_path: Path) -> None:
    require("mnist")
    settings = dataclasses.replace(SMALL2, data=f"mnist:{os.environ['SKIPSCOPE_DATA']}", networks=1, steps=1)
    found = found_by(THEOREM2, settings, tmp_path / "run")["B2"]
    assert CLAIMED["B2"].decide(found, "quick").verdict == "reproduced"
    assert found[MNIST] == pytest.approx(1.4907, abs=1e-4)
    assert found["with the 10th percentile for the smallest eigenvalue"] == pytest.approx(1.4666, abs=1e-4)
    assert found["over all signs"] == pytest.approx([1.408, 1.634], abs=1e-3)
    assert found["loss at the identity"] == pytest.approx(5.0159, abs=1e-4)
    assert found["lowest loss of a linear map"] == pytest.approx(0.3371410, abs=1e-7)
