"""Names of models and of files with weights, as a user writes them. They are read without torch, so that a mistake is
reported at once."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path

from skipscope.errors import InputError
from skipscope.models.library_names import require_in_file, require_library_name
from skipscope.models.names import parse

SOURCES = ("skipscope", "torchvision", "timm", "hf")
DTYPES = ("float32", "float64", "bfloat16", "float16")


def read_model(spec: str) -> tuple[str, str]:
    """One of `SOURCES` and a name, or a Python file and the name of a function in it."""
    prefix, colon, name = spec.partition(":")
    if prefix in SOURCES and name:
        return prefix, name
    file, _, factory = spec.rpartition(":")
    if file.endswith(".py"):
        return file, factory
    known = ", ".join(f"{known}:NAME" for known in SOURCES)
    what = f"unknown prefix '{prefix}:' in" if colon and prefix not in SOURCES else "cannot read"
    close = difflib.get_close_matches(prefix, SOURCES, n=1) if colon else []
    meant = f" (did you mean {close[0]}:{name}?)" if close and name else ""
    raise InputError(
        f"{what} MODEL '{spec}'{meant}; expected {known} or file.py:factory, for example torchvision:resnet18"
    )


def require_model(spec: str) -> None:
    """Refuse what can be seen to be wrong: the form, a file or a directory that is not there, an unknown name."""
    source, name = read_model(spec)
    if source == "skipscope":
        parse(name)
    elif source == "hf":
        if name.endswith(".gguf"):
            require_gguf(Path(name))
            return
        if name.startswith(("./", "../", "/", "~")) and not there(Path(name).is_dir):
            raise InputError(f"hf:{name}: no such directory; give one made with save_pretrained, or a model type")
        if "/" not in name and not there(Path(name).is_dir):
            require_library_name(source, name)
    elif source in SOURCES:
        require_library_name(source, name.partition(".")[0] if source == "timm" else name)
    elif not there(Path(source).is_file):
        raise InputError(f"no file {source}; MODEL file.py:factory names a Python file and a function in it")
    else:
        require_in_file(Path(source), name)


def require_weights(path: Path, spec: str = "") -> None:
    """spec: the MODEL, where it is known; those of Hugging Face may also come from a folder or a .gguf file."""
    folder = there(path.is_dir)
    if is_pretrained(path):
        what = "a folder" if folder else "a .gguf file"
        if not spec or read_model(spec)[0] != "hf":
            raise InputError(
                f"no weights file: {path} is {what}, which hf: models alone are loaded from; give a "
                ".safetensors file or a torch.save of model.state_dict()"
            )
        if not folder:
            require_gguf(path)
        elif not there((path / "config.json").is_file):
            raise InputError(f"no weights in {path}: it has no config.json; give a folder made with save_pretrained")
    elif not there(path.is_file):
        raise InputError(f"no weights file {path}; give a .safetensors file or a torch.save of model.state_dict()")


def is_pretrained(path: Path) -> bool:
    """What transformers reads with its configuration: a folder, or a file in the form GGUF."""
    return there(path.is_dir) or path.suffix == ".gguf" or _starts_as_gguf(path)


def require_gguf(path: Path) -> None:
    if not there(path.is_file):
        raise InputError(f"no file {path}; give a .gguf file, or a folder made with save_pretrained")
    if not _starts_as_gguf(path):
        raise InputError(f"{path} is no GGUF file: it does not begin with the letters GGUF; is the download complete?")


def _starts_as_gguf(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(4) == b"GGUF"
    except (OSError, ValueError):
        return False


def read_prompts(path: Path) -> tuple[str, ...]:
    """The lines of a text file, without those that are empty."""
    if not there(path.is_file):
        raise InputError(f"no text file {path}; give one with a prompt on each line")
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is no text in UTF-8 (byte {error.start}); save it as UTF-8") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
    prompts = tuple(line for line in lines if line.strip())
    if not prompts:
        raise InputError(f"{path} has no prompts; write one on each line")
    return prompts


def require_dtype(name: str) -> None:
    if name not in DTYPES:
        raise InputError(f"dtype={name!r} is not a type to measure in; use {', '.join(DTYPES[:-1])} or {DTYPES[-1]}")


def require_trust(spec: str, trust_remote_code: bool) -> None:
    if trust_remote_code and read_model(spec)[0] != "hf":
        raise InputError(f"trust_remote_code=True is for an hf: model that comes with code of its own, not for {spec}")


def require_text(spec: str) -> None:
    if read_model(spec)[0] != "hf":
        raise no_text(spec)


def no_text(description: str) -> InputError:
    return InputError(f"text= needs a Hugging Face language model (hf:DIRECTORY with a tokenizer), not {description}")


def there(asked: Callable[[], bool]) -> bool:
    """`path.is_file` or `path.is_dir`; what no file system takes as a name is not there."""
    try:
        return asked()
    except (OSError, ValueError):
        return False
