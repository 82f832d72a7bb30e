"""What our networks of blocks have in common: their blocks and layers, and their initial weights.

    he            normal, of variance gain^2 / fan: He et al., ICCV 2015
    xavier        normal, of variance 2 / (fan in + fan out): Glorot and Bengio, AISTATS 2010
    orthogonal    rows (a filter is one) or columns orthogonal, of norm gain: Saxe et al., ICLR 2014
    looks_linear  [[Q, -Q], [-Q, Q]] with an orthogonal Q, in fully connected networks with ReLU: units come in pairs
                  relu(a), relu(-a), of which the next layer takes the difference, so that a layer maps a to Q a:
                  Balduzzi et al., The Shattered Gradients Problem, ICML 2017
    small         normal, of standard deviation 0.01

The gain is sqrt(2) with ReLU, and 1 without an activation and with tanh, whose slope at 0 is 1. The fan-out of a
grouped convolution counts all groups, as in Xie et al.'s code and in torchvision. The classifier's weights are normal
of variance 1 / inputs, its bias is 0.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from skipscope.models.blocks import Block
from skipscope.models.specification import BlockSpec

SMALL_DEVIATION = 0.01  # standard deviation of the initial weights "small"
GAINS = {"relu": math.sqrt(2), "linear": 1.0, "tanh": 1.0}


@torch.no_grad()
def looks_linear_(weight: Tensor, *, from_image: bool) -> None:
    """In place. from_image: what enters is no state of pairs, so that the layer has the rows Q and -Q alone."""
    rows, columns = weight.shape
    inner = torch.empty(rows // 2, columns if from_image else columns // 2, dtype=weight.dtype, device=weight.device)
    nn.init.orthogonal_(inner)
    half = inner if from_image else torch.cat([inner, -inner], 1)
    weight.copy_(torch.cat([half, -half]))


class BlockNetwork(nn.Module):
    """A stem, blocks in stages, and a head. preactivation: norm and activation come first in a branch."""

    skips: bool
    preactivation: bool
    classifier: nn.Linear

    @property
    def blocks(self) -> dict[str, Block]:
        """All blocks in their order, by the names that a trunk gives its units."""
        return {name: module for name, module in self.named_modules() if isinstance(module, Block)}

    @property
    def stages(self) -> list[nn.Module]:
        """In their order, between the stem and the head."""
        return [child for name, child in self.named_children() if name.startswith("stage")]

    def layers(self, *kinds: type[nn.Module]) -> list[nn.Module]:
        """The layers of these kinds; those on shortcuts come last, so that a twin without them draws the same."""
        found = [(name, module) for name, module in self.named_modules() if isinstance(module, kinds)]
        return [module for _, module in sorted(found, key=lambda named: "shortcut" in named[0])]

    def initialise(self, kind: type[nn.Module], spec: BlockSpec, fan: str = "fan_out") -> None:
        """New weights for the classifier and all layers of a kind; fan: of He et al.'s variance, fan_in or fan_out."""
        nn.init.normal_(self.classifier.weight, std=self.classifier.in_features**-0.5)
        nn.init.zeros_(self.classifier.bias)
        first = next(iter(self.layers(kind)))
        for layer in self.layers(kind):
            weight: Tensor = layer.weight  # type: ignore[assignment]
            if layer is self.classifier:
                continue
            if spec.initial == "he":
                like = "relu" if spec.activation == "relu" else "linear"
                nn.init.kaiming_normal_(weight, mode=fan, nonlinearity=like)  # type: ignore[arg-type]
            elif spec.initial == "xavier":
                nn.init.xavier_normal_(weight)
            elif spec.initial == "orthogonal":
                nn.init.orthogonal_(weight, GAINS[spec.activation])
            elif spec.initial == "looks_linear":
                looks_linear_(weight, from_image=layer is first)
            else:
                nn.init.normal_(weight, std=SMALL_DEVIATION)
        if spec.zero:
            self.zero_branches()

    def zero_branches(self) -> None:
        """Every block becomes its shortcut: what stands last on its branch is set to 0, and can be trained from there.

        P. Goyal et al.: Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour, 2017, section 5.1.
        """
        for block in self.blocks.values():
            nn.init.zeros_(block.ending().weight)  # type: ignore[arg-type]
