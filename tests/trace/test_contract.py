"""`trunk.contract()`: against hooks that the test itself puts on the model, and against the naive reading."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import skipscope as ss
from skipscope.trace.contract import exports
from skipscope.trace.model_output import relative_error
from tests.slow import thinned
from tests.trace.contract_families import FAMILIES, Hooked
from tests.trace.families import images, timm, tokens

ROUNDING = 2e-6  # relative, float32: a sum of three terms in another order


def hooked(model: nn.Module, x: Any, places: list[ss.HookPlace]) -> list[Tensor]:
    """What plain forward hooks give at places, cloned; written here once more, as a user would."""
    found: dict[int, Tensor] = {}
    handles = []
    for i, place in enumerate(places):
        module = model.get_submodule(place.module)

        def after(_: Any, args: Any, kwargs: Any, output: Any, i: int = i, place: ss.HookPlace = place) -> None:
            value = output
            for part in place.index:
                value = value[part]
            found[i] = (value if place.shape is None else value.reshape(place.shape)).clone()

        def before(_: Any, args: Any, kwargs: Any, i: int = i, place: ss.HookPlace = place) -> None:
            value: Any = (args, kwargs)
            for part in place.index:
                value = value[part]
            found[i] = (value if place.shape is None else value.reshape(place.shape)).clone()

        if place.side == "output":
            handles.append(module.register_forward_hook(after, with_kwargs=True))
        else:
            handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
    with torch.no_grad():
        model(**x) if isinstance(x, dict) else model(x)
    for handle in handles:
        handle.remove()
    return [found[i] for i in range(len(places))]


@pytest.mark.parametrize("name", thinned(FAMILIES, ("granite", "bloom", "falcon")))
def test_language_models(name: str) -> None:
    torch.manual_seed(0)
    family = FAMILIES[name]
    model, x = family.make().eval(), tokens()(2)
    with torch.no_grad():  # branches as large as the states, and norms that do something: fresh ones are one or zero
        for path, weight in model.named_parameters():
            weight.add_(0.3 * torch.randn_like(weight)) if "norm" in path else weight.mul_(10)
    found = ss.trace(model, x).contract()
    assert found.holds, found
    first = found.units[: len(family.units)]
    assert tuple((" + ".join(map(str, unit.branches)), str(unit.exit)) for unit in first) == family.units
    assert tuple(unit.adds_residual for unit in first) == family.adds_residual
    assert tuple(unit.branches[0].norm for unit in first) == family.norms
    assert all(branch.factor == family.factor for unit in found.units for branch in unit.branches)
    assert all(unit.error is not None and unit.error < ROUNDING for unit in found.units)
    check_with_own_hooks(model, x, first, family)


def check_with_own_hooks(model: nn.Module, x: Any, units: Any, family: Hooked) -> None:
    """exit = entry + branches, with hooks of the test's own; and without norm and factor it is another state."""
    for unit, wrong in zip(units, family.wrong, strict=True):
        places = [unit.entry, unit.exit, *(branch.place for branch in unit.branches)]
        entry, exit, *outputs = hooked(model, x, places)
        total = entry
        for branch, output in zip(unit.branches, outputs, strict=True):
            with torch.no_grad():
                value = output if branch.norm is None else model.get_submodule(branch.norm)(output)
            total = total + value * branch.factor
        assert relative_error(total, exit) < ROUNDING, unit.unit
        naive_branch = naive(model, x, unit)
        assert (relative_error(entry + naive_branch, exit) > 0.01) == wrong, unit.unit
        assert any((branch.naive_error or 0) > 0.01 for branch in unit.branches) == wrong, unit.unit


def naive(model: nn.Module, x: Any, unit: ss.UnitContract) -> Tensor:
    """The sum of what the modules return that units are named after: what hook libraries take for the branches."""
    paths = [branch.naive for branch in unit.branches]
    assert None not in paths
    outputs: list[Tensor] = []

    def after(_: Any, args: Any, output: Any) -> None:
        outputs.append((output[0] if isinstance(output, tuple) else output).clone())

    handles = [model.get_submodule(str(path)).register_forward_hook(after) for path in paths]
    with torch.no_grad():
        model(**x)
    for handle in handles:
        handle.remove()
    return torch.stack(outputs).sum(0).reshape(2, 6, 16)


