"""Units with another factor on their skip against hand-written functions and the law; the model stays as it was."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import Tensor, nn

import skipscope as ss
from skipscope.linear.law import Law, law_of, law_or_reason
from skipscope.measure.law import counts_around
from skipscope.measure.spectra import spectra_of
from skipscope.trace.surgery import noisy_weights, with_scaled_skip, with_weights
from tests.measure.nets import Net, Unit, dense, padded
from tests.trace.nets import CASES, D, LeafBlock, Residual, mlp
from tests.trace.surgery_nets import by_hand, net, sparse
from tests.trace.test_cases import inputs, traced
from tests.trace.test_untouched import Model, snapshot

ALPHAS = (0.5, 1.0, 2.0, -1.0)


# -- the skip


@pytest.mark.parametrize("alpha", [*ALPHAS, 0.0])
def test_a_scaled_skip_is_the_hand_written_function(alpha: float) -> None:
    model, x, trunk = net()
    point, block = trunk.at(x), model[1]
    unit = with_scaled_skip(trunk[1], alpha)
    first, second = block.first.weight.detach(), block.second.weight.detach()
    entry = point.entry(trunk[1]).double()
    torch.testing.assert_close(unit(entry), by_hand(block, entry, alpha, first, second), rtol=0, atol=1e-12)
    expected = dense(lambda h: by_hand(block, h, alpha, first, second), entry)
    J = unit.jacobian(point)
    assert (J.shape, J.dtype) == ((2, 50, 50), torch.float32)
    torch.testing.assert_close(J.double().dense(), expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(J.dense(), expected.float(), rtol=0, atol=1e-5)
    assert ss.verify(J).passed
    values = torch.linalg.svdvals(expected).cpu()
    torch.testing.assert_close(ss.singular_values(J).values, values, rtol=0, atol=1e-7)
    torch.testing.assert_close(ss.svd(J, k=3).S.double().cpu(), values[:, :3], rtol=1e-5, atol=0)
    data = spectra_of({"whole": J})
    torch.testing.assert_close(torch.from_numpy(data["value"].values[0]), values, rtol=0, atol=1e-7)
    # D_alpha (alpha S + J_R), with the mask at the new sum
    parts = [unit.jacobian(point, of=of, tail=True, dtype=torch.float64).dense() for of in ("branch", "skip")]
    torch.testing.assert_close(parts[0] + parts[1], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.units])
def test_every_kind_of_unit_can_be_scaled(name: str) -> None:
    """Whatever the sum looks like, with projections, contexts, parallel branches and units inside others."""
    case, (_, trunk) = CASES[name], traced(name)
    point = trunk.at(inputs(case, 2))
    for unit in trunk.units[:3]:
        entry = point.entry(unit)
        branch, skip, tail = (path.bound(point) for path in (unit.branch, unit.skip, unit.tail))
        assert torch.equal(with_scaled_skip(unit, 1)(entry), unit(entry))
        changed = with_scaled_skip(unit, -1.7)
        expected = tail(branch(entry) - 1.7 * skip(entry))
        torch.testing.assert_close(changed(entry), expected, rtol=0, atol=1e-12)
        torch.testing.assert_close(changed.skip(entry), -1.7 * skip(entry), rtol=0, atol=1e-12)
        assert torch.equal(changed.branch(entry), branch(entry))
        assert (changed.entry_shape, changed.exit_shape) == (unit.entry_shape, unit.exit_shape)
        direction = torch.randn_like(entry)
        step = changed.bound(point)(entry + 1e-6 * direction) - changed.bound(point)(entry - 1e-6 * direction)
        flat = direction.movedim(unit.batch_axis, 0).reshape(2, -1, 1)
        J = changed.jacobian(point)
        moved = J.unflatten_output(J.matmat(flat))[0]
        torch.testing.assert_close(moved, step / 2e-6, rtol=1e-4, atol=1e-6)


def test_factors_multiply_and_readers_see_them() -> None:
    _, trunk = traced("residual, relu")
    twice = with_scaled_skip(with_scaled_skip(trunk[0], 0.5), 3.0)
    state = torch.randn(2, D).double()
    torch.testing.assert_close(twice(state), with_scaled_skip(trunk[0], 1.5)(state))
    assert (twice.kind, twice.skip.operations) == ("scaled", ["mul"])
    assert twice.name == "0, skip times 0.5, skip times 3"
    assert (trunk[0].kind, trunk[0].skip.operations, trunk[0].name) == ("identity", [], "0")
    assert twice.to_dict()["parameters"] == trunk[0].parameters


# -- the law


@pytest.mark.parametrize("alpha", ALPHAS)
def test_the_plateau_lies_at_alpha(alpha: float) -> None:
    """With equality: n - z(alpha) - 2 r values are |alpha|, where z is counted on the hand-written sum."""
    model, x, unit = sparse()
    point, changed = unit.trunk.at(x), with_scaled_skip(unit, alpha)
    law = law_or_reason(changed, point)
    assert isinstance(law, Law), law
    middle = torch.relu(model.first(x))
    z = (alpha * x + model.second(middle)).le(0).flatten(1).sum(1)
    r = middle.gt(0).flatten(1).sum(1)
    assert (law.size, law.inactive.tolist(), law.rank.tolist()) == (256, z.tolist(), r.tolist())
    assert law.factor.tolist() == pytest.approx([abs(alpha)] * 2, rel=1e-14)
    predicted = 256 - z - 2 * r
    assert law.ones_at_least.tolist() == predicted.tolist()
    assert (predicted > 50).all()
    spectrum = ss.singular_values(changed.jacobian(point), route="svd")
    counts = counts_around(spectrum, law.factor.cpu(), 1e-7, 0.01)
    assert counts["ones"].tolist() == predicted.tolist()
    assert counts["zeros"].tolist() == z.tolist()
    assert counts["above"].tolist() == counts["below"].tolist() == r.tolist()
    # Solvers know the law of identities only; here they count, and do not take |alpha| for 1.
    assert (law_of(changed, point) is not None) == (alpha == 1)


def test_the_mask_and_the_rest_of_the_spectrum_do_not_scale() -> None:
    _, x, unit = sparse()
    point = unit.trunk.at(x)
    laws = {alpha: law_or_reason(with_scaled_skip(unit, alpha), point) for alpha in ALPHAS}
    inactive = {tuple(law.inactive.tolist()) for law in laws.values() if isinstance(law, Law)}
    assert len(inactive) == len(ALPHAS)
    largest = {a: ss.singular_values(with_scaled_skip(unit, a).jacobian(point)).values[:, 0] for a in (0.5, 1.0, 2.0)}
    assert (largest[2.0] < 1.9 * largest[1.0]).all()
    assert (largest[0.5] > 0.6 * largest[1.0]).all()


@pytest.mark.parametrize("alpha", ALPHAS)
def test_a_padded_skip_has_its_plateau_at_alpha_too(alpha: float) -> None:
    torch.manual_seed(1)
    model, x = Unit(2, 4, 2, -2.0, padded).double(), torch.randn(2, 2, 8, 8).double()
    unit = ss.trace(nn.Sequential(model), x)[0]
    point, changed = unit.trunk.at(x), with_scaled_skip(unit, alpha)
    expected = dense(lambda h: torch.relu(alpha * padded(h) + model.second(torch.relu(model.first(h)))), x)
    torch.testing.assert_close(changed.jacobian(point).dense(), expected.detach(), rtol=0, atol=1e-12)
    law = law_or_reason(changed, point)
    assert isinstance(law, Law), law
    assert law.factor.tolist() == pytest.approx([abs(alpha)] * 2)
    counts = counts_around(ss.singular_values(changed.jacobian(point)), law.factor.cpu(), 1e-7, 0.01)
    assert (law.ones_at_least > 0).all()
    assert (counts["ones"] >= law.ones_at_least.cpu()).all()
    assert (counts["above"] <= law.above_at_most.cpu()).all()
    assert changed.kind == "pad"


def test_without_a_skip_the_rank_is_that_of_the_branch() -> None:
    _, x, unit = sparse()
    point, changed = unit.trunk.at(x), with_scaled_skip(unit, 0.0)
    law = law_or_reason(changed, point)
    assert isinstance(law, Law)
    assert law.ones_at_least.tolist() == law.carried.tolist() == [0, 0]
    assert (law.rank_at_most <= law.rank).all()
    assert (ss.singular_values(changed.jacobian(point)).rank <= law.rank.cpu()).all()


# -- the user's model


def test_nothing_of_the_model_changes() -> None:
    torch.manual_seed(0)
    model = Model().train()
    model.last.eval()
    model.stem.weight.requires_grad_(False)
    model.stem.bias.grad = torch.ones(D)
    x = torch.randn(4, D)
    trunk = ss.trace(model, x)
    before = snapshot(model)
    state, keys = torch.get_rng_state(), sorted(vars(trunk))
    for unit in trunk.units:
        plain = unit.jacobian(x).dense()
        for changed in (with_scaled_skip(unit, 0.3), with_weights(unit, noisy_weights(unit, 0.5, seed=1))):
            J = changed.jacobian(x)
            assert not torch.equal(J.dense(), plain)
            ss.singular_values(J), ss.verify(J), law_or_reason(changed, trunk.at(x))
        assert torch.equal(unit.jacobian(x).dense(), plain)
    after = snapshot(model)
    values, kept = before.pop("values"), after.pop("values")
    assert before == after
    assert all(torch.equal(values[name], kept[name]) for name in values)
    assert torch.equal(torch.get_rng_state(), state)
    assert sorted(vars(trunk)) == keys


def test_another_thread_never_sees_the_new_weights() -> None:
    model, x, trunk = net()
    point, expected, stop = trunk.at(x), model(x), threading.Event()
    wrong: list[Tensor] = []

    def use() -> None:
        with torch.no_grad():
            while not stop.is_set():
                value = model(x)
                if not torch.equal(value, expected):
                    wrong.append(value)

    user = threading.Thread(target=use)
    user.start()
    try:
        for seed in range(20):
            with_weights(trunk[0], noisy_weights(trunk[0], 0, seed=seed)).jacobian(point).dense()
            with_scaled_skip(trunk[0], 0.1 * seed).jacobian(point).dense()
    finally:
        stop.set()
        user.join()
    assert not wrong


# -- what is refused


def test_what_cannot_be_changed_is_refused_with_a_reason() -> None:
    trunk = net()[2]
    unit = trunk[0]
    with pytest.raises(ss.InputError, match=r"no parameter '1\.first\.weight'; some that it uses: 0\.first\.weight"):
        with_weights(unit, {"1.first.weight": torch.zeros(2, 2, 3, 3)})
    with pytest.raises(ss.InputError, match=r"uses no parameter '0\.norm1\.running_mean'"):
        with_weights(unit, {"0.norm1.running_mean": torch.zeros(2)})
    with pytest.raises(ss.InputError, match=r"expected a tensor of shape \(2, 2, 3, 3\), got \(2, 2\)"):
        with_weights(unit, {"0.first.weight": torch.zeros(2, 2)})
    with pytest.raises(ss.InputError, match="NaN or infinite"):
        with_weights(unit, {"0.first.weight": torch.full((2, 2, 3, 3), float("nan"))})
    with pytest.raises(ss.InputError, match="expected a finite factor"):
        with_scaled_skip(unit, float("inf"))
    with pytest.raises(ss.InputError, match="from 0"):
        noisy_weights(unit, 1.5, seed=0)
    with pytest.raises(ss.InputError, match="expected one of convex, norm"):
        noisy_weights(unit, 0.5, seed=0, mixture="other")
    with pytest.raises(ss.InputError, match="expected a unit of a trunk"):
        with_scaled_skip(trunk.stages[0], 2.0)  # type: ignore[arg-type]
    named = ss.trace(nn.Sequential(Residual(mlp()), LeafBlock()), torch.randn(2, D), units=["0"])
    for surgery in (
        lambda: with_scaled_skip(named[0], 2.0),
        lambda: with_weights(named[0], {}),
        lambda: noisy_weights(named[0], 0.5, seed=0),
    ):
        with pytest.raises(ss.InputError, match="0 was named by the user"):
            surgery()


def test_units_of_a_deeper_net_stay_at_the_states_of_the_model_as_it_is() -> None:
    torch.manual_seed(0)
    model, x = Net(-2.0), torch.randn(3, 1, 8, 8)
    trunk = ss.trace(model, x)
    point = trunk.at(x)
    changed = with_scaled_skip(trunk["b"], 0.5)
    assert torch.equal(changed.argument(point), point.entry(trunk["b"]))
    new = changed.trunk.at(x[:2])
    assert trunk.point is changed.trunk.point is new
    assert torch.equal(new.entry(trunk["c"]), trunk.at(x[:2]).entry(trunk["c"]))
