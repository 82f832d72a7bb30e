"""The studies of paper A's theorems: what they find, what it decides, what would not pass, and how it is shown."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy
import pytest
import xarray

from skipscope.errors import InputError
from skipscope.papers.a.studies import theorem31, theorem33
from skipscope.papers.a.studies.theorem31 import A14
from skipscope.papers.a.studies.theorem31 import STUDY as THEOREM31
from skipscope.papers.a.studies.theorem33 import A15, A17
from skipscope.papers.a.studies.theorem33 import STUDY as THEOREM33
from skipscope.papers.a.views.theory import (
    jacobian_invariant,
    jacobian_values,
    line_growth,
    line_states,
    logit_errors,
    straight_lines_view,
    unconstrained_jacobians_view,
)
from skipscope.papers.kit import Bench, Claim, Evidence, Study
from skipscope.runs import RunFolder, load_run
from skipscope.runs.decisions import Decision

STUDY_OF = {A14: THEOREM31, A15: THEOREM33, A17: THEOREM33}
Parts = dict[str, xarray.Dataset]


def decided(claim: Claim, found: Evidence, preset: str = "quick") -> Decision:
    return STUDY_OF[claim].decide(claim, found[claim], preset)


def done(study: Study, path: Path) -> tuple[Evidence, Parts]:
    """The evidence at the preset smoke, and the datasets as they were written."""
    with RunFolder(path, f"study {study.id}") as run:
        found = study.run(Bench(study.id, run, preset="smoke", seed=0, device="cpu"), study.presets["smoke"])
    saved = load_run(path)
    return found, {name.removeprefix(f"{study.name}-"): saved.dataset(name) for name in saved.names}


@pytest.fixture(scope="module", name="line")
def _line(tmp_path_factory: pytest.TempPathFactory) -> tuple[Evidence, Parts]:
    return done(THEOREM31, tmp_path_factory.mktemp("a") / "theorem31")


@pytest.fixture(scope="module", name="free")
def _free(tmp_path_factory: pytest.TempPathFactory) -> tuple[Evidence, Parts]:
    return done(THEOREM33, tmp_path_factory.mktemp("a") / "theorem33")


def test_smoke_has_evidence_for_every_criterion(line: tuple[Evidence, Parts], free: tuple[Evidence, Parts]) -> None:
    for study, (found, _) in ((THEOREM31, line), (THEOREM33, free)):
        assert set(found) == set(study.claims)
        for claim in study.claims:
            asked = {rule.quantity for rule in claim.rules}
            assert asked <= set(found[claim])
            assert decided(claim, found, "smoke").verdict == "open"


def test_the_theorems_are_reproduced(line: tuple[Evidence, Parts], free: tuple[Evidence, Parts]) -> None:
    for found in (line[0], free[0]):
        for claim in found:
            decision = decided(claim, found)
            verdicts = {part.name: part.verdict for part in decision.parts}
            expected = (
                {"as written": "not reproduced", "corrected": "reproduced"} if claim is A14 else {"": "reproduced"}
            )
            assert verdicts == expected, decision.reason


def test_numbers_that_are_also_reported(line: tuple[Evidence, Parts], free: tuple[Evidence, Parts]) -> None:
    steps = line[0][A14]
    assert steps[theorem31.STEP_COV] <= 1e-12
    assert steps[theorem31.OTHER_STEP_COV] > 0.1
    assert steps[theorem31.GAMMA] <= 1e-12
    structure, inequality = free[0][A15], free[0][A17]
    assert structure[theorem33.RUNS_ABOVE] == 0
    assert structure[theorem33.SADDLES] == "6 of 6"
    assert structure[theorem33.FLAT_ZEROS] >= 1
    assert structure[theorem33.SMALLEST_HEAD] > 0.1  # no zero solution at the penalty 2
    assert inequality[theorem33.LARGEST_SAMPLE] < 0
    assert inequality[theorem33.AT_BOUNDARY] <= 1e-12
    near, far = inequality[theorem33.CLOSER_ERROR[0.01]], inequality[theorem33.LOGIT_ERROR]
    assert len(near) == len(far) == 2
    assert numpy.median(near) < numpy.median(far)
    assert inequality[theorem33.BINARY_NETWORKS].startswith("2 of type1-digits-c2-w16-b2-preactivation on digits")


def test_how_far_branches_of_trained_networks_are_from_linear_is_reported(line: tuple[Evidence, Parts]) -> None:
    found = line[0][A14]
    for form, ending in (("post-activation", ""), ("pre-activation", "-preactivation")):
        assert len(found[theorem31.NOT_LINEAR[form]]) == 1
        assert found[theorem31.NOT_LINEAR[form]][0] > 0.01
        assert found[theorem31.BIAS[form]][0] >= 0
        assert found[theorem31.NETWORKS[form]] == f"1 of type1-digits-w50-b3{ending} on digits, 100 samples, 2 epochs"


def test_wrong_lines_are_not_reproduced(line: tuple[Evidence, Parts]) -> None:
    found, parts = line
    assert theorem31.evidence(**parts) == found
    parts = {name: data.copy(deep=True) for name, data in parts.items()}
    parts["formulas"]["corrected"][0] = 1e-9
    assert decided(A14, theorem31.evidence(**parts)).verdict == "not reproduced"
    parts["formulas"]["printed"][:] = 0
    written, corrected = decided(A14, theorem31.evidence(**parts)).parts
    assert (written.verdict, corrected.verdict) == ("reproduced", "inconclusive")
    assert "control" in corrected.reason


@pytest.mark.parametrize("key", ["excess", "variation", "second", "left_right", "direction", "head", "invariant"])
def test_another_structure_is_not_reproduced(key: str, free: tuple[Evidence, Parts]) -> None:
    parts = {name: data.copy(deep=True) for name, data in free[1].items()}
    parts["optima"][key][1, 0] = 1e-3
    found = theorem33.evidence(**parts)
    assert decided(A15, found).verdict == "not reproduced"


def test_an_inequality_that_is_exceeded_or_not_attained_is_not_reproduced(free: tuple[Evidence, Parts]) -> None:
    for change in (1e-7, -1e-7):
        parts = {name: data.copy(deep=True) for name, data in free[1].items()}
        parts["traces"]["ascended"][0] += change
        found = theorem33.evidence(**parts)
        assert decided(A17, found).verdict == "not reproduced"


def test_bad_settings_are_named() -> None:
    first, second = THEOREM31.presets["smoke"], THEOREM33.presets["smoke"]
    with pytest.raises(InputError, match=r"slopes: expected each above 0, got 0\.0"):
        dataclasses.replace(first, slopes=(0.0,))
    with pytest.raises(InputError, match="draws: expected at least 1, got 0"):
        dataclasses.replace(first, draws=0)
    with pytest.raises(InputError, match=r"weights: expected each above 0, got 0\.0"):
        dataclasses.replace(second, weights=(0.0,))
    with pytest.raises(InputError, match="classes: expected two, got"):
        dataclasses.replace(second, classes=(1, 2, 3))
    with pytest.raises(InputError, match="orders: expected each at least 2, got 1"):
        dataclasses.replace(second, orders=(1,))


# -- how it is shown


def test_pictures_of_lines(line: tuple[Evidence, Parts]) -> None:
    states = line[1]["states"]
    straight, printed, *_ = line_states(states).data
    numpy.testing.assert_allclose(straight.y, straight.y[0], atol=1e-12)  # across u nothing moves
    numpy.testing.assert_allclose(printed.y, 0, atol=1e-12)
    numpy.testing.assert_allclose(numpy.diff(straight.x), straight.x[0], atol=1e-12)
    curve, first, *_ = line_growth(line[1]["growth"]).data
    assert curve.name == "1 / slope"
    numpy.testing.assert_allclose(first.y[0], 1, atol=1e-6)


def test_pictures_of_free_jacobians(free: tuple[Evidence, Parts]) -> None:
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


def test_views(line: tuple[Evidence, Parts], free: tuple[Evidence, Parts]) -> None:
    view = straight_lines_view(line[1])
    assert list(view.figures) == ["line-states", "line-growth"]
    assert len(view.tables) == 4
    assert "corrected formula" in view.sentences[0]
    other = unconstrained_jacobians_view(free[1])
    assert list(other.figures) == ["jacobian-values", "jacobian-invariant", "linearised-logits"]
    assert [table.title for table in other.tables] == [
        "Theorem 3.3: optima",
        "Theorem 3.3: a loss that is flat at zero",
        "Stationary points",
        "The trace inequality",
        "The linearised logit",
        "The linearised logit in several networks",
    ]
    for table in (*view.tables, *other.tables):
        assert {len(row) for row in table.rows} == {len(table.columns)}, table.title
        assert table.about
    assert "end at the scalar optimum" in other.sentences[0]


def test_a_run_that_was_stopped_shows_what_it_has(line: tuple[Evidence, Parts], free: tuple[Evidence, Parts]) -> None:
    view = straight_lines_view({"a": line[1]["growth"]})
    assert (len(view.tables), len(view.figures), len(view.sentences)) == (1, 1, 0)
    view = unconstrained_jacobians_view({"a": free[1]["traces"]})
    assert (len(view.tables), len(view.figures), len(view.sentences)) == (1, 0, 0)
