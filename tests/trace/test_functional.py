"""Programs without operations in place: rewriting single nodes gives what a second trace of the whole gives."""

from __future__ import annotations

import random
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
from tests.slow import thinned


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


class MaskInPlace(nn.Module):
    """Windows of a tensor of zeros are numbered, as in Swin; rows are set to zero; a whole view is added to."""

    def forward(self, x: Tensor) -> Tensor:
        mask = x.new_zeros(8, 8)
        for number, (rows, columns) in enumerate([(0, 0), (0, 4), (4, 0), (4, 4)]):
            mask[rows : rows + 4, columns : columns + 4] = number
        weight = mask.clone()
        weight[2:3].zero_()
        weight[5].mul_(2)
        y = x @ weight
        part = y[:, :]
        part += x
        return part


class ViewReadAfterwards(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = 2 * x
        view = y[:, 2:]
        inner = view[:, :4]
        inner.relu_()
        return view.exp() + inner.sum() + y[:, :6]


class OnlyHandle(nn.Module):
    """What is written to is a view, and nothing else looks at the tensor."""

    def forward(self, x: Tensor) -> Tensor:
        y = (2 * x).view(-1, 2, 4).transpose(1, 2)
        y += 1
        return y.exp()


class TwoViews(nn.Module):
    """The other view is from before the writing and read after it."""

    def forward(self, x: Tensor) -> Tensor:
        y = 2 * x
        one, two = y[:, :6], y[:, 2:]
        one.relu_()
        return one + two


class ThroughTransposed(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = 2 * x
        y.unflatten(1, (2, 4)).transpose(1, 2)[:, 1:].relu_()
        return y


class ViewWrittenTwice(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = 2 * x
        view = y[:, :4]
        view.relu_()
        view.add_(1)
        return y


class ViewReadAfterAnotherWrite(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = 2 * x
        view = y[:, :4]
        view.add_(1)
        y.relu_()
        return view + y[:, 4:]


class ViewOfAWrittenView(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = 2 * x
        view = y[:, :4]
        view.add_(1)
        inner = view[:, :2]
        inner.relu_()
        return y.exp()


class AddedToSlices(nn.Module):
    """Python writes the result of a sum into its slice once more."""

    def forward(self, x: Tensor) -> Tensor:
        y = 2 * x
        y[:, 1:] += x[:, :-1]
        y[:, :2] -= x[:, 2:4]
        return y


class InputWritten(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        x[:, :4].relu_()
        return 2 * x


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
    WrittenThroughAView: (8,),
    resnet: (3, 32, 32),
    encoder: (3, 8),
}
SHORTER = [
    AddedToSlices,
    MaskInPlace,
    OnlyHandle,
    ViewReadAfterwards,
]  # than a second trace, which takes every view once more
TRACED_AGAIN = [
    WrittenBehindAView,
    WrittenInAnotherType,
    TwoViews,
    ThroughTransposed,
    ViewWrittenTwice,
    ViewReadAfterAnotherWrite,
    ViewOfAWrittenView,
    InputWritten,
]


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


@pytest.mark.parametrize("make", [WrittenTwice, CastAndCut, WrittenThroughAView, *SHORTER, *TRACED_AGAIN])
def test_values_are_the_models_own(make: Callable[[], nn.Module], monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 8)
    made = count_second_traces(monkeypatch)
    program = functional(torch.export.export(make(), (x.clone(),)))
    assert bool(made) == (make in TRACED_AGAIN)
    assert not any(node.target._schema.is_mutable for node in program.graph.nodes if hasattr(node.target, "_schema"))
    torch.testing.assert_close(program.module()(x.clone()), make()(x.clone()))


class RandomWrites(nn.Module):
    """Views of two tensors, views of views, writing into any of them and reading any, in a random order."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed

    def forward(self, x: Tensor) -> Tensor:
        choose = random.Random(self.seed)
        tensors = [2 * x, x + 1]
        total = torch.zeros(())
        for _ in range(choose.randint(4, 9)):
            some = choose.choice(tensors)
            match choose.choice(["slice", "select", "transpose", "write", "write", "write", "add", "read", "copy"]):
                case "slice":
                    axis = choose.randrange(some.dim())
                    start = choose.randrange(2)
                    tensors.append(some.narrow(axis, start, some.shape[axis] - 1 - start))
                case "select" if some.dim() > 1:
                    tensors.append(some[choose.randrange(2)])
                case "transpose" if some.dim() > 1:
                    tensors.append(some.transpose(0, 1))
                case "write":
                    choose.choice([some.relu_, some.exp_, lambda some=some: some.mul_(0.5), some.zero_])()
                case "add":
                    some += choose.choice([1.0, total])
                case "copy":
                    tensors.append(some.clone())
                case _:
                    total = total + some.sin().sum()
        return total + sum(tensor.cos().sum() for tensor in tensors)


@pytest.mark.parametrize("seeds", thinned([range(start, start + 10) for start in range(0, 30, 10)], fast=[range(10)]))
def test_random_programs_that_write_through_views(seeds: range) -> None:
    torch.manual_seed(0)
    x = torch.randn(5, 6, dtype=torch.float64)
    for seed in seeds:
        model = RandomWrites(seed)
        program = functional(torch.export.export(model, (x,)))
        torch.testing.assert_close(program.module()(x), model(x), msg=lambda text, seed=seed: f"seed {seed}: {text}")
