"""Networks side by side: each is bit by bit what it is alone. On a GPU as well: SKIPSCOPE_TEST_DEVICE=cuda."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from skipscope.data.dataset import Images
from skipscope.models import names
from skipscope.training import At, FleetMember, History, Settings, train, train_fleet
from skipscope.training.fleet_part import on_device
from skipscope.training.fleet_single import FleetSingle
from skipscope.training.fleet_stack import FleetStack
from tests import seeded
from tests.training.nets import assert_same, weights

SETTINGS = Settings(epochs=3, batch=16, rate=0.05)  # 6 steps an epoch
CONVOLUTIONAL, CONNECTED = "resnet8-digits-n4", "type1-digits-w12-b3"
DEVICE = torch.get_default_device()

pytestmark = pytest.mark.usefixtures("without_tf32")


def split(samples: int = 96, labels: int = 0) -> Images:
    """Bytes on the CPU, as data sets have them."""
    draw = seeded.generator(0)
    pixels = torch.randint(256, (samples, 1, 8, 8), generator=draw, dtype=torch.uint8, device=draw.device).cpu()
    draw = seeded.generator(1 + labels)
    return Images(pixels, torch.randint(10, (samples,), generator=draw, device=draw.device).cpu())


class Dropping(nn.Module):
    """Draws on the device in every step."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Dropout(0.3), nn.Flatten(), nn.Linear(144, 10))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


def built(name: str, seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        with torch.device("cpu"):
            model = Dropping() if name == "dropping" else names.build(name)
    return model.to(DEVICE)


def members(*kinds: str, **settings: Any) -> list[FleetMember]:
    """Of different kinds, seeds, rates and labels, with images in common."""
    images, test = split(), split(32)
    return [
        FleetMember(
            built(kind, seed),
            images.with_labels(split(labels=seed).labels),
            dataclasses.replace(SETTINGS, **{"seed": seed, "rate": 0.05 / (1 + seed)} | settings),
            test,
        )
        for seed, kind in enumerate(kinds)
    ]


def alone(fleet: list[FleetMember], **options: Any) -> tuple[list[nn.Module], list[History]]:
    models = [copy.deepcopy(member.model) for member in fleet]
    return models, [
        train(model, member.split, member.settings, test=member.test, **options)
        for model, member in zip(models, fleet, strict=True)
    ]


def without_times(history: History) -> str:
    """A text, because a loss that is not finite is not equal to itself."""
    return repr(history.to_dict() | {"seconds": None})


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"augmentation": "crop-flip", "warmup": 1, "nesterov": True},
        {"clip": 0.5, "label_smoothing": 0.1, "schedule": "step", "milestones": (2,)},
        {"precision": "bfloat16"},
    ],
    ids=["plain", "augmentation", "clip", "bfloat16"],
)
def test_each_member_is_bit_by_bit_what_it_is_alone(settings: dict[str, Any]) -> None:
    fleet = members(CONVOLUTIONAL, "plainnet8-digits-n4", "preresnet8-digits-n4", CONVOLUTIONAL, **settings)
    models, expected = alone(fleet)
    found = train_fleet(fleet, stack=False)
    for member, model, one, other in zip(fleet, models, found, expected, strict=True):
        assert_same(weights(member.model), weights(model))
        assert without_times(one) == without_times(other)


@pytest.mark.skipif(DEVICE.type != "cpu", reason="about threads of the CPU")
def test_as_many_threads_as_alone() -> None:
    """Sums of large layers depend on their number."""
    seen: list[int] = []

    class Watching(Dropping):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(torch.get_num_threads())
            return super().forward(x)

    member = members("dropping")[0]
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        train_fleet([dataclasses.replace(member, model=Watching())])
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert set(seen) == {2}


@pytest.mark.skipif(DEVICE.type != "cpu", reason="a GPU has a clock of its own")
def test_seconds_are_those_of_the_steps_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("skipscope.training.epochs.time.perf_counter", lambda: now[0])
    for part in (FleetStack, FleetSingle):
        monkeypatch.setattr(part, "test", lambda self: now.__setitem__(0, now[0] + 100))
    histories = train_fleet(members(CONNECTED, CONNECTED, CONVOLUTIONAL, epochs=1))
    assert [history.seconds for history in histories] == [[0.0]] * 3


