"""What a report shows of a population: of each kind of dataset a figure of all subjects and a table of all networks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import xarray

from skipscope.papers.d.population.figures import (
    Curves,
    exact_shares,
    leading_shares,
    means_of_values,
    population,
    shares_of_values,
    single_units,
)
from skipscope.papers.d.population.stored import measure_of
from skipscope.papers.d.studies.noise import MIXTURES
from skipscope.papers.d.studies.perturbations import LAST_UNITS, STARTS, last_growth, stage_growth
from skipscope.papers.d.studies.projections import TOPS
from skipscope.report.figures.spectra import SHARES
from skipscope.report.style import names_of
from skipscope.report.table import Cell, number, table_of_each
from skipscope.report.views import ViewOfMeasure
from skipscope.report.views.view import Picture, View, counted, in_groups, named, not_converged

SUBJECTS_IN_FIGURE = 3  # side by side
ACROSS = (
    "Each column shows {networks} that differ only in their seeds: a line is the mean over them, and its band reaches "
    "from the smallest network to the largest."
)


@dataclass(frozen=True)
class PopulationView:
    """Of the joined datasets of one kind; numbers: of each network, by the titles of the table's columns."""

    caption: str
    title: str  # of the table
    about: str
    numbers: Callable[[xarray.Dataset], Curves]

    def __call__(self, datasets: Mapping[str, xarray.Dataset]) -> View:
        subjects = {subject: single_units(data) for subject, data in named(datasets).items()}
        measure = str(next(iter(datasets.values())).attrs["measure"])
        # Without the study: of its many claims a picture is about a few, which the caption names.
        figures = {
            name: Picture(self._caption_of(group.values()), population(group))
            for name, group in in_groups(measure.replace("_", "-"), subjects, SUBJECTS_IN_FIGURE).items()
        }
        numbers = {subject: xarray.Dataset(self.numbers(data)) for subject, data in subjects.items()}
        columns = {str(title): _number(str(title)) for data in numbers.values() for title in data}
        return View([table_of_each(numbers, self.title, columns, self.about, rows={"network": "seed"})], figures)

    def _caption_of(self, datasets: Iterable[xarray.Dataset]) -> str:
        group = list(datasets)
        caption = self.caption.format(
            across=ACROSS.format(networks=_some("network", [data.sizes["network"] for data in group])),
            images=_some("image", [int(data.attrs.get("images", data.sizes.get("sample", 1))) for data in group]),
            units=_some("unit", [data.sizes["unit"] for data in group]),
        )
        return caption + "".join(dict.fromkeys(map(not_converged, group)))


def _some(what: str, counts: Iterable[int]) -> str:
    """As in "5 networks", or "4 or 5 networks"."""
    *others, most = sorted(set(counts))
    return " or ".join([*map(str, others), counted(most, what)])


def _number(title: str) -> Cell:
    return lambda here: number(float(here[title])) if title in here else "-"


# -- the numbers of each network


def of_counts(data: xarray.Dataset) -> Curves:
    return {
        f"{name}, stage {stage}": shares.isel(unit=(data["stage"] == stage).values).mean("unit")
        for name, shares in exact_shares(data).items()
        for stage in _stages(data)
    }


def of_perturbations(data: xarray.Dataset) -> Curves:
    found = {}
    for kind in names_of(data, "kind"):
        for stage in _stages(data):
            found[f"{kind}, stage {stage}"] = stage_growth(data, kind, stage, STARTS[0])
        found[f"{kind}, last {LAST_UNITS} units"] = last_growth(data, kind)
    return {title: values.reset_coords(drop=True) for title, values in found.items()}


def of_projections(data: xarray.Dataset) -> Curves:
    return {
        f"{name}, {kind}": shares.isel(unit=-1).reset_coords(drop=True)
        for top, name in TOPS.items()
        for kind, shares in leading_shares(data, top).items()
    }


def of_spectra(data: xarray.Dataset) -> Curves:
    """Of regular units, and how many values are near 1 in the others."""
    regular, near_one = (data["skip"] == "identity").values, SHARES["share_near_one"]
    curves = {**shares_of_values(data), **means_of_values(data)}
    found = {title: values.isel(unit=regular).mean("unit") for title, values in curves.items()}
    if not regular.all():
        found[f"{near_one}, down-sampling units"] = curves[near_one].isel(unit=~regular).mean("unit")
    return found


def of_mixtures(data: xarray.Dataset, key: str) -> Curves:
    shares = data[key].mean("sample") if "sample" in data[key].dims else data[key]
    found = {}
    for mixture, title in MIXTURES.items():
        here = shares.sel(mixture=mixture, drop=True)
        found[f"largest share, {title}"] = here.max("t").mean("unit")
        found[f"its t, {title}"] = here.idxmax("t").mean("unit")
    return found


def _stages(data: xarray.Dataset) -> list[int]:
    return sorted({int(stage) for stage in data["stage"].values})


# -- kind by kind

