"""What several studies of paper D need of a network, measured once a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from skipscope.measure import spectra
from skipscope.papers.d.subjects import Subject, Subjects, right_answers, subjects
from skipscope.papers.kit.bench import Bench

if TYPE_CHECKING:
    import xarray


def all_spectra(bench: Bench, settings: Subjects) -> Iterator[xarray.Dataset]:
    """Of every network: the units' and the stages' singular values at its images."""
    for subject in subjects(bench, settings):
        yield bench.shared(f"spectra-{subject.key}", lambda subject=subject: _spectra(bench, subject))  # type: ignore[misc]


def described(dataset: xarray.Dataset, subject: Subject) -> xarray.Dataset:
    """With what it was measured on."""
    return dataset.assign_attrs(network=subject.title, large=int(subject.large and not subject.units))


def _spectra(bench: Bench, subject: Subject) -> xarray.Dataset:
    stages = [stage.index for stage in subject.trunk.stages if not subject.units]
    dataset = spectra(
        subject.trunk,
        subject.images,
        units=subject.names,
        stages=stages,
        progress=bench.steps(f"spectra of {subject.title}"),
    )
    return described(dataset, subject).assign_attrs(right_answers=f"{right_answers(subject)} of {subject.count}")


def judged(parts: Sequence[xarray.Dataset]) -> list[xarray.Dataset]:
    """The networks that the paper speaks of, large and measured as a whole, where there are any; otherwise all.

    The others are in the run and in its report, but small networks do not vote on large ones.
    """
    large = [part for part in parts if part.attrs["large"]]
    return large or list(parts)


def regular(dataset: xarray.Dataset) -> xarray.Dataset:
    """Units that keep the shape of the state: their skip is the identity."""
    return dataset.isel(unit=((dataset["kind"] == "unit") & (dataset["skip"] == "identity")).values)


def stages(dataset: xarray.Dataset) -> xarray.Dataset:
    return dataset.isel(unit=(dataset["kind"] == "stage").values)


def of_stage(dataset: xarray.Dataset, number: int) -> xarray.Dataset:
    """Counted from 1, as in the paper."""
    return dataset.isel(unit=(dataset["stage"] == number).values)


def ratios(first: Sequence[float], second: Sequence[float]) -> list[float]:
    return [a / b if b else float("inf") for a, b in zip(first, second, strict=True)]


def middle_unit(subject: Subject, stage: int) -> str:
    """The middle unit of a stage, counted from 1: the fifth of nine in ResNet-56. The first one alone down-samples."""
    units = subject.trunk.stages[stage - 1].units
    return units[len(units) // 2].name


# D.spectra and D.proportions look at the same spectra.
SPECTRA_PRESETS = {
    "smoke": Subjects("resnet14-digits-n8", epochs=1, networks=1, images=2),
    "quick": Subjects(units=("stage3.4", "stage3.6", "stage3.8"), large_images=(2,)),
    "full": Subjects(large_images=(5, 2), train110=True),
    "paper": Subjects(train110=True),
}
