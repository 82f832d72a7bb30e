"""Streams against the matrices of the model's own code, and what they are for matrices with known answers."""

from __future__ import annotations

import numpy
import pytest
import torch
from torch import Tensor, nn

import skipscope as ss
from tests.trace.beyond_sums import STREAMS, HyperConnection, Streams
from tests.trace.nets import D, mlp, tokens


class Fixed(nn.Module):
    """Mixes streams by a given matrix."""

    def __init__(self, matrix: Tensor) -> None:
        super().__init__()
        self.branch, self.matrix = mlp(), nn.Parameter(matrix)

    def forward(self, x: Tensor) -> Tensor:
        return self.matrix @ x + self.branch(x.mean(-2))[..., None, :]


def of_matrices(*matrices: Tensor) -> tuple[ss.Trunk, Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(*map(Fixed, matrices)).double()
    x = torch.randn(2, len(matrices[0]), D, dtype=torch.float64)
    return ss.trace(model, x), x


def test_doubly_stochastic_matrices_keep_their_gain() -> None:
    swap = torch.tensor([[0.0, 1.0], [1.0, 0.0]]).double()
    half = torch.full((2, 2), 0.5).double()
    data = ss.streams(*of_matrices(swap, swap, half))
    assert data.attrs["streams"] == 2
    numpy.testing.assert_allclose(data["sinkhorn_residual"], 0, atol=1e-14)
    for name in ("row_gain", "column_gain", "product_row_gain", "product_column_gain"):
        numpy.testing.assert_allclose(data[name], 1, atol=1e-14)
    numpy.testing.assert_allclose(data["product_second_value"][:, 0], [1, 1, 0], atol=1e-14)
    numpy.testing.assert_allclose(data["product_dobrushin"][:, 0], [1, 1, 0], atol=1e-14)


def test_gains_of_a_product() -> None:
    first, second = torch.tensor([[1.0, 2.0], [0.0, 1.0]]).double(), torch.tensor([[1.0, 0.0], [-3.0, 1.0]]).double()
    data = ss.streams(*of_matrices(first, second))
    product = (second @ first).cpu().numpy()  # [[1, 2], [-3, -5]]
    assert data["row_gain"].values[:, 0].tolist() == [3, 4]
    assert data["column_gain"].values[:, 0].tolist() == [3, 4]
    assert data["sinkhorn_residual"].values[:, 0].tolist() == [2, 3]
    assert data["product_row_gain"].values[1, 0] == abs(product).sum(1).max() == 8
    assert data["product_column_gain"].values[1, 0] == abs(product).sum(0).max() == 7
    second_value = numpy.linalg.svd(product, compute_uv=False)[1]
    assert data["product_second_value"].values[1, 0] == pytest.approx(second_value, rel=1e-12)
    assert data["product_dobrushin"].values[1, 0] == pytest.approx((4 + 7) / 2)


def test_matrices_that_depend_on_the_state() -> None:
    """The largest over positions, with the matrices that the model's own code computes."""
    torch.manual_seed(0)
    model = Streams(*(HyperConnection() for _ in range(3))).double()
    x = tokens(4).double()
    trunk = ss.trace(model, x)
    found: list[Tensor] = []

    def note(block: nn.Module, args: tuple[Tensor, ...]) -> None:
        assert isinstance(block, HyperConnection)
        (h,) = args
        dynamic = torch.tanh(block.weights(torch.nn.functional.layer_norm(h.flatten(2), (STREAMS * D,))))
        matrix = dynamic[..., : STREAMS**2].unflatten(-1, (STREAMS, STREAMS))
        found.append((block.mixing + matrix).detach())

    for block in model.blocks:
        block.register_forward_pre_hook(note)
    model(x)
    data = ss.streams(trunk, x)
    product = torch.eye(STREAMS).double()
    for i, matrix in enumerate(found):
        torch.testing.assert_close(trunk[i].mix(x), matrix, rtol=1e-12, atol=1e-12)
        product = matrix @ product
        numpy.testing.assert_allclose(data["row_gain"][i], matrix.abs().sum(-1).amax((1, 2)).cpu(), rtol=1e-12)
        expected = torch.linalg.svdvals(product)[..., 1].amax(1).cpu()
        numpy.testing.assert_allclose(data["product_second_value"][i], expected, rtol=1e-10)
    point = trunk.at(x)
    h = point.entry(trunk[1])
    branch, skip = (path(h).flatten(1).norm(dim=1) for path in (trunk[1].branch, trunk[1].skip))
    numpy.testing.assert_allclose(data["branch_share"][1], (branch / (branch + skip)).detach().cpu(), rtol=1e-12)


def test_the_jacobian_has_the_derivative_of_the_matrix() -> None:
    torch.manual_seed(0)
    block = HyperConnection().double()
    model = Streams(block, HyperConnection().double())
    x = tokens(2).double()
    trunk = ss.trace(model, x)
    h = trunk.at(x).entry(trunk[0])
    found = trunk[0].jacobian(x).dense()
    for sample in range(2):
        expected = torch.func.jacrev(lambda state: block(state[None])[0])(h[sample]).reshape(found.shape[1:])
        torch.testing.assert_close(found[sample], expected, rtol=1e-10, atol=1e-12)


def test_a_trunk_without_streams_is_refused() -> None:
    model = ss.build("resnet8-digits-n4")
    x = torch.randn(2, 1, 8, 8)
    with pytest.raises(ss.InputError, match="no unit of ResNet mixes several streams; its units have skips: identity"):
        ss.streams(ss.trace(model, x), x)


def test_matrices_of_different_sizes_have_no_product() -> None:
    class Narrower(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x[:, :2]

    model = nn.Sequential(Fixed(torch.eye(3)), Narrower(), Fixed(torch.eye(2)))
    x = torch.randn(2, 3, D)
    with pytest.raises(ss.InputError, match="there is no product of the two"):
        ss.streams(ss.trace(model, x), x)
