"""What a command says and where: one document on standard output, notes as loud as asked for, bars on terminals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import typer

from skipscope.cli import main
from skipscope.cli.log import Log
from skipscope.cli.talk import talk
from skipscope.errors import InputError
from tests.commands import run_command

NET = """
import os, sys, warnings
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return x + torch.relu(self.linear(x))

def net():
    print("a factory that talks")
    print("and grumbles", file=sys.stderr)
    warnings.warn("and warns")
    return nn.Sequential(Block(), Block()), torch.randn(2, 8)

def loud():
    os.write(1, b"from below Python")
    os.system("echo from a child")
    return net()
"""


@pytest.fixture
def net(tmp_path: Path) -> str:
    (tmp_path / "net.py").write_text(NET)
    return f"{tmp_path / 'net.py'}:net"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Commands without their long work; what they say is theirs. Gives the report's path."""
    import skipscope.demo
    import skipscope.papers.kit.running
    from skipscope.papers.kit.running import Outcome
    from skipscope.runs import Decision

    report = tmp_path / "run" / "report.html"
    report.parent.mkdir()
    report.write_text("<html></html>")
    record = {"what": "inspect", "status": "finished", "parameters": {}, "hashes": {}}
    (report.parent / "run.json").write_text(json.dumps(record))
    bad = Decision("D3", "D", "a claim", "a number", "one", {"ones": 2.0}, "not reproduced", "smoke")

    def write_report(path: Path) -> Path:
        print("a library that talks")
        return report

    def write_page(paths: list[Path], out: Path) -> Path:
        assert all(path == Path("run") for path in paths)
        return out

    pages = import_module("skipscope.report")  # the package's public name of that is a function
    monkeypatch.setattr(pages, "write_report", write_report)
    monkeypatch.setattr(pages, "write_page", write_page)
    outcome = Outcome(report.parent, {"notes": ["a note"]}, (bad,))
    monkeypatch.setattr(skipscope.papers.kit.running, "run_studies", lambda *_, **__: outcome)
    shown = SimpleNamespace(folder=report.parent, to_dict=lambda: {"folder": str(report.parent), "claims": []})
    monkeypatch.setattr(skipscope.demo, "demo", lambda *_, **__: shown)
    monkeypatch.chdir(tmp_path)
    return report


