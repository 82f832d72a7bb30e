"""Measures the networks of `docs/results/networks` for paper D: what its claims ask of five networks of each depth.

    python scripts/measure_population.py --data cifar10:PATH --device cuda --out runs/d \
        --weights docs/results/networks/resnet110-cifar-projection-seed1000.safetensors

One network per call; several calls can share a GPU. Each part writes labelled datasets, and a part that is already
there is passed over. After --seconds a call ends by itself before its next unit (never kill one under the CUDA
Multi-Process Service); the same call goes on from the last part that was written.

count      inactive outputs and active inner ReLUs of every unit on many images: exact zeros and ones by the law
perturb    sizes and growth of adversarial and of random perturbations, unit by unit
project    the same perturbations on the ten leading right singular vectors of four units of stage 3
spectra    all singular values of every unit and stage on a few images, kept as shares, means and quantiles
noise      spectra of four units whose weights turn into noise, and the exact counts of all units
random     spectra of units whose weights are noise
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy
import torch
import xarray

import skipscope as ss
from skipscope.data import Dataset, load
from skipscope.data.perturbations import fgsm, uniform_like
from skipscope.linear.law import law_or_reason
from skipscope.models.names import build
from skipscope.models.weights import load_weights
from skipscope.runs.files import digest, write_whole
from skipscope.trace.surgery import noisy_weights, with_weights

SEED = 0  # of the images, the random perturbations and the noise
CANDIDATES = 3  # images that are tried for each one that is flipped
LEADING = 10  # singular vectors
MIXTURES = ("convex", "norm")
MIXING = tuple(round(0.1 * step, 1) for step in range(11))
NOISY = ("stage2.2", "stage2.4", "stage3.2", "stage3.4")  # the third and the fifth unit of a stage
LEVELS = (numpy.arange(200) + 0.5) / 200  # of the values that are neither 0 nor 1
ALL_LEVELS = (numpy.arange(512) + 0.5) / 512  # of all values
ONE = 1e-7  # a value this close to 1 counts as 1
LEFT_OVER = 3  # exit status
LAW_GAIN = 0.85  # the law's problem must be this much smaller than the active rows


class TimeIsUp(Exception):  # noqa: N818 - the name says what happened
    """Ends a call between two units."""


class Clock:
    deadline = math.inf

    @classmethod
    def check(cls) -> None:
        if time.time() > cls.deadline:
            raise TimeIsUp


class Network:
    """A trained network, its trunk and the test images."""

    def __init__(self, weights: Path, data: Dataset, device: str) -> None:
        self.title = weights.stem
        self.name, _, seed = self.title.rpartition("-seed")
        model = build(self.name).eval()
        load_weights(model, weights)
        self.model, self.data, self.device = model.to(device), data, device
        self.trunk = ss.trace(self.model, self.images(2))
        self.attributes = {
            "network": self.name,
            "seed": int(seed),
            "weights": weights.name,
            "weights_sha256": digest(weights),
            "test_images_sha256": data.test.digest(),
            "seed_of_images": SEED,
            "device": torch.cuda.get_device_name() if device.startswith("cuda") else device,
            "torch": str(torch.__version__),
            "skipscope": ss.__version__,
        }

    def chosen(self, count: int) -> torch.Tensor:
        return self.data.test_choice(min(count, len(self.data.test)), SEED)

    def images(self, count: int) -> torch.Tensor:
        return self.data.test.images(self.chosen(count)).to(self.device)

    def regular(self, stages: Sequence[int]) -> list[ss.Unit]:
        return [unit for unit in self.trunk.units if unit.kind == "identity" and unit.stage in stages]

    def labels(self, units: Sequence[Any]) -> dict[str, Any]:
        kinds = [unit.kind if isinstance(unit, ss.Unit) else "" for unit in units]
        stages = [unit.stage if isinstance(unit, ss.Unit) else unit.index + 1 for unit in units]
        return {"unit": [unit.name for unit in units], "skip": ("unit", kinds), "stage": ("unit", stages)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, metavar="NAME:PATH")
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--parts", nargs="*", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--counted", type=int, default=2000, help="images of `count`")
    parser.add_argument("--perturbed", type=int, default=100, help="images of `perturb`")
    parser.add_argument("--projected", type=int, default=50, help="images of `project`")
    parser.add_argument("--images", type=int, default=2, help="images of `spectra`")
    parser.add_argument("--stages", type=int, nargs="*", default=[3, 2, 1], help="of `spectra` and `random`")
    parser.add_argument("--seconds", type=float, default=math.inf)
    options = parser.parse_args()
    Clock.deadline = time.time() + options.seconds
    options.out.mkdir(parents=True, exist_ok=True)
    network = Network(options.weights, load(options.data), options.device)
    try:
        measure_all(network, options)
    except TimeIsUp:
        print(f"{network.title}: the time is up", flush=True)
        sys.exit(LEFT_OVER)


def measure_all(network: Network, options: argparse.Namespace) -> None:
    for part in options.parts:
        for name, measure in PARTS[part](network, options):
            place = options.out / f"{network.title}-{name}.nc"
            if place.exists():
                continue
            start = time.time()
            dataset = measure()
            seconds = time.time() - start
            attributes = {**network.attributes, **dataset.attrs, "part": name, "seconds": round(seconds, 1)}
            write_whole(place, partial(_write, dataset.assign_attrs(attributes)))
            print(f"{network.title}: {name}, {seconds:.1f} s", flush=True)


def _write(dataset: xarray.Dataset, path: Path) -> None:
    encoding = {name: {"zlib": True} for name, values in dataset.data_vars.items() if values.dtype.kind in "fi"}
    dataset.to_netcdf(path, engine="h5netcdf", encoding=encoding)


Named = Iterator[tuple[str, Callable[[], xarray.Dataset]]]


# -- counts


def count(network: Network, options: argparse.Namespace) -> Named:
    yield "count", lambda: _counted(network, options.counted)


def _counted(network: Network, images: int, batch: int = 250) -> xarray.Dataset:
    """Of regular units: the law's counts, image by image."""
    chosen = network.chosen(images)
    units = network.regular((1, 2, 3))
    inactive = numpy.zeros((len(units), len(chosen)), dtype="int16")
    inner = numpy.zeros_like(inactive)
    for start in range(0, len(chosen), batch):
        some = slice(start, start + batch)
        point = network.trunk.at(network.data.test.images(chosen[some]).to(network.device))
        for place, unit in enumerate(units):
            Clock.check()
            law = _law(unit, point)
            inactive[place, some], inner[place, some] = law.inactive.cpu().numpy(), law.rank.cpu().numpy()
        del point, law
    size = numpy.array([int(numpy.prod(unit.entry_shape)) for unit in units])
    ones = (size[:, None] - inactive.astype(int) - 2 * inner.astype(int)).clip(0)
    pair = ("unit", "quantity")
    shares = {"zeros": inactive / size[:, None], "inner_active": inner / size[:, None], "ones": ones / size[:, None]}
    return xarray.Dataset(
        {
            "mean": (pair, numpy.stack([share.mean(1) for share in shares.values()], 1)),
            "deviation": (pair, numpy.stack([share.std(1, ddof=1) for share in shares.values()], 1)),
            "smallest": (pair, numpy.stack([share.min(1) for share in shares.values()], 1)),
            "largest": (pair, numpy.stack([share.max(1) for share in shares.values()], 1)),
            "generic": (("unit",), (ones > 0).mean(1)),  # the share of images on which a plateau is proved
            "size": (("unit",), size),
        },
        {**network.labels(units), "quantity": list(shares)},
        {"measure": "counts by the law, shares of size, over images", "images": len(chosen)},
    )


