"""Files that somebody made with care, so that they fit their digests and mean nothing: each is a message."""

from __future__ import annotations

import json
import os
import pickle
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from skipscope.data import cifar
from skipscope.errors import InputError
from skipscope.sealed import tensor_file
from skipscope.training import Settings, train
from skipscope.training.checkpoint import HEADER, State
from tests.commands import run_command
from tests.redteam import fuzz
from tests.training.nets import picture_net, pictures

SETTINGS = Settings(epochs=2, batch=16)


def test_a_cifar_batch_200_000_tuples_deep(tmp_path: Path) -> None:
    for name in cifar.CIFAR10.files:
        (tmp_path / name).write_bytes(b"\x80\x02})" + b"\x85" * 200_000 + b"K\x01s.")
    with pytest.raises(InputError, match=r"data_batch_1: cannot be read as a pickle \(tuples inside of each other"):
        cifar.read(tmp_path, cifar.CIFAR10)


@pytest.fixture(name="kept", scope="module")
def _kept(tmp_path_factory: pytest.TempPathFactory) -> State:
    path = tmp_path_factory.mktemp("kept") / "a.safetensors"
    train(picture_net(), pictures(), SETTINGS, checkpoint=path, save_every=0.0)
    return State.read(path)


@pytest.mark.parametrize("name", ["identity", "history", "format"])
@pytest.mark.parametrize("value", [None, [], {}, "x", -1, {"a": [[]]}, "gone"], ids=str)
def test_a_checkpoint_with_an_odd_record(name: str, value: Any, kept: State, tmp_path: Path) -> None:
    record = {**kept.record, name: value}
    if value == "gone":
        del record[name]
    (tmp_path / "a.safetensors").write_bytes(tensor_file(kept.tensors, {HEADER: json.dumps(record)}))
    with pytest.raises(InputError, match=r"a\.safetensors"):
        train(picture_net(), pictures(), SETTINGS, checkpoint=tmp_path / "a.safetensors")


@pytest.mark.parametrize("count", [40, pytest.param(400, marks=pytest.mark.slow)])
def test_headers_of_checkpoints(count: int, tmp_path: Path) -> None:
    chosen = random.Random(count)
    for _ in range(count):
        (tmp_path / "a.safetensors").write_bytes(fuzz.safetensors_headers(chosen))
        with pytest.raises(InputError, match=r"a\.safetensors"):
            train(picture_net(), pictures(), SETTINGS, checkpoint=tmp_path / "a.safetensors")


class Calls:
    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return (os.mkdir, (str(self.file),))


def test_weights_of_a_transformer_that_are_a_pickle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    transformers = pytest.importorskip("transformers")
    folder = tmp_path / "model"
    sizes = {
        "n_layer": 1,
        "n_embd": 8,
        "n_head": 2,
        "vocab_size": 20,
        "n_positions": 8,
        "bos_token_id": 0,
        "eos_token_id": 0,
    }
    transformers.GPT2Config(**sizes).save_pretrained(folder)
    contents = {
        "could run code": pickle.dumps({"a": Calls(tmp_path / "ran")}),
        "51 deep": b"\x80\x02})" + b"\x85" * 200_000 + b"K\x01s.",
        "cannot be loaded": b"PK\x03\x04 and no more",
        "was not loaded": pickle.dumps({"a": torch.zeros(1)}, protocol=2),
    }
    for expected, content in contents.items():
        (folder / "pytorch_model.bin").write_bytes(content)
        assert run_command(monkeypatch, "units", f"hf:{folder}", "--replay") == 2
        err = capsys.readouterr().err
        assert expected in err
        assert "Traceback" not in err
        assert "weights_only" not in err
    assert not (tmp_path / "ran").exists()
