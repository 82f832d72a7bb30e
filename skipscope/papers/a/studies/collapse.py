"""A.collapse: does alignment come together with neural collapse?

    skipscope study run A.collapse --preset quick --out DIR

The paper finds that residual alignment and neural collapse (features of a class that shrink to their mean) appear in
the same networks. We look at both along the training: NC1 of the features before the classifier over the training
samples, and m_K of all pairs of blocks at some of them.

We expect both to fall, and in the same order of epochs. At the preset quick the networks are those of A.alignment.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import xarray
from scipy.stats import spearmanr

from skipscope.measure import collapse
from skipscope.papers.a import PAPER
from skipscope.papers.a.emergence import emergence
from skipscope.papers.a.subjects import LOOKS, SMOKE, TrainingSettings, subject
from skipscope.papers.kit import SEEDS, Bench, Claim, Evidence, Quantity, Study, Subject
from skipscope.runs.sweep import Task

NC1 = Quantity("NC1, last / first epoch")
COUPLING = Quantity("m_K, last / first epoch")
SPEARMAN = Quantity("Spearman of NC1 and m_K over epochs")
EPOCHS = Quantity("epochs")
A12 = Claim(
    "A12",
    "Alignment comes together with neural collapse.",
    "NC1 of the last layer and m_K across epochs",
    criteria=(NC1.below(1.0), COUPLING.below(1.0), SPEARMAN.at_least(0.7)),
    seeds=3,
)


@dataclass(frozen=True)
class CollapseSettings(TrainingSettings):
    subject: str = "type1-mnist"


def run(bench: Bench, settings: CollapseSettings) -> Evidence:
    chosen = subject(bench, settings, settings.subject)
    aligned = emergence(bench, chosen)
    tasks = [Task(f"{chosen.model}-{seed}", partial(_along, bench, chosen, seed)) for seed in chosen.seeds]
    return evidence(aligned, dict(zip(chosen.seeds, bench.sweep(tasks), strict=True)))


def evidence(aligned: xarray.Dataset, found: Mapping[int, xarray.Dataset]) -> Evidence:
    """aligned: `coupling_all` (seed, epoch). found: `nc1` (epoch, layer) by seed; fewer epochs where one diverged."""
    rows: dict[Quantity, list[float]] = {NC1: [], COUPLING: [], SPEARMAN: []}
    for seed, along in found.items():
        if along.sizes["epoch"] < aligned.sizes["epoch"]:
            for values in rows.values():
                values.append(math.nan)
            continue
        nc1 = along["nc1"].isel(layer=-1).values
        coupling = aligned["coupling_all"].sel(seed=seed).values
        rows[NC1].append(float(nc1[-1] / nc1[0]))
        rows[COUPLING].append(float(coupling[-1] / coupling[0]))
        rows[SPEARMAN].append(float(spearmanr(nc1, coupling)[0]))
    return {A12: {SEEDS: len(found), **rows, EPOCHS: aligned["epoch"].values.tolist()}}


def _along(bench: Bench, chosen: Subject, seed: int) -> xarray.Dataset:
    """(epoch, layer), over all training samples."""
    network = chosen.trained(bench, seed)
    progress = bench.steps(f"neural collapse of {chosen.title}, seed {seed}")
    model, found = network.model, []
    epochs = [epoch for epoch in chosen.looks if epoch in network.snapshots]
    for done, epoch in enumerate(epochs):
        progress(done, len(epochs))
        model.load_state_dict(dict(network.snapshots[epoch]))
        found.append(collapse(model, chosen.data.train.to(bench.device)))
    whole = xarray.concat(found, xarray.DataArray(epochs, dims="epoch", name="epoch"), combine_attrs="drop_conflicts")
    about = {"title": chosen.title, "network": f"{chosen.model}, seed {seed}", "seed": seed}
    return whole.assign_attrs(measure="collapse_along", **about)


STUDY = Study(
    PAPER,
    "collapse",
    paper_found="Residual alignment and neural collapse come together.",
    we_expect="Both fall along the training, in the same order of epochs.",
    presets={
        "smoke": CollapseSettings(**SMOKE, subject="type1-digits"),
        "quick": CollapseSettings(),
        "full": CollapseSettings(looks=(*LOOKS[:-1], 0.1, 0.25, 0.55, 0.85, 1.0)),
        "paper": CollapseSettings(looks=tuple(step / 25 for step in range(26)), samples=None),
    },
    cost={
        "smoke": "seconds",
        "quick": "5 minutes on 2 cores, or seconds after A.alignment, whose networks it looks at",
        "full": "5 minutes on one GPU",
        "paper": "an hour on one GPU",
    },
    run=run,
    claims=(A12,),
)
