"""The data of the map: structure, one scale for all networks, numbers as tables write them."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
import xarray

from skipscope.report.trunk_map import scales, trunk_maps
from skipscope.report.views import UnitNumbers, View
from skipscope.report.views.view import Scale


def numbers(network: str, title: str, values: list[float], scale: Scale, *, logarithmic: bool = False) -> UnitNumbers:
    names = [f"stage1.{k}" for k in range(len(values))]
    return UnitNumbers(network, title, dict(zip(names, values, strict=True)), logarithmic, scale=scale)


def scale_of(*measures: UnitNumbers) -> dict[str, Any]:
    (found,) = scales(trunk_maps({}, [View(numbers=measures)])).values()
    return found


def test_a_gain_is_anchored_at_1_for_all_networks() -> None:
    found = scale_of(numbers("a", "gain", [1.0, 2.0], "gain"), numbers("b", "gain", [0.25, 1.1], "gain"))
    assert (found["low"], found["high"]) == (0.25, 4.0)
    assert found["logarithmic"]
    assert found["ends"] == ["0.25", "4"]


def test_small_differences_from_1_stay_pale_and_large_ones_do_not_hide_the_rest() -> None:
    assert scale_of(numbers("a", "gain", [0.99, 1.01], "gain"))["high"] == 1.5
    large = scale_of(numbers("a", "gain", [0.0, 1e6], "gain"))
    assert (large["high"], large["ends"]) == (10, ["≤ 0.1", "≥ 10"])


def test_a_share_begins_at_0_and_a_size_at_its_smallest() -> None:
    found = scale_of(numbers("a", "share", [0.2, 0.4], "share"), numbers("b", "share", [0.3, 0.6], "share"))
    assert (found["low"], found["high"], found["ends"]) == (0, 0.6, ["0", "0.6"])
    size = scale_of(numbers("a", "size", [0.0, 0.01, 100.0], "size", logarithmic=True))
    assert (size["low"], size["high"]) == (0.01, 100)
    assert size["ends"][1] == "100, logarithmic"


def test_numbers_are_written_as_in_tables() -> None:
    values = [1.23456, float("nan"), float("inf"), 1.00012]
    (one,) = trunk_maps({}, [View(numbers=[numbers("a", "gain", values, "gain")])])
    assert one["measures"][0]["texts"] == ["1.23", "-", "∞", "1.00012"]


def test_gains_colour_the_map_first() -> None:
    measures = [numbers("a", "size", [1.0, 2.0], "size"), numbers("a", "gain", [1.0, 2.0], "gain")]
    (one,) = trunk_maps({}, [View(numbers=measures)])
    assert [measure["title"] for measure in one["measures"]] == ["gain", "size"]


@pytest.mark.parametrize("with_layers", [True, False])
def test_units_have_skip_branch_and_shape(with_layers: bool) -> None:
    units = ["stage1.0", "stage1.1"]
    coordinates = {
        "unit": units,
        "stage": ("unit", [1, 1]),
        "skip": ("unit", ["projection", "identity"]),
        "branch": ("unit", ["attention", "linear"]),
    }
    spectra = xarray.Dataset({"entries": ("unit", numpy.array([64, 32]))}, coordinates, {"network": "a"})
    layers = xarray.Dataset(
        coords={"layer": ["stage1.0.conv"], "layer_shape": ("layer", ["5 x 4 x 8 x 2"])},
        attrs={"network": "a", "samples": 5},
    )
    datasets = {"spectra": spectra, **({"conditioning": layers} if with_layers else {})}
    (one,) = trunk_maps(datasets, [View(numbers=[numbers("a", "gain", [1.0, 2.0], "gain")])])
    first, second = one["units"]
    assert (first["skip"], first["branch"], second["branch"]) == ("projection", "attention", "linear")
    assert first["shape"] == ("4 x 8 x 2" if with_layers else "64 numbers")
    assert second["shape"] == "32 numbers"
    assert "side_outputs" not in first


def test_blocks_that_hold_units_are_no_units() -> None:
    units = ["layers.0.attention", "layers.0.mlp"]
    labels = {"unit": units, "stage": ("unit", [1, 1]), "skip": ("unit", ["identity"] * 2)}
    profile = xarray.Dataset(coords={**labels, "branch": ("unit", ["attention", "MLP"])})
    coupling = xarray.Dataset(coords={"unit": ["layers.0"]})
    of_units = UnitNumbers("", "gain", {units[0]: 2.0}, scale="gain")
    of_more = UnitNumbers("", "size", {units[1]: 2.0}, scale="size")
    of_blocks = UnitNumbers("", "share", {"layers.0": 0.5}, scale="share")
    views = [View(numbers=[of_blocks, of_units, of_more])]
    (one,) = trunk_maps({"profile": profile, "coupling": coupling}, views)
    assert [unit["name"] for unit in one["units"]] == units
    assert [measure["title"] for measure in one["measures"]] == ["gain", "size"]
    (alone,) = trunk_maps({"coupling": coupling}, [View(numbers=[of_blocks])])
    assert [unit["name"] for unit in alone["units"]] == ["layers.0"]  # nothing says that it is none
    assert not trunk_maps({"profile": profile, "coupling": coupling}, [View(numbers=[of_blocks])])


def test_side_outputs_belong_to_the_only_network() -> None:
    views = [View(numbers=[numbers(network, "gain", [1.0, 2.0], "gain")]) for network in ("a", "b")]
    unit = next(iter(views[0].numbers[0].values))
    (one,) = trunk_maps({}, views[:1], {unit: ["attn.weights", "router"]})
    assert [each.get("side_outputs") for each in one["units"]] == ["attn.weights, router", None]
    assert all("side_outputs" not in each for one in trunk_maps({}, views, {unit: ["x"]}) for each in one["units"])
