"""Operations that lack a derivative, or drop it: another route, or a refusal, and never another number."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import skipscope as ss
from skipscope.linear import agreement, derivative
from skipscope.linear.derivative import FEW_TANGENTS, MOST_KEPT_ROWS, RECORD_AT
from skipscope.measure.profile import chain_profile
from skipscope.spectrum.rates import VECTORS, product_seconds
from skipscope.trace.freshness import WeightsSeen, WhileFresh
from tests.seeded import generator
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


class NotTwice(torch.autograd.Function):
    """A right forward mode and a right backward, whose own derivative is 30 % too large."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.sin()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[0])
        ctx.save_for_forward(inputs[0])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return (1.3 * gradient - 0.3 * gradient.detach()) * ctx.saved_tensors[0].cos()

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor) -> Tensor:
        return tangent * ctx.saved_tensors[0].cos()


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


def test_rows_are_pulled_back_at_the_first_push_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    pulled = count_pulls(monkeypatch)
    state = torch.randn(2, 50, dtype=torch.float64)
    J = ss.Jacobian(lambda x: x + Once.apply(x), state)
    J.rmatmat(torch.randn(2, 50, 3, dtype=torch.float64))
    assert J.pushes_take_rows
    assert 0 < sum(pulled) < 10
    v = torch.randn(2, 50, 3, dtype=torch.float64)
    torch.testing.assert_close(J.matmat(v), (1 + state.cos())[:, :, None] * v)
    assert sum(pulled) >= 50
    assert (2.0 * J).pushes_take_rows
    assert J.take([0]).pushes_take_rows
    assert not J.T.pushes_take_rows


def test_the_rows_route_is_refused_where_one_pull_contradicts_the_other_route(monkeypatch: pytest.MonkeyPatch) -> None:
    """One cotangent at a time gives another product than a block of them."""
    right = derivative.PULLS[derivative.ONE_PULL]
    monkeypatch.setitem(derivative.PULLS, derivative.ONE_PULL, lambda self, vectors: 1.01 * right(self, vectors))
    pulls = {**derivative.PULLS}
    monkeypatch.setattr(agreement, "PULLS", {"reverse mode": pulls["reverse mode"]})
    with pytest.raises(ss.InputError, match="all rows and reverse mode differ by"):
        ss.Jacobian(lambda x: x + Wrong.apply(x), torch.randn(2, D, dtype=torch.float64))


def count_pulls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Filled with the number of cotangents of every product from the right, by whatever route."""
    counts: list[int] = []

    def counted(pull: Callable[[Any, Tensor], Tensor]) -> Callable[[Any, Tensor], Tensor]:
        def product(self: Any, vectors: Tensor) -> Tensor:
            counts.append(len(vectors))
            return pull(self, vectors)

        return product

    for route, pull in derivative.PULLS.items():
        monkeypatch.setitem(derivative.PULLS, route, counted(pull))
    single = derivative.Derivative._pull_singly  # what the rows are made of
    monkeypatch.setattr(derivative.Derivative, "_pull_singly", counted(single))
    return counts


class Clips(torch.autograd.Function):
    """A backward that clips what comes back, and so is no linear map."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return (gradient * ctx.saved_tensors[0].cos()).clamp(-0.1, 0.1)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_of_a_backward_that_clips_are_refused(dtype: torch.dtype, batch: int) -> None:
    """Without a row that was made: the pull that rows come from agrees with itself, but not with a sum of pulls."""
    with pytest.raises(ss.InputError, match="all rows and reverse mode, one at a time differ by"):
        ss.Jacobian(lambda x: x + Clips.apply(x), torch.randn(batch, D, dtype=dtype))


def test_kept_rows_are_refused_once_the_weights_have_changed() -> None:
    layer, state = nn.Linear(D, D), torch.randn(3, D)
    function = WhileFresh(lambda x: x + Once.apply(layer(x)), WeightsSeen(layer, ["weight", "bias"]))
    J, v = ss.Jacobian(function, state), torch.randn(3, D, 2)
    assert J.pushes_take_rows
    J.matmat(v)
    with torch.no_grad():
        layer.weight.mul_(2)
    for product in (J.matmat, J.rmatmat):
        with pytest.raises(ss.InputError, match="the weights have changed since this point was computed"):
            product(v)


