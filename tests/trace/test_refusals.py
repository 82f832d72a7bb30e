"""Batches and models that give no numbers: an error that says why, or a note, never a number."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

import skipscope as ss
from tests.trace.nets import D, Residual, mlp

BOTH = pytest.mark.parametrize("units", [None, ["0", "1"]])


def small() -> tuple[nn.Sequential, Tensor]:
    torch.manual_seed(0)
    return nn.Sequential(Residual(mlp()), Residual(mlp()), nn.Linear(D, 3)).eval(), torch.randn(4, D)


@BOTH
def test_an_empty_batch(units: list[str] | None) -> None:
    model, x = small()
    with pytest.raises(ss.InputError, match="expected a batch of at least one sample, got an empty one"):
        ss.trace(model, x[:0], units=units)
    with pytest.raises(ss.InputError, match="at least one sample"):
        ss.trace(model, x, units=units).at(x[:0])


@BOTH
@pytest.mark.parametrize(("weights", "batch"), [(torch.float32, torch.float64), (torch.float64, torch.float32)])
def test_a_batch_in_another_precision_than_the_weights(
    units: list[str] | None, weights: torch.dtype, batch: torch.dtype
) -> None:
    model, x = small()
    model, names = model.to(weights), [str(dtype).removeprefix("torch.") for dtype in (batch, weights)]
    with pytest.raises(ss.InputError, match=f"the batch is {names[0]}, the weights are {names[1]}: convert one"):
        ss.trace(model, x.to(batch), units=units)
    trunk = ss.trace(model, x.to(weights), units=units)
    for use in (trunk.at, trunk.replay, trunk[0].jacobian, lambda x: ss.profile(trunk, x)):
        with pytest.raises(ss.InputError, match=f"traced with torch.{names[1]}, got torch.{names[0]}"):
            use(x.to(batch))


class Noisy(nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.block = how, Residual(mlp())

    def forward(self, x: Tensor) -> Tensor:
        if self.how == "dropout":
            x = nn.functional.dropout(x, 0.5, training=True)
        if self.how == "rand":
            x = x + 1e-3 * torch.rand(D)
        x = self.block(x)
        return x + 0.1 * torch.randn_like(x) if self.how == "randn_like" else x


@pytest.mark.parametrize("units", [None, ["block"]])
@pytest.mark.parametrize("how", ["dropout", "rand", "randn_like"])
def test_a_forward_that_draws_random_numbers(how: str, units: list[str] | None) -> None:
    with pytest.raises(ss.InputError, match="two runs of Noisy on one batch differ"):
        ss.trace(Noisy(how), torch.randn(4, D), units=units)
    ss.trace(Noisy("not at all"), torch.randn(4, D), units=units)


class Wavering(nn.Module):
    """Adds in no fixed order, as some kernels do: each run is off by one of the given relative errors."""

    def __init__(self, errors: list[float]) -> None:
        super().__init__()
        self.block, self.errors = Residual(mlp()), iter(errors)

    def forward(self, x: Tensor) -> Tensor:
        return self.block(x) * (1 + next(self.errors, 0.0))


@pytest.mark.parametrize("rounding", [2.4e-7, -5e-6])
def test_one_rounding_is_not_a_random_number(rounding: float) -> None:
    """The third run may equal the first to the last bit, by chance."""
    x = torch.randn(4, D)
    ss.trace(Wavering([0.0, rounding, 0.0]), x, units=["block"])
    with pytest.raises(ss.InputError, match="draws random numbers"):
        ss.trace(Wavering([0.0, 100 * rounding, 0.0]), x, units=["block"])


@BOTH
def test_a_model_on_the_meta_device_cannot_be_measured(units: list[str] | None) -> None:
    model, x = small()
    model, x = model.to("meta"), x.to("meta")
    trunk = ss.trace(model, x, units=units)
    assert len(trunk) == 2
    for use in (trunk.at, trunk.replay, trunk[0].jacobian, lambda x: ss.profile(trunk, x)):
        with pytest.raises(ss.InputError, match="meta device, which holds shapes and no values"):
            use(x)


@BOTH
def test_weights_that_are_not_a_number_are_named(units: list[str] | None) -> None:
    model, x = small()
    with torch.no_grad():
        model[1].branch[0].weight[0, 0] = float("nan")
    trunk = ss.trace(model, x, units=units)
    assert trunk.replay_error is None
    assert trunk.to_dict()["replay_error"] is None
    assert "replaying them gives" not in str(trunk)
    assert trunk.notes[0] == (
        "the output has NaN or infinite entries, which first arise in the weight 1.branch.0.weight"
    )


def test_what_is_finite_of_an_output_is_compared() -> None:
    class Logarithm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = Residual(mlp())

        def forward(self, x: Tensor) -> Tensor:
            return self.block(x).log()

    torch.manual_seed(0)
    for units in (None, ["block"]):
        trunk = ss.trace(Logarithm(), torch.randn(4, D), units=units)
        assert trunk.replay_error == 0.0
        assert "which first arise in" in trunk.notes[0]


@BOTH
def test_an_expanded_batch_is_a_batch(units: list[str] | None) -> None:
    model, x = small()
    wide = x[:1].expand(4, D)
    trunk = ss.trace(model, wide, units=units)
    found = ss.singular_values(trunk[0].jacobian(wide)).values
    torch.testing.assert_close(found, ss.singular_values(trunk[0].jacobian(x[:1].repeat(4, 1))).values)
    torch.testing.assert_close(trunk.replay(wide), model(wide))
    assert trunk.span(0, 1).jacobian(wide).dense().shape == (4, D, D)


@BOTH
def test_a_copy_of_a_trunk_is_one_of_a_copy_of_the_model(units: list[str] | None) -> None:
    model, x = small()
    trunk = ss.trace(model, x, units=units)
    before = trunk.replay(x)
    twin = copy.deepcopy(trunk)
    assert twin.model is not model
    assert str(twin) == str(trunk)
    with torch.no_grad():
        model[0].branch[0].weight.mul_(2)
    torch.testing.assert_close(twin.replay(x), before)
    torch.testing.assert_close(twin.at(x).output, before)
    assert twin[0].trunk is twin
    for unit in twin.units:
        h = twin.at(x).entry(unit)
        torch.testing.assert_close(unit.tail(unit.skip(h) + unit.branch(h)), unit(h))
    torch.testing.assert_close(trunk.replay(x), model(x))
    assert not torch.allclose(trunk.replay(x), before)
    assert ss.singular_values(twin[1].jacobian(x)).values.shape == (4, D)


def test_named_units_inside_inference_mode() -> None:
    class Loop(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.l = nn.ModuleList(mlp() for _ in range(2))

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.l:
                x = x + layer(x)
            return x

    torch.manual_seed(0)
    model, x = Loop().eval(), torch.randn(3, D)
    expected = ss.trace(model, x, units=["l.0", "l.1"]).at(x).states
    with torch.inference_mode():
        found = ss.trace(model, x + 0, units=["l.0", "l.1"]).at(x + 0).states
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a.clone(), b)


# -- batches that are none


class SequenceFirst(nn.Module):
    """Takes (steps, batch, features), as torch's own layers do unless they are told otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(D, 2, 16)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


