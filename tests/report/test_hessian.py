"""Spectra of Hessians as figures and tables."""

from __future__ import annotations

import numpy
import pytest
import torch
from torch import nn

from skipscope.measure import curvature
from skipscope.report.figures import hessian
from skipscope.report.views import views


@pytest.mark.parametrize("mode", ["exact", "lanczos"])
def test_every_eigenvalue_is_there(mode: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    data = curvature(model, nn.MSELoss(), (torch.randn(20, 3), torch.randn(20, 2)), route=mode, k=3, steps=8)
    figure = hessian(data)
    shown = numpy.concatenate([trace.y for trace in figure.data[:2]])
    assert sorted(shown) == pytest.approx(sorted(numpy.abs(data["value"].values)))
    (view,) = views({"curvature": data})
    assert list(view.figures) == ["curvature-hessian"]
    assert view.tables[0].rows[0][1] == f"{float(data['loss']):.3g}"
    if mode == "exact":
        assert figure.data[2].y.sum() == data.sizes["eigenvalue"]
    else:
        assert "±" in view.tables[0].rows[0][4]
