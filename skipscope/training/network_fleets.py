"""Trained networks, many at once: those that gain by being a fleet are trained together, each is kept on its own.

A network has the same key and the same file whether it was trained alone or in a fleet, so that either finds what the
other made; the steps are the same, of stacked networks up to rounding, and the file says how large its fleet was.
Convolutional networks are trained together on a GPU, a few at a time, and one after another on a CPU.

With an `Execution` every fleet, and every network that is trained alone, is a task (`network_tasks.py`). Which networks
are trained together does not depend on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from skipscope.progress import Progress
from skipscope.runs.executors import Execution
from skipscope.runs.files import key_of
from skipscope.runs.folder import RunFolder
from skipscope.runs.whole_files import remove
from skipscope.training.fleet import train_fleet
from skipscope.training.fleet_member import FleetMember, fleet_obstacle, is_convolutional, stack_obstacle
from skipscope.training.fleet_part import AT_A_TIME, even_groups
from skipscope.training.loop import SAVE_EVERY
from skipscope.training.network_files import Trained, find, in_run, keep, keep_in_cache, own_file, read
from skipscope.training.network_tasks import Group, made_as_tasks, title_of
from skipscope.training.networks import Network, make, snapshots_of

Steps = Callable[[str], Progress]  # gives the progress of something, by what is done


@dataclass(frozen=True, eq=False)
class _Place:
    """A network, and where it is kept in the folder of a run."""

    network: Network
    key: str
    own: str


def trained_fleet(
    networks: Sequence[Network], run: RunFolder, steps: Steps, execution: Execution | None = None
) -> list[Trained]:
    """As `trained`, for all of them: from the run's own folder, else from the cache, else trained now, together.

    execution: where; None for this process, on all its cores.
    """
    places = [_Place(network, key, own_file(network, key)) for network in networks for key in [network.key]]
    found = {place.own: find(place.network, place.key, run, place.own) for place in places}
    wanted = list({place.own: place for place in places}.values())
    _make_all(wanted, [place for place in wanted if found[place.own] is None], run, steps, execution=execution)
    return [_found(place, found[place.own], run) for place in places]


def train_fleet_into(
    networks: Sequence[Network],
    run: RunFolder,
    steps: Steps,
    save_every: float = SAVE_EVERY,
    execution: Execution | None = None,
) -> list[Trained]:
    """Trained now, whatever the cache has, with their histories as datasets of the run; they go into the cache too.

    The networks differ in their seeds alone.
    """
    places = [
        _Place(network, network.key, f"checkpoints/{network.model}-{network.seed}.safetensors") for network in networks
    ]
    found = [in_run(place.network, place.key, run, place.own) for place in places]
    missing = [place for place, former in zip(places, found, strict=True) if former is None]
    _make_all(places, missing, run, steps, save_every, execution)
    trained = [_found(place, former, run) for place, former in zip(places, found, strict=True)]
    for network, result in zip(networks, trained, strict=True):
        dataset = result.history.to_dataset().assign_attrs(measure="history", network=network.title)
        run.write_dataset(f"history-{network.seed}", dataset)
    return trained


def _found(place: _Place, former: Trained | None, run: RunFolder) -> Trained:
    return former or read(place.network, place.key, run.path, place.own, run.note)


def _make_all(
    wanted: Sequence[_Place],
    missing: Sequence[_Place],
    run: RunFolder,
    steps: Steps,
    save_every: float = SAVE_EVERY,
    execution: Execution | None = None,
) -> None:
    """Trains those that are missing, in as few fleets as there can be, into the run's folder and the cache."""
    if execution is not None:
        groups = [*_begun(wanted, missing, run)]
        begun = [place for group in groups for place, _ in group]
        groups += _groups([place for place in missing if place not in begun])
        made_as_tasks([_as_task(group) for group in groups], run, steps, save_every, execution)
        return
    for group in _begun(wanted, missing, run):
        _make_together(group, missing, run, steps, save_every)
        missing = [place for place in missing if place not in [former for former, _ in group]]
    for group in _groups(missing):
        if len(group) > 1:
            _make_together(group, missing, run, steps, save_every)
            continue
        for place, _ in group:
            progress = steps(f"training {place.network.title}")
            keep_in_cache(place.key, make(place.network, place.key, run, place.own, progress, save_every), run)


