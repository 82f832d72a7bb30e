"""Language models at their real size: time and peak memory of what `skipscope` measures of them.

    python -m benchmarks.language 1.1B --device cuda --out benchmarks/results/language-1.1B-h200.json

Llama shapes with random weights in bfloat16, 128 tokens, Jacobians of the last token:

    trace       finding the units
    states      one pass of the model in float32
    alignment   `ss.alignment` of all units, in float64
    coupling    `ss.coupling` of all blocks, in float64
    path        transposed products of two units from the last token to itself: along the token's own path and through
                the whole sequence, with counted operations and seconds for a block of cotangents
    dense       the same work without skipscope's measures: `torch.func.jacrev` of every block with respect to its last
                token, in float32, and `torch.linalg.svd`; and how far its largest values are from those of coupling
    lens        so many rows of the Jacobian lens at the entries of all units, in bfloat16, and how many times that is
                of 2 P T operations for each row (P weights of units, T tokens) at 40 % of the bfloat16 rate

`streamed` reads the weights from files, made beforehand in a temporary folder, within 20 GB for everything. Each phase
is written to the result as soon as it is done; what does not start within --seconds is named in `left_out`.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import skipscope as ss
from benchmarks.machine import described
from skipscope.measure.chain import chain_of
from skipscope.measure.lens_sweep import Arithmetic, Sweep

RATE = 790e12  # bfloat16 operations per second of an H200, measured with large products
SHARE_OF_RATE = 0.4
LEADING = 10  # singular vectors of alignment and coupling
COTANGENTS = 64  # of products that are compared
CHUNK = 256  # cotangents at a time of the dense alternative


@dataclass(frozen=True)
class Shape:
    width: int
    hidden: int
    blocks: int
    heads: int
    key_heads: int
    words: int = 32_000
    memory: str | None = None  # a limit for everything, with weights in files


SHAPES = {
    "tiny": Shape(32, 48, 2, 4, 2, 64),
    "tiny-streamed": Shape(32, 48, 3, 4, 2, 64, memory="500MB"),
    "small": Shape(512, 1408, 4, 8, 2, 1000),
    "1.1B": Shape(2048, 5632, 22, 32, 4),
    "7B": Shape(4096, 11008, 32, 32, 32),
    # Twelve blocks of it are more than 20 GB in float32; --blocks 60 is the whole.
    "streamed": Shape(6656, 17920, 24, 52, 52, memory="20GB"),
}


class Phases:
    """Each is timed once the device has nothing left to do, and written at once."""

    def __init__(self, name: str, device: torch.device, seconds: float, out: Path | None) -> None:
        self.device, self.out = device, out
        self.end = time.perf_counter() + seconds
        self.result: dict[str, Any] = {"shape": name, "machine": described(device.type), "phases": {}, "left_out": []}

    def run(self, name: str, work: Callable[[], Any], **about: Any) -> Any:
        """What the work returns; None where there is no time left for it."""
        if time.perf_counter() > self.end:
            self.result["left_out"].append(name)
            self.write()
            return None
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        start = time.perf_counter()
        found = work()
        row: dict[str, Any] = {}
        if self.device.type == "cuda":
            torch.cuda.synchronize()
            row["peak_gibibytes"] = round(torch.cuda.max_memory_allocated() / 2**30, 2)
        row = {"seconds": float(f"{time.perf_counter() - start:.4g}"), **row, **about}
        self.result["phases"][name] = row
        print(name, row, file=sys.stderr, flush=True)
        self.write()
        return found

    def add(self, name: str, **about: Any) -> None:
        self.result["phases"][name].update(about)
        self.write()

    def write(self) -> None:
        if self.out is not None:
            self.out.write_text(json.dumps(self.result, indent=2) + "\n")


# -- models


def configuration(shape: Shape) -> Any:
    from transformers import LlamaConfig

    return LlamaConfig(
        hidden_size=shape.width,
        intermediate_size=shape.hidden,
        num_hidden_layers=shape.blocks,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.key_heads,
        vocab_size=shape.words,
        max_position_embeddings=2048,
        bos_token_id=1,
        eos_token_id=2,
    )


def in_memory(shape: Shape, device: torch.device) -> nn.Module:
    from transformers import LlamaForCausalLM

    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with device:
            model = LlamaForCausalLM(configuration(shape))
    finally:
        torch.set_default_dtype(before)
    return model.eval().requires_grad_(False)


def save(shape: Shape, folder: Path, device: torch.device) -> int:
    """A folder as `save_pretrained` makes it, one file for each block; returns the bytes of the weights."""
    from safetensors.torch import save_file
    from transformers import LlamaForCausalLM

    config = configuration(shape)
    config.dtype = "bfloat16"
    config.architectures = ["LlamaForCausalLM"]
    config.save_pretrained(folder)
    with torch.device("meta"):
        shapes = {name: weight.shape for name, weight in LlamaForCausalLM(config).named_parameters()}
    files: dict[str, dict[str, torch.Size]] = {}
    for name, size in shapes.items():
        part = name.split(".")[2] if name.startswith("model.layers.") else "rest"
        files.setdefault(f"model-{part}.safetensors", {})[name] = size
    total = 0
    for file, sizes in files.items():
        weights = {name: _random(name, size, device) for name, size in sizes.items()}
        total += sum(2 * weight.numel() for weight in weights.values())
        save_file(weights, folder / file, metadata={"format": "pt"})
    index = {"metadata": {"total_size": total}, "weight_map": {n: f for f, sizes in files.items() for n in sizes}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return total


def _random(name: str, size: torch.Size, device: torch.device) -> Tensor:
    if "norm" in name:
        return torch.ones(size, dtype=torch.bfloat16)
    return (0.02 * torch.randn(size, device=device, dtype=torch.bfloat16)).cpu()


@contextmanager
def made(shape: Shape, device: torch.device, phases: Phases) -> Iterator[nn.Module]:
    if shape.memory is None:
        yield phases.run("model", lambda: in_memory(shape, device))
        return
    with tempfile.TemporaryDirectory() as folder:
        total = phases.run("files", lambda: save(shape, Path(folder), device))
        phases.add("files", gigabytes=round(total / 1e9, 2))
        model = phases.run("model", lambda: ss.on_disk(folder, memory=shape.memory))
        yield model
        del model


# -- phases


def warm_up(device: torch.device) -> None:
    """What libraries load when they are first used is not counted."""
    shape = SHAPES["tiny"]
    x = {"input_ids": torch.randint(0, shape.words, (1, 8), device=device)}
    trunk = ss.trace(in_memory(shape, device), x)
    point = trunk.at(x)
    ss.alignment(trunk, point, k=2, tokens=(-1, -1))
    ss.coupling(trunk, point, k=2)


def measure(shape: Shape, device: torch.device, tokens: int, rows: int, phases: Phases) -> None:
    warm_up(device)
    torch.manual_seed(0)
    with made(shape, device, phases) as model:
        x = {"input_ids": torch.randint(0, shape.words, (1, tokens), device=device)}
        trunk = phases.run("trace", lambda: ss.trace(model, x))
        point = phases.run("states", lambda: trunk.at(x))
        if trunk is None or point is None:
            return
        weights = sum(unit.parameters for unit in trunk.units)
        phases.result.update(units=len(trunk.units), blocks=shape.blocks, tokens=tokens, weights_of_units=weights)
        alignment = phases.run("alignment", lambda: ss.alignment(trunk, point, k=LEADING, tokens=(-1, -1)))
        if alignment is not None:
            phases.add("alignment", converged=bool(alignment["converged"].all()), routes=_routes(alignment))
            del alignment
        coupling = phases.run("coupling", lambda: ss.coupling(trunk, point, k=LEADING))
        if coupling is not None:
            phases.add("coupling", converged=bool(coupling["converged"].all()), routes=_routes(coupling))
        if shape.memory is None:
            _paths(trunk, point, phases)
            _dense(trunk, point, coupling, phases)
            _lens(trunk, point, min(rows, shape.width), weights, tokens, phases)
    phases.write()


def _routes(data: Any) -> list[str]:
    return sorted({str(route) for route in data["token_route"].values.ravel()})


def _paths(trunk: Any, point: Any, phases: Phases) -> None:
    """Operations are counted once, times are of a second run: the first records what is pulled back."""
    from torch.utils.flop_counter import FlopCounterMode

    def measured(J: Any) -> tuple[int, float]:
        block = torch.randn(1, J.shape[1], COTANGENTS, dtype=J.dtype, device=J.device)
        with FlopCounterMode(display=False) as counter:
            J.rmatmat(block)
        start = time.perf_counter()
        J.rmatmat(block)
        if phases.device.type == "cuda":
            torch.cuda.synchronize()
        return counter.get_total_flops(), time.perf_counter() - start

    def work() -> dict[str, Any]:
        rows = {}
        for unit in trunk.units[:2]:
            width = unit.entry_shape[1]
            whole = unit.jacobian(point)
            last = torch.arange(whole.shape[1] - width, whole.shape[1])
            ways = {"path": unit.jacobian(point, tokens=(-1, -1)), "whole": whole.restrict(last, last)}
            found = {way: measured(J) for way, J in ways.items()}
            rows[unit.name] = {
                "operations": {way: operations for way, (operations, _) in found.items()},
                "seconds": {way: float(f"{seconds:.3g}") for way, (_, seconds) in found.items()},
                "times_fewer_operations": float(f"{found['whole'][0] / found['path'][0]:.3g}"),
                "times_faster": float(f"{found['whole'][1] / found['path'][1]:.3g}"),
            }
        return rows

    rows = phases.run("path", work, cotangents=COTANGENTS)
    if rows is not None:
        phases.add("path", units=rows)


def _dense(trunk: Any, point: Any, coupling: Any, phases: Phases) -> None:
    """What a block adds at the last token, with respect to its entry there."""
    members = [(f, f + 1) for f in range(0, len(trunk.units), 2)]

    def work() -> list[Tensor]:
        found = []
        for first, last in members:
            span = trunk.span(first, last)
            function, entry = span.bound(point), span.argument(point)

            def of_last(state: Tensor, function: Any = function, entry: Tensor = entry) -> Tensor:
                whole = torch.cat([entry[:, :-1], state[None, None]], 1)
                return (function(whole) - whole)[0, -1]

            with torch.no_grad():
                J = torch.func.jacrev(of_last, chunk_size=CHUNK)(entry[0, -1])
                found.append(torch.linalg.svd(J)[1][:LEADING].cpu())
        return found

    found = phases.run("dense", work)
    if found is not None and coupling is not None:
        ours = torch.from_numpy(coupling["value"].values[:, 0, 0])
        theirs = torch.stack(found).double()
        phases.add("dense", difference=float(f"{float(((ours - theirs).abs().amax(1) / ours[:, 0]).max()):.2g}"))
        for name in ("alignment", "coupling"):
            seconds = phases.result["phases"]["dense"]["seconds"] / phases.result["phases"][name]["seconds"]
            phases.add(name, times_faster_than_dense=float(f"{seconds:.3g}"))


def _lens(trunk: Any, point: Any, rows: int, weights: int, tokens: int, phases: Phases) -> None:
    chain = chain_of(trunk, point)
    places = [chain.place(link.unit) for link in chain.links if link.unit is not None]
    sweep = Sweep(chain.at(point), places, list(range(tokens)), Arithmetic(torch.bfloat16))
    sweep.rows([0, 1])  # what is loaded once
    blocks = min(rows, sweep.block())

    def work() -> int:
        for start in range(0, rows, blocks):
            sweep.rows(range(start, min(start + blocks, rows)))
        return rows

    if phases.run("lens", work, rows=rows) is not None and phases.device.type == "cuda":
        bound = 2 * weights * tokens * rows / (SHARE_OF_RATE * RATE)
        seconds = phases.result["phases"]["lens"]["seconds"]
        phases.add("lens", bound_seconds=float(f"{bound:.3g}"), times_the_bound=float(f"{seconds / bound:.3g}"))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rows", type=int, default=512, help="of the lens")
    parser.add_argument("--blocks", type=int, help="another number than the shape has")
    parser.add_argument("--seconds", type=float, default=150, help="after which no phase starts")
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args(arguments)
    shape = SHAPES[chosen.shape]
    if chosen.blocks is not None:
        shape = replace(shape, blocks=chosen.blocks)
    device = torch.device(chosen.device)
    phases = Phases(chosen.shape, device, chosen.seconds, chosen.out)
    measure(shape, device, chosen.tokens, chosen.rows, phases)
    print(json.dumps(phases.result, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
