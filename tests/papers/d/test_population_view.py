"""What a report shows of a population, and that a run of D.population has the datasets that it shows."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy
import pytest

import skipscope as ss
from skipscope.errors import InputError
from skipscope.papers.d.population.figures import population
from skipscope.papers.d.population.stored import KINDS, measure_of, read_folders, write
from skipscope.papers.d.subjects import RECIPE2, RESNET56, RESNET110
from skipscope.papers.d.views import VIEWS
from skipscope.papers.kit.running import run_studies
from skipscope.report.content import content_of
from skipscope.report.page import page as rendered_page
from skipscope.report.table import number
from skipscope.report.views import View
from skipscope.runs import load_run
from tests.papers.d.synthetic_population import UNITS, in_run, joined


def lines(figure: Any, name: str) -> list[Any]:
    return [trace for trace in figure.data if trace.name == name]


def bands(figure: Any, group: str) -> list[Any]:
    return [trace for trace in figure.data if trace.fill == "toself" and trace.legendgroup == group]


def view_of(kind: str, **options: Any) -> View:
    return VIEWS[measure_of(kind)].view({"one": in_run(kind, **options)})


def column(view: View, title: str) -> list[str]:
    place = list(view.tables[0].columns).index(title)
    return [row[place] for row in view.tables[0].rows]


# -- figures


def test_a_line_is_the_mean_over_networks_in_a_band_from_the_smallest_to_the_largest() -> None:
    data = in_run("counts")
    figure = population(data)
    shares = data["mean"].values[:, :, 2]  # network, unit; of ones
    (line,), (band,) = lines(figure, "exact ones"), bands(figure, "exact ones")
    numpy.testing.assert_allclose(line.y, shares.mean(0))
    numpy.testing.assert_allclose(band.y, [*shares.max(0), *shares.min(0)[::-1]])
    assert list(line.text) == list(data["unit"].values)
    assert [shape.x0 for shape in figure.layout.shapes] == [2.5, 4.5]  # between stages, without down-sampling units


def test_one_network_has_no_band() -> None:
    figure = population(in_run("counts", networks=1))
    assert len(figure.data) == 2
    assert not bands(figure, "exact ones")


def test_growth_is_taken_image_by_image_from_the_first_entry() -> None:
    data = in_run("perturbations")
    figure = population(data)
    since, across = lines(figure, "random")
    states = data["rms"].values[:, 1]  # network, state, image
    numpy.testing.assert_allclose(since.y, numpy.median(states[:, 1:] / states[:, :1], 2).mean(0))
    numpy.testing.assert_allclose(across.y, numpy.median(states[:, 1:] / states[:, :-1], 2).mean(0))
    assert list(since.text) == UNITS
    assert (figure.layout.yaxis.type, figure.layout.yaxis2.type) == ("log", None)


def test_shares_on_leading_vectors_are_of_the_square() -> None:
    data = in_run("projections")
    first, ten = lines(population(data), "adversarial")
    squares = data["projection"].values[:, 0] ** 2  # network, unit, image, index
    numpy.testing.assert_allclose(first.y, numpy.median(squares[..., 0], 2).mean(0))
    numpy.testing.assert_allclose(ten.y, numpy.median(squares.sum(-1), 2).mean(0))


@pytest.mark.parametrize("kind", ["spectra", "random"])
def test_spectra_are_shown_unit_by_unit_without_whole_stages(kind: str) -> None:
    data = in_run(kind)
    figure = population(data)
    (near,), (mean,) = lines(figure, "in [0.99, 1.01]"), lines(figure, "mean of the values other than 0")
    shown = [place for place, name in enumerate(data["unit"].values) if "stage " not in name]
    numpy.testing.assert_allclose(near.y, data["share_near_one"].values.mean((0, 2))[shown])
    numpy.testing.assert_allclose(mean.y, data["mean_positive"].values.mean((0, 2))[shown])


@pytest.mark.parametrize(("kind", "key"), [("noise", "share_near_one"), ("noise-counts", "ones")])
def test_the_plateau_against_noise_is_a_mean_over_units(kind: str, key: str) -> None:
    data = in_run(kind)
    line = lines(population(data), "constant norm")[0]
    shares = data[key].transpose("network", "mixture", "t", ...).values[:, 1]
    numpy.testing.assert_allclose(line.y, shares.reshape(3, 3, -1).mean((0, 2)))
    numpy.testing.assert_allclose(line.x, [0, 0.5, 1])


def test_subjects_stand_side_by_side() -> None:
    figure = population({name: in_run("perturbations", architecture=name) for name in (RESNET110, RESNET56)})
    assert [title.text for title in figure.layout.annotations][:2] == [RESNET110, RESNET56]
    assert len(lines(figure, "random")) == 4  # two rows
    assert [line.showlegend for line in lines(figure, "random")] == [True, False, False, False]


def test_other_datasets_are_refused() -> None:
    with pytest.raises(InputError, match=r"expected datasets that a run of D\.population has"):
        population(joined("counts"))
    assert ss.plot.population is population


# -- views


def test_every_kind_of_dataset_has_a_view() -> None:
    assert {measure_of(kind) for kind in KINDS} <= VIEWS.keys()


@pytest.mark.parametrize("kind", KINDS)
def test_a_view_has_a_figure_and_a_row_per_network(kind: str) -> None:
    view = view_of(kind, networks=2)
    ((name, picture),) = view.figures.items()
    assert name == f"population-{kind}"
    assert "2 networks that differ only in their seeds" in picture.caption
    assert "7 images" in picture.caption
    assert [row[:2] for row in view.tables[0].rows] == [[RESNET110, "1000"], [RESNET110, "1001"]]
    assert all("-" not in row[2:] for row in view.tables[0].rows)


def test_the_tables_have_the_numbers_of_each_network() -> None:
    counts, growth = in_run("counts")["mean"].values, in_run("perturbations")["rms"].values
    zeros = counts[:, :3, 0].mean(1)  # of stage 1
    assert column(view_of("counts"), "exact zeros, stage 1") == [number(float(value)) for value in zeros]
    second = numpy.median(growth[:, 0, 6] / growth[:, 0, 3], 1)
    assert column(view_of("perturbations"), "adversarial, stage 2") == [number(float(value)) for value in second]
    last = numpy.median(growth[:, 1, 9] / growth[:, 1, 6], 1)
    assert column(view_of("perturbations"), "random, last 3 units") == [number(float(value)) for value in last]


def test_down_sampling_units_have_a_column_of_their_own() -> None:
    near = in_run("spectra")["share_near_one"].values.mean(2)  # network, unit; a stage is behind the units of each
    expected = near[:, [4, 8]].mean(1), near[:, [0, 1, 2, 5, 6, 9, 10]].mean(1)
    view = view_of("spectra")
    for title, values in zip(("in [0.99, 1.01], down-sampling units", "in [0.99, 1.01]"), expected, strict=True):
        assert column(view, title) == [number(float(value)) for value in values]
    assert not [title for title in view_of("random").tables[0].columns if "down-sampling" in title]


def test_the_t_of_the_largest_share_is_taken_unit_by_unit() -> None:
    data = in_run("noise-counts")
    data["ones"][:] = 0.1
    data["ones"][:, 0, 1, :6] = 0.5  # of six of seven units at t = 0.5, of the last one at t = 1
    data["ones"][:, 0, 2, 6] = 0.4
    view = VIEWS[measure_of("noise-counts")].view({"one": data})
    assert column(view, "its t, convex mixture") == [number((6 * 0.5 + 1) / 7)] * 3
    assert column(view, "largest share, convex mixture") == [number((6 * 0.5 + 0.4) / 7)] * 3


def test_what_did_not_converge_is_named() -> None:
    data = in_run("projections")
    data["converged"][1, 2, 0, 9] = 0
    (picture,) = VIEWS[measure_of("projections")].view({"one": data}).figures.values()
    unit = str(data["unit"].values[2])
    assert picture.caption.endswith(f" Not converged: {unit}.")
    assert f"{unit} *" in picture.figure.layout.xaxis2.ticktext


def test_many_subjects_share_several_figures() -> None:
    datasets = {str(recipe): in_run("counts", recipe=recipe, networks=recipe + 1) for recipe in range(1, 5)}
    view = VIEWS[measure_of("counts")].view(datasets)
    assert list(view.figures) == ["population-counts", "population-counts-2"]
    assert "2 or 3 or 4 networks" in view.figures["population-counts"].caption
    assert len(view.tables[0].rows) == 2 + 3 + 4 + 5


# -- the run


@pytest.fixture(scope="module", name="stored")
def _stored(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Folders with all kinds of datasets of one subject, and with some of others, as setting `datasets`."""
    folder = tmp_path_factory.mktemp("stored")
    for name in ("first", "second"):
        (folder / name).mkdir()
    for kind in KINDS:
        write(joined(kind), folder / "first" / f"resnet110-{kind}.nc")
    write(joined("counts", architecture=RESNET56), folder / "first" / "resnet56-counts.nc")
    write(joined("perturbations", recipe=2), folder / "second" / "resnet110-perturbations.nc")
    return f"{folder / 'first'},{folder / 'second'}"


