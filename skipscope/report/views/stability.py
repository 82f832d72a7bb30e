"""Perturbations of the input: how they grow, whether the units' Jacobians foresee it, and in which directions."""

from __future__ import annotations

from collections.abc import Mapping

import numpy
import xarray

from skipscope.report.figures import growth, prediction, projections
from skipscope.report.figures.stability import binned, shown_images
from skipscope.report.style import NOT_CONVERGED_MARK, converged, names_of
from skipscope.report.table import EachOf, Table, number, table_of
from skipscope.report.views.view import (
    Curve,
    Picture,
    UnitCurves,
    UnitNumbers,
    View,
    counted,
    described,
    made_by,
    titles,
    unit_numbers,
)

GROWTH = (
    "{title}: RMS of the change of every state, from the first unit's entry to the last one's exit. One grey line an "
    "image{thinning}, the median of {images} thick; dotted lines mark states that enter a new stage. The paper "
    "(Rothauge et al., figure 3) shows growth through the first two stages, faster for adversarial perturbations; in "
    "the last stage random ones shrink and adversarial ones jump near the end."
)
PREDICTION = (
    "{title}: growth across each unit beside |J d| / |d|, with the Jacobian J at the clean state. Above, medians of "
    "{images} with their quartiles; below, one point per unit and image{thinning}, one colour per stage, and the "
    "diagonal, where the prediction is exact. The paper (figure 4) shows that the linear prediction is good. Predicted "
    "/ actual, median and quartiles over all units and images: {ratios}."
)
PROJECTIONS = (
    "{title}: |alpha_i|, the component of the perturbation's direction at a unit's entry along right singular vector i "
    "of the unit's Jacobian (vectors: {vectors}), and the singular values (dotted, right axis, medians). Faint points "
    "are single images, thinned evenly in the logarithm of i after the first ten. Thick lines are root mean squares "
    "over all images and bins of i; they mean something also where singular values are equal, so that their vectors "
    "are any basis of one space. A line that is high at the left is a perturbation along the directions that grow "
    "most: the paper (figure 4) shows that for adversarial perturbations at the last unit, and not for random ones."
)
ABOUT = (
    "Medians over {images}. Growth: |change at the unit's exit| / |change at its entry|. Predicted / actual: growth by "
    "the Jacobian at the clean state over that growth; 1 where the unit acts linearly on the change."
)
SHARES = " Top 10: share of |change|² along the ten leading right singular vectors at the unit's entry"


def stability_view(datasets: Mapping[str, xarray.Dataset]) -> View:
    tables, figures, numbers, curves = [], {}, [], []
    growths, predictions = titles("Growth of perturbations", datasets), titles("Predicted growth", datasets)
    directions = titles("Directions of perturbations", datasets)
    for name, data in datasets.items():
        tables.append(_table(growths[name], data))
        shown, count = len(shown_images(data)), data.sizes["sample"]
        words = {
            "thinning": f" ({shown} of {count}, evenly spaced)" if shown < count else "",
            "images": _images(data),
            "ratios": "; ".join(f"{kind} {_quartiles(data.sel(kind=kind))}" for kind in data["kind"].values),
            "vectors": data.attrs.get("vectors") or "all",
        }
        study = made_by(data)
        figures[f"{name}-growth"] = Picture(GROWTH.format(title=growths[name], **words), growth(data), study)
        caption = PREDICTION.format(title=predictions[name], **words)
        figures[f"{name}-prediction"] = Picture(caption, prediction(data), study)
        numbers += _numbers(data)
        if "projection" in data:
            caption = PROJECTIONS.format(title=directions[name], **words)
            unsure = any(not converged(data, unit, "project") for unit in names_of(data, "project"))
            caption += " * marks units where not all vectors converged." if unsure else ""
            figures[f"{name}-projections"] = Picture(caption, projections(data), study)
            curves.append(_curves(data))
    return View(tables, figures, described(datasets, _sentence, "Perturbations"), numbers, curves)


def _numbers(data: xarray.Dataset) -> list[UnitNumbers]:
    medians = data["actual"].median("sample")
    return unit_numbers(
        data.drop_vars("converged", errors="ignore"),  # of directions, not of growth
        {f"growth of a perturbation, {kind}": medians.sel(kind=kind) for kind in names_of(data, "kind")},
        scale="gain",
    )


def _curves(data: xarray.Dataset) -> UnitCurves:
    """Root mean squares over images and bins of the index; single images are in the figure."""
    found: dict[str, list[Curve]] = {}
    for unit in names_of(data, "project"):
        found[unit] = []
        for kind in names_of(data, "kind"):
            alpha = numpy.abs(data["projection"].sel(project=unit, kind=kind).transpose("sample", "index").values)
            length = int(numpy.isfinite(alpha).any(0).sum())
            if length:
                found[unit].append(Curve(kind, *binned(alpha[:, :length])))
    network = str(data.attrs.get("network", ""))
    title = "Perturbations on right singular vectors"
    return UnitCurves(network, title, "singular vector i", "|alpha|, root mean square", found, logarithmic="xy")


def _sentence(words: str, data: xarray.Dataset) -> str:
    total = (data["rms"].isel(state=-1) / data["rms"].isel(state=0)).median("sample")
    factors = {kind: float(total.sel(kind=kind)) for kind in names_of(data, "kind")}
    parts = [f"{number(factor)} ({kind})" for kind, factor in factors.items() if numpy.isfinite(factor)]
    if not parts:
        return f"{words}perturbations of the input do not reach the last unit."
    text = f"{words}from the first unit to the last, a perturbation of the input is multiplied by {', '.join(parts)}"
    text += f", medians of {_images(data)}"
    ratio = _ratio(data).values
    ratio = ratio[numpy.isfinite(ratio)]
    if ratio.size:
        text += f"; the linearisation predicts {float(numpy.median(ratio)):.2f} times the growth that happens"
    return f"{text}."


def _table(title: str, data: xarray.Dataset) -> Table:
    units, projected = names_of(data, "unit"), names_of(data, "project") if "share_top10" in data else []
    unconverged = [unit for unit in projected if not converged(data, unit, "project")]
    every = [*units, *(unit for unit in projected if unit not in units)]
    medians = {"growth": data["actual"].median("sample"), "predicted / actual": _ratio(data).median("sample")}
    about = ABOUT.format(images=_images(data))
    if projected:
        medians["top 10"] = data["share_top10"].median("sample").rename(project="unit")
        about += SHARES + ("; * marks units where not all vectors converged." if unconverged else ".")
    columns = {f"{what}, {{0}}": EachOf("kind", what) for what in medians}
    shown = {what: values.reset_coords(drop=True).reindex(unit=every) for what, values in medians.items()}
    marks = [unit + NOT_CONVERGED_MARK if unit in unconverged else unit for unit in every]
    return table_of(xarray.Dataset(shown).assign_coords(unit=marks), title, columns, about, rows={"unit": "unit"})


def _ratio(data: xarray.Dataset) -> xarray.DataArray:
    return data["predicted"] / data["actual"].where(data["actual"] > 0)


def _quartiles(data: xarray.Dataset) -> str:
    ratios = _ratio(data).values
    ratios = ratios[numpy.isfinite(ratios)]
    if not ratios.size:
        return "-"
    low, middle, high = numpy.quantile(ratios, [0.25, 0.5, 0.75])
    return f"{middle:.3f} [{low:.3f}, {high:.3f}]"


def _images(data: xarray.Dataset) -> str:
    return counted(data.sizes["sample"], "image")
