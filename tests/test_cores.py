"""Independent pieces of work on all cores: the order, the bits, the threads, errors."""

from __future__ import annotations

import pytest
import torch

from skipscope.cores import FEW_NUMBERS, on_all_cores, threads_for, threads_of
from skipscope.spectrum.assembly import svdvals, thin_svd


def test_results_come_in_the_order_of_the_items() -> None:
    with threads_of(3):
        assert list(on_all_cores(lambda n: n * n, range(20))) == [n * n for n in range(20)]


def test_every_piece_has_one_thread_and_the_caller_its_own_number_afterwards() -> None:
    with threads_of(3):
        assert set(on_all_cores(lambda _: torch.get_num_threads(), range(6))) == {1}
        assert torch.get_num_threads() == 3


def test_operations_on_few_numbers_have_one_thread() -> None:
    with threads_of(3):
        with threads_for(FEW_NUMBERS, torch.device("cpu")):
            assert torch.get_num_threads() == 1
        with threads_for(FEW_NUMBERS + 1, torch.device("cpu")):
            assert torch.get_num_threads() == 3
        with threads_for(1, torch.device("cuda")):
            assert torch.get_num_threads() == 3
        assert torch.get_num_threads() == 3


def test_an_error_of_a_piece_reaches_the_caller() -> None:
    with threads_of(2), pytest.raises(ZeroDivisionError):
        list(on_all_cores(lambda n: 1 // n, [1, 0, 2]))


@pytest.mark.parametrize("shape", [(3, 5, 70, 80), (4, 120, 90), (150, 260)])
def test_decompositions_have_the_same_bits_on_one_core_and_on_three(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    matrix = torch.randn(shape, dtype=torch.float64)
    found = []
    for threads in (1, 3):
        with threads_of(threads):
            found.append([svdvals(matrix), *thin_svd(matrix)])
    values, U, S, Vt = found[1]
    if matrix.dim() > 2:  # of a single matrix LAPACK itself may use the threads
        for one, other in zip(*found, strict=True):
            assert torch.equal(one, other)
    assert U.shape[:-2] == shape[:-2]
    assert torch.allclose(U @ torch.diag_embed(S) @ Vt, matrix, atol=1e-12)
    assert torch.allclose(values, S, atol=1e-12)
