"""Networks that differ in one number, the dose: what they are in the end, with an interval over the networks of each.

The dose is the factor of the skips, the share of random labels, the weight decay or the number of classes. Where a
second number differs too, such as the epochs, it makes the series. Intervals are those by which claims are judged:
Student's t at 95 % over networks, on the scale of the quantity.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy
import xarray

from skipscope.papers.a.quantities import (
    ALL_PAIRS,
    ENERGY,
    LEFT_ON_RIGHT,
    LSS,
    R_SQUARED,
    SLOPE,
    STEP_COV,
    SWAPPED_OVER_CHANCE,
    TRAIN_ACCURACY,
    VARIABLES,
    at_look,
)
from skipscope.papers.kit import Bench, Quantity
from skipscope.papers.kit.estimates import estimated

TEST_ACCURACY = Quantity("test accuracy", "share")
LARGE = Quantity("singular values above 5 % of s_1")
SHOWN: dict[Quantity, str] = {
    **{quantity: VARIABLES[quantity] for quantity in (LSS, STEP_COV, ALL_PAIRS, SWAPPED_OVER_CHANCE, LEFT_ON_RIGHT)},
    **{quantity: VARIABLES[quantity] for quantity in (ENERGY, R_SQUARED, SLOPE)},
    LARGE: "large",
    TRAIN_ACCURACY: VARIABLES[TRAIN_ACCURACY],
    TEST_ACCURACY: "test_accuracy",
}

Found = Mapping[tuple[str, float], xarray.Dataset]  # by series and dose, statistics (seed, epoch)


def doses(bench: Bench, found: Found, dose: str, **about: str) -> xarray.Dataset:
    """The part `doses` of a study. dose: what the number is. about: more attributes, such as the title."""
    return bench.part("doses", lambda: by_dose(found, dose, **about))


def by_dose(found: Found, dose: str, **about: str) -> xarray.Dataset:
    """`value` (case, quantity, network) after the training, NaN where a case has fewer networks or one diverged; and
    `mean`, `low` and `high` (case, quantity), the interval NaN where there are fewer than two networks."""
    most = max(dataset.sizes["seed"] for dataset in found.values())
    value = numpy.full((len(found), len(SHOWN), most), numpy.nan)
    for case, dataset in enumerate(found.values()):
        for row, name in enumerate(SHOWN.values()):
            members = at_look(dataset, name)
            value[case, row, : len(members)] = members
    middles = [[_interval(members, quantity) for members, quantity in zip(rows, SHOWN, strict=True)] for rows in value]
    mean, low, high = numpy.moveaxis(numpy.array(middles), -1, 0)

    def attribute(name: str) -> tuple[str, list[float]]:
        return "case", [float(dataset.attrs[name]) for dataset in found.values()]

    return xarray.Dataset(
        {
            "value": (("case", "quantity", "network"), value),
            **{name: (("case", "quantity"), part) for name, part in (("mean", mean), ("low", low), ("high", high))},
            **{name: attribute(name) for name in ("weight_decay", "decay_budget")},
        },
        {
            "case": range(len(found)),
            "series": ("case", [series for series, _ in found]),
            "dose": ("case", [amount for _, amount in found]),
            "quantity": [quantity.name for quantity in SHOWN],
            "scale": ("quantity", [quantity.scale for quantity in SHOWN]),
        },
        {"measure": "alignment_doses", "dose_is": dose, **about},
    )


def _interval(members: numpy.ndarray, quantity: Quantity) -> tuple[float, float, float]:
    """Mean on the quantity's scale, and the ends of its interval."""
    there = members[numpy.isfinite(members)]
    if not there.size:
        return numpy.nan, numpy.nan, numpy.nan
    found = estimated(there.tolist(), quantity.scale)
    low, high = found.interval() if there.size > 1 else (numpy.nan, numpy.nan)
    return found.value, low, high


def of_one_series(found: Mapping[float, xarray.Dataset] | Mapping[int, xarray.Dataset]) -> Found:
    """Doses without a second number."""
    return {("", float(dose)): dataset for dose, dataset in found.items()}