class NoForwardMode(nn.Module):
    """A layer of tokens, (B, 5, 2 * width), with a backward alone, as grouped matrix products of experts have it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(Once.apply(self.first(x)))


def test_the_profile_of_a_unit_without_forward_mode_takes_few_backward_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    branch, x = NoForwardMode(40).double(), torch.randn(2, 5, 40, dtype=torch.float64)
    unit = Residual(branch)
    J = ss.Jacobian(unit, x)
    assert J.pushes_take_rows
    exact = (J.dense().square().sum((1, 2)) / J.shape[2]).cpu().numpy()
    pulled = count_pulls(monkeypatch)
    data = chain_profile({"unit": unit}, lambda h: h.mean((1, 2)), x, probes=32)
    assert sum(pulled) < 32 + 10  # of 200 rows
    off = (data["jacobian_square"].values[0] - exact) / data["jacobian_square_error"].values[0]
    assert (abs(off) < 4).all()
    assert (data["jacobian_square_error"].values[0] < 0.1 * exact).all()


def test_what_products_will_take_is_estimated_without_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    state = torch.randn(2, 200, dtype=torch.float64)
    J = ss.Jacobian(lambda x: x + Once.apply(x), state)
    pulled = count_pulls(monkeypatch)
    assert 0 < product_seconds(J) < 10
    assert 0 < ss.plan(J).seconds < 100
    assert sum(pulled) <= 2 * VECTORS["cpu" if J.device.type == "cpu" else "cuda"] * 2


@pytest.mark.parametrize("transposed", [False, True])
def test_a_verification_makes_the_rows_once(transposed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    state = torch.randn(2, 200)
    J = ss.Jacobian(lambda x: x + Once.apply(x), state)
    pulled = count_pulls(monkeypatch)
    assert ss.verify(J.T if transposed else J).passed
    assert 200 <= sum(pulled) < 250


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


# A GPU stays with forward mode and captures its products: tests/linear/test_captured.py.
recorded = pytest.mark.skipif(torch.get_default_device().type != "cpu", reason="pushes are recorded on a CPU alone")


def few_tangents(seed: int, batch: int = 3) -> Tensor:
    return torch.randn(batch, 5 * D, FEW_TANGENTS, generator=generator(seed))


@recorded
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_push_that_was_recorded_is_that_of_forward_mode(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    block = nn.Sequential(nn.LayerNorm(D), nn.Linear(D, D), nn.GELU(), nn.Linear(D, D))
    model = nn.Sequential(nn.Linear(D, D), Residual(block)).to(dtype)
    J = ss.trace(model, torch.randn(3, 5, D, dtype=dtype)).units[0].jacobian(torch.randn(3, 5, D, dtype=dtype))
    blocks = [few_tangents(seed).to(dtype) for seed in range(RECORD_AT)]
    forward = J.matmat(torch.cat(blocks, 2)).split(FEW_TANGENTS, 2)  # many at once are never recorded
    assert J.derivative._pushforward is None
    for block in blocks:
        J.matmat(block)
    assert J.derivative._pushforward is not None
    again = [J.matmat(block) for block in blocks]
    eps = torch.finfo(dtype).eps
    for first, second in zip(forward, again, strict=True):
        assert (first - second).norm() <= 8 * eps * first.norm()
    dense = J.dense()
    assert (again[0] - dense @ blocks[0]).norm() <= 8 * eps * again[0].norm()


@pytest.mark.parametrize("change", ["another product", "another shape", "an error"])
def test_a_recorded_push_that_is_not_that_of_forward_mode_is_not_used(
    change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(D, D), Residual(nn.Sequential(nn.Linear(D, D), nn.Tanh(), nn.Linear(D, D))))
    J = ss.trace(model, torch.randn(3, 5, D)).units[0].jacobian(torch.randn(3, 5, D))
    expected = J.dense() @ few_tangents(0)
    right = derivative.Derivative._recorded_pullback

    def wrong(self: Any) -> Callable[[Tensor], tuple[Tensor]]:
        pull = right(self)
        if change == "an error":
            raise RuntimeError("pretended")
        return lambda cotangent: (
            (pull(cotangent)[0] * 1.01) if change == "another product" else pull(cotangent)[0][:1],
        )

    monkeypatch.setattr(derivative.Derivative, "_recorded_pullback", wrong)
    for _ in range(2 * RECORD_AT):
        torch.testing.assert_close(J.matmat(few_tangents(0)), expected)
    assert J.derivative._pushforward is None


def test_a_recorded_push_is_refused_once_the_weights_have_changed() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(D, D), Residual(nn.Sequential(nn.Linear(D, D), nn.Tanh(), nn.Linear(D, D))))
    J = ss.trace(model, torch.randn(3, 5, D)).units[0].jacobian(torch.randn(3, 5, D))
    for seed in range(RECORD_AT + 1):
        J.matmat(few_tangents(seed))
    with torch.no_grad():
        model[0].weight += 1
    with pytest.raises(ss.InputError, match="the weights have changed"):
        J.matmat(few_tangents(0))


@pytest.mark.parametrize("power", [-1000.0, 500.0], ids=["zeros", "large"])
def test_tangents_that_cannot_be_compared_do_not_let_a_wrong_push_pass(power: float) -> None:
    """A solver pushes vectors as large as the range allows, whose squares are infinite; the samples that others leave
    are pushed as zeros."""
    state = torch.randn(2, D, dtype=torch.float64, generator=generator(0))
    routes = ss.Jacobian(NotTwice.apply, state).routes
    assert routes.push == "forward mode"
    J = ss.Jacobian(NotTwice.apply, state, routes=routes)
    V = torch.randn(2, D, 2, dtype=torch.float64, generator=generator(1))
    for _ in range(RECORD_AT):
        J.matmat(V * 2.0**power * 2.0**power)
    torch.testing.assert_close(J.matmat(V), state.cos()[:, :, None] * V)


def test_one_sample_with_another_derivative_is_seen_beside_a_large_one() -> None:
    """The comparison is of every sample by itself."""
    state = torch.randn(2, D, dtype=torch.float64, generator=generator(0))
    factor = torch.tensor([[1e20], [1.0]], dtype=torch.float64)

    def function(x: Tensor) -> Tensor:
        return factor * torch.cat([x[:1].sin(), NotTwice.apply(x[1:])])

    J = ss.Jacobian(function, state)
    V = torch.randn(2, D, 2, dtype=torch.float64, generator=generator(1))
    for _ in range(RECORD_AT):
        J.matmat(V)
    torch.testing.assert_close(J.matmat(V), (factor * state.cos())[:, :, None] * V)


def test_a_push_without_memory_to_be_recorded_goes_on_in_forward_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    state = torch.randn(2, D, dtype=torch.float64)
    J = ss.Jacobian(torch.sin, state)

    def too_much(*_: Any) -> Any:
        raise torch.OutOfMemoryError("pretended")

    monkeypatch.setattr(derivative.Derivative, "_recorded_pullback", too_much)
    V = torch.randn(2, D, 1, dtype=torch.float64)
    for _ in range(2 * RECORD_AT):
        torch.testing.assert_close(J.matmat(V), state.cos()[:, :, None] * V)


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_recorded_push_is_refused_when_weights_have_changed(wrapped: bool) -> None:
    """Also where the function that asks is inside of another one."""
    model, x = nn.Sequential(Residual(nn.Linear(D, D))), torch.randn(3, D)
    trunk = ss.trace(model, x)
    point = trunk.at(x)
    unit = trunk[0].bound(point)
    J = ss.Jacobian((lambda state: 2 * unit(state)) if wrapped else unit, point.entry(trunk[0]))
    V = torch.randn(3, D, 2)
    for _ in range(RECORD_AT):
        J.matmat(V)
    on_cpu = x.device.type == "cpu"
    assert (J.derivative._pushforward is None) is (
        wrapped or not on_cpu
    )  # nobody knows how many weights another function has
    with torch.no_grad():
        next(model.parameters()).mul_(2)
    with pytest.raises(ss.InputError, match="the weights have changed"):
        J.matmat(V)


def test_a_jacobian_is_freed_with_its_graphs_as_soon_as_nobody_uses_it() -> None:
    """Its graphs are large, and nobody tells the garbage collector."""
    x = torch.randn(3, D)
    trunk = ss.trace(nn.Sequential(Residual(nn.Linear(D, D))), x)
    J = trunk[0].jacobian(x)
    for _ in range(RECORD_AT):
        J.matmat(torch.randn(3, D, 2))
    graphs = weakref.ref(J.derivative)
    gc.disable()
    try:
        del J
        assert graphs() is None
    finally:
        gc.enable()


def test_functions_with_many_weights_stay_with_forward_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = nn.Sequential(Residual(nn.Linear(D, D))), torch.randn(3, D)
    J = ss.trace(model, x)[0].jacobian(x)
    assert J.function.weights == D * D + D
    monkeypatch.setattr(derivative, "FEW_WEIGHTS", D)
    for _ in range(RECORD_AT + 1):
        J.matmat(torch.randn(3, D, 2))
    assert J.derivative._pushforward is None
