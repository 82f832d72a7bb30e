"""Convolutional networks of one architecture as one wide network with grouped convolutions.

A convolution of all members is one with K times the channels in K times the groups, and their batch norms are one of
K * C channels: the channels of a member lie side by side, and none enters those of another. The network's own code runs
on the wide modules, so that every network of our blocks can be stacked whose layers have a wide form (`WIDE`). As in
`stacked_matrices.py` the weights of the members become views of the wide ones.

On a GPU kernels of a small network are too short to fill the device. Grouped convolutions of eight networks (16 to 64
channels, channels last, bfloat16) take less than half of the time that the same convolutions take on eight streams.
What is then left is mostly memory traffic of norms, activations and sums: `compile` makes few kernels of those.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from skipscope.models.blocks import Pad
from skipscope.models.blocks.block import Weakened
from skipscope.models.network import BlockNetwork
from skipscope.training.checkpoint import structure
from skipscope.training.compilation import COMPILED, room_for_kinds, uncompiled
from skipscope.training.stacked_matrices import changed_from_outside, give_views, release, usual_norm

ALIGNED = 8  # channels of a group
AS_THEY_ARE = (nn.Identity, nn.MaxPool2d, Weakened)  # layers that treat every channel alike


def convolutions_obstacle(models: Sequence[nn.Module]) -> str:
    """Why these networks cannot be stacked as one wide network, in words; an empty text if they can."""
    first = models[0]
    if obstacle := _obstacle(first):
        return obstacle
    expected = architecture_of_convolutions(first)
    for number, model in enumerate(models[1:], 1):
        if architecture_of_convolutions(model) != expected:
            return f"network {number} has another architecture than network 0"
    return ""


def _obstacle(model: nn.Module) -> str:
    kind = type(model).__name__
    if not isinstance(model, BlockNetwork):
        return f"{kind} is not a network of our blocks"
    if obstacle := changed_from_outside(model):
        return obstacle
    if any(block.survival < 1 for block in model.blocks.values()):
        return f"{kind} drops branches at random, each network its own"
    leaves = {name: module for name, module in model.named_modules() if not any(True for _ in module.children())}
    if leaves.get("classifier") is not model.classifier or model.classifier.bias is None:
        return f"{kind} does not end with a classifier"
    known = (*WIDE, *AS_THEY_ARE)
    odd = [type(module).__name__ for name, module in leaves.items() if type(module) not in known]
    matrices = [name for name, module in leaves.items() if isinstance(module, nn.Linear) and name != "classifier"]
    if odd or matrices:
        return f"{kind} has layers that are not stacked: {', '.join(sorted({*odd, *matrices}))}"
    norms = [module for module in leaves.values() if isinstance(module, nn.BatchNorm2d)]
    if not all(map(usual_norm, norms)):
        return f"{kind} has batch norms without scales, running statistics or a momentum"
    if any(isinstance(module, nn.Conv2d) and module.padding_mode != "zeros" for module in leaves.values()):
        return f"{kind} has convolutions that are not padded with zeros"
    if not all(weight.requires_grad for weight in model.parameters()):
        return f"{kind} has weights that are not trained"
    return ""


def architecture_of_convolutions(model: nn.Module) -> tuple[tuple[str, str], ...]:
    """What members have in common: modules and precisions."""
    tensors = [*model.named_parameters(), *model.named_buffers()]
    return (*structure(model).items(), *((name, str(tensor.dtype)) for name, tensor in tensors))


class StackedConvolutions:
    """The members' weights and buffers in one place, and their common pass."""

    def __init__(self, models: Sequence[nn.Module]) -> None:
        self.models = list(models)
        with torch.no_grad():
            self.network = _widened(self.models)
        self.weights: dict[str, Tensor] = dict(self.network.named_parameters())
        self.buffers: dict[str, Tensor] = dict(self.network.named_buffers())
        for name, wide in {**self.weights, **self.buffers}.items():
            give_views(self.models, name, self.by_member(wide.detach()))
        self._compiled = False

    def __len__(self) -> int:
        return len(self.models)

    @property
    def dtype(self) -> torch.dtype:
        return self.network.classifier.weight.dtype

    @property
    def device(self) -> torch.device:
        return self.network.classifier.weight.device

    def by_member(self, tensor: Tensor) -> Tensor:
        """(K, ...), a view: what belongs to a member lies side by side along the first dimension."""
        counters = not tensor.is_floating_point()  # of batches, one for each member
        return tensor if counters else tensor.unflatten(0, (len(self), -1))

    def release(self) -> None:
        release(self.models)

    def compile(self) -> None:
        """Training passes from here on run compiled, block by block: blocks of one form are compiled once."""
        self._compiled = True
        for block in self.network.blocks.values():
            block.compile(**COMPILED)

    def __call__(self, images: Tensor, draws: Sequence[torch.Generator] | None = None) -> Tensor:
        """(K, B, C, H, W) -> (K, classes, B). draws: given in training, and not used; None: evaluation."""
        training = draws is not None
        network = self.network.train(training)
        layout = torch.channels_last if images.is_cuda else torch.contiguous_format
        h = network.stem(images.transpose(0, 1).flatten(1, 2).contiguous(memory_format=layout))  # type: ignore[operator]
        with self._way(training):
            for stage in network.stages:
                h = stage(h)
        return network.head(h)  # type: ignore[operator]

    def _way(self, training: bool) -> AbstractContextManager[None]:
        """Tests are not compiled: they have batches of several sizes, each of which would have to be."""
        if not self._compiled:
            return nullcontext()
        return room_for_kinds() if training else uncompiled()


