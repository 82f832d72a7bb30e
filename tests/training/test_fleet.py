"""Fleets: members are what they are when trained alone, and the same again to the last bit."""

from __future__ import annotations

import copy
import dataclasses
import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from skipscope.data.dataset import Images
from skipscope.errors import InputError
from skipscope.models import names
from skipscope.training import At, FleetMember, History, Settings, train, train_fleet
from skipscope.training.fleet import stacks_of
from skipscope.training.fleet_member import fleet_obstacle, stack_obstacle, stackable_groups
from tests import seeded
from tests.slow import thinned
from tests.training.nets import assert_same, weights

CLASSES = 10
SETTINGS = Settings(epochs=10, batch=16, rate=0.05)  # 10 steps an epoch
ONE_DIVERGES = [0.01] * 4 + [1e9] + [0.01] * 4  # rates of nine members
TYPE1, TWIN = "type1-digits-w12-b3", "resnet8-digits-connected-n8"


def split(samples: int = 160, labels: int = 0, shape: tuple[int, ...] = (1, 8, 8)) -> Images:
    """Bytes, as data sets have them. labels: a seed."""
    pixels = torch.randint(256, (samples, *shape), generator=seeded.generator(0), dtype=torch.uint8)
    return Images(pixels, torch.randint(CLASSES, (samples,), generator=seeded.generator(1 + labels)))


def built(name: str, seed: int, dtype: torch.dtype = torch.float64) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return names.build(name).to(dtype)


def fleet(name: str = TYPE1, count: int = 3, dtype: torch.dtype = torch.float32, **settings: Any) -> list[FleetMember]:
    own = dataclasses.replace(SETTINGS, **settings)
    data, test = split(), split(48)
    return [
        FleetMember(built(name, seed, dtype), data, dataclasses.replace(own, seed=seed), test) for seed in range(count)
    ]


def alone(members: list[FleetMember], **options: Any) -> tuple[list[nn.Module], list[History]]:
    """The same networks, one after another; call it before the fleet is trained."""
    models = [copy.deepcopy(member.model) for member in members]
    histories = [
        train(model, member.split, member.settings, test=member.test, **options)
        for model, member in zip(models, members, strict=True)
    ]
    return models, histories


def without_times(history: History) -> dict[str, Any]:
    return history.to_dict() | {"seconds": None}


def assert_equal_to_rounding(members: list[FleetMember], tolerance: float = 1e-10) -> None:
    models, expected = alone(members)
    for member, model, found, reference in zip(members, models, train_fleet(members), expected, strict=True):
        for name, value in model.state_dict().items():
            got = member.model.state_dict()[name]
            torch.testing.assert_close(got, value, rtol=tolerance, atol=tolerance)
        assert found.rate == reference.rate
        assert found.loss == pytest.approx(reference.loss, rel=1e-6)  # kept in float32 in both
        assert found.train_accuracy == reference.train_accuracy
        assert found.test_accuracy == reference.test_accuracy
        assert found.diverged_at is None


# -- the same as alone


ARCHITECTURES = (
    TYPE1,
    "type1-digits-w12-b3-preactivation",
    "type1-digits-w12-b3-noskips",
    "type1-digits-w12-b3-drop30",
    TWIN,
    "plainnet8-digits-connected-n8",
    "resnext8-digits-connected-n8",
    "preresnet8-digits-connected-n8",
    "preresnet8-digits-connected-n8-nonorm",
    "resnet8-digits-connected-n8-nonorm",
    "resnet8-digits-connected-n8-linear-scale50",
    "diracnet8-digits-connected-n8",
    "diracnet8-digits-connected-n8-additive",
)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_each_member_is_what_it_is_alone(name: str) -> None:
    """For 20 steps, in which every operation of an architecture has its turn."""
    assert_equal_to_rounding(fleet(name, dtype=torch.float64, rate=0.02, epochs=2))


@pytest.mark.parametrize("name", thinned(ARCHITECTURES, fast=(TYPE1, TWIN)))
def test_each_member_is_what_it_is_alone_over_100_steps(name: str) -> None:
    assert_equal_to_rounding(fleet(name, dtype=torch.float64, rate=0.02))


@pytest.mark.parametrize("name", ["type1-digits-w64-b16", "resnet60-digits-connected", "plainnet60-digits-connected"])
def test_rounding_grows_as_it_does_in_any_training_of_a_deep_network(name: str) -> None:
    """The steps of deep networks magnify any difference; a fleet makes no more of one than initial weights do."""
    settings = dataclasses.replace(SETTINGS, epochs=1, rate=0.01)
    members = [FleetMember(built(name, seed), split(48), settings) for seed in range(2)]
    reference, changed = (copy.deepcopy(members[0].model) for _ in range(2))
    with torch.no_grad():
        for weight in changed.parameters():
            weight.mul_(1 + 1e-15 * torch.randn(weight.shape, generator=seeded.generator(3)).sign().double())
    for model in (reference, changed):
        train(model, members[0].split, settings)
    train_fleet(members)
    assert largest_difference(members[0].model, reference) <= 10 * largest_difference(changed, reference)


