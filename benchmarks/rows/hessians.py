"""The network whose Hessian is measured, and the other libraries' operators on it.

skipscope measures without TF32. On a GPU torch's default is to round the factors of a convolution to its ten bits, so
that the other libraries' products are off by a thousandth and take a part of the time. They are compared at the same
precision, and curvlinops at the default as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import skipscope as ss
from benchmarks.kit import Size
from skipscope.data import digits
from skipscope.numerics import measuring


def network_and_batch(size: Size) -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    """A ResNet-20 after one pass in training mode, which gives its batch norms statistics."""
    torch.manual_seed(0)
    if size.name == "gpu":
        images, labels = torch.randn(1024, 3, 32, 32), torch.randint(10, (1024,))
        model = ss.build("resnet20-cifar")
    else:
        count, depth = size.pick(smoke=64, cpu=256, gpu=0), size.pick(smoke=8, cpu=20, gpu=20)
        data = digits().train
        images, labels = data.images(slice(count)), data.labels[:count]
        model = ss.build(f"resnet{depth}-digits")
    model(images)
    return model.to(size.device).eval(), (images.to(size.device), labels.to(size.device))


def at_full_precision(run: Callable[[], Any]) -> Callable[[], Any]:
    """The same without TF32."""

    def measured() -> Any:
        with measuring():
            return run()

    return measured


def by_curvlinops(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Any:
    from curvlinops import HessianLinearOperator

    parameters = [weight for weight in model.parameters() if weight.requires_grad]
    return HessianLinearOperator(model, nn.CrossEntropyLoss(), parameters, [batch], check_deterministic=False)


def by_pyhessian(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Any:
    """Its last release (0.1) calls `torch.eig`, which torch no longer has, for its small tridiagonal matrices."""
    from pyhessian import hessian

    torch.eig = _eig
    return hessian(model, nn.CrossEntropyLoss(), data=batch, cuda=batch[0].is_cuda)


def _eig(matrix: Tensor, eigenvectors: bool = True) -> tuple[Tensor, Tensor]:
    """As the function that was removed: real and imaginary parts (n, 2), and vectors."""
    values, vectors = torch.linalg.eigh(matrix)
    return torch.stack([values, torch.zeros_like(values)], 1), vectors
