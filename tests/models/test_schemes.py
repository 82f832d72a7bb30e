"""Weights under the names of other libraries: the foreign names are written out here, away from the rules."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor

from skipscope.errors import InputError
from skipscope.models import ResNet, build
from skipscope.models.weights import load_weights

State = dict[str, Tensor]


def trained(name: str) -> ResNet:
    """With every tensor drawn, so that one in the wrong place shows in the output."""
    torch.manual_seed(5)
    net = build(name).eval()
    for value in net.state_dict().values():
        if value.is_floating_point():
            value.copy_(torch.rand_like(value) * 0.2 + (0.9 if value.dim() == 1 else -0.1))
    return net


def layered(state: State, shortcut: str, classifier: str, final: str = "bn1") -> State:
    foreign = {}
    for key, value in state.items():
        key = re.sub(r"^stage", "layer", key)
        key = re.sub(r"(\.)norm(\d)", r"\1bn\2", key)
        key = re.sub(r"^conv\.", "conv1.", key)
        key = re.sub(r"^norm\.", "bn1.", key)
        key = re.sub(r"^final_norm\.", f"{final}.", key)
        foreign[key.replace(".shortcut.", f".{shortcut}.").replace("classifier", classifier)] = value
    return foreign


def pytorchcv(state: State, pre: bool, output: str = "output") -> State:
    foreign = {}
    for key, value in state.items():
        if found := re.match(r"stage(\d)\.(\d+)\.(conv|norm)(\d)\.(.*)", key):
            stage, block, kind, layer, what = found.groups()
            kind = {"conv": "conv", "norm": "bn"}[kind]
            key = f"features.stage{stage}.unit{int(block) + 1}.body.conv{layer}.{kind}.{what}"
        elif found := re.match(r"stage(\d)\.(\d+)\.shortcut\.(\d)\.(.*)", key):
            stage, block, layer, what = found.groups()
            part = "" if pre else {"0": "conv.", "1": "bn."}[layer]
            key = f"features.stage{stage}.unit{int(block) + 1}.identity_conv.{part}{what}"
        elif key.startswith("conv."):
            key = f"features.init_block.{'' if pre else 'conv.'}weight"
        elif key.startswith("norm."):
            key = key.replace("norm.", "features.init_block.bn.")
        elif key.startswith("final_norm."):
            key = key.replace("final_norm.", "features.post_activ.bn.")
        else:
            key = key.replace("classifier", output)
        foreign[key] = value
    return foreign


WAYS: dict[str, Callable[[State, bool], State]] = {
    "ours": lambda state, pre: state,
    "port": lambda state, pre: layered(state, "shortcut", "linear"),
    "data parallel port": lambda state, pre: {
        f"module.{key}": value for key, value in layered(state, "shortcut", "linear").items()
    },
    "torchvision": lambda state, pre: layered(state, "downsample", "fc"),
    "torchvision with a final bn": lambda state, pre: layered(state, "downsample", "fc", final="bn"),
    "mixed": lambda state, pre: layered(state, "downsample", "linear"),
    "pytorchcv": pytorchcv,
    "pytorchcv with output.fc": lambda state, pre: pytorchcv(state, pre, "output.fc"),
}
NETS = [
    "resnet14-digits",
    "resnet14-digits-projection",
    "resnet20-digits-bottleneck-projection",
    "preresnet14-digits-projection",
    "preresnet20-digits-bottleneck-projection",
    "resnext20-digits-bottleneck-projection-c4",
]


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("way", WAYS)
def test_every_scheme_is_read(way: str, name: str, tmp_path: Path) -> None:
    there, here = trained(name), build(name).eval()
    torch.save({"net": WAYS[way](there.state_dict(), there.preactivation), "acc": 93.4}, tmp_path / "weights.pt")
    load_weights(here, tmp_path / "weights.pt")
    x = torch.randn(2, 1, 8, 8)
    assert torch.equal(here(x), there(x))


def test_a_training_state_may_hold_tensors_beside_the_weights(tmp_path: Path) -> None:
    there, here = trained("resnet8-digits"), build("resnet8-digits").eval()
    torch.save({"step": torch.tensor(3), "state_dict": there.state_dict()}, tmp_path / "weights.pt")
    load_weights(here, tmp_path / "weights.pt")
    assert torch.equal(here.conv.weight, there.conv.weight)


def refusal(state: Any, name: str, folder: Path) -> str:
    torch.save(state, folder / "weights.pt")
    net = build(name)
    before = {key: value.clone() for key, value in net.state_dict().items()}
    with pytest.raises(InputError) as caught:
        load_weights(net, folder / "weights.pt")
    assert all(torch.equal(value, before[key]) for key, value in net.state_dict().items())  # nothing by half
    return str(caught.value)


def test_projections_for_a_network_without_say_so(tmp_path: Path) -> None:
    with_weights = trained("resnet8-digits-projection").state_dict()
    for way in ("ours", "port", "torchvision", "pytorchcv"):
        message = refusal(WAYS[way](with_weights, False), "resnet8-digits", tmp_path)
        assert "build with -projection" in message
    without = trained("resnet8-digits").state_dict()
    assert "build without -projection" in refusal(without, "resnet8-digits-projection", tmp_path)


@pytest.mark.parametrize(
    ("file", "model", "message"),
    [
        ("resnet14-digits", "resnet8-digits", "depth 14 in the file, 8 in the model.*[Nn]ame the depth 14"),
        ("resnet11-digits-bottleneck", "resnet8-digits", "[Bb]uild with -bottleneck"),
        ("resnet8-digits", "resnet11-digits-bottleneck", "[Bb]uild without -bottleneck"),
        ("resnet8-digits-w2", "resnet8-digits", "channels 32 in the file, 16 in the model"),
        ("resnet8-cifar100", "resnet8-cifar", "classes 100 in the file, 10 in the model"),
        ("resnet8-cifar", "resnet8-digits", "input_channels 3 in the file, 1 in the model"),
        ("resnet8-digits", "preresnet8-digits", "without pre"),
        ("preresnet8-digits", "resnet8-digits", "with pre"),
        ("resnet8-digits-nonorm", "resnet8-digits", "batch_norm False in the file, True in the model"),
    ],
)
def test_another_network_is_named(file: str, model: str, message: str, tmp_path: Path) -> None:
    foreign = layered(trained(file).state_dict(), "shortcut", "linear")
    said = refusal(foreign, model, tmp_path)
    assert re.search(message, said), said
    assert "CIFAR port" in said


def test_a_wrong_shape_is_shown(tmp_path: Path) -> None:
    state = trained("resnet8-digits").state_dict()
    state["stage2.0.conv2.weight"] = torch.zeros(32, 32, 5, 5)
    message = refusal(state, "resnet8-digits", tmp_path)
    assert "stage2.0.conv2.weight 32x32x5x5 in the file, 32x32x3x3 in the model" in message


BOTTLENECK = "resnet11-digits-bottleneck"


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        (net, key)
        for net in ("resnet8-digits", BOTTLENECK)
        for key in build(net).state_dict()
        if "num_batches" not in key
    ],
)
def test_a_file_without_one_tensor_names_it(name: str, missing: str, tmp_path: Path) -> None:
    state = trained(name).state_dict()
    del state[missing]
    assert f"1 missing ({missing})" in refusal(state, name, tmp_path)


@pytest.mark.parametrize("name", ["resnet8-digits", BOTTLENECK])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (4, 0), (0, 4, 3, 3), (4, 0, 3, 3), (2, 2, 2, 2, 2)])
def test_tensors_of_another_rank_are_shown(name: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    state = {key: torch.zeros(shape) for key in build(name).state_dict()}
    assert "of another shape" in refusal(state, name, tmp_path)


@pytest.mark.parametrize("key", ["stage1.{}.conv1.weight", "features.stage1.unit{}.body.conv1.conv.weight"])
def test_numbers_that_python_does_not_read_are_names_like_others(key: str, tmp_path: Path) -> None:
    message = refusal({key.format("9" * 5000): torch.zeros(3)}, "resnet8-digits", tmp_path)
    assert "1 unexpected" in message


def test_names_of_no_scheme_are_shown(tmp_path: Path) -> None:
    message = refusal({"encoder.weight": torch.zeros(3)}, "resnet8-digits", tmp_path)
    assert "1 unexpected (encoder.weight)" in message


class Trap:
    """Unpickled, it would write a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return Path.write_text, (self.path, "ran")


