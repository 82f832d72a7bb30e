"""The fully connected twins of the residual networks, of 2 n + 2 layers: states are vectors of one width.

    stem        the image as a vector, a matrix to `width`, batch norm, ReLU
    n blocks    relu(h + norm W2 relu norm W1 h), without a skip relu(norm W2 relu norm W1 h)
    classifier  linear, with a bias; no other matrix has one

With several paths (ResNeXt) W1 leads to cardinality * group_width units, and W2 back; a path is as wide as the state
unless stated otherwise. With `preactivation` a block is h + W2 relu norm W1 relu norm h, the stem is the bare
matrix, and a norm and an activation (`final_norm`) stand before the classifier. One seed gives a network and its plain
twin the same initial weights. He et al.'s variance is that of the fan-in, so that states keep their size from the
image on.

They are the networks of the theory in O. Oyedotun, K. Al Ismaeil, D. Aouada: Training Very Deep Neural Networks:
Rethinking the Role of Skip Connections; the ones trained there are convolutional.
"""

from __future__ import annotations

from torch import Tensor, nn

from skipscope.errors import InputError
from skipscope.models.blocks import ACTIVATIONS, BLOCKS, BlockPlan
from skipscope.models.network import BlockNetwork
from skipscope.models.specification import ConnectedSpec


class ConnectedNet(BlockNetwork):
    """The network of a spec. Its blocks are in `stage1`."""

    def __init__(self, spec: ConnectedSpec) -> None:
        super().__init__()
        self.spec, self.skips, self.preactivation = spec, spec.skips, spec.preactivation
        self.activation = ACTIVATIONS[spec.activation]
        channels, height, width = spec.input_shape
        plan = BlockPlan(
            before=spec.width,
            width=spec.width,
            shortcut="pad" if spec.skips else None,
            batch_norm=spec.batch_norm,
            activation=spec.activation,
            cardinality=spec.cardinality,
            group_width=spec.group_width or spec.width,
            flat=True,
            scale=spec.scale,
            parametrisation=spec.parametrisation,
        )
        self.first = nn.Linear(channels * height * width, spec.width, bias=False)
        if not spec.preactivation:
            self.norm = plan.norm(spec.width)
        kind = BLOCKS["connected", spec.preactivation, spec.cardinality > 1]
        self.stage1 = nn.Sequential(*[kind(plan) for _ in range(spec.blocks)])
        if spec.preactivation:
            self.final_norm = plan.norm(spec.width)
        self.classifier = nn.Linear(spec.width, spec.classes)
        self.initialise(nn.Linear, spec, fan="fan_in")

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
