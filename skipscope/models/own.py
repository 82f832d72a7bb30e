"""Networks of ours as a MODEL: skipscope:NAME."""

from __future__ import annotations

from torch import nn

from skipscope.models.names import build, parse
from skipscope.models.recipe import Batch, Recipe, Wish, random_images, refuse_text


def skipscope_recipe(name: str) -> Recipe:
    options = parse(name)

    def make() -> nn.Module:
        return build(name).eval()

    def example(model: nn.Module, wish: Wish) -> Batch:
        refuse_text(wish, f"skipscope:{name}")
        return random_images(wish.shape or options["input_shape"], wish.samples)

    return Recipe(f"skipscope {name}", make, example, skeleton=make)
