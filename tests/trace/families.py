"""Published architectures with known residual units: random weights, small inputs, nothing downloaded.

Images are small because the rule looks at the graph, not at the pixels; language models have two layers because
a third would only repeat the second.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

Batch = Callable[[int], Any]


@dataclass(frozen=True)
class Family:
    """An architecture, its input by batch size, and what must be found in it.

    A count is by value over all units: `{"identity": 5, "projection": 3}`; a tail by its operations, joined by
    spaces (`""`: none). None stands for a count that is not part of what is known.
    """

    make: Callable[[], nn.Module]
    x: Batch
    skips: dict[str, int]
    tails: dict[str, int] | None = None
    branches: dict[int, int] | None = None
    contexts: int = 0  # units that read something beside their entry
    left_out: dict[str, int] = field(default_factory=dict)  # by kind, without `pointwise`
    first: str | None = None  # the name of the first unit
    slow: bool = False

    @property
    def units(self) -> int:
        return sum(self.skips.values())


def images(side: int, channels: int = 3) -> Batch:
    return lambda batch: torch.randn(batch, channels, side, side)


def tokens(length: int = 6, vocabulary: int = 64) -> Batch:
    """Keyword inputs, as language models are called."""
    return lambda batch: {"input_ids": torch.randint(2, vocabulary, (batch, length))}


def source_and_target(batch: int) -> dict[str, Tensor]:
    return {
        "input_ids": torch.randint(2, 64, (batch, 6)),
        "decoder_input_ids": torch.randint(2, 64, (batch, 4)),
    }


def main_output(output: Any) -> Tensor:
    """The tensor that a model is for: its output, or the first of several."""
    while not isinstance(output, Tensor):
        output = output[0]
    return output


def torchvision(name: str, **options: Any) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        from torchvision.models import get_model

        return get_model(name, weights=None, num_classes=10, **options)

    return make


def timm(name: str, **options: Any) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        from timm import create_model

        return create_model(name, pretrained=False, **{"num_classes": 10, **options})

    return make


def huggingface(kind: str, model: str = "AutoModel", **options: Any) -> Callable[[], nn.Module]:
    """A model class of transformers (or an automatic one) for a model type with a changed configuration."""

    def make() -> nn.Module:
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        import transformers

        transformers.logging.set_verbosity_error()  # it warns of special tokens outside a small vocabulary
        config = transformers.AutoConfig.for_model(kind, **options)
        maker = getattr(transformers, model)
        return maker.from_config(config) if model.startswith("Auto") else maker(config)

    return make


GPT2 = {"n_embd": 16, "n_layer": 2, "n_head": 2, "vocab_size": 64, "n_positions": 32}
BERT = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "vocab_size": 64,
    "max_position_embeddings": 32,
}
LLAMA = {**BERT, "num_key_value_heads": 1}
T5 = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2, "vocab_size": 64}
VIT = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "image_size": 16,
    "patch_size": 8,
}

FAMILIES: dict[str, Family] = {
    # -- torchvision
    "resnet18": Family(
        torchvision("resnet18"), images(32), {"identity": 5, "projection": 3}, tails={"relu": 8}, first="layer1.0"
    ),
    "resnet50": Family(
        torchvision("resnet50"),
        images(32),
        {"identity": 12, "projection": 4},
        tails={"relu": 16},
        first="layer1.0",
        slow=True,
    ),
    "resnext50_32x4d": Family(
        torchvision("resnext50_32x4d"), images(32), {"identity": 12, "projection": 4}, tails={"relu": 16}, slow=True
    ),
    "wide_resnet50_2": Family(
        torchvision("wide_resnet50_2"), images(32), {"identity": 12, "projection": 4}, tails={"relu": 16}, slow=True
    ),
    "mobilenet_v2": Family(torchvision("mobilenet_v2"), images(32), {"identity": 10}, tails={"": 10}, slow=True),
    "efficientnet_b0": Family(torchvision("efficientnet_b0"), images(32), {"identity": 9}, tails={"": 9}, slow=True),
    "regnet_y_400mf": Family(
        torchvision("regnet_y_400mf"), images(32), {"identity": 12, "projection": 4}, tails={"relu": 16}, slow=True
    ),
    "convnext_tiny": Family(torchvision("convnext_tiny"), images(32), {"identity": 18}, tails={"": 18}, slow=True),
    "vit_b_16": Family(torchvision("vit_b_16", image_size=32), images(32), {"identity": 24}, tails={"": 24}, slow=True),
    "swin_t": Family(torchvision("swin_t"), images(32), {"identity": 24}, tails={"": 24}, slow=True),
    "densenet121": Family(torchvision("densenet121"), images(32), {}, left_out={"concatenation": 58}, slow=True),
    "googlenet": Family(
        torchvision("googlenet", init_weights=False, aux_logits=False),
        images(32),
        {},
        left_out={"concatenation": 9},
    ),
    "vgg16": Family(torchvision("vgg16"), images(32), {}, slow=True),
    # -- timm
    "timm resnetv2_50": Family(
        timm("resnetv2_50"),
        images(32),
        {"identity": 12, "projection": 4},
        tails={"": 16},
        first="stages.0.blocks.0",
        slow=True,
    ),
    "timm seresnet18": Family(
        timm("legacy_seresnet18"), images(32), {"identity": 5, "projection": 3}, tails={"relu": 8}
    ),
    "timm vit_tiny": Family(
        timm("vit_tiny_patch16_224", img_size=32, depth=2), images(32), {"identity": 4}, tails={"": 4}
    ),
    "timm mixer_s32": Family(
        timm("mixer_s32_224", img_size=64), images(64), {"identity": 16}, tails={"": 16}, slow=True
    ),
    # -- Hugging Face
    "gpt2": Family(huggingface("gpt2", **GPT2), tokens(), {"identity": 4}, tails={"": 4}, first="h.0.attn"),
    "bert": Family(
        huggingface("bert", **BERT),
        tokens(),
        {"identity": 4},
        tails={"layer_norm": 4},
        first="encoder.layer.0.attention",
    ),
    "llama": Family(
        huggingface("llama", **LLAMA), tokens(), {"identity": 4}, tails={"": 4}, first="layers.0.self_attn", slow=True
    ),
    "gpt_neox, parallel": Family(
        huggingface("gpt_neox", use_parallel_residual=True, **BERT),
        tokens(),
        {"identity": 2},
        tails={"": 2},
        branches={2: 2},
        first="layers.0",
    ),
    "gpt_neox, sequential": Family(
        huggingface("gpt_neox", use_parallel_residual=False, **BERT),
        tokens(),
        {"identity": 4},
        branches={1: 4},
        slow=True,
    ),
    "t5": Family(huggingface("t5", **T5), source_and_target, {"identity": 10}, tails={"": 10}, contexts=2),
    "vit": Family(
        huggingface("vit", **VIT),
        lambda batch: {"pixel_values": torch.randn(batch, 3, 16, 16)},
        {"identity": 4},
        slow=True,
    ),
}
