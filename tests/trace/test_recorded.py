"""Graphs from one recorded pass, for models that `torch.export` cannot take."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import skipscope as ss
from skipscope.trace.graph_trunk import GraphTrunk
from skipscope.trace.inputs import Inputs
from skipscope.trace.program import Program
from skipscope.trace.recorded_program import RecordedProgram
from tests.trace.nets import D, Residual, mlp


class Blocks(nn.Module):
    """Two residual blocks with `between` the first and the second."""

    def __init__(self, between: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.a, self.between, self.b = Residual(mlp()), between, Residual(mlp())

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.between(self.a(x)))


class Experts(nn.Module):
    """Each token goes to the expert that it scores highest: sizes depend on values."""

    def __init__(self) -> None:
        super().__init__()
        self.router, self.experts = nn.Linear(D, 3), nn.ModuleList(mlp() for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        flat = x.reshape(-1, D)
        choice = self.router(flat).argmax(-1)
        out = torch.zeros_like(flat)
        for i, expert in enumerate(self.experts):
            (rows,) = torch.where(choice == i)
            if len(rows):
                out.index_add_(0, rows, expert(flat[rows]))
        return out.reshape(x.shape)


class Attention(nn.Module):
    """Everything that has to stay whole, tensors written in place, a weight used twice, a buffer that counts."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(D), nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.out.weight = nn.Parameter(self.qkv.weight[:D].detach().clone())
        self.tied = self.out
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor, mask: Tensor | None = None, *, scale: float = 1.0) -> dict[str, Any]:
        self.calls += 1
        if x.abs().max() > 1e6:
            return {"state": x}
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        h = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        h[:, 0] *= scale
        x = x + self.tied(self.out(h))
        return {"state": x, "steps": 3, "parts": [x.mean(-1)]}


def operations_of(trunk: ss.Trunk) -> list[str]:
    assert isinstance(trunk, GraphTrunk)
    return [str(node.target) for node in trunk.program.nodes]


def test_a_branch_on_values_is_recorded_as_it_was_taken() -> None:
    torch.manual_seed(0)
    model, x = Blocks(lambda h: h if h.sum() > 1e6 else h.tanh()).double().eval(), torch.randn(3, D).double()
    trunk = ss.trace(model, x)
    assert [unit.name for unit in trunk.units] == ["a", "b"]
    (note,) = (note for note in trunk.notes if "recorded" in note)
    assert "torch.export cannot take the model" in note
    assert "only for batches of 3 and for the branches that the values of this batch took" in note
    assert trunk.replay_error == 0.0
    h = trunk.at(x).entry(trunk[1])
    torch.testing.assert_close(trunk[1].branch(h), model.b.branch(h))
    exact = torch.func.vmap(torch.func.jacrev(lambda h: model.b(model.a(h).tanh())))(x).detach()
    torch.testing.assert_close(trunk.span(0, 1).jacobian(x).dense(), exact)
    other = torch.randn(3, D).double()
    torch.testing.assert_close(trunk.at(other).output, model(other))
    with pytest.raises(ss.InputError, match="its values take another branch"):
        trunk.at(torch.full((3, D), 1e7).double())
    with pytest.raises(ss.InputError, match="trace again with this batch"):
        trunk.at(torch.randn(4, D).double())


def test_weights_that_change_the_branch_are_noticed_and_others_are_followed() -> None:
    torch.manual_seed(0)
    model, x = Blocks(lambda h: h if h.sum() > 1e3 else h.tanh()).eval(), torch.randn(3, D)
    trunk = ss.trace(model, x)
    with torch.no_grad():
        model.b.branch[0].weight.mul_(2)
    torch.testing.assert_close(trunk.at(x).output, model(x))
    with torch.no_grad():
        model.a.branch[2].bias.add_(1e4)
    with pytest.raises(ss.InputError, match="trace it again with this batch"):
        trunk.at(x)


def test_sizes_that_depend_on_values() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(D, D), Residual(Experts()), Residual(Experts())).eval()
    x = torch.randn(2, 5, D)
    trunk = ss.trace(model, x)
    assert [unit.name for unit in trunk.units] == ["1", "2"]
    torch.testing.assert_close(trunk.replay(x), model(x))
    exact = torch.func.vmap(torch.func.jacrev(lambda h: model[1](h[None])[0]))
    with pytest.raises(RuntimeError):
        exact(trunk.at(x).entry(trunk[0]))  # torch.where has sizes that vmap does not know
    J = trunk[0].jacobian(x)
    assert ss.verify(J).passed


