"""Bytes that are on the disk whole or not at all."""

from __future__ import annotations

import errno
import os
import secrets
import time
from pathlib import Path

import pytest

from skipscope.errors import InputError
from skipscope.runs.whole_files import (
    BEGIN,
    END,
    HALF_WRITTEN,
    STALE,
    remove_half_written,
    require_no_links,
    write_whole,
)


def test_a_file_is_written_in_as_many_pieces_as_the_system_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, content: real(descriptor, content[:7]))
    content = bytes(range(256)) * 5
    write_whole(tmp_path / "new" / "a", content)
    write_whole(tmp_path / "new" / "b", memoryview(content))
    assert (tmp_path / "new" / "a").read_bytes() == (tmp_path / "new" / "b").read_bytes() == content
    assert sorted(file.name for file in (tmp_path / "new").iterdir()) == ["a", "b"]


def test_a_link_in_the_place_of_the_temporary_file_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever guessed the name all the same would gain nothing."""
    victim = tmp_path / "victim"
    victim.write_text("mine")
    monkeypatch.setattr(secrets, "token_hex", lambda count: "0" * (2 * count))
    for target in (victim, tmp_path / "not-there"):
        link = tmp_path / f"{BEGIN}{'0' * 16}{END}"
        link.symlink_to(target)
        with pytest.raises(InputError, match="cannot write"):
            write_whole(tmp_path / "a", b"content")
        link.unlink(missing_ok=True)
    assert victim.read_text() == "mine"
    assert [file.name for file in tmp_path.iterdir()] == ["victim"]


def test_a_link_in_the_place_of_the_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "a").symlink_to(tmp_path / "victim")
    write_whole(tmp_path / "a", b"content")
    assert not (tmp_path / "a").is_symlink()
    assert (tmp_path / "victim").read_text() == "mine"


def test_names_as_long_as_the_file_system_takes(tmp_path: Path) -> None:
    write_whole(tmp_path / ("n" * 255), b"content")
    for name in ("n" * 256, "a\0b", "\ud800"):
        with pytest.raises(InputError, match="cannot write"):
            write_whole(tmp_path / name, b"content")
    assert [len(file.name) for file in tmp_path.iterdir()] == [255]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_an_error_of_the_disk_is_one_message_with_a_remedy(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fails)
    remedy = "make room there" if number == errno.ENOSPC else "choose another folder"
    with pytest.raises(InputError, match=f"{os.strerror(number)}; {remedy}"):
        write_whole(tmp_path / "a", b"content")
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "below" / "link").symlink_to(tmp_path / "elsewhere")
    names = [f"{BEGIN}{secrets.token_hex(8)}{END}", ".123.run.json", f"{BEGIN}mine{END}", ".hidden", "a.part"]
    for name in names:
        (tmp_path / "below" / name).write_text("")
    outside = tmp_path / "elsewhere" / names[0]
    outside.write_text("")
    assert [bool(HALF_WRITTEN.fullmatch(name)) for name in names] == [True, True, False, False, False]
    remove_half_written(tmp_path / "below", older_than=STALE)
    assert len(list((tmp_path / "below").iterdir())) == 6
    os.utime(tmp_path / "below" / names[0], (time.time() - 2 * STALE,) * 2)
    remove_half_written(tmp_path / "below", older_than=STALE)
    assert len(list((tmp_path / "below").iterdir())) == 5
    remove_half_written(tmp_path / "below")
    assert sorted(file.name for file in (tmp_path / "below").iterdir()) == sorted([*names[2:], "link"])
    assert outside.exists()


def test_links_below_a_folder_are_refused_and_those_above_are_not(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "real")
    write_whole(tmp_path / "run" / "data" / "a", b"content", within=tmp_path / "run")
    (tmp_path / "real" / "figures").symlink_to(tmp_path / "real" / "data")
    with pytest.raises(InputError, match="through the link"):
        require_no_links(tmp_path / "run" / "figures" / "a", tmp_path / "run")
