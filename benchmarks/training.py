"""How fast small networks are trained. Speed is meant to be read as ratios within one run.

    python -m benchmarks.training --depths 20 56 110 --batch 128 > results.json

Steps per second of residual networks on a GPU: a captured step against an eager one. Random images of 3 x 32 x 32; the
first epoch, which holds the warm-up and the capture, is not counted.

    python -m benchmarks.training --fleet 32 --network type1-mnist-w64-b16 > results.json

A fleet of networks on the CPU against the same networks one after another, in alternation: seconds, and seconds of the
processor, which a busy machine changes less. 3000 random images of the size that the network takes.

    python -m benchmarks.training --side-by-side 8 --depths 56 110 --usual-workers 4 12 > results.json

Networks side by side on a GPU, in bfloat16, against the loop that most programs have, which trains one network in
float32 from a DataLoader with so many workers: images per second of all networks together, both with batches of 128
and the same augmentation, on as many random images of CIFAR-10's size.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch

import skipscope as ss
from benchmarks.machine import processor
from skipscope.data.dataset import Images
from skipscope.models import names
from skipscope.models.resnet import ResNet
from skipscope.training import FleetMember, Settings, train, train_fleet


def steps_per_second(depth: int, split: Images, settings: Settings, graph: bool, channels_last: bool) -> float:
    torch.manual_seed(0)
    model = ResNet(depth, channels=(16, 32, 64), input_channels=3, classes=10).to(split.device)
    history = train(model, split, settings, graph=graph, channels_last=channels_last)
    return len(split) // settings.batch / statistics.median(history.seconds[1:])


def fleet_rows(options: argparse.Namespace) -> list[dict[str, Any]]:
    """One per round: the same networks one after another, then as a fleet."""
    shape, classes = (names.parse(options.network)[key] for key in ("input_shape", "classes"))
    split = Images(torch.rand(options.images, *shape), torch.randint(classes, (options.images,)))
    settings = Settings(epochs=options.epochs, batch=options.batch, rate=0.01)
    rows: list[dict[str, Any]] = []
    for number in range(options.rounds):
        networks = []
        for seed in range(options.fleet):
            torch.manual_seed(seed)
            networks.append(FleetMember(names.build(options.network), split, replace(settings, seed=seed)))
        alone = copy.deepcopy(networks)
        one_by_one, one_by_one_processor = timed(partial(train_one_by_one, alone))
        together, together_processor = timed(partial(train_fleet, networks))
        rows.append(
            {
                "round": number,
                "one_by_one_seconds": round(one_by_one, 2),
                "fleet_seconds": round(together, 2),
                "ratio": round(one_by_one / together, 2),
                "one_by_one_processor_seconds": round(one_by_one_processor, 2),
                "fleet_processor_seconds": round(together_processor, 2),
                "processor_ratio": round(one_by_one_processor / together_processor, 2),
                "load": [round(load, 2) for load in os.getloadavg()],
            }
        )
        print(rows[-1], file=sys.stderr)
    return rows


class AsInTorchvision(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """Images in memory that become pictures, are changed and become tensors one by one, as torchvision's CIFAR10."""

    def __init__(self, pixels: torch.Tensor, labels: torch.Tensor) -> None:
        from torchvision import transforms

        self.pixels, self.labels = pixels.permute(0, 2, 3, 1).contiguous().numpy(), labels.tolist()
        self.change = transforms.Compose(
            [
                transforms.RandomCrop(32, padding=4),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
            ]
        )

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        from PIL import Image

        return self.change(Image.fromarray(self.pixels[index])), self.labels[index]


def usual_images_per_second(depth: int, split: Images, batch: int, workers: int, epochs: int) -> float:
    """The loop of most programs; the first epoch, in which workers start, is not counted."""
    torch.manual_seed(0)
    model = ResNet(depth, channels=(16, 32, 64), input_channels=3, classes=10).to("cuda").train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
    loader = torch.utils.data.DataLoader(
        AsInTorchvision(split.pixels.cpu(), split.labels.cpu()),
        batch,
        shuffle=True,
        num_workers=workers,
        pin_memory=True,
        drop_last=True,
        persistent_workers=True,
    )
    seconds = []
    for _ in range(epochs):
        start = time.perf_counter()
        for images, labels in loader:
            images, labels = images.to("cuda", non_blocking=True), labels.to("cuda", non_blocking=True)
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return len(loader) * batch / statistics.median(seconds[1:])


