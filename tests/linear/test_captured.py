"""When a product is captured, and when it is not. On a GPU: that a captured product is the product."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import skipscope as ss
from skipscope.errors import InputError
from skipscope.linear import captured
from skipscope.linear.captured import CAPTURED_AT, CapturedProduct, Product

ON_GPU = torch.cuda.is_available()


def nothing() -> None:
    return None


def yes(found: Tensor) -> bool:
    return True


class Recorder:
    """In place of a capture: counts how often one is made, and says which products were replayed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.captures, self.replays = 0, 0
        monkeypatch.setattr(captured, "captured", self._captured)

    def _captured(self, record: Callable[[], Product], example: Tensor) -> Product:
        self.captures += 1
        product = record()

        def replay(vectors: Tensor) -> Tensor:
            self.replays += 1
            return product(vectors)

        return replay


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    return Recorder(monkeypatch)


def doubled() -> Product:
    return lambda vectors: 2 * vectors


def test_few_products_are_not_captured_and_many_once(recorder: Recorder) -> None:
    product = CapturedProduct(doubled, nothing)
    vectors = torch.ones(2, 3)
    found = [product.of(vectors, yes) for _ in range(CAPTURED_AT + 2)]
    assert [one is None for one in found] == [True] * (CAPTURED_AT - 1) + [False] * 3
    assert recorder.captures == 1
    assert all(one.equal(2 * vectors) for one in found if one is not None)


def test_another_shape_begins_anew(recorder: Recorder) -> None:
    product = CapturedProduct(doubled, nothing)
    for shape in ((2, 3), (1, 3)):
        found = [product.of(torch.ones(shape), yes) for _ in range(CAPTURED_AT)]
        assert found[0] is None
        assert found[-1] is not None
    assert recorder.captures == 2


def test_what_cannot_be_captured_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = []

    def fails(record: Callable[[], Product], example: Tensor) -> Product:
        tries.append(1)
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(captured, "captured", fails)
    product = CapturedProduct(doubled, nothing)
    assert all(product.of(torch.ones(2), yes) is None for _ in range(CAPTURED_AT + 3))
    assert len(tries) == 1


def test_another_product_is_not_used(recorder: Recorder) -> None:
    product = CapturedProduct(doubled, nothing)
    assert all(product.of(torch.ones(2), lambda found: False) is None for _ in range(CAPTURED_AT + 3))
    assert (recorder.captures, recorder.replays) == (1, 1)


def test_weights_are_asked_for_before_every_replay(recorder: Recorder) -> None:
    changed = False

    def check() -> None:
        if changed:
            raise InputError("the weights have changed")

    product = CapturedProduct(doubled, check)
    for _ in range(CAPTURED_AT):
        product.of(torch.ones(2), yes)
    changed = True
    with pytest.raises(InputError, match="changed"):
        product.of(torch.ones(2), yes)


def test_what_was_forgotten_is_captured_again(recorder: Recorder) -> None:
    product = CapturedProduct(doubled, nothing)
    for _ in range(2):
        for _ in range(CAPTURED_AT):
            product.of(torch.ones(2), yes)
        product.forget()
    assert recorder.captures == 2


@pytest.mark.skipif(not ON_GPU, reason="needs a GPU")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_captured_products_of_a_unit_are_its_products(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model = ss.build("resnet8-digits").cuda().eval()
    x = torch.randn(3, 1, 8, 8, device="cuda")
    unit = ss.trace(model, x)["stage2.0"]
    J = unit.jacobian(x, dtype=dtype)
    dense, size = J.dense(), 1e4 * torch.finfo(dtype).eps
    for _ in range(CAPTURED_AT + 2):
        v, u = (torch.randn(3, side, 2, device="cuda", dtype=dtype) for side in (J.shape[2], J.shape[1]))
        torch.testing.assert_close(J.matmat(v), dense @ v, rtol=size, atol=size)
        torch.testing.assert_close(J.rmatmat(u), dense.mT @ u, rtol=size, atol=size)
    assert J.derivative._captured_push._replay is not None
    assert J.derivative._captured_pull._replay is not None


@pytest.mark.skipif(not ON_GPU, reason="needs a GPU")
def test_a_captured_product_is_refused_once_the_weights_have_changed() -> None:
    model = nn.Sequential(nn.Linear(6, 6), nn.Tanh()).cuda()
    block = Residual(model).cuda()
    x = torch.randn(2, 6, device="cuda")
    J = ss.trace(block, x)[0].jacobian(x)
    v = torch.randn(2, 6, 1, device="cuda")
    for _ in range(CAPTURED_AT + 1):
        J.matmat(v)
    with torch.no_grad():
        model[0].weight.mul_(2)
    with pytest.raises(InputError, match="changed"):
        J.matmat(v)


class Residual(nn.Module):
    def __init__(self, branch: nn.Module) -> None:
        super().__init__()
        self.branch = branch

    def forward(self, x: Tensor) -> Tensor:
        return x + self.branch(x)
