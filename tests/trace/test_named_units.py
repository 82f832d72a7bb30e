"""Models that cannot be exported: the message, and units named by the user."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

import skipscope as ss
from tests.trace.nets import D, Residual, mlp


class Branching(nn.Module):
    """Its forward looks at values, so it has no graph; its blocks do."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(D, D)
        self.blocks = nn.ModuleList([Residual(mlp()), nn.Sequential(Residual(mlp()), nn.ReLU()), Residual(mlp())])

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
            if x.sum() > 1e6:
                return x
        return x.tanh()


class OpaqueBlock(nn.Module):
    """A block that cannot be exported either, and changes its input in place."""

    def __init__(self) -> None:
        super().__init__()
        self.branch = mlp()

    def forward(self, x: Tensor, scale: Tensor) -> Tensor:
        factor = 1.0 if float(x.sum()) < 1e6 else 2.0
        x += scale * self.branch(x) * factor
        return x


class Opaque(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = OpaqueBlock()

    def forward(self, x: Tensor, scale: Tensor) -> Tensor:
        return self.block(self.block(x * 1.0, scale), scale)


def test_the_message_names_the_operation_and_the_way_out() -> None:
    with pytest.raises(ss.TraceError, match=r"cannot be exported.*if x\.sum\(\) > 1e6.*units=\["):
        ss.trace(Branching(), torch.randn(3, D))


def test_the_message_of_the_exporter_ends_in_one_period() -> None:
    class Ended(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            if torch.compiler.is_compiling():
                raise RuntimeError("This is not supported.")
            return x * 1.0

    with pytest.raises(ss.TraceError) as caught:
        ss.trace(Ended(), torch.randn(3, D))
    assert "This is not supported (at" in str(caught.value)
    assert ".." not in str(caught.value).replace("...", "")


def test_named_modules_are_taken_apart_where_they_can_be() -> None:
    torch.manual_seed(0)
    model, x = Branching().double().eval(), torch.randn(3, D, dtype=torch.float64)
    trunk = ss.trace(model, x, units=[f"blocks.{i}" for i in range(3)])
    assert [unit.name for unit in trunk.units] == ["blocks.0", "blocks.1", "blocks.2"]
    assert [unit.tail.operations for unit in trunk.units] == [[], ["relu"], []]
    torch.testing.assert_close(trunk.replay(x), model(x))
    point = trunk.at(torch.randn(5, D, dtype=torch.float64))
    for unit in trunk.units:
        entry = point.entry(unit)
        torch.testing.assert_close(unit(entry), point.exit(unit))
        torch.testing.assert_close(unit.tail(unit.branch(entry) + unit.skip(entry)), point.exit(unit))
    torch.testing.assert_close(trunk.span(0, 2)(point.entry(trunk[0])), point.exit(trunk[2]))
    torch.testing.assert_close(trunk.stages[0](point.entry(trunk[0])), point.exit(trunk[2]))


def test_a_module_that_cannot_be_taken_apart_is_used_as_it_is_and_says_so() -> None:
    torch.manual_seed(0)
    model = Opaque().double().eval()
    x = torch.randn(3, D, dtype=torch.float64), torch.rand(3, 1, dtype=torch.float64)
    trunk = ss.trace(model, x, units=["block"])
    assert [unit.name for unit in trunk.units] == ["block", "block#2"]
    assert "its skip is taken to be the identity" in str(trunk)
    torch.testing.assert_close(trunk.replay(x), model(*x))
    point = trunk.at(x)
    first, second = trunk.units
    entry = point.entry(first)
    torch.testing.assert_close(entry, x[0])  # not what the module made of it in place
    torch.testing.assert_close(first.branch(entry), x[1] * model.block.branch(x[0]))
    torch.testing.assert_close(second(first(entry)), model(*x))
    torch.testing.assert_close(trunk.span(0, 1)(entry), model(*x))
    with pytest.raises(ss.InputError, match="a batch of 3, but the state has 2"):
        first(entry[:2])


@pytest.mark.parametrize(
    ("units", "message"),
    [
        (["block.0"], r"no module 'block\.0'; did you mean: .*blocks\.0"),
        (["blocks.0", "blocks.0.branch"], "lies inside another named unit"),
        ([], "names no module"),
        (["stem", "blocks"], "never called blocks"),
    ],
)
def test_bad_names_are_refused(units: list[str], message: str) -> None:
    with pytest.raises(ss.InputError, match=message):
        ss.trace(Branching(), torch.randn(3, D), units=units)


def test_a_batch_that_takes_another_way_is_refused() -> None:
    class Either(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = Residual(mlp()), Residual(mlp())

        def forward(self, x: Tensor) -> Tensor:
            return self.b(self.a(x)) if x.mean() > 0 else self.a(self.b(x))

    x = torch.rand(3, D)
    trunk = ss.trace(Either(), x, units=["a", "b"])
    with pytest.raises(ss.InputError, match="at this batch the model called b, a, at the trace a, b"):
        trunk.at(-x)


class Casting(OpaqueBlock):
    """Falls back to float32 whatever it is given."""

    def forward(self, x: Tensor, scale: Tensor) -> Tensor:
        return super().forward(x.float(), scale).to(x)


@pytest.mark.parametrize("block", [OpaqueBlock, Casting])
def test_opaque_units_of_a_float32_model_are_measured_in_float64_where_they_can_be(block: type[OpaqueBlock]) -> None:
    torch.manual_seed(0)
    model, x = Opaque().eval(), (torch.randn(3, D), torch.rand(3, 1))
    model.block = block()
    trunk = ss.trace(model, x, units=["block"])
    assert trunk[0].in_any_type == trunk.span(0, 1).in_any_type == (block is OpaqueBlock)
    J = trunk[0].jacobian(x)
    found = ss.singular_values(J)
    twin = copy.deepcopy(model.block.branch).double()
    branch = torch.func.vmap(torch.func.jacrev(twin))(x[0].double()).detach()
    exact = torch.linalg.svdvals(torch.eye(D) + x[1].double()[:, :, None] * branch).cpu()
    assert ((found.values - exact).abs() <= found.bound).all()
    assert found.bound.max() < 1e-12 if block is OpaqueBlock else found.bound.max() > 1e-8
    assert ss.verify(J).passed


@pytest.mark.parametrize("exportable", [True, False])
def test_spans_of_deep_chains_do_not_underflow(exportable: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """60 sigmoid layers shrink a tangent by more than float32 can hold. One export serves all of them."""

    class Chain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Sequential(nn.Linear(16, 16), nn.Sigmoid()) for _ in range(60))

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                x = layer(x)
                if not exportable and x.sum() > 1e6:
                    return x
            return x

    torch.manual_seed(0)
    model, x = Chain().eval(), torch.randn(2, 16)
    exports, export = [], torch.export.export
    monkeypatch.setattr(torch.export, "export", lambda *args, **rest: exports.append(1) or export(*args, **rest))
    trunk = ss.trace(model, x, units=[f"layers.{i}" for i in range(60)])
    assert 1 <= len(exports) <= 3
    found = ss.singular_values(trunk.span(0, 59).jacobian(x))
    twin = copy.deepcopy(model).double()
    exact = torch.eye(16, dtype=torch.float64).expand(2, 16, 16)
    h = x.double()
    for layer in twin.layers:
        exact = torch.func.vmap(torch.func.jacrev(layer))(h).detach() @ exact
        h = layer(h).detach()
    largest = torch.linalg.svdvals(exact)[:, 0].cpu()
    assert (largest > 0).all()
    assert (largest < 1e-45).all()
    torch.testing.assert_close(found.values[:, 0], largest, rtol=1e-9, atol=0)
    assert found.zeros_at_least.tolist() == [0, 0]
    assert found.rank.tolist() == [
        10,
        10,
    ]  # as of the exact product: the next value is below 1e-16 of s1


def test_a_module_of_the_same_class_with_other_settings_has_its_own_graph() -> None:
    torch.manual_seed(0)

    class Scaled(nn.Module):
        def __init__(self, factor: float, activation: nn.Module) -> None:
            super().__init__()
            self.factor, self.branch = factor, nn.Sequential(nn.Linear(D, D), activation, nn.Linear(D, D))

        def forward(self, x: Tensor) -> Tensor:
            return x + self.factor * self.branch(x)

    blocks = [Scaled(0.5, nn.ReLU()), Scaled(2.0, nn.ReLU()), Scaled(0.5, nn.Tanh()), Scaled(0.5, nn.ELU(0.3))]
    blocks += [Scaled(0.5, nn.ELU(0.7)), Scaled(0.5, nn.ReLU())]
    model, x = nn.Sequential(*blocks).double().eval(), torch.randn(3, D).double()
    trunk = ss.trace(model, x, units=[str(i) for i in range(len(blocks))])
    point = trunk.at(x)
    for unit, block in zip(trunk.units, blocks, strict=True):
        h = point.entry(unit)
        torch.testing.assert_close(unit.branch(h), block.factor * block.branch(h))


def test_buffers_that_a_pass_writes_are_put_back() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = Residual(mlp())
            self.register_buffer("calls", torch.zeros(()))
            self.register_buffer("mean", torch.zeros(D))

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
            return self.block(x) + 0 * self.calls

    model, x = Counting().eval(), torch.randn(3, D)
    mean = model.mean
    trunk = ss.trace(model, x, units=["block"])
    point = trunk.at(x)
    trunk.replay(x), trunk.at(x).gradients(lambda output: output.sum())
    assert model.calls == 0
    assert model.mean is mean
    assert (mean == 0).all()
    point = trunk.at(x)
    J = trunk[0].jacobian(point)
    trunk.span(0, 0)(point.entry(trunk[0]))
    J.matmat(torch.randn(3, D, 1))  # a pass that was undone is no change of the weights
