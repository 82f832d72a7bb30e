"""Every variable of every dataset that a measurement gives says what it is and in which unit, and keeps it in files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy
import pytest
import torch
import xarray
from torch import nn
from torch.nn.functional import cross_entropy

import skipscope as ss
from skipscope import measure
from skipscope.measure.descriptions import COMMON, COUNT, MEASURES, NUMBER, TEXT
from skipscope.measure.profile import chain_profile
from skipscope.measure.spectra import joined, spectra_of
from skipscope.measure.verification import verification_of
from tests.measure.language import traced
from tests.measure.nets import Net
from tests.measure.test_streams import of_matrices

RESULTS = {"DepthFit", "depth_fit"}  # no datasets


LABELS = torch.tensor([0, 1, 2, 0, 1, 2])
HALF = torch.full((2, 2), 0.5, dtype=torch.float64)

MADE: dict[str, Callable[[nn.Module, ss.Trunk, torch.Tensor], xarray.Dataset]] = {
    "alignment": lambda model, trunk, x: ss.alignment(trunk, x, k=2, samples=2),
    "alignment_summary": lambda model, trunk, x: ss.alignment_summary(ss.alignment(trunk, x, k=2, samples=2)),
    "collapse": lambda model, trunk, x: ss.collapse(model, (x, LABELS)),
    "conditioning": lambda model, trunk, x: ss.conditioning(model, x, targets=LABELS),
    "coupling": lambda model, trunk, x: ss.coupling(*traced("written")[1:], k=2, of="unit"),
    "curvature": lambda model, trunk, x: ss.curvature(model, cross_entropy, (x, LABELS), params=["head"]),
    "curvature, both ends": lambda model, trunk, x: ss.curvature(
        model, cross_entropy, (x, LABELS), params=["head"], route="lanczos", k=2, probes=2, steps=4
    ),
    "depth_use": lambda model, trunk, x: ss.depth_use(*traced("written")[1:]),
    "law": lambda model, trunk, x: ss.law(trunk, x[:2]),
    "law, counts": lambda model, trunk, x: ss.law(trunk, x, count_only=True),
    "leading": lambda model, trunk, x: ss.leading(trunk, x[:2], k=2, probes=2, steps=4),
    "lens": lambda model, trunk, x: ss.lens(*traced("written")[1:], tol=0.5),
    "normality": lambda model, trunk, x: ss.normality(trunk, x[:2], units=[0, 2]),
    "profile": lambda model, trunk, x: ss.profile(trunk, x),
    "profile of a chain": lambda model, trunk, x: chain_profile(
        {"a": trunk[0]}, torch.sin, trunk.at(x).entry(trunk[0])
    ),
    "spectra": lambda model, trunk, x: ss.spectra(trunk, x[:2]),
    "spectra of operators": lambda model, trunk, x: spectra_of({"a": trunk[0].jacobian(x[:2])}),
    "spectra, joined": lambda model, trunk, x: joined(
        [ss.spectra(trunk, x[:1], units=[unit], stages=False) for unit in (0, 3)], [trunk[0].name, trunk[3].name]
    ),
    "stability": lambda model, trunk, x: ss.stability(trunk, x, perturbation=0.1 * x, project=[0]),
    "streams": lambda model, trunk, x: ss.streams(*of_matrices(HALF)),
    "trajectories": lambda model, trunk, x: ss.trajectories(trunk, x, labels=LABELS),
    "verification": lambda model, trunk, x: ss.verification(trunk, x[:2]),
    "verification of operators": lambda model, trunk, x: verification_of({"a": trunk[0].jacobian(x[:2])}),
}


@pytest.fixture(scope="module")
def measured() -> dict[str, xarray.Dataset]:
    torch.manual_seed(0)
    model, x = Net().eval(), torch.rand(6, 1, 8, 8)
    trunk = ss.trace(model, x)
    return {name: make(model, trunk, x) for name, make in MADE.items()}


def test_all_measures_are_looked_at() -> None:
    assert set(measure.__all__) - RESULTS <= set(MADE)


@pytest.mark.parametrize("name", MADE)
def test_every_variable_is_described(name: str, measured: dict[str, xarray.Dataset], tmp_path: Path) -> None:
    dataset = measured[name]
    for variable, values in dataset.variables.items():
        assert values.attrs.get("long_name"), variable
        text = isinstance(values.values.flat[0], str)
        label = variable == "label"  # classes have numbers or names
        assert values.attrs["units"] in ((TEXT, NUMBER) if label else (TEXT,) if text else (NUMBER, COUNT)), variable
        if values.attrs["units"] == COUNT:
            numbers = numpy.asarray(values.values, dtype=float)
            assert (numpy.isnan(numbers) | ((numbers >= 0) & (numbers == numpy.rint(numbers)))).all(), variable
    dataset.to_netcdf(tmp_path / "measured.nc", engine="h5netcdf")
    with xarray.open_dataset(tmp_path / "measured.nc", engine="h5netcdf") as read:
        for variable, values in dataset.variables.items():
            assert {key: read[variable].attrs[key] for key in values.attrs} == values.attrs


def test_no_description_is_of_nothing(measured: dict[str, xarray.Dataset]) -> None:
    """A variable that was renamed leaves no description behind."""
    found: dict[str, set[str]] = {}
    for name, dataset in measured.items():
        found.setdefault(name.partition(",")[0].partition(" of ")[0], set()).update(map(str, dataset.variables))
    assert set(COMMON) <= set().union(*found.values())
    for name, variables in found.items():
        assert set(MEASURES[name]) - variables == set(), name
