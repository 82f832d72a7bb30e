"""Units with other weights, and with weights mixed with noise, against hand-written functions."""

from __future__ import annotations

from math import sqrt

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import skipscope as ss
from skipscope.linear.law import law_of
from skipscope.trace.surgery import branch_matrices, noisy_weights, with_scaled_skip, with_weights
from tests.measure.nets import dense
from tests.trace.nets import D, Residual
from tests.trace.surgery_nets import Block, by_hand, net, sparse
from tests.trace.test_cases import traced

# -- the weights


def test_replaced_weights_are_the_hand_written_function() -> None:
    model, x, trunk = net()
    point, block = trunk.at(x), model[1]
    first = torch.randn(2, 2, 3, 3, dtype=torch.float64)
    unit = with_weights(trunk[1], {"1.first.weight": first})
    entry, second = point.entry(trunk[1]).double(), block.second.weight.detach()
    first.zero_()
    used = unit.trunk.program.lookup("1.first.weight")
    assert used.dtype == torch.float32
    expected = dense(lambda h: by_hand(block, h, 1.0, used, second), entry)
    torch.testing.assert_close(unit.jacobian(x, dtype=torch.float64).dense(), expected, rtol=0, atol=1e-12)
    assert ss.verify(unit.jacobian(point)).passed
    both = with_scaled_skip(unit, 0.5)
    other_way = with_weights(with_scaled_skip(trunk[1], 0.5), {"1.first.weight": used})
    torch.testing.assert_close(both(entry), by_hand(block, entry, 0.5, used, second), rtol=0, atol=1e-12)
    assert torch.equal(both(entry), other_way(entry))


def test_the_law_is_that_of_the_new_weights() -> None:
    model, x, unit = sparse()
    point = unit.trunk.at(x)
    bias = torch.full((4,), -1.5, dtype=torch.float64)
    changed = with_weights(unit, {"0.first.bias": bias})
    law = law_of(changed, point)
    assert law is not None
    active = F.conv2d(x, model.first.weight, bias, padding=1).gt(0).flatten(1).sum(1)
    assert law.rank.tolist() == active.tolist()
    by_law, by_svd = (ss.singular_values(changed.jacobian(point), route=route) for route in ("law", "svd"))
    torch.testing.assert_close(by_law.values, by_svd.values, rtol=0, atol=1e-6)


def test_two_surgeries_are_independent_and_live_weights_are_seen() -> None:
    x = net()[1]
    model = nn.Sequential(Block()).eval()
    trunk = ss.trace(model, x)
    unit, h = trunk[0], trunk.at(x).entry(trunk[0])
    before = unit(h)
    ones, zeros = (with_weights(unit, {"0.first.weight": torch.full((2, 2, 3, 3), v)}) for v in (1.0, 0.0))
    half, double = with_scaled_skip(unit, 0.5), with_scaled_skip(unit, 2.0)
    values = [changed(h) for changed in (ones, zeros, half, double)]
    assert all(torch.equal(changed(h), v) for changed, v in zip((ones, zeros, half, double), values, strict=True))
    assert len({float(v.detach().sum()) for v in (before, *values)}) == 5
    assert torch.equal(unit(h), before)
    with torch.no_grad():
        model[0].second.weight.mul_(2)
        model[0].first.weight.mul_(3)
        args = model[0].first.weight, model[0].second.weight
        torch.testing.assert_close(half(h), by_hand(model[0], h, 0.5, *args))
        torch.testing.assert_close(ones(h), by_hand(model[0], h, 1.0, torch.ones(2, 2, 3, 3), args[1]))


def test_a_module_called_twice_and_a_shared_weight() -> None:
    _, trunk = traced("called twice")
    state = torch.randn(2, D).double()
    zero = {"block.branch.2.weight": torch.zeros(D, 12), "block.branch.2.bias": torch.zeros(D)}
    assert torch.equal(with_weights(trunk["block#2"], zero)(state), state)
    assert not torch.equal(trunk["block"](state), state)

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(D, D), nn.Linear(D, D)
            self.b.weight = self.a.weight

        def forward(self, x: Tensor) -> Tensor:
            return x + self.b(torch.relu(self.a(x)))

    x = torch.randn(2, D)
    unit = ss.trace(nn.Sequential(Tied()), x)[0]
    new, tied = torch.randn(D, D), unit.trunk.model[0]
    expected = x + F.linear(torch.relu(F.linear(x, new, tied.a.bias)), new, tied.b.bias)
    for name in ("0.a.weight", "0.b.weight"):
        torch.testing.assert_close(with_weights(unit, {name: new})(x), expected)
    with pytest.raises(ss.InputError, match="give a shared weight once"):
        with_weights(unit, {"0.a.weight": new, "0.b.weight": 2 * new})


