"""What is wrong with a command's words is told before torch is loaded: in a fraction of a second."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import skipscope
from skipscope.cli.beforehand import require_device
from skipscope.errors import InputError
from skipscope.numerics import usable_device

OURS = "skipscope:resnet8-digits"
WRONG: dict[str, str] = {
    "unitz": "did you mean 'units'",
    "units": "missing argument",
    "units --sed 3": "did you mean --seed",
    f"units {OURS} --seed -1": "--seed",
    "units keras:resnet18": "unknown prefix 'keras:'",
    "units resnet18": "cannot read MODEL",
    "units torchvision:": "cannot read MODEL",
    "units skipscope:resnt8-digits": "did you mean resnet",
    "units skipscope:resnet9-digits": "such as 8 or 14",
    "inspect skipscope:resnet8-digit": "did you mean digits",
    "check skipscope:resnet8-digits-foo": "no option 'foo'",
    "units skipscope:type9-mnist": "did you mean type",
    "units skipscope:type2-mnist-p3": "expected a patch of",
    "train resnet9-digits": "such as 8 or 14",
    "units nowhere.py:net": "no file nowhere.py",
    "units hf:./nowhere": "no such directory",
    f"units {OURS} --weights nowhere.pt": "no weights file",
    f"units {OURS} --weights folder": "no weights file",
    f"units {OURS} --weights nowhere.gguf": "hf: models alone",
    "units hf:llama --weights nowhere.gguf": "no file nowhere.gguf",
    "units hf:llama --weights folder": "has no config.json",
    "units hf:./nowhere.gguf": "no file nowhere.gguf",
    f"inspect {OURS} --text-file file": "language model",
    "inspect hf:llama --text-file nowhere.txt": "no text file nowhere.txt",
    f"units {OURS} --input-shape 3,x": "such as 3,224,224",
    f"units {OURS} --text hello": "language model",
    f"units {OURS} --trust-remote-code": "for an hf: model",
    f"units {OURS} --units ,": "expected paths of modules",
    f"units {OURS} --data mnits": "did you mean mnist",
    f"units {OURS} --data mnist:/nowhere": "/nowhere does not exist",
    f"units {OURS} --data digits:/x": "take no path",
    f"units {OURS} --data folder": "folder:PATH",
    f"inspect {OURS} --data digits --normalise what": "normalise: expected",
    f"inspect {OURS} --normalise imagenet": "is for the images of --data",
    f"units {OURS} --device nowhere": "no such kind of device",
    f"units {OURS} --device meta": "it holds no values",
    f"units {OURS} --device cuda:x": "expected a number after",
    f"units {OURS} --dtype int8": "use float32",
    f"units {OURS} --dtype float8_e4m3fn": "use float32",
    f"inspect {OURS} --budget soon": "such as 90s",
    f"inspect {OURS} --out file": "file is a file",
    f"inspect {OURS} --out full": "not empty",
    f"units {OURS} --out file/below": "file is a file",
    f"check {OURS} --out file": "file is a file",
    "train resnet8-digits --schedule linear": "schedule: expected one of cosine, step, constant, got 'linear'",
    "train resnet8-digits --rate nan": "rate: expected above 0, got nan",
    "train resnet8-digits --augmentation x": "augmentation: expected one of none, crop",
    "train resnet8-digits --milestones a": "such as 80,120",
    "train resnet8-digits --data mnits": "did you mean mnist",
    "train resnet8-digits --device bogus": "no such kind of device",
    "train resnet8-digits --out full": "not empty",
    "study show D.lax": "did you mean D.law",
    "study run D.law,D.lax": "no study 'D.lax'",
    "study run D.law --preset ful": "did you mean full",
    "study run D.law --set nonsense": "expected KEY=VALUE",
    "study run D.law --data mnits": "did you mean mnist",
    "study run D.law --device bogus": "no such kind of device",
    "study run D.law --out file": "file is a file",
    "units torchvision:resnet81": "did you mean resnet18",
    "inspect timm:resnet81.a1_in1k": "timm has no model 'resnet81'; did you mean resnet18",
    "units hf:gpt3": "did you mean",
    "units torchvison:resnet18": "did you mean torchvision:resnet18?",
    "check file.py:netwrk": "file.py has no 'netwrk'; it has network, Block (did you mean network?)",
    "check file.py:other": "file.py has no 'other'; it has network, Block",
    f"inspect {OURS} --resume": "name it with --out DIR",
    f"inspect {OURS} --force": "name it with --out DIR",
    f"inspect {OURS} --force --resume --out run": "exclude each other",
    f"inspect {OURS} --resume --out full": "not empty",
    f"inspect {OURS} --force --out full": "not empty",
    f"inspect {OURS} --resume --out trained": "holds a run of train, not of inspect",
    f"inspect {OURS} --force --out trained": "holds a run of train, not of inspect",
    "report later": "was written by a later version of skipscope: it has schema 99",
    f"inspect {OURS} --force --out later": "later version",
    "cache lst": "did you mean 'list'",
    "cache clean": "expected --older-than AGE or --all",
    "cache clean --older-than x": "such as 12h",
    "study list nowhere": "is no run folder",
    "report nowhere": "is no run folder",
    "report folder": "it has no run.json",
    "report checked": "checked holds check.json, which `skipscope check` wrote, without a report",
    "report run --out folder": "name a file in it",
    "demo --out full": "not empty",
    f"inspect {OURS} --out run": "with status 'finished' (--resume goes on with it, --force replaces it); choose",
    "train resnet8-digits --out run": "holds a run of inspect, not of train",
    "train resnet8-digits --resume --out run": "holds a run of inspect, not of train",
    "train resnet8-digits --out trained": "--resume goes on with it",
    "demo --out run": "holds a run of inspect, not of demo",
}

CODE = """
import contextlib, io, json, sys
from skipscope.cli import main
answers = {}
for words in json.load(sys.stdin):
    sys.argv = ["skipscope", *words.split()]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as left:
            code = left.code
    answers[words] = [code, out.getvalue(), err.getvalue(), "torch" in sys.modules]
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str, str, bool]]:
    """Of all commands in one new interpreter, in a folder of its own."""
    folder = tmp_path_factory.mktemp("here")
    (folder / "file.py").write_text("class Block: ...\ndef network(): ...\n")
    for name in ("folder", "full", "run", "trained", "later", "checked"):
        (folder / name).mkdir()
    for name in ("file", "full/mine.txt", "checked/check.json"):
        (folder / name).write_text("mine")
    for name, what in (("run", "inspect"), ("trained", "train")):
        record = {"what": what, "status": "finished", "parameters": {}, "hashes": {}}
        (folder / name / "run.json").write_text(json.dumps(record))
    (folder / "later" / "run.json").write_text(json.dumps(record | {"what": "inspect", "schema": 99}))
    before = {path: path.is_file() and path.read_text() for path in folder.rglob("*")}
    run = subprocess.run(
        [sys.executable, "-c", CODE],
        input=json.dumps(list(WRONG)),
        capture_output=True,
        text=True,
        cwd=folder,
        env={"PYTHONPATH": str(Path(skipscope.__file__).parent.parent), "PATH": ""},
    )
    assert run.returncode == 0, run.stderr
    assert {path: path.is_file() and path.read_text() for path in folder.rglob("*")} == before
    found: dict[str, tuple[int, str, str, bool]] = json.loads(run.stdout)
    return found


@pytest.mark.parametrize("words", WRONG)
def test_a_slip_is_one_line_without_torch(words: str, answers: dict[str, tuple[int, str, str, bool]]) -> None:
    code, out, err, torch = answers[words]
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert WRONG[words] in err
    assert not torch


@pytest.mark.parametrize("name", ["", "cpu:x", "nowhere", "meta", "CPU", "cuda0"])
def test_what_is_refused_beforehand_is_refused_by_torch_too(name: str) -> None:
    for refuse in (require_device, usable_device):
        with pytest.raises(InputError, match="cannot be used here"):
            refuse(name)


@pytest.mark.parametrize("name", ["cpu", "cpu:0", "cuda", "cuda:1", "mps"])
def test_usual_devices_are_left_for_torch_to_judge(name: str) -> None:
    require_device(name)
