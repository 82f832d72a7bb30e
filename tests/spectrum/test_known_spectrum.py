"""What an operator knows of its spectrum reaches the solver through the operator, whatever the operator is."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import torch

import skipscope as ss
from skipscope.linear import KnownSpectrum
from tests.seeded import generator

SPECTRUM = Path(ss.__file__).parent / "spectrum"


def test_solvers_know_operators_and_no_networks() -> None:
    allowed = {"skipscope.linear", "skipscope.linear.operator", "skipscope.linear.known_spectrum"}
    allowed |= {"skipscope.linear.memory", "skipscope.errors", "skipscope.numerics", "skipscope.renamed"}
    allowed |= {"skipscope.progress", "skipscope.cores"}  # how far a solver is, and the threads it has: nothing else
    for path in SPECTRUM.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("skipscope"):
                module = node.module or ""
                assert module in allowed or module.startswith("skipscope.spectrum"), f"{path.name} imports {module}"
                assert not {alias.name for alias in node.names} & {"Jacobian", "Law", "Hessian"}, path.name


class OneColumn(ss.Dense):
    """D (I + u v^T) for matrices that no network has made."""

    def __init__(self, diagonal: torch.Tensor, u: torch.Tensor, v: torch.Tensor, claimed: torch.Tensor) -> None:
        """claimed: what is said to be v."""
        n = diagonal.shape[1]
        super().__init__(diagonal[:, :, None] * (torch.eye(n, dtype=torch.float64) + u[:, :, None] * v[:, None]))
        self.diagonal, self.u, self.v, self.claimed = diagonal, u, v, claimed

    def known_spectrum(self) -> KnownSpectrum:
        active = (self.diagonal != 0).sum(1)
        return KnownSpectrum(
            zeros_at_least=self.diagonal.shape[1] - active,
            ones_at_least=active - 2,
            diagonal=self.diagonal,
            rank=torch.ones(len(self.diagonal), dtype=torch.long),
            factors=lambda sample: (self.u[sample, :, None], self.claimed[sample, :, None]),
        )


def one_column(wrong: float = 0.0) -> OneColumn:
    numbers = generator(0)
    u, v = (torch.randn(2, 30, dtype=torch.float64, generator=numbers) for _ in range(2))
    diagonal = (torch.rand(2, 30, generator=numbers) < 0.8).double()
    return OneColumn(diagonal, u, v, v + wrong)


def test_a_solver_uses_what_any_operator_knows() -> None:
    A = one_column()
    found = ss.singular_values(A, route="law" if A.device.type == "cuda" else "auto")  # too small to pay on a GPU
    assert found.routes == ("law", "law")
    expected = torch.linalg.svdvals(A.dense()).cpu()
    assert ((found.values - expected).abs() <= found.bound + 1e-13).all()
    active = (A.diagonal != 0).sum(1)
    assert found.ones_at_least.tolist() == (active - 2).tolist()
    assert found.zeros_at_least.tolist() == (30 - active).tolist()
    assert (found.ones >= found.ones_at_least).all()


def test_what_is_wrong_with_the_knowledge_is_in_the_bound_and_not_believed() -> None:
    A = one_column(wrong=0.1)
    found = ss.singular_values(A)
    assert "law" not in found.routes
    expected = torch.linalg.svdvals(A.dense()).cpu()
    torch.testing.assert_close(found.values, expected, rtol=0, atol=1e-6)
    forced = ss.singular_values(A, route="law")
    assert ((forced.values - expected).abs() <= forced.bound + 1e-13).all()


def test_an_operator_that_knows_nothing_has_no_such_route() -> None:
    A = ss.Dense(one_column().dense())
    assert A.known_spectrum() is None
    with pytest.raises(ss.InputError, match="route='law': too little is known beforehand of the spectrum of "):
        ss.singular_values(A, route="law")
