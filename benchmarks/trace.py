"""How long `ss.trace` takes, against `torch.export.export` alone, and how that grows with depth.

    python -m benchmarks.trace > results.json
    python -m benchmarks.trace --smoke            small sizes, to see that it runs

Residual networks for small images with so many blocks, and GPT-2 with so many layers, of small width: an export costs
as much whatever the width. And library models that write through views of tensors. Seconds of the processor, which a
busy machine changes less than seconds; of each, the least of the rounds. The structure step is what finds the units in
an exported graph. `exponent` is the slope of a line through the logarithms of the seconds and of the depths: 1 where
twice the depth takes twice as long.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import platform
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim

import skipscope as ss
from benchmarks.machine import processor
from skipscope.models.resnet import ResNet
from skipscope.trace.graph_trunk import GraphTrunk
from skipscope.trace.structure import Structure

LARGEST_BATCH = 65535


def resnet(blocks: int) -> tuple[nn.Module, Tensor]:
    """In three stages, so the number of blocks is rounded to a multiple of three."""
    depth = 6 * round(blocks / 3) + 2
    return ResNet(depth, channels=(4, 8, 16), input_channels=3, classes=10).eval(), torch.randn(2, 3, 16, 16)


def gpt(layers: int) -> tuple[nn.Module, Tensor]:
    from transformers import GPT2Config, GPT2Model

    sizes = {"n_layer": layers, "n_embd": 32, "n_head": 2, "vocab_size": 100, "n_positions": 32}
    config = GPT2Config(**sizes, use_cache=False, bos_token_id=1, eos_token_id=1)
    return GPT2Model(config).eval(), torch.randint(0, 100, (2, 16))


def writes_through_views(name: str) -> tuple[nn.Module, Tensor]:
    """Library models that write into slices of tensors: masks of windows, biases, sums in place."""
    import timm
    import torchvision

    if name == "ghostnet_100":
        return timm.create_model(name).eval(), torch.randn(2, 3, 64, 64)
    return torchvision.models.get_model(name, weights=None).eval(), torch.randn(2, 3, 64, 64)


def export_alone(model: nn.Module, x: Tensor) -> None:
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shapes = ({0: Dim("batch", min=1, max=LARGEST_BATCH)},)
        torch.export.export(model, (x,), dynamic_shapes=shapes, strict=False)


def least_seconds(work: Callable[[], object], rounds: int) -> tuple[float, float]:
    """Of the processor, and on the clock."""
    used, passed = [], []
    for _ in range(rounds):
        gc.collect()
        start, processor_start = time.perf_counter(), time.process_time()
        work()
        used.append(time.process_time() - processor_start)
        passed.append(time.perf_counter() - start)
    return min(used), min(passed)


def row(name: str, make: Callable[[Any], tuple[nn.Module, Tensor]], depth: Any, rounds: int) -> dict[str, Any]:
    torch.manual_seed(0)
    model, x = make(depth)
    export, export_clock = least_seconds(lambda: export_alone(model, x), rounds)
    trace, trace_clock = least_seconds(lambda: ss.trace(model, x), rounds)
    trunk = ss.trace(model, x)
    assert isinstance(trunk, GraphTrunk)
    structure, _ = least_seconds(lambda: Structure(trunk.program), rounds)
    found = {
        "model": name,
        "depth": depth,
        "units": len(trunk.units),
        "export_seconds": round(export, 3),
        "trace_seconds": round(trace, 3),
        "ratio": round(trace / export, 2),
        "structure_seconds": round(structure, 3),
        "export_seconds_on_the_clock": round(export_clock, 3),
        "trace_seconds_on_the_clock": round(trace_clock, 3),
        "load": [round(load, 2) for load in os.getloadavg()],
    }
    print(found, file=sys.stderr)
    return found


def exponent(depths: Sequence[int], seconds: Sequence[float]) -> float:
    a, b = [math.log(depth) for depth in depths], [math.log(some) for some in seconds]
    mean_a, mean_b = sum(a) / len(a), sum(b) / len(b)
    slope = sum((x - mean_a) * (y - mean_b) for x, y in zip(a, b, strict=True)) / sum((x - mean_a) ** 2 for x in a)
    return round(slope, 2)


def growth(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """From the least to the greatest depth of one model."""
    depths = [row["depth"] for row in rows]
    kinds = ("export", "trace", "structure")
    return {
        "model": rows[0]["model"],
        "depths": depths,
        "exponent": {kind: exponent(depths, [row[f"{kind}_seconds"] for row in rows]) for kind in kinds},
        "times_as_long": {kind: round(rows[-1][f"{kind}_seconds"] / rows[0][f"{kind}_seconds"], 2) for kind in kinds},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, nargs="+", default=[50, 200, 500], help="of residual networks")
    parser.add_argument("--layers", type=int, nargs="+", default=[12, 96], help="of GPT-2")
    parser.add_argument(
        "--views",
        nargs="*",
        default=["swin_t", "swin_v2_t", "ghostnet_100"],
        help="models that write through views, by their names in torchvision or timm",
    )
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--smoke", action="store_true", help="small sizes, one round")
    options = parser.parse_args()
    blocks, layers, rounds = options.blocks, options.layers, options.rounds
    if options.smoke:
        blocks, layers, rounds = [6, 12], [2, 4], 1
    torch.set_num_threads(1)
    rows = []
    for name, make, depths in (("resnet", resnet, blocks), ("gpt2", gpt, layers)):
        ss.trace(*make(3))  # what is loaded and compiled once is not counted
        rows += [row(name, make, depth, rounds) for depth in depths]
    about = {
        "skipscope": ss.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "threads": torch.get_num_threads(),
        "rounds": rounds,
    }
    for name in options.views if not options.smoke else options.views[:1]:
        rows.append(row(name, writes_through_views, name, rounds))
    grown = [growth([row for row in rows if row["model"] == name]) for name in ("resnet", "gpt2")]
    print(json.dumps({"about": about, "growth": grown, "rows": rows}, indent=2))


if __name__ == "__main__":
    main()
