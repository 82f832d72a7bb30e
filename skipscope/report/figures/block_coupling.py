"""Transformer block coupling: m_K of every pair of blocks and of every pair of token pairs."""

from __future__ import annotations

from typing import Any

import numpy
import xarray

from skipscope.report.style import marked, named_ticks, names_of, styled

SCALE = "Cividis"


def block_coupling(dataset: xarray.Dataset) -> Any:
    """Means of m_K over the samples: at the left of every pair of blocks, over the token pairs too; at the right of
    every two pairs of tokens, over the blocks too. dataset: of `ss.coupling`."""
    from plotly.subplots import make_subplots

    panels = {"blocks": (dataset["coupling"].mean(("sample", "pair")).transpose("unit", "other"), "unit")}
    if dataset.sizes["pair"] > 1:
        mean = dataset["token_coupling"].mean(("sample", "unit")).transpose("pair", "other_pair")
        panels["pairs of tokens"] = (mean, "pair")
    figure = make_subplots(1, len(panels), subplot_titles=list(panels), horizontal_spacing=0.16)
    for place, (values, along) in enumerate(panels.values(), start=1):
        names = names_of(dataset, "pair_text" if along == "pair" and "pair_text" in dataset.coords else along)
        if along == "unit":
            names = [marked(dataset, name) for name in names]
        figure.add_heatmap(
            z=values.values.astype(numpy.float32),
            coloraxis="coloraxis",
            hoverongaps=False,
            customdata=[[f"{i}, in the vectors of {j}" for j in names] for i in names],
            hovertemplate="%{customdata}: %{z:.3f}<extra></extra>",
            row=1,
            col=place,
        )
        ticks, edges = named_ticks(names), [-0.5, len(names) - 0.5]
        figure.update_xaxes(**{**ticks, "range": edges}, showgrid=False, zeroline=False, col=place)
        figure.update_yaxes(
            **{**ticks, "range": edges[::-1], "tickangle": 0}, showgrid=False, zeroline=False, col=place
        )
        figure.update_xaxes(title_text="whose vectors", col=place)
    figure.update_yaxes(title_text="whose Jacobian", col=1)
    top = max(1.0, *(float(values.max()) for values, _ in panels.values()))
    colours = {"colorscale": SCALE, "reversescale": True, "cmin": 0, "cmax": top}
    figure.update_layout(coloraxis={**colours, "colorbar": {"title": "m", "thickness": 12}})
    return styled(figure, height=480)