@pytest.mark.parametrize("name", thinned(("falcon", "gptj"), ()))
def test_parallel_branches_read_one_entry(name: str) -> None:
    """The naive reading has a state between attention and feed-forward; here none exists."""
    torch.manual_seed(0)
    model, x = FAMILIES[name].make().eval(), tokens()(2)
    unit = ss.trace(model, x).contract()[0]
    assert unit.parallel
    assert len(unit.branches) == 2
    assert unit.entry is not None
    attention = next(branch for branch in unit.branches if "attn" in str(branch) or "attention" in str(branch))
    entry, added = hooked(model, x, [unit.entry, attention.place])
    between = entry + added
    read = []
    norm = "h.0.input_layernorm" if name == "falcon" else "h.0.ln_1"
    for path in (norm, next(b.place.module for b in unit.branches if "mlp" in str(b))):
        read += hooked(model, x, [ss.HookPlace(path, "input", (0, 0))])
    assert torch.equal(read[0], entry)
    assert relative_error(model.get_submodule(norm)(between), read[1]) > 0.01


def small_resnet() -> nn.Module:
    """torchvision's own class and blocks, one block per stage."""
    from torchvision.models.resnet import BasicBlock, ResNet

    return ResNet(BasicBlock, [1, 1, 1, 1], num_classes=4)


def test_a_resnet_with_its_norms_tail_and_memory() -> None:
    torch.manual_seed(0)
    model, x = small_resnet().train(), images(16)(2)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    trunk = ss.trace(model, x)
    state = torch.get_rng_state()
    found = trunk.contract()
    assert found.holds
    # The model is left as it was.
    assert torch.equal(torch.get_rng_state(), state)
    assert all(module.training for module in model.modules())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    model.eval()
    first, changed = found["layer1.0"], found["layer2.0"]
    assert str(first.branches[0]) == "layer1.0.bn2(layer1.0.conv2 output)"
    assert first.branches[0].exact == ss.HookPlace("layer1.0.bn2", "output", overwritten=True)
    assert [step.what for step in first.tail] == ["layer1.0.relu"]
    assert str(first.exit) == "layer1.0 output"
    assert changed.skip is not None
    assert changed.skip.place.module == "layer2.0.downsample"
    # `out += identity` writes into what bn2 returned: a hook that keeps it has the sum, then its ReLU.
    kept: list[Tensor] = []
    handle = model.layer1[0].bn2.register_forward_hook(lambda _, args, output: kept.append(output))  # type: ignore[union-attr, operator, index]
    with torch.no_grad():
        model(x)
    handle.remove()
    assert first.exit is not None
    assert torch.equal(kept[0], hooked(model, x, [first.exit])[0])
    assert "clone it inside the hook" in str(found)


@pytest.mark.slow
def test_layer_scale_is_a_vector() -> None:
    torch.manual_seed(0)
    model = timm("deit3_small_patch16_224", img_size=32, depth=1, embed_dim=32, num_heads=2)().eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("gamma"):
                weight.copy_(torch.rand_like(weight))
    found = ss.trace(model, images(32)(2)).contract()
    assert found.holds
    (branch,) = found["blocks.0.attn"].branches
    assert branch.factor == "blocks.0.ls1.gamma"
    assert branch.exact == ss.HookPlace("blocks.0.ls1", "output")
    assert branch.naive == "blocks.0.attn"
    assert branch.naive_error is not None
    assert branch.naive_error > 0.01


