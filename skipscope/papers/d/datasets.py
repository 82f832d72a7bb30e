"""Datasets of paper D that several studies need: the spectra of a network, and the parts that claims speak of."""

from __future__ import annotations

from collections.abc import Sequence

import xarray

from skipscope.measure import spectra
from skipscope.papers.d.measured_networks import MeasuredNetwork, NetworkSettings, measured_networks
from skipscope.papers.kit import Bench

# D.spectra and D.proportions read the same spectra.
SPECTRA_STUDIES = ("D.spectra", "D.proportions")
SPECTRA_PRESETS = {
    "smoke": NetworkSettings("resnet14-digits-n8", epochs=1, networks=1, images=2),
    "quick": NetworkSettings(units=("stage3.4", "stage3.6", "stage3.8"), large_images=(2,)),
    "full": NetworkSettings(large_images=(5, 2), train110=True),
    "paper": NetworkSettings(train110=True),
}


def spectra_of_networks(bench: Bench, settings: NetworkSettings) -> list[xarray.Dataset]:
    """For each network the singular values of its units and stages at its images, measured once per run."""

    def measured(network: MeasuredNetwork) -> xarray.Dataset:
        found = spectra(
            network.trunk,
            network.images,
            units=network.names,
            stages=[stage.index for stage in network.trunk.stages if not network.units],
            progress=bench.steps(f"spectra of {network.title}"),
        )
        return found.assign_attrs(right_answers=f"{network.right_answers()} of {network.count}")

    networks = measured_networks(bench, settings)
    tasks = (network.task(measured, f"spectra-{network.key}") for network in networks)
    return bench.sweep(tasks, studies=SPECTRA_STUDIES)


def judged(parts: Sequence[xarray.Dataset]) -> list[xarray.Dataset]:
    """The networks that the paper speaks of, large and measured as a whole, where there are any; otherwise all.

    The others are in the run and in its report, but small networks do not vote on large ones.
    """
    large = [part for part in parts if part.attrs["large"]]
    return large or list(parts)


def regular_units(dataset: xarray.Dataset) -> xarray.Dataset:
    """Units that keep the shape of the state: their skip is the identity."""
    return dataset.isel(unit=((dataset["kind"] == "unit") & (dataset["skip"] == "identity")).values)


def whole_stages(dataset: xarray.Dataset) -> xarray.Dataset:
    return dataset.isel(unit=(dataset["kind"] == "stage").values)


def of_stage(dataset: xarray.Dataset, number: int) -> xarray.Dataset:
    """Counted from 1, as in the paper."""
    return dataset.isel(unit=(dataset["stage"] == number).values)


def ratios(first: Sequence[float], second: Sequence[float]) -> list[float]:
    return [a / b if b else float("inf") for a, b in zip(first, second, strict=True)]
