"""What every variable of a measurement's dataset is, in words: its attributes `long_name` and `units`.

xarray and other readers of netCDF files label axes and tables with them. Units follow the climate and forecast
conventions: "1" for numbers without a unit (ratios, sizes of states, flags), "count" for how many of something, and an
empty text for names and words. Formulas stand in the modules that measure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from skipscope.measure import token_descriptions as tokens

if TYPE_CHECKING:
    import xarray

NUMBER, COUNT, TEXT = "1", "count", ""

Descriptions = dict[str, tuple[str, str]]  # by variable: long_name, units


def described(dataset: xarray.Dataset, measure: str | None = None) -> xarray.Dataset:
    """The same dataset, its variables with `long_name` and `units`. measure: by default what the dataset says it is."""
    known = COMMON | MEASURES.get(measure or str(dataset.attrs.get("measure", "")), {})
    for name, variable in dataset.variables.items():
        if name in known:
            long_name, units = known[str(name)]
            variable.attrs |= {"long_name": long_name, "units": units}
    return dataset


def _numbers(**names: str) -> Descriptions:
    return {variable: (name, NUMBER) for variable, name in names.items()}


def _counts(**names: str) -> Descriptions:
    return {variable: (name, COUNT) for variable, name in names.items()}


def _texts(**names: str) -> Descriptions:
    return {variable: (name, TEXT) for variable, name in names.items()}


def _with_errors(found: Mapping[str, tuple[str, str]], names: Iterable[str]) -> Descriptions:
    return {**found, **{f"{name}_error": (f"standard error: {found[name][0]}", found[name][1]) for name in names}}


# -- coordinates, and what has one meaning everywhere

COMMON: Descriptions = {
    **_texts(
        unit="residual unit",
        other="residual unit whose singular vectors are used",
        skip="kind of skip connection",
        branch="kind of branch: what mixes its entries",
        reason="why there are no numbers",
        layer="layer",
        part="part of the unit that was differentiated",
        arithmetic="floating-point type of the computation",
        token_route="what was differentiated: the path of the chosen tokens, or the whole sequence and why",
    ),
    **_numbers(
        stage="number of the stage, from 1; -1 for none",
        sample="position of the sample in the batch",
        converged="whether the value reached its tolerance",
    ),
    **_counts(
        size="number of singular values",
        entries="numbers in the state at the entry",
        exits="numbers in the state at the exit",
        products="vectors that the operator was multiplied with",
    ),
}

# -- by measure

_PROFILE = {
    **_with_errors(
        _numbers(
            state_rms="root mean square of the state at the unit's entry",
            branch_over_skip="size of the branch over size of the skip",
            cosine="cosine between branch and skip",
            gradient_rms="root mean square of the gradient at the unit's entry",
            gradient_gain="size of the gradient at the unit's entry over its size at the exit",
            state_spread="what differs between the samples' states over their size, at the unit's entry",
            branch_spread="what differs between the samples' branches over the size of the skip",
            jacobian_square="mean square of the unit's singular values",
            effective_rank="effective rank of the states of all samples at the unit's entry",
        ),
        ["jacobian_square"],
    ),
    **_counts(sum_zeros="entries of branch plus skip that are exactly zero"),
}

ESTIMATED = ("share_above", "share_near_one")
_SHARES = _numbers(
    share_above="share of singular values above 1.01",
    share_near_one="share of singular values from 0.99 to 1.01",
    share_below="share of singular values below 0.99 that are not zero",
    share_zero="share of singular values that are zero",
)

_SPECTRA = {
    **_SHARES,
    **_numbers(
        value="singular value",
        bound="largest possible error of the singular value",
        largest="largest singular value",
        mean="mean of the singular values",
        converged="whether every error bound is within 1e-6 of the largest singular value",
    ),
    **_counts(
        zeros="singular values that are 0 up to rounding",
        zeros_at_least="singular values that are proved to be 0",
        ones="singular values that are 1 up to rounding",
        ones_at_least="singular values that are proved to be 1",
        rank="rank of the Jacobian",
    ),
    **_texts(
        unit="residual unit or stage",
        kind="whether it is a unit or a whole stage",
        route="how the singular values were computed",
    ),
}

_LEADING = {
    **_with_errors({name: _SHARES[name] for name in ESTIMATED}, ESTIMATED),
    **_numbers(
        value="singular value, the largest ones in descending order",
        residual="residual of the singular value: an exact one is within it",
    ),
}

_LAW = {
    **_counts(
        inactive="outputs that the activation after the sum shuts off",
        carried="active outputs that the skip brings something to",
        inner_active="active entries inside the branch: a bound on the rank of its Jacobian",
        inner_above="singular values of the branch's Jacobian above epsilon",
        zeros="singular values that are 0 up to rounding",
        zeros_at_least="singular values that are proved to be 0",
        ones="singular values that are equal to the factor of the skip up to rounding",
        ones_at_least="singular values that are proved to be equal to the factor of the skip",
        above="singular values above the factor of the skip",
        above_at_most="proved bound on the singular values above the factor of the skip",
        below="singular values between 0 and the factor of the skip",
        below_at_most="proved bound on the singular values between 0 and the factor of the skip",
        near="singular values within epsilon of the factor of the skip",
        near_at_least="singular values that are proved to be within epsilon of the factor of the skip",
    ),
    **_numbers(
        factor="factor of the skip",
        generic="whether a plateau of equal singular values is predicted",
        violated="whether the bound does not hold",
    ),
    **_texts(bound="bound of the law"),
}

_STABILITY = {
    **_numbers(
        rms="root mean square of the change of the state",
        relative="size of the change over size of the state",
        per_entry="size of the change over the number of entries of the state",
        actual="growth of the change across the unit",
        predicted="growth of the change across the unit by its Jacobian",
        projection="component of the change along a right singular vector",
        singular_value="singular value",
        share_top10="share of the change along the ten leading singular vectors",
        share_rest="share of the change outside of the computed singular vectors",
        identity_error="difference of the predicted growth by a product and by singular vectors",
    ),
    **_counts(size="numbers in the state"),
    **_texts(
        kind="kind of perturbation",
        state="state: the entry of a unit, or the exit of the last",
        project="residual unit whose singular vectors are used",
    ),
}

_ALIGNMENT = {
    **_with_errors(
        _numbers(
            value="singular value, the largest ones in descending order",
            residual="residual of the singular triplet",
            repeated="whether a neighbouring singular value is equal within rounding",
            ujv="Jacobian between left and right singular vectors of another unit",
            vju="Jacobian between right and left singular vectors of another unit",
            chance="distance from diagonal expected by chance",
            chance_signed="distance from diagonal with signs, expected by chance",
            left_cosine="cosine of a principal angle between left singular vectors",
            right_cosine="cosine of a principal angle between right singular vectors",
            u1v1="cosine between the first left and the first right singular vector",
            energy="share of the leading singular values in the square of the Frobenius norm",
            gap="first singular value after those of the classes over the largest",
            frobenius="Frobenius norm of the Jacobian",
            exact="whether the whole matrix was decomposed",
        ),
        ["chance", "chance_signed", "energy", "frobenius"],
    ),
    **{
        f"coupling_{way}{suffix}": (f"distance from diagonal in the singular vectors of another unit{words}", NUMBER)
        for way in ("ujv", "vju")
        for suffix, words in (("", ""), ("_signed", ", with signs"))
    },
    **_counts(
        large="singular values above 5 % of the largest",
        numerical_rank="numerical rank of the Jacobian",
        k_used="leading singular values that are compared",
    ),
    **_texts(reason_ujv="why there is no coupling of this kind", reason_vju="why there is no coupling of this kind"),
}


def _summary() -> Descriptions:
    found = _texts(pairs="which pairs of units")
    for way in ("ujv", "vju"):
        for signed, words in (("", ""), ("_signed", ", with signs")):
            name, mean = f"{way}{signed}", f"mean distance from diagonal{words}"
            found |= {
                name: (mean, NUMBER),
                f"{name}_spread": (f"standard deviation over the samples: {mean}", NUMBER),
                f"{name}_count": ("pairs of units", COUNT),
                f"{name}_chance": (f"{mean}, expected by chance", NUMBER),
                f"{name}_over_chance": (f"{mean}, over that expected by chance", NUMBER),
            }
    for name in ("u1v1", "energy", "gap", "large"):
        long_name, units = _ALIGNMENT[name]
        found |= {
            name: (f"mean over units: {long_name}", units),
            f"{name}_spread": (f"standard deviation over the samples of the mean over units: {long_name}", units),
            f"{name}_count": ("units that have the number", COUNT),
        }
    return found


_TRAJECTORIES = {
    **_numbers(
        stage="number of the run of states of one shape, from 1",
        line_shape="number of steps over the length of the sum of their directions",
        step_variation="standard deviation of the steps' lengths over their mean",
        first_component="share of the states' variance along their first principal component",
        chord_ratio="length of the path over the distance between its ends",
        step_norm="length of the step",
        cosine="cosine between a step and the next",
        projection="coordinate of the state in a plane",
        principal_share="share of the states' variance in the principal plane",
        state_stage="number of the run of states that the state belongs to",
        step_stage="number of the run of states that the step belongs to",
    ),
    **_counts(zero_steps="steps of length zero"),
    **_texts(
        shape="shape of a state",
        state="state: the entry or the exit of a unit",
        step="unit that makes the step",
        label="class of the sample",
        plane="plane of projection",
        axis="axis of the plane",
    ),
}

_COLLAPSE = {
    **_numbers(
        nc1="variability within classes over that between class means (NC1)",
        nc2_equinorm="variation of the lengths of class means (NC2)",
        nc2_equiangular="variation of the cosines between class means (NC2)",
        nc2_maximal_angle="mean distance of the cosines between class means from the smallest possible (NC2)",
        nc3="squared distance of classifier and class means, each scaled to length 1 (NC3)",
        nc4="share of samples that the classifier does not assign to the nearest class mean (NC4)",
        cdnv="mean over pairs of classes: variance within over squared distance of the means",
        nearest_mean_accuracy="share of samples whose nearest class mean is that of their own class",
        accuracy="share of samples that the model classifies correctly",
        label="class",
    ),
    **_counts(
        rank="dimensions that the class means span",
        size="features of the layer",
        samples="samples of the class",
    ),
}


def _conditioning() -> Descriptions:
    found = {
        **_texts(
            weight="weight",
            weight_shape="shape of the weight",
            weight_kind="kind of the module that holds the weight",
            layer_shape="shape of the state",
            layer_kind="kind of the layer",
            reduction="how the condition numbers of all modes become one",
        ),
        **_numbers(
            mode="axis of the tensor",
            sample_axis="axis of the samples in the state, -1 where there is none",
            state_limited="whether there are too few samples and places for full rank in all channels",
        ),
        **_counts(
            state_zero_units="channels of the state that are zero throughout",
            bound="bound on the rank of the gradient: the smaller rank of its two factors",
        ),
    }
    tensors = {"weight": "weight", "state": "state"}
    matrices = {
        "error": "gradient at the layer's output",
        "input": "layer's input",
        "gradient": "gradient of the weight",
    }
    for name, what in (tensors | matrices).items():
        found |= {
            f"{name}_condition": (f"condition number of the {what}", NUMBER),
            f"{name}_status": (f"whether the condition number of the {what} is finite", TEXT),
            f"{name}_rank": (f"numerical rank of the {what}", COUNT),
            f"{name}_full_rank": (f"largest possible rank of the {what}", COUNT),
        }
    for name, what in tensors.items():
        found |= {
            f"{name}_mode_condition": (f"condition number of the {what} along an axis", NUMBER),
            f"{name}_mode_status": (f"whether the condition number of the {what} along an axis is finite", TEXT),
            f"{name}_zero_slices": (f"slices of the {what} along an axis that are zero throughout", COUNT),
        }
    for name, what in matrices.items():
        found[f"{name}_share"] = (f"rank of the {what} over the largest possible rank", NUMBER)
    return found


_CURVATURE = {
    **_with_errors(
        _numbers(
            value="eigenvalue of the Hessian",
            residual="residual of the eigenvalue: an exact one is within it",
            trace="trace of the Hessian",
            index="share of negative eigenvalues",
            share_zero="share of eigenvalues that are zero within the tolerance",
            largest_magnitude="largest magnitude of an eigenvalue",
            tenth_percentile="10th percentile of the magnitudes of the eigenvalues",
            cond10="largest magnitude of an eigenvalue over the 10th percentile",
            condition="largest magnitude of an eigenvalue over the smallest",
            symmetry_error="largest difference of two entries that must be equal, over the largest entry",
            eigenvalue="place of the eigenvalue in descending order, from 0",
            grid="eigenvalue",
            density="density of the eigenvalues, smoothed",
            density_bias="bias of the density of the eigenvalues by quadrature",
            loss="loss",
            gradient_norm="length of the gradient of the loss",
        ),
        ["trace", "index", "share_zero", "density"],
    ),
    **_counts(zero_rows="rows of the Hessian that are zero throughout", size="numbers in the parameter"),
    **_texts(
        parameter="parameter",
        cond10_status="whether the ratio to the 10th percentile is finite",
        condition_status="whether the condition number is finite",
    ),
}

_STREAMS = _numbers(
    sinkhorn_residual="largest distance of a row or column sum from 1",
    row_gain="largest sum of magnitudes in a row of the mixing matrix",
    column_gain="largest sum of magnitudes in a column of the mixing matrix",
    product_row_gain="largest sum of magnitudes in a row of the product of the mixing matrices so far",
    product_column_gain="largest sum of magnitudes in a column of the product of the mixing matrices so far",
    product_second_value="second singular value of the product of the mixing matrices so far",
    product_dobrushin="largest distance of two rows of the product of the mixing matrices so far",
    branch_share="size of the branch over the sizes of branch and skip",
)

_VERIFICATION = {
    **_numbers(
        adjoint_error="relative difference of a product from the left and from the right",
        adjoint_tolerance="tolerance of the relative difference of the two products",
        slope_zeroth="order at which the function's change falls with the step",
        slope_first="order at which the error of the linearisation falls with the step",
        passed="whether both tests were passed",
    ),
    **_texts(seen="how the function looks from the linearisation's error"),
}

MEASURES: dict[str, Descriptions] = {
    "alignment": _ALIGNMENT,
    "alignment_summary": _summary(),
    "collapse": _COLLAPSE,
    "conditioning": _conditioning(),
    "coupling": {
        **_numbers(**tokens.COUPLING),
        **_counts(**tokens.COUPLING_COUNTS),
        **_texts(**tokens.COUPLING_TEXTS),
    },
    "curvature": _CURVATURE,
    "depth_use": {**_numbers(**tokens.DEPTH_USE), **_texts(**tokens.DEPTH_USE_TEXTS)},
    "law": _LAW,
    "law_bounds": _LAW,
    "leading": _LEADING,
    "lens": {**_numbers(**tokens.LENS), **_counts(**tokens.LENS_COUNTS)},
    "normality": _numbers(**tokens.NORMALITY),
    "profile": _PROFILE,
    "spectra": _SPECTRA,
    "stability": _STABILITY,
    "streams": _STREAMS,
    "trajectories": _TRAJECTORIES,
    "verification": _VERIFICATION,
}
