"""Spectra of the units of a trained ResNet-56: our routes against torch's and SciPy's, in one run.

    python benchmarks/spectra.py --weights resnet56-cifar10.pt --images images.pt --device cuda --out results.json

weights: a state_dict of the CIFAR-10 ResNet-56 (names module.conv1, module.layer1.0.conv1, ..., module.linear).
images: a tensor of normalised test images, N x 3 x 32 x 32. Times are medians, errors against a float64 route of the
whole matrix. Speed is meant to be read as ratios within one run.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import skipscope as ss


class Block(nn.Module):
    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(after), nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.stride, self.extra = stride, (after - before) // 2

    def forward(self, x: Tensor) -> Tensor:
        skip = x
        if self.stride > 1:
            skip = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.extra, self.extra))
        return F.relu(skip + self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))


class ResNet56(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)
        widths = (16, 16, 32, 64)
        for stage in (1, 2, 3):
            blocks = [
                Block(widths[stage - 1] if i == 0 else widths[stage], widths[stage], 2 if i == 0 and stage > 1 else 1)
                for i in range(9)
            ]
            setattr(self, f"layer{stage}", nn.Sequential(*blocks))
        self.linear = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer3(self.layer2(self.layer1(F.relu(self.bn1(self.conv1(x))))))
        return self.linear(x.mean((2, 3)))


def timed(function: Callable[[], Any], device: str, repeats: int) -> tuple[float, Any]:
    seconds = []
    for _ in range(repeats):
        _synchronise(device)
        start = time.perf_counter()
        result = function()
        _synchronise(device)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds), result


def _synchronise(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def full_spectra(unit: Any, point: Any, device: str, repeats: int, slow: bool) -> list[dict[str, Any]]:
    J = unit.jacobian(point)
    n = J.shape[1]
    rows: list[dict[str, Any]] = []

    def add(name: str, function: Callable[[], Tensor], reference: Tensor | None = None, times: int = repeats) -> Tensor:
        seconds, values = timed(function, device, times)
        error = None if reference is None else float((values.cpu().double() - reference).abs().max())
        rows.append({"unit": unit.name, "n": n, "route": name, "seconds": seconds, "error": error})
        print(rows[-1], flush=True)
        return values

    dense = J.double().dense()[0]
    reference = None
    if n <= 4096:  # an SVD in float64 of the whole matrix: the reference
        driver = "gesvd" if device == "cuda" and n <= 2048 else None
        reference = add("svdvals float64", lambda: torch.linalg.svdvals(dense, driver=driver), times=1).cpu().double()
    if reference is None:
        reference = torch.linalg.eigvalsh(dense @ dense.mT).clamp_min(0).sqrt().flip(0).cpu()
    add("assembly float64", lambda: J.double().dense()[0].diagonal(), times=repeats)
    add(
        "eigvalsh of the Gram matrix",
        lambda: torch.linalg.eigvalsh(dense @ dense.mT).clamp_min(0).sqrt().flip(0),
        reference,
    )
    if slow:
        add("svdvals float32", lambda: torch.linalg.svdvals(dense.float()), reference, times=1)
    add("ss.singular_values (with assembly)", lambda: ss.singular_values(J).values[0], reference)
    add(
        "ss.singular_values route=gram (with assembly)",
        lambda: ss.singular_values(J, route="gram").values[0],
        reference,
    )
    found = ss.singular_values(J)
    rows.append(
        {
            "unit": unit.name,
            "n": n,
            "route": f"chosen: {found.routes[0]}",
            "bound": float(found.bound.max()),
            "zeros_at_least": int(found.zeros_at_least[0]),
            "ones_at_least": int(found.ones_at_least[0]),
            "zeros": int(found.zeros[0]),
            "ones": int(found.ones[0]),
        }
    )
    print(rows[-1], flush=True)
    return rows


def leading(unit: Any, point: Any, device: str, repeats: int) -> list[dict[str, Any]]:
    import scipy.sparse.linalg

    J = unit.jacobian(point)
    seconds, found = timed(lambda: ss.svd(J, k=10, route="iterative"), device, repeats)
    rows = [{"unit": unit.name, "route": "ss.svd k=10 float32", "seconds": seconds, "products": int(found.products[0])}]
    operator = J.to_scipy()
    seconds, values = timed(
        lambda: scipy.sparse.linalg.svds(operator, k=10, tol=1e-5, return_singular_vectors=False), device, 1
    )
    difference = float(abs(sorted(values, reverse=True) - found.S[0].cpu().numpy()).max())
    rows.append({"unit": unit.name, "route": "scipy svds k=10 float32", "seconds": seconds, "difference": difference})
    for row in rows:
        print(row, flush=True)
    return rows


def _processor() -> str:
    """The processor's name where the system tells it, and the architecture where it does not."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0]}, {len(names)} cores" if names else platform.machine()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--units", nargs="+", default=["layer3.4", "layer1.4"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--slow", action="store_true", help="also the routes that take a minute")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    state = torch.load(options.weights, map_location="cpu", weights_only=True)["state_dict"]
    model = ResNet56()
    model.load_state_dict({name.removeprefix("module."): value for name, value in state.items()})
    model = model.to(options.device).eval()
    images = torch.load(options.images, weights_only=True).to(options.device)[:1]
    trunk = ss.trace(model, images)
    point = trunk.at(images)
    rows = []
    for name in options.units:
        rows += full_spectra(trunk[name], point, options.device, options.repeats, options.slow)
        rows += leading(trunk[name], point, options.device, options.repeats)
    machine = torch.cuda.get_device_name() if options.device == "cuda" else _processor()
    result = {"machine": machine, "threads": torch.get_num_threads(), "torch": torch.__version__, "rows": rows}
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
