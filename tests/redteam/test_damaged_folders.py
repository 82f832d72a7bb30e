"""Every file of a run folder with every kind of damage: it is noticed, and a run that goes on ends as it would have.

Nothing that was changed is ever taken for a result: the run computes it again, or refuses to go on with a message.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from skipscope.errors import InputError
from skipscope.inspection.result import load
from skipscope.runs import RunFolder
from skipscope.runs.verifying import verify_run
from tests.redteam.faults import measured, same, small_run
from tests.redteam.fuzz import copied


def _flipped(content: bytes) -> bytes:
    place = random.Random(len(content)).randrange(len(content))
    return content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :]


def _in_place_of(make: Callable[[Path], object]) -> Callable[[Path], None]:
    def damage(file: Path) -> None:
        file.unlink()
        make(file)

    return damage


def _rewritten(change: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    return lambda file: file.write_bytes(change(file.read_bytes()))


DAMAGE: dict[str, Callable[[Path], object]] = {
    "empty": _rewritten(lambda content: b""),
    "cut short": _rewritten(lambda content: content[: len(content) // 2]),
    "longer": _rewritten(lambda content: content + b"more"),
    "a bit": _rewritten(_flipped),
    "zeros": _rewritten(lambda content: bytes(len(content))),
    "noise": _rewritten(lambda content: random.Random(0).randbytes(len(content))),
    "gone": _in_place_of(lambda file: None),
    "a folder": _in_place_of(Path.mkdir),
    "a link to nowhere": _in_place_of(lambda file: file.symlink_to("nowhere")),
    "a link to itself": _in_place_of(lambda file: file.symlink_to(file.name)),
    "a link out of the folder": _in_place_of(lambda file: file.symlink_to("/etc/hostname")),
}


@pytest.mark.parametrize("training", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_every_damage_to_every_file(training: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKIPSCOPE_CACHE", str(tmp_path))
    expected = small_run(tmp_path / "whole", training)
    shutil.rmtree(tmp_path / "whole" / "cache", ignore_errors=True)
    names = sorted(
        str(file.relative_to(tmp_path / "whole")) for file in (tmp_path / "whole").rglob("*") if file.is_file()
    )
    assert len(names) == (6 if training else 5)
    again = refused = 0
    for name in names:
        for kind, damage in DAMAGE.items():
            folder = copied(tmp_path / "whole", tmp_path / "spoiled")
            damage(folder / name)
            try:
                assert verify_run(folder / "run").bad, f"{name}, {kind}: not noticed"
            except InputError:
                assert name.endswith("run.json")
            if name.endswith((".nc", ".json")) and kind not in ("gone", "a folder") and "link" not in kind:
                with pytest.raises(InputError):
                    load(folder / "run")
            try:
                found = small_run(folder, training)
                assert same(found, expected, but="notes"), f"{name}, {kind}: other results"
                assert verify_run(folder / "run").bad == (), f"{name}, {kind}"
                again += 1
            except InputError:
                refused += 1
    assert (again, refused) != (0, 0)
    print(f"{again} went on to the same results, {refused} were refused with a message")


def test_a_folder_that_is_a_link_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    with RunFolder(tmp_path / "run", "a test") as run:
        run.write_dataset("first", measured(1.0))
    for target in (tmp_path / "elsewhere", Path("data")):
        (tmp_path / "run" / "figures").symlink_to(target)
        with RunFolder.reopened(tmp_path / "run") as again, pytest.raises(InputError, match="remove the link"):
            again.write_text("figures/a.html", "a picture")
        (tmp_path / "run" / "figures").unlink()
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert [file.name for file in (tmp_path / "run" / "data").iterdir()] == ["first.nc"]
