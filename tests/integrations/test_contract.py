"""Maps of the contract, applied inside the libraries that they are for: nnsight and TransformerLens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import skipscope as ss
from skipscope.trace.model_output import relative_error
from tests.trace.contract_families import FAMILIES
from tests.trace.families import images, timm, tokens

pytestmark = pytest.mark.integration
ROUNDING = 2e-6  # relative, float32


def expressions(unit: dict[str, Any]) -> list[str]:
    """Entry, branches and exit of a unit, in the order of the pass."""
    written = [part["expression"] for part in (unit["entry"], *unit["branches"], unit["exit"])]
    assert None not in written, unit
    return written


def check_sum(values: list[Tensor], name: str) -> None:
    *terms, exit = values
    assert relative_error(torch.stack(terms).sum(0), exit) < ROUNDING, name


def large(model: nn.Module) -> nn.Module:
    """Branches as large as the states, so that a wrong one is seen."""
    with torch.no_grad():
        for path, weight in model.named_parameters():
            weight.add_(0.3 * torch.randn_like(weight)) if "norm" in path else weight.mul_(10)
    return model.eval()


@pytest.mark.parametrize("name", FAMILIES)
def test_nnsight(name: str) -> None:
    nnsight = pytest.importorskip("nnsight")
    torch.manual_seed(0)
    own, x = large(FAMILIES[name].make()), tokens()(2)
    found = ss.trace(own, x).contract().export("nnsight")
    assert found["holds"]
    model = nnsight.NNsight(own)
    for unit in found["units"]:
        written = expressions(unit)
        with torch.no_grad(), model.trace(**x):
            values = nnsight.save([eval(text) for text in written])
        check_sum(values, unit["unit"])


def test_nnsight_with_a_vector_and_memory_that_is_written_to() -> None:
    nnsight = pytest.importorskip("nnsight")
    from torchvision.models.resnet import BasicBlock, ResNet

    torch.manual_seed(0)
    scaled = timm("deit3_small_patch16_224", img_size=32, depth=1, embed_dim=32, num_heads=2)().eval()
    blocks = ResNet(BasicBlock, [1, 1, 1, 1], num_classes=4).eval()
    for own, side in ((scaled, 32), (blocks, 16)):
        x = images(side)(2)
        model = nnsight.NNsight(own)
        for unit in ss.trace(own, x).contract().export("nnsight")["units"]:
            entry, skip = unit["entry"]["expression"], unit["skip"]["expression"]
            written = [entry, unit["branches"][0]["expression"], unit["exit"]["expression"]]
            written[2:2] = [] if skip == entry else [skip]  # a projection runs after the branch
            with torch.no_grad(), model.trace(x):
                values = nnsight.save([eval(text) for text in written])
            total = values[1] + (values[0] if skip == entry else values[2])
            assert relative_error(torch.relu(total) if unit["tail"] else total, values[-1]) < ROUNDING, unit["unit"]


@pytest.mark.parametrize("name", sorted(FAMILIES.keys() - {"dbrx"}))  # which it has no adapter for
def test_transformer_lens(name: str) -> None:
    """The naive reading of its own alias, `hook_attn_out`, is not used: each expression names the component's hook."""
    sources = pytest.importorskip("transformer_lens.model_bridge.sources")
    torch.manual_seed(0)
    model, x = large(FAMILIES[name].make(head=True)), tokens()(2)
    found = ss.trace(model, x).contract().export("transformerlens")
    assert found["holds"]
    bridge = sources.build_bridge_from_module(model, type(model).__name__, hf_config=model.config)
    with torch.no_grad():
        _, cache = bridge.run_with_cache(x["input_ids"])
    assert found["units"]
    for unit in found["units"]:
        check_sum([eval(text, {"cache": cache}) for text in expressions(unit)], unit["unit"])


def test_transformer_lens_of_a_model_that_was_loaded_without_its_head(tmp_path: Path) -> None:
    sources = pytest.importorskip("transformer_lens.model_bridge.sources")
    from transformers import AutoModel

    torch.manual_seed(0)
    whole, x = large(FAMILIES["gemma2"].make(head=True)), tokens()(2)
    whole.save_pretrained(tmp_path)  # type: ignore[operator]
    found = ss.trace(AutoModel.from_pretrained(tmp_path).eval(), x).contract().export("transformerlens")
    bridge = sources.build_bridge_from_module(whole, type(whole).__name__, hf_config=whole.config)
    with torch.no_grad():
        _, cache = bridge.run_with_cache(x["input_ids"])
    for unit in found["units"]:
        check_sum([eval(text, {"cache": cache}) for text in expressions(unit)], unit["unit"])


def test_transformer_lens_says_what_it_does_not_know() -> None:
    pytest.importorskip("transformer_lens.model_bridge.sources")
    torch.manual_seed(0)
    contract = ss.trace(FAMILIES["gpt2"].make().eval(), tokens()(2)).contract()
    with pytest.raises(ss.InputError, match=r"does not know GPT2Model .* AutoModelForCausalLM"):
        contract.export("transformerlens")
