"""Adversarial perturbations against brute force, and random ones of their size."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from skipscope.data import digits
from skipscope.data.perturbations import Adversarial, fgsm, uniform_like
from skipscope.errors import InputError
from skipscope.models import build
from skipscope.training import Settings, train

Trained = tuple[nn.Module, Tensor, Tensor]


@pytest.fixture(scope="module", name="trained")
def _trained() -> Trained:
    """A small network on digits, and test images with their labels."""
    torch.manual_seed(0)
    data = digits().to(torch.get_default_device())
    model = build("resnet8-digits-n8")
    train(model, data.train, Settings(epochs=2))
    return model, data.test.images(slice(0, 40)), data.test.labels[:40]


@pytest.fixture(scope="module", name="found")
def _found(trained: Trained) -> Adversarial:
    return fgsm(*trained)


def answers(model: nn.Module, x: Tensor) -> Tensor:
    model.eval()
    with torch.no_grad():
        return model(x).argmax(1)


def piecewise_linear() -> tuple[nn.Module, Tensor, Tensor]:
    """Float64, with the network's own answers as labels, so that all are right."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 4)).double()
    x = torch.randn(30, 3, 2, 2).double()
    return model, x, answers(model, x)


def test_every_kept_image_flips(trained: Trained, found: Adversarial) -> None:
    model, x, labels = trained
    assert len(found.kept) >= 20
    assert (answers(model, found.images) == found.labels).all()
    flipped = answers(model, found.images + found.perturbation)
    assert (flipped != found.labels).all()
    assert torch.equal(flipped, found.answers)
    assert torch.equal(found.images, x[found.kept])
    assert torch.equal(found.labels, labels[found.kept])
    assert found.perturbation.abs().amax((1, 2, 3)).double().cpu().numpy() == pytest.approx(found.eps.cpu().numpy())


def test_a_smaller_step_along_the_same_direction_does_not_flip(trained: Trained, found: Adversarial) -> None:
    shrunk = found.perturbation * 0.998  # the tolerance is 1e-3
    assert (answers(trained[0], found.images + shrunk) == found.labels).all()
    assert (found.gap <= 1e-3 * found.eps).all()


def test_images_that_were_wrong_are_left_out_and_counted(trained: Trained) -> None:
    model, x, labels = trained
    wrong = labels.clone()
    wrong[:5] = (answers(model, x[:5]) + 1) % 10
    found = fgsm(model, x, wrong)
    assert found.misclassified == int((answers(model, x) != wrong).sum()) >= 5
    assert int(found.kept.min()) >= 5
    assert found.misclassified + found.not_flipped + len(found.kept) == len(x) == len(found.flipped)
    assert torch.equal(found.flipped.nonzero().flatten(), found.kept)


def test_images_that_never_flip_are_left_out_and_counted(trained: Trained, found: Adversarial) -> None:
    largest = float(found.eps.median())
    fewer = fgsm(*trained, largest=largest)
    assert 0 < len(fewer.kept) < len(found.kept)
    assert fewer.not_flipped == found.not_flipped + len(found.kept) - len(fewer.kept)
    assert (fewer.eps <= largest).all()
    none = fgsm(*trained, largest=1e-6)
    assert none.perturbation.shape == (0, 1, 8, 8)
    all_wrong = fgsm(trained[0], trained[1], (answers(trained[0], trained[1]) + 1) % 10)
    assert all_wrong.misclassified == len(trained[1])
    assert all_wrong.images.shape == (0, 1, 8, 8)


def test_the_direction_is_the_sign_of_the_gradient_of_the_cross_entropy() -> None:
    model, x, labels = piecewise_linear()
    found = fgsm(model, x, labels)
    image = found.images.requires_grad_()
    (gradient,) = torch.autograd.grad(nn.functional.cross_entropy(model(image), found.labels), image)
    assert torch.equal(found.perturbation.sign(), gradient.sign())


def test_a_network_that_is_very_sure_still_has_a_direction() -> None:
    """The cross-entropy's own gradient is zero there."""
    model, x, labels = piecewise_linear()
    sure = nn.Sequential(model, Times(1e4)).float()
    image = x.float().requires_grad_()
    (gradient,) = torch.autograd.grad(nn.functional.cross_entropy(sure(image), labels), image)
    assert (gradient.flatten(1) == 0).all(1).any()
    assert len(fgsm(sure, x.float(), labels).kept) >= 25


