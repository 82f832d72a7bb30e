"""The fully connected twins of the residual networks, of 2 n + 2 layers: states are vectors of one width.

    stem        the image as a vector, a matrix to `width`, batch norm, ReLU
    n blocks    relu(h + norm W2 relu norm W1 h), without a skip relu(norm W2 relu norm W1 h)
    classifier  linear, with a bias; no other matrix has one

With several paths (ResNeXt) W1 leads to cardinality * group_width units, and W2 back; a path is as wide as the state
unless it is said otherwise. With `preactivation` a block is h + W2 relu norm W1 relu norm h, the stem is the bare
matrix, and a norm and an activation (`final_norm`) stand before the classifier. One seed gives a network and its plain
twin the same initial weights. He et al.'s variance is that of the fan-in, so that states keep their size from the
image on; the classifier's weights are normal of variance 1 / width.

They are the networks of the theory in O. Oyedotun, K. Al Ismaeil, D. Aouada: Training Very Deep Neural Networks:
Rethinking the Role of Skip Connections; the ones trained there are convolutional.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from skipscope.errors import InputError
from skipscope.models.blocks import ACTIVATIONS, BLOCKS, BlockPlan
from skipscope.models.initialisation import draw
from skipscope.models.network import BlockNetwork
from skipscope.models.specification import BlockSpec


@dataclass(frozen=True)
class ConnectedSpec(BlockSpec):
    """A fully connected network, but for its weights. depth: 2 n + 2."""

    network = "ConnectedNet"

    depth: int = 20
    width: int = 64
    input_shape: tuple[int, int, int] = (1, 28, 28)  # channels, height, width

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least_one("width", self.width)
        if len(self.input_shape) != 3 or min(self.input_shape) < 1:
            raise InputError(f"ConnectedNet: expected images of channels, height, width, got {self.input_shape}")
        if self.depth < 4 or self.depth % 2:
            raise InputError(f"ConnectedNet: expected a depth of 2 n + 2, such as 20 or 60, got {self.depth}")

    @property
    def blocks(self) -> int:
        return (self.depth - 2) // 2

    @property
    def plan(self) -> BlockPlan:
        """Of every block."""
        return BlockPlan(
            before=self.width,
            width=self.width,
            shortcut="pad" if self.skips else None,
            batch_norm=self.batch_norm,
            activation=self.activation,
            cardinality=self.cardinality,
            group_width=self.group_width or self.width,
            flat=True,
            scale=self.scale,
            parametrisation=self.parametrisation,
        )


class ConnectedNet(BlockNetwork):
    """The network of a spec. Its blocks are in `stage1`."""

    def __init__(self, spec: ConnectedSpec) -> None:
        super().__init__()
        self.spec, self.skips, self.preactivation = spec, spec.skips, spec.preactivation
        self.activation = ACTIVATIONS[spec.activation]
        channels, height, width = spec.input_shape
        plan = spec.plan
        self.first = nn.Linear(channels * height * width, spec.width, bias=False)
        if not spec.preactivation:
            self.norm = plan.norm(spec.width)
        kind = BLOCKS["connected", spec.preactivation, spec.cardinality > 1]
        self.stage1 = nn.Sequential(*[kind(plan) for _ in range(spec.blocks)])
        if spec.preactivation:
            self.final_norm = plan.norm(spec.width)
        self.classifier = nn.Linear(spec.width, spec.classes)
        self._initialise()

    def stem(self, x: Tensor) -> Tensor:
        h = self.first(x.flatten(1))
        return h if self.preactivation else self.activation(self.norm(h))

    def head(self, h: Tensor) -> Tensor:
        if self.preactivation:
            h = self.activation(self.final_norm(h))
        return self.classifier(h)

    def forward(self, x: Tensor) -> Tensor:
        if tuple(x.shape[1:]) != self.spec.input_shape:
            raise InputError(
                f"ConnectedNet: expected images of {' x '.join(map(str, self.spec.input_shape))}, "
                f"got a tensor of {' x '.join(map(str, x.shape))}"
            )
        return self.head(self.stage1(self.stem(x)))

    def extra_repr(self) -> str:
        return f"initial={self.spec.initial}"

    def _initialise(self) -> None:
        self.initialise_classifier()
        matrices = [layer for layer in self.layers(nn.Linear) if layer is not self.classifier]
        draw(matrices, self.spec.initial, self.spec.activation, "fan_in")
        if self.spec.zero:
            self.zero_branches()
