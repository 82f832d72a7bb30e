"""What a study works on: its run folder, its data, and networks that are trained once and found again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from skipscope.data import Dataset, load, load_or_digits
from skipscope.papers.kit.claims import FIRST_JUDGED_SEED
from skipscope.progress import Announce
from skipscope.runs import RunFolder
from skipscope.runs.executors import Execution
from skipscope.runs.sweep import Task, swept
from skipscope.training import Settings
from skipscope.training.network_fleets import trained_fleet
from skipscope.training.networks import Network, Trained, trained

if TYPE_CHECKING:
    import xarray

T = TypeVar("T")
MOST_NETWORKS = 1000  # of one kind in a run
MOST_CALIBRATION = 100


class Bench:
    def __init__(
        self,
        study: str,
        run: RunFolder,
        *,
        preset: str,
        seed: int,
        device: str,
        announce: Announce | None = None,
        execution: Execution | None = None,
    ) -> None:
        """execution: where datasets of sweeps are computed and networks trained; None for this process, one by one."""
        self.run, self.preset, self.seed, self.device = run, preset, seed, device
        self.study = study  # its id
        self.execution = execution
        self._announce = announce or (lambda part, done, total: None)

    def part(self, name: str, compute: Callable[[], xarray.Dataset]) -> xarray.Dataset:
        """data/STUDY-NAME.nc, or data/STUDY.nc where the name is empty; computed unless the run has it already."""
        return self.shared(self._own(name), compute)

    def name_of(self, name: str, is_shared: bool) -> str:
        """Of a dataset in the run, by its name in this study; a shared one has the same for all."""
        return name if is_shared else self._own(name)

    def has(self, name: str) -> bool:
        """Whether the run has this part."""
        return self.run.has(f"data/{self._own(name)}.nc")

    def _own(self, name: str) -> str:
        return "-".join(filter(None, (self.study.partition(".")[2], name)))

    def shared(self, name: str, compute: Callable[[], xarray.Dataset], studies: Sequence[str] = ()) -> xarray.Dataset:
        """data/NAME.nc, for what several studies of a paper measure alike. studies: their ids; this one's by default.

        The dataset's attribute `study` names them, so that a report can show their claims beside it.
        """
        made_by = ", ".join(studies or [self.study])
        return self.run.part(name, lambda: compute().assign_attrs(study=made_by))

    def sweep(self, tasks: Iterable[Task], what: str = "", studies: Sequence[str] = ()) -> list[xarray.Dataset]:
        """Parts of this study, one per task, in their order. what: that is done, for the progress.

        studies: where several share the datasets, as `shared` does.
        """
        if self.execution is not None:
            from skipscope.papers.kit.tasks import swept_as_tasks

            return swept_as_tasks(self, tasks, studies, self.steps(what) if what else None, self.execution)
        part = partial(self.shared, studies=studies) if studies else self.part
        return swept(tasks, part, self.steps(what) if what else None)

    def data(self, spec: str) -> Dataset:
        """A data set; the embedded digits where it is not found, up to the preset `quick`, and the run says so."""
        if self.preset not in ("smoke", "quick"):
            data = load(spec)
        else:
            data = load_or_digits(spec)
            if data.stands_in_for:
                self.run.note(f"{data.stands_in_for} was not found: the embedded digits stand in for it")
        self.run.used(f"data {spec}", data.describe())
        return data

    def trained(
        self, model: str, data: Dataset, settings: Settings, *, seed: int, snapshots: Sequence[int] = ()
    ) -> Trained:
        """A network by its name, from this run, from the cache, or trained now; snapshots: epochs to look at too."""
        network = Network(model, data, settings, seed, self.device, tuple(snapshots))
        if self.execution is not None:
            return self.trained_fleet([network])[0]
        return trained(network, self.run, self.steps(f"training {network.title}"))

    def trained_fleet(self, networks: Sequence[Network]) -> list[Trained]:
        """Many networks, as `trained` gives each; those that have to be trained are trained together where they can."""
        return trained_fleet(networks, self.run, self.steps, self.execution)

    def seeds(self, count: int) -> list[int]:
        """Of networks that claims are judged on, from 1000 on; runs with different --seed have none in common."""
        return [FIRST_JUDGED_SEED + MOST_NETWORKS * self.seed + number for number in range(count)]

    def calibration_seeds(self, count: int) -> list[int]:
        """Of networks by which rates, budgets and grids are chosen: no claim is judged on them."""
        if count > MOST_CALIBRATION:
            raise ValueError(f"at most {MOST_CALIBRATION} networks for calibration, not {count}")
        return list(range(count))

    def steps(self, what: str) -> Callable[[int, int], None]:
        """Progress of one thing that is done: called with how much of it is done and how much there is."""
        return lambda done, total: self._announce(what, done, total)

    def each(self, what: str, items: Sequence[T]) -> Iterator[T]:
        """The items one after another, with the progress through them, and its end."""
        for done, item in enumerate(items):
            self._announce(what, done, len(items))
            yield item
        self._announce(what, len(items), len(items))

    def note(self, text: str) -> None:
        self.run.note(text)
