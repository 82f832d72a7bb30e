"""What a sweep goes through, and along which dimension."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from skipscope.errors import InputError
from skipscope.sweeps.subjects import subjects_of

NAMES = ["skipscope:resnet8-digits", "skipscope:resnet14-digits"]


def made(folder: Path, *names: str) -> list[Path]:
    files = [folder / name for name in names]
    for file in files:
        file.touch()
    return files


def test_several_models_are_the_dimension_model() -> None:
    found = subjects_of(NAMES)
    assert found.dimension == "model"
    assert [each.label for each in found.members] == NAMES
    own = subjects_of({"mine": torch.nn.Identity(), "other": NAMES[0]})
    assert [each.label for each in own.members] == ["mine", "other"]
    assert subjects_of(NAMES[0]).members[0].model == NAMES[0]


def test_checkpoints_with_steps_in_their_names_are_steps_in_order(tmp_path: Path) -> None:
    made(tmp_path, "step10.pt", "step9.pt", "step100.pt")
    found = subjects_of(NAMES[0], [f"{tmp_path}/step*.pt"])
    assert found.dimension == "step"
    assert [(each.step, each.weights) for each in found.members] == [
        (step, tmp_path / f"step{step}.pt") for step in (9, 10, 100)
    ]


def test_other_checkpoints_are_the_dimension_checkpoint(tmp_path: Path) -> None:
    found = subjects_of(NAMES[0], made(tmp_path, "first.pt", "step2.pt"))
    assert (found.dimension, [each.label for each in found.members]) == ("checkpoint", ["first", "step2"])
    assert [each.step for each in found.members] == [None, None]
    grid = subjects_of(NAMES, made(tmp_path, "first.pt", "last.pt"))
    assert grid.dimension == "model"
    assert [each.label for each in grid.members][:2] == [f"{NAMES[0]} @ first", f"{NAMES[0]} @ last"]


def test_files_of_one_name_keep_their_folders(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    files = [*made(tmp_path / "a", "net.pt"), *made(tmp_path / "b", "net.pt")]
    assert [each.label for each in subjects_of(NAMES[0], files).members] == list(map(str, files))


def test_a_revision_of_a_directory_is_a_folder_in_it(tmp_path: Path) -> None:
    for name in ("checkpoint-20", "checkpoint-100"):
        (tmp_path / name).mkdir()
    found = subjects_of(f"hf:{tmp_path}", revisions=["checkpoint-100", "checkpoint-20"])
    assert found.dimension == "step"
    assert [each.model for each in found.members] == [f"hf:{tmp_path}/checkpoint-{step}" for step in (20, 100)]
    assert subjects_of("hf:owner/name", revisions=["main"]).members[0].model == "hf:owner/name@main"
    with pytest.raises(InputError, match="there are checkpoint-100, checkpoint-20"):
        subjects_of(f"hf:{tmp_path}", revisions=["checkpoint-3"])


@pytest.mark.parametrize(
    ("models", "options", "message"),
    [
        ([], {}, "a model or more"),
        ([NAMES[0], NAMES[0]], {}, "named twice"),
        (["nonsense"], {}, "cannot read MODEL 'nonsense'"),
        ({"a": 3}, {}, "a: expected a name"),
        (NAMES, {"revisions": ["main"]}, "only hf: models have revisions"),
        ("hf:gpt2", {"revisions": ["main"]}, "is a type of models"),
        (NAMES, {"checkpoints": ["nowhere/*.pt"]}, "no file has such a name"),
        (NAMES, {"checkpoints": ["nowhere.pt"]}, "no weights file nowhere.pt"),
        (NAMES, {"checkpoints": ["a"], "revisions": ["b"]}, "give one of them"),
    ],
)
def test_what_is_no_sweep_is_refused(models: object, options: dict[str, list[str]], message: str) -> None:
    with pytest.raises(InputError, match=message):
        subjects_of(models, **options)  # type: ignore[arg-type]