def fleet_images_per_second(depth: int, split: Images, settings: Settings, networks: int) -> float:
    """Of all networks together; the first epoch, in which steps are captured, is not counted."""
    members = []
    for seed in range(networks):
        torch.manual_seed(seed)
        model = ResNet(depth, channels=(16, 32, 64), input_channels=3, classes=10).to("cuda")
        members.append(FleetMember(model, split, replace(settings, seed=seed)))
    histories = train_fleet(members, compiled=networks > 1)
    # The seconds of a history are the member's share of the fleet's.
    each = [sum(history.seconds[epoch] for history in histories) for epoch in range(1, settings.epochs)]
    return networks * (len(split) // settings.batch) * settings.batch / statistics.median(each)


def side_by_side_rows(options: argparse.Namespace) -> list[dict[str, Any]]:
    count = options.steps * options.batch
    pixels = torch.randint(256, (count, 3, 32, 32), dtype=torch.uint8)
    split = Images(pixels, torch.randint(10, (count,)))
    settings = Settings(
        epochs=options.epochs, batch=options.batch, rate=0.01, precision="bfloat16", augmentation="crop-flip"
    )
    rows = []
    for depth in options.depths:
        usual = {
            workers: usual_images_per_second(depth, split, options.batch, workers, options.epochs)
            for workers in options.usual_workers
        }
        for networks in sorted({1, options.side_by_side}):
            found = fleet_images_per_second(depth, split, settings, networks)
            rows.append(
                {
                    "depth": depth,
                    "networks": networks,
                    "usual_images_per_second": {str(workers): round(rate) for workers, rate in usual.items()},
                    "fleet_images_per_second": round(found),
                    "ratio": round(found / max(usual.values()), 2),  # against the faster of the usual ones
                }
            )
            print(rows[-1], file=sys.stderr)
    return rows


def train_one_by_one(networks: list[FleetMember]) -> None:
    for member in networks:
        train(member.model, member.split, member.settings)


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds, and seconds of the processor."""
    start, used = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - start, time.process_time() - used


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--depths", type=int, nargs="+", default=[20, 56, 110])
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=50, help="an epoch")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--augmentation", default="crop-flip")
    parser.add_argument("--fleet", type=int, help="networks of a fleet on the CPU")
    parser.add_argument("--side-by-side", type=int, help="networks of a fleet on a GPU")
    parser.add_argument("--usual-workers", type=int, nargs="+", default=[4, 12], help="of the usual loop")
    parser.add_argument("--network", default="type1-mnist-w64-b16", help="of the fleet")
    parser.add_argument("--images", type=int, default=3000, help="of the fleet")
    parser.add_argument("--rounds", type=int, default=3, help="of the fleet")
    options = parser.parse_args()
    if options.fleet:
        rows = fleet_rows(options)
        about = {
            "skipscope": ss.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
            "processor": processor(),
            "cores": len(os.sched_getaffinity(0)),
            "threads": torch.get_num_threads(),
            **{key: getattr(options, key) for key in ("network", "fleet", "images", "batch", "epochs")},
            "median_ratio": statistics.median(row["ratio"] for row in rows),
            "median_processor_ratio": statistics.median(row["processor_ratio"] for row in rows),
        }
        print(json.dumps({"about": about, "rows": rows}, indent=2))
        return
    if not torch.cuda.is_available():
        sys.exit("a CUDA graph needs a GPU, and torch sees none; --fleet 32 runs on the CPU")

    rows = side_by_side_rows(options) if options.side_by_side else captured_rows(options)
    about = {
        "skipscope": ss.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": torch.cuda.get_device_name(),
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "tf32_convolutions": torch.backends.cudnn.allow_tf32,
        "batch": options.batch,
        "steps": options.steps,
        "augmentation": options.augmentation,
    }
    print(json.dumps({"about": about, "rows": rows}, indent=2))


def captured_rows(options: argparse.Namespace) -> list[dict[str, Any]]:
    count = options.steps * options.batch
    split = Images(torch.rand(count, 3, 32, 32, device="cuda"), torch.randint(10, (count,), device="cuda"))
    rows = []
    for depth in options.depths:
        for precision in ("float32", "bfloat16"):
            for channels_last in (True, False):
                settings = Settings(
                    epochs=options.epochs,
                    batch=options.batch,
                    rate=0.01,
                    precision=precision,
                    augmentation=options.augmentation,
                )
                eager, graphed = (
                    steps_per_second(depth, split, settings, graph, channels_last) for graph in (False, True)
                )
                rows.append(
                    {
                        "depth": depth,
                        "precision": precision,
                        "channels_last": channels_last,
                        "eager_steps_per_second": round(eager, 1),
                        "graphed_steps_per_second": round(graphed, 1),
                        "ratio": round(graphed / eager, 2),
                    }
                )
                print(rows[-1], file=sys.stderr)
    return rows


if __name__ == "__main__":
    main()
