"""Command lines, settings and files as nobody would write them, from a seed.

Command lines are put together from the real commands and options of the program, with values that are right, nearly
right and absurd. Files are a run folder, weights, a checkpoint, data sets and prompts with one kind of damage: bits,
cuts, other content, links, other kinds of files, JSON that is valid and means nothing.
"""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import typer.main

from skipscope.cli import app
from skipscope.sealed import BLANK, KEY, seal

OCCUPIED = "occupied"  # a folder that holds something else than a run
TEXTS = [
    "", " ", "-", "--", "0", "-1", "1", "3", "1e9", "99999999999999999999", "nan", "inf", "1.5", "true", "a,b",
    "1,2,3", "3,8,8", "0,0", "é", "\u202eevil", "\x1b[31mred\x1b[0m", "a\nb", "\udcff", "~", "/", ".", "..",
    "/dev/null", "/proc/self/mem", "nosuch", "a" * 300, "b/" * 2500, "x" * 5000, "{}", "[]", "=", "a=b", "=b",
    "epochs=", "epochs=0", "epochs=x", "%s", "$HOME", "*", "'", '"', "skipscope:", "skipscope:resnet8-digits",
    "skipscope:resnet9-digits", "skipscope:connected", "torchvision:resnet18", "torchvision:nosuch", "timm:", "hf:",
    "hf:nosuch", "hf:/", "hf:gpt2", "file.py:make", "file.py", ":", "a:b:c", "cpu", "cuda:99", "meta", "cpu:x",
    "float32", "float8", "digits", "digits:x", "mnist:/nosuch", "cifar10:.", "90s", "5m", "0", "-5m", "D.law", "D",
    "Z.law", "D.law,B", "smoke", "quick", "1000-1007", "7-3", "1-99999999", "none", "imagenet", "0.5/0.5", "1/0",
    "x/y",
]  # fmt: skip
NOT_RUN = ("demo",)  # has hardly an option, and takes its time where nothing is wrong
# Put behind the rest, where it counts: something that is found late, but before anything is trained or measured.
LATE = {
    ("train",): ["--data", "digits", "--batch", "100000"],
    ("study", "run"): ["--out", OCCUPIED],
    ("inspect",): ["--device", "cuda:99"],
    ("check",): ["--device", "cuda:99"],
    ("units",): ["--device", "cuda:99"],
    ("contract",): ["--device", "cuda:99"],
    ("sweep",): ["--device", "cuda:99"],
    ("cache", "clean"): ["--dry-run"],
}


