"""The rival of the check, against closed forms, and the tables of the page against the stored results."""

from __future__ import annotations

import json
import math

import pytest
import torch
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

from benchmarks import koopman, plain_batch_norm
from benchmarks.check import PAGE, judged, read
from benchmarks.unseen.judging import expected_to_train

FAILS = [True, True, False, True, False, False]
SCORES = [3.0, 1.0, 2.0, 2.5, 0.5, 1.0]


def test_modes_of_a_linear_map_are_its_eigenvalues() -> None:
    """Whitening is a change of basis, which eigenvalues do not see; a linear map leaves no residual."""
    generator = torch.Generator().manual_seed(0)
    matrix, states = (torch.randn(6, n, generator=generator, dtype=torch.float64) for n in (6, 200))
    states -= states.mean(1, keepdim=True)
    moduli, residuals = koopman.modes(states, matrix @ states)
    expected = torch.linalg.eigvals(matrix).abs().sort().values
    torch.testing.assert_close(moduli.sort().values, expected, rtol=1e-10, atol=1e-10)
    assert float(residuals.max()) < 1e-10
    noise = torch.randn(6, 200, generator=generator, dtype=torch.float64)
    assert float(koopman.modes(states, noise)[1].min()) > 0.1


def test_a_rotation_has_all_its_mass_at_the_unit_circle() -> None:
    generator = torch.Generator().manual_seed(1)
    states = torch.randn(8, 300, generator=generator, dtype=torch.float64)
    states -= states.mean(1, keepdim=True)
    rotation = torch.linalg.qr(torch.randn(8, 8, generator=generator, dtype=torch.float64)).Q
    assert torch.allclose(koopman.modes(states, rotation @ states)[0], torch.ones(8, dtype=torch.float64))


def test_scores_agree_with_another_library() -> None:
    pairs = list(zip(SCORES, FAILS, strict=True))
    assert koopman.area(pairs) == pytest.approx(roc_auc_score(FAILS, SCORES))
    said = [value > 1.5 for value in SCORES]
    own = koopman.balanced(zip(FAILS, said, strict=True))
    assert own == pytest.approx(balanced_accuracy_score(FAILS, said))
    best, cut = koopman.best_threshold(pairs)
    every = [balanced_accuracy_score(FAILS, [v > t for v in SCORES]) for t in sorted(SCORES)]
    assert best == pytest.approx(max(every))
    assert balanced_accuracy_score(FAILS, [v > cut for v in SCORES]) == pytest.approx(best)
    assert koopman.score(None, above=False) == math.inf


def test_the_page_has_the_stored_results() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for kind, both in koopman.lists().items():
        assert koopman.table(kind, *both) in page
    own = koopman.judged(*koopman.lists()["unseen"])[0]
    records = koopman.lists()["unseen"][1]
    said = {name: value > 0 for name, (value, _) in own.scores.items()}
    assert said == {name: not expected_to_train(each) for name, each in records.items()}  # found in another way
    assert judged(read()["later"]) in page
    found = json.loads(plain_batch_norm.FILE.read_text(encoding="utf-8"))
    assert all(f"| `{name}` |" in page for name in (*found["longer"], *found["widths"]))


def test_every_network_was_measured() -> None:
    masses = json.loads(koopman.FILE.read_text(encoding="utf-8"))["masses"]
    assert list(masses) == [name for both in koopman.lists().values() for networks in both for name in networks]
