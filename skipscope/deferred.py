"""Packages whose public names are imported when they are first used.

Torch takes seconds to import. The command line reads names of networks and data sets, budgets and settings before that,
from modules that do without it, and a package must not bring torch only because one of these modules lies in it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Any


class Deferred(ModuleType):
    """A package whose public names appear on first use."""

    _HOMES: Mapping[str, str]  # the module that each public name is from; of a module, the package that it is in

    def __getattr__(self, name: str) -> Any:
        if name not in self._HOMES:
            raise AttributeError(f"module '{self.__name__}' has no attribute '{name}'")
        home = self._HOMES[name]
        value = import_module(f"{home}.{name}") if home == self.__name__ else getattr(import_module(home), name)
        setattr(self, name, value)
        return value

    def __setattr__(self, name: str, value: object) -> None:
        # A public name may also be that of the module that it lives in. When the module is first imported, from
        # anywhere, the import system binds it to this name; the public name stays what it stands for.
        if self._HOMES.get(name, self.__name__) == self.__name__ or not isinstance(value, ModuleType):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._HOMES})


def defer(package: str, names: Mapping[str, str]) -> list[str]:
    """Called by a package's `__init__.py`; returns all names, for its `__all__`.

    names: by module of the package, its public names with spaces between them; by "" those that are modules themselves.
    """
    module = sys.modules[package]
    module.__dict__["_HOMES"] = {
        name: f"{package}.{home}".rstrip(".") for home, listed in names.items() for name in listed.split()
    }
    module.__class__ = Deferred
    return sorted(module.__dict__["_HOMES"])
