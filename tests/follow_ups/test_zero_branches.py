"""Networks whose branches are zero at initialisation: Fixup, SkipInit, ReZero, and a norm whose scale starts at zero.

F = 0: a unit is the identity, its branch's Jacobian zero, and alignment and trajectories have nothing to measure. They
say so. One Jacobian that is zero among others is in tests/measure/test_alignment.py, single steps of length zero in
tests/measure/test_trajectories.py.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy
import pytest
import torch
from torch import Tensor, nn

import skipscope as ss
from skipscope.measure.alignment_summary import alignment_summary, depth_fit
from skipscope.measure.trajectories import METRICS
from tests.trace.nets import Residual

D = 6


class Scaled(nn.Module):
    """h + alpha F(h), alpha = 0 at first."""

    def __init__(self, branch: nn.Module) -> None:
        super().__init__()
        self.branch, self.alpha = branch, nn.Parameter(torch.zeros(()))

    def forward(self, h: Tensor) -> Tensor:
        return h + self.alpha * self.branch(h)


class FixupBranch(nn.Module):
    """Scalar biases and a multiplier around two layers, the last of them zero (Zhang, Dauphin and Ma 2019)."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (nn.Linear(D, D, bias=False) for _ in range(2))
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros(())) for _ in range(4))
        self.multiplier = nn.Parameter(torch.ones(()))
        # He's, times L^(-1 / (2 m - 2)) for L = 3 units of m = 2 layers.
        nn.init.normal_(self.first.weight, std=(2 / D / 3) ** 0.5)
        nn.init.zeros_(self.second.weight)

    def forward(self, h: Tensor) -> Tensor:
        a, b, c, d = self.biases
        inner = torch.relu(self.first(h + a) + b)
        return self.multiplier * self.second(inner + c) + d


class Attention(nn.Module):
    """ReZero gives a transformer's sublayers an alpha each, and no norms."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(D, 2, batch_first=True)

    def forward(self, h: Tensor) -> Tensor:
        return self.attention(h, h, h, need_weights=False)[0]


def two_layers() -> nn.Module:
    return nn.Sequential(nn.Linear(D, D), nn.ReLU(), nn.Linear(D, D))


def zero_scale() -> nn.Module:
    norm = nn.BatchNorm1d(D)
    nn.init.zeros_(norm.weight)
    return nn.Sequential(nn.Linear(D, D), nn.ReLU(), nn.Linear(D, D), norm)


def of_vectors() -> list[nn.Module]:
    """Fixup, SkipInit and a norm with a scale of zero."""
    return [Residual(FixupBranch()), Scaled(two_layers()), Residual(zero_scale())]


def of_tokens() -> list[nn.Module]:
    """ReZero."""
    return [Scaled(Attention()), Scaled(two_layers())]


@pytest.mark.parametrize(("units", "shape"), [(of_vectors, (D,)), (of_tokens, (3, D))])
def test_units_are_the_identity_and_what_has_no_value_says_why(
    units: Callable[[], list[nn.Module]], shape: tuple[int, ...]
) -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(*units()).eval(), torch.randn(2, *shape)
    trunk = ss.trace(model, x)
    assert len(trunk) == len(model)
    point, size = trunk.at(x), x[0].numel()
    for span in (*trunk.units, trunk.stages[0]):
        J = span.jacobian(point).dense()
        assert torch.equal(J, torch.eye(size).expand(2, size, size))
        values = ss.singular_values(span.jacobian(point, dtype=torch.float64))
        assert ((values.values - 1).abs() <= values.bound).all()
    for one in trunk.units:
        assert not one.jacobian(point, of="branch").dense().any()
    found = ss.alignment(trunk, point, k=3)
    for way in ("ujv", "vju"):
        assert (found[f"reason_{way}"] == "zero Jacobian").all()
        assert found[f"coupling_{way}"].isnull().all()
        assert found[f"coupling_{way}_signed"].isnull().all()
    for name in ("energy", "gap", "u1v1", "chance", "left_cosine"):
        assert found[name].isnull().all(), name
    assert not found["k_used"].any()
    assert not found["numerical_rank"].any()
    assert not found["frobenius"].any()
    short = alignment_summary(found)
    assert short["ujv_count"].values.tolist() == [0, 0, 0]
    assert short["ujv"].isnull().all()
    assert (depth_fit(found).units, numpy.isnan(depth_fit(found).slope)) == (0, True)
    path = ss.trajectories(trunk, point)
    assert (path["zero_steps"] == len(model)).all()
    assert not path["step_norm"].any()
    assert all(path[name].isnull().all() for name in (*METRICS, "cosine"))
    sizes = ss.profile(trunk, point)
    assert not sizes["branch_over_skip"].any()
    assert sizes["cosine"].isnull().all()
    numpy.testing.assert_array_equal(sizes["jacobian_square"], 1)
    with torch.no_grad():
        for parameter in model.parameters():
            if not parameter.any():
                nn.init.normal_(parameter, std=0.1)
    assert (ss.alignment(trunk, x, k=3, chance=0)["reason_ujv"] == "").all()
    assert not ss.trajectories(trunk, x)["zero_steps"].any()


def test_a_relu_after_the_sum_makes_a_unit_the_diagonal_of_what_is_active() -> None:
    class Rectified(Residual):
        def forward(self, h: Tensor) -> Tensor:
            return torch.relu(super().forward(h))

    torch.manual_seed(0)
    model, x = nn.Sequential(Rectified(FixupBranch()), Rectified(FixupBranch())), torch.randn(2, D)
    trunk = ss.trace(model, x)
    for unit in trunk.units:
        J = unit.jacobian(x).dense()
        assert torch.equal(J, torch.diag_embed((x > 0).to(x)))
