"""D.law: the exact law of a residual unit's spectrum against counted singular values.

    skipscope study run D.law --preset quick --out DIR
    skipscope study run D.law --preset full --device cuda --weights resnet56.pt --data cifar10:PATH --out DIR

The paper finds many singular values near 1 and near 0. Ours: with n outputs, z of them inactive, and r active inner
ReLUs, at least z singular values are 0 and at least n - z - 2 r are exactly 1, at most r above and r between, and
generically these are equalities. Counted on random convolutional units, on networks trained on digits and, where its
weights are given, on a ResNet-56 for CIFAR-10. The same blocks without their skips are the control: no value 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from skipscope.linear import Jacobian
from skipscope.measure import law
from skipscope.measure.spectra import spectra_of
from skipscope.models.names import build
from skipscope.models.resnet import ResNet
from skipscope.models.weights import load_weights
from skipscope.studies.bench import Bench
from skipscope.studies.study import Evidence, Study
from skipscope.trace import trace
from skipscope.training import Settings

if TYPE_CHECKING:
    import xarray

THRESHOLDS = (-2.5, 0.5)  # of the inner ReLUs of random units, in standard deviations: few to most of them active


@dataclass(frozen=True)
class LawSettings:
    random_networks: int  # each with its own weights and thresholds
    random_model: str
    model: str  # the trained network
    epochs: int
    networks: int  # trained ones, each from its own seed
    images: int  # on which the random and the trained networks are measured
    weights: str = ""  # of a ResNet-56 for CIFAR-10; without them that part is left out
    data: str = "cifar10"  # the images for that network
    units: tuple[str, ...] = ()  # of that network; none named: all
    resnet56_images: int = 1


def run(bench: Bench, settings: LawSettings) -> Evidence:
    parts = [
        *(bench.part(f"random-{k}", lambda k=k: _random(bench, settings, k)) for k in range(settings.random_networks)),  # type: ignore[misc]
        *(bench.part(f"digits-{k}", lambda k=k: _trained(bench, settings, k)) for k in range(settings.networks)),  # type: ignore[misc]
        *_resnet56(bench, settings),
    ]
    control = bench.part("control", lambda: _without_skips(bench, settings))
    return {"D3": evidence(parts, control)}


def evidence(parts: list[xarray.Dataset], control: xarray.Dataset) -> dict[str, Any]:
    """Over all pairs of a unit that the law speaks of and a sample.

    Equality is asked of regular units alone, as the claim is about them: at the border of a padded skip columns of
    the branch's factors vanish, so that there are often more ones than proved.
    """
    generic = [(part["generic"] == 1) & (part["skip"] == "identity") for part in parts]
    equal = [which & (part["ones"] == part["ones_at_least"]) for which, part in zip(generic, parts, strict=True)]
    found: dict[str, Any] = {
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
    model = _random_network(settings.random_model, bench.seed + number).to(bench.device)
    return _measured(model, _noise(model, settings, bench.seed + number), f"random units {number}")


def _trained(bench: Bench, settings: LawSettings, number: int) -> xarray.Dataset:
    data = bench.data("digits")
    training = Settings(epochs=settings.epochs)
    found = bench.trained(settings.model, data, training, seed=bench.seed + number)
    images = data.test_batch(settings.images, bench.seed).to(bench.device)
    dataset = _measured(found.model, images, f"trained on digits {number}")
    return dataset.assign_attrs(test_accuracy=found.test_accuracy, diverged=int(found.diverged))


def _resnet56(bench: Bench, settings: LawSettings) -> Iterator[xarray.Dataset]:
    """One part a unit: each is minutes of work on a CPU, and a killed run loses one unit."""
    file = bench.file(settings.weights)
    if file is None:
        bench.note("D.law: no weights of a ResNet-56 were given, so it was left out")
        return
    data = bench.data(settings.data)
    if data.stands_in_for:
        bench.note(f"D.law: {data.stands_in_for} was not found, so the ResNet-56 was left out")
        return
    model = build("resnet56-cifar").eval()
    load_weights(model, file)
    model.to(bench.device)
    images = data.test_batch(settings.resnet56_images, bench.seed).to(bench.device)
    names = settings.units or tuple(model.blocks)
    for done, name in enumerate(names):
        bench.steps("D.law, ResNet-56")(done, len(names))
        yield bench.part(
            f"resnet56-{name}",
            lambda name=name: law(trace(model, images), images, units=[name], route="gram").assign_attrs(  # type: ignore[misc]
                network="ResNet-56"
            ),
        )
    bench.steps("D.law, ResNet-56")(len(names), len(names))


def _without_skips(bench: Bench, settings: LawSettings) -> xarray.Dataset:
    """The plain twin of the first random network: the same blocks at their own states, without their skips."""
    model = _random_network(settings.random_model, bench.seed, skips=False).to(bench.device)
    images = _noise(model, settings, bench.seed).double()
    model.double()
    operators = {}
    with torch.no_grad():
        state = model.stem(images)
        for name, block in model.blocks.items():
            operators[name] = Jacobian(block, state, name=name)
            state = block(state)
    return spectra_of(operators, route="svd").assign_attrs(network="random units without skips")


def _measured(model: ResNet, images: Tensor, title: str) -> xarray.Dataset:
    return law(trace(model, images), images).assign_attrs(network=title)


def _random_network(name: str, seed: int, *, skips: bool = True) -> ResNet:
    """Gaussian weights, and a random threshold of the inner ReLUs in every block."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = build(name if skips else name.replace("resnet", "plainnet"))
        low, high = THRESHOLDS
        with torch.no_grad():
            for block in model.blocks.values():
                inner, outer = (norm for norm in block.children() if isinstance(norm, nn.BatchNorm2d))
                inner.bias.fill_(float(torch.empty(()).uniform_(low, high)))
                outer.bias.normal_()
    return model.eval()


def _noise(model: ResNet, settings: LawSettings, seed: int) -> Tensor:
    weight = model.conv.weight
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(settings.images, weight.shape[1], 8, 8, generator=generator).to(weight.device)


LAW = Study(
    id="D.law",
    title="The exact law of a unit's spectrum",
    paper_found="Many singular values of a residual unit lie near 1 and near 0, and the share changes with depth.",
    we_expect="Counts of zeros and ones follow from counts of inactive ReLUs, exactly, on every unit with 2 r < n - z.",
    presets={
        "smoke": LawSettings(1, "resnet8-digits-n8", "resnet8-digits-n8", epochs=1, networks=1, images=2),
        "quick": LawSettings(
            *(4, "resnet14-digits-n2", "resnet20-digits"),
            epochs=15,
            networks=3,
            images=3,
            units=("stage3.2", "stage3.4", "stage3.6"),
        ),
        "full": LawSettings(
            *(8, "resnet20-digits", "resnet20-digits"), epochs=15, networks=3, images=5, resnet56_images=5
        ),
    },
    cost={
        "smoke": "seconds",
        "quick": "about 5 minutes on 2 cores, and a minute more for each unit of the ResNet-56",
        "full": "under 10 minutes on one GPU",
    },
    run=run,
)
