"""The trace inequality: never exceeded, attained, and found by an ascent that does not know it."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from skipscope.errors import InputError
from skipscope.papers.a.theory import TraceInequality, trace_inequality
from tests import seeded


def drawn(count: int, order: int, sign: int = 1, seed: int = 0) -> Tensor:
    """Matrices whose product has a determinant of this sign."""
    generator = seeded.generator(seed)
    A = torch.randn(count, order, order, dtype=torch.float64, generator=generator, device=generator.device)
    A[0, 0] *= sign * torch.linalg.det(A).sign().prod()
    return A


def expect_rotations(P: Tensor, rotations_only: bool) -> None:
    assert (P @ P.mT - torch.eye(P.shape[-1], dtype=P.dtype)).abs().max() <= 1e-12
    if rotations_only:
        assert (torch.linalg.det(P) - 1).abs().max() <= 1e-12


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 5), st.integers(2, 6), st.sampled_from([1, -1]), st.booleans(), st.integers(0, 10**6))
def test_the_supremum_is_attained_and_never_exceeded(
    count: int, order: int, sign: int, rotations_only: bool, seed: int
) -> None:
    inequality = trace_inequality(drawn(count, order, sign, seed), rotations_only=rotations_only)
    assert inequality.sign == (sign if rotations_only else 1)
    scale = float(inequality.singular_values[:, 0].prod())
    expect_rotations(inequality.attained_at, rotations_only)
    assert float(inequality.trace(inequality.attained_at)) == pytest.approx(inequality.supremum, abs=1e-12 * scale)
    assert inequality.sampled(300, seed) <= inequality.supremum + 1e-12 * scale


@pytest.mark.parametrize(("count", "order", "sign"), list(itertools.product((2, 3, 5), (2, 4), (1, -1))))
def test_an_ascent_finds_the_supremum(count: int, order: int, sign: int) -> None:
    A = drawn(count, order, sign)
    A /= torch.linalg.matrix_norm(A, 2)[:, None, None]
    for rotations_only in (True, False):
        inequality = trace_inequality(A, rotations_only=rotations_only)
        ascent = inequality.ascend(2)
        assert ascent.converged
        expect_rotations(ascent.rotations, rotations_only)
        assert ascent.value == pytest.approx(inequality.supremum, abs=1e-8)
        assert float(inequality.trace(ascent.rotations)) == pytest.approx(ascent.value, abs=1e-12)
        assert max(ascent.values) == ascent.value


def test_the_sign_of_the_determinant_matters_in_two_dimensions() -> None:
    """Rotations of the plane by one angle: a sweep over it is a proof to the grid's accuracy."""
    A = drawn(2, 2, -1)
    inequality = trace_inequality(A)
    angles = torch.linspace(0, 2 * math.pi, 721, dtype=torch.float64)
    c, s = angles.cos(), angles.sin()
    turns = torch.stack([torch.stack([c, -s], 1), torch.stack([s, c], 1)], 1)
    pairs = torch.stack([turns[:, None].expand(-1, 721, 2, 2), turns[None].expand(721, -1, 2, 2)], 2)
    largest = float(inequality.trace(pairs).max())
    assert inequality.supremum - 1e-3 < largest <= inequality.supremum + 1e-12
    assert inequality.supremum < trace_inequality(A, rotations_only=False).supremum - 1e-3


def test_for_two_matrices_it_is_von_neumanns() -> None:
    A, B = drawn(2, 5)
    expected = float((torch.linalg.svdvals(A) * torch.linalg.svdvals(B)).sum())
    assert trace_inequality([A, B], rotations_only=False).supremum == pytest.approx(expected, rel=1e-14)


def test_a_singular_matrix_has_no_last_term() -> None:
    """As in theorem 3.3, where one matrix has rank one."""
    A = drawn(3, 4)
    A[1] = torch.outer(A[1, 0], A[1, 1])
    inequality = trace_inequality(A)
    assert inequality.sign == 0
    expected = float(torch.linalg.svdvals(A)[:, 0].prod())
    assert inequality.supremum == pytest.approx(expected, rel=1e-12)
    assert float(inequality.trace(inequality.attained_at)) == pytest.approx(expected, rel=1e-10)
    assert inequality.ascend(4).value == pytest.approx(expected, abs=1e-8)


def test_it_can_be_read() -> None:
    text = str(TraceInequality(drawn(3, 3, -1)))
    assert "trace of 3 matrices of 3 x 3 over rotations" in text
    assert "sign of the last -1" in text


def test_what_is_wrong_is_named() -> None:
    with pytest.raises(InputError, match="two or more square matrices"):
        trace_inequality([torch.eye(3)])
    with pytest.raises(InputError, match="of one size"):
        trace_inequality([torch.eye(3), torch.eye(2)])
    with pytest.raises(InputError, match="square"):
        trace_inequality([torch.ones(2, 3), torch.ones(2, 3)])
    with pytest.raises(InputError, match="finite"):
        trace_inequality([torch.eye(2), torch.eye(2) * math.nan])
    with pytest.raises(InputError, match="at least one start"):
        trace_inequality(drawn(2, 2)).ascend(0)
