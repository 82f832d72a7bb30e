"""What our networks of blocks have in common."""

from __future__ import annotations

from torch import nn

from skipscope.models.blocks import Block


class BlockNetwork(nn.Module):
    """A stem, blocks in stages, and a head. preactivation: norm and activation come first in a branch."""

    skips: bool
    preactivation: bool

    @property
    def blocks(self) -> dict[str, Block]:
        """All blocks in their order, by the names that a trunk gives its units."""
        return {name: module for name, module in self.named_modules() if isinstance(module, Block)}

    def layers(self, *kinds: type[nn.Module]) -> list[nn.Module]:
        """The layers of these kinds; those on shortcuts come last, so that a twin without them draws the same."""
        found = [(name, module) for name, module in self.named_modules() if isinstance(module, kinds)]
        return [module for _, module in sorted(found, key=lambda named: "shortcut" in named[0])]
