"""What is measured on both twins, as labelled datasets; the dimension `network` tells them apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy
import torch
from torch import Tensor

from skipscope.demo.twins import Twin
from skipscope.linear import Jacobian, Operator, verify
from skipscope.linear.law import law_of
from skipscope.measure import profile
from skipscope.measure.chain import chain_profile
from skipscope.spectrum import Spectrum, condition_number, singular_values
from skipscope.spectrum.full import ONE

if TYPE_CHECKING:
    import xarray

NEAR_ONE = (0.99, 1.01)  # the bucket of Rothauge et al.
WRONG = 1e-3  # relative error of the Jacobian that the Jacobian test must reject


def profiles(twins: Sequence[Twin], seed: int) -> xarray.Dataset:
    """`profile` of the residual network; of its twin what exists without a skip, NaN for the rest."""
    import xarray

    found = []
    for twin in twins:
        if twin.model.skips:
            found.append(profile(twin.trunk, twin.images, seed=seed))
        else:
            with torch.no_grad():
                first = twin.model.stem(twin.images)
            found.append(chain_profile(twin.model.blocks, twin.model.head, first, seed=seed))
    units = found[0]
    kept = [dataset.reset_coords(["skip", "stage"], drop=True) if "skip" in dataset else dataset for dataset in found]
    for dataset in kept[1:]:
        for name in set(units.data_vars) - set(dataset.data_vars):
            dataset[name] = xarray.full_like(units[name], numpy.nan)
    together = xarray.concat(kept, _networks(twins), combine_attrs="override")
    return together.assign_coords(skip=units["skip"], stage=units["stage"])


def conditions(twins: Sequence[Twin]) -> xarray.Dataset:
    """Of each block's two weights as matrices Cout x (Cin 3 3), and of its entry as a matrix C x (N h w)."""
    import xarray

    values: dict[str, list[list[float]]] = {"conv1": [], "conv2": [], "state": []}
    statuses: dict[str, list[list[str]]] = {name: [] for name in values}
    for twin in twins:
        blocks = twin.model.blocks.values()
        found = {
            "conv1": [condition_number(block.conv1.weight, reduce="matrix") for block in blocks],
            "conv2": [condition_number(block.conv2.weight, reduce="matrix") for block in blocks],
            "state": [
                condition_number(state, reduce="channel", channel=1, precision=torch.float32)
                for state in twin.states[:-1]
            ],
        }
        for name, conditions in found.items():
            values[name].append([condition.value for condition in conditions])
            statuses[name].append([condition.status for condition in conditions])
    data = {name: (("network", "unit"), numpy.array(rows)) for name, rows in values.items()}
    texts = {
        f"{name}_status": (("network", "unit"), numpy.array(rows, dtype=object)) for name, rows in statuses.items()
    }
    return xarray.Dataset({**data, **texts}, _labels(twins, twins[0].unit_names), {"measure": "condition"})


def spectra(twins: Sequence[Twin], samples: int) -> xarray.Dataset:
    """All singular values of every block and every whole stage, with proved and counted zeros and ones."""
    names: list[str] = []
    found: list[list[Spectrum]] = []
    for twin in twins:
        operators = {**twin.jacobians(samples), **twin.stage_jacobians(samples)}
        names = list(operators)
        found.append([_spectrum(operator) for operator in operators.values()])
    longest = max(spectrum.values.shape[1] for row in found for spectrum in row)

    def padded(values: Tensor) -> Tensor:
        return torch.nn.functional.pad(values, (0, longest - values.shape[1]), value=float("nan"))

    import xarray

    counts = {
        "largest": lambda s: s.values[:, 0],
        "share_above": lambda s: (s.values > NEAR_ONE[1]).double().mean(1),
        "share_near_one": lambda s: s.share(*NEAR_ONE),
        "share_zero": lambda s: s.zeros / s.values.shape[1],
        "zeros": lambda s: s.zeros,
        "zeros_at_least": lambda s: s.zeros_at_least,
        "ones": lambda s: s.ones,
        "ones_at_least": lambda s: s.ones_at_least,
    }
    data = {name: (("network", "unit", "sample"), _grid(found, get)) for name, get in counts.items()}
    return xarray.Dataset(
        {
            **data,
            "value": (("network", "unit", "sample", "index"), _grid(found, lambda s: padded(s.values))),
            "bound": (("network", "unit", "sample", "index"), _grid(found, lambda s: padded(s.bound))),
            "size": (("unit",), numpy.array([spectrum.values.shape[1] for spectrum in found[0]])),
        },
        {**_labels(twins, names), "stage": ("unit", [int("." not in name) for name in names])},
        {"measure": "spectra", "route": "svd", "near_one": NEAR_ONE},
    )


