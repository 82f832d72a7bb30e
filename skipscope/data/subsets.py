"""Which samples a subset keeps. Works on labels alone, so that images need not be read.

Everything is drawn on the CPU from its own generator: the choice is the same whatever device the data is on, and the
random state of the program is not touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from skipscope.errors import InputError

if TYPE_CHECKING:
    from skipscope.data.dataset import Split


def class_numbers(classes: Sequence[int | str], names: tuple[str, ...]) -> list[int]:
    """Numbers of the classes that are given by number or by name."""
    if isinstance(classes, str):
        raise InputError(f"classes: expected a list of numbers or names, got the string '{classes}'")
    numbers = []
    for given in classes:
        if isinstance(given, str) and given in names:
            numbers.append(names.index(given))
        elif not isinstance(given, str) and 0 <= given < len(names):
            numbers.append(int(given))
        else:
            known = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
            raise InputError(f"no class {given!r}; expected 0 to {len(names) - 1} or a name ({known})")
    if not numbers:
        raise InputError("classes: an empty list leaves nothing")
    if repeated := [names[number] for number in dict.fromkeys(numbers) if numbers.count(number) > 1]:
        raise InputError(f"classes: {', '.join(repeated)} given more than once")
    return numbers


def in_words(classes: list[int]) -> str:
    """For a data set's name: 'classes 0 to 4', 'classes 3, 5', 'class 7'."""
    if len(classes) == 1:
        return f"class {classes[0]}"
    if len(classes) > 2 and classes == list(range(classes[0], classes[-1] + 1)):
        return f"classes {classes[0]} to {classes[-1]}"
    return f"classes {', '.join(str(number) for number in classes)}"


def of_classes(split: Split, classes: list[int]) -> Split:
    """The samples of these classes, in their old order, relabelled 0, 1, ... in the order of `classes`."""
    labels = split.labels.cpu()
    new = torch.full((max(int(labels.max()), *classes) + 1,), -1, dtype=torch.int64, device="cpu")
    new[torch.tensor(classes, device="cpu")] = torch.arange(len(classes), device="cpu")
    relabelled = new[labels]
    chosen = torch.nonzero(relabelled >= 0).flatten()
    return split.select(chosen).with_labels(relabelled[chosen])


def balanced(labels: Tensor, names: tuple[str, ...], count: int, seed: int, what: str) -> Tensor:
    """Numbers of `count` samples, equally many from each class; a remainder goes to the first classes.

    In their old order. One permutation per class is drawn whatever `count` is: smaller draws are parts of larger ones.
    """
    if count < len(names):
        raise InputError(f"{what}: {count} is less than one for each of the {len(names)} classes")
    labels = labels.cpu()
    generator = torch.Generator("cpu").manual_seed(seed)
    drawn = []
    for number, name in enumerate(names):
        share = count // len(names) + (number < count % len(names))
        members = torch.nonzero(labels == number).flatten()
        if len(members) < share:
            raise InputError(
                f"{what}: {count} in equal parts needs {share} of class '{name}', "
                f"which has {len(members)}; ask for fewer"
            )
        order = torch.randperm(len(members), generator=generator, device="cpu")
        drawn.append(members[order[:share]])
    return torch.cat(drawn).sort().values


def random_labels(count: int, classes: int, seed: int) -> Tensor:
    """(count,) int64, uniform."""
    generator = torch.Generator("cpu").manual_seed(seed)
    return torch.randint(classes, (count,), generator=generator, device="cpu")
