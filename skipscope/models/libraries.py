"""Models of torchvision and timm, by the names that these libraries give them."""

from __future__ import annotations

from skipscope.errors import InputError
from skipscope.models.recipe import Batch, Recipe, Wish, random_images, refuse_text, unknown_name

IMAGE = (3, 224, 224)
FRAMES = 16  # the clip length that torchvision's video networks were trained with


def torchvision_recipe(name: str) -> Recipe:
    """A torchvision network; those for video get clips as their weights' own transforms cut them."""
    from torch import nn
    from torchvision import models

    if name not in models.list_models():
        raise unknown_name("torchvision", name, models.list_models())
    family = models.get_model_builder(name).__module__.removeprefix("torchvision.models.").split(".")[0]
    if family == "detection":
        raise InputError(
            f"torchvision:{name} takes lists of images and targets; wrap the part to look at, such as its backbone, "
            "in a function and name it as file.py:function"
        )

    def build() -> nn.Module:
        return models.get_model(name, weights=None).eval()

    def example(model: nn.Module, wish: Wish) -> Batch:
        refuse_text(wish, f"torchvision:{name}")
        if wish.shape is None and family == "video":
            crop = models.get_model_weights(name).DEFAULT.transforms().crop_size
            return random_images((3, FRAMES, *crop), wish.samples)
        return random_images(wish.shape or IMAGE, wish.samples)

    return Recipe(f"torchvision {name}", build, example, skeleton=build)


def timm_recipe(name: str) -> Recipe:
    """A timm network, with the input size of its own configuration."""
    try:
        import timm
    except ModuleNotFoundError as error:
        raise InputError("timm is not installed; install skipscope[models] or timm") from error
    from torch import nn

    # create_model would also take hub addresses and then reach for the network.
    if not timm.is_model(name.partition(".")[0]):
        raise unknown_name("timm", name, timm.list_models())

    def build() -> nn.Module:
        try:
            return timm.create_model(name, pretrained=False).eval()
        except (RuntimeError, ValueError) as error:
            raise InputError(f"timm cannot build '{name}': {error}") from error

    def example(model: nn.Module, wish: Wish) -> Batch:
        refuse_text(wish, f"timm:{name}")
        size = getattr(model, "pretrained_cfg", {}).get("input_size")
        return random_images(wish.shape or size or IMAGE, wish.samples)

    return Recipe(f"timm {name}", build, example, skeleton=build)
