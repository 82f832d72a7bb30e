"""Joins what `scripts/measure_population.py` wrote for each network into one dataset per depth and part.

    python scripts/population_datasets.py runs/d docs/results/D/population

The networks become the dimension `network`, named by their seeds. What the claims do not need is left out: sizes per
entry, and quantiles of the spectra of units whose weights are mixed with noise. Parts that no network has are named and
passed over.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy
import xarray

QUANTILES = ("quantile", "quantile_off", "level", "level_of_all")
PARTS: dict[str, tuple[Sequence[str], Sequence[str]]] = {  # name: parts that are joined, variables that are left out
    "counts": (["count"], ()),
    "perturbations": (["perturb"], ("per_entry", "size")),
    "projections": (["project"], ()),
    "spectra": (["spectra1", "spectra2", "spectra3"], ()),
    "noise": (["noise"], QUANTILES),
    "noise-counts": (["noise-counts"], ()),
    "random": (["random1", "random2", "random3"], QUANTILES),
}
OF_ONE = ("seed", "weights", "weights_sha256", "part", "seconds", "notes", "vectors", "step")  # attributes of a network
SEARCH = ("candidates", "misclassified", "not_flipped")  # attributes of the search for adversarial perturbations


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measured", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    names = sorted({path.name.split("-seed")[0] for path in options.measured.glob("*-seed*.nc")})
    if not names:
        raise SystemExit(f"{options.measured}: expected datasets of scripts/measure_population.py, found none")
    for name in names:
        titles = sorted({path.name.rsplit("-count.nc")[0] for path in options.measured.glob(f"{name}-seed*-count.nc")})
        for part, (pieces, left_out) in PARTS.items():
            if not any((options.measured / f"{title}-{piece}.nc").exists() for title in titles for piece in pieces):
                print(f"{name}: {part} was not measured")
                continue
            dataset = joined(options.measured, titles, pieces, left_out)
            write(dataset, options.out / f"{name.split('-')[0]}-{part}.nc")


def joined(folder: Path, titles: Sequence[str], pieces: Sequence[str], left_out: Sequence[str]) -> xarray.Dataset:
    networks, seeds, hashes, seconds = [], [], [], []
    for title in titles:
        found = [xarray.load_dataset(folder / f"{title}-{piece}.nc", engine="h5netcdf") for piece in pieces]
        about = found[0].attrs
        seeds.append(int(about["seed"]))
        hashes.append(str(about["weights_sha256"]))
        seconds.append(float(sum(each.attrs["seconds"] for each in found)))
        whole = found[0] if len(found) == 1 else xarray.concat(map(_any_text, found), "unit", combine_attrs="override")
        if "step" in about:
            searched = {name: about[name] for name in SEARCH}
            whole = whole.assign(step=("sample", numpy.asarray(about["step"])), **searched)
        networks.append(whole.drop_vars([name for name in left_out if name in whole.variables]))
    together = xarray.concat(networks, "network", combine_attrs="override").assign_coords(network=seeds)
    kept = {key: value for key, value in networks[0].attrs.items() if key not in (*OF_ONE, *SEARCH)}
    kept["architecture"] = kept.pop("network")
    together.attrs = {**kept, "weights_sha256": hashes, "seconds": seconds, "stages": "counted from 1"}
    return together


def _any_text(dataset: xarray.Dataset) -> xarray.Dataset:
    """Texts of any length: joined as they are, longer ones are cut to the length of the first dataset's."""
    texts = {name: values.astype(object) for name, values in dataset.coords.items() if values.dtype.kind == "U"}
    return dataset.assign_coords(texts)


def write(dataset: xarray.Dataset, path: Path) -> None:
    encoding = {}
    for name, values in dataset.data_vars.items():
        if values.dtype == numpy.float64:
            dataset[name] = values.astype("float32")
        if values.ndim and values.dtype.kind in "fi":
            encoding[name] = {"zlib": True, "complevel": 9, "shuffle": True}
    dataset.to_netcdf(path, engine="h5netcdf", encoding=encoding)


if __name__ == "__main__":
    main()
