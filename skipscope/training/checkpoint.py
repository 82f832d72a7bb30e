"""The whole state of a training run after an epoch, in one safetensors file.

    model/NAME, momentum/NAME, hook/K       weights and buffers; momentum buffers; arrays that hooks returned
    header: "skipscope"                     a JSON document: format, epoch, identity (settings, model, data), history,
                                            gradient scaler, hook results without their arrays
    header: "sha256_of_this_file"           see `sealed.py`

No state of a random generator is in it: randomness belongs to epochs (`surroundings.py`). The file is there whole or
not at all, so that one that does not fit its digest is damaged and an error, never a training that starts over in
silence; `identity` is compared before anything is taken from it.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from skipscope.data.dataset import Split
from skipscope.errors import InputError, first_line, out_of_memory
from skipscope.runs import write_whole
from skipscope.sealed import read_tensors, tensor_file
from skipscope.training.history import History
from skipscope.training.hooks import At, pack, unpack
from skipscope.training.settings import Settings
from skipscope.training.step import Update

FORMAT = 2
UNSEALED = 1  # the format before files had a digest of themselves; otherwise the same
HEADER = "skipscope"


@dataclass(frozen=True)
class Run:
    """What has a state, and what the state belongs to."""

    model: nn.Module
    update: Update
    history: History
    hooks: Sequence[At]
    identity: dict[str, Any]

    def tensors(self) -> dict[str, Tensor]:
        """By their names in the file; the run's own, not copies."""
        named = {**dict(self.model.named_parameters()), **dict(self.model.named_buffers())}
        return {
            **{f"model/{name}": tensor.detach() for name, tensor in named.items()},
            **{f"momentum/{name}": tensor for name, tensor in self.update.momenta.items()},
        }

    def state(self) -> State:
        arrays: dict[str, Any] = {}
        results = {hook.name: {str(epoch): value for epoch, value in hook.results.items()} for hook in self.hooks}
        record = {
            "format": FORMAT,
            "epoch": self.history.epochs,
            "identity": self.identity,
            "history": self.history.to_dict(),
            "scaler": None if self.update.scaler is None else self.update.scaler.state_dict(),
            "hooks": pack(results, arrays),
        }
        tensors = {name: tensor.clone() for name, tensor in self.tensors().items()}
        return State(tensors | {f"hook/{name}": torch.from_numpy(array) for name, array in arrays.items()}, record)

    def take(self, state: State, path: Path) -> None:
        """Go on from there: everything but the model's and the settings' own objects is replaced."""
        with whole_record(path):
            self._take(state, path)

    def _take(self, state: State, path: Path) -> None:
        self._check(state, path)
        with torch.no_grad():
            for name, tensor in self.tensors().items():
                tensor.copy_(state.tensors[name])
        if self.update.scaler is not None:
            self.update.scaler.load_state_dict(state.record["scaler"])
        vars(self.history).update(vars(History.from_dict(state.record["history"])))
        arrays = {n.removeprefix("hook/"): t.numpy() for n, t in state.tensors.items() if n.startswith("hook/")}
        results = unpack(state.record["hooks"], arrays)
        for hook in self.hooks:
            hook.results = {int(epoch): value for epoch, value in results[hook.name].items()}

    def _check(self, state: State, path: Path) -> None:
        differences = [
            f"{name} was {before!r} and is {now!r}"
            for name, before, now in differences_in(state.record["identity"], self.identity)
        ]
        found = {name: list(tensor.shape) for name, tensor in state.tensors.items() if not name.startswith("hook/")}
        expected = {name: list(tensor.shape) for name, tensor in self.tensors().items()}
        differences += [f"{name}: shape {b} was, {n} is" for name, b, n in differences_in(found, expected)]
        if "history" in state.record:  # that of a fleet has several, and another identity
            differences += without_results(
                self.hooks, state.record["hooks"], state.record["epoch"], state.record["history"]["diverged_at"]
            )
        refuse_another_training(path, differences)


@dataclass(frozen=True)
class State:
    """A copy: the run may go on."""

    tensors: dict[str, Tensor]
    record: dict[str, Any]

    def write(self, path: Path) -> None:
        content = tensor_file(self.tensors, {HEADER: json.dumps(self.record)})
        write_whole(path, content)

    @classmethod
    def read(cls, path: Path) -> State:
        try:
            content = read_tensors(path)
            record = json.loads(content.metadata[HEADER])
            found = record.get("format")
        except (OSError, ValueError, KeyError, AttributeError, RecursionError) as error:
            raise _damaged(path, f"{type(error).__name__}: {error}") from error
        if not isinstance(found, int) or found not in (FORMAT, UNSEALED):
            raise InputError(f"{path}: expected format {FORMAT} of a checkpoint, got {found}")
        if found == FORMAT and not content.sealed:
            raise _damaged(path, "it has lost the digest of itself")
        if not content.sealed:
            warnings.warn(
                f"{path} was written by an older version, without a digest: whether it was changed is not known",
                stacklevel=2,
            )
        return cls(content.tensors, record)


