"""The parameters that a unit is said to have: those of its own block, also where a router chooses what is computed."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import skipscope as ss
from tests.trace.families import LLAMA, Family, huggingface, tokens
from tests.trace.nets import D

EXPERTS = {
    "qwen3_moe": {"head_dim": 8, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
}


class ByChoiceAlone(nn.Module):
    """One of several matrices for each sample: the scores of the router decide which, and are used for nothing else."""

    def __init__(self, limit: bool) -> None:
        super().__init__()
        self.scores = nn.Linear(D, 3, bias=False)
        self.experts = nn.Parameter(torch.randn(3, D, D))
        self.limit = nn.Parameter(torch.zeros(D)) if limit else None

    def forward(self, x: Tensor) -> Tensor:
        matrices = self.experts[self.scores(x).argmax(-1)]
        changed = (matrices @ x[..., None])[..., 0].tanh()
        return x + (changed if self.limit is None else changed * (x > self.limit))


class Chosen(nn.Module):
    def __init__(self, limit: bool = False) -> None:
        super().__init__()
        self.stem = nn.Linear(D, D)
        self.blocks = nn.ModuleList(ByChoiceAlone(limit) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return x


class PlacesOfWeights(nn.Module):
    """A bias from a table of weights alone, which every unit reads."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(2 * D))
        self.layers = nn.ModuleList(nn.Linear(D, D) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        places = self.table[torch.arange(D) + 3]
        for layer in self.layers:
            x = x + (layer(x) + places).tanh()
        return x


@pytest.mark.parametrize("kind", [pytest.param("qwen3_moe", marks=pytest.mark.slow), "mixtral"])
def test_experts(kind: str) -> None:
    """A feed-forward unit has its norm, its router and its experts, none of the embedding or of an earlier layer."""
    family = Family(huggingface(kind, **{**LLAMA, **EXPERTS[kind]}), tokens(), {"identity": 4})
    model = family.make().eval()
    trunk = ss.trace(model, family.x(2))
    assert len(trunk.units) == family.units
    of_layers = [
        {name for name, _ in model.named_parameters() if name.startswith(f"layers.{layer}.")} for layer in range(2)
    ]
    for layer, (attention, experts) in enumerate(zip(trunk.units[::2], trunk.units[1::2], strict=True)):
        in_experts = {name for name in of_layers[layer] if ".mlp." in name or ".post_attention_layernorm." in name}
        assert set(experts.parameter_names) == in_experts
        assert set(attention.parameter_names) == of_layers[layer] - in_experts
    sizes = {name: weight.numel() for name, weight in model.named_parameters()}
    assert sum(sizes[name] for unit in trunk.units for name in unit.parameter_names) <= sum(sizes.values())


@pytest.mark.parametrize("limit", [False, True])
def test_router_of_which_only_the_choice_is_used(limit: bool) -> None:
    torch.manual_seed(0)
    model = Chosen(limit)
    trunk = ss.trace(model, torch.randn(4, D))
    assert len(trunk.units) == 3
    for i, unit in enumerate(trunk.units):
        assert set(unit.parameter_names) == {f"blocks.{i}.{name}" for name, _ in model.blocks[i].named_parameters()}


def test_what_depends_on_weights_alone_belongs_to_each_unit() -> None:
    trunk = ss.trace(PlacesOfWeights(), torch.randn(4, D))
    for i, unit in enumerate(trunk.units):
        assert set(unit.parameter_names) == {"table", f"layers.{i}.weight", f"layers.{i}.bias"}
