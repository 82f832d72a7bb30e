"""Random numbers: one seed for each purpose, and the same draw wherever it is used."""

from __future__ import annotations

import torch

from skipscope.numerics import normal, random_numbers, seed_of, signs


def test_a_purpose_has_numbers_of_its_own() -> None:
    first, again, other = (normal((3, 4), random_numbers("probes", seed)) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert not torch.equal(first, normal((3, 4), random_numbers("unit", 0)))
    assert random_numbers("probes", 7).initial_seed() == seed_of("probes", 7)


def test_normal_numbers_are_those_of_torch_in_the_type_that_was_asked_for() -> None:
    for dtype in (torch.float32, torch.float64):
        expected = torch.randn(2, 5, dtype=dtype, generator=torch.Generator("cpu").manual_seed(seed_of("probes", 3)))
        found = normal((2, 5), random_numbers("probes", 3), dtype)
        assert found.dtype == dtype
        assert torch.equal(found, expected)
    assert normal((1,), random_numbers("probes", 3)).dtype == torch.float64


def test_draws_follow_each_other() -> None:
    numbers = random_numbers("probes", 0)
    both = [normal((4,), numbers), normal((4,), numbers)]
    assert not torch.equal(*both)


def test_signs_are_plus_and_minus_one_equally_often() -> None:
    drawn = signs((100, 100), random_numbers("probes", 0))
    assert drawn.dtype == torch.int64
    assert set(drawn.unique().tolist()) == {-1, 1}
    assert abs(float(drawn.double().mean())) < 0.05
    assert signs((3,), random_numbers("probes", 0), torch.int8).dtype == torch.int8
