"""What is measured on both twins, as labelled datasets; the dimension `network` tells them apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy
import torch

import skipscope.measure as measure
from skipscope.demo.twins import Twin
from skipscope.measure.chain import chain_profile
from skipscope.measure.conditions import state_conditions_of
from skipscope.measure.spectra import spectra_of
from skipscope.measure.verification import verification_of

if TYPE_CHECKING:
    import xarray


def profiles(twins: Sequence[Twin], seed: int) -> xarray.Dataset:
    """`profile` of the residual network; of its twin what exists without a skip, NaN for the rest."""
    import xarray

    residual, plain = twins
    with_skips = measure.profile(residual.trunk, residual.images, seed=seed)
    with torch.no_grad():
        first = plain.model.stem(plain.images)
    without = chain_profile(plain.model.blocks, plain.model.head, first, seed=seed)
    for name in set(with_skips.data_vars) - set(without.data_vars):
        without[name] = xarray.full_like(with_skips[name], numpy.nan)
    return _together(twins, [with_skips, without])


def conditions(twins: Sequence[Twin]) -> xarray.Dataset:
    """Of each block's two weights as matrices Cout x (Cin 3 3), and of its entry as a matrix C x (N h w)."""
    import xarray

    found = []
    for twin in twins:
        names = twin.unit_names
        weights = measure.weight_conditions(twin.model)
        states = state_conditions_of(dict(zip(names, twin.states, strict=False)))
        columns = {"state": states["condition"], "state_status": states["condition_status"]}
        for layer in ("conv1", "conv2"):
            here = weights.sel(parameter=[f"{name}.{layer}.weight" for name in names])
            columns |= {layer: here["matrix"], f"{layer}_status": here["matrix_status"]}
        data = {name: ("unit", column.values) for name, column in columns.items()}
        found.append(xarray.Dataset(data, {"unit": names}, {"measure": "condition"}))
    return _together(twins, found)


def spectra(twins: Sequence[Twin], samples: int) -> xarray.Dataset:
    """All singular values of every block and every whole stage, with proved and counted zeros and ones."""
    residual, plain = twins
    with_skips = measure.spectra(residual.trunk, residual.point(samples), route="svd")
    without = spectra_of({**plain.jacobians(samples), **plain.stage_jacobians(samples)}, route="svd")
    # The trunk counts its stages, the networks have names for them.
    with_skips = with_skips.assign_coords(unit=without["unit"].values)
    sizes = with_skips[["size", "entries", "exits"]]
    return _together(twins, [dataset.drop_vars(list(sizes.data_vars)) for dataset in (with_skips, without)]).merge(
        sizes
    )


def verifications(twins: Sequence[Twin], samples: int) -> xarray.Dataset:
    """The Jacobian test and the adjoint test of every block, and of one Jacobian that is wrong on purpose."""
    residual, plain = twins
    with_skips = measure.verification(residual.trunk, residual.point(samples))
    return _together(twins, [with_skips, verification_of(plain.jacobians(samples))])


def law(twins: Sequence[Twin], samples: int, deviations: float) -> xarray.Dataset:
    """Counts of singular values beside the bounds of the exact law, on every unit whose skip is the identity.

    Measured on the network as trained, and with raised inner thresholds, where few inner ReLUs are active and the law
    predicts a plateau at 1; the plain twin with raised thresholds is the control: no skip, no plateau.
    """
    import xarray

    residual, plain = twins
    names = [unit.name for unit in residual.trunk.units if unit.kind == "identity"]
    found = [
        measure.law(variant.trunk, variant.point(samples), units=names)
        for variant in (residual, residual.with_raised_thresholds(deviations))
    ]
    variants = xarray.DataArray(["as trained", "thresholds raised"], dims="variant", name="variant")
    together = xarray.concat(found, variants, combine_attrs="override")
    without = plain.with_raised_thresholds(deviations).jacobians(samples)
    control = spectra_of({name: without[name] for name in names}, route="svd")["ones"]
    return together.assign(control_ones=control).assign_attrs(raised_by=deviations)


def _together(twins: Sequence[Twin], found: Sequence[xarray.Dataset]) -> xarray.Dataset:
    """One dataset; labels of units that only a residual network has are those of the first."""
    import xarray

    own = {name: coord for name, coord in found[0].coords.items() if name not in found[1].coords}
    networks = xarray.DataArray([twin.name for twin in twins], dims="network", name="network")
    alike = [dataset.drop_vars(own, errors="ignore") for dataset in found]
    return xarray.concat(alike, networks, combine_attrs="override").assign_coords(own)
