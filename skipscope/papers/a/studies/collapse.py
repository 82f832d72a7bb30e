"""A.collapse: does alignment come together with neural collapse?

    skipscope study run A.collapse --preset quick --out DIR

The paper finds that residual alignment and neural collapse (features of a class that shrink to their mean) appear in
the same networks. We look at both along the training: NC1 of the features before the classifier over the training
samples, and m_K of all pairs of blocks at some of them.

We expect both to fall, and in the same order of epochs. At the preset quick the networks are those
of A.alignment.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from scipy.stats import spearmanr

from skipscope.measure import collapse
from skipscope.papers.a import PAPER
from skipscope.papers.a.cases import LOOKS, SMOKE, Case, Training, case, emergence, trained
from skipscope.papers.a.claims import decided_by
from skipscope.papers.kit.bench import Bench
from skipscope.papers.kit.study import Evidence, Study

if TYPE_CHECKING:
    import xarray


@dataclass(frozen=True)
class CollapseSettings(Training):
    subject: str = "type1-mnist"


def run(bench: Bench, settings: CollapseSettings) -> Evidence:
    of = case(bench, settings, settings.subject)
    aligned = emergence(bench, of)
    found = {seed: bench.part(f"{of.model}-{seed}", partial(_along, bench, of, seed)) for seed in of.seeds}
    return evidence(aligned, found)


def evidence(aligned: xarray.Dataset, found: Mapping[int, xarray.Dataset]) -> dict[str, dict[str, Any]]:
    """aligned: `coupling_all` (seed, epoch). found: `nc1` (epoch, layer) by seed; fewer epochs where one diverged."""
    rows: dict[str, list[float]] = {"nc1": [], "coupling": [], "spearman": []}
    for seed, along in found.items():
        if along.sizes["epoch"] < aligned.sizes["epoch"]:
            for values in rows.values():
                values.append(math.nan)
            continue
        nc1 = along["nc1"].isel(layer=-1).values
        coupling = aligned["coupling_all"].sel(seed=seed).values
        rows["nc1"].append(float(nc1[-1] / nc1[0]))
        rows["coupling"].append(float(coupling[-1] / coupling[0]))
        rows["spearman"].append(float(spearmanr(nc1, coupling)[0]))
    return {
        "A12": {
            "seeds": len(found),
            "NC1, last / first epoch": rows["nc1"],
            "m_K, last / first epoch": rows["coupling"],
            "Spearman of NC1 and m_K over epochs": rows["spearman"],
            "epochs": aligned["epoch"].values.tolist(),
        }
    }


def _along(bench: Bench, of: Case, seed: int) -> xarray.Dataset:
    """(epoch, layer), over all training samples."""
    import xarray

    network = trained(bench, of, seed)
    model, progress, found = network.model, bench.steps(f"neural collapse of {of.title}, seed {seed}"), []
    epochs = [epoch for epoch in of.epochs if epoch in network.snapshots]
    for done, epoch in enumerate(epochs):
        progress(done, len(epochs))
        model.load_state_dict(dict(network.snapshots[epoch]))
        found.append(collapse(model, of.data.train.to(bench.device)))
    whole = xarray.concat(found, xarray.DataArray(epochs, dims="epoch", name="epoch"), combine_attrs="drop_conflicts")
    return whole.assign_attrs(measure="collapse_along", title=of.title, network=f"{of.model}, seed {seed}", seed=seed)


STUDY = Study(
    PAPER,
    "collapse",
    paper_found="Residual alignment and neural collapse come together.",
    we_expect="Both fall along the training, in the same order of epochs.",
    presets={
        "smoke": CollapseSettings(
            **SMOKE,
            subject="type1-digits",
        ),
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
    claims=decided_by("A.collapse"),
)
