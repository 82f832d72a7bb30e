"""How long before the loss shows it the monitor's alarms ring, and how often they ring for nothing.

    python -m benchmarks.alarms calibrate   # trains seeds below 100, and prints the thresholds that they give
    python -m benchmarks.alarms judge       # trains seeds from 1100 on, with the thresholds that the monitor has
    python -m benchmarks.alarms report      # the table of docs/monitor.md

A seed draws everything: one of three networks on the 1,437 training digits, optimizer, rate, and for every odd seed a
fault: a rate that jumps, a rate that keeps growing, too much weight decay, weights that start too large, or a plain
network of sigmoids that is too deep. Trainings can be stopped and gone on with. About 5 seconds of one core each.

A first list (60 calibrating seeds, judged on 1000 to 1079) had rates of gradient descent up to 0.05. That the
sharpness was measured with fixed statistics of batch norms, and rang for nothing at their usual rates, did not show. So
seeds from 60 on have rates up to 0.2, and others judge.

Fixed before any of the judging seeds was trained; LOOSEST and the signal of growing states were chosen after a first
look at calibrating ones:

- A training of 300 steps fails where the mean of its last 20 losses is above 1.0 (a guess has 2.3) or not finite.
- The loss shows a failure at the first look at which the mean of the last 10 losses is not finite, is 1.0 above the
  lowest such mean so far, or, from the step on by which all calibrating trainings that do not fail are below 90 % of a
  guess, is not below that itself.
- A threshold is where no calibrating training without a fault has its signal at as many looks one after another as the
  rule waits, and a fifth of a power of ten beyond (for the sharpness: a tenth of its value); but no tighter than
  LOOSEST, for larger networks and longer trainings differ more from their beginnings: gradients as in `check`, whose
  thresholds come from many networks.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import skipscope as ss
from benchmarks.check import wilson
from benchmarks.machine import described
from benchmarks.page import put_between
from skipscope.data import digits
from skipscope.monitor.alarms import NOT_FINITE, RULES, Rule, sharpness_over, signals_of
from skipscope.monitor.sharpness import Rate
from skipscope.numerics import seed_of
from skipscope.runs import write_whole

RESULTS = Path(__file__).parent / "results" / "alarms.json"
PAGE = Path(__file__).parent.parent / "docs" / "monitor.md"
BEGIN, END = "<!-- written by benchmarks/alarms.py report -->", "<!-- end of what it writes -->"
CALIBRATING, JUDGING = range(100), range(1100, 1180)
WIDE = range(60, 1000)  # seeds; those from 1100 on too
LARGEST_RATES = (-1.3, -0.7)  # of gradient descent, log10: of the first list, 0.05, and of the wide ones, 0.2
STEPS, BATCH, EVERY, SHARP_EVERY = 300, 64, 5, 20
FAILS, GUESS, SHOWN_RISE, SHOWN_SHARE = 1.0, math.log(10), 1.0, 0.9
LAST, RECENT = 20, 10  # losses of a mean
BEYOND, BEYOND_SHARPNESS = 0.2, 0.1
LOOSEST = {"growth": 1.0, "gradient_growth": -3.4, "branch": -3.0, "spread": -2.0, "sharpness": 1.5}
WIDTH, BLOCKS, PLAIN_BLOCKS = 32, 6, 24


class Block(nn.Module):
    def __init__(self, norm: bool) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH) if norm else nn.Identity()
        self.inner, self.outer = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.outer(torch.relu(self.inner(self.norm(x))))


def connected(norm: bool) -> nn.Module:
    blocks = [Block(norm) for _ in range(BLOCKS)]
    return nn.Sequential(nn.Flatten(), nn.Linear(64, WIDTH), *blocks, nn.Linear(WIDTH, 10))


def sigmoids() -> nn.Module:
    blocks = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Sigmoid()) for _ in range(PLAIN_BLOCKS)]
    return nn.Sequential(nn.Flatten(), nn.Linear(64, WIDTH), *blocks, nn.Linear(WIDTH, 10))


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "residual, no norm": lambda: connected(False),
    "residual, layer norm": lambda: connected(True),
    "convolutional, batch norm": lambda: ss.build("resnet8-digits-n4"),
}
FAULTS = ("rate jumps", "rate keeps growing", "weight decay", "weights start large", "deep sigmoids")


@dataclass(frozen=True)
class Recipe:
    network: str
    optimizer: str
    rate: float
    fault: str = ""
    begins: int = 0  # the step at which the fault begins
    size: float = 0.0  # of the fault

    @classmethod
    def of(cls, seed: int) -> Recipe:
        numbers = random.Random(seed_of("alarms", seed))
        network, optimizer = numbers.choice(list(NETWORKS)), numbers.choice(("SGD", "SGD", "Adam"))
        largest = LARGEST_RATES[seed in WIDE or seed in JUDGING]
        rate = 10 ** (numbers.uniform(-2.2, largest) if optimizer == "SGD" else numbers.uniform(-3.2, -2.5))
        if seed % 2 == 0:
            return cls(network, optimizer, rate)
        fault, begins = FAULTS[seed // 2 % len(FAULTS)], numbers.randrange(60, 200)
        if fault == "rate jumps":
            return cls(network, optimizer, rate, fault, begins, 10 ** numbers.uniform(1.3, 2.5))
        if fault == "rate keeps growing":
            return cls(network, optimizer, rate, fault, begins, numbers.uniform(1.03, 1.15))
        if fault == "weight decay":
            return cls(network, "SGD", 10 ** numbers.uniform(-1.5, -1.1), fault, 0, 10 ** numbers.uniform(-0.6, 0.3))
        if fault == "weights start large":
            return cls("residual, no norm", optimizer, rate, fault, 0, numbers.uniform(3, 6))
        return cls("plain, sigmoids", optimizer, rate, fault)

    def model(self, seed: int) -> nn.Module:
        torch.manual_seed(seed_of("weights", seed))
        model = sigmoids() if self.fault == "deep sigmoids" else NETWORKS[self.network]()
        if self.fault == "weights start large":
            with torch.no_grad():
                for weight in model.parameters():
                    weight *= self.size if weight.dim() > 1 else 1
        return model

    def set_rate(self, optimizer: torch.optim.Optimizer, step: int) -> None:
        factor = 1.0
        if step >= self.begins and self.fault == "rate jumps":
            factor = self.size
        if step >= self.begins and self.fault == "rate keeps growing":
            factor = self.size ** (step - self.begins)
        for group in optimizer.param_groups:
            group["lr"] = self.rate * min(factor, 1e4)


# -- trainings


def trained(seed: int) -> dict[str, Any]:
    """One training, with the mean loss and the signals at every look."""
    recipe, began = Recipe.of(seed), time.process_time()
    model, data = recipe.model(seed), digits().train
    images, labels = data.images(torch.arange(len(data))), data.labels
    decay = recipe.size if recipe.fault == "weight decay" else 0.0
    optimizer: torch.optim.Optimizer = (
        torch.optim.SGD(model.parameters(), lr=recipe.rate, momentum=0.9, weight_decay=decay)
        if recipe.optimizer == "SGD"
        else torch.optim.Adam(model.parameters(), lr=recipe.rate)
    )
    named = [f"{place}" for place in range(2, 2 + PLAIN_BLOCKS)] if recipe.fault == "deep sigmoids" else None
    batch = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed_of("batch", seed)))[:32]
    trunk = ss.trace(model, images[batch], units=named)
    # Looks are asked for below, those of the sharpness more seldom.
    measures, x = ["sizes", "sharpness"], images[batch]
    monitor = ss.Monitor(trunk, x, STEPS + 1, measures, None, targets=labels[batch], optimizer=optimizer)
    model.train()
    losses: list[float] = []
    looks: list[dict[str, float]] = []
    for step in range(1, STEPS + 1):
        recipe.set_rate(optimizer, step)
        chosen = torch.randint(len(images), (BATCH,))
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images[chosen]), labels[chosen])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        monitor.step(loss)
        if step % EVERY == 0:
            looks.append(_look(monitor, step, losses, sharp=recipe.optimizer == "SGD" and step % SHARP_EVERY == 0))
            if not math.isfinite(losses[-1]):
                break
    end = losses[-LAST:]
    return {
        "seed": seed,
        **vars(recipe),
        "fails": not math.isfinite(sum(end)) or sum(end) / len(end) > FAILS,
        "last_loss": _plain(sum(end) / len(end)),
        "alarms": [[alarm.step, alarm.name] for alarm in monitor.alarms],
        "looks": looks,
        "seconds": round(time.process_time() - began, 1),
    }


def _look(monitor: ss.Monitor, step: int, losses: Sequence[float], sharp: bool) -> dict[str, Any]:
    monitor.look(["sizes", "sharpness"] if sharp else ["sizes"])
    recorded = monitor.recorded
    signals = signals_of({"sizes": recorded["sizes"]})
    if "sharpness" in recorded:
        signals["sharpness"] = sharpness_over(recorded["sharpness"], Rate.of(monitor.optimizer, None).limit)
    found = {name: _plain(signal.value) for name, signal in signals.items()}
    return {"step": step, "loss": _plain(statistics.fmean(losses[-RECENT:])), **found}


def _plain(value: float) -> float | None:
    """As JSON has it: None where it is not finite."""
    return float(f"{value:.4g}") if math.isfinite(value) else None


# -- what they say


def healthy_by(trainings: Sequence[Mapping[str, Any]]) -> int:
    """The step by which all that do not fail are below 90 % of a guess."""
    steps = [0]
    for one in trainings:
        if not one["fails"]:
            above = [look["step"] for look in one["looks"] if look["loss"] >= SHOWN_SHARE * GUESS]
            steps.append(max(above, default=0) + EVERY)
    return max(steps)


def shown_at(one: Mapping[str, Any], by: int) -> int | None:
    """The step at which the loss shows a failure: that of a look, or of a loss that is not finite."""
    steps = [step for step, name in one["alarms"] if name == NOT_FINITE]
    lowest = math.inf
    for look in one["looks"]:
        loss = math.inf if look["loss"] is None else look["loss"]
        lowest = min(lowest, loss)
        late = look["step"] >= by and loss >= SHOWN_SHARE * GUESS
        if not math.isfinite(loss) or loss > lowest + SHOWN_RISE or late:
            steps.append(int(look["step"]))
            break
    return min(steps, default=None)


def lasting(one: Mapping[str, Any], rule: Rule) -> list[float]:
    """What the signal had at looks one after another, as many as the rule waits: the mildest value of each run."""
    values = [look[rule.signal] for look in one["looks"] if look.get(rule.signal) is not None]
    milder = min if rule.above else max
    return [milder(values[place : place + rule.patience]) for place in range(len(values) - rule.patience + 1)]


def threshold_of(rule: Rule, trainings: Sequence[Mapping[str, Any]]) -> float:
    sound = [one for one in trainings if not one["fails"] and not one["fault"]]
    values = [value for one in sound for value in lasting(one, rule)]
    extreme = max(values) if rule.above else min(values)
    if rule.signal == "sharpness":
        return max(extreme * (1 + BEYOND_SHARPNESS), LOOSEST[rule.signal])
    return max(extreme + BEYOND, LOOSEST[rule.signal]) if rule.above else min(extreme - BEYOND, LOOSEST[rule.signal])


def calibrated(trainings: Sequence[Mapping[str, Any]]) -> None:
    failing = sum(one["fails"] for one in trainings)
    print(f"{len(trainings)} trainings, {failing} fail; healthy by step {healthy_by(trainings)}")
    for rule in RULES:
        found = threshold_of(rule, trainings)
        caught = sum(
            any(_beyond(rule, found, value) for value in lasting(one, rule)) for one in trainings if one["fails"]
        )
        print(f"{rule.name:<24} {rule.signal:<16} {found:8.2f} (now {rule.threshold}); rings in {caught} that fail")


def _beyond(rule: Rule, threshold: float, value: float) -> bool:
    return value > threshold if rule.above else value < threshold


def rang_at(one: Mapping[str, Any], names: Sequence[str] | None = None) -> int | None:
    """The step of the first alarm, as the monitor gave it."""
    return min((step for step, name in one["alarms"] if names is None or name in names), default=None)


# -- the table


def table(judged: Sequence[Mapping[str, Any]], by: int) -> list[str]:
    failing, healthy = ([one for one in judged if one["fails"] == fails] for fails in (True, False))
    lines = [
        "| trainings | alarm rings | before the loss shows it | steps before, median | middle half |",
        "|---|---|---|---|---|",
    ]
    groups = {"all that fail": failing}
    groups |= {fault: [one for one in failing if one["fault"] == fault] for fault in FAULTS}
    for title, group in groups.items():
        if not group:
            continue
        leads = [lead for one in group if (lead := lead_of(one, by)) is not None]
        early = sum(lead > 0 for lead in leads)
        middle, half = _median_with_interval(leads)
        lines.append(
            f"| {title} | {_share(len(leads), len(group))} | {_share(early, len(group))} | {middle} | {half} |"
        )
    sound, survived = ([one for one in healthy if bool(one["fault"]) == fault] for fault in (False, True))
    wrong, warned = (sum(rang_at(one) is not None for one in group) for group in (sound, survived))
    lines += ["", f"False alarms: {_share(wrong, len(sound))} of the trainings without a fault that do not fail."]
    if survived:
        lines[-1] += f" Of those that survive a fault, an alarm rings in {_share(warned, len(survived))}."
    lines += ["", "| alarm | first to ring in | rings in all that fail | false alarms |", "|---|---|---|---|"]
    for name in [*(rule.name for rule in RULES), NOT_FINITE]:
        first = sum(rang_at(one) is not None and rang_at(one) == rang_at(one, [name]) for one in failing)
        some, wrong = (sum(rang_at(one, [name]) is not None for one in group) for group in (failing, healthy))
        lines.append(f"| {name} | {first} | {some} of {len(failing)} | {wrong} of {len(healthy)} |")
    return lines


def lead_of(one: Mapping[str, Any], by: int) -> int | None:
    """Steps from the first alarm to where the loss shows it; None without an alarm."""
    rang, shown = rang_at(one), shown_at(one, by)
    if rang is None:
        return None
    return (STEPS if shown is None else shown) - rang


def _share(part: int, whole: int) -> str:
    low, high = wilson(part, whole)
    return f"{part} of {whole} ({low:.0%} to {high:.0%})"


def _median_with_interval(values: Sequence[int]) -> tuple[str, str]:
    """The median with a 95 % interval of 2,000 resamples, and the quartiles."""
    if len(values) < 3:
        return ", ".join(map(str, sorted(values))) or "-", "-"
    numbers = random.Random(0)
    medians = sorted(statistics.median(numbers.choices(values, k=len(values))) for _ in range(2000))
    low, _, high = statistics.quantiles(values, n=4)
    return f"{statistics.median(values):g} ({medians[50]:g} to {medians[1949]:g})", f"{low:g} to {high:g}"


def report(stored: Mapping[str, Any]) -> None:
    calibrating, judged = (_of(stored, seeds) for seeds in (CALIBRATING, JUDGING))
    by = healthy_by(calibrating)
    failing = sum(one["fails"] for one in judged)
    about = stored["machine"]
    lines = [
        f"{len(judged)} trainings that no threshold was chosen on, {failing} of which fail (95 % intervals; steps are "
        f"counted at looks, each {EVERY} steps; {about['processor']}, torch {about['torch']}, one thread):",
        "",
        *table(judged, by),
    ]
    put_between(PAGE, BEGIN, END, "\n".join(lines))
    print("\n".join(lines))


# -- the file


def _of(stored: Mapping[str, Any], seeds: range) -> list[dict[str, Any]]:
    return [stored["trainings"][str(seed)] for seed in seeds if str(seed) in stored["trainings"]]


def _train(stored: dict[str, Any], seeds: range) -> Iterator[dict[str, Any]]:
    for seed in seeds:
        if str(seed) not in stored["trainings"]:
            one = trained(seed)
            # Of those that thresholds come from, signals are kept, and not what other thresholds made of them.
            kept = {key: value for key, value in one.items() if key != "alarms" or seed in JUDGING}
            stored["trainings"][str(seed)] = kept
            stored["machine"] = described()
            write_whole(RESULTS, (json.dumps(stored) + "\n").encode())
            words = (one["fault"] or "no fault", one["network"], "fails" if one["fails"] else "trains", one["alarms"])
            print(seed, *words, f"{one['seconds']} s", flush=True)
        yield stored["trainings"][str(seed)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("calibrate", "judge", "report"))
    what = parser.parse_args().what
    torch.set_num_threads(1)
    stored = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"trainings": {}, "machine": {}}
    if what == "calibrate":
        calibrated(list(_train(stored, CALIBRATING)))
    elif what == "judge":
        for _ in _train(stored, JUDGING):
            pass
    else:
        report(stored)
    return 0


if __name__ == "__main__":
    sys.exit(main())
