"""Measure what is usual: the numbers that findings compare with, on many models.

    python scripts/usual_ranges.py --data cifar10:PATH [--only resnet18 ...]

Models of torchvision, timm and Hugging Face from the corpus of `scripts/architecture_models` with the initial weights
that their libraries give them, batch norms with the statistics of the batch; and the trained networks of
docs/results/networks on test images. Writes skipscope/findings/usual_ranges.json: for each number and kind the middle
90 % over models, each with the same weight however many units it has. Leading values and shares take long: they are
measured on one unit of every eighth model. About half an hour on one core.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import skipscope as ss  # noqa: E402
from scripts.architecture_models import PARTS  # noqa: E402
from skipscope.data import load as load_data  # noqa: E402
from skipscope.errors import SkipscopeError  # noqa: E402
from skipscope.findings.networks import OF_NETWORKS, OF_UNITS, MeasuredNetwork  # noqa: E402
from skipscope.findings.usual import FILE  # noqa: E402
from skipscope.models.weights import load_weights  # noqa: E402

TARGET = ROOT / "skipscope" / "findings" / FILE
NETWORKS = ROOT / "docs" / "results" / "networks"
SAMPLES = 8
PROBES = 2
EVERY = 8  # of so many models one has its leading values measured
LARGEST_STATE = 5_000  # entries of a unit whose leading values are measured
ENDS = (0.05, 0.5, 0.95)
FEWEST = 5  # models of a kind

Rows = list[tuple[str, str, str, float]]  # model, quantity, kind, value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="cifar10:PATH, for the trained networks; without it they are left out")
    parser.add_argument("--every", type=int, default=1, help="measure one of so many models of each library")
    parser.add_argument("--only", nargs="*", help="models to measure; nothing is written")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    rows: Rows = []
    measured, failed = [], {}
    for number, (name, make) in enumerate(models(options.data, options.every, options.only)):
        start = time.perf_counter()
        try:
            torch.manual_seed(0)
            network, x = make()
            found = [(name, *row) for row in numbers_of(network, x, leading=number % EVERY == 0)]
        except (SkipscopeError, RuntimeError, MemoryError) as error:
            failed[name] = str(error).partition("\n")[0][:200]
            continue
        rows += found
        measured.append(name)
        print(f"{name}: {len(found)} numbers in {time.perf_counter() - start:.1f} s", file=sys.stderr, flush=True)
    if options.only:
        print(json.dumps(ranges(rows, fewest=1), indent=1))
        return
    about = {
        "made_by": "scripts/usual_ranges.py",
        "skipscope": ss.__version__,
        "torch": torch.__version__,
        "samples": SAMPLES,
        "one_of": options.every,
        "models": len(measured),
        "trained": [name for name in measured if name.endswith("(trained)")],
        "not_measured": failed,
    }
    TARGET.write_text(json.dumps({"about": about, "ranges": ranges(rows, FEWEST)}, indent=1) + "\n")


def models(data: str | None, every: int, only: list[str] | None) -> Iterator[tuple[str, Any]]:
    """Names, and what makes a network and a batch."""
    for part in PARTS[:3]:
        for name, model in list(part.items())[:: 1 if only else every]:
            if not only or name in only:
                yield name, lambda model=model: (model.make().eval(), model.x(SAMPLES))
    if data is None:
        return
    images = load_data(data).test_batch(SAMPLES, 0)
    for file in sorted(NETWORKS.glob("*.safetensors")):
        name = file.stem.partition("-seed")[0]
        if not only or file.stem in only:
            yield f"{file.stem} (trained)", lambda name=name, file=file: (trained(name, file), images)


def trained(name: str, file: Path) -> torch.nn.Module:
    model = ss.build(name)
    load_weights(model, file)
    return model.eval()


def numbers_of(network: torch.nn.Module, x: Any, leading: bool) -> list[tuple[str, str, float]]:
    """Quantity, kind of the unit or of the network, value."""
    trunk = ss.trace(network, x, calibrate=True)
    if len(trunk.units) < 2:
        return []
    point = trunk.at(x)
    datasets = {"profile": ("profile", ss.profile(trunk, point, probes=PROBES))}
    middle = trunk.units[len(trunk.units) // 2]
    if leading and max(numpy.prod(middle.entry_shape), numpy.prod(middle.exit_shape)) <= LARGEST_STATE:
        found = ss.leading(trunk, point, units=[middle.name], k=1)
        datasets["leading"] = ("leading", found)
    measured = MeasuredNetwork("", datasets)
    kinds = measured.coordinate("branch")
    rows: list[tuple[str, str, float]] = []
    for quantity in OF_UNITS:
        values = measured.of_units(quantity)
        if quantity == "share_near_one" and "leading" in datasets:
            values = {middle.name: float(datasets["leading"][1]["share_near_one"].mean())}
        rows += [(quantity, kinds[unit], value) for unit, value in values.items()]
    for quantity in OF_NETWORKS:
        value = measured.whole(quantity)
        if numpy.isfinite(value):
            rows.append((quantity, measured.kind, value))
    return rows


def ranges(rows: Rows, fewest: int) -> dict[str, dict[str, dict[str, float]]]:
    """By quantity and kind, with `any` for all kinds together."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for quantity in (*OF_UNITS, *OF_NETWORKS):
        for kind in ("attention", "convolution", "linear", "any"):
            own = [(model, value) for model, q, k, value in rows if q == quantity and kind in (k, "any")]
            units = Counter(model for model, _ in own)
            if len(units) < fewest:
                continue
            values = numpy.array([value for _, value in own])
            weights = numpy.array([1 / units[model] for model, _ in own])  # each model counts once
            low, middle, high = weighted_quantiles(values, weights, ENDS)
            found.setdefault(quantity, {})[kind] = {
                "low": float(f"{low:.3g}"),
                "middle": float(f"{middle:.3g}"),
                "high": float(f"{high:.3g}"),
                "models": len(units),
            }
    return found


def weighted_quantiles(values: numpy.ndarray, weights: numpy.ndarray, at: tuple[float, ...]) -> list[float]:
    order = values.argsort()
    places = (weights[order].cumsum() - 0.5 * weights[order]) / weights.sum()
    return numpy.interp(at, places, values[order]).tolist()


if __name__ == "__main__":
    main()
