"""One vocabulary: public functions use the same word for the same thing, and what the pages name is there."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import skipscope as ss

ROOT = Path(ss.__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MEASURES = (
    *("alignment", "collapse", "conditioning", "curvature", "law", "leading", "profile", "spectra", "stability"),
    *("coupling", "depth_use", "lens", "normality", "trajectories", "verification"),
)
POSITIONAL = {
    "collapse": ["model", "data"],
    "conditioning": ["model", "x"],
    "curvature": ["model", "loss", "batches"],
    "lens": ["trunk", "prompts"],
}

# Shared by several functions, each with one meaning.
VOCABULARY = {
    "units": "which units: names or indices",
    "samples": "how many of the batch's first samples, or which",
    "tokens": "positions of sequences",
    "k": "how many leading values or vectors",
    "route": "how it is computed; auto chooses",
    "tol": "how close is close enough",
    "seed": "of what is drawn at random",
    "progress": "called with done and total",
    "memory": "the most that may be taken",
    "probes": "random vectors of an estimate",
    "steps": "of the quadrature of each probe",
    "max_products": "of the operator with a vector, at most",
    "layers": "which modules",
    "dtype": "to compute in",
    "batch_axis": "of the inputs",
    "calibrate": "give batch norms without statistics those of the batch",
    "reduction": "of a loss",
    "params": "which parameters",
    "loss": "a scalar function of the model's output",
}
# Of one function each.
OWN = {
    "alignment": "classes of tail grids chance",
    "build": "",
    "check": "optimiser unit_spectra train_on",
    "collapse": "classifier batch samples_per_class",
    "condition_number": "reduce leave_out channel batched precision size limit",
    "conditioning": "targets states weights training",
    "coupling": "of chance",
    "curvature": "density",
    "depth_fit": "first",
    "depth_use": "targets head skipping",
    "eigs": "which block",
    "inspect": "budget token_text",
    "law": "epsilon count_only changed",
    "lens": "prompts compared_rows",
    "noisy_weights": "t mixture",
    "normality": "of",
    "on_disk": "trust_remote_code",
    "percentile_condition": "q",
    "report": "what height",
    "spectra": "stages",
    "spectral_density": "symmetric points width",
    "stability": "perturbation project",
    "svd": "which block with_rank",
    "sweep": "models measures checkpoints revisions device executor workers out resume",
    "trajectories": "labels projections",
    "with_scaled_skip": "alpha",
    "with_weights": "weights",
}
FORMER = {"mode", "method", "tolerance", "accuracy", "top", "callback", "random_state", "n_samples", "where", "again"}
SUBJECTS = {
    "A",
    "H",
    "J",
    "data",
    "batches",
    "dataset",
    "loss",
    "model",
    "name",
    "path",
    "trunk",
    "unit",
    "values",
    "x",
}


def functions() -> dict[str, Callable[..., Any]]:
    return {name: getattr(ss, name) for name in ss.__all__ if inspect.isfunction(getattr(ss, name))}


def parameters(name: str) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(functions()[name]).parameters)


@pytest.mark.parametrize("name", sorted(functions()))
def test_parameters_are_in_the_vocabulary(name: str) -> None:
    known = {*VOCABULARY, *OWN.get(name, "").split(), *SUBJECTS}
    assert set(parameters(name)) - known == set()
    assert set(parameters(name)) & FORMER == set()


@pytest.mark.parametrize("name", sorted(functions()))
def test_what_everybody_has_has_one_default_and_one_type(name: str) -> None:
    found, hints = parameters(name), inspect.get_annotations(inspect.unwrap(functions()[name]))
    if "route" in found:
        assert found["route"].default == "auto"
    if "progress" in found:
        assert found["progress"].default is None
        assert hints["progress"] == "Progress | bool | None"
    if "memory" in found:
        assert found["memory"].default is None
        assert found["memory"].kind is inspect.Parameter.KEYWORD_ONLY
        assert hints["memory"] == "Memory | None"
    if "seed" in found and name != "noisy_weights":  # which are random, so that the seed is not to be forgotten
        assert found["seed"].default == 0
    if "tol" in found:
        assert found["tol"].kind is inspect.Parameter.KEYWORD_ONLY


@pytest.mark.parametrize("name", MEASURES)
def test_measurements_take_a_trunk_or_a_model_and_a_batch_and_give_a_dataset(name: str) -> None:
    found = parameters(name)
    positional = [key for key, one in found.items() if one.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    assert positional == POSITIONAL.get(name, ["trunk", "x"])
    assert all(one.kind is inspect.Parameter.KEYWORD_ONLY for key, one in found.items() if key not in positional)
    assert "memory" in found
    assert inspect.get_annotations(inspect.unwrap(functions()[name]))["return"] == "xarray.Dataset"


def test_no_function_has_an_entry_of_its_own_that_it_lacks() -> None:
    for name, own in OWN.items():
        assert set(own.split()) <= set(parameters(name)), name


def test_what_functions_return_is_exported() -> None:
    """Except plain types and datasets: a user who keeps a result can write its type."""
    for name, function in functions().items():
        returned = inspect.get_annotations(inspect.unwrap(function))["return"]
        for kind in re.findall(r"\b[A-Z]\w+", returned):
            assert kind in {*ss.__all__, "Any", "Dataset", "Tensor", "GraphUnit", "Module", "ResNet"}, f"{name}: {kind}"


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_names_on_a_page_exist(page: Path) -> None:
    named = set(re.findall(r"\bss\.([A-Za-z_]\w*)", page.read_text(encoding="utf-8")))
    assert sorted(named - set(ss.__all__)) == []


def test_types_of_results_are_classes_with_typed_fields() -> None:
    for name in ("Condition", "Density", "Eigs", "Estimate", "Finding", "Forecast", "Inertia", "Plan", "Result", "SVD"):
        assert inspect.isclass(getattr(ss, name))
        assert inspect.get_annotations(getattr(ss, name)), name
    assert get_type_hints(ss.DepthFit)["slope"] is float
