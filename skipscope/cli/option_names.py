"""Messages of the library in the words of the command line.

The library speaks of parameters: `dtype='int8' is not a type to measure in`. Where the command that was given has an
option of that name, the user reads `--dtype int8` instead.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, get_args

import typer

# What a command line writes in another form: of the option, the library's words and the user's.
PHRASES = {
    "--units": ("ss.trace(model, x, units=['path.of.module', ...])", "--units path.of.module,..."),
    "--resume": ("former='resume'", "--resume"),
    "--out": ("skipscope.report.write_page(paths, out)", "--out FILE"),
}
CALIBRATE = ("calibrate=True of ss.trace and ss.inspect", "inspect --calibrate")


def in_options(message: str, options: Iterable[str]) -> str:
    """options: those of the command, such as --dtype."""
    for option in options:
        if option in PHRASES:
            message = message.replace(*PHRASES[option])
        # Not inside a path, such as runs/seed=1.
        name = option.removeprefix("--").replace("-", "_")
        message = re.sub(rf"(?<![\w/.\-]){name}=(?:True\b|'([^']*)'|([^\s;,:]*))", partial(_written, option), message)
    return in_commands(message)


def in_commands(text: str) -> str:
    """Of notes, which say what another command does."""
    return text.replace(*CALIBRATE)


def options_of(function: Callable[..., Any]) -> list[str]:
    """The long options of a command's function, as typer makes them of its signature."""
    found = []
    for name, parameter in inspect.signature(function, eval_str=True).parameters.items():
        written = [extra for extra in get_args(parameter.annotation) if isinstance(extra, type(typer.Option()))]
        for option in written:
            # In an annotation the first name stands where a default would otherwise be.
            declared = (option.default, *(option.param_decls or ()))
            names = [word for word in declared if isinstance(word, str) and word.startswith("--")]
            found += names or [f"--{name.replace('_', '-')}"]
    return found


def _written(option: str, found: re.Match[str]) -> str:
    value = found.group(1) or found.group(2) or ""
    return f"{option} {value}" if value else option
