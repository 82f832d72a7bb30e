"""The two networks and what is measured on them: one dataset per network and measure, as other commands write them.

The plain one has a chain of blocks, which is what a trunk is to a network with skips.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

import skipscope.measure as measure
from skipscope.data import Dataset
from skipscope.data.perturbations import perturbed
from skipscope.linear import Jacobian, Operator
from skipscope.measure.profile import chain, chain_profile
from skipscope.measure.spectra import spectra_of
from skipscope.measure.verification import verification_of
from skipscope.models.resnet import ResNet
from skipscope.trace import Trunk, trace

if TYPE_CHECKING:
    import xarray

Step = tuple[str, str, Callable[[], "xarray.Dataset"]]  # a dataset's name, its network's, and how it is made

STAGES = ("stage1", "stage2", "stage3")
RAISED = 1.0  # standard deviations by which inner thresholds are raised where the law is put to the test
PERTURBED = 5  # images
CANDIDATES = 3  # images tried for each that is wanted: some are misclassified


def twins(seed: int, depth: int, channels: Sequence[int], classes: int) -> dict[str, ResNet]:
    """With and without skips; the same initial weights. The caller's random state stays as it is."""
    made = {}
    for name, skips in (("residual", True), ("plain", False)):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            made[name] = ResNet(depth, channels=channels, input_channels=1, classes=classes, skips=skips)
    return made


def with_raised_thresholds(model: ResNet, deviations: float = RAISED) -> ResNet:
    """A copy with the inner batch norms' biases lowered, so that fewer of the inner ReLUs are active."""
    raised = copy.deepcopy(model)
    with torch.no_grad():
        for block in raised.blocks.values():
            block.norm1.bias.sub_(deviations * block.norm1.weight.abs())  # type: ignore[operator]
    return raised


class Chain:
    """The blocks of a plain network at a few images; Jacobians in float64 and names as a trunk has them."""

    def __init__(self, model: ResNet, images: Tensor) -> None:
        self._model = copy.deepcopy(model).double()
        with torch.no_grad():
            entries = chain(self._model.blocks, self._model.stem(images.double()))
        self._entries = dict(zip(self._model.blocks, entries, strict=False))

    def jacobians(self, *, stages: bool = False) -> dict[str, Operator]:
        """Of every block; of whole stages as well, from the first block's entry to the last one's exit."""
        found: dict[str, Operator] = {
            name: _jacobian(block, self._entries[name], name) for name, block in self._model.blocks.items()
        }
        for number, name in enumerate(STAGES if stages else (), 1):
            found[f"stage {number}"] = _jacobian(
                self._model.get_submodule(name), self._entries[f"{name}.0"], f"stage {number}"
            )
        return found

    def labels(self, *, stages: bool = False) -> dict[str, Any]:
        """Of the same in a dataset: kinds of skip and branch, number of the stage from 1."""
        places = [STAGES.index(name.partition(".")[0]) + 1 for name in self._entries]
        skips, branches = ["none" for _ in places], ["convolution" for _ in places]
        if not stages:
            return {"skip": ("unit", skips), "branch": ("unit", branches), "stage": ("unit", places)}
        return {
            "kind": ("unit", ["unit" for _ in places] + ["stage" for _ in STAGES]),
            "skip": ("unit", [*skips, *("" for _ in STAGES)]),
            "branch": ("unit", [*branches, *("" for _ in STAGES)]),
            "stage": ("unit", [*places, *range(1, len(STAGES) + 1)]),
        }


def _jacobian(function: Callable[[Tensor], Tensor], state: Tensor, name: str) -> Jacobian:
    def in_other_form(samples: Sequence[int] | None, _: torch.dtype) -> Jacobian:
        return _jacobian(function, state if samples is None else state[list(samples)], name)

    return Jacobian(function, state, name=name, in_other_form=in_other_form)


def steps(networks: Mapping[str, ResNet], data: Dataset, images: int, samples: int, seed: int) -> list[Step]:
    """Everything on the residual network; on the plain one, block by block, what needs no skip; and the law.

    images: how many of the test images. samples: the first of them, that Jacobians are measured at.
    """
    residual, plain = networks["residual"], networks["plain"]
    raised = {name: with_raised_thresholds(model) for name, model in networks.items()}
    batch = data.test_batch(images, seed)
    few = batch[:samples]
    trunk, blocks = trace(residual, batch[:2]), Chain(plain, few)
    point = trunk.at(few)
    with torch.no_grad():
        first = plain.stem(batch)

    def profile_of_plain() -> xarray.Dataset:
        return chain_profile(plain.blocks, plain.head, first, seed=seed).assign_coords(blocks.labels())

    def spectra_of_plain() -> xarray.Dataset:
        whole = blocks.labels(stages=True)
        return spectra_of(blocks.jacobians(stages=True), route="svd").assign_coords(whole)

    def law_control() -> xarray.Dataset:
        """Blocks without skips: where the law predicts a plateau at 1, they have none."""
        control = Chain(raised["plain"], few)
        return spectra_of(control.jacobians(), route="svd").assign_coords(control.labels())

    return [
        ("profile-residual", "residual", lambda: measure.profile(trunk, batch, seed=seed)),
        ("spectra-residual", "residual", lambda: measure.spectra(trunk, point, route="svd")),
        ("stability-residual", "residual", lambda: _stability(trunk, residual, data, seed)),
        ("verification-residual", "residual", lambda: measure.verification(trunk, point)),
        ("conditioning-residual", "residual", lambda: _conditioning(residual, batch)),
        ("profile-plain", "plain", profile_of_plain),
        ("spectra-plain", "plain", spectra_of_plain),
        ("verification-plain", "plain", lambda: verification_of(blocks.jacobians()).assign_coords(blocks.labels())),
        ("conditioning-plain", "plain", lambda: _conditioning(plain, batch)),
        ("law-as-trained", "residual", lambda: measure.law(trunk, few)),
        (
            "law-raised",
            "residual, thresholds raised",
            lambda: measure.law(trace(raised["residual"], batch[:2]), few),
        ),
        ("law-control", "plain, thresholds raised", law_control),
    ]


def _conditioning(model: ResNet, images: Tensor) -> xarray.Dataset:
    return measure.conditioning(model, images).assign_attrs(units="; ".join(model.blocks))


def _stability(trunk: Trunk, model: ResNet, data: Dataset, seed: int) -> xarray.Dataset:
    images, labels = data.test_examples(CANDIDATES * PERTURBED, seed)
    found = perturbed(model, images, labels, PERTURBED, seed)
    return measure.stability(trunk, found.images, perturbation=found.kinds).assign_attrs(found.record)
