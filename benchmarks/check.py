"""The networks that the first edition of `skipscope check` was made with, and published ones that are known to train.

    python -m benchmarks.check train     # trains what is not in results/check.json yet; can be stopped and resumed
    python -m benchmarks.check measure   # the signals of all of them, anew
    python -m benchmarks.check margins   # their standard errors over samples, beside the signals that are stored
    python -m benchmarks.check report    # what the present rules say of them, into docs/check-accuracy.md
    python -m benchmarks.check units     # gains and spreads of residual units, the table of docs/check.md

"Trains" means here: in one of 15 epochs of the 1,437 training digits (batches of 64, momentum 0.9, constant rate, no
decay), at one of the rates below, at least 90 % of the answers are right while it trains. A rate ends early when it has
succeeded or its loss is not finite. About 15 minutes of one core. That is a quarter of the time that
`benchmarks.unseen`, from which thresholds come now, gives a network: some that fail here are only slow.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import sys
import time
from collections import Counter
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.page import put_between
from skipscope import __version__
from skipscope.check.rules import broken
from skipscope.check.signals import measured
from skipscope.check.units import spectra_of_units
from skipscope.data import digits
from skipscope.models.names import build
from skipscope.numerics import seed_of
from skipscope.runs import write_whole

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parent.parent / "docs" / "check-accuracy.md"
BEGIN = "<!-- from here on: written by python -m benchmarks.check report -->"
END = "<!-- end of what it writes about earlier networks -->"
OPTIMISER = "sgd"
RATES = (0.1, 0.01, 0.001, 0.0001)
EPOCHS, BATCH, MOMENTUM = 15, 64, 0.9
WORDS = {True: "yes", False: "no"}
PUBLISHED = (  # known to train; pixels a side, images
    ("resnet18", 64, 16),
    ("resnet18", 32, 32),
    ("resnet50", 64, 16),
    ("resnet101", 64, 16),
    ("resnet101", 128, 8),
    ("resnet152", 64, 16),
    ("resnext50_32x4d", 64, 16),
    ("resnext101_32x8d", 64, 8),
    ("mobilenet_v2", 64, 16),
    ("regnet_y_400mf", 64, 16),
    ("densenet121", 64, 16),
    ("alexnet", 224, 16),
    ("vgg11", 224, 4),
    ("vgg16", 64, 16),
    ("vgg16", 224, 4),
    ("convnext_tiny", 64, 16),
    ("timm vit_tiny_patch16_224", 224, 8),
    ("timm deit_tiny_patch16_224", 224, 8),
    ("timm mixer_s32_224", 224, 8),
)
UNITS_OF = ((128, ""), (32, "-nonorm"), (64, "-nonorm"), (128, "-nonorm"))  # depth and norm
PUBLISHED_UNITS = (
    ("resnet18", 64, 16),
    ("resnet50", 64, 16),
    ("resnet101", 64, 16),
    ("resnet152", 64, 16),
    ("timm vit_tiny_patch16_224", 224, 8),
)
SAMPLES = 32  # at which signals are measured
TRAINS = 0.9  # of the training images answered right in one epoch


def corpus() -> list[str]:
    """Names of networks: fully connected ones of width 32, and small convolutional ones."""
    norms = ("", "-nonorm")
    plain = product(("plainnet",), (8, 16, 32, 64), norms, ("", "-xavier", "-orthogonal", "-small"))
    between = product(("plainnet",), (12, 24), norms, ("", "-xavier", "-orthogonal"))
    deepest = product(("plainnet",), (128,), norms, ("", "-xavier"))
    scaled = product(("resnet",), (32, 64, 128), ("-nonorm",), ("-scale30", "-scale60"))
    residual = product(("resnet",), (8, 16, 32, 64, 128), norms, ("", "-scale10", "-small", "-zero"))
    paths = product(("resnext",), (8, 32, 128), norms, ("", "-scale10"))
    connected = [
        f"{family}{depth}-digits-connected-n2{norm}{other}"
        for family, depth, norm, other in (*plain, *between, *deepest, *residual, *scaled, *paths)
    ]
    usual = product(("plainnet", "resnet"), (8, 20, 44), norms, ("",))
    others = product(("plainnet",), (20,), norms, ("-orthogonal",))
    grouped = product(("resnext",), (8, 20), norms, ("",))
    convolutional = [
        f"{family}{depth}-digits-n4{norm}{other}" for family, depth, norm, other in (*usual, *others, *grouped)
    ]
    return connected + convolutional


def later() -> list[str]:
    """Networks of other widths, depths and factors, trained once rules and thresholds were fixed, to judge them by."""
    norms = ("", "-nonorm")
    connected = (
        *product(("plainnet",), (10, 20, 40, 80), norms, ("", "-orthogonal")),
        *product(("resnet",), (10, 24, 56, 96), norms, ("", "-scale30")),
        *product(("resnet",), (24, 96), norms, ("-xavier",)),
        *product(("resnext",), (10, 24, 56), norms, ("", "-scale30")),
    )
    convolutional = (
        *product(("plainnet",), (14, 32), norms, ("", "-xavier")),
        *product(("resnet",), (14, 32, 56), norms, ("",)),
        *product(("resnext",), (14,), norms, ("",)),
    )
    return [
        f"{family}{depth}-digits{form}{norm}{other}"
        for form, networks in (("-connected", connected), ("-n4", convolutional))
        for family, depth, norm, other in networks
    ]


def fresh(name: str) -> nn.Module:
    """The network with its own fixed initial weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_of("check", name))
        return build(name)


