"""Lemmas 1 and 2 and the network of theorem 1, each against what it promises."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from skipscope.errors import InputError
from skipscope.papers.b.theory import SmallNormNetwork, lemma1, lemma2, theorem1, unit_labels
from tests import seeded


def unit_columns(d: int, m: int, seed: int) -> Tensor:
    generator = seeded.generator(seed)
    A = torch.randn(d, m, dtype=torch.float64, generator=generator, device=generator.device)
    return A / A.norm(dim=0)


def on_a_circle(angles: list[float]) -> Tensor:
    """Unit vectors in one plane of three dimensions."""
    t = torch.tensor(angles, dtype=torch.float64)
    return torch.stack([t.cos(), t.sin(), 0 * t])


def collinear(m: int = 9) -> tuple[Tensor, Tensor]:
    """Inputs and then targets on a great circle: every path has all other columns in its way."""
    angles = [0.16 * k for k in range(2 * m)]
    return on_a_circle(angles[:m]), on_a_circle(angles[m:])


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 6), st.integers(1, 8), st.floats(0.1, 1), st.integers(0, 10**6))
def test_lemma1_moves_one_column_and_no_other(d: int, m: int, share: float, seed: int) -> None:
    points = unit_columns(d, m + 1, seed)
    A, target, column = points[:, :m], points[:, m], seed % m
    others = torch.cat([A[:, :column], A[:, column + 1 :]], 1)
    nearest = float((others - A[:, [column]]).norm(dim=0).min()) if m > 1 else 1.0
    rho = 2 * share * nearest
    assume(rho >= 0.1)
    unit = lemma1(A, column, target, rho)
    errors = unit.check()
    assert errors.image <= 1e-12
    assert errors.norm <= 1e-14
    everywhere = unit.W2 @ torch.relu(unit.W1 @ A + unit.b[0]) + A  # the paper's b: one number for all coordinates
    assert (everywhere - unit(A)).abs().max() == 0


def test_lemma1_at_the_very_bound() -> None:
    A = on_a_circle([0.0, 0.2])
    unit = lemma1(A, 0, on_a_circle([-0.1])[:, 0], 4 * math.sin(0.1))
    assert unit.check().image <= 1e-14
    assert "moves column 0 of 2" in str(unit)
    assert "largest error of A'" in str(unit.check())


def test_lemma1_without_a_move_is_the_identity() -> None:
    A = unit_columns(3, 4, 0)
    unit = lemma1(A, 1, A[:, 1], 0.1)
    assert not unit.W1.any()
    assert unit.check().image == unit.check().norm == 0


@settings(max_examples=40, deadline=None)
@given(st.integers(3, 6), st.integers(0, 12), st.integers(0, 10**6))
def test_lemma2_keeps_its_distance(d: int, obstacles: int, seed: int) -> None:
    points = unit_columns(d, obstacles + 2, seed)
    rho = min(0.8, float(torch.pdist(points.T).min()))
    assume(rho >= 1e-2)
    path = lemma2(points[:, 0], points[:, 1], points[:, 2:], rho)
    assert path.check().holds
    stops = path.stops(500)
    assert torch.equal(stops[0], points[:, 0])
    assert torch.equal(stops[-1], points[:, 1])
    assert (stops.norm(dim=1) - 1).abs().max() <= 1e-14
    steps = (stops[1:] - stops[:-1]).norm(dim=1)
    assert steps.max() <= path.length / 500 * (1 + 1e-9)
    assert steps.min() > 0
    if obstacles:
        sampled = float(torch.cdist(stops, points[:, 2:].T).min())
        assert path.check().distance - 1e-9 <= sampled <= path.check().distance + path.length / 500


def test_lemma2_goes_around_an_obstacle_in_the_middle() -> None:
    start, obstacle, end = on_a_circle([0.0, 0.5, 1.0]).T
    rho = 0.4
    path = lemma2(start, end, obstacle[:, None], rho)
    assert path.detours == 1
    theta = 2 * math.asin(rho / 4)
    assert path.length == pytest.approx(1 - 2 * theta + math.pi * math.sin(theta), rel=1e-8)
    assert path.check().distance == pytest.approx(rho / 2, rel=2e-9)
    assert path.check().distance >= rho / 2
    assert "around 1 of 1 obstacles: smallest distance 0.2 (at least 0.2)" in str(path)


def test_lemma2_joins_opposite_points() -> None:
    start = on_a_circle([0.3])[:, 0]
    path = lemma2(start, -start, start.new_zeros(3, 0), 0.5)
    assert path.length == pytest.approx(math.pi)
    assert (path.stops(10).norm(dim=1) - 1).abs().max() <= 1e-14


def test_paths_among_collinear_points_stay_at_half_the_distance() -> None:
    X, Y = collinear()
    network = theorem1(X, Y, units=300)
    assert sum(path.detours for path in network.paths) == 9 * 8
    assert all(path.check().holds for path in network.paths)
    assert network.distance == pytest.approx(network.rho / 2, rel=1e-8)
    assert network.distance >= network.rho / 2


def test_norms_fall_with_the_root_of_depth() -> None:
    X, Y = collinear()
    depths = [270, 300, 777, 2500, 8878]
    networks = [theorem1(X, Y, units=units) for units in depths]
    assert [len(network) for network in networks] == depths
    scaled = torch.tensor([network.largest_norm * math.sqrt(len(network)) for network in networks])
    assert float(scaled.std() / scaled.mean()) <= 0.02
    assert float(scaled[-1]) == pytest.approx(networks[-1].constant, rel=2e-3)
    for network in networks:
        assert network.largest_norm <= network.bound <= network.printed_bound


def test_the_bound_is_the_one_derived() -> None:
    X, Y = collinear()
    network = theorem1(X, Y, units=900)
    m, rho, R = 9, network.rho, 900
    assert network.bound == pytest.approx(math.sqrt(8 * math.pi) * math.sqrt(m / (R * rho) * ((m - 1) / 2 + 1 / rho)))
    assert network.printed_bound == pytest.approx(math.sqrt(8 * math.pi) * math.sqrt(m / (R * rho)) * (m + 1 / rho))


def test_a_unit_a_column_is_enough_to_interpolate() -> None:
    X, Y = unit_columns(5, 6, 0), unit_labels(torch.arange(6) % 3, 5)
    network = theorem1(X, Y, units=6)
    assert network.composed_error() <= 1e-12


def test_every_unit_is_exact_on_its_exact_input() -> None:
    X, Y = collinear()
    network = theorem1(X, Y, units=200)
    assert network.unit_error() <= 1e-12
    dense = list(network)
    assert len(dense) == 200
    assert max(max(unit.check().image, unit.check().norm) for unit in dense) <= 1e-12
    assert torch.tensor([unit.norm for unit in dense]).cpu().numpy() == pytest.approx(network.norms.cpu().numpy())


def test_dense_units_compose_to_the_network() -> None:
    network = far_apart(60)
    Z = unit_columns(3, 5, 1)
    wanted = Z
    for unit in network:
        wanted = unit(wanted)
    assert (network(Z) - wanted).abs().max() <= 1e-9 * wanted.abs().max()


def far_apart(units: int) -> SmallNormNetwork:
    eye = torch.eye(3, dtype=torch.float64)
    Y = torch.stack([eye[1] - eye[2], eye[2] - eye[0]], 1) / math.sqrt(2)
    return theorem1(eye[:, :2], Y, units=units)


def test_far_points_interpolate_in_float64() -> None:
    network = far_apart(200)
    assert network.rho >= 0.5
    assert network.composed_error() <= 1e-9


def test_close_points_are_lost_in_float64_and_found_with_more_digits() -> None:
    network = theorem1(on_a_circle([0.0, 0.1]), on_a_circle([2.5, 2.6]), units=400)
    errors = network.check()
    assert errors.growth > 20  # more decades than a float64 has digits
    assert errors.unit_by_unit <= 1e-12
    assert errors.composed > 1e-3
    assert errors.exact <= 1e-30
    assert network.exact_error(digits=15) > 1e-3
    assert "unit by unit" in str(errors)
    assert "errors grow by" in str(network)


def test_many_jittered_labels_are_reached_with_enough_digits() -> None:
    X, Y = unit_columns(5, 12, 3), unit_labels(torch.arange(12) % 5, 5, jitter=0.3)
    network = theorem1(X, Y, units=120)
    assert network.check().exact <= 1e-30


def test_errors_grow_as_predicted() -> None:
    X, Y = on_a_circle([0.0]), on_a_circle([1.2])
    network = theorem1(X, Y, units=4000, rho=0.3)
    rate, length = network.growth_rate, network.length
    assert rate == pytest.approx(math.sqrt(8 / 0.09 - 1))
    norm = math.exp(rate * length) * (rate + 1 / rate) / 2  # of the solution operator of r'' = rate^2 r
    assert network.measured_growth(0) == pytest.approx(math.log10(norm), rel=1e-2)
    assert network.growth == pytest.approx(rate * length / math.log(10))

    pushed = X.clone()
    pushed[0] += 1e-12
    grown = float((network(pushed) - network(X)).norm()) / 1e-12
    assert math.log10(grown) == pytest.approx(network.measured_growth(0), abs=0.2)


def test_errors_grow_less_on_detours() -> None:
    network = theorem1(*collinear(), units=4000)
    path = network.paths[0]
    assert path.detours == 8
    predicted = network.growth_along(path)
    assert predicted < 0.8 * network.growth_rate * path.length / math.log(10)
    assert network.measured_growth(0) == pytest.approx(predicted, rel=0.05)


def test_labels_are_jittered_unit_vectors() -> None:
    classes = torch.tensor([0, 2, 2, 1])
    Y = unit_labels(classes, 4, jitter=0.05, seed=1)
    assert Y.shape == (4, 4)
    assert (Y.norm(dim=0) - 1).abs().max() <= 1e-14
    assert torch.equal(Y.argmax(0).cpu(), classes.cpu())
    assert torch.pdist(Y.T).min() > 0
    assert torch.equal(Y, unit_labels(classes, 4, jitter=0.05, seed=1))
    assert torch.equal(unit_labels(classes, 4, jitter=0)[:, 1].cpu(), torch.eye(4, dtype=torch.float64)[2].cpu())


def test_bad_input_is_named() -> None:
    X, Y = unit_columns(3, 4, 0), unit_columns(3, 4, 1)
    with pytest.raises(InputError, match="units: expected at least one for each of the 4 columns, got 3"):
        theorem1(X, Y, units=3)
    with pytest.raises(InputError, match="unit vectors as columns of X, got lengths up to 1 from 1"):
        theorem1(2 * X, Y, units=9)
    with pytest.raises(InputError, match=r"\(d, m\) with d >= 3, got \(2, 4\)"):
        theorem1(X[:2], Y[:2], units=9)
    with pytest.raises(InputError, match="distance of 0: jitter them"):
        theorem1(X, X, units=9)
    with pytest.raises(InputError, match=r"expected 0 < rho <= .* got 1\.9"):
        theorem1(X, Y, units=9, rho=1.9)
    with pytest.raises(InputError, match=r"at least rho/2 from column 0, got rho=3\.9"):
        lemma1(X, 0, Y[:, 0], 3.9)
    with pytest.raises(InputError, match="a column from 0 to 3, got 4"):
        lemma1(X, 4, Y[:, 0], 0.1)
    with pytest.raises(InputError, match=r"a target \(d,\), got \(3, 4\) and \(3, 1\)"):
        lemma1(X, 0, Y[:, :1], 0.1)
    with pytest.raises(InputError, match="dimension 3 or more"):
        lemma2(torch.eye(2)[0], torch.eye(2)[1], torch.zeros(2, 0), 0.1)
    with pytest.raises(InputError, match="0 < rho <= 2 on the unit sphere, got 0"):
        lemma2(X[:, 0], Y[:, 0], X[:, 1:], 0)
    with pytest.raises(InputError, match="expected two obstacles at least"):
        lemma2(X[:, 0], Y[:, 0], on_a_circle([0.0, 0.1]), 0.11)
    with pytest.raises(InputError, match="start or end and an obstacle at least"):
        lemma2(X[:, 0], Y[:, 0], X[:, :1], 0.1)
    with pytest.raises(InputError, match=r"obstacles \(d, k\), got shapes \(3,\), \(3,\) and \(2, 4\)"):
        lemma2(X[:, 0], Y[:, 0], X[:2], 0.1)
    with pytest.raises(InputError, match="at least one step, got 0"):
        lemma2(X[:, 0], Y[:, 0], X[:, :0], 0.1).stops(0)
    with pytest.raises(InputError, match="classes from 0 to 2, got 0 to 3"):
        unit_labels(torch.arange(4), 3)
    with pytest.raises(InputError, match="classes as integers of shape"):
        unit_labels(torch.zeros(4), 3)
    with pytest.raises(InputError, match="jitter >= 0, got -1"):
        unit_labels(torch.arange(3), 3, jitter=-1)
