"""Weights that are converted as they are read: the numbers of a float32 copy, without the copy."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

import skipscope as ss
from skipscope.memory_limit import limited_memory
from skipscope.trace import read_weights
from skipscope.trace.graph_trunk import GraphTrunk
from skipscope.trace.read_weights import ReadWeights, sent

D, TOKENS = 12, 5


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(D)
        self.up, self.down = nn.Linear(D, 20), nn.Linear(20, D)
        self.register_buffer("scale", torch.rand(D))

    def forward(self, h: Tensor) -> Tensor:
        return h + self.scale * self.down(torch.tanh(self.up(self.norm(h))))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(30, D)
        self.blocks = nn.Sequential(Block(), Block(), Block())

    def forward(self, ids: Tensor) -> Tensor:
        return self.blocks(self.embed(ids)) @ self.embed.weight.T  # tied, and read from outside of its module


class Compares(Model):
    """It asks for the type of its weights by a way that converted ones do not show."""

    def forward(self, ids: Tensor) -> Tensor:
        states = self.embed(ids)
        if states.dtype != next(self.parameters()).dtype:
            raise TypeError("states and weights are of different types")
        return self.blocks(states)


IDS = torch.arange(2 * TOKENS).reshape(2, TOKENS)


def both(dtype: torch.dtype, kind: type[nn.Module] = Model) -> tuple[nn.Module, ss.Trunk, ss.Trunk]:
    """The model, its trunk and that of its float32 copy."""
    model = kind().eval().to(dtype)
    return model, ss.trace(model, IDS), ss.trace(copy.deepcopy(model).float(), IDS)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_numbers_are_those_of_a_float32_copy(dtype: torch.dtype) -> None:
    model, trunk, expected = both(dtype)
    assert trunk.model is model
    assert [unit.to_dict() for unit in trunk.units] == [unit.to_dict() for unit in expected.units]
    point, other = trunk.at(IDS), expected.at(IDS)
    assert all(torch.equal(a, b) for a, b in zip(point.states, other.states, strict=True))
    assert torch.equal(point.output, other.output)
    for kind in (None, torch.float64):
        ours, theirs = (t[1].jacobian(p, dtype=kind).dense() for t, p in ((trunk, point), (expected, other)))
        assert torch.equal(ours, theirs)
    assert ss.profile(trunk, point).equals(ss.profile(expected, other))
    name = trunk[1].parameter_names[-1]
    weights = {name: torch.randn_like(model.get_parameter(name), dtype=torch.float32)}
    h = point.entry(trunk[1])
    assert torch.equal(ss.with_weights(trunk[1], weights)(h), ss.with_weights(expected[1], weights)(h))


def test_later_changes_are_seen() -> None:
    model, trunk, _ = both(torch.bfloat16)
    point = trunk.at(IDS)
    weight = model.get_parameter("blocks.1.up.weight")
    weight.data.mul_(2)  # which torch does not count
    with pytest.raises(ss.InputError, match="weights have changed"):
        _ = point.states
    expected = ss.trace(copy.deepcopy(model).float(), IDS)
    assert torch.equal(trunk.replay(IDS), expected.replay(IDS))


@pytest.mark.skipif(torch.get_default_device().type != "cpu", reason="weights on a GPU are converted anew each time")
def test_few_converted_weights_are_kept() -> None:
    model = Model().eval().bfloat16()
    reading = ReadWeights(model, torch.float32)
    weight = model.get_parameter("blocks.0.up.weight")
    first = reading.read(weight, torch.float32, None)
    assert reading.read(weight, torch.float32, None) is first
    assert not first.requires_grad
    with limited_memory("1MiB"):
        large = [nn.Parameter(torch.randn(200, 200).bfloat16()) for _ in range(5)]  # 160 kB each in float32
        for one in large:
            assert torch.equal(reading.read(one, torch.float32, None), one.float())
        assert 0 < reading._bytes <= reading.room
        assert reading.read(weight, torch.float32, None) is not first
    assert torch.equal(reading.read(weight, torch.float32, None), first)


@pytest.mark.skipif(torch.get_default_device().type != "cpu", reason="weights on a GPU are converted anew each time")
def test_a_backward_pass_keeps_no_converted_weights() -> None:
    _, trunk, expected = both(torch.bfloat16)
    assert isinstance(trunk, GraphTrunk)
    reading = trunk.program.reading
    assert reading is not None
    converted = trunk.program.weight("blocks.1.up.weight")
    packed, state = reading._packed(converted.T), torch.randn(3)
    assert not isinstance(packed, Tensor)  # what a graph keeps of the weight is where to read it
    assert reading._packed(state) is state
    reading._drop(next(reversed(reading._kept)))
    assert torch.equal(reading._unpacked(packed), converted.T)
    with limited_memory("1MiB"):
        gradients = trunk.at(IDS).gradients(lambda output: output.square().sum())
    others = expected.at(IDS).gradients(lambda output: output.square().sum())
    assert all(a is not None and b is not None and torch.equal(a, b) for a, b in zip(gradients, others, strict=True))


def test_what_is_read_inside_a_derivative_outlives_it() -> None:
    model = Model().eval().bfloat16()
    reading = ReadWeights(model, torch.float32)
    weight = model.get_parameter("blocks.0.up.weight")

    def function(x: Tensor) -> Tensor:
        return x @ reading.read(weight, torch.float32, None).T

    x = torch.randn(4, D)
    block = torch.func.vmap(lambda v: torch.func.jvp(function, (x,), (v,))[1])(torch.randn(3, 4, D))
    assert block.shape == (3, 4, 20)
    assert torch.equal(function(x), x @ weight.float().T)


def test_the_model_is_as_it_was() -> None:
    model = Model().eval().bfloat16()
    before = {name: (id(tensor), tensor.clone()) for name, tensor in model.state_dict(keep_vars=True).items()}
    homes = [type(module._parameters) for module in model.modules()]
    ss.profile(ss.trace(model, IDS), IDS)
    after = model.state_dict(keep_vars=True)
    assert all(id(after[name]) == key and torch.equal(after[name], value) for name, (key, value) in before.items())
    assert [type(module._parameters) for module in model.modules()] == homes


def test_code_that_looks_at_types_gets_a_copy() -> None:
    model = Compares().eval().bfloat16()
    trunk = ss.trace(model, IDS)
    assert trunk.model is not model
    assert "float32 on a copy" in str(trunk)
    assert trunk.at(IDS).states[0].dtype == torch.float32


def test_a_copy_of_the_trunk_reads_the_copy_of_the_model() -> None:
    model, trunk, _ = both(torch.bfloat16)
    twin, output = copy.deepcopy(trunk), trunk.replay(IDS)
    with torch.no_grad():
        model.get_parameter("blocks.1.up.weight").zero_()
    assert twin.model is not model
    assert torch.equal(twin.replay(IDS), output)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.int64])
@pytest.mark.parametrize("shape", [(), (0,), (1,), (7, 9), (64, 3)])
def test_weights_arrive_on_a_gpu_as_they_are(
    dtype: torch.dtype, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_weights, "BUFFER", 64)  # several parts, the last of them short
    weight = (100 * torch.randn(shape, device="cpu")).to(dtype)
    for given in (weight, weight.mT if weight.dim() == 2 else weight):
        arrived = sent(given, torch.device("cuda"))
        assert arrived.device.type == "cuda"
        assert arrived.dtype == dtype
        assert torch.equal(arrived.cpu(), given)
