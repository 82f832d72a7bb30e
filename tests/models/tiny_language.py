"""Tiny language models as files: a folder of save_pretrained with a tokenizer, and a GGUF file, made on the spot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor

WORDS = ["<unk>", "<s>", "<pad>", "the", "skip", "carries", "a", "state", "past", "block", "of", "an", "entry"]
# Of a GGUF file, where a space before a word is the letter 0120.
PIECES = [
    "<unk>",
    "<s>",
    "<pad>",
    "t",
    "h",
    "e",
    "th",
    "the",
    "\u0120",
    "k",
    "i",
    "\u0120k",
    "\u0120ki",
]  # of a GGUF file
MERGES = ["t h", "th e", "\u0120 k", "\u0120k i"]
WIDTH, HEADS, LAYERS, POSITIONS = 16, 2, 2, 32


def llama() -> Any:
    import transformers

    torch.manual_seed(3)
    config = transformers.LlamaConfig(
        hidden_size=WIDTH,
        intermediate_size=24,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        vocab_size=len(WORDS),
        max_position_embeddings=POSITIONS,
        initializer_range=0.3,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
    )
    return transformers.LlamaForCausalLM(config).eval()


def save_tokenizer(folder: Path) -> None:
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>").save_pretrained(folder)


def save_folder(folder: Path, tokenizer: bool = True) -> Any:
    model = llama()
    model.save_pretrained(folder)
    if tokenizer:
        save_tokenizer(folder)
    return model


def save_gguf(file: Path, begins: bool = True) -> Any:
    """The same model in the form of llama.cpp. begins: whether texts begin with a token of their own."""
    from gguf import GGUFWriter

    model = llama()
    writer = GGUFWriter(file, "llama")
    writer.add_block_count(LAYERS)
    writer.add_context_length(POSITIONS)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(24)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(len(PIECES))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(PIECES)
    writer.add_token_types([3, 3, 3, *[1] * (len(PIECES) - 3)])
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(begins)
    for name, tensor in model.state_dict().items():
        writer.add_tensor(_gguf_name(name), _for_gguf(name, tensor))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model


def _gguf_name(name: str) -> str:
    short = {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
        "lm_head.weight": "output.weight",
    }
    if name in short:
        return short[name]
    _, _, number, rest = name.split(".", 3)
    parts = {
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
    }
    return f"blk.{number}.{parts[rest.removesuffix('.weight')]}.weight"


def _for_gguf(name: str, tensor: Tensor) -> numpy.ndarray:
    """Rows of queries and keys lie pair by pair there: the two halves of a rotation next to each other."""
    values = tensor.detach().float().numpy()
    if "q_proj" in name or "k_proj" in name:
        rows, columns = values.shape
        values = values.reshape(HEADS, 2, rows // HEADS // 2, columns).swapaxes(1, 2).reshape(rows, columns)
    return numpy.ascontiguousarray(values)
