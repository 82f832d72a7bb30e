"""A training in two processes, with and without a monitor; each process writes what it ended with.

torchrun --nproc-per-node 2 -m tests.monitor.processes KIND OUT [watch]
"""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn

import skipscope as ss
from tests.monitor.loops import BATCH, X, Y, small_model

STEPS = 6


def main(kind: str, out: Path, watch: bool) -> None:
    distributed.init_process_group("gloo")
    rank = distributed.get_rank()
    torch.set_num_threads(1)
    plain = small_model(dropout=0.0)
    for module in plain.modules():
        if isinstance(module, nn.BatchNorm1d):
            module.momentum = 0.5
    twin = copy.deepcopy(plain)
    model = wrapped(kind, plain)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    monitor = watching(kind, model, twin, optimizer, out) if watch else None
    losses = []
    for step in range(STEPS):
        torch.manual_seed(10 * step + rank)
        chosen = torch.randint(len(X), (BATCH,))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(X[chosen]), Y[chosen])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if monitor is not None:
            monitor.step(loss)
    if monitor is not None:
        monitor.close()
    weights = {name: whole(value) for name, value in whole_state(kind, model).items()}
    torch.save({"losses": losses, "weights": weights}, out / f"{'watched' if watch else 'alone'}-{rank}.pt")
    distributed.barrier()
    distributed.destroy_process_group()


def wrapped(kind: str, model: nn.Module) -> nn.Module:
    if kind == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    if kind == "fsdp2":
        from torch.distributed.fsdp import fully_shard

        mesh = distributed.device_mesh.init_device_mesh("cpu", (2,))
        for block in model[1:-1]:
            fully_shard(block, mesh=mesh)
        return fully_shard(model, mesh=mesh)
    from torch.distributed.fsdp import FullyShardedDataParallel

    for place in range(1, len(model) - 1):
        model[place] = FullyShardedDataParallel(model[place], device_id=torch.device("cpu"))
    return FullyShardedDataParallel(model, device_id=torch.device("cpu"))


def watching(kind: str, model: nn.Module, twin: nn.Module, optimizer: torch.optim.Optimizer, out: Path) -> ss.Monitor:
    measures = ["sizes", "singular", "sharpness"]
    options: dict[str, Any] = {"targets": Y[:8], "optimizer": optimizer, "out": out / "run"}
    if kind == "ddp":
        return ss.Monitor(model, X[:8], 2, measures, None, **options)
    return ss.Monitor(twin, X[:8], 2, measures, None, follow=model, **options)


def whole_state(kind: str, model: nn.Module) -> dict[str, Any]:
    if kind != "fsdp1":
        return model.state_dict()
    from torch.distributed.fsdp import FullyShardedDataParallel

    with FullyShardedDataParallel.summon_full_params(model):
        both = [*model.named_parameters(), *model.named_buffers()]
        return {name: value.detach().clone() for name, value in both}


def whole(value: Any) -> torch.Tensor:
    return value.full_tensor() if hasattr(value, "full_tensor") else value.detach().clone()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), len(sys.argv) > 3)
