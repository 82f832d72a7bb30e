"""The path of one token in models of the transformers library, against the Jacobian of the whole sequence."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import skipscope as ss
from skipscope.linear.token_route import OWN_PATH, WHOLE_SEQUENCE
from tests.slow import thinned

SIZES: dict[str, Any] = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
WORDS, TOKENS = 30, 6


def model_of(name: str) -> tuple[torch.nn.Module, Any]:
    import transformers as t

    torch.manual_seed(0)
    x: Any = {"input_ids": torch.randint(0, WORDS, (2, TOKENS))}
    if name == "gpt2":
        config = t.GPT2Config(n_embd=16, n_layer=2, n_head=4, vocab_size=WORDS, n_positions=16)
        return t.GPT2LMHeadModel(config), x
    if name == "llama":
        return t.LlamaForCausalLM(t.LlamaConfig(**SIZES, num_key_value_heads=2, vocab_size=WORDS)), x
    if name == "gemma3":
        kinds = ["sliding_attention", "full_attention"]
        config = t.Gemma3TextConfig(
            **SIZES, num_key_value_heads=1, head_dim=4, vocab_size=WORDS, sliding_window=3, layer_types=kinds
        )
        return t.Gemma3ForCausalLM(config), x
    if name == "bert":
        x["attention_mask"] = torch.tensor([[1] * TOKENS, [1] * (TOKENS - 2) + [0, 0]])
        return t.BertModel(t.BertConfig(**SIZES, vocab_size=WORDS)), x
    if name == "mamba":
        config = t.MambaConfig(hidden_size=16, state_size=4, num_hidden_layers=2, vocab_size=WORDS)
        return t.MambaForCausalLM(config), x
    return t.ViTModel(t.ViTConfig(**SIZES, image_size=8, patch_size=4)), {"pixel_values": torch.randn(2, 3, 8, 8)}


def traced(name: str) -> tuple[ss.Trunk, Any]:
    model, x = model_of(name)
    model.eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.normal_(std=1.3 / weight.shape[-1] ** 0.5)
    trunk = ss.trace(model, x)
    return trunk, trunk.at(x)


def whole(span: Any, point: Any) -> Tensor:
    """(B, T, d, T, d) in float64, by reverse mode over the whole sequence."""
    J = torch.func.jacrev(span.bound(point))(span.argument(point).double())
    return torch.stack([J[b, :, :, b] for b in range(len(J))])


@pytest.mark.parametrize("name", thinned(["gpt2", "llama", "gemma3", "bert", "vit"], fast=("gemma3",)))
def test_one_token_in_units_and_blocks(name: str) -> None:
    trunk, point = traced(name)
    for span in (*trunk.units[:2], trunk.span(0, 1)):
        J = whole(span, point)
        for entry, exit_ in ((3, 3), (-1, -1), (1, 4)):
            found = span.jacobian(point, tokens=(entry, exit_), dtype=torch.float64)
            assert found.token_route == OWN_PATH
            torch.testing.assert_close(found.dense(), J[:, exit_, :, entry], rtol=1e-9, atol=1e-12)
    deep = trunk.stages[0].jacobian(point, tokens=(3, 3), dtype=torch.float64)
    assert deep.token_route is not None
    assert deep.token_route.startswith(WHOLE_SEQUENCE if name in ("bert", "vit") else OWN_PATH)
    torch.testing.assert_close(deep.dense(), whole(trunk.stages[0], point)[:, 3, :, 3], rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_a_recurrence_takes_the_whole_sequence() -> None:
    trunk, point = traced("mamba")
    J = trunk.units[0].jacobian(point, tokens=(3, 3), dtype=torch.float64)
    assert J.token_route is not None
    assert J.token_route.startswith(WHOLE_SEQUENCE)
    torch.testing.assert_close(J.dense(), whole(trunk.units[0], point)[:, 3, :, 3], rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_alignment_and_coupling_from_matrices_are_those_from_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the limits of size set so low that matrices and filters are used."""
    from skipscope.measure import token_jacobians, token_matrices
    from skipscope.spectrum import truncated_svd

    trunk, point = traced("llama")
    options: dict[str, Any] = {"k": 3, "chance": 0}
    slow = ss.alignment(trunk, point, tokens=(-1, -1), route="dense", **options)
    coupled = ss.coupling(trunk, point, route="dense", **options)
    for module in (token_jacobians, token_matrices, truncated_svd):
        monkeypatch.setattr(module, "DENSE_SIDE", 4)
    monkeypatch.setattr(token_matrices, "KEPT_BYTES", 3 * 2 * 16 * 16 * 8)  # some are made again
    monkeypatch.setattr("skipscope.spectrum.filtered_subspace.MORE_VECTORS", 3)
    monkeypatch.setattr(truncated_svd, "WIDEST_BLOCK", 1)
    fast = ss.alignment(trunk, point, tokens=(-1, -1), **options)
    again = ss.coupling(trunk, point, **options)
    assert not fast["exact"].any()
    assert slow["exact"].all()
    assert (fast["frobenius_error"] == 0).all()
    for name in ("coupling_ujv", "frobenius", "left_cosine"):
        assert abs(fast[name] - slow[name]).max() < 1e-7
    assert abs(again["coupling"] - coupled["coupling"]).max() < 1e-7
    assert fast["converged"].all()
    assert again["converged"].all()
    assert set(again["token_route"].values.ravel()) == {OWN_PATH}
