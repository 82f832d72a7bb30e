"""What transformers reads from a folder, from the local cache or from a .gguf file: configuration, weights, tokenizer.

A .gguf file holds all three in one. Its tensors are quantised, and transformers turns them into float32.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from skipscope.errors import InputError, first_line, out_of_memory
from skipscope.flat_pickles import require_flat_torch_file
from skipscope.models.gguf_tensors import gguf_tensors
from skipscope.models.mapped_files import INDEX, stored_tensors
from skipscope.models.on_disk import put_in_place
from skipscope.models.origin import Origin, revision_of
from skipscope.models.request import there

WEIGHTS = ("*.safetensors", "*.bin")  # in this order: only those of the first kind that is there are read
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json", "vocab.txt", "spiece.model")
SIZES = ("hidden_size", "num_hidden_layers", "vocab_size")


@dataclass(frozen=True)
class Pretrained:
    """name: what transformers is given, a folder or OWNER/NAME; shown: what messages call it."""

    name: str
    shown: str
    options: dict[str, Any]
    file: Path | None = None  # the .gguf file

    @classmethod
    def at(cls, name: str, shown: str, trust_remote_code: bool) -> Pretrained:
        """name: a folder, OWNER/NAME or OWNER/NAME@REVISION in the local cache, or a .gguf file."""
        options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": trust_remote_code}
        file = Path(name)
        if "@" in name and not there(file.exists):
            name, _, options["revision"] = name.rpartition("@")
        if not there(file.is_file):
            return cls(name, shown, options)
        if importlib.util.find_spec("gguf") is None:
            raise InputError(
                f"{shown} needs the package gguf, which is not installed; install skipscope[models] or gguf"
            )
        return cls(str(file.parent), shown, {**options, "gguf_file": file.name}, file)

    @property
    def folder(self) -> Path | None:
        return Path(self.name) if self.file is None and there(Path(self.name).is_dir) else None

    @property
    def has_weights(self) -> bool:
        return self.folder is None or bool(self._files(self.folder))

    def config(self, transformers: Any) -> Any:
        if self.folder is not None and not (self.folder / "config.json").is_file():
            held = sorted(path.name for path in self.folder.glob("*.gguf"))
            if held:
                raise InputError(
                    f"{self.shown} cannot be loaded: the folder has no config.json; name a .gguf file in it, such as "
                    f"hf:{self.folder / held[0]}"
                )
        return self.loaded(lambda: transformers.AutoConfig.from_pretrained(self.name, **self.options))

    def model(self, auto: Any, config: Any) -> tuple[nn.Module, list[str]]:
        """And the names of the weights that are not in its files, which transformers draws at random.

        auto: the class of transformers that chooses a model's class.
        """
        # The configuration of a .gguf file takes seconds to read again.
        full = {} if self.file is None else {"config": config, "dtype": torch.float32}
        model, report = self.loaded(lambda: self._with_report(auto, **full))
        return model.eval(), sorted(report["missing_keys"])

    def _with_report(self, auto: Any, **options: Any) -> tuple[nn.Module, dict[str, Any]]:
        for file in () if self.folder is None else self._files(self.folder):
            if file.suffix == ".bin":
                require_flat_torch_file(file)
        return auto.from_pretrained(self.name, output_loading_info=True, **options, **self.options)

    def mapped(self, transformers: Any, skeleton: nn.Module) -> nn.Module:
        """The model with its weights on disk. skeleton: the same model without values."""
        if self.file is not None:
            file = self.file
            stored = self.loaded(lambda: gguf_tensors(file, skeleton))
        else:
            folder = self._home(transformers)
            index = folder / INDEX
            files = tuple(sorted(folder.glob(WEIGHTS[0])))
            if not files and not index.is_file():
                raise InputError(
                    f"{self.shown} has no safetensors files, whose tensors can be read one by one; save it again with "
                    "save_pretrained, or load it into memory, without memory= and on_disk"
                )
            stored = stored_tensors(files, index if index.is_file() else None)
        return self.loaded(lambda: put_in_place(skeleton, stored, self.shown))

    @property
    def may_have_tokenizer(self) -> bool:
        """Transformers would make one without words of a folder that has none."""
        return self.folder is None or any((self.folder / name).is_file() for name in TOKENIZERS)

    def tokenizer(self, transformers: Any) -> tuple[Any, tuple[int, ...]]:
        """And the ids that each text begins with: a .gguf file names them, and what is made of it forgets them."""
        with _silence():
            tokenizer = transformers.AutoTokenizer.from_pretrained(self.name, **self.options)
        if self.file is None or tokenizer.bos_token_id is None:
            return tokenizer, ()
        from gguf import GGUFReader

        field = GGUFReader(self.file).fields.get("tokenizer.ggml.add_bos_token")
        return tokenizer, (tokenizer.bos_token_id,) if field is not None and field.contents() else ()

    def origin(self, transformers: Any, config: Any) -> Origin:
        commit = getattr(config, "_commit_hash", None)
        if self.file is not None:
            return Origin(configuration_of(config), revision_of(None, self.file.parent), (self.file,))
        folder = self._home(transformers)
        return Origin(configuration_of(config), revision_of(commit, folder), self._files(folder))

    def _home(self, transformers: Any) -> Path:
        """The folder, or where the local cache has it."""
        if self.folder is not None:
            return self.folder
        revision = self.options.get("revision")
        found = transformers.utils.cached_file(self.name, "config.json", local_files_only=True, revision=revision)
        return Path(found).parent

    def loaded(self, load: Callable[[], Any]) -> Any:
        """What a library raises becomes a message of one line."""
        try:
            with _silence():
                return load()
        except InputError:
            raise
        except Exception as error:
            # Files that are damaged make readers raise anything; what the model's own code raises, its author must see.
            usual = isinstance(error, OSError | ValueError | KeyError | ImportError)
            if out_of_memory(error) or (self.options["trust_remote_code"] and self.file is None and not usual):
                raise
            refuse_own_code(self.shown, error)
            absent = isinstance(error, OSError) and self.file is None and self.folder is None
            if isinstance(error, pickle.UnpicklingError):  # torch's message advises to run the code in it
                raise InputError(
                    f"{self.shown} was not loaded: its weights are a pickle that is damaged, or is not a plain file of "
                    "tensors and could run code; where you trust it, load it yourself and write it with save_pretrained"
                ) from error
            first = first_line(error) if usual else f"{type(error).__name__}: {first_line(error)}"
            reason = "no such directory, and not in the local cache" if absent else first
            if self.file is not None:
                raise InputError(
                    f"{self.shown} cannot be loaded ({reason}): the file may be incomplete, or its architecture one "
                    "that transformers does not read from GGUF"
                ) from error
            raise InputError(
                f"{self.shown} cannot be loaded ({reason}); nothing is downloaded: give a directory made with "
                "save_pretrained, a .gguf file or a model type such as gpt2, bert, llama, t5, vit"
            ) from error

    def _files(self, folder: Path) -> tuple[Path, ...]:
        kinds = (tuple(sorted(folder.glob(pattern))) for pattern in WEIGHTS)
        return next((files for files in kinds if files), ())


def configuration_of(config: Any) -> dict[str, Any]:
    """As config.json has it; without entries of transformers' own, such as the path that it was read from."""
    found = json.loads(config.to_json_string(use_diff=False))
    return {key: value for key, value in found.items() if not key.startswith("_")}


