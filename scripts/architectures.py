"""Trace many architectures and write what was found to docs/architectures.md.

    make architectures                               all of them, about ten minutes on one core
    .venv/bin/python scripts/architectures.py dla34  only these, printed in full, nothing written

Weights are random, inputs small, nothing is downloaded. Each model has the number of residual units that its design
has (its blocks, times the sums in a block), so that the table shows where the rule and the design disagree.
"""

from __future__ import annotations

import platform
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import skipscope as ss  # noqa: E402
from skipscope.trace.tracing import relative_error  # noqa: E402
from tests.trace.families import (  # noqa: E402
    BERT,
    FAMILIES,
    GPT2,
    LLAMA,
    VIT,
    Batch,
    huggingface,
    images,
    main_output,
    source_and_target,
    timm,
    tokens,
    torchvision,
)
from tests.trace.nets import CASES  # noqa: E402

TARGET = ROOT / "docs" / "architectures.md"
TRACED, REPLAYED = 2, 3  # batch sizes


@dataclass(frozen=True)
class Model:
    """A model, its input by batch size, and the residual units that its design has."""

    make: Callable[[], nn.Module]
    x: Batch
    known: int
    remark: str = ""  # why the known number is what it is, where a reader might expect another


def pixels(side: int) -> Batch:
    return lambda batch: {"pixel_values": torch.randn(batch, 3, side, side)}


def waveform(batch: int) -> dict[str, Tensor]:
    return {"input_values": torch.randn(batch, 400)}


SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "vocab_size": 64}
HEADS = {**SMALL, "num_attention_heads": 2}
BART = {
    "d_model": 16,
    **{f"{part}_{what}": 2 for part in ("encoder", "decoder") for what in ("layers", "attention_heads")},
    **{f"{part}_ffn_dim": 32 for part in ("encoder", "decoder")},
    "vocab_size": 64,
    "max_position_embeddings": 32,
}
PYRAMID = {"hidden_sizes": [8, 16, 16, 16], "depths": [1, 1, 2, 1]}