@pytest.fixture(scope="module", name="run")
def _run(stored: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("population") / "run"
    return run_studies("D.population", out, changes={"datasets": stored}).folder


def test_a_run_has_the_datasets_that_it_judged(run: Path) -> None:
    saved = load_run(run)
    names = [f"population-{RESNET110}-{kind}" for kind in KINDS]
    others = [f"population-{RESNET56}-counts", f"population-{RESNET110}-recipe-2-perturbations"]
    assert sorted(saved.readable) == sorted([*names, *others])
    found = saved.dataset(others[1])
    was = joined("perturbations", recipe=2)
    numpy.testing.assert_array_equal(found["rms"], was["rms"].astype("float32"))
    assert (found.attrs["measure"], found.attrs["study"]) == ("population_perturbations", "D.population")
    assert (found.attrs["network"], found.attrs["about"]) == (RECIPE2, "words about perturbations")
    kept = ("architecture", "recipe", "device")
    assert {key: found.attrs[key] for key in kept} == {key: was.attrs[key] for key in kept}
    assert list(found.attrs["weights_sha256"]) == was.attrs["weights_sha256"]


def test_its_report_shows_all_of_them(run: Path) -> None:
    content = content_of(load_run(run))
    assert [section.measure for section in content.sections] == [
        measure for measure in VIEWS if "population" in measure
    ]
    assert content.failures == []
    assert content.facts["model"].split("; ") == [RESNET110, RESNET56, RECIPE2]
    page = rendered_page([content])
    for kind in KINDS:
        assert f'data-name="population-{kind}"' in page
    assert "No view is installed" not in page


def test_a_run_can_be_resumed(run: Path, stored: str, tmp_path: Path) -> None:
    resumed = tmp_path / "resumed"
    shutil.copytree(run, resumed)
    lost, *others = sorted((resumed / "data").glob("*.nc"))
    content, times = lost.read_bytes(), [file.stat().st_mtime_ns for file in others]
    lost.unlink()
    run_studies("D.population", resumed, changes={"datasets": stored}, resume=True)
    assert lost.read_bytes() == content
    assert [file.stat().st_mtime_ns for file in others] == times  # read, not written again
    assert load_run(resumed).claims == load_run(run).claims


def test_a_run_can_be_judged_again(run: Path, tmp_path: Path) -> None:
    again = run_studies("D.population", tmp_path / "again", changes={"datasets": str(run)})
    subjects = {decision.id: decision.subjects for decision in load_run(run).claims}
    assert {decision.id: decision.subjects for decision in load_run(again.folder).claims} == subjects
    assert any(subjects.values())
    first, second = (load_run(folder).dataset(f"population-{RESNET110}-counts") for folder in (run, again.folder))
    assert first.identical(second)


def test_pieces_come_before_the_joined_datasets_beside_them(tmp_path: Path) -> None:
    """So that runs of some networks each, which have both, can be joined."""
    for seed in (1000, 1001):
        folder = tmp_path / str(seed)
        folder.mkdir()
        one = joined("counts", networks=1).isel(network=0, drop=True)
        about = {"network": RESNET110, "seed": seed, "part": "count", "weights_sha256": "a", "seconds": 1.0}
        one.assign_attrs(about).to_netcdf(folder / f"population-{RESNET110}-seed{seed}-count.nc", engine="h5netcdf")
        write(in_run("counts", networks=1), folder / f"population-{RESNET110}-counts.nc")
        write(in_run("noise-counts", recipe=2), folder / f"population-{RESNET110}-recipe-2-noise-counts.nc")
    (tmp_path / "1001" / f"population-{RESNET110}-recipe-2-noise-counts.nc").unlink()
    found = read_folders([tmp_path / "1000", tmp_path / "1001"], print)
    assert {subject: list(by_kind) for subject, by_kind in found.items()} == {
        RESNET110: ["counts"],
        RECIPE2: ["noise-counts"],
    }
    assert found[RESNET110]["counts"]["network"].values.tolist() == [1000, 1001]
