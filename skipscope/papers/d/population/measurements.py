"""What is measured on one network of the population, piece by piece; each piece is a labelled dataset.

count           inactive outputs and active inner ReLUs of every regular unit on many images: exact zeros and ones
perturb         sizes and growth of adversarial and of random perturbations, unit by unit
project         the same perturbations on the ten leading right singular vectors of four units of stage 3
spectra1, 2, 3  all singular values of the units of a stage and of the stage on a few images, as summaries
noise           summaries of the spectra of four units whose weights turn into noise
noise-counts    exact zeros and ones of all regular units whose weights turn into noise
random1, 2, 3   summaries of the spectra of regular units whose weights are noise
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy
import torch
import xarray

from skipscope.data.perturbations import Perturbed, perturbed
from skipscope.errors import InputError
from skipscope.linear.law import law_or_reason
from skipscope.measure import stability
from skipscope.papers.d.population.network import PopulationNetwork
from skipscope.papers.d.summaries import ONE, of_samples, summary
from skipscope.spectrum import svd
from skipscope.spectrum.full import full_spectrum
from skipscope.trace import Point, Span, Stage, Unit
from skipscope.trace.surgery import noisy_weights, with_weights

STAGES = (1, 2, 3)
CANDIDATES = 3  # images that are tried for each one that is flipped
LEADING = 10  # singular vectors
PROJECTED_UNITS = 4  # every second one, counted from the last
MIXTURES = ("convex", "norm")
MIXING = tuple(round(0.1 * step, 1) for step in range(11))
NOISY = ("stage2.2", "stage2.4", "stage3.2", "stage3.4")  # the third and the fifth unit of a stage
RANDOM_OF_STAGE_1 = ("stage1.2", "stage1.4")  # its units are the largest
COUNTED_WITH_NOISE = 10  # images
COUNTED_AT_ONCE = 250  # images
LAW_GAIN = 0.85  # the law's problem must be this much smaller than the active rows


# -- counts


def counts(network: PopulationNetwork, images: int) -> xarray.Dataset:
    """Of regular units: the law's counts, image by image."""
    chosen = network.chosen(images)
    units = network.regular(STAGES)
    inactive = numpy.zeros((len(units), len(chosen)), dtype="int16")
    inner = numpy.zeros_like(inactive)
    for start in range(0, len(chosen), COUNTED_AT_ONCE):
        some = slice(start, start + COUNTED_AT_ONCE)
        point = network.trunk.at(network.at(chosen[some]))
        for place, unit in enumerate(units):
            law = _law(unit, point)
            inactive[place, some], inner[place, some] = law.inactive.cpu().numpy(), law.rank.cpu().numpy()
        del point, law
    size = numpy.array([int(numpy.prod(unit.entry_shape)) for unit in units])
    ones = (size[:, None] - inactive.astype(int) - 2 * inner.astype(int)).clip(0)
    pair = ("unit", "quantity")
    shares = {"zeros": inactive / size[:, None], "inner_active": inner / size[:, None], "ones": ones / size[:, None]}
    return xarray.Dataset(
        {
            "mean": (pair, numpy.stack([share.mean(1) for share in shares.values()], 1)),
            "deviation": (pair, numpy.stack([share.std(1, ddof=1) for share in shares.values()], 1)),
            "smallest": (pair, numpy.stack([share.min(1) for share in shares.values()], 1)),
            "largest": (pair, numpy.stack([share.max(1) for share in shares.values()], 1)),
            "generic": (("unit",), (ones > 0).mean(1)),  # the share of images on which a plateau is proved
            "size": (("unit",), size),
        },
        {**network.coordinates(units), "quantity": list(shares)},
        {"about": "counts by the law, shares of size, over images", "images": len(chosen)},
    )


def _law(unit: Unit, point: Point) -> Any:
    law = law_or_reason(unit, point)
    if isinstance(law, str):
        raise InputError(f"the law says nothing of {unit.name}: {law}")
    return law


# -- perturbations


def perturbations(network: PopulationNetwork, images: int) -> xarray.Dataset:
    found = _perturbed(network, images)
    dataset = stability(network.trunk, found.images, perturbation=found.kinds).assign_attrs(found.record)
    del dataset.attrs["measure"]  # a report shows what all networks have in common
    return dataset.astype("float32")


def projections(network: PopulationNetwork, images: int) -> xarray.Dataset:
    """All images of a unit at once: `stability` takes one after another, which is slow on a GPU."""
    found = _perturbed(network, images)
    units = network.regular((3,))[::-2][:PROJECTED_UNITS][::-1]
    point = network.trunk.at(found.images)
    entries = {kind: network.trunk.at(found.images + change) for kind, change in found.kinds.items()}
    alpha = numpy.zeros((len(entries), len(units), images, LEADING))
    values, converged = numpy.zeros(alpha.shape[1:]), numpy.zeros(alpha.shape[1:], dtype="int8")
    for place, unit in enumerate(units):
        start = point.entry(unit).double().flatten(1)
        triplets = svd(unit.jacobian(point).double(), LEADING, tol=1e-8, route="iterative")
        values[place], converged[place] = triplets.S.cpu().numpy(), triplets.converged.cpu().numpy()
        for kind, other in enumerate(entries.values()):
            change = other.entry(unit).double().flatten(1) - start
            direction = change / change.norm(dim=1, keepdim=True)
            alpha[kind, place] = torch.einsum("bn,bnk->bk", direction, triplets.V).cpu().numpy()
    indexed = ("unit", "sample", "index")
    return xarray.Dataset(
        {
            "projection": (("kind", *indexed), alpha.astype("float32")),
            "singular_value": (indexed, values.astype("float32")),
            "converged": (indexed, converged),
        },
        {**network.coordinates(units), "kind": list(entries)},
        {"about": "perturbations on the leading right singular vectors, of unit length", **found.record},
    )


