"""The calls of a model's modules while it runs. Whoever looks at what enters or leaves a layer does it from here.

    with following(dict(model.named_modules()), entered=lambda call: print(call.name)):
        model(x)

Hooks are removed when the context ends, also by an exception, and also where registering one of them fails.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torch import nn


@dataclass(frozen=True)
class Call:
    """number: 1 for the first call of the module since the context began."""

    path: str
    number: int
    module: nn.Module
    args: tuple[Any, ...] = field(repr=False)
    kwargs: dict[str, Any] = field(repr=False)

    @property
    def name(self) -> str:
        """The path, with #2 for the module's second call."""
        return self.path if self.number == 1 else f"{self.path}#{self.number}"


Entered = Callable[[Call], Any]  # (args, kwargs) that it returns, if not None, go in in place of those of the call
Left = Callable[[Call, Any], Any]  # the call and its output; what it returns, if not None, goes on in its place


@contextmanager
def following(
    modules: Mapping[str, nn.Module],
    *,
    entered: Entered | None = None,
    left: Left | None = None,
    after_errors: bool = False,
) -> Iterator[None]:
    """Inside, `entered` is called whenever one of the modules is entered, `left` whenever it has returned.

    modules: by path. after_errors: `left` is also called, with None, where a module raised an error.
    """
    numbers: Counter[str] = Counter()

    def before(path: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        numbers[path] += 1
        return None if entered is None else entered(Call(path, numbers[path], module, args, kwargs))

    def after(
        path: str, left: Left, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> Any:
        return left(Call(path, numbers[path], module, args, kwargs), output)

    with ExitStack() as hooks:
        for path, module in modules.items():
            hooks.callback(module.register_forward_pre_hook(partial(before, path), with_kwargs=True).remove)
            if left is not None:
                leave = partial(after, path, left)
                handle = module.register_forward_hook(leave, with_kwargs=True, always_call=after_errors)
                hooks.callback(handle.remove)
        yield
