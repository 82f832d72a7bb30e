"""What a monitor has found so far, and the run folder that keeps it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skipscope.errors import InputError, first_line
from skipscope.monitor.alarms import ALARMS, Alarm, Judge, from_dataset, to_dataset
from skipscope.monitor.recording import Recorded
from skipscope.monitor.steps import Steps
from skipscope.monitor.untouched import warn
from skipscope.runs import RunFolder
from skipscope.runs.folder import Former
from skipscope.trace import Trunk
from skipscope.trace.running_statistics import NEVER_SEEN
from skipscope.wording import counted

if TYPE_CHECKING:
    import xarray

WHAT = "monitor"
LOSS = "loss"


class Kept:
    """steps: of the training, with their losses. recorded: what looks have found, by measure. judge: with the alarms
    that have rung. folder: None where nothing is written."""

    def __init__(self, network: str = "") -> None:
        self.network = network
        self.steps, self.judge = Steps(), Judge()
        self.recorded: dict[str, Recorded] = {}
        self.folder: RunFolder | None = None
        self._folder_of: Callable[..., RunFolder]  # set where there is a folder
        self._forgotten: set[str] = set()  # datasets of which steps were counted again

    @property
    def alarms(self) -> tuple[Alarm, ...]:
        return tuple(self.judge.rung.values())

    @property
    def datasets(self) -> dict[str, xarray.Dataset]:
        """By measure, each with the dimension `step`; `loss` is that of the training, and `alarms` what rang."""
        about = {"network": self.network} if self.network else {}
        about |= {"alarms": "; ".join(f"{alarm.step} {alarm.name}" for alarm in self.alarms)} if self.alarms else {}
        found = {name: one.to_dataset(**about) for name, one in self.recorded.items()}
        if self.steps.losses:
            found[LOSS] = self.steps.to_dataset(**about)
        if self.alarms:
            found[ALARMS] = to_dataset(self.alarms, **about)
        return found

    def forget(self, step: int) -> None:
        """What was recorded from this step on, which is counted again; the look before the training stays."""
        self._forgotten |= {*self.recorded, LOSS, ALARMS}
        self.judge.forget(step)
        for one in self.recorded.values():
            one.forget(max(step, 1))
        self._without_empty_ones()

    def _without_empty_ones(self) -> None:
        for name in [name for name, one in self.recorded.items() if not one.steps]:
            del self.recorded[name]

    # -- the run folder

    def open(self, out: Path, former: Former, trunk: Trunk, seed: int, parameters: dict[str, Any]) -> None:
        """A run folder; where a run in it is resumed, with what that run has found."""
        model = trunk.model
        notes = [note for note in trunk.notes if NEVER_SEEN not in note]  # norms see data from now on
        about = {
            "source": {"description": f"{type(model).__name__} ({counted(len(trunk.units), 'unit')})"},
            "trunk": {**trunk.to_dict(), "notes": notes},
        }
        device = next((weight.device.type for weight in model.parameters()), "cpu")
        self._folder_of = partial(RunFolder, out, WHAT, parameters={**about, **parameters}, seed=seed, device=device)
        self.folder = self._folder_of(former=former)
        for name, data in self.folder.datasets().items():
            if name == LOSS:
                self.steps = Steps.of(data)
            elif name == ALARMS:
                self.judge.rung = {alarm.name: alarm for alarm in from_dataset(data)}
            else:
                self.recorded[name] = Recorded.of(name, data)
        self._without_empty_ones()
        # Where no losses were given, looks and alarms tell how far the training was.
        looks = [one.steps[-1] for one in self.recorded.values()]
        self.steps.last = max([self.steps.last, *looks, *(alarm.step for alarm in self.alarms)])

    def reopen(self) -> None:
        """The run folder, after its end. One that cannot be opened again does not end a training."""
        if self.folder is None:
            return
        notes = self.folder.record.get("notes", [])
        try:
            self.folder = self._folder_of(former="resume")
        except (InputError, OSError) as error:
            self.folder = None
            warn(f"the monitor cannot go on in its run folder: {first_line(error)}")
        for note in notes:
            self.note(note)

    def save(self) -> None:
        """A disk that is full does not end a training: what was measured stays in memory until the next time."""
        if self.folder is None:
            return
        try:
            datasets = self.datasets
            for name in self._forgotten - {*datasets}:
                self.folder.remove_dataset(name)
            for name, data in datasets.items():
                self.folder.write_dataset(name, data)
        except Exception as error:  # of a disk, or of the libraries that write
            self.say(f"the monitor cannot save: {first_line(error)}")

    def say(self, text: str) -> None:
        """To the user, and to a reader of the run folder."""
        warn(text)
        self.note(text)

    def note(self, text: str) -> None:
        if self.folder is not None:
            with suppress(InputError, OSError):  # the folder may be what failed
                self.folder.note(text)

    def end(self, error: BaseException | None) -> None:
        """error: that ended the training."""
        if self.folder is not None:
            try:
                self.folder.__exit__(type(error) if error is not None else None, error, None)
            except (InputError, OSError) as failed:
                warn(f"the monitor cannot end its run folder: {first_line(failed)}")
