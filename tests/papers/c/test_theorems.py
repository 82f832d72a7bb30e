"""The study of paper C's theorems: what it finds, what that decides, what would not pass, and how it is shown."""

from __future__ import annotations

import dataclasses

import numpy
import pytest
import xarray

from skipscope.errors import InputError
from skipscope.papers.c.measurements.commuting_weights import LED
from skipscope.papers.c.studies import theorems
from skipscope.papers.c.studies.theorems import STUDY as THEOREMS
from skipscope.papers.c.views.theory import (
    approximation_errors,
    collapse_by_layer,
    product_conditions,
    products_view,
)
from skipscope.papers.kit import Bench, Evidence
from skipscope.runs import RunFolder, load_run
from tests.papers.c.named import Named, by_name, decided

OWN = ("C9", "C10", "C11", "C12", "C13")

Parts = dict[str, xarray.Dataset]


@pytest.fixture(scope="module", name="done")
def _done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Evidence, Parts]:
    """The evidence at the preset smoke, and the datasets as they were written."""
    path = tmp_path_factory.mktemp("c") / "theorems"
    with RunFolder(path, "study C.theorems") as run:
        found = THEOREMS.run(Bench("C.theorems", run, preset="smoke", seed=0, device="cpu"), THEOREMS.presets["smoke"])
    saved = load_run(path)
    return found, {name.removeprefix("theorems-"): saved.dataset(name) for name in saved.names}


def copied(parts: Parts) -> Parts:
    return {name: data.copy(deep=True) for name, data in parts.items()}


def verdict(name: str, parts: Parts) -> str:
    return decided(THEOREMS, name, theorems.evidence(**parts), "quick").verdict


def test_smoke_has_evidence_for_every_criterion(done: tuple[Evidence, Parts]) -> None:
    found, parts = done
    assert set(found) == set(THEOREMS.claims)
    assert tuple(claim.id for claim in THEOREMS.claims) == OWN
    for claim, quantities in found.items():
        assert {criterion.quantity for criterion in claim.rules} <= set(quantities)
        assert decided(THEOREMS, claim.id, found, "smoke").verdict == "open"
    assert by_name(theorems.evidence(**parts)) == by_name(found)


def test_verdicts(done: tuple[Evidence, Parts]) -> None:
    expected = {"C9": "reproduced", "C13": "reproduced", "C10": "not reproduced"}
    expected |= {"C11": "partly reproduced", "C12": "partly reproduced"}
    for name, wanted in expected.items():
        decision = decided(THEOREMS, name, done[0], "quick")
        assert decision.verdict == wanted, decision.reason
        if len(decision.parts) > 1:
            assert [part.verdict for part in decision.parts] == ["reproduced", "not reproduced"]


def test_numbers_that_are_also_reported(done: tuple[Evidence, Parts]) -> None:
    found: Named = by_name(done[0])
    parts = done[1]
    assert found["C9"]["relative error of the exact sum"] <= 1e-10
    assert found["C10"]["relative error of the exact sums"] <= 1e-10
    for case in ("direction alternates", "ratios approach 1"):
        assert found["C9"][f"median cosine, {case}"] < 0.95
    assert float(parts["collapse"]["ratio"].max()) < 1  # strict inequality in every layer of every case
    apart = parts["collapse"].sel(case="weights do not commute").isel(layer=-1)
    assert bool((apart["colinear"] > apart["cosine"]).all())  # alike, and not along an eigenvector
    assert found["C10"]["relative error of approximation 22, paths ordered and their sums not"] > 0.9
    assert found["C11"]["log10 cond that float64 computes, He scale"] < 22
    assert found["C12"]["largest ratio to first order"] == pytest.approx(1, abs=1e-6)
    assert found["C12"]["largest ratio / (1 / (1 - cond eps))"] == pytest.approx(1, abs=1e-6)
    assert found["C12"]["largest ratio, targets that the weights do not fit"] > 1e3
    assert found["C13"]["share of singular matrices of signs, by size"]["2"] == pytest.approx(0.5, abs=0.12)
    powers = parts["powers"]
    assert float(powers["index"][2]) == pytest.approx(0.99**60, rel=1e-12)
    assert float(powers["cosine"][2]) < 0.9 < float(powers["cosine_by_power"][2])
    assert bool(parts["ranks"]["bounded"].all())
    assert float(parts["ranks"]["autograd"].max()) <= 1e-12


