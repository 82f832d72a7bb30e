"""The core without papers: the package with `papers/` removed traces, measures, inspects, checks and reports."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import xarray

import skipscope
from skipscope.report import write_report
from skipscope.runs import RunFolder
from skipscope.runs.decisions import Decision, Outcome
from tests.commands import IN_A_PROGRAM
from tests.report.synthetic import noise_data, spectra_data
from tests.report.test_unknown_and_failing import UNKNOWN, a_run

pytestmark = pytest.mark.slow  # that no room imports a paper, tests/test_package.py sees at once

PROGRAM = """
import importlib.util, json, sys
from pathlib import Path

# An editable install would find the papers of the checkout.
sys.meta_path[:] = [finder for finder in sys.meta_path if "__editable__" not in getattr(finder, "__module__", "")]

import torch

import skipscope as ss
from skipscope.models import build

torch.set_num_threads(1)
found = {"package": ss.__file__, "papers": importlib.util.find_spec("skipscope.papers") is not None}

torch.manual_seed(0)
model, x = build("resnet8-digits-n2").eval(), torch.randn(2, 1, 8, 8)
trunk = ss.trace(model, x)
found["units"] = len(trunk.units)
found["largest"] = float(ss.spectra(trunk, x)["largest"].max())
found["inspected"] = sorted(ss.inspect(model, x, budget="5m").datasets)
found["checked"] = ss.check(model, x).verdict

found["report"] = command("report", "run")
found["report with pictures"] = command("report", "pictures")
found["study"] = command("study")
found["list"] = command("study", "list")
found["run"] = command("study", "run", "D.law", "--preset", "smoke")
found["unknown network"] = command("units", "skipscope:type1-mnist")
Path("found.json").write_text(json.dumps(found))
"""


def stored_run(path: Path) -> None:
    """As a paper's study leaves it: a dataset whose view came with the paper, and a claim."""
    decision = Decision(
        "D16",
        "Authors: Title",
        "Weights half way have the widest plateau.",
        "share near 1 against t",
        "peak above 0",
        {"peak of the plateau": [0.125, 0.25]},
        "reproduced",
        "full",
        outcomes=(Outcome("peak of the plateau", ">", 0.0, True, 0.1875, 0.125, 2, 2),),
        study="D.noise",
    )
    shares = xarray.Dataset(
        {"share_near_one": (("mixture", "t"), [[0.5, 0.625, 0.75]])},
        {"mixture": ["convex"], "t": [0.0, 0.5, 1.0]},
        {"measure": "noise", "study": "D.noise", "network": "a network"},
    )
    with RunFolder(path, "study D.noise", preset="full") as run:
        run.write_dataset("noise-digits-0", shares)
        run.write_claims([decision])


@pytest.fixture(scope="module", name="folder")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where one program ran with the core alone; found.json has what it saw."""
    folder = tmp_path_factory.mktemp("core")
    package = Path(skipscope.__file__).parent
    shutil.copytree(package, folder / "skipscope", ignore=shutil.ignore_patterns("papers", "__pycache__"))
    stored_run(folder / "run")
    noise, spectra = noise_data().assign_attrs(study="D.noise"), spectra_data().assign_attrs(study="D.spectra")
    a_run(folder / "pictures", noise=noise, spectra=spectra)
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    subprocess.run([sys.executable, "-c", IN_A_PROGRAM + PROGRAM], cwd=folder, env=environment, check=True)
    return folder


@pytest.fixture(scope="module", name="found")
def _found(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "found.json").read_text())


def test_the_papers_are_not_there(folder: Path, found: dict[str, Any]) -> None:
    assert Path(found["package"]).is_relative_to(folder)
    assert found["papers"] is False


def test_it_traces_measures_inspects_and_checks(found: dict[str, Any]) -> None:
    assert found["units"] == 3
    assert found["largest"] > 0
    assert {"law", "profile", "spectra"} <= set(found["inspected"])
    assert "expected to train" in found["checked"]


def test_a_report_shows_stored_claims_and_plain_tables(folder: Path, found: dict[str, Any]) -> None:
    assert found["report"]["code"] == 0, found["report"]["err"]
    page = (folder / "run" / "report.html").read_text()
    for text in ("D16", "Weights half way have the widest plateau.", "reproduced", "peak of the plateau"):
        assert text in page
    for text in ("No view is installed", "share_near_one", "0.625"):  # the mean of the variable
        assert text in page


def test_pictures_of_the_core_show_claims_of_papers(folder: Path, found: dict[str, Any]) -> None:
    assert found["report with pictures"]["code"] == 0, found["report with pictures"]["err"]
    text = (folder / "pictures" / "report.html").read_text(encoding="utf-8")
    shown = text[text.index('<section id="noise">') : text.index('<section id="made">')]
    assert UNKNOWN in shown
    assert "share_near_one" in shown
    assert '<tr id="claim-D4">' in text
    assert text.count('href="#claim-D4"') == 2  # under the scree plot and the shares, which are the core's
    with_papers = write_report(folder / "pictures").read_text(encoding="utf-8")
    assert UNKNOWN not in with_papers


@pytest.mark.parametrize("name", ["study", "list", "run"])
def test_study_says_that_no_paper_is_installed(name: str, found: dict[str, Any]) -> None:
    assert (found[name]["code"], found[name]["out"]) == (2, "")
    assert "no paper is installed" in found[name]["err"]


def test_the_networks_of_papers_are_unknown(found: dict[str, Any]) -> None:
    assert found["unknown network"]["code"] == 2
    assert "type1-mnist" in found["unknown network"]["err"]
    assert "Traceback" not in found["unknown network"]["err"]
