"""Conditioning against dense decompositions: weights, states, ranks of gradients; on every model there is."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import skipscope as ss
from skipscope.measure import passed_states
from skipscope.measure.gradient_ranks import GradientRanks, gradient_ranks
from skipscope.models.blocks.dirac import DiracLinear
from tests.measure.nets import Net
from tests.trace.families import FAMILIES
from tests.trace.nets import CASES, D, Residual, mlp
from tests.trace.test_cases import inputs


def kappa(matrix: Tensor) -> float:
    values = torch.linalg.svdvals(matrix.detach().double())
    return float(values[0] / values[-1])


def core_conditions(tensor: Tensor) -> list[float]:
    """By the norms of the slices of the core: the tensor in the bases of its unfoldings' left singular vectors."""
    core = tensor.detach().double()
    for mode in range(tensor.dim()):
        rows = tensor.detach().double().movedim(mode, 0).flatten(1)
        basis = torch.linalg.eigh(rows @ rows.T).eigenvectors
        core = torch.tensordot(core, basis, ([0], [0]))  # the turned mode comes last, the next one first
    norms = [core.movedim(mode, 0).flatten(1).norm(dim=1) for mode in range(tensor.dim())]
    return [float(norm.max() / norm.sort().values[-min(len(norm), tensor.numel() // len(norm))]) for norm in norms]


# -- weights


def test_weights_have_the_condition_numbers_of_the_cores_slices() -> None:
    torch.manual_seed(0)
    model = Net()
    data = ss.conditioning(model, None, states=False)
    assert data["weight"].values.tolist() == [name for name, p in model.named_parameters() if p.dim() >= 2]
    for name in data["weight"].values:
        here, weight = data.sel(weight=name), model.get_parameter(name)
        expected = core_conditions(weight)
        found = here["weight_mode_condition"].values[: weight.dim()]
        numpy.testing.assert_allclose(found, expected, rtol=1e-6, err_msg=name)
        by_reduction = here["weight_condition"]
        assert by_reduction.sel(reduction="max").item() == pytest.approx(max(expected))
        assert by_reduction.sel(reduction="matrix").item() == pytest.approx(kappa(weight.flatten(1)))
        assert by_reduction.sel(reduction="channel").item() == pytest.approx(kappa(weight.flatten(1)))
    here = data.sel(weight="c.first.weight", reduction="global")
    values = [torch.linalg.svdvals(model.c.first.weight.detach().double().movedim(k, 0).flatten(1)) for k in range(4)]
    assert here["weight_condition"].item() == pytest.approx(
        float(max(v[0] for v in values) / min(v[-1] for v in values))
    )
    assert here["weight_shape"].item() == "4 x 4 x 3 x 3"
    assert here["weight_kind"].item() == "Conv2d"


def test_infinite_numerically_infinite_and_overflow_are_told_apart() -> None:
    torch.manual_seed(0)
    model = nn.ModuleDict({name: nn.Linear(6, 6, bias=False) for name in ("zero", "twice", "overflow", "fine")})
    with torch.no_grad():
        model["zero"].weight[:, 2] = 0
        model["twice"].weight[1] = model["twice"].weight[0]
        model["overflow"].weight[0, 0] = torch.inf
    data = ss.conditioning(model, None, states=False).sel(reduction="max")
    assert data["weight_status"].values.tolist() == ["infinite", "numerically infinite", "overflow", "finite"]
    assert data["weight_rank"].values[[0, 1, 3]].tolist() == [5, 5, 6]
    assert numpy.isnan(data["weight_rank"].values[2])
    assert data["weight_condition"].values[0] == numpy.inf
    assert data["weight_zero_slices"].values[0].tolist()[:2] == [0, 1]


def test_parameters_that_have_no_condition_are_named() -> None:
    model = nn.Linear(3, 3)
    model.empty = nn.Parameter(torch.zeros(0, 4))
    model.wave = nn.Parameter(torch.zeros(2, 2, dtype=torch.complex64))
    data = ss.conditioning(model, None, states=False)
    assert data["weight"].values.tolist() == ["weight"]
    assert data.attrs["left_out"] == "empty; wave"
    with pytest.raises(ss.InputError, match="no weights"):
        ss.conditioning(nn.ReLU(), None, states=False)


# -- states


def test_states_are_what_enters_a_layer_after_functional_activations() -> None:
    torch.manual_seed(0)
    model, x = Net(), torch.randn(5, 1, 8, 8)
    data = ss.conditioning(model, x)
    layers = data["layer"].values.tolist()
    assert layers[:4] == ["stem", "a.first", "a.second", "b.first"]
    assert layers[-2:] == ["head", "output"]
    entry = torch.relu(model.stem(x))
    for name, state in (("stem", x), ("a.first", entry), ("a.second", torch.relu(model.a.first(entry)))):
        here = data.sel(layer=name)
        assert here["state_zero_units"].item() == int((state == 0).all(0).all(-1).all(-1).sum())
        if here["state_status"].sel(reduction="channel").item() == "finite":
            expected = kappa(state.movedim(1, 0).flatten(1))
            assert here["state_condition"].sel(reduction="channel").item() == pytest.approx(expected, rel=1e-5)
            assert numpy.isnan(here["state_mode_condition"].values[0])  # of samples
            rows = [state.movedim(mode, 0).flatten(1) for mode in (1, 2, 3)]
            largest = max(kappa(row) for row in rows)
            assert here["state_condition"].sel(reduction="max").item() == pytest.approx(largest, rel=1e-5)
    assert data.attrs["samples"] == 5
    output = data.sel(layer="output", reduction="max")
    assert output["state_condition"].item() == pytest.approx(kappa(model(x)), rel=1e-4)


def test_tokens_have_their_channels_last_and_too_few_samples_are_said() -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(Residual(mlp())), torch.randn(2, 5, D)
    data = ss.conditioning(model, x)
    first = data.isel(layer=0)
    assert first["state_condition"].sel(reduction="channel").item() == pytest.approx(kappa(x.reshape(10, D)))
    assert not first["state_limited"].item()
    few = ss.conditioning(model, x[:1]).isel(layer=0)
    assert few["state_limited"].item()
    assert few["state_full_rank"].sel(reduction="channel").item() == 5


def test_dead_units_and_overflow_of_states() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 6), nn.Linear(6, 3))
    with torch.no_grad():
        model[0].bias[:2] = -100
        model[2].weight[0] = 3e38
    data = ss.conditioning(model, torch.randn(50, 4)).sel(reduction="max")
    assert data["layer"].values.tolist() == ["0", "2", "3", "output"]
    assert data["state_zero_units"].values.tolist()[:2] == [0, 2]
    assert data["state_status"].values.tolist()[:3] == ["finite", "infinite", "overflow"]
    assert data["state_rank"].values[1] == 4
    assert data["state_full_rank"].values[1] == 6


def test_rounding_of_float32_hides_what_float64_sees() -> None:
    torch.manual_seed(0)
    model = nn.Linear(8, 8)
    left, right = (torch.linalg.qr(torch.randn(n, 8, dtype=torch.float64)).Q for n in (40, 8))
    x = left @ torch.diag(10.0 ** -torch.arange(8.0)).double() @ right.T
    for dtype, status, rank in ((torch.float32, "numerically infinite", 6), (torch.float64, "finite", 8)):
        here = ss.conditioning(copy.deepcopy(model).to(dtype), x.to(dtype)).isel(layer=0).sel(reduction="max")
        assert here["state_status"].item() == status
        assert here["state_rank"].item() == rank


def test_layers_are_chosen_by_name_or_pattern() -> None:
    model, x = Net(), torch.randn(3, 1, 8, 8)
    data = ss.conditioning(model, x, layers=["a.*", "head"])
    assert data["layer"].values.tolist() == ["a.first", "a.second", "head"]
    assert data["weight"].values.tolist() == ["a.first.weight", "a.second.weight", "head.weight"]
    assert ss.conditioning(model, x, layers="output")["layer"].values.tolist() == ["output"]
    with pytest.raises(ss.InputError, match="'nowhere' matches no layer"):
        ss.conditioning(model, x, layers=["a.*", "nowhere"])
    with pytest.raises(ss.InputError, match="none of them"):
        ss.conditioning(model, x, states=False, weights=False)


# -- gradients


LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(5, 7), (6, 5)),
    "tokens": (lambda: nn.Linear(5, 7, bias=False), (2, 4, 5)),
    "convolution": (lambda: nn.Conv2d(3, 6, 3, stride=2, padding=1), (2, 3, 7, 6)),
    "dilated": (lambda: nn.Conv2d(2, 5, (3, 2), padding=(2, 1), dilation=2, padding_mode="circular"), (1, 2, 6, 6)),
    "grouped": (lambda: nn.Conv2d(4, 6, 3, padding="same", groups=2), (2, 4, 5, 5)),
    "one dimension": (lambda: nn.Conv1d(2, 4, 3), (2, 2, 9)),
    "three dimensions": (lambda: nn.Conv3d(2, 3, 2), (1, 2, 4, 3, 3)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_and_their_factors_against_dense_ones(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    make, shape = LAYERS[name]
    layer, x = make().double(), torch.randn(shape, dtype=torch.float64)
    model = nn.Sequential(layer, nn.Tanh(), nn.Flatten())
    weight = torch.randn(model(x).shape, dtype=torch.float64)
    monkeypatch.setattr("skipscope.measure.gradient_ranks.BLOCK", 100)  # one sample at a time
    data = ss.conditioning(model, x, loss=lambda output: (output.square() * weight).sum()).sel(layer="0")
    (gradient,) = torch.autograd.grad((model(x).square() * weight).sum(), layer.weight)
    groups = getattr(layer, "groups", 1)
    dense = torch.block_diag(*(part.flatten(1) for part in gradient.chunk(groups)))
    values = torch.linalg.svdvals(dense)
    assert data["gradient_rank"].item() == torch.linalg.matrix_rank(dense).item()
    assert data["gradient_full_rank"].item() == sum(min(part.flatten(1).shape) for part in gradient.chunk(groups))
    least = values[: int(data["gradient_full_rank"])][-1]
    if data["gradient_status"].item() == "finite":
        assert data["gradient_condition"].item() == pytest.approx(float(values[0] / least), rel=1e-6)
    assert data["gradient_rank"].item() <= data["bound"].item()
    assert data["bound"].item() <= min(data["error_rank"].item(), data["input_rank"].item())


def test_the_bound_is_met_where_a_factor_is_deficient() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 4)).double()
    x, labels = torch.randn(20, 6, dtype=torch.float64), torch.randint(4, (20,))
    with torch.no_grad():
        model[1].weight.copy_(torch.outer(*torch.randn(2, 6, dtype=torch.float64)))
    data = ss.conditioning(model, x, targets=labels)
    # Softmax minus labels sums to zero; errors behind the weight of rank 1 are multiples of one vector.
    assert data["error_rank"].values[:3].tolist() == [1, 3, 3]
    assert data["input_rank"].values[:3].tolist() == [6, 6, 2]  # a line and the bias
    assert data["bound"].values[:3].tolist() == [1, 3, 2]
    assert data["gradient_rank"].values[:3].tolist() == [1, 3, 2]
    assert data["gradient_share"].values[:3].tolist() == [1 / 6, 3 / 6, 2 / 4]
    assert numpy.isnan(data["bound"].values[3])
    assert data.attrs["loss"] == pytest.approx(F.cross_entropy(model(x), labels).item())


def test_frozen_weights_changes_in_place_and_second_calls() -> None:
    torch.manual_seed(0)
    shared = nn.Linear(4, 4)
    model = nn.Sequential(shared, nn.ReLU(inplace=True), shared, nn.ReLU(inplace=True)).double()
    x = torch.randn(9, 4, dtype=torch.float64)
    for weight in model.parameters():
        weight.requires_grad_(False)
    data = ss.conditioning(model, x, loss=lambda output: output.square().sum())
    assert data["layer"].values.tolist() == ["0", "0#2", "output"]
    first = shared(x)
    second = shared(torch.relu(first))
    error = 2 * torch.relu(second)
    before = (error @ shared.weight) * (first > 0)
    assert data["error_condition"].values[1] == pytest.approx(kappa(error), rel=1e-9)
    assert data["error_condition"].values[0] == pytest.approx(kappa(before), rel=1e-9)
    assert data["gradient_condition"].values[0] == pytest.approx(kappa(before.T @ x), rel=1e-9)


def test_batch_statistics_are_those_of_training_and_stay_out_of_the_model() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.ReLU(), nn.Linear(8, 3))
    model[1].eval()
    model[0].weight.grad = torch.ones(8, 5)
    x, labels = torch.randn(30, 5), torch.randint(3, (30,))
    before, modes = copy.deepcopy(model.state_dict()), [module.training for module in model.modules()]
    buffers, state = dict(model[1].named_buffers()), torch.get_rng_state()
    data = ss.conditioning(model, x, targets=labels, training=True)
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(value is buffers[name] for name, value in model[1].named_buffers())
    assert torch.equal(model[0].weight.grad, torch.ones(8, 5))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(not module._forward_hooks and not module._forward_pre_hooks for module in model.modules())
    normal = F.batch_norm(model[0](x), None, None, model[1].weight, model[1].bias, training=True)
    here = data.sel(layer="4", reduction="max")
    assert here["state_condition"].item() == pytest.approx(kappa(torch.relu(normal)), rel=1e-4)
    assert data.attrs["mode"] == "batch statistics"


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"targets": torch.zeros(4)}, "expected whole numbers"),
        ({"targets": torch.tensor([0, 1, 2, 9])}, "from 0 to 2"),
        ({"targets": torch.zeros(3, dtype=torch.int64)}, r"shape \(4,\)"),
        ({"targets": [0, 1, 2, 0]}, "labels as a tensor"),
        ({"loss": lambda output: output}, "one number"),
        ({"loss": lambda output: torch.zeros(())}, "no gradients"),
    ],
)
def test_losses_that_are_none(given: dict[str, Any], match: str) -> None:
    with pytest.raises(ss.InputError, match=match):
        ss.conditioning(nn.Linear(5, 3), torch.randn(4, 5), **given)


