"""The demo's measurements as tables and sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from skipscope.report import Table
from skipscope.report.table import number

if TYPE_CHECKING:
    import xarray

PROFILE_PANELS = {
    "state_rms": "state RMS at a block's entry",
    "gradient_rms": "gradient RMS at a block's entry",
    "jacobian_square": "mean square of a block's singular values",
    "effective_rank": "effective rank of the entries of all images",
    "branch_over_skip": "|branch| / |skip|",
    "cosine": "cosine of branch and skip",
}
CAPTIONS = {
    "profile": "Profiles block by block; medians over the images. The plain network has no skip, so no |branch| / "
    "|skip| and no cosine.",
    "spectra": "Singular values of a middle block of each stage and of a whole stage, in descending order, one curve "
    "an image. The grey line is 1.",
}
STATUSES = {"infinite": "inf", "numerically infinite": "num. inf", "overflow": "overflow"}


def all_tables(networks: Mapping[str, Mapping[str, Any]], measured: Mapping[str, xarray.Dataset]) -> list[Table]:
    return [
        _networks(networks),
        _profile(measured["profile"]),
        _spectra(measured["spectra"]),
        _conditions(measured["condition"]),
        _law(measured["law"]),
    ]


def shown_units(spectra: xarray.Dataset) -> list[str]:
    """The middle block of each stage (the middle of the paper's scree plots), then the last whole stage."""
    blocks, stages = (spectra["unit"][(spectra["kind"] == kind).values] for kind in ("unit", "stage"))
    members = [[str(name) for name in blocks.values[blocks["stage"] == stage]] for stage in stages["stage"]]
    return [*(names[len(names) // 2] for names in members), str(stages.values[-1])]


def summary(networks: Mapping[str, Mapping[str, Any]], measured: Mapping[str, xarray.Dataset]) -> list[str]:
    residual, plain = networks["residual"], networks["plain"]
    size = measured["spectra"]["size"].sel(unit="stage3").item()
    rank = size - measured["spectra"]["zeros"].sel(unit="stage3").mean("sample")
    return [
        f"Two networks of {residual['layers']} layers and {residual['weights']:,} weights were trained on "
        "scikit-learn's digits with the same initial weights, batches and settings. In one of them each block adds "
        "its entry to its exit; in its plain twin it does not.",
        f"Test accuracy: {residual['test_accuracy']:.1%} with skips, {plain['test_accuracy']:.1%} without. One seed: "
        "an example, not a statistic.",
        f"Of {size} directions at the last stage's exit, {rank.sel(network='residual').item():.0f} can be reached by "
        f"small changes at its entry with skips and {rank.sel(network='plain').item():.0f} without (rank of the "
        f"stage's Jacobian, mean over {measured['spectra'].sizes['sample']} images).",
    ]


def _networks(networks: Mapping[str, Mapping[str, Any]]) -> Table:
    rows = [
        [
            name,
            str(network["layers"]),
            f"{network['weights']:,}",
            f"{network['history']['loss'][-1]:.4f}",
            f"{network['test_accuracy']:.2%}",
            f"{sum(network['history']['seconds']):.0f}",
        ]
        for name, network in networks.items()
    ]
    return Table("Networks", ["network", "layers", "weights", "last loss", "test accuracy", "seconds"], rows)


def _profile(profile: xarray.Dataset) -> Table:
    medians = profile.median("sample")
    pairs = {"state_rms": "state", "gradient_rms": "gradient", "jacobian_square": "|J|²/n", "effective_rank": "rank"}
    columns = ["block", "skip", "|F|/|skip|", "cos"]
    columns += [f"{short} {which}" for short in pairs.values() for which in ("res", "plain")]
    rows = []
    for unit in profile["unit"].values:
        here = medians.sel(unit=unit)
        row = [str(unit), str(profile["skip"].sel(unit=unit).item())]
        row += [number(here[name].sel(network="residual").item()) for name in ("branch_over_skip", "cosine")]
        row += [number(here[name].sel(network=n).item()) for name in pairs for n in ("residual", "plain")]
        rows.append(row)
    about = (
        "At each block's entry h: RMS of h, RMS of the gradient of the output along a random direction, the mean "
        f"square of the block's singular values (from {profile.attrs['probes']} random probes), and the effective "
        "rank of all images' h. |F|/|skip| and the cosine of branch and skip exist with skips only. Medians over "
        f"{profile.sizes['sample']} test images."
    )
    return Table("Profile", columns, rows, about, names=2)


def _spectra(spectra: xarray.Dataset) -> Table:
    columns = [
        "span",
        "network",
        "values",
        "largest",
        ">1.01",
        "[.99,1.01]",
        "zero",
        "zeros",
        "zeros proved",
        "ones",
        "ones proved",
    ]
    shares = ("share_above", "share_near_one", "share_zero")
    counts = ("zeros", "zeros_at_least", "ones", "ones_at_least")
    means = spectra[["largest", *shares, *counts]].mean("sample")
    middle = shown_units(spectra)
    stages = [str(name) for name in spectra["unit"].values[spectra["kind"] == "stage"]]
    rows = []
    for unit in [*middle[:-1], *stages]:
        for network in spectra["network"].values:
            here = means.sel(unit=unit, network=network)
            rows.append(
                [
                    unit,
                    str(network),
                    str(spectra["size"].sel(unit=unit).item()),
                    number(here["largest"].item()),
                    *(f"{here[name].item():.3f}" for name in shares),
                    *(f"{here[name].item():.0f}" for name in counts),
                ]
            )
    about = (
        "Singular values of the Jacobian of a middle block of each stage and of the whole stages: the largest, the "
        "shares above 1.01, in [0.99, 1.01] and zero, then counts of exact zeros and ones beside what is proved of "
        f"them (zero rows and columns; the exact law). Means over {spectra.sizes['sample']} test images; every block "
        "is in data/spectra.nc."
    )
    return Table("Spectra", columns, rows, about, names=2)


def _conditions(conditions: xarray.Dataset) -> Table:
    kinds = {"conv1": "first weights", "conv2": "second weights", "state": "state"}
    columns = ["block", *(f"{short} {which}" for short in kinds.values() for which in ("res", "plain"))]
    rows = []
    for unit in conditions["unit"].values:
        here = conditions.sel(unit=unit)
        cells = []
        for kind in kinds:
            for network in ("residual", "plain"):
                status = str(here[f"{kind}_status"].sel(network=network).item())
                cells.append(STATUSES.get(status) or number(here[kind].sel(network=network).item()))
        rows.append([str(unit), *cells])
    about = (
        "Largest over smallest singular value: of a block's weights as matrices Cout x (Cin 3 3), and of its entry "
        "over all images as a matrix C x (N h w). inf: a channel is zero throughout; num. inf: so large that "
        "rounding in float32 (states) or float64 (weights) hides the smallest value."
    )
    return Table("Condition numbers", columns, rows, about)


def _law(law: xarray.Dataset) -> Table:
    columns = ["unit", "variant", "n", "z", "r", "zeros", "n-z-2r", "ones", "above 1", "below 1", "ones, no skip"]
    rows = []
    for variant in law["variant"].values:
        for unit in law["unit"].values:
            here = law.sel(variant=variant, unit=unit).isel(sample=0)
            n, z, r = (int(here[name]) for name in ("size", "inactive", "inner_active"))
            counts = [str(int(here[name])) for name in ("zeros", "ones", "above", "below")]
            control = str(int(here["control_ones"])) if variant != "as trained" else ""
            rows.append(
                [
                    str(unit),
                    str(variant),
                    str(n),
                    str(z),
                    str(r),
                    counts[0],
                    str(max(0, n - z - 2 * r)),
                    *counts[1:],
                    control,
                ]
            )
    about = (
        "For the first image: outputs n, inactive ones z, active inner ReLUs r, and the singular values counted by "
        "an SVD that knows nothing of the law: zeros (at least z), ones (at least n - z - 2 r), above and below 1 "
        "(at most r each). With the inner thresholds raised by a standard deviation few inner ReLUs are active, and "
        "the plateau at 1 appears; without skips it does not."
    )
    return Table("The exact law", columns, rows, about, names=2)
