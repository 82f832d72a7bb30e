"""Coupling of blocks (Aubry et al. 2025) is that of residual alignment, on networks and on tokens of a transformer.

Exact alignment, signs, chance levels of prescribed spectra and every guard are in tests/measure/test_alignment.py.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy
import pytest
import torch
from torch import Tensor, nn

import skipscope as ss
from skipscope.measure.alignment_summary import alignment_summary
from skipscope.measure.jacobian_pairs import coupling, random_frames
from tests.measure.nets import dense

WIDTH, K = 64, 10
COUPLINGS = ("coupling_ujv", "coupling_ujv_signed", "coupling_vju", "coupling_vju_signed")


class Tanh(nn.Module):
    """h + tanh(W h): Jacobians that differ from sample to sample."""

    def __init__(self, count: int, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(count))

    def forward(self, h: Tensor) -> Tensor:
        for layer in self.layers:
            h = h + torch.tanh(layer(h))
        return h


class Turned(Tanh):
    """h + tanh(W h P) Q: with P = Q^T the same network in other coordinates, h = x P."""

    def __init__(self, model: Tanh, before: Tensor, after: Tensor) -> None:
        super().__init__(0, 1)
        self.layers = model.layers
        self.before, self.after = (nn.Parameter(matrix, requires_grad=False) for matrix in (before, after))

    def forward(self, h: Tensor) -> Tensor:
        for layer in self.layers:
            h = h + torch.tanh(layer(h @ self.before)) @ self.after
        return h


def rotation(seed: int, size: int = WIDTH) -> Tensor:
    drawn = random_frames(1, size, size, torch.Generator("cpu").manual_seed(seed))[0]
    return drawn.to(torch.get_default_device())


def test_a_jacobian_is_coupled_to_itself_and_random_ones_are_at_chance() -> None:
    torch.manual_seed(0)
    model, x = Tanh(6, WIDTH).double(), torch.randn(2, WIDTH, dtype=torch.float64)
    for layer in model.layers:
        nn.init.normal_(layer.weight, std=WIDTH**-0.5)
    found = ss.alignment(ss.trace(model, x), x, k=K, grids=False, chance=16)
    for name in ("coupling_ujv", "coupling_ujv_signed"):
        itself = numpy.diagonal(found[name].values, axis1=0, axis2=1)
        assert itself.max() <= 1e-12
    short = alignment_summary(found)
    for name in ("ujv", "vju"):
        assert float(short[name].sel(pairs="all")) == pytest.approx(0.97, abs=0.01)
        assert float(short[f"{name}_over_chance"].sel(pairs="all")) == pytest.approx(1, abs=0.01)


def test_a_common_rotation_changes_nothing() -> None:
    torch.manual_seed(0)
    model, x = Tanh(3, 24).double(), torch.randn(2, 24, dtype=torch.float64)
    Q = rotation(1, 24)
    names = (*COUPLINGS, "value", "u1v1", "energy", "left_cosine", "right_cosine")
    whole = ss.alignment(ss.trace(model, x), x, k=5, chance=0)
    turned = ss.alignment(ss.trace(Turned(model, Q, Q.mT), x @ Q.mT), x @ Q.mT, k=5, chance=0)
    for name in names:
        numpy.testing.assert_allclose(turned[name], whole[name], atol=1e-12, err_msg=name)


def test_rotations_of_either_side_leave_one_way_alone() -> None:
    """J_i -> P J_i Q for all i: U_j^T J_i V_j stays, V_j^T J_i U_j does not."""
    torch.manual_seed(0)
    J = torch.randn(2, WIDTH, WIDTH, dtype=torch.float64)
    both = torch.tensor(K)
    found = []
    for matrices in (J, rotation(1) @ J @ rotation(2)):
        first, second = (ss.svd(ss.Dense(matrix), K) for matrix in matrices)
        ujv, vju = second.U[0].mT @ matrices[0] @ second.V[0], second.V[0].mT @ matrices[0] @ second.U[0]
        found.append([float(coupling(grid, first.S[0], both)) for grid in (ujv, vju)])
    assert found[1][0] == pytest.approx(found[0][0], abs=1e-12)
    assert abs(found[1][1] - found[0][1]) > 1e-4


# -- a transformer

BLOCKS, TOKENS, CHANNELS = 2, 4, 12


@pytest.fixture(scope="module")
def transformer() -> tuple[nn.TransformerEncoder, Tensor]:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(CHANNELS, 2, 24, dropout=0, batch_first=True, norm_first=True)
    model = nn.TransformerEncoder(layer, BLOCKS, enable_nested_tensor=False).double().eval()
    for weight in model.parameters():
        if weight.dim() > 1:
            nn.init.normal_(weight, std=0.3)
    return model, torch.randn(2, TOKENS, CHANNELS, dtype=torch.float64)


def at_tokens(function: Callable[[Tensor], Tensor], states: Tensor, before: int, after: int) -> Tensor:
    """(B, channels, channels)"""
    whole = dense(function, states).unflatten(1, (TOKENS, CHANNELS)).unflatten(3, (TOKENS, CHANNELS))
    return whole[:, after, :, before]


def by_hand(J: Tensor, other: Tensor, k: int) -> float:
    U, _, Vt = numpy.linalg.svd(other.detach().cpu().numpy())
    S = numpy.linalg.svd(J.detach().cpu().numpy(), compute_uv=False)[:k]
    grid = U[:, :k].T @ J.detach().cpu().numpy() @ Vt[:k].T
    return float(numpy.linalg.norm(abs(grid) - numpy.diag(S)) / numpy.linalg.norm(S))


def test_attention_and_feed_forward_of_a_transformer(transformer: tuple[nn.TransformerEncoder, Tensor]) -> None:
    model, x = transformer
    trunk = ss.trace(model, x)
    found = ss.alignment(trunk, x, k=4, tokens=(1, 1), chance=0)
    assert found["part"].values.tolist() == ["branch"] * 2 * BLOCKS
    jacobians, h = [], x
    for layer in model.layers:
        for branch in (
            lambda state, layer=layer: layer._sa_block(layer.norm1(state), None, None),
            lambda state, layer=layer: layer._ff_block(layer.norm2(state)),
        ):
            jacobians.append(at_tokens(branch, h, 1, 1))
            h = (h + branch(h)).detach()
    for i, J in enumerate(jacobians):
        for j, other in enumerate(jacobians):
            for sample in range(2):
                expected = by_hand(J[sample], other[sample], 4)
                assert float(found["coupling_ujv"][i, j, sample]) == pytest.approx(expected, abs=1e-10)
    across = ss.alignment(trunk, x, k=4, tokens=(0, 3), chance=0)
    apart = (across["reason_ujv"] == "zero Jacobian").values[..., 0].diagonal()
    assert apart.tolist() == [False, True] * BLOCKS  # a feed-forward layer sees one token


def test_blocks_of_a_transformer_with_tokens_and_their_line(transformer: tuple[nn.TransformerEncoder, Tensor]) -> None:
    """Whole blocks: spans of the two units that a named block holds."""
    model, x = transformer
    trunk = ss.trace(model, x, units=[f"layers.{i}" for i in range(BLOCKS)])
    point, h = trunk.at(x), x
    jacobians = {(0, 3): [], (3, 3): []}  # type: dict[tuple[int, int], list[tuple[ss.Operator, Tensor]]]
    states = [x]
    for i, layer in enumerate(model.layers):
        block = trunk.span(2 * i, 2 * i + 1)
        for (before, after), found in jacobians.items():
            expected = at_tokens(layer, h, before, after)
            found.append((block.jacobian(point, tokens=(before, after)), expected))
        h = layer(h).detach()
        states += [point.exit(trunk[2 * i]).detach(), h]
    for found in jacobians.values():
        triplets = [ss.svd(J, 4) for J, _ in found]
        for i, (J, expected) in enumerate(found):
            torch.testing.assert_close(J.dense(), expected, atol=1e-12, rtol=0)
            for j, other in enumerate(triplets):
                grid = other.U.mT @ J.matmat(other.V)
                values = coupling(grid, triplets[i].S, torch.tensor(4))
                for sample in range(2):
                    by_numpy = by_hand(expected[sample], found[j][1][sample], 4)
                    assert float(values[sample]) == pytest.approx(by_numpy, abs=1e-10)
    line = ss.trajectories(trunk, point, tokens=3)["line_shape"].values[0]
    steps = torch.stack(states).diff(dim=0)[:, :, 3]  # unit, sample, channel
    directions = steps / steps.norm(dim=2, keepdim=True)
    assert line == pytest.approx(2 * BLOCKS / directions.sum(0).norm(dim=1).cpu().numpy(), rel=1e-12)
