"""Files that hold a digest of themselves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from skipscope.sealed import BLANK, KEY, read_tensors, seal, seal_of, tensor_file
from tests.flips import flipped

TENSORS = {"weight": torch.arange(12.0).reshape(3, 4), "count": torch.tensor(7)}


def test_a_document_knows_whether_it_was_changed() -> None:
    text = json.dumps({"note": f'"{KEY}": "{BLANK}"', "accuracy": 0.9588, KEY: BLANK})  # a note that looks like it
    sealed = seal(text.encode())
    assert seal_of(sealed) == "whole"
    assert len(sealed) == len(text)
    assert json.loads(sealed)["accuracy"] == 0.9588
    assert seal_of(sealed.replace(b"0.9588", b"0.9615")) == "changed"
    assert seal_of(json.dumps({"accuracy": 0.9588}).encode()) == "missing"


def test_tensors_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(tensor_file(TENSORS, {"about": "é"}))
    found = read_tensors(path)
    assert found.sealed
    assert found.metadata["about"] == "é"
    for tensors in (found.tensors, load_file(path)):  # other programs can read it too
        assert tensors.keys() == TENSORS.keys()
        assert all(torch.equal(tensors[name], TENSORS[name]) for name in TENSORS)


def test_a_file_of_another_program_has_no_digest(tmp_path: Path) -> None:
    save_file(TENSORS, tmp_path / "a.safetensors")
    found = read_tensors(tmp_path / "a.safetensors")
    assert not found.sealed
    assert torch.equal(found.tensors["weight"], TENSORS["weight"])


def test_every_flipped_bit_is_found(tmp_path: Path) -> None:
    """One in the name of the digest leaves a file without one, whose tensors are the same."""
    path = tmp_path / "a.safetensors"
    whole = tensor_file(TENSORS, {"about": "a network"})
    for _, changed in flipped(whole, 500):
        path.write_bytes(changed)
        try:
            found = read_tensors(path)
        except ValueError:
            continue
        assert not found.sealed
        assert all(torch.equal(found.tensors[name], TENSORS[name]) for name in TENSORS)


@pytest.mark.parametrize("content", [b"", b"x", b"\xff" * 200])
def test_what_is_no_such_file_is_a_value_error(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(ValueError, match="eader"):  # as safetensors says it
        read_tensors(tmp_path / "a")