def largest_difference(one: nn.Module, other: nn.Module) -> float:
    return max(
        float((value - other.state_dict()[name]).abs().max() / value.abs().max().clamp(min=1))
        for name, value in one.state_dict().items()
    )


@pytest.mark.parametrize(
    "settings",
    [
        {"nesterov": True, "decay_norms": False, "label_smoothing": 0.1},
        {"momentum": 0.0, "schedule": "step", "milestones": (3, 6)},
        {"augmentation": "crop", "warmup": 2},
    ],
)
def test_settings_mean_the_same(settings: dict[str, Any]) -> None:
    assert_equal_to_rounding(fleet(dtype=torch.float64, **settings))


def test_members_differ_in_all_that_can_differ() -> None:
    data, other, test = split(), split(labels=5), split(48)
    a = Settings(epochs=10, batch=16, rate=0.1, seed=1, weight_decay=0.0, clip=0.5)
    b = Settings(epochs=10, batch=16, rate=0.01, seed=2, weight_decay=0.01, schedule="constant")
    c = Settings(epochs=10, batch=16, rate=0.05, seed=3, clip=2.0, warmup=1, augmentation="crop-flip")
    members = [
        FleetMember(built("resnet8-digits-connected-n8", 1), data, a, test),
        FleetMember(built("resnet8-digits-connected-n8-scale30", 2), data.with_labels(other.labels), b, test),
        FleetMember(built("resnet8-digits-connected-n8-orthogonal", 3), other, c, test),
    ]
    assert_equal_to_rounding(members)


def test_members_have_their_own_factors_of_skips() -> None:
    members = fleet(TYPE1, dtype=torch.float64, rate=0.02)
    members[1] = dataclasses.replace(members[1], model=built(f"{TYPE1}-skip50", 1))
    members[2] = dataclasses.replace(members[2], model=built(f"{TYPE1}-skip90-drop20", 2))
    assert_equal_to_rounding(members)


def test_a_fleet_of_several_stacks() -> None:
    assert_equal_to_rounding(fleet(count=9, dtype=torch.float64, epochs=3))


def test_a_unit_that_is_always_the_same_has_a_running_variance_that_is_not_negative() -> None:
    black = Images(torch.zeros_like(split().pixels), split().labels)
    members = [dataclasses.replace(member, split=black) for member in fleet(epochs=1)]
    for member in members:
        nn.init.zeros_(member.model.get_submodule("norm").get_buffer("running_var"))
    train_fleet(members)
    for member in members:
        found = member.model.get_submodule("norm").get_buffer("running_var")
        assert 0 <= found.min() <= found.max() < 1e-11


def test_hooks_see_each_network_as_it_is() -> None:
    def norms(model: nn.Module, epoch: int, history: History) -> dict[str, Any]:
        return {
            "norm": float(sum(w.detach().norm() for w in model.parameters())),
            "drawn": float(torch.rand(1)),
            "epoch": epoch,
        }

    members = fleet(epochs=2, dtype=torch.float64)
    hooks = [At([0, 1, 2], norms, "norms") for _ in members]
    expected = []
    for member in members:
        hook = At([0, 1, 2], norms, "norms")
        train(copy.deepcopy(member.model), member.split, member.settings, hooks=[hook])
        expected.append(hook.results)
    train_fleet([dataclasses.replace(m, hooks=[h], test=None) for m, h in zip(members, hooks, strict=True)])
    for hook, reference in zip(hooks, expected, strict=True):
        assert {e: r["drawn"] for e, r in hook.results.items()} == {e: r["drawn"] for e, r in reference.items()}
        assert hook.results[2]["norm"] == pytest.approx(reference[2]["norm"], rel=1e-10)


def test_the_random_state_of_the_program_and_the_networks_modes_stay() -> None:
    members = fleet(epochs=1, augmentation="crop-flip")
    members[0].model.eval()
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    train_fleet(members)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == threads
    assert not members[0].model.training
    assert members[1].model.training


def test_members_own_their_weights_afterwards() -> None:
    members = fleet(epochs=1)
    train_fleet(members)
    for member in members:
        for tensor in (*member.model.parameters(), *member.model.buffers()):
            assert tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
        assert all(weight.grad is None for weight in member.model.parameters())


# -- the same again