def _widened(models: Sequence[nn.Module]) -> BlockNetwork:
    network = copy.deepcopy(models[0])
    assert isinstance(network, BlockNetwork)
    for name, module in list(network.named_modules()):
        widen = WIDE.get(type(module))
        if widen is not None:
            owner, _, leaf = name.rpartition(".")
            setattr(network.get_submodule(owner), leaf, widen([model.get_submodule(name) for model in models]))
    return network


def _joined(layers: Sequence[nn.Module], name: str) -> nn.Parameter:
    """Of all members, one after another along the first dimension; 4-d ones on a GPU with channels last."""
    whole = torch.cat([getattr(layer, name).detach() for layer in layers])
    if whole.dim() == 4 and whole.is_cuda:
        whole = whole.contiguous(memory_format=torch.channels_last)
    return nn.Parameter(whole)


def _wide_convolution(layers: Sequence[nn.Module]) -> nn.Module:
    first = layers[0]
    assert isinstance(first, nn.Conv2d)
    few = first.weight.is_cuda and first.weight.shape[1] < ALIGNED
    wide = (_FewChannels if few else nn.Conv2d)(
        len(layers) * first.in_channels,
        len(layers) * first.out_channels,
        first.kernel_size,  # type: ignore[arg-type]
        first.stride,  # type: ignore[arg-type]
        first.padding,  # type: ignore[arg-type]
        first.dilation,  # type: ignore[arg-type]
        len(layers) * first.groups,
        first.bias is not None,
        device="meta",
    )
    wide.weight = _joined(layers, "weight")
    if first.bias is not None:
        wide.bias = _joined(layers, "bias")
    return wide


def _wide_norm(layers: Sequence[nn.Module]) -> nn.Module:
    first = layers[0]
    assert isinstance(first, nn.BatchNorm2d)
    wide = nn.BatchNorm2d(len(layers) * first.num_features, first.eps, first.momentum, device="meta")
    wide.weight, wide.bias = _joined(layers, "weight"), _joined(layers, "bias")
    for name in ("running_mean", "running_var"):
        wide._buffers[name] = torch.cat([getattr(layer, name) for layer in layers])
    # One counter for each member: torch adds 1 to all of them.
    wide._buffers["num_batches_tracked"] = torch.stack([layer._buffers["num_batches_tracked"] for layer in layers])  # type: ignore[misc]
    return wide


class _WideClassifier(nn.Module):
    def __init__(self, layers: Sequence[nn.Module]) -> None:
        super().__init__()
        self.members = len(layers)
        self.weight, self.bias = _joined(layers, "weight"), _joined(layers, "bias")

    def forward(self, h: Tensor) -> Tensor:
        """(B, K * features) -> (K, classes, B)."""
        weight, bias = (own.unflatten(0, (self.members, -1)) for own in (self.weight, self.bias))
        return torch.baddbmm(bias[:, :, None], weight, h.unflatten(1, (self.members, -1)).permute(1, 2, 0))


class _WidePad(nn.Module):
    def __init__(self, layers: Sequence[nn.Module]) -> None:
        super().__init__()
        first = layers[0]
        assert isinstance(first, Pad)
        self.members, self.pad = len(layers), first

    def forward(self, h: Tensor) -> Tensor:
        stride = self.pad.stride
        return _more_channels(h[:, :, ::stride, ::stride], self.members, self.pad.front, self.pad.behind)


class _FewChannels(nn.Conv2d):
    """A grouped convolution of few channels a group, such as colours: with zeros beside them up to ALIGNED.

    A GPU's fast kernels take groups of 8 channels and more; zeros add nothing to any sum.
    """

    def forward(self, h: Tensor) -> Tensor:
        missing = ALIGNED - self.weight.shape[1]
        weight = F.pad(self.weight, (0, 0, 0, 0, 0, missing))
        h = _more_channels(h, self.groups, 0, missing)
        return F.conv2d(h, weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


def _more_channels(h: Tensor, groups: int, front: int, behind: int) -> Tensor:
    """Zeros before and after the channels of each group; images with channels last stay that way."""
    by_place = h.permute(0, 2, 3, 1).unflatten(3, (groups, -1))  # B, H, W, groups, channels
    return F.pad(by_place, (front, behind)).flatten(3).permute(0, 3, 1, 2)


# Layers with another wide form than themselves.
WIDE = {
    nn.Conv2d: _wide_convolution,
    nn.BatchNorm2d: _wide_norm,
    nn.Linear: _WideClassifier,
    Pad: _WidePad,
}
