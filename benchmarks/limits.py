"""What limits full spectra on a GPU: the memory traffic of reducing a symmetric matrix to a tridiagonal one.

    python -m benchmarks.limits --weights docs/results/networks/resnet56-cifar-projection-seed1000.safetensors \\
        --images cifar10-test-images.pt

For every unit of the network, at the first image: the size p of the eigenproblem that the chosen route leaves.
cuSOLVER's eigenvalues of a symmetric matrix begin with Householder reflections, one column at a time, and each of them
reads what is left of the matrix: p^3 / 3 numbers of 8 bytes in all, or half of that where only one triangle of the
symmetric matrix is read; which of the two cuSOLVER does was not measured. The seconds are those of whole matrices at
the bandwidth of the memory: an estimate of what this one-stage reduction takes, and twice its floor. Needs no GPU.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch

import skipscope as ss
from benchmarks.kit import Size
from benchmarks.subjects import resnet56
from skipscope.spectrum.full import FEW_FOR_A_GPU, LAW_GAIN

RESULT = Path(__file__).parent / "results" / "limits.json"
BANDWIDTH = 4.3e12  # bytes per second of one H200: a copy from device to device, bytes read and written


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--images", type=Path, required=True)
    options = parser.parse_args()
    model = resnet56(Size("gpu", weights=options.weights))
    images = torch.load(options.images, weights_only=True)[:1]
    trunk = ss.trace(model, images)
    point = trunk.at(images)
    units = []
    for unit in trunk.units:
        route, size = route_and_size(unit, point)
        units.append({"unit": unit.name, "route": route, "size": size, "seconds": round(traffic(size) / BANDWIDTH, 3)})
    total = sum(traffic(unit["size"]) for unit in units) / BANDWIDTH
    found = {"bytes_per_second": BANDWIDTH, "seconds": round(total, 2), "units": units}
    RESULT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(found, indent=1))


def route_and_size(unit: ss.Unit, point: Any) -> tuple[str, int]:
    """As a GPU takes it: the law where that is smaller by enough, otherwise the rows that the last ReLU lets pass."""
    active = int((point.exit(unit) != 0).sum())
    known = unit.jacobian(point).known_spectrum()
    if known is not None and active > FEW_FOR_A_GPU and (reduced := 2 * int(known.rank[0])) < LAW_GAIN * active:
        return "law", reduced
    return "gram", active


def traffic(size: int) -> float:
    return 8 * size**3 / 3


if __name__ == "__main__":
    main()
