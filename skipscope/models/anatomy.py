"""What a network of ours is, read from its weights alone: to say in an error how a file and a model differ."""

from __future__ import annotations

import re
from collections.abc import Mapping

from torch import Tensor

BLOCK = re.compile(r"stage(\d+)\.(\d+)\.conv(\d+)\.weight")


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
    if (stem := state.get("conv.weight")) is not None and stem.dim() == 4:
        seen["channels"], seen["input_channels"] = stem.shape[0], stem.shape[1]
    if (classifier := state.get("classifier.weight")) is not None:
        seen["classes"] = classifier.shape[0]
    if (norm := state.get("stage2.0.norm1.weight")) is not None:
        first = state["stage2.0.conv1.weight"]
        if first.shape[0] != first.shape[1]:  # the norm is as wide as what enters its convolution, or as what leaves
            seen["preactivation"] = norm.shape[0] == first.shape[1]
    if layers == 3 and (middle := state.get("stage1.0.conv2.weight")) is not None:
        seen["cardinality"] = middle.shape[0] // middle.shape[1]
        seen["inner channels"] = middle.shape[0]
    elif (inner := state.get("stage1.0.conv1.weight")) is not None:
        seen["inner channels"] = inner.shape[0]
    return seen


def differences(file: Mapping[str, Tensor], model: Mapping[str, Tensor]) -> dict[str, tuple[object, object]]:
    """The options in which the two differ: (the file's, the model's)."""
    theirs, ours = anatomy(file), anatomy(model)
    return {key: (theirs[key], ours[key]) for key in theirs if key in ours and theirs[key] != ours[key]}
