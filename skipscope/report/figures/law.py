"""Counted singular values against the exact law."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from skipscope.report.figures.style import GREY, look, styled

if TYPE_CHECKING:
    import xarray


def law(datasets: xarray.Dataset | Mapping[str, xarray.Dataset]) -> Any:
    """Counted ones against proved ones, as shares of n; one point a unit and sample, one colour a network."""
    import plotly.graph_objects as go
    import xarray

    if isinstance(datasets, xarray.Dataset):
        datasets = {"": datasets}
    figure = go.Figure()
    only = {"showlegend": False, "hoverinfo": "skip", "meta": {"drawn": "only"}}  # no data
    figure.add_scatter(x=[0, 1], y=[0, 1], mode="lines", line={"color": GREY, "width": 1}, **only)
    seen: list[str] = []
    for name, data in datasets.items():
        network = str(data.attrs.get("network", name))
        new = network not in seen
        seen += [network] if new else []
        figure.add_scatter(
            x=(data["ones_at_least"] / data["size"]).values.ravel(),
            y=(data["ones"] / data["size"]).values.ravel(),
            text=[f"{unit}, sample {sample}" for unit in data["unit"].values for sample in range(data.sizes["sample"])],
            mode="markers",
            showlegend=new,
            **look(network, seen.index(network), size=9),
            hovertemplate=f"{network}<br>%{{text}}<br>proved %{{x:.4f}}, counted %{{y:.4f}}<extra></extra>",
        )
    figure.update_xaxes(title_text="proved to be 1, as a share of n: (n - z - 2 r) / n, or 0", range=[-0.02, 1.02])
    figure.update_yaxes(title_text="counted, as a share of n", range=[-0.02, 1.02])
    return styled(figure, height=520)
