"""Operations that lack a derivative, or drop it: another route, or a refusal, and never another number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import skipscope as ss
from skipscope.linear.derivative import MOST_KEPT_ROWS
from tests.trace.nets import Residual

D = 6


@torch.library.custom_op("skipscope_tests::sine", mutates_args=())
def sine(x: Tensor) -> Tensor:
    return 2 * x.sin()


@sine.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def _keep(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
    ctx.save_for_backward(inputs[0])


def _backward(ctx: Any, gradient: Tensor) -> Tensor:
    return 2 * gradient * ctx.saved_tensors[0].cos()


sine.register_autograd(_backward, setup_context=_keep)


class Once(torch.autograd.Function):
    """Has a backward that cannot be differentiated again, and no forward mode."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * ctx.saved_tensors[0].cos()


class Wrong(torch.autograd.Function):
    """A forward mode that contradicts its backward, which cannot be differentiated again either."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.sin()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[0])
        ctx.save_for_forward(inputs[0])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * ctx.saved_tensors[0].cos()

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor) -> Tensor:
        return 2 * tangent * ctx.saved_tensors[0].cos()


class Layer(nn.Module):
    def __init__(self, after: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.linear, self.after = nn.Linear(D, D), after

    def forward(self, x: Tensor) -> Tensor:
        return self.after(self.linear(x))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(D, D, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)[0]


class Written(nn.Module):
    """Writes in place what others compute."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.row = nn.Linear(D, D), nn.Linear(D, 1)

    def forward(self, x: Tensor) -> Tensor:
        y, z = torch.empty_like(x), torch.empty_like(x)
        y.copy_(self.linear(x))
        y[:, :3] = torch.tanh(y[:, :3])
        z.copy_(self.row(x))  # broadcast
        return y + z


def dense(function: Callable[[Tensor], Tensor], state: Tensor) -> Tensor:
    """(B, n, n) from plain reverse mode."""
    batch, n = state.shape[0], state[0].numel()
    whole = torch.autograd.functional.jacobian(function, state).reshape(batch, n, batch, n)
    return torch.stack([whole[sample, :, sample] for sample in range(batch)])


@pytest.mark.parametrize(
    ("branch", "x"),
    [
        (Layer(sine), torch.randn(3, D)),
        pytest.param(
            Recurrent(),
            torch.randn(3, 4, D),
            marks=pytest.mark.skipif(
                torch.get_default_device().type == "cuda", reason="cuDNN has no derivative in evaluation mode: refused"
            ),
        ),
        (Written(), torch.randn(3, D)),
        (Written(), torch.randn(1, D).expand(3, D)),
    ],
    ids=["custom operation", "LSTM", "written in place", "expanded"],
)
def test_products_are_the_derivative_whatever_the_operations(branch: nn.Module, x: Tensor) -> None:
    trunk = ss.trace(nn.Sequential(Residual(branch)), x)
    point = trunk.at(x)
    J = trunk[0].jacobian(point, dtype=torch.float64)
    expected = dense(trunk[0].bound(point), point.entry(trunk[0]).double())
    torch.testing.assert_close(J.dense(), expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(J.T.dense(), expected.mT, rtol=0, atol=1e-12)
    torch.testing.assert_close(J.take([1]).dense(), expected[1:2], rtol=0, atol=1e-12)
    torch.testing.assert_close(ss.svd(J, k=2).S, torch.linalg.svdvals(expected)[:, :2])
    assert ss.verify(trunk[0].jacobian(point)).passed
    square = ss.profile(trunk, x, probes=64)
    exact = expected.square().sum((1, 2)) / expected.shape[2]
    error = (torch.as_tensor(square.jacobian_square.values[0]) - exact).abs()
    assert (error <= 6 * torch.as_tensor(square.jacobian_square_error.values[0])).all()


def test_a_backward_that_is_differentiable_once_gives_all_rows() -> None:
    state = torch.randn(2, D, dtype=torch.float64)
    J = ss.Jacobian(lambda x: x + Once.apply(x), state)
    assert J.routes.push == "all rows"
    torch.testing.assert_close(J.dense(), torch.diag_embed(1 + state.cos()))
    with pytest.raises(ss.InputError, match=f"{MOST_KEPT_ROWS + 1} rows are more than {MOST_KEPT_ROWS}"):
        ss.Jacobian(lambda x: x + Once.apply(x), torch.randn(1, MOST_KEPT_ROWS + 1))


def test_routes_that_contradict_each_other_are_not_taken() -> None:
    state = torch.randn(2, D, dtype=torch.float64)
    J = ss.Jacobian(lambda x: x + Wrong.apply(x), state)
    assert J.routes.push == "all rows"
    torch.testing.assert_close(J.dense(), torch.diag_embed(1 + state.cos()))


def test_a_mixture_of_experts_with_an_operation_of_its_own() -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.MixtralConfig(
        vocab_size=50,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        num_local_experts=4,
    )
    tokens = {"input_ids": torch.randint(0, 50, (2, 3))}
    trunk = ss.trace(transformers.MixtralForCausalLM(config), tokens)
    point = trunk.at(tokens)
    unit = trunk["model.layers.0.mlp"]
    J = unit.jacobian(point, dtype=torch.float64)
    expected = dense(unit.bound(point), point.entry(unit).double())
    torch.testing.assert_close(J.dense(), expected, rtol=0, atol=1e-12)
    assert ss.verify(J).passed


def test_a_derivative_that_is_not_finite_is_said_to_be_so() -> None:
    state = torch.zeros(2, D)
    with pytest.raises(ss.InputError, match="the derivative of norm has NaN or infinite entries, although"):
        ss.Jacobian(lambda x: x + x.square().sum(1, keepdim=True).sqrt(), state, name="norm")


def test_ambient_autocast_and_inference_mode_change_nothing() -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(Residual(nn.Linear(D, D))), torch.randn(3, D)
    expected = ss.singular_values(ss.trace(model, x)[0].jacobian(x)).values
    outside = ss.Jacobian(model, x).dense()
    with torch.autocast(x.device.type, dtype=torch.bfloat16):
        inside = ss.trace(model, x)
        torch.testing.assert_close(ss.singular_values(inside[0].jacobian(x)).values, expected, rtol=0, atol=1e-12)
        torch.testing.assert_close(ss.Jacobian(model, x).dense(), outside, rtol=0, atol=1e-6)
    with torch.inference_mode():
        inside = ss.trace(model, x.clone())
        torch.testing.assert_close(ss.singular_values(inside[0].jacobian(x)).values, expected, rtol=0, atol=1e-12)


class HalfInside(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(D, D)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, dtype=torch.bfloat16):
            return x + torch.tanh(self.linear(x)).float()


def test_casts_inside_a_model_are_noted_and_left_out_of_float64() -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(HalfInside()), torch.randn(3, D)
    trunk = ss.trace(model, x)
    assert any("computed in bfloat16" in note for note in trunk.notes)
    assert "bfloat16" in ss.profile(trunk, x).attrs["notes"]
    layer = model[0].linear
    weight, inside = layer.weight.double(), x.double() @ layer.weight.double().mT + layer.bias.double()
    exact = torch.eye(D) + (1 - inside.tanh().square())[:, :, None] * weight
    found = ss.singular_values(trunk[0].jacobian(x))
    expected = torch.linalg.svdvals(exact.detach().cpu())
    assert ((found.values - expected).abs() <= found.bound + 1e-14).all()
