"""Counted singular values against the exact law."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from skipscope.report.charts import Series, axis, chart, reference

if TYPE_CHECKING:
    import xarray


def law(datasets: xarray.Dataset | Mapping[str, xarray.Dataset]) -> Any:
    """Counted ones against proved ones, as shares of n; one point per unit and sample, one colour per network."""
    import xarray

    if isinstance(datasets, xarray.Dataset):
        datasets = {"": datasets}
    diagonal = reference([0, 1], [0, 1])
    series = [replace(diagonal, more={**diagonal.more, "meta": {"drawn": "only"}})]  # no data
    for name, data in datasets.items():
        network = str(data.attrs.get("network", name))
        shares = data[["ones_at_least", "ones"]] / data["size"]
        text = [f"{unit}, sample {sample}" for unit in data["unit"].values for sample in range(data.sizes["sample"])]
        series.append(
            Series(
                network,
                shares["ones_at_least"].values.ravel(),
                shares["ones"].values.ravel(),
                "%{text}<br>proved %{x:.4f}, counted %{y:.4f}",
                mode="markers",
                size=9,
                labelled=all(one.name != network for one in series),
                text=text,
            )
        )
    return chart(
        series,
        x=axis("proved to be 1, as a share of n: (n - z - 2 r) / n, or 0", range=[-0.02, 1.02]),
        y=axis("counted, as a share of n", range=[-0.02, 1.02]),
        height=520,
    )
