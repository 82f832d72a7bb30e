"""Numbers as tables show them, and the tables of the profile and the law."""

from __future__ import annotations

from math import inf, nan

import numpy
import pytest
import xarray

from skipscope.report.table import mean_count, number, with_error
from skipscope.report.views.law import law_view
from skipscope.report.views.profile import profile_view


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (2000.0, "2000"),
        (16384, "16384"),
        (123456.0, "123456"),
        (1e6, "1000000"),
        (-1000001.0, "-1.0e+06"),
        (0.0, "0"),
        (-0.0, "0"),
        (-3.0, "-3"),
        (1.2345, "1.23"),
        (0.00012, "1.2e-04"),
        (2000.5, "2e+03"),
        (1.5e7, "1.5e+07"),
        (inf, "inf"),
        (-inf, "-inf"),
        (nan, "-"),
    ],
)
def test_a_number(value: float, shown: str) -> None:
    assert number(value) == shown


@pytest.mark.parametrize(("value", "shown"), [(2000.0, "2000"), (2000.5, "2000.5"), (1 / 3, "0.3"), (nan, "-")])
def test_a_mean_of_counts(value: float, shown: str) -> None:
    assert mean_count(value) == shown


@pytest.mark.parametrize(
    ("value", "error", "shown"),
    [
        (1.0234, 0.0312, "1.02 ± 0.031"),
        (1.0, 0.0, "1 ± 0"),
        (5123.4, 254.0, "5.12e+03 ± 250"),
        (2.5, nan, "2.5"),
        (nan, nan, "-"),
    ],
)
def test_an_estimate_with_its_error(value: float, error: float, shown: str) -> None:
    assert with_error(value, error) == shown


def profile_data(**more: object) -> xarray.Dataset:
    names = ("state_rms", "gradient_rms", "branch_over_skip", "cosine", "jacobian_square")
    data = {name: (("unit", "sample"), numpy.full((2, 3), 0.5)) for name in names}
    data["effective_rank"] = (("unit",), numpy.array([1.5, 2.5]))
    data["jacobian_square"] = (("unit", "sample"), numpy.array([[1.0, 1.021, 5.0]] * 2))
    coordinates = {"unit": ["a", "b"], "skip": ("unit", ["identity"] * 2), "sample": [0, 1, 2]}
    return xarray.Dataset({**data, **more}, coordinates, {"measure": "profile", "network": "a net", "probes": 8})


def test_the_profile_shows_the_error_of_what_is_estimated() -> None:
    errors = (("unit", "sample"), numpy.array([[0.02, 0.03, 0.2], [0.1, 0.1, 0.1]]))
    table = profile_view({"profile": profile_data(jacobian_square_error=errors)}).tables[0]
    assert [row[6] for row in table.rows] == ["1.02 ± 0.03", "1.02 ± 0.1"]
    assert "8 random probes, ± the standard error" in table.about
    assert len(table.rows[0]) == len(table.columns)


def test_a_profile_without_errors_is_shown_as_well() -> None:
    table = profile_view({"profile": profile_data()}).tables[0]
    assert [row[6] for row in table.rows] == ["1.02", "1.02"]


def test_one_sample_has_no_effective_rank_to_show() -> None:
    three, one = profile_data(), profile_data().isel(sample=[0])
    assert "eff. rank" in profile_view({"profile": three}).tables[0].columns
    view = profile_view({"profile": one})
    assert "eff. rank" not in view.tables[0].columns
    (picture,) = view.figures.values()
    assert "effective rank" not in f"{view.tables[0].about}{picture.caption}{picture.figure.to_json()}"


def test_counts_of_the_law_are_exact() -> None:
    counts = {
        "size": 16384,
        "inactive": 2000,
        "inner_active": 1001,
        "ones_at_least": 12382,
        "ones": 12383,
        "zeros_at_least": 2000,
        "zeros": 2001,
        "above": 1000,
        "below": 999,
    }
    data = {key: (("unit", "sample"), numpy.full((1, 2), float(count))) for key, count in counts.items()}
    data["above"] = (("unit", "sample"), numpy.array([[1000.0, 1001.0]]))
    data["generic"] = (("unit", "sample"), numpy.ones((1, 2)))
    data["violated"] = (("unit", "sample", "bound"), numpy.zeros((1, 2, 4), bool))
    coordinates = {"unit": ["a"], "skip": ("unit", ["identity"]), "reason": ("unit", [""]), "sample": [0, 1]}
    dataset = xarray.Dataset(data, coordinates, {"measure": "law", "network": "a net"})
    rows = law_view({"law": dataset}).tables[1].rows
    assert rows[0][3:] == ["16384", "2000", "1001", "12382", "12383", "2000", "2001", "1000.5", "999"]


def test_small_numbers_stay_on_one_line() -> None:
    """A browser would break 6.7e-05 after its hyphen."""
    from skipscope.report.document import with_whole_numbers

    assert with_whole_numbers("6.7e-05 times") == '<span class="number">6.7e-05</span> times'
    assert with_whole_numbers("from -1e-12, to <b>") == 'from <span class="number">-1e-12</span>, to &lt;b&gt;'
    for text in ("stage1.0", "made-2", "1.19e+03", "v1.0e-2x", "time-1e", "layer.2e-1.conv"):
        assert with_whole_numbers(text) == text
