"""Trained networks: trained once, and found in the cache afterwards.

A network is determined by its name, its initial weights, its data, its settings, its seed, the kind of device and the
versions of skipscope and PyTorch; the hash of all of these is its key in the cache. What a run uses is also in its own
folder, so that the folder is complete.

A network whose file (`network_files.py`) is damaged is trained again, which gives the same one. One that was trained in
a fleet (`network_fleets.py`) has the same key; its steps are those of a training alone up to rounding.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

import skipscope.models.names as names
from skipscope.data import Dataset
from skipscope.errors import InputError
from skipscope.models.resnet import ResNet
from skipscope.progress import Progress
from skipscope.runs.files import key_of
from skipscope.runs.folder import RunFolder
from skipscope.runs.record import UNMIXED, is_changed, read_record, versions
from skipscope.training.history import History
from skipscope.training.hooks import At
from skipscope.training.loop import SAVE_EVERY, train
from skipscope.training.network_files import (
    State,
    checkpoint_beside,
    digest_of,
    find,
    in_run,
    keep,
    keep_in_cache,
    own_file,
    read,
)
from skipscope.training.network_files import Trained as Trained
from skipscope.training.settings import Settings

TESTS = 20  # on the test images, over a training


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
                "settings": dataclasses.asdict(self.own_settings),
                "seed": self.seed,
                "device": torch.device(self.device).type,
                **({"snapshots": sorted(self.snapshots)} if self.snapshots else {}),
            }
        )

    @property
    def own_settings(self) -> Settings:
        """With its seed."""
        return dataclasses.replace(self.settings, seed=self.seed)

    def initial(self) -> ResNet | Any:
        """As it is before training."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            model = names.build(self.model)
        return model.to(self.device)

    @property
    def test_every(self) -> int:
        """Epochs."""
        return max(1, self.settings.epochs // TESTS)

    def snapshot_hooks(self) -> list[At]:
        """One that keeps the snapshots, where there are to be any."""
        if not self.snapshots:
            return []
        return [At(self.snapshots, lambda model, epoch, history: model.state_dict(), "snapshots")]

    def train(
        self, model: nn.Module, place: Path, progress: Progress | None, save_every: float = SAVE_EVERY
    ) -> tuple[History, dict[int, State]]:
        """With a checkpoint beside the place where the trained network will be; gives the snapshots too."""
        hooks = self.snapshot_hooks()
        history = train(
            model,
            self.data.train,
            self.own_settings,
            test=self.data.test,
            test_every=self.test_every,
            hooks=hooks,
            checkpoint=checkpoint_beside(place),
            save_every=save_every,
            progress=progress,
        )
        return history, snapshots_of(hooks)


def trained(network: Network, run: RunFolder, progress: Progress) -> Trained:
    """From the run's own folder, else from the cache, else trained now, going on from the run's last checkpoint."""
    key = network.key
    own = own_file(network, key)
    found = find(network, key, run, own)
    if found is None:
        keep_in_cache(key, make(network, key, run, own, progress), run)
        found = read(network, key, run.path, own, run.note)
    return found


def train_into(network: Network, run: RunFolder, progress: Progress, save_every: float = SAVE_EVERY) -> Trained:
    """Trained now, whatever the cache has, with its history as a dataset of the run."""
    key, own = network.key, _own(network)
    found = in_run(network, key, run, own)
    if found is None:
        make(network, key, run, own, progress, save_every)
        found = read(network, key, run.path, own, run.note)
    run.write_dataset("history", found.history.to_dataset().assign_attrs(measure="history", network=network.title))
    return found


def help_training(network: Network, folder: Path) -> None:
    """What the other processes do while the main one is in `train_into`; all decide alike whether there is a need."""
    own = _own(network)
    try:
        read(network, network.key, folder, own, lambda text: None)
        needed = is_changed(folder, own, read_record(folder)[0]["hashes"])
    except InputError:
        needed = True
    if needed:
        network.train(network.initial(), folder / own, None)


def make(
    network: Network, key: str, run: RunFolder, own: str, progress: Progress, save_every: float = SAVE_EVERY
) -> bytes:
    """Train, and write the network into the run's folder; gives the file's content."""
    model = network.initial()
    history, snapshots = network.train(model, run.path / own, progress, save_every)
    return keep(network, key, run, own, model, history, snapshots)


def _own(network: Network) -> str:
    return f"checkpoints/{network.model}.safetensors"


def snapshots_of(hooks: Sequence[At]) -> dict[int, State]:
    """What the hooks of a network kept, by epoch: a hook gives back arrays as NumPy's, single numbers as Python's."""
    return {
        epoch: {name: torch.as_tensor(value) for name, value in state.items()}
        for hook in hooks
        for epoch, state in hook.results.items()
    }


def _in_words(shape: tuple[int, ...], classes: int) -> str:
    return f"images of {' x '.join(map(str, shape))} in {classes} classes"
