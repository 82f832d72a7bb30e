"""A run that was stopped and resumed ends with the numbers of one that was not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import xarray
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

from skipscope.errors import InputError
from skipscope.models.names import build
from skipscope.models.resnet import ResNet
from skipscope.training import At, History, Settings, train
from skipscope.training.checkpoint import State, structure
from tests.flips import flipped
from tests.training.nets import assert_same, blobs, net, picture_net, pictures, plain_net
from tests.training.runs import SETTINGS, STEPS, whole_run

ROOT = Path(__file__).parent.parent.parent
ON_CPU = torch.get_default_device().type == "cpu"


class StoppedError(Exception):
    pass


def stop_at(step: int) -> Any:
    def progress(done: int, total: int) -> None:
        if done == step:
            raise StoppedError

    return progress


def assert_same_runs(one: tuple[Any, History, list[At]], other: tuple[Any, History, list[At]]) -> None:
    assert_same(one[0], other[0])
    for name in ("loss", "rate", "train_accuracy", "test_accuracy"):
        assert getattr(one[1], name) == pytest.approx(getattr(other[1], name), abs=0 if ON_CPU else 0.1), name
    for first, second in zip(one[2], other[2], strict=True):
        assert list(first.results) == list(second.results) == list(first.epochs)
        for result, again in zip(first.results.values(), second.results.values(), strict=True):
            if isinstance(result, xarray.Dataset):
                (xarray.testing.assert_identical if ON_CPU else xarray.testing.assert_allclose)(result, again)
            else:
                assert result["drawn"] == again["drawn"]
                assert result["norms"] == pytest.approx(again["norms"], rel=0 if ON_CPU else 1e-2)


@pytest.fixture(scope="module")
def unstopped() -> tuple[Any, History, list[At]]:
    return whole_run(None)


@pytest.mark.parametrize("save_every", [0.0, 1e9], ids=["every epoch", "when stopped"])
@pytest.mark.parametrize("stops", [(1,), (3,), (4, 10, 11), (9, 17), (STEPS,)], ids=str)
def test_resumed(
    stops: tuple[int, ...], save_every: float, unstopped: tuple[Any, History, list[At]], tmp_path: Path
) -> None:
    path = tmp_path / "folder" / "run.safetensors"
    for step in stops:
        with pytest.raises(StoppedError):
            whole_run(path, stop_at(step), save_every)
        assert path.exists()
    calls: list[int] = []
    resumed = whole_run(path, lambda done, total: calls.append(done), save_every)
    assert calls[0] == (stops[-1] - 1) // 3 * 3 + 1
    assert_same_runs(resumed, unstopped)
    again = whole_run(path, stop_at(1))  # finished: nothing is left to do
    assert_same_runs(again, unstopped)
    assert sorted(entry.name for entry in path.parent.iterdir()) == [path.name]


def epoch_of(path: Path) -> int:
    return State.read(path).record["epoch"] if path.exists() else 0


@pytest.mark.skipif(not ON_CPU, reason="the subprocess is on the CPU")
def test_resumed_after_a_kill(unstopped: tuple[Any, History, list[At]], tmp_path: Path) -> None:
    path = tmp_path / "run.safetensors"
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.training.runs", str(path)], cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    try:
        end = time.monotonic() + 120
        while epoch_of(path) < 2 and time.monotonic() < end and process.poll() is None:
            time.sleep(0.02)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert process.returncode == -signal.SIGKILL
    calls: list[int] = []
    assert_same_runs(whole_run(path, lambda done, total: calls.append(done)), unstopped)
    assert calls[0] > 6


def test_float16_resumes_with_its_scale(tmp_path: Path) -> None:
    path = tmp_path / "run.safetensors"
    expected = whole_run(None, precision="float16")
    with pytest.raises(StoppedError):
        whole_run(path, stop_at(8), precision="float16")
    assert_same_runs(whole_run(path, precision="float16"), expected)


def test_a_diverged_run_stays_diverged(tmp_path: Path) -> None:
    path, settings = tmp_path / "run.safetensors", Settings(epochs=50, batch=16, rate=1e30)
    first = train(plain_net(), blobs(), settings, checkpoint=path)
    again = train(plain_net(), blobs(), settings, checkpoint=path, progress=stop_at(1))
    assert again.diverged_at == first.diverged_at is not None
    assert str(again.loss) == str(first.loss)  # nan is not equal to itself


def test_what_the_file_holds(tmp_path: Path) -> None:
    path = tmp_path / "run.safetensors"
    whole_run(path)
    with safe_open(path, "pt") as file:
        names = set(file.keys())
        record = json.loads(file.metadata()["skipscope"])
    assert {"model/0.weight", "model/1.running_mean", "momentum/0.weight"} <= names
    assert record["epoch"] == SETTINGS.epochs
    assert record["identity"]["rate"] == SETTINGS.rate


class Scaled(nn.Module):
    """Its weights' shape is nowhere but in the weights."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(size, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale.sum(0)


def test_weights_of_other_shapes_are_refused(tmp_path: Path) -> None:
    path, settings = tmp_path / "run.safetensors", Settings(epochs=1, batch=16)
    train(Scaled(2), blobs(), settings, checkpoint=path)
    with pytest.raises(InputError, match=r"model/scale: shape \[2, 3\] was, \[4, 3\] is"):
        train(Scaled(4), blobs(), settings, checkpoint=path)


