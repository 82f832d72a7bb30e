"""Eigenvalues and departure from normality of matrices with known answers, and of models against torch and numpy."""

from __future__ import annotations

import numpy
import pytest
import torch
from torch import Tensor, nn

import skipscope as ss
from skipscope.measure import normality as measured
from tests.measure.language import TOKENS, WIDTH, traced
from tests.measure.nets import Net, dense
from tests.seeded import generator
from tests.slow import thinned


class Linear(nn.Module):
    """x + W x: the Jacobian is the given matrix."""

    def __init__(self, matrix: list[list[float]]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(matrix).double() - torch.eye(len(matrix)).double())

    def forward(self, x: Tensor) -> Tensor:
        return x + nn.functional.linear(x, self.weight)


def of_matrices(*matrices: list[list[float]]) -> tuple[ss.Trunk, Tensor]:
    x = torch.randn(2, len(matrices[0]), dtype=torch.float64)
    return ss.trace(nn.Sequential(*map(Linear, matrices)), x), x


def test_known_matrices() -> None:
    triangle = [[2.0, 3.0], [0.0, 1.0]]
    turn = [[0.6, -0.8], [0.8, 0.6]]
    symmetric = [[2.0, 1.0], [1.0, 2.0]]
    nilpotent = [[0.0, 1.0], [0.0, 0.0]]
    data = ss.normality(*of_matrices(triangle, turn, symmetric, nilpotent)).isel(sample=1)
    numpy.testing.assert_allclose(data["departure"], [3 / 14**0.5, 0, 0, 1], atol=1e-14)
    numpy.testing.assert_allclose(data["spectral_radius"], [2, 1, 3, 0], atol=1e-7)
    numpy.testing.assert_allclose(data["rotation"][:3], [0, 0.64, 0], atol=1e-14)
    numpy.testing.assert_allclose(data["eigenvalue_real"][:3], [[2, 1], [0.6, 0.6], [3, 1]], atol=1e-14)
    assert sorted(data["eigenvalue_imaginary"][1].values) == pytest.approx([-0.8, 0.8])
    numpy.testing.assert_allclose(data["condition"][:3], [[10**0.5] * 2, [1, 1], [1, 1]], rtol=1e-12)
    assert data["amplification"][1:3].values == pytest.approx(1)
    assert float(data["amplification"][0]) == pytest.approx(numpy.linalg.norm(triangle, 2) / 2)
    assert numpy.isinf(data["condition"][3]).all() or (data["condition"][3] > 1e10).all()


@pytest.mark.parametrize("symmetric", [False, True])
def test_the_condition_of_an_eigenvalue_that_is_there_many_times(symmetric: bool) -> None:
    """I + u v^T has the eigenvalues 1 + <u, v> and, n - 1 times, 1; both projectors have the norm |u| |v| / <u, v>."""
    u, v = torch.randint(1, 9, (2, 12), generator=generator(0)).float()
    v = u if symmetric else v
    data = ss.normality(*of_matrices((torch.eye(12) + torch.outer(u, v)).tolist()))
    expected = u.double().norm() * v.double().norm() / (u @ v)
    numpy.testing.assert_allclose(data["condition"], expected.item(), rtol=1e-10)


@pytest.mark.parametrize("name", thinned(["written", "gpt2", "bert"], fast=("written",)))
def test_of_language_models(name: str) -> None:
    _, trunk, ids = traced(name)
    seen: list[tuple[int, int]] = []
    data = ss.normality(trunk, ids, units=[0, 1], samples=[2], progress=lambda *two: seen.append(two))
    assert seen == [(1, 2), (2, 2)]
    point = trunk.at(ids)
    for i in range(2):
        # Row by row in plain reverse mode, of all samples at once: sample 2 depends on sample 2 alone.
        J = torch.autograd.functional.jacobian(trunk[i].bound(point), point.entry(trunk[i]))
        J = J[2, :, :, 2].reshape(TOKENS * WIDTH, -1)
        check(data.isel(unit=i, sample=0), J)
        at = ss.normality(trunk, point, units=[i], samples=[2], tokens=-1).isel(unit=0, sample=0)
        check(at, J[-WIDTH:, -WIDTH:])
        pair = ss.normality(trunk, point, units=[i], samples=[2], tokens=(-1, -1)).isel(unit=0, sample=0)
        assert pair.identical(at)
    branch = ss.normality(trunk, ids, units=[0], samples=[2], of="branch", tokens=0).isel(unit=0, sample=0)
    J = torch.autograd.functional.jacobian(trunk[0].branch.bound(point), point.entry(trunk[0]))[2, 0, :, 2, 0]
    check(branch, J)


