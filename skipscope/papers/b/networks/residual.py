"""How the pre-activation ResNets of paper B are trained."""

from __future__ import annotations

from collections.abc import Sequence

from skipscope.training import Settings


def residual_training(epochs: int, drops: Sequence[float]) -> Settings:
    """As in fb.resnet.torch; drops: of the learning rate, as shares of the epochs."""
    return Settings(
        epochs,
        batch=128,
        rate=0.1,
        schedule="step",
        milestones=tuple(round(share * epochs) for share in drops),
        nesterov=True,
        weight_decay=1e-4,
        augmentation="crop-flip",
        precision="bfloat16",
    )
