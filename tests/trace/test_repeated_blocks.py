"""Blocks that are alike are run once by the exporter: the graph is the same as if all had been."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn

from skipscope.models.resnet import ResNet
from skipscope.trace.export import export
from skipscope.trace.inputs import Inputs
from skipscope.trace.program import Program
from skipscope.trace.watched_settings import watching

repeated_blocks = importlib.import_module("skipscope.trace.repeated_blocks")


class Block(nn.Module):
    """With a setting that is never read, as the number of a layer is without a cache."""

    def __init__(self, number: int = 0, **settings: Any) -> None:
        super().__init__()
        self.number = number
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self.register_buffer("scale", torch.ones(8))
        for name, value in settings.items():
            setattr(self, name, value)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(torch.relu_(self.first(x))) * self.scale


class Attention(nn.Module):
    """Arguments by keyword, one of them twice and one that is none; results in a tuple, one of them an argument."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(
        self, x: Tensor, context: Tensor, *, mask: Tensor | None = None, scale: float = 1.0
    ) -> tuple[Tensor, Tensor, float]:
        return x + scale * self.attention(x, context, context, attn_mask=mask)[0], context, scale


class InTurn(nn.Module):
    def __init__(self, count: int = 4) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Attention() for _ in range(count))

    def forward(self, x: Tensor) -> Tensor:
        context = x
        for layer in self.layers:
            x, context, _ = layer(x, context, scale=0.5)
        return x


class ReadsItsNumber(Block):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) / (self.number + 1)


class ReadsAllSettings(Block):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) / (vars(self)["number"] + 1)


class Counts(Block):
    """State that a call leaves behind."""

    def forward(self, x: Tensor) -> Tensor:
        self.number += 1
        return super().forward(x)


class WritesToItsArgument(Block):
    def forward(self, x: Tensor) -> Tensor:
        x += 1
        return super().forward(x)


class WithASize(Block):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).reshape(-1, 2, 4).flatten(1) + x.new_zeros(x.shape[0], 8)


class WithAConstant(Block):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + torch.tensor([1.0, 2.0]).repeat(4)


class FromElsewhere(nn.Module):
    """A value that reaches the blocks by another way than their arguments."""

    def __init__(self) -> None:
        super().__init__()
        shared: list[Tensor] = []

        class Reads(Block):
            def forward(self, x: Tensor) -> Tensor:
                return super().forward(x) + shared[-1]

        self.layers = nn.Sequential(*(Reads() for _ in range(4)))
        self.keep = shared.append

    def forward(self, x: Tensor) -> Tensor:
        self.keep(2 * x)
        return self.layers(x)


class CalledTwice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        for layer in (*self.layers, self.layers[1], self.layers[0]):
            x = layer(x)
        return x


class OtherForms(nn.Module):
    """Blocks that are called with tensors of different shapes."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(5))

    def forward(self, x: Tensor) -> Tensor:
        y = x[:, None]
        for layer in self.layers[:2]:
            x = layer(x)
        for layer in self.layers[2:]:
            y = layer(y)
        return x + y[:, 0]


class SizesFromValues(nn.Module):
    """Only some rows go through a part of each block."""

    class Chosen(Block):
        def forward(self, x: Tensor) -> Tensor:
            rows = torch.nonzero(x[:, 0] > 0)[:, 0]
            return x.index_add(0, rows, self.first(x[rows]))

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(self.Chosen() for _ in range(3)))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class FirstCalledTwice(nn.Module):
    """The first block, which is run, is called again at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        for layer in (*self.layers, self.layers[0]):
            x = layer(x)
        return x


def chain(block: Callable[..., nn.Module], count: int = 4, **settings: Any) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(*(block(number, **settings) for number in range(count)))


def shared_weight() -> nn.Module:
    model = chain(Block)()
    model[3].first.weight = model[0].first.weight
    return model


def shared_block() -> nn.Module:
    blocks = [Block() for _ in range(3)]
    return nn.Sequential(*blocks, nn.Sequential(*blocks))


def hooked() -> nn.Module:
    model = chain(Block)()
    model[2].first.register_forward_hook(lambda module, args, result: 2 * result)
    return model