def _law(unit: Any, point: Any) -> Any:
    law = law_or_reason(unit, point)
    if isinstance(law, str):
        raise SystemExit(f"the law says nothing of {unit.name}: {law}")
    return law


# -- perturbations


def perturb(network: Network, options: argparse.Namespace) -> Named:
    yield "perturb", lambda: _perturbed(network, options.perturbed)


def project(network: Network, options: argparse.Namespace) -> Named:
    yield "project", lambda: _projected(network, options.projected)


def _perturbations(network: Network, images: int) -> tuple[torch.Tensor, dict[str, torch.Tensor], dict[str, Any]]:
    chosen = network.chosen(CANDIDATES * images)
    labels = network.data.test.labels[chosen]
    found = fgsm(network.model, network.data.test.images(chosen).to(network.device), labels.to(network.device))
    adversarial = found.perturbation[:images]
    if len(adversarial) < images:
        raise SystemExit(f"{len(adversarial)} of {len(chosen)} images can be flipped, wanted {images}")
    record = {
        "step": found.eps[:images].cpu().numpy(),
        "candidates": len(chosen),
        "misclassified": found.misclassified,
        "not_flipped": found.not_flipped,
    }
    return found.images[:images], {"adversarial": adversarial, "random": uniform_like(adversarial, SEED)}, record