def outcome(name: str) -> dict[str, Any]:
    """The best accuracy of an epoch at each rate, until one succeeds."""
    began = time.process_time()
    best: dict[str, float] = {}
    for rate in RATES:
        best[str(rate)] = best_epoch(fresh(name), rate)
        if best[str(rate)] >= TRAINS:
            break
    return {
        "trains": max(best.values()) >= TRAINS,
        "accuracy": {rate: round(value, 4) for rate, value in best.items()},
        "seconds": round(time.process_time() - began, 1),
    }


def best_epoch(model: nn.Module, rate: float, epochs: int = EPOCHS) -> float:
    optimiser = torch.optim.SGD(model.parameters(), lr=rate, momentum=MOMENTUM)
    return most_right(model, optimiser, epochs, seed=0)


def most_right(
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    epochs: int,
    seed: int,
    hopeless: Callable[[int, float], bool] = lambda epoch, best: False,
) -> float:
    """The largest share of right answers in an epoch of training; it ends with one that is enough, where a loss is not
    finite, and where an epoch and the best share so far are hopeless. seed: of the order of the images."""
    split = digits().train
    images, labels = split.images(), split.labels
    order = torch.Generator().manual_seed(seed)
    model.train()
    best = 0.0
    for epoch in range(1, epochs + 1):
        right = seen = 0
        for chosen in torch.randperm(len(split), generator=order).split(BATCH):
            if len(chosen) < BATCH:
                continue
            optimiser.zero_grad()
            answers = model(images[chosen])
            loss = F.cross_entropy(answers, labels[chosen])
            if not math.isfinite(loss.item()):
                return best
            loss.backward()
            optimiser.step()
            right += int((answers.argmax(1) == labels[chosen]).sum())
            seen += len(chosen)
        best = max(best, right / seen)
        if best >= TRAINS or hopeless(epoch, best):
            break
    return best


def signals(name: str) -> dict[str, float]:
    """Of the initial weights."""
    return measured(fresh(name), some_digits()).signals


def some_digits() -> torch.Tensor:
    """The same training digits for all networks."""
    chosen = torch.randperm(len(digits().train), generator=torch.Generator().manual_seed(0))[:SAMPLES]
    return digits().train.images(chosen)


def published(name: str, side: int, images: int) -> dict[str, dict[str, float]]:
    """Of a network that is known to train."""
    model, inputs = with_inputs(name, side, images)
    return {f"{name}, {side} pixels, {kind}": measured(model, x).signals for kind, x in inputs.items()}


