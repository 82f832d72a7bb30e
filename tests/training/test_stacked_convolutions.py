"""Convolutional networks as one wide network: each is what it is alone, to rounding. On a GPU as well."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import pytest
import torch
from torch import nn

import skipscope.training.fleet as fleet_module
from skipscope.data.dataset import Images
from skipscope.errors import InputError
from skipscope.models import names
from skipscope.training import FleetMember, History, Settings, train, train_fleet
from skipscope.training.fleet_member import stack_obstacle
from skipscope.training.fleet_stack import FleetStack
from skipscope.training.stacked_convolutions import StackedConvolutions, _FewChannels, convolutions_obstacle
from skipscope.training.stacked_step import AlikeUpdate, EachUpdate, stacked_update
from tests import seeded

DEVICE = torch.get_default_device()

pytestmark = pytest.mark.usefixtures("without_tf32")
SETTINGS = Settings(epochs=5, batch=16, rate=0.02)  # 4 steps an epoch


def split(samples: int, shape: tuple[int, ...]) -> Images:
    draw = seeded.generator(len(shape))
    pixels = torch.randint(256, (samples, *shape), generator=draw, dtype=torch.uint8)
    return Images(pixels, torch.randint(10, (samples,), generator=draw))


def built(name: str, seed: int, dtype: torch.dtype = torch.float64) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        with torch.device("cpu"):
            return names.build(name).to(DEVICE, dtype)


def fleet(name: str, count: int = 3, dtype: torch.dtype = torch.float64, **settings: Any) -> list[FleetMember]:
    shape = names.parse(name)["input_shape"]
    data, test = split(64, shape), split(20, shape)
    own = dataclasses.replace(SETTINGS, **settings)
    return [
        FleetMember(built(name, seed, dtype), data, dataclasses.replace(own, seed=seed), test) for seed in range(count)
    ]


def trained_as_a_stack(members: list[FleetMember]) -> list[History]:
    """Also on a CPU, where a fleet would not stack them."""
    histories = [History() for _ in members]
    stack = FleetStack(members, histories, range(len(members)))
    for epoch in range(members[0].settings.epochs):
        steps = stack.steps(epoch)
        with stack.inside():
            for _ in steps:
                pass
            stack.test()
        stack.close_epoch(len(members))
    stack.release()
    return histories


def assert_as_alone(members: list[FleetMember]) -> None:
    models = [copy.deepcopy(member.model) for member in members]
    expected = [
        train(model, member.split, member.settings, test=member.test)
        for model, member in zip(models, members, strict=True)
    ]
    for member, model, found, reference in zip(members, models, trained_as_a_stack(members), expected, strict=True):
        for name, value in model.state_dict().items():
            torch.testing.assert_close(member.model.state_dict()[name], value, rtol=1e-10, atol=1e-10)
        assert found.rate == reference.rate
        assert found.loss == pytest.approx(reference.loss, rel=1e-6)
        assert found.train_accuracy == reference.train_accuracy
        assert found.test_accuracy == reference.test_accuracy


@pytest.mark.parametrize(
    "name",
    [
        "resnet8-digits-n4",
        "resnet8-digits-n4-projection",
        "plainnet8-digits-n4",
        "preresnet8-digits-n4",
        "preresnet8-digits-n4-projection",
        "preresnet11-digits-n4-s3",
        "resnet11-digits-n4-bottleneck",
        "resnext11-digits-n4-bottleneck-c2-d2",
        "resnet8-digits-n4-nonorm-scale50",
        "resnet8-digits-n4-tanh",
        "type2-digits-w4-b3",
        "type3-digits-w4-b4",
        "type2-digits-w4-b2-preactivation",
    ],
)
def test_each_member_is_what_it_is_alone(name: str) -> None:
    assert_as_alone(fleet(name))


@pytest.mark.parametrize("name", ["resnet8-cifar-n4", "resnet8-cifar-n4-projection", "preresnet8-cifar-n4"])
def test_channels_stay_last(name: str) -> None:
    """Otherwise a GPU converts the images before and after every convolution."""
    network = StackedConvolutions([built(name, seed, torch.float32) for seed in range(2)]).network
    network.to(memory_format=torch.channels_last)
    h = network.stem(torch.rand(3, 6, 32, 32).contiguous(memory_format=torch.channels_last))  # type: ignore[operator]
    for stage in network.stages:
        h = stage(h)
        assert h.is_contiguous(memory_format=torch.channels_last)


def test_zeros_beside_few_channels_change_nothing() -> None:
    own = nn.Conv2d(6, 8, 3, 2, padding=1, groups=2).double()
    padded = _FewChannels(6, 8, 3, 2, padding=1, groups=2).double()
    padded.load_state_dict(own.state_dict())
    images = torch.rand(3, 6, 8, 8, dtype=torch.float64)
    torch.testing.assert_close(padded(images), own(images), rtol=1e-14, atol=1e-14)


def test_members_have_their_own_rates_decays_and_clips() -> None:
    members = fleet("resnet8-digits-n4-projection", augmentation="crop", warmup=1, decay_norms=False)
    changed = [{"clip": 0.5}, {"weight_decay": 0.01, "rate": 0.05}, {"schedule": "constant", "rate": 0.01}]
    assert_as_alone(
        [
            dataclasses.replace(member, settings=dataclasses.replace(member.settings, **change))
            for member, change in zip(members, changed, strict=True)
        ]
    )


def test_one_that_diverges_leaves_and_the_others_go_on() -> None:
    members = fleet("resnet8-digits-n4-nonorm", schedule="constant")
    members[1] = dataclasses.replace(members[1], settings=dataclasses.replace(members[1].settings, rate=1e9))
    alone = copy.deepcopy(members[2].model)
    train(alone, members[2].split, members[2].settings)
    histories = trained_as_a_stack(members)
    assert [history.status for history in histories] == ["finished", "diverged", "finished"]
    for name, value in alone.state_dict().items():
        torch.testing.assert_close(members[2].model.state_dict()[name], value, rtol=1e-10, atol=1e-10)


def test_members_own_their_weights_afterwards() -> None:
    members = fleet("resnet8-digits-n4-projection", epochs=1)
    trained_as_a_stack(members)
    for member in members:
        for tensor in (*member.model.parameters(), *member.model.buffers()):
            assert tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
        assert all(weight.grad is None and weight.is_contiguous() for weight in member.model.parameters())


def test_what_cannot_be_stacked_says_why() -> None:
    one = built("resnet8-digits-n4", 0)
    cases = {
        "network 1 has another architecture": [one, built("resnet8-digits-n8", 0)],
        "drops branches at random": [built("type2-digits-w4-b3-drop30", 0)],
        "layers that are not stacked: DiracConv2d": [built("diracnet8-digits-n4", 0)],
        "Sequential is not a network of our blocks": [nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten())],
        "layers that are not stacked": [built("type1-digits-w4-b3", 0)],
    }
    hooked, foreign = built("resnet8-digits-n4", 0), built("resnet8-digits-n4", 0)
    hooked.get_submodule("conv").register_forward_hook(lambda *_: None)
    foreign.__class__ = type("Mine", (type(foreign),), {"forward": lambda self, x: x})
    cases |= {"has hooks": [hooked], "has modules with code that is not known here": [foreign]}
    for message, models in cases.items():
        assert message in convolutions_obstacle(models)
    assert not convolutions_obstacle([one, built("resnet8-digits-n4", 1)])


def test_convolutions_are_stacked_on_a_gpu_alone() -> None:
    assert bool(stack_obstacle(fleet("resnet8-digits-n4"))) == (DEVICE.type == "cpu")


def test_the_fused_update_is_for_members_that_differ_in_their_seeds() -> None:
    members = fleet("resnet8-digits-n4")
    stack = StackedConvolutions([member.model for member in members])
    settings = [member.settings for member in members]
    alike = AlikeUpdate if DEVICE.type == "cuda" else EachUpdate
    assert isinstance(stacked_update(stack, settings), alike)
    assert isinstance(stacked_update(stack, [settings[0], dataclasses.replace(settings[1], rate=0.5)]), EachUpdate)


@pytest.mark.skipif(DEVICE.type != "cuda", reason="convolutions are stacked on a GPU")
def test_a_fleet_on_a_gpu_gives_the_same_bits_again() -> None:
    first, again = (fleet("resnet8-digits-n4", 4, torch.float32, precision="bfloat16") for _ in range(2))
    train_fleet(first)
    train_fleet(again)
    for one, other in zip(first, again, strict=True):
        for name, value in one.model.state_dict().items():
            torch.testing.assert_close(value, other.model.state_dict()[name], rtol=0, atol=0)


@pytest.mark.skipif(DEVICE.type != "cuda", reason="stacks are compiled on a GPU")
@pytest.mark.parametrize("name", ["resnet8-digits-n8", "preresnet11-digits-n8-s3", "type2-digits-w8-b2-preactivation"])
def test_a_compiled_fleet_is_the_same_to_rounding_and_again_to_the_bit(name: str) -> None:
    as_written, compiled, again = (fleet(name, epochs=2) for _ in range(3))
    expected = train_fleet(as_written, compiled=False)
    found = train_fleet(compiled, compiled=True)
    train_fleet(again, compiled=True)
    for first, second, third in zip(as_written, compiled, again, strict=True):
        for key, value in first.model.state_dict().items():
            torch.testing.assert_close(second.model.state_dict()[key], value, rtol=1e-8, atol=1e-8)
            torch.testing.assert_close(third.model.state_dict()[key], second.model.state_dict()[key], rtol=0, atol=0)
    assert [history.test_accuracy for history in found] == [history.test_accuracy for history in expected]


@pytest.mark.skipif(DEVICE.type != "cuda", reason="stacks are compiled on a GPU")
def test_long_trainings_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where that does not work, they run as written and say so; who asks for it gets an error."""
    compiled: list[int] = []
    monkeypatch.setattr(StackedConvolutions, "compile", lambda stack: compiled.append(len(stack)))
    train_fleet(fleet("resnet8-digits-n4", 2, epochs=1))
    assert compiled == []
    monkeypatch.setattr(fleet_module, "COMPILED_FROM", 8)  # 4 steps an epoch
    train_fleet(fleet("resnet8-digits-n4", 2, epochs=1))
    assert compiled == []
    train_fleet(fleet("resnet8-digits-n4", 2, epochs=2))
    assert compiled == [2]
    monkeypatch.setattr(fleet_module, "compile_obstacle", lambda: "no compiler")
    with pytest.warns(RuntimeWarning, match="not compiled, and slower: no compiler"):
        train_fleet(fleet("resnet8-digits-n4", 2, epochs=2))
    with pytest.raises(InputError, match=r"torch.compile does not work here .no compiler.; leave out compiled=True"):
        train_fleet(fleet("resnet8-digits-n4", 2, epochs=1), compiled=True)
    assert compiled == [2]
