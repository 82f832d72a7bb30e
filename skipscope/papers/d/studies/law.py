"""D.law: the exact law of a residual unit's spectrum against counted singular values.

    skipscope study run D.law --preset quick --out DIR
    skipscope study run D.law --preset full --device cuda --weights resnet56.pt --data cifar10:PATH --out DIR

The paper finds many singular values near 1 and near 0. Ours: with n outputs, z of them inactive, and r active inner
ReLUs, at least z singular values are 0 and at least n - z - 2 r are exactly 1, at most r above and r between, and
generically these are equalities. Counted on random convolutional units, on networks trained on digits and, where its
weights are given, on a ResNet-56 for CIFAR-10. The same blocks without their skips are the control: no value 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

import torch
import xarray
from torch import Tensor, nn

from skipscope.constraints import Expectation, at_least
from skipscope.linear import Jacobian
from skipscope.measure import law
from skipscope.measure.spectra import spectra_of
from skipscope.models.names import build
from skipscope.models.resnet import ResNet
from skipscope.numerics import normal, random_numbers
from skipscope.papers.d import PAPER
from skipscope.papers.d.measured_networks import MeasuredNetwork, NetworkSettings, measured_networks, require_digits
from skipscope.papers.kit import Bench, Claim, Evidence, Quantity, Study
from skipscope.runs.sweep import Task
from skipscope.trace import trace

THRESHOLDS = (-2.5, 0.5)  # of the inner ReLUs of random units, in standard deviations: few to most of them active
GENERIC_SHARE = 0.9  # of the pairs, that have to meet a bound that is met generically

TRAINED_NETWORKS = Quantity("trained networks")
PAIRS = Quantity("pairs")  # of a unit and a sample
VIOLATED = Quantity("bounds violated")
GENERIC_PAIRS = Quantity("pairs with 2 r < n - z")
ONES_WITHOUT_SKIPS = Quantity("ones without skips")
EQUALITY = Quantity("share of generic pairs with equality")
D3 = Claim(
    "D3",
    "A unit with n outputs, z of them inactive, and r active inner ReLUs has at least z singular values 0, at least "
    "n - z - 2 r equal to 1, at most r above 1 and at most r between 0 and 1.",
    "counts against bounds, for every regular unit and every sample",
    criteria=(VIOLATED.exactly(0.0), EQUALITY.at_least(GENERIC_SHARE)),
    controls=(GENERIC_PAIRS.at_least(1.0), ONES_WITHOUT_SKIPS.exactly(0.0), TRAINED_NETWORKS.at_least(1.0)),
    ours=True,
    note="Generic pairs of unit and sample are those with 2 r < n - z: elsewhere no value has to be exactly 1.",
)


@dataclass(frozen=True)
class LawSettings(NetworkSettings):
    random_networks: Annotated[int, at_least(1)] = 4  # each with its own weights and thresholds
    random_model: str = "resnet14-digits-n2"

    def expectations(self) -> Iterator[Expectation]:
        require_digits(self.random_model)
        yield from super().expectations()


def run(bench: Bench, settings: LawSettings) -> Evidence:
    numbers = range(settings.random_networks)
    parts = bench.sweep(Task(f"random-{number}", partial(_random, bench, settings, number)) for number in numbers)
    for network in measured_networks(bench, settings):
        parts += bench.sweep(_tasks(network), f"the law on {network.title}")
    return evidence(parts, bench.part("control", lambda: _without_skips(bench, settings)))


def evidence(parts: Sequence[xarray.Dataset], control: xarray.Dataset) -> Evidence:
    """Over all pairs of a unit that the law speaks of and a sample.

    Equality is asked of regular units alone, as the claim is about them: at the border of a padded skip columns of
    the branch's factors vanish, so that there are often more ones than proved.
    """
    generic = [(part["generic"] == 1) & (part["skip"] == "identity") for part in parts]
    equal = [which & (part["ones"] == part["ones_at_least"]) for which, part in zip(generic, parts, strict=True)]
    trained = {str(part.attrs["network"]) for part in parts if not part.attrs.get("random")}
    generic_pairs = _total(generic)
    found: dict[Quantity, Any] = {
        TRAINED_NETWORKS: len(trained),
        PAIRS: _total(part["size"].notnull() for part in parts),
        VIOLATED: _total(part["violated"] for part in parts),
        GENERIC_PAIRS: generic_pairs,
        ONES_WITHOUT_SKIPS: int(control["ones"].sum()),
    }
    if generic_pairs:
        found[EQUALITY] = _total(equal) / generic_pairs
    return {D3: found}


def _total(arrays: Iterable[xarray.DataArray]) -> int:
    return sum(int(array.sum()) for array in arrays)


def _random(bench: Bench, settings: LawSettings, number: int) -> xarray.Dataset:
    seed = bench.seeds(settings.random_networks)[number]
    model = random_network(settings.random_model, seed).to(bench.device)
    images = random_images(model, settings.images, seed)
    return law(trace(model, images), images).assign_attrs(network=f"random units {number}", large=0, random=1)


def _tasks(network: MeasuredNetwork) -> list[Task]:
    """Of a large network one dataset per unit: each may be minutes of work, and a killed run loses one at most."""
    if not network.large:
        return [network.task(partial(_measured, names=network.names, route="svd"))]
    return [
        network.task(partial(_measured, names=[name], route="gram"), f"{network.key}-{name}") for name in network.names
    ]


def _measured(network: MeasuredNetwork, names: Sequence[str], route: Literal["svd", "gram"]) -> xarray.Dataset:
    return law(network.trunk, network.images, units=names, route=route)


def _without_skips(bench: Bench, settings: LawSettings) -> xarray.Dataset:
    """The plain twin of the first random network: the same blocks at their own states, without their skips."""
    model = random_network(settings.random_model, bench.seed, skips=False).to(bench.device)
    images = random_images(model, settings.images, bench.seed).double()
    model.double()
    operators = {}
    with torch.no_grad():
        state = model.stem(images)
        for name, block in model.blocks.items():
            operators[name] = Jacobian(block, state, name=name)
            state = block(state)
    return spectra_of(operators, route="svd").assign_attrs(network="random units without skips")


def random_network(name: str, seed: int, *, skips: bool = True, thresholds: tuple[float, float] = THRESHOLDS) -> ResNet:
    """Gaussian weights, and a random threshold of the inner ReLUs in every block."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = build(name if skips else name.replace("resnet", "plainnet"))
        with torch.no_grad():
            for block in model.blocks.values():
                inner, outer = (norm for norm in block.children() if isinstance(norm, nn.BatchNorm2d))
                inner.bias.fill_(float(torch.empty(()).uniform_(*thresholds)))
                outer.bias.normal_()
    return model.eval()


