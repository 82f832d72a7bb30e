"""The user's model: left as it was, its weights shared, its wrappers taken off, its half precision lifted."""

from __future__ import annotations

import copy
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import skipscope as ss
from tests.trace.nets import D, Residual, mlp


class Model(nn.Module):
    """Batch norm, dropout, mixed modes, frozen weights and a hook: all there is to disturb."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(D, D)
        self.norm = nn.BatchNorm1d(D)
        self.block = Residual(nn.Sequential(nn.Linear(D, D), nn.ReLU(inplace=True), nn.Dropout(0.5), nn.Linear(D, D)))
        self.last = Residual(mlp())

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.stem(x))
        x += self.block(x)
        return self.last(x)


def snapshot(model: nn.Module) -> dict[str, Any]:
    return {
        "modes": {name: module.training for name, module in model.named_modules()},
        "requires": {name: p.requires_grad for name, p in model.named_parameters()},
        "grads": {name: p.grad for name, p in model.named_parameters()},
        "values": {name: value.clone() for name, value in model.state_dict().items()},
        "identities": {name: id(p) for name, p in model.named_parameters()},
        "hooks": {name: (list(m._forward_hooks), list(m._forward_pre_hooks)) for name, m in model.named_modules()},
        "attributes": {name: sorted(vars(m)) for name, m in model.named_modules()},
    }


@pytest.mark.parametrize("units", [None, ["block", "last"]])
def test_nothing_of_the_model_changes(units: list[str] | None) -> None:
    model = Model().train()
    model.last.eval()
    model.stem.weight.requires_grad_(False)
    model.stem.bias.grad = torch.ones(D)
    calls = []
    model.last.register_forward_hook(lambda *_: calls.append(1))
    before, x = snapshot(model), torch.randn(4, D)
    state, copied = torch.get_rng_state(), x.clone()
    flags = torch.backends.cuda.flash_sdp_enabled(), torch.backends.mha.get_fastpath_enabled(), torch.is_grad_enabled()
    trunk = ss.trace(model, x, units=units)
    point = trunk.at(x)
    trunk[0](point.entry(trunk[0]))
    after = snapshot(model)
    values, kept = before.pop("values"), after.pop("values")
    assert before == after
    assert all(torch.equal(values[name], kept[name]) for name in values)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(x, copied)
    assert flags == (
        torch.backends.cuda.flash_sdp_enabled(),
        torch.backends.mha.get_fastpath_enabled(),
        torch.is_grad_enabled(),
    )


@pytest.mark.parametrize("recordable", [True, False])
def test_nothing_changes_when_the_export_fails(recordable: bool) -> None:
    class Branching(Model):
        def forward(self, x: Tensor) -> Tensor:
            scale = 1.0 if recordable else x.square().mean().item()  # that a number depends on x is not recorded
            return super().forward(x) * scale if x.sum() < 1e6 else x

    model, x = Branching().train(), torch.randn(4, D)
    before, copied, state = snapshot(model), x.clone(), torch.get_rng_state()
    with nullcontext() if recordable else pytest.raises(ss.TraceError, match="cannot be exported"):
        ss.trace(model, x)
    after = snapshot(model)
    values, kept = before.pop("values"), after.pop("values")
    assert before == after
    assert all(torch.equal(values[name], kept[name]) for name in values)
    assert torch.equal(x, copied)
    assert torch.equal(torch.get_rng_state(), state)


def test_measures_in_evaluation_mode() -> None:
    model = Model().train()
    x = torch.randn(4, D)
    replayed = ss.trace(model, x).replay(x)
    torch.testing.assert_close(replayed, model.eval()(x))


def test_changed_and_replaced_weights_are_seen() -> None:
    model = Model().eval()
    x = torch.randn(4, D)
    trunk = ss.trace(model, x)
    with torch.no_grad():
        model.last.branch[0].weight.mul_(3)
    torch.testing.assert_close(trunk.replay(x), model(x))
    model.last.branch[2].weight = nn.Parameter(torch.randn(D, 12))
    torch.testing.assert_close(trunk.replay(x), model(x))
    model.load_state_dict(copy.deepcopy(Model().state_dict()), assign=True)
    torch.testing.assert_close(trunk.replay(x), model(x))
    del model.last.branch[2].weight
    with pytest.raises(ss.InputError, match=r"no longer has 'last\.branch\.2\.weight'"):
        trunk.replay(x)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_measured_in_float32(dtype: torch.dtype) -> None:
    model = Model().eval().to(dtype)
    x = torch.randn(4, D).to(dtype)
    trunk = ss.trace(model, x)
    assert next(model.parameters()).dtype == dtype
    assert trunk.at(x).states[0].dtype == torch.float32
    assert "measured in float32, to which they are converted as they are read" in str(trunk)
    assert trunk.model is model
    torch.testing.assert_close(trunk.replay(x), copy.deepcopy(model).float()(x.float()))


def test_wrappers_are_taken_off() -> None:
    model = Model().eval()
    x = torch.randn(4, D)
    names = [unit.name for unit in ss.trace(model, x).units]
    for wrapped in (torch.compile(model), nn.DataParallel(model), nn.DataParallel(torch.compile(model))):
        trunk = ss.trace(wrapped, x)
        assert trunk.model is model
        assert [unit.name for unit in trunk.units] == names
    model.last = torch.compile(model.last)
    assert len(ss.trace(model, x).units) == len(names)


def test_distributed_wrappers_are_taken_off(tmp_path: Path) -> None:
    torch.distributed.init_process_group(
        "gloo", store=torch.distributed.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1
    )
    try:
        model = Model().eval()
        trunk = ss.trace(nn.parallel.DistributedDataParallel(model), torch.randn(4, D))
    finally:
        torch.distributed.destroy_process_group()
    assert trunk.model is model
    assert [unit.name for unit in trunk.units] == ["block", "block#2", "last"]


def test_a_batch_of_one_and_a_batch_axis() -> None:
    model = Model().eval()
    x = torch.randn(1, D)
    torch.testing.assert_close(ss.trace(model, x).replay(x), model(x))
    layer = nn.TransformerEncoderLayer(D, 2, 16).eval()  # sequence first
    tokens = torch.randn(5, 3, D)
    trunk = ss.trace(layer, tokens, batch_axis=1)
    assert [unit.batch_axis for unit in trunk.units] == [1, 1]
    assert trunk[0].entry_shape == (5, D)
    torch.testing.assert_close(trunk.replay(torch.cat([tokens, tokens], 1))[:, :3], layer(tokens))


def test_a_model_on_the_meta_device_has_units_but_no_numbers() -> None:
    with torch.device("meta"):
        model = Model()
    trunk = ss.trace(model, torch.empty(2, D, device="meta"))
    assert [unit.name for unit in trunk.units] == ["block", "block#2", "last"]
    assert trunk.replay_error is None


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.randn(4, D + 1), r"does not run on inputs of shapes \[\(4, 9\)\]"),
        ({"y": torch.randn(4, D)}, r"forward takes \(x: .*a dict of y went in as one argument"),
        ((torch.randn(4, D), torch.randn(4, D)), r"forward takes \(x: .*2 values went in as one argument"),
        ({"x": torch.randn(4, D), "y": 1}, "a dict of x, y went in as one argument"),
        (3, "expected a tensor, a tuple or a dict"),
        (torch.tensor(1.0), "at least one tensor of 1 or more dimensions"),
        (torch.randn(4, D, device="meta"), "the batch is on meta"),
    ],
)
def test_bad_batches_are_refused_with_what_was_expected(x: Any, message: str) -> None:
    with pytest.raises(ss.InputError, match=message):
        ss.trace(Model(), x)


def test_a_function_is_no_model() -> None:
    with pytest.raises(ss.InputError, match=r"expected a torch\.nn\.Module as the model, got function"):
        ss.trace(lambda x: x, torch.randn(2, D))  # type: ignore[arg-type]
