"""MODEL strings to modules, batches and weights."""

from __future__ import annotations

import json
import random
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from skipscope.errors import InputError
from skipscope.models import build, memory, resolve
from skipscope.models.weights import load_weights
from skipscope.numerics import seed_of

FACTORY = """
import torch
from torch import nn
from neighbour import WIDTH

def alone():
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 2))

def with_example():
    return alone(), torch.ones(2, WIDTH)

def fails():
    return {}["nothing"]

def number():
    return 3

class Matrix(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 64) / 8)

    def forward(self, x):
        return x @ self.weight

def matrix():
    return Matrix()

def without_samples():
    return alone(), {"x": torch.ones(0, WIDTH)}

def without_values():
    with torch.device("meta"):
        return with_example()

def partly_without_values():
    model, x = with_example()
    return model.append(nn.Linear(2, 2, device="meta")), x

def script():
    return torch.jit.script(alone())

def lazy():
    return nn.Sequential(nn.LazyLinear(8)), torch.ones(2, WIDTH)

def sparse_example():
    return alone(), torch.ones(2, WIDTH).to_sparse()

def example_without_values():
    return alone(), torch.ones(2, WIDTH, device="meta")

def leaves():
    raise SystemExit(7)
"""


@pytest.fixture
def factory(tmp_path: Path) -> Path:
    (tmp_path / "neighbour.py").write_text("WIDTH = 8\n")
    path = tmp_path / "net.py"
    path.write_text(FACTORY)
    return path


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))


# ---- names


def test_torchvision_by_name() -> None:
    source = resolve("torchvision:resnet18", input_shape=(3, 32, 32))
    assert isinstance(source.batch, Tensor)
    assert source.batch.shape == (2, 3, 32, 32)
    assert source.model(source.batch).shape == (2, 1000)
    assert source.random_weights
    assert str(source) == "torchvision resnet18, random weights"


def test_timm_by_name_with_its_own_input_size() -> None:
    source = resolve("timm:vit_tiny_patch16_224")
    assert isinstance(source.batch, Tensor)
    assert source.batch.shape == (2, 3, 224, 224)


