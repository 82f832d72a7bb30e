"""How networks were trained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from skipscope.report.figures import training
from skipscope.report.table import Table, number
from skipscope.report.views.view import NETWORKS_IN_SUMMARY, Picture, View, counted, named

if TYPE_CHECKING:
    import xarray

COLUMNS = {"loss": "training loss", "train_accuracy": "training accuracy", "test_accuracy": "test accuracy"}
ABOUT = "Values after the last epoch; seconds of training in all."


def history_view(datasets: Mapping[str, xarray.Dataset]) -> View:
    by_network = named(datasets)
    rows = [
        [
            network,
            str(data.sizes["epoch"]),
            str(data.attrs["status"]),
            *(number(float(data[key][-1])) if key in data else "-" for key in COLUMNS),
            number(float(data["seconds"].sum())),
        ]
        for network, data in by_network.items()
    ]
    table = Table("Training", ["network", "epochs", "status", *COLUMNS.values(), "seconds"], rows, ABOUT, names=3)
    picture = Picture("Training, epoch by epoch.", training(by_network))
    sentences = [_sentence(name, data) for name, data in list(by_network.items())[:NETWORKS_IN_SUMMARY]]
    return View([table], {"history": picture}, sentences)


def _sentence(network: str, data: xarray.Dataset) -> str:
    text = f"The network {network} was trained for {counted(data.sizes['epoch'], 'epoch')}"
    if data.attrs["status"] != "finished":
        return f"{text} and {data.attrs['status']}."
    reached = f"; test accuracy {float(data['test_accuracy'][-1]):.1%}" if "test_accuracy" in data else ""
    return f"{text} to a loss of {number(float(data['loss'][-1]))}{reached}."
