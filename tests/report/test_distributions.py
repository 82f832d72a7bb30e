"""What a report shows of activations, weights and gradients along training."""

from __future__ import annotations

from functools import cache

import numpy
import pytest
import torch
import xarray
from torch import nn

from skipscope.data.dataset import Images
from skipscope.errors import InputError
from skipscope.report.figures.distributions import EMPTIEST, ROWS, _Axis, distributions
from skipscope.report.views import VIEWS, sections_of
from skipscope.report.views.training import distributions_view
from skipscope.training import History, trackers
from tests import seeded

EPOCHS = (0, 1, 5)


def looks(network: str, scales: tuple[float, ...] = (1.0, 2.0, 4.0), spoiled: bool = False) -> xarray.Dataset:
    return _looks(scales, spoiled).copy(deep=True).assign_attrs(network=network)


@cache
def _looks(scales: tuple[float, ...], spoiled: bool) -> xarray.Dataset:
    """A net of two layers whose first weights are grown from look to look."""
    split = Images(torch.randn(64, 4, generator=seeded.generator(0)), torch.arange(64) % 3)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 6, bias=False), nn.ReLU(), nn.Linear(6, 3, bias=False))
    start, results = model[0].weight.detach().clone(), {}
    tracker = trackers.Tracker([0, 1], split, batches=2, batch=32)
    for epoch, scale in zip(EPOCHS, scales, strict=True):
        with torch.no_grad():
            model[0].weight.copy_(scale * start)
            if spoiled and epoch:
                model[0].weight[0, 0] = torch.nan
        results[epoch] = tracker(model, epoch, History())
    return trackers.distributions(results)


def test_cells_hold_all_values_and_lines_are_at_their_quantiles() -> None:
    data = looks("a net")
    figure = distributions(data, "weights")
    maps = [trace for trace in figure.data if trace.type == "heatmap"]
    assert len(maps) == 2
    for place, trace in enumerate(maps):
        assert trace.z.shape == (ROWS, len(EPOCHS))
        numpy.testing.assert_allclose(numpy.nansum(10.0 ** trace.z.astype(float), 0), 1, rtol=1e-5)
        here = data.sel(what="weights").isel(layer=place)
        axis = _Axis([here])
        lines = {trace.hovertemplate.split(" at")[0]: trace for trace in figure.data if trace.type == "scatter"}
        if place == 1:
            numpy.testing.assert_allclose(lines["maximum"].y, axis(here["maximum"].values))
            numpy.testing.assert_allclose(lines["99% quantile"].customdata, here["quantiles"].sel(quantile=0.99))
    assert figure.layout.xaxis.ticktext == ("0", "1", "5")
    assert figure.layout.coloraxis.cmin == EMPTIEST


def test_an_axis_goes_back_to_its_values() -> None:
    data = looks("a net", (1.0, 1e3, 1e6)).sel(what="activations").isel(layer=0)
    axis = _Axis([data])
    values = axis.values(axis.edges())
    numpy.testing.assert_allclose(axis(values), axis.edges(), atol=1e-9)
    assert values[0] < float(data["minimum"].min())
    assert float(data["maximum"].max()) < values[-1]
    ticks = axis.ticks()
    assert ticks["ticktext"][0] == "0"
    assert "10<sup>6</sup>" in ticks["ticktext"]
    power = ticks["tickvals"][ticks["ticktext"].index("10<sup>6</sup>")]
    assert axis.values(numpy.array([power]))[0] == pytest.approx(1e6)


def test_networks_of_a_row_have_one_axis() -> None:
    cases = {"plain": looks("plain", (1.0, 1e3, 1e6)), "residual": looks("residual", (1.0, 1.0, 1.0))}
    figure = distributions(cases, "activations")
    assert figure.layout.yaxis2.matches == "y"
    assert [text.text for text in figure.layout.annotations][:2] == [
        "plain<br>layer 1 of 2",
        "residual<br>layer 1 of 2",
    ]
    first, second = (trace for trace in figure.data if trace.type == "heatmap" and trace.yaxis in ("y", "y2"))
    numpy.testing.assert_array_equal(first.y, second.y)
    assert sum(bool(trace.showlegend) for trace in figure.data if trace.type == "scatter") == 3
    both = xarray.concat(
        [data.drop_vars(["low", "high"]) for data in cases.values()],
        xarray.IndexVariable("network", list(cases)),
        join="outer",
        fill_value={"histogram": 0},
    )
    again = [trace for trace in distributions(both, "activations").data if trace.type == "heatmap"]
    numpy.testing.assert_array_equal(again[0].z, first.z)


def test_values_that_are_no_numbers_are_marked() -> None:
    figure = distributions(looks("a net", spoiled=True), "weights")
    (crosses,) = [trace for trace in figure.data if trace.name == "NaN or infinite"]
    assert crosses.x.tolist() == [1, 2]
    assert crosses.customdata.tolist() == [1, 1]
    nothing = looks("a net")
    for name in ("minimum", "maximum", "p99_abs", "quantiles"):
        nothing[name][:] = numpy.nan
    nothing["histogram"][:] = 0
    assert len(distributions(nothing).data) > 0
    constant = looks("a net", (0.0, 0.0, 0.0))
    assert len(distributions(constant, "activations").data) > 0


def test_a_quantity_that_was_not_tracked() -> None:
    data = looks("a net").sel(what=["weights"])
    with pytest.raises(InputError, match="no dataset has 'activations'; expected what from weights"):
        distributions(data)
    assert list(distributions_view({"h": data}).figures) == ["weights"]


def test_the_view_compares_networks() -> None:
    cases = {"histograms-a": looks("plain", (1.0, 1e3, 1e6)), "histograms-b": looks("residual", spoiled=True)}
    cases = {name: data.assign_attrs(study="C.histograms") for name, data in cases.items()}
    view = distributions_view(cases)
    assert list(view.figures) == ["activations", "weights", "gradients"]
    assert all(picture.studies == ("C.histograms",) for picture in view.figures.values())
    assert "over 64 samples in training mode" in view.figures["activations"].caption
    assert "figure 6" in view.figures["gradients"].caption
    (table,) = view.tables
    assert len(table.rows) == 2 * 3 * 2 * 2
    row = dict(zip(table.columns, table.rows[5], strict=True))
    here = cases["histograms-a"].sel(what="weights").isel(layer=0, epoch=-1)
    assert [row[name] for name in ("network", "quantity", "layer", "epoch")] == [
        "plain",
        "weights",
        "layer 1 of 2: 0",
        "5",
    ]
    assert float(row["largest"]) == pytest.approx(float(here["maximum"]), rel=0.05)
    assert (row["zeros"], row["not finite"]) == ("0.0%", "0")
    assert table.rows[2 * 3 * 2 + 5][-1] == "1"
    assert view.sentences[1].startswith("99 % of the absolute weights are at most ")
    assert "in plain (layer 1), " in view.sentences[1]


def test_many_networks_are_in_several_figures() -> None:
    data = looks("a net").isel(epoch=[0])
    cases = {f"h{k}": data.assign_attrs(network=f"net {k}") for k in range(5)}
    figures = distributions_view(cases).figures
    assert [name for name in figures if name.startswith("weights")] == ["weights", "weights-2"]


def test_it_has_a_place_in_the_report() -> None:
    assert "distributions" in VIEWS  # those of the core, which has the trackers
    assert [section.measure for section in sections_of({"a": looks("a net")})] == ["distributions"]
