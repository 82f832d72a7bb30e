"""The training loop: data that live on the device, no wait for the device inside an epoch, a run that can be resumed.

A loss that is not finite stops the training; that is a result, and the history says at which step. A run that was
stopped and resumed from its checkpoint ends with the same numbers as one that was not (`surroundings.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from skipscope.cores import one_thread
from skipscope.data.dataset import Split
from skipscope.errors import InputError
from skipscope.numerics import seed_of
from skipscope.progress import Progress
from skipscope.trace.undisturbed import unwrapped
from skipscope.training.batches import Batches
from skipscope.training.checkpoint import Keeper, Run, State, identity
from skipscope.training.epochs import Epochs
from skipscope.training.history import History
from skipscope.training.hooks import At, start_anew
from skipscope.training.processes import Processes, processes
from skipscope.training.settings import Settings
from skipscope.training.step import GraphedStep, Step, Update, trained_weights
from skipscope.training.surroundings import in_mode, laid_out, little_work, same_kernels_each_time, seeded

SAVE_EVERY = 20.0  # seconds between two checkpoints


def train(
    model: nn.Module,
    split: Split,
    settings: Settings,
    *,
    test: Split | None = None,
    test_every: int = 1,
    progress: Progress | None = None,
    hooks: Sequence[At] = (),
    checkpoint: Path | str | None = None,
    save_every: float = SAVE_EVERY,
    graph: bool | None = None,
    channels_last: bool = True,
) -> History:
    """Minimise the cross-entropy on the model's device; the model is left in the mode that it was found in.

    test: tested on after every `test_every` epochs and after the last. progress: called after every step; an exception
    that it raises ends the training. checkpoint: a file to go on from if it is there, written after an epoch when the
    last writing was `save_every` seconds ago, at the end, and when an exception ends the training. graph: replay the
    step as a CUDA graph; None: where that is possible. channels_last: the layout of 4-d weights and images on a GPU,
    for the time of the training.
    """
    if len(split) < settings.batch or test_every < 1:
        raise InputError(
            f"training: expected at least one batch of {settings.batch} images and test_every of at least 1, "
            f"got {len(split)} images and {test_every}"
        )
    trained_weights(model)  # says so where there are none
    start_anew(hooks, settings.epochs)
    path = None if checkpoint is None else Path(checkpoint)
    known = {} if path is None else identity(settings, unwrapped(model), split, test, test_every)
    together = processes(model, settings.batch)
    split, test = split.to(together.device), None if test is None else test.to(together.device)
    history = History()
    with (
        in_mode(model, training=True),
        laid_out(model, channels_last) as layout,
        same_kernels_each_time(),
        one_thread(together.device.type == "cpu" and little_work(model, settings.batch)),
    ):
        update = Update(trained_weights(unwrapped(model)), settings, together.device)
        run = Run(unwrapped(model), update, history, hooks, known)
        if path is not None:
            _resume(run, path, together)
        dtype, step = next(model.parameters()).dtype, training_step(model, update, together, graph)
        batches = Batches(split, settings, together.device, dtype, layout, rank=together.rank, part=together.part)
        epochs = Epochs(batches, run, step, together)
        keeper = Keeper(path if together.main else None, save_every)
        try:
            if history.epochs == 0:
                _measure(run, together.device)
                keeper.offer(run)
            while history.epochs < settings.epochs and history.diverged_at is None:
                with seeded(together.device, seed_of("epoch", settings.seed, history.epochs), together.rank):
                    for done in epochs.steps():
                        if progress is not None and together.main:
                            progress(done, epochs.total)
                epochs.close()
                together.agree(run.model)
                fine = history.diverged_at is None
                due = fine and (history.epochs % test_every == 0 or history.epochs == settings.epochs)
                tested = _tested(run.model, test, together) if test is not None and due else None
                history.test_accuracy.append(tested)
                if fine:
                    _measure(run, together.device)
                keeper.offer(run)
        finally:
            update.forget_gradients()
            keeper.flush()
    together.wait()
    return history


def training_step(model: nn.Module, update: Update, together: Processes, graph: bool | None = None) -> Step:
    """Eager, or one that captures itself after the first steps."""
    obstacle = ""
    if together.device.type != "cuda":
        obstacle = f"the model is on {together.device.type}"
    elif together.count > 1:
        obstacle = f"{together.count} processes work together"
    elif update.scaler is not None:
        obstacle = "the scaling of float16 gradients looks at them on the host; take bfloat16"
    if graph and obstacle:
        raise InputError(f"training: graph=True, but {obstacle}")
    step: Step = partial(update.step, together.wrap(model))
    if graph is False or obstacle:
        return step
    return GraphedStep(step, update, together.device, required=graph is True)


def _resume(run: Run, path: Path, together: Processes) -> None:
    if path.exists():
        run.take(State.read(path), path)
    # Processes on machines that do not share the file would wait for each other for ever.
    epochs = torch.tensor(run.history.epochs, device=together.device)
    if int(together.total(epochs.clone())) != together.count * int(epochs):
        raise InputError(f"{path}: not every process sees the same checkpoint; put it where all of them can read it")


def _measure(run: Run, device: torch.device) -> None:
    epoch = run.history.epochs
    for hook in run.hooks:
        if epoch in hook.epochs:
            hook.measure(run.model, epoch, run.history, device, run.update.settings.seed)


def _tested(model: nn.Module, test: Split, together: Processes) -> float:
    mine = together.part(torch.arange(len(test), device="cpu"))
    return int(together.total(right_answers(model, test, mine))) / len(test)


def accuracy(model: nn.Module, split: Split, batch: int = 512) -> float:
    """The share of images whose largest output is their label, in evaluation mode."""
    if len(split) == 0 or batch < 1:
        raise InputError(f"accuracy: expected images and a batch of at least 1, got {len(split)} and {batch}")
    return int(right_answers(model, split, torch.arange(len(split), device="cpu"), batch)) / len(split)


def right_answers(model: nn.Module, split: Split, chosen: Tensor, batch: int = 512) -> Tensor:
    """How many of the chosen samples are answered with their label; a number that stays on the model's device."""
    weight = next(model.parameters())
    right = torch.zeros((), dtype=torch.int64, device=weight.device)
    with in_mode(model, training=False), torch.no_grad():
        for part in chosen.to(split.device).split(batch):
            answers = model(split.images(part).to(weight.device, weight.dtype)).argmax(1)
            right += (answers == split.labels[part].to(weight.device)).sum()
    return right