MORE: dict[str, Model] = {
    # -- torchvision
    "resnet152": Model(torchvision("resnet152"), images(32), 50),
    "mobilenet_v3_large": Model(torchvision("mobilenet_v3_large"), images(32), 10),
    "mnasnet1_0": Model(torchvision("mnasnet1_0"), images(32), 10),
    "shufflenet_v2_x1_0": Model(torchvision("shufflenet_v2_x1_0"), images(32), 0, "its two halves are concatenated"),
    "squeezenet1_1": Model(torchvision("squeezenet1_1"), images(32), 0, "its expansions are concatenated"),
    "swin_v2_t": Model(torchvision("swin_v2_t"), images(32), 24),
    # -- timm, convolutional
    "timm seresnet50": Model(timm("seresnet50"), images(32), 16),
    "timm skresnet18": Model(timm("skresnet18"), images(32), 8),
    "timm res2net50_26w_4s": Model(timm("res2net50_26w_4s"), images(32), 16),
    "timm regnety_002": Model(timm("regnety_002"), images(32), 13),
    "timm eca_nfnet_l0": Model(timm("eca_nfnet_l0"), images(32), 12),
    "timm convnextv2_atto": Model(timm("convnextv2_atto"), images(32), 12),
    "timm tf_efficientnetv2_b0": Model(timm("tf_efficientnetv2_b0"), images(32), 15),
    "timm mobilenetv3_small_100": Model(timm("mobilenetv3_small_100"), images(32), 6),
    "timm ghostnet_100": Model(timm("ghostnet_100"), images(32), 16),
    "timm repvgg_a0": Model(
        timm("repvgg_a0"),
        images(32),
        17,
        "22 blocks, of which 5 change the shape and have no skip; the skip of the others is a batch norm",
    ),
    "timm dla34": Model(timm("dla34"), images(64), 12),
    "timm hrnet_w18_small": Model(
        timm("hrnet_w18_small"), images(64), 23, "the sums that fuse its resolutions are no units"
    ),
    "timm darknet53": Model(timm("darknet53"), images(32), 23),
    "timm cspresnet50": Model(timm("cspresnet50"), images(32), 13),
    "timm xception41": Model(timm("xception41"), images(64), 12),
    "timm inception_resnet_v2": Model(timm("inception_resnet_v2"), images(96), 40),
    "timm rexnet_100": Model(
        timm("rexnet_100"),
        images(32),
        11,
        "the skip goes to the first channels of a block only; the rest is concatenated",
    ),
    "timm repvit_m0_9": Model(timm("repvit_m0_9"), images(32), 49),
    "timm ese_vovnet19b_dw": Model(timm("ese_vovnet19b_dw"), images(32), 0, "its layers are concatenated"),
    # -- timm, transformers and multilayer perceptrons
    "timm deit_tiny": Model(timm("deit_tiny_patch16_224", img_size=32, depth=3), images(32), 6),
    "timm beit_base": Model(timm("beit_base_patch16_224", img_size=32, depth=3), images(32), 6),
    "timm cait_xxs24": Model(
        timm("cait_xxs24_224", img_size=32, depth=3),
        images(32),
        9,
        "three layers of two, two class layers of two; the first class token is a parameter, not a state",
    ),
    "timm xcit_nano_12": Model(timm("xcit_nano_12_p16_224", depth=3), images(32), 13),
    "timm volo_d1": Model(timm("volo_d1_224", img_size=64), images(64), 40),
    "timm swinv2_tiny": Model(timm("swinv2_tiny_window8_256", img_size=64), images(64), 24),
    "timm coatnet_nano": Model(timm("coatnet_nano_rw_224", img_size=64), images(64), 25),
    "timm maxvit_rmlp_pico": Model(timm("maxvit_rmlp_pico_rw_256", img_size=64), images(64), 55),
    "timm levit_128s": Model(timm("levit_128s"), images(224), 20),
    "timm pit_ti": Model(timm("pit_ti_224"), images(224), 24),
    "timm crossvit_9": Model(timm("crossvit_9_240"), images(240), 30),
    "timm davit_tiny": Model(timm("davit_tiny"), images(64), 48),
    "timm hiera_tiny": Model(timm("hiera_tiny_224"), images(224), 24),
    "timm edgenext_xx_small": Model(timm("edgenext_xx_small"), images(64), 15),
    "timm mobilevit_xxs": Model(
        timm("mobilevit_xxs"), images(64), 21, "in its transformers the batch and the places in a patch are one axis"
    ),
    "timm caformer_s18": Model(timm("caformer_s18"), images(64), 36),
    "timm poolformer_s12": Model(timm("poolformer_s12"), images(32), 24),
    "timm resmlp_12": Model(timm("resmlp_12_224"), images(224), 24),
    "timm gmlp_ti16": Model(timm("gmlp_ti16_224"), images(224), 30),
    # -- Hugging Face, text
    "roberta": Model(huggingface("roberta", **BERT), tokens(), 4),
    "distilbert": Model(
        huggingface("distilbert", dim=16, n_layers=2, n_heads=2, hidden_dim=32, vocab_size=64), tokens(), 4
    ),
    "albert": Model(huggingface("albert", embedding_size=8, **BERT), tokens(), 4, "one layer, called twice"),
    "electra": Model(huggingface("electra", embedding_size=8, **BERT), tokens(), 4),
    "deberta-v2": Model(huggingface("deberta-v2", **BERT), tokens(), 4),
    "mistral": Model(huggingface("mistral", **LLAMA), tokens(), 4),
    "mixtral": Model(huggingface("mixtral", num_local_experts=4, **LLAMA), tokens(), 4),
    "qwen2": Model(huggingface("qwen2", **LLAMA), tokens(), 4),
    "qwen3": Model(huggingface("qwen3", head_dim=8, **LLAMA), tokens(), 4),
    "gemma2": Model(huggingface("gemma2", head_dim=8, **LLAMA), tokens(), 4),
    "gemma3": Model(huggingface("gemma3_text", head_dim=8, **LLAMA), tokens(), 4),
    "phi": Model(huggingface("phi", **BERT), tokens(), 2, "attention and feed-forward are parallel"),
    "gptj": Model(huggingface("gptj", rotary_dim=4, **GPT2), tokens(), 2, "attention and feed-forward are parallel"),
    "opt": Model(
        huggingface("opt", ffn_dim=32, word_embed_proj_dim=16, max_position_embeddings=32, **HEADS), tokens(), 4
    ),
    "bloom": Model(huggingface("bloom", hidden_size=16, n_layer=2, n_head=2, vocab_size=64), tokens(), 4),
    "falcon": Model(huggingface("falcon", **HEADS), tokens(), 2, "attention and feed-forward are parallel"),
    "bart": Model(huggingface("bart", **BART), source_and_target, 10),
    "mamba": Model(
        huggingface("mamba", state_size=4, **SMALL),
        tokens(),
        4,
        "inside each layer the scan's own skip, scaled by the parameter D, is a unit too",
    ),
    "mamba2": Model(
        huggingface("mamba2", state_size=4, num_heads=4, head_dim=8, n_groups=1, chunk_size=4, **SMALL), tokens(), 2
    ),
    # -- Hugging Face, images and sound
    "clip vision": Model(huggingface("clip_vision_model", "CLIPVisionModel", **VIT), pixels(16), 4),
    "dinov2": Model(
        huggingface("dinov2", **{key: value for key, value in VIT.items() if key != "intermediate_size"}), pixels(16), 4
    ),
    "convnext": Model(huggingface("convnext", **PYRAMID), pixels(64), 5),
    "segformer": Model(huggingface("segformer", num_attention_heads=[1, 2, 2, 2], **PYRAMID), pixels(64), 10),
    "wav2vec2": Model(
        huggingface(
            "wav2vec2",
            intermediate_size=32,
            conv_dim=(8, 8),
            conv_stride=(5, 2),
            conv_kernel=(10, 3),
            num_conv_pos_embeddings=4,
            num_conv_pos_embedding_groups=2,
            num_feat_extract_layers=2,
            **HEADS,
        ),
        waveform,
        5,
        "its convolutional position embedding is added to the state that it is computed from",
    ),
}
HAND_WRITTEN = ("highway", "u-net, concatenated", "cross-attention", "time conditioning", "coupling")
MODELS: dict[str, Model] = {
    **{name: Model(family.make, family.x, family.units) for name, family in FAMILIES.items()},
    **MORE,
    **{f"(ours) {name}": Model(CASES[name].make, CASES[name].x, len(CASES[name].units)) for name in HAND_WRITTEN},
}


