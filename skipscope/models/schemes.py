"""Do the tensors of a file fit a model? Also under the names that other libraries give to our networks.

A scheme is a list of rules, each from a foreign name to ours. A file is taken by the first scheme under which every
tensor fits by name and shape; nothing is loaded by half. What names and shapes do not show stays the user's to know:
a network trained without skips, or one whose zero channels are not half in front and half behind, fits as well.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

from skipscope.errors import InputError
from skipscope.models.resnet import ResNet

BLOCK = re.compile(r"stage(\d{1,6})\.(\d{1,6})\.conv(\d{1,6})\.weight")
OURS = re.compile(r"stage\d+\.\d+\.(conv|norm|shortcut)|(conv|norm|final_norm|classifier)\.")  # names of tensors
NORM = r"\.(weight|bias|running_mean|running_var|num_batches_tracked)"


@dataclass(frozen=True)
class Scheme:
    """OUTER in a rule's result is the network's one norm outside blocks: `norm`, or `final_norm` (pre-activation)."""

    name: str
    rules: tuple[tuple[str, str], ...]

    def ours(self, foreign: str, outer: str = "norm") -> str | None:
        """Our name; None for a name that the scheme does not know."""
        for pattern, result in self.rules:
            if found := re.fullmatch(pattern, foreign):
                name = found.expand(result).replace("OUTER", outer)
                # Units that are counted from one (`unit3`) become our blocks, counted from zero (`2`).
                return re.sub(r"unit(\d{1,6})(?!\d)", lambda unit: str(int(unit[1]) - 1), name)
        return None


def _layered(name: str, shortcut: str, classifier: str) -> Scheme:
    return Scheme(
        name,
        (
            (r"conv1\.weight", "conv.weight"),
            (rf"bn1?{NORM}", r"OUTER.\1"),
            (r"layer(\d+)\.(\d+)\.conv(\d)\.weight", r"stage\1.\2.conv\3.weight"),
            (rf"layer(\d+)\.(\d+)\.bn(\d){NORM}", r"stage\1.\2.norm\3.\4"),
            (rf"layer(\d+)\.(\d+)\.{shortcut}\.(0|1){NORM}", r"stage\1.\2.shortcut.\3.\4"),
            (rf"{classifier}\.(weight|bias)", r"classifier.\1"),
        ),
    )


OWN = Scheme("skipscope", ((r"(.*)", r"\1"),))
SCHEMES = (
    OWN,
    _layered("CIFAR port (layer1.0.conv1, shortcut, linear)", "shortcut", "linear"),
    _layered("torchvision and timm (layer1.0.conv1, downsample, fc)", "downsample", "fc"),
    _layered("mixed (layer1.0.conv1)", "(?:shortcut|downsample)", "(?:linear|fc|classifier|output)"),
    Scheme(
        "pytorchcv (features.stage1.unit1.body.conv1.conv)",
        (
            (r"features\.init_block\.(?:conv\.)?weight", "conv.weight"),
            (rf"features\.init_block\.bn{NORM}", r"OUTER.\1"),
            (rf"features\.post_activ\.bn{NORM}", r"final_norm.\1"),
            (r"features\.stage(\d+)\.(unit\d+)\.body\.conv(\d)\.conv\.weight", r"stage\1.\2.conv\3.weight"),
            (rf"features\.stage(\d+)\.(unit\d+)\.body\.conv(\d)\.bn{NORM}", r"stage\1.\2.norm\3.\4"),
            (r"features\.stage(\d+)\.(unit\d+)\.identity_conv\.(?:conv\.)?weight", r"stage\1.\2.shortcut.0.weight"),
            (rf"features\.stage(\d+)\.(unit\d+)\.identity_conv\.bn{NORM}", r"stage\1.\2.shortcut.1.\3"),
            (r"output\.(?:fc\.)?(weight|bias)", r"classifier.\1"),
        ),
    ),
)


def translated(model: ResNet, state: Mapping[str, Tensor], path: Path) -> dict[str, Tensor]:
    """The tensors under our names; an InputError that speaks of the closest scheme where none fits."""
    outer = "final_norm" if model.preactivation else "norm"
    renamed = [(s, {s.ours(name, outer) or name: tensor for name, tensor in state.items()}) for s in SCHEMES]
    for _, candidate in renamed:
        if not misfits(model, candidate):
            return candidate
    own = model.state_dict()
    scheme, closest = max(renamed, key=lambda pair: sum(OURS.match(name) is not None for name in pair[1]))
    different = differences(closest, own)
    stated = [f"{key} {theirs} in the file, {ours} in the model" for key, (theirs, ours) in different.items()]
    raise InputError(
        f"{path} does not fit the network. Read by the names of {scheme.name}: "
        f"{'; '.join([*stated, *misfits(model, closest)])}. {_advice(different)}"
    )


def _advice(different: Mapping[str, tuple[object, object]]) -> str:
    """What to write in place of the model's name."""
    parts = []
    if "shortcut" in different:
        projection = different["shortcut"][0] == "projection"
        parts.append(
            "the file has weights on its shortcuts: build with -projection (shortcut='projection')"
            if projection
            else "the file has no weights on its shortcuts: build without -projection (shortcut='pad')"
        )
    if "block" in different:
        parts.append("build with -bottleneck" if different["block"][0] == "bottleneck" else "build without -bottleneck")
    if "preactivation" in different:
        parts.append("name the family with pre" if different["preactivation"][0] else "name the family without pre")
    if "depth" in different:
        parts.append(f"name the depth {different['depth'][0]}")
    advice = "; ".join(parts) or "name the network that was trained, for example skipscope:resnet56-cifar"
    return advice[0].upper() + advice[1:]


def misfits(model: nn.Module, state: Mapping[str, Tensor]) -> list[str]:
    """Missing and unexpected names, and other shapes."""
    own = {key: value for key, value in model.state_dict().items() if isinstance(value, Tensor)}
    # Tied weights are stored once, and old checkpoints lack the step counter of a batch norm.
    given = {_storage(own[key]) for key in state if key in own}
    missing = [
        key
        for key, value in own.items()
        if key not in state and _storage(value) not in given and not key.endswith("num_batches_tracked")
    ]
    unexpected = [key for key in state if key not in own]
    misshaped = [
        f"{key} {_size_in_words(state[key])} in the file, {_size_in_words(value)} in the model"
        for key, value in own.items()
        if key in state and state[key].shape != value.shape
    ]
    return [
        f"{len(names)} {kind} ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''})"
        for kind, names in (("missing", missing), ("unexpected", unexpected), ("of another shape", misshaped))
        if names
    ]


def _storage(tensor: Tensor) -> tuple[int, tuple[int, ...]]:
    return tensor.data_ptr(), tuple(tensor.shape)


def _size_in_words(tensor: Tensor) -> str:
    return "x".join(str(size) for size in tensor.shape) or "scalar"


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