COUNTS = PopulationView(
    "Exact zeros and ones, unit by unit, as shares of a unit's n singular values: z zeros of inactive outputs, and the "
    "n - z - 2 r ones that the law proves where r inner ReLUs are active; means over {images}. {across} Dotted lines "
    "are between stages; down-sampling units, of which the law says nothing, are left out. The paper (Rothauge et al., "
    "figure 2) finds more values near 1 with depth in stages 1 and 2 and fewer in stage 3 (claim D8), and zeros the "
    "other way round (D9).",
    "Exact zeros and ones of each network",
    "Shares of a unit's singular values, means over images and over the regular units of a stage.",
    of_counts,
)
PERTURBATIONS = PopulationView(
    "Growth of perturbations: the RMS of the change at each unit's exit over that at the first unit's entry (above) "
    "and over that at the unit's own entry (below); medians over {images}. {across} Dotted lines are between stages. "
    "The paper (Rothauge et al., figure 3) finds growth through stages 1 and 2, faster for adversarial perturbations "
    "(claim D10); in stage 3 it finds that random ones shrink (D11) and adversarial ones jump near the end (D12).",
    "Growth of perturbations in each network",
    "RMS of the change at the exit of a stage over that at its entry, and over the last units of the network; medians "
    "over images.",
    of_perturbations,
)
PROJECTIONS = PopulationView(
    "How much of a perturbation lies along the directions that a unit stretches most: the share of its square in the "
    "leading right singular vector of the unit's Jacobian (above) and in the ten leading ones (below), at every second "
    "unit up to the last one of stage 3; medians over {images}. {across} The paper (Rothauge et al., figure 4) finds "
    "that adversarial perturbations turn into these directions at the last unit and random ones do not (claim D14).",
    "Perturbations on the leading singular vectors of the last unit of each network",
    "Share of a perturbation's square in the leading right singular vector and in the ten leading ones, at the last "
    "unit; medians over images.",
    of_projections,
)
SPECTRA = PopulationView(
    "Singular values, unit by unit: the shares in [0.99, 1.01], above 1.01 and zero (above), the mean of all values "
    "and of those other than 0 (below); means over {images}. {across} Dotted lines are between stages; units whose "
    "share in [0.99, 1.01] falls to almost none down-sample. The paper (Rothauge et al., figures 1 and 2) finds most "
    "values near 1 (claim D2) except in down-sampling units (D5), fewer above 1 the deeper the unit (D7), and a mean "
    "close to 1 (D17).",
    "Singular values of each network",
    "Shares and means of singular values, means over images and units: over all regular units, and in the last column "
    "over the down-sampling ones.",
    of_spectra,
)
RANDOM = PopulationView(
    "Singular values of units whose weights are noise of the trained weights' norm: the shares in [0.99, 1.01], above "
    "1.01 and zero (above), the mean of all values and of those other than 0 (below), at {images}. {across} Dotted "
    "lines are between stages. What these units have in common with trained ones comes from the structure of a "
    "residual unit (claim D17).",
    "Singular values of each network with random weights",
    "Shares and means of singular values, means over regular units.",
    of_spectra,
)
NOISE = PopulationView(
    "The plateau of units whose weights go from noise η (t = 0) to the trained weights θ (t = 1), as a convex mixture "
    "t θ + (1 - t) η or as √t θ + √(1 - t) η, which has a constant norm: the shares of singular values in [0.99, 1.01] "
    "(above) and of exact ones (below), means over {units}, at {images}. {across} The paper (Rothauge et al., figure 5 "
    "right) finds the widest plateau at t = 0.5 of the convex mixture (claim D16), where its norm is smallest.",
    "The plateau of each network with weights mixed with noise",
    "The largest share in [0.99, 1.01] over all t, and the t where it is; both unit by unit, then means over units.",
    partial(of_mixtures, key="share_near_one"),
)
NOISE_COUNTS = PopulationView(
    "The share of exact ones that the law proves of units whose weights are mixed with noise, from noise (t = 0) to "
    "the trained weights (t = 1); means over {units}, all regular ones, and {images}. {across} Claim D16 is about the "
    "t where the plateau is widest.",
    "Exact ones of each network with weights mixed with noise",
    "The largest share of exact ones over all t, and the t where it is; both unit by unit, then means over units.",
    partial(of_mixtures, key="ones"),
)

VIEWS = {
    measure_of("spectra"): ViewOfMeasure("Population: singular values", SPECTRA),
    measure_of("random"): ViewOfMeasure("Population: random weights", RANDOM),
    measure_of("counts"): ViewOfMeasure("Population: exact zeros and ones", COUNTS),
    measure_of("perturbations"): ViewOfMeasure("Population: perturbations", PERTURBATIONS),
    measure_of("projections"): ViewOfMeasure("Population: directions of perturbations", PROJECTIONS),
    measure_of("noise"): ViewOfMeasure("Population: weights mixed with noise", NOISE),
    measure_of("noise-counts"): ViewOfMeasure("Population: exact ones with noise", NOISE_COUNTS),
}