def test_approximation_16_holds_where_the_network_collapses_or_does_nothing(done: tuple[Evidence, Parts]) -> None:
    data = done[1]["approximation"]
    holds = data["bounded"].values <= 0.1
    collapsed = data["cosine"].values > 0.99
    idle = data["log10_condition"].values < 0.2
    assert holds.any()
    assert (collapsed | idle)[holds].all()


def test_condition_numbers_rise_with_the_branch(done: tuple[Evidence, Parts]) -> None:
    data = done[1]["products"]
    last = data["log10_condition"].isel(units=-1).median("draw")
    assert (numpy.diff(last.sortby("scale").values) > 0).all()
    smallest = data.sel(scale=0.01).isel(units=-1)
    assert float(smallest["log10_condition"].median()) <= float(smallest["predicted_short"])
    numpy.testing.assert_allclose(smallest["log10_condition"], smallest["float64"], rtol=1e-6)


def test_what_is_different_is_decided_differently(done: tuple[Evidence, Parts]) -> None:
    parts = copied(done[1])
    parts["collapse"]["cosine"].loc[{"case": LED}] = 0.9
    assert verdict("C9", parts) == "not reproduced"
    parts["collapse"]["ratio"].loc[{"case": LED}] = 0.9
    assert verdict("C9", parts) == "inconclusive"
    parts["approximation"]["bounded"][:] = 0.01
    assert verdict("C10", parts) == "reproduced"
    parts["products"]["log10_condition"].loc[{"scale": 1.0}] = 3.0
    assert verdict("C11", parts) == "reproduced"
    parts["products"]["log10_condition_plain"][:] = 3.0
    assert verdict("C11", parts) == "inconclusive"
    misfits = parts["perturbations"]["kind"].values == "residual"
    parts["perturbations"]["ratio"].values[misfits] = 0.5
    assert verdict("C12", parts) == "reproduced"
    parts["perturbations"]["ratio"].values[:] = 2.1
    assert verdict("C12", parts) == "not reproduced"
    parts["singularity"]["singular"][0] = 1
    assert verdict("C13", parts) == "not reproduced"


def test_bad_settings_are_named() -> None:
    smoke = THEOREMS.presets["smoke"]
    with pytest.raises(InputError, match="draws"):
        dataclasses.replace(smoke, draws=0)
    with pytest.raises(InputError, match="size: expected from 3 to 80, got 2"):
        dataclasses.replace(smoke, size=2)


# -- how it is shown


def test_pictures(done: tuple[Evidence, Parts]) -> None:
    parts = done[1]
    curves = collapse_by_layer(parts["collapse"]).data
    assert len(curves) == 8
    assert curves[0].y[-1] == pytest.approx(1, abs=1e-6)
    lines = approximation_errors(parts["approximation"]).data
    assert [line.name for line in lines] == ["all positive", "leading negative", "all negative", "either"]
    plain, in_float64, *_ = product_conditions(parts["products"]).data
    assert plain.name == "without skips"
    assert plain.y[-1] > 100 > in_float64.y[-1]


def test_view(done: tuple[Evidence, Parts]) -> None:
    view = products_view(done[1])
    assert list(view.figures) == ["collapse-by-layer", "approximation-16", "product-conditions"]
    assert len(view.tables) == 10
    for table in view.tables:
        assert {len(row) for row in table.rows} == {len(table.columns)}, table.title
        assert table.about
    assert "of 16 cases" in view.sentences[0]
    assert "without skips" in view.sentences[1]
    stopped = products_view({"a": done[1]["paths"]})
    assert (len(stopped.tables), len(stopped.figures), len(stopped.sentences)) == (1, 0, 0)
