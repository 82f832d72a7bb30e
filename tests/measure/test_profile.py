"""The profile against the same quantities computed by hand."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import skipscope as ss
from tests.trace.nets import CASES, D, Residual, mlp
from tests.trace.test_cases import inputs, traced


def test_numbers_are_those_of_the_definitions() -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(Residual(mlp()), Residual(mlp()), nn.Linear(D, 3)).double(), torch.randn(6, D).double()
    trunk = ss.trace(model, x)
    targets = torch.tensor([0, 1, 2, 0, 1, 2])
    data = ss.profile(trunk, x, loss=lambda y: nn.functional.cross_entropy(y, targets), probes=400)
    h = x
    for i in (0, 1):
        state = h.detach().requires_grad_()
        nn.functional.cross_entropy(model[i:](state), targets).backward()
        branch = model[i].branch(state).detach()
        row = data.isel(unit=i)
        assert row["state_rms"].values == pytest.approx((state.detach().norm(dim=1) / D**0.5).cpu().numpy())
        assert row["branch_over_skip"].values == pytest.approx(
            (branch.norm(dim=1) / state.norm(dim=1)).detach().cpu().numpy()
        )
        cosine = nn.functional.cosine_similarity(branch, state, dim=1).detach()
        assert row["cosine"].values == pytest.approx(cosine.cpu().numpy())
        assert row["gradient_rms"].values == pytest.approx((state.grad.norm(dim=1) / D**0.5).cpu().numpy())
        left = model[i](h).detach().requires_grad_()
        nn.functional.cross_entropy(model[i + 1 :](left), targets).backward()
        assert row["gradient_gain"].values == pytest.approx(
            (state.grad.norm(dim=1) / left.grad.norm(dim=1)).cpu().numpy()
        )
        own = state.detach() - state.detach().mean(0)
        assert row["state_spread"].values == pytest.approx((own.norm(dim=1) / state.detach().norm(dim=1)).cpu().numpy())
        spread = (branch - branch.mean(0)).norm(dim=1) / state.detach().norm(dim=1)
        assert row["branch_spread"].values == pytest.approx(spread.cpu().numpy())
        exact = torch.func.vmap(torch.func.jacrev(model[i]))(state.detach()).square().sum((1, 2)) / D
        z = (row["jacobian_square"].values - exact.detach().cpu().numpy()) / row["jacobian_square_error"].values
        assert (abs(z) < 4).all()
        squares = torch.linalg.svdvals(state.detach()).square()
        shares = squares / squares.sum()
        assert float(row["effective_rank"]) == pytest.approx(float(torch.exp(-(shares * shares.log()).sum())))
        h = model[i](h)
    assert (data["sum_zeros"] == 0).all()


def test_sums_that_are_exactly_zero_are_counted() -> None:
    branch = nn.Linear(D, D, bias=False)
    nn.init.eye_(branch.weight)
    with torch.no_grad():
        branch.weight[0, 0] = branch.weight[1, 1] = -1
    model, x = nn.Sequential(Residual(branch), nn.ReLU()), torch.rand(3, D) + 1
    x[2, 2] = 0
    assert ss.profile(ss.trace(model, x), x)["sum_zeros"].values.tolist() == [[2, 2, 3]]


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.units])
def test_works_on_every_trunk(name: str) -> None:
    _, trunk = traced(name)
    data = ss.profile(trunk, inputs(CASES[name], 3))
    assert list(data["unit"].values) == [unit.name for unit in trunk.units]
    assert data["state_rms"].notnull().all()
    assert data["gradient_rms"].notnull().all()
    assert (data["jacobian_square"] > 0).all()


def test_named_units_and_their_gradients() -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(Residual(mlp()), Residual(mlp())).double(), torch.randn(4, D).double()
    by_graph = ss.profile(ss.trace(model, x), x)
    by_name = ss.profile(ss.trace(model, x, units=["0", "1"]), x)
    assert by_name["gradient_rms"].values == pytest.approx(by_graph["gradient_rms"].values)


def test_without_probes_the_rest_is_the_same() -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(Residual(mlp()), Residual(mlp())), torch.randn(4, D)
    trunk = ss.trace(model, x)
    everything, cheap = ss.profile(trunk, x), ss.profile(trunk, x, probes=0)
    assert set(everything) - set(cheap) == {"jacobian_square", "jacobian_square_error"}
    assert cheap.drop_attrs().equals(everything[list(cheap)].drop_attrs())
    with pytest.raises(ss.InputError, match="expected 0, or at least 2"):
        ss.profile(trunk, x, probes=1)


def test_one_sample_has_no_spread() -> None:
    model, x = nn.Sequential(Residual(mlp())), torch.randn(1, D)
    assert ss.profile(ss.trace(model, x), x)["state_spread"].isnull().all()


def test_a_model_without_units_is_refused() -> None:
    with pytest.raises(ss.InputError, match="no residual units"):
        ss.profile(ss.trace(mlp(), torch.randn(2, D)), torch.randn(2, D))


def test_some_units_have_the_numbers_that_they_have_among_all() -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(*(Residual(mlp()) for _ in range(3))), torch.randn(4, D)
    trunk = ss.trace(model, x)
    everything, some = ss.profile(trunk, x), ss.profile(trunk, x, units=["2", 0])
    assert some["unit"].values.tolist() == ["2", "0"]
    for name in ("state_rms", "branch_over_skip", "cosine", "gradient_rms", "effective_rank", "jacobian_square"):
        assert (some[name].values == everything[name].sel(unit=["2", "0"]).values).all()


@pytest.mark.parametrize("scale", [1e-220, 1e-170, 1.0, 1e170, 1e220])
def test_sizes_of_states_at_any_scale(scale: float) -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(Residual(nn.Linear(D, D, bias=False))).double(), torch.randn(4, D).double()
    usual, scaled = (ss.profile(ss.trace(model, some), some) for some in (x, scale * x))
    for name in ("branch_over_skip", "cosine", "effective_rank"):
        assert scaled[name].values == pytest.approx(usual[name].values, rel=1e-12)
    assert scaled["state_rms"].values / scale == pytest.approx(usual["state_rms"].values, rel=1e-12)
