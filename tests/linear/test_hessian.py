"""The Hessian operator against dense float64 Hessians, a closed form and another library."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import skipscope as ss
from skipscope.linear import Hessian, hessian
from tests.seeded import generator


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(1, 3, 3, padding=1), nn.BatchNorm2d(3)
        self.second, self.head = nn.Conv2d(3, 3, 3, padding=1), nn.Linear(3, 3)
        self.norm.running_mean = torch.tensor([0.1, -0.2, 0.3])
        self.norm.running_var = torch.tensor([0.5, 2.0, 1.5])

    def forward(self, x: Tensor) -> Tensor:
        h = torch.nn.functional.relu(self.norm(self.first(x)), inplace=True)
        h = h + torch.tanh(self.second(h))
        return self.head(h.mean((2, 3)))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = nn.TransformerEncoderLayer(4, 2, 6, batch_first=True, activation="gelu")
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.block(x).mean(1))


def layers(activation: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 5), activation, nn.Linear(5, 4), activation, nn.Linear(4, 3))


NETS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "tanh": (lambda: layers(nn.Tanh()), (4,)),
    "softplus": (lambda: layers(nn.Softplus()), (4,)),
    "relu": (lambda: layers(nn.ReLU(inplace=True)), (4,)),
    "convolutions": (Convolutions, (1, 5, 5)),
    "attention": (Attention, (3, 4)),
}


def case(name: str, samples: int = 7) -> tuple[nn.Module, Tensor, Tensor]:
    make, shape = NETS[name]
    torch.manual_seed(1)
    x = torch.randn(samples, *shape, dtype=torch.float64)
    return make().double(), x, torch.randint(0, 3, (samples,))


def reference(model: nn.Module, loss: Any, x: Tensor, target: Tensor) -> Tensor:
    """All second derivatives, parameters flattened in the order of the model.

    `torch.func.hessian` gives matrices that are not symmetric for layer norms (torch 2.15: a vectorised backward pass
    differentiated once more); there, row by row.
    """
    model = copy.deepcopy(model).eval()
    shapes = {name: parameter.shape for name, parameter in model.named_parameters()}
    theta = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])

    def value(theta: Tensor) -> Tensor:
        parts = theta.split([shape.numel() for shape in shapes.values()])
        values = {name: part.view(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}
        return loss(torch.func.functional_call(model, values, (x,)), target)

    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        if any(isinstance(module, nn.LayerNorm) for module in model.modules()):
            return torch.autograd.functional.hessian(value, theta)
        return torch.func.hessian(value)(theta)


def relative(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).abs().max() / expected.abs().max())


@pytest.mark.parametrize("name", NETS)
def test_is_the_dense_hessian(name: str) -> None:
    model, x, target = case(name)
    H = Hessian(model, nn.functional.cross_entropy, (x, target))
    expected = reference(model, nn.functional.cross_entropy, x, target)
    on_cpu = torch.get_default_device().type == "cpu"
    assert (H.route, H.reason) == (hessian.RECORDED if on_cpu else hessian.FORWARD, "")
    assert H.agreement < 1e-12
    assert relative(H.dense()[0], expected) < 1e-12


@pytest.mark.parametrize("name", NETS)
def test_all_routes_agree(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, x, target = case(name)
    H = Hessian(model, nn.functional.cross_entropy, (x, target))
    H.route = hessian.FORWARD
    forward = H.dense()
    narrow = forward[:, :, :2].new_zeros(1, H.shape[1], 2)
    narrow[0, 0, 0] = narrow[0, -1, 1] = 1
    for route in (hessian.RECORDED, hessian.BACKWARD):
        H.route = route
        assert relative(H.dense(), forward) < 1e-12
        assert relative(H.matmat(narrow), forward[:, :, [0, -1]]) < 1e-12
    H.route = hessian.RECORDED
    monkeypatch.setattr(hessian, "LITTLE", 0)
    assert relative(H.dense(), forward) < 1e-12


def test_products_that_cannot_be_batched_are_made_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x, target = case("tanh")
    H = Hessian(model, nn.functional.cross_entropy, (x, target))
    H.route = hessian.FORWARD
    expected = H.dense()
    for wrong in (lambda product: 1.01 * product, lambda product: 1 / 0):
        H = Hessian(model, nn.functional.cross_entropy, (x, target))
        H.route = hessian.RECORDED
        right = hessian.RecordedGradient.product

        def product(self: Any, V: Tensor, at_once: bool = False, right: Any = right, wrong: Any = wrong) -> Tensor:
            return wrong(right(self, V, at_once)) if at_once else right(self, V)

        with monkeypatch.context() as changed:
            changed.setattr(hessian.RecordedGradient, "product", product)
            assert relative(H.dense(), expected) < 1e-12


def test_graphs_are_kept_while_they_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x, target = case("tanh")
    H = Hessian(model, nn.functional.cross_entropy, [(x[:2], target[:2]), (x[2:], target[2:])])
    H.route = hessian.RECORDED
    expected = H.dense()
    kept = [id(gradient) for gradient, _ in H._gradients()]
    H.dense()
    assert [id(gradient) for gradient, _ in H._gradients()] == kept
    assert len(kept) == 2
    H.forget()
    assert relative(H.dense(), expected) < 1e-14
    monkeypatch.setattr("skipscope.linear.hessian.free_bytes", lambda device: 0)
    assert Hessian(model, nn.functional.cross_entropy, (x, target)).route == hessian.FORWARD


def test_a_list_of_batches_that_has_grown_is_refused() -> None:
    model, x, target = case("tanh")
    batches = [(x, target)]
    H = Hessian(model, nn.functional.cross_entropy, batches)
    H.route = hessian.RECORDED
    batches.append((x, target))
    with pytest.raises(ss.InputError, match=f"gave {len(x)} samples at first and {2 * len(x)} now"):
        H.dense()


def test_linear_regression_in_closed_form() -> None:
    """(1/2n) sum |W x - y|^2 has the Hessian I (x) <x x^T> in the order of the rows of W."""
    x = torch.randn(9, 4, dtype=torch.float64, generator=generator(0))
    y = torch.randn(9, 3, dtype=torch.float64, generator=generator(1))
    model = nn.Linear(4, 3, bias=False).double()
    H = Hessian(model, lambda output, target: (output - target).square().sum(1).mean() / 2, (x, y))
    covariance = x.T @ x / 9
    assert relative(H.dense()[0], torch.kron(torch.eye(3, dtype=torch.float64), covariance)) < 1e-14
    residual = model.weight.detach() @ x.T - y.T
    torch.testing.assert_close(H.gradient, (residual @ x / 9).flatten())
    assert H.loss == pytest.approx(float(residual.square().sum() / 18))


def test_equals_curvlinops() -> None:
    curvlinops = pytest.importorskip("curvlinops")
    model, x, target = case("tanh")
    batches = [(x[:2], target[:2]), (x[2:], target[2:])]
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for reduction in ("mean", "sum"):
        loss = nn.CrossEntropyLoss(reduction=reduction)
        other = curvlinops.HessianLinearOperator(model.eval(), loss, parameters, batches)
        H = Hessian(model, loss, batches)
        eye = torch.eye(H.shape[1], dtype=torch.float64)
        assert relative(H.matmat(eye[None])[0], torch.as_tensor(other @ eye)) < 1e-13


# -- batches


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_unequal_batches_make_the_whole(reduction: Any) -> None:
    model, x, target = case("tanh")

    def loss(output: Tensor, target: Tensor) -> Tensor:
        return nn.functional.cross_entropy(output, target, reduction=reduction)

    parts = [(x[:1], target[:1]), (x[1:4], target[1:4]), (x[4:], target[4:])]
    found = Hessian(model, loss, parts, reduction=reduction)
    whole = Hessian(model, loss, (x, target), reduction=reduction)
    expected = reference(model, loss, x, target)
    assert relative(found.dense()[0], expected) < 1e-13
    assert relative(whole.dense()[0], expected) < 1e-13
    assert found.loss == pytest.approx(whole.loss, rel=1e-13)
    torch.testing.assert_close(found.gradient, whole.gradient)
    assert (found.samples, found.batch_count, whole.batch_count) == (7, 3, 1)


def test_the_reduction_is_that_of_the_loss() -> None:
    model, x, target = case("tanh")
    assert Hessian(model, nn.CrossEntropyLoss(reduction="sum"), (x, target)).reduction == "sum"
    assert Hessian(model, nn.CrossEntropyLoss(), (x, target)).reduction == "mean"
    with pytest.raises(ss.InputError, match="gives a batch's sum, but reduction='mean'"):
        Hessian(model, nn.CrossEntropyLoss(reduction="sum"), (x, target), reduction="mean")


def test_a_data_loader_in_random_order() -> None:
    model, x, target = case("tanh")
    # The samples are shuffled with the global random state, which every pass finds as it was.
    loader = DataLoader(TensorDataset(x.cpu(), target.cpu()), batch_size=3, shuffle=True, generator=None)
    with torch.device("cpu"):
        H = Hessian(model.cpu(), nn.CrossEntropyLoss(), loader)
        assert relative(H.dense()[0], Hessian(model, nn.CrossEntropyLoss(), (x.cpu(), target.cpu())).dense()[0]) < 1e-12


def test_several_inputs_by_position_and_by_name() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(2, 2), nn.Linear(2, 2)

        def forward(self, left: Tensor, right: Tensor) -> Tensor:
            return torch.tanh(self.a(left)) * self.b(right)

    model = Two().double()
    left, right, y = (torch.randn(3, 2, dtype=torch.float64, generator=generator(seed)) for seed in range(3))
    by_position = Hessian(model, nn.MSELoss(), ((left, right), y)).dense()
    by_name = Hessian(model, nn.MSELoss(), [({"left": left, "right": right}, y)]).dense()
    assert by_position.abs().max() > 0
    torch.testing.assert_close(by_position, by_name, rtol=0, atol=0)


# -- parameters


def test_chosen_parameters_give_a_part_of_the_matrix() -> None:
    model, x, target = case("tanh")
    whole = Hessian(model, nn.CrossEntropyLoss(), (x, target)).dense()[0]
    second = slice(25, 49)  # after 4 x 5 weights and 5 biases
    for params in ("2", ["2.weight", "2.bias"], lambda name, parameter: name.startswith("2.")):
        H = Hessian(model, nn.CrossEntropyLoss(), (x, target), params=params)
        assert list(H.sizes) == ["2.weight", "2.bias"]
        assert relative(H.dense()[0], whole[second, second]) < 1e-12
    model[0].requires_grad_(False)
    assert next(iter(Hessian(model, nn.CrossEntropyLoss(), (x, target)).sizes)) == "2.weight"
    named = H.unflatten(torch.arange(24.0))
    assert {name: tuple(part.shape) for name, part in named.items()} == {"2.weight": (4, 5), "2.bias": (4,)}


def test_a_shared_parameter_counts_once() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encode, self.decode = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
            self.decode.weight = self.encode.weight

        def forward(self, x: Tensor) -> Tensor:
            return self.decode(torch.tanh(self.encode(x)))

    model = Tied().double()
    x = torch.randn(5, 3, dtype=torch.float64, generator=generator(3))
    loss = nn.MSELoss()
    H = Hessian(model, loss, (x, x))
    assert list(H.sizes) == ["encode.weight"]

    def value(weight: Tensor) -> Tensor:
        return loss(torch.tanh(x @ weight.T) @ weight.T, x)

    expected = torch.func.hessian(value)(model.encode.weight.detach()).reshape(9, 9)
    assert relative(H.dense()[0], expected) < 1e-13
    by_other_name = Hessian(model, loss, (x, x), params="decode")
    assert relative(by_other_name.dense()[0], expected) < 1e-13


# -- floating types


def test_float64_of_a_float32_model() -> None:
    model, x, target = case("tanh")
    loss = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 0.5]))
    small = copy.deepcopy(model).float()
    exact = Hessian(copy.deepcopy(small).double(), copy.deepcopy(loss).double(), (x.float().double(), target)).dense()
    single = Hessian(small, loss, (x.float(), target))
    assert single.dtype == torch.float32
    assert relative(single.dense().double(), exact) < 1e-5
    double = single.double()
    assert double.dtype == torch.float64
    assert relative(double.dense(), exact) < 1e-13
    assert next(small.parameters()).dtype == torch.float32
    half = Hessian(copy.deepcopy(model).bfloat16(), loss, (x.bfloat16(), target))
    assert half.dtype == torch.float32


def test_a_model_that_is_float32_through_and_through() -> None:
    class Fixed(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return x.float() @ self.weight.T

    data = (torch.randn(3, 2), torch.randn(3, 2))
    with pytest.raises(ss.InputError, match=r"cannot be evaluated in torch.float64 .*dtype="):
        Hessian(Fixed(2, 2), nn.MSELoss(), data, dtype=torch.float64)
    assert Hessian(Fixed(2, 2), nn.MSELoss(), data).dtype == torch.float32


# -- operations without forward mode


class Squared(torch.autograd.Function):
    """x^2, twice differentiable by backward passes only."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return 2 * ctx.saved_tensors[0] * gradient


