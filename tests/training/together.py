"""What each of several processes does in test_processes.py: train, and the main one writes what came out."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

from skipscope.training import At, Settings, train
from tests.training.nets import blobs, dropping_net, net, weights

SETTINGS = Settings(epochs=3, batch=16, label_smoothing=0.1, clip=1.0)

if __name__ == "__main__":
    torch.set_num_threads(1)
    out = Path(sys.argv[1])
    hook = At([0, 3], lambda model, epoch, history: {"loss": history.loss[-1:]}, name="loss")
    model, calls = dropping_net(), []
    history = train(
        model,
        blobs(),
        SETTINGS,
        test=blobs(31),
        hooks=[hook],
        checkpoint=out / "run.safetensors",
        save_every=0,
        progress=lambda done, total: calls.append(done),
    )
    rank = torch.distributed.get_rank()
    assert bool(calls) == (rank == 0)
    assert list(hook.results) == [0, 3]
    record = {name: torch.tensor(getattr(history, name)) for name in ("loss", "train_accuracy", "test_accuracy")}
    save_file({**weights(model), **record}, out / f"weights{rank}.safetensors")

    normed = net()  # batch norms see their own parts, and all processes end with the main one's statistics
    train(normed, blobs(), Settings(epochs=2, batch=16))
    save_file(weights(normed), out / f"normed{rank}.safetensors")
    torch.distributed.barrier()  # one that leaves early takes the others' connections with it
    torch.distributed.destroy_process_group()
    # All is written: the interpreter's own end may meet a thread of torch that is still there, and abort.
    os._exit(0)
