"""Which settings of a module are read while it runs.

A class whose modules are watched gets a `__getattribute__` of ours, once for all threads and all watchers, and loses it
with the last of them: traces in several threads may watch modules of one class at the same time.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from skipscope.trace.alike_blocks import Setting

Settings = Mapping[str, Setting]  # of one module, by their names
Watch = tuple[Mapping[int, Settings], set[Setting]]  # the settings of each module, and which of them were read


@dataclass
class _Watched:
    """A class with our `__getattribute__`, and those who watch."""

    own: Any  # what the class itself had; None where it had that of its parent
    watches: list[Watch] = field(default_factory=list)


_classes: dict[type, _Watched] = {}
_changing = threading.RLock()


@contextmanager
def watching(block: nn.Module, settings: Iterable[Setting], read: set[Setting]) -> Iterator[None]:
    """Take down which of these settings of the block are read."""
    watched: dict[int, dict[str, Setting]] = {}
    classes: set[type] = set()
    for path, name in settings:
        module = block.get_submodule(path)
        watched.setdefault(id(module), {})[name] = (path, name)
        classes.add(type(module))
    with ExitStack() as stack:
        for some in classes:
            stack.enter_context(_watched(some, (watched, read)))
        yield


@contextmanager
def _watched(some: Any, watch: Watch) -> Iterator[None]:
    with _changing:
        if some not in _classes:
            _classes[some] = _Watched(vars(some).get("__getattribute__"))
            some.__getattribute__ = _seen(some.__getattribute__, _classes[some].watches)
        _classes[some].watches.append(watch)
    try:
        yield
    finally:
        with _changing:
            _classes[some].watches[:] = [other for other in _classes[some].watches if other is not watch]
            if not _classes[some].watches:
                own = _classes.pop(some).own
                if own is None:
                    del some.__getattribute__
                else:
                    some.__getattribute__ = own


def _seen(usual: Callable[[Any, str], Any], watches: list[Watch]) -> Callable[[Any, str], Any]:
    def seen(self: Any, name: str) -> Any:
        for watched, read in watches:
            settings = watched.get(id(self))
            if settings is None:
                continue
            if name in settings:
                read.add(settings[name])
            elif name == "__dict__" and sys._getframe(1).f_globals.get("__name__") != nn.Module.__module__:
                read.update(settings.values())  # whoever has all settings may read any
        return usual(self, name)

    return seen