def _begun(
    wanted: Sequence[_Place], missing: Sequence[_Place], run: RunFolder
) -> list[list[tuple[_Place, FleetMember]]]:
    """Fleets whose checkpoint has networks that are missing: a run may have been killed while those of a fleet were
    kept."""
    if not missing or not any(True for _ in (run.path / "checkpoints").glob("fleet-*.training.safetensors")):
        return []
    return [
        group
        for group in _groups(wanted)
        if _checkpoint(group, run).exists() and any(place in missing for place, _ in group)
    ]


def _as_task(group: Sequence[tuple[_Place, FleetMember]]) -> Group:
    places = [place for place, _ in group]
    return Group([place.network for place in places], [place.key for place in places], [place.own for place in places])


def _groups(places: Sequence[_Place]) -> list[list[tuple[_Place, FleetMember]]]:
    """Networks that are trained together: any number of stacked ones, a few of others."""
    groups: list[list[tuple[_Place, FleetMember]]] = []
    for place in places:
        network = place.network
        member = FleetMember(
            network.initial(), network.data.train, network.own_settings, network.data.test, network.snapshot_hooks()
        )
        fitting = (group for group in groups if _gain(group[0][1], member))
        group = next(fitting, None)
        if group is None:
            groups.append([(place, member)])
        else:
            group.append((place, member))
    return [own for group in groups for own in (_a_few(group) if is_convolutional(group[0][1]) else [group])]


def _a_few(group: Sequence[tuple[_Place, FleetMember]]) -> list[list[tuple[_Place, FleetMember]]]:
    """AT_A_TIME or fewer. Networks of one name are next to each other, so that they come into one stack."""
    names = list(dict.fromkeys(place.network.model for place, _ in group))
    return even_groups(sorted(group, key=lambda each: names.index(each[0].network.model)), AT_A_TIME)


def _gain(one: FleetMember, other: FleetMember) -> bool:
    """Whether two networks are trained sooner together: those that share a GPU, and on a CPU those that are stacked.

    Stacks of different architectures are trained in threads of their own.
    """
    if fleet_obstacle([one, other]) or is_convolutional(one) != is_convolutional(other):
        return False
    return one.device.type == "cuda" or not any(stack_obstacle([member]) for member in (one, other))


def _checkpoint(group: Sequence[tuple[_Place, FleetMember]], run: RunFolder) -> Path:
    """One of all: the same networks, asked for again, go on from it."""
    name = key_of({"fleet": [place.key for place, _ in group]})[:12]
    return run.path / "checkpoints" / f"fleet-{name}.training.safetensors"


def _make_together(
    group: Sequence[tuple[_Place, FleetMember]],
    missing: Sequence[_Place],
    run: RunFolder,
    steps: Steps,
    save_every: float,
) -> None:
    """missing: those that have to be kept; the others of the group are there already."""
    networks, members = [place.network for place, _ in group], [member for _, member in group]
    checkpoint = _checkpoint(group, run)
    histories = train_fleet(
        members,
        test_every=networks[0].test_every,
        progress=steps(title_of(networks)),
        checkpoint=checkpoint,
        save_every=save_every,
    )
    for (place, member), history in zip(group, histories, strict=True):
        if place in missing:
            snapshots = snapshots_of(member.hooks)
            content = keep(place.network, place.key, run, place.own, member.model, history, snapshots, len(group))
            keep_in_cache(place.key, content, run)
    remove(checkpoint)
