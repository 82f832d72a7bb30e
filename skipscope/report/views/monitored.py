"""A training that was monitored: its steps are the axis; and what rang."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy
import xarray

from skipscope.report.figures.monitored import OF_UNITS, WHOLE, monitored, monitored_units, too_sharp, values_of
from skipscope.report.style import names_of
from skipscope.report.table import Cell, Table, number, table_of
from skipscope.report.views.view import Curve, Picture, Scale, UnitCurves, UnitNumbers, View, counted, network_of

CAPTION = (
    "The training over its steps. Of all units, or weights, the median, with a band from the smallest to the largest; "
    "dotted lines: alarms.{too_sharp} Measured in evaluation mode at the monitor's own batch; the loss is that of the "
    "training."
)
CAPTION_OF_UNITS = (
    "Every unit over the steps: how much a size has changed since the first look. Blue: smaller, red: larger; colours "
    "end at a factor of a hundred."
)
ABOUT = (
    "At the first and the last look of each measure, medians over the samples; of all units the smallest and largest."
)
ABOUT_ALARMS = (
    "Each rule rings once; the step is that of the look, or the new rate, at which it rang, and the value what was "
    "compared with the threshold."
)
CAPTION_OF_TOO_SHARP = (
    " Diamond: the last sharpness over what the rate of that step bears, at which the alarm rang; dashed line: its "
    "threshold."
)
# Of the map: quantities of the last look that have one number per unit.
SCALES: dict[str, Scale] = {"gradient_gain": "gain", "branch_over_skip": "share", "value": "gain"}


def monitor_view(datasets: Mapping[str, xarray.Dataset]) -> View:
    parts = {str(data.attrs.get("part", data.attrs["measure"])): data for data in datasets.values()}
    figures = {}
    if _drawable(parts):
        figures["monitor"] = Picture(CAPTION.format(too_sharp=_about_too_sharp(parts)), monitored(parts))
    if "sizes" in parts and parts["sizes"].sizes["step"] > 1:
        figures["monitor-units"] = Picture(CAPTION_OF_UNITS, monitored_units(parts["sizes"]))
    return View([_table(parts)], figures, _sentences(parts), _numbers(parts), _curves(parts))


def _drawable(parts: Mapping[str, xarray.Dataset]) -> bool:
    return any(values_of(parts, one) is not None for one in (*WHOLE, *OF_UNITS))


def _about_too_sharp(parts: Mapping[str, xarray.Dataset]) -> str:
    drawn = any(one.part == "sharpness" and values_of(parts, one) is not None for one in WHOLE)
    return CAPTION_OF_TOO_SHARP if drawn and too_sharp(parts) is not None else ""


def _table(parts: Mapping[str, xarray.Dataset]) -> Table:
    rows = []
    for one in OF_UNITS:
        values = values_of(parts, one)
        if values is None:
            continue
        for place in sorted({0, values.sizes["step"] - 1}):
            here = values.isel(step=place)
            numbers, names = here.values, names_of(here.to_dataset(name="one"), str(here.dims[0]))
            if not numpy.isfinite(numbers).any():
                continue
            low, high = int(numpy.nanargmin(numbers)), int(numpy.nanargmax(numbers))
            cells = [number(float(numpy.nanmedian(numbers))), number(float(numbers[low])), number(float(numbers[high]))]
            rows.append([one.title, names[low], names[high], str(int(here["step"])), *cells])
    columns = ["quantity", "smallest at", "largest at", "step", "median", "smallest", "largest"]
    return Table("First and last look", columns, rows, ABOUT, names=3)


def _sentences(parts: Mapping[str, xarray.Dataset]) -> list[str]:
    found = []
    if "loss" in parts:
        loss = parts["loss"]["loss"].values
        first, last = number(float(loss[0])), number(float(loss[-1]))
        network = network_of(parts["loss"])
        steps = counted(int(parts["loss"]["step"][-1]), "step")
        found.append(f"The training of {network} went from a loss of {first} to {last} in {steps}.")
    if "sharpness" in parts:
        last_look = parts["sharpness"].isel(step=-1)
        value, limit = float(last_look["value"]), float(last_look["limit"])
        bears = f", the rate bears {number(limit)}" if numpy.isfinite(limit) else ""
        found.append(f"The sharpness at the last look is {number(value)}{bears}.")
        rang = too_sharp(parts)
        if rang is not None:
            found.append(f"At step {rang.step} it was {number(rang.value)} times what the rate of that step bears.")
    return found


def _numbers(parts: Mapping[str, xarray.Dataset]) -> list[UnitNumbers]:
    """Of the last look, for the map of the trunk and for the comparison of two trainings."""
    found = []
    for one in OF_UNITS:
        values = values_of(parts, one)
        if values is None or values.dims[-1] != "unit":
            continue
        last = values.isel(step=-1)
        by_unit = dict(zip(map(str, last["unit"].values), last.values.tolist(), strict=True))
        network = str(parts[one.part].attrs.get("network", ""))
        scale = SCALES.get(one.key, "size")
        found.append(UnitNumbers(network, f"{one.title}, last look", by_unit, scale == "size", scale=scale))
    return found


def _curves(parts: Mapping[str, xarray.Dataset]) -> list[UnitCurves]:
    """What a reader sees who picks a unit of the map."""
    sizes = parts.get("sizes")
    if sizes is None:
        return []
    shown = {"state_rms": "state RMS", "gradient_rms": "gradient RMS", "branch_over_skip": "|branch| / |skip|"}
    of = {
        unit: [
            Curve(title, sizes["step"].values, sizes[key].isel(unit=place).values)
            for key, title in shown.items()
            if bool(sizes[key].isel(unit=place).notnull().any())
        ]
        for place, unit in enumerate(names_of(sizes, "unit"))
    }
    return [UnitCurves(str(sizes.attrs.get("network", "")), "Sizes over the steps", "step", "size", of, "y")]


def alarms_view(datasets: Mapping[str, xarray.Dataset]) -> View:
    columns: dict[str, Cell] = {
        "alarm": "name",
        "unit": "unit_of_alarm",
        "what it says": "sentence",
        "to try": "remedies",
        "step": lambda here: str(int(here["step"])),
        "value": "value",
        "threshold": "threshold",
    }
    tables = [table_of(data, "Alarms", columns, ABOUT_ALARMS, names=4) for data in datasets.values()]
    return View([replace(table, sentences=True) for table in tables])