def random_images(model: ResNet, count: int, seed: int) -> Tensor:
    weight = model.conv.weight
    numbers = random_numbers("images", seed)  # others than those of the weights
    return normal((count, weight.shape[1], 8, 8), numbers, torch.float32, weight.device)


STUDY = Study(
    PAPER,
    "law",
    paper_found="Many singular values of a residual unit lie near 1 and near 0, and the share changes with depth.",
    we_expect="Counts of zeros and ones follow from counts of inactive ReLUs, exactly, on every unit with 2 r < n - z.",
    presets={
        "smoke": LawSettings(
            *("resnet8-digits-n8", 1), networks=1, images=2, random_networks=1, random_model="resnet8-digits-n8"
        ),
        "quick": LawSettings(images=3, units=("stage3.2", "stage3.4", "stage3.6"), large_images=(1,)),
        "full": LawSettings(random_networks=8, large_images=(1,)),
        "paper": LawSettings(random_networks=8, train110=True),
    },
    cost={
        "smoke": "seconds",
        "quick": "about 5 minutes on 2 cores, and a minute more for each unit of the ResNet-56",
        "full": "under 10 minutes on one GPU",
        "paper": "an hour on one GPU, and the training of a ResNet-110 where no weights are given",
    },
    run=run,
    claims=(D3,),
)
