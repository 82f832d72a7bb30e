"""The files of trained networks: in the folder of a run, and in the cache.

A file holds the weights, those of the snapshots, the history, its key and a digest of itself (`sealed.py`), and is read
only as what it says: one that is damaged, or another network's, is not used, and the run says so. The cache is a
convenience: where it cannot be used, the run says so and goes on.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from skipscope.errors import InputError
from skipscope.models.resnet import ResNet
from skipscope.runs.files import cache_root, plain
from skipscope.runs.folder import RunFolder
from skipscope.runs.record import is_changed
from skipscope.runs.whole_files import STALE, remove, remove_half_written, write_whole
from skipscope.sealed import read_tensors, tensor_file
from skipscope.training.history import History
from skipscope.training.loop import accuracy

if TYPE_CHECKING:
    from skipscope.training.networks import Network

HEADER = "skipscope"  # of the JSON document in a file
AFTER = " epochs: "  # between the epoch of a snapshot and the name of a tensor
Note = Callable[[str], None]  # what a reader of the results must know
State = dict[str, Tensor]


@dataclass(frozen=True)
class Trained:
    model: ResNet | Any  # what `build` gives, in evaluation mode
    history: History
    test_accuracy: float
    file: str  # in the run folder
    snapshots: Mapping[int, State] = field(default_factory=dict)  # by epoch; those that a diverged one has come to

    def at(self, epoch: int) -> ResNet | Any:
        """The network as it was after `epoch` epochs, in evaluation mode, on its own device."""
        if epoch not in self.snapshots:
            raise InputError(f"a trained network: no snapshot after {epoch} epochs, there are {sorted(self.snapshots)}")
        model = copy.deepcopy(self.model)
        model.load_state_dict(dict(self.snapshots[epoch]))
        return model

    @property
    def diverged(self) -> bool:
        return self.history.diverged_at is not None


def own_file(network: Network, key: str) -> str:
    """Its place in the folder of a run."""
    return f"checkpoints/{network.model}-{network.seed}-{key[:12]}.safetensors"


def find(network: Network, key: str, run: RunFolder, own: str) -> Trained | None:
    """From the run's own folder, else from the cache; None where the network has to be made."""
    found = in_run(network, key, run, own)
    cached = _cached(key)
    if found is None and _in_cache(network, key, cached, run):
        run.copy(cached, own)
        found = read(network, key, run.path, own, run.note)
    return found


def keep_in_cache(key: str, content: bytes, run: RunFolder) -> None:
    cached = _cached(key)
    try:
        write_whole(cached, content)
        remove_half_written(cached.parent, older_than=STALE)
    except InputError as error:
        reason = getattr(error.__cause__, "strerror", None) or error
        run.note(
            f"trained networks cannot be kept in the cache {cached.parent} ({reason}): "
            "the next run trains them again; SKIPSCOPE_CACHE names another folder"
        )


def _cached(key: str) -> Path:
    return cache_root() / "networks" / f"{key}.safetensors"


def keep(
    network: Network,
    key: str,
    run: RunFolder,
    own: str,
    model: nn.Module,
    history: History,
    snapshots: Mapping[int, State],
    fleet: int = 0,
) -> bytes:
    """Write a network that has been trained into the run's folder; gives the file's content.

    fleet: how many networks were trained together, where it was not trained alone.
    """
    content = file_of(network, key, model, history, snapshots, fleet)
    run.write(own, content)
    remove(checkpoint_beside(run.path / own))
    return content


def file_of(
    network: Network,
    key: str,
    model: nn.Module,
    history: History,
    snapshots: Mapping[int, State],
    fleet: int = 0,
) -> bytes:
    """The content of the file of a network that has been trained."""
    model.eval()
    about = {
        "key": key,
        "network": network.title,
        "data": network.data.name,
        "history": plain(history.to_dict()),
        "test_accuracy": accuracy(model, network.data.test),
        **({"fleet": fleet} if fleet else {}),
    }
    together = dict(model.state_dict())
    for epoch, former in snapshots.items():
        together |= {f"{epoch}{AFTER}{name}": value for name, value in former.items()}
    return tensor_file(together, {HEADER: json.dumps(about)})


def export(network: Network, trained: Trained, folder: Path) -> Path:
    """FOLDER/NAME-seedS.safetensors: the weights alone, under the names of the model's state, with what made them."""
    about = {
        "network": network.model,
        "seed": network.seed,
        "data": network.data.describe(),
        "settings": asdict(network.own_settings),
        "status": trained.history.status,
        "test_accuracy": trained.test_accuracy,
    }
    content = tensor_file(dict(trained.model.state_dict()), {HEADER: json.dumps(plain(about))})
    place = folder / f"{network.model}-seed{network.seed}.safetensors"
    write_whole(place, content)
    return place


def checkpoint_beside(place: Path) -> Path:
    """Of the training of the network that will be at a place."""
    return place.with_name(place.name.replace(".safetensors", ".training.safetensors"))


def _in_cache(network: Network, key: str, file: Path, run: RunFolder) -> bool:
    try:
        if file.is_file():
            read(network, key, file.parent, file.name, run.note)
            return True
    except (InputError, OSError) as error:
        run.note(f"a file in the cache of trained networks was ignored, and {network.title} trained: {error}")
    return False


def in_run(network: Network, key: str, run: RunFolder, own: str) -> Trained | None:
    """From the run's own folder; None where the network has to be made."""
    if not (run.path / own).is_file():
        return None
    try:
        if is_changed(run.path, own, run.record["hashes"]):
            raise InputError(f"{own} is not as the run wrote it")
        found = read(network, key, run.path, own, run.note)
    except InputError as error:
        run.note(f"{network.title} was trained again: {error}")
        return None
    if not run.has(own):  # a kill came between the file and the record
        run.copy(run.path / own, own)
    return found


def read(network: Network, key: str, folder: Path, name: str, note: Note) -> Trained:
    """What a file holds, if it is whole and this network's; otherwise InputError says what is wrong with it."""
    file = folder / name
    try:
        content = read_tensors(file)
        about = json.loads(content.metadata[HEADER])
        history, test_accuracy, found = History.from_dict(about["history"]), float(about["test_accuracy"]), about["key"]
        # Before there was a digest of the whole file, there was one of the weights.
        whole = content.sealed or about["weights"] == digest_of(content.tensors)
        last, snapshots = _split(content.tensors)
    except (OSError, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise InputError(f"{file} is no trained network ({type(error).__name__}: {error})") from error
    model = network.initial()
    expected = _shapes(model.state_dict())
    if found != key or any(_shapes(state) != expected for state in (last, *snapshots.values())):
        raise InputError(f"{file} is another network than {network.title}")
    if not whole:
        raise InputError(f"{file} has been changed: its weights are not those that were written")
    if not content.sealed:
        note(
            f"the file of {network.title} was written by an older version: its digest covers the weights, "
            "but neither the accuracy nor the history"
        )
    model.load_state_dict(last)
    return Trained(model.eval(), history, test_accuracy, name, snapshots)


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


def _shapes(state: Mapping[str, Tensor]) -> dict[str, tuple[torch.dtype, tuple[int, ...]]]:
    return {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in state.items()}