def test_half_precision_is_measured_in_float32() -> None:
    torch.manual_seed(0)
    model, x = mlp().bfloat16(), torch.randn(40, D).bfloat16()
    data = ss.conditioning(model, x, loss=lambda output: output.square().sum())
    assert "float32 on a copy" in data.attrs["notes"]
    assert (data["state_status"].sel(reduction="max") == "finite").all()
    assert model[0].weight.dtype == torch.bfloat16


# -- every model


@pytest.mark.parametrize("name", CASES)
def test_works_on_every_small_model(name: str) -> None:
    torch.manual_seed(0)
    model = CASES[name].make().double()
    check(model, inputs(CASES[name], 3))


QUICK = ("timm vit_tiny", "gpt2", "t5")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in FAMILIES]
)
def test_works_on_published_models(name: str) -> None:
    torch.manual_seed(0)
    check(FAMILIES[name].make(), FAMILIES[name].x(2))


def check(model: nn.Module, x: Any) -> None:
    before = copy.deepcopy(model.state_dict())
    data = ss.conditioning(model, x, loss=square_of)
    assert data.sizes["weight"] == sum(p.dim() > 1 for p in model.parameters())
    assert data["layer"].values[-1] == "output"
    assert set(data["state_status"].values.ravel()) <= {"finite", "numerically infinite", "infinite"}
    known = data["bound"].notnull()
    assert bool((data["gradient_rank"] <= data["bound"]).where(known, True).all())
    linear = numpy.isin(data["layer_kind"].values, ["Linear", "Conv2d", "Conv1D"])
    assert not (known.values & ~linear).any()
    assert known.any() or not linear.any()
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def square_of(output: Any) -> Tensor:
    from skipscope.measure.layers import main_tensor

    main = main_tensor(output)
    assert main is not None
    return main.square().sum()


