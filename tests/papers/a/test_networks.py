"""The networks of types 1, 2 and 3, against a dense float64 reference that is written out."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import skipscope as ss
from skipscope.errors import InputError
from skipscope.papers.a.networks import AlignmentNet, AlignmentSpec
from tests import seeded
from tests.slow import thinned

DIGITS = (1, 8, 8)
VARIANTS = list(itertools.product((1, 2, 3), (False, True)))


def spec(kind: int, **options: Any) -> AlignmentSpec:
    return AlignmentSpec(kind, **{"blocks": 3, "width": 4, "input_shape": DIGITS, "classes": 3, **options})


def network(kind: int, **options: Any) -> AlignmentNet:
    """In float64, with norms that do something, in evaluation mode."""
    torch.manual_seed(0)
    net = AlignmentNet(spec(kind, **options)).double()
    for module in net.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            module.weight.data.uniform_(0.5, 1.5)
            module.bias.data.normal_(std=0.3)
            module.running_mean.normal_(std=0.3)  # type: ignore[union-attr, operator]
            module.running_var.uniform_(0.5, 2)  # type: ignore[union-attr, operator]
    return net.eval()


def images(count: int = 3, shape: tuple[int, ...] = DIGITS) -> Tensor:
    generator = seeded.generator(1)
    return torch.randn(count, *shape, dtype=torch.float64, generator=generator, device=generator.device)


class Reference:
    """The network once more, from its weights by name, with each formula written out."""

    def __init__(self, net: AlignmentNet) -> None:
        self.state, self.spec = net.state_dict(), net.spec

    def norm(self, h: Tensor, name: str) -> Tensor:
        scale, shift, mean, variance = (
            self.state[f"{name}.{key}"].view(-1, *[1] * (h.dim() - 2))
            for key in ("weight", "bias", "running_mean", "running_var")
        )
        return (h - mean) / (variance + 1e-5).sqrt() * scale + shift

    def times(self, h: Tensor, name: str, stride: int = 1) -> Tensor:
        if self.spec.kind == 1:
            return h @ self.state[f"{name.replace('conv', 'linear')}.weight"].T
        weight = self.state[f"{name}.weight"]
        return F.conv2d(h, weight, stride=stride, padding=weight.shape[-1] // 2)

    def branch(self, h: Tensor, name: str, stride: int) -> Tensor:
        if self.spec.preactivation:
            return self.rest(self.norm(h, f"{name}.norm1").relu(), name, stride)
        h = self.norm(self.times(h, f"{name}.conv1", stride), f"{name}.norm1").relu()
        return self.norm(self.times(h, f"{name}.conv2"), f"{name}.norm2")

    def rest(self, h: Tensor, name: str, stride: int) -> Tensor:
        """Of a pre-activation branch, behind its first norm and activation."""
        h = self.times(h, f"{name}.conv1", stride)
        return self.times(self.norm(h, f"{name}.norm2").relu(), f"{name}.conv2")

    def skip(self, h: Tensor, name: str, stride: int) -> Tensor:
        if f"{name}.shortcut.0.weight" not in self.state:
            return h
        if self.spec.preactivation:
            return self.times(self.norm(h, f"{name}.norm1").relu(), f"{name}.shortcut.0", stride)
        return self.norm(self.times(h, f"{name}.shortcut.0", stride), f"{name}.shortcut.1")

    def __call__(self, x: Tensor) -> Tensor:
        if self.spec.kind == 1:
            h = x.flatten(1) @ self.state["first.weight"].T
        else:
            stride = self.spec.patch
            padding = stride + 2 if x.shape[-1] == 28 else stride
            h = F.conv2d(x, self.state["first.weight"], stride=stride, padding=padding)
        if not self.spec.preactivation:
            h = self.norm(h, "norm").relu()
        for number in range(self.spec.blocks):
            late = self.spec.kind == 3 and number >= self.spec.blocks // 2
            name = f"stage2.{number - self.spec.blocks // 2}" if late else f"stage1.{number}"
            stride = 2 if late and number == self.spec.blocks // 2 else 1
            h = self.branch(h, name, stride) + (self.skip(h, name, stride) if self.spec.skips else 0)
            h = h if self.spec.preactivation else h.relu()
        if self.spec.preactivation:
            h = self.norm(h, "final_norm").relu()
        if self.spec.kind != 1:
            side = min(4 if self.spec.kind == 2 else 2, h.shape[-1])
            h = h.unfold(2, side, side).unfold(3, side, side).mean((-1, -2)).flatten(1)
        return h @ self.state["classifier.weight"].T + self.state["classifier.bias"]


def jacobians(function: Callable[[Tensor], Tensor], h: Tensor, mask: Tensor) -> Tensor:
    """(B, exit, entry) of mask * function, each sample on its own."""
    rows = torch.func.jacrev(lambda state: (function(state) * mask).sum(0).flatten())(h)
    return rows.movedim(1, 0).flatten(2)


# ---- what it computes


@pytest.mark.parametrize("skips", [True, False])
@pytest.mark.parametrize(("kind", "preactivation"), VARIANTS)
def test_it_is_the_written_out_network(kind: int, preactivation: bool, skips: bool) -> None:
    net = network(kind, preactivation=preactivation, skips=skips)
    torch.testing.assert_close(net(images()), Reference(net)(images()), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("kind", [2, 3])
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (3, 64, 64)], ids=str)
def test_it_is_the_written_out_network_on_larger_images(kind: int, shape: tuple[int, int, int]) -> None:
    net = network(kind, input_shape=shape, width=2, blocks=3)
    torch.testing.assert_close(net(images(2, shape)), Reference(net)(images(2, shape)), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("patch", [1, 2, 4, 8])
@pytest.mark.parametrize("side", [28, 32])
def test_small_and_large_images_give_the_same_maps(side: int, patch: int) -> None:
    net = network(2, input_shape=(1, side, side), patch=patch, blocks=1, width=2)
    assert net.stem(images(2, (1, side, side))).shape == (2, 2, 32 // patch, 32 // patch)
    assert net.spec.maps == (32 // patch, 32 // patch)
    assert net.classifier.in_features == 2 * (32 // patch // min(4, 32 // patch)) ** 2


@pytest.mark.parametrize(("blocks", "before"), [(1, 0), (2, 1), (5, 2), (16, 8)])
def test_the_block_that_halves_is_one_of_the_blocks(blocks: int, before: int) -> None:
    net = AlignmentNet(AlignmentSpec(3, blocks, 3))
    h = net.stem(torch.zeros(2, 1, 28, 28))
    shapes = [tuple((h := block(h)).shape[1:]) for block in net.blocks.values()]
    assert shapes == [(3, 16, 16)] * before + [(6, 8, 8)] * (blocks - before)
    assert (len(net.stage1), len(net.stage2)) == (before, blocks - before)


@pytest.mark.parametrize("kind", [1, 2])
def test_sixteen_blocks_are_34_layers(kind: int) -> None:
    weights = {name: p for name, p in AlignmentNet(AlignmentSpec(kind)).named_parameters() if p.dim() > 1}
    assert len(weights) == 34
    biases = [name for name, _ in AlignmentNet(AlignmentSpec(kind)).named_parameters() if name.endswith("bias")]
    assert [name for name in biases if "norm" not in name] == ["classifier.bias"]


# ---- initial weights


@pytest.mark.parametrize("kind", [1, 2, 3])
def test_weights_have_the_variance_of_their_fan_out(kind: int) -> None:
    torch.manual_seed(0)
    net = AlignmentNet(AlignmentSpec(kind, 4, 64, (3, 32, 32), 100))
    for name, weight in net.named_parameters():
        if weight.dim() > 1:
            fan_out = weight.shape[0] * weight[0, 0].numel()
            assert float(weight.detach().var()) == pytest.approx(2 / fan_out, rel=0.1), name
            assert abs(float(weight.detach().mean())) < 0.05 * (2 / fan_out) ** 0.5
        elif name.endswith("weight"):
            assert (weight == 1).all()
        else:
            assert (weight == 0).all()


@pytest.mark.parametrize(("kind", "preactivation"), VARIANTS)
def test_the_twin_without_skips_starts_from_the_same_weights(kind: int, preactivation: bool) -> None:
    states = []
    for skips in (True, False):
        torch.manual_seed(3)
        states.append(AlignmentNet(spec(kind, preactivation=preactivation, skips=skips)).state_dict())
    residual, plain = states
    assert all(torch.equal(residual[name], value) for name, value in plain.items())
    assert bool(set(residual) - set(plain)) == (kind == 3)


# ---- units


@cache
def traced(kind: int, preactivation: bool) -> tuple[AlignmentNet, ss.Trunk]:
    net = network(kind, preactivation=preactivation)
    return net, ss.trace(net, images())


@pytest.mark.parametrize(("kind", "preactivation"), VARIANTS)
def test_every_block_is_found_as_a_unit(kind: int, preactivation: bool) -> None:
    net, trunk = traced(kind, preactivation)
    assert [unit.name for unit in trunk.units] == list(net.blocks)
    assert len(trunk) == net.spec.blocks
    kinds = ["projection" if kind == 3 and number == 1 else "identity" for number in range(3)]
    assert [unit.kind for unit in trunk.units] == kinds
    assert all(unit.tail.operations == ([] if preactivation else ["relu"]) for unit in trunk.units)
    torch.testing.assert_close(trunk.replay(images()), net(images()))


@pytest.mark.parametrize(("kind", "preactivation"), VARIANTS)
def test_the_jacobian_of_the_branch_is_masked_where_the_sum_is_not_positive(kind: int, preactivation: bool) -> None:
    (net, trunk), x = traced(kind, preactivation), images()
    reference = Reference(net)
    h = net.stem(x)
    for unit, (name, block) in zip(trunk.units, net.blocks.items(), strict=True):
        stride = 2 if name == "stage2.0" else 1
        total = reference.branch(h, name, stride) + reference.skip(h, name, stride)
        mask = torch.ones_like(total) if preactivation else (total > 0).double()
        # A projection starts behind the first norm and activation, and there begins the unit.
        shared = preactivation and unit.kind == "projection"
        entry = reference.norm(h, f"{name}.norm1").relu() if shared else h
        branch = partial(reference.rest if shared else reference.branch, name=name, stride=stride)
        found = unit.jacobian(x, of="branch", tail=True).dense()
        torch.testing.assert_close(found, jacobians(branch, entry, mask), rtol=1e-9, atol=1e-9)
        h = block(h)


@pytest.mark.parametrize(
    ("kind", "preactivation"), thinned(itertools.product((1, 2), (False, True)), fast=[(1, False), (2, True)])
)
def test_blocks_without_skips_can_be_named_as_units(kind: int, preactivation: bool) -> None:
    net = network(kind, skips=False, preactivation=preactivation)
    x = images()
    assert len(ss.trace(net, x)) == 0
    trunk = ss.trace(net, x, units=list(net.blocks))
    assert [unit.name for unit in trunk.units] == list(net.blocks)
    reference = Reference(net)

    branch = partial(reference.branch, name="stage1.0", stride=1)
    h = net.stem(x)
    mask = torch.ones_like(h) if preactivation else (branch(h) > 0).double()
    found = trunk.units[0].jacobian(x).dense()
    torch.testing.assert_close(found, jacobians(branch, h, mask), rtol=1e-9, atol=1e-9)


# ---- stochastic depth


@pytest.mark.parametrize(("kind", "preactivation"), VARIANTS)
def test_each_sample_goes_around_a_branch_on_its_own(kind: int, preactivation: bool) -> None:
    """Without norms in training mode, so that samples do not see each other."""
    net = network(kind, preactivation=preactivation, stochastic_depth=0.3)
    block = next(reversed(net.blocks.values())) if kind != 3 else net.blocks["stage2.0"]
    block.training = True  # its norms stay in evaluation mode
    h = torch.randn(4000, *(net.stem(images()).shape[1:] if kind != 3 else (4, 4, 4)), dtype=torch.float64)
    torch.manual_seed(0)
    found = block(h)
    skipped = block.shortcut(block.first(h) if preactivation and kind == 3 else h)  # type: ignore[operator, misc]
    dropped = block.tail(skipped)
    kept = block.tail(skipped + block.branch(h) / 0.7)
    rounding = 1e-13 * float(found.abs().max())
    around = ((found - dropped).flatten(1).abs().amax(1)) < rounding
    through = ((found - kept).flatten(1).abs().amax(1)) < rounding
    assert (around | through).all()
    differ = ~(around & through)  # of few units, all may be cut off by the tail, with the branch and without it
    assert int(differ.sum()) > 2000
    assert float(around[differ].double().mean()) == pytest.approx(0.3, abs=0.04)


@pytest.mark.parametrize("kind", [1, 2, 3])
def test_evaluation_does_not_know_of_stochastic_depth(kind: int) -> None:
    with_it, without = network(kind, stochastic_depth=0.5), network(kind)
    assert torch.equal(with_it(images()), without(images()))
    assert len(ss.trace(with_it, images())) == 3


def test_the_probability_is_uniform_or_falls_to_the_first_block() -> None:
    survival = [block.survival for block in network(1, stochastic_depth=0.4).blocks.values()]
    assert survival == pytest.approx([0.6] * 3)
    survival = [block.survival for block in network(1, stochastic_depth=0.6, decay=True).blocks.values()]
    assert survival == pytest.approx([0.8, 0.6, 0.4])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("kind", [1, 2, 3])
def test_a_captured_step_draws_anew(kind: int) -> None:
    """A graph that repeated one draw would give the same loss at a rate of almost zero."""
    from skipscope.data import digits
    from skipscope.training import Settings, train

    net = AlignmentNet(spec(kind, classes=10, stochastic_depth=0.5)).cuda()
    data = digits().to("cuda")
    settings = Settings(epochs=3, batch=128, rate=1e-12, weight_decay=0.0, schedule="constant")
    losses = train(net, data.train, settings, graph=True).loss
    assert len(set(losses)) == 3


# ---- wrong options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": 4}, r"expected the type to be one of 1 \(fully connected\), 2 .*, got 4"),
        ({"kind": 1, "blocks": 0}, "blocks: expected at least 1, got 0"),
        ({"kind": 1, "width": 0}, "width: expected at least 1, got 0"),
        ({"kind": 1, "classes": 0}, "classes: expected at least 1, got 0"),
        ({"kind": 1, "input_shape": (8, 8)}, r"channels, height, width, got \(8, 8\)"),
        ({"kind": 1, "patch": 4}, "patches in type 2 alone, got patch=4 in type 1"),
        ({"kind": 2, "patch": 3}, "a patch of 1, 2, 4, 8, 16, 32 places that the image has, got 3"),
        ({"kind": 2, "patch": 16}, "got 16 for images of 1 x 8 x 8"),
        ({"kind": 1, "stochastic_depth": 1.0}, r"stochastic_depth: expected below 1, got 1\.0"),
        ({"kind": 1, "stochastic_depth": 0.2, "skips": False}, "expected skips"),
        ({"kind": 1, "decay": True}, "decay: expected a stochastic_depth above 0"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        spec(**options)


@pytest.mark.parametrize("kind", [1, 2, 3])
def test_images_of_another_size_are_refused(kind: int) -> None:
    with pytest.raises(InputError, match=r"expected images of 1 x 8 x 8, got a tensor of 2 x 1 x 9 x 9"):
        network(kind)(images(2, (1, 9, 9)))