class WithSquare(nn.Module):
    def __init__(self, own: bool) -> None:
        super().__init__()
        self.own, self.layer = own, nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        h = self.layer(x)
        return Squared.apply(h) if self.own else h * h


def test_falls_back_to_double_backward_and_says_so() -> None:
    torch.manual_seed(2)
    plain = WithSquare(False).double()
    model = WithSquare(True).double()
    model.load_state_dict(plain.state_dict())
    data = (torch.randn(4, 3, dtype=torch.float64), torch.randn(4, 2, dtype=torch.float64))
    H = Hessian(model, nn.MSELoss(), data)
    assert H.route == hessian.BACKWARD
    assert H.reason.startswith("no forward over reverse: ")
    assert H.agreement != H.agreement  # there is nothing to compare with
    assert relative(H.dense(), Hessian(plain, nn.MSELoss(), data).dense()) < 1e-13


def test_a_wrong_forward_mode_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x, target = case("tanh")
    right = hessian.forward_over_reverse
    monkeypatch.setattr(hessian, "forward_over_reverse", lambda *arguments: 1.01 * right(*arguments))
    H = Hessian(model, nn.CrossEntropyLoss(), (x, target))
    assert H.route == hessian.BACKWARD
    assert "off by 1.0e-02" in H.reason
    assert relative(H.dense()[0], reference(model, nn.CrossEntropyLoss(), x, target)) < 1e-12


