"""C.theorems: products of many weights, with and without skips, as the paper's theorems have them.

    skipscope study run C.theorems --preset quick --out DIR

The paper proves for commuting weights that a PlainNet's last state collapses onto one direction (theorem 1) and that
those of ResNet and ResNeXt keep all directions (theorems 2 and 3, by approximations 16 and 22); that random weights are
not singular (proposition 1); and that the condition number of the inputs bounds how errors in them move the weights
(proposition 3). It posits that a PlainNet would train with weights whose leading eigenvalues are hardly larger than the
others.

We expect the exact sums of all three theorems, to rounding. The collapse too, but only with one leading direction in
all layers and a gap that does not close with depth. Not so approximation 16: it leaves out what the other directions
gain, and holds where the residual network itself collapses, or does nothing. What skips do is in the condition number,
of products I + s W2 W1 as of those without: at He's scale it grows past what float64 can hold either way, and with any
fixed s it grows exponentially with depth, slowly where s is small. Condition numbers are those of exact products, which
float64 cannot compute; what it does compute is reported besides.

For proposition 3 we derive the exact largest ratio, 1 / (1 - cond eps), which is attained; with targets that the
weights do not fit, it can be exceeded. Every PlainNet is trained as in C.accuracy, at each of a few learning rates, and
the best one counts for its seed. Orthogonal weights have equal singular values; so have He weights whose singular
values were made equal, which is the same distribution. Reported besides: linear units, no norms, and weights that are
constrained to orthogonal matrices throughout training, the strictest regularisation towards equal singular values.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from skipscope.errors import InputError
from skipscope.papers.c import PAPER
from skipscope.papers.c.checks import commuting_weights, equal_values, perturbed_inputs, random_weights
from skipscope.papers.c.checks.commuting_weights import LED
from skipscope.papers.c.checks.random_weights import TENTH
from skipscope.papers.c.claims import decided_by
from skipscope.papers.c.subjects import TwinSettings
from skipscope.papers.kit.bench import Bench
from skipscope.papers.kit.study import Evidence, Study

if TYPE_CHECKING:
    import xarray

LARGEST = 80  # width of random products
HOLDS = 0.1  # an error of approximation 16 up to which it is said to hold


@dataclass(frozen=True)
class TheoremsSettings:
    draws: int = 20  # of eigenvalues, of products and of perturbations
    size: int = 20  # n
    layers: int = 60  # of networks with commuting weights
    units: tuple[int, ...] = (1, 2, 5, 10, 20, 50, 110)  # of products of random matrices
    matrices: int = 1000  # of proposition 1, for each kind and size
    data: str = "mnist"
    samples: int | None = 3000  # these, epochs, schedule and rates as in C.accuracy, which trains some of them too
    test_samples: int | None = 2000
    depth: int = 60  # of PlainNets that are trained
    epochs: int = 12
    schedule: str = "constant"
    rates: tuple[float, ...] = (0.1, 0.01, 0.001)
    networks: int = 3  # seeds of those that are judged
    besides: int = 1  # seeds of the others

    def __post_init__(self) -> None:
        for key in ("draws", "layers", "matrices", "networks", "besides"):
            if getattr(self, key) < 1:
                raise InputError(f"{key}: expected at least 1, got {getattr(self, key)}")
        if self.size > LARGEST:
            raise InputError(f"size: expected at most {LARGEST}, whose products take gigabytes, got {self.size}")
        if self.size < 3 or not self.units or min(self.units) < 1 or not self.rates:
            raise InputError(
                f"expected a size of at least 3, numbers of units of at least 1 and a learning rate, "
                f"got {self.size}, {self.units} and {self.rates}"
            )
        assert self.plan  # which says what is wrong with the numbers of the training

    @property
    def plan(self) -> TwinSettings:
        shared = ("samples", "test_samples", "epochs", "schedule", "rates", "networks", "besides")
        return equal_values.plan(self.data, self.depth, **{name: getattr(self, name) for name in shared})


def run(bench: Bench, settings: TheoremsSettings) -> Evidence:
    seed, draws, size, layers = bench.seed, settings.draws, settings.size, settings.layers
    drawn = {"draws": draws, "size": size, "layers": layers, "seed": seed}
    parts = {
        "sums": partial(commuting_weights.sums, **drawn),
        "collapse": partial(commuting_weights.collapse, **drawn),
        "powers": partial(commuting_weights.powers, layers=layers),
        "approximation": partial(commuting_weights.approximation, **drawn),
        "paths": partial(commuting_weights.paths, **drawn),
        "products": partial(random_weights.products, draws=draws, size=size, units=settings.units, seed=seed),
        "moments": partial(random_weights.moments, size=5 * size, units=10 * size, seed=seed),
        "singularity": partial(random_weights.singularity, draws=settings.matrices, sizes=(2, size), seed=seed),
        "perturbations": partial(perturbed_inputs.perturbations, draws=draws, size=size, seed=seed),
        "ranks": partial(perturbed_inputs.ranks, size=size, seed=seed),
        "training": partial(equal_values.training, bench, settings.plan),
        "kept": partial(equal_values.kept, bench, settings.plan),
    }
    return evidence(**{name: bench.part(name, compute) for name, compute in parts.items()})


def evidence(
    *,
    sums: xarray.Dataset,
    collapse: xarray.Dataset,
    powers: xarray.Dataset,
    approximation: xarray.Dataset,
    paths: xarray.Dataset,
    products: xarray.Dataset,
    moments: xarray.Dataset,
    singularity: xarray.Dataset,
    perturbations: xarray.Dataset,
    ranks: xarray.Dataset,
    training: xarray.Dataset,
    kept: xarray.Dataset,
) -> dict[str, dict[str, Any]]:
    """`powers` and `ranks` are shown alone."""
    last = collapse["cosine"].isel(layer=-1)
    return {
        "C9": {
            "cosine of last state and leading eigenvector": last.sel(case=LED).values.tolist(),
            "largest eigenvalue ratio": float(collapse["ratio"].sel(case=LED).max()),
            "relative error of the exact sum": float(sums["error"].values[sums["kind"].values == "PlainNet"].max()),
            **{
                f"median cosine, {case}": float(last.sel(case=case).median())
                for case in collapse["case"].values
                if case != LED
            },
        },
        "C10": _approximated(sums, approximation, paths),
        "C11": _conditioned(products, moments),
        "C12": _moved(perturbations),
        "C13": _never_singular(singularity),
        "C16": _trained(training, kept),
    }


def _approximated(sums: xarray.Dataset, approximation: xarray.Dataset, paths: xarray.Dataset) -> dict[str, Any]:
    holds = approximation.isel(case=approximation["bounded"].values <= HOLDS)
    unordered = paths.isel(case=paths["ratio_of_sums"].values > 1)
    return {
        "relative error of approximation 16": approximation["bounded"].values.tolist(),
        "median error relative to the state alone, by case": approximation["error"].values.tolist(),
        "relative error of the exact sums": float(sums["error"].values[sums["kind"].values != "PlainNet"].max()),
        "cases where it holds": [
            f"{signs}, {scale:g}: cosine {cosine:.3f}, log10 cond {cond:.2g}"
            for signs, scale, cosine, cond in zip(
                *(holds[key].values for key in ("signs", "scale", "cosine", "log10_condition")), strict=True
            )
        ],
        "relative error of approximation 22, paths ordered and their sums not": float(unordered["bounded"].median()),
    }


def _conditioned(products: xarray.Dataset, moments: xarray.Dataset) -> dict[str, Any]:
    last = products.isel(units=-1)
    infinity = float(products.attrs["numerical_infinity"])
    skips = last["log10_condition"]
    return {
        "units": int(last["units"]),
        "log10 cond / numerical infinity, He scale": (skips.sel(scale=1.0) - infinity).values.tolist(),
        "log10 cond / numerical infinity, without skips": (last["log10_condition_plain"] - infinity).values.tolist(),
        "log10 cond / numerical infinity, a tenth of He scale": (skips.sel(scale=TENTH) - infinity).values.tolist(),
        "log10 cond that float64 computes, He scale": float(last["float64"].sel(scale=1.0).median()),
        "median log10 cond by scale": {
            f"{scale:g}": float(skips.sel(scale=scale).median()) for scale in products["scale"].values
        },
        "largest relative error of the moments at fixed c": float(
            abs(moments["measured"] / moments["formula"] - 1).max()
        ),
    }


def _moved(perturbations: xarray.Dataset) -> dict[str, Any]:
    fits = perturbations.isel(case=perturbations["kind"].values != "residual")
    allowed = 1 + 10 * fits["condition"] * fits["size"]
    random = perturbations.isel(case=perturbations["kind"].values == "random")
    return {
        "largest of left / right side / (1 + 10 cond eps)": float((fits["ratio"] / allowed).max()),
        "largest ratio to first order": float(fits["first_order"].max()),
        "largest ratio / (1 / (1 - cond eps))": float((fits["ratio"] / fits["largest"]).max()),
        "largest ratio, random changes": float(random["ratio"].max()),
        "largest ratio, targets that the weights do not fit": float(
            perturbations["ratio"].values[perturbations["kind"].values == "residual"].max()
        ),
    }


def _never_singular(singularity: xarray.Dataset) -> dict[str, Any]:
    continuous = singularity.isel(case=singularity["entries"].values != "signs")
    signs = singularity.isel(case=singularity["entries"].values == "signs")
    return {
        "singular draws": int(continuous["singular"].sum()),
        "draws": int(continuous["draws"].sum()),
        "smallest singular value": float(continuous["smallest"].min()),
        "share of singular matrices of signs, by size": {
            str(int(size)): float(share)
            for size, share in zip(signs["size"].values, (signs["singular"] / signs["draws"]).values, strict=True)
        },
    }


def _trained(training: xarray.Dataset, kept: xarray.Dataset) -> dict[str, Any]:
    found: dict[str, Any] = {"seeds": int(training.attrs["networks"])}
    for data in (training, kept):
        best = data["train_accuracy"].max("rate")
        for network in data["network"].values:
            found[f"train accuracy, PlainNet, {network}"] = best.sel(network=network).dropna("seed").values.tolist()
    return found


FULL = TheoremsSettings(
    draws=100,
    units=(1, 2, 5, 10, 20, 50, 110, 200),
    samples=None,
    test_samples=None,
    epochs=10,
    schedule="cosine",
    networks=3,
    besides=1,
)
STUDY = Study(
    PAPER,
    "theorems",
    paper_found="Deep products of weights collapse onto one direction; with skips all directions stay.",
    we_expect="The exact sums hold, approximation 16 does not; skips condition products well if branches are small.",
    presets={
        "smoke": TheoremsSettings(
            draws=3,
            size=8,
            units=(1, 5, 110),
            matrices=250,
            data="digits",
            samples=150,
            depth=4,
            epochs=1,
            rates=(0.01,),
            networks=3,
        ),
        "quick": TheoremsSettings(),
        "full": FULL,
        "paper": dataclasses.replace(FULL, depth=110, epochs=30),
    },
    cost={
        "smoke": "seconds",
        "quick": "3 to 4 minutes on one core, most of it training",
        "full": "minutes on one GPU",
        "paper": "as full, with the paper's 110 layers: more than 10 minutes on one GPU",
    },
    run=run,
    claims=decided_by("C.theorems"),
)
