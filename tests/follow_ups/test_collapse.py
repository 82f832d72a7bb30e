"""Neural collapse on a simplex, along the depth of a residual network.

Zeros of the last layer's NC1 to NC4 on a simplex, and every number against its dense formula, are in
tests/measure/test_collapse.py.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import skipscope as ss
from tests.measure.test_collapse import simplex

CLASSES, SIZE, UNITS = 4, 9, 3
GROWTH = 0.5


class Pulling(nn.Module):
    """Units h + a P h, P on the span of the class means: means move apart, what is orthogonal to them stays."""

    def __init__(self, corners: Tensor) -> None:
        super().__init__()
        self.units = nn.ModuleList(nn.Linear(SIZE, SIZE, bias=False, dtype=corners.dtype) for _ in range(UNITS))
        self.head = nn.Linear(SIZE, CLASSES, bias=False, dtype=corners.dtype)
        self.head.weight.data = corners.clone()
        for unit in self.units:
            unit.weight.data = GROWTH * torch.linalg.pinv(corners) @ corners

    def forward(self, h: Tensor) -> Tensor:
        for unit in self.units:
            h = h + unit(h)
        return self.head(h)


def test_a_simplex_stays_one_and_its_classes_shrink_at_a_known_rate() -> None:
    corners = simplex(CLASSES, SIZE).to(torch.get_default_device())
    outside = torch.linalg.svd(corners)[2][CLASSES]  # a direction that no class mean has
    y = torch.arange(2 * CLASSES) % CLASSES
    signs = torch.tensor([1.0, -1.0], dtype=corners.dtype).repeat_interleave(CLASSES)
    found = ss.collapse(Pulling(corners), (corners[y] + 0.3 * signs[:, None] * outside, y))
    assert found.sizes["layer"] == UNITS + 2
    for name in ("nc1", "nc2_equinorm", "nc2_equiangular", "nc2_maximal_angle"):
        assert float(abs(found[name]).max()) <= 1e-10
    assert float(abs(found["nc3"])) <= 1e-10
    assert float(found["nc4"]) == 0
    # Corners of norm^2 1 - 1/C are at the squared distance 2; the variance 0.3^2 stays.
    depth = torch.arange(UNITS + 1, dtype=torch.float64, device="cpu")
    expected = 0.09 / (2 * (1 + GROWTH) ** (2 * depth))
    torch.testing.assert_close(torch.tensor(found["cdnv"].values[:-1], device="cpu"), expected, rtol=1e-10, atol=0)