def test_a_linear_loss_is_flat() -> None:
    H = Hessian(nn.Linear(3, 2), lambda output, target: (output * target).mean(), (torch.ones(4, 3), torch.ones(4, 2)))
    assert not H.dense().any()
    H.route = hessian.BACKWARD
    assert not H.dense().any()


def test_few_vectors_at_once_when_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x, target = case("convolutions")
    H = Hessian(model, nn.CrossEntropyLoss(), (x, target))
    H.route = hessian.FORWARD
    V = torch.randn(1, H.shape[1], 10, dtype=torch.float64, generator=generator(0))
    expected = H.matmat(V)
    widths = []
    product = H._product

    def watched(function: Any, block: Tensor) -> Tensor:
        widths.append(block.shape[2])
        return product(function, block)

    monkeypatch.setattr(H, "_product", watched)
    monkeypatch.setattr("skipscope.linear.memory.free_bytes", lambda device: 10 * H.bytes_per_vector)
    monkeypatch.setattr("skipscope.linear.memory.ALWAYS_FITS", {"cpu": 0, "cuda": 0})
    torch.testing.assert_close(H.matmat(V), expected)
    assert widths == [4, 4, 2]


# -- what is left behind


def test_the_model_is_left_as_it_was_and_later_training_does_not_matter() -> None:
    model, x, target = case("convolutions")
    model.train()
    model.head.eval()
    nn.functional.cross_entropy(model(x), target).backward()
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    gradients = [parameter.grad for parameter in model.parameters()]
    before = [gradient.clone() for gradient in gradients]
    random = torch.get_rng_state()
    H = Hessian(model, nn.CrossEntropyLoss(), (x, target))
    first = H.dense()
    assert torch.equal(torch.get_rng_state(), random)
    assert model.training
    assert not model.head.training
    for parameter, gradient, value in zip(model.parameters(), gradients, before, strict=True):
        assert parameter.grad is gradient
        assert torch.equal(parameter.grad, value)
        assert parameter.requires_grad
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)
        model.norm.running_mean.add_(1)
    # Not bit by bit: convolutions on a GPU may add in any order.
    torch.testing.assert_close(H.dense(), first, rtol=1e-12, atol=1e-14)


