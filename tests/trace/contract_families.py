"""Language models whose modules do not return what is added to the residual stream, and some that do.

Tiny configurations with random weights; nothing is downloaded. `naive` is what somebody who takes the output of the
attention and feed-forward modules for the branches gets wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from tests.trace.families import GPT2, LLAMA, huggingface


@dataclass(frozen=True)
class Hooked:
    """What must be found in the first layer: of each unit, the expressions of its branches and the state after it."""

    kind: str  # model type of transformers
    options: dict[str, Any]
    units: tuple[tuple[str, str], ...]
    wrong: tuple[bool, ...]  # for each unit: is a module's own output something else than the branch?
    adds_residual: tuple[bool, ...]
    norms: tuple[str | None, ...]
    factor: float = 1.0

    def make(self, head: bool = False) -> nn.Module:
        maker: Callable[[], nn.Module] = huggingface(
            self.kind, "AutoModelForCausalLM" if head else "AutoModel", **self.options
        )
        return maker()


LAYER = "layers.0"
BLOOM = {"hidden_size": 16, "n_layer": 2, "n_head": 2, "vocab_size": 64}
MPT = {"d_model": 16, "n_layers": 2, "n_heads": 2, "vocab_size": 64, "max_seq_len": 32}
FALCON = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 64}
GPTJ = {"n_embd": 16, "n_layer": 2, "n_head": 2, "vocab_size": 64, "n_positions": 32, "rotary_dim": 4}
OPT = {
    "hidden_size": 16,
    "ffn_dim": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "vocab_size": 64,
    "max_position_embeddings": 32,
    "word_embed_proj_dim": 16,
}
DBRX = {
    "d_model": 16,
    "n_layers": 2,
    "n_heads": 2,
    "vocab_size": 64,
    "max_seq_len": 32,
    "attn_config": {"kv_n_heads": 1, "rope_theta": 1e4, "clip_qkv": 8},
    "ffn_config": {"ffn_hidden_size": 16, "moe_num_experts": 2, "moe_top_k": 1},
}
NO, YES = (False, False), (True, True)


def sandwich(attention: str, feed_forward: str) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """A norm after each module; what it is called differs."""
    norms = (f"{LAYER}.{attention}", f"{LAYER}.{feed_forward}")
    return (
        (f"{norms[0]}({LAYER}.self_attn output[0])", f"{norms[1]}({LAYER}.mlp output)"),
        norms,
    )


def with_norms(kind: str, attention: str, feed_forward: str, middle: str, **options: Any) -> Hooked:
    """middle: the module that takes the state between attention and feed-forward."""
    added, norms = sandwich(attention, feed_forward)
    states = (f"{LAYER}.{middle} input", f"{LAYER} output")
    return Hooked(kind, {**LLAMA, **options}, tuple(zip(added, states, strict=True)), YES, NO, norms)  # type: ignore[arg-type]


MIDDLE = "post_attention_layernorm"
FAMILIES = {
    "gpt2": Hooked(
        "gpt2", GPT2, (("h.0.attn output[0]", "h.0.ln_2 input"), ("h.0.mlp output", "h.0 output")), NO, NO, (None, None)
    ),
    "llama": Hooked(
        "llama",
        LLAMA,
        ((f"{LAYER}.self_attn output[0]", f"{LAYER}.{MIDDLE} input"), (f"{LAYER}.mlp output", f"{LAYER} output")),
        NO,
        NO,
        (None, None),
    ),
    "granite": Hooked(
        "granite",
        {**LLAMA, "residual_multiplier": 0.22},
        (
            (f"{LAYER}.self_attn output[0] * 0.22", f"{LAYER}.{MIDDLE} input"),
            (f"{LAYER}.mlp output * 0.22", f"{LAYER} output"),
        ),
        YES,
        NO,
        (None, None),
        0.22,
    ),
    "bloom": Hooked(
        "bloom",
        BLOOM,
        (
            ("h.0.self_attention.dense output", "h.0.self_attention output[0]"),
            ("h.0.mlp.dense_4h_to_h output", "h.0 output[0]"),
        ),
        YES,
        YES,
        (None, None),
    ),
    "mpt": Hooked(
        "mpt",
        MPT,
        (
            ("blocks.0.attn output[0]", "blocks.0.norm_2 input"),
            ("blocks.0.ffn.down_proj output", "blocks.0 output[0]"),
        ),
        (False, True),
        (False, True),
        (None, None),
    ),
    "dbrx": Hooked(
        "dbrx",
        DBRX,
        (
            ("blocks.0.norm_attn_norm.attn output[0]", "blocks.0.norm_attn_norm output[0]"),
            ("blocks.0.ffn output", "blocks.0 output"),
        ),
        (True, False),
        (True, False),
        (None, None),
    ),
    "gemma2": with_norms("gemma2", MIDDLE, "post_feedforward_layernorm", "pre_feedforward_layernorm", head_dim=8),
    "gemma3": with_norms("gemma3_text", MIDDLE, "post_feedforward_layernorm", "pre_feedforward_layernorm", head_dim=8),
    "glm4": with_norms("glm4", "post_self_attn_layernorm", "post_mlp_layernorm", MIDDLE, head_dim=8, pad_token_id=0),
    "olmo2": with_norms("olmo2", MIDDLE, "post_feedforward_layernorm", "mlp"),
    "opt": Hooked(  # flattens its states before the second norm
        "opt",
        OPT,
        (
            ("decoder.layers.0.self_attn output[0]", "decoder.layers.0.final_layer_norm input.reshape(-1, 6, 16)"),
            ("decoder.layers.0.fc2 output.reshape(-1, 6, 16)", "decoder.layers.0 output"),
        ),
        NO,
        NO,
        (None, None),
    ),
    "falcon": Hooked(
        "falcon",
        FALCON,
        (("h.0.self_attention output[0] + h.0.mlp output", "h.0 output[0]"),),
        (False,),
        (True,),
        (None,),
    ),
    "gptj": Hooked(
        "gptj", GPTJ, (("h.0.attn output[0] + h.0.mlp output", "h.0 output[0]"),), (False,), (True,), (None,)
    ),
}