def test_what_members_draw_themselves_is_their_own() -> None:
    fleet = members("dropping", "dropping", CONVOLUTIONAL, "dropping")
    models, expected = alone(fleet)
    before = torch.get_rng_state(), torch.cuda.get_rng_state() if DEVICE.type == "cuda" else torch.zeros(0)
    found = train_fleet(fleet, stack=False)
    for member, model, one, other in zip(fleet, models, found, expected, strict=True):
        assert_same(weights(member.model), weights(model))
        assert without_times(one) == without_times(other)
    after = torch.get_rng_state(), torch.cuda.get_rng_state() if DEVICE.type == "cuda" else torch.zeros(0)
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_stacks_and_others_are_one_fleet() -> None:
    fleet = members(CONVOLUTIONAL, CONNECTED, "plainnet8-digits-n4", CONNECTED)
    models, expected = alone(fleet)
    found = train_fleet(fleet)
    for place, (member, model) in enumerate(zip(fleet, models, strict=True)):
        stacked = place in (1, 3) or DEVICE.type == "cuda"
        tolerance = 1e-4 if stacked else 0.0  # of stacked ones in float32
        torch.testing.assert_close(weights(member.model), weights(model), rtol=tolerance, atol=tolerance)
        assert found[place].test_accuracy == expected[place].test_accuracy


def snapshot(model: nn.Module, epoch: int, history: History) -> dict[str, Any]:
    return dict(model.state_dict())


def watched(rates: list[float]) -> list[FleetMember]:
    fleet = members(CONVOLUTIONAL, "plainnet8-digits-n4-nonorm", CONNECTED)
    return [
        dataclasses.replace(
            member, hooks=[At([0, 2], snapshot)], settings=dataclasses.replace(member.settings, rate=rate)
        )
        for member, rate in zip(fleet, rates, strict=True)
    ]


@pytest.mark.parametrize("rates", [[0.05, 0.01, 0.02], [0.05, 1e9, 0.02]], ids=["all", "one diverges"])
@pytest.mark.parametrize("stop_after", [2, 22, 32])
def test_a_resumed_fleet_ends_with_the_same_bits(tmp_path: Path, stop_after: int, rates: list[float]) -> None:
    whole, stopped, resumed = watched(rates), watched(rates), watched(rates)
    expected = train_fleet(whole)
    assert expected[1].status == ("diverged" if rates[1] > 1 else "finished")

    def stop(done: int, total: int) -> None:
        if done >= stop_after:
            raise KeyboardInterrupt

    file = tmp_path / "fleet.safetensors"
    with pytest.raises(KeyboardInterrupt):
        train_fleet(stopped, checkpoint=file, progress=stop)
    assert file.exists()
    found = train_fleet(resumed, checkpoint=file)
    for a, b, c, d in zip(whole, resumed, expected, found, strict=True):
        for name, value in a.model.state_dict().items():
            torch.testing.assert_close(value, b.model.state_dict()[name], rtol=0, atol=0, equal_nan=True)
        assert without_times(c) == without_times(d)
        assert a.hooks[0].results.keys() == b.hooks[0].results.keys()


def test_modes_and_layouts_are_given_back() -> None:
    fleet = members(CONVOLUTIONAL, CONVOLUTIONAL)
    fleet[0].model.eval()
    train_fleet(fleet)
    assert not fleet[0].model.training
    assert fleet[1].model.training
    for member in fleet:
        assert all(weight.is_contiguous() and weight.grad is None for weight in member.model.parameters())


def test_images_that_members_share_are_on_the_device_once() -> None:
    fleet = on_device(members(CONVOLUTIONAL, CONVOLUTIONAL), torch.device("meta"))
    one, other = (member.split for member in fleet)
    assert isinstance(one, Images)
    assert isinstance(other, Images)
    assert one.pixels is other.pixels
    assert one.labels is not other.labels
    assert fleet[0].test is not None
    assert fleet[0].test.device.type == "meta"


@pytest.mark.skipif(DEVICE.type != "cuda", reason="steps are captured on a GPU")
def test_every_network_has_a_captured_step(captures: list[bool]) -> None:
    train_fleet(members("dropping", "dropping", CONVOLUTIONAL, CONVOLUTIONAL, CONNECTED, CONNECTED))
    assert captures == [True] * 4  # two stacks, and two networks by themselves
