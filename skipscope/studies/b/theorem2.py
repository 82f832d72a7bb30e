"""B.theorem2: the loss around zero weights, closed form against differentiation that does not know it.

    skipscope study run B.theorem2 --preset quick --out DIR

The paper finds that shortcuts of depth 2 are special. At zero weights their Hessian consists of copies of one matrix
M = S^XX - S^YX, so that its condition number is that of M at every depth; with shortcuts of depth 1 it explodes with
depth, and from depth 3 on gradient and Hessian vanish. Hence zero is a saddle that 2-shortcut networks leave and deeper
ones do not.

We expect the forms to hold to rounding, for all smooth activations. Not so for the true ReLU: at exact zero automatic
differentiation gives a Hessian of 0, and near zero the blocks depend on which entries are active, not on M / 2. Nor
with biases: they add zeros to the spectrum. The growth for depth 1 depends on M: like R in simple cases, like R^2
with jumps where some of its eigenvalues are complex, as they are on MNIST, and it can be faster still. It is judged
from R = 4 on: with whitened inputs the condition number is 1 at R = 1, and a single jump would pass for growth.

Random data for what is differentiated; MNIST whitened to 10 components with one-hot targets for the known numbers,
which depend on the signs of the components: each has its largest entry positive, and all other signs are reported too.
From the paper's 0.01 times Xavier's weights no network with shortcuts of depth 4 or more gains anything within the
paper's 1000 steps: all stay at zero, or leave it and diverge. So they are trained from 0.1 times Xavier's weights as
well, and that is what decides.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy
import torch
import torch.nn.functional as F
from torch import Tensor

from skipscope.data import whiten
from skipscope.errors import InputError
from skipscope.models import Moments, Samples, ShortcutSpec, initial_weights, shortcut_hessian
from skipscope.models.shortcut_loss import loss_of
from skipscope.numerics import seed_of
from skipscope.studies.b.theorem1 import table
from skipscope.studies.bench import Bench
from skipscope.studies.study import Evidence, Study
from skipscope.theory import hessian_at_zero, hessian_from_moments
from skipscope.theory.hessian_at_zero import identity
from skipscope.training import train_ensemble

if TYPE_CHECKING:
    import xarray

MEASURE = "theory_zero_weights"
MANY = 4  # units from which on growth is judged
NOISE = 1e14  # condition numbers above it are rounding
COMPONENTS = 10
SAMPLES = 40  # of random data
UNITS = 3  # of networks that are differentiated automatically
SPECTRUM_UNITS = 4
LARGEST = 4096  # parameters up to which all eigenvalues are computed
DIRECTIONS = 8  # in which the loss is followed from zero
DEPTHS = (1, 2, 3, 4, 5)  # n
STEPS = numpy.logspace(-5, -1, 33)  # t
VISIBLE = (1e-11, 1e-4)  # changes over the loss at zero: above rounding, and too small for higher powers to matter
ZERO = 1e-10  # of the largest eigenvalue
ROUNDING = 1e-9  # of an imaginary part that is none
RELU_SAMPLES = 5000  # whitened ones: the Hessian of a network with ReLUs takes them one by one
DEEP = (4, 5, 6)  # n of the networks that are trained, all of this many layers:
LAYERS = 60
STARTS = (0.01, 0.1)  # times Xavier's weights: the paper's, and the one that decides

Activation = Callable[[Tensor], Tensor]


def smooth_relu(x: Tensor) -> Tensor:
    """0 at 0, with slope 1/2."""
    return (x + (x**2 + 1).sqrt() - 1) / 2


def twice_tanh(x: Tensor) -> Tensor:
    return 2 * torch.tanh(x)


def thrice_sin(x: Tensor) -> Tensor:
    return 3 * torch.sin(x)


ACTIVATIONS: dict[str, tuple[Activation, Activation, Activation]] = {  # pre, mid, post
    "linear": (identity, identity, identity),
    "tanh": (torch.tanh, torch.tanh, torch.tanh),
    "softplus, 2 tanh, 3 sin": (F.softplus, twice_tanh, thrice_sin),
    "ReLU, smoothed ReLU, linear": (torch.relu, smooth_relu, identity),
}


@dataclass(frozen=True)
class Theorem2Settings:
    data: str = "mnist"  # whitened
    sizes: tuple[int, ...] = (3, 6, 10)  # widths of networks on random data
    sets: int = 3  # of random data, for the growth with R
    units: tuple[int, ...] = (1, 2, 4, 8, 16, 32)  # R
    networks: int = 3  # seeds of those that are trained
    rates: tuple[float, ...] = (0.1, 0.3, 1.0, 3.0)
    steps: int = 600

    def __post_init__(self) -> None:
        if not self.sizes or len(self.units) < 2 or not self.rates:
            raise InputError("expected a size, two numbers of units and a learning rate, or more of each")
        if min(*self.sizes, *self.units, self.sets, self.networks, self.steps) < 1:
            raise InputError("expected sizes, units, sets, networks and steps of at least 1")


def run(bench: Bench, settings: Theorem2Settings) -> Evidence:
    data = bench.data(settings.data)
    bench.note(
        f"the losses of B23 are from {STARTS[1]:g} times Xavier's weights: from the paper's {STARTS[0]:g} no shortcut "
        "of depth 4 or more leaves zero, so that their losses are alike (reported)"
    )

    @cache
    def samples() -> Samples:
        white = whiten(data, COMPONENTS)
        return Samples(white.x.to(bench.device), white.y.to(bench.device))

    return evidence(
        forms=bench.part("forms", lambda: _forms(bench, settings)),
        conditions=bench.part("conditions", lambda: _conditions(bench, settings, data.name, samples())),
        whitened=bench.part("whitened", lambda: _whitened(data.name, samples())),
        spectrum=bench.part("spectrum", lambda: _spectrum(data.name, samples())),
        stationarity=bench.part("stationarity", lambda: _stationarity(bench)),
        relu=bench.part("relu", lambda: _relu(bench, settings, data.name, samples())),
        biases=bench.part("biases", lambda: _biases(bench, settings)),
        escape=bench.part("escape", lambda: _escape(bench, settings, data.name, samples())),
    )


def evidence(
    *,
    forms: xarray.Dataset,
    conditions: xarray.Dataset,
    whitened: xarray.Dataset,
    spectrum: xarray.Dataset,
    stationarity: xarray.Dataset,
    relu: xarray.Dataset,
    biases: xarray.Dataset,
    escape: xarray.Dataset,
) -> dict[str, dict[str, Any]]:
    two, one = (forms.isel(case=(forms["n"] == n).values) for n in (2, 1))
    turning = int(conditions["complex"].sum())
    many = conditions.sel(units=conditions["units"] >= MANY)
    deep = stationarity.sel(n=stationarity["n"] >= 3)
    return {
        "B1": {
            "largest difference of Hessian and block form": float(two["hessian_error"].max()),
            "networks compared": two.sizes["case"],
        },
        "B2": _flat(conditions.sel(n=2), whitened),
        "B3": {
            "largest difference of Hessian and form for n = 1": float(one["hessian_error"].max()),
            "slope of log cond(H) over log R, n = 1": [
                slope(many["units"].values, row) for row in many["condition"].sel(n=1).values
            ],
            "M with complex eigenvalues": f"{turning} of {conditions.sizes['data']}",
        },
        "B4": {
            "norm of the Hessian at zero, n >= 3": deep["hessian"].values.tolist(),
            "slope of log |L(t u) - L(0)| over log t, minus n": (
                stationarity["slope"] - stationarity["n"]
            ).values.tolist(),
        },
        "B5": {
            "norm of the Hessian at exact zero": relu["at_zero"].max().item(),
            "cond(H) at 0.01 Xavier": relu["condition"].values.ravel().tolist(),
            "cond(H) at 0.01 Xavier / cond(M)": (relu["condition"] / relu["condition_of_M"]).values.ravel().tolist(),
            "largest difference of Hessian and form of slope 1/2, over its largest entry": float(relu["error"].max()),
        },
        "B21": {
            "largest difference of Hessian and block form on the weights": float(biases["error"].max()),
            "zero eigenvalues beyond those without biases, minus d R": (
                biases["zeros"] - biases["zeros_without"] - biases["size"] * biases["units"]
            ).values.tolist(),
            "cond(H) with biases": math.inf if bool((biases["zeros"] > 0).all()) else "finite",
            "cond(H) without the zeros / cond(M)": (
                biases["condition_without_zeros"] / biases["condition_of_M"]
            ).values.tolist(),
        },
        "B23": _saddle(two, spectrum, escape),
    }


def _flat(two: xarray.Dataset, whitened: xarray.Dataset) -> dict[str, Any]:
    cond, name = two["condition"], str(whitened.attrs["data"])
    signs = whitened["condition_by_signs"]
    return {
        "relative spread of cond(H) over R": float((cond.max("units") / cond.min("units") - 1).max()),
        "relative difference of cond(H) and cond(M)": float(abs(cond / two["condition_of_M"] - 1).max()),
        f"cond(H) on {name_of(name)} with {COMPONENTS} components": float(cond.sel(data=name).max()),
        "with the 10th percentile for the smallest eigenvalue": float(whitened["percentile_condition"]),
        "over all signs": [float(signs.min()), float(signs.max())],
        "loss at the identity": float(whitened["loss_at_identity"]),
        "lowest loss of a linear map": float(whitened["lowest_loss"]),
    }


def _saddle(two: xarray.Dataset, spectrum: xarray.Dataset, escape: xarray.Dataset) -> dict[str, Any]:
    """The eigenvalues of all cases with n = 2; of the trained networks those at their best learning rate."""
    lowest = [*two["lowest"].values, float(spectrum["value"].sel(n=2).min())]
    largest = [*two["largest_singular"].values, float(spectrum.attrs["largest_singular"])]
    paper, decides = (best_rate(escape.sel(start=start)) for start in STARTS)
    ratios = {n: decides["loss"].sel(n=n) / decides["loss"].sel(n=4) for n in DEEP[1:]}
    return {
        "seeds": escape.sizes["network"],
        "smallest eigenvalue at zero, n = 2": max(lowest),
        "|smallest eigenvalue + largest singular value of M|": max(
            abs(a + b) for a, b in zip(lowest, largest, strict=True)
        ),
        **{f"final loss, {n}-shortcut / 4-shortcut": ratio.values.tolist() for n, ratio in ratios.items()},
        "final loss, 4-shortcut": decides["loss"].sel(n=4).values.tolist(),
        "best learning rates for n = 4, 5, 6": decides["rate"].values.tolist(),
        "smallest share of the loss at zero that is left, from 0.01 Xavier": float(
            paper["loss"].min() / escape.attrs["loss_at_zero"]
        ),
    }


def best_rate(losses: xarray.Dataset) -> xarray.Dataset:
    """The losses (n, network) at the learning rate, of each n, whose mean loss is the lowest."""
    means = losses["loss"].mean("network").fillna(math.inf)
    return losses.sel(rate=means.idxmin("rate")).transpose("n", "network")


def slope(x: numpy.ndarray, y: numpy.ndarray) -> float:
    """Of log y over log x, where there is a y."""
    seen = numpy.isfinite(y)
    return float(numpy.polyfit(numpy.log(x[seen]), numpy.log(y[seen]), 1)[0]) if seen.sum() > 1 else math.nan


def name_of(data: str) -> str:
    return {"mnist": "MNIST"}.get(data, data)


# -- what is measured


def _random(bench: Bench, size: int, *purpose: int | str) -> Samples:
    generator = torch.Generator("cpu").manual_seed(seed_of("theorem 2", bench.seed, size, *purpose))
    x, y = torch.randn(2, SAMPLES, size, dtype=torch.float64, generator=generator, device="cpu").to(bench.device)
    return Samples(x, y)


def _symmetric(bench: Bench, size: int) -> Samples:
    """White inputs whose targets are a symmetric map of them: M is symmetric, and has real eigenvalues."""
    data = _random(bench, size, "symmetric")
    x = torch.linalg.qr(data.x).Q * math.sqrt(SAMPLES)
    return Samples(x, x @ (data.y[:size] + data.y[:size].T) / 2)


def _zeros(spec: ShortcutSpec, like: Tensor) -> Tensor:
    return like.new_zeros(spec.depth, spec.width, spec.width)


def _forms(bench: Bench, settings: Theorem2Settings) -> xarray.Dataset:
    rows: list[dict[str, Any]] = []
    for size, n, (name, (pre, mid, post)) in itertools.product(settings.sizes, (1, 2), ACTIVATIONS.items()):
        data = _random(bench, size, name)
        form = hessian_at_zero(data.x.T, data.y.T, units=UNITS, n=n, pre=pre, mid=mid, post=post)
        spec = ShortcutSpec(n * UNITS, size, n, pre, mid, post)
        seen = shortcut_hessian(spec, _zeros(spec, data.x), data, route="autograd")
        errors = form.check(seen.matrix, seen.gradient)
        rows.append(
            {
                "n": n,
                "size": size,
                "activations": name,
                "hessian_error": errors.hessian,
                "gradient_error": errors.gradient,
                "eigenvalue_error": errors.eigenvalues,
                "lowest": float(torch.linalg.eigvalsh(seen.matrix)[0]),
                "largest_singular": abs(form.slope) * float(torch.linalg.matrix_norm(form.M, 2)),
            }
        )
    return table("case", range(len(rows)), rows, measure=MEASURE, part="forms", units=UNITS)


def _conditions(bench: Bench, settings: Theorem2Settings, name: str, white: Samples) -> xarray.Dataset:
    """Of linear networks at zero, from all eigenvalues of the Hessian; NaN where there are too many."""
    import xarray

    sizes = [size for size in settings.sizes if size < COMPONENTS] or list(settings.sizes)
    each = [sizes[k % len(sizes)] for k in range(settings.sets)]
    sets = {f"random {k + 1}, d = {size}": _random(bench, size, k) for k, size in enumerate(each)}
    sets |= {"random, symmetric M": _symmetric(bench, sizes[0]), name: white}
    found = numpy.full((len(sets), 2, len(settings.units)), numpy.nan)
    of_m, turning = [], []
    for place, (label, data) in enumerate(sets.items()):
        moments = Moments.of(data)
        M = moments.sxx - moments.syx
        of_m.append(float(torch.linalg.cond(M)))
        turning.append(float(torch.linalg.eigvals(M).imag.abs().max()) > ROUNDING)
        for n, (column, units) in itertools.product((1, 2), enumerate(settings.units)):
            spec = ShortcutSpec(n * units, data.width, n)
            bench.steps(f"condition numbers of {n}-shortcut networks on {label}")(column, len(settings.units))
            if spec.parameters <= LARGEST:
                found[place, n - 1, column] = _condition(shortcut_hessian(spec, _zeros(spec, M), moments).matrix)
    return xarray.Dataset(
        {
            "condition": (("data", "n", "units"), found),
            "condition_of_M": ("data", of_m),
            "complex": ("data", turning),
        },
        {"data": list(sets), "n": [1, 2], "units": list(settings.units)},
        {"measure": MEASURE, "part": "conditions"},
    )


def _condition(hessian: Tensor) -> float:
    """Infinite where the smallest eigenvalue is noise."""
    magnitudes = torch.linalg.eigvalsh(hessian).abs()
    ratio = float(magnitudes.max() / magnitudes.min())
    return ratio if ratio < NOISE else math.inf


def _whitened(name: str, white: Samples) -> xarray.Dataset:
    """Numbers of the data; cond(M) for all signs of the components."""
    import xarray

    moments = Moments.of(white)
    choices = list(itertools.product((1.0, -1.0), repeat=COMPONENTS))
    signs = torch.tensor(choices, dtype=torch.float64, device=white.x.device)
    sxx = signs[:, :, None] * moments.sxx * signs[:, None, :]
    values = torch.linalg.svdvals(sxx - moments.syx * signs[:, None, :])
    form = hessian_from_moments(moments.sxx, moments.syx, units=1)
    return xarray.Dataset(
        {
            "condition": form.condition_number,
            "percentile_condition": form.percentile_condition(),
            "lowest_loss": moments.lowest_loss,
            "loss_at_identity": float(white.loss(white.x)[0]),
            "condition_by_signs": ("signs", (values[:, 0] / values[:, -1]).cpu().numpy()),
        },
        attrs={"measure": MEASURE, "part": "whitened", "data": name, "samples": len(white.x)},
    )


def _spectrum(name: str, white: Samples) -> xarray.Dataset:
    import xarray

    moments = Moments.of(white)
    specs = {n: ShortcutSpec(n * SPECTRUM_UNITS, COMPONENTS, n) for n in (1, 2)}
    values = numpy.full((2, specs[2].parameters), numpy.nan)
    for n, spec in specs.items():
        hessian = shortcut_hessian(spec, _zeros(spec, moments.sxx), moments).matrix
        values[n - 1, : spec.parameters] = torch.linalg.eigvalsh(hessian).cpu().numpy()
    largest = float(torch.linalg.matrix_norm(moments.sxx - moments.syx, 2))
    return xarray.Dataset(
        {"value": (("n", "index"), values)},
        {"n": [1, 2]},
        {"measure": MEASURE, "part": "spectrum", "data": name, "units": SPECTRUM_UNITS, "largest_singular": largest},
    )


def _stationarity(bench: Bench) -> xarray.Dataset:
    """The loss at t u, root mean square over directions u with weights of norm 1; the Hessian at zero by autograd."""
    import xarray

    data = _random(bench, 3, "stationarity")
    at_zero = float(data.loss(data.x)[0])
    changes, slopes, norms = [], [], []
    for n in DEPTHS:
        spec = ShortcutSpec(2 * n, data.width, n, mid="tanh")
        u = torch.stack([initial_weights(spec, seed=seed_of(bench.seed, n, k)) for k in range(DIRECTIONS)]).to(data.x)
        u = u / u.norm(dim=(-2, -1), keepdim=True)
        losses = torch.stack([loss_of(spec, t * u, data) for t in STEPS.tolist()])
        change = (losses - at_zero).square().mean(1).sqrt().cpu().numpy() / at_zero
        seen = (change > VISIBLE[0]) & (change < VISIBLE[1])
        changes.append(change)
        slopes.append(slope(STEPS[seen], change[seen]))
        norms.append(float(shortcut_hessian(spec, _zeros(spec, data.x), data, route="autograd").matrix.norm()))
    return xarray.Dataset(
        {"change": (("n", "t"), numpy.array(changes)), "slope": ("n", slopes), "hessian": ("n", norms)},
        {"n": list(DEPTHS), "t": STEPS},
        {"measure": MEASURE, "part": "stationarity", "lowest": VISIBLE[0], "highest": VISIBLE[1]},
    )


def _relu(bench: Bench, settings: Theorem2Settings, name: str, white: Samples) -> xarray.Dataset:
    """Networks of two units with ReLUs in the middle, at and near zero, beside the formula with slope 1/2."""
    rows: list[dict[str, Any]] = []
    some = Samples(white.x[:RELU_SAMPLES], white.y[:RELU_SAMPLES])
    sets = {"random, d = 3": _random(bench, 3, "relu"), f"{name}, {len(some.x)} samples": some}
    for label, data in sets.items():
        spec = ShortcutSpec(4, data.width, mid="relu")
        form = hessian_at_zero(data.x.T, data.y.T, units=2, mid=torch.relu, relu_slope=0.5)
        at_zero = float(shortcut_hessian(spec, _zeros(spec, data.x), data).matrix.norm())
        for seed in bench.seeds(settings.networks):
            near = shortcut_hessian(spec, initial_weights(spec, "zero", seed).to(data.x), data).matrix
            rows.append(
                {
                    "data": label,
                    "seed": seed,
                    "at_zero": at_zero,
                    "condition": _condition(near),
                    "condition_of_M": form.condition_of_M,
                    "error": float((near - form.matrix).abs().max() / form.matrix.abs().max()),
                }
            )
    return table("case", range(len(rows)), rows, measure=MEASURE, part="relu")


def _biases(bench: Bench, settings: Theorem2Settings) -> xarray.Dataset:
    """The network of equation 3: a bias after the first weight of each unit."""
    rows: list[dict[str, float]] = []
    for size, units in itertools.product(settings.sizes[:2], (1, UNITS)):
        data = _random(bench, size, "biases", units)
        specs = [ShortcutSpec(2 * units, size, mid="tanh", bias=bias) for bias in (False, True)]
        forms = [hessian_at_zero(data.x.T, data.y.T, units=units, mid=torch.tanh, bias=bias) for bias in (False, True)]
        zeros = _zeros(specs[0], data.x)
        without = shortcut_hessian(specs[0], zeros, data, route="autograd").matrix
        biased = shortcut_hessian(specs[1], zeros, data, data.x.new_zeros(units, size), route="autograd").matrix
        unit = torch.arange(2 * size**2 + size, device=biased.device)
        weights = ((unit < size**2) | (unit >= size**2 + size)).repeat(units)
        magnitudes = torch.linalg.eigvalsh(biased).abs()
        kept = magnitudes[magnitudes > ZERO * magnitudes.max()]
        rows.append(
            {
                "size": size,
                "units": units,
                "error": float((biased[weights][:, weights] - forms[0].matrix).abs().max()),
                "whole_error": float((biased - forms[1].matrix).abs().max()),
                "zeros": _zero_eigenvalues(biased),
                "zeros_without": _zero_eigenvalues(without),
                "condition_without_zeros": float(kept.max() / kept.min()),
                "condition_of_M": forms[0].condition_of_M,
            }
        )
    return table("case", range(len(rows)), rows, measure=MEASURE, part="biases")


def _zero_eigenvalues(hessian: Tensor) -> int:
    magnitudes = torch.linalg.eigvalsh(hessian).abs()
    return int((magnitudes <= ZERO * magnitudes.max()).sum())


def _escape(bench: Bench, settings: Theorem2Settings, name: str, white: Samples) -> xarray.Dataset:
    """Linear networks of equal depth, trained from small weights: does gradient descent get away from zero?"""
    import xarray

    moments, seeds, rates = Moments.of(white), bench.seeds(settings.networks), settings.rates
    found = []
    for done, n in enumerate(DEEP):
        bench.steps("training n-shortcut networks from small weights")(done, len(DEEP))
        spec = ShortcutSpec(LAYERS, COMPONENTS, n)
        weights = torch.stack(
            [
                initial_weights(spec, "zero", seed, factor=start).to(white.x)
                for start, seed, _ in itertools.product(STARTS, seeds, rates)
            ]
        )
        each = list(rates) * (len(STARTS) * len(seeds))
        losses = train_ensemble(spec, weights, moments, each, settings.steps, record=[]).final_losses
        found.append(losses.reshape(len(STARTS), len(seeds), len(rates)).numpy())
    return xarray.Dataset(
        {"loss": (("n", "start", "network", "rate"), numpy.stack(found))},
        {"n": list(DEEP), "start": list(STARTS), "network": seeds, "rate": list(rates)},
        {
            "measure": MEASURE,
            "part": "escape",
            "data": name,
            "layers": LAYERS,
            "steps": settings.steps,
            "loss_at_zero": float(white.loss(white.x)[0]),
            "lowest_loss": moments.lowest_loss,
        },
    )


FULL = Theorem2Settings(
    sets=6, units=(1, 2, 3, 4, 6, 8, 12, 16, 24, 32), networks=5, rates=(0.03, 0.1, 0.3, 0.5, 1.0, 2.0, 3.0), steps=1000
)
THEOREM2 = Study(
    id="B.theorem2",
    title="The Hessian at zero weights: theorem 2",
    paper_found="With shortcuts of depth 2 the condition number at zero does not depend on depth; with 1 it explodes.",
    we_expect="All closed forms to rounding; not with the true ReLU, nor with biases, whose Hessians are singular.",
    presets={
        "smoke": Theorem2Settings("digits", (2, 3), sets=1, units=(1, 2), networks=1, rates=(0.3,), steps=3),
        "quick": Theorem2Settings(),
        "full": FULL,
        "paper": FULL,
    },
    cost={
        "smoke": "seconds",
        "quick": "a minute on 2 cores",
        "full": "a few minutes on 2 cores or one GPU",
        "paper": "as full: MNIST with 10 components is what the paper has",
    },
    run=run,
)
