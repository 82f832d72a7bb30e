"""A package outside adds a paper by an entry point: its studies, claims, network, view and figure."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import skipscope
from tests.commands import IN_A_PROGRAM

FILES = {
    "outside-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: outside\nVersion: 1.0\n",
    "outside-1.0.dist-info/entry_points.txt": "[skipscope.papers]\nexample = outside:PAPER\n",
    "outside/__init__.py": """
from skipscope.registration import Paper

def networks():
    from outside.names import Names
    return [Names()]

def views():
    from outside.views import VIEWS
    return VIEWS

PAPER = Paper(
    letter="X",
    title="Doe: An example",
    package=__name__,
    studies={"sizes": "How large numbers are"},
    networks=networks,
    views=views,
    figures=lambda: {"sizes_of_numbers": lambda data: f"a picture of {data}"},
)
""",
    "outside/names.py": """
class Names:
    beginnings = ("outside",)

    def parse(self, name):
        return {"input_shape": (1, 8, 8), "classes": 10}

    def build(self, name):
        import torch
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))

    def fitting(self, name, shape, classes):
        return name

    def any_size(self, name):
        return False
""",
    "outside/views.py": """
from skipscope.report.views import View, ViewOfMeasure

VIEWS = {"sizes": ViewOfMeasure("Sizes of numbers", lambda parts: View(sentences=("The view of the outside paper.",)))}
""",
    "outside/studies/__init__.py": "",
    "outside/studies/sizes.py": """
from dataclasses import dataclass

import xarray
from outside import PAPER
from skipscope.papers.kit import Claim, Quantity, Study

SIZE = Quantity("size")
X1 = Claim("X1", "Numbers are small.", "their size", criteria=(SIZE.at_most(1.0),))

@dataclass(frozen=True)
class Settings:
    size: float = 0.5

def run(bench, settings):
    measured = bench.part("all", lambda: xarray.Dataset({"size": settings.size}, attrs={"measure": "sizes"}))
    return {X1: {SIZE: float(measured["size"])}}

STUDY = Study(
    PAPER,
    "sizes",
    paper_found="They are small.",
    we_expect="The same.",
    presets={"smoke": Settings(), "quick": Settings()},
    cost={"smoke": "nothing", "quick": "nothing"},
    run=run,
    claims=(X1,),
)
""",
}
PROGRAM = """
import json
from pathlib import Path

import skipscope as ss
from skipscope.models import build

found = {
    "list": command("study", "list", "--json"),
    "run": command("study", "run", "X", "--out", "run", "--json"),
    "changed": command("study", "run", "x.sizes", "--set", "size=2", "--out", "changed", "--strict"),
    "network": type(build("outside-network")).__name__,
    "figure": ss.plot.sizes_of_numbers("numbers"),
}
Path("found.json").write_text(json.dumps(found))
"""


@pytest.fixture(scope="module", name="folder")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where one program ran with the package installed; found.json has what it saw."""
    folder = tmp_path_factory.mktemp("outside")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    path = os.pathsep.join([str(folder), str(Path(skipscope.__file__).parents[1])])
    subprocess.run(
        [sys.executable, "-c", IN_A_PROGRAM + PROGRAM], cwd=folder, env={**os.environ, "PYTHONPATH": path}, check=True
    )
    return folder


@pytest.fixture(scope="module", name="found")
def _found(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "found.json").read_text())


def test_its_studies_and_claims_are_listed_after_ours(found: dict[str, Any]) -> None:
    listed = json.loads(found["list"]["out"])
    assert [study["id"] for study in listed["studies"]][-1] == "X.sizes"
    assert {study["id"][0] for study in listed["studies"]} == {"A", "B", "C", "D", "X"}
    assert listed["claims"][-1] == {
        "id": "X1",
        "study": "X.sizes",
        "state": "not run",
        "claim": "Numbers are small.",
        "verdict": "open",
    }
    assert listed["papers"][-1]["letter"] == "X"


def test_its_study_is_run_and_its_claim_decided(found: dict[str, Any]) -> None:
    assert found["run"]["code"] == 0, found["run"]["err"]
    (claim,) = json.loads(found["run"]["out"])["claims"]
    assert (claim["id"], claim["verdict"], claim["measured"]) == ("X1", "reproduced", {"size": 0.5})
    assert (claim["study"], claim["paper"]) == ("X.sizes", "Doe: An example")
    assert (found["changed"]["code"], "X1 not reproduced" in found["changed"]["out"]) == (1, True)


def test_its_view_is_in_the_report(folder: Path) -> None:
    page = (folder / "run" / "report.html").read_text()
    assert "Sizes of numbers" in page
    assert "The view of the outside paper." in page


def test_its_network_and_figure_are_found(found: dict[str, Any]) -> None:
    assert found["network"] == "Sequential"
    assert found["figure"] == "a picture of numbers"
