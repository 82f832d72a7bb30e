"""What a network of ours is, read from its weights alone: to say in an error how a file and a model differ."""

from __future__ import annotations

import re
from collections.abc import Mapping

from torch import Tensor

BLOCK = re.compile(r"stage(\d{1,6})\.(\d{1,6})\.conv(\d{1,6})\.weight")


def anatomy(state: Mapping[str, Tensor]) -> dict[str, object]:
    """The options of `ResNet` that tensors under our names show; what they do not show is left out.

    Zero-padding and no skips at all look the same: neither has weights.
    """
    places = [tuple(map(int, found.groups())) for name in state if (found := BLOCK.fullmatch(name))]
    if not places:
        return {}
    stages, _, layers = (max(column) for column in zip(*places, strict=True))
    blocks = len({place[:2] for place in places})
    seen: dict[str, object] = {
        "stages": stages,
        "depth": blocks * layers + 2,
        "block": "bottleneck" if layers == 3 else "basic",
        "shortcut": "projection" if any(".shortcut." in name for name in state) else "pad",
        "batch_norm": any("norm" in name for name in state),
    }
    if stem := _shape(state, "conv.weight", 4):
        seen["channels"], seen["input_channels"] = stem[:2]
    if classifier := _shape(state, "classifier.weight", 2):
        seen["classes"] = classifier[0]
    norm, first = _shape(state, "stage2.0.norm1.weight", 1), _shape(state, "stage2.0.conv1.weight", 4)
    if norm and first and first[0] != first[1]:
        # The norm is as wide as what enters its convolution, or as what leaves.
        seen["preactivation"] = norm[0] == first[1]
    middle, inner = _shape(state, "stage1.0.conv2.weight", 4), _shape(state, "stage1.0.conv1.weight", 4)
    if layers == 3 and middle:
        seen["cardinality"] = middle[0] // middle[1]
        seen["inner channels"] = middle[0]
    elif layers != 3 and inner:
        seen["inner channels"] = inner[0]
    return seen


def _shape(state: Mapping[str, Tensor], name: str, rank: int) -> tuple[int, ...]:
    """Empty where the tensor is not there, is empty, or has another rank: a file may hold anything."""
    shape = tuple(state[name].shape) if name in state else ()
    return shape if len(shape) == rank and 0 not in shape else ()


def differences(file: Mapping[str, Tensor], model: Mapping[str, Tensor]) -> dict[str, tuple[object, object]]:
    """The options in which the two differ: (the file's, the model's)."""
    theirs, ours = anatomy(file), anatomy(model)
    return {key: (theirs[key], ours[key]) for key in theirs if key in ours and theirs[key] != ours[key]}
