"""How far branches are from linear: against Jacobians that are built entry by entry."""

from __future__ import annotations

import pytest
import torch

import skipscope as ss
from skipscope.papers.a.theory import linear_branches


def network(name: str) -> torch.nn.Module:
    """With statistics and constants in its norms."""
    torch.manual_seed(0)
    model = ss.build(name).double()
    model(torch.randn(50, 1, 8, 8, dtype=torch.float64))
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm1d):
            torch.nn.init.normal_(module.bias, std=0.3)
    return model.eval().requires_grad_(False)


@pytest.mark.parametrize("form", ["", "-preactivation"])
def test_errors_are_those_of_whole_jacobians(form: str) -> None:
    model = network(f"type1-digits-w12-b2{form}")
    images = torch.randn(3, 1, 8, 8, dtype=torch.float64)
    found = linear_branches(model, images)
    assert found.error.shape == found.bias.shape == (2, 3)
    for image in range(3):
        state = model.stem(images[image : image + 1])
        for number, block in enumerate(model.stage1):
            J = torch.autograd.functional.jacobian(lambda h, block=block: block.branch(h[None])[0], state[0])
            branch = block.branch(state)[0]
            mask = torch.ones_like(branch) if form else (state[0] + branch > 0).double()
            after = block(state)
            step = (after - state)[0]
            error = (step - mask * (J @ state[0])).norm() / step.norm()
            bias = (mask * (branch - J @ state[0])).norm() / step.norm()
            assert float(found.error[number, image]) == pytest.approx(float(error), rel=1e-9)
            assert float(found.bias[number, image]) == pytest.approx(float(bias), rel=1e-9)
            state = after
    assert found.median_error == float(found.error.median())


def test_branches_without_constants_are_linear_but_for_what_a_relu_cuts_off() -> None:
    torch.manual_seed(0)
    model = ss.build("type1-digits-w12-b2-preactivation").double().eval()  # norms that normalise nothing
    found = linear_branches(model, torch.randn(3, 1, 8, 8, dtype=torch.float64))
    assert float(found.error.max()) < 1e-4  # the norms' epsilon cancels, rounding is left
    assert float(found.bias.max()) < 1e-4
