"""The picture and the tables of condition numbers: what is not finite is said, and how."""

from __future__ import annotations

import numpy
import pytest
import torch
import xarray
from torch import nn

import skipscope as ss
from skipscope.report.figures import conditioning, gradient_ranks
from skipscope.report.views.conditioning import conditioning_view


def network(dead: bool) -> xarray.Dataset:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 3))
    with torch.no_grad():
        model[0].bias.fill_(0.5)
        model[2].bias.fill_(0.5)
        if dead:
            model[0].bias[0] = -100
            model[4].weight[0, 0] = torch.nan
    x, labels = torch.randn(60, 4), torch.randint(3, (60,))
    data = ss.conditioning(model, x, targets=labels)
    return data.assign_attrs(network="dead" if dead else "alive", units="0; 2")


@pytest.fixture(scope="module")
def datasets() -> dict[str, xarray.Dataset]:
    return {"conditioning-alive": network(False), "conditioning-dead": network(True)}


def test_marks_on_the_line_say_what_is_not_finite(datasets: dict[str, xarray.Dataset]) -> None:
    figure = conditioning({"alive": datasets["conditioning-alive"], "dead": datasets["conditioning-dead"]})
    marks = {trace.name: trace for trace in figure.data if trace.mode == "markers"}
    assert {"dead, infinite", "dead, overflow"} == set(marks)
    assert marks["dead, infinite"].marker.symbol == "triangle-up"
    assert marks["dead, infinite"].text == ("2<br>infinite",)
    lines = [trace for trace in figure.data if trace.mode == "lines+markers"]
    assert len(lines) == 4  # two networks, states and weights
    top = min(float(mark.y[0]) for mark in marks.values())
    assert all(numpy.nanmax(line.y) < top for line in lines)
    assert len(gradient_ranks(datasets["conditioning-alive"]).data) == 2


def test_tables_map_and_summary(datasets: dict[str, xarray.Dataset]) -> None:
    view = conditioning_view(datasets)
    assert set(view.figures) == {"conditioning-alive-conditioning", "conditioning-alive-ranks"}
    tables = {table.title: table for table in view.tables}
    assert len(tables) == 6
    states = {row[0]: row for row in tables["Condition numbers of states of dead"].rows}
    assert states["2"][2:] == ["inf", "inf", "5 of 6", "1"]
    assert states["output"][2] == "overflow"
    gradients = {row[0]: row[1:] for row in tables["Ranks of gradients of alive"].rows}
    assert gradients["4"] == ["2 of 3", "6 of 6", "2 of 3"]
    alive, dead = view.numbers
    assert set(alive.values) == {"0", "2"}
    assert dead.words == {"2": "infinite"}
    assert any(text.startswith("On dead, states are singular") for text in view.sentences)
    assert not any("On alive" in text and "singular" in text for text in view.sentences)
