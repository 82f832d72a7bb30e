"""Condition numbers layer by layer; infinite ones have a place of their own above the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy

from skipscope.report.figures.style import GREY, look, named_ticks, names_of, styled

if TYPE_CHECKING:
    import xarray

KINDS = {  # variable: title; which of them a dataset has depends on what was measured
    "matrix": "as a matrix",
    "hosvd": "largest over the modes (HOSVD)",
    "condition": "condition number",
}


def conditions(dataset: xarray.Dataset) -> Any:
    """One curve a kind of condition number, over parameters or states; triangles above the line are not finite."""
    import plotly.graph_objects as go

    along = "parameter" if "parameter" in dataset.dims else "state"
    names = names_of(dataset, along)
    kinds = {key: title for key, title in KINDS.items() if key in dataset}
    values = {key: dataset[key].values.astype(float) for key in kinds}
    finite = {key: numpy.isfinite(values[key]) & (_statuses(dataset, key) == "finite") for key in kinds}
    largest = max((float(values[key][finite[key]].max()) for key in kinds if finite[key].any()), default=1.0)
    ceiling = 10 ** (numpy.ceil(numpy.log10(max(largest, 1.0))) + 1)
    figure, places = go.Figure(), numpy.arange(len(names))
    for place, (key, title) in enumerate(kinds.items()):
        figure.add_scatter(
            x=places,
            y=numpy.where(finite[key], values[key], numpy.nan),
            text=names,
            mode="lines+markers",
            **look(title, place),
            hovertemplate=f"%{{text}}<br>{title}: %{{y:.6g}}<extra></extra>",
        )
        beyond = ~finite[key]
        if beyond.any():
            style = look(f"{title}, not finite", place, size=10)
            figure.add_scatter(
                x=places[beyond],
                y=numpy.full(int(beyond.sum()), ceiling),
                text=[f"{names[k]}<br>{_statuses(dataset, key)[k]}" for k in numpy.flatnonzero(beyond)],
                mode="markers",
                name=style["name"],
                marker={**style["marker"], "symbol": "triangle-up"},
                meta={"y": [_statuses(dataset, key)[k] for k in numpy.flatnonzero(beyond)]},
                hovertemplate="%{text}<extra></extra>",
            )
    figure.update_xaxes(**named_ticks(names))
    figure.update_yaxes(type="log", exponentformat="power", title_text="condition number")
    if not all(which.all() for which in finite.values()):
        figure.add_hline(y=ceiling, line={"color": GREY, "width": 1, "dash": "dot"})
        # Annotations of a logarithmic axis are placed by the logarithm.
        corner = {"x": 1, "xref": "paper", "xanchor": "right", "y": numpy.log10(ceiling), "yanchor": "bottom"}
        figure.add_annotation(text="not finite", showarrow=False, **corner)
    return styled(figure, height=420)


def _statuses(dataset: xarray.Dataset, key: str) -> numpy.ndarray:
    return dataset[f"{key}_status"].values.astype(str)
