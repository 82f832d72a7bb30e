"""Residual alignment in trained networks: how it comes with training, and what becomes of it with one thing changed."""

from __future__ import annotations

from collections.abc import Mapping

import numpy
import xarray

from skipscope.measure.alignment_summary import depth_fit
from skipscope.papers.a.figures.emergence import (
    as_alignment,
    collapse_across,
    collapse_in_training,
    counterfactuals,
    emergence,
    finite,
    last_values,
    values_by_case,
)
from skipscope.report.figures.alignment import VALUES_AGAINST_DEPTH
from skipscope.report.style import COLOURS
from skipscope.report.table import Cell, Table, mean_count, number, table_of_each, with_error
from skipscope.report.views.view import (
    NETWORKS_IN_SUMMARY,
    Picture,
    View,
    counted,
    distinct,
    in_groups,
    named,
    others_named,
)

ALIGNMENT, COLLAPSE = ("A.alignment", "A.collapse"), ("A.collapse",)
TRAINED_BY = ("network", "data", "epochs", "rate", "weight_decay")  # attributes in which cases differ
CURVES_IN_FIGURE = len(COLOURS)  # curves of one figure

COLUMNS = {
    "line_shape": "LSS",
    "step_variation": "step CoV",
    "over_chance_adjacent": "m, neighbours / chance",
    "over_chance_all": "m / chance",
    "swapped": "m(VJU)",
    "u1v1": "u1·v1",
    "energy": "energy in C",
    "gap": "s(C+1)/s1",
    "r_squared": "R² of 1/s1",
    "slope": "slope of 1/s1",
    "large": "> 5 %",
    "train_accuracy": "train accuracy",
    "test_accuracy": "test accuracy",
}
ALONG = (
    "Residual alignment along the training, against log10(1 + epoch): means over seeds at {images}, with bands of one "
    "standard deviation where there are several seeds. The paper (Li and Papyan) shows trained networks alone: states "
    "on a straight line with equal steps (RA1), common singular vectors (RA2), energy in no more singular values than "
    "classes (RA3, fully connected networks), 1/s1 on a line over depth (RA4). Curves should go to 1, 0, 0, 1, 1, 1."
)
VALUES = (
    "{title} after {epochs} epochs: the inverse of the largest singular value of the branches, and the {shown} largest "
    "ones, against depth; means over {images} and {seeds}. The paper (figures 38 to 46) shows the values after the "
    "first {classes} at zero in fully connected networks (RA3), and 1/s1 on a line (RA4), at a single image. {line}"
)
CHANGES = (
    "Networks that differ from '{base}' in one thing: line shape score and m of all pairs of units over its chance "
    "level, after training; one point per seed, a bar at their mean. The paper finds no alignment without skips, "
    "alignment at all depths and widths, and less of it for random labels. Networks with and without skips compare "
    "with each other, at equal rate and epochs, and not with the dotted lines, which are the means of '{base}'."
)
NO_BASE = (
    "Networks that differ in one thing: line shape score and m of all pairs of units over its chance level, after "
    "training; one point per seed, a bar at their mean."
)
CHANGED_ALONG = (
    "Networks with one thing changed along their training, against log10(1 + epoch): means over seeds with bands of "
    "one standard deviation where there are several. Curves of aligned networks go to 1, 0, 0, 1, 1, 1."
)
CHANGED_VALUES = (
    "Largest singular values of the branches against depth after training, means over samples and seeds; the first C, "
    "the number of classes of each case, in one colour and the rest in another. The paper finds that as many are large "
    "as there are classes: the second colour should lie at zero."
)
ABOUT = (
    "Of branches' Jacobians and states at training samples, mean and standard deviation over {n} networks. LSS: line "
    "shape score, 1 is straight. Step CoV: standard deviation over mean of the steps. m: distance from alignment of "
    "the C leading singular vectors over all pairs of units, or neighbours, relative to that of random rotations; "
    "m(VJU) with left and right vectors exchanged, not relative. Energy: share of |J|² in the first C singular values. "
    "> 5 %: singular values above 5 % of the first. R² and slope: of the line through 1/s1 over depth without the "
    "first quarter of the units."
)
ABOUT_TRAINING = (
    "Decay budget: learning rate x weight decay / (1 - momentum), summed over all steps. Width: entries of a state. "
    "Samples: training images at which Jacobians are taken."
)
NC1 = (
    "NC1, the spread within classes over that between them, over all training samples: before the classifier against "
    "log10(1 + epoch), one curve per network; and layer by layer at the first and at the last epoch. The paper (Li and "
    "Papyan) finds neural collapse, NC1 near zero, together with alignment: curves on the left should fall when m does."
)
POPULATION = (
    "Neural collapse and alignment of {n} trained networks that differ in weight decay, random labels and samples: NC1 "
    "before the classifier and m of all pairs of units over its chance level. The paper (Li and Papyan) finds both in "
    "the same networks: points should rise from the lower left to the upper right, and those without decay stay at 1."
)


