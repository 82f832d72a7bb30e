"""What a command says, and where.

Results go to standard output and everything else to standard error, as much of it as -q and -v ask for. Long work shows
bars on a terminal, and elsewhere a line every 30 seconds that says how far it is. While a command runs, what libraries
print goes to standard error too (with -q nowhere), so that a result is alone where it is. Whatever is printed passes
through `skipscope.visible`: a terminal obeys nothing that came out of a file.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from skipscope.cli.option_names import in_options, options_of
from skipscope.cli.stopping import not_now
from skipscope.errors import InputError, SkipscopeError, Terminated, out_of_memory
from skipscope.visible import VisibleStream, visible

if TYPE_CHECKING:
    from skipscope.cli.display import Display
    from skipscope.cli.log import Log

Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Nothing on standard error but errors.")]
Verbose = Annotated[
    bool, typer.Option("-v", "--verbose", help="Versions, settings and times; the traceback of an error.")
]

# Exit codes: those of a bug and of the system are what sysexits.h calls them; the last three as shells have them, 128 +
# the signal's number.
DONE, CLAIM_FAILED, BAD_INPUT, BUG, OUT_OF_MEMORY = 0, 1, 2, 70, 71
INTERRUPTED, CLOSED_PIPE, TERMINATED = 130, 141, 143


class Talk:
    """Everything that the process prints."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.quiet = self.verbose = False
        self._results: TextIO | None = None  # None: standard output as it is
        self._display: Display | Log | None = None
        self._began: dict[str, float] = {}

    def set(self, quiet: bool, verbose: bool) -> None:
        """Options before and after a command's name add up."""
        self.quiet, self.verbose = self.quiet or quiet, self.verbose or verbose
        if self.quiet and self.verbose:
            self.verbose = False
            raise InputError("--quiet and --verbose exclude each other; leave one out")

    # -- text

    def result(self, text: str) -> None:
        """To standard output, once and last: notes may follow, progress may not."""
        self._stop()
        stream = self._results or sys.stdout
        try:
            print(visible(text), file=stream, flush=True)
        except BrokenPipeError:
            # The reader has what it wanted. Python would try to write the rest once more when it ends.
            with contextlib.suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            raise typer.Exit(CLOSED_PIPE) from None
        except OSError as error:
            raise InputError(f"standard output cannot be written: {error.strerror}; send it elsewhere") from error

    def say(self, text: str) -> None:
        if not self.quiet:
            print(visible(text), file=sys.stderr, flush=True)

    def ask(self, text: str, question: str) -> bool:
        """Bars end before: on a terminal they would be drawn over the question."""
        self._stop()
        self.say(text)
        return typer.confirm(question, err=True)

    def detail(self, text: str) -> None:
        if self.verbose:
            self.say(text)

    def error(self, error: SkipscopeError) -> None:
        if self.verbose:
            self.traceback(error)
        print(f"error: {visible(' '.join(str(error).split()))}", file=sys.stderr, flush=True)

    def traceback(self, error: BaseException) -> None:
        """Messages in it may hold text out of files, too."""
        print(visible("".join(traceback.format_exception(error))), end="", file=sys.stderr, flush=True)

    # -- progress

    def progress(self, what: str, done: int, total: int) -> None:
        """As the library reports it: what is done now, how much of it is done, how much there is."""
        if what not in self._began:
            if done >= total:
                return
            self._began[what] = time.monotonic()
        if self._display is not None:
            self._display.update(what, done, total)
        if done >= total:
            self._timed(what, self._began.pop(what))

    @contextlib.contextmanager
    def step(self, what: str) -> Iterator[None]:
        """Work that cannot be counted."""
        began = time.monotonic()
        if self._display is not None:
            self._display.begin(what)
        try:
            yield
        finally:
            if self._display is not None:
                self._display.end(what)
        self._timed(what, began)

    @contextlib.contextmanager
    def loading(self) -> Iterator[None]:
        """Around imports of torch."""
        with not_now(), self.step("loading PyTorch"):
            yield

    def _timed(self, what: str, began: float) -> None:
        self.detail(f"{what}: {time.monotonic() - began:.1f} s")

    # -- a command from its beginning to its end

    @contextlib.contextmanager
    def during(self, command: str, given: dict[str, Any]) -> Iterator[None]:
        with _results_alone(self.quiet) as self._results:
            try:
                self._start(command, given)
                began = time.monotonic()
                yield
                self._timed(f"{command} took", began)
            finally:
                self._stop()
                self._results = None

    def _start(self, command: str, given: dict[str, Any]) -> None:
        if self.verbose:
            self.detail(f"{_versions()}; in {os.getcwd()}")  # noqa: PTH109
            settings = ", ".join(f"{name}={value}" for name, value in given.items() if value is not None)
            self.detail(f"{command}: {settings}")
        if self.quiet or os.environ.get("RANK", "0") != "0":  # of several that train together the first one speaks
            return
        if _is_terminal(sys.stderr):
            from skipscope.cli.display import Display

            self._display = Display(sys.stderr.stream if isinstance(sys.stderr, VisibleStream) else sys.stderr)
        else:
            from skipscope.cli.log import Log

            self._display = Log(self.say)

    def _stop(self) -> None:
        if self._display is not None:
            self._display.stop()
            self._display = None