@pytest.mark.parametrize("zipped", [True, False])
def test_code_in_a_pickle_is_not_run(zipped: bool, tmp_path: Path) -> None:
    mark, path = tmp_path / "mark", tmp_path / "weights.pt"
    state = {"state_dict": trained("resnet8-digits").state_dict(), "extra": Trap(mark)}
    torch.save(state, path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(InputError, match=r"could run code.*save_file"):
        load_weights(build("resnet8-digits"), path)
    assert not mark.exists()
    torch.load(path, weights_only=False)
    assert mark.read_text() == "ran"  # the trap was a real one


# ---- real weights


@pytest.mark.slow
@pytest.mark.skipif(
    not (os.environ.get("SKIPSCOPE_DATA") and os.environ.get("SKIPSCOPE_RESNET56")),
    reason="needs SKIPSCOPE_DATA (a folder with cifar-10-batches-bin) and SKIPSCOPE_RESNET56 (its trained weights)",
)
def test_the_trained_resnet56_reaches_its_published_accuracy() -> None:
    net = build("resnet56-cifar").eval()
    load_weights(net, Path(os.environ["SKIPSCOPE_RESNET56"]))
    file = Path(os.environ["SKIPSCOPE_DATA"]) / "cifar-10-batches-bin" / "test_batch.bin"
    records = torch.from_numpy(numpy.fromfile(file, dtype=numpy.uint8).reshape(10_000, 3073))
    mean, deviation = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    correct = 0
    with torch.no_grad():
        for part in records.split(500):
            images = part[:, 1:].reshape(-1, 3, 32, 32) / 255
            outputs = net((images - mean[:, None, None]) / deviation[:, None, None])
            correct += int((outputs.argmax(1) == part[:, 0]).sum())
    assert correct == pytest.approx(9339, abs=1)  # one image may fall on the other side on another machine
