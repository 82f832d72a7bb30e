from __future__ import annotations

import pytest
import torch
from torch import Tensor

from skipscope.data import Dataset, Images, Normalisation, digits, whiten
from skipscope.errors import InputError
from tests.data.real import require


def reference(pixels: Tensor, components: int) -> Tensor:
    """Whitened scores by the dense eigendecomposition of the covariance, in float64."""
    centred = pixels.double() - pixels.double().mean(0)
    values, vectors = torch.linalg.eigh(centred.T @ centred / len(centred))
    vectors = vectors.flip(1)[:, :components]
    largest = vectors.gather(0, vectors.abs().argmax(0, keepdim=True))
    return centred @ (vectors * largest.sign()) / values.flip(0)[:components].sqrt()


def random_data(count: int, size: int) -> Dataset:
    generator = torch.Generator("cpu").manual_seed(0)
    images = torch.rand(count, 1, size, size, generator=generator, device="cpu")
    images = images * torch.linspace(0.2, 1, size * size, device="cpu").reshape(size, size)
    labels = torch.arange(count, device="cpu") % 3
    return Dataset("random", ("a", "b", "c"), Images(images, labels), Images(images[:5], labels[:5]))


@pytest.mark.parametrize("data", [random_data(30, 4), random_data(400, 4)], ids=["few samples", "many samples"])
def test_whitening_is_the_dense_reference(data: Dataset) -> None:
    white = whiten(data, 6)
    torch.testing.assert_close(white.x, reference(data.train.images().flatten(1), 6), atol=1e-9, rtol=0)
    torch.testing.assert_close(white.x.mean(0), torch.zeros(6, dtype=torch.float64, device="cpu"), atol=1e-12, rtol=0)
    eye = torch.eye(6, dtype=torch.float64, device="cpu")
    torch.testing.assert_close(white.x.T @ white.x / len(white.x), eye, atol=1e-12, rtol=0)
    torch.testing.assert_close(white.components @ white.components.T, eye, atol=1e-12, rtol=0)
    assert white.deviations.diff().max() < 0
    assert (white.components.gather(1, white.components.abs().argmax(1, keepdim=True)) > 0).all()


def test_test_images_and_new_ones_go_through_the_same_map() -> None:
    data = random_data(400, 4)
    white = whiten(data, 6)
    torch.testing.assert_close(white.test_x, white.x[:5])
    torch.testing.assert_close(white(data.test.images()), white.x[:5])


def test_labels_are_one_hot_and_normalisation_is_left_out() -> None:
    data = digits()
    white = whiten(data, 10)
    assert white.y.dtype == white.x.dtype == torch.float64
    assert white.y.shape == (len(data.train), 10)
    assert torch.equal(white.y.argmax(1), data.train.labels)
    assert torch.equal(white.y.sum(1), torch.ones_like(white.y[:, 0]))
    assert torch.equal(white.x, whiten(data.with_normalisation(Normalisation((0.3,), (0.1,))), 10).x)
    assert white.name == "digits, 10 whitened components"


@pytest.mark.parametrize(
    ("components", "message"), [(0, "expected 1 to 64"), (65, "expected 1 to 64"), (64, "vary in 6. directions only")]
)
def test_components_that_are_not_there(components: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        whiten(digits(), components)


def test_the_published_numbers_of_mnist() -> None:
    """Paper B's setting. The optimum does not depend on the components' signs, the other two do."""
    white = whiten(require("mnist"), 10)
    count = len(white.x)
    sxx, syx = white.x.T @ white.x / count, white.y.T @ white.x / count
    energy = white.y.pow(2).sum(1).mean()
    optimum = 0.5 * (energy - torch.trace(syx @ torch.linalg.solve(sxx, syx.T)))
    assert float(optimum) == pytest.approx(0.3371410, abs=1e-7)
    assert float(0.5 * (white.y - white.x).pow(2).sum(1).mean()) == pytest.approx(5.0159, abs=1e-4)
    assert float(torch.linalg.cond(sxx - syx)) == pytest.approx(1.4907, abs=1e-4)