talk = Talk()


def command(function: Callable[..., None]) -> Callable[..., None]:
    """A command with -q and -v after its own options; what it prints goes to the right stream.

    A parameter that is a dataclass stands for options that several commands share, its fields.
    """
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters: dict[str, inspect.Parameter] = {}
    shared: dict[str, tuple[type, list[str]]] = {}  # by the parameter of the function, its class and the options' names
    for name, parameter in inspect.signature(function, eval_str=True).parameters.items():
        own, kind = {name: parameter}, parameter.annotation
        if isinstance(kind, type) and dataclasses.is_dataclass(kind):
            own = dict(inspect.signature(kind, eval_str=True).parameters)
            shared[name] = kind, list(own)
        parameters |= own

    @functools.wraps(function)
    def run(*, quiet: bool, verbose: bool, **given: Any) -> None:
        talk.set(quiet, verbose)
        with stopped(), talk.during(function.__name__.replace("_", " "), given):
            together = {name: kind(**{own: given.pop(own) for own in names}) for name, (kind, names) in shared.items()}
            try:
                function(**together, **given)
            except SkipscopeError as error:
                error.args = (in_options(str(error), options), *error.args[1:])
                raise
            except SystemExit as left:  # not ours: we raise typer.Exit
                raise InputError(
                    f"the model's own code ends the program (sys.exit({left.code!r})); take that out"
                ) from left

    for name, option in (("quiet", Quiet), ("verbose", Verbose)):
        parameters[name] = inspect.Parameter(name, keyword, default=False, annotation=option)
    # Typer reads a command's options from its signature.
    run.__signature__ = inspect.Signature([each.replace(kind=keyword) for each in parameters.values()])  # type: ignore[attr-defined]
    run.__annotations__ = {name: parameter.annotation for name, parameter in parameters.items()}
    options = options_of(run)
    return run


def help_without_command(context: typer.Context) -> None:
    """A group of commands that is named alone."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(BAD_INPUT)


@contextlib.contextmanager
def stopped(remains: str = "") -> Iterator[None]:
    """Ctrl-C and SIGTERM are no errors of the program: one line, and the exit codes that shells use for them.

    remains: what is left of the work, and how to go on with it. A lack of memory leaves as much.
    """
    try:
        yield
    except KeyboardInterrupt as error:
        talk.say(f"interrupted; {remains}" if remains else "interrupted")
        raise typer.Exit(TERMINATED if isinstance(error, Terminated) else INTERRUPTED) from None
    except Exception as error:
        if remains and out_of_memory(error):
            error.add_note(remains)
        raise


@contextlib.contextmanager
def _results_alone(quiet: bool) -> Iterator[TextIO]:
    """Standard output, which nothing else reaches meanwhile: neither what Python code prints nor what compiled code
    and child processes write to its descriptor."""
    sys.stdout.flush()
    elsewhere: Any = _nowhere() if quiet else VisibleStream(sys.stderr)
    with contextlib.ExitStack() as stack:
        results = stack.enter_context(_own_descriptor(elsewhere)) if _descriptor(sys.stdout) == 1 else sys.stdout
        stack.enter_context(contextlib.redirect_stdout(elsewhere))
        stack.enter_context(contextlib.redirect_stderr(elsewhere))
        yield results


@contextlib.contextmanager
def _own_descriptor(elsewhere: TextIO) -> Iterator[TextIO]:
    stdout, target = sys.stdout, _descriptor(elsewhere)
    results = open(os.dup(1), "w", encoding=stdout.encoding, errors=stdout.errors)  # noqa: PTH123, SIM115
    if target is not None:
        os.dup2(target, 1)
    try:
        yield results
    finally:
        os.dup2(results.fileno(), 1)
        with contextlib.suppress(OSError):  # whoever wrote to it has reported it
            results.close()


def _descriptor(stream: TextIO) -> int | None:
    try:
        return stream.fileno()
    except (OSError, ValueError, AttributeError):
        return None


@functools.cache
def _nowhere() -> TextIO:
    """Never closed: a library may keep it as the place of its log."""
    return open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123


def _is_terminal(stream: TextIO) -> bool:
    """One that can draw."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def _versions() -> str:
    import platform
    from importlib.metadata import PackageNotFoundError, version

    from skipscope import __version__

    named = [f"skipscope {__version__}", f"Python {platform.python_version()}"]
    for name in ("torch", "numpy", "torchvision"):
        with contextlib.suppress(PackageNotFoundError):
            named.append(f"{name} {version(name)}")
    return ", ".join(named)