def resnet() -> nn.Module:
    return ResNet(26, channels=(4, 8, 8), input_channels=3, classes=4)


def two_stages() -> nn.Module:
    """The second starts with a result of a repetition in the first."""
    return nn.Sequential(chain(Block)(), chain(WithASize)())


def language_model() -> nn.Module:
    transformers = pytest.importorskip("transformers")
    settings = {"n_layer": 4, "n_embd": 8, "n_head": 2, "vocab_size": 16, "n_positions": 8, "bos_token_id": 1}
    return transformers.GPT2Model(transformers.GPT2Config(**settings, eos_token_id=1, use_cache=False))


VECTORS, TOKENS, IMAGES = (3, 8), (3, 5, 8), (3, 3, 8, 8)
# The model, the shape of its batch, and how many of its blocks are repetitions of another.
CASES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int]] = {
    "blocks with numbers": (chain(Block), VECTORS, 3),
    "too few": (chain(Block, 2), VECTORS, 0),
    "two stages": (two_stages, VECTORS, 6),
    "keywords, tuples": (InTurn, TOKENS, 2),  # in the first block the context is the state itself
    "residual network": (resnet, IMAGES, 7),
    "language model": (language_model, (3, 6), 3),
    "encoder": (
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 4),
        TOKENS,
        3,
    ),
    "a size": (chain(WithASize), VECTORS, 3),
    "a constant": (chain(WithAConstant), VECTORS, 3),
    "a number that is read": (chain(ReadsItsNumber), VECTORS, 0),
    "all settings are read": (chain(ReadsAllSettings), VECTORS, 0),
    "two forms": (OtherForms, VECTORS, 3),
    "called twice": (CalledTwice, VECTORS, 0),
    "the first called twice": (FirstCalledTwice, VECTORS, 3),
    "a weight in two places": (shared_weight, VECTORS, 0),
    "a block in two places": (shared_block, VECTORS, 0),
    "a hook": (hooked, VECTORS, 2),
    "writes to its argument": (chain(WritesToItsArgument), VECTORS, 0),
    "a value from elsewhere": (FromElsewhere, VECTORS, 0),
}


class _Shown:
    """A node as text, where `map_arg` wants an object."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def steps(program: Program) -> list[Any]:
    """All of a program but the names of its nodes."""
    number = {node: i for i, node in enumerate(program.nodes)}

    def shown(node: fx.Node) -> Any:
        if node in number:
            return _Shown(f"step {number[node]}")
        constant = program.constants.get(node)
        return _Shown(program.weights.get(node) or str(node.meta["val"] if constant is None else constant))

    found: list[Any] = [
        (
            node.target,
            repr(fx.node.map_arg((node.args, node.kwargs), shown)),
            str(node.meta["val"]),
            [(key, path) for key, (path, *_) in node.meta["nn_module_stack"].items()],
        )
        for node in program.nodes
    ]
    return [*found, sorted(program.weights.values()), [str(shown(leaf)) for leaf in program.outputs]]


def batch(model: nn.Module, shape: tuple[int, ...]) -> Inputs:
    takes_tokens = len(shape) == 2 and shape[1] != 8
    return Inputs.of(model, torch.randint(0, 16, shape) if takes_tokens else torch.randn(shape), 0)


def count_repetitions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One number per attempt: of blocks that were put back."""
    found: list[int] = []
    put_back = repeated_blocks._Attempt.put_back

    def counted(self: Any, exported: Any) -> None:
        put_back(self, exported)
        found.append(self.repetitions)

    monkeypatch.setattr(repeated_blocks._Attempt, "put_back", counted)
    return found