@pytest.mark.parametrize("threads", [1, 2])
def test_the_same_fleet_gives_the_same_bits_on_any_number_of_threads(threads: int) -> None:
    first, again = fleet(count=9, epochs=3), fleet(count=9, epochs=3)
    one, other = train_fleet(first), train_fleet(again, threads=threads)
    for a, b, c, d in zip(first, again, one, other, strict=True):
        assert_same(weights(a.model), weights(b.model))
        assert without_times(c) == without_times(d)


def snapshot(model: nn.Module, epoch: int, history: History) -> dict[str, Any]:
    return dict(model.state_dict())


def watched(rates: list[float] | None = None) -> list[FleetMember]:
    """Nine members in two stacks, with hooks; some rates make a member diverge."""
    members = fleet("resnet8-digits-connected-n8-nonorm", 9, epochs=4)
    return [
        dataclasses.replace(
            member,
            hooks=[At([0, 3], snapshot)],
            settings=dataclasses.replace(member.settings, rate=rate, schedule="constant"),
        )
        for member, rate in zip(members, rates or [0.01] * 9, strict=True)
    ]


@pytest.mark.parametrize(
    ("stop_after", "rates"),
    thinned(itertools.product([1, 100, 250], [None, ONE_DIVERGES]), fast=[(1, None), (100, ONE_DIVERGES), (250, None)]),
)
def test_a_resumed_fleet_ends_with_the_same_bits(tmp_path: Path, stop_after: int, rates: list[float] | None) -> None:
    whole, stopped, resumed = watched(rates), watched(rates), watched(rates)
    expected = train_fleet(whole, test_every=2)

    def stop(done: int, total: int) -> None:
        if done >= stop_after:
            raise KeyboardInterrupt

    file = tmp_path / "fleet.safetensors"
    with pytest.raises(KeyboardInterrupt):
        train_fleet(stopped, test_every=2, checkpoint=file, progress=stop)
    assert file.exists()
    found = train_fleet(resumed, test_every=2, checkpoint=file)
    for a, b, c, d in zip(whole, resumed, expected, found, strict=True):
        assert_equal_bits(a.model, b.model)
        # A text, because a loss that is not finite is not equal to itself.
        assert repr(without_times(c)) == repr(without_times(d))
        assert a.hooks[0].results.keys() == b.hooks[0].results.keys()
        assert all(repr(a.hooks[0].results[e]) == repr(b.hooks[0].results[e]) for e in a.hooks[0].results)
    # One that is finished is not trained any further.
    finished = watched(rates)
    train_fleet(finished, test_every=2, checkpoint=file, progress=stop)
    for a, b in zip(whole, finished, strict=True):
        assert_equal_bits(a.model, b.model)


def assert_equal_bits(one: nn.Module, other: nn.Module) -> None:
    """Also where values are not numbers."""
    for name, value in one.state_dict().items():
        torch.testing.assert_close(value, other.state_dict()[name], rtol=0, atol=0, equal_nan=True)


def test_a_checkpoint_of_another_fleet_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "fleet.safetensors"
    train_fleet(fleet(epochs=1), checkpoint=file)
    with pytest.raises(InputError, match=r"another training: network 0: rate was 0\.05 and is 0\.1"):
        train_fleet(fleet(epochs=1, rate=0.1), checkpoint=file)
    with pytest.raises(InputError, match="another training: members was 3 and is 4"):
        train_fleet(fleet(count=4, epochs=1), checkpoint=file)
    member = fleet(epochs=1)[0]
    with pytest.raises(InputError, match="another training"):
        train(member.model, member.split, member.settings, checkpoint=file)


def test_a_checkpoint_of_a_fleet_that_was_divided_otherwise_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "fleet.safetensors"
    train_fleet(fleet(epochs=1), checkpoint=file, stack=False)
    members = fleet(epochs=1)
    before = [weights(member.model) for member in members]
    with pytest.raises(InputError, match="another training: parts was"):
        train_fleet(members, checkpoint=file)
    for member, former in zip(members, before, strict=True):
        assert_same(weights(member.model), former)


# -- members that diverge


def test_a_member_that_diverges_stops_no_other_and_is_reported() -> None:
    rates = [0.01, 1e9, 0.01]
    members = [
        dataclasses.replace(member, settings=dataclasses.replace(member.settings, rate=rate))
        for member, rate in zip(fleet("resnet8-digits-connected-n8-nonorm", dtype=torch.float64), rates, strict=True)
    ]
    models, expected = alone(members)
    found = train_fleet(members)
    assert [history.status for history in found] == ["finished", "diverged", "finished"]
    assert found[1].diverged_at == expected[1].diverged_at
    assert found[1].epochs == expected[1].epochs
    assert found[1].test_accuracy == expected[1].test_accuracy
    for place in (0, 2):
        for name, value in models[place].state_dict().items():
            torch.testing.assert_close(members[place].model.state_dict()[name], value, rtol=1e-10, atol=1e-10)