@dataclass
class Row:
    """What was found in one model; a failure has only its reason."""

    name: str
    known: int
    remark: str
    model: str = ""
    parameters: int = 0
    units: int = 0
    nested: int = 0
    skips: Mapping[Any, int] = field(default_factory=dict)
    tails: Mapping[Any, int] = field(default_factory=dict)
    branches: Mapping[Any, int] = field(default_factory=dict)
    contexts: int = 0
    left_out: Mapping[Any, int] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)
    error: float = float("nan")
    seconds: float = float("nan")
    failure: str = ""

    def cells(self) -> list[str]:
        if self.failure:
            return [self.name, self.model, count(self.parameters), "failed", str(self.known), *[""] * 6]
        inner = f" ({self.nested} nested)" if self.nested else ""
        extra = {f"{n} branches": times for n, times in self.branches.items() if n != 1}
        return [
            self.name,
            self.model,
            count(self.parameters),
            f"{self.units}{inner}",
            str(self.known) if self.known == self.units else f"**{self.known}**",
            listed({**self.skips, **extra}),
            listed(self.tails),
            str(self.contexts or ""),
            listed(self.left_out),
            f"{self.error:.0e}" if self.error else "0",
            f"{self.seconds:.1f}",
        ]


def examine(name: str, model: Model, verbose: bool = False) -> Row:
    """Trace one model; whatever goes wrong is a row of the table, not the end of the run."""
    row = Row(name, model.known, model.remark)
    torch.manual_seed(0)
    try:
        network = model.make().eval()
        row.model, row.parameters = type(network).__name__, sum(p.numel() for p in network.parameters())
        began = time.perf_counter()
        trunk = ss.trace(network, model.x(TRACED))
        row.seconds = time.perf_counter() - began
        x = model.x(REPLAYED)
        row.error = relative_error(main_output(trunk.replay(x)), own_output(network, x))
    except Exception as error:  # any kind: it is what the table must say
        row.failure = f"{type(error).__name__}: {error}"
        return row
    if verbose:
        print(trunk)
    row.units, row.nested = len(trunk), sum(unit.parent is not None for unit in trunk.units)
    row.skips = Counter(unit.kind for unit in trunk.units)
    row.tails = Counter(" ".join(unit.tail.operations) for unit in trunk.units if unit.tail)
    row.branches = Counter(unit.branches for unit in trunk.units)
    row.contexts = sum(bool(unit.context) for unit in trunk.units)
    telling = [left for left in trunk.left_out if left.kind != "pointwise"]
    row.left_out = Counter(left.kind for left in telling)
    # One reason for each kind stands for all: they differ only in the operation that they name.
    for kind, times in row.left_out.items():
        first = next(left for left in telling if left.kind == kind)
        row.reasons.append(f"{times} {kind}, the first in `{first.where or 'the model itself'}`: {first.reason}")
    return row


