"""Pickles that are as flat as files of arrays and weights are, found out before anybody carries them out.

A tuple inside a tuple, 200,000 deep, is read well enough, by Python's reader and by torch's, and ends the process
without a word when Python takes its hash: no exception, no message. And a place in the memo of Python's reader is a
number that the file chooses, for which as much memory is taken. So the instructions are followed once with a stack that
holds, in place of every value, only how deep it is.
"""

from __future__ import annotations

import pickletools
import zipfile
from pathlib import Path
from typing import IO, Any

DEEPEST = 50  # tuples in tuples; files of CIFAR and of weights have two or three
MOST_PLACES = 10_000_000  # in the memo; the files have about one per image or tensor
TUPLES = frozenset(["TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"])
PUT, GET = frozenset(["PUT", "BINPUT", "LONG_BINPUT"]), frozenset(["GET", "BINGET", "LONG_BINGET"])
MARK = -1  # on the stack
IN_A_TORCH_FILE = 5  # pickles in one of the form before zip archives, ahead of the values


def require_flat(content: bytes | IO[bytes]) -> None:
    """ValueError where tuples are too deep, one in another, the memo would be too large, or it is no pickle at all."""
    stack: list[int] = []
    memo: dict[int, int] = {}
    try:
        for instruction, argument, _ in pickletools.genops(content):
            _follow(instruction, argument, stack, memo)
    except IndexError:
        raise ValueError("an instruction without the values that it needs") from None


def _follow(instruction: Any, argument: Any, stack: list[int], memo: dict[int, int]) -> None:
    name = instruction.name
    if name in PUT or name == "MEMOIZE":
        place = len(memo) if name == "MEMOIZE" else int(argument)
        if place > MOST_PLACES:
            raise ValueError(f"the place {place} in the memo")
        memo[place] = stack[-1]
    elif name in GET:
        stack.append(memo.get(int(argument), 0))
    elif name == "DUP":
        stack.append(stack[-1])
    else:
        taken = _taken(list(instruction.stack_before), stack)
        depth = 1 + max(taken, default=0) if name in TUPLES else 0
        if depth > DEEPEST:
            raise ValueError(f"tuples inside of each other, {depth} deep")
        stack += [MARK if kind is pickletools.markobject else depth for kind in instruction.stack_after]


def _taken(kinds: list[Any], stack: list[int]) -> list[int]:
    """What an instruction takes from the stack: all down to a mark, where it needs one, and single values below it."""
    found = []
    if pickletools.markobject in kinds:
        while (top := stack.pop()) != MARK:
            found.append(top)
        kinds = kinds[: kinds.index(pickletools.markobject)]
    return [*found, *(stack.pop() for _ in kinds)]


def require_flat_torch_file(path: Path) -> None:
    """A file of torch.save, in either of its forms; of others nothing is known."""
    with path.open("rb") as file:
        begin = file.read(2)
        file.seek(0)
        if begin == b"PK":
            with zipfile.ZipFile(file) as archive:
                for name in archive.namelist():
                    if name.rpartition("/")[2] == "data.pkl":
                        require_flat(archive.read(name))
        elif begin[:1] == b"\x80":
            for _ in range(IN_A_TORCH_FILE):
                if not file.peek(1):
                    return
                require_flat(file)