def test_weights_that_layers_make_are_measured_as_they_act() -> None:
    torch.manual_seed(0)
    bent = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))
    model = nn.Sequential(bent, nn.ReLU(), DiracLinear(4, 4))
    found = ss.conditioning(model, torch.randn(9, 4))
    assert found["weight"].values.tolist() == ["0.weight", "2.weight"]
    assert found["layer"].values.tolist() == ["0", "2", "output"]
    assert found.attrs["left_out"] == ""
    for name, weight in (("0.weight", bent.weight), ("2.weight", model[2].effective_weight)):
        expected = float(torch.linalg.cond(weight.detach().double()))
        assert float(found["weight_condition"].sel(weight=name, reduction="max")) == pytest.approx(expected, rel=1e-6)
    assert ss.conditioning(model, torch.randn(9, 4), layers="0")["layer"].values.tolist() == ["0"]


def test_what_does_not_fit_is_said() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    with pytest.raises(
        ss.InputError, match=r"'nope' matches no layer and no weight; there are 0.weight, 1.weight, 0, 1"
    ):
        ss.conditioning(model, torch.randn(3, 4), layers="nope")
    with pytest.raises(ss.InputError, match=r"does not run on inputs of shapes \[\(3, 5\)\]"):
        ss.conditioning(model, torch.randn(3, 5))