# -- wrong input


class Changing:
    """Other batches each time."""

    def __init__(self) -> None:
        self.reads = 0

    def __iter__(self) -> Iterator[Any]:
        self.reads += 1
        yield self.reads * torch.ones(2, 3), torch.zeros(2, 2)


def pair() -> tuple[Tensor, Tensor]:
    return torch.ones(4, 3), torch.ones(4, 2)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((nn.ReLU(), nn.MSELoss(), None), {}, "ReLU has no parameters"),
        ((None, nn.MSELoss(reduction="none"), None), {}, r"one number \(a tensor of shape \(\)\), got .*\(4, 2\)"),
        ((None, lambda output, target: 1.0, None), {}, "got float"),
        ((None, lambda output, target: output.detach().mean(), None), {}, "does not depend on the chosen parameters"),
        ((None, lambda output, target: output.mean() / 0, None), {}, "the loss is -?inf|the loss is nan"),
        ((None, nn.MSELoss(), []), {}, "batches is empty"),
        ((None, nn.MSELoss(), [torch.ones(4, 3)]), {}, "batch 0: expected a pair .*shape \\(4, 3\\)"),
        ((None, nn.MSELoss(), torch.ones(4, 3)), {}, "expected pairs"),
        (
            (None, nn.MSELoss(), (torch.ones(4, 3), (1, 2))),
            {},
            r"a tuple of length 2; one pair .*\[\(input, target\)\]",
        ),
        ((None, nn.MSELoss(), [torch.ones(4, 3), [1, 2, 3]]), {}, "shape \\(4, 3\\) and a list of length 3"),
        ((None, nn.MSELoss(), iter([1])), {}, "read only once"),
        ((None, nn.MSELoss(), Changing()), {}, "another loss when it was read again"),
        ((None, nn.MSELoss(), None), {"params": "wieght"}, "no parameter or module 'wieght'; did you mean weight"),
        ((None, nn.MSELoss(), None), {"params": []}, "names none"),
        ((None, nn.MSELoss(), None), {"params": lambda name, parameter: False}, "picks none"),
        ((None, nn.MSELoss(), None), {"reduction": "none"}, "'mean' or 'sum', got 'none'"),
    ],
)
def test_wrong_input_is_refused(arguments: Any, options: Any, message: str) -> None:
    torch.manual_seed(0)
    model, loss, batches = arguments
    with pytest.raises(ss.InputError, match=message):
        Hessian(model or nn.Linear(3, 2), loss, pair() if batches is None else batches, **options)


