"""What limits full spectra, triplets and Hessian products on a GPU, measured.

    python -m benchmarks.limits --weights docs/results/networks/resnet56-cifar-projection-seed1000.safetensors \\
        --images cifar10-test-images.pt

Full spectra: for every unit of the network, at the first image, the size p of the eigenproblem that the chosen route
leaves, and the seconds of skipscope, of the Gram matrix, and of cuSOLVER alone: `eigvalsh` of a random symmetric
matrix of that size. cuSOLVER reduces the matrix to a tridiagonal one by Householder reflections, one column at a time,
and each of them reads one triangle of what is left: p^3 / 6 numbers of 8 bytes in all, whose time at the bandwidth of
the memory is the floor. Two matrices in two threads and streams say whether a GPU has room for another beside one.

Triplets: the seconds of all kernels of `ss.svd`, beside those that it takes: the rest is the CPU, which starts them.

Hessian: the seconds of the kernels of a product with eight vectors, of convolutions and of everything else, beside the
seconds of curvlinops for as many; and the seconds of products with fewer vectors.

`--only` measures some of these, and leaves the others as they are.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

import skipscope as ss
from benchmarks.kit import Size
from benchmarks.machine import described
from benchmarks.rows.full_spectra import by_gram_matrix
from benchmarks.rows.hessians import by_curvlinops, network_and_batch
from benchmarks.rows.leading_triplets import TOLERANCE, K
from benchmarks.subjects import network_and_images, one_per_stage
from skipscope.numerics import measuring
from skipscope.spectrum.full import FEW_FOR_A_GPU, LAW_GAIN

RESULT = Path(__file__).parent / "results" / "limits.json"
BANDWIDTH = 4.3e12  # bytes per second of one H200: a copy from device to device, bytes read and written
IMAGES = 64  # of triplets
SIDE_BY_SIDE = (14_000, 3_500)  # sizes of two eigenproblems at once
VECTORS = 8
TIMES = 3  # that a product is repeated
LONGEST = 12  # kernels whose names are kept
# In the names of kernels that are no part of a convolution. `kernels` in the result has the longest ones of both kinds.
OTHERS = ("elementwise", "reduce_kernel", "Memcpy", "Memset", "batch_norm", "bn_fw", "softmax", "nll", "index", "Cat")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("this measures a GPU, and torch sees none")
    size = Size("gpu", "cuda", weights=options.weights, images=options.images)
    before = json.loads(options.out.read_text(encoding="utf-8")) if options.out.exists() else {}
    found: dict[str, Any] = {**before, "machine": described("cuda"), "bytes_per_second": BANDWIDTH}
    for name in options.only:
        found[name] = PARTS[name](size)
        options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(json.dumps({name: found[name]}, indent=1), flush=True)


def of_units(size: Size) -> list[dict[str, Any]]:
    model, images = network_and_images(size, 1)
    trunk = ss.trace(model, images)
    point = trunk.at(images)
    smallest = trunk.stages[-1].units[-1].jacobian(point)
    for run in (ss.singular_values, by_gram_matrix):  # loads kernels
        run(smallest)
    return [_of_unit(unit, point) for unit in trunk.units]


def _of_unit(unit: ss.Unit, point: Any) -> dict[str, Any]:
    route, size = route_and_size(unit, point)
    J, matrix = unit.jacobian(point), symmetric(size)
    seconds = {
        "skipscope": seconds_of(lambda: ss.singular_values(J)),
        "gram": seconds_of(lambda: by_gram_matrix(J)),
        "eigenvalues": seconds_of(lambda: torch.linalg.eigvalsh(matrix)),
        "floor": 8 * size**3 / 6 / BANDWIDTH,
    }
    return {"unit": unit.name, "route": route, "size": size, **{key: round(value, 4) for key, value in seconds.items()}}


def route_and_size(unit: ss.Unit, point: Any) -> tuple[str, int]:
    """As a GPU takes it: the law where that is smaller by enough, otherwise the rows that the last ReLU lets pass."""
    active = int((point.exit(unit) != 0).sum())
    known = unit.jacobian(point).known_spectrum()
    if known is not None and active > FEW_FOR_A_GPU and (reduced := 2 * int(known.rank[0])) < LAW_GAIN * active:
        return "law", reduced
    return "gram", active


def of_two_at_once(size: Size) -> list[dict[str, float]]:
    found = []
    for side in SIDE_BY_SIDE:
        matrices = [symmetric(side) for _ in range(2)]
        in_threads(matrices)  # loads what every thread needs of its own
        after = seconds_of(partial(list, map(torch.linalg.eigvalsh, matrices)))
        beside = seconds_of(partial(in_threads, matrices))
        found.append({"size": side, "one_after_another": round(after, 4), "at_once": round(beside, 4)})
    return found


def of_triplets(size: Size) -> list[dict[str, Any]]:
    from torch.profiler import ProfilerActivity, profile

    model, images = network_and_images(size, IMAGES)
    trunk = ss.trace(model, images[:2])
    point = trunk.at(images)
    found = []
    for name in one_per_stage(trunk):
        J = trunk[name].jacobian(point)

        def run(J: Any = J) -> ss.SVD:
            return ss.svd(J, K, tol=TOLERANCE, route="iterative")

        steps = int(run().iterations.max())  # loads kernels, and captures products
        seconds = seconds_of(run)
        with profile(activities=[ProfilerActivity.CUDA]) as profiled:
            run()
            torch.cuda.synchronize()
        kernels = sum(kernel.self_device_time_total for kernel in profiled.key_averages()) / 1e6
        found.append({"unit": name, "seconds": round(seconds, 4), "kernels": round(kernels, 4), "steps": steps})
    return found


def in_threads(matrices: Iterable[torch.Tensor]) -> None:
    def eigenvalues(matrix: torch.Tensor) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.linalg.eigvalsh(matrix)

    with ThreadPoolExecutor() as pool:
        list(pool.map(eigenvalues, matrices))


def of_a_hessian(size: Size) -> dict[str, Any]:
    """Seconds for each vector."""
    from torch.profiler import ProfilerActivity, profile

    model, batch = network_and_batch(size)
    H, other = ss.Hessian(model, nn.CrossEntropyLoss(), [batch]), by_curvlinops(model, batch)
    vectors = torch.randn(H.shape[1], VECTORS, device=size.device)

    def ours() -> None:
        H.matmat(vectors[None])

    def theirs() -> None:
        with measuring():
            other @ vectors

    def repeated(run: Callable[[], Any]) -> float:
        run()  # loads kernels, and chooses them
        return seconds_of(lambda: [run() for _ in range(TIMES)]) / TIMES

    def of_ours(count: int) -> float:
        return repeated(lambda: H.matmat(vectors[None, :, :count]))

    def of_theirs(count: int) -> float:
        with measuring():
            return repeated(lambda: other @ vectors[:, :count])

    for run in (ours, theirs):
        run()
    seconds = {"skipscope": seconds_of(ours), "curvlinops": seconds_of(theirs)}
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        ours()
        torch.cuda.synchronize()
    kernels = profiled.key_averages()
    found: dict[str, Any] = {name: round(value / VECTORS, 5) for name, value in seconds.items()}
    for name, chosen in (("convolutions", False), ("other kernels", True)):
        those = [kernel for kernel in kernels if any(word in kernel.key for word in OTHERS) == chosen]
        spent = {kernel.key: kernel.self_device_time_total / 1e6 / VECTORS for kernel in those}
        found[name] = round(sum(spent.values()), 5)
        longest = sorted(spent, key=lambda key: spent[key], reverse=True)[:LONGEST]
        found.setdefault("kernels", {})[name] = {key: round(spent[key], 6) for key in longest}
    found["seconds_of_a_product"] = {
        count: {name: round(run(count), 4) for name, run in (("skipscope", of_ours), ("curvlinops", of_theirs))}
        for count in (1, 2, 4, VECTORS)
    }
    return found


def symmetric(size: int) -> torch.Tensor:
    matrix = torch.randn(size, size, dtype=torch.float64, device="cuda")
    return matrix + matrix.mT


def seconds_of(run: Callable[[], Any]) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    run()
    torch.cuda.synchronize()
    return time.perf_counter() - start


PARTS: dict[str, Callable[[Size], Any]] = {
    "units": of_units,
    "side_by_side": of_two_at_once,
    "triplets": of_triplets,
    "hessian": of_a_hessian,
}

if __name__ == "__main__":
    main()
