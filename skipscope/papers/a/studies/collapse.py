"""A.collapse: does alignment come together with neural collapse?

    skipscope study run A.collapse --preset quick --out DIR   # along the training alone
    skipscope study run A.collapse --preset full --out DIR    # 80 networks as well

The paper finds that residual alignment and neural collapse (features of a class that shrink to their mean) appear in
the same networks. Two things that both fall along a training say little: NC1 of the features before the classifier
falls in networks that never align, too. So networks are compared with each other after their training. They differ in
weight decay, in the share of random labels and in the number of samples; those without decay must not align.

We expect the networks with the smallest NC1 to be the most aligned ones. Curves along the training of the networks of
A.alignment are reported.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Annotated, Any

import numpy
import xarray
from scipy.stats import spearmanr

from skipscope.constraints import at_least, each, from_to
from skipscope.measure import collapse
from skipscope.papers.a import PAPER
from skipscope.papers.a.emergence import emergence, followed, train_all
from skipscope.papers.a.quantities import ALL_PAIRS, trend
from skipscope.papers.a.subjects import LOOKS, SMOKE, TrainingSettings, judged_as, subject
from skipscope.papers.kit import Bench, Claim, Evidence, Measured, Part, Quantity, Study, Subject
from skipscope.runs.sweep import Task

POPULATION, ALONG = ", population", ", along the training"
LEAST_NETWORKS = 80

ACROSS = Quantity("Spearman of log NC1 and m_K / chance across networks", "correlation")
PAIRS_WITHOUT_DECAY = Quantity(f"{ALL_PAIRS}, without weight decay", "ratio")
NC1 = Quantity("NC1, last / first epoch", "ratio")
COUPLING = Quantity("m_K, last / first epoch", "ratio")
SPEARMAN = Quantity("Spearman of NC1 and m_K over epochs", "correlation")
EPOCHS = Quantity("epochs")
A12 = Claim(
    "A12",
    "Alignment comes together with neural collapse.",
    "NC1 of the last layer and m_K / chance across networks that differ in decay, label noise and samples",
    parts=(
        Part(
            "",
            (ACROSS.at_least(0.5),),
            (PAIRS_WITHOUT_DECAY.above(0.77),),  # they must not align
            subject=f"type1-mnist{POPULATION}",
        ),
    ),
    subjects={f"type1-mnist{POPULATION}": LEAST_NETWORKS},
    note="A correlation of 0.7 is shown beside the 0.5 that decides. Curves along the training are reported.",
)


@dataclass(frozen=True)
class CollapseSettings(TrainingSettings):
    subject: str = "type1-mnist"
    # The population: all combinations of these; none of one of them leaves it out.
    decays: Annotated[tuple[float, ...], each(at_least(0))] = ()
    noises: Annotated[tuple[float, ...], each(from_to(0, 1))] = (0.0, 0.1, 0.25, 0.5)
    sizes: Annotated[tuple[int, ...], each(at_least(1))] = (1500, 3000)  # training samples
    members: Annotated[int, at_least(1)] = 2  # networks of each combination


def run(bench: Bench, settings: CollapseSettings) -> Evidence:
    chosen = subject(bench, settings, settings.subject)
    aligned, name = emergence(bench, chosen), judged_as(settings.subject, chosen)
    tasks = [Task(f"{chosen.model}-{seed}", partial(_along, bench, chosen, seed)) for seed in chosen.seeds]
    found = [along(aligned, dict(zip(chosen.seeds, bench.sweep(tasks), strict=True)), name)]
    members = list(_members(bench, settings))
    if members:
        train_all(bench, members)
        found.insert(0, across(bench.part("population", lambda: _population(bench, members)), name))
    return {A12: found}


# -- across networks


def _members(bench: Bench, settings: CollapseSettings) -> Iterator[Subject]:
    """Subjects of the population, looked at after their training alone."""
    for decay, noise, samples in product(settings.decays, settings.noises, settings.sizes):
        training = replace(settings, weight_decay=decay, decay_budget=None, samples=samples)
        one = subject(
            bench,
            training,
            settings.subject,
            label_noise=noise,
            seeds=bench.seeds(settings.members),
            title=f"decay {decay:g}, {100 * noise:g} % random labels, {samples} samples",
        )
        yield replace(one, looks=(settings.epochs,))


def _population(bench: Bench, members: Sequence[Subject]) -> xarray.Dataset:
    """(network): what it is trained on and how, and what came of it."""
    rows: list[dict[str, Any]] = []
    for one in members:
        for seed, piece in zip(one.seeds, followed(bench, one, [bench.study]), strict=True):
            network = one.trained(bench, seed)
            nc1 = math.nan if network.diverged else float(collapse(network.model, _train(one, bench))["nc1"][-1])
            names = ("over_chance_all", "line_shape", "train_accuracy", "test_accuracy")
            measured = {name: float(piece[name].isel(seed=0, epoch=-1)) for name in names}
            about = {"seed": seed, "weight_decay": one.training.weight_decay, "data": one.data.name}
            rows.append({"case": one.title, **about, "nc1": nc1, **measured})
    return xarray.Dataset(
        {key: ("network", [row[key] for row in rows]) for key in rows[0]},
        {"network": range(len(rows))},
        {"measure": "alignment_population", "network": members[0].model, "title": "a population"},
    )


def _train(of: Subject, bench: Bench) -> Any:
    return of.data.train.to(bench.device)


def across(population: xarray.Dataset, name: str) -> Measured:
    """population: `nc1`, `over_chance_all`, `weight_decay`, `case` and `seed` (network). name: of the subject."""
    cases = [str(case) for case in population["case"].values]
    coupled = population["over_chance_all"].values
    nc1 = numpy.log(population["nc1"].values)
    rising, too_few = trend(ACROSS, nc1.tolist(), coupled.tolist(), cases)
    without = coupled[population["weight_decay"].values == 0]
    return Measured(
        {**rising, **({PAIRS_WITHOUT_DECAY: without.tolist()} if without.size else {})},
        f"{name}{POPULATION}",
        tuple(int(seed) for seed in population["seed"].values),
        unmet=too_few,
    )


# -- along the training


def along(aligned: xarray.Dataset, found: Mapping[int, xarray.Dataset], name: str) -> Measured:
    """aligned: `coupling_all` (seed, epoch). found: `nc1` (epoch, layer) by seed; fewer epochs where one diverged."""
    rows: dict[Quantity, list[float]] = {NC1: [], COUPLING: [], SPEARMAN: []}
    for seed, of_seed in found.items():
        if of_seed.sizes["epoch"] < aligned.sizes["epoch"]:
            for values in rows.values():
                values.append(math.nan)
            continue
        nc1 = of_seed["nc1"].isel(layer=-1).values
        coupling = aligned["coupling_all"].sel(seed=seed).values
        rows[NC1].append(float(nc1[-1] / nc1[0]))
        rows[COUPLING].append(float(coupling[-1] / coupling[0]))
        rows[SPEARMAN].append(float(spearmanr(nc1, coupling)[0]))
    epochs = {EPOCHS: aligned["epoch"].values.tolist()}
    return Measured({**rows, **epochs}, f"{name}{ALONG}", tuple(found))


def _along(bench: Bench, chosen: Subject, seed: int) -> xarray.Dataset:
    """(epoch, layer), over all training samples."""
    network = chosen.trained(bench, seed)
    model, found = network.model, []
    epochs = [epoch for epoch in chosen.looks if epoch in network.snapshots]
    for epoch in bench.each(f"neural collapse of {chosen.title}, seed {seed}", epochs):
        model.load_state_dict(dict(network.snapshots[epoch]))
        found.append(collapse(model, _train(chosen, bench)))
    whole = xarray.concat(found, xarray.DataArray(epochs, dims="epoch", name="epoch"), combine_attrs="drop_conflicts")
    about = {"title": chosen.title, "network": f"{chosen.model}, seed {seed}", "seed": seed}
    return whole.assign_attrs(measure="collapse_along", **about)


DECAYS = (0.0, 1e-3, 2e-3, 5e-3, 1e-2)
STUDY = Study(
    PAPER,
    "collapse",
    paper_found="Residual alignment and neural collapse come together.",
    we_expect="The networks with the smallest NC1 are the most aligned ones; both fall along the training.",
    presets={
        "smoke": CollapseSettings(
            **SMOKE, subject="type1-digits", decays=(0.0, 5e-3), noises=(0.0,), sizes=(100,), members=1
        ),
        "quick": CollapseSettings(),
        "full": CollapseSettings(decays=DECAYS),
        "paper": CollapseSettings(
            looks=(*LOOKS[:-1], 0.1, 0.25, 0.55, 0.85, 1.0), decays=DECAYS, sizes=(1500, 3000, 12000)
        ),
    },
    cost={
        "smoke": "seconds",
        "quick": "a minute after A.alignment, whose networks it looks at, else 12 minutes on 2 cores",
        "full": "40 minutes on 2 cores: 80 networks, and the 8 of A.alignment",
        "paper": "hours of one GPU",
    },
    run=run,
    claims=(A12,),
)