def _perturbed(network: PopulationNetwork, images: int) -> Perturbed:
    chosen = network.chosen(CANDIDATES * images)
    found = perturbed(network.model, network.at(chosen), network.labels_at(chosen), images, network.seed)
    if len(found.images) < images:
        raise InputError(
            f"{network.title}: {len(found.images)} of {len(chosen)} images are classified correctly and can be "
            f"flipped, expected {images}; ask for fewer images"
        )
    return found


# -- spectra


def spectra(network: PopulationNetwork, stage: int, images: int) -> xarray.Dataset:
    """Of the units of a stage, and of the stage."""
    point = network.trunk.at(network.images(images))
    units = [unit for unit in network.trunk.units if unit.stage == stage]
    spans: list[Unit | Stage] = [*units, network.trunk.stages[stage - 1]]
    dataset = _together([_described(span, point) for span in spans]).assign_coords(**network.coordinates(spans))
    return dataset.assign_coords(kind=("unit", ["unit"] * len(units) + ["stage"]), sample=range(images))


def _together(rows: Sequence[xarray.Dataset]) -> xarray.Dataset:
    return xarray.concat(rows, "unit").assign_attrs(about="summaries of spectra", near_one=(0.99, 1.01), one=ONE)


def _described(span: Span, point: Point) -> xarray.Dataset:
    """What is kept of a span's singular values, for every sample.

    The Gram matrix is used where the law saves nothing. Values below `tolerance` count as zeros: it is 1e-6 of the
    largest value or less, and 1e-12 of it on the law's route.
    """
    law = law_or_reason(span, point) if isinstance(span, Unit) and span.kind == "identity" else None
    cheaper = law is not None and not isinstance(law, str) and bool((2 * law.rank < LAW_GAIN * law.active).all())
    found = full_spectrum(span.jacobian(point), route="law" if cheaper else "gram")
    values, zeros = found.values.numpy(), found.tolerance.tolist()
    data = of_samples([summary(own, float(zero)) for own, zero in zip(values, zeros, strict=True)])
    columns = {
        "size": numpy.full(len(values), values.shape[1]),
        "zeros_proved": found.zeros_at_least.cpu().numpy(),
        "ones_proved": found.ones_at_least.cpu().numpy(),
        "tolerance": found.tolerance.cpu().numpy(),
        "error": found.bound.amax(1).cpu().numpy(),
        "by_law": numpy.full(len(values), int(cheaper), dtype="int8"),
    }
    if torch.cuda.is_available():
        torch.cuda.empty_cache()  # several processes may share the memory
    return data.assign({name: ("sample", column) for name, column in columns.items()})


# -- noise


def _noisy(unit: Unit, t: float, mixture: str, seed: int) -> Unit:
    return with_weights(unit, noisy_weights(unit, t, seed=seed, mixture=mixture))


def noise(network: PopulationNetwork) -> xarray.Dataset:
    """At t = 0 and t = 1 both mixtures are the same."""
    point = network.trunk.at(network.images(1))
    units = [network.trunk[name] for name in NOISY]
    mixtures: list[xarray.Dataset] = []
    for mixture in MIXTURES:
        rows = []
        for t in MIXING:
            if mixtures and t in (0.0, 1.0):
                rows.append(mixtures[0].sel(t=t, drop=True))
            else:
                rows.append(_together([_described(_noisy(unit, t, mixture, network.seed), point) for unit in units]))
        mixtures.append(xarray.concat(rows, "t").assign_coords(t=list(MIXING)))
    whole = xarray.concat(mixtures, "mixture")
    return whole.assign_coords(mixture=list(MIXTURES), **network.coordinates(units))


def noise_counts(network: PopulationNetwork) -> xarray.Dataset:
    """By the law, of all regular units: shares of exact zeros and ones, means over images."""
    point = network.trunk.at(network.images(COUNTED_WITH_NOISE))
    units = network.regular(STAGES)
    zeros = numpy.zeros((len(MIXTURES), len(MIXING), len(units)))
    ones = numpy.zeros_like(zeros)
    for m, t, place in numpy.ndindex(*zeros.shape):
        if m and MIXING[t] in (0.0, 1.0):
            zeros[m, t, place], ones[m, t, place] = zeros[0, t, place], ones[0, t, place]
            continue
        law = _law(_noisy(units[place], MIXING[t], MIXTURES[m], network.seed), point)
        zeros[m, t, place] = float(law.zeros_at_least.double().mean()) / law.size
        ones[m, t, place] = float(law.ones_at_least.double().mean()) / law.size
    dimensions = ("mixture", "t", "unit")
    return xarray.Dataset(
        {"zeros": (dimensions, zeros), "ones": (dimensions, ones)},
        {"mixture": list(MIXTURES), "t": list(MIXING), **network.coordinates(units)},
        {"about": "counts by the law, weights mixed with noise", "images": COUNTED_WITH_NOISE},
    )


def random_weights(network: PopulationNetwork, stage: int) -> xarray.Dataset:
    point = network.trunk.at(network.images(1))
    units = [unit for unit in network.regular((stage,)) if stage > 1 or unit.name in RANDOM_OF_STAGE_1]
    rows = [_described(_noisy(unit, 0.0, "convex", network.seed), point) for unit in units]
    return _together(rows).assign_coords(**network.coordinates(units))
