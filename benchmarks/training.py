"""Steps per second of training small residual networks: a captured step against an eager one, in one run.

    python benchmarks/training.py --depths 20 56 110 --batch 128 > results.json

Random images of 3 x 32 x 32 on the GPU. Speed is meant to be read as ratios within one run; the first epoch, which
holds the warm-up and the capture, is not counted.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
from typing import Any

import torch

import skipscope as ss
from skipscope.data.dataset import Images
from skipscope.models.resnet import ResNet
from skipscope.training import Settings, train


def steps_per_second(depth: int, split: Images, settings: Settings, graph: bool, channels_last: bool) -> float:
    torch.manual_seed(0)
    model = ResNet(depth, channels=(16, 32, 64), input_channels=3, classes=10).to(split.device)
    history = train(model, split, settings, graph=graph, channels_last=channels_last)
    return len(split) // settings.batch / statistics.median(history.seconds[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--depths", type=int, nargs="+", default=[20, 56, 110])
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=50, help="an epoch")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--augmentation", default="crop-flip")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("a CUDA graph needs a GPU, and torch sees none")

    count = options.steps * options.batch
    split = Images(torch.rand(count, 3, 32, 32, device="cuda"), torch.randint(10, (count,), device="cuda"))
    rows: list[dict[str, Any]] = []
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
    about = {
        "skipscope": ss.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": torch.cuda.get_device_name(),
        "tf32_convolutions": torch.backends.cudnn.allow_tf32,
        "batch": options.batch,
        "augmentation": options.augmentation,
    }
    print(json.dumps({"about": about, "rows": rows}, indent=2))


if __name__ == "__main__":
    main()
