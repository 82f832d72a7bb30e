"""The file of a trained network: its weights, those of its snapshots, its history, and a digest of all of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from skipscope.errors import InputError
from skipscope.sealed import read_tensors, tensor_file
from skipscope.training.history import History

HEADER = "skipscope"
AFTER = " epochs: "  # between the epoch of a snapshot and the name of a tensor
State = dict[str, Tensor]


@dataclass(frozen=True)
class NetworkFile:
    """sealed: it has a digest of the whole file, which is right. whole: that, or one of the weights, is right."""

    key: str
    state: State
    snapshots: dict[int, State]  # by epoch
    history: History
    test_accuracy: float
    sealed: bool
    whole: bool


def network_file(state: Mapping[str, Tensor], snapshots: Mapping[int, State], about: Mapping[str, Any]) -> bytes:
    """The content of a file. about: key, history, test_accuracy, and what a reader of the file is to know."""
    together = dict(state)
    for epoch, former in snapshots.items():
        together |= {f"{epoch}{AFTER}{name}": value for name, value in former.items()}
    return tensor_file(together, {HEADER: json.dumps(about)})


def read_network(file: Path) -> NetworkFile:
    try:
        content = read_tensors(file)
        about, together = json.loads(content.metadata[HEADER]), content.tensors
        history, test_accuracy = History.from_dict(about["history"]), float(about["test_accuracy"])
        # Before there was a digest of the whole file, there was one of the weights.
        whole = content.sealed or about["weights"] == digest_of(together)
        return NetworkFile(about["key"], *_split(together), history, test_accuracy, content.sealed, whole)
    except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{file} is no trained network ({type(error).__name__}: {error})") from error


def _split(together: State) -> tuple[State, dict[int, State]]:
    """The last weights, and those of the snapshots."""
    last: State = {}
    snapshots: dict[int, State] = {}
    for name, value in together.items():
        epoch, after, own = name.partition(AFTER)
        (snapshots.setdefault(int(epoch), {}) if after else last)[own if after else name] = value
    return last, snapshots


def digest_of(state: Mapping[str, Tensor]) -> str:
    """Of names, kinds, shapes and values."""
    found = hashlib.sha256()
    for name, tensor in sorted(state.items()):
        found.update(repr((name, tensor.dtype, tuple(tensor.shape))).encode())
        found.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return found.hexdigest()


def shapes_of(state: Mapping[str, Tensor]) -> dict[str, tuple[torch.dtype, tuple[int, ...]]]:
    return {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in state.items()}
