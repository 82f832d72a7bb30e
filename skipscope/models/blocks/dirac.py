"""Convolutions and matrices that carry an identity in their weights, in place of a skip around them.

    dirac     diag(a) I + diag(b) W / |W|, the filters of W at unit norm; a begins at 1 and b at 0.1
    additive  W + diag(a) I; a begins at 1

I passes input channel i on to output channel i: a filter that is 1 at its centre (the Dirac delta), or the entries of
an identity matrix. Where there are more outputs than inputs it is cut off: the rest of the outputs have no part of it.
a and b, one number an output, are trained like W, so that the identity is there throughout training.

S. Zagoruyko, N. Komodakis: DiracNets: Training Very Deep Neural Networks Without Skip-Connections, 2017. Their networks
have NCReLU as activation and max pools between stages; ours keep ReLU and strides, as the networks beside them.
O. Oyedotun, K. Al Ismaeil, D. Aouada: Training Very Deep Neural Networks: Rethinking the Role of Skip Connections,
equation 28, describes the additive form.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

FIRST_B = 0.1


class CarriesIdentity(nn.Module):
    """A layer with `weight` W, and a (b in the form `dirac` alone), one number for each output."""

    weight: Tensor
    identity: Tensor

    def carry(self, identity: Tensor, parametrisation: str) -> None:
        outputs = len(identity)
        self.parametrisation = parametrisation
        self.a = nn.Parameter(torch.ones(outputs))
        self.b = nn.Parameter(torch.full((outputs,), FIRST_B)) if parametrisation == "dirac" else None
        self.register_buffer("identity", identity, persistent=False)

    @property
    def effective_weight(self) -> Tensor:
        """The filters that the images meet, or the matrix that the vectors meet."""
        each = (-1, *[1] * (self.weight.dim() - 1))
        kept = self.a.view(each) * self.identity
        if self.b is None:
            return kept + self.weight
        return kept + self.b.view(each) * F.normalize(self.weight.flatten(1)).view_as(self.weight)


class DiracConv2d(CarriesIdentity, nn.Conv2d):
    """Without a bias; images keep their size but for the stride."""

    def __init__(self, before: int, after: int, size: int, stride: int = 1, parametrisation: str = "dirac") -> None:
        super().__init__(before, after, size, stride, padding=size // 2, bias=False)
        self.carry(nn.init.dirac_(torch.empty_like(self.weight)), parametrisation)

    def forward(self, x: Tensor) -> Tensor:
        return self._conv_forward(x, self.effective_weight, None)


class DiracLinear(CarriesIdentity, nn.Linear):
    """Without a bias."""

    def __init__(self, before: int, after: int, parametrisation: str = "dirac") -> None:
        super().__init__(before, after, bias=False)
        self.carry(nn.init.eye_(torch.empty_like(self.weight)), parametrisation)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.effective_weight)
