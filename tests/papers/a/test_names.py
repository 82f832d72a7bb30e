"""skipscope:type1-..., skipscope:type2-..., skipscope:type3-..., and what they are trained on."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from skipscope.data import Dataset, Images, digits
from skipscope.errors import InputError
from skipscope.models import build, resolve
from skipscope.models.names import parse
from skipscope.papers.a.networks import AlignmentNet, AlignmentSpec
from skipscope.trace import trace
from skipscope.training import Settings, train
from skipscope.training.networks import Network


@pytest.mark.parametrize(
    ("name", "spec"),
    [
        ("type1-mnist", AlignmentSpec(1)),
        ("type1-mnist-w64-b16", AlignmentSpec(1, 16, 64)),
        ("type1-cifar100-w512", AlignmentSpec(1, 16, 512, (3, 32, 32), 100)),
        ("type2-cifar10-w16-b8-p4", AlignmentSpec(2, 8, 16, (3, 32, 32), patch=4)),
        ("type3-cifar-c5-preactivation", AlignmentSpec(3, input_shape=(3, 32, 32), classes=5, preactivation=True)),
        ("type3-imagenette32-noskips", AlignmentSpec(3, input_shape=(3, 32, 32), skips=False)),
        ("type2-imagenette-drop20", AlignmentSpec(2, input_shape=(3, 64, 64), stochastic_depth=0.2)),
        ("type1-mnist-b6-skip25", AlignmentSpec(1, 6, skip_factor=0.25)),
        ("type1-digits-drop5-decay", AlignmentSpec(1, input_shape=(1, 8, 8), stochastic_depth=0.05, decay=True)),
    ],
)
def test_a_name_stands_for_a_spec(name: str, spec: AlignmentSpec) -> None:
    assert parse(name) == dataclasses.asdict(spec)
    with torch.device("meta"):
        net = build(name)
    assert isinstance(net, AlignmentNet)
    assert net.spec == spec


@pytest.mark.parametrize("name", ["type1-digits-w8-b2", "type2-mnist-w2-b1", "type3-imagenette32-w2-b2"])
def test_a_source_has_a_batch_that_fits(name: str) -> None:
    source = resolve(f"skipscope:{name}")
    assert isinstance(source.batch, Tensor)
    assert source.model(source.batch).shape == (2, 10)
    assert str(source) == f"skipscope {name}, random weights"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("type4-mnist", r"no type 'type4'; did you mean type\d\? \(types: type1, type2, type3; a name is TYPE - INPUT"),
        ("type-mnist", "no type 'type'"),
        ("typo1-mnist", "no family 'typo'.*families: resnet, .*, type1, type2, type3"),
        ("type1", "no input .*inputs: cifar, cifar100, mnist, digits, imagenette, cifar10, imagenette32"),
        ("type1-mnits", "no input 'mnits'; did you mean mnist"),
        ("type1-mnist-noskip", "no option 'noskip'; did you mean noskips"),
        ("type1-mnist-q3", r"no option 'q3' \(options: preactivation, noskips, decay, wK, bK, cK, pK, dropK"),
        ("type1-mnist-w0", "'w0' expected a number of at least 1 and at most 10000"),
        (f"type1-mnist-b{'9' * 5000}", "at most 10000"),
        ("type1-mnist-drop100", "'drop100' expected a number of at least 1 and at most 99"),
        ("type1-mnist-skip100", "'skip100' expected a number of at least 1 and at most 99"),
        ("type2-mnist-skip50", "skip_factor: expected skips, of a fully connected network"),
        ("type1-mnist-noskips-skip50", "skip_factor: expected skips"),
        ("type1-mnist-w8-w16", "'w16' says width a second time"),
        ("type1-mnist-p2", "type1 has a stem of its own, so 'p2' has no meaning; use type2"),
        ("type3-mnist-p2", "use type2"),
        ("type2-digits-p16", "skipscope:type2-digits-p16: .*got 16 for images of 1 x 8 x 8"),
        ("type1-mnist-noskips-drop20", "skipscope:type1-mnist-noskips-drop20: .*expected skips"),
        ("type1-mnist-decay", "decay: expected a stochastic_depth above 0"),
        ("type1-mnist-", "no option ''"),
    ],
)
def test_a_wrong_name_says_what_is_allowed(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse(name)


# ---- training


def data_of(shape: tuple[int, ...], classes: int) -> Dataset:
    split = Images(torch.zeros(classes, *shape), torch.arange(classes))
    return Dataset("made up", tuple(map(str, range(classes))), split, split)


@pytest.mark.parametrize(
    ("name", "data", "advice"),
    [
        ("type1-digits-w8", data_of((1, 28, 28), 10), "take type1-mnist-w8$"),
        ("type1-digits-w8", digits().subset(classes=[3, 5]), "take type1-digits-w8-c2$"),
        ("type1-digits-c3-w8", digits(), "take type1-digits-w8$"),
        ("type2-cifar", data_of((3, 32, 32), 100), "take type2-cifar100$"),
        ("type2-cifar-c4", data_of((3, 32, 32), 7), "take type2-cifar-c7$"),
        ("type3-digits", data_of((1, 9, 9), 10), "no name of a network fits these data$"),
    ],
)
def test_data_that_do_not_fit_are_refused(name: str, data: Dataset, advice: str) -> None:
    with pytest.raises(InputError, match=advice):
        Network(name, data, Settings(1), seed=0)


def test_a_network_with_other_options_has_another_key() -> None:
    names = [f"type1-digits-w4-b2{option}" for option in ("", "-drop20", "-drop20-decay", "-noskips", "-preactivation")]
    assert len({Network(name, digits(), Settings(1), seed=0).key for name in names}) == len(names)


@pytest.mark.parametrize(
    "name",
    [
        "type1-digits-w16-b3",
        "type1-digits-w16-b3-noskips",
        "type1-digits-w16-b3-drop20",
        "type2-digits-w8-b2-preactivation",
        "type3-digits-w8-b3",
    ],
)
def test_it_learns(name: str) -> None:
    data, settings = digits(), Settings(epochs=8)
    network = Network(name, data, settings, seed=0)
    history = train(network.initial(), data.train, settings, test=data.test, test_every=8)
    assert history.status == "finished"
    assert (history.test_accuracy[-1] or 0) > 0.9


def test_it_learns_from_changed_images() -> None:
    data = digits().subset(samples=600)
    losses = {}
    for augmentation in ("none", "paper-a"):
        settings = Settings(epochs=4, augmentation=augmentation)
        network = Network("type3-digits-w8-b2-drop20", data, settings, seed=0)
        losses[augmentation] = train(network.initial(), data.train, settings).loss
    assert losses["paper-a"][-1] < losses["paper-a"][0]
    assert losses["paper-a"][-1] > losses["none"][-1]


def test_stochastic_depth_follows_the_seed() -> None:
    data = digits().subset(samples=300)

    def losses(seed: int) -> list[float]:
        network = Network("type1-digits-w4-b2-drop50", data, Settings(2), seed=0)
        return train(network.initial(), data.train, Settings(2, seed=seed)).loss

    assert losses(0) == losses(0)
    assert losses(0) != losses(1)


def test_a_weakened_skip_lets_a_part_of_the_state_through() -> None:
    whole, half = (build(f"type1-digits-w8-b2{option}").eval() for option in ("", "-skip50"))
    half.load_state_dict(whole.state_dict())
    state = torch.rand(3, 8)
    for one, other in zip(whole.stage1, half.stage1, strict=True):
        branch = one.branch(state)
        assert torch.equal(one(state), torch.relu(state + branch))
        assert torch.equal(other(state), torch.relu(0.5 * state + branch))
    trunk = trace(half, torch.rand(2, 1, 8, 8))
    assert len(trunk.units) == 2
