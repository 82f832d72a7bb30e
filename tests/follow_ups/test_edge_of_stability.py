"""Edge of stability (Cohen et al. 2021): gradient descent on all data sharpens the loss to 2 / eta and stays there."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import skipscope as ss
from skipscope.data import digits

RATE = 0.4
WIDTH = 24
STEPS = {0: "start", 200: "rising", 650: "late", 800: "late"}


def half_square(output: Tensor, target: Tensor) -> Tensor:
    return (output - target).square().sum(1).mean() / 2


def test_sharpness_rises_to_two_over_the_rate_and_stays() -> None:
    """A quadratic loss would diverge as soon as sharpness * eta / 2 is above 1; this one goes on falling."""
    split = digits().train
    images = split.images(slice(0, 1000)).flatten(1)
    x = (images - images.mean(0)).to(torch.get_default_device())
    y = F.one_hot(split.labels[:1000], 10).to(x)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 10))
    descent = torch.optim.SGD(model.parameters(), RATE)
    found: dict[str, list[tuple[float, float]]] = {"start": [], "rising": [], "late": []}
    for step in range(max(STEPS) + 1):
        loss = half_square(model(x), y)
        if step in STEPS:
            largest = ss.eigs(ss.Hessian(model, half_square, (x, y)), 1, tol=1e-3)
            assert bool(largest.converged.all())
            found[STEPS[step]].append((float(largest.values) * RATE / 2, float(loss.detach())))
        descent.zero_grad()
        loss.backward()
        descent.step()
    ((first, _),), ((rising, loss_before),) = found["start"], found["rising"]
    assert first < rising < 0.9
    late = [sharpness for sharpness, _ in found["late"]]
    assert all(0.9 <= sharpness <= 1.3 for sharpness in late)
    assert sum(late) / len(late) > 1
    assert found["late"][-1][1] < 0.6 * loss_before
