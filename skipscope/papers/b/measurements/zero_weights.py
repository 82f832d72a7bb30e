"""The Hessian at and near zero weights, by differentiation that knows no formula, beside its closed forms.

Each function gives one dataset of B.theorem2, which says what they are for. The ReLU has no derivative at zero: beside
its formula with a chosen slope stands what automatic differentiation makes of it.

Linear networks of equal depth are also trained from small weights: shortcuts of depths 4, 5 and 6, each at the learning
rate of its lowest mean loss. One grid for all of them, up to rates that diverge: losses that hardly differ, as where no
network leaves zero, are no reason to look no higher.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy
import torch
import torch.nn.functional as F
import xarray
from torch import Tensor

from skipscope.numerics import normal, random_numbers, seed_of
from skipscope.papers.b.learning_rates import best_rate, rate_of
from skipscope.papers.b.measurements.depth import log_slope
from skipscope.papers.b.networks import Moments, Samples, ShortcutSpec, initial_weights, shortcut_hessian, train_grid
from skipscope.papers.b.networks.hessian import LOG_CEILING, SMALL_QUANTILE, log_condition
from skipscope.papers.b.networks.loss import Data, loss_of
from skipscope.papers.b.subjects import ARCHITECTURES, COMPONENTS, WhitenedData
from skipscope.papers.b.theory import hessian_at_zero, hessian_from_moments
from skipscope.papers.b.theory.hessian_at_zero import identity
from skipscope.papers.kit.bench import Bench
from skipscope.papers.kit.claims import FIRST_JUDGED_SEED
from skipscope.papers.kit.tables import table

MEASURE_NAME = "theory_zero_weights"
RANDOM_SAMPLES = 40
DIFFERENTIATED_UNITS = 3  # of networks that are differentiated automatically
SPECTRUM_UNITS = 4
MOST_PARAMETERS = 4096  # up to which all eigenvalues are computed
DIRECTIONS = 8  # in which the loss is followed from zero
FOLLOWED_DEPTHS = (1, 2, 3, 4, 5)  # n
DISTANCES = numpy.logspace(-5, -1, 33)  # t
# Changes over the loss at zero that count: above rounding, and too small for higher powers to matter.
VISIBLE_CHANGES = (1e-11, 1e-4)
ZERO_EIGENVALUE = 1e-10  # of the largest one
IMAGINARY_ROUNDING = 1e-9  # an imaginary part that is none
RELU_SAMPLES = 5000  # whitened ones: the Hessian of a network with ReLUs takes them one by one
DEEP_RELU_SAMPLES = 1000  # the same for networks of up to 32 layers
SHORTCUT_DEPTHS = (4, 5, 6)  # n of the networks, all of this many layers:
LAYERS = 60
START_FACTORS = (0.01, 0.1)  # times Xavier's weights: the paper's, and the one that decides
RATE_DECADES = (-1.5, 1.0)  # from 0.1 times Xavier's weights all networks diverge well below the last rate

Activation = Callable[[Tensor], Tensor]


def smooth_relu(x: Tensor) -> Tensor:
    """0 at 0, with slope 1/2."""
    return (x + (x**2 + 1).sqrt() - 1) / 2


ACTIVATIONS: dict[str, tuple[Activation, Activation, Activation]] = {  # pre, mid, post
    "linear": (identity, identity, identity),
    "tanh": (torch.tanh, torch.tanh, torch.tanh),
    "softplus, 2 tanh, 3 sin": (F.softplus, lambda x: 2 * torch.tanh(x), lambda x: 3 * torch.sin(x)),
    "ReLU, smoothed ReLU, linear": (torch.relu, smooth_relu, identity),
}


def _random(bench: Bench, size: int, *purpose: int | str) -> Samples:
    numbers = random_numbers("theorem 2", bench.seed, size, *purpose)
    return Samples(*normal((2, RANDOM_SAMPLES, size), numbers, device=bench.device))


def _symmetric(bench: Bench, size: int) -> Samples:
    """White inputs whose targets are a symmetric map of them: M is symmetric, and has real eigenvalues."""
    data = _random(bench, size, "symmetric")
    x = torch.linalg.qr(data.x).Q * math.sqrt(RANDOM_SAMPLES)
    return Samples(x, x @ (data.y[:size] + data.y[:size].T) / 2)


def _zeros(spec: ShortcutSpec, like: Tensor) -> Tensor:
    return like.new_zeros(spec.depth, spec.width, spec.width)


def forms(bench: Bench, sizes: Sequence[int]) -> xarray.Dataset:
    rows: list[dict[str, Any]] = []
    for size, n, (name, (pre, mid, post)) in itertools.product(sizes, (1, 2), ACTIVATIONS.items()):
        data = _random(bench, size, name)
        form = hessian_at_zero(data.x.T, data.y.T, units=DIFFERENTIATED_UNITS, n=n, pre=pre, mid=mid, post=post)
        spec = ShortcutSpec(n * DIFFERENTIATED_UNITS, size, n, pre, mid, post)
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
    return table("case", range(len(rows)), rows, measure=MEASURE_NAME, part="forms", units=DIFFERENTIATED_UNITS)


def conditions(
    bench: Bench, white: WhitenedData, *, sizes: Sequence[int], sets: int, units: Sequence[int]
) -> xarray.Dataset:
    """Of linear networks at zero, from all eigenvalues of the Hessian; NaN where there are too many.

    sets: of random data, beside one with a symmetric M and the whitened data.
    """
    small = [size for size in sizes if size < COMPONENTS] or list(sizes)
    each = [small[k % len(small)] for k in range(sets)]
    every = {f"random {k + 1}, d = {size}": _random(bench, size, k) for k, size in enumerate(each)}
    every |= {"random, symmetric M": _symmetric(bench, small[0]), white.name: white.samples}
    found = numpy.full((len(every), 2, len(units)), numpy.nan)
    of_m, turning = [], []
    for place, (label, data) in enumerate(every.items()):
        moments = Moments.of(data)
        M = moments.sxx - moments.syx
        of_m.append(float(torch.linalg.cond(M)))
        turning.append(float(torch.linalg.eigvals(M).imag.abs().max()) > IMAGINARY_ROUNDING)
        cases = list(itertools.product((1, 2), enumerate(units)))
        for n, (column, count) in bench.each(f"condition numbers of n-shortcut networks on {label}", cases):
            spec = ShortcutSpec(n * count, data.width, n)
            if spec.parameters <= MOST_PARAMETERS:
                found[place, n - 1, column] = _condition(shortcut_hessian(spec, _zeros(spec, M), moments).matrix)
    return xarray.Dataset(
        {
            "condition": (("data", "n", "units"), found),
            "condition_of_M": ("data", of_m),
            "complex": ("data", turning),
        },
        {"data": list(every), "n": [1, 2], "units": list(units)},
        {"measure": MEASURE_NAME, "part": "conditions"},
    )


def _condition(hessian: Tensor) -> float:
    """Infinite where the smallest eigenvalue is noise."""
    magnitudes = torch.linalg.eigvalsh(hessian).abs()
    ratio = float(magnitudes.max() / magnitudes.min())
    return ratio if ratio < 10.0**LOG_CEILING else math.inf


def whitened(white: WhitenedData) -> xarray.Dataset:
    """Numbers of the data; cond(M) for all signs of the components."""
    samples, moments = white.samples, white.moments
    choices = list(itertools.product((1.0, -1.0), repeat=COMPONENTS))
    signs = torch.tensor(choices, dtype=torch.float64, device=samples.x.device)
    sxx = signs[:, :, None] * moments.sxx * signs[:, None, :]
    values = torch.linalg.svdvals(sxx - moments.syx * signs[:, None, :])
    form = hessian_from_moments(moments.sxx, moments.syx, units=1)
    return xarray.Dataset(
        {
            "condition": form.condition_number,
            "percentile_condition": form.percentile_condition(),
            "lowest_loss": moments.lowest_loss,
            "loss_at_identity": float(samples.loss(samples.x)[0]),
            "condition_by_signs": ("signs", (values[:, 0] / values[:, -1]).cpu().numpy()),
        },
        attrs={"measure": MEASURE_NAME, "part": "whitened", "data": white.name, "samples": len(samples.x)},
    )


def spectrum(white: WhitenedData) -> xarray.Dataset:
    moments = white.moments
    specs = {n: ShortcutSpec(n * SPECTRUM_UNITS, COMPONENTS, n) for n in (1, 2)}
    values = numpy.full((2, specs[2].parameters), numpy.nan)
    for n, spec in specs.items():
        hessian = shortcut_hessian(spec, _zeros(spec, moments.sxx), moments).matrix
        values[n - 1, : spec.parameters] = torch.linalg.eigvalsh(hessian).cpu().numpy()
    largest = float(torch.linalg.matrix_norm(moments.sxx - moments.syx, 2))
    return xarray.Dataset(
        {"value": (("n", "index"), values)},
        {"n": [1, 2]},
        {
            "measure": MEASURE_NAME,
            "part": "spectrum",
            "data": white.name,
            "units": SPECTRUM_UNITS,
            "largest_singular": largest,
        },
    )


def stationarity(bench: Bench) -> xarray.Dataset:
    """The loss at t u, root mean square over directions u with weights of norm 1; the Hessian at zero by autograd."""
    data = _random(bench, 3, "stationarity")
    at_zero = float(data.loss(data.x)[0])
    changes, slopes, norms = [], [], []
    for n in FOLLOWED_DEPTHS:
        spec = ShortcutSpec(2 * n, data.width, n, mid="tanh")
        u = torch.stack([initial_weights(spec, seed=seed_of(bench.seed, n, k)) for k in range(DIRECTIONS)]).to(data.x)
        u = u / u.norm(dim=(-2, -1), keepdim=True)
        losses = torch.stack([loss_of(spec, t * u, data) for t in DISTANCES.tolist()])
        change = (losses - at_zero).square().mean(1).sqrt().cpu().numpy() / at_zero
        seen = (change > VISIBLE_CHANGES[0]) & (change < VISIBLE_CHANGES[1])
        changes.append(change)
        slopes.append(log_slope(DISTANCES[seen], change[seen]))
        norms.append(float(shortcut_hessian(spec, _zeros(spec, data.x), data, route="autograd").matrix.norm()))
    return xarray.Dataset(
        {"change": (("n", "t"), numpy.array(changes)), "slope": ("n", slopes), "hessian": ("n", norms)},
        {"n": list(FOLLOWED_DEPTHS), "t": DISTANCES},
        {"measure": MEASURE_NAME, "part": "stationarity", "lowest": VISIBLE_CHANGES[0], "highest": VISIBLE_CHANGES[1]},
    )


def relu(bench: Bench, white: WhitenedData, *, networks: int) -> xarray.Dataset:
    """Networks of two units with ReLUs in the middle, at and near zero, beside the formula with slope 1/2."""
    rows: list[dict[str, Any]] = []
    some = white.first(RELU_SAMPLES)
    sets = {"random, d = 3": _random(bench, 3, "relu"), f"{white.name}, {len(some.x)} samples": some}
    for label, data in sets.items():
        spec = ShortcutSpec(4, data.width, mid="relu")
        form = hessian_at_zero(data.x.T, data.y.T, units=2, mid=torch.relu, relu_slope=0.5)
        at_zero = float(shortcut_hessian(spec, _zeros(spec, data.x), data).matrix.norm())
        for seed in bench.seeds(networks):
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
    return table("case", range(len(rows)), rows, measure=MEASURE_NAME, part="relu")


def relu_by_depth(bench: Bench, white: WhitenedData, *, networks: int, depths: Sequence[int]) -> xarray.Dataset:
    """log10 cond (architecture, depth, seed) before training, with the 10th percentile for the smallest eigenvalue.

    2-shortcut networks with ReLUs in the middle from 0.01 times Xavier's weights; linear ones from orthogonal weights,
    which the paper has beside them. Attribute `formula`: theorem 2's, of the same samples.
    """
    data = white.first(DEEP_RELU_SAMPLES)
    kinds: dict[str, tuple[str, str, Data]] = {
        "ReLU in the middle": ("2-shortcut", "relu", data),
        "orthogonal": ("orthogonal", "linear", Moments.of(data)),
    }
    seeds = bench.seeds(networks)
    found = numpy.full((len(kinds), len(depths), networks), numpy.nan)
    cases = list(itertools.product(enumerate(kinds.values()), enumerate(depths)))
    for (row, (name, kind, seen)), (column, depth) in bench.each("Hessians of networks by depth", cases):
        spec = ARCHITECTURES[name].spec(depth, kind)
        for place, seed in enumerate(seeds):
            weights = initial_weights(spec, ARCHITECTURES[name].init, seed, device=bench.device)
            magnitudes = torch.linalg.eigvalsh(shortcut_hessian(spec, weights, seen).matrix).abs()
            tenth = float(magnitudes.quantile(SMALL_QUANTILE))
            found[row, column, place] = float(log_condition(float(magnitudes.max()), tenth))
    form = hessian_at_zero(data.x.T, data.y.T, units=1, mid=torch.relu, relu_slope=0.5)
    return xarray.Dataset(
        {"log_condition": (("architecture", "depth", "seed"), found)},
        {"architecture": list(kinds), "depth": list(depths), "seed": seeds},
        {
            "measure": MEASURE_NAME,
            "part": "relu_by_depth",
            "data": white.name,
            "samples": len(data.x),
            "formula": math.log10(form.percentile_condition()),
        },
    )


def biases(bench: Bench, sizes: Sequence[int]) -> xarray.Dataset:
    """The network of equation 3, a bias after the first weight of each unit; with tanh, which has a slope at zero."""
    rows: list[dict[str, float]] = []
    for size, units in itertools.product(sizes[:2], (1, DIFFERENTIATED_UNITS)):
        data = _random(bench, size, "biases", units)
        specs = [ShortcutSpec(2 * units, size, mid="tanh", bias=bias) for bias in (False, True)]
        forms = [hessian_at_zero(data.x.T, data.y.T, units=units, mid=torch.tanh, bias=bias) for bias in (False, True)]
        zeros = _zeros(specs[0], data.x)
        without = shortcut_hessian(specs[0], zeros, data, route="autograd").matrix
        biased = shortcut_hessian(specs[1], zeros, data, data.x.new_zeros(units, size), route="autograd").matrix
        unit = torch.arange(2 * size**2 + size, device=biased.device)
        weights = ((unit < size**2) | (unit >= size**2 + size)).repeat(units)
        magnitudes = torch.linalg.eigvalsh(biased).abs()
        kept = magnitudes[magnitudes > ZERO_EIGENVALUE * magnitudes.max()]
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
    return table("case", range(len(rows)), rows, measure=MEASURE_NAME, part="biases")


def _zero_eigenvalues(hessian: Tensor) -> int:
    magnitudes = torch.linalg.eigvalsh(hessian).abs()
    return int((magnitudes <= ZERO_EIGENVALUE * magnitudes.max()).sum())


# -- does gradient descent get away from zero?


def escape(bench: Bench, data: WhitenedData, *, networks: int, steps: int, per_decade: int) -> xarray.Dataset:
    """Final losses (n, start, network, rate), infinite where one diverged. per_decade: learning rates.

    As many networks for the choice of the rates as for the judgement; the seeds of the first are the lower ones.
    """
    first, last = (round(decade * per_decade) for decade in RATE_DECADES)
    rates = [rate_of(k, per_decade) for k in range(first, last + 1)]
    seeds = bench.calibration_seeds(networks) + bench.seeds(networks)
    cases = list(itertools.product(SHORTCUT_DEPTHS, START_FACTORS))
    found = []
    for n, start in bench.each("training n-shortcut networks from small weights", cases):
        ended = train_grid(
            ShortcutSpec(LAYERS, COMPONENTS, n),
            data.moments,
            "zero",
            seeds=seeds,
            rates=rates,
            steps=steps,
            device=bench.device,
            factor=start,
            record=[],
        )
        found.append(ended.final_losses.numpy())
    shape = (len(SHORTCUT_DEPTHS), len(START_FACTORS), len(seeds), len(rates))
    return xarray.Dataset(
        {"loss": (("n", "start", "network", "rate"), numpy.reshape(found, shape))},
        {"n": list(SHORTCUT_DEPTHS), "start": list(START_FACTORS), "network": seeds, "rate": rates},
        {
            "measure": MEASURE_NAME,
            "part": "escape",
            "data": data.name,
            "layers": LAYERS,
            "steps": steps,
            "loss_at_zero": float(data.samples.loss(data.samples.x)[0]),
            "lowest_loss": data.moments.lowest_loss,
        },
    )


def at_best_rates(losses: xarray.DataArray) -> xarray.Dataset:
    """Losses (n, network) of the judged networks at the rate of each n's lowest mean over those of calibration.

    With that rate (n), and whether it is the first or last. Where all rates end alike (`flat`) none is best, and none
    on an edge.
    """
    judged = losses["network"].values >= FIRST_JUDGED_SEED
    every = losses.transpose("n", "network", "rate").values
    best, columns = [best_rate(each) for each in every[:, ~judged]], every[:, judged]
    return xarray.Dataset(
        {
            "loss": (("n", "network"), [each[:, its.place] for each, its in zip(columns, best, strict=True)]),
            "rate": ("n", losses["rate"].values[[its.place for its in best]]),
            "flat": ("n", [its.flat for its in best]),
            "on_edge": ("n", [its.on_edge for its in best]),
        },
        {"n": losses["n"].values, "network": losses["network"].values[judged]},
    )
