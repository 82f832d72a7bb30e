"""D.law: the exact law of a residual unit's spectrum against counted singular values.

    skipscope study run D.law --preset quick --out DIR
    skipscope study run D.law --preset full --device cuda --weights resnet56.pt --data cifar10:PATH --out DIR

The paper finds many singular values near 1 and near 0. Ours: with n outputs, z of them inactive, and r active inner
ReLUs, at least z singular values are 0 and at least n - z - 2 r are exactly 1, at most r above and r between, and
generically these are equalities. Counted on random convolutional units, on networks trained on digits and, where its
weights are given, on a ResNet-56 for CIFAR-10. The same blocks without their skips are the control: no value 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from skipscope.errors import InputError
from skipscope.linear import Jacobian
from skipscope.measure import law
from skipscope.measure.spectra import spectra_of
from skipscope.models.names import build
from skipscope.models.resnet import ResNet
from skipscope.papers.d import PAPER
from skipscope.papers.d.claims import decided_by
from skipscope.papers.d.measured import described
from skipscope.papers.d.subjects import Subject, Subjects, require_digits, subjects
from skipscope.papers.kit.bench import Bench
from skipscope.papers.kit.study import Evidence, Study
from skipscope.trace import trace
from skipscope.training.randomness import seed_of

if TYPE_CHECKING:
    import xarray

THRESHOLDS = (-2.5, 0.5)  # of the inner ReLUs of random units, in standard deviations: few to most of them active


@dataclass(frozen=True)
class LawSettings(Subjects):
    random_networks: int = 4  # each with its own weights and thresholds
    random_model: str = "resnet14-digits-n2"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_digits(self.random_model)
        if self.random_networks < 1:
            raise InputError(f"expected at least one random network, got {self.random_networks}")


def run(bench: Bench, settings: LawSettings) -> Evidence:
    parts = [
        bench.part(f"random-{number}", lambda number=number: _random(bench, settings, number))  # type: ignore[misc]
        for number in range(settings.random_networks)
    ]
    for subject in subjects(bench, settings):
        parts += _of(bench, subject)
    control = bench.part("control", lambda: _without_skips(bench, settings))
    return {"D3": evidence(parts, control)}


def evidence(parts: Sequence[xarray.Dataset], control: xarray.Dataset) -> dict[str, Any]:
    """Over all pairs of a unit that the law speaks of and a sample.

    Equality is asked of regular units alone, as the claim is about them: at the border of a padded skip columns of
    the branch's factors vanish, so that there are often more ones than proved.
    """
    generic = [(part["generic"] == 1) & (part["skip"] == "identity") for part in parts]
    equal = [which & (part["ones"] == part["ones_at_least"]) for which, part in zip(generic, parts, strict=True)]
    trained = {str(part.attrs["network"]) for part in parts if not part.attrs.get("random")}
    found: dict[str, Any] = {
        "trained networks": len(trained),
        "pairs": _total(part["size"].notnull() for part in parts),
        "bounds violated": _total(part["violated"] for part in parts),
        "pairs with 2 r < n - z": _total(generic),
        "ones without skips": int(control["ones"].sum()),
    }
    if found["pairs with 2 r < n - z"]:
        found["share of generic pairs with equality"] = _total(equal) / found["pairs with 2 r < n - z"]
    return found


def _total(arrays: Iterable[xarray.DataArray]) -> int:
    return sum(int(array.sum()) for array in arrays)


def _random(bench: Bench, settings: LawSettings, number: int) -> xarray.Dataset:
    seed = bench.seeds(settings.random_networks)[number]
    model = random_network(settings.random_model, seed).to(bench.device)
    images = random_images(model, settings.images, seed)
    return law(trace(model, images), images).assign_attrs(network=f"random units {number}", large=0, random=1)


def _of(bench: Bench, subject: Subject) -> list[xarray.Dataset]:
    """Of a large network one part a unit: each may be minutes of work, and a killed run loses one at most."""
    groups = [[name] for name in subject.names] if subject.large else [subject.names]
    parts = []
    for done, names in enumerate(groups):
        bench.steps(f"the law on {subject.title}")(done, len(groups))
        key = f"{subject.key}-{names[0]}" if subject.large else subject.key
        parts.append(bench.part(key, lambda names=names: _measured(subject, names)))  # type: ignore[misc]
    bench.steps(f"the law on {subject.title}")(len(groups), len(groups))
    return parts


def _measured(subject: Subject, names: Sequence[str]) -> xarray.Dataset:
    route = "gram" if subject.large else "svd"
    return described(law(subject.trunk, subject.images, units=names, route=route), subject)


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
    generator = torch.Generator().manual_seed(seed_of("images", seed))  # other numbers than those of the weights
    return torch.randn(count, weight.shape[1], 8, 8, generator=generator).to(weight.device)


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
    claims=decided_by("D.law"),
)
