"""Distributions of activations, weights and gradients while a network trains."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
import xarray
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import spectral_norm, weight_norm
from torch.nn.utils.parametrize import is_parametrized, register_parametrization

from skipscope.data.dataset import Images
from skipscope.errors import InputError
from skipscope.models.resnet import ResNet
from skipscope.training import At, History, Settings, train
from skipscope.training.streaming import RELATIVE_ERROR, bin_edges
from skipscope.training.trackers import QUANTILES, WHAT, Tracker, distributions
from tests.training.nets import assert_same, blobs, dropping_net, net, picture_net, pictures, plain_net, weights

FEW: dict[str, Any] = {"batches": 2, "batch": 16}


def look(model: nn.Module, tracker: Tracker) -> xarray.Dataset:
    return tracker(model, 0, History())


def small_resnet(**changes: Any) -> ResNet:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return ResNet(8, channels=(3, 4, 4), input_channels=2, classes=3, **changes)


def assert_distribution(found: xarray.Dataset, expected: Tensor) -> None:
    """Against all values as one array."""
    values = expected.detach().double().cpu().numpy().ravel()
    assert (int(found["count"]), int(found["zeros"])) == (values.size, (values == 0).sum())
    exact = {"minimum": values.min(), "maximum": values.max(), "mean": values.mean(), "deviation": values.std()}
    for name, value in exact.items():
        assert float(found[name]) == pytest.approx(value, rel=1e-5, abs=1e-6 * abs(values).max()), name
    assert int(found["histogram"].sum()) == values.size
    error = {"rtol": RELATIVE_ERROR + 1e-5, "atol": 1e-6 * abs(values).max()}
    quantiles = numpy.quantile(values, QUANTILES, method="inverted_cdf")
    numpy.testing.assert_allclose(found["quantiles"], quantiles, **error)
    numpy.testing.assert_allclose(found["p99_abs"], numpy.quantile(abs(values), 0.99, method="inverted_cdf"), **error)


def batches_of(tracker: Tracker) -> list[tuple[Tensor, Tensor]]:
    split = tracker.split
    parts = [part.to(split.device) for part in tracker._samples().split(tracker.batch)]
    return [(split.images(part), split.labels[part]) for part in parts]


def test_of_a_plain_net_by_hand() -> None:
    """In training mode the norm divides by the deviation of the batch."""
    model, tracker = net(), Tracker([0, 1], blobs(), **FEW)
    found = look(model, tracker)
    first, last = model[0], model[3]
    states, outputs, gradients = [], [], {name: [] for name in "03"}
    for images, labels in batches_of(tracker):
        before = images @ first.weight.T + first.bias
        state = ((before - before.mean(0)) / (before.var(0, correction=0) + 1e-5).sqrt()).relu()
        output = state @ last.weight.T + last.bias
        loss = -(output.log_softmax(1)[torch.arange(len(labels)), labels]).mean()
        for name, gradient in zip("03", torch.autograd.grad(loss, [first.weight, last.weight]), strict=True):
            gradients[name].append(gradient)
        states.append(state)
        outputs.append(output)
    expected = {
        "activations": {"0": states, "3": outputs},
        "weights": {"0": [first.weight], "3": [last.weight]},
        "gradients": gradients,
    }
    assert found["number"].values.tolist() == [1, 2]
    for what in WHAT:
        for name, tensors in expected[what].items():
            assert_distribution(found.sel(what=what, layer=name), torch.cat(tensors))


def test_bins_hold_what_lies_between_their_edges() -> None:
    model = plain_net()
    found = look(model, Tracker([0], blobs(), what=["weights"], **FEW)).sel(what="weights", layer="0")
    values = model[0].weight.detach().double().cpu().numpy()
    low, high = bin_edges(found["bin"].values)
    assert (found["low"].values == low).all()
    assert (found["high"].values == high).all()
    inside = ((values.ravel() >= low[:, None]) & (values.ravel() <= high[:, None])).sum(1)
    assert found["histogram"].values.tolist() == inside.tolist()


def test_by_default_the_first_layer_and_the_last_but_one() -> None:
    found = look(small_resnet(), Tracker(None, pictures(), **FEW))
    assert found["layer"].values.tolist() == ["conv", "stage3.0.conv2"]
    assert found["number"].values.tolist() == [1, 7]
    assert found.attrs["layers"] == 8
    assert look(plain_net(), Tracker(None, blobs(), **FEW))["layer"].values.tolist() == ["0"]


@pytest.mark.parametrize("preactivation", [False, True])
def test_a_layer_passes_on_what_depends_on_it(preactivation: bool) -> None:
    """A projection is called between the last layer of a branch and the next block, and reads something older."""
    model = small_resnet(shortcut="projection", preactivation=preactivation).double()
    split = Images(pictures().pixels.double(), pictures().labels)
    readers = {
        "conv": "stage1.0.conv1",
        "stage2.0.conv1": "stage2.0.conv2",
        "stage2.0.conv2": "stage3.0.conv1",
        "stage2.0.shortcut.0": "stage3.0.conv1",
        "stage3.0.conv2": "classifier",
    }
    layers = [*readers, "classifier"]
    tracker = Tracker(layers, split, what=["activations"], **FEW)
    found = look(model, tracker).sel(what="activations")
    seen: dict[str, list[Tensor]] = {name: [] for name in layers}
    inputs: dict[str, Tensor] = {}
    for name, module in model.named_modules():
        module.register_forward_pre_hook(lambda _, given, name=name: inputs.update({name: given[0].clone()}))
    model.train()
    for images, _ in batches_of(tracker):
        output = model(images)
        for name in layers:
            seen[name].append(inputs[readers[name]] if name in readers else output)
    for name in layers:
        assert_distribution(found.sel(layer=name), torch.cat(seen[name]))


def test_evaluation_mode_takes_running_statistics() -> None:
    model, tracker = net(), Tracker(["0"], blobs(), what=["activations"], training=False, **FEW)
    model[1].running_mean.fill_(3.0)
    found = look(model, tracker).sel(what="activations", layer="0")
    model.eval()
    assert_distribution(found, torch.cat([model[:3](images) for images, _ in batches_of(tracker)]))
    assert look(model, tracker).attrs["mode"] == "evaluation"


def test_the_model_is_left_as_it_was() -> None:
    model = picture_net()
    model[1].eval()  # set apart by its user
    next(model.parameters()).grad = torch.ones(4, 2, 3, 3)
    before, modes = weights(model), [module.training for module in model.modules()]
    random = torch.random.get_rng_state()
    one = look(model, Tracker(None, pictures(), **FEW))
    assert_same(weights(model), before)
    assert [module.training for module in model.modules()] == modes
    assert [p.grad is None for p in model.parameters()] == [False] + [True] * (len(list(model.parameters())) - 1)
    assert torch.equal(torch.random.get_rng_state(), random)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    xarray.testing.assert_identical(one, look(copy.deepcopy(model), Tracker(None, pictures(), **FEW)))


def test_hooks_are_gone_when_a_pass_fails() -> None:
    model = plain_net()
    model.append(nn.Linear(5, 5))
    with pytest.raises(RuntimeError):
        look(model, Tracker(None, blobs(), **FEW))
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_a_branch_that_is_left_out_has_a_gradient_of_zero() -> None:
    found = look(dropping_net(), Tracker(["2.branch"], blobs(), batches=6, batch=16)).sel(layer="2.branch")
    called = int(found["count"].sel(what="activations")) // (16 * 8)
    assert 0 < called < 6
    zeros = int(found["zeros"].sel(what="gradients"))
    assert int(found["count"].sel(what="gradients")) == 6 * 64
    assert zeros == (6 - called) * 64


def test_values_that_overflow_are_counted() -> None:
    model = plain_net()
    with torch.no_grad():
        model[0].weight[0, 0] = torch.nan
        model[2].weight[0, 0] = torch.inf
    found = look(model, Tracker([0, 1], blobs(), **FEW))
    assert int(found["nan"].sel(what="weights", layer="0")) == 1
    assert int(found["infinite"].sel(what="weights", layer="2")) == 1
    assert float(found["maximum"].sel(what="weights", layer="2")) == torch.inf
    assert int(found["nan"].sel(what="activations", layer="0")) == 32  # one of eight units


def test_along_a_training_that_is_stopped(tmp_path: Path) -> None:
    settings, split = Settings(epochs=3, batch=16, rate=0.5), pictures()

    def run(checkpoint: Path | None = None, stop: int = 0) -> tuple[dict[str, Tensor], At]:
        def progress(done: int, total: int) -> None:
            if done == stop:
                raise KeyboardInterrupt

        model, hook = picture_net(), At([0, 1, 3], Tracker(None, split, **FEW))
        train(model, split, settings, hooks=[hook], checkpoint=checkpoint, save_every=0.0, progress=progress)
        return weights(model), hook

    whole, hook = run()
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "c.safetensors", stop=5)
    resumed, again = run(tmp_path / "c.safetensors")
    untracked = picture_net()
    train(untracked, split, settings)
    assert_same(whole, weights(untracked))
    assert_same(whole, resumed)
    joined = distributions(hook.results)
    xarray.testing.assert_identical(joined, distributions(again.results))
    assert joined.attrs["measure"] == "distributions"
    assert joined["epoch"].values.tolist() == [0, 1, 3]
    assert joined["histogram"].dtype == numpy.int64
    for epoch, one in hook.results.items():
        there = joined.sel(epoch=epoch)
        assert (there["histogram"].sum("bin") == one["histogram"].sum("bin")).all()
        assert (there["histogram"].sel(bin=one["bin"]) == one["histogram"]).all()
        xarray.testing.assert_equal(there["quantiles"].drop_vars("epoch"), one["quantiles"])
    changed = joined["deviation"].sel(what="weights", layer="0").values
    assert len(set(changed)) == 3


def test_gradients_are_those_of_a_training_step() -> None:
    model, split = plain_net(), blobs(32)
    found = look(model, Tracker([0], split, batches=1, batch=32)).sel(what="gradients", layer="0")
    F.cross_entropy(model(split.images()), split.labels).backward()
    gradient = model[0].weight.grad
    assert gradient is not None
    assert_distribution(found, gradient)


def test_joined_along_networks_for_a_figure() -> None:
    looks = {name: look(plain_net(), Tracker([0], blobs(), seed=seed, **FEW)) for seed, name in enumerate("ab")}
    joined = xarray.concat(
        [distributions({0: one}).drop_vars(["low", "high"]) for one in looks.values()],
        xarray.IndexVariable("network", list(looks)),
        join="outer",
        fill_value={"histogram": 0},
    )
    assert (joined["histogram"].sum("bin") == joined["count"]).all()


class Aside(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        self.unused(x)
        return self.used(x)


def test_what_cannot_be_tracked_is_refused() -> None:
    split = blobs()
    for wrong, words in (
        ({"layers": []}, "names or places of layers"),
        ({"what": ["losses"]}, "what from activations, weights, gradients"),
        ({"what": []}, "what from"),
        ({"batches": 0}, "at least 1 and batch of at least 2, got 0"),
        ({"batches": 9}, r"expected 144 samples \(9 batches of 16\), got 96"),
    ):
        with pytest.raises(InputError, match=words):
            Tracker(**{"layers": None, "split": split, **FEW, **wrong})
    with pytest.raises(InputError, match="no layer '1' is called; expected one of 0, 2"):
        look(plain_net(), Tracker(["1"], split, **FEW))
    with pytest.raises(InputError, match="a layer from -2 to 1, got 2"):
        look(plain_net(), Tracker([2], split, **FEW))
    frozen = plain_net()
    frozen[0].requires_grad_(False)
    with pytest.raises(InputError, match="requires_grad, got 0; leave out gradients"):
        look(frozen, Tracker([0], split, **FEW))
    assert look(frozen, Tracker([0], split, what=["activations"], **FEW))["count"].item() == 32 * 8
    with pytest.raises(InputError, match="depends on, got unused"):
        look(Aside(), Tracker(["unused"], split, **FEW))
    with pytest.raises(InputError, match="calls no module with a weight"):
        look(nn.Sequential(nn.BatchNorm1d(3)), Tracker(None, split, **FEW))
    with pytest.raises(InputError, match="got none"):
        distributions({})
    one, other = (look(plain_net(), Tracker([place], split, **FEW)) for place in (0, 1))
    with pytest.raises(InputError, match=r"expected looks at one layer, got \['0'\] at epoch 0 and \['2'\]"):
        distributions({0: one, 1: other})


def test_a_model_without_weights_is_refused() -> None:
    with pytest.raises(InputError, match="ReLU has no weights to look at"):
        look(nn.ReLU(), Tracker(None, blobs(), **FEW))


class Halved(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return 0.5 * weight


@pytest.mark.parametrize("preset", ["halved", "weight norm", "spectral norm"])
def test_weights_that_are_made_by_parametrizations_are_those_that_act(preset: str) -> None:
    """Against the same network with the made weights as its own."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 3)).eval()
    split = blobs()
    made = copy.deepcopy(model)
    layer = made[0]
    assert isinstance(layer, nn.Linear)
    if preset == "halved":
        register_parametrization(layer, "weight", Halved())
    elif preset == "weight norm":
        weight_norm(layer)
    else:
        spectral_norm(layer).eval()
    with torch.no_grad():
        model[0].weight.copy_(layer.weight)  # type: ignore[arg-type]
    tracker = Tracker([0, 1], split, training=False, **FEW)
    xarray.testing.assert_allclose(look(made, tracker), look(model, tracker), rtol=1e-5)
    assert not is_parametrized(model)
    assert is_parametrized(made[0], "weight")
