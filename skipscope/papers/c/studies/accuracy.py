"""C.accuracy: tables 1 to 4, figures 2 and 3 of paper C, how far very deep networks train with skips and without.

    skipscope study run C.accuracy --preset quick --out DIR
    skipscope study run C.accuracy --preset full --device cuda --set subjects=cifar100-110 --out DIR
    skipscope study run C.accuracy --preset paper --device cuda --set subjects=imagenet-101:PATH --out DIR

The paper finds PlainNets of 101 and 110 layers close to chance on MNIST, CIFAR-10, CIFAR-100 and ImageNet, ResNets that
fit the training images, and ResNeXts that do a little better in the test. It holds that networks whose hidden states
are better conditioned generalise better, and gives no test of it.

We expect the failure of PlainNets, though not quite at chance, and a small difference of ResNet and ResNeXt. Whether
conditioning goes with generalisation is open: ResNets of several depths, widths and branch scales (`sweep`) are trained
until they fit, and those with a train accuracy of 0.99 are compared. Width moves both: wide networks are worse
conditioned, and generalise better.

Every network is trained at every rate of the grid and is judged at its best one, by train accuracy. At the preset full
PlainNet has one rate more than the others: the comparison favours it. At the preset quick there are 3000 images for 12
epochs at a constant rate: in as many steps with 6000 images, which we tried first, ResNets of 60 layers came to a train
accuracy of 0.92 only. The paper's table 3 says 101 layers for CIFAR-100, its figures 110. It does not mention norms:
ours have batch norms, without which fully connected residual networks diverge at all rates of the grid.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import numpy
import xarray
from scipy.stats import spearmanr

from skipscope.constraints import Expectation, at_least
from skipscope.papers.c import PAPER
from skipscope.papers.c.layer_conditions import layer_conditions, medians
from skipscope.papers.c.subjects import (
    AS_IN_PAPER,
    FULL,
    KNOWN,
    PATHS,
    PLAIN,
    QUICK,
    RESIDUAL,
    SMOKE,
    TwinSettings,
    TwinSubject,
    gathered,
    subject,
    subjects,
)
from skipscope.papers.c.twins import twins
from skipscope.papers.kit import Bench, Claim, Evidence, Quantity, Study

FITTED = 0.99  # train accuracy from which on networks are compared
COMPARED = 3  # networks from which on there is a rank correlation


ACCURACY = {(what, title): Quantity(f"{what} accuracy, {title}") for what in ("train", "test") for title in KNOWN}
GAIN = Quantity("test accuracy, ResNeXt - ResNet")
RANK = Quantity("Spearman of cond of hidden states and test - train accuracy")
FITTED_NETWORKS = Quantity("networks")
WORST_FIT = Quantity("smallest train accuracy")
P_VALUE = Quantity("p-value")
LEFT_OUT = Quantity("networks that do not fit, left out")
CONDITIONS = Quantity("median log10 cond of hidden states")
GAPS = Quantity("test - train accuracy")

C1 = Claim(
    "C1",
    "A very deep PlainNet does not train.",
    "train accuracy at the best learning rate of a grid",
    criteria=(ACCURACY["train", PLAIN].at_most(0.35),),
    controls=(ACCURACY["train", RESIDUAL].at_least(0.95),),
    seeds=3,
)
C2 = Claim(
    "C2",
    "ResNeXt is better than ResNet.",
    "difference of test accuracies, seed by seed",
    criteria=(GAIN.above(0.0),),
    seeds=3,
    presets=("full", "paper"),
    note="The paper has 0.14 to 1.16 points: too little for small networks to show.",
)
C14 = Claim(
    "C14",
    "Better conditioned networks generalise better.",
    "rank correlation of cond of hidden states with test minus train accuracy, across fully trained networks",
    criteria=(RANK.at_most(-0.5),),
    controls=(FITTED_NETWORKS.at_least(10.0), WORST_FIT.at_least(FITTED)),
    note="The paper gives no test of it. Networks below a train accuracy of 0.99 are left out: the second control.",
)


@dataclass(frozen=True)
class AccuracySettings(TwinSettings):
    sweep: tuple[str, ...] = tuple(
        f"mnist-{depth}-connected{options}" for depth in (8, 20) for options in ("", "-n2", "-w2", "-scale10")
    )
    sweep_networks: Annotated[int, at_least(1)] = 2  # seeds
    sweep_epochs: int = 12
    sweep_rate: float = 0.1

    def expectations(self) -> Iterator[Expectation]:
        yield from super().expectations()
        # The settings of the networks that are compared check themselves when they are made.
        yield not self.sweep or bool(self.swept.subjects), "sweep: expected subjects, got none"

    @property
    def swept(self) -> TwinSettings:
        """Of the networks that are compared: ResNets at one rate, on images as they are, so that they fit them."""
        return TwinSettings(
            subjects=self.sweep,
            titles=(RESIDUAL,),
            samples=self.samples,
            test_samples=None,  # small differences count
            networks=self.sweep_networks,
            epochs=self.sweep_epochs,
            least_steps=2 * self.least_steps,
            batch=self.batch,
            rates=(self.sweep_rate,),
            schedule="cosine",
            weight_decay=self.weight_decay,
            augmentation="none",
            precision=self.precision,
            looks=(1,),
            images=self.images,
        )


def run(bench: Bench, settings: AccuracySettings) -> Evidence:
    found = {text: twins(bench, of) for text, of in subjects(bench, settings).items()}
    swept = [subject(bench, settings.swept, text, shown=False) for text in settings.sweep]
    fitted = bench.part("generalisation", partial(generalisation, bench, swept)) if swept else None
    return evidence(found, settings.deciding, fitted)


def generalisation(bench: Bench, swept: list[TwinSubject]) -> xarray.Dataset:
    """Accuracies and the median log10 condition number of states between blocks, one entry per network."""
    rows: dict[str, list[Any]] = {
        name: [] for name in ("model", "seed", "train_accuracy", "test_accuracy", "condition")
    }
    for of in swept:
        trained, states = twins(bench, of).sel(network=RESIDUAL), layer_conditions(bench, of)
        rows["model"] += [of.models[RESIDUAL]] * len(of.seeds)
        rows["seed"] += of.seeds
        rows["train_accuracy"] += trained["reached_train_accuracy"].values.tolist()
        rows["test_accuracy"] += trained["reached_test_accuracy"].values.tolist()
        rows["condition"] += medians(states, "hidden", RESIDUAL).tolist()
    return xarray.Dataset(
        {name: ("case", values) for name, values in rows.items()},
        attrs={
            "measure": "generalisation",
            "title": "Conditioning of hidden states and generalisation",
            "data": ", ".join(dict.fromkeys(of.data.name for of in swept)),
        },
    )


def evidence(
    found: dict[str, xarray.Dataset], deciding: tuple[str, ...] = (), fitted: xarray.Dataset | None = None
) -> Evidence:
    titles = [str(title) for title in next(iter(found.values()))["network"].values]
    accuracies = {
        ACCURACY[what, title]: partial(of_title, what=what, title=title)
        for what in ("train", "test")
        for title in titles
    }
    claims = {C1: gathered(found, deciding, accuracies)}
    if PATHS in titles and RESIDUAL in titles:
        gain = {GAIN: lambda data: of_title(data, "test", PATHS) - of_title(data, "test", RESIDUAL)}
        claims[C2] = gathered(found, deciding, gain)
    return claims | ({} if fitted is None else {C14: _generalising(fitted)})


def of_title(dataset: xarray.Dataset, what: str, title: str) -> numpy.ndarray:
    """Accuracy in "train" or "test" of what a network reached at its best rate, one value per seed."""
    return dataset[f"reached_{what}_accuracy"].sel(network=title).values


def _generalising(fitted: xarray.Dataset) -> dict[Quantity, Any]:
    accurate = fitted.isel(case=fitted["train_accuracy"].values >= FITTED)
    gap = (accurate["test_accuracy"] - accurate["train_accuracy"]).values
    count = accurate.sizes["case"]
    rank, chance = spearmanr(accurate["condition"].values, gap) if count >= COMPARED else (None, None)
    return {
        RANK: None if rank is None else float(rank),
        FITTED_NETWORKS: count,
        WORST_FIT: float(accurate["train_accuracy"].min()) if count else None,
        P_VALUE: None if chance is None else float(chance),
        LEFT_OUT: fitted.sizes["case"] - count,
        CONDITIONS: accurate["condition"].values.tolist(),
        GAPS: gap.tolist(),
    }


CIFAR_SWEEP = tuple(f"cifar10-{depth}{options}" for depth in (8, 14, 20) for options in ("", "-w2", "-scale10"))
STUDY = Study(
    PAPER,
    "accuracy",
    paper_found="PlainNets of 100 layers stay close to chance; ResNets fit, and ResNeXts are a little better.",
    we_expect="PlainNets fail; ResNet and ResNeXt do nearly alike; bad conditioning is no sign of bad generalisation.",
    presets={
        "smoke": AccuracySettings(
            **SMOKE,
            sweep=("digits-4-connected-n4",),
            sweep_networks=1,
            sweep_epochs=1,
        ),
        "quick": AccuracySettings(**QUICK),
        "full": AccuracySettings(**FULL, sweep=CIFAR_SWEEP, sweep_epochs=30),
        "paper": AccuracySettings(**AS_IN_PAPER, sweep=CIFAR_SWEEP, sweep_networks=3, sweep_epochs=100),
    },
    cost={
        "smoke": "seconds",
        "quick": "8 minutes on one core",
        "full": "half an hour of one GPU per subject, of which every 10 minutes can be a command: --resume goes on",
        "paper": "days of one GPU; ImageNet, of which --set subjects=imagenet-101:PATH names the folder, weeks",
    },
    run=run,
    claims=(C1, C2, C14),
)