@pytest.mark.parametrize(("dtype", "states"), [(torch.float32, "float32"), (torch.float64, "float64")])
def test_the_precision_is_said(dtype: torch.dtype, states: str) -> None:
    found = ss.conditioning(nn.Linear(4, 4).to(dtype), torch.randn(9, 4, dtype=dtype))
    assert (found.attrs["dtype"], found.attrs["state_precision"]) == (str(dtype).removeprefix("torch."), states)


class Moved(nn.Module):
    """Samples at axis 0, at axis 1, folded into axis 0, and a layer whose state does not depend on them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third, self.place = (nn.Linear(4, 4) for _ in range(4))
        self.register_buffer("places", torch.randn(5, 4))

    def forward(self, x: Tensor) -> Tensor:  # N, 5, 4
        x = self.first(x) + self.place(self.places)
        x = self.second(x.transpose(0, 1)).transpose(0, 1)
        return self.third(x.flatten(0, 1)).unflatten(0, (-1, 5))


@pytest.mark.parametrize("samples", [1, 2, 4, 5, 7])
def test_the_axis_of_the_samples_is_found_and_not_guessed(samples: int) -> None:
    """With 4 samples channels are as many, with 5 the tokens are."""
    found = ss.conditioning(Moved(), torch.randn(samples, 5, 4), weights=False)
    axes = dict(zip(found["layer"].values.tolist(), found["sample_axis"].values.tolist(), strict=True))
    assert axes == {"first": 0, "place": -1, "second": 1, "third": 0, "output": 0}


class OneSize(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x.view(3, 2, 6)).reshape(2, 3, 6))


def test_a_model_of_one_number_of_samples_has_states_only_where_the_axis_is_plain() -> None:
    found = ss.conditioning(OneSize(), torch.randn(3, 2, 6), weights=False)
    assert found["layer"].values.tolist() == ["first"]
    assert "state at second" in found.attrs["left_out"]
    assert "runs at 3 alone" in found.attrs["left_out"]


def test_one_error_is_in_memory_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(12)), nn.Linear(8, 3))
    seen: list[weakref.ref[Tensor]] = []
    alive: list[int] = []

    def ranks(module: nn.Module, entry: Tensor, error: Tensor, samples: int) -> GradientRanks | None:
        seen.append(weakref.ref(error))
        alive.append(sum(one() is not None for one in seen))
        return gradient_ranks(module, entry, error, samples)

    monkeypatch.setattr(passed_states, "gradient_ranks", ranks)
    found = ss.conditioning(model, torch.randn(16, 8), targets=torch.arange(16) % 3, states=False, weights=False)
    assert len(seen) == 13
    assert max(alive) <= 2
    assert not any(parameter.grad is not None for parameter in model.parameters())
    assert (found["gradient_rank"].sel(layer=found["layer"] != "output") > 0).all()


def test_gradients_that_do_not_fit_are_refused_with_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passed_states, "known_free_bytes", lambda device: 10_000)
    model = nn.Sequential(nn.Linear(8, 50), nn.ReLU(), nn.Linear(50, 3))
    with pytest.raises(ss.InputError, match=r"gradients at 4000 samples need about .* GB .* take fewer samples"):
        ss.conditioning(model, torch.randn(4000, 8), targets=torch.zeros(4000, dtype=torch.long))
