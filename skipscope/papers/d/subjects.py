"""What the claims of paper D are judged on.

The population: five ResNet-56 and five ResNet-110 with projections, trained by one recipe, that differ in nothing but
their seeds. ResNet-110 alone decides what the paper shows of it; elsewhere each depth is a part of its own. Beside them
stand ResNet-110 of a second recipe, and small networks for digits, which decide nothing about large ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from skipscope.papers.kit import Claim, Criterion, Measured, Part, Quantity

RESNET56 = "resnet56-cifar-projection"
RESNET110 = "resnet110-cifar-projection"
RECIPE2 = f"{RESNET110}, recipe 2"
BOTH_DEPTHS = "both depths"  # the two compared with each other
DIGITS = "resnet32-digits-projection"
NETWORKS = 5  # of each
DEPTHS = {"ResNet-56": RESNET56, "ResNet-110": RESNET110}

EACH_DEPTH = dict.fromkeys((RESNET56, RESNET110, RECIPE2, DIGITS), NETWORKS)
RESNET110_DECIDES = dict.fromkeys((RESNET110, RESNET56, RECIPE2, DIGITS), NETWORKS)

Values = Mapping[Quantity, Any]  # one number per network
Found = Mapping[Claim, Values]


def subject_of(architecture: str, recipe: int) -> str:
    return architecture if recipe == 1 else f"{architecture}, recipe {recipe}"


def of_each_depth(name: str, *criteria: Criterion, controls: tuple[Criterion, ...] = ()) -> tuple[Part, Part]:
    """A part on ResNet-56 and the same on ResNet-110."""
    first, second = (
        Part(", ".join(filter(None, (name, depth))), criteria, controls, subject) for depth, subject in DEPTHS.items()
    )
    return first, second


def together(*found: Found) -> dict[Claim, dict[Quantity, Any]]:
    """What was found in several datasets of the same networks."""
    merged: dict[Claim, dict[Quantity, Any]] = {}
    for each in found:
        for claim, values in each.items():
            merged.setdefault(claim, {}).update(values)
    return merged


def on_subject(subject: str, found: Found, networks: int, seeds: Sequence[int] = ()) -> dict[Claim, list[Measured]]:
    """As evidence. seeds: none where weights were given."""
    return {claim: [Measured(values, subject, tuple(seeds), networks)] for claim, values in found.items()}
