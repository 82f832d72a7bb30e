"""`ss.Monitor`: looks at a network while it trains, in any loop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from skipscope.errors import InputError, first_line
from skipscope.monitor.alarms import Alarm
from skipscope.monitor.expected import expected
from skipscope.monitor.following import Followed, decided_by_the_first, is_first
from skipscope.monitor.kept import Kept
from skipscope.monitor.measures import MEASURES, Look
from skipscope.monitor.objective import Objective
from skipscope.monitor.options import (
    check_batch,
    check_loss,
    check_numbers,
    check_objects,
    possible,
    traced,
    trains,
    wanted,
    why_no_gradients,
)
from skipscope.monitor.pace import Pace
from skipscope.monitor.recording import Recorded
from skipscope.monitor.sharpness import Groups, Rate, groups_of, settings_of
from skipscope.monitor.steps import Steps
from skipscope.monitor.untouched import floating_type, forget_memory_of, untouched, wait_for
from skipscope.monitor.writers import PREFIX, numbers_of, writers_of
from skipscope.runs import RunFolder
from skipscope.runs.files import digest_of_tensors
from skipscope.runs.folder import Former
from skipscope.trace import Trunk
from skipscope.trace.inputs import tensors_of
from skipscope.wording import counted, share

if TYPE_CHECKING:
    import xarray

SAVING = "saving"  # writing the run folder
FAILURES = 3  # of a measure one after another, after which it is left out
SAMPLES = 4  # of the batch, for measures that take samples one by one


class Monitor:
    """Look at a model while it trains, without changing the training.

    Call `step(loss)` after every step of the optimizer; or register `hook` with the optimizer; or take the callbacks
    `lightning()` and `huggingface()`. As a context, or by `close()`, it ends its run folder.
    """

    def __init__(
        self,
        model: nn.Module | Trunk,
        x: Any,
        every: int = 100,
        measures: Sequence[str] | None = None,
        budget: float | None = 0.05,
        *,
        targets: Any = None,
        loss: Callable[..., Tensor] | None = None,
        optimizer: Optimizer | None = None,
        rate: float | Callable[[], float] | None = None,
        out: Path | str | None = None,
        former: Former = "refuse",
        writers: Any = None,
        on_alarm: Callable[[Alarm], Any] | None = None,
        follow: nn.Module | None = None,
        samples: int = SAMPLES,
        seed: int = 0,
    ) -> None:
        """model: that is trained, or its trunk; what torch.compile or DistributedDataParallel made of it too.
        x: a batch that every look is at; keep it apart from the training data or not, but keep it the same.
        every: steps between two looks, at least. measures: names, all that the model allows by default.
        budget: the share of the time that looks may take; None for no limit.
        targets: labels of x, with the cross-entropy of the model's output as the loss. loss: another one, a function
        of the model's output, and of the targets where they are given. Without either, gradients are those of the
        output along a random direction, and there is no sharpness.
        optimizer: whose rate the sharpness is compared with. rate: that of plain gradient descent in its place.
        out: a run folder. former: what to do with a run in it: "refuse", "replace" or "resume".
        writers: "tensorboard", "wandb", "mlflow", objects of theirs, or functions of numbers and a step.
        on_alarm: called with every alarm; what it raises ends the training.
        follow: the model that is trained where it is sharded (FSDP); `model` is then a plain copy of it.
        samples: of x, for measures that take samples one by one. seed: of random vectors.
        """
        check_numbers(every, budget, samples, seed)
        check_objects(optimizer, rate, out, on_alarm, follow)
        self.every, self.budget = every, budget
        self.optimizer, self.rate, self.on_alarm = optimizer, rate, on_alarm
        self._given = optimizer
        self.samples, self.seed = samples, seed
        self.left_out: dict[str, str] = {}
        self._failures: dict[str, int] = {}
        self._objective = Objective.of(loss, targets)
        self._settings_before: tuple[float, ...] | None = None
        self._stepped_with: Groups | None = None  # where a schedule goes on before `step` is called
        self._rate_failed = False
        self._closed, self._counts = False, False  # counts: a step was
        # Of several processes the first one looks; where weights have to be gathered, the others help.
        self._looks = is_first()
        self._followed: Followed | None = None
        names = wanted(measures)
        if not self._looks:
            self.kept = Kept()
            self._followed = None if follow is None else Followed(None, follow)
            self.pace = Pace({}, every=self.every, budget=self.budget)
            return
        self.trunk = model if isinstance(model, Trunk) else traced(model, x)
        if not self.trunk.units:
            raise InputError(
                f"Monitor: {type(self.trunk.model).__name__} has no residual units to look at; name modules in their "
                "place: ss.Monitor(ss.trace(model, x, units=['path.of.module', ...]), x)"
            )
        self._inputs, self._dtype = self.trunk.inputs(x), floating_type(self.trunk.model)
        check_batch(self._inputs)
        self._measures, self.left_out = possible(names, self.trunk, self._objective, explicit=measures is not None)
        self._followed = None if follow is None else Followed(self.trunk.model, follow)
        guesses = dict.fromkeys(self._measures, 0.0)
        self.kept = Kept(type(self.trunk.model).__name__)
        if out is not None:
            guesses[SAVING] = 0.0
            batch = digest_of_tensors([*self._inputs.tensors(), *tensors_of(targets)])
            parameters = {"measures": self._measures, "samples": samples, "batch": batch}
            self.kept.open(Path(out), former, self.trunk, seed, parameters)
            self.kept.note(f"Looks are at least {counted(every, 'step')} apart; budget: {budget}.")
        self._writers = writers_of(writers, None if out is None else Path(out))
        self.pace = Pace(guesses, every=self.every, budget=self.budget, first="sizes")
        if optimizer is not None and follow is None and not trains(optimizer, self.trunk.model):
            self.kept.say("the optimizer that the monitor was given has none of the model's weights")
        self._first_look()

    # -- in a loop

    def step(self, loss: Tensor | float | None = None, step: int | None = None) -> None:
        """A step of the training is done. loss: of that step. step: its number, where it is not the next one, as
        after a checkpoint was loaded."""
        self._require_open()
        with self.pace.around():
            due = self._counted(loss, step)
        if due:
            self._look(due, self.steps.last)

    def before_step(self) -> None:
        """The optimizer is about to step: its rate of now is that of the step, also where a schedule sets the next one
        before `step` is called, as the trainers of Lightning and transformers do."""
        if self.optimizer is not None:
            self._stepped_with = groups_of(self.optimizer)

    def look(self, measures: Sequence[str] | None = None) -> None:
        """A look now, whatever the budget says. measures: names, all by default."""
        self._require_open()
        names = wanted(measures)
        due = [name for name in names if name in self._measures] if self._looks else []
        if self._followed is not None:
            due = decided_by_the_first(due)
        if due:
            self._look([*due, *([SAVING] if self.folder is not None else [])], self.steps.last)

    def hook(self, optimizer: Optimizer, *_: Any) -> None:
        """For `optimizer.register_step_post_hook(monitor.hook)`: every step of the optimizer is one of the monitor."""
        if self.optimizer is None:
            self.optimizer = optimizer
        self.step()

    def lightning(self) -> Any:
        """A callback for Lightning's Trainer: `Trainer(callbacks=[monitor.lightning()])`."""
        from skipscope.monitor.callbacks import lightning_callback

        return lightning_callback(self)

    def huggingface(self) -> Any:
        """A callback for the Trainer of transformers: `Trainer(callbacks=[monitor.huggingface()])`."""
        from skipscope.monitor.callbacks import huggingface_callback

        return huggingface_callback(self)

    # -- what was found

    @property
    def steps(self) -> Steps:
        """Those of the training so far: `last` is the number of the last one."""
        return self.kept.steps

    @property
    def recorded(self) -> dict[str, Recorded]:
        """What looks have found so far, by measure."""
        return self.kept.recorded

    @property
    def folder(self) -> RunFolder | None:
        """None where nothing is written."""
        return self.kept.folder

    @property
    def alarms(self) -> tuple[Alarm, ...]:
        return self.kept.alarms

    @property
    def exit_code(self) -> int:
        """For a script's end, `sys.exit(monitor.exit_code)`: 1 after an alarm, else 0."""
        return 1 if self.alarms else 0

    @property
    def share(self) -> float:
        """Of the time since the first step, what the monitor has taken."""
        return self.pace.share

    @property
    def datasets(self) -> dict[str, xarray.Dataset]:
        """By measure, each with the dimension `step`; `loss` is that of the training, and `alarms` what rang."""
        return self.kept.datasets

    def __getitem__(self, name: str) -> xarray.Dataset:
        datasets = self.datasets
        if name not in datasets:
            raise InputError(
                f"nothing was measured of {name!r} so far; there is {', '.join(datasets) or 'nothing yet'}"
            )
        return datasets[name]

    def __str__(self) -> str:
        if not self._looks:
            return "A monitor that leaves looking to the first process."
        looked = {name: sum(step > 0 for step in one.steps) for name, one in self.recorded.items()}
        looks = ", ".join(f"{name} {count}" for name, count in looked.items() if count)
        limit = "no budget" if self.budget is None else f"budget {share(self.budget)}"
        lines = [
            f"Monitored {counted(self.steps.last, 'step')} of {type(self.trunk.model).__name__}; looks: "
            f"{looks or 'none'}; {share(self.share)} of the time ({limit})."
        ]
        lines += [f"Left out: {name}: {reason}." for name, reason in self.left_out.items()]
        lines += self._not_looked_at()
        lines += [f"Alarm at {alarm}" for alarm in self.alarms] or ["No alarm."]
        return "\n".join(lines)

    def _not_looked_at(self) -> list[str]:
        waiting = {name: cost for name, cost in self.pace.not_run().items() if name != SAVING}
        if not waiting or not self.steps.last:
            return []
        costs = [f"{name} (expected to take {cost:.2g} s)" for name, cost in waiting.items()]
        earned = "" if math.isinf(self.pace.earned) else f"; the budget has earned {self.pace.earned:.2g} s"
        return [f"Not looked at yet: {', '.join(costs)}{earned}."]

    # -- its end

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self, error: BaseException | None = None) -> None:
        """Write what is not written yet, and end the run folder. error: that ended the training."""
        if self._closed:
            return
        self._closed = True
        self.pace.pause()
        rang = self._losses_judged(waiting=True) if self._looks else []
        self.kept.save()
        self.kept.note(str(self).splitlines()[0])
        self.kept.end(error)
        if error is None:
            self._tell(rang)

    def reopen(self) -> None:
        """After `close`: the training goes on, in the same run folder; steps are counted on. An optimizer that the
        monitor was not given, but met in the training, is forgotten: another training has another."""
        if not self._closed:
            return
        self._closed, self._stepped_with, self.optimizer = False, None, self._given
        self.pace.go_on()
        self.kept.reopen()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close(error)

    def _require_open(self) -> None:
        if self._closed:
            raise InputError("Monitor: it is closed; monitor.reopen() goes on with it, in its folder")

    # -- a look

    def _counted(self, loss: Tensor | float | None, step: int | None) -> list[str]:
        """What is to be done after this step."""
        last, rate = self.steps.last, self._rate_now() if self._looks else math.nan
        number = self.steps.count(loss, step, rate)
        if number < last or (number == last and not self._counts):
            self.kept.forget(number)
        self._counts = True
        self.pace.stepped()
        if self._looks and (rang := [*self._losses_judged(waiting=False), *self._settings_judged(rate)]):
            self.kept.save()  # before anybody is told, who may end the training
            self._tell(rang)
        if number % self.every:
            return []
        due = self.pace.due(number) if self._looks else []
        return due if self._followed is None else decided_by_the_first(due)

    def _losses_judged(self, *, waiting: bool) -> list[Alarm]:
        """waiting: also those that a GPU holds."""
        found = self.steps.first_not_finite(waiting=waiting)
        alarm = None if found is None else self.kept.judge.loss_not_finite(*found)
        return [] if alarm is None else [alarm]

    def _settings_judged(self, rate: float) -> list[Alarm]:
        """Where the rate, or the momentum, of a group has changed: what the last sharpness says of it."""
        settings = (rate,) if self.optimizer is None else settings_of(self._groups)
        before, self._settings_before = self._settings_before, settings
        if settings is None or settings == before or math.isnan(rate):
            return []
        return self.kept.judge.at_rate(self.recorded, self.steps.last, self._rate_of_now().limit)

    def _first_look(self) -> None:
        """Before the training: what looks are compared with. What is loaded or made for the first time costs no look
        of its time, and of a folder it is known that it can be written to."""
        wait_for(self.trunk.model)
        with untouched(self.trunk.model):
            look = self._at_weights_of_now()
            check_loss(look)
            if "sizes" in self._measures:
                found = self._tried("sizes", look, None if "sizes" in self.recorded else self.steps.last)
                if found is not None and look.finite and bool(found["gradient_rms"].isnull().all()):
                    self.kept.say(f"gradients cannot be measured: {why_no_gradients(look)}")
            self.kept.save()
            if self.budget is not None:
                self._expect_costs()

    def _expect_costs(self) -> None:
        """Now that everything is loaded: what the looks of the training will take."""
        with suppress(Exception):  # the first look has said why
            self.pace.expect(expected(self._measures, self._at_weights_of_now()))
        if self.folder is not None:
            begun = time.perf_counter()
            self.kept.save()
            datasets = 1 + len(self._measures)  # with the losses; so far there is that of the sizes
            self.pace.expect({SAVING: (time.perf_counter() - begun) * datasets})

    def _look(self, due: Sequence[str], step: int) -> None:
        if not self._looks:
            if self._followed is not None:
                self._followed.update()
            return
        model = self.trunk.model
        wait_for(model)
        with self.pace.around(), untouched(model):
            if self._followed is not None:
                with self.pace.spending(due[0], step, again=True):
                    self._followed.update()
            rang = self._measured([name for name in due if name != SAVING], step)
            if self.folder is not None and (SAVING in due or rang):
                with self.pace.spending(SAVING, step):
                    self.kept.save()
        self._tell(rang)

    def _tell(self, alarms: Sequence[Alarm]) -> None:
        for alarm in alarms:
            if self.on_alarm is not None:
                self.on_alarm(alarm)

    def _measured(self, names: Sequence[str], step: int) -> list[Alarm]:
        if not names:
            return []
        numbers: dict[str, float] = {}
        try:
            look = self._at_weights_of_now()
        except Exception as error:  # a device that has no room for the batch
            for name in names:
                self._failed(name, first_line(error))
            return []
        for name in names:
            with self.pace.spending(name, step):
                found = self._tried(name, look, step)
                if found is not None and self._writers:
                    numbers |= numbers_of(name, found)
        with self.pace.spending(names[-1], step, again=True):
            rang = [*self._losses_judged(waiting=True), *self.kept.judge.judged(self.recorded, step)]
            self._write({**numbers, f"{PREFIX}/alarms": float(len(self.alarms))}, step)
        return rang

    def _write(self, numbers: dict[str, float], step: int) -> None:
        """A writer that fails is given up: a training does not end because a server cannot be reached."""
        for writer in list(self._writers):
            try:
                writer(numbers, step)
            except Exception as error:  # whatever another library's client raises
                self._writers.remove(writer)
                self.kept.say(f"the monitor gives a writer up at step {step}: {first_line(error)}")

    def _at_weights_of_now(self) -> Look:
        device = next((weight.device for weight in self.trunk.model.parameters()), torch.device("cpu"))
        if any(tensor.device != device for tensor in self._inputs.tensors()):  # the model has moved
            self._change(lambda tensor: tensor.to(device))
        dtype = floating_type(self.trunk.model)
        if dtype != self._dtype:  # model.double(), model.bfloat16()
            self._dtype = dtype
            self._change(lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor)
        return Look(self.trunk, self._inputs, self._objective, self._rate_of_now(), self.samples, self.seed)

    def _change(self, change: Callable[[Tensor], Tensor]) -> None:
        self._inputs = self._inputs.map(change)
        self._objective = None if self._objective is None else self._objective.map(change)

    def _tried(self, name: str, look: Look, step: int | None) -> xarray.Dataset | None:
        """What was found, recorded at a step. A measure that fails says why, and is left out after FAILURES times: the
        training goes on."""
        try:
            if name != "sizes" and not look.finite:
                return None  # what is said of sizes says it all
            found = MEASURES[name].measure(look)
            if step is not None:
                self.recorded.setdefault(name, Recorded(name)).add(step, found)
        except Exception as error:
            forget_memory_of(error)
            self._failed(name, first_line(error))
            return None
        self._failures[name] = 0
        return found

    def _failed(self, name: str, reason: str) -> None:
        self._failures[name] = self._failures.get(name, 0) + 1
        if self._failures[name] == 1:
            self.kept.say(f"{name} cannot be measured at step {self.steps.last}: {reason}")
        if self._failures[name] == FAILURES:
            self.left_out[name] = reason
            self._measures.remove(name)
            self.pace.items[name].stopped = True
            self.kept.say(f"the monitor leaves {name} out from step {self.steps.last} on: {reason}")

    @property
    def _groups(self) -> Groups:
        """What the last step was made with; none where there is no optimizer."""
        if self.optimizer is None:
            return []
        return self.optimizer.param_groups if self._stepped_with is None else self._stepped_with

    def _rate_now(self) -> float:
        """Without waiting for a GPU: a rate that is a tensor there is read at looks alone."""
        rate = self._groups[0].get("lr") if self._groups else self.rate
        if isinstance(rate, float):
            return rate
        return math.nan if isinstance(rate, Tensor) and rate.device.type != "cpu" else self._rate_of_now().rate

    def _rate_of_now(self) -> Rate:
        """A rate that cannot be read any more is said once, and has no limit."""
        try:
            return Rate.of(self.optimizer, self.rate, self._groups)
        except Exception as error:  # whatever a user's function raises
            if not self._rate_failed:
                self._rate_failed = True
                self.kept.say(f"the rate cannot be read at step {self.steps.last}: {first_line(error)}")
            return Rate(math.nan, math.nan)
