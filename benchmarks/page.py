"""docs/benchmarks.md, from the committed results: nothing on it is written by hand but its explanations."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.kit import OURS
from skipscope.runs import write_whole

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "benchmarks.md"
PICTURE = ROOT / "docs" / "pictures" / "benchmarks-growth.png"
SETS = {"gpu": "On one GPU", "cpu": "On a CPU"}

INTRODUCTION = """# Benchmarks

<!-- written by python -m benchmarks page -->

skipscope beside its alternatives on the same work, in the same run: ways take turns, times are medians, and the answers
are compared. A ratio above 1 means that skipscope is that many times as fast. `make bench` runs the set for a CPU
(under 15 minutes on two cores), `make bench-gpu` the one for a GPU, `make bench-smoke` small cases of every row against
the committed ratios: it fails below half of one. *Multiplied*: the alternative ran on a part of the work, and its time
is that of the whole at the same rate. Memory is the peak beyond what was there before; each way has its own process.

| way | what it is |
|---|---|
| jacrev and svdvals | every row of the Jacobian by `torch.func.jacrev`, and `torch.linalg.svdvals`, in float32 |
| Gram matrix | the rows that are not zero, in float64, `eigvalsh` of A A^T and square roots |
| ARPACK | `scipy.sparse.linalg.svds` on products by `torch.func.jvp` and `vjp`, one image after another |
| Golub-Kahan | on skipscope's products, a single-vector recurrence for all images at once, without restarts |
| curvlinops | its `HessianLinearOperator`: as many products for a density, under SciPy's `eigsh` for eigenvalues |
| PyHessian | its own density and power iteration |

All ways compute without TF32, as skipscope does everywhere. With it, the default for convolutions on a GPU, products
are off by a thousandth; a way that has it says so.
"""

GROWTH = """## Growth

Exponents of a power law through the larger half of the sizes: 1 means that twice the size takes twice as long. Fixed
costs make an exponent smaller, and more iterations make it larger.

"""


LIMITS = """## What limits skipscope on a GPU

`python -m benchmarks.limits`, {machine}, torch {torch}. `benchmarks/results/limits.json`

**Full spectra.** Eigenvalues of a symmetric matrix begin with its reduction to a tridiagonal one. cuSOLVER does it in
one stage, column by column, and reads a triangle of what is left of the matrix each time: p^3 / 6 numbers of 8 bytes.
For the {count} units of the ResNet-56 above, at one image:

| | seconds |
|---|---|
| skipscope | {skipscope:.3g} |
| Gram matrix, assembly included | {gram:.3g} |
| cuSOLVER's eigenvalues alone, of random matrices of skipscope's sizes | {eigenvalues:.3g} |
| their memory traffic at {bandwidth:.2g} TB/s | {floor:.3g} |

The goals of 60 times and 2.5 times need {goal:.3g} s: less than the eigenvalues take alone. A reduction in two stages,
to a band and then to a tridiagonal matrix, is matrix products and could go below; PyTorch has none. There is little
room for a second matrix beside one, so that several images at once gain little: {side_by_side}.

{slower} of the {count} units are slower than the Gram matrix{most}: they have no smaller problem than it, and
skipscope adds products: those from the other side, which bound the error, and of large matrices some that are timed
beforehand, to warn of a long computation.

| unit | route | size p of the eigenproblem | skipscope, s | Gram matrix, s | eigenvalues alone, s |
|---|---|---|---|---|---|
{rows}

{triplets}**Hessian products.** A vector of a product with eight takes {ours:.1f} ms, with curvlinops {curvlinops:.1f}.
Convolutions are {convolutions:.1f} ms of it, other kernels {others:.1f}: cuDNN's convolutions without TF32 alone take
longer than half of curvlinops' time, so that twice its speed is out of reach with them.
{products}"""


BUSY = """## On a busy machine

Training steps of a batch of 128 beside processes that compute without a pause, in times of those with one thread.
Threads that spin while they wait are what torch has by default; skipscope lets them sleep (`OMP_WAIT_POLICY`, unless it
is set), and gives small work one thread.

"""


LANGUAGE = """## Language models

Llama shapes with random weights in bfloat16, Jacobians of the last token, `python -m benchmarks.language SHAPE`.
*dense* is `torch.func.jacrev` and `torch.linalg.svd` of every block, in float32; a row of the *lens* is compared with
2 P T operations at 40 % of the bfloat16 rate of an H200. *streamed* are blocks of a 30B shape whose weights are read
from files (*files* is the time to write these), within 20 GB for everything that a GPU holds.