def _perturbed(network: Network, images: int) -> xarray.Dataset:
    clean, kinds, record = _perturbations(network, images)
    return ss.stability(network.trunk, clean, perturbation=kinds).assign_attrs(record).astype("float32")


def _projected(network: Network, images: int) -> xarray.Dataset:
    """All images of a unit at once: `ss.stability` takes one after another, which is slow on a GPU."""
    clean, kinds, record = _perturbations(network, images)
    units = network.regular((3,))[::-2][:4][::-1]
    point = network.trunk.at(clean)
    entries = {kind: network.trunk.at(clean + change) for kind, change in kinds.items()}
    alpha = numpy.zeros((len(kinds), len(units), images, LEADING))
    values, converged = numpy.zeros(alpha.shape[1:]), numpy.zeros(alpha.shape[1:], dtype="int8")
    for place, unit in enumerate(units):
        Clock.check()
        start = point.entry(unit).double().flatten(1)
        found = ss.svd(unit.jacobian(point).double(), LEADING, tol=1e-8, route="iterative")
        values[place], converged[place] = found.S.cpu().numpy(), found.converged.cpu().numpy()
        for kind, other in enumerate(entries.values()):
            change = other.entry(unit).double().flatten(1) - start
            direction = change / change.norm(dim=1, keepdim=True)
            alpha[kind, place] = torch.einsum("bn,bnk->bk", direction, found.V).cpu().numpy()
    indexed = ("unit", "sample", "index")
    return xarray.Dataset(
        {
            "projection": (("kind", *indexed), alpha.astype("float32")),
            "singular_value": (indexed, values.astype("float32")),
            "converged": (indexed, converged),
        },
        {**network.labels(units), "kind": list(kinds)},
        {"measure": "perturbations on the leading right singular vectors, of unit length", **record},
    )


# -- spectra


def spectra(network: Network, options: argparse.Namespace) -> Named:
    for number in options.stages:
        yield f"spectra{number}", lambda number=number: _spectra(network, number, options.images)


def _spectra(network: Network, stage: int, images: int) -> xarray.Dataset:
    point = network.trunk.at(network.images(images))
    spans = [*(unit for unit in network.trunk.units if unit.stage == stage), network.trunk.stages[stage - 1]]
    rows = [_described(span, point) for span in spans]
    dataset = _together(rows).assign_coords(**network.labels(spans))
    return dataset.assign_coords(kind=("unit", ["unit"] * (len(spans) - 1) + ["stage"]), sample=range(images))


def _together(rows: Sequence[xarray.Dataset]) -> xarray.Dataset:
    return xarray.concat(rows, "unit").assign_attrs(measure="spectra", near_one=(0.99, 1.01), one=ONE)


def _described(span: Any, point: Any) -> xarray.Dataset:
    """What is kept of a span's singular values, for every sample.

    The Gram matrix is used where the law saves nothing. Values below `tolerance` count as zeros: it is 1e-6 of the
    largest value or less, and 1e-12 of it on the law's route.
    """
    Clock.check()
    law = law_or_reason(span, point) if isinstance(span, ss.Unit) and span.kind == "identity" else None
    cheaper = law is not None and bool((2 * law.rank < LAW_GAIN * law.active).all())
    found = ss.singular_values(span.jacobian(point), route="law" if cheaper else "gram")
    rows = [_summary(values, float(zero)) for values, zero in zip(found.values.numpy(), found.tolerance, strict=True)]
    data: dict[str, Any] = {name: ("sample", numpy.array([row[name] for row in rows])) for name in rows[0]}
    for name, dimension in (("quantile_off", "level"), ("quantile", "level_of_all")):
        data[name] = (("sample", dimension), numpy.stack([row[name] for row in rows]).astype("float32"))
    size = found.values.shape[1]
    data["size"] = ("sample", numpy.full(len(rows), size))
    data["zeros_proved"] = ("sample", found.zeros_at_least.cpu().numpy())
    data["ones_proved"] = ("sample", found.ones_at_least.cpu().numpy())
    data["tolerance"] = ("sample", found.tolerance.cpu().numpy())
    data["error"] = ("sample", found.bound.amax(1).cpu().numpy())
    data["by_law"] = ("sample", numpy.full(len(rows), int(cheaper), dtype="int8"))
    if torch.cuda.is_available():
        torch.cuda.empty_cache()  # several processes share the memory
    return xarray.Dataset(data, {"level": LEVELS, "level_of_all": ALL_LEVELS})