def require_same_kind(model: Any, weights: Any, shown: str, path: str, sizes: bool) -> None:
    """Two configurations: that of MODEL and that of the weights. sizes: MODEL has its own, not a type's defaults."""
    kinds = [{one.model_type, one.get_text_config().model_type} for one in (model, weights)]
    if not kinds[0] & kinds[1]:
        raise InputError(
            f"weights={path} are those of a model of type {weights.model_type}, and {shown} is of type "
            f"{model.model_type}; name hf:{weights.model_type} with them"
        )
    for key in SIZES if sizes else ():
        ours, theirs = (getattr(one.get_text_config(), key, None) for one in (model, weights))
        if ours is not None and theirs is not None and ours != theirs:
            raise InputError(f"weights={path} do not fit {shown}: {key} is {theirs} there and {ours} here")


def refuse_own_code(shown: str, error: Exception) -> None:
    """Where transformers stopped because the directory's own code was not trusted."""
    if "trust_remote_code" in str(error):
        raise InputError(
            f"{shown} needs the Python code that comes with it, which is not run unless you say so: read it, and "
            "give trust_remote_code=True if you trust it"
        ) from error


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """transformers draws a bar while it reads a .gguf file, whatever it was told."""
    with contextlib.redirect_stderr(io.StringIO()):
        yield