"""


def put_between(page: Path, begin: str, end: str, text: str) -> None:
    """What a script writes into a page that is otherwise written by hand."""
    before, _, rest = page.read_text(encoding="utf-8").partition(begin)
    write_whole(page, f"{before}{begin}\n\n{text}\n\n{end}{rest.partition(end)[2]}".encode())


def write() -> None:
    growth = RESULTS / "growth-cpu.json"
    if growth.exists():
        draw(json.loads(growth.read_text(encoding="utf-8"))["growth"])
    PAGE.write_text(text(), encoding="utf-8")


def text() -> str:
    parts = [INTRODUCTION]
    for name, title in SETS.items():
        path = RESULTS / f"{name}.json"
        if path.exists():
            parts.append("\n".join(_section(title, json.loads(path.read_text(encoding="utf-8")))))
    limits = RESULTS / "limits.json"
    if limits.exists():
        parts.append(_limits(json.loads(limits.read_text(encoding="utf-8"))))
    growth = RESULTS / "growth-cpu.json"
    if growth.exists():
        parts.append(GROWTH + "\n".join(_growth(json.loads(growth.read_text(encoding="utf-8")))))
    busy = RESULTS / "busy-machine.json"
    if busy.exists():
        parts.append(BUSY + "\n".join(_busy(json.loads(busy.read_text(encoding="utf-8")))))
    shapes = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob("language-*.json"))]
    if shapes:
        parts.append(LANGUAGE + "\n".join(line for found in shapes for line in _language(found)))
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _section(title: str, results: Mapping[str, Any]) -> Iterator[str]:
    machine = results["machine"]
    loads = [row.get("load", machine["load"])[0] for row in results["rows"]]
    yield f"## {title}\n"
    yield (
        f"{machine.get('device') or machine['processor']}, {machine['cores']} cores, {machine['threads']} threads, "
        f"torch {machine['torch']}; load of the machine before a row: {' to '.join(_least_and_most(loads))}. "
        f"`benchmarks/results/{results['set']}.json`\n"
    )
    yield "| work | skipscope | alternative | times as fast | goal | answers differ by | products | peak memory |"
    yield "|---|---|---|---|---|---|---|---|"
    for row in results["rows"]:
        for place, (name, ratio) in enumerate(row["times_faster"].items()):
            marked = f"{name} (multiplied)" if name in row["multiplied"] else name
            cells = [
                row["work"] if not place else "",
                f"{row['seconds'][OURS]:.3g} s" if not place else "",
                f"{marked}, {row['seconds'][name]:.3g} s",
                f"**{ratio:.3g}**",
                f"{row['goals'][name]:.2g}" if name in row["goals"] else "",
                _difference(row, name, place),
                _pair(row["products"], name),
                _pair(row["peak_megabytes"], name, " MB"),
            ]
            yield f"| {' | '.join(cells)} |"


def _least_and_most(numbers: Sequence[float]) -> list[str]:
    return [f"{number:g}" for number in sorted({min(numbers), max(numbers)})]


def _difference(row: Mapping[str, Any], name: str, place: int) -> str:
    if name in row.get("errors", {}):
        return f"off by {row['errors'][name]:.0e}"
    return f"{row['difference']:.0e}" if not place or (place == 1 and row.get("errors")) else ""


def _limits(found: Mapping[str, Any]) -> str:
    results = json.loads((RESULTS / "gpu.json").read_text(encoding="utf-8"))
    row = next(row for row in results["rows"] if row["row"] == "full-spectra")
    units, hessian = (
        found["units"],
        {name: 1000 * value for name, value in found["hessian"].items() if isinstance(value, float)},
    )
    totals = {key: sum(unit[key] for unit in units) for key in ("skipscope", "gram", "eigenvalues", "floor")}
    beyond = [unit["skipscope"] / unit["gram"] - 1 for unit in units if unit["skipscope"] > unit["gram"]]
    return LIMITS.format(
        machine=found["machine"]["device"],
        torch=found["machine"]["torch"],
        count=len(units),
        bandwidth=found["bytes_per_second"] / 1e12,
        goal=max(row["seconds"][name] / goal for name, goal in row["goals"].items()),
        side_by_side="; ".join(
            f"two of {pair['size']:,} rows take {pair['at_once']:.3g} s at once and {pair['one_after_another']:.3g} s "
            "one after another"
            for pair in found["side_by_side"]
        ),
        slower=len(beyond),
        most=f", by up to {max(beyond):.0%}" if beyond else "",
        rows="\n".join(
            f"| {unit['unit']} | {unit['route']} | {unit['size']:,} | {unit['skipscope']:.3g} | {unit['gram']:.3g} | "
            f"{unit['eigenvalues']:.3g} |"
            for unit in units
        ),
        triplets=_of_triplets(found.get("triplets", [])),
        products=_of_products(found["hessian"].get("seconds_of_a_product", {})),
        ours=hessian["skipscope"],
        curvlinops=hessian["curvlinops"],
        convolutions=hessian["convolutions"],
        others=hessian["other kernels"],
        **totals,
    )


def _of_triplets(found: list[Mapping[str, Any]]) -> str:
    if not found:
        return ""
    rows = "; ".join(
        f"{row['kernels']:.3g} of {row['seconds']:.3g} s in {row['steps']} steps ({row['unit']})" for row in found
    )
    return f"**Triplets.** What the GPU computes of the ten largest of 64 images takes {rows}; the rest starts it.\n\n"


def _of_products(found: Mapping[str, Mapping[str, float]]) -> str:
    if not found:
        return ""
    rows = "\n".join(
        f"| {count} | {1000 * row['skipscope']:.1f} | {1000 * row['curvlinops']:.1f} |" for count, row in found.items()
    )
    return f"\n| vectors of a product | skipscope, ms | curvlinops, ms |\n|---|---|---|\n{rows}\n"


def _language(found: Mapping[str, Any]) -> Iterator[str]:
    machine = found["machine"]
    yield (
        f"{found['shape']}: {found.get('blocks', 0)} blocks, {found.get('weights_of_units', 0):,} weights in units, "
        f"{found.get('tokens', 0)} tokens; {machine.get('device') or machine['processor']}, torch {machine['torch']}\n"
    )
    yield "| phase | seconds | peak GiB | |"
    yield "|---|---|---|---|"
    for name, row in found["phases"].items():
        notes = [
            f"{row[key]:g} {words}"
            for key, words in (
                ("times_faster_than_dense", "times as fast as dense"),
                ("rows", "rows"),
                ("times_the_bound", "times the bound"),
                ("gigabytes", "GB"),
            )
            if key in row
        ]
        notes += [
            f"{unit}: {one['times_fewer_operations']:g} times fewer operations than the whole sequence, "
            f"{one['times_faster']:g} times as fast"
            for unit, one in row.get("units", {}).items()
        ]
        yield f"| {name} | {row['seconds']:.3g} | {row.get('peak_gibibytes', '')} | {'; '.join(notes)} |"
    yield ""


def _pair(numbers: Mapping[str, Any], name: str, unit: str = "") -> str:
    own, other = numbers.get(OURS), numbers.get(name)
    if own is None:
        return ""
    return f"{own:,} / {other:,}{unit}" if other is not None else f"{own:,}{unit}"


def _growth(found: Mapping[str, Any]) -> Iterator[str]:
    machine = found["machine"]
    yield "![Time and memory against the size of a question](pictures/benchmarks-growth.png)\n"
    yield f"{machine['processor']}, one thread, torch {machine['torch']}. `benchmarks/results/growth-cpu.json`\n"
    yield "| against | function | sizes | seconds | exponent | peak memory, MB | exponent |"
    yield "|---|---|---|---|---|---|---|"
    for row in found["growth"]:
        sizes, seconds, megabytes = (
            ", ".join(f"{value:g}" for value in row[key]) for key in ("sizes", "seconds", "megabytes")
        )
        yield (
            f"| {row['unit']} | `{row['function']}` | {sizes} | {seconds} | **{row['exponent_of_seconds']}** | "
            f"{megabytes} | **{row['exponent_of_memory']}** |"
        )


def _busy(found: Mapping[str, Any]) -> Iterator[str]:
    yield f"{found['machine']}, {found['cores']} cores. `benchmarks/results/busy-machine.json`\n"
    yield "| network | busy processes | one thread, ms | two that spin | two that sleep |"
    yield "|---|---|---|---|---|"
    for row in found["rows"]:
        spin, sleep = (row[f"threads that {how} / one thread"] for how in ("spin", "sleep"))
        alone = row["milliseconds with one thread"]
        yield f"| {row['network']} | {row['busy processes']} | {alone} | {spin} | {sleep} |"


def draw(rows: list[dict[str, Any]]) -> None:
    """Logarithms on both axes, with a dashed line of slope 1 through the last point."""
    from plotly.subplots import make_subplots

    titles = [row["function"] for row in rows]
    figure = make_subplots(2, len(rows), vertical_spacing=0.16, horizontal_spacing=0.055, column_titles=titles)
    for column, row in enumerate(rows, 1):
        for place, (key, title) in enumerate((("seconds", "seconds"), ("megabytes", "peak memory, MB")), 1):
            sizes, values = row["sizes"], row[key]
            linear = [values[-1] * size / sizes[-1] for size in sizes]
            figure.add_scatter(
                x=sizes, y=values, mode="lines+markers", line={"color": "#1f6feb"}, row=place, col=column
            )
            figure.add_scatter(
                x=sizes, y=linear, mode="lines", line={"color": "#999", "dash": "dash"}, row=place, col=column
            )
            below = row["unit"] if place == 2 else None
            figure.update_xaxes(type="log", tickformat=",d", tickvals=sizes[::2], title=below, row=place, col=column)
            beside = title if column == 1 else None
            figure.update_yaxes(
                type="log", tickformat=",.3~g", tickvals=[values[0], values[-1]], title=beside, row=place, col=column
            )
    figure.update_layout(showlegend=False, width=1300, height=560, template="plotly_white", margin={"t": 40, "r": 10})
    figure.write_image(PICTURE)
