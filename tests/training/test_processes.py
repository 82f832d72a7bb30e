"""Two processes on the CPU give what one gives."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from skipscope.errors import InputError
from skipscope.training import Settings, train
from tests.training.nets import blobs, dropping_net, net, weights
from tests.training.together import SETTINGS

ROOT = Path(__file__).parent.parent.parent


def test_two_processes_give_the_weights_of_one(tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    common = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "SKIPSCOPE_TEST_DEVICE": ""}
    common |= {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.training.together", str(tmp_path)],
            cwd=ROOT,
            env={**os.environ, **common, "RANK": rank, "LOCAL_RANK": rank},  # what torchrun sets
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in ("0", "1")
    ]
    try:
        for process in started:
            error = process.communicate(timeout=240)[1]
            assert process.returncode == 0, error[-3000:]
    finally:
        for process in started:
            process.kill()

    with torch.device("cpu"):
        model = dropping_net()
        split, test = blobs().to("cpu"), blobs(31).to("cpu")
        history = train(model, split, SETTINGS, test=test)
    found, other = (load_file(tmp_path / f"weights{rank}.safetensors") for rank in (0, 1))
    for name, value in weights(model).items():
        torch.testing.assert_close(found[name], value, rtol=1e-5, atol=1e-5)
    assert found["loss"].tolist() == pytest.approx(history.loss, rel=1e-5)
    assert found["train_accuracy"].tolist() == pytest.approx(history.train_accuracy)
    assert found["test_accuracy"].tolist() == pytest.approx(history.test_accuracy)
    for name, value in found.items():
        assert torch.equal(value, other[name]), name

    one, two = (load_file(tmp_path / f"normed{rank}.safetensors") for rank in (0, 1))
    for name, value in one.items():
        assert torch.equal(value, two[name]), name

    # One process goes on from what two have left: the work is done.
    with torch.device("cpu"):
        resumed = dropping_net()
        train(resumed, split, SETTINGS, test=test, checkpoint=tmp_path / "run.safetensors")
    assert torch.equal(resumed[0].weight, found["0.weight"])


def test_parts_of_a_batch_are_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    from skipscope.training import processes

    class Three(processes.Processes):
        count = 3

    monkeypatch.setenv("WORLD_SIZE", "3")
    monkeypatch.setattr(processes, "SeveralProcesses", Three)
    for batch in (16, 3):
        with pytest.raises(InputError, match="3 processes share a batch in equal parts"):
            train(net(), blobs(), Settings(epochs=1, batch=batch))
    parts = [Three(net()) for _ in range(3)]
    for rank, part in enumerate(parts):
        part.rank = rank
    whole = torch.cat([part.part(torch.arange(12)) for part in parts])
    assert sorted(whole.tolist()) == list(range(12))
