"""Trained networks: made once, found again.

A network is determined by its name, its data, its settings, its seed, the kind of device and the version of PyTorch;
the hash of all of these is its key in the cache. What a run uses is also in its own folder, so that the folder is
complete.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

import skipscope.models.names as names
from skipscope.data import Dataset
from skipscope.models.resnet import ResNet
from skipscope.runs.cache import cache_root, key_of
from skipscope.runs.files import plain, write_whole
from skipscope.runs.folder import RunFolder
from skipscope.training.evaluation import accuracy
from skipscope.training.history import History
from skipscope.training.loop import train
from skipscope.training.settings import Settings

TESTS = 20  # on the test images, over a training
SCHEME = 1  # of what a key stands for: raised when the same settings come to mean other weights


@dataclass(frozen=True)
class Network:
    """What determines a trained network."""

    model: str  # a name such as resnet20-digits
    data: Dataset
    settings: Settings
    seed: int  # of the initial weights and of everything that is drawn in training
    device: str = "cpu"

    @property
    def title(self) -> str:
        return f"{self.model}, seed {self.seed}"

    @property
    def key(self) -> str:
        return key_of(
            {
                "scheme": SCHEME,
                "model": names.parse(self.model),
                "data": self.data.describe(),
                "settings": dataclasses.asdict(self._settings),
                "seed": self.seed,
                "device": torch.device(self.device).type,
                "torch": torch.__version__,
            }
        )

    @property
    def _settings(self) -> Settings:
        return dataclasses.replace(self.settings, seed=self.seed)

    def initial(self) -> ResNet:
        """As it is before training."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            model = names.build(self.model)
        return model.to(self.device)

    def train(self, model: ResNet, place: Path, progress: Callable[[int, int], None] | None) -> History:
        """With a checkpoint beside the place where the trained network will be."""
        return train(
            model,
            self.data.train,
            self._settings,
            test=self.data.test,
            test_every=max(1, self.settings.epochs // TESTS),
            checkpoint=_checkpoint(place),
            progress=progress,
        )


@dataclass(frozen=True)
class Trained:
    model: ResNet  # in evaluation mode
    history: History
    test_accuracy: float
    file: str  # in the run folder

    @property
    def diverged(self) -> bool:
        return self.history.diverged_at is not None


def trained(network: Network, run: RunFolder, progress: Callable[[int, int], None]) -> Trained:
    """From the run's own folder, else from the cache, else trained now, going on from the run's last checkpoint."""
    key = network.key
    own = f"checkpoints/{network.model}-{network.seed}-{key[:12]}.safetensors"
    cached = cache_root() / "networks" / f"{key}.safetensors"
    if not run.has(own):
        if not cached.is_file():
            _make(network, run.path / own, progress, lambda write: write_whole(cached, write))
        run.copy(cached, own)
    return _read(network, run.path, own)


def train_into(network: Network, run: RunFolder, progress: Callable[[int, int], None]) -> Trained:
    """Trained now, whatever the cache has, with its history as a dataset of the run."""
    own = _own(network)
    if not run.has(own):
        _make(network, run.path / own, progress, lambda write: run.write(own, write))
    found = _read(network, run.path, own)
    run.write_dataset("history", found.history.to_dataset().assign_attrs(measure="history", network=network.title))
    return found


def help_training(network: Network, folder: Path) -> None:
    """What the other processes do while the main one is in `train_into`."""
    place = folder / _own(network)
    if not place.is_file():
        network.train(network.initial(), place, None)


Write = Callable[[Path], object]  # a file's content to a path


def _make(network: Network, place: Path, progress: Callable[[int, int], None], keep: Callable[[Write], object]) -> None:
    """Train, and give the network to `keep`."""
    from safetensors.torch import save_file

    model = network.initial()
    history = network.train(model, place, progress)
    model.eval()
    about = {
        "network": network.title,
        "data": network.data.name,
        "history": plain(history.to_dict()),
        "test_accuracy": accuracy(model, network.data.test),
    }
    state = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
    keep(lambda path: save_file(state, path, {"skipscope": json.dumps(about)}))
    _checkpoint(place).unlink(missing_ok=True)


def _own(network: Network) -> str:
    return f"checkpoints/{network.model}.safetensors"


def _checkpoint(place: Path) -> Path:
    return place.with_name(place.name.replace(".safetensors", ".training.safetensors"))


def _read(network: Network, folder: Path, name: str) -> Trained:
    from safetensors import safe_open

    with safe_open(folder / name, "pt") as file:
        about = json.loads(file.metadata()["skipscope"])
        state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no mapping)
    model = network.initial()
    model.load_state_dict(state)
    return Trained(model.eval(), History.from_dict(about["history"]), about["test_accuracy"], name)
