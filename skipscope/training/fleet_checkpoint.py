"""The state of a fleet after an epoch, in one file: no member can be ahead of another.

    part K/model/NAME, part K/momentum/NAME       of the members of a stack, or of a network by itself
    part K/member I/model/NAME                    of one that has diverged, by its place in its stack
    member I/hook/J                               arrays that hooks returned

The rest is as in `checkpoint.py`: a JSON document in the header with the identities and histories of all members, and a
digest of the whole file.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from skipscope.data.dataset import Split
from skipscope.training.checkpoint import (
    FORMAT,
    State,
    differences_in,
    identity_of,
    refuse_another_training,
    whole_record,
    without_results,
)
from skipscope.training.fleet_member import FleetMember
from skipscope.training.fleet_part import FleetPart
from skipscope.training.history import History
from skipscope.training.hooks import pack, unpack


class FleetState:
    """Gives the state of a fleet, and takes one back."""

    def __init__(
        self,
        members: Sequence[FleetMember],
        histories: Sequence[History],
        parts: Sequence[FleetPart],
        test_every: int,
    ) -> None:
        self._members, self._histories, self._parts = members, histories, parts
        # A stack's tensors hold those of all its members: a fleet that is divided otherwise has others.
        self._identity = {**_identity(members, test_every), "parts": [part.about for part in parts]}

    def state(self) -> State:
        arrays: dict[str, Tensor] = {}
        hooks = []
        for number, member in enumerate(self._members):
            own: dict[str, Any] = {}
            results = {hook.name: {str(epoch): value for epoch, value in hook.results.items()} for hook in member.hooks}
            hooks.append(pack(results, own))
            arrays |= {f"member {number}/hook/{name}": torch.from_numpy(array) for name, array in own.items()}
        record = {
            "format": FORMAT,
            "epoch": max(history.epochs for history in self._histories),
            "identity": self._identity,
            "histories": [history.to_dict() for history in self._histories],
            "hooks": hooks,
        }
        return State({name: tensor.detach().clone() for name, tensor in self._tensors().items()} | arrays, record)

    def _tensors(self) -> dict[str, Tensor]:
        return {
            f"part {number}/{name}": tensor
            for number, part in enumerate(self._parts)
            for name, tensor in part.tensors().items()
        }

    def take(self, state: State, path: Path) -> None:
        """Go on from there. The members' models and the histories stay the same objects."""
        with whole_record(path):
            self._take(state, path)

    def _take(self, state: State, path: Path) -> None:
        self._check(state, path)
        for history, former in zip(self._histories, state.record["histories"], strict=True):
            vars(history).update(vars(History.from_dict(former)))
        for part in self._parts:
            part.begin_again()  # without those that had diverged
        with torch.no_grad():
            for name, tensor in self._tensors().items():
                tensor.copy_(state.tensors[name])
        for number, member in enumerate(self._members):
            begin = f"member {number}/hook/"
            arrays = {n.removeprefix(begin): t.numpy() for n, t in state.tensors.items() if n.startswith(begin)}
            results = unpack(state.record["hooks"][number], arrays)
            for hook in member.hooks:
                hook.results = {int(epoch): value for epoch, value in results[hook.name].items()}

    def _check(self, state: State, path: Path) -> None:
        differences = [
            f"{name} was {before!r} and is {now!r}"
            for name, before, now in differences_in(state.record["identity"], self._identity)
        ]
        if not differences:
            epoch, histories, kept = (state.record[name] for name in ("epoch", "histories", "hooks"))
            for number, member in enumerate(self._members):
                lacking = without_results(member.hooks, kept[number], epoch, histories[number]["diverged_at"])
                differences += [f"network {number}: {text}" for text in lacking]
        refuse_another_training(path, differences)


def _identity(members: Sequence[FleetMember], test_every: int) -> dict[str, Any]:
    """Of all members; splits that members share are hashed once."""
    digests: dict[int, str] = {}

    def digest(split: Split) -> str:
        if id(split) not in digests:
            digests[id(split)] = split.digest()
        return digests[id(split)]

    found: dict[str, Any] = {"members": len(members)}
    for number, member in enumerate(members):
        tested = None if member.test is None else digest(member.test)
        own = identity_of(member.settings, member.model, digest(member.split), tested, test_every)
        found |= {f"network {number}: {name}": value for name, value in own.items()}
    return found
