"""Small language models: by transformers, with random weights, and one written by hand; where hooks find their states.

Weights are larger than at initialisation, so that attention, norms and activations are far from linear.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import skipscope as ss

WIDTH, TOKENS, WORDS = 8, 5, 23


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, h: Tensor) -> Tensor:
        scores = self.q(h) @ self.k(h).mT / WIDTH**0.5
        later = torch.ones(h.shape[1], h.shape[1], dtype=torch.bool, device=h.device).triu(1)
        return self.out(torch.softmax(scores.masked_fill(later, float("-inf")), -1) @ self.v(h))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before_attention, self.before_mlp = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention, self.up, self.down = Attention(), nn.Linear(WIDTH, 12), nn.Linear(12, WIDTH)

    def forward(self, h: Tensor) -> Tensor:
        h = h + self.attention(self.before_attention(h))
        return h + self.down(F.gelu(self.up(self.before_mlp(h))))


class Written(nn.Module):
    """A causal transformer of two blocks."""

    def __init__(self, blocks: int = 2) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(WORDS, WIDTH), nn.Embedding(TOKENS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(blocks))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        h = self.embed(ids) + self.place.weight
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h))


def gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes: dict[str, Any] = {"n_embd": WIDTH, "n_layer": 2, "n_head": 2, "n_positions": 16, "vocab_size": WORDS}
    return GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))


def llama() -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": WIDTH, "intermediate_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2}
    return LlamaForCausalLM(LlamaConfig(**sizes, num_key_value_heads=1, vocab_size=WORDS, max_position_embeddings=16))


def bert() -> nn.Module:
    from transformers import BertConfig, BertForMaskedLM

    sizes = {"hidden_size": WIDTH, "intermediate_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2}
    return BertForMaskedLM(BertConfig(**sizes, vocab_size=WORDS, max_position_embeddings=16))


@dataclass(frozen=True)
class Case:
    """entries: modules whose first input is the entry of a unit. branches: whose output is the branch. last: whose
    first input is the last state. head: from there to the logits."""

    make: Callable[[], nn.Module]
    entries: list[str]
    branches: list[str]
    last: str
    head: list[str]
    block: str  # the path of a block, with its number left open
    causal: bool = True
    rounding: float = 1e-8  # of derivatives, relative


CASES = {
    "written": Case(
        Written,
        [f"blocks.{i}.before_{part}" for i in range(2) for part in ("attention", "mlp")],
        [f"blocks.{i}.{part}" for i in range(2) for part in ("attention", "down")],
        "norm",
        ["norm", "head"],
        "blocks.{}",
    ),
    "gpt2": Case(
        gpt2,
        [f"transformer.h.{i}.ln_{part}" for i in range(2) for part in (1, 2)],
        [f"transformer.h.{i}.{part}" for i in range(2) for part in ("attn", "mlp")],
        "transformer.ln_f",
        ["transformer.ln_f", "lm_head"],
        "transformer.h.{}",
    ),
    "llama": Case(
        llama,
        [f"model.layers.{i}.{part}_layernorm" for i in range(2) for part in ("input", "post_attention")],
        [f"model.layers.{i}.{part}" for i in range(2) for part in ("self_attn", "mlp")],
        "model.norm",
        ["model.norm", "lm_head"],
        "model.layers.{}",
        rounding=2e-5,  # its norms and rotations are in float32 whatever the type of the model is
    ),
    "bert": Case(
        bert,
        [f"bert.encoder.layer.{i}.{part}" for i in range(2) for part in ("attention.self.query", "intermediate")],
        [f"bert.encoder.layer.{i}.{part}.dense" for i in range(2) for part in ("attention.output", "output")],
        "cls",
        ["cls"],
        "bert.encoder.layer.{}",
        causal=False,
    ),
}


@cache
def traced(name: str) -> tuple[nn.Module, ss.Trunk, Tensor]:
    """In float64; the model, its trunk and token ids (3, TOKENS)."""
    torch.manual_seed(0)
    model = CASES[name].make().double().eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.normal_(std=1.3 / weight.shape[-1] ** 0.5)
            else:
                weight.add_(0.3 * torch.randn_like(weight))
    ids = torch.randint(0, WORDS, (3, TOKENS))
    return model, ss.trace(model, ids), ids


def logits_of(output: Any) -> Tensor:
    return output if isinstance(output, Tensor) else output.logits


def first(value: Any) -> Tensor:
    return value[0] if isinstance(value, tuple) else value


def apply_head(model: nn.Module, case: Case, state: Tensor) -> Tensor:
    for path in case.head:
        state = model.get_submodule(path)(state)
    return state


def block_function(model: nn.Module, path: str, ids: Tensor, end: str | None = None) -> tuple[Any, Tensor]:
    """A function of the entry of a block, (B, tokens, width), by hooks in a pass of the whole model; and that entry.

    Its value is the exit of the block, or the first input of another module, `end`.
    """
    block, noted = model.get_submodule(path), []
    handle = block.register_forward_pre_hook(lambda module, args: noted.append(args[0].detach()))
    model(ids)
    handle.remove()

    def run(entry: Tensor) -> Tensor:
        out: list[Tensor] = []
        handles = [block.register_forward_pre_hook(lambda module, args: (entry, *args[1:]))]
        if end is None:
            handles.append(block.register_forward_hook(lambda module, args, output: out.append(first(output))))
        else:
            stop = model.get_submodule(end)
            handles.append(stop.register_forward_pre_hook(lambda module, args: out.append(args[0])))
        model(ids)
        for one in handles:
            one.remove()
        return out[0]

    return run, noted[0]
