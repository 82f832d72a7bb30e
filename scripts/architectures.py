"""Trace many architectures and write what was found to docs/architectures.md.

    make architectures                               all of them, half an hour on two cores
    .venv/bin/python scripts/architectures.py dla34  only these, printed in full, nothing written

Weights are random, inputs small, nothing is downloaded. Each model has the number of residual units that its design
has (its blocks, times the sums in a block), which was written down from its code before any of them was traced:
`architecture_models`. What the first trace of each found is kept in `architecture_models/first_run.json`.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import platform
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import skipscope as ss  # noqa: E402
from scripts.architecture_models import MODELS, PARTS  # noqa: E402
from scripts.architecture_models.differences import DIFFERENCES  # noqa: E402
from skipscope.trace.tracing import relative_error  # noqa: E402
from tests.trace.families import main_output  # noqa: E402

TARGET = ROOT / "docs" / "architectures.md"
FIRST_RUN = ROOT / "scripts" / "architecture_models" / "first_run.json"
TRACED, REPLAYED = 2, 3  # batch sizes
LARGEST_STATE = 50_000  # entries of a unit whose Jacobian is tested
LIBRARIES = {"torchvision": PARTS[0], "timm": PARTS[1], "Hugging Face": PARTS[2], "hand-written": PARTS[3]}


@dataclass
class Row:
    """What was found in one model; a failure has only its reason."""

    name: str
    known: int
    source: str = ""
    remark: str = ""
    model: str = ""
    parameters: int = 0
    units: int = 0
    nested: int = 0
    skips: Mapping[Any, int] = field(default_factory=dict)
    tails: Mapping[Any, int] = field(default_factory=dict)
    branches: Mapping[Any, int] = field(default_factory=dict)
    contexts: int = 0
    left_out: Mapping[Any, int] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)
    error: float = float("nan")
    seconds: float = float("nan")
    recorded: bool = False  # from one pass, where the export failed
    jacobian: str = ""  # how the test of one unit's Jacobian ended
    failure: str = ""

    def cells(self) -> list[str]:
        if self.failure:
            return [
                self.name,
                self.model,
                count(self.parameters),
                "failed",
                f"**{self.known}**",
                self.source,
                *[""] * 7,
            ]
        inner = f" ({self.nested} nested)" if self.nested else ""
        extra = {f"{n} branches": times for n, times in self.branches.items() if n != 1}
        return [
            self.name,
            self.model,
            count(self.parameters),
            f"{self.units}{inner}",
            str(self.known) if self.known == self.units else f"**{self.known}**",
            self.source,
            listed({**self.skips, **extra}),
            listed(self.tails),
            str(self.contexts or ""),
            listed(self.left_out),
            (f"{self.error:.0e}" if self.error else "0") + (" (recorded)" if self.recorded else ""),
            self.jacobian,
            f"{self.seconds:.1f}",
        ]


def examine(name: str, verbose: bool = False) -> Row:
    """Trace one model; whatever goes wrong is a row of the table, not the end of the run."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    model = MODELS[name]
    row = Row(name, model.known, model.source, model.remark)
    torch.manual_seed(0)
    try:
        network = model.make().eval()
        row.model, row.parameters = type(network).__name__, sum(p.numel() for p in network.parameters())
        x = model.x(TRACED)
        began = time.perf_counter()
        trunk = ss.trace(network, x)
        row.seconds = time.perf_counter() - began
        row.recorded = any("recorded from one pass" in note for note in trunk.notes)
        if not any("holds only for batches" in note for note in trunk.notes):
            x = model.x(REPLAYED)
        row.error = relative_error(main_output(trunk.replay(x)), own_output(network, x))
        row.jacobian = jacobian_test(trunk, x)
    except Exception as error:  # any kind: it is what the table must say
        row.failure = f"{type(error).__name__}: {error}"
        return row
    if verbose:
        print(trunk)
    row.units, row.nested = len(trunk), sum(unit.parent is not None for unit in trunk.units)
    row.skips = Counter(unit.kind for unit in trunk.units)
    row.tails = Counter(" ".join(unit.tail.operations) for unit in trunk.units if unit.tail)
    row.branches = Counter(unit.branches for unit in trunk.units)
    row.contexts = sum(bool(unit.context) for unit in trunk.units)
    telling = [left for left in trunk.left_out if left.kind != "pointwise"]
    row.left_out = Counter(left.kind for left in telling)
    # One reason for each kind stands for all: they differ only in the operation that they name.
    for kind, times in row.left_out.items():
        first = next(left for left in telling if left.kind == kind)
        row.reasons.append(f"{times} {kind}, the first in `{first.where or 'the model itself'}`: {first.reason}")
    return row