def test_operations_stay_whole_and_inputs_and_outputs_keep_their_structure() -> None:
    torch.manual_seed(0)
    model, x = Attention(), torch.randn(3, 4, D)
    mask = torch.zeros(4, 4)
    trunk = ss.trace(model, {"x": x, "mask": mask, "scale": 2.0})
    assert isinstance(trunk, GraphTrunk)
    assert isinstance(trunk.program, RecordedProgram)
    found = operations_of(trunk)
    for whole in ("aten.layer_norm.default", "aten.linear.default", "aten.scaled_dot_product_attention.default"):
        assert whole in found
    assert not any(target.endswith("_.Tensor") for target in found)
    weights = [name for node, name in trunk.program.weights.items() if node.users]
    assert sorted(weights) == sorted(dict(model.named_parameters()))
    assert [node.name for node in trunk.program.inputs] == ["x", "mask", "scale"]
    output = trunk.replay({"x": x, "mask": mask, "scale": 2.0})
    assert output.keys() == {"state", "steps", "parts"}
    assert output["steps"] == 3
    expected = copy.deepcopy(model).eval()(x, mask, scale=2.0)
    torch.testing.assert_close(output["state"], expected["state"])
    torch.testing.assert_close(output["parts"][0], expected["parts"][0])
    assert model.training
    assert model.calls == 0


@pytest.mark.parametrize("through", ["positional", "keyword"])
def test_a_recording_has_the_graph_of_an_export(through: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a model that both can take: the same units, states and Jacobians."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.norm = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)
            self.blocks = nn.ModuleList(Residual(nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), self.norm)) for _ in "ab")
            self.last = nn.ReLU(inplace=True)

        def forward(self, x: Tensor) -> Tensor:
            x = self.stem(x)
            for block in self.blocks:
                x = self.last(block(x))
            return x.flatten(1)

    torch.manual_seed(0)
    model, x = Net().double().eval(), torch.randn(2, 3, 4, 4).double()
    batch = x if through == "positional" else {"x": x}
    exported = ss.trace(model, batch)
    monkeypatch.setattr(torch.export, "export", lambda *_, **__: 1 / 0)
    recorded = ss.trace(model, batch)
    assert [unit.to_dict() for unit in recorded.units] == [unit.to_dict() for unit in exported.units]
    for a, b in zip(recorded.at(batch).states, exported.at(batch).states, strict=True):
        torch.testing.assert_close(a, b)
    torch.testing.assert_close(recorded.span(0, 1).jacobian(batch).dense(), exported.span(0, 1).jacobian(batch).dense())
    twin = copy.deepcopy(recorded)
    with torch.no_grad():
        model.stem.weight.zero_()
    torch.testing.assert_close(twin.replay(batch), exported.span(0, 1)(twin.at(batch).states[0]).flatten(1))


def test_a_second_call_of_a_module_is_another_call() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = Residual(mlp())

        def forward(self, x: Tensor) -> Tensor:
            return x if x.sum() > 1e6 else self.block(self.block(x))

    trunk = ss.trace(Twice(), torch.randn(3, D))
    assert [unit.name for unit in trunk.units] == ["block", "block#2"]


@pytest.mark.parametrize(
    "between",
    [
        lambda h: h + torch.from_numpy(np.tanh(h.detach().numpy())),
        lambda h: h / h.abs().max().item(),
        lambda h: h * torch.tensor(h.mean(-1, keepdim=True).tolist()),
    ],
)
def test_numbers_that_leave_torch_are_no_constants(between: Callable[[Tensor], Tensor]) -> None:
    """A graph would hold them fixed: its states at this batch were right, its derivatives were not."""
    torch.manual_seed(0)
    model, x = Blocks(between).eval(), torch.randn(3, D)
    with pytest.raises(ss.TraceError, match=r"of the change of the output is not in the recorded graph.*units=\["):
        ss.trace(model, x)
    trunk = ss.trace(model, x, units=["a", "b"])  # the way out
    h = trunk.at(x).entry(trunk[0])
    torch.testing.assert_close(trunk[0].branch(h), model.a.branch(h))