class Times(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return self.factor * x


def test_eps_is_the_smallest_on_a_fine_grid() -> None:
    model, x, labels = piecewise_linear()
    found = fgsm(model, x, labels)
    assert len(found.kept) >= 25
    for image, label, eps, step in zip(found.images, found.labels, found.eps, found.perturbation, strict=True):
        fine = torch.linspace(0, 1.01 * float(eps), 5001).double()[1:]
        flips = answers(model, image + fine[:, None, None, None] * step.sign()) != label
        smallest = float(fine[flips.nonzero()[0, 0]])
        assert float(eps) == pytest.approx(smallest, rel=2e-3)


def test_iterated_steps_flip_too(trained: Trained) -> None:
    found = fgsm(*trained, iterations=4)
    assert len(found.kept) >= 20
    assert (answers(trained[0], found.images + found.perturbation) != found.labels).all()
    assert (found.perturbation.abs().amax((1, 2, 3)) <= found.eps * (1 + 1e-5)).all()


@pytest.mark.parametrize("iterations", [1, 3])
def test_clipped_images_stay_within_bounds(trained: Trained, iterations: int) -> None:
    model, x, labels = trained
    low, high = x.amin((0, 2, 3))[:, None, None], float(x.max())
    found = fgsm(model, x, labels, iterations=iterations, clip=(low, high))
    assert len(found.kept)
    perturbed = found.images + found.perturbation
    assert float(perturbed.min()) >= float(low) - 1e-6
    assert float(perturbed.max()) <= high + 1e-6
    assert (answers(model, perturbed) != found.labels).all()
    with pytest.raises(InputError, match="outside of"):
        fgsm(model, x, labels, clip=(-0.01, 0.01))


def test_the_model_is_left_as_it_was(trained: Trained) -> None:
    model, x, labels = trained
    model.train()
    first, *others = model.parameters()
    first.requires_grad_(False)
    others[0].grad = torch.ones_like(others[0])
    modules = list(model.modules())
    modules[-1].training = False
    modes = [module.training for module in modules]
    state = {name: value.clone() for name, value in model.state_dict().items()}
    random = torch.get_rng_state()
    try:
        fgsm(model, x, labels, iterations=2)
        assert [module.training for module in modules] == modes
        assert not first.requires_grad
        assert all(weight.requires_grad for weight in others)
        assert first.grad is None
        assert torch.equal(others[0].grad, torch.ones_like(others[0]))
        assert all(weight.grad is None for weight in others[1:])
        assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
        assert torch.equal(torch.get_rng_state(), random)
        assert not x.requires_grad
    finally:
        first.requires_grad_(True)
        others[0].grad = None


def test_the_search_is_recorded() -> None:
    model, x, labels = piecewise_linear()
    found = fgsm(model, x, labels, steps=(0.1, 1.0, 10.0, 100.0), largest=10.0, tolerance=0.01)
    assert found.grid == (0.1, 1.0, 10.0)
    # One gradient, the grid, a bracket of 90 % and more halved to 1 %, the final answers.
    assert 1 + 3 + 6 <= found.evaluations <= 1 + 3 + 60 + 1
    assert (found.gap > 0).all()


def test_logits_in_a_container() -> None:
    class Container(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: Tensor) -> dict[str, Tensor]:
            return {"count": torch.tensor(3), "logits": self.inner(x)}

    model, x, labels = piecewise_linear()
    assert torch.equal(fgsm(Container(model), x, labels).perturbation, fgsm(model, x, labels).perturbation)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"iterations": 0}, "at least 1 iteration"),
        ({"tolerance": 0.0}, "a tolerance between"),
        ({"largest": 0.0}, "largest eps above 0"),
        ({"steps": (1.0, 0.5)}, "rising values"),
        ({"labels": torch.zeros(3, dtype=torch.int64)}, "int64 labels"),
        ({"labels": torch.full((30,), 4)}, "one of the 4 classes"),
        ({"x": torch.full((30, 3, 2, 2), float("nan")).double()}, "NaN"),
        ({"model": nn.Flatten(0)}, "expected logits"),
    ],
)
def test_bad_input_is_refused(change: dict, message: str) -> None:
    model, x, labels = piecewise_linear()
    with pytest.raises(InputError, match=message):
        fgsm(**{"model": model, "x": x, "labels": labels} | change)


def test_random_perturbations_have_the_same_norm(found: Adversarial) -> None:
    like = found.perturbation
    noise = uniform_like(like, seed=3)
    assert noise.shape == like.shape
    assert noise.dtype == like.dtype
    assert torch.allclose(noise.flatten(1).norm(dim=1), like.flatten(1).norm(dim=1), rtol=1e-6)
    assert torch.equal(noise, uniform_like(like, seed=3))
    assert not torch.equal(noise, uniform_like(like, seed=4))
    largest = uniform_like(like, seed=3, norm="linf")
    assert torch.allclose(largest.flatten(1).abs().amax(1), like.flatten(1).abs().amax(1), rtol=1e-6)
    assert torch.allclose(nn.functional.cosine_similarity(noise.flatten(1), largest.flatten(1)), torch.tensor(1.0))
    with pytest.raises(InputError, match="expected one of l2, linf"):
        uniform_like(like, seed=0, norm="l1")


def test_random_perturbations_are_uniform() -> None:
    noise = uniform_like(torch.ones(1, 1, 100, 100).double(), seed=0, norm="linf").flatten()
    counts = torch.histc(noise.cpu(), 10, -1, 1)
    assert float((counts - 1000).square().sum() / 1000) < 30  # chi-square with 9 degrees of freedom