def own_output(network: nn.Module, x: Any) -> Tensor:
    with torch.no_grad():
        return main_output(network(**x) if isinstance(x, dict) else network(*(x if isinstance(x, tuple) else (x,))))


def count(number: int) -> str:
    for size, unit in ((10**6, "M"), (10**3, "k")):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return str(number)


def listed(counts: Mapping[Any, int]) -> str:
    return ", ".join(f"{times} {what}" for what, times in counts.items())


def machine() -> str:
    """The processor by its own name, as the benchmark's reader needs it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    name = " ".join(names[0].split()) if names else platform.processor() or platform.machine()
    return f"{name}, {torch.get_num_threads()} of {len(names) or '?'} cores used"


def explained(row: Row) -> Iterable[str]:
    """Why a row has no unit, or another number than its code, or failed."""
    if row.failure:
        yield f"**{row.name}** failed: {' '.join(row.failure.split())}"
    elif row.units != row.known:
        reasons = "; ".join(row.reasons) or "nothing was left out"
        yield f"**{row.name}**: {row.units} units found where its design has {row.known}. {reasons}"
    elif not row.units:
        yield f"{row.name}: no residual unit. {'; '.join(row.reasons) or 'It adds and concatenates no paths'}"
    if row.remark:
        yield f"{row.name}: {row.remark}"


HEADER = (
    "model | class | parameters | units found | by design | skips | tails | with context | left out | replay error | "
    "trace (s)"
).split(" | ")


def document(rows: list[Row], minutes: float) -> str:
    import timm as timm_library
    import torchvision as torchvision_library
    import transformers

    agreeing = sum(not row.failure and row.units == row.known for row in rows)
    versions = ", ".join(
        f"{library.__name__} {library.__version__}"
        for library in (torch, torchvision_library, timm_library, transformers)
    )
    lines = [
        "# Architectures",
        "",
        f"What `ss.trace` finds in {len(rows)} models with random weights and small inputs. Made by",
        f"`make architectures` in {minutes:.0f} minutes ({versions}; Python {platform.python_version()}; {machine()}).",
        "",
        f"In {agreeing} of {len(rows)} models the number of units is the one that the design gives (its blocks, times",
        "the sums in a block); where it is not, that number is bold.",
        "",
        f"Traced at batch size {TRACED}; the replay error is the largest difference from the model's own output at",
        f"batch size {REPLAYED}, over its largest entry, in float32.",
        "Pointwise sums (in activations, norms and rotations) are not listed among what was left out.",
        "",
        "| " + " | ".join(HEADER) + " |",
        "|" + "---|" * len(HEADER),
        *("| " + " | ".join(row.cells()) + " |" for row in rows),
        "",
        "## Notes on some rows",
        "",
        *(f"- {line}" for row in rows for line in explained(row)),
        "",
    ]
    return "\n".join(lines)


def main(chosen: list[str]) -> None:
    torch.set_num_threads(1)
    unknown = [name for name in chosen if not any(name in known for known in MODELS)]
    if unknown:
        raise SystemExit(f"no model's name has {unknown[0]!r} in it; there are: {', '.join(MODELS)}")
    began = time.perf_counter()
    rows = []
    for name, model in MODELS.items():
        if chosen and not any(part in name for part in chosen):
            continue
        row = examine(name, model, verbose=bool(chosen))
        print(f"{name}: {row.failure or f'{row.units} units, {row.known} by design, {row.seconds:.1f} s'}", flush=True)
        rows.append(row)
    if not chosen:
        TARGET.parent.mkdir(exist_ok=True)
        TARGET.write_text(document(rows, (time.perf_counter() - began) / 60))
        print(f"wrote {TARGET.relative_to(ROOT)}")


if __name__ == "__main__":
    main(sys.argv[1:])
