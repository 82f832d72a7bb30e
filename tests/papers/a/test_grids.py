"""The paper's grids of Jacobians: what is kept of them, how they are drawn, and which networks have them."""

from __future__ import annotations

from collections.abc import Callable

import numpy
import pytest
import torch
import xarray

import skipscope as ss
from skipscope.data import load
from skipscope.errors import InputError
from skipscope.papers.a.figures.grids import papers_grid
from skipscope.papers.a.grids import STEPS, WAYS, in_papers_layout
from skipscope.papers.a.quantities import WIDE_RANK
from skipscope.papers.a.studies.alignment import ALL_SUBJECTS
from skipscope.papers.a.studies.alignment import STUDY as ALIGNMENT
from skipscope.papers.a.views.grids import grids_view
from tests.papers.conftest import SmokeRun


@pytest.fixture(name="jacobians", scope="module")
def _jacobians() -> xarray.Dataset:
    """Of a network whose third of five blocks halves the image."""
    torch.manual_seed(0)
    net = ss.build("type3-digits-w4-b5").eval()
    x = load("digits").subset(samples=10).train.images()[:2]
    return ss.alignment(ss.trace(net, x), x, k=6, classes=10, chance=0)


@pytest.mark.parametrize("way", WAYS)
def test_panels_are_relative_to_their_largest_entry(jacobians: xarray.Dataset, way: str) -> None:
    found = in_papers_layout(jacobians)
    assert found[way].dtype == numpy.uint8
    assert found[way].dims == ("unit", "other", "row", "column")
    whole = numpy.abs(jacobians[way].isel(sample=0).transpose("unit", "other", "row", "column").values)
    for i in range(5):
        for j in range(5):
            panel, largest = whole[i, j], float(found[f"largest_{way}"][i, j])
            if numpy.isnan(panel).all():
                assert numpy.isnan(largest)
                assert not found[way][i, j].any()
                continue
            assert largest == pytest.approx(panel.max(), rel=1e-6)
            assert numpy.abs(found[way][i, j].values / STEPS - panel / panel.max()).max() <= 0.5 / STEPS + 1e-6
    # Blocks before and after the one that halves the image have states of different shapes.
    assert numpy.isnan(found[f"largest_{way}"].values[:2, 3:]).all()
    assert found.attrs["k"] == 6


def test_a_jacobian_in_its_own_vectors_is_diagonal(jacobians: xarray.Dataset) -> None:
    own = in_papers_layout(jacobians)["ujv"].values[0, 0].astype(int)
    assert own[0, 0] == STEPS
    assert (numpy.diff(numpy.diag(own)) <= 0).all()
    assert numpy.abs(own - numpy.diag(numpy.diag(own))).max() == 0


def test_the_picture_has_a_panel_for_every_pair(jacobians: xarray.Dataset) -> None:
    data = in_papers_layout(jacobians)
    figure = papers_grid(data, "vju")
    assert numpy.array(figure.data[0].z).shape == (30, 30)
    # Row i, column j: the panel of the second Jacobian in the first vectors is below that of the first.
    assert (numpy.array(figure.data[0].z)[6:12, :6] == data["vju"].values[1, 0]).all()
    assert [trace.fill for trace in figure.data[1:]] == ["toself", None]
    missing = int(data["largest_vju"].isnull().sum())
    assert figure.data[1].x.count(None) == missing > 0
    assert figure.layout.yaxis.range[0] > figure.layout.yaxis.range[1]  # the first row on top
    with pytest.raises(InputError, match="way='uv': expected one of ujv, vju"):
        papers_grid(data, "uv")


@pytest.mark.slow
def test_every_network_of_a_run_has_both_pictures(smoke_run: Callable[..., SmokeRun]) -> None:
    datasets = smoke_run(ALIGNMENT).datasets()
    grids = {name: data for name, data in datasets.items() if data.attrs["measure"] == "alignment_grids"}
    subjects = [data for data in datasets.values() if data.attrs["measure"] == "emergence"]
    assert len(grids) == len(subjects) == 2
    assert {data.attrs["k"] for data in grids.values()} == {WIDE_RANK}
    view = grids_view(grids)
    assert list(view.figures) == [f"{name}-{way}-k{WIDE_RANK}" for name in grids for way in WAYS]
    captions = [picture.caption for picture in view.figures.values()]
    assert all("30 leading" in caption and "in the layout of the paper" in caption for caption in captions)
    assert [caption.count("figures 24 to 37") for caption in captions] == [0, 1, 0, 1]


def test_all_pairs_of_the_papers_figures_are_subjects() -> None:
    """Figures 10 to 23: fully connected networks on four data sets, both kinds of convolutional ones on five."""
    colours = ("mnist", "fashion-mnist", "cifar10", "cifar100")
    pairs = {f"type1-{data}" for data in colours}
    pairs |= {f"type{kind}-{data}" for kind in (2, 3) for data in (*colours, "imagenette32")}
    assert {subject.removesuffix("-w512") for subject in ALL_SUBJECTS} == pairs
    assert len(ALL_SUBJECTS) == 14