def test_autocast_inside_a_branching_model() -> None:
    class Cast(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = Residual(mlp()), Residual(mlp())

        def forward(self, x: Tensor) -> Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                x = self.a(x)
            return x if x.sum() > 1e6 else self.b(x)

    torch.manual_seed(0)
    trunk = ss.trace(Cast(), torch.randn(3, D))
    assert [unit.name for unit in trunk.units] == ["a", "b"]
    assert any("parts of the model are computed in bfloat16" in note for note in trunk.notes)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_int8_layers_have_units_and_no_jacobian() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(Residual(mlp()), Residual(mlp())).eval()
    model = torch.ao.quantization.quantize_dynamic(model, {nn.Linear})
    x = torch.randn(3, D)
    trunk = ss.trace(model, x)
    assert [unit.name for unit in trunk.units] == ["0", "1"]
    torch.testing.assert_close(trunk.replay(x), model(x))
    with pytest.raises(ss.InputError, match=r"linear_dynamic.default has no derivative; measure the float model"):
        trunk[0].jacobian(x)


def test_an_export_that_computes_something_else_is_replaced_by_a_recording() -> None:
    """A mask that is built in another way where torch is exporting."""

    def masked(h: Tensor) -> Tensor:
        return h * 0.5 if torch.compiler.is_compiling() else h * 2.0

    torch.manual_seed(0)
    model, x = Blocks(masked).eval(), torch.randn(3, D)
    trunk = ss.trace(model, x)
    torch.testing.assert_close(trunk.replay(x), model(x))
    assert any("replaying the graph of Blocks differs" in note and "recorded" in note for note in trunk.notes)


def test_the_axes_of_a_batch_are_found_where_its_samples_cannot_change_places() -> None:
    """The sizes of a recorded graph may hold for the samples in their own order only."""

    def halves(h: Tensor) -> Tensor:
        large = h[h.sum(-1) > 0]
        return h + 0.1 * large.reshape(len(large), 2, D // 2).mean((0, 1)).sum()

    torch.manual_seed(0)
    model, x = Blocks(halves).eval(), torch.randn(3, D)
    trunk = ss.trace(model, x)
    assert {"a", "b"} <= {unit.name for unit in trunk.units}


def test_the_error_of_a_model_itself_arrives_as_one_of_the_batch() -> None:
    class Picky(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise TypeError("no such thing")

    with pytest.raises(ss.InputError, match=r"Picky does not run on inputs of shapes \[\(3, 8\)\]: no such thing"):
        ss.trace(Picky(), torch.randn(3, D))


def test_binding_by_hand_does_not_ask_the_model() -> None:
    torch.manual_seed(0)
    model, x = Blocks(lambda h: h if h.sum() > 1e6 else h.tanh()).eval(), torch.randn(3, D)
    trunk = ss.trace(model, x)
    assert isinstance(trunk, GraphTrunk)
    inputs = Inputs.of(model, x + 1)
    values = Program.bind(trunk.program, inputs.args, inputs.kwargs)
    assert isinstance(trunk.program, RecordedProgram)
    torch.testing.assert_close(trunk.program.output(values), model(x + 1))


SWITCH = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 2}


@pytest.mark.slow
def test_switch_transformers_whole_and_by_its_blocks() -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    more = {"num_experts": 2, "num_sparse_encoder_layers": 1, "num_sparse_decoder_layers": 1, "vocab_size": 64}
    config = transformers.SwitchTransformersConfig(**SWITCH, **more)
    model = transformers.SwitchTransformersEncoderModel(config).eval()
    x = {"input_ids": torch.randint(3, 60, (2, 5))}
    whole = ss.trace(model, x)
    named = ss.trace(model, x, units=["encoder.block.0", "encoder.block.1"])
    names = [f"encoder.block.{i}.layer.{k}" for i in range(2) for k in range(2)]
    assert [unit.name for unit in whole.units] == [unit.name for unit in named.units] == names
    found = [ss.singular_values(trunk[-1].jacobian(x)).values for trunk in (whole, named)]
    torch.testing.assert_close(*found)
