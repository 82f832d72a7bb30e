"""What our networks of blocks have in common: their blocks and layers, and their initial weights.

    he          normal, of variance gain^2 / fan: He et al., ICCV 2015
    xavier      normal, of variance 2 / (fan in + fan out): Glorot and Bengio, AISTATS 2010
    orthogonal  rows (a filter is one) or columns orthogonal, of norm gain: Saxe et al., ICLR 2014
    small       normal, of standard deviation 0.01

The gain is sqrt(2) with ReLU and 1 without an activation. The fan-out of a grouped convolution counts all groups, as in
Xie et al.'s code and in torchvision. The classifier's weights are normal of variance 1 / inputs, its bias is 0.
"""

from __future__ import annotations

from torch import Tensor, nn

from skipscope.models.blocks import Block
from skipscope.models.specification import BlockSpec

SMALL_DEVIATION = 0.01  # standard deviation of the initial weights "small"


class BlockNetwork(nn.Module):
    """A stem, blocks in stages, and a head. preactivation: norm and activation come first in a branch."""

    skips: bool
    preactivation: bool
    classifier: nn.Linear

    @property
    def blocks(self) -> dict[str, Block]:
        """All blocks in their order, by the names that a trunk gives its units."""
        return {name: module for name, module in self.named_modules() if isinstance(module, Block)}

    def layers(self, *kinds: type[nn.Module]) -> list[nn.Module]:
        """The layers of these kinds; those on shortcuts come last, so that a twin without them draws the same."""
        found = [(name, module) for name, module in self.named_modules() if isinstance(module, kinds)]
        return [module for _, module in sorted(found, key=lambda named: "shortcut" in named[0])]

    def initialise(self, kind: type[nn.Module], spec: BlockSpec, fan: str = "fan_out") -> None:
        """New weights for the classifier and all layers of a kind; fan: of He et al.'s variance, fan_in or fan_out."""
        nn.init.normal_(self.classifier.weight, std=self.classifier.in_features**-0.5)
        nn.init.zeros_(self.classifier.bias)
        for layer in self.layers(kind):
            weight: Tensor = layer.weight  # type: ignore[assignment]
            if layer is self.classifier:
                continue
            if spec.initial == "he":
                nn.init.kaiming_normal_(weight, mode=fan, nonlinearity=spec.activation)  # type: ignore[arg-type]
            elif spec.initial == "xavier":
                nn.init.xavier_normal_(weight)
            elif spec.initial == "orthogonal":
                nn.init.orthogonal_(weight, nn.init.calculate_gain(spec.activation))  # type: ignore[arg-type]
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