def with_inputs(name: str, side: int, images: int) -> tuple[nn.Module, dict[str, torch.Tensor]]:
    """A published network and smooth random images, and noise as the command has it where no data are named."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_of("check", name))
        model, small = known(name), torch.randn(images, 3, 8, 8)
        noise = torch.randn(images, 3, side, side)
    return model, {"smooth": F.interpolate(small, size=side, mode="bilinear"), "noise": noise}


def known(name: str) -> nn.Module:
    if name.startswith("timm "):
        import timm

        return timm.create_model(name.removeprefix("timm "), pretrained=False)
    from torchvision.models import get_model

    return get_model(name, weights=None)


# -- what the present rules say of them


def report() -> None:
    found = read()
    text = "\n\n".join(
        [
            f"The 124 networks of the first edition: {judged(found['networks'])}",
            f"The 64 later ones, with which it was judged: {judged(found['later'])}",
        ]
    )
    put_between(PAGE, BEGIN, END, text)
    print(text)


def judged(networks: dict[str, Any]) -> str:
    """Counts, and the networks that the rules are wrong about."""
    counts: Counter[tuple[bool, bool]] = Counter()
    lines = ["| network | best accuracy in 15 epochs | trains | expected to train | broken |", "|---|---:|---|---|---|"]
    for name, network in networks.items():
        found, truth = broken(network["signals"], OPTIMISER), network["trains"]
        counts[truth, not found] += 1
        if truth == bool(found):
            accuracy = f"{max(network['accuracy'].values()):.2f}"
            lines.append(f"| `{name}` | {accuracy} | {WORDS[truth]} | {WORDS[not found]} | {', '.join(found)} |")
    right, total = counts[True, True] + counts[False, False], counts.total()
    low, high = wilson(right, total)
    return "\n".join(
        [
            f"{right} of {total} right, {100 * right / total:.1f} %, 95 % interval {100 * low:.1f} % to "
            f"{100 * high:.1f} % (Wilson), with {counts[True, False]} false alarms and {counts[False, True]} misses.",
            "",
            *lines,
        ]
    )


def units() -> None:
    """Residual units before training: of networks of the corpus, and of published ones at smooth images."""
    own = [f"resnet{depth}-digits-connected-n2{norm}" for depth, norm in UNITS_OF]
    cases = [(name, fresh(name), some_digits()) for name in own]
    for name, side, images in PUBLISHED_UNITS:
        model, inputs = with_inputs(name, side, images)
        cases.append((f"{name}, {images} images of {side} pixels", model, inputs["smooth"]))
    for name, model, x in cases:
        found = spectra_of_units(model, x)
        gain, spread = (float(found[key].sum()) for key in ("gain", "spread"))
        print(f"{name:50} {found.sizes['unit']:3} units, gain {gain:5.2f}, spread {spread:6.1f} in all", flush=True)


def wilson(right: int, total: int) -> tuple[float, float]:
    """The interval in which a share lies with 95 % confidence."""
    z, share = 1.959964, right / total
    middle = (share + z**2 / (2 * total)) / (1 + z**2 / total)
    reach = z / (1 + z**2 / total) * math.sqrt(share * (1 - share) / total + z**2 / (4 * total**2))
    return middle - reach, middle + reach


def read() -> dict[str, Any]:
    path, empty = RESULTS / "check.json", {"networks": {}, "published": {}, "later": {}}
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else empty


def write(found: dict[str, Any]) -> None:
    versions = {"skipscope": __version__, "torch": torch.__version__, "python": platform.python_version()}
    text = json.dumps({"about": versions, **found}, indent=1)
    write_whole(RESULTS / "check.json", f"{text}\n".encode())


def train() -> None:
    found = read()
    for kind, names in (("networks", corpus()), ("later", later())):
        networks = found[kind]
        for name in names:
            if name not in networks:
                networks[name] = outcome(name)
                write(found)
                print(name, networks[name], file=sys.stderr, flush=True)


def measure() -> None:
    found = read()
    for name, network in (found["networks"] | found["later"]).items():
        network["signals"] = {signal: round(value, 4) for signal, value in signals(name).items()}
    found["published"] = {}
    for name, side, images in PUBLISHED:
        for kind, values in published(name, side, images).items():
            found["published"][kind] = {signal: round(value, 4) for signal, value in values.items()}
            print(kind, found["published"][kind], file=sys.stderr, flush=True)
    write(found)


def margins() -> None:
    """Signals stay those that the networks were judged by; other processors give the last digits otherwise."""
    found = read()
    for name, network in (found["networks"] | found["later"]).items():
        anew = measured(fresh(name), some_digits())
        if broken(anew.signals, OPTIMISER) != broken(network["signals"], OPTIMISER):
            print(f"{name}: other rules are broken than those of the stored signals", file=sys.stderr)
        network["errors"] = {signal: round(value, 4) for signal, value in anew.errors.items()}
    write(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("train", "measure", "margins", "report", "units"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    steps = {"train": train, "measure": measure, "margins": margins, "report": report, "units": units}
    steps[options.what]()


if __name__ == "__main__":
    main()