def jacobian_test(trunk: ss.Trunk, x: Any) -> str:
    """Of the smallest unit in the middle of the trunk or after it: is its Jacobian the derivative of the unit?"""
    half = [unit for unit in trunk.units[len(trunk.units) // 2 :] if _entries(unit) <= LARGEST_STATE]
    if not half:
        return "too large" if trunk.units else ""
    unit = min(half, key=_entries)
    try:
        verdict = ss.verify(unit.jacobian(x)).verdict
    except ss.SkipscopeError:
        return "refused"
    # Where a ReLU is exactly at 0 there is no derivative that a test could find.
    at_kink = verdict == "failed" and bool((trunk.at(x).sum(unit) == 0).any())
    return "at exact zeros" if at_kink else verdict


def _entries(unit: ss.Unit) -> int:
    return torch.Size(unit.entry_shape).numel()


def own_output(network: nn.Module, x: Any) -> Tensor:
    with torch.no_grad():
        return main_output(network(**x) if isinstance(x, dict) else network(*(x if isinstance(x, tuple) else (x,))))


def count(number: int) -> str:
    for size, unit in ((10**6, "M"), (10**3, "k")):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return str(number)


def listed(counts: Mapping[Any, int]) -> str:
    return ", ".join(f"{times} {what}" for what, times in counts.items())


def machine() -> str:
    """The processor by its own name, as the benchmark's reader needs it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    name = " ".join(names[0].split()) if names else platform.processor() or platform.machine()
    return f"{name}, {torch.get_num_threads()} of {len(names) or '?'} cores used"


def explained(row: Row) -> Iterable[str]:
    """Why a row has no unit, or another number than its code, or failed."""
    if row.failure:
        yield f"**{row.name}** failed: {' '.join(row.failure.split())}"
    elif row.units != row.known:
        reasons = "; ".join(row.reasons) or "nothing"
        why = DIFFERENCES.get(row.name, "")
        yield f"**{row.name}**: {row.units} units found where its design has {row.known}; {why} Left out: {reasons}"
    elif not row.units:
        yield f"{row.name}: no residual unit. {'; '.join(row.reasons) or 'It adds and concatenates no paths'}"
    if row.remark:
        yield f"{row.name}: {row.remark}"


HEADER = (
    "model | class | parameters | units found | by design | counted at | skips | tails | with context | left out | "
    "replay error | Jacobian test | trace (s)"
).split(" | ")


def document(rows: list[Row], minutes: float) -> str:
    import timm as timm_library
    import torchvision as torchvision_library
    import transformers

    versions = ", ".join(
        f"{library.__name__} {library.__version__}"
        for library in (torch, torchvision_library, timm_library, transformers)
    )
    tests = Counter(row.jacobian for row in rows if row.jacobian)
    return "\n".join(
        [
            "# Architectures",
            "",
            f"What `ss.trace` finds in {len(rows)} models with random weights and small inputs. Made by",
            f"`make architectures` in {minutes:.0f} minutes",
            f"({versions}; Python {platform.python_version()}; {machine()}).",
            "",
            "The number of units of each model was written down from its code before it was traced (its blocks,",
            "times the sums in a block; the column says where they are). Where another number is found, that of the",
            "design is bold, and a note below says why.",
            "",
            "| | models | as designed | at the first trace |",
            "|---|---|---|---|",
            *summary(rows),
            "",
            f"Traced at batch size {TRACED}; the replay error is the largest difference from the model's own output at",
            f"batch size {REPLAYED} (at {TRACED} where the graph holds for that alone), over its largest entry, in",
            "float32. *Recorded*: `torch.export` could not take the model, and its graph is that of one pass. The",
            f"Jacobian test is that of one unit in the second half of the trunk: {listed(tests)}.",
            "Pointwise sums (in activations, norms and rotations) are not listed among what was left out.",
            "",
            "| " + " | ".join(HEADER) + " |",
            "|" + "---|" * len(HEADER),
            *("| " + " | ".join(row.cells()) + " |" for row in rows),
            "",
            "## Notes on some rows",
            "",
            *(f"- {line}" for row in rows for line in explained(row)),
            "",
        ]
    )


def summary(rows: list[Row]) -> Iterable[str]:
    """For each library how many have the number of units of their design, now and when they were traced first."""
    first = json.loads(FIRST_RUN.read_text())
    found = {row.name: row for row in rows}
    for library, models in LIBRARIES.items():
        now = sum(not found[name].failure and found[name].units == model.known for name, model in models.items())
        then = sum(first.get(name) == model.known for name, model in models.items())
        share = f"{now} ({now / len(models):.1%})"
        yield f"| {library} | {len(models)} | {share} | {then} of {sum(name in first for name in models)} |"


def main(chosen: list[str]) -> None:
    names = [name for name in MODELS if not chosen or any(part in name for part in chosen)]
    if not names:
        raise SystemExit(f"no model's name has {' or '.join(chosen)} in it; there are: {', '.join(MODELS)}")
    began = time.perf_counter()
    rows: list[Row] = []
    if chosen:
        for name in names:
            report(examine(name, verbose=True))
        return
    # New processes now and then: what many models leave in memory would slow down the others.
    context = multiprocessing.get_context("spawn")
    with context.Pool(os.cpu_count(), maxtasksperchild=40) as pool:
        for row in pool.imap(examine, names):
            report(row)
            rows.append(row)
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(document(rows, (time.perf_counter() - began) / 60))
    print(f"wrote {TARGET.relative_to(ROOT)}")


def report(row: Row) -> None:
    print(f"{row.name}: {row.failure or f'{row.units} units, {row.known} by design, {row.seconds:.1f} s'}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
