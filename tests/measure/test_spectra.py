"""Spectra of whole trunks against dense float64 Jacobians by reverse mode."""

from __future__ import annotations

import numpy
import pytest
import torch
import xarray

import skipscope as ss
from skipscope.measure import spectra
from skipscope.measure.spectra import NEAR_ONE, spectra_of
from tests.measure.nets import Net, dense


@pytest.fixture(scope="module")
def net() -> tuple[Net, torch.Tensor, ss.Trunk]:
    torch.manual_seed(0)
    model, x = Net().double(), torch.randn(3, 1, 8, 8).double()
    return model, x, ss.trace(model, x)


@pytest.fixture(scope="module")
def found(net: tuple[Net, torch.Tensor, ss.Trunk]) -> xarray.Dataset:
    return spectra(net[2], net[1])


def test_values_are_those_of_dense_jacobians(net: tuple[Net, torch.Tensor, ss.Trunk], found: xarray.Dataset) -> None:
    model, x, _ = net
    h = torch.relu(model.stem(x)).detach()
    first = h
    for name in ("a", "b", "padded", "c", "projected"):
        unit = getattr(model, name)
        reference = torch.linalg.svdvals(dense(unit, h)).cpu().numpy()
        here = found.sel(unit=name).dropna("index")
        numpy.testing.assert_allclose(here["value"], reference, atol=1e-7)
        assert (abs(here["value"].values - reference) <= here["bound"].values + 1e-14).all()
        assert here["mean"].values == pytest.approx(reference.mean(1), abs=1e-7)
        assert here["largest"].values == pytest.approx(reference[:, 0])
        near = ((reference >= NEAR_ONE[0]) & (reference <= NEAR_ONE[1])).mean(1)
        assert here["share_near_one"].values == pytest.approx(near)
        assert here["share_above"].values == pytest.approx((reference > NEAR_ONE[1]).mean(1))
        assert here["rank"].values.tolist() == (reference > 1e-10).sum(1).tolist()
        assert int(here["size"]) == reference.shape[1]
        h = unit(h).detach()
    stage = torch.linalg.svdvals(dense(lambda s: model.b(model.a(s)), first)).cpu().numpy()
    numpy.testing.assert_allclose(found["value"].sel(unit="stage 1").dropna("index"), stage, atol=1e-7)


def test_shares_sum_to_one_and_counts_respect_what_is_proved(found: xarray.Dataset) -> None:
    total = sum(found[f"share_{name}"] for name in ("above", "near_one", "below", "zero"))
    numpy.testing.assert_allclose(total, 1)
    assert (found["zeros"] >= found["zeros_at_least"]).all()
    assert (found["ones"] >= found["ones_at_least"]).all()
    assert (found["ones_at_least"].sel(unit=["a", "b", "c"]) > 0).all()
    assert found["converged"].all()


def test_labels(net: tuple[Net, torch.Tensor, ss.Trunk], found: xarray.Dataset) -> None:
    assert found["value"].dims == ("unit", "sample", "index")
    assert found["unit"].values.tolist() == ["a", "b", "padded", "c", "projected", "stage 1", "stage 2", "stage 3"]
    assert found["kind"].values.tolist() == ["unit"] * 5 + ["stage"] * 3
    assert found["skip"].values.tolist()[:5] == ["identity", "identity", "pad", "identity", "projection"]
    assert found["stage"].values.tolist() == [1, 1, 2, 2, 3, 1, 2, 3]
    assert int(found["entries"].sel(unit="padded")) == 128
    assert int(found["exits"].sel(unit="padded")) == int(found["size"].sel(unit="padded")) == 64
    assert found.attrs["measure"] == "spectra"
    assert found.attrs["dtype"] == "float64"


def test_some_units_some_samples_and_progress(net: tuple[Net, torch.Tensor, ss.Trunk], found: xarray.Dataset) -> None:
    _, x, trunk = net
    seen = []
    some = spectra(
        trunk, x, units=["c", 1], stages=False, samples=[2, 0], route="svd", progress=lambda *p: seen.append(p)
    )
    assert seen == [(0, 2), (1, 2), (2, 2)]
    assert some["unit"].values.tolist() == ["c", "b"]
    assert set(some["route"].values.ravel()) == {"svd"}
    expected = found["value"].sel(unit=["c", "b"], sample=[2, 0]).isel(index=slice(some.sizes["index"]))
    numpy.testing.assert_allclose(some["value"], expected, atol=1e-7)
    assert spectra(trunk, x, units=[0], stages=False, samples=1).sizes["sample"] == 1
    for wrong in ([3], 4, []):
        with pytest.raises(ss.InputError, match="samples"):
            spectra(trunk, x, samples=wrong)
    with pytest.raises(ss.InputError, match="expected a list"):
        spectra(trunk, x, units="a")
    with pytest.raises(ss.InputError, match="route"):
        spectra(trunk, x, units=[0], route="fast")


def test_a_file_gives_the_same_back(found: xarray.Dataset, tmp_path) -> None:  # type: ignore[no-untyped-def]
    found.to_netcdf(tmp_path / "spectra.nc", engine="h5netcdf")
    with xarray.open_dataset(tmp_path / "spectra.nc", engine="h5netcdf") as again:
        xarray.testing.assert_equal(again.load(), found)


def test_operators_by_name() -> None:
    matrices = {"wide": torch.eye(3, 5), "zero": torch.zeros(1, 2, 2)}
    data = spectra_of({name: ss.Dense(matrix) for name, matrix in matrices.items()})
    assert data["size"].values.tolist() == [3, 2]
    assert data["ones"].values.tolist() == [[3], [0]]
    assert data["share_zero"].values.tolist() == [[0], [1]]
    assert data["value"].isel(sample=0).isnull().sum("index").values.tolist() == [0, 1]
