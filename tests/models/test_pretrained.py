"""Language models from folders and .gguf files, and prompts of one length."""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import skipscope as ss
from skipscope.cli.options import prompts_of
from skipscope.errors import InputError
from skipscope.models import resolve
from skipscope.models.origin import Origin, revision_of
from skipscope.models.request import read_prompts
from tests.models.tiny_language import WORDS, llama, save_folder, save_gguf, save_tokenizer

TEXT = "the skip carries a state"
LINES = ("the skip carries a state past a block", "the state", "a block carries the state")
needs_gguf = pytest.mark.skipif(importlib.util.find_spec("gguf") is None, reason="the package gguf is not installed")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("llama")
    save_folder(place)
    return place


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    save_gguf(place)
    return place


def same_weights(model: Any, expected: Any) -> bool:
    ours, theirs = model.state_dict(), expected.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(value, theirs[key]) for key, value in ours.items())


# ---- where weights come from


def test_text_brings_the_head_and_random_tokens_do_not(folder: Path) -> None:
    with_text, without = resolve(f"hf:{folder}", text=TEXT), resolve(f"hf:{folder}")
    assert same_weights(with_text.model, llama())
    assert with_text.description.endswith("with its head")
    assert same_weights(without.model, llama().model)
    assert "head" not in without.description


@pytest.mark.parametrize(
    ("family", "head"), [("bert", "with its head for masked tokens"), ("t5", "with its decoder's head")]
)
def test_heads_that_do_not_predict_the_next_token_are_loaded_and_have_no_loss_of_it(
    family: str, head: str, tmp_path: Path
) -> None:
    model = small(family)
    model.save_pretrained(tmp_path)
    save_tokenizer(tmp_path)
    source = resolve(f"hf:{tmp_path}", text=TEXT)
    assert same_weights(source.model, model)
    assert source.description.endswith(head)
    assert not source.notes
    data = ss.depth_use(ss.trace(source.model, source.batch), source.batch)
    assert "loss" not in data
    assert ("lens_kl" in data) == (family == "bert")
    assert data.attrs["targets"].startswith("none")


def test_a_head_of_another_task_is_named_and_left_out(tmp_path: Path) -> None:
    small("classifier").save_pretrained(tmp_path)
    save_tokenizer(tmp_path)
    source = resolve(f"hf:{tmp_path}", text=TEXT)
    assert "with its" not in source.description
    (note,) = source.notes
    assert note.startswith("the model was saved as BertForSequenceClassification and is measured without its head")
    assert not resolve(f"hf:{tmp_path}").notes  # no text, no head


@pytest.mark.parametrize("text", [None, TEXT])
@pytest.mark.parametrize("family", ["funnel", "t5 encoder"])
def test_a_model_that_was_saved_without_a_head_misses_none(family: str, text: str | None, tmp_path: Path) -> None:
    """Of Funnel transformers has two models without a head; of T5 an encoder alone."""
    model = small(family)
    model.save_pretrained(tmp_path)
    save_tokenizer(tmp_path)
    source = resolve(f"hf:{tmp_path}", text=text)
    assert same_weights(source.model, model)
    assert not source.notes
    assert "with its" not in source.description
    assert ss.trace(source.model, source.batch).units


