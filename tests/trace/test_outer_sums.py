"""Named modules whose output is added to their input by the code around them: real units, or refused."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import skipscope as ss
from tests.slow import thinned
from tests.trace.nets import D, Residual, mlp

L = 3
Step = Callable[["Net", int, Tensor], Tensor]


class Net(nn.Module):
    """A loop that cannot be exported, around layers that have no sum of their own."""

    def __init__(self, step: Step) -> None:
        super().__init__()
        self.step = step
        self.stem = nn.Linear(D, D)
        self.l = nn.ModuleList(mlp() for _ in range(L))
        self.norm = nn.ModuleList(nn.LayerNorm(D) for _ in range(L))
        self.gamma = nn.Parameter(torch.rand(L, D))
        self.head = nn.Linear(D, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for i in range(L):
            x = self.step(self, i, x)
            if x.sum() > 1e6:
                return x
        return self.head(x)


def _in_place(net: Net, i: int, x: Tensor) -> Tensor:
    x += net.l[i](x)
    return x


def _kept(net: Net, i: int, x: Tensor) -> Tensor:
    kept = x.clone()
    x = net.l[i](x.contiguous())
    return kept + nn.functional.dropout(x, 0.5, training=False)


# What the code does, the branch of layer i at h, the tail, and whether the sum is h less the branch.
FORMS: dict[str, tuple[Step, Callable[[Net, int, Tensor], Tensor], str, float]] = {
    "plain": (lambda n, i, x: x + n.l[i](x), lambda n, i, h: n.l[i](h), "", 1),
    "other order": (lambda n, i, x: n.l[i](x) + x, lambda n, i, h: n.l[i](h), "", 1),
    "in place": (_in_place, lambda n, i, h: n.l[i](h), "", 1),
    "kept": (_kept, lambda n, i, h: n.l[i](h), "", 1),
    "difference": (lambda n, i, x: x - n.l[i](x), lambda n, i, h: -n.l[i](h), "", 1),
    "alpha": (lambda n, i, x: torch.add(x, n.l[i](x), alpha=0.5), lambda n, i, h: 0.5 * n.l[i](h), "", 1),
    "scaled": (lambda n, i, x: x + 0.1 * n.l[i](x), lambda n, i, h: 0.1 * n.l[i](h), "", 1),
    "weighted": (lambda n, i, x: x + n.gamma[i] * n.l[i](x), lambda n, i, h: n.gamma[i] * n.l[i](h), "", 1),
    "fused": (
        lambda n, i, x: torch.addcmul(x, n.gamma[i], n.l[i](x)),
        lambda n, i, h: n.gamma[i] * n.l[i](h),
        "",
        1,
    ),
    "pre-norm": (lambda n, i, x: x + n.l[i](n.norm[i](x)), lambda n, i, h: n.l[i](n.norm[i](h)), "", 1),
    "relu": (lambda n, i, x: torch.relu(x + n.l[i](x)), lambda n, i, h: n.l[i](h), "relu", 1),
    "relu in place": (
        lambda n, i, x: nn.functional.relu(x + n.l[i](x), inplace=True),
        lambda n, i, h: n.l[i](h),
        "relu",
        1,
    ),
    "sum": (lambda n, i, x: sum([x, n.l[i](x)]), lambda n, i, h: n.l[i](h), "", 1),  # type: ignore[return-value]
    "negative skip": (lambda n, i, x: n.l[i](x) - x, lambda n, i, h: n.l[i](h), "", -1),
}


FEW = ("in place", "kept", "difference", "fused", "pre-norm", "relu in place", "sum", "negative skip")


@pytest.mark.parametrize("form", thinned(FORMS, fast=FEW))
def test_the_sum_is_found_and_the_unit_is_a_real_one(form: str) -> None:
    torch.manual_seed(0)
    step, branch, tail, sign = FORMS[form]
    model, x = Net(step).double().eval(), torch.randn(4, D).double()
    trunk = ss.trace(model, x, units=[f"l.{i}" for i in range(L)])
    assert [unit.name for unit in trunk.units] == [f"l.{i}" for i in range(L)]
    assert trunk.replay_error == 0
    batch = torch.randn(5, D).double()
    with torch.no_grad():
        torch.testing.assert_close(trunk.replay(batch), model(batch))
    point = trunk.at(batch)
    with torch.no_grad():
        torch.testing.assert_close(point.output, model(batch))
    h = model.stem(batch).detach()
    end = torch.relu if tail else (lambda value: value)
    states, jacobians = [], []
    for i, unit in enumerate(trunk.units):
        assert unit.tail.operations == ([tail] if tail else [])
        assert not unit.without_skip
        with torch.no_grad():
            torch.testing.assert_close(point.entry(unit), h)
            torch.testing.assert_close(unit.branch(h), branch(model, i, h))
            torch.testing.assert_close(unit.skip(h), sign * h)
            torch.testing.assert_close(point.sum(unit), sign * h + branch(model, i, h))
            torch.testing.assert_close(unit(h), step(model, i, h.clone()))
            torch.testing.assert_close(unit(2 * h), step(model, i, 2 * h))
            torch.testing.assert_close(unit.tail(point.sum(unit)), point.exit(unit))
        inner = torch.func.vmap(torch.func.jacrev(lambda v, i=i: branch(model, i, v)))(h).detach()
        mask = (point.sum(unit) > 0).double()[:, :, None] if tail else 1.0
        whole = mask * (sign * torch.eye(D).double() + inner)
        torch.testing.assert_close(unit.jacobian(point, of="branch").dense(), inner)
        torch.testing.assert_close(unit.jacobian(point, of="branch", tail=True).dense(), mask * inner)
        torch.testing.assert_close(unit.jacobian(point).dense(), whole)
        torch.testing.assert_close(unit.jacobian(point).rmatmat(torch.eye(D).double().expand(5, D, D)), whole.mT)
        states.append(h)
        jacobians.append(whole)
        h = end(sign * h + branch(model, i, h)).detach()
    assert ss.verify(trunk[1].jacobian(point)).passed
    product = jacobians[2] @ jacobians[1] @ jacobians[0]
    torch.testing.assert_close(trunk.span(0, 2).jacobian(point).dense(), product)
    with torch.no_grad():
        torch.testing.assert_close(trunk.span(0, 2)(states[0]), h)
    head = model.head.weight.detach().sum(0)
    gradients = point.gradients(lambda output: output.sum())
    torch.testing.assert_close(gradients[3], head.expand(5, D))
    torch.testing.assert_close(gradients[0], (product.mT @ head[:, None])[..., 0])
    data = ss.profile(trunk, batch)
    assert data["unit"].values.tolist() == [f"l.{i}" for i in range(L)]


def test_sizes_are_those_of_the_units_that_export_finds() -> None:
    """The same network with a graph: one set of numbers, whichever way the units were found."""

    class Exportable(Net):
        def forward(self, x: Tensor) -> Tensor:
            x = self.stem(x)
            for i in range(L):
                x = self.step(self, i, x)
            return self.head(x)

    torch.manual_seed(0)
    model, x = Exportable(FORMS["relu"][0]).eval(), torch.randn(4, D)
    found, named = (ss.profile(ss.trace(model, x, units=units), x) for units in (None, [f"l.{i}" for i in range(L)]))
    for name in found.data_vars:
        if found[name].dtype.kind == "f" and name in named:
            assert named[name].values == pytest.approx(found[name].values, rel=1e-4, nan_ok=True), name


def test_attention_that_returns_more_than_its_output() -> None:
    class Attentive(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.attention = nn.LayerNorm(D), nn.MultiheadAttention(D, 2, batch_first=True)

        def forward(self, x: Tensor, bias: Tensor) -> Tensor:
            h = self.norm(x)
            x = x + self.attention(h, h, h, attn_mask=bias)[0]
            return x if x.sum() < 1e6 else x.tanh()

    torch.manual_seed(0)
    model, x, bias = Attentive().double().eval(), torch.randn(3, 5, D).double(), torch.randn(5, 5).double()
    trunk = ss.trace(model, (x, bias), units=["attention"])
    exact = torch.stack(
        [torch.func.jacrev(lambda v: model(v[None], bias)[0])(one).reshape(5 * D, 5 * D) for one in x]
    ).detach()
    torch.testing.assert_close(trunk[0].jacobian((x, bias)).dense(), exact)
    assert trunk[0].context == ["input 2"]


def test_weights_that_two_modules_share_in_float64() -> None:
    model, x = Net(FORMS["plain"][0]).eval(), torch.randn(4, D)
    model.l[1][0].weight = model.l[0][0].weight
    trunk = ss.trace(model, x, units=["l.0", "l.1", "l.2"])
    assert trunk[1].in_any_type
    assert trunk[1].jacobian(x).double().dense().dtype == torch.float64


def test_weights_of_the_branch_and_the_note() -> None:
    model, x = Net(FORMS["pre-norm"][0]).eval(), torch.randn(4, D)
    trunk = ss.trace(model, x, units=["l.0", "l.1", "l.2"])
    assert trunk[0].parameter_names == [
        *(f"l.0.{name}" for name, _ in model.l[0].named_parameters()),
        "norm.0.weight",
        "norm.0.bias",
    ]
    assert any("added to a state by the code around it" in note for note in trunk.notes)
    assert trunk[0].context == []


def test_in_float64_on_a_float32_model() -> None:
    torch.manual_seed(0)
    model, x = Net(FORMS["weighted"][0]).eval(), torch.randn(4, D)
    trunk = ss.trace(model, x, units=["l.0", "l.1", "l.2"])
    twin = copy.deepcopy(model).double()
    entry = trunk.at(x).entry(trunk[1]).double()
    J = torch.func.vmap(torch.func.jacrev(lambda h: h + twin.gamma[1] * twin.l[1](h)))(entry).detach()
    assert trunk[1].in_any_type
    torch.testing.assert_close(trunk[1].jacobian(x).double().dense(), J, rtol=1e-13, atol=1e-13)
    found = ss.singular_values(trunk[1].jacobian(x))
    assert ((found.values - torch.linalg.svdvals(J).cpu()).abs() <= found.bound + 1e-14).all()
    assert found.bound.max() < 1e-12


def test_a_context_of_the_code_around() -> None:
    def step(net: Net, i: int, x: Tensor) -> Tensor:
        return x + net.l[i](x) * net.first

    class WithContext(Net):
        def forward(self, x: Tensor) -> Tensor:
            object.__setattr__(self, "first", x.sigmoid())
            return super().forward(x)

    torch.manual_seed(0)
    model, x = WithContext(step).double().eval(), torch.randn(4, D).double()
    trunk = ss.trace(model, x, units=["l.0", "l.1", "l.2"])
    assert trunk[0].context == ["sigmoid"]
    h = trunk.at(x).entry(trunk[1])
    with torch.no_grad():
        torch.testing.assert_close(trunk[1].branch(2 * h), model.l[1](2 * h) * x.sigmoid())


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (lambda n, i, x: x * n.l[i](x), "joins its output with a value from before it by mul, which is no sum"),
        (lambda n, i, x: torch.cat([x[:, :4], n.l[i](x)[:, :4]], 1), "by cat, which is no sum"),
        (lambda n, i, x: torch.stack([x, n.l[i](x)]).sum(0), "by stack, which is no sum"),
        (lambda n, i, x: n.norm[i](x) + n.l[i](x), "neither its input nor what its input was made of"),
        (lambda n, i, x: x.tanh() + n.l[i](x), "neither its input nor what its input was made of"),
    ],
)
def test_what_is_no_sum_with_the_state_is_refused(step: Step, message: str) -> None:
    with pytest.raises(ss.TraceError, match=message):
        ss.trace(Net(step).eval(), torch.randn(4, D), units=["l.0", "l.1", "l.2"])


def test_a_coupling_is_refused() -> None:
    def step(net: Net, i: int, x: Tensor) -> Tensor:
        a, b = x.chunk(2, 1)
        return torch.cat([a + net.l[i](torch.cat([b, b], 1))[:, :4], b], 1)

    with pytest.raises(ss.TraceError, match="neither its input nor what its input was made of"):
        ss.trace(Net(step).eval(), torch.randn(4, D), units=["l.0"])


def test_a_plain_chain_stays_one_also_with_a_skip_around_all_of_it() -> None:
    class Chain(Net):
        def forward(self, x: Tensor) -> Tensor:
            return x + super().forward(x)[:, :1]

    torch.manual_seed(0)
    for model in (Net(lambda n, i, x: n.l[i](x)), Chain(lambda n, i, x: n.l[i](x))):
        x = torch.randn(4, D)
        trunk = ss.trace(model.eval(), x, units=["l.0", "l.1", "l.2"])
        assert all(unit.without_skip for unit in trunk.units)
        with torch.no_grad():
            torch.testing.assert_close(trunk[1](trunk.at(x).entry(trunk[1])), model.l[1](trunk.at(x).entry(trunk[1])))


def test_a_module_with_a_sum_of_its_own_is_a_unit_by_itself() -> None:
    model = Net(lambda n, i, x: x + n.l[i](x))
    model.l[1] = Residual(mlp())
    trunk = ss.trace(model.eval(), torch.randn(4, D), units=["l.0", "l.1", "l.2"])
    assert trunk.replay_error == 0
    assert trunk[1].branch.operations != ["Residual"]


def test_two_modules_in_one_branch() -> None:
    model = Net(lambda n, i, x: x + n.l[1](n.norm[i](n.l[0](x))) if i == 0 else x)
    trunk = ss.trace(model.eval(), torch.randn(4, D), units=["l.0", "l.1"])
    assert [unit.without_skip for unit in trunk.units] == [True, True]  # the skip is around both, not around one
    trunk = ss.trace(model.eval(), torch.randn(4, D), units=["l.1"])
    assert not trunk[0].without_skip
    assert trunk[0].parameters > sum(weight.numel() for weight in model.l[1].parameters())


def test_a_state_that_cannot_be_replaced_is_refused() -> None:
    def step(net: Net, i: int, x: Tensor) -> Tensor:
        x.add_(net.l[i](x))  # the sum is under the old name
        return x

    with pytest.raises(ss.TraceError, match="written in place"):
        ss.trace(Net(step).eval(), torch.randn(4, D), units=["l.0", "l.1"])


def test_another_way_at_another_batch_is_refused() -> None:
    def step(net: Net, i: int, x: Tensor) -> Tensor:
        return x + net.l[i](x) if x.mean() > -10 else x * net.l[i](x)

    model, x = Net(step).eval(), torch.randn(4, D)
    trunk = ss.trace(model, x, units=["l.0", "l.1", "l.2"])
    with torch.no_grad():
        model.stem.bias.fill_(-20)
    with pytest.raises(ss.InputError, match="does something else with its output than at the trace"):
        trunk.at(x)
    with torch.no_grad():
        model.stem.bias.fill_(1e6)  # the forward ends before the last layers
    with pytest.raises(ss.InputError, match=r"at this batch the model did not call l\.1, l\.2"):
        trunk.at(x)
