"""C.norms: which statements hold with batch norms and which without, from known numbers and from a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from skipscope.errors import InputError
from skipscope.papers.c.studies import accuracy, hidden, histograms, norms, weights
from skipscope.papers.c.studies.norms import CLAIMS, COMPARED, needs, parts_once, statements
from skipscope.papers.c.studies.norms import STUDY as NORMS
from skipscope.papers.c.subjects import PLAIN
from skipscope.papers.c.views.norms import norms_view
from skipscope.papers.kit import Claim, Evidence, Measured
from tests.papers.conftest import SmokeRun
from tests.papers.kit.test_claims_of_papers import synthetic

SEEDS = (1000, 1001, 1002)


def evidence(failing: Claim | None = None, unmet: str = "") -> Evidence:
    """Networks of which all statements are true, but those of one claim."""
    found = {}
    for claim in CLAIMS:
        values = {}
        for part in parts_once(claim):
            values |= synthetic(part, part.criteria[0] if claim is failing else None)
        found[claim] = [Measured(values, "mnist-110", SEEDS, unmet=unmet)]
    return found


def test_statements_are_those_of_networks_with_relus_each_once() -> None:
    assert [claim.id for claim in CLAIMS] == ["C1", "C3", "C4", "C5", "C6", "C8", "C15"]
    assert [len(parts_once(claim)) for claim in CLAIMS] == [1, 1, 1, 2, 2, 5, 2]
    assert [part.name for part in parts_once(histograms.C15)] == ["rank, ReLU", "condition number, ReLU"]


def test_a_statement_holds_by_the_rules_of_its_claim() -> None:
    by_form = {"relu": evidence(), "nonorm": evidence(weights.C3)}
    found = statements(by_form, "110 layers, on MNIST", "mnist")
    assert found.attrs["networks"] == 3
    of_c3 = found.isel(statement=[id == "C3" for id in found["claim"].values])
    assert of_c3["outcome"].values.tolist() == [["holds", "does not hold"]]
    assert (
        float(of_c3["value"].sel(form="with norms").item())
        >= 0.5
        > float(of_c3["value"].sel(form="without norms").item())
    )
    others = found.isel(statement=[id != "C3" for id in found["claim"].values])
    assert set(others["outcome"].values.ravel()) == {"holds"}
    read = needs(found)
    assert [len(read[key]) for key in ("both", "with norms", "without norms", "none", "unclear")] == [13, 1, 0, 0, 0]
    assert read["with norms"][0].startswith("C3 (The weights of PlainNet")
    swapped = needs(statements({"relu": by_form["nonorm"], "nonorm": by_form["relu"]}, "", ""))
    assert len(swapped["without norms"]) == 1
    assert len(needs(statements(dict.fromkeys(COMPARED, by_form["nonorm"]), "", ""))["none"]) == 1


def test_networks_that_are_not_trained_leave_it_open() -> None:
    found = statements({"relu": evidence(), "nonorm": evidence(unmet="ResNets diverge")}, "", "")
    assert set(found["outcome"].sel(form="without norms").values) == {"open"}
    assert set(found["why"].sel(form="without norms").values) == {"ResNets diverge"}
    assert len(needs(found)["unclear"]) == found.sizes["statement"] == 14


def test_the_report_says_in_which_form_they_hold() -> None:
    by_form = {"relu": evidence(), "nonorm": evidence(weights.C3)}
    view = norms_view({"norms-statements": statements(by_form, "110 layers, on MNIST", "mnist")})
    (table,) = view.tables
    assert table.columns[-2:] == ["with norms", "without norms"]
    assert [row[0] for row in table.rows].count("C8") == 5
    (row,) = [row for row in table.rows if row[0] == "C3"]
    assert row[-2].startswith("holds (")
    assert row[-1].startswith("does not hold (")
    assert view.sentences[0].startswith("110 layers, on MNIST: of the paper's statements C1, C4, C5 (2 parts)")
    assert "C3 hold with norms alone" in view.sentences[0]


@pytest.mark.slow
def test_a_run_measures_both_forms_alike(smoke_run: Callable[..., SmokeRun]) -> None:
    run = smoke_run(NORMS)
    assert set(run.found) == set(CLAIMS)
    for claim, found in run.found.items():
        subjects = [measured.subject for measured in found]
        assert subjects == ["digits-6-connected-n4", "digits-6-connected-n4-nonorm"]
        assert {rule.quantity for part in parts_once(claim) for rule in part.rules} <= set(list(found)[1].values)
    measures = [data.attrs["measure"] for data in run.datasets().values()]
    assert measures.count("statements") == 1
    assert measures.count("twins") == measures.count("layer_conditions") == measures.count("conditions_along") == 2
    assert {claim.id for claim in (accuracy.C1, hidden.C5)} <= {claim.id for claim in run.found}


def test_both_networks_are_asked_for() -> None:
    with pytest.raises(InputError, match="got no ResNet"):
        norms.run(None, replace(NORMS.presets["smoke"], titles=(PLAIN,)))  # type: ignore[arg-type]
