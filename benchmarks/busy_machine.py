"""Training steps on an idle machine and on one that is busy with other work: one thread, threads that spin while they
wait, and threads that sleep.

    python -m benchmarks.busy_machine --load 2 --out benchmarks/results/busy-machine.json

Every measurement is a process of its own, since the way to wait is read when torch is loaded. The other work is one
process per --load that computes without a pause. Times are medians of steps; read them as ratios to one thread beside
the same load.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NETWORKS = {"resnet20-digits": "digits", "resnet20-cifar": "cifar", "resnet60-digits-connected": "digits"}
BATCH = 128
WAYS = {"one thread": (1, "PASSIVE"), "threads that spin": (2, "ACTIVE"), "threads that sleep": (2, "PASSIVE")}
BUSY = "while True: sum(range(10000))"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--load", type=int, default=2, help="busy processes beside the training")
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--one", nargs=2, metavar=("NETWORK", "THREADS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(milliseconds(options.one[0], int(options.one[1]), options.steps)))
        return
    from benchmarks.machine import processor

    rows = [row for load in (0, options.load) for row in measured(load, options.steps, options.rounds)]
    found = {"machine": processor(), "cores": os.cpu_count(), "batch": BATCH, "rows": rows}
    if options.out:
        options.out.write_text(json.dumps(found, indent=1) + "\n")


def measured(load: int, steps: int, rounds: int) -> Iterator[dict[str, Any]]:
    for network in NETWORKS:
        times: dict[str, list[float]] = {way: [] for way in WAYS}
        with other_work(load):
            for _ in range(rounds):
                for way, (threads, policy) in WAYS.items():
                    times[way].append(in_a_process(network, threads, policy, steps))
        alone = statistics.median(times["one thread"])
        row = {
            "network": network,
            "busy processes": load,
            "milliseconds with one thread": round(alone, 2),
            **{f"{way} / one thread": round(statistics.median(own) / alone, 2) for way, own in times.items()},
        }
        print(row, flush=True)
        yield row


@contextmanager
def other_work(count: int) -> Iterator[None]:
    busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(count)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def in_a_process(network: str, threads: int, policy: str, steps: int) -> float:
    command = [sys.executable, "-m", "benchmarks.busy_machine", "--one", network, str(threads), "--steps", str(steps)]
    environment = {**os.environ, "OMP_WAIT_POLICY": policy}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return float(json.loads(run.stdout))


def milliseconds(network: str, threads: int, steps: int) -> float:
    import torch
    from torch.nn.functional import cross_entropy

    import skipscope as ss

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model = ss.build(network)
    shape = (1, 8, 8) if NETWORKS[network] == "digits" else (3, 32, 32)
    images, labels = torch.randn(BATCH, *shape), torch.randint(0, 10, (BATCH,))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    seconds = []
    for _ in range(steps + 2):
        start = time.perf_counter()
        optimizer.zero_grad()
        cross_entropy(model(images), labels).backward()
        optimizer.step()
        seconds.append(time.perf_counter() - start)
    return 1e3 * statistics.median(seconds[2:])


if __name__ == "__main__":
    main()
