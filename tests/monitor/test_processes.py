"""The monitor with two processes: DistributedDataParallel, and models that are sharded."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import skipscope as ss
from skipscope.runs import load_run
from tests.monitor.loops import X, Y, small_model

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]


def run(kind: str, out: Path, watch: bool) -> list[dict[str, Any]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-addr", "127.0.0.1"]
    command += [
        "--master-port",
        str(port),
        "-m",
        "tests.monitor.processes",
        kind,
        str(out),
        *(["watch"] if watch else []),
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    name = "watched" if watch else "alone"
    return [torch.load(out / f"{name}-{rank}.pt", weights_only=True) for rank in (0, 1)]


@pytest.mark.parametrize("kind", ["ddp", "fsdp2", "fsdp1"])
def test_two_processes_train_as_they_do_alone_and_the_first_one_writes(kind: str, tmp_path: Path) -> None:
    alone, watched = run(kind, tmp_path, watch=False), run(kind, tmp_path, watch=True)
    for one, two in zip(alone, watched, strict=True):
        assert one["losses"] == two["losses"]
        assert all(torch.equal(value, two["weights"][name]) for name, value in one["weights"].items())
    saved = load_run(tmp_path / "run")
    assert saved.record["status"] == "finished"
    assert saved.dataset("sizes")["step"].values.tolist() == [0, 2, 4, 6]
    assert saved.dataset("sharpness")["value"].notnull().all()
    # What the monitor saw last is the network that the training ended with.
    model = small_model(dropout=0.0)
    names = {name.removeprefix("module.").replace("_fsdp_wrapped_module.", ""): name for name in watched[0]["weights"]}
    with torch.no_grad():
        for name, value in (*model.named_parameters(), *model.named_buffers()):
            value.copy_(watched[0]["weights"][names[name]])
    expected = ss.profile(ss.trace(model, X[:8]), X[:8], loss=loss, probes=0)[["state_rms", "gradient_rms"]]
    found = saved.dataset("sizes").isel(step=-1)
    for key, values in expected.median("sample").items():
        assert found[key].values == pytest.approx(values.values, rel=1e-5)


def loss(output: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(output, Y[:8])
