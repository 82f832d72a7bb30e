"""Moved least-squares solutions against the bound, which the worst change attains."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import skipscope as ss
from skipscope.papers.c.measures import layer_sensitivity, sensitivity
from tests.measure.nets import Net


def with_condition(condition: float, n: int, samples: int) -> Tensor:
    left, right = (torch.linalg.qr(torch.randn(size, n, dtype=torch.float64)).Q for size in (n, samples))
    return left @ torch.diag(torch.logspace(0, -torch.log10(torch.tensor(condition)), n).double()) @ right.T


@pytest.mark.parametrize("condition", [10.0, 1e3, 1e5])
def test_the_bound_holds_and_the_worst_change_attains_it(condition: float) -> None:
    torch.manual_seed(0)
    X, W = with_condition(condition, 6, 40), torch.randn(4, 6, dtype=torch.float64)
    data = sensitivity(X, W @ X, relative=1e-8)
    assert data["condition"].item() == pytest.approx(condition, rel=1e-6)
    assert data["residual"].item() < 1e-9
    assert float(data["moved"].max()) <= data["bound_without_approximation"].item() * (1 + 1e-6)
    assert float(data["ratio"].where(data["kind"] == "random").max()) < 1
    assert float(data["ratio"].max()) == pytest.approx(1, abs=0.01)


def test_moved_solutions_are_those_of_the_pseudo_inverse() -> None:
    torch.manual_seed(0)
    X, Y = torch.randn(5, 30, dtype=torch.float64), torch.randn(3, 30, dtype=torch.float64)
    data = sensitivity(X, Y, relative=1e-3, draws=2)
    U, S, _ = torch.linalg.svd(X, full_matrices=False)
    W = Y @ torch.linalg.pinv(X)
    r = torch.linalg.svd(Y - W @ X).Vh[0]
    worst = Y @ torch.linalg.pinv(X + 1e-3 * S[0] * torch.outer(U[:, -1], r)) - W
    expected = torch.linalg.matrix_norm(worst, 2) / torch.linalg.matrix_norm(W, 2)
    found = data["moved"].sel(change=["worst for the residual +", "worst for the residual -"]).values
    assert min(abs(found - expected.item())) < 1e-12  # r has either sign
    assert expected.item() == pytest.approx(data["residual_term"].item(), rel=0.02)


def test_a_layers_own_states() -> None:
    torch.manual_seed(0)
    model, x = Net(bias=0.5).double(), torch.randn(6, 1, 8, 8, dtype=torch.float64)
    data = layer_sensitivity(model, x, "a.first")
    patches = torch.nn.functional.unfold(torch.relu(model.stem(x)), 3, padding=1).movedim(1, 0).flatten(1)
    values = torch.linalg.svdvals(patches.detach())
    assert data["condition"].item() == pytest.approx(float(values[0] / values[-1]))
    assert data["residual"].item() < 1e-12
    assert float(data["ratio"].max()) <= 1.01
    half = layer_sensitivity(nn.Sequential(nn.Linear(4, 4)).bfloat16(), torch.randn(50, 4).bfloat16(), "0")
    assert "float32 on a copy" in half.attrs["notes"]


def test_what_it_refuses() -> None:
    X = torch.randn(4, 20)
    X[3] = X[2]
    with pytest.raises(ss.InputError, match="full row rank, 4, got 3"):
        sensitivity(X, torch.randn(2, 20))
    with pytest.raises(ss.InputError, match="N at least n"):
        sensitivity(torch.randn(20, 4), torch.randn(2, 4))
    with pytest.raises(ss.InputError, match="finite"):
        sensitivity(torch.full((2, 4), torch.nan), torch.randn(2, 4))
    with pytest.raises(ss.InputError, match="relative between"):
        sensitivity(torch.randn(2, 4), torch.randn(2, 4), relative=0)
    with pytest.raises(ss.InputError, match="not zero"):
        sensitivity(torch.randn(2, 4), torch.zeros(2, 4))
    model = nn.Sequential(nn.Conv2d(4, 4, 1, groups=2))
    with pytest.raises(ss.InputError, match="one group"):
        layer_sensitivity(model, torch.randn(2, 4, 3, 3), "0")
    with pytest.raises(ss.InputError, match="calls no layer 'nowhere'"):
        layer_sensitivity(model, torch.randn(2, 4, 3, 3), "nowhere")
