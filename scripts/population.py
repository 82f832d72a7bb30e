"""Networks that differ in nothing but their seed, trained side by side on one device: the population of paper D.

    python scripts/population.py --data cifar10:PATH --device cuda --out runs/population --seconds 540

Trains 5 ResNet-56 and 5 ResNet-110 with projections, each in a process of its own, and writes for each the float32
weights (NAME-seedS.safetensors) and its numbers (NAME-seedS.json). A network is the one that `skipscope train NAME
--seed S` makes with the same recipe (--recipe 2: another schedule and decay). After --seconds every process stops by
itself, at its last whole epoch; the same command goes on from there, and passes over what is finished. The exit status
is 3 while something is left to do.

One small network fills a part of a GPU only. Processes share it in turns, unless the CUDA Multi-Process Service runs
(`nvidia-cuda-mps-control -d`): then their kernels run at the same time. Do not kill processes under it; --seconds is
the way to end them.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import multiprocessing
import os
import sys
import time
from pathlib import Path
from typing import Any

# Both with a rate of 0.1 that rises for 5 epochs. 1: half a cosine; 2: a tenth at 50 % and again at 75 % of the epochs.
RECIPES = (1, 2)
NETWORKS = ("resnet110-cifar-projection", "resnet56-cifar-projection")
SEEDS = range(1000, 1005)
SAY_EVERY = 30  # seconds
LEFT_OVER = 3  # exit status


class TimeIsUp(Exception):  # noqa: N818 - the name says what happened
    """Ends a training; its checkpoint has the last whole epoch."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, metavar="NAME:PATH")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--networks", nargs="+", default=NETWORKS, metavar="NAME")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--recipe", type=int, default=1, choices=RECIPES)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--samples", type=int, help="of the training images, a fifth as many to test: for a trial")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    options = parser.parse_args()
    options.deadline = time.time() + options.seconds
    options.out.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # as many processes as networks
    context = multiprocessing.get_context("spawn")
    each = [(name, seed) for name in options.networks for seed in options.seeds]
    workers = [context.Process(target=train_one, args=(options, *one)) for one in each]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    left = [one for one, worker in zip(each, workers, strict=True) if worker.exitcode != 0]
    for name, seed in left:
        print(f"not finished: {name}, seed {seed}")
    sys.exit(LEFT_OVER if left else 0)


def train_one(options: argparse.Namespace, name: str, seed: int) -> None:
    import torch
    from safetensors.torch import save

    import skipscope
    from skipscope.data import load
    from skipscope.runs.files import as_json, write_whole
    from skipscope.training import Settings, accuracy
    from skipscope.training.networks import Network

    title = f"{name}-seed{seed}"
    place, numbers = options.out / f"{title}.safetensors", options.out / f"{title}.json"
    if numbers.exists():  # written last
        return
    data = load(options.data)
    if options.samples is not None:
        data = data.subset(samples=options.samples, test_samples=options.samples // 5)
    settings = Settings(
        epochs=options.epochs,
        batch=128,
        rate=0.1,
        **schedule(options.recipe, options.epochs),
        warmup=min(5, options.epochs - 1),
        nesterov=True,
        augmentation="crop-flip",
        precision="bfloat16",
        seed=seed,
    )
    network = Network(name, data, settings, seed, options.device)
    model = network.initial()
    try:
        history, _ = network.train(model, place, Clock(title, settings, options.deadline))
    except TimeIsUp:
        sys.exit(LEFT_OVER)
    model.eval()
    about: dict[str, Any] = {
        "network": name,
        "seed": seed,
        "data": data.describe(),
        "settings": dataclasses.asdict(settings),
        "train_accuracy": accuracy(model, data.train),  # in evaluation mode, images as they are
        "test_accuracy": accuracy(model, data.test),
        "seconds": sum(history.seconds),
        "versions": {"skipscope": skipscope.__version__, "torch": torch.__version__},
        "history": history.to_dict(),
    }
    if str(options.device).startswith("cuda"):
        about["device"] = torch.cuda.get_device_name()
    state = {key: value.detach().cpu().contiguous() for key, value in model.state_dict().items()}
    header = {key: about[key] for key in ("network", "seed", "settings", "test_accuracy")}
    content = save(state, {"skipscope": json.dumps(header)})
    write_whole(place, lambda path: path.write_bytes(content))
    write_whole(numbers, lambda path: path.write_text(as_json(about) + "\n"))
    print(f"{title}: finished, {about['test_accuracy']:.2%} of the test images right", flush=True)


def schedule(recipe: int, epochs: int) -> dict[str, Any]:
    if recipe == 1:
        return {"schedule": "cosine", "weight_decay": 5e-4}
    return {"schedule": "step", "milestones": (epochs // 2, epochs * 3 // 4), "weight_decay": 1e-4}


class Clock:
    """Says how fast a training is, and ends it when the time is up."""

    def __init__(self, title: str, settings: Any, deadline: float) -> None:
        self._title, self._settings, self._deadline = title, settings, deadline
        self._said: tuple[float, int] | None = None

    def __call__(self, done: int, total: int) -> None:
        """The host runs ahead of a GPU by less than an epoch."""
        now = time.time()
        if self._said is None:
            self._said = now, done
        since, before = self._said
        late = now > self._deadline
        if late or now - since > SAY_EVERY:
            rate = (done - before) * self._settings.batch / max(now - since, 1e-9)
            epoch = done * self._settings.epochs / total
            print(f"{self._title}: epoch {epoch:.1f} of {self._settings.epochs}, {rate:.0f} images/s", flush=True)
            self._said = now, done
        if late:
            raise TimeIsUp


if __name__ == "__main__":
    main()
