"""One training with everything that has a state or is random, for the tests that stop it.

python -m tests.training.runs CHECKPOINT    train slowly and write the checkpoint after every epoch
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import xarray
from torch import Tensor, nn

from skipscope.training import At, History, Settings, train
from tests.training.nets import picture_net, pictures, weights

SETTINGS = Settings(epochs=6, batch=16, augmentation="crop-flip", nesterov=True, warmup=1, seed=7)
STEPS = 3 * SETTINGS.epochs  # 48 pictures


def numbers(model: nn.Module, epoch: int, history: History) -> dict[str, Any]:
    return {"norms": torch.stack([w.norm() for w in model.parameters()]), "drawn": float(torch.rand(1))}


def labelled(model: nn.Module, epoch: int, history: History) -> xarray.Dataset:
    first = next(model.parameters()).detach().cpu().numpy()
    return xarray.Dataset({"first": (("o", "i", "h", "w"), first)}, coords={"o": list("abcd")}, attrs={"epoch": epoch})


def hooks() -> list[At]:
    return [At([0, 2, 5], numbers), At([0, 1, 6], labelled)]


def whole_run(
    checkpoint: Path | None, progress: Callable[[int, int], None] | None = None, save_every: float = 0.0, **changed: Any
) -> tuple[dict[str, Tensor], History, list[At]]:
    model, called = picture_net(), hooks()
    settings = Settings(**{**vars(SETTINGS), **changed})
    history = train(
        model,
        pictures(),
        settings,
        test=pictures(12),
        progress=progress,
        hooks=called,
        checkpoint=checkpoint,
        save_every=save_every,
    )
    return weights(model), history, called


if __name__ == "__main__":
    torch.set_num_threads(1)

    def slowly(done: int, total: int) -> None:
        assert "accelerate" not in sys.modules  # one process has no need of it
        time.sleep(0.1)

    whole_run(Path(sys.argv[1]), progress=slowly)
