"""The studies of paper A's theorems: what they find, what it decides, what would not pass, and how it is shown."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy
import pytest
import xarray

from skipscope.errors import InputError
from skipscope.papers.a.claims import CLAIMS
from skipscope.papers.a.figures.theory import (
    jacobian_invariant,
    jacobian_values,
    line_growth,
    line_states,
    logit_errors,
)
from skipscope.papers.a.studies import theorem31, theorem33
from skipscope.papers.a.studies.theorem31 import STUDY as THEOREM31
from skipscope.papers.a.studies.theorem33 import STUDY as THEOREM33
from skipscope.papers.a.views.theory import straight_lines_view, unconstrained_jacobians_view
from skipscope.papers.kit.bench import Bench
from skipscope.papers.kit.study import Study
from skipscope.runs import RunFolder, load_run

CLAIMED = {claim.id: claim for claim in CLAIMS}

Found = Mapping[str, Mapping[str, Any]]
Parts = dict[str, xarray.Dataset]


def done(study: Study, path: Path) -> tuple[Found, Parts]:
    """The evidence at the preset smoke, and the datasets as they were written."""
    with RunFolder(path, f"study {study.id}") as run:
        found = study.run(Bench(study.name, run, preset="smoke", seed=0, device="cpu"), study.presets["smoke"])
    saved = load_run(path)
    return found, {name.removeprefix(f"{study.name}-"): saved.dataset(name) for name in saved.names}


@pytest.fixture(scope="module", name="line")
def _line(tmp_path_factory: pytest.TempPathFactory) -> tuple[Found, Parts]:
    return done(THEOREM31, tmp_path_factory.mktemp("a") / "theorem31")


@pytest.fixture(scope="module", name="free")
def _free(tmp_path_factory: pytest.TempPathFactory) -> tuple[Found, Parts]:
    return done(THEOREM33, tmp_path_factory.mktemp("a") / "theorem33")


def test_smoke_has_evidence_for_every_criterion(line: tuple[Found, Parts], free: tuple[Found, Parts]) -> None:
    for study, (found, _) in ((THEOREM31, line), (THEOREM33, free)):
        own = {claim.id for claim in CLAIMS if claim.study == study.id}
        assert set(found) == own
        for name in own:
            asked = {criterion.quantity for criterion in (*CLAIMED[name].criteria, *CLAIMED[name].controls)}
            assert asked <= set(found[name])
            assert CLAIMED[name].decide(found[name], "smoke").verdict == "inconclusive"


def test_the_theorems_are_reproduced(line: tuple[Found, Parts], free: tuple[Found, Parts]) -> None:
    for found in (line[0], free[0]):
        for name, evidence in found.items():
            decision = CLAIMED[name].decide(evidence, "quick")
            assert decision.verdict == "reproduced", decision.reason


def test_numbers_besides(line: tuple[Found, Parts], free: tuple[Found, Parts]) -> None:
    assert line[0]["A14"]["step CoV, slope 1"] <= 1e-12
    assert line[0]["A14"]["smallest step CoV, other slopes"] > 0.1
    assert line[0]["A14"]["relative error of the Gamma form of the growth"] <= 1e-12
    structure, inequality = free[0]["A15"], free[0]["A17"]
    assert structure["runs that end above the optimum"] == 0
    assert structure["flipped stationary points with negative curvature, D > 1"] == "6 of 6"
    assert structure["optima at zero, loss flat at zero"] >= 1
    assert structure["smallest |w| at an optimum"] > 0.1  # no zero solution at the penalty 2
    assert inequality["largest sample - formula"] < 0
    assert inequality["|logit at the boundary|"] <= 1e-12
    assert inequality["the same at 0.01 of the distance"] < inequality["median relative error of the linearised logit"]


def test_wrong_lines_are_not_reproduced(line: tuple[Found, Parts]) -> None:
    found, parts = line
    assert theorem31.evidence(**parts) == found
    parts = {name: data.copy(deep=True) for name, data in parts.items()}
    parts["formulas"]["corrected"][0] = 1e-9
    assert CLAIMED["A14"].decide(theorem31.evidence(**parts)["A14"], "quick").verdict == "not reproduced"
    parts["formulas"]["printed"][:] = 0
    decision = CLAIMED["A14"].decide(theorem31.evidence(**parts)["A14"], "quick")
    assert decision.verdict == "inconclusive"
    assert "control" in decision.reason


@pytest.mark.parametrize("key", ["excess", "variation", "second", "left_right", "direction", "head", "invariant"])
def test_another_structure_is_not_reproduced(key: str, free: tuple[Found, Parts]) -> None:
    parts = {name: data.copy(deep=True) for name, data in free[1].items()}
    parts["optima"][key][1, 0] = 1e-3
    found = theorem33.evidence(**parts)
    assert CLAIMED["A15"].decide(found["A15"], "quick").verdict == "not reproduced"


def test_an_inequality_that_is_exceeded_or_not_attained_is_not_reproduced(free: tuple[Found, Parts]) -> None:
    for change in (1e-7, -1e-7):
        parts = {name: data.copy(deep=True) for name, data in free[1].items()}
        parts["traces"]["ascended"][0] += change
        found = theorem33.evidence(**parts)
        assert CLAIMED["A17"].decide(found["A17"], "quick").verdict == "not reproduced"


def test_bad_settings_are_named() -> None:
    first, second = THEOREM31.presets["smoke"], THEOREM33.presets["smoke"]
    with pytest.raises(InputError, match="slopes above 0"):
        dataclasses.replace(first, slopes=(0.0,))
    with pytest.raises(InputError, match="a draw"):
        dataclasses.replace(first, draws=0)
    with pytest.raises(InputError, match="weights above 0"):
        dataclasses.replace(second, weights=(0.0,))
    with pytest.raises(InputError, match="two classes"):
        dataclasses.replace(second, classes=(1, 2, 3))
    with pytest.raises(InputError, match="of at least 2"):
        dataclasses.replace(second, orders=(1,))


# -- how it is shown


def test_pictures_of_lines(line: tuple[Found, Parts]) -> None:
    states = line[1]["states"]
    straight, printed, *_ = line_states(states).data
    numpy.testing.assert_allclose(straight.y, straight.y[0], atol=1e-12)  # across u nothing moves
    numpy.testing.assert_allclose(printed.y, 0, atol=1e-12)
    numpy.testing.assert_allclose(numpy.diff(straight.x), straight.x[0], atol=1e-12)
    curve, first, *_ = line_growth(line[1]["growth"]).data
    assert curve.name == "1 / slope"
    numpy.testing.assert_allclose(first.y[0], 1, atol=1e-6)


def test_pictures_of_free_jacobians(free: tuple[Found, Parts]) -> None:
    optima = free[1]["optima"]
    curves = jacobian_values(optima).data
    assert len(curves) == optima.sizes["case"]
    assert sum(curve.showlegend for curve in curves) == 3
    for curve in curves:
        numpy.testing.assert_allclose(curve.y, curve.y[0], rtol=1e-6)
    _, points, *_ = jacobian_invariant(optima).data
    numpy.testing.assert_allclose(points.y, points.x * (1 + points.x), rtol=1e-6)
    lines = logit_errors(free[1]["logits"]).data
    assert [trace.name for trace in lines] == ["samples"] * free[1]["logits"].sizes["sample"] + ["median"]


def test_views(line: tuple[Found, Parts], free: tuple[Found, Parts]) -> None:
    view = straight_lines_view(line[1])
    assert list(view.figures) == ["line-states", "line-growth"]
    assert len(view.tables) == 3
    assert "corrected formula" in view.sentences[0]
    other = unconstrained_jacobians_view(free[1])
    assert list(other.figures) == ["jacobian-values", "jacobian-invariant", "linearised-logits"]
    assert [table.title for table in other.tables] == [
        "Theorem 3.3: optima",
        "Theorem 3.3: a loss that is flat at zero",
        "Stationary points",
        "The trace inequality",
        "The linearised logit",
    ]
    for table in (*view.tables, *other.tables):
        assert {len(row) for row in table.rows} == {len(table.columns)}, table.title
        assert table.about
    assert "end at the scalar optimum" in other.sentences[0]


def test_a_run_that_was_stopped_shows_what_it_has(line: tuple[Found, Parts], free: tuple[Found, Parts]) -> None:
    view = straight_lines_view({"a": line[1]["growth"]})
    assert (len(view.tables), len(view.figures), len(view.sentences)) == (1, 1, 0)
    view = unconstrained_jacobians_view({"a": free[1]["traces"]})
    assert (len(view.tables), len(view.figures), len(view.sentences)) == (1, 0, 0)