def test_values_are_copied() -> None:
    _, x, trunk = net()
    given = torch.randn(2, 2, 3, 3)
    unit = with_weights(trunk[0], {"0.first.weight": given})
    before = unit(x)
    given.zero_()
    assert torch.equal(unit(x), before)


# -- noise


@pytest.mark.parametrize("mixture", ["convex", "norm"])
def test_mixtures_have_the_norms_that_they_should(mixture: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 4, 4, 4).double()
    unit = ss.trace(nn.Sequential(Block(4)).double().eval(), x)[0]
    names = ["0.first.weight", "0.second.weight"]
    assert branch_matrices(unit) == names
    theta = {name: unit.trunk.model.get_parameter(name).detach() for name in names}
    for t in (0.0, 0.25, 0.5, 1.0):
        drawn = [noisy_weights(unit, t, seed=seed, mixture=mixture) for seed in range(200)]
        expected = t**2 + (1 - t) ** 2 if mixture == "convex" else 1.0
        for name in names:
            squares = torch.stack([weights[name].norm() ** 2 for weights in drawn]) / theta[name].norm() ** 2
            deviation = 2 * (sqrt(t * (1 - t)) if mixture == "norm" else t * (1 - t)) / 12  # cosines: 1 / sqrt(144)
            assert abs(float(squares.mean()) - expected) <= 4 * deviation / sqrt(200) + 1e-12
    assert all(torch.equal(noisy_weights(unit, 1.0, seed=0, mixture=mixture)[name], theta[name]) for name in names)
    entry = unit.trunk.at(x).entry(unit)
    assert torch.equal(with_weights(unit, noisy_weights(unit, 1, seed=0, mixture=mixture))(entry), unit(entry))


def test_noise_is_seeded_by_name_and_shared_along_t() -> None:
    _, x, trunk = net()
    state = torch.get_rng_state()
    noise, again, other = (noisy_weights(trunk[0], 0, seed=seed) for seed in (5, 5, 6))
    name, second = "0.first.weight", "0.second.weight"
    assert torch.equal(noise[name], again[name])
    assert not torch.equal(noise[name], other[name])
    cosine = F.cosine_similarity(noise[name].flatten(), noise[second].flatten(), dim=0)
    assert abs(float(cosine)) < 0.9
    theta = trunk.model.get_parameter(name).detach()
    middle = noisy_weights(trunk[0], 0.5, seed=5)[name]
    torch.testing.assert_close(middle, (theta + noise[name]) / 2)
    control = noisy_weights(trunk[0], 0.25, seed=5, mixture="norm")[name]
    torch.testing.assert_close(control, 0.5 * theta + sqrt(0.75) * noise[name])
    assert torch.equal(torch.get_rng_state(), state)
    changed = with_weights(trunk[0], noisy_weights(trunk[0], 0.5, seed=5))
    block, h = trunk.model[0], trunk.at(x).entry(trunk[0]).double()
    mixed = noisy_weights(trunk[0], 0.5, seed=5)
    torch.testing.assert_close(changed(h), by_hand(block, h, 1.0, mixed[name], mixed[second]), rtol=0, atol=1e-12)


def test_only_matrices_of_the_branch_get_noise() -> None:
    def names(case: str, unit: str) -> list[str]:
        return branch_matrices(traced(case)[1][unit])

    time = names("time conditioning", "blocks.1")  # not the projection; what the unit makes of its context is branch
    assert sorted(time) == [f"blocks.1.{n}.weight" for n in ("first", "second", "time")]
    assert sorted(names("cross-attention", "cross")) == [f"cross.{n}.weight" for n in ("k", "out", "q", "v")]
    assert names("bare parameters", "weights.1") == ["weights.1"]
    x = torch.randn(2, 4, 5, 5)

    class LayerScale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.gamma = nn.Conv2d(4, 4, 1), nn.Parameter(torch.ones(4, 1, 1))

        def forward(self, x: Tensor) -> Tensor:
            return x + self.gamma * self.conv(x)

    assert branch_matrices(ss.trace(nn.Sequential(LayerScale()), x)[0]) == ["0.conv.weight"]
    with pytest.raises(ss.InputError, match="no weight of a convolution or linear layer"):
        noisy_weights(ss.trace(nn.Sequential(Residual(nn.AvgPool2d(3, 1, 1))).eval(), x)[0], 0.5, seed=0)