class Half(nn.Module):
    """A macaron feed-forward unit, then one whose branch multiplies the outputs of two modules."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.left, self.right = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        x = x + 0.5 * torch.tanh(self.linear(x))
        return x - torch.sigmoid(self.left(x)) * self.right(x)


def test_what_no_module_returns_is_said_in_words() -> None:
    torch.manual_seed(0)
    found = ss.trace(Half(), torch.randn(3, 6)).contract()
    half, product = found.units
    assert half.holds
    assert (str(half.branches[0]), half.branches[0].factor) == ("tanh(linear output) * 0.5", 0.5)
    assert not product.holds
    assert not found.holds
    assert product.branches == ()
    assert "by mul of several values" in product.problem
    assert f"no map: {product.problem} ({product.unit})" in str(found)


class Gated(nn.Module):
    """A module that is called twice: its output is gated, then divided by twice a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.last = nn.Linear(6, 6), nn.Linear(6, 2)
        self.gate, self.scale = nn.Parameter(torch.tensor(0.3)), nn.Parameter(torch.rand(6))

    def forward(self, x: Tensor) -> Tensor:
        x = x + torch.tanh(self.gate) * self.linear(x)
        return self.last(x + self.linear(x) / (2 * self.scale))


def test_a_factor_that_the_block_computes_is_not_taken_for_one() -> None:
    torch.manual_seed(0)
    found = ss.trace(Gated(), torch.randn(3, 6)).contract()
    assert found.holds
    assert [unit.branches[0].factor for unit in found.units] == [None, None]
    assert [str(unit.branches[0]) for unit in found.units] == ["mul(linear output)", "div(linear output (call 2))"]
    second = found.export("nnsight")["units"][1]["branches"][0]
    assert (second["factor"], second["expression"]) == (None, None)
    assert "one of several calls of a module" in second["reason"]


def test_a_graph_that_does_not_fit_the_hooks_gives_no_map(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a factor read wrongly out of the graph the equation does not hold, and no map is given."""
    from skipscope.trace.contract.chains import Chains

    own: Callable[..., Any] = Chains._factor

    def twice(self: Chains, *arguments: Any) -> Any:
        found = own(self, *arguments)
        return None if found is None or found[1] is None else (found[0], 2 * found[1])

    monkeypatch.setattr(Chains, "_factor", twice)
    torch.manual_seed(0)
    found = ss.trace(Half(), torch.randn(3, 6)).contract()
    assert not found[0].holds
    assert found[0].branches == ()
    assert "do not add up to the hooked state" in found[0].problem


def test_bad_input() -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(Half(), Half()), torch.randn(3, 6)
    with pytest.raises(ss.TraceError, match="without units="):
        ss.trace(model, x, units=["0"]).contract()
    found = ss.trace(model, x).contract()
    with pytest.raises(ss.InputError, match="expected one of json, nnsight, transformerlens"):
        found.export("captum")
    with pytest.raises(ss.InputError, match="language model of transformers"):
        found.export("transformerlens")
    with pytest.raises(ss.InputError, match="no unit 'x'"):
        found["x"]
    assert exports.LIBRARIES == import_module("skipscope.cli.contract").LIBRARIES


def test_exported_maps() -> None:
    torch.manual_seed(0)
    found = ss.trace(nn.Sequential(Half(), Half()), torch.randn(3, 6)).contract()
    plain, nnsight = found.export("json"), found.export("nnsight")
    assert plain["units"][0]["branches"][0]["module"] == "0.linear"
    assert plain["units"][0]["branches"][0]["factor"] == 0.5
    (branch,) = nnsight["units"][0]["branches"]
    assert branch["expression"] == "torch.ops.aten.tanh.default(model[0].linear.output) * 0.5"
    assert nnsight["units"][0]["entry"]["expression"] == "model[0].inputs[0][0]"
    assert "branches" not in nnsight["units"][1]


@pytest.mark.slow
def test_half_precision_and_another_batch() -> None:
    torch.manual_seed(0)
    model = FAMILIES["granite"].make().eval().bfloat16()
    trunk = ss.trace(model, tokens()(2))
    assert trunk.contract(tokens()(3)).holds
    assert next(model.parameters()).dtype == torch.bfloat16
