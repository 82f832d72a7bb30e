"""Trainings as tasks: a network alone, or a fleet that is trained together.

A worker gives back the files of its networks, which the driver puts into the run and into the cache as they come. Where
the worker sees the run's folder, it keeps the checkpoint of its training there: when it is lost, the next one goes on
from it, and so does a run that is resumed. Elsewhere it keeps none, and a lost training begins again.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from skipscope.progress import Progress
from skipscope.runs.executors import Execution, Task, perform_all
from skipscope.runs.files import key_of
from skipscope.runs.folder import RunFolder
from skipscope.runs.record import NAME
from skipscope.runs.whole_files import remove
from skipscope.training.fleet import train_fleet
from skipscope.training.fleet_member import FleetMember
from skipscope.training.network_files import checkpoint_beside, file_of, keep_in_cache
from skipscope.training.networks import Network, snapshots_of


@dataclass(frozen=True)
class Group:
    """Networks that are trained together, or one, with their keys and their places in the folder of a run."""

    networks: list[Network]
    keys: list[str]
    files: list[str]

    @property
    def key(self) -> str:
        return key_of({"fleet": self.keys})

    @property
    def checkpoint(self) -> str:
        """Of their training, in the folder of a run."""
        if len(self.networks) == 1:
            return str(checkpoint_beside(Path(self.files[0])))
        return f"checkpoints/fleet-{self.key[:12]}.training.safetensors"


def made_as_tasks(
    groups: Sequence[Group],
    run: RunFolder,
    steps: Callable[[str], Progress],
    save_every: float,
    execution: Execution,
) -> None:
    folder = run.path.resolve()
    tasks = [
        Task(
            title_of(group.networks),
            train_group,
            {"group": group, "folder": folder, "save_every": save_every},
            group.key,
            about=group,
        )
        for group in groups
    ]
    done = 0
    everything = [network for group in groups for network in group.networks]
    progress = steps(title_of(everything)) if everything else None

    def keep(task: Task, contents: list[bytes]) -> None:
        nonlocal done
        group: Group = task.about
        for key, own, content in zip(group.keys, group.files, contents, strict=True):
            if not run.has(own):  # of a fleet that was kept in part, some are there
                run.write(own, content)
                keep_in_cache(key, content, run)
        remove(run.path / group.checkpoint)
        done += len(group.networks)
        if progress is not None:
            progress(done, len(everything))

    if progress is not None:
        progress(0, len(everything))
    perform_all(tasks, execution, keep, note=run.note)


def train_group(group: Group, folder: Path, save_every: float) -> list[bytes]:
    """In a worker: the content of each network's file."""
    with _checkpoint(group, folder) as checkpoint:
        first = group.networks[0]
        if len(group.networks) == 1:
            model = first.initial()
            history, snapshots = first.train(model, checkpoint, None, save_every)
            return [file_of(first, group.keys[0], model, history, snapshots)]
        members = [
            FleetMember(each.initial(), each.data.train, each.own_settings, each.data.test, each.snapshot_hooks())
            for each in group.networks
        ]
        histories = train_fleet(
            members, test_every=first.test_every, progress=None, checkpoint=checkpoint, save_every=save_every
        )
        return [
            file_of(network, key, member.model, history, snapshots_of(member.hooks), len(members))
            for network, key, member, history in zip(group.networks, group.keys, members, histories, strict=True)
        ]


@contextlib.contextmanager
def _checkpoint(group: Group, folder: Path) -> Iterator[Path]:
    """Where the training keeps its state; of a network alone the place that it is beside."""
    name = Path(group.files[0] if len(group.networks) == 1 else group.checkpoint)
    if (folder / NAME).is_file():
        yield folder / name
    else:
        with tempfile.TemporaryDirectory() as own:
            yield Path(own) / name.name


def title_of(networks: Sequence[Network]) -> str:
    models = list(dict.fromkeys(network.model for network in networks))
    more = f" and {len(models) - 1} more" if len(models) > 1 else ""
    if len(networks) == 1:
        return f"training {networks[0].title}"
    return f"training {len(networks)} networks {models[0]}{more}"