COMMANDS: dict[str, tuple[tuple[str, ...], set[str]]] = {
    "demo": (("demo",), {"folder", "claims"}),
    "units": (("units", "NET"), {"source", "units"}),
    "contract": (("contract", "NET"), {"source", "units", "holds"}),
    "inspect": (("inspect", "NET", "--budget", "2s", "--out", "inspected"), {"folder", "run", "measured"}),
    "train": (
        ("train", "resnet8-digits-n8", "--epochs", "1", "--batch", "512", "--out", "trained"),
        {"folder", "network", "test_accuracy", "history"},
    ),
    "report": (("report", "run"), {"report", "runs"}),
    "comparison": (("report", "run", "run", "--out", "both.html"), {"report", "runs"}),
    "study list": (("study", "list"), {"papers", "studies", "claims"}),
    "study show": (("study", "show", "D.law"), {"studies"}),
    "study verdicts": (("study", "verdicts", "--paper", "D"), {"claims"}),
    "cache list": (("cache", "list"), {"networks", "data", "kept", "bytes"}),
    "study run": (("study", "run", "D.law", "--preset", "smoke"), {"folder", "run", "claims"}),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_prints_one_document_and_can_be_quiet(
    name: str, net: str, quick: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words, keys = COMMANDS[name]
    arguments = [net if word == "NET" else word for word in words]
    assert run_command(monkeypatch, *arguments, "--json", "-q") == 0
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert keys | {"schema"} <= set(document)
    assert document["schema"] == 1
    assert captured.err == ""


def test_not_even_compiled_code_and_children_reach_standard_output(net: str) -> None:
    command = [sys.executable, "-m", "skipscope", "-q", "units", net.replace(":net", ":loud"), "--json"]
    run = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert run.returncode == 0
    assert len(json.loads(run.stdout)["units"]) == 2
    assert run.stderr == ""


def test_notes_are_said_and_a_result_is_alone(
    net: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(monkeypatch, "units", net) == 0
    captured = capsys.readouterr()
    assert captured.err.splitlines() == ["a factory that talks", "and grumbles"]
    assert "net.py" in captured.out.splitlines()[0]


@pytest.mark.parametrize("before", [True, False])
def test_verbose_tells_versions_settings_and_times(
    before: bool, net: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("-v", "units", net, "--seed", 3) if before else ("units", net, "--seed", 3, "--verbose")
    assert run_command(monkeypatch, *arguments) == 0
    err = capsys.readouterr().err
    for words in ("skipscope 0.", "torch 2.", "seed=3", "device cpu", "data sets in", "tracing: ", "units took: "):
        assert words in err


def test_verbose_shows_where_an_error_comes_from(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(monkeypatch, "units", "keras:resnet18", "-v") == 2
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert err.splitlines()[-1].startswith("error: unknown prefix")


def test_errors_are_said_in_quiet_too(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(monkeypatch, "units", "keras:resnet18", "-q", "--json") == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: unknown prefix")


WRONG: dict[str, tuple[tuple[str, ...], str]] = {
    "command": (("nosuch",), "there are demo, units"),
    "command with a slip": (("unitz",), "did you mean 'units'?"),
    "command of study": (("study", "rum"), "there are list, show, run"),
    "option": (("units", "--sed", "3"), "did you mean --seed?"),
    "option before the command": (("--loud", "units"), "see skipscope --help"),
    "number": (("units", "x", "--seed", "many"), "--seed"),
    "number out of range": (("units", "x", "--seed", "-1"), "--seed"),
    "argument": (("report",), "RUN"),
    "preset": (("study", "run", "D.law", "--preset", "ful"), "did you mean full?"),
    "preset to show": (("study", "show", "D.law", "--preset", "nosuch"), "there are smoke, quick"),
    "study": (("study", "show", "D.lax"), "did you mean D.law?"),
    "run folder": (("report", "nowhere"), "is no run folder"),
    "run folder for verdicts": (("study", "list", "."), "is no run folder"),
    "folder that is a file": (("study", "run", "D.law", "--preset", "smoke", "--out", "file/run"), "file"),
    "loud and quiet": (("units", "x", "-q", "-v"), "exclude each other"),
    "loud and quiet apart": (("-v", "units", "x", "-q"), "exclude each other"),
}


@pytest.mark.parametrize("what", WRONG)
def test_bad_input_is_one_line_and_exit_code_two(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    arguments, message = WRONG[what]
    assert run_command(monkeypatch, *arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    line = captured.err.splitlines()[-1]
    assert line.startswith("error: ")
    assert message in line
    assert captured.err.count("error: ") == 1
    assert "Traceback" not in captured.err


# -- exit codes


@pytest.mark.parametrize(("options", "code"), [((), 0), (("--strict",), 1), (("--strict", "--json", "-q"), 1)])
def test_a_claim_that_fails_is_one_with_strict(
    options: tuple[str, ...],
    code: int,
    quick: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_command(monkeypatch, "study", "run", "D.law", *options) == code
    assert "not reproduced" in capsys.readouterr().out


@pytest.mark.parametrize("when", ["skipscope.papers.kit.running.run_studies", "skipscope.papers.kit.catalogue.find"])
def test_an_interruption_is_130(
    when: str, quick: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(when, interrupt)
    assert run_command(monkeypatch, "study", "run", "D.law", "--out", "law") == 130
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[-1].startswith("interrupted")


@pytest.fixture(name="listening")
def _listening() -> Iterator[None]:
    """Shells start what runs in the background with Ctrl-C ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("listening")
def test_an_interruption_while_torch_is_loaded_waits_for_it() -> None:
    handler, loaded = signal.getsignal(signal.SIGINT), []

    def load() -> None:
        with talk.loading():
            signal.raise_signal(signal.SIGINT)
            loaded.append("torch")

    with pytest.raises(KeyboardInterrupt):
        load()
    assert loaded == ["torch"]
    assert signal.getsignal(signal.SIGINT) is handler


def test_a_bug_keeps_its_traceback(
    net: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("skipscope.models.resolve", broken)
    monkeypatch.setattr(sys, "argv", ["skipscope", "units", net])
    out, err = sys.stdout, sys.stderr
    with pytest.raises(SystemExit, match="70"):
        main()
    assert (sys.stdout, sys.stderr) == (out, err)
    assert "ZeroDivisionError" in capsys.readouterr().err


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("no room"),
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError(
            "[enforce fail at alloc_cpu.cpp:121] DefaultCPUAllocator: can't allocate memory: you tried 9 bytes"
        ),
    ],
)
def test_a_lack_of_memory_is_one_line(
    error: Exception, net: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr("skipscope.models.resolve", full)
    assert run_command(monkeypatch, "units", net) == 71
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: out of memory: ")
    assert captured.err.count("\n") == 1


# -- report


def test_the_report_of_one_run_goes_into_it_or_elsewhere(
    quick: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(monkeypatch, "report", "run") == 0
    assert capsys.readouterr().out == f"{quick}\n"
    assert run_command(monkeypatch, "report", "run", "--out", "new/copy.html") == 0
    assert capsys.readouterr().out == "new/copy.html\n"


def test_several_runs_are_compared_on_a_page_that_can_be_opened(
    quick: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address) or len(opened) == 1)
    assert run_command(monkeypatch, "report", "run", "run", "--open") == 0
    captured = capsys.readouterr()
    assert captured.out == "comparison.html\n"
    assert opened == [(tmp_path / "comparison.html").as_uri()]
    assert run_command(monkeypatch, "report", "run", "run", "--open") == 0  # and now there is no browser
    assert opened[0] in capsys.readouterr().err


# -- streams and progress


def test_a_reader_that_has_enough_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        with pytest.raises(typer.Exit) as left:
            talk.result("x")
        assert left.value.exit_code == 141


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device here")
def test_a_full_disk_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    full = open("/dev/full", "w", encoding="utf-8", buffering=1)  # noqa: PTH123, SIM115
    monkeypatch.setattr(sys, "stdout", full)
    with pytest.raises(InputError, match="cannot be written"):
        talk.result("x")
    with pytest.raises(OSError, match="space"):
        full.close()


def drawn(monkeypatch: pytest.MonkeyPatch, quiet: bool) -> str:
    """What a terminal gets while work is counted and not counted."""
    pty = pytest.importorskip("pty")
    master, slave = pty.openpty()
    received: list[bytes] = []

    def read() -> None:
        while True:
            try:
                received.append(os.read(master, 4096))
            except OSError:
                return

    reader = threading.Thread(target=read)
    reader.start()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("RANK", raising=False)
    with os.fdopen(slave, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        talk.reset()
        talk.set(quiet, False)
        with talk.during("test", {}):
            for done in range(3):
                talk.progress("counting [sheep]", done, 4)
                if talk._display is not None:
                    talk._display._bars.refresh()
            talk.say("a note")
            with talk.step("resting"):
                pass
            talk.progress("counting [sheep]", 4, 4)
            talk.progress("counting [sheep]", 4, 4)  # once more is no new work
            talk.progress("nothing", 0, 0)
    talk.reset()
    monkeypatch.undo()
    reader.join()
    os.close(master)
    return b"".join(received).decode()


def test_bars_with_the_time_left_are_drawn_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    text = drawn(monkeypatch, quiet=False)
    for words in ("counting [sheep]", "50%", "left", "a note"):
        assert words in text
    assert drawn(monkeypatch, quiet=True) == ""


def test_nothing_is_drawn_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    talk.reset()
    with talk.during("test", {}):
        talk.progress("counting", 1, 4)
        with talk.step("resting"):
            pass
        talk.result("a result")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("a result\n", "")


# -- without a terminal


def test_long_work_writes_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("skipscope.cli.log.EVERY", 0.05)
    talk.reset()
    with talk.during("test", {}), talk.step("measuring"):
        talk.progress("all singular values", 12, 56)
        time.sleep(0.2)
    lines = capsys.readouterr().err.splitlines()
    assert lines
    assert set(lines) == {"measuring: all singular values, 12 of 56, 0 s"}
    threads = [thread.name for thread in threading.enumerate()]
    assert "skipscope-log" not in threads


@pytest.mark.parametrize("how", ["quiet", "of several processes another"])
def test_nobody_else_writes_it(how: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("skipscope.cli.log.EVERY", 0.02)
    if how != "quiet":
        monkeypatch.setenv("RANK", "1")
    talk.reset()
    talk.set(how == "quiet", False)
    with talk.during("test", {}), talk.step("measuring"):
        time.sleep(0.1)
    talk.reset()
    assert capsys.readouterr().err == ""


def test_the_words_of_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("skipscope.cli.log.time.monotonic", lambda: now[0])
    log = Log(lambda text: None, every=1000.0)
    try:
        assert log.line() == "working, 0 s"
        log.begin("D.law, quick")
        now[0] = 45.0
        assert log.line() == "D.law, quick, 45 s"
        log.update("training", 3, 15)
        now[0] = 150.0
        assert log.line() == "D.law, quick: training, 3 of 15, 2 min"
        log.update("training", 15, 15)
        now[0] = 3 * 3600 + 300.0
        assert log.line() == "D.law, quick, 3 h 5 min"
        log.end("D.law, quick")
        assert log.line().startswith("working")
    finally:
        log.stop()
