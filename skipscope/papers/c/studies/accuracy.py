"""C.accuracy: tables 1 to 4, figures 2 and 3 of paper C, how far very deep networks train with skips and without.

    skipscope study run C.accuracy --preset quick --out DIR
    skipscope study run C.accuracy --preset full --device cuda --set subjects=cifar100-110 --out DIR
    skipscope study run C.accuracy --preset paper --device cuda --set subjects=imagenet-101:PATH --out DIR

The paper finds PlainNets of 101 and 110 layers close to chance on MNIST, CIFAR-10, CIFAR-100 and ImageNet, ResNets that
fit the training images, and ResNeXts that do a little better in the test.

We expect the failure of PlainNets, though not quite at chance, and a small difference of ResNet and ResNeXt.

Rates from 1e-1 to 1e-4, with and without a warm-up, are compared on one calibration seed; two of them go on
(`skipscope.papers.c.twins`). PlainNet counts at the better of both for each network, which favours it. What it reaches
is the share of what is possible above chance, so that one threshold fits 10 classes and 100.

A ResNeXt of basic blocks is a wider ResNet: its paths, side by side, are one branch. With 8 paths as wide as the stage
it has 8 times the parameters. C2 is therefore judged with bottlenecks, of which four paths have ResNet's parameters to
within 1 %; two full-width paths of basic blocks, the paper's equation 4, stand beside it:

    --set subjects=cifar10-110-bottleneck --set "titles=ResNet,ResNeXt of 4 paths" --set networks=9 --set go_on=1
    --set subjects=cifar10-110 --set "titles=ResNet,ResNeXt of 2 paths" --set networks=9 --set go_on=1

At the preset quick there are 3000 images for 12 epochs at a constant rate: in as many steps with 6000 images, which we
tried first, ResNets of 60 layers came to a train accuracy of 0.92 only. The paper's table 3 says 101 layers for
CIFAR-100, its figures 110. It does not mention norms: ours have batch norms, without which fully connected residual
networks diverge at all rates of the grid.
"""

from __future__ import annotations

from functools import partial

import numpy
import xarray

from skipscope.papers.c import PAPER
from skipscope.papers.c.subjects import (
    COST_OF_DEEP,
    DEEP,
    KNOWN,
    PLAIN,
    RESIDUAL,
    TWIN_PRESETS,
    WITH_PATHS,
    Reader,
    TwinSettings,
    fit_asked,
    gathered,
    subjects,
    unfitted,
)
from skipscope.papers.c.twins import twins
from skipscope.papers.kit import Bench, Claim, Evidence, Quantity, Study

ACCURACY = {
    (what, title): Quantity(f"{what} accuracy, {title}", "share") for what in ("train", "test") for title in KNOWN
}
ABOVE_CHANCE = Quantity("train accuracy above chance / what is possible, PlainNet", "share")
FIT = Quantity("train accuracy, ResNet / what is asked (0.95; 0.7 with 100 classes)", "ratio")
GAIN = Quantity("test accuracy, ResNeXt - ResNet")

C1 = Claim(
    "C1",
    "A very deep PlainNet does not train.",
    "train accuracy above chance over what is possible, at the better of two rates",
    criteria=(ABOVE_CHANCE.at_most(0.25),),
    controls=(FIT.at_least(1.0),),
    subjects=DEEP,
    cost=COST_OF_DEEP,
)
C2 = Claim(
    "C2",
    "ResNeXt is better than ResNet.",
    "difference of test accuracies, seed by seed, with equal numbers of parameters",
    criteria=(GAIN.above(0.0),),
    subjects={"cifar10-110-bottleneck": 9, "cifar10-110": 9, "cifar100-110-bottleneck": 9},
    note="The paper has 0.14 to 1.16 points: too little for small networks to show.",
    cost=(
        "skipscope study run C.accuracy --preset full --device cuda --set subjects=cifar10-110-bottleneck "
        "--set 'titles=ResNet,ResNeXt of 4 paths' --set networks=9 --set go_on=1 (about 25 minutes of one H200)"
    ),
)


def run(bench: Bench, settings: TwinSettings) -> Evidence:
    return evidence({name: twins(bench, of) for name, of in subjects(bench, settings).items()})


def evidence(found: dict[str, xarray.Dataset]) -> Evidence:
    titles = [str(title) for title in next(iter(found.values()))["network"].values]
    accuracies: dict[Quantity, Reader] = {
        ACCURACY[what, title]: partial(of_title, what=what, title=title)
        for what in ("train", "test")
        for title in titles
    }
    claims = {}
    if PLAIN in titles and RESIDUAL in titles:
        judged: dict[Quantity, Reader] = {ABOVE_CHANCE: above_chance, FIT: fit}
        claims[C1] = gathered(found, {**judged, **accuracies}, unfitted)
    paths = [title for title in titles if title in WITH_PATHS]
    if paths and RESIDUAL in titles:
        gain: dict[Quantity, Reader] = {
            GAIN: lambda data: of_title(data, "test", paths[0]) - of_title(data, "test", RESIDUAL)
        }
        claims[C2] = gathered(found, {**gain, **accuracies}, unfitted)
    return claims


def of_title(dataset: xarray.Dataset, what: str, title: str) -> numpy.ndarray:
    """Accuracy in "train" or "test" of what a network reached at the measured rate, one value per network."""
    return dataset[f"reached_{what}_accuracy"].sel(network=title).values


def above_chance(dataset: xarray.Dataset) -> numpy.ndarray:
    """PlainNet's at the better rate; where it diverges at all of them, of its last look."""
    chance = float(dataset.attrs["chance"])
    best = numpy.fmax(
        dataset["train_accuracy"].sel(network=PLAIN).max("rate").values, of_title(dataset, "train", PLAIN)
    )
    return numpy.maximum((best - chance) / (1 - chance), 0.0)


def fit(dataset: xarray.Dataset) -> numpy.ndarray:
    return of_title(dataset, "train", RESIDUAL) / fit_asked(dataset)


STUDY = Study(
    PAPER,
    "accuracy",
    paper_found="PlainNets of 100 layers stay close to chance; ResNets fit, and ResNeXts are a little better.",
    we_expect="PlainNets fail; ResNet and ResNeXt do nearly alike.",
    presets=TWIN_PRESETS,
    cost={
        "smoke": "seconds",
        "quick": "8 minutes on one core",
        "full": "45 minutes of one H200 per subject, of which every 10 minutes can be a command: --resume goes on",
        "paper": "days of one GPU; ImageNet, of which --set subjects=imagenet-101:PATH names the folder, weeks",
    },
    run=run,
    claims=(C1, C2),
)
