"""What our networks of blocks have in common."""

from __future__ import annotations

from torch import nn

from skipscope.models.blocks import Block


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

    def initialise_classifier(self) -> None:
        """Normal weights of variance 1 / inputs, and no bias."""
        nn.init.normal_(self.classifier.weight, std=self.classifier.in_features**-0.5)
        nn.init.zeros_(self.classifier.bias)

    def zero_branches(self) -> None:
        """Every block becomes its shortcut: what stands last on its branch is set to 0, and can be trained from there.

        P. Goyal et al.: Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour, 2017, section 5.1.
        """
        for block in self.blocks.values():
            nn.init.zeros_(block.ending().weight)  # type: ignore[arg-type]
