"""D.population: what paper D claims of its large networks, decided on networks that differ only in their seeds.

    skipscope study run D.population --out DIR --set datasets=docs/results/D/population,docs/results/D/recipe2
    skipscope study run D.population --preset full --device cuda --out DIR --set data=cifar10:PATH \
        --set files=resnet110-cifar-projection-seed1000.safetensors,...

The first command judges datasets that are there, in seconds and without measuring; the second one measures networks
whose weights are given (docs/results/networks has those of the population) and judges them. Every piece of every
network is a dataset of the run, so that --resume goes on where a run was stopped. Several runs, each of some networks,
can share a GPU; `datasets` then takes their folders. What is judged is in the run, too: the datasets of all networks of
a subject, joined, which its report shows.

The claims and what each network is reduced to are in the studies of the figures: spectra, proportions, perturbations,
projections and noise.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import xarray

from skipscope.constraints import Constrained, Expectation, at_least, some_of
from skipscope.errors import InputError
from skipscope.papers.d import PAPER
from skipscope.papers.d.population import measurements
from skipscope.papers.d.population.network import PopulationNetwork, name_and_seed
from skipscope.papers.d.population.stored import ByKind, for_run, joined_by_subject, part_of_run, read_folders
from skipscope.papers.d.studies import noise, perturbations, projections, proportions, spectra
from skipscope.papers.d.subjects import (
    BOTH_DEPTHS,
    RECIPE2,
    RESNET56,
    RESNET110,
    Found,
    on_subject,
    together,
)
from skipscope.papers.kit import Bench, Claim, Evidence, Measured, Study
from skipscope.runs.files import digest
from skipscope.runs.sweep import Task

PARTS = ("count", "perturb", "project", "spectra", "noise", "random")


@dataclass(frozen=True)
class PopulationSettings(Constrained):
    datasets: tuple[str, ...] = ()  # folders with what was measured before
    files: tuple[str, ...] = ()  # weights of networks to measure, NAME-seedS.safetensors
    recipe: Annotated[int, at_least(1)] = 1  # by which those networks were trained: see docs/results/networks
    data: str = "cifar10"
    parts: Annotated[tuple[str, ...], some_of(*PARTS)] = PARTS
    counted_images: Annotated[int, at_least(2)] = 2000
    perturbed_images: Annotated[int, at_least(1)] = 100
    projected_images: Annotated[int, at_least(1)] = 50
    spectrum_images: Annotated[int, at_least(2)] = 2
    measured_stages: Annotated[tuple[int, ...], some_of(1, 2, 3)] = (3, 2, 1)  # whose spectra are measured, in order

    def expectations(self) -> Iterator[Expectation]:
        yield from super().expectations()
        for folder in self.datasets:
            yield Path(folder).is_dir(), f"datasets: expected folders, got {folder}, which is none"
        for file in self.files:
            name_and_seed(Path(file))  # a wrong one is reported before any work


def run(bench: Bench, settings: PopulationSettings) -> Evidence:
    if not settings.files and not settings.datasets:
        bench.note(
            "D.population was given no datasets and no weights, so that what large networks decide stays open; "
            "--set datasets=FOLDER,... judges what was measured before"
        )
        return {}
    found = joined_by_subject(_measured(bench, settings), bench.note) if settings.files else {}
    folders = [Path(folder) for folder in settings.datasets]
    for folder in folders:
        hashes = {file.name: digest(file) for file in sorted(folder.glob("**/*.nc"))}
        bench.run.used(f"datasets {folder}", hashes)
    for subject, by_kind in read_folders(folders, bench.note).items():
        if subject in found:
            raise InputError(f"{subject} is among the files and among the datasets; give each network once")
        found[subject] = by_kind
    made = evidence({subject: _kept(bench, subject, by_kind) for subject, by_kind in found.items()})
    for text in depends_on_recipe(made):
        bench.note(text)
    return made


def _kept(bench: Bench, subject: str, by_kind: ByKind) -> ByKind:
    """As datasets of the run, so that it has all that its verdicts come from."""
    return {
        kind: bench.part(part_of_run(subject, kind), partial(for_run, data, subject, kind))
        for kind, data in by_kind.items()
    }


# -- measuring


def _measured(bench: Bench, settings: PopulationSettings) -> Iterator[xarray.Dataset]:
    data = bench.data(settings.data)
    if data.stands_in_for:
        raise InputError(f"{data.stands_in_for} was not found; give its place as --set data=cifar10:PATH")
    for file in map(Path, settings.files):
        bench.run.used(f"weights {file}", {"sha256": digest(file)})
        network = PopulationNetwork(file, data, bench.device, seed=bench.seed, recipe=settings.recipe)
        tasks = [
            Task(f"{network.title}-{name}", partial(_timed, network, name, measure))
            for name, measure in _pieces(network, settings)
        ]
        yield from bench.sweep(tasks, f"measuring {network.title}")


def _timed(network: PopulationNetwork, name: str, measure: Callable[[], xarray.Dataset]) -> xarray.Dataset:
    start = time.time()
    dataset = measure()
    seconds = round(time.time() - start, 1)
    return dataset.assign_attrs({**network.attributes, **dataset.attrs, "part": name, "seconds": seconds})


def _pieces(
    network: PopulationNetwork, settings: PopulationSettings
) -> Iterator[tuple[str, Callable[[], xarray.Dataset]]]:
    if "count" in settings.parts:
        yield "count", lambda: measurements.counts(network, settings.counted_images)
    if "perturb" in settings.parts:
        yield "perturb", lambda: measurements.perturbations(network, settings.perturbed_images)
    if "project" in settings.parts:
        yield "project", lambda: measurements.projections(network, settings.projected_images)
    for stage in settings.measured_stages:
        if "spectra" in settings.parts:
            yield f"spectra{stage}", partial(measurements.spectra, network, stage, settings.spectrum_images)
    if "noise" in settings.parts:
        yield "noise", lambda: measurements.noise(network)
        yield "noise-counts", lambda: measurements.noise_counts(network)
    for stage in settings.measured_stages:
        if "random" in settings.parts:
            yield f"random{stage}", partial(measurements.random_weights, network, stage)


# -- judging

REDUCED: dict[str, Sequence[Callable[[xarray.Dataset], Found]]] = {  # kind of dataset: what it is reduced to
    "spectra": (spectra.of_spectra, proportions.of_spectra),
    "counts": (spectra.of_counts, proportions.of_counts),
    "random": (spectra.of_random_weights,),
    "perturbations": (perturbations.of_perturbations,),
    "projections": (lambda data: projections.of_projections(data["projection"]),),
    "noise": (noise.of_mixtures,),
    "noise-counts": (noise.of_counts,),
}


def evidence(found: Mapping[str, ByKind]) -> dict[Claim, list[Measured]]:
    """found: by subject, joined datasets; what was not measured is left out."""
    evidence: dict[Claim, list[Measured]] = {}

    def add(subject: str, values: Found, networks: int) -> None:
        for claim, measured in on_subject(subject, values, networks).items():
            evidence.setdefault(claim, []).extend(measured)

    for subject, by_kind in found.items():
        reduced = [reduce(data) for kind, data in by_kind.items() for reduce in REDUCED[kind]]
        add(subject, together(*reduced), min(data.sizes["network"] for data in by_kind.values()))
    depths = [found.get(subject, {}).get("spectra") for subject in (RESNET56, RESNET110)]
    small, large = depths
    if small is not None and large is not None:
        add(BOTH_DEPTHS, spectra.depths_alike(small, large), small.sizes["network"] + large.sizes["network"])
    return evidence


def depends_on_recipe(evidence: Mapping[Claim, Sequence[Measured]]) -> Iterator[str]:
    """A sentence for each part on which the two recipes of ResNet-110 contradict each other."""
    for claim, measured in evidence.items():
        values = {each.subject: each.values for each in measured if each.subject in (RESNET110, RECIPE2)}
        for part in claim.parts if len(values) == 2 else ():
            first, second = (part.judge(values[subject])[0] for subject in (RESNET110, RECIPE2))
            if {first, second} == {"reproduced", "not reproduced"}:
                where = ", ".join(filter(None, (claim.id, part.name)))
                yield f"{where}: depends on the recipe, {first} with the first one, {second} with the second"


STUDY = Study(
    PAPER,
    "population",
    paper_found="What figures 1 to 5 show of one ResNet-56 and one ResNet-110.",
    we_expect="A plateau that counts inactive ReLUs, and trends that depend on how the networks were trained.",
    presets={
        "smoke": PopulationSettings(
            counted_images=4, perturbed_images=2, projected_images=2, parts=("count", "perturb", "project")
        ),
        "quick": PopulationSettings(),
        "full": PopulationSettings(),
        "paper": PopulationSettings(),
    },
    cost={
        "smoke": "seconds",
        "quick": "seconds for datasets that are given; without them nothing is measured",
        "full": "seconds for datasets that are given; 16 minutes on one GPU to measure ten networks whose weights are "
        "given, 40 to train them",
        "paper": "as full",
    },
    run=run,
    claims=(
        proportions.D2,
        spectra.D4,
        spectra.D5,
        spectra.D6,
        proportions.D7,
        proportions.D8,
        proportions.D9,
        perturbations.D10,
        perturbations.D11,
        perturbations.D12,
        perturbations.D13,
        projections.D14,
        noise.D16,
        spectra.D17,
        spectra.D18,
    ),
)
