"""The rival of `skipscope check`: near-unit Koopman mass, on the networks that the check was judged on.

    python -m benchmarks.koopman measure   # of all networks of results/check.json and of the drawn ones
    python -m benchmarks.koopman report    # thresholds from the first lists, tables into docs/check-accuracy.md

Kim, Taniguchi, Kawano, Iwasawa, Matsuo: Residual Koopman Spectral Profiling for Predicting and Preventing Transformer
Training Instability (arXiv 2602.22988). What the abstract and summaries of it say: from one forward pass at
initialisation, a linear operator is fitted to the states before and after each layer, by dynamic mode decomposition of
states that are whitened with the statistics of those before; modes that the operator does not fit are left out; the
near-unit mass is the share of its eigenvalues near the unit circle, and a high mass announces divergence. The width of
"near", the cut for modes and the average over layers are not in what could be read, so that they are chosen here:

    X, Y        the states at the entry and the exit of one block, features x snapshots, N of them; of images a snapshot
                is one place of one image. Blocks whose exit has another shape are left out
    whitening   C = cov(X), its eigenvectors to the leading RANK values above FLOOR of the largest: W = L^-1/2 V^T.
                X~ = W (X - mean X), Y~ = W (Y - mean X)
    operator    K = Y~ X~^T / N, least squares because X~ is white; K v = lambda v
    residual    of a left mode w: |w^* Y~ - lambda w^* X~| / (|w| sqrt(N)), relative to max(1, |lambda|)
    mass        the share of the modes with a residual of at most `cut` for which | |lambda| - 1 | <= `near`; the mean
                over the blocks

All of NEAR x CUTS are tried on the first corpus, and the best of them there goes to the later networks once: with a
high mass as the sign of failure, as published, and with the direction chosen on the corpus too. So it is done with the
calibration list of `benchmarks.unseen`, for its judging list. A minute of one core.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from benchmarks.check import OPTIMISER, PAGE, RESULTS, fresh, read, wilson
from benchmarks.machine import described
from benchmarks.page import put_between
from benchmarks.unseen.__main__ import networks, stored
from benchmarks.unseen.judging import optimiser_of
from benchmarks.unseen.networks import Unit
from skipscope.check.rules import rules_for
from skipscope.data import digits
from skipscope.module_hooks import Call, following
from skipscope.runs import write_whole

FILE = RESULTS / "koopman.json"
BEGIN, END = "<!-- from here on: written by benchmarks/koopman.py report -->", "<!-- end of what it writes -->"
IMAGES, SNAPSHOTS, RANK, FLOOR = 512, 2048, 32, 1e-6
NEAR = (0.05, 0.1, 0.2, 0.3)
CUTS = (0.25, 0.5, 1.0, math.inf)


def modes(before: Tensor, after: Tensor) -> tuple[Tensor, Tensor]:
    """Moduli of the eigenvalues of the operator between two sets of snapshots (features, N), and residuals."""
    mean = before.mean(1, keepdim=True)
    x, y = before - mean, after - mean
    values, vectors = torch.linalg.eigh(x @ x.mT / x.shape[1])
    kept = values > FLOOR * values[-1]
    values, vectors = values[kept][-RANK:], vectors[:, kept][:, -RANK:]
    whiten = vectors.mT / values.sqrt()[:, None]
    x, y = whiten @ x, whiten @ y
    count = x.shape[1]
    eigenvalues, left = torch.linalg.eig((y @ x.mT / count).mT)  # the transpose: left modes, functions of the state
    along_x, along_y = left.mT @ x.to(left), left.mT @ y.to(left)
    missed = (along_y - eigenvalues[:, None] * along_x).norm(dim=1) / (left.norm(dim=0) * math.sqrt(count))
    return eigenvalues.abs(), missed / eigenvalues.abs().clamp_min(1.0)


def blocks_of(model: nn.Module) -> dict[str, nn.Module]:
    """By path: those of our networks, and the units of drawn ones."""
    return {
        path: module
        for path, module in model.named_modules()
        if isinstance(module, Unit) or (path.count(".") == 1 and path.startswith("stage"))
    }


def snapshots(model: nn.Module) -> list[tuple[Tensor, Tensor]]:
    """States at the entry and the exit of every block that keeps their shape: (features, N) each, in float64."""
    chosen = torch.randperm(len(digits().train), generator=torch.Generator().manual_seed(0))[:IMAGES]
    entered: dict[str, Tensor] = {}
    found: list[tuple[Tensor, Tensor]] = []

    def left(call: Call, output: Tensor) -> None:
        if output.shape == entered[call.path].shape:
            found.append((_columns(entered[call.path]), _columns(output)))

    def enter(call: Call) -> None:
        entered[call.path] = call.args[0].clone()

    model.eval()
    for module in model.modules():
        if isinstance(module, _BatchNorm):
            module.train()  # as in the first step of training
    with torch.no_grad(), following(blocks_of(model), entered=enter, left=left):
        model(digits().train.images(chosen))
    return found


def _columns(state: Tensor) -> Tensor:
    """Features are the channels of an image, the entries of a token, or all there is."""
    columns = state.double().movedim(1 if state.dim() == 4 else -1, 0).flatten(1)
    return columns[:, torch.linspace(0, columns.shape[1] - 1, min(SNAPSHOTS, columns.shape[1])).long()]


def masses(model: nn.Module) -> dict[str, float | None]:
    """The near-unit mass for every choice; None where states are not finite or no mode is left."""
    pairs = snapshots(model)
    if not pairs or not all(bool(state.isfinite().all()) for pair in pairs for state in pair):
        return dict.fromkeys(map(_key, product(NEAR, CUTS)))
    found = [modes(*pair) for pair in pairs]
    result: dict[str, float | None] = {}
    for near, cut in product(NEAR, CUTS):
        shares = [
            float(((values[residuals <= cut] - 1).abs() <= near).double().mean())
            for values, residuals in found
            if bool((residuals <= cut).any())
        ]
        result[_key((near, cut))] = sum(shares) / len(shares) if shares else None
    return result


def _key(choice: tuple[float, float]) -> str:
    return f"near {choice[0]:g}, cut {choice[1]:g}"


def measure() -> None:
    earlier = read()
    found: dict[str, Any] = {"machine": described(), "masses": {}}
    for name in (*earlier["networks"], *earlier["later"]):
        found["masses"][name] = masses(fresh(name))
    for network in (*networks("calibration"), *networks("judging")):
        found["masses"][network.name] = masses(network.build())
    write_whole(FILE, f"{json.dumps(found, indent=1)}\n".encode())


# -- the verdict


def score(mass: float | None, above: bool) -> float:
    """High where failure is announced; states that are not finite, or no mode that is fitted, announce it too."""
    if mass is None:
        return math.inf
    return mass if above else -mass


def balanced(verdicts: Iterable[tuple[bool, bool]]) -> float:
    """The mean of the shares of training and of failing networks that are judged right; (fails, said to fail)."""
    pairs = list(verdicts)
    shares = [[said == fails for fails, said in pairs if fails is kind] for kind in (True, False)]
    return sum(sum(right) / len(right) for right in shares) / 2


def best_threshold(scores: list[tuple[float, bool]]) -> tuple[float, float]:
    """(balanced accuracy, threshold): a network is said to fail above it. Halfway between neighbouring scores."""
    values = sorted({value for value, _ in scores if math.isfinite(value)})
    between = [(a + b) / 2 for a, b in pairwise(values)] or values
    return max((balanced((fails, value > cut) for value, fails in scores), cut) for cut in between)


def area(scores: list[tuple[float, bool]]) -> float:
    """Under the curve of true against false alarms: how often a failing network scores above a training one."""
    failing, training = ([value for value, fails in scores if fails is kind] for kind in (True, False))
    return sum((a > b) + (a == b) / 2 for a, b in product(failing, training)) / (len(failing) * len(training))


def room(record: dict[str, Any]) -> float:
    """The score of the check that has its verdict at 0: minus the least room of any rule."""
    signals = record["signals"]
    if math.isnan(signals["gradient_growth"]):  # a finding of its own
        return math.inf
    optimiser = optimiser_of(record) if "words" in record else OPTIMISER
    return -min(rule.room(signals[rule.signal]) for rule in rules_for(optimiser))


@dataclass(frozen=True)
class Judged:
    """A predictor on some networks: its score for each, and whether it fails; above the threshold it says so."""

    name: str
    threshold: float
    first: float  # balanced accuracy on the first corpus
    scores: dict[str, tuple[float, bool]]
    residual: frozenset[str]  # the names of networks that have skips

    def verdicts(self) -> list[tuple[bool, bool]]:
        return [(fails, value > self.threshold) for value, fails in self.scores.values()]

    def row(self) -> str:
        verdicts = self.verdicts()
        right = sum(fails == said for fails, said in verdicts)
        low, high = wilson(right, len(verdicts))
        found = sum(fails and said for fails, said in verdicts)
        false = sum(said and not fails for fails, said in verdicts)
        residual = [pair for name, pair in self.scores.items() if name in self.residual]
        cells = (
            self.name,
            f"{self.first:.1%}",
            f"{right}, {right / len(verdicts):.1%}",
            f"{low:.1%} to {high:.1%}",
            f"{found}",
            f"{false}",
            f"{balanced(verdicts):.1%}",
            f"{area(list(self.scores.values())):.3f}",
            f"{area(residual):.3f}",
        )
        return f"| {' | '.join(cells)} |"


def judged(first: dict[str, Any], later: dict[str, Any]) -> list[Judged]:
    """The check, and the mass with the best choice on the first networks: as published (a high mass fails), and with
    the direction chosen there too. Of the later networks."""
    found = json.loads(FILE.read_text(encoding="utf-8"))["masses"]
    residual = frozenset(
        name
        for name, each in later.items()
        if not name.startswith("plainnet") and "no skips" not in each.get("words", "")
    )

    def scored(networks: dict[str, Any], choice: str, above: bool) -> dict[str, tuple[float, bool]]:
        return {name: (score(found[name][choice], above), not each["trains"]) for name, each in networks.items()}

    own = {name: (room(each), not each["trains"]) for name, each in later.items()}
    own_first = balanced((not each["trains"], room(each) > 0) for each in first.values())
    result = [Judged("`skipscope check`", 0.0, own_first, own, residual)]
    for title, directions in (("mass, as published", (True,)), ("mass, either direction", (True, False))):
        choices = [
            (*best_threshold(list(scored(first, key, above).values())), key, above)
            for key, above in product(map(_key, product(NEAR, CUTS)), directions)
        ]
        accuracy, threshold, choice, above = max(choices)
        name = f"{title}: {choice}, fails {'above' if above else 'below'} {abs(threshold):.3f}"
        result.append(Judged(name, threshold, accuracy, scored(later, choice, above), residual))
    return result


def lists() -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """What the networks that judge are called, and both lists: the first gives thresholds."""
    earlier = read()
    return {
        "later": (earlier["networks"], earlier["later"]),
        "unseen": (stored("calibration")["networks"], stored("judging")["networks"]),
    }


def table(kind: str, first: dict[str, Any], later: dict[str, Any]) -> str:
    predictors = judged(first, later)
    fails = sum(failing for _, failing in predictors[0].scores.values())
    total = len(predictors[0].scores)
    titles = (
        "predictor",
        f"balanced accuracy on the {len(first)} first ones",
        f"right, of {total} {kind} networks",
        "95 % interval (Wilson)",
        f"failures found, of {fails}",
        f"false alarms, of {total - fails}",
        "balanced accuracy",
        "area under the curve",
        "of residual ones alone",
    )
    return "\n".join(
        [f"| {' | '.join(titles)} |", "|---|" + "---:|" * (len(titles) - 1), *(each.row() for each in predictors)]
    )


def report() -> None:
    text = "\n\n".join(table(kind, *both) for kind, both in lists().items())
    put_between(PAGE, BEGIN, END, text)
    print(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("measure", "report"))
    {"measure": measure, "report": report}[parser.parse_args().what]()


if __name__ == "__main__":
    main()