def test_weights_that_the_files_do_not_have_are_named(folder: Path, tmp_path: Path) -> None:
    """Transformers draws them at random and says so where nobody reads it."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(folder, tmp_path / "damaged")
    file = next((tmp_path / "damaged").glob("*.safetensors"))
    left = load_file(file)
    del left["model.layers.0.mlp.down_proj.weight"]
    save_file(left, file, {"format": "pt"})
    (note,) = resolve(f"hf:{tmp_path / 'damaged'}", text=TEXT).notes
    assert note == "1 weight not in the files, with random numbers in the model: model.layers.0.mlp.down_proj.weight"
    assert not resolve(f"hf:{folder}", text=TEXT).notes
    small("bert").save_pretrained(tmp_path / "bert")
    (note,) = resolve(f"hf:{tmp_path / 'bert'}").notes
    assert note.endswith(": pooler.dense.bias, pooler.dense.weight")


def small(family: str) -> Any:
    import transformers

    torch.manual_seed(2)
    narrow = {"vocab_size": len(WORDS), "d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 1, "num_heads": 2}
    if family == "t5":
        return transformers.T5ForConditionalGeneration(transformers.T5Config(**narrow)).eval()
    if family == "t5 encoder":
        return transformers.T5EncoderModel(transformers.T5Config(**narrow)).eval()
    if family == "funnel":
        wide = {"d_model": 16, "n_head": 2, "d_head": 8, "d_inner": 24, "block_sizes": [1]}
        return transformers.FunnelModel(transformers.FunnelConfig(vocab_size=len(WORDS), **wide)).eval()
    kind = transformers.BertForMaskedLM if family == "bert" else transformers.BertForSequenceClassification
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
    return kind(transformers.BertConfig(vocab_size=len(WORDS), **sizes)).eval()


def test_one_text_is_one_sample(folder: Path, tmp_path: Path) -> None:
    source = resolve(f"hf:{folder}", text=TEXT)
    assert source.prompts is not None
    assert len(source.prompts.ids) == 1
    trunk = ss.trace(source.model, source.batch)
    assert not trunk.notes  # not a recording, which would be of this batch alone
    assert ss.profile(trunk, source.batch).sizes["sample"] == 1
    assert trunk.replay({"input_ids": torch.arange(15).reshape(3, 5) % len(WORDS)}).logits.shape[0] == 3


def test_a_folder_that_hides_a_model_type_is_said(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(folder, tmp_path / "llama")
    (tmp_path / "gpt2").mkdir()
    shutil.copytree(folder, tmp_path / "mine")
    monkeypatch.chdir(tmp_path)
    source = resolve("hf:llama", values=False)
    assert source.description == "Hugging Face llama from the folder llama"
    assert resolve("hf:llama").notes == source.notes
    (note,) = source.notes
    assert note.startswith("hf:llama is the folder llama in the current directory; it hides the model type")
    assert resolve("hf:mine").description == "Hugging Face mine"
    assert not resolve("hf:mine").notes
    with pytest.raises(InputError, match=r"the folder gpt2 in the current directory has no config\.json, and hides"):
        resolve("hf:gpt2")
    monkeypatch.chdir(tmp_path / "mine")
    assert resolve("hf:llama", values=False).description == "Hugging Face llama (default configuration)"


@needs_gguf
def test_a_gguf_file_is_a_model_with_its_tokenizer(file: Path) -> None:
    source = resolve(f"hf:{file}", text="the ki")
    assert same_weights(source.model, llama())
    assert source.weights == f"weights from {file}"
    assert not source.random_weights
    assert isinstance(source.batch, dict)
    assert source.batch["input_ids"].tolist() == [[1, 7, 12]]  # begins with <s>, as the file says
    assert source.prompts is not None
    assert source.prompts.tokens[0] == ("<s>", "the", " ki")


@needs_gguf
def test_a_gguf_file_may_say_that_texts_begin_with_nothing(tmp_path: Path) -> None:
    save_gguf(tmp_path / "plain.gguf", begins=False)
    batch = resolve(f"hf:{tmp_path / 'plain.gguf'}", text="the ki").batch
    assert isinstance(batch, dict)
    assert batch["input_ids"].tolist() == [[7, 12]]


@needs_gguf
@pytest.mark.parametrize("model", ["hf:llama", "folder"])
def test_weights_of_a_gguf_file(model: str, file: Path, folder: Path) -> None:
    """A type gets the sizes of the file; a folder gives its tokenizer."""
    source = resolve(f"hf:{folder}" if model == "folder" else model, weights=file, text="the ki")
    assert same_weights(source.model, llama())
    assert source.prompts is not None
    assert source.prompts.tokens[0] == (("the", "<unk>") if model == "folder" else ("<s>", "the", " ki"))


def test_weights_of_a_folder(folder: Path) -> None:
    source = resolve("hf:llama", weights=folder, text=TEXT)
    assert same_weights(source.model, llama())
    assert source.weights == f"weights from {folder}"


@needs_gguf
def test_a_tokenizer_that_is_damaged_is_explained(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "damaged")
    (tmp_path / "damaged" / "tokenizer.json").write_text("{}")
    with pytest.raises(InputError, match=r"needs a tokenizer, and that of hf:.* cannot be read"):
        resolve(f"hf:{tmp_path / 'damaged'}", text=TEXT)


@needs_gguf
def test_the_structure_alone_reads_no_tensors(file: Path) -> None:
    source = resolve(f"hf:{file}", text="the ki", values=False, weights_needed=False)
    assert all(weight.is_meta for weight in source.model.parameters())


def test_what_does_not_fit_is_explained(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"of type llama, and hf:gpt2 is of type gpt2; name hf:llama"):
        resolve("hf:gpt2", weights=folder)
    import transformers

    transformers.LlamaConfig(hidden_size=8, num_attention_heads=1).save_pretrained(tmp_path)
    with pytest.raises(InputError, match="hidden_size is 16 there and 8 here"):
        resolve(f"hf:{tmp_path}", weights=folder)
    with pytest.raises(InputError, match="holds no weights"):
        resolve("hf:llama", weights=tmp_path)
    with pytest.raises(InputError, match=r"is a folder, which hf: models alone are loaded from"):
        resolve("torchvision:resnet18", weights=folder)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(InputError, match=r"has no config.json"):
        resolve("hf:llama", weights=empty)
    (empty / "a.gguf").write_bytes(b"GGUF")
    with pytest.raises(InputError, match=r"name a .gguf file in it, such as hf:.*a\.gguf"):
        resolve(f"hf:{empty}")


def test_a_file_that_is_no_gguf_is_explained(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.gguf"
    wrong.write_bytes(b"<html>not found</html>")
    with pytest.raises(InputError, match="does not begin with the letters GGUF"):
        resolve("hf:llama", weights=wrong)
    with pytest.raises(InputError, match="hf: models alone"):
        resolve("skipscope:resnet8-digits", weights=wrong)


@needs_gguf
def test_a_gguf_file_that_is_cut_short_is_explained(file: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    for size in (8, 200, file.stat().st_size // 2):
        cut.write_bytes(file.read_bytes()[:size])
        with pytest.raises(InputError, match=r"cut\.gguf cannot be loaded") as caught:
            resolve(f"hf:{cut}")
        assert "\n" not in str(caught.value)


def test_without_the_package_gguf_the_message_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.gguf").write_bytes(b"GGUF")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match="gguf, which is not installed"):
        resolve(f"hf:{tmp_path / 'a.gguf'}")


# ---- where a model comes from


def test_configuration_files_and_revision_are_known(folder: Path, tmp_path: Path) -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    cached = tmp_path / "snapshots" / commit
    shutil.copytree(folder, cached)
    origin = resolve(f"hf:{cached}").origin
    assert origin is not None
    found = origin.to_dict()
    assert found["revision"] == commit
    assert found["configuration"]["hidden_size"] == 16
    assert not any(str(tmp_path) in str(value) for value in found["configuration"].values())
    weights = (folder / "model.safetensors").read_bytes()
    expected = {"bytes": len(weights), "sha256": hashlib.sha256(weights).hexdigest()}
    assert found["weight_files"] == {"model.safetensors": expected}


def test_large_files_are_not_hashed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skipscope.models.origin.HASHED_AT_MOST", 10)
    (one,) = Origin({}, "", (folder / "model.safetensors",)).to_dict()["weight_files"].values()
    assert one["sha256"] is None
    assert one["bytes"] > 10


def test_a_revision_is_a_commit(tmp_path: Path) -> None:
    assert revision_of("abc", tmp_path) == "abc"
    assert revision_of(None, tmp_path / "snapshots" / "main") == ""


# ---- prompts


def test_prompts_are_cut_to_the_shortest(folder: Path) -> None:
    source = resolve(f"hf:{folder}", text=LINES)
    assert isinstance(source.batch, dict)
    assert source.batch["input_ids"].tolist() == [[3, 4], [3, 7], [6, 9]]
    assert set(source.batch) == {"input_ids"}
    assert source.prompts is not None
    assert source.prompts.tokens[1] == ("the", "state")
    assert source.prompts.notes == ("2 of 3 prompts cut to 2 tokens, the length of the shortest (number 2)",)


def test_prompts_are_cut_and_padded_to_a_length(folder: Path) -> None:
    source = resolve(f"hf:{folder}", text=LINES, input_shape=(5,))
    assert isinstance(source.batch, dict)
    assert source.batch["input_ids"][1].tolist() == [3, 7, 7, 7, 7]
    assert source.batch["attention_mask"].tolist() == [[1] * 5, [1, 1, 0, 0, 0], [1] * 5]
    assert source.prompts is not None
    assert source.prompts.tokens[1] == ("the", "state", "(padding)", "(padding)", "(padding)")
    assert source.prompts.notes == (
        "1 of 3 prompts cut to 5 tokens",
        "1 of 3 prompts padded to 5 tokens; padding is measured like other tokens",
    )


def test_padding_does_not_change_the_words_before_it(folder: Path) -> None:
    padded = resolve(f"hf:{folder}", text=LINES, input_shape=(5,))
    alone = resolve(f"hf:{folder}", text=LINES[1])
    with torch.no_grad():
        logits = padded.model(**padded.batch).logits  # type: ignore[arg-type]
        expected = alone.model(**alone.batch).logits  # type: ignore[arg-type]
    torch.testing.assert_close(logits[1, :2], expected[0])


@pytest.mark.parametrize(
    ("lines", "shape", "message"),
    [
        (("the state", "skip"), None, r"number 2 \('skip'\), has 1 token, and all are cut to its length"),
        (("the state", "a skip"), (40,), "40 tokens are more than the model's 32 positions"),
        (("the state", "a skip"), (2, 3), "is one number"),
    ],
)
def test_prompts_that_cannot_be_used(
    folder: Path, lines: tuple[str, ...], shape: tuple[int, ...] | None, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        resolve(f"hf:{folder}", text=lines, input_shape=shape)


def test_a_folder_without_a_tokenizer_is_explained(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "without")
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        (tmp_path / "without" / name).unlink(missing_ok=True)
    with pytest.raises(InputError, match=r"needs a tokenizer, and hf:.* has none here"):
        resolve(f"hf:{tmp_path / 'without'}", text=LINES)


def test_a_file_with_one_prompt_is_one_sample(tmp_path: Path) -> None:
    file = tmp_path / "prompts.txt"
    file.write_text(f"{TEXT}\n", encoding="utf-8")
    assert prompts_of(file, None) == prompts_of(file, 1) == (TEXT,)


def test_a_file_of_prompts(tmp_path: Path) -> None:
    file = tmp_path / "prompts.txt"
    file.write_text(f"{LINES[0]}\n\n  \n{LINES[1]}\n", encoding="utf-8")
    assert read_prompts(file) == LINES[:2]
    with pytest.raises(InputError, match="no text file"):
        read_prompts(tmp_path / "nowhere.txt")
    file.write_text("\n \n")
    with pytest.raises(InputError, match="has no prompts"):
        read_prompts(file)
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="no text in UTF-8"):
        read_prompts(file)