def emergence_view(datasets: Mapping[str, xarray.Dataset]) -> View:
    texts = distinct({name: str(data.attrs["title"]) for name, data in datasets.items()})
    cases, names = {texts[name]: data for name, data in datasets.items()}, {texts[name]: name for name in datasets}
    subjects = {title: data for title, data in cases.items() if not _changed(data)}
    changed = {title: data for title, data in cases.items() if title not in subjects}
    figures = {}
    for name, group in in_groups("emergence", subjects, CURVES_IN_FIGURE).items():
        figures[name] = Picture(ALONG.format(images=_images(group)), emergence(group), ALIGNMENT)
    for title, data in subjects.items():
        figures[f"{names[title]}-values"] = Picture(_values_caption(title, data), last_values(data), ALIGNMENT[:1])
    base = _base(subjects, changed)
    if changed:
        beside = {title: subjects[title] for title in ([base] if base else [])}
        caption, studies = CHANGES.format(base=base) if base else NO_BASE, _studies(changed)
        figures["counterfactuals"] = Picture(caption, counterfactuals({**beside, **changed}, base), studies)
        for name, group in in_groups("counterfactuals-along", changed, CURVES_IN_FIGURE - len(beside)).items():
            figures[name] = Picture(CHANGED_ALONG, emergence({**beside, **group}), studies)
        figures["counterfactuals-values"] = Picture(CHANGED_VALUES, values_by_case({**beside, **changed}), studies)
    ordered = {**subjects, **changed}
    tables = [
        _statistics("after training", ordered, -1),
        _statistics("at initialisation", ordered, 0),
        _training(ordered),
    ]
    return View(tables, figures, [*_subject_sentences(subjects), *_changed_sentences(subjects.get(base), changed)])


def collapse_along_view(datasets: Mapping[str, xarray.Dataset]) -> View:
    networks = named(datasets)
    figures = {
        name: Picture(NC1, collapse_in_training(group), COLLAPSE)
        for name, group in in_groups("collapse-along", networks, CURVES_IN_FIGURE).items()
    }
    columns: dict[str, Cell] = {
        "NC1, first layer": lambda here: number(float(here["nc1"][0])),
        "NC1, last": lambda here: number(float(here["nc1"][-1])),
        "NC3": "nc3",
        "NC4": "nc4",
        "accuracy": "accuracy",
    }
    about = "Over all training samples, every class counting the same. NC3, NC4, accuracy: of the classifier."
    table = table_of_each(networks, "Neural collapse along the training", columns, about, rows={"epoch": "epoch"})
    sentences = [_collapse_sentence(name, data) for name, data in list(networks.items())[:NETWORKS_IN_SUMMARY]]
    return View([table], figures, [*sentences, *others_named(list(networks), "Neural collapse")])


def population_view(datasets: Mapping[str, xarray.Dataset]) -> View:
    """Networks that differ in decay, labels and samples, one point each."""
    figures = {
        name: Picture(POPULATION.format(n=data.sizes["network"]), collapse_across(data), COLLAPSE)
        for name, data in datasets.items()
    }
    columns: dict[str, Cell] = {
        "networks": lambda here: str(here.sizes["network"]),
        "NC1, last layer": ("nc1", "median"),
        "m / chance": ("over_chance_all", "median"),
        "LSS": ("line_shape", "median"),
        "train accuracy": ("train_accuracy", "median"),
        "test accuracy": ("test_accuracy", "median"),
    }
    about = "Medians over the networks of each case, which differ in their seed alone."
    table = table_of_each(
        named(datasets), "Alignment and neural collapse across networks", columns, about, rows={"case": "case"}
    )
    return View([table], figures, [])


# -- cases


def _studies(cases: Mapping[str, xarray.Dataset]) -> tuple[str, ...]:
    """Which made them. Version 0.1.0 had one study for all."""
    found = [str(data.attrs.get("study", "A.counterfactuals")).split(", ") for data in cases.values()]
    return tuple(dict.fromkeys(study for studies in found for study in studies))


def _changed(data: xarray.Dataset) -> bool:
    """Whether something differs from the subject. Version 0.1.0 did not write that: there a case with nothing changed
    is the one that is called by its type and data alone."""
    if "changed" in data.attrs:
        return bool(int(data.attrs["changed"]))
    type_of_network = str(data.attrs["network"]).partition("-")[0]
    return bool(data.attrs["title"] != f"{type_of_network} on {data.attrs['data']}")


def _base(subjects: Mapping[str, xarray.Dataset], changed: Mapping[str, xarray.Dataset]) -> str:
    """The subject that changed cases are compared with: that with which they have the most in common, as long as one
    of them differs in one thing alone; empty where there is none."""

    def alike(one: xarray.Dataset, other: xarray.Dataset) -> int:
        return sum(one.attrs[key] == other.attrs[key] for key in TRAINED_BY)

    nearest = [
        title
        for title, data in subjects.items()
        if any(alike(data, other) >= len(TRAINED_BY) - 1 for other in changed.values())
    ]
    return max(nearest, key=lambda title: sum(alike(subjects[title], other) for other in changed.values()), default="")


# -- words


def _images(cases: Mapping[str, xarray.Dataset]) -> str:
    return counted(max(int(data.attrs["images"]) for data in cases.values()), "training sample")


