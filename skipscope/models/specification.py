"""What determines our networks of blocks, whether their states are images or vectors.

Neither this nor the specifications of the networks import torch: the command line reads names of networks, and refuses
wrong ones, before it loads it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from skipscope.constraints import Constrained, Expectation, above, at_least, finite, one_of

ACTIVATIONS = ("relu", "linear")
SHORTCUTS = ("pad", "projection")
PARAMETRISATIONS = ("dirac", "additive")
INITIAL = ("he", "xavier", "orthogonal", "small")


@dataclass(frozen=True, kw_only=True)
class BlockSpec(Constrained):
    """skips: False for the plain twin. cardinality: the number of paths (ResNeXt), each `group_width` wide.

    scale: of every branch, before it is added to its shortcut. initial: what the weights of all layers but the
    classifier begin as. zero: what stands last on every branch begins at 0 (the scale of its norm; its weight, where no
    norm comes last), so that a block begins as its shortcut. parametrisation: "dirac" or "additive" for layers that
    carry an identity in their weights, in place of skips.
    """

    preactivation: bool = False
    skips: bool = True
    cardinality: Annotated[int, at_least(1)] = 1
    group_width: Annotated[int | None, at_least(1)] = None
    batch_norm: bool = True
    activation: Annotated[str, one_of(*ACTIVATIONS)] = "relu"  # "linear" for none
    classes: Annotated[int, at_least(1)] = 10
    scale: Annotated[float, above(0), finite] = 1.0
    initial: Annotated[str, one_of(*INITIAL)] = "he"
    zero: bool = False
    parametrisation: Annotated[str | None, one_of(*PARAMETRISATIONS)] = None

    def expectations(self) -> Iterator[Expectation]:
        yield (
            self.group_width is None or self.cardinality > 1,
            f"group_width={self.group_width} expected a cardinality above 1; give both or none",
        )
        for name, given in (("scale", self.scale != 1), ("zero", self.zero)):
            yield (
                self.skips or not given,
                f"{name}={getattr(self, name)} expected skips=True; a block without a skip is its branch alone",
            )
        without_skip = not (self.skips or self.preactivation or self.cardinality > 1)
        yield (
            self.parametrisation is None or without_skip,
            f"parametrisation={self.parametrisation!r} expected skips=False, preactivation=False and one path; it "
            "stands in place of a skip",
        )