@contextlib.contextmanager
def whole_record(path: Path) -> Iterator[None]:
    """Around whatever takes a state: a file that fits its digest was still made by anybody, and may lack entries."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError) as error:
        if out_of_memory(error):
            raise
        raise _damaged(path, f"its record has an odd form: {type(error).__name__}: {first_line(error)}") from error


def _damaged(path: Path, why: str) -> InputError:
    return InputError(
        f"{path} is not a whole checkpoint of a training ({why}); put back a copy of it, "
        "or delete it to train again from the first epoch"
    )


class HasState(Protocol):
    """A run, or a fleet of them."""

    def state(self) -> State: ...


class Keeper:
    """Writes states, but at most once in a given number of seconds; the last one is kept in memory until then."""

    def __init__(self, path: Path | None, every: float) -> None:
        """path None: nothing is kept."""
        self._path = path
        self._every = every
        self._written = time.monotonic()
        self._waiting: State | None = None

    def offer(self, run: HasState) -> None:
        if self._path is None:
            return
        self._waiting = run.state()
        if time.monotonic() - self._written >= self._every:
            self.flush()

    def flush(self) -> None:
        if self._path is not None and self._waiting is not None:
            self._waiting.write(self._path)
            self._waiting, self._written = None, time.monotonic()


def without_results(hooks: Sequence[At], kept: Mapping[str, Any], epoch: int, diverged_at: int | None) -> list[str]:
    """Hooks that a checkpoint after `epoch` epochs lacks results of, in words."""
    found = []
    for hook in hooks:
        missing = [e for e in hook.epochs if e <= epoch and str(e) not in kept.get(hook.name, {})]
        if hook.name not in kept or (missing and diverged_at is None):
            found.append(f"the hook '{hook.name}' has no result for {missing or 'any epoch'}")
    return found


def refuse_another_training(path: Path, differences: Sequence[str]) -> None:
    """An error where there are differences between a checkpoint and the training that would go on from it."""
    if differences:
        more = f" and {len(differences) - 3} more" if len(differences) > 3 else ""
        raise InputError(
            f"{path} is a checkpoint of another training: {'; '.join(differences[:3])}{more}. "
            "Choose another file, or delete this one to start over"
        )


def identity(settings: Settings, model: nn.Module, split: Split, test: Split | None, test_every: int) -> dict[str, Any]:
    """What a checkpoint must share with the run that goes on from it, as JSON gives it back."""
    return identity_of(settings, model, split.digest(), None if test is None else test.digest(), test_every)


def identity_of(settings: Settings, model: nn.Module, split: str, test: str | None, test_every: int) -> dict[str, Any]:
    """The same from the digests of the splits."""
    found = {
        **asdict(settings),
        "model": type(model).__name__,
        "training data": split,
        "test data": test,
        "test_every": test_every,
        **{f"module {name}".strip(): text for name, text in structure(model).items()},
    }
    return json.loads(json.dumps(found))


SCALARS = (bool, int, float, str, type(None))


def structure(model: nn.Module) -> dict[str, str]:
    """What every module is: its class and its settings. Weights of equal shapes may belong to different functions.

    Settings are what the module shows of itself, and its public attributes that are numbers, texts, functions, or
    tuples of these: whether a block has a skip is such an attribute, and no weight tells.
    """
    found = {}
    for name, module in model.named_modules():
        shown = re.sub(r" at 0x[0-9a-f]+", "", module.extra_repr())  # an address is another one each time
        more = [
            f"{key}={text}"
            for key, value in sorted(vars(module).items())
            if not key.startswith("_") and key != "training" and f"{key}=" not in shown
            if (text := _setting(value)) is not None
        ]
        found[name] = f"{type(module).__qualname__}({', '.join(filter(None, [shown, *more]))})"
    return found


def _setting(value: Any) -> str | None:
    """As text, the same in every process; None for what is no setting."""
    if isinstance(value, SCALARS):
        return repr(value)
    if isinstance(value, (tuple, list)):
        parts = [_setting(part) for part in value]
        return None if None in parts else f"({', '.join(map(str, parts))})"
    return getattr(value, "__qualname__", None) or getattr(value, "__name__", None) if callable(value) else None


def differences_in(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    names = [*before, *(name for name in now if name not in before)]
    return [(name, before.get(name), now.get(name)) for name in names if before.get(name) != now.get(name)]