@pytest.mark.parametrize("name", CASES)
def test_the_same_graph(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, shape, repeated = CASES[name]
    torch.manual_seed(0)
    model = make().eval()
    inputs = batch(model, shape)
    counts = count_repetitions(monkeypatch)
    once, _ = export(model, inputs)
    assert sum(counts) == repeated
    monkeypatch.setitem(export.__globals__, "export_blocks_once", lambda model, whole: whole())
    whole, _ = export(model, inputs)
    assert steps(once) == steps(whole)


def test_state_that_a_call_leaves_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    model = chain(Counts)().eval()
    counts = count_repetitions(monkeypatch)
    export(model, batch(model, VECTORS))
    assert sum(counts) == 0


def test_sizes_that_depend_on_values_are_not_repeated() -> None:
    """Each block has sizes of its own, which a copy would not have."""
    model = SizesFromValues().eval()
    x = torch.randn(3, 8)
    whole = torch.export.export(model, (x,))
    once = repeated_blocks.export_blocks_once(model, lambda: torch.export.export(model, (x,)))
    assert [str(node.meta.get("val")) for node in once.graph.nodes] == [
        str(node.meta.get("val")) for node in whole.graph.nodes
    ]


def test_the_exported_program_is_whole() -> None:
    """It can be run and traced again, as one that was exported as usual."""
    torch.manual_seed(0)
    model, x = resnet().eval(), torch.randn(3, *IMAGES[1:])
    with torch.no_grad():
        exported = repeated_blocks.export_blocks_once(model, lambda: torch.export.export(model, (x,)))
        torch.testing.assert_close(exported.module()(x), model(x))
        torch.testing.assert_close(exported.run_decompositions({}).module()(x), model(x))


def test_the_model_is_left_as_it_was() -> None:
    model = chain(Block)().eval()
    before = [(dict(vars(module)), type(module).__dict__.get("__getattribute__")) for module in model.modules()]
    export(model, batch(model, VECTORS))
    assert before == [(vars(module), type(module).__dict__.get("__getattribute__")) for module in model.modules()]


def test_what_a_model_raises_is_raised_once() -> None:
    """A model that cannot be exported is not exported a second time, as long as nothing was put in its place."""

    class Fails(Block):
        def forward(self, x: Tensor) -> Tensor:
            raise ValueError("no")

    calls = []
    model = chain(Fails)()

    def attempt() -> Any:
        calls.append(1)
        return torch.export.export(model, (torch.randn(3, 8),))

    with pytest.raises(ValueError, match="no"):
        repeated_blocks.export_blocks_once(model, attempt)
    assert len(calls) == 1


def test_settings_are_watched_in_several_threads() -> None:
    """One thread ends its watch while another still watches a module of the same class; then the class is as before."""
    blocks, reads = [Block(number) for number in range(2)], [set[Any](), set[Any]()]
    began, ended = threading.Event(), threading.Event()

    def first() -> None:
        with watching(blocks[0], [("", "number")], reads[0]):
            began.wait(10)
            assert blocks[0].number == 0
        ended.set()

    thread = threading.Thread(target=first)
    thread.start()
    with watching(blocks[1], [("", "number")], reads[1]):
        began.set()
        assert ended.wait(10)
        assert not reads[1]
        assert blocks[1].number == 1
    thread.join(10)
    assert reads == [{("", "number")}, {("", "number")}]
    assert "__getattribute__" not in vars(Block)


class EveryOther(Block):
    """With a setting that has one of two values, which is read."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x if self.number % 2 else x.flip(-1))


def test_weights_of_repetitions_are_not_shown_to_the_exporter() -> None:
    """Only the first block of each kind has its weights there; afterwards all weights have their places."""
    model = nn.Sequential(*(EveryOther(number % 2) for number in range(8))).eval()
    names: list[set[str]] = []

    def shown() -> Any:
        names.append({name.split(".")[0] for name, _ in model.named_parameters()})
        return torch.export.export(model, (torch.randn(3, 8),))

    exported = repeated_blocks.export_blocks_once(model, shown)
    assert names == [{"0", "1"}]
    assert {str(spec.target) for spec in exported.graph_signature.input_specs} >= {
        n for n, _ in model.named_parameters()
    }
    assert exported.state_dict.keys() == model.state_dict().keys()


def test_a_weight_that_is_looked_for_from_outside() -> None:
    class LooksInside(nn.Module):
        """The forward of the model reads a weight of a block that is a repetition."""

        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(Block() for _ in range(4))

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                x = layer(x)
            return x @ self.layers[2].first.weight

    torch.manual_seed(0)
    model, x = LooksInside().eval(), torch.randn(3, 8)
    with torch.no_grad():
        exported = repeated_blocks.export_blocks_once(model, lambda: torch.export.export(model, (x,)))
        torch.testing.assert_close(exported.module()(x), model(x))
