"""What an inspection measures on models of tokens: the use of depth, block coupling at a few tokens and the Jacobian
lens of a few prompts, with the text of the tokens where it is known.

The use of depth is always measured, and without the effect of leaving units out where that would take too long. The
other two are measured where their estimates fit their shares of the time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

import skipscope.measure as measure
from skipscope.errors import InputError
from skipscope.measure.chain import tokens_of
from skipscope.measure.token_jacobians import members_of
from skipscope.spectrum.rates import product_seconds

if TYPE_CHECKING:
    import xarray

    from skipscope.inspection.inspecting import Work
    from skipscope.trace import Trunk

# The share of the budget that may be used up when each of them is done.
DEPTH_USE, COUPLING, LENS = 0.25, 0.4, 0.55
COUPLED_SAMPLES = 2
FEWEST_BLOCKS = 4
LENS_PROMPTS = 4
SVD_OPERATIONS = 20  # times d^3, with vectors
LENS_CHECKS = 1.5  # what the lens computes in addition, over the sweep itself: it compares rows with float64
TIMED_UNITS = 3  # of the whole chain, whose products are timed


@dataclass(frozen=True)
class TokenText:
    """The text of each token of each sample, and whether some of them are padding."""

    tokens: Sequence[Sequence[str]]
    padded: bool = False

    def __post_init__(self) -> None:
        if len({len(row) for row in self.tokens}) != 1:
            raise InputError("token_text: expected for each sample the text of as many tokens as the others have")


def has_tokens(trunk: Trunk, x: Any) -> bool:
    """Whether the states have a position for each id of the batch."""
    line = [unit for stage in trunk.stages for unit in stage.units]
    count = tokens_of(line) if line else None
    ids = [t for t in trunk.inputs(x).tensors() if not t.is_floating_point() and t.dim() == 2]
    return count is not None and any(t.shape[1] == count for t in ids)


class Language:
    """The measurements of one trunk at one batch of tokens."""

    def __init__(self, work: Work, x: Any, text: TokenText | None, seed: int) -> None:
        self.work, self.x, self.text, self.seed = work, x, text, seed
        self.line = [unit for stage in work.trunk.stages for unit in stage.units]
        self.tokens, self.width = self.line[0].entry_shape
        if text is not None and (len(text.tokens), len(text.tokens[0])) != (work.point.batch, self.tokens):
            raise InputError(
                f"token_text: expected the text of {work.point.batch} x {self.tokens} tokens, got "
                f"{len(text.tokens)} x {len(text.tokens[0])}"
            )

    def measured(self) -> Iterator[tuple[str, str]]:
        """Gives the datasets to `keep`; yields what was left out, and why."""
        steps = {"depth_use": self._depth_use, "coupling": self._coupling, "lens": self._lens}
        for done, (name, make) in enumerate(steps.items()):
            self.work.announce("use of depth, coupling, lens", done, len(steps))
            if name in self.work.there:
                continue
            try:
                yield from make()
            except InputError as error:  # a shape that does not go through, two models in one: the rest is measured
                yield name, str(error)
        self.work.announce("use of depth, coupling, lens", len(steps), len(steps))

    def _depth_use(self) -> Iterator[tuple[str, str]]:
        trunk = self.work.trunk
        start = time.monotonic()
        with torch.no_grad():
            trunk.at(self.x)
        once = time.monotonic() - start
        seconds = once * (0.5 * len(self.line) + 2)  # half a pass for each unit on average
        too_long = self.work.too_long(seconds, DEPTH_USE)
        if too_long:
            yield "effect of leaving units out", too_long
        found = measure.depth_use(trunk, self.x, skipping=not too_long)
        self.work.keep("depth_use", self._with_text(found))

    def _coupling(self) -> Iterator[tuple[str, str]]:
        """At the last token, one in the middle and from that to the last; where that takes too long at the last token
        of one text, and of as many blocks as the time allows."""
        if why := self._padded():
            yield "coupling", why
            return
        trunk, last, middle = self.work.trunk, self.tokens - 1, (self.tokens - 1) // 2
        three = [(last, last), (middle, last), (middle, middle)] if 0 < middle < last else [(last, last)]
        members = members_of(trunk, None, "block")
        J = members[0].between(self.work.point, [0], [last], last)
        product = min(product_seconds(J), product_seconds(J))  # the first call makes ready

        def seconds(pairs: Sequence[tuple[int, int]], samples: Sequence[int]) -> float:
            """Of one block."""
            exits = len({exit_ for _, exit_ in pairs})
            svds = self.work.budget.for_operations(SVD_OPERATIONS * self.width**3 * len(pairs))
            return len(samples) * (product * self.width * exits + svds)

        pairs, samples, blocks = three, self.different[:COUPLED_SAMPLES], members
        too_long = self.work.too_long(len(blocks) * seconds(pairs, samples), COUPLING)
        if too_long:
            pairs, samples = [(last, last)], self.different[:1]
        while self.work.too_long(len(blocks) * seconds(pairs, samples), COUPLING):
            if len(blocks) <= FEWEST_BLOCKS:
                yield "coupling", too_long
                return
            blocks = [members[place] for place in thinned(len(members), max(FEWEST_BLOCKS, len(blocks) - 2))]
        if too_long:
            what = f"{len(blocks)} of {len(members)} blocks, at one token of one text"
            yield f"coupling at more than {what}", too_long
        names = [block.units[0].name for block in blocks]
        found = measure.coupling(trunk, self.work.point, units=names, tokens=pairs, samples=samples, seed=self.seed)
        self.work.keep("coupling", self._with_text(found))

    def _lens(self) -> Iterator[tuple[str, str]]:
        """Its numbers only: the matrices of all layers are large, and `ss.lens` gives them."""
        if why := self._padded():
            yield "lens", why
            return
        step = max(1, len(self.line) // TIMED_UNITS)
        some = self.line[::step][:TIMED_UNITS]
        J = [unit.jacobian(self.work.point).take([0]) for unit in some]
        each = LENS_CHECKS * self.width * len(self.line) * sum(map(product_seconds, J)) / len(J)
        prompts = self.different[:LENS_PROMPTS]
        while len(prompts) > 1 and self.work.too_long(each * len(prompts), LENS):
            prompts = prompts[:-1]
        if too_long := self.work.too_long(each * len(prompts), LENS):
            yield "lens", too_long
            return
        found = measure.lens(self.work.trunk, self.work.point, samples=prompts, seed=self.seed)
        self.work.keep("lens", found.drop_vars(["lens", "lens_error"]))

    def _padded(self) -> str:
        return "some prompts are padded, and padding says nothing about words" if self.text and self.text.padded else ""

    @cached_property
    def different(self) -> list[int]:
        """Samples that are not copies of others."""
        found: dict[bytes, int] = {}
        ids = [t for t in self.work.trunk.inputs(self.x).tensors() if isinstance(t, Tensor) and t.dim()]
        for sample in range(self.work.point.batch):
            key = b"".join(t[sample].cpu().reshape(-1).contiguous().numpy().tobytes() for t in ids)
            found.setdefault(key, sample)
        return list(found.values())

    def _with_text(self, data: xarray.Dataset) -> xarray.Dataset:
        if self.text is None:
            return data
        rows = [list(self.text.tokens[int(sample)]) for sample in data["sample"].values]
        if "position" in data.dims:
            places = [int(position) for position in data["position"].values]
            return data.assign_coords(token=(("sample", "position"), [[row[at] for at in places] for row in rows]))
        ends = zip(data["entry_token"].values.tolist(), data["exit_token"].values.tolist(), strict=True)
        if any(row != rows[0] for row in rows):
            return data  # a pair of positions is another pair of words in every sample
        return data.assign_coords(pair_text=("pair", [f"{rows[0][a]!r} to {rows[0][b]!r}" for a, b in ends]))


def thinned(count: int, shown: int) -> list[int]:
    """Places from the first to the last, evenly spaced."""
    return sorted({round(k * (count - 1) / (shown - 1)) for k in range(shown)})