def commands() -> list[tuple[tuple[str, ...], Any]]:
    def below(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
        yield path, command
        for name, one in getattr(command, "commands", {}).items():
            yield from below(one, (*path, name))

    return [(path, one) for path, one in below(typer.main.get_command(app), ()) if path and path[0] not in NOT_RUN]


def command_lines(chosen: random.Random) -> Iterator[list[str]]:
    """Without end. Each has something wrong in it that is found before anything is trained or measured."""
    known = commands()
    while True:
        path, command = chosen.choice(known)
        words = list(path)
        if chosen.random() < 0.1:
            words[-1] = words[-1][:-1] + chosen.choice("xyz-")
        options = [option for parameter in command.params for option in parameter.opts if option.startswith("-")]
        tail: list[str] = []
        for _ in range(chosen.randrange(4)):
            kind = chosen.random()
            if kind < 0.45 and options:
                tail.append(chosen.choice(options))
            if kind < 0.9:
                tail.append(chosen.choice(TEXTS))
            else:
                tail.append(
                    "".join(chr(chosen.choice([*range(1, 128), 0xE9, 0x202E])) for _ in range(chosen.randrange(12)))
                )
        yield [*words, *tail, *LATE.get(path, [])]


def settings(chosen: random.Random) -> Iterator[list[str]]:
    """Of studies: keys that they have, or nearly, with values that they take, or not."""
    from skipscope.papers.kit.catalogue import studies

    while True:
        study = chosen.choice(studies())
        words = ["study", "run", study.id, "--preset", chosen.choice(list(study.presets))]
        for _ in range(chosen.randrange(1, 4)):
            key = chosen.choice([*study.keys, chosen.choice(TEXTS)])
            words += ["--set", f"{key}={chosen.choice(TEXTS)}"]
        yield [*words, *LATE["study", "run"]]


# -- files


def damaged(content: bytes, chosen: random.Random) -> bytes:
    """One kind of damage to a file's bytes."""
    kind = chosen.randrange(8)
    if kind == 0 or not content:
        return b""
    if kind == 1:
        return content[: chosen.randrange(len(content))]
    if kind == 2:
        return content + bytes(chosen.randrange(256) for _ in range(chosen.randrange(1, 50)))
    if kind == 3:
        return bytes(chosen.randrange(256) for _ in range(200))
    if kind == 4:
        return bytes(len(content))
    if kind == 5:
        place = chosen.randrange(len(content))
        return content[:place] + bytes(8) + content[place + 8 :]
    changed = bytearray(content)
    for _ in range(1 if kind == 6 else 20):
        place = chosen.randrange(8 * len(changed))
        changed[place // 8] ^= 1 << place % 8
    return bytes(changed)


def another_kind(file: Path, chosen: random.Random) -> None:
    """A folder, a link, or nothing in the place of a file."""
    file.unlink()
    kind = chosen.randrange(6)
    if kind == 0:
        file.mkdir()
    elif kind == 1:
        file.symlink_to(file.parent / "nowhere")
    elif kind == 2:
        file.symlink_to(file)
    elif kind == 3:
        file.symlink_to("/etc/passwd")
    elif kind == 4:
        file.symlink_to("/dev/zero" if file.suffix == ".none" else "/dev/null")


VALUES: list[Any] = [
    None, True, 0, -1, 10**30, 1.5, "", "x", "\x1b[2J", "\ud800", "../../etc/passwd", "/etc/passwd", "a\0b",
    "n" * 300, "d/" * 3000, [], [1], [[]], {}, {"a": 1}, {"": ""}, {"data/\x1b[31m.nc": "0" * 64}, {"a\0b": "0"},
    {"../x": ""}, {"n" * 400: "x"}, {"data": "x"}, {"data/.nc": ""},
]  # fmt: skip


def hostile(document: Any, chosen: random.Random) -> Any:
    """A JSON document with one or two of its values, at any depth, replaced."""
    changed = json.loads(json.dumps(document))
    for _ in range(chosen.randrange(1, 3)):
        place, key = changed, None
        for _ in range(chosen.randrange(1, 5)):
            inner = place if key is None else place[key]
            if isinstance(inner, dict) and inner:
                place, key = inner, chosen.choice(list(inner))
            elif isinstance(inner, list) and inner:
                place, key = inner, chosen.randrange(len(inner))
            else:
                break
        if key is not None:
            if isinstance(place, dict) and chosen.random() < 0.3:
                value = place.pop(key)
                if chosen.random() < 0.7:
                    place[str(chosen.choice(VALUES))] = value
            else:
                place[key] = chosen.choice(VALUES)
    return changed


def sealed_document(document: Any) -> bytes:
    """As `run.json` is written, with a digest of itself that fits."""
    if not isinstance(document, dict):
        return json.dumps(document).encode()
    return seal(json.dumps({**{k: v for k, v in document.items() if k != KEY}, KEY: BLANK}).encode())


def deep_json(key: str) -> bytes:
    return (
        b'{"what": "x", "status": "finished", "parameters": {}, "hashes": {}, "'
        + key.encode()
        + b'": '
        + b"[" * 100_000
        + b"]" * 100_000
        + b"}"
    )


def pickles(chosen: random.Random) -> bytes:
    class Calls:
        def __reduce__(self) -> Any:
            return (os.system, ("exit 1",))

    found = [
        b"\x80\x02})" + b"\x85" * 200_000 + b"K\x01s.",
        b"}r\xff\xff\xff\x7f.",
        pickle.dumps({b"data": Calls()}),
        pickle.dumps({b"data": [1], b"labels": [1]}),
        pickle.dumps([1, 2]),
        pickle.dumps({b"data": b"x" * 3072, b"labels": [0]}),
        b"]" * 200_000 + b"a" * 199_999 + b".",
        b"(" * 200_000 + b"t" * 200_000 + b".",
    ]
    return damaged(chosen.choice(found), chosen) if chosen.random() < 0.3 else chosen.choice(found)


def safetensors_headers(chosen: random.Random) -> bytes:
    """Files whose header is JSON, of the right length, and says something odd."""
    tensor = chosen.choice(
        [
            {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
            {"dtype": "F32", "shape": [2**62, 4], "data_offsets": [0, 4]},
            {"dtype": "X", "shape": [1], "data_offsets": [0, 4]},
            {"dtype": "F32", "shape": [-1], "data_offsets": [4, 0]},
            chosen.choice(VALUES),
        ]
    )
    record = chosen.choice(
        [{}, [], {"format": 2}, {"format": "2"}, {"format": [2]}, {"format": 2, "identity": {}}, chosen.choice(VALUES)]
    )
    metadata = chosen.choice(
        [{"skipscope": json.dumps(record)}, {"skipscope": 1}, [], {}, {"skipscope": "[" * 100_000}]
    )
    if isinstance(metadata, dict) and chosen.random() < 0.7:
        metadata[KEY] = BLANK
    name = chosen.choice(["model/a", "", "\x1b[31m", "a" * 1000])
    header = json.dumps({"__metadata__": metadata, name: tensor}).encode()
    content = len(header).to_bytes(8, "little") + header + bytes(4)
    return seal(content) if isinstance(metadata, dict) and metadata.get(KEY) == BLANK else content


def copied(source: Path, place: Path) -> Path:
    if place.exists() or place.is_symlink():
        shutil.rmtree(place)
    shutil.copytree(source, place, symlinks=True)
    return place


Damage = Callable[[Path, random.Random], None]


def spoil_run(folder: Path, chosen: random.Random) -> str:
    """One kind of damage to a run folder; says which."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    kind = chosen.randrange(7)
    record = json.loads((folder / "run.json").read_text())
    if kind <= 1:
        (folder / "run.json").write_bytes(sealed_document(hostile(record, chosen)))
        return "a hostile record"
    if kind == 2:
        claims = json.loads((folder / "claims.json").read_text())
        content = json.dumps(hostile(claims, chosen)).encode()
        _replaced(folder, record, "claims.json", content)
        return "hostile claims"
    if kind == 3:
        (folder / "run.json").write_bytes(deep_json(chosen.choice(["notes", "versions", "odd"])))
        return "a deep record"
    if kind == 4:
        name = chosen.choice([name for name in record["hashes"] if name.endswith((".nc", ".json"))])
        if chosen.random() < 0.5:
            _replaced(folder, record, name, damaged_at_the_start((folder / name).read_bytes(), chosen))
            return f"{name} damaged, with a hash that fits"
    file = chosen.choice(files)
    if kind == 5:
        another_kind(file, chosen)
        return f"another kind of {file.name}"
    file.write_bytes(damaged(file.read_bytes(), chosen))
    return f"{file.name} damaged"


def damaged_at_the_start(content: bytes, chosen: random.Random) -> bytes:
    """Cut short, or no such file at all: what HDF5 itself notices at once. Single bits in the middle may make it loop
    for ever, and are what hashes are for."""
    return chosen.choice([b"", content[:100], b"not a file", bytes(500), content[::-1]])


def _replaced(folder: Path, record: dict[str, Any], name: str, content: bytes) -> None:
    """By somebody who has put the hash into the record as well."""
    import hashlib

    (folder / name).write_bytes(content)
    record["hashes"][name] = hashlib.sha256(content).hexdigest()
    (folder / "run.json").write_bytes(sealed_document(record))
