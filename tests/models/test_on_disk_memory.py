"""A model of four times the memory that is allowed: what a process of its own takes while it measures it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parent.parent.parent
STATUS = Path("/proc/self/status")
MEASURED = r"""
import re, sys, threading, time
import torch, xarray
import skipscope as ss

torch.set_num_threads(1)
folder, units = sys.argv[1], sys.argv[2] == "all"
x = {"input_ids": torch.arange(4).reshape(1, 4)}


def measure(model):
    trunk = ss.trace(model, x)
    point = trunk.at(x)
    ss.profile(trunk, point)
    if units:
        options = dict(grids=False, chance=0, route="iterative", tol=0.1)
        ss.alignment(trunk, point, tokens=(-1, -1), k=1, **options)


def taken():
    return int(re.search(r"RssAnon:\s+(\d+) kB", open("/proc/self/status").read())[1]) * 1024


def watch():
    while True:
        peak[0] = max(peak[0], taken())
        time.sleep(0.002)


# What libraries make for themselves when they are first used is there before the first measurement begins.
from transformers import LlamaConfig, LlamaForCausalLM
measure(LlamaForCausalLM(LlamaConfig(hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
                                     vocab_size=20)).eval())
start, peak = taken(), [0]
threading.Thread(target=watch, daemon=True).start()
measure(ss.on_disk(folder, memory="100MB"))
print(peak[0] - start)
"""


def save(folder: Path, dtype: torch.dtype) -> int:
    """About 400 MB of weights in float32; returns how many bytes they are."""
    import transformers

    config = transformers.LlamaConfig(
        hidden_size=768,
        intermediate_size=2048,
        num_hidden_layers=14,
        num_attention_heads=12,
        num_key_value_heads=12,
        vocab_size=1000,
        bos_token_id=1,
        eos_token_id=1,
    )
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config)
    model = model.to_empty(device="cpu").to(dtype)
    numbers = torch.Generator().manual_seed(0)
    for name, weight in model.named_parameters():
        values = torch.rand(weight.shape, generator=numbers).sub_(0.5).mul_(0.07)
        weight.data = (torch.ones(weight.shape) if "norm" in name else values).to(dtype)
    model.save_pretrained(folder, max_shard_size="60MB")
    return sum(4 * weight.numel() for weight in model.parameters())


def peak(folder: Path, aligned: str) -> int:
    """In bytes, above what there was after imports. aligned: whether the units are, "all" or "none"."""
    run = subprocess.run(
        [sys.executable, "-c", MEASURED, str(folder), aligned], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert run.returncode == 0, run.stderr
    return int(run.stdout.split()[-1])


@pytest.mark.slow
@pytest.mark.skipif(not STATUS.exists(), reason="the system does not say what a process takes")
def test_a_large_model_is_profiled_under_the_limit(tmp_path: Path) -> None:
    assert save(tmp_path, torch.bfloat16) > 4e8  # converted as they are read
    assert peak(tmp_path, "none") < 1e8


@pytest.mark.slow
@pytest.mark.skipif(not STATUS.exists(), reason="the system does not say what a process takes")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_all_units_of_a_large_model_are_aligned_under_the_limit(dtype: torch.dtype, tmp_path: Path) -> None:
    assert save(tmp_path, dtype) > 4e8
    assert peak(tmp_path, "all") < 1e8
