"""Datasets as bytes: what comes back, and what damage becomes."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from skipscope.errors import InputError
from skipscope.runs import digest
from skipscope.runs.datasets import dataset_bytes, read_dataset
from tests.flips import flipped
from tests.redteam.faults import in_a_process_of_its_own, measured


def test_a_dataset_comes_back_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "a.nc").write_bytes(dataset_bytes(measured(2.0)))
    assert read_dataset(tmp_path / "a.nc").identical(measured(2.0))
    assert read_dataset(tmp_path / "a.nc", digest(tmp_path / "a.nc")).identical(measured(2.0))


@pytest.mark.parametrize("content", [b"", b"no such file", bytes(1000), b"\x89HDF\r\n\x1a\n" + bytes(500), b"CDF\x01"])
def test_what_is_no_dataset_is_one_message(content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.nc").write_bytes(content)
    with pytest.raises(InputError, match=r"a\.nc cannot be read as a dataset.*put back a copy of it") as raised:
        read_dataset(tmp_path / "a.nc")
    assert "\n" not in str(raised.value)
    assert capsys.readouterr().err == ""
    with pytest.raises(InputError, match=r"b\.nc cannot be read: No such file"):
        read_dataset(tmp_path / "b.nc")


def test_flipped_bits_never_reach_the_parser(tmp_path: Path) -> None:
    content = dataset_bytes(measured(1.0))
    (tmp_path / "a.nc").write_bytes(content)
    written = digest(tmp_path / "a.nc")
    for _, changed in flipped(content, 326):  # with those of the first bytes 390
        (tmp_path / "a.nc").write_bytes(changed)
        with pytest.raises(InputError, match="is damaged: its SHA-256"):
            read_dataset(tmp_path / "a.nc", written)


@pytest.mark.slow
def test_flipped_bits_without_a_digest_are_messages_or_the_known_limit(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """HDF5 has no digests of its own: a file that nobody knows the hash of may hold other numbers, and its reader may
    not come back. It never raises anything but our message."""

    def read() -> None:
        signal.alarm(5)  # of the child alone
        try:
            read_dataset(tmp_path / "a.nc")
        except InputError:
            os._exit(10)

    codes: dict[int, int] = {}
    for _, changed in flipped(dataset_bytes(measured(1.0)), 326):
        (tmp_path / "a.nc").write_bytes(changed)
        code = in_a_process_of_its_own(read)
        codes[code] = codes.get(code, 0) + 1
    assert set(codes) <= {0, 10, -signal.SIGALRM}, codes
    assert "Traceback" not in capfd.readouterr().err
