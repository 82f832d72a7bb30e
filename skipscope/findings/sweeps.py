"""What differs between the models of a sweep: by how much, and which two are furthest apart."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy
import xarray

from skipscope.findings.finding import Finding
from skipscope.wording import counted, number

QUANTITIES = {  # positive ones, whose ratios mean something
    "profile_state_rms": "the size of the state (RMS)",
    "profile_gradient_rms": "the size of the gradient (RMS)",
    "profile_branch_over_skip": "the size of a branch over that of its skip",
    "profile_jacobian_square": "the mean square of a unit's singular values",
    "spectra_largest": "the largest singular value of a unit",
    "leading_largest": "the largest singular value of a unit",
    "depth_use_skip_kl": "the change of the output without a unit",
}
APART = 1.05  # ratio of two medians, from which on they are different


def sweep_findings(datasets: Mapping[str, xarray.Dataset]) -> list[Finding]:
    """The largest differences first, after models that could not be measured."""
    found = [each for data in datasets.values() if data.attrs.get("measure") == "sweep" for each in _of(data)]
    return sorted(found, key=lambda finding: -finding.weight)


def _of(data: xarray.Dataset) -> Iterator[Finding]:
    over = str(data["failure"].dims[0])
    names = [str(label) for label in data[over].values]
    if over == "step":
        names = [f"step {name}" for name in names]
    why = {name: str(reason) for name, reason in zip(names, data["failure"].values, strict=True) if reason}
    if why:
        name, reason = next(iter(why.items()))
        sentence = f"{counted(len(why), over)} of {len(names)} could not be measured; {name}: {reason.rstrip('.?')}."
        yield Finding("not measured", sentence, severity="problem", measure="sweep", weight=math.inf)
    known = {key: words for key, words in QUANTITIES.items() if key in data}
    alike = True
    for key, words in known.items():
        values = data[key].values
        medians = {
            name: float(numpy.nanmedian(row)) for name, row in zip(names, values, strict=True) if name not in why
        }
        medians = {name: value for name, value in medians.items() if math.isfinite(value) and value > 0}
        if len(medians) < 2:
            continue
        high, low = max(medians, key=lambda name: medians[name]), min(medians, key=lambda name: medians[name])
        ratio = medians[high] / medians[low]
        if ratio >= APART:
            alike = False
            sentence = (
                f"{words[:1].upper()}{words[1:]} is {number(ratio)} times as large in {high} as in {low}: "
                f"{number(medians[high])} and {number(medians[low])}, medians over the units."
            )
            yield Finding(
                f"models differ: {key}", sentence, severity="notable", numbers=medians, measure="sweep", figure="sweep",
                weight=math.log(ratio),
            )  # fmt: skip
    if known and alike and not why:
        sentence = f"{counted(len(names), over)} do not differ by 5 % in the medians of what was measured."
        yield Finding("models alike", sentence, severity="normal", measure="sweep", figure="sweep")
