"""The models on which `ss.trace` is judged: published architectures and networks written for the corpus.

    from scripts.architecture_models import MODELS

Weights are random, inputs small, nothing is downloaded. The number of residual units of each model was read from its
forward code before any of them was traced.
"""

from __future__ import annotations

from scripts.architecture_models import handwritten_models, huggingface_models, timm_models, torchvision_models
from scripts.architecture_models.common import Batch, Model

PARTS: tuple[dict[str, Model], ...] = (
    torchvision_models.MODELS,
    timm_models.MODELS,
    huggingface_models.MODELS,
    handwritten_models.MODELS,
)
MODELS: dict[str, Model] = {name: model for part in PARTS for name, model in part.items()}
if len(MODELS) != sum(map(len, PARTS)):
    raise ValueError("a name of a model is used twice; the second would hide the first")

__all__ = ["MODELS", "PARTS", "Batch", "Model"]
