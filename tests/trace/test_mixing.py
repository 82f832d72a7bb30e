"""What the skip multiplies by, what a unit gives beside its sum, pairs of streams, and a folded batch."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import skipscope as ss
from tests.trace.beyond_sums import BEYOND
from tests.trace.nets import CASES, D, Residual, mlp


def traced(name: str) -> tuple[nn.Module, ss.Trunk, Tensor]:
    torch.manual_seed(0)
    case = (CASES | BEYOND)[name]
    model, x = case.make().double().eval(), case.x(3).double()
    return model, ss.trace(model, x), x


@pytest.mark.parametrize(
    "name", ["highway", "highway as a difference", "gated recurrent", "interpolated", "mean of a stack", "momentum"]
)
def test_the_skip_is_the_entry_times_the_mix(name: str) -> None:
    _, trunk, x = traced(name)
    point = trunk.at(x)
    for unit in trunk.units:
        h = point.entry(unit)
        torch.testing.assert_close(unit.mix(point) * h, unit.skip(h), rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("name", ["hyper-connections", "static hyper-connections"])
def test_streams_are_mixed_by_a_matrix(name: str) -> None:
    _, trunk, x = traced(name)
    point = trunk.at(x)
    for unit in trunk.units:
        h = point.entry(unit)
        torch.testing.assert_close(unit.mix(x) @ h, unit.skip(h), rtol=1e-12, atol=1e-12)


def test_a_skip_that_does_more_has_no_mix() -> None:
    _, trunk, x = traced("pooled skip")
    with pytest.raises(ss.TraceError, match="does more than multiply its entry"):
        trunk[0].mix(x)


def test_side_outputs_are_listed() -> None:
    names = {
        "attention maps returned": "softmax in blocks.0",
        "router logits returned": "blocks.0.router",
        "auxiliary head": "relu",
        "value residual": "blocks.0.value",
    }
    for name, expected in names.items():
        _, trunk, _ = traced(name)
        assert trunk[0].side_outputs == [expected]
        assert trunk.to_dict()["units"][0]["side_outputs"] == [expected]
        assert "also gives" in str(trunk)
    assert "also gives" not in str(traced("flat loop")[1])


def test_the_jacobian_of_a_pair_of_streams() -> None:
    model, trunk, x = traced("coupling")
    a, b = x.chunk(2, -1)
    whole = trunk.span(0, 1).jacobian(x).dense()
    expected = [torch.func.jacrev(model)(sample) for sample in x]
    torch.testing.assert_close(whole, torch.stack(expected), rtol=1e-10, atol=1e-12)
    first = trunk[0].jacobian(x).dense()
    assert isinstance(model.f, nn.Module)
    for sample in range(3):
        inner = torch.func.jacrev(model.f)(b[sample])
        block = torch.eye(D).double()
        block[: D // 2, D // 2 :] = inner
        torch.testing.assert_close(first[sample], block, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(trunk.at(x).entry(trunk[0]), torch.cat([a, b], -1))


class Patches(nn.Module):
    """Channels are folded into the batch, batch first or channels first."""

    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.batch_first = batch_first
        self.first, self.second = mlp(), mlp()

    def forward(self, x: Tensor) -> Tensor:
        h = x if self.batch_first else x.transpose(0, 1)
        shape = h.shape
        h = h.reshape(-1, D)
        h = h + self.first(h)
        h = h + self.second(h)
        h = h.reshape(shape)
        return h if self.batch_first else h.transpose(0, 1)


@pytest.mark.parametrize("batch_first", [True, False])
def test_a_folded_batch_gives_jacobians_of_blocks(batch_first: bool) -> None:
    torch.manual_seed(0)
    model = Patches(batch_first).double()
    x = torch.randn(3, 4, D).double()
    trunk = ss.trace(model, x)
    assert [unit.kind for unit in trunk.units] == ["identity"] * 2
    jacobian = trunk[0].jacobian(x).dense()
    assert jacobian.shape == (3, 4 * D, 4 * D)
    for sample in range(3):
        blocks = [torch.eye(D).double() + torch.func.jacrev(model.first)(patch) for patch in x[sample]]
        torch.testing.assert_close(jacobian[sample], torch.block_diag(*blocks), rtol=1e-10, atol=1e-12)


def test_other_layouts_of_a_state_are_one_stage() -> None:
    class Layouts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.mlp, self.last = nn.Conv2d(D, D, 3, padding=1), mlp(), nn.Conv2d(D, D, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            x = x + torch.relu(self.conv(x))
            tokens = x.flatten(2).transpose(1, 2)
            tokens = tokens + self.mlp(tokens)
            x = tokens.transpose(1, 2).reshape(x.shape)
            return x + torch.relu(self.last(x))

    trunk = ss.trace(Layouts(), torch.randn(2, D, 3, 3))
    assert [len(stage.units) for stage in trunk.stages] == [3]


def test_a_context_of_several_tensors_is_read_in_float64() -> None:
    class Split(nn.Module):
        """The unit's query comes from the same split as the keys and values that it reads."""

        def __init__(self) -> None:
            super().__init__()
            self.all, self.out, self.pool = nn.Linear(D, 3 * D), nn.Linear(D, D), nn.Linear(D, D)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.all(x).unflatten(-1, (3, D)).unbind(2)
            q, k, v = torch.relu(q), self.pool(k), self.pool(v)
            q = q + torch.softmax(q @ k.transpose(1, 2), -1) @ v
            return self.out(q)

    torch.manual_seed(0)
    x = torch.randn(2, 5, D)
    trunk = ss.trace(nn.Sequential(Residual(Split())), x)
    assert [unit.parent is None for unit in trunk.units] == [False, True]
    assert all(ss.verify(unit.jacobian(x)).passed for unit in trunk.units)
