"""Models whose weights stay on disk: the numbers of the model in memory, and what is wrong with files in words."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import skipscope as ss
from skipscope.models import resolve
from skipscope.models.mapped_files import in_a_file
from tests.models.tiny_language import llama, save_folder, save_gguf
from tests.slow import thinned

needs_gguf = pytest.mark.skipif(importlib.util.find_spec("gguf") is None, reason="the package gguf is not installed")
SMALL: dict[str, Any] = {"vocab_size": 50, "bos_token_id": 1, "eos_token_id": 1, "pad_token_id": 1}
LLAMA: dict[str, Any] = {
    **SMALL,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
# By family: the class, the class of its configuration, options.
FAMILIES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("LlamaForCausalLM", "LlamaConfig", {**LLAMA, "num_key_value_heads": 2}),
    "tied": ("LlamaForCausalLM", "LlamaConfig", {**LLAMA, "tie_word_embeddings": True}),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", {**SMALL, "n_embd": 32, "n_layer": 2, "n_head": 4}),
    "without head": ("GPT2Model", "GPT2Config", {**SMALL, "n_embd": 32, "n_layer": 2, "n_head": 4}),
    "neox": ("GPTNeoXForCausalLM", "GPTNeoXConfig", LLAMA),
    "fused experts": (
        "MixtralForCausalLM",
        "MixtralConfig",
        {**LLAMA, "num_key_value_heads": 2, "num_local_experts": 3},
    ),
}
X = {"input_ids": torch.arange(12).reshape(2, 6)}


def saved(family: str, folder: Path, dtype: torch.dtype = torch.float32) -> Any:
    """The model in memory, loaded from several files."""
    import transformers

    torch.manual_seed(1)
    kind, config, options = FAMILIES[family]
    model = getattr(transformers, kind)(getattr(transformers, config)(**options)).to(dtype)
    model.save_pretrained(folder, max_shard_size="20KB")
    assert len(list(folder.glob("*.safetensors"))) > 1
    return getattr(transformers, kind).from_pretrained(folder).eval()


def same_weights(model: nn.Module, expected: nn.Module) -> bool:
    ours, theirs = ({**m.state_dict(), **dict(m.named_buffers())} for m in (model, expected))
    return ours.keys() == theirs.keys() and all(torch.equal(value, theirs[name]) for name, value in ours.items())


@pytest.mark.parametrize("dtype", thinned([torch.float32, torch.bfloat16], fast=(torch.bfloat16,)))
@pytest.mark.parametrize("family", thinned(FAMILIES, fast=("llama",)))
def test_numbers_are_those_of_the_model_in_memory(family: str, dtype: torch.dtype, tmp_path: Path) -> None:
    expected = saved(family, tmp_path, dtype)
    model = ss.on_disk(tmp_path, memory="200MB")
    assert type(model) is type(expected)
    assert same_weights(model, expected)
    assert {weight.dtype for weight in model.parameters()} == {dtype}
    trunk, other = ss.trace(model, X), ss.trace(expected, X)
    point, second = trunk.at(X), other.at(X)
    assert all(torch.equal(a, b) for a, b in zip(point.states, second.states, strict=True))
    assert torch.equal(trunk[1].jacobian(point).dense(), other[1].jacobian(second).dense())
    assert ss.profile(trunk, point).equals(ss.profile(other, second))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_everything_that_measures_a_trunk_works(dtype: torch.dtype, tmp_path: Path) -> None:
    expected = saved("llama", tmp_path, dtype)
    trunk, other = ss.trace(ss.on_disk(tmp_path, memory="500MB"), X), ss.trace(expected, X)
    for measure in (ss.alignment, ss.coupling, ss.depth_use, ss.leading, ss.normality, ss.trajectories):
        options = {} if measure in (ss.depth_use, ss.normality, ss.trajectories) else {"k": 2}
        ours, theirs = measure(trunk, X, **options), measure(other, X, **options, memory="500MB")
        assert set(ours) == set(theirs)
        for name in ours:
            if ours[name].dtype.kind == "f":
                torch.testing.assert_close(
                    torch.from_numpy(ours[name].values), torch.from_numpy(theirs[name].values), equal_nan=True
                )


@pytest.mark.slow
def test_identical_blocks_are_exported_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from skipscope.trace.repeated_blocks import _Attempt

    repeated: list[str] = []
    repeat = _Attempt._repeat
    monkeypatch.setattr(
        _Attempt, "_repeat", lambda self, pattern, path, x: repeated.append(path) or repeat(self, pattern, path, x)
    )
    kind, config, options = FAMILIES["llama"]
    monkeypatch.setitem(FAMILIES, "llama", (kind, config, {**options, "num_hidden_layers": 4}))
    saved("llama", tmp_path)
    ss.trace(ss.on_disk(tmp_path, memory="200MB"), X)
    assert repeated == [f"model.layers.{number}" for number in (1, 2, 3)]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_path_of_a_token_is_that_of_the_model_in_memory(dtype: torch.dtype, tmp_path: Path) -> None:
    expected = ss.trace(saved("llama", tmp_path, dtype), X)
    trunk = ss.trace(ss.on_disk(tmp_path, memory="200MB"), X)
    data, wanted = (ss.coupling(one, X, k=3, chance=0) for one in (trunk, expected))
    assert set(data["token_route"].values.ravel()) == {"path of the chosen tokens"}
    assert abs(data["value"] - wanted["value"]).max() < 1e-12
    assert abs(data["coupling"] - wanted["coupling"]).max() < 1e-9


def test_tied_weights_are_one_tensor(tmp_path: Path) -> None:
    saved("tied", tmp_path)
    model: Any = ss.on_disk(tmp_path)
    assert model.lm_head.weight is model.model.embed_tokens.weight


def test_a_model_can_be_read_with_other_types_in_its_files(tmp_path: Path) -> None:
    """Norms in float32 among weights in bfloat16: the usual type is the model's."""
    from safetensors.torch import load_file, save_file

    saved("llama", tmp_path, torch.bfloat16)
    for file in tmp_path.glob("*.safetensors"):
        tensors = {key: value.float() if "norm" in key else value for key, value in load_file(file).items()}
        save_file(tensors, file, {"format": "pt"})
    model = ss.on_disk(tmp_path)
    assert {weight.dtype for weight in model.parameters()} == {torch.bfloat16}


