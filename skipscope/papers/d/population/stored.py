"""Datasets of the population: the pieces of all networks of a subject joined along `network`, written and read again.

A folder holds the pieces of single networks, as a run of D.population leaves them in its data/, or joined datasets:
DEPTH-KIND.nc, with the kinds of KINDS, as in docs/results/D/population, or population-SUBJECT-KIND.nc, as a run writes
what it judged. Joined datasets of a subject whose pieces are beside them are passed over, so that several runs, each of
some networks of a subject, can be joined.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy
import xarray

from skipscope.errors import InputError
from skipscope.papers.d.subjects import subject_of
from skipscope.runs.datasets import dataset_bytes, read_dataset
from skipscope.runs.whole_files import write_whole

QUANTILES = ("quantile", "quantile_off", "level", "level_of_all")


@dataclass(frozen=True)
class Kind:
    """A joined dataset."""

    pieces: tuple[str, ...]  # of each network, one after another along `unit`
    left_out: tuple[str, ...] = ()  # variables that no claim needs


KINDS = {
    "counts": Kind(("count",)),
    "perturbations": Kind(("perturb",), ("per_entry", "size")),
    "projections": Kind(("project",)),
    "spectra": Kind(("spectra1", "spectra2", "spectra3")),
    "noise": Kind(("noise",), QUANTILES),
    "noise-counts": Kind(("noise-counts",)),
    "random": Kind(("random1", "random2", "random3"), QUANTILES),
}
OF_ONE = ("seed", "weights", "weights_sha256", "part", "seconds", "notes", "vectors", "step", "study", "measure")
SEARCH = ("candidates", "misclassified", "not_flipped")  # attributes of the search for adversarial perturbations

JOINED = re.compile(rf"(?:^population-.+?|resnet\d+)-({'|'.join(KINDS)})\.nc$")
SINGLE = re.compile(r"-seed\d+-[a-z0-9-]+\.nc$")

ByKind = dict[str, xarray.Dataset]
Note = Callable[[str], None]


def read_folders(folders: Sequence[Path], note: Note) -> dict[str, ByKind]:
    """Subject: its joined datasets. note: called with what is not complete and was left out."""
    found: dict[str, ByKind] = {}
    pieces = []
    for folder in folders:
        files = sorted((folder / "data" if (folder / "data").is_dir() else folder).glob("*.nc"))
        single = [file for file in files if SINGLE.search(file.name)]
        joined = [(file, match[1]) for file in files if file not in single and (match := JOINED.search(file.name))]
        if not joined and not single:
            raise InputError(f"datasets {folder}: expected datasets of D.population, found none")
        own = [read_dataset(file) for file in single]
        in_pieces = {_subject_of_piece(piece) for piece in own}
        pieces += own
        for file, kind in joined:
            data = read_dataset(file)
            # Datasets of the first recipe were written before there was a second one.
            subject = subject_of(str(data.attrs["architecture"]), int(data.attrs.get("recipe", 1)))
            if subject not in in_pieces:
                _add(found, subject, kind, data, str(file))
    for subject, by_kind in joined_by_subject(pieces, note).items():
        for kind, data in by_kind.items():
            _add(found, subject, kind, data, "the datasets of single networks")
    return found


def _add(found: dict[str, ByKind], subject: str, kind: str, data: xarray.Dataset, where: str) -> None:
    if kind in found.setdefault(subject, {}):
        raise InputError(f"{where}: {kind} of {subject} is given twice; give each network once")
    found[subject][kind] = data


def _subject_of_piece(piece: xarray.Dataset) -> str:
    return subject_of(str(piece.attrs["network"]), int(piece.attrs["recipe"]))


def joined_by_subject(pieces: Iterable[xarray.Dataset], note: Note) -> dict[str, ByKind]:
    """pieces: of single networks, with attributes that say which."""
    by_subject: dict[str, dict[int, dict[str, xarray.Dataset]]] = {}
    for piece in pieces:
        networks = by_subject.setdefault(_subject_of_piece(piece), {})
        networks.setdefault(int(piece.attrs["seed"]), {})[str(piece.attrs["part"])] = piece
    found: dict[str, ByKind] = {}
    for subject, networks in by_subject.items():
        for name, kind in KINDS.items():
            lacking = [seed for seed, own in networks.items() if not set(kind.pieces) <= own.keys()]
            if not lacking:
                found.setdefault(subject, {})[name] = joined(networks, kind)
            elif len(lacking) < len(networks):
                note(f"{subject}: {name} was left out, since seeds {lacking} lack some of {', '.join(kind.pieces)}")
    return found


def joined(networks: Mapping[int, Mapping[str, xarray.Dataset]], kind: Kind) -> xarray.Dataset:
    """networks: seed: its pieces by name."""
    wholes, hashes, seconds = [], [], []
    for _, own in sorted(networks.items()):
        pieces = [own[name] for name in kind.pieces]
        about = pieces[0].attrs
        hashes.append(str(about["weights_sha256"]))
        seconds.append(float(sum(piece.attrs["seconds"] for piece in pieces)))
        whole = pieces[0]
        if len(pieces) > 1:
            whole = xarray.concat(map(_any_text, pieces), "unit", combine_attrs="override")
        if "step" in about:
            searched = {name: about[name] for name in SEARCH}
            whole = whole.assign(step=("sample", numpy.atleast_1d(about["step"])), **searched)
        wholes.append(whole.drop_vars([name for name in kind.left_out if name in whole.variables]))
    together = xarray.concat(wholes, "network", combine_attrs="override").assign_coords(network=sorted(networks))
    kept = {key: value for key, value in wholes[0].attrs.items() if key not in (*OF_ONE, *SEARCH)}
    kept["architecture"] = kept.pop("network")
    together.attrs = {**kept, "weights_sha256": hashes, "seconds": seconds, "stages": "counted from 1"}
    return together


def _any_text(dataset: xarray.Dataset) -> xarray.Dataset:
    """Texts of any length: joined as they are, longer ones are cut to the length of the first dataset's."""
    texts = {name: values.astype(object) for name, values in dataset.coords.items() if values.dtype.kind == "U"}
    return dataset.assign_coords(texts)


# -- writing


def measure_of(kind: str) -> str:
    """By which a report finds the view of a joined dataset."""
    return f"population_{kind.replace('-', '_')}"


def part_of_run(subject: str, kind: str) -> str:
    """The name of a joined dataset in the run that judged it."""
    return f"{re.sub(r'[^a-zA-Z0-9.]+', '-', subject)}-{kind}"


def for_run(dataset: xarray.Dataset, subject: str, kind: str) -> xarray.Dataset:
    """As the run that judged it keeps it: compressed, with what a report needs beside all that it says of itself."""
    words = str(dataset.attrs.get("measure", ""))  # older versions wrote there what `about` says now
    own = {"measure": measure_of(kind), "network": subject}
    return _compressed(dataset).assign_attrs({"about": words, **dataset.attrs, **own})


def write(dataset: xarray.Dataset, path: Path) -> None:
    """In float32 and compressed."""
    doubles = {name: values.astype("float32") for name, values in dataset.items() if values.dtype == numpy.float64}
    write_whole(path, dataset_bytes(_compressed(dataset.assign(doubles))))


def _compressed(dataset: xarray.Dataset) -> xarray.Dataset:
    """Once it is written; the values stay as they are."""
    compressed = dataset.copy()
    for values in compressed.data_vars.values():
        if values.ndim and values.dtype.kind in "fi":
            values.encoding = {"zlib": True, "complevel": 9, "shuffle": True}
    return compressed
