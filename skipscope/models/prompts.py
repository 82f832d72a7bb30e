"""Texts to token ids of one length, with the text of each token for the axes of figures.

Prompts of different lengths are cut to that of the shortest: padding would be measured like words. Only where a length
is asked for are shorter ones padded, with their last token behind an attention mask, and the notes say so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from skipscope.errors import InputError
from skipscope.wording import counted

PADDING = "(padding)"
FEWEST = 2  # tokens of a prompt: with one there is nothing to predict and nothing to attend to


@dataclass(frozen=True)
class Prompts:
    """ids: one row per sample, all of one length. mask: 0 where a token is padding; None where none is."""

    ids: tuple[tuple[int, ...], ...]
    tokens: tuple[tuple[str, ...], ...]  # the text of each
    mask: tuple[tuple[int, ...], ...] | None = None
    notes: tuple[str, ...] = ()  # what was cut and padded

    def inputs(self) -> dict[str, Tensor]:
        """A mask of ones computes the same in a larger graph, so there is one only with padding."""
        found = {"input_ids": torch.tensor(self.ids)}
        if self.mask is not None:
            found["attention_mask"] = torch.tensor(self.mask)
        return found


def one_text(tokenizer: Any, text: str, first: Sequence[int]) -> Prompts:
    """One sample: `ss.trace` takes it twice where an export needs two. first: ids that every text begins with, where
    the tokenizer forgets them."""
    ids = _ids(tokenizer, text, first)
    if not ids:
        raise InputError("text= gives no tokens; write at least one word")
    return Prompts((ids,), (_words(tokenizer, ids),))


def several_prompts(tokenizer: Any, lines: Sequence[str], first: Sequence[int], length: int | None) -> Prompts:
    """length: of all of them; None for that of the shortest."""
    rows = [_ids(tokenizer, line, first) for line in lines]
    shortest = min(range(len(rows)), key=lambda place: len(rows[place]))
    if length is None and len(rows[shortest]) < FEWEST:
        raise InputError(
            f"the shortest prompt, number {shortest + 1} ({lines[shortest][:40]!r}), has "
            f"{counted(len(rows[shortest]), 'token')}, and all are cut to its length; leave it out, or give a length "
            "with input_shape="
        )
    wanted = len(rows[shortest]) if length is None else length
    long, short = sum(len(row) > wanted for row in rows), sum(len(row) < wanted for row in rows)
    of_all = f"of {counted(len(rows), 'prompt')}"
    notes = []
    if long:
        why = f", the length of the shortest (number {shortest + 1})" if length is None else ""
        notes.append(f"{long} {of_all} cut to {counted(wanted, 'token')}{why}")
    if not short:
        kept = [row[:wanted] for row in rows]
        return Prompts(tuple(kept), tuple(_words(tokenizer, row) for row in kept), None, tuple(notes))
    if not len(rows[shortest]):
        raise InputError(f"prompt number {shortest + 1} ({lines[shortest][:40]!r}) gives no tokens; leave it out")
    notes.append(f"{short} {of_all} padded to {counted(wanted, 'token')}; padding is measured like other tokens")
    missing = [max(0, wanted - len(row)) for row in rows]
    # Behind a mask any token will do. That for padding often embeds to zero, where norms and cosines are singular.
    padded = [(*row[:wanted], *[row[-1]] * more) for row, more in zip(rows, missing, strict=True)]
    words = [(*_words(tokenizer, row[:wanted]), *[PADDING] * more) for row, more in zip(rows, missing, strict=True)]
    mask = [(1,) * (wanted - more) + (0,) * more for more in missing]
    return Prompts(tuple(padded), tuple(words), tuple(mask), tuple(notes))


def _ids(tokenizer: Any, text: str, first: Sequence[int]) -> tuple[int, ...]:
    ids = tuple(int(one) for one in tokenizer(text)["input_ids"])
    return ids if ids[: len(first)] == tuple(first) else (*first, *ids)


def _words(tokenizer: Any, ids: Sequence[int]) -> tuple[str, ...]:
    """Each token alone; where it has no text of its own, its name in the vocabulary."""
    found = []
    for one in ids:
        text = tokenizer.decode([one], clean_up_tokenization_spaces=False)
        found.append(text.replace("\n", "\\n").replace("\t", "\\t") or str(tokenizer.convert_ids_to_tokens(one)))
    return tuple(found)