def check(data: object, J: Tensor) -> None:
    found = data["eigenvalue_real"].values + 1j * data["eigenvalue_imaginary"].values  # type: ignore[index]
    expected = torch.linalg.eigvals(J).cpu().numpy()
    far = [abs(expected - value).min() for value in found] + [abs(found - value).min() for value in expected]
    assert max(far) < 1e-9 * float(J.norm())
    assert (numpy.diff(abs(found)) < 1e-12).all()  # the largest first
    size = float(J.norm())
    departure = max(0.0, size**2 - float((abs(expected) ** 2).sum())) ** 0.5 / size
    assert float(data["departure"]) == pytest.approx(departure, abs=1e-6)  # type: ignore[index]
    ratio = float(torch.linalg.matrix_norm(J, 2)) / float(abs(expected).max())
    assert float(data["amplification"]) == pytest.approx(ratio, rel=1e-8)  # type: ignore[index]
    assert float(data["residual"]) < 1e-13  # type: ignore[index]
    values, vectors = numpy.linalg.eig(J.cpu().numpy())
    inverse = numpy.linalg.inv(vectors)
    conditions = numpy.linalg.norm(inverse, axis=1) * numpy.linalg.norm(vectors, axis=0)  # 1 / |y* x|
    first = abs(values - found[0]).argmin()
    assert float(data["condition"][0]) == pytest.approx(conditions[first], rel=1e-5)  # type: ignore[index]


def test_of_a_residual_network() -> None:
    torch.manual_seed(0)
    model, x = Net(bias=0).double().eval(), torch.rand(2, 1, 8, 8, dtype=torch.float64)
    nn.init.constant_(model.stem.bias, 0.5)
    data = ss.normality(ss.trace(model, x), x)
    assert [bool(reason) for reason in data["reason"].values] == [False, False, True, False, True]
    assert "goes from a state of shape (2, 8, 8) to one of shape (4, 4, 4)" in str(data["reason"].values[2])
    assert data["departure"][2].isnull().all()
    h = torch.relu(model.stem(x)).detach()
    for sample, J in enumerate(dense(model.a, h)):
        check_size = float(J.norm())
        assert float(data["frobenius"][0, sample]) == pytest.approx(check_size)
        values = torch.linalg.eigvals(J)
        assert float(data["spectral_radius"][0, sample]) == pytest.approx(float(values.abs().max()), rel=1e-6)


def test_bad_input(monkeypatch: pytest.MonkeyPatch) -> None:
    _, trunk, ids = traced("written")
    with pytest.raises(ss.InputError, match="expected unit or branch"):
        ss.normality(trunk, ids, of="skip")
    with pytest.raises(ss.InputError, match="names no unit"):
        ss.normality(trunk, ids, units=[])
    with pytest.raises(ss.InputError, match="tokens=9: expected a position among the 5"):
        ss.normality(trunk, ids, tokens=9)
    for wrong in ((0, -1), (1, 2, 3), "last", 1.0, numpy.array([1, 1])):
        with pytest.raises(ss.InputError, match="expected one position, such as -1, or a pair of it with itself"):
            ss.normality(trunk, ids, tokens=wrong)
    import sys

    monkeypatch.setattr(sys.modules["skipscope.measure.normality"], "LARGEST", WIDTH)
    with pytest.raises(ss.InputError, match="has states of 40 numbers, more than 8; choose one position with tokens="):
        measured(trunk, ids)
    x = torch.rand(2, 1, 8, 8)
    net = ss.trace(Net().eval(), x)
    with pytest.raises(ss.InputError, match="no unit of Net has eigenvalues to compute: padded goes from a state"):
        ss.normality(net, x, units=["padded"])
    with pytest.raises(ss.InputError, match="tokens= needs"):
        ss.normality(net, x, tokens=0)
