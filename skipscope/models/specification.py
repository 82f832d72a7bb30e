"""What determines our networks of blocks, whether their states are images or vectors.

Neither this nor the specifications of the networks import torch: the command line reads names of networks, and refuses
wrong ones, before it loads it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from skipscope.errors import InputError

ACTIVATIONS = ("relu", "linear")
SHORTCUTS = ("pad", "projection")
PARAMETRISATIONS = ("dirac", "additive")
INITIAL = ("he", "xavier", "orthogonal", "small")


@dataclass(frozen=True, kw_only=True)
class BlockSpec:
    """skips: False for the plain twin. cardinality: the number of paths (ResNeXt), each `group_width` wide.

    scale: of every branch, before it is added to its shortcut. initial: what the weights of all layers but the
    classifier begin as. zero: what stands last on every branch begins at 0 (the scale of its norm; its weight, where no
    norm comes last), so that a block begins as its shortcut. parametrisation: "dirac" or "additive" for layers that
    carry an identity in their weights, in place of skips.
    """

    network: ClassVar[str]  # the class that is built; errors begin with it

    preactivation: bool = False
    skips: bool = True
    cardinality: int = 1
    group_width: int | None = None
    batch_norm: bool = True
    activation: str = "relu"  # "linear" for none
    classes: int = 10
    scale: float = 1.0
    initial: str = "he"
    zero: bool = False
    parametrisation: str | None = None

    def __post_init__(self) -> None:
        self.one_of("activation", self.activation, ACTIVATIONS)
        self.one_of("initial", self.initial, INITIAL)
        self.at_least_one("classes", self.classes)
        self.at_least_one("cardinality", self.cardinality)
        if self.group_width is not None:
            self.at_least_one("group_width", self.group_width)
            if self.cardinality == 1:
                raise InputError(
                    f"{self.network}: group_width={self.group_width} expected a cardinality above 1; give both or none"
                )
        if not 0 < self.scale < float("inf"):
            raise InputError(f"{self.network}: expected a scale above 0, got {self.scale}")
        if not self.skips:
            for name, given in (("scale", self.scale != 1), ("zero", self.zero)):
                if given:
                    raise InputError(
                        f"{self.network}: {name}={getattr(self, name)} expected skips=True; a block without a skip is "
                        "its branch alone"
                    )
        if self.parametrisation is not None:
            self.one_of("parametrisation", self.parametrisation, PARAMETRISATIONS)
            if self.skips or self.preactivation or self.cardinality > 1:
                raise InputError(
                    f"{self.network}: parametrisation={self.parametrisation!r} expected skips=False, "
                    "preactivation=False and one path; it stands in place of a skip"
                )

    def one_of(self, name: str, value: str, known: Iterable[str]) -> None:
        if value not in known:
            raise InputError(f"{self.network}: expected {name} to be one of {', '.join(known)}, got {value!r}")

    def at_least_one(self, name: str, value: int) -> None:
        if value < 1:
            raise InputError(f"{self.network}: expected {name} of at least 1, got {value}")
