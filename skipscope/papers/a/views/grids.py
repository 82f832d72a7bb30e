"""The paper's own pictures of alignment: each Jacobian in the singular vectors of all others."""

from __future__ import annotations

from collections.abc import Mapping

import xarray

from skipscope.papers.a.figures.grids import papers_grid
from skipscope.papers.a.grids import WAYS
from skipscope.report.views.view import Picture, View, made_by, named

CAPTION = (
    "{title}, training image {sample}: {product} with the Jacobian J of the block of the row and the {k} leading "
    "singular vectors of the block of the column, in the layout of the paper ({figures}); each panel relative to its "
    "largest entry. Aligned Jacobians have diagonal panels, bright in their upper left corners.{swapped}{shapes}"
)
PRODUCTS = {"ujv": "|U' J V|", "vju": "|V' J U|"}
FIGURES = {"ujv": "figures 10 to 23", "vju": "figures 24 to 37"}
SWAPPED = " Here left and right vectors are exchanged: the panels are diagonal where both are alike."
SHAPES = " Grey: states of different shapes, of which there is no product."


def grids_view(datasets: Mapping[str, xarray.Dataset]) -> View:
    names = dict(zip(named(datasets), datasets, strict=True))
    figures = {}
    for title, data in named(datasets).items():
        for way in WAYS:
            caption = CAPTION.format(
                title=title[:1].upper() + title[1:],
                sample=int(data.attrs["sample"]),
                product=PRODUCTS[way],
                k=int(data.attrs["k"]),
                figures=FIGURES[way],
                swapped=SWAPPED if way == "vju" else "",
                shapes=SHAPES if bool(data[f"largest_{way}"].isnull().any()) else "",
            )
            figures[f"{names[title]}-{way}-k{int(data.attrs['k'])}"] = Picture(
                caption, papers_grid(data, way), made_by(data)
            )
    return View([], figures)
