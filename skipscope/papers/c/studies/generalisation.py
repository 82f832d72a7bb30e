"""C.generalisation: do better conditioned networks generalise better?

    skipscope study run C.generalisation --preset full --out DIR

The paper holds that networks whose hidden states are better conditioned generalise better (proposition 3), and gives no
test of it.

We expect no such relation. Forty configurations of fully connected networks, PlainNets, ResNets and ResNeXts of two
full-width paths, of 8 to 20 layers and three widths, and ResNets with branches of a tenth, are trained on 3000 images
of MNIST until they fit them: all of them have to reach a train accuracy of 0.99, none is left out. The rank correlation
of the median condition number of their states between blocks and of test minus train accuracy is taken over
configurations, with a bootstrap over them. Width moves both: wide networks are worse conditioned, and generalise
better.

It runs on a CPU, and has no preset quick: 40 networks take a quarter of an hour. The rate and the number of epochs were
chosen on seeds below 100.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, NamedTuple

import numpy
import xarray

from skipscope.constraints import Constrained, Expectation, at_least, not_empty
from skipscope.papers.c import PAPER
from skipscope.papers.c.layer_conditions import conditions
from skipscope.papers.c.subjects import (
    FAMILIES,
    PATHS,
    PLAIN,
    RESIDUAL,
    TWO_PATHS,
    Recipe,
    TwinSettings,
    TwinSubject,
    subject,
)
from skipscope.papers.c.twins import Reached, last_epoch
from skipscope.papers.kit import Bench, Claim, Evidence, Measured, Quantity, Study
from skipscope.papers.kit.estimates import BOOTSTRAP_FROM, RankCorrelation
from skipscope.runs.sweep import Task
from skipscope.training import accuracy
from skipscope.training.networks import Network

FITTED = 0.99  # train accuracy that all networks have to reach
TITLES = {PLAIN: PLAIN, RESIDUAL: RESIDUAL, PATHS: TWO_PATHS}  # of a configuration: what is trained
SUBJECT = "fitted networks on mnist"

RANK = Quantity("Spearman of cond of hidden states and test - train accuracy", "correlation")
WORST_FIT = Quantity("smallest train accuracy", "share")
CONDITIONS = Quantity("median log10 cond of hidden states")
GAPS = Quantity("test - train accuracy")

C14 = Claim(
    "C14",
    "Better conditioned networks generalise better.",
    "rank correlation of cond of hidden states with test minus train accuracy, over configurations that fit",
    criteria=(RANK.at_most(-0.5),),
    subjects={SUBJECT: 40},
    note="The paper gives no test of it.",
    cost="skipscope study run C.generalisation --preset full (15 minutes on one core)",
)
DEPTHS = (8, 12, 16, 20)
WIDTHS = ("-n2", "", "-w2")
POPULATION = (
    *(f"{title}:{depth}{width}" for title in (PLAIN, RESIDUAL, PATHS) for depth in DEPTHS for width in WIDTHS),
    *(f"{RESIDUAL}:{depth}-scale10" for depth in DEPTHS),
)


@dataclass(frozen=True)
class GeneralisationSettings(Constrained):
    population: Annotated[tuple[str, ...], not_empty] = POPULATION  # network:depth-options, fully connected
    data: str = "mnist"
    samples: Annotated[int | None, at_least(1)] = 3000
    test_samples: Annotated[int | None, at_least(1)] = None  # small differences count
    epochs: Annotated[int, at_least(1)] = 150
    rate: float = 0.1
    batch: Annotated[int, at_least(2)] = 128
    weight_decay: float = 1e-4
    images: Annotated[int, at_least(1)] = 1024  # training samples that networks are measured at

    def expectations(self) -> Iterator[Expectation]:
        for configuration in self.population:
            title, colon, form = configuration.partition(":")
            yield (
                title in TITLES and colon == ":" and form[:1].isdigit(),
                f"population: expected {', '.join(FAMILIES)}, a colon and a depth with options, such as ResNet:12-w2, "
                f"got {configuration}",
            )

    def plan(self, configuration: str) -> TwinSettings:
        title, _, form = configuration.partition(":")
        depth, hyphen, options = form.partition("-")
        source, colon, path = self.data.partition(":")
        return TwinSettings(
            subjects=(f"{source}-{depth}-connected{hyphen}{options}{colon}{path}",),
            titles=(TITLES[title],),
            samples=self.samples,
            test_samples=self.test_samples,
            networks=1,
            epochs=self.epochs,
            least_steps=1,
            batch=self.batch,
            rates=(self.rate,),
            warmups=(0,),
            schedule="cosine",
            weight_decay=self.weight_decay,
            looks=(1,),
            images=self.images,
        )


def run(bench: Bench, settings: GeneralisationSettings) -> Evidence:
    plans = {
        configuration.replace(":", "-").lower(): settings.plan(configuration) for configuration in settings.population
    }
    missing = [] if bench.has("") else [plan for name, plan in plans.items() if not bench.has(name)]
    if missing:  # all of them before any is measured, at the same time where that is possible
        bench.trained_fleet([_one(bench, plan).network for plan in missing])
    tasks = [Task(name, partial(measured, bench, plan)) for name, plan in plans.items()]
    found = bench.part("", partial(population, bench, settings, tasks))
    return evidence(found)


def population(bench: Bench, settings: GeneralisationSettings, tasks: list[Task]) -> xarray.Dataset:
    """One case per configuration; each is a dataset of its own, so that a run that was stopped goes on."""
    joined = xarray.concat(bench.sweep(tasks, "training the population"), "case")
    joined.attrs = {
        "measure": "generalisation",
        "title": "Conditioning of hidden states and generalisation",
        "data": str(joined["data"].values[0]),
    }
    return joined.drop_vars("data").assign(configuration=("case", list(settings.population)))


class _One(NamedTuple):
    """The one network of a configuration."""

    of: TwinSubject
    title: str
    recipe: Recipe
    network: Network


def _one(bench: Bench, plan: TwinSettings) -> _One:
    of = subject(bench, plan, plan.subjects[0], shown=False)
    (title,), (recipe,), (seed,) = of.models, plan.recipes, of.seeds
    return _One(of, title, recipe, of.twin(title, recipe).network(seed, bench.device))


def measured(bench: Bench, plan: TwinSettings) -> xarray.Dataset:
    """Accuracies and the median log10 condition number of states between blocks of one network."""
    one = _one(bench, plan)
    of, seed = one.of, one.network.seed
    (trained,) = bench.trained_fleet([one.network])
    epoch = last_epoch(trained, of.epochs)
    model = Reached(of, one.title, seed, one.recipe, epoch, trained, bench.device).at(epoch)
    row: dict[str, Any] = {
        "model": of.models[one.title],
        "seed": seed,
        "train_accuracy": accuracy(model, of.data.train),
        "test_accuracy": accuracy(model, of.data.test),
        "condition": _median(model, of.samples(bench.device)[0]),
        "data": of.data.name,
    }
    return xarray.Dataset({name: ("case", [value]) for name, value in row.items()}, attrs={"part": "piece"})


def _median(model: Any, images: Any) -> float:
    """Over states between blocks; infinite ones count as numerical infinity."""
    found = conditions(model, images)
    values = numpy.where(numpy.isinf(found["hidden_condition"]), found["hidden_infinity"], found["hidden_condition"])
    return float(numpy.median(numpy.log10(values[found["between"]])))


def evidence(found: xarray.Dataset) -> Evidence:
    gap, condition = (found["test_accuracy"] - found["train_accuracy"]).values, found["condition"].values
    seeds = tuple(int(seed) for seed in found["seed"].values)
    enough = len(seeds) >= BOOTSTRAP_FROM
    values = {
        RANK: RankCorrelation(condition.tolist(), gap.tolist()) if enough else None,
        WORST_FIT: float(found["train_accuracy"].min()),
        CONDITIONS: condition.tolist(),
        GAPS: gap.tolist(),
    }
    short = [str(model) for model in found["model"].values[found["train_accuracy"].values < FITTED]]
    unmet = f"train accuracies below {FITTED}: {', '.join(short)}" if short else ""
    name = SUBJECT if str(found.attrs["data"]).startswith("mnist") else f"fitted networks on {found.attrs['data']}"
    return {C14: [Measured(values, name, seeds, unmet=unmet)]}


STUDY = Study(
    PAPER,
    "generalisation",
    paper_found="No experiment: a bound by which better conditioned networks should generalise better.",
    we_expect="Bad conditioning is no sign of bad generalisation.",
    presets={
        "smoke": GeneralisationSettings(
            ("PlainNet:4-n4", "ResNet:4-n4", "ResNeXt:4-n4"), data="digits", samples=100, epochs=1, batch=50, images=50
        ),
        "full": GeneralisationSettings(),
        "paper": GeneralisationSettings(samples=None, epochs=60),
    },
    cost={
        "smoke": "seconds",
        "full": "15 minutes on one core",
        "paper": "with all images: hours on one core",
    },
    run=run,
    claims=(C14,),
)
