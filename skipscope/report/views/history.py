"""How networks were trained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from skipscope.report.figures import curves_figure
from skipscope.report.table import Table, number
from skipscope.report.views.view import View, network_of

if TYPE_CHECKING:
    import xarray

PANELS = {"loss": "training loss", "train_accuracy": "training accuracy", "test_accuracy": "test accuracy"}


def history_view(datasets: Mapping[str, xarray.Dataset]) -> View:
    rows = [
        [
            network_of(name, data),
            str(data.sizes["epoch"]),
            str(data.attrs["status"]),
            *(number(float(data[key][-1])) if key in data else "-" for key in PANELS),
            number(float(data["seconds"].sum())),
        ]
        for name, data in datasets.items()
    ]
    columns = ["network", "epochs", "status", *PANELS.values(), "seconds"]
    table = Table("Training", columns, rows, "Values after the last epoch; seconds of training in all.", names=3)
    shown = {key: title for key, title in PANELS.items() if any(key in data for data in datasets.values())}
    curves = {network_of(name, data): data for name, data in datasets.items()}
    return View([table], {"history": ("Training, epoch by epoch.", curves_figure(curves, shown, along="epoch"))})