class Graph(nn.Module):
    """Sends messages along the edges of one graph."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(D, D) for _ in range(2))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + torch.zeros_like(x).index_add(0, edge_index[1], layer(x)[edge_index[0]]).relu()
        return x


@pytest.mark.parametrize("units", [None, ["layer"]])
def test_sequences_with_the_steps_first(units: list[str] | None) -> None:
    torch.manual_seed(0)
    model, x = SequenceFirst(), torch.randn(5, 3, D)
    trunk = ss.trace(model, x, units=units)
    assert "axis 0 of the first input, of shape (5, 3, 8), seems not to be the batch" in trunk.notes[0]
    assert "batch_axis=" in trunk.notes[0]
    with pytest.raises(ss.InputError, match=r"axis 0 of the state is not the batch.*batch_axis=1"):
        trunk[0].jacobian(x)
    trunk = ss.trace(model, x, units=units, batch_axis=1)
    assert not any("seems not to be the batch" in note for note in trunk.notes)
    assert trunk[0].jacobian(x).shape == (3, 5 * D, 5 * D)


def test_the_nodes_of_a_graph_are_no_batch() -> None:
    torch.manual_seed(0)
    x, edges = torch.randn(6, D), torch.randint(0, 6, (2, 12))
    trunk = ss.trace(Graph(), (x, edges))
    assert "The nodes of one graph are no batch" in trunk.notes[0]
    with pytest.raises(ss.InputError, match="axis 0 of the state is not the batch"):
        trunk[0].jacobian((x, edges))
    trunk = ss.trace(Graph(), {"edge_index": edges, "x": x})
    assert not trunk.units
    assert "axis 0 of the first input, of shape (2, 12), seems not to be the batch" in trunk.notes[0]


def test_statistics_of_the_batch_are_not_taken_for_another_axis() -> None:
    norm = nn.BatchNorm1d(D, track_running_stats=False)
    trunk = ss.trace(nn.Sequential(Residual(nn.Sequential(norm, nn.Linear(D, D)))), torch.randn(4, D))
    assert not any("seems not to be the batch" in note for note in trunk.notes)


def test_one_vector_is_no_batch() -> None:
    model, x = small()
    with pytest.raises(ss.InputError, match=r"of shape \(8,\), seems to be one sample and no batch.*x\[None\]"):
        ss.trace(model, x[0])
    with pytest.raises(ss.TraceError, match=r"of shape \(8,\), seems to be one sample and no batch.*x\[None\]"):
        ss.trace(model, x[0], units=["0", "1"])
    assert len(ss.trace(model, x[0][None])) == 2


@pytest.mark.parametrize("axis", [-1, "0", None])
def test_an_axis_that_is_none(axis: object) -> None:
    model, x = small()
    with pytest.raises(ss.InputError, match="expected the number of an axis, counted from 0"):
        ss.trace(model, x, batch_axis=axis)  # type: ignore[arg-type]


# -- models and names that are none


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("how", ["script", "trace"])
def test_torchscript_modules(how: str) -> None:
    model, x = small()
    model = model[:2]
    scripted = torch.jit.script(model) if how == "script" else torch.jit.trace(model, x)
    with pytest.raises(ss.InputError, match=r"got a TorchScript module .* pass the original nn.Module"):
        ss.trace(scripted, x)
    with pytest.raises(ss.InputError, match=r"0 is a TorchScript module.* in its place"):
        ss.trace(nn.Sequential(scripted, Residual(mlp())), torch.randn(4, D))


def test_detection_models() -> None:
    detection = pytest.importorskip("torchvision").models.detection
    model = detection.ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=2)
    for batch in (torch.rand(2, 3, 64, 64), [torch.rand(3, 64, 64)], ([torch.rand(3, 64, 64)],)):
        with pytest.raises(ss.InputError, match=r"SSD takes a list of images.*ss.trace\(model.backbone, torch.rand"):
            ss.trace(model, batch)


@pytest.mark.parametrize(
    ("units", "message"),
    [
        ("blocks.0", r"units='blocks.0': expected a list .* got a string; pass units=\['blocks.0'\]"),
        ([0, 1], r"units=\[0, 1\]: expected a list of paths of modules"),
        (3, "units=3: expected a list of paths of modules"),
    ],
)
def test_names_that_are_no_list_of_paths(units: object, message: str) -> None:
    model, x = small()
    with pytest.raises(ss.InputError, match=message):
        ss.trace(model, x, units=units)  # type: ignore[arg-type]


def test_a_forward_that_takes_keywords_only() -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = Residual(mlp())

        def forward(self, *, x: Tensor, scale: float = 1.0) -> Tensor:
            return self.block(x) * scale

    x = torch.randn(4, D)
    for batch in (x, (x,)):
        with pytest.raises(ss.InputError, match=r"takes keyword inputs only \(x, scale\).*pass a dict such as \{'x'"):
            ss.trace(Named(), batch)
    assert len(ss.trace(Named(), {"x": x})) == 1
