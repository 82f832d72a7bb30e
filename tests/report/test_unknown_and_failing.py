"""Datasets that no view knows, and views that fail."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy
import pytest
import xarray

from skipscope.errors import InputError
from skipscope.report import write_page, write_report
from skipscope.report.content import WITHOUT_STUDY
from skipscope.report.views import VIEWS, View, ViewOfMeasure, sections_of
from skipscope.runs import RunFolder
from tests.commands import run_command
from tests.report.hostile import CODE, NAMES
from tests.report.synthetic import decision, spectra_data, stability_data

MARK = "This part of the report could not be made, because of a bug in what shows it"
UNKNOWN = "No view is installed for datasets of this kind"


def a_run(path: Path, **datasets: xarray.Dataset) -> Path:
    with RunFolder(path, "study D") as run:
        for name, data in datasets.items():
            run.write_dataset(name, data)
        run.write_claims([decision()])
    return path


def with_a_failing_view(path: Path) -> Path:
    """The view of spectra needs `largest`, which is not there."""
    return a_run(path, spectra=spectra_data().drop_vars("largest"), perturbations=stability_data())


def unknown_data() -> xarray.Dataset:
    values = numpy.array([[1.0, 2.0, numpy.nan], [3.0, 4.0, numpy.inf]])
    return xarray.Dataset(
        {"height": (("tree", "year"), values), "kind": ("tree", ["oak", "elm"])}, attrs={"measure": "forest"}
    )


def test_a_bug_in_a_view_marks_its_section_and_the_rest_is_written(tmp_path: Path) -> None:
    path = with_a_failing_view(tmp_path / "run")
    with pytest.raises(KeyError, match="largest") as raised:
        write_report(path)
    assert raised.value.__notes__ == ["while the report was made of data/spectra (measure 'spectra')"]
    text = (path / "report.html").read_text(encoding="utf-8")
    failed = text[text.index('<section id="spectra">') : text.index('<section id="stability">')]
    assert MARK in failed
    assert "KeyError" in failed
    assert "<figure>" not in failed
    assert text.count(MARK) == 1
    assert "Growth of perturbations of a net" in text
    assert (path / "figures" / "perturbations-growth.html").is_file()


def test_a_bug_in_a_view_is_exit_code_70(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = with_a_failing_view(tmp_path / "run")
    assert run_command(monkeypatch, "report", path) == 70
    printed = capsys.readouterr().err
    assert "largest" in printed
    assert "data/spectra (measure 'spectra')" in printed
    assert MARK in (path / "report.html").read_text(encoding="utf-8")


def test_bugs_of_several_runs_are_raised_together(tmp_path: Path) -> None:
    runs = [with_a_failing_view(tmp_path / name) for name in ("one", "two")]
    with pytest.raises(ExceptionGroup, match="views of the report that failed"):
        write_page(runs, tmp_path / "both.html")
    text = (tmp_path / "both.html").read_text(encoding="utf-8")
    assert text.count(MARK) == 2
    assert f"one: {MARK}" in text
    assert f"two: {MARK}" in text


def test_of_several_runs_the_one_that_failed_is_named(tmp_path: Path) -> None:
    runs = [a_run(tmp_path / "whole", spectra=spectra_data()), with_a_failing_view(tmp_path / "broken")]
    with pytest.raises(KeyError, match="largest"):
        write_page(runs, tmp_path / "both.html")
    text = (tmp_path / "both.html").read_text(encoding="utf-8")
    assert text.count(MARK) == 1
    assert f"broken: {MARK}" in text


def test_what_a_view_refuses_is_a_bug_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not bad input: the user of a report has given no more than a run folder."""
    path = a_run(tmp_path / "run", looks=xarray.Dataset(attrs={"measure": "refused"}))

    def refuse(datasets: Mapping[str, xarray.Dataset]) -> View:
        raise InputError("expected an epoch, got none")

    monkeypatch.setitem(VIEWS, "refused", ViewOfMeasure("Refused", refuse))
    with pytest.raises(RuntimeError, match="InputError: expected an epoch, got none") as raised:
        write_report(path)
    assert isinstance(raised.value.__cause__, InputError)
    assert raised.value.__notes__ == ["while the report was made of data/looks (measure 'refused')"]
    assert run_command(monkeypatch, "report", path) == 70
    assert "expected an epoch, got none" in capsys.readouterr().err


def test_pictures_without_their_claims_are_explained(tmp_path: Path) -> None:
    """Claims and datasets of older versions do not name their study."""
    named = spectra_data().assign_attrs(study="D.spectra")
    runs = {
        "now": (named, decision()),
        "old": (spectra_data(), decision(study="")),
        "resumed": (spectra_data(), decision()),
    }
    explained = {}
    output = tmp_path / "page.html"  # the page alone: no files of figures
    for name, (data, claim) in runs.items():
        with RunFolder(tmp_path / name, "study D") as run:
            run.write_dataset("spectra", data)
            run.write_claims([claim])
        explained[name] = WITHOUT_STUDY in write_page([run.path], output).read_text(encoding="utf-8")
    assert explained == {"now": False, "old": True, "resumed": True}
    with RunFolder(tmp_path / "inspected", "inspect") as run:
        run.write_dataset("spectra", spectra_data())
    assert WITHOUT_STUDY not in write_page([run.path], output).read_text(encoding="utf-8")


def test_a_dataset_without_a_view_is_a_plain_table(tmp_path: Path) -> None:
    (section,) = sections_of({"wood": unknown_data()})
    (table,) = section.view.tables
    assert section.failure is None
    assert UNKNOWN in table.about
    assert "measure 'forest'" in table.about
    assert [list(row) for row in table.rows] == [
        ["height", "tree 2 x year 3", "6", "1", "2.5", "4", "2"],
        ["kind", "tree 2", "2", "-", "-", "-", "-"],
    ]
    text = write_report(a_run(tmp_path / "run", wood=unknown_data())).read_text(encoding="utf-8")
    assert '<section id="forest">' in text
    assert UNKNOWN in text
    assert "data/wood.nc" in text


def test_a_measure_from_anybody_is_text(tmp_path: Path) -> None:
    data = unknown_data().assign_attrs(measure=NAMES[2])
    text = write_report(a_run(tmp_path / "run", wood=data)).read_text(encoding="utf-8")
    assert UNKNOWN in text
    assert f"<script>{CODE}" not in text


def test_pieces_of_other_datasets_are_not_shown() -> None:
    piece = unknown_data().drop_attrs().assign_attrs(part="piece")
    assert sections_of({"piece": piece}) == []
    assert len(sections_of({"joined": unknown_data().assign_attrs(part="piece")})) == 1