def test_a_fleet_in_which_all_diverge_ends() -> None:
    members = fleet("resnet8-digits-connected-n8-nonorm", rate=1e9)
    assert all(history.status == "diverged" for history in train_fleet(members))


# -- progress, and what is refused


def test_progress_counts_the_steps_of_all_members_and_may_end_the_training() -> None:
    seen: list[tuple[int, int]] = []
    train_fleet(fleet(count=9, epochs=2), progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (180, 180)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)

    def fail(done: int, total: int) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        train_fleet(fleet(count=9), progress=fail)


def test_what_cannot_be_a_fleet_is_refused_with_the_reason() -> None:
    first, second, *_ = fleet()
    longer = dataclasses.replace(second, settings=dataclasses.replace(second.settings, epochs=11))
    hook = At([0], snapshot)
    cases = {
        "no members": [],
        "network 1 has epochs = 11, and network 0 has 10": [first, longer],
        "network 1 has 64 training images, and network 0 has 160": [
            first,
            dataclasses.replace(second, split=split(64)),
        ],
        "same model": [first, first],
        "members share a hook": [dataclasses.replace(one, hooks=[hook]) for one in (first, second)],
        "network 0 is trained in float16": fleet(precision="float16"),
        "network 0, Flatten, has no weight": [FleetMember(nn.Flatten(), split(), SETTINGS)],
    }
    for message, members in cases.items():
        assert message in fleet_obstacle(members)
        with pytest.raises(InputError, match="a fleet: "):
            train_fleet(members)
    assert fleet_obstacle(fleet()) == ""
    with pytest.raises(InputError, match="at least one batch of 500 images"):
        train_fleet(fleet(batch=500))


def test_what_cannot_be_stacked_says_why() -> None:
    first, second, *_ = fleet()
    cases = {
        "network 1 has momentum = 0.5, and network 0 has 0.9": [
            first,
            dataclasses.replace(second, settings=dataclasses.replace(second.settings, momentum=0.5)),
        ],
        "another architecture": [first, FleetMember(built(TYPE1, 1), split(), SETTINGS, split(48))],  # in float64
        "other test images": [first, dataclasses.replace(second, test=None)],
        "precision 'bfloat16'": fleet(precision="bfloat16"),
        "not a network": [FleetMember(nn.Sequential(nn.Flatten(), nn.Linear(64, CLASSES)), split(), SETTINGS)],
    }
    if first.device.type == "cpu":  # on a GPU convolutional networks are stacked
        cases["not a network of a matrix"] = [FleetMember(built("resnet8-digits-n8", 0), split(), SETTINGS)]
    for message, members in cases.items():
        assert message in stack_obstacle(members)
        assert not fleet_obstacle(members)
    assert stack_obstacle(fleet()) == ""


@pytest.mark.parametrize("names", [(TYPE1, f"{TYPE1}-noskips"), (TWIN, f"{TWIN}-linear")], ids=["skips", "activations"])
def test_networks_that_compute_something_else_are_different_architectures(names: tuple[str, str]) -> None:
    one, other = (FleetMember(built(name, 0), split(), SETTINGS) for name in names)
    assert "another architecture" in stack_obstacle([one, other])
    by_themselves = ([[0], [1]], []) if one.device.type == "cpu" else ([], [0, 1])
    assert stackable_groups([one, other]) == by_themselves


@pytest.mark.parametrize(
    ("members", "sizes"),
    [(1, [1]), (7, [7]), (8, [4, 4]), (17, [9, 8]), (32, [16, 16]), (33, [17, 16]), (65, [22, 22, 21])],
)
def test_sizes_of_stacks(members: int, sizes: list[int]) -> None:
    stacks = stacks_of(range(members), "cpu")
    assert [len(stack) for stack in stacks] == sizes
    assert [number for stack in stacks for number in stack] == list(range(members))


def test_hooks_of_a_network_are_called() -> None:
    """A stack would not: such a network is trained by itself."""
    several, calls = fleet(count=2, epochs=1), []
    several[0].model.get_submodule("stage1.0").register_forward_hook(lambda *_: calls.append(1))
    assert "has hooks" in stack_obstacle(several[:1])
    train_fleet([dataclasses.replace(member, test=None) for member in several])
    # Of captured steps the first three call it, and the capture.
    assert len(calls) == (10 if several[0].device.type == "cpu" else 4)


def test_a_network_alone_is_no_stack() -> None:
    members = fleet(count=1, epochs=2)
    (model,), (expected,) = alone(members)
    (found,) = train_fleet(members)
    assert_same(weights(members[0].model), weights(model))
    assert without_times(found) == without_times(expected)


def test_a_gpu_has_larger_stacks() -> None:
    assert [len(stack) for stack in stacks_of(range(100), "cuda")] == [100]
    assert [len(stack) for stack in stacks_of(range(129), "cuda")] == [65, 64]
