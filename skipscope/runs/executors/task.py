"""A task: an importable function and plain arguments, which together determine its result.

A task is computed from nothing but its own description: on a number of threads of its own, with random numbers (of
torch, NumPy and Python) that begin at a seed from its key, and with float32 as torch's default dtype. So its result is
the same, on CPUs bit for bit, wherever and whenever it is computed.
What comes back is the function's value or the error that it raised. A worker that is lost (killed, its machine gone)
brings back neither: that is an engine's to notice.
"""

from __future__ import annotations

import contextlib
import io
import pickle
import random
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

from skipscope.errors import InputError, SkipscopeError, first_line, out_of_memory

SEED_DIGITS = 15  # of the key, in hexadecimal: as many as fit a seed


@dataclass(frozen=True)
class Task:
    name: str  # in messages
    function: Callable[..., Any]  # importable by its name wherever a worker runs
    arguments: Mapping[str, Any]
    key: str  # a hash of everything that determines the result: SHA-256 in hexadecimal
    about: Any = field(default=None, compare=False)  # what the driver keeps for itself; it is not sent

    def perform(self, threads: int) -> Any:
        """The result, computed here."""
        from skipscope.cores import threads_of

        with threads_of(threads), _own_state(int(self.key[:SEED_DIGITS], 16)):
            try:
                return self.function(**self.arguments)
            except SystemExit as error:
                raise InputError(
                    f"the code of {self.name} ends the program (sys.exit({error.code!r})); take that out"
                ) from error

    def payload(self, threads: int) -> bytes:
        """What a worker gets."""
        file = io.BytesIO()
        sent = Task(self.name, self.function, self.arguments, self.key)
        try:
            _Pickler(file, pickle.HIGHEST_PROTOCOL).dump((sent, threads))
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise InputError(
                f"{self.name} cannot be sent to another process: {first_line(error)}; give models by their names, or "
                "use the executor 'here'"
            ) from error
        return file.getvalue()


@dataclass(frozen=True)
class Done:
    value: Any


@dataclass(frozen=True)
class Failed:
    error: Exception


@dataclass(frozen=True)
class Lost:
    """The worker ended before the task did."""

    reason: str
    of_memory: bool = False  # ended as a system ends what takes too much memory


Outcome = Done | Failed | Lost


def reply_to(payload: bytes) -> bytes:
    """What a worker does with a task."""
    try:
        task, threads = pickle.loads(payload)
        outcome: Done | Failed = Done(task.perform(threads))
    except Exception as error:
        outcome = Failed(portable(error))
    try:
        return pickle.dumps(outcome, pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        return pickle.dumps(Failed(RuntimeError(f"the result cannot be sent back: {first_line(error)}")))


def outcome_in(reply: bytes) -> Outcome:
    try:
        found = pickle.loads(reply)
    except Exception as error:
        return Failed(RuntimeError(f"the result cannot be read: {type(error).__name__}: {first_line(error)}"))
    assert isinstance(found, (Done, Failed))
    return found


def portable(error: Exception) -> Exception:
    """The same error, or one that says the same where it cannot be pickled; a bug with the worker's traceback."""
    trace = "".join(traceback.format_exception(error))
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        error = RuntimeError(f"{type(error).__name__}: {first_line(error)}")
    if not isinstance(error, SkipscopeError) and not out_of_memory(error):
        error.add_note(f"in a worker:\n{trace}")
    return error


@contextlib.contextmanager
def _own_state(seed: int) -> Iterator[None]:
    """What functions read besides their arguments, as in a process that has just begun; put back afterwards."""
    import numpy
    import torch

    dtype, of_python, of_numpy = torch.get_default_dtype(), random.getstate(), numpy.random.get_state()
    try:
        with torch.random.fork_rng(devices=[]):
            torch.set_default_dtype(torch.float32)
            torch.manual_seed(seed)
            random.seed(seed)
            numpy.random.seed(seed % 2**32)
            yield
    finally:
        torch.set_default_dtype(dtype)
        random.setstate(of_python)
        numpy.random.set_state(of_numpy)


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        return importable_alone(value)


def importable_alone(value: Any) -> Any:
    """For picklers: what a script defines itself is refused, since another process does not find it by its name."""
    if isinstance(value, (type, FunctionType)) and value.__module__ == "__main__":
        raise InputError(
            f"{value.__qualname__} is defined in the script that runs, where no other process finds it; put it "
            "into a module of its own and import it, or use the executor 'here'"
        )
    return NotImplemented
