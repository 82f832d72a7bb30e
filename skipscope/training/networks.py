"""Trained networks: trained once, and found in the cache afterwards.

A network is determined by its name, its initial weights, its data, its settings, its seed, the kind of device and the
versions of skipscope and PyTorch; the hash of all of these is its key in the cache. What a run uses is also in its own
folder, so that the folder is complete.

A file holds the weights, those of the snapshots, the history, its key and a digest of itself (`sealed.py`), and is read
only as what it says: one that is damaged, or another network's, is not used, and the run says so and trains the network
again, which gives the same one. The cache is a convenience: where it cannot be used, the run says so and goes on.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import skipscope.models.names as names
from skipscope.data import Dataset
from skipscope.errors import InputError
from skipscope.models.resnet import ResNet
from skipscope.progress import Progress
from skipscope.runs.files import cache_root, key_of, plain, write_whole
from skipscope.runs.folder import RunFolder
from skipscope.runs.record import UNMIXED, is_changed, read_record, versions
from skipscope.sealed import read_tensors, tensor_file
from skipscope.training.history import History
from skipscope.training.hooks import At
from skipscope.training.loop import accuracy, train
from skipscope.training.settings import Settings

TESTS = 20  # on the test images, over a training
HEADER = "skipscope"  # of the JSON document in a file
AFTER = " epochs: "  # between the epoch of a snapshot and the name of a tensor
Note = Callable[[str], None]  # what a reader of the results must know
State = dict[str, Tensor]


@dataclass(frozen=True)
class Network:
    """What determines a trained network."""

    model: str  # a name such as resnet20-digits
    data: Dataset
    settings: Settings
    seed: int  # of the initial weights and of everything that is drawn in training
    device: str = "cpu"
    snapshots: tuple[int, ...] = ()  # epochs whose weights are kept in addition to the last; 0 is before the training

    def __post_init__(self) -> None:
        """A network that cannot take the images or the labels, or one that another name fits, is refused.

        Where no name fits exactly (a choice of classes, images of another size), one with enough outputs will do, if
        it takes images of any size.
        """
        options = names.parse(self.model)
        wants, has = (options["input_shape"], options["classes"]), (tuple(self.data.shape), self.data.classes)
        fitting = names.fitting(self.model, *has)
        will_do = names.any_size(self.model) and wants[0][0] == has[0][0] and wants[1] >= has[1]
        if wants == has or (not fitting and will_do):
            return
        advice = f"take {fitting}" if fitting else "no name of a network fits these data"
        raise InputError(
            f"{self.model} is for {_in_words(*wants)}, and {self.data.name} has {_in_words(*has)}; {advice}"
        )

    @property
    def title(self) -> str:
        return f"{self.model}, seed {self.seed}"

    @property
    def key(self) -> str:
        now = versions()
        return key_of(
            {
                **{name: now[name] for name in UNMIXED},
                "model": names.parse(self.model),
                "initial": digest_of(self.initial().state_dict()),
                "data": self.data.describe(),
                "settings": dataclasses.asdict(self._settings),
                "seed": self.seed,
                "device": torch.device(self.device).type,
                **({"snapshots": sorted(self.snapshots)} if self.snapshots else {}),
            }
        )

    @property
    def _settings(self) -> Settings:
        return dataclasses.replace(self.settings, seed=self.seed)

    def initial(self) -> ResNet | Any:
        """As it is before training."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            model = names.build(self.model)
        return model.to(self.device)

    def train(self, model: nn.Module, place: Path, progress: Progress | None) -> tuple[History, dict[int, State]]:
        """With a checkpoint beside the place where the trained network will be; gives the snapshots too."""
        kept = (
            At(self.snapshots, lambda model, epoch, history: model.state_dict(), "snapshots")
            if self.snapshots
            else None
        )
        history = train(
            model,
            self.data.train,
            self._settings,
            test=self.data.test,
            test_every=max(1, self.settings.epochs // TESTS),
            hooks=[kept] if kept else [],
            checkpoint=_checkpoint(place),
            progress=progress,
        )
        found = kept.results if kept else {}
        return history, {epoch: _tensors(state) for epoch, state in found.items()}


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


def trained(network: Network, run: RunFolder, progress: Progress) -> Trained:
    """From the run's own folder, else from the cache, else trained now, going on from the run's last checkpoint."""
    key = network.key
    own = f"checkpoints/{network.model}-{network.seed}-{key[:12]}.safetensors"
    found = _in_run(network, key, run, own)
    if found is not None:
        return found
    cached = cache_root() / "networks" / f"{key}.safetensors"
    if _in_cache(network, key, cached, run):
        run.copy(cached, own)
    else:
        content = _make(network, key, run, own, progress)
        try:
            write_whole(cached, lambda path: path.write_bytes(content))
        except InputError as error:
            reason = getattr(error.__cause__, "strerror", None) or error
            run.note(
                f"trained networks cannot be kept in the cache {cached.parent} ({reason}): "
                "the next run trains them again; SKIPSCOPE_CACHE names another folder"
            )
    return _read(network, key, run.path, own, run.note)


def train_into(network: Network, run: RunFolder, progress: Progress) -> Trained:
    """Trained now, whatever the cache has, with its history as a dataset of the run."""
    key, own = network.key, _own(network)
    found = _in_run(network, key, run, own)
    if found is None:
        _make(network, key, run, own, progress)
        found = _read(network, key, run.path, own, run.note)
    run.write_dataset("history", found.history.to_dataset().assign_attrs(measure="history", network=network.title))
    return found


def help_training(network: Network, folder: Path) -> None:
    """What the other processes do while the main one is in `train_into`; all decide alike whether there is a need."""
    own = _own(network)
    try:
        _read(network, network.key, folder, own, lambda text: None)
        needed = is_changed(folder, own, read_record(folder)[0]["hashes"])
    except InputError:
        needed = True
    if needed:
        network.train(network.initial(), folder / own, None)


def _make(network: Network, key: str, run: RunFolder, own: str, progress: Progress) -> bytes:
    """Train, and write the network into the run's folder; gives the file's content."""
    model = network.initial()
    history, snapshots = network.train(model, run.path / own, progress)
    model.eval()
    about = {
        "key": key,
        "network": network.title,
        "data": network.data.name,
        "history": plain(history.to_dict()),
        "test_accuracy": accuracy(model, network.data.test),
    }
    together = dict(model.state_dict())
    for epoch, former in snapshots.items():
        together |= {f"{epoch}{AFTER}{name}": value for name, value in former.items()}
    content = tensor_file(together, {HEADER: json.dumps(about)})
    run.write(own, lambda path: path.write_bytes(content))
    _checkpoint(run.path / own).unlink(missing_ok=True)
    return content


def _own(network: Network) -> str:
    return f"checkpoints/{network.model}.safetensors"


def _checkpoint(place: Path) -> Path:
    return place.with_name(place.name.replace(".safetensors", ".training.safetensors"))


def _in_cache(network: Network, key: str, file: Path, run: RunFolder) -> bool:
    try:
        if file.is_file():
            _read(network, key, file.parent, file.name, run.note)
            return True
    except (InputError, OSError) as error:
        run.note(f"a file in the cache of trained networks was ignored, and {network.title} trained: {error}")
    return False


def _in_run(network: Network, key: str, run: RunFolder, own: str) -> Trained | None:
    """From the run's own folder; None where the network has to be made."""
    if not (run.path / own).is_file():
        return None
    try:
        if is_changed(run.path, own, run.record["hashes"]):
            raise InputError(f"{own} is not as the run wrote it")
        found = _read(network, key, run.path, own, run.note)
    except InputError as error:
        run.note(f"{network.title} was trained again: {error}")
        return None
    if not run.has(own):  # a kill came between the file and the record
        run.copy(run.path / own, own)
    return found


def _read(network: Network, key: str, folder: Path, name: str, note: Note) -> Trained:
    """What a file holds, if it is whole and this network's; otherwise InputError says what is wrong with it."""
    file = folder / name
    try:
        content = read_tensors(file)
        about = json.loads(content.metadata[HEADER])
        history, test_accuracy, found = History.from_dict(about["history"]), float(about["test_accuracy"]), about["key"]
        # Before there was a digest of the whole file, there was one of the weights.
        whole = content.sealed or about["weights"] == digest_of(content.tensors)
        last, snapshots = _split(content.tensors)
    except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
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


def _tensors(state: Mapping[str, Any]) -> State:
    """What a hook gave back: arrays as NumPy's, single numbers as Python's."""
    return {name: torch.as_tensor(value) for name, value in state.items()}


def _in_words(shape: tuple[int, ...], classes: int) -> str:
    return f"images of {' x '.join(map(str, shape))} in {classes} classes"