@needs_gguf
def test_a_gguf_file_stays_on_disk(tmp_path: Path) -> None:
    file = tmp_path / "tiny.gguf"
    save_gguf(file)
    model = ss.on_disk(file, memory="200MB")
    assert same_weights(model, llama())
    source = resolve(f"hf:{file}", text="the ki", memory="200MB")
    assert source.weights == f"weights from {file}, on disk"
    assert same_weights(source.model, llama())


def test_a_folder_may_be_named_as_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_folder(tmp_path / "tiny")
    monkeypatch.chdir(tmp_path)
    for name in ("hf:./tiny", "hf:tiny", f"hf:{tmp_path / 'tiny'}"):
        assert same_weights(ss.on_disk(name), llama())
    with pytest.raises(ss.InputError, match=r"^nowhere: no such folder"):
        ss.on_disk("hf:nowhere")


def test_a_model_of_the_command_line_stays_on_disk(tmp_path: Path) -> None:
    save_folder(tmp_path)
    source = resolve(f"hf:{tmp_path}", text="the skip carries", memory="200MB")
    assert source.weights.endswith("on disk")
    assert same_weights(source.model, llama())
    with pytest.raises(ss.InputError, match=r"dtype='bfloat16' converts the model"):
        resolve(f"hf:{tmp_path}", memory="200MB", dtype="bfloat16")
    in_memory = resolve("skipscope:resnet8-digits", memory="200MB")  # the limit alone
    assert "on disk" not in in_memory.weights


# ---- what is wrong, in words


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    saved("llama", tmp_path)
    first = sorted(tmp_path.glob("*.safetensors"))[0]
    first.unlink()
    with pytest.raises(ss.InputError, match=rf"{first.name} of .* is not there: .* 1 of them are missing; copy"):
        ss.on_disk(tmp_path)


@pytest.mark.parametrize("size", [0, 4, 100, -10])
def test_a_damaged_file_is_named(tmp_path: Path, size: int) -> None:
    saved("llama", tmp_path)
    first = sorted(tmp_path.glob("*.safetensors"))[0]
    first.write_bytes(first.read_bytes()[:size])
    with pytest.raises(ss.InputError, match=rf"{first.name} cannot be read as safetensors .*copy it again") as caught:
        ss.on_disk(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    saved("llama", tmp_path)
    index = tmp_path / "model.safetensors.index.json"
    places = json.loads(index.read_text())
    name = "model.layers.1.mlp.up_proj.weight"
    file = tmp_path / places["weight_map"][name]
    save_file({key: value for key, value in load_file(file).items() if key != name}, file, {"format": "pt"})
    with pytest.raises(ss.InputError, match=rf"has no tensor {name}, which .* says is there"):
        ss.on_disk(tmp_path)
    del places["weight_map"][name]
    index.write_text(json.dumps(places))
    with pytest.raises(ss.InputError, match=rf"has no tensor for {name} \(1 of"):
        ss.on_disk(tmp_path)
    index.write_text("{")
    with pytest.raises(ss.InputError, match=r"index\.json cannot be read"):
        ss.on_disk(tmp_path)


def test_what_cannot_be_read_one_by_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ss.InputError, match="no such folder or file"):
        ss.on_disk(tmp_path / "nowhere")
    model = llama()
    model.config.save_pretrained(tmp_path)
    with pytest.raises(ss.InputError, match="holds no weights"):
        ss.on_disk(tmp_path)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(ss.InputError, match="has no safetensors files"):
        ss.on_disk(tmp_path)


def test_a_limit_below_the_largest_weight_is_refused(tmp_path: Path) -> None:
    import transformers

    config = transformers.LlamaConfig(**{**LLAMA, "vocab_size": 20_000})
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path)
    with pytest.raises(ss.InputError, match=r"too small .* largest weight, .*embed_tokens.* give at least 5MB"):
        ss.on_disk(tmp_path, memory="2MB")
    with pytest.raises(ss.InputError, match="memory='lots': expected a size"):
        ss.on_disk(tmp_path, memory="lots")


def test_named_units_of_half_precision_need_memory(tmp_path: Path) -> None:
    saved("llama", tmp_path, torch.bfloat16)
    with pytest.raises(ss.InputError, match="load it into memory"):
        ss.trace(ss.on_disk(tmp_path), X, units=["model.layers.0"])


def test_a_full_disk_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    import errno
    import os

    def full(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(ss.InputError, match=r"does not fit on the disk of .* TMPDIR"):
        in_a_file(torch.randn(3, 4))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_values_in_a_file(dtype: torch.dtype) -> None:
    tensor = torch.arange(12).reshape(3, 4).T.to(dtype)
    assert torch.equal(in_a_file(tensor), tensor)
    assert in_a_file(tensor[:0]).shape == (0, 3)