def _summary(values: numpy.ndarray, zero: float) -> dict[str, Any]:
    """Of one sample's singular values, descending. Shares are of all of them."""
    positive = values[values > zero]
    off = positive[numpy.abs(positive - 1) > ONE]
    share = {
        "above": values > 1.01,
        "near_one": (values >= 0.99) & (values <= 1.01),
        "below": (values > zero) & (values < 0.99),
        "zero": values <= zero,
        "one": numpy.abs(values - 1) <= ONE,
        "just_below": (values >= 0.97) & (values < 0.99),
        "just_above": (values > 1.01) & (values <= 1.03),
    }
    return {
        **{f"share_{name}": float(which.mean()) for name, which in share.items()},
        "largest": float(values[0]),
        "mean": float(values.mean()),
        "mean_positive": float(positive.mean()),
        "median_positive": float(numpy.median(positive)),
        "quantile_off": numpy.quantile(off, LEVELS) if len(off) else numpy.full(len(LEVELS), numpy.nan),
        "quantile": numpy.quantile(values, ALL_LEVELS),
    }


# -- noise


def noise(network: Network, options: argparse.Namespace) -> Named:
    yield "noise", lambda: _noise(network, NOISY)
    yield "noise-counts", lambda: _noise_counts(network)


def random(network: Network, options: argparse.Namespace) -> Named:
    for number in options.stages:
        yield f"random{number}", lambda number=number: _random(network, number)


def _noisy(unit: Any, t: float, mixture: str) -> Any:
    return with_weights(unit, noisy_weights(unit, t, seed=SEED, mixture=mixture))


def _noise(network: Network, names: Sequence[str]) -> xarray.Dataset:
    """At t = 0 and t = 1 both mixtures are the same."""
    point = network.trunk.at(network.images(1))
    units = [network.trunk[name] for name in names]
    mixtures = []
    for mixture in MIXTURES:
        rows = []
        for t in MIXING:
            same = mixtures and t in (0.0, 1.0)
            rows.append(
                mixtures[0].sel(t=t, drop=True)
                if same
                else _together([_described(_noisy(unit, t, mixture), point) for unit in units])
            )
        mixtures.append(xarray.concat(rows, "t").assign_coords(t=list(MIXING)))
    return xarray.concat(mixtures, "mixture").assign_coords(mixture=list(MIXTURES), **network.labels(units))


def _noise_counts(network: Network, images: int = 10) -> xarray.Dataset:
    """By the law, of all regular units: shares of exact zeros and ones, means over images."""
    point = network.trunk.at(network.images(images))
    units = network.regular((1, 2, 3))
    zeros = numpy.zeros((len(MIXTURES), len(MIXING), len(units)))
    ones = numpy.zeros_like(zeros)
    for m, t, place in numpy.ndindex(*zeros.shape):
        Clock.check()
        if m and MIXING[t] in (0.0, 1.0):
            zeros[m, t, place], ones[m, t, place] = zeros[0, t, place], ones[0, t, place]
            continue
        law = _law(_noisy(units[place], MIXING[t], MIXTURES[m]), point)
        zeros[m, t, place] = float(law.zeros_at_least.double().mean()) / law.size
        ones[m, t, place] = float(law.ones_at_least.double().mean()) / law.size
    dimensions = ("mixture", "t", "unit")
    return xarray.Dataset(
        {"zeros": (dimensions, zeros), "ones": (dimensions, ones)},
        {"mixture": list(MIXTURES), "t": list(MIXING), **network.labels(units)},
        {"measure": "counts by the law, weights mixed with noise", "images": images},
    )


def _random(network: Network, stage: int) -> xarray.Dataset:
    """Of stage 1 the third and the fifth unit only: they are the largest."""
    point = network.trunk.at(network.images(1))
    units = network.regular((stage,))
    units = [unit for unit in units if stage > 1 or unit.name in ("stage1.2", "stage1.4")]
    rows = [_described(_noisy(unit, 0.0, "convex"), point) for unit in units]
    return _together(rows).assign_coords(**network.labels(units))


PARTS: dict[str, Callable[[Network, argparse.Namespace], Named]] = {
    "count": count,
    "perturb": perturb,
    "project": project,
    "spectra": spectra,
    "noise": noise,
    "random": random,
}

if __name__ == "__main__":
    main()
