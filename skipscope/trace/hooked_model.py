"""A model that runs with hooks on named modules, which see every call and may change what goes in and out."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn

from skipscope.errors import InputError
from skipscope.module_hooks import Call, following
from skipscope.trace.inputs import Inputs
from skipscope.trace.precision import OtherPrecision
from skipscope.trace.recording import Recorder, Recording, Watch
from skipscope.trace.undisturbed import undisturbed


class HookedModel:
    def __init__(self, model: nn.Module, paths: Sequence[str]) -> None:
        """paths: of the named modules."""
        self.model, self.paths = model, checked_paths(model, paths)
        self.precision = OtherPrecision(model)

    def recorded(self, inputs: Inputs, functions: bool) -> Recording:
        """functions: also the calls of functions between the named modules."""
        recorder = Recorder(inputs.tensors())
        with torch.no_grad():
            output = self.run(inputs.args, inputs.kwargs, recorder, functions, self.precision.dtype)
        missing = set(self.paths) - {call.path for call in recorder.named}
        if missing:
            raise InputError(
                f"the model never called {', '.join(sorted(missing))}; name modules that run in its forward"
            )
        return recorder.recording(output)

    def run(self, args: Any, kwargs: Any, watch: Watch, functions: bool, dtype: torch.dtype) -> Any:
        """The model's output. functions: the watch also sees the calls of functions between the named modules."""
        with self.quietly(), self._hooked(watch), ExitStack() as stack:
            if functions:
                stack.enter_context(watch)
            return self.precision.call("", args, kwargs, dtype)

    @contextmanager
    def quietly(self) -> Iterator[None]:
        """The user's model is left as it was; gradients are recorded if they were before."""
        grad = torch.is_grad_enabled()
        with undisturbed(self.model), torch.set_grad_enabled(grad):
            yield

    @contextmanager
    def _hooked(self, watch: Watch) -> Iterator[None]:
        def before(call: Call) -> Any:
            return watch.before(call.path, call.args, call.kwargs)

        def after(call: Call, output: Any) -> Any:
            return watch.after(call.path, call.args, call.kwargs, output)

        named = {path: self.model.get_submodule(path) for path in self.paths}
        with (
            following({"": self.model}, entered=lambda call: watch.begin(), left=lambda call, output: watch.end()),
            following(named, entered=before, left=after),
        ):
            yield


def checked_paths(model: nn.Module, paths: Sequence[str]) -> list[str]:
    """An InputError where a path names no module of the model, or one inside another."""
    known = dict(model.named_modules())
    for path in paths:
        if path not in known or not path:
            near = ", ".join(difflib.get_close_matches(path, list(known), 3)) or "see model.named_modules()"
            raise InputError(f"the model has no module {path!r}; did you mean: {near}")
        if any(other != path and path.startswith(f"{other}.") for other in paths):
            raise InputError(f"{path!r} lies inside another named unit; name one of the two")
    if not paths:
        raise InputError("units=[] names no module; pass paths such as ['layer1.0', 'layer1.1']")
    return list(paths)
