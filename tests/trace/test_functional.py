"""Programs without operations in place: rewriting single nodes gives what a second trace of the whole gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torchvision
from torch import Tensor, fx, nn
from torch.export import ExportedProgram

from skipscope.trace import operations
from skipscope.trace.export import export
from skipscope.trace.functional import functional
from skipscope.trace.inputs import Inputs
from skipscope.trace.program import Program


class WrittenTwice(nn.Module):
    """A tensor that is read before, between and after two writes, and whose view is taken after the last."""

    def forward(self, x: Tensor) -> Tensor:
        y = 2 * x
        before = y.exp()
        y.relu_()
        between = y.exp()
        y += x
        return before + between + y.flatten(1)


class CastAndCut(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        a, b = x.double().chunk(2, 1)
        return (a + b).float().unflatten(1, (2, 2)).contiguous().flatten(1)


class WrittenBehindAView(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = 2 * x
        view = y[:, :4]
        y.relu_()
        return view + x[:, :4]


class WrittenThroughAView(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = 2 * x
        y[:, :4].relu_()
        return y


class WrittenInAnotherType(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = 2 * x
        y += x.double()
        return y


def resnet() -> nn.Module:
    return torchvision.models.resnet18(num_classes=4)


def encoder() -> nn.Module:
    return nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)


REWRITTEN: dict[Callable[[], nn.Module], tuple[int, ...]] = {
    WrittenTwice: (8,),
    CastAndCut: (8,),
    resnet: (3, 32, 32),
    encoder: (3, 8),
}
TRACED_AGAIN = [WrittenBehindAView, WrittenThroughAView, WrittenInAnotherType]


def count_second_traces(monkeypatch: pytest.MonkeyPatch) -> list[ExportedProgram]:
    made: list[ExportedProgram] = []
    again = ExportedProgram.run_decompositions

    def counted(self: ExportedProgram, *args: Any, **kwargs: Any) -> ExportedProgram:
        made.append(self)
        return again(self, *args, **kwargs)

    monkeypatch.setattr(ExportedProgram, "run_decompositions", counted)
    return made


def steps(program: Program) -> list[tuple[str, list[Any], str]]:
    """Each operation with the numbers of the operations that it reads, and the shape of its result."""
    number = {node: i for i, node in enumerate(program.nodes)}

    def step(node: fx.Node) -> tuple[str, list[Any], str]:
        reads = [number.get(argument, program.weights.get(argument)) for argument in node.all_input_nodes]
        computed = [read for read in reads if read is not None]  # sizes are written in more than one way
        return operations.name(node), computed, str(node.meta["val"])

    return [step(node) for node in program.nodes]


@pytest.mark.skipif(torch.get_default_device().type != "cpu", reason="batch norms on a GPU are traced a second time")
@pytest.mark.parametrize("make", REWRITTEN)
def test_the_same_program_without_a_second_trace(
    make: Callable[[], nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    model = make().eval()
    inputs = Inputs.of(model, torch.randn(3, *REWRITTEN[make]), 0)
    made = count_second_traces(monkeypatch)
    rewritten, _ = export(model, inputs)
    assert not made
    monkeypatch.setitem(export.__globals__, "functional", lambda exported: exported.run_decompositions({}))
    traced, _ = export(model, inputs)
    assert made
    assert steps(rewritten) == steps(traced)


@pytest.mark.parametrize("make", [WrittenTwice, CastAndCut, *TRACED_AGAIN])
def test_values_are_the_models_own(make: Callable[[], nn.Module], monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 8)
    made = count_second_traces(monkeypatch)
    program = functional(torch.export.export(make(), (x,)))
    assert bool(made) == (make in TRACED_AGAIN)
    assert not any(node.target._schema.is_mutable for node in program.graph.nodes if hasattr(node.target, "_schema"))
    torch.testing.assert_close(program.module()(x), make()(x))
