"""Training by several processes, where `torchrun` or `accelerate launch` started them; one process is the plain case.

Every process takes its part of each batch, and gradients are averaged, so the sum over a batch is the one that a single
process would have computed. (Not so batch norms: each sees its own part, and the main process's running statistics
count.) accelerate finds the devices and wraps the model; its mixed precision is not used, because it is a setting of
the whole Python process. In a single process it is not even imported.
"""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import Tensor, nn

from skipscope.errors import InputError


class Processes:
    """One process, by itself."""

    rank = 0
    count = 1

    def __init__(self, model: nn.Module) -> None:
        self.device = next(model.parameters()).device

    @property
    def main(self) -> bool:
        """Whether this is the one that writes files and shows progress."""
        return self.rank == 0

    def part(self, chosen: Tensor) -> Tensor:
        """This process's share; shares of a batch have equal sizes where `count` divides it."""
        return chosen[self.rank :: self.count]

    def wrap(self, model: nn.Module) -> nn.Module:
        """The module to call in a training step."""
        return model

    def total(self, values: Tensor) -> Tensor:
        """The sum over all processes."""
        return values

    def agree(self, model: nn.Module) -> None:
        """Give every process the main one's buffers."""

    def wait(self) -> None:
        """Until all are here."""


class SeveralProcesses(Processes):
    def __init__(self, model: nn.Module) -> None:
        try:
            from accelerate import Accelerator, DistributedDataParallelKwargs
        except ImportError as error:
            raise InputError("training by several processes needs the package accelerate; install it") from error
        on_cpu = next(model.parameters()).device.type == "cpu"
        # Stochastic depth leaves out blocks, and the averaging of gradients would wait for theirs.
        wrapping = DistributedDataParallelKwargs(find_unused_parameters=True)
        self._accelerator: Any = Accelerator(cpu=on_cpu, mixed_precision="no", kwargs_handlers=[wrapping])
        self.rank, self.count = self._accelerator.process_index, self._accelerator.num_processes
        self.device = torch.device("cpu") if on_cpu else self._accelerator.device
        model.to(self.device)

    def wrap(self, model: nn.Module) -> nn.Module:
        return self._accelerator.prepare_model(model, device_placement=False)

    def total(self, values: Tensor) -> Tensor:
        return self._accelerator.reduce(values, "sum")

    def agree(self, model: nn.Module) -> None:
        for buffer in model.buffers():
            torch.distributed.broadcast(buffer, 0)

    def wait(self) -> None:
        self._accelerator.wait_for_everyone()


def launched() -> tuple[int, int]:
    """This process's number and the count of all, as the launcher's environment says."""
    count = int(os.environ.get("WORLD_SIZE", "1"))
    return (int(os.environ.get("RANK", "0")), count) if count > 1 else (0, 1)


def processes(model: nn.Module, batch: int) -> Processes:
    if launched()[1] < 2:
        return Processes(model)
    several = SeveralProcesses(model)
    if batch % several.count or batch // several.count < 2:
        raise InputError(
            f"training: {several.count} processes share a batch in equal parts of at least 2, got a batch of {batch}"
        )
    return several