def test_our_own_networks_by_name() -> None:
    source = resolve("skipscope:resnet8-digits")
    assert isinstance(source.batch, Tensor)
    assert source.batch.shape == (2, 1, 8, 8)
    assert source.random_weights


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("resnet18", "expected skipscope:NAME, torchvision:NAME, timm:NAME, hf:NAME or file.py:factory"),
        ("keras:resnet18", "unknown prefix 'keras:'"),
        ("torchvision:", "expected skipscope:NAME, torchvision:NAME"),
        ("skipscope:resnet8-digit", "did you mean digits"),
        ("torchvision:resnet81", "did you mean resnet18"),
        ("torchvision:fasterrcnn_resnet50_fpn", "lists of images"),
        ("timm:vit_tiny", "did you mean vit_tiny_patch16_224"),
        ("timm:vit_tinny", "did you mean .*vit_tiny_patch16_224"),
        ("timm:hf-hub:someone/something", "timm has no model"),
        ("hf:gtp2", "did you mean gpt2"),
        ("hf:nonsense", "it knows [0-9]+ names, such as llama, gpt2, bert"),
        ("hf:someone/something", "nothing is downloaded"),
        ("nowhere.py:net", "no file nowhere.py"),
    ],
)
def test_a_wrong_name_says_what_to_do(spec: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        resolve(spec)


def test_the_seed_decides_weights_and_batch_and_nothing_else_is_disturbed() -> None:
    def made(seed: int) -> tuple[Tensor, Tensor]:
        source = resolve("torchvision:resnet18", input_shape=(3, 32, 32), seed=seed)
        assert isinstance(source.batch, Tensor)
        return next(source.model.parameters()).detach(), source.batch

    before = torch.random.get_rng_state()
    first, again, other = made(1), made(1), made(2)
    assert torch.equal(first[0], again[0])
    assert torch.equal(first[1], again[1])
    assert not torch.equal(first[0], other[0])
    assert not torch.equal(first[1], other[1])
    assert torch.equal(before, torch.random.get_rng_state())


def test_random_inputs_are_no_copies_of_random_weights(factory: Path) -> None:
    source = resolve(f"{factory}:matrix", input_shape=(64,))
    assert isinstance(source.batch, Tensor)
    drawn = 8 * next(source.model.parameters()).detach().flatten()
    assert not torch.isclose(drawn[:, None], source.batch.flatten()).any(0).all()
    assert abs(torch.corrcoef(torch.stack([drawn[:128], source.batch.flatten()]))[0, 1]) < 0.4


def test_seeds_of_purposes_stay_what_they_are() -> None:
    """Trained networks in caches and checkpoints depend on them."""
    assert seed_of("input", 0) == 6_569_903_650_470_658_141
    assert len({seed_of("input", 0), seed_of("input", 1), seed_of("order", 0), seed_of(0, "input")}) == 4


def test_dtype_and_device_are_applied_to_model_and_batch() -> None:
    source = resolve("torchvision:resnet18", input_shape=(3, 32, 32), dtype="float64")
    assert isinstance(source.batch, Tensor)
    assert source.batch.dtype == next(source.model.parameters()).dtype == torch.float64


@pytest.mark.parametrize(
    ("options", "message"),
    [({"dtype": "int8"}, "float32, float64"), ({"dtype": "nn"}, "float32"), ({"device": "nowhere"}, "use cpu")]
    + [({"device": name}, f"device={name!r} cannot be used") for name in ("meta", "mkldnn", "hpu", "cuda:99")],
)
def test_wrong_dtype_or_device(options: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        resolve("torchvision:resnet18", **options)  # type: ignore[arg-type]


# ---- factories


def test_a_factory_may_import_its_neighbours_and_give_an_example(factory: Path) -> None:
    source = resolve(f"{factory}:with_example")
    assert isinstance(source.batch, Tensor)
    assert source.batch.shape == (2, 8)
    assert not source.random_weights  # nobody knows: the factory may have loaded them
    assert "as the factory made them" in str(source)


def test_a_factory_without_example_leaves_the_batch_open(factory: Path) -> None:
    assert resolve(f"{factory}:alone").batch is None
    batch = resolve(f"{factory}:alone", input_shape=(8,)).batch
    assert isinstance(batch, Tensor)
    assert batch.shape == (2, 8)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("alnoe", "has no 'alnoe'; it has alone, with_example"),
        ("fails", "line 13: KeyError"),
        ("number", "gave int; expected a torch.nn.Module"),
        ("leaves", "SystemExit: 7"),
        ("without_samples", r"without_samples: expected a batch of one sample or more, got .*\(0, 8\)"),
        ("without_values", "has weights on the meta device, which have no values to measure"),
        ("partly_without_values", "has weights on the meta device"),
        ("script", "gave a TorchScript module"),
        ("lazy", "gave lazy layers without weights"),
        ("sparse_example", "expected dense tensors as its example, got a sparse one"),
        ("example_without_values", "its example is on the meta device and has no values"),
    ],
)
def test_a_wrong_factory_is_explained(factory: Path, name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        resolve(f"{factory}:{name}")


@pytest.mark.parametrize("samples", [None, 5])
@pytest.mark.parametrize("name", ["without_samples", "without_values", "example_without_values"])
def test_it_is_explained_however_many_samples_are_asked_for(factory: Path, name: str, samples: int | None) -> None:
    with pytest.raises(InputError, match=r"expected a batch|meta device"):
        resolve(f"{factory}:{name}", samples=samples)


def test_the_structure_of_a_model_without_values_can_be_had(factory: Path) -> None:
    source = resolve(f"{factory}:without_values", weights_needed=False)
    assert "structure only" in str(source)
    assert isinstance(source.batch, Tensor)
    assert source.batch.is_meta
    with pytest.raises(InputError, match="has weights on the meta device"):
        resolve(f"{factory}:partly_without_values", weights_needed=False)


def test_a_file_that_leaves_is_explained(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text("import sys\nsys.exit('done')\n")
    with pytest.raises(InputError, match="line 2: SystemExit: done"):
        resolve(f"{path}:f")


@pytest.mark.parametrize("spec", [f"{'x' * 300}.py:f", f"hf:{'x' * 300}", f"hf:a/{'x' * 300}"])
def test_a_name_that_no_file_system_takes_is_a_file_that_is_not_there(spec: str) -> None:
    with pytest.raises(InputError):
        resolve(spec)
    with pytest.raises(InputError, match="no weights file"):
        resolve("torchvision:resnet18", weights=Path("x" * 300))


def test_a_syntax_error_names_its_line(tmp_path: Path) -> None:
    path = tmp_path / "wrong.py"
    path.write_text("x = 1\ndef f(:\n")
    with pytest.raises(InputError, match="line 2: SyntaxError"):
        resolve(f"{path}:f")


# ---- Hugging Face


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny GPT-2 with weights and a tokenizer, as save_pretrained leaves them."""
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers

    folder = tmp_path_factory.mktemp("gpt2")
    torch.manual_seed(3)
    config = transformers.GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=20, n_positions=8)
    transformers.GPT2Model(config).save_pretrained(folder)
    tokenizer = Tokenizer(models.WordLevel({"<unk>": 0, "skip": 1, "connections": 2}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>").save_pretrained(folder)
    return folder


def test_a_saved_directory_keeps_its_weights(saved: Path) -> None:
    import transformers

    source = resolve(f"hf:{saved}", seed=7)
    expected = transformers.AutoModel.from_pretrained(saved).state_dict()
    assert all(torch.equal(value, expected[key]) for key, value in source.model.state_dict().items())
    assert not source.random_weights


def test_a_directory_without_weights_says_random(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text((saved / "config.json").read_text())
    assert resolve(f"hf:{tmp_path}", input_shape=(4,)).random_weights


CODE = {
    "config.json": """{"model_type": "mine", "auto_map": {
        "AutoConfig": "configuration_mine.MineConfig", "AutoModel": "modeling_mine.Mine"}}""",
    "configuration_mine.py": """
import pathlib
from transformers import PretrainedConfig

pathlib.Path("PLACE").touch()

class MineConfig(PretrainedConfig):
    model_type = "mine"
    vocab_size = 10
""",
    "modeling_mine.py": """
import torch
from transformers import PreTrainedModel
from .configuration_mine import MineConfig

class Mine(PreTrainedModel):
    config_class = MineConfig

    def __init__(self, config):
        super().__init__(config)
        self.embed, self.linear = torch.nn.Embedding(10, 8), torch.nn.Linear(8, 8)
        self.post_init()

    def forward(self, input_ids):
        h = self.embed(input_ids)
        return h + torch.tanh(self.linear(h))
""",
}


@pytest.fixture
def with_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory whose model is Python code of its own; where that is run, the file `ran` appears."""
    import transformers.dynamic_module_utils

    monkeypatch.setattr(transformers.dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("somebody asks at the terminal"))
    folder = tmp_path / "with_code"
    folder.mkdir()
    for name, text in CODE.items():
        (folder / name).write_text(text.replace("PLACE", str(tmp_path / "ran")))
    return folder


@pytest.mark.parametrize("text", [None, "skip connections"])
def test_code_of_a_directory_is_not_run_unless_it_is_trusted(with_code: Path, tmp_path: Path, text: str | None) -> None:
    with pytest.raises(InputError, match=r"needs the Python code that comes with it.*trust_remote_code=True") as caught:
        resolve(f"hf:{with_code}", text=text)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "ran").exists()


def test_code_of_a_directory_is_run_where_it_is_trusted(with_code: Path, tmp_path: Path) -> None:
    source = resolve(f"hf:{with_code}", trust_remote_code=True)
    assert (tmp_path / "ran").exists()
    assert type(source.model).__name__ == "Mine"
    assert source.model(**source.batch).shape == (2, 16, 8)  # type: ignore[arg-type]


def test_code_of_a_tokenizer_is_not_run_either(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model is one that transformers knows; only the tokenizer has code of its own."""
    folder = tmp_path / "tokenizer"
    shutil.copytree(saved, folder)
    (folder / "tokenizer.json").unlink()
    own = {"auto_map": {"AutoTokenizer": ["tokenization_mine.Mine", None]}, "tokenizer_class": "Mine"}
    (folder / "tokenizer_config.json").write_text(json.dumps(own))
    (folder / "tokenization_mine.py").write_text(f"import pathlib; pathlib.Path('{tmp_path / 'ran'}').touch()")
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("somebody asks at the terminal"))
    with pytest.raises(InputError, match="needs a tokenizer"):
        resolve(f"hf:{folder}", text="skip connections")
    assert not (tmp_path / "ran").exists()


def test_code_of_others_is_not_asked_for(factory: Path) -> None:
    with pytest.raises(InputError, match="trust_remote_code=True is for an hf: model"):
        resolve(f"{factory}:alone", trust_remote_code=True)


def test_an_empty_directory_is_explained(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="save_pretrained"):
        resolve(f"hf:{tmp_path}")


def test_text_becomes_tokens(saved: Path) -> None:
    batch = resolve(f"hf:{saved}", text="skip connections skip").batch
    assert isinstance(batch, dict)
    assert batch["input_ids"].tolist() == [[1, 2, 1]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"text": "skip " * 9}, "9 tokens are more than the model's 8 positions"),
        ({"text": ""}, "no tokens"),
        ({"input_shape": (9,)}, "more than the model's 8"),
        ({"input_shape": (3, 4)}, "one number, the count of tokens"),
    ],
)
def test_wrong_language_inputs(saved: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        resolve(f"hf:{saved}", **options)


def test_text_without_a_tokenizer_is_explained() -> None:
    with pytest.raises(InputError, match="tokenizer"):
        resolve("hf:gpt2", text="hello", weights_needed=False)
    with pytest.raises(InputError, match="language model"):
        resolve("torchvision:resnet18", text="hello")


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("t5", {"input_ids": (2, 16), "decoder_input_ids": (2, 16)}),
        ("vit", {"pixel_values": (2, 3, 224, 224)}),
    ],
)
def test_inputs_follow_the_configuration(name: str, inputs: dict[str, tuple[int, ...]]) -> None:
    batch = resolve(f"hf:{name}", weights_needed=False).batch
    assert isinstance(batch, dict)
    assert {key: tuple(value.shape) for key, value in batch.items()} == inputs


# ---- memory


@pytest.mark.parametrize(
    ("spec", "options"),
    [
        ("skipscope:resnet8-digits", {"input_shape": (1, 100_000, 100_000)}),
        ("skipscope:resnet8-digits", {"samples": 10**30}),
        ("torchvision:resnet18", {"samples": 100_000_000}),
        ("hf:gpt2", {"samples": 10**12}),
    ],
)
def test_inputs_that_do_not_fit_are_refused_before_they_are_drawn(spec: str, options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"^inputs of .* need .* GiB, and cpu has .* GiB free; take fewer samples"):
        resolve(spec, **options)


class Table(nn.Module):
    """A small batch makes a large table, as attention does."""

    def forward(self, x: Tensor) -> Tensor:
        return x @ (x.mT @ x).softmax(-1)


def test_inputs_at_which_no_pass_fits_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "known_free_bytes", lambda device: 2**30)
    model = nn.Sequential(nn.BatchNorm1d(2), Table())
    memory.require_forward_room(model, torch.zeros(2, 2, 8_000), "a table")
    with pytest.raises(InputError, match=r"a table needs 3\.\d GiB for .* at these inputs, and cpu has 1\.0 GiB free"):
        memory.require_forward_room(model, torch.zeros(2, 2, 14_500), "a table")
    assert model.training


def test_a_forward_that_looks_at_values_counts_until_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    class Looks(nn.Module):
        def __init__(self, first: int) -> None:
            super().__init__()
            self.first = first

        def forward(self, x: Tensor) -> Tensor:
            h = x.repeat(self.first, 1)
            return h.repeat(1000, 1) if h.sum() > 0 else h

    monkeypatch.setattr(memory, "known_free_bytes", lambda device: 2**30)
    memory.require_forward_room(Looks(1), torch.zeros(1000, 1000), "it")
    with pytest.raises(InputError, match=r"it needs 3\.7 GiB for repeat"):
        memory.require_forward_room(Looks(1000), torch.zeros(1000, 1000), "it")


class Caching(nn.Module):
    """Keeps a table that it makes at its first pass, and reads a tensor that is no buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.table = nn.Linear(8, 8), None
        self.scale = torch.tensor(2.0, requires_grad=True) * torch.ones(8)  # the result of a computation

    def forward(self, x: Tensor) -> Tensor:
        if self.table is None:
            self.table = torch.linspace(0, 1, x.shape[1], device=x.device)
        return (self.linear(x) * self.scale + self.table).repeat(1, 100)


def test_the_estimate_leaves_nothing_in_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = Caching(), torch.zeros(8000, 8)
    monkeypatch.setattr(memory, "known_free_bytes", lambda device: 2**24)
    with pytest.raises(InputError, match="for repeat"):
        memory.require_forward_room(model, x, "it")
    assert model.table is None
    assert not model.scale.is_meta
    model(x[:2])


def test_a_model_that_cannot_be_copied_is_not_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Caching()
    model.lock = threading.Lock()
    monkeypatch.setattr(memory, "known_free_bytes", lambda device: 2**24)
    memory.require_forward_room(model, torch.zeros(8000, 8), "it")
    assert model.table is None


def test_the_estimate_is_a_lower_bound() -> None:
    """Of one operation of the largest layer: its input and its output, with a tensor that is changed in place once."""
    largest = memory._Largest()
    with largest, torch.device("meta"):
        nn.Sequential(nn.Conv2d(3, 8, 1, bias=False), nn.ReLU(inplace=True))(torch.zeros(1, 3, 100, 100))
    assert largest.bytes == 4 * (3 + 8) * 100 * 100 + 4 * 3 * 8


def test_a_large_model_stays_unallocated_when_its_values_are_not_needed() -> None:
    source = resolve("hf:llama", weights_needed=False)
    assert isinstance(source.batch, dict)
    assert {p.device.type for p in source.model.parameters()} == {"meta"}
    assert source.batch["input_ids"].device.type == "meta"
    assert "not allocated" in str(source)


def test_a_model_that_does_not_fit_is_refused_with_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "known_free_bytes", lambda device: 2**30)
    with pytest.raises(InputError, match=r"needs 24\.6 GiB for its weights, and cpu has 1\.0 GiB free"):
        resolve("hf:llama")


def test_free_memory_is_known_or_said_to_be_unknown() -> None:
    free = memory.known_free_bytes(torch.device("cpu"))
    assert free is None or free > 0


# ---- weights

State = dict[str, Tensor]
WAYS: dict[str, Callable[[State], Any]] = {
    "plain": lambda state: state,
    "under state_dict": lambda state: {"epoch": 3, "state_dict": state},
    "under model": lambda state: {"model": state, "optimizer": {"lr": 0.1}},
    "data parallel": lambda state: {f"module.{key}": value for key, value in state.items()},
    "compiled": lambda state: {f"_orig_mod.{key}": value for key, value in state.items()},
    "all at once": lambda state: {"state_dict": {f"module._orig_mod.{key}": value for key, value in state.items()}},
    "before the step counter": lambda state: {k: v for k, v in state.items() if "num_batches" not in k},
}


@pytest.mark.parametrize("way", WAYS)
def test_every_wrapping_is_undone(way: str, tmp_path: Path) -> None:
    trained, model = net(), net()
    path = tmp_path / "weights.pt"
    torch.save(WAYS[way](trained.state_dict()), path)
    load_weights(model, path)
    assert all(torch.equal(value, trained.state_dict()[key]) for key, value in model.state_dict().items())


def test_a_child_named_as_a_wrapper_keeps_its_name(tmp_path: Path) -> None:
    trained, model = (nn.ModuleDict({"module": nn.Linear(2, 2)}) for _ in range(2))
    torch.save(trained.state_dict(), tmp_path / "weights.pt")
    load_weights(model, tmp_path / "weights.pt")
    assert torch.equal(model["module"].weight, trained["module"].weight)  # type: ignore[arg-type]


def test_safetensors_through_resolve(factory: Path, tmp_path: Path) -> None:
    state = resolve(f"{factory}:alone", seed=5).model.state_dict()
    save_file(state, tmp_path / "weights.safetensors")
    source = resolve(f"{factory}:alone", weights=tmp_path / "weights.safetensors")
    assert all(torch.equal(value, state[key]) for key, value in source.model.state_dict().items())
    assert "weights from" in str(source)


def test_tied_weights_may_be_stored_once(tmp_path: Path) -> None:
    def tied() -> nn.Sequential:
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        model[1].weight = model[0].weight
        return model

    trained, model = tied(), tied()
    state = {key: value for key, value in trained.state_dict().items() if key != "1.weight"}
    save_file(state, tmp_path / "weights.safetensors")
    load_weights(model, tmp_path / "weights.safetensors")
    assert torch.equal(model[1].weight, trained[0].weight)


def test_weights_that_do_not_fit_name_the_first_few(tmp_path: Path) -> None:
    state = net().state_dict()
    state["0.weight"] = torch.zeros(8, 9)
    state["extra"] = state.pop("2.bias")
    torch.save(state, tmp_path / "weights.pt")
    with pytest.raises(InputError) as caught:
        load_weights(net(), tmp_path / "weights.pt")
    assert "1 missing (2.bias)" in str(caught.value)
    assert "1 unexpected (extra)" in str(caught.value)
    assert "0.weight 8x9 in the file, 8x8 in the model" in str(caught.value)


def test_a_pickle_that_could_run_code_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    torch.save(net(), path)
    with pytest.raises(InputError, match=r"could run code.*save_file"):
        load_weights(net(), path)


@pytest.mark.parametrize("name", ["noise.pt", "noise.safetensors", "empty.pt", "empty.safetensors"])
def test_a_file_of_another_kind_is_explained(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"" if name.startswith("empty") else random.Random(0).randbytes(300))
    with pytest.raises(InputError, match="save"):
        load_weights(net(), path)


def test_noise_is_not_said_to_be_code(tmp_path: Path) -> None:
    (tmp_path / "noise.pt").write_bytes(b"no weights at all")
    with pytest.raises(InputError, match=r"neither a safetensors file nor one that torch\.save wrote"):
        load_weights(net(), tmp_path / "noise.pt")


@pytest.mark.parametrize("old", [False, True])
def test_the_content_says_what_a_file_is_and_not_its_name(old: bool, tmp_path: Path) -> None:
    trained = net().state_dict()
    save_file(trained, tmp_path / "weights.pt")
    torch.save(trained, tmp_path / "weights.safetensors", _use_new_zipfile_serialization=not old)
    for name in ("weights.pt", "weights.safetensors"):
        model = net()
        load_weights(model, tmp_path / name)
        assert all(torch.equal(value, trained[key]) for key, value in model.state_dict().items())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_precisions_are_converted(dtype: torch.dtype, tmp_path: Path) -> None:
    state = {key: value.to(dtype) for key, value in net().state_dict().items()}  # step counters too
    save_file(state, tmp_path / "weights.safetensors")
    model = net()
    load_weights(model, tmp_path / "weights.safetensors")
    assert torch.equal(model[0].weight, state["0.weight"].float())


@pytest.mark.parametrize(
    ("convert", "said"),
    [
        (lambda t: t.to(torch.complex64), "complex64"),
        (lambda t: t.to(torch.int8), "int8"),
        (lambda t: t.bool(), "bool"),
        (lambda t: t.to_sparse(), "sparse float32"),
        (lambda t: torch.quantize_per_tensor(t, 0.1, 0, torch.qint8), "quantised qint8"),
        (lambda t: t.to("meta"), "float32 without values"),
    ],
)
@pytest.mark.parametrize("ours", [True, False])
def test_other_kinds_of_numbers_are_refused(
    ours: bool, convert: Callable[[Tensor], Tensor], said: str, tmp_path: Path
) -> None:
    model = build("resnet8-digits") if ours else net()
    name = "conv.weight" if ours else "0.weight"
    before = model.state_dict()[name].clone()
    torch.save({**model.state_dict(), name: convert(before)}, tmp_path / "weights.pt")
    with pytest.raises(InputError, match=f"{name} is {said} in the file and float32 in the model"):
        load_weights(model, tmp_path / "weights.pt")
    assert torch.equal(model.state_dict()[name], before)


def test_a_file_without_tensors_is_explained(tmp_path: Path) -> None:
    torch.save({"epoch": 3}, tmp_path / "weights.pt")
    with pytest.raises(InputError, match="no tensors by name"):
        load_weights(net(), tmp_path / "weights.pt")


def test_a_missing_file_is_noticed_before_the_model_is_built(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no weights file"):
        resolve("hf:llama", weights=tmp_path / "none.safetensors")


def test_an_example_in_another_precision_than_the_weights_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "doubled.py"
    file.write_text("import torch\ndef make():\n    return torch.nn.Linear(4, 4), torch.randn(3, 4).double()\n")
    with pytest.raises(InputError, match=r"its example is float64, its weights are float32; .*dtype="):
        resolve(f"{file}:make")
    source = resolve(f"{file}:make", dtype="float64")
    assert isinstance(source.batch, Tensor)
    assert source.batch.dtype == next(source.model.parameters()).dtype == torch.float64
