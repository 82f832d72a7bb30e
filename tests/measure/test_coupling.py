"""Block coupling against dense Jacobians of the models' own blocks and torch's SVD."""

from __future__ import annotations

import numpy
import pytest
import torch
from torch import Tensor

import skipscope as ss
from skipscope.measure.token_jacobians import blocks_of
from tests.measure.language import CASES, TOKENS, WIDTH, block_function, traced
from tests.measure.nets import Net
from tests.slow import thinned

PAIRS = [(4, 4), (2, 2), (0, 4), (-1, 1)]


def m_of(J: Tensor, others: Tensor, k: int, signed: bool = False) -> float:
    """The definition, with all decompositions by torch."""
    values = torch.linalg.svdvals(J)[:k]
    U, _, Vh = torch.linalg.svd(others)
    grid = U[:, :k].T @ J @ Vh[:k].T
    return float(torch.linalg.norm((grid if signed else grid.abs()) - torch.diag(values)) / torch.linalg.norm(values))


@pytest.mark.parametrize("name", thinned(CASES, fast=("written",)))
def test_against_dense_jacobians(name: str) -> None:
    model, trunk, ids = traced(name)
    close = CASES[name].rounding
    data = ss.coupling(trunk, ids, k=3, tokens=PAIRS, samples=[1])
    assert data["unit"].values.tolist() == [CASES[name].block.format(i) for i in range(2)]
    matrices: dict[tuple[int, int], Tensor] = {}
    for i in range(2):
        run, entry = block_function(model, CASES[name].block.format(i), ids[1:2])
        J = torch.autograd.functional.jacobian(lambda h, run=run: run(h) - h, entry)[0, :, :, 0]  # T, d, T, d
        for p, (s, t) in enumerate(PAIRS):
            matrices[i, p] = J[t, :, s]
    for (i, p), J in matrices.items():
        if J.abs().max() == 0:  # a causal model: position 1 does not see the last
            assert name != "bert"
            assert data["k_used"][i, 0, p] == 0
            assert data["coupling"][i, :, 0, p].isnull().all()
            continue
        numpy.testing.assert_allclose(data["value"][i, 0, p], torch.linalg.svdvals(J)[:3].cpu(), rtol=close, atol=1e-12)
        for j in range(2):
            for suffix, signed in (("", False), ("_signed", True)):
                expected = m_of(J, matrices[j, p], 3, signed)
                value = float(data[f"coupling{suffix}"][i, j, 0, p])
                assert value == pytest.approx(expected, rel=100 * close, abs=close)
        for q in range(3):  # the last pair is zero in causal models
            expected = m_of(J, matrices[i, q], 3)
            assert float(data["token_coupling"][i, 0, p, q]) == pytest.approx(expected, rel=100 * close, abs=close)
    assert data["converged"].all()


def test_branches_are_those_of_alignment_and_iteration_agrees() -> None:
    _, trunk, ids = traced("written")
    for of in ("branch", "unit"):
        found = ss.coupling(trunk, ids, k=3, tokens=(1, 3), of=of)
        known = ss.alignment(trunk, ids, k=3, tokens=(1, 3), of=of)
        for name in ("coupling", "coupling_signed"):
            expected = known[name.replace("coupling", "coupling_ujv")]
            numpy.testing.assert_allclose(found[name][..., 0], expected, rtol=1e-7, atol=1e-9)
    dense, iterative = (ss.coupling(trunk, ids, k=2, route=route) for route in ("dense", "iterative"))
    numpy.testing.assert_allclose(dense["coupling"], iterative["coupling"], rtol=1e-6, atol=1e-9)


def test_chance_is_what_random_matrices_have() -> None:
    """The same mean from other random vectors, within the errors of both."""
    _, trunk, ids = traced("written")
    data = ss.coupling(trunk, ids, k=2, chance=64)
    values = torch.from_numpy(data["value"].values[0, 0, 0])
    run, entry = block_function(traced("written")[0], "blocks.0", ids[:1])
    matrix = torch.autograd.functional.jacobian(lambda h: run(h) - h, entry)[0, -1, :, 0, -1]
    torch.testing.assert_close(torch.linalg.svdvals(matrix)[:2].cpu(), values, rtol=1e-9, atol=1e-12)
    torch.manual_seed(0)
    drawn = []
    for _ in range(400):
        left, right = (torch.linalg.qr(torch.randn(WIDTH, 2, dtype=torch.float64))[0] for _ in range(2))
        sizes = (left.T @ matrix @ right).abs().cpu()
        drawn.append(float(torch.linalg.norm(sizes - torch.diag(values)) / values.norm()))
    error = float(data["chance_error"][0, 0, 0])
    assert abs(float(data["chance"][0, 0, 0]) - numpy.mean(drawn)) < 4 * error + 4 * numpy.std(drawn) / 20


def test_blocks_by_name() -> None:
    class Named:
        def __init__(self, name: str) -> None:
            self.name = name

    names = ["stem", "h.0.attn", "h.0.mlp", "h.1.attn", "layers.1", "layers.2", "h.0.attn#2", "h.0.mlp#2", "top.mix"]
    found = blocks_of([Named(name) for name in names])  # type: ignore[misc]
    assert [(name, len(units)) for name, units in found] == [
        ("stem", 1), ("h.0", 2), ("h.1", 1), ("layers.1", 1), ("layers.2", 1), ("h.0#2", 2), ("top.mix", 1),
    ]  # fmt: skip


def test_bad_input() -> None:
    _, trunk, ids = traced("written")
    seen: list[tuple[int, int]] = []
    data = ss.coupling(trunk, ids, k=99, units=["blocks.1.attention"], progress=lambda *two: seen.append(two))
    assert data["unit"].values.tolist() == ["blocks.1"]  # the block that holds the unit
    assert data.attrs["k"] == WIDTH
    assert seen == [(1, 2), (2, 2)]
    for options, message in (
        ({"k": 0}, "whole number from 1 on"),
        ({"of": "head"}, "expected block, branch or unit"),
        ({"chance": 1}, "at least 2 draws"),
        ({"route": "fast"}, "expected one of"),
        ({"tokens": (0, TOKENS)}, "expected positions below 5"),
        ({"tokens": [(0, 1, 2)]}, "expected a pair"),
        ({"tokens": 3}, "expected a pair"),
        ({"tokens": [(4, 4), (-1, -1)]}, "each pair once"),
        ({"units": []}, "names no unit"),
    ):
        with pytest.raises(ss.InputError, match=message):
            ss.coupling(trunk, ids, **options)
    x = torch.rand(2, 1, 8, 8)
    with pytest.raises(ss.InputError, match=r"ss.coupling needs states of one shape \(tokens, channels\)"):
        ss.coupling(ss.trace(Net().eval(), x), x)
