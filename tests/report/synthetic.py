"""Small datasets with the layouts of measurements, filled with seeded random numbers."""

from __future__ import annotations

import numpy
import xarray

from skipscope.runs.decisions import Decision

KINDS = ["adversarial", "random"]


def stability_data(
    *, units: int = 6, samples: int = 4, projected: tuple[int, ...] = (0, 5), length: int = 40, network: str = "a net"
) -> xarray.Dataset:
    """Three stages of equal length; the second projected unit has half as many singular values as the first."""
    random = numpy.random.default_rng(0)
    names = [f"stage{3 * k // units + 1}.{k}" for k in range(units)]
    growth = random.uniform(0.9, 1.4, (2, units, samples))
    first = random.uniform(0.01, 0.02, (2, 1, samples))
    data = {
        "rms": (("kind", "state", "sample"), first * numpy.concatenate([first / first, growth], 1).cumprod(1)),
        "size": (("state",), numpy.full(units + 1, length)),
        "actual": (("kind", "unit", "sample"), growth),
        "predicted": (("kind", "unit", "sample"), growth * random.normal(1, 0.02, growth.shape)),
    }
    coordinates = {
        "kind": KINDS,
        "state": [*names, f"exit of {names[-1]}"],
        "unit": names,
        "stage": ("unit", [3 * k // units + 1 for k in range(units)]),
        "sample": [10 * k for k in range(samples)],
    }
    if projected:
        alpha = random.standard_normal((2, len(projected), samples, length))
        alpha[0] *= numpy.geomspace(3, 0.3, length)
        sigma = numpy.broadcast_to(numpy.linspace(2, 0, length), alpha.shape[1:]).copy()
        alpha[:, 1:, :, length // 2 :] = numpy.nan
        sigma[1:, :, length // 2 :] = numpy.nan
        alpha /= numpy.sqrt(numpy.nansum(alpha**2, -1, keepdims=True))
        place = ("project", "sample")
        data["projection"] = (("kind", *place, "index"), alpha)
        data["singular_value"] = ((*place, "index"), sigma)
        data["converged"] = ((*place, "index"), numpy.ones(sigma.shape, bool))
        data["share_top10"] = (("kind", *place), (alpha[..., :10] ** 2).sum(-1))
        coordinates["project"] = [names[k] for k in projected]
    return xarray.Dataset(data, coordinates, {"measure": "stability", "network": network, "vectors": "all"})


def scaling_data(*, units: int = 2, samples: int = 2, length: int = 30, network: str = "a net") -> xarray.Dataset:
    """A third of the values is |alpha|, the last unit has half as many values."""
    alphas = [-1.0, 0.5, 1.0, 1.5]
    random = numpy.random.default_rng(1)
    value = numpy.full((len(alphas), units, samples, length), numpy.nan)
    for unit in range(units):
        n = length // 2 if units > 1 and unit == units - 1 else length
        rest = random.uniform(0, 2.5, (samples, n - n // 3))
        for row, alpha in enumerate(alphas):
            whole = numpy.concatenate([rest, numpy.full((samples, n // 3), abs(alpha))], 1)
            value[row, unit, :, :n] = -numpy.sort(-whole, 1)
    size = numpy.isfinite(value).sum(-1).astype(float)
    place = ("alpha", "unit", "sample")
    return xarray.Dataset(
        {
            "value": ((*place, "index"), value),
            "size": (place, size),
            "inactive": (place, size // 5),
            "inner_active": (place, size // 4),
            "proved": (place, size // 3),
            "counted": (place, size // 3),
            "generic": (place, numpy.ones(size.shape)),
            "correlation": (place, random.uniform(0.5, 1, size.shape)),
        },
        {
            "alpha": alphas,
            "unit": [f"stage{k + 1}.0" for k in range(units)],
            "stage": ("unit", list(range(1, units + 1))),
        },
        {"measure": "scaling", "network": network},
    )


def noise_data(
    *, units: int = 3, samples: int = 2, draws: int = 2, amounts: tuple[float, ...] = (0, 0.25, 0.5, 0.75, 1)
) -> xarray.Dataset:
    """The convex mixture has its peak at 1/2, the other one is flat."""
    random = numpy.random.default_rng(2)
    t = numpy.array(amounts, float)
    peak = numpy.stack([0.2 + 0.5 * t * (1 - t), numpy.full(t.shape, 0.2)])[:, :, None, None, None]
    bins = numpy.linspace(0.025, 2.975, 60)
    spread = numpy.exp(-((bins - 1) ** 2)) * 20 + 200 * peak[..., 0, :] * (abs(bins - 1) < 0.03)
    return xarray.Dataset(
        {
            "share_near_one": (
                ("mixture", "t", "unit", "draw", "sample"),
                peak * random.uniform(0.9, 1.1, (1, 1, units, draws, samples)),
            ),
            "histogram": (("mixture", "t", "unit", "bin"), numpy.broadcast_to(spread, (2, len(t), units, 60)).copy()),
        },
        {"mixture": ["convex", "norm"], "t": t, "unit": [f"stage{k + 1}.0" for k in range(units)], "bin": bins},
        {"measure": "noise", "network": "a net"},
    )


def spectra_data(*, units: int = 6, samples: int = 2, length: int = 40, network: str = "a net") -> xarray.Dataset:
    """Three stages and a whole one at the end; the second unit did not converge."""
    random = numpy.random.default_rng(3)
    names = [*(f"stage{3 * k // units + 1}.{k}" for k in range(units)), "stage 3"]
    value = -numpy.sort(-random.uniform(0, 2.5, (units + 1, samples, length)), -1)
    value[:, :, length // 4 : length // 2] = numpy.maximum(value[:, :, length // 4 : length // 2], 1.0)
    value[:, :, -length // 5 :] = 0
    place = ("unit", "sample")
    converged = numpy.ones(value.shape[:2], bool)
    converged[1, 0] = False
    zeros = numpy.full(value.shape[:2], length // 5)
    shares = {
        "share_above": (value > 1.01).mean(-1),
        "share_near_one": ((value >= 0.99) & (value <= 1.01)).mean(-1),
        "share_below": ((value > 0) & (value < 0.99)).mean(-1),
        "share_zero": (value == 0).mean(-1),
    }
    counts = {"zeros": zeros, "zeros_at_least": zeros, "ones": zeros * 0, "ones_at_least": zeros * 0}
    return xarray.Dataset(
        {
            "value": ((*place, "index"), value),
            "bound": ((*place, "index"), numpy.full(value.shape, 1e-12)),
            "largest": (place, value.max(-1)),
            "mean": (place, value.mean(-1)),
            "converged": (place, converged),
            **{name: (place, column) for name, column in {**shares, **counts}.items()},
            "entries": ("unit", [length] * (units + 1)),
            "exits": ("unit", [length] * (units + 1)),
        },
        {
            "unit": names,
            "kind": ("unit", ["unit"] * units + ["stage"]),
            "stage": ("unit", [*(3 * k // units + 1 for k in range(units)), 3]),
            "skip": ("unit", ["identity"] * (units + 1)),
        },
        {"measure": "spectra", "network": network},
    )


def decision(study: str = "D.spectra", reason: str = "<too few> networks") -> Decision:
    """A claim that a study did not decide."""
    return Decision(
        "D4",
        "Authors, a paper",
        "values are near 1",
        "a share",
        "at least 0.5",
        {},
        "inconclusive",
        "quick",
        reason,
        study=study,
    )
