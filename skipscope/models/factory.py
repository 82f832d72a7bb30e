"""A user's own model: `file.py:factory`, a function that returns a module, or a module and an example input."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from skipscope.errors import InputError
from skipscope.models.examples import NotCalledAgainError
from skipscope.models.memory import ALLOCATE_AT_MOST, GIB, size_of
from skipscope.models.recipe import Batch, Recipe, Wish, random_images, refuse_text
from skipscope.models.request import require_model


def factory_recipe(file: str, name: str) -> Recipe:
    """The factory is called here: only the call tells whether an example input comes with the module."""
    require_model(f"{file}:{name}")
    path = Path(file)
    with _beside(path):
        module = _executed(path)
        if not name or not hasattr(module, name):
            functions = [key for key, value in vars(module).items() if _is_factory(value, module)]
            known = f"; it has {', '.join(functions[:6])}" if functions else ""
            raise InputError(f"{file} has no '{name}'{known}")
        made = _called(path, getattr(module, name))
    model, batch = _taken_apart(made)
    if not isinstance(model, nn.Module):
        raise InputError(
            f"{file}:{name} gave {type(model).__name__}; expected a torch.nn.Module, or a module and an example input"
        )

    if isinstance(model, torch.jit.ScriptModule):
        raise InputError(
            f"{file}:{name} gave a TorchScript module, which has no Python code to follow; give the original"
        )
    if any(is_lazy(weight) for weight in (*model.parameters(), *model.buffers())):
        raise InputError(
            f"{file}:{name} gave lazy layers without weights; run it once on an example before it is given"
        )

    def example(model: nn.Module, wish: Wish) -> Batch | None:
        refuse_text(wish, f"{file}:{name}")
        return batch if wish.shape is None else random_images(wish.shape, wish.samples)

    def another_example() -> Batch | None:
        if size_of(model) > ALLOCATE_AT_MOST:
            raise NotCalledAgainError(
                f"it was not called a second time: that would build a second model in addition to the first, of "
                f"{size_of(model) / GIB:.1f} GiB; let it give more samples"
            )
        with _beside(path):
            return _taken_apart(_called(path, getattr(module, name)))[1]

    return Recipe(
        f"{file}:{name}",
        build=lambda: model,
        example=example,
        another_example=another_example,
        weights="weights as the factory made them",
        random_weights=False,
    )


def _taken_apart(made: Any) -> tuple[Any, Batch | None]:
    return made if isinstance(made, tuple) and len(made) == 2 else (made, None)


def _is_factory(value: Any, module: ModuleType) -> bool:
    return callable(value) and getattr(value, "__module__", None) == module.__name__


@contextmanager
def _beside(path: Path) -> Iterator[None]:
    """Let the file import its neighbours, as it can when Python runs it."""
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


def _executed(path: Path) -> ModuleType:
    # The name keeps a user's torch.py or data.py from shadowing anything; dataclasses look their module up by it.
    name = f"skipscope_factory_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path} cannot be loaded as Python code; give a file whose name ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # the exit code is ours
        raise _explained(path, error) from error
    return module


def _called(path: Path, factory: Any) -> Any:
    if isinstance(factory, nn.Module) or not callable(factory):
        return factory
    try:
        return factory()
    except (Exception, SystemExit) as error:
        raise _explained(path, error) from error


def _explained(path: Path, error: BaseException) -> InputError:
    """The line of the user's file that failed: the part of a traceback that the user can act on."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).name == path.name]
    line = frames[-1].lineno if frames else getattr(error, "lineno", None)
    return InputError(f"{path}{f', line {line}' if line else ''}: {type(error).__name__}: {error}")