def test_weights_of_equal_shapes_may_belong_to_another_network(tmp_path: Path) -> None:
    path, settings = tmp_path / "run.safetensors", Settings(epochs=1, batch=16)

    def twin(**options: Any) -> ResNet:
        return ResNet(8, channels=(2, 2, 2), input_channels=2, classes=3, **options)

    train(twin(), pictures(), settings, checkpoint=path)
    for options, message in (({"skips": False}, "skips=False"), ({"activation": "linear"}, "activation=linear")):
        with pytest.raises(InputError, match="another training") as caught:
            train(twin(**options), pictures(), settings, checkpoint=path)
        assert message in str(caught.value)
    train(twin(), pictures(), settings, checkpoint=path, progress=stop_at(1))  # itself: nothing is left to do


def test_every_setting_of_a_network_is_in_its_structure() -> None:
    base = {"depth": 11, "block": "bottleneck", "channels": (4, 4, 4)}
    others: list[dict[str, Any]] = [
        {},
        {"skips": False},
        {"preactivation": True},
        {"shortcut": "projection"},
        {"batch_norm": False},
        {"activation": "linear"},
        {"stochastic_depth": 0.5},
        {"cardinality": 2, "group_width": 2},
        {"channels": (4, 4, 8)},
    ]
    found = [structure(ResNet(**{**base, **other})) for other in others]
    assert len({str(one) for one in found}) == len(others)
    assert structure(build("resnet8-digits")) == structure(build("resnet8-digits").eval())
    assert "0x" not in str(found)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"settings": Settings(epochs=2, batch=16, rate=0.2)}, "rate was 0.1 and is 0.2"),
        ({"settings": Settings(epochs=3, batch=16)}, "epochs was 2 and is 3"),
        ({"split": blobs(90)}, "training data was"),
        ({"test": blobs(12)}, "test data was None"),
        ({"model": nn.Linear(3, 3)}, "model was 'Sequential' and is 'Linear'"),
        ({"model": nn.Sequential(nn.Linear(3, 9), nn.Linear(9, 3))}, "module 0 was 'Linear("),
        ({"model": Scaled(2)}, "model was 'Sequential' and is 'Scaled'"),
        ({"hooks": [At([1], lambda *_: {}, name="new")]}, "the hook 'new' has no result"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_another_training_is_refused(changed: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = tmp_path / "run.safetensors"
    same: dict[str, Any] = {"split": blobs(), "settings": Settings(epochs=2, batch=16)}
    train(net(), checkpoint=path, **same)
    before = path.read_bytes()
    model = changed.pop("model", None) or net()
    with pytest.raises(InputError, match="another training") as caught:
        train(model, checkpoint=path, **{**same, **changed})
    assert message in str(caught.value)
    assert path.read_bytes() == before


def test_a_broken_file_is_refused(tmp_path: Path) -> None:
    path, settings = tmp_path / "run.safetensors", Settings(epochs=1, batch=16)
    train(net(), blobs(), settings, checkpoint=path)
    whole = path.read_bytes()
    for broken in (whole[: len(whole) // 2], whole[:-1], whole[:5], b"", b"x" * 100, whole.replace(b"skips", b"other")):
        path.write_bytes(broken)
        with pytest.raises(InputError, match="not a whole checkpoint"):
            train(net(), blobs(), settings, checkpoint=path)
    path.unlink()
    path.mkdir()
    with pytest.raises(InputError, match="not a whole checkpoint"):
        train(net(), blobs(), settings, checkpoint=path)


def test_a_flipped_bit_is_never_another_network(tmp_path: Path) -> None:
    """Not even one in the header: it is refused, and neither taken for a kill nor resumed from."""
    path = tmp_path / "run.safetensors"
    with pytest.raises(StoppedError):
        whole_run(path, stop_at(8))
    whole = path.read_bytes()
    for place, changed in flipped(whole, 300):
        path.write_bytes(changed)
        with pytest.raises(InputError, match=r"not a whole checkpoint|expected format") as caught:
            State.read(path)
        assert "delete it to train again" in str(caught.value) or "format" in str(caught.value), place
    changed = whole[:-1] + bytes([whole[-1] ^ 1])  # in a weight
    path.write_bytes(changed)
    with pytest.raises(InputError, match="changed after it was written"):
        whole_run(path)
    assert path.read_bytes() == changed  # left for the user to decide about


def test_a_checkpoint_of_before_there_were_digests_is_resumed_with_a_warning(
    unstopped: tuple[Any, History, list[At]], tmp_path: Path
) -> None:
    path = tmp_path / "run.safetensors"
    with pytest.raises(StoppedError):
        whole_run(path, stop_at(8))
    state = State.read(path)
    save_file(state.tensors, path, {"skipscope": json.dumps({**state.record, "format": 1})})
    with pytest.warns(UserWarning, match="older version, without a digest"):
        resumed = whole_run(path)
    assert_same_runs(resumed, unstopped)
    save_file(state.tensors, path, {"skipscope": json.dumps(state.record)})
    with pytest.raises(InputError, match="lost the digest"):
        whole_run(path)


def test_a_hook_that_fails_leaves_the_last_epoch(tmp_path: Path) -> None:
    path, settings = tmp_path / "run.safetensors", Settings(epochs=3, batch=16)

    def fails(model: nn.Module, epoch: int, history: History) -> None:
        raise StoppedError

    with pytest.raises(StoppedError):
        train(picture_net(), pictures(), settings, checkpoint=path, hooks=[At([2], fails, name="measure")])
    calls: list[int] = []
    hook = At([2], lambda *_: {"x": 1}, name="measure")
    train(
        picture_net(),
        pictures(),
        settings,
        checkpoint=path,
        hooks=[hook],
        progress=lambda done, total: calls.append(done),
    )
    assert calls[0] == 4
    assert hook.results == {2: {"x": 1}}
