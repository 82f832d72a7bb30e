"""Subjects: all seeds of one kind of network at once."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from skipscope.data import digits
from skipscope.papers.kit import Bench, Subject
from skipscope.runs import RunFolder
from skipscope.training import Settings


def test_all_seeds_of_a_subject_are_trained_together_and_found_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKIPSCOPE_CACHE", str(tmp_path / "cache"))
    data = digits().subset(samples=128, test_samples=64)
    heard: list[str] = []
    with RunFolder(tmp_path / "run", "study A") as run:
        bench = Bench(
            "A.x", run, preset="smoke", seed=0, device="cpu", announce=lambda part, done, total: heard.append(part)
        )
        subject = Subject(
            "type 1", "type1-digits-w8-b2", data, Settings(epochs=1, batch=32), tuple(bench.seeds(3)), looks=(0,)
        )
        found = subject.trained_all(bench)
        assert set(heard) == {"training 3 networks type1-digits-w8-b2"}
        assert list(found) == [1000, 1001, 1002]
        heard.clear()
        for seed, network in found.items():
            alone = subject.trained(bench, seed)
            assert alone.file == network.file
            assert torch.equal(alone.model.classifier.weight, network.model.classifier.weight)
            assert 0 in alone.snapshots
        assert not heard