def test_frozen_models_and_missing_second_derivatives() -> None:
    frozen = nn.Linear(3, 2).requires_grad_(False)
    with pytest.raises(ss.InputError, match="none of its parameters requires gradients"):
        Hessian(frozen, nn.MSELoss(), pair())
    assert Hessian(frozen, nn.MSELoss(), pair(), params="weight").shape == (1, 6, 6)
    with pytest.raises(ss.InputError, match="single matrix"):
        Hessian(nn.Linear(3, 2), nn.MSELoss(), pair()).take([1])


def test_the_number_of_samples_may_not_change() -> None:
    batches = [pair()]
    H = Hessian(nn.Linear(3, 2), nn.MSELoss(), batches)
    batches.append(pair())
    with pytest.raises(ss.InputError, match="4 samples at first and 8 now"):
        H.dense()


class WeightNormed(nn.Module):
    """What `weight_norm` computes, in plain operations: an oracle without the fused one."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.g = nn.Parameter(layer.weight.detach().norm(dim=1, keepdim=True))
        self.v, self.bias = nn.Parameter(layer.weight.detach().clone()), nn.Parameter(layer.bias.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        return torch.nn.functional.linear(x, self.v * self.g / self.v.square().sum(1, keepdim=True).sqrt(), self.bias)


def test_weight_norm_has_the_second_derivative_of_its_parts() -> None:
    torch.manual_seed(0)
    first, last = nn.Linear(4, 5).double(), nn.Linear(5, 3).double()
    x, target = torch.randn(8, 4, dtype=torch.float64), torch.randint(0, 3, (8,))
    plain = nn.Sequential(WeightNormed(first), nn.Tanh(), last)
    fused = nn.Sequential(nn.utils.parametrizations.weight_norm(first), nn.Tanh(), last)
    expected, found = (Hessian(model, nn.CrossEntropyLoss(), (x, target)) for model in (plain, fused))
    assert found.asymmetry < 1e-12
    for values in (expected.dense(), found.dense()):
        torch.testing.assert_close(values, values.mT)
    torch.testing.assert_close(*(torch.linalg.eigvalsh(H.dense()) for H in (found, expected)))
    direct = ss.curvature(fused, nn.CrossEntropyLoss(), (x, target), route="exact")
    assert float(direct.symmetry_error) < 1e-12


class Lopsided(torch.autograd.Function):
    """A first derivative that is right, and a second one that is not symmetric."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient.detach() * ctx.saved_tensors[0].cos()


class LopsidedNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(Lopsided.apply(self.first(x)))


def test_products_that_are_not_finite_are_called_that() -> None:
    """At zero |y|^1.5 has a loss and a gradient, and an infinite second derivative."""
    model = nn.Linear(4, 3)
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
    at_zero = torch.randn(8, 4), torch.zeros(8)
    with pytest.raises(ss.InputError, match=r"its products are not finite .* its gradient is finite") as refused:
        Hessian(model, lambda output, _: output.abs().pow(1.5).mean(), at_zero)
    assert "not symmetric" not in str(refused.value)
    assert "dtype=torch.float64" in str(refused.value)
    with pytest.raises(ss.InputError, match="not finite") as refused:
        Hessian(model, lambda output, _: output.abs().pow(1.5).mean(), at_zero, dtype=torch.float64)
    assert "dtype=torch.float64" not in str(refused.value)


def test_products_that_overflow_are_called_not_finite_and_float64_holds_them() -> None:
    """The second derivative is the square of the input, 1e40; float32 ends at 3e38."""
    model = nn.Linear(4, 3)
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
    large = torch.full((8, 4), 1e20), torch.zeros(8)
    with pytest.raises(ss.InputError, match="its products are not finite"):
        Hessian(model, lambda output, _: output.square().mean(), large)
    found = Hessian(model, lambda output, _: output.square().mean(), large, dtype=torch.float64)
    assert found.asymmetry < 1e-12


@pytest.mark.parametrize("mode", ["exact", "lanczos"])
def test_products_that_are_not_symmetric_are_refused(mode: str) -> None:
    torch.manual_seed(0)
    x, target = torch.randn(8, 4), torch.randint(0, 3, (8,))
    with pytest.raises(ss.InputError, match="not symmetric"):
        ss.curvature(LopsidedNet(), nn.CrossEntropyLoss(), (x, target), route=mode)