def verifications(twins: Sequence[Twin], samples: int) -> xarray.Dataset:
    """The Jacobian test and the adjoint test of every block, and of one Jacobian that is wrong on purpose."""
    import xarray

    found = [[verify(operator) for operator in twin.jacobians(samples).values()] for twin in twins]
    right = next(operator for operator in twins[0].jacobians(samples).values() if isinstance(operator, Jacobian))
    control = verify(_OffByALittle(right.function, right.state.double(), right.axis))
    dims = ("network", "unit")
    return xarray.Dataset(
        {
            "adjoint_error": (dims, numpy.array([[v.adjoint_error for v in row] for row in found])),
            "passed": (dims, numpy.array([[int(v.passed) for v in row] for row in found])),
            "slope_zeroth": (
                dims,
                numpy.array([[v.slopes[0] if v.slopes else numpy.nan for v in row] for row in found]),
            ),
            "seen": (dims, numpy.array([[v.seen for v in row] for row in found], dtype=object)),
        },
        _labels(twins, twins[0].unit_names),
        {"measure": "verification", "control_error": WRONG, "control_passed": int(control.passed)},
    )


def law(twins: Sequence[Twin], samples: int, deviations: float) -> xarray.Dataset:
    """Counts of singular values beside the bounds of the exact law, on every unit whose skip is the identity.

    The spectra come from an SVD of the whole Jacobian, which knows nothing of the law. Measured on the network as
    trained, and with raised inner thresholds, where few inner ReLUs are active and the law predicts a plateau at 1; the
    plain twin with raised thresholds is the control: no skip, no plateau.
    """
    import xarray

    residual, plain = twins
    names = [unit.name for unit in residual.trunk.units if unit.kind == "identity"]
    rows: dict[str, list[Tensor]] = {name: [] for name in ("size", "inactive", "inner_active")}
    spectra_found: list[list[Spectrum]] = []
    for variant in (residual, residual.with_raised_thresholds(deviations)):
        point = variant.point(samples)
        laws = [law_of(variant.trunk[name], point) for name in names]
        rows["size"].append(torch.stack([torch.full((samples,), law.tail.shape[1]) for law in laws if law]))
        rows["inactive"].append(torch.stack([law.zeros_at_least for law in laws if law]))
        rows["inner_active"].append(torch.stack([law.rank for law in laws if law]))
        operators = variant.jacobians(samples)
        spectra_found.append([_spectrum(operators[name]) for name in names])
    without = plain.with_raised_thresholds(deviations).jacobians(samples)
    control = torch.stack([_spectrum(without[name]).ones for name in names])
    dims = ("variant", "unit", "sample")
    return xarray.Dataset(
        {
            **{name: (dims, torch.stack(values).numpy()) for name, values in rows.items()},
            "zeros": (dims, _grid(spectra_found, lambda s: s.zeros)),
            "ones": (dims, _grid(spectra_found, lambda s: s.ones)),
            "above": (dims, _grid(spectra_found, lambda s: (s.values > 1 + s.bound.clamp_min(ONE)).sum(1))),
            "below": (dims, _grid(spectra_found, _below_one)),
            "control_ones": (("unit", "sample"), control.numpy()),
        },
        {"variant": ["as trained", "thresholds raised"], "unit": names},
        {"measure": "law", "route": "svd", "raised_by": deviations},
    )


class _OffByALittle(Jacobian):
    """A Jacobian whose products are wrong by one in a thousand and whose transposed products are not."""

    def _push(self, V: Tensor) -> Tensor:
        return (1 + WRONG) * super()._push(V)


def _spectrum(operator: Operator) -> Spectrum:
    return singular_values(operator, route="svd")


def _below_one(spectrum: Spectrum) -> Tensor:
    """(B,) values between zero and one, neither of them included."""
    values = spectrum.values
    return ((values < 1 - spectrum.bound.clamp_min(ONE)) & (values > spectrum.tolerance[:, None])).sum(1)


def _grid(found: list[list[Spectrum]], get) -> numpy.ndarray:  # type: ignore[no-untyped-def]
    return torch.stack([torch.stack([torch.as_tensor(get(s)) for s in row]) for row in found]).numpy()


def _networks(twins: Sequence[Twin]) -> xarray.DataArray:
    import xarray

    return xarray.DataArray([twin.name for twin in twins], dims="network", name="network")


def _labels(twins: Sequence[Twin], units: Sequence[str]) -> dict[str, list[str]]:
    return {"network": [twin.name for twin in twins], "unit": list(units)}