def _values_caption(title: str, data: xarray.Dataset) -> str:
    fit = depth_fit(as_alignment(data))
    units = f"leaves out the first {counted(fit.first, 'unit')}" if fit.first else "goes through all units"
    line = (
        f"The line {units}: slope {number(fit.slope)}, R² "
        f"{number(fit.r_squared)}, of values that are averaged over seeds too; the table has the means of each seed's."
        if numpy.isfinite(fit.slope)
        else f"No line: {counted(fit.units, 'unit')} are too few."
    )
    return VALUES.format(
        title=title[:1].upper() + title[1:],
        epochs=data.attrs["epochs"],
        shown=min(VALUES_AGAINST_DEPTH, data.sizes["rank"]),
        images=_images({title: data}),
        seeds=counted(data.sizes["seed"], "seed"),
        classes=int(data.attrs["classes"]),
        line=line,
    )


def _subject_sentences(subjects: Mapping[str, xarray.Dataset]) -> list[str]:
    found = []
    for title, data in list(subjects.items())[:NETWORKS_IN_SUMMARY]:
        end, start = (_means(data, epoch) for epoch in (-1, 0))
        text = (
            f"After {data.attrs['epochs']} epochs {counted(data.sizes['seed'], 'network')} of {title} "
            f"{'has' if data.sizes['seed'] == 1 else 'have'} a line shape score of {number(end['line_shape'])} (1 is "
            f"straight; {number(start['line_shape'])} before training), m of {end['over_chance_all']:.0%} of its "
            f"chance level ({start['over_chance_all']:.0%}), and {end['energy']:.1%} of the branches' energy in the "
            f"first {int(data.attrs['classes'])} singular values ({start['energy']:.1%})"
        )
        if numpy.isfinite(end["slope"]):
            text += f"; 1/s1 over depth has slope {number(end['slope'])} with R² {number(end['r_squared'])}"
        found.append(f"{text}.")
    return [*found, *others_named(list(subjects), "Alignment")]


def _changed_sentences(base: xarray.Dataset | None, changed: Mapping[str, xarray.Dataset]) -> list[str]:
    """Of the case whose paths differ the most from the base's."""
    if base is None:
        return []
    before = _means(base)
    scores = {title: _means(data)["line_shape"] for title, data in changed.items()}
    there = {title: score for title, score in scores.items() if numpy.isfinite(score)}
    if not there or not numpy.isfinite(before["line_shape"]):
        return []
    most = max(there, key=lambda title: abs(numpy.log(there[title] / before["line_shape"])))
    after = _means(changed[most])
    return [
        f"Of {counted(len(changed), 'case')} with one thing changed the line shape score moves most in '{most}': "
        f"{number(after['line_shape'])} in place of {number(before['line_shape'])}, with m at "
        f"{after['over_chance_all']:.0%} of chance in place of {before['over_chance_all']:.0%}."
    ]


def _collapse_sentence(name: str, data: xarray.Dataset) -> str:
    nc1, epochs = data["nc1"].isel(layer=-1).values, data["epoch"].values
    return (
        f"NC1 before the classifier of {name} goes from {number(float(nc1[0]))} at epoch {epochs[0]} to "
        f"{number(float(nc1[-1]))} at epoch {epochs[-1]}."
    )


# -- tables


def _means(data: xarray.Dataset, epoch: int = -1) -> dict[str, float]:
    found = {key: finite(data, key, epoch) for key in COLUMNS}
    return {key: float(values.mean()) if values.size else float("nan") for key, values in found.items()}


def _statistics(when: str, cases: Mapping[str, xarray.Dataset], epoch: int) -> Table:
    rows = []
    for title, data in cases.items():
        measured, seeds = finite(data, "line_shape", epoch).size, data.sizes["seed"]
        cells = [_cell(finite(data, key, epoch), key) for key in COLUMNS]
        rows.append([title, str(seeds) if measured == seeds else f"{measured} of {seeds}", *cells])
    counts = sorted({data.sizes["seed"] for data in cases.values()})
    about = ABOUT.format(n=" or ".join(map(str, counts)))
    return Table(f"Residual alignment {when}", ["case", "networks", *COLUMNS.values()], rows, about)


def _cell(values: numpy.ndarray, key: str) -> str:
    if not values.size:
        return "-"
    mean = float(values.mean())
    if values.size == 1:
        return mean_count(mean) if key == "large" else number(mean)
    return with_error(mean, float(values.std(ddof=1)))


def _training(cases: Mapping[str, xarray.Dataset]) -> Table:
    numbers = ("classes", "width", "epochs", "rate", "weight_decay", "decay_budget", "images")
    rows = [
        [title, *(str(data.attrs[key]) for key in ("network", "data")), str(data.sizes["unit"])]
        + [number(float(data.attrs[key])) for key in numbers]
        for title, data in cases.items()
    ]
    columns = ["case", "network", "data", "units", "classes", "width", "epochs", "rate", "weight decay"]
    return Table("How they were trained", [*columns, "decay budget", "samples"], rows, ABOUT_TRAINING, names=3)
