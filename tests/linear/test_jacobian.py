"""Jacobians of units and spans against dense references taken sample by sample, and against closed forms."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import skipscope as ss
from skipscope.errors import InputError
from skipscope.linear.jacobian import Jacobian
from tests.slow import thinned
from tests.trace.nets import CASES, D, Residual, mlp
from tests.trace.test_cases import inputs, traced


def reference(function: Any, state: Tensor, axis: int) -> Tensor:
    """(B, m, n): reverse-mode rows of the whole batch's function, and of them each sample's own block."""
    rows = torch.autograd.functional.jacobian(function, state)  # *output, *state
    output_axis = axis if rows.shape[axis] == state.shape[axis] else 0
    blocks = []
    for sample in range(state.shape[axis]):
        block = rows.select(output_axis, sample)
        block = block.select(block.dim() - state.dim() + axis, sample)
        m = function(state).numel() // state.shape[axis]
        blocks.append(block.reshape(m, -1))
    return torch.stack(blocks)


# One of each kind of skip, tail, context and state; tests/measure/test_every_trunk.py verifies the units of all cases.
FEW = (
    *(
        "a slice as skip",
        "residual, relu",
        "pre-activation",
        "post-norm encoder",
        "cross-attention",
        "time conditioning",
    ),
    *(
        "u-net, added",
        "pooled skip",
        "three branches",
        "odd sums",
        "several tails in flat code",
        "sequence first inside",
    ),
)


@pytest.mark.parametrize("name", thinned((name for name, case in CASES.items() if case.units), fast=FEW))
def test_every_unit_and_its_parts(name: str) -> None:
    case, (_, trunk) = CASES[name], traced(name)
    point = trunk.at(inputs(case, 2))
    for unit in trunk.units[:3]:
        entry, axis = point.entry(unit), unit.batch_axis
        whole = unit.jacobian(point)
        dense = whole.dense()
        torch.testing.assert_close(dense, reference(unit.bound(point), entry, axis), rtol=0, atol=1e-12)
        branch = unit.jacobian(point, of="branch")
        torch.testing.assert_close(branch.dense(), reference(unit.branch.bound(point), entry, axis), rtol=0, atol=1e-12)
        torch.testing.assert_close(whole.T.dense(), dense.mT)
        U = torch.randn(2, whole.shape[1], 3, dtype=torch.float64)
        torch.testing.assert_close(whole.rmatmat(U), dense.mT @ U)
        # The chain rule: tail' (branch' + skip') is the unit's Jacobian.
        parts = (
            unit.jacobian(point, of="branch", tail=True).dense() + unit.jacobian(point, of="skip", tail=True).dense()
        )
        torch.testing.assert_close(parts, dense, rtol=0, atol=1e-12)
        torch.testing.assert_close(whole.take([1]).dense(), dense[1:], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["flat loop, relu", "u-net, concatenated", "post-norm encoder", "pre-activation"])
def test_spans_are_products_of_their_segments(name: str) -> None:
    case, (_, trunk) = CASES[name], traced(name)
    point = trunk.at(inputs(case, 2))
    for stage in trunk.stages:
        product = stage.units[0].jacobian(point)
        for unit in stage.units[1:]:
            product = unit.jacobian(point) @ product
        torch.testing.assert_close(stage.jacobian(point).dense(), product.dense(), rtol=0, atol=1e-12)
    if name == "pre-activation":
        whole = trunk.segments[1].jacobian(point)
        for segment in trunk.segments[2:]:
            whole = segment.jacobian(point) @ whole
        direct = reference(lambda h: _rest(trunk, h), point.entry(trunk[0]), 0)
        torch.testing.assert_close(whole.dense(), direct, rtol=0, atol=1e-12)


def _rest(trunk: ss.Trunk, state: Tensor) -> Tensor:
    for segment in trunk.segments[1:]:
        state = segment(state)
    return state


def test_a_circular_convolution_has_the_singular_values_of_its_symbol() -> None:
    """x + conv(x) with circular padding is diagonal in Fourier space: at each frequency a C x C matrix I + K(w)."""
    torch.manual_seed(0)
    conv = nn.Conv2d(3, 3, 3, padding=1, padding_mode="circular", bias=False)
    x = torch.randn(2, 3, 8, 8)
    trunk = ss.trace(Residual(conv), x)
    kernel = torch.zeros(3, 3, 8, 8, dtype=torch.float64)
    for i in range(3):
        for j in range(3):
            kernel[:, :, (1 - i) % 8, (1 - j) % 8] += conv.weight[:, :, i, j].detach().double()
    symbol = torch.fft.fft2(kernel).permute(2, 3, 0, 1) + torch.eye(3)
    expected = torch.linalg.svdvals(symbol.cpu()).flatten().sort(descending=True).values
    found = ss.singular_values(trunk[0].jacobian(x))
    for sample in range(2):
        assert ((found.values[sample] - expected).abs() <= found.bound[sample] + 1e-14).all()


def test_a_float32_model_is_linearised_in_float64_when_asked() -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(Residual(mlp()), nn.Linear(D, 2)), torch.randn(3, D)
    trunk = ss.trace(model, x)
    exact = torch.func.vmap(torch.func.jacrev(copy.deepcopy(model[0]).double()))(x.double())
    torch.testing.assert_close(trunk[0].jacobian(x, dtype=torch.float64).dense(), exact, rtol=0, atol=1e-14)
    torch.testing.assert_close(trunk[0].jacobian(x).double().dense(), exact, rtol=0, atol=1e-14)
    assert (trunk[0].jacobian(x).dense() - exact).abs().max() > 1e-10


def test_tokens_and_channels_are_restrictions() -> None:
    case, (_, trunk) = CASES["cross-attention"], traced("cross-attention")
    point = trunk.at(inputs(case, 2))
    unit = trunk["own"]
    dense = unit.jacobian(point).dense().reshape(2, 5, D, 5, D)
    torch.testing.assert_close(unit.jacobian(point, tokens=(1, 4)).dense(), dense[:, 4, :, 1, :])
    picked = unit.jacobian(point, tokens=(slice(0, 2), [0, 3])).dense()
    torch.testing.assert_close(picked, dense[:, [0, 3]][:, :, :, :2].reshape(2, 2 * D, 2 * D))
    torch.testing.assert_close(
        unit.jacobian(point, channels=([0, 2], 1)).dense(), dense[:, :, 1][..., [0, 2]].reshape(2, 5, 10)
    )
    with pytest.raises(ss.InputError, match="a pair"):
        unit.jacobian(point, tokens=3)
    with pytest.raises(ss.InputError, match="below 5"):
        unit.jacobian(point, tokens=(7, 0))
    _, image_trunk = traced("pooled skip")
    with pytest.raises(ss.InputError, match=r"use channels="):
        image_trunk[0].jacobian(inputs(CASES["pooled skip"], 2), tokens=(0, 0))


def test_batch_statistics_are_refused() -> None:
    model = Residual(nn.Sequential(nn.Linear(D, D), nn.BatchNorm1d(D, track_running_stats=False)))
    trunk = ss.trace(model, torch.randn(3, D))
    with pytest.raises(ss.InputError, match="couples the samples of a batch"):
        trunk[0].jacobian(torch.randn(3, D))


def test_values_that_are_not_finite_are_refused_with_the_first_place() -> None:
    model = nn.Sequential(Residual(mlp()), Residual(mlp()))
    trunk = ss.trace(model, torch.randn(3, D))
    with torch.no_grad():
        model[1].branch[2].weight[0, 0] = float("nan")
    with pytest.raises(ss.InputError, match=r"the exit state of 1 .*first in the weight 1\.branch\.2\.weight"):
        trunk[1].jacobian(torch.randn(3, D))
    with torch.no_grad():
        model[1].branch[2].weight[0, 0] = 0
        model[0].branch[0].weight *= 1e38
        model[0].branch[2].weight *= 1e38
    with pytest.raises(ss.InputError, match=r"the entry state of 1 .*first in 0\.branch\.2"):
        trunk[1].jacobian(torch.randn(3, D))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"of": "tail"}, "expected one of unit, branch, skip"), ({"tail": True}, "has its tail already")],
)
def test_bad_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    _, trunk = traced("flat loop")
    with pytest.raises(ss.InputError, match=message):
        trunk[0].jacobian(inputs(CASES["flat loop"], 2), **arguments)


def test_named_units_have_jacobians_too() -> None:
    torch.manual_seed(0)
    model, x = (
        nn.Sequential(Residual(mlp()), nn.ReLU(), Residual(mlp())).double(),
        torch.randn(3, D, dtype=torch.float64),
    )
    by_graph, by_name = ss.trace(model, x), ss.trace(model, x, units=["0", "2"])
    for unit in (0, 1):
        torch.testing.assert_close(
            by_name[unit].jacobian(by_name.at(x), of="branch").dense(),
            by_graph[unit].jacobian(by_graph.at(x), of="branch").dense(),
        )
    span = by_name.span(0, 1).jacobian(by_name.at(x))
    torch.testing.assert_close(span.dense(), by_graph.span(0, 1).jacobian(x).dense())
    torch.testing.assert_close(span.take([2]).dense(), span.dense()[2:])


def test_types_that_a_graph_names_follow_the_run() -> None:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.out = nn.Linear(D, D), nn.Linear(D, D)

        def forward(self, x: Tensor) -> Tensor:
            q = self.q(x)
            return x + self.out(torch.softmax(q @ q.mT, dim=-1, dtype=torch.float32).to(q.dtype) @ x)

    x = torch.randn(2, 5, D)
    assert ss.verify(ss.trace(nn.Sequential(Attention()), x)[0].jacobian(x)).passed


def test_segments_that_are_no_functions_say_so() -> None:
    model = nn.Sequential(nn.Embedding(10, D), Residual(mlp()))
    tokens = torch.randint(0, 10, (3, 4))
    trunk = ss.trace(model, tokens)
    assert trunk.segments[0].kind == "stem"
    with pytest.raises(ss.TraceError, match="not a function of one state"):
        trunk.segments[0].jacobian(tokens)


def test_the_batch_axis_of_an_exit_is_known_not_guessed() -> None:
    class Turned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mlp = mlp()

        def forward(self, x: Tensor) -> Tensor:
            return x.transpose(0, 1) + self.mlp(x).transpose(0, 1)

    x = torch.randn(4, 4, D)  # as many tokens as samples
    unit = ss.trace(nn.Sequential(Turned()), x)[0]
    J = unit.jacobian(x)
    assert J.shape == (4, 4 * D, 4 * D)
    assert ss.verify(J).passed


def test_a_function_with_weights_of_one_type_keeps_to_it() -> None:
    torch.manual_seed(0)
    weight = torch.randn(5, 4)
    J = Jacobian(lambda x: (x @ weight).tanh(), torch.randn(3, 5))
    exact = J.double()
    assert exact.dtype == torch.float64
    torch.testing.assert_close(exact.dense(), J.dense().double())
    assert exact.eps == torch.finfo(torch.float32).eps
    assert ss.verify(J).seen != "wrong"


@pytest.mark.parametrize("samples", [[0, 0], [-1], [3]])
def test_samples_of_a_jacobian_that_runs_with_all_of_them_are_different_ones(samples: list[int]) -> None:
    J = Jacobian(torch.tanh, torch.randn(3, 4))
    torch.testing.assert_close(J.take([2, 0]).dense(), J.dense()[[2, 0]])
    with pytest.raises(InputError, match="different samples, numbers from 0 to 2"):
        J.take(samples)
