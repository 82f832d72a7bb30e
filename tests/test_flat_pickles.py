"""Pickles that end a process without a word are refused before they are read; those of real files are not."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path

import pytest
import torch
from torch import nn

from skipscope.flat_pickles import DEEPEST, require_flat, require_flat_torch_file

DEEP = {
    "tuples of one": b"\x80\x02})" + b"\x85" * 200_000 + b"K\x01s.",
    "tuples to a mark": b"}" + b"(" * 200_000 + b"t" * 200_000 + b"K\x01s.",
    "through the memo": b"})" + b"\x85q\x00h\x00\x86" * 200_000 + b"K\x01s.",
    "twice each": b"})" + b"2\x86" * 200_000 + b"K\x01s.",
}


@pytest.mark.parametrize("name", DEEP)
def test_deep_tuples_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="deep"):
        require_flat(DEEP[name])


@pytest.mark.parametrize("content", [b"", b"}", b"s.", b"\x85.", b"}r\xff\xff\xff\x7f.", b"\xff\xff"])
def test_what_is_no_pickle_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        require_flat(content)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_flat_ones_pass(protocol: int) -> None:
    tuples: tuple[object, ...] = ()
    for _ in range(DEEPEST - 1):
        tuples = (tuples, 1)
    require_flat(pickle.dumps({"a": [(1, (2, 3))] * 1000, b"b": {frozenset([1])}, "c": tuples}, protocol=protocol))


@pytest.mark.parametrize("archive", [True, False])
def test_files_of_torch(archive: bool, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    state = {
        "model": model.state_dict(),
        "optimiser": torch.optim.Adam(model.parameters()).state_dict(),
        "epoch": (1, 2),
    }
    torch.save(state, tmp_path / "a.pt", _use_new_zipfile_serialization=archive)
    require_flat_torch_file(tmp_path / "a.pt")
    if archive:
        with zipfile.ZipFile(tmp_path / "b.pt", "w") as file:
            file.writestr("a/data.pkl", DEEP["tuples of one"])
    else:
        (tmp_path / "b.pt").write_bytes(DEEP["tuples of one"])
    with pytest.raises(ValueError, match="deep"):
        require_flat_torch_file(tmp_path / "b.pt")
