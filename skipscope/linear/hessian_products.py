"""Products with the Hessian of one batch's loss, in three ways, and what is needed to trust and to plan them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from skipscope.numerics import load_forward_mode

Function = Callable[[Tensor], Tensor]  # the loss of a batch at the flattened parameters


def forward_over_reverse(function: Function, theta: Tensor, V: Tensor) -> Tensor:
    load_forward_mode()
    gradient = torch.func.grad(function)

    def product(v: Tensor) -> Tensor:
        return torch.func.jvp(gradient, (theta,), (v,))[1]

    return torch.func.vmap(product, in_dims=1)(V[0]).mT[None]  # 1, p, k


def double_backward(function: Function, theta: Tensor, V: Tensor) -> Tensor:
    return RecordedGradient(function, theta).product(V)


class RecordedGradient:
    """The gradient of a loss with its graph, of which any number of products are derivatives: H v = d <grad, v>."""

    def __init__(self, function: Function, theta: Tensor) -> None:
        self.leaf = theta.clone().requires_grad_()
        with torch.enable_grad():
            (self.gradient,) = torch.autograd.grad(function(self.leaf), self.leaf, create_graph=True)

    def product(self, V: Tensor, at_once: bool = False) -> Tensor:
        """1, p, k. at_once: all vectors in one pass, where every operation can be batched."""
        if not self.gradient.requires_grad:  # the loss is linear
            return torch.zeros_like(V)
        if at_once:
            return self._pulled(V[0].mT.contiguous(), batched=True).mT[None]
        return torch.stack([self._pulled(v) for v in V[0].unbind(1)], 1)[None]

    def _pulled(self, v: Tensor, batched: bool = False) -> Tensor:
        (product,) = torch.autograd.grad(
            self.gradient, self.leaf, v, retain_graph=True, materialize_grads=not batched, is_grads_batched=batched
        )
        return product


def asymmetry_of(product: Tensor, probes: Tensor) -> float:
    """|<w, H v> - <v, H w>| relative to the size that it has for unrelated vectors, |H v| |w| / sqrt(p)."""
    (v, w), (Hv, Hw) = probes[0].double().unbind(1), product[0].double().unbind(1)
    size = torch.maximum(Hv.norm() * w.norm(), Hw.norm() * v.norm()) / len(v) ** 0.5
    return float((w @ Hv - v @ Hw).abs() / size.clamp_min(torch.finfo(torch.float64).tiny))


class WeightNormInParts(TorchFunctionMode):
    """w = v g / |v| from a norm, a quotient and a product: the second derivative of the fused operation is wrong."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch._weight_norm:
            v, g, dim = (*args, 0)[:3]
            return v * (g / torch.norm_except_dim(v, 2, (kwargs or {}).get("dim", dim)))
        return function(*args, **(kwargs or {}))


class GraphSize:
    """Bytes of the tensors that a graph keeps."""

    def __init__(self) -> None:
        self._seen: dict[int, int] = {}

    def pack(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        self._seen[storage.data_ptr()] = storage.nbytes()
        return tensor

    @property
    def bytes(self) -> int:
        return sum(self._seen.values())
