"""What the studies of paper C decide, from networks with known numbers."""

from __future__ import annotations

from math import inf, log10, nan
from typing import Any

import numpy
import pytest
import xarray

from skipscope.errors import InputError
from skipscope.models import names
from skipscope.papers.c import layer_conditions
from skipscope.papers.c.studies import accuracy, deeper, dirac, generalisation, hidden, histograms, linear, weights
from skipscope.papers.c.studies.accuracy import STUDY as ACCURACY
from skipscope.papers.c.studies.deeper import STUDY as DEEPER
from skipscope.papers.c.studies.dirac import STUDY as DIRACNETS
from skipscope.papers.c.studies.generalisation import STUDY as GENERALISATION
from skipscope.papers.c.studies.generalisation import GeneralisationSettings
from skipscope.papers.c.studies.hidden import STUDY as HIDDEN
from skipscope.papers.c.studies.histograms import STUDY as HISTOGRAMS
from skipscope.papers.c.studies.linear import STUDY as LINEAR
from skipscope.papers.c.studies.weights import STUDY as WEIGHTS
from skipscope.papers.c.subjects import FOUR_PATHS, PATHS, PLAIN, RESIDUAL, SMOKE, TwinSettings
from skipscope.papers.kit import Evidence
from tests.papers.c.named import by_name, decided

STUDIES = (ACCURACY, HISTOGRAMS, WEIGHTS, HIDDEN, LINEAR, DEEPER, DIRACNETS, GENERALISATION)
TINY = TwinSettings(**{**SMOKE, "subjects": ("digits-4-connected-n4",), "titles": (PLAIN, RESIDUAL)})
TITLES = (PLAIN, RESIDUAL, PATHS)
INFINITY = 1e12


DECIDED_BY = {claim.id: study for study in STUDIES for claim in study.claims}


DEEP, SMALL = "cifar10-110", "mnist-60-connected"
FIRST_SEED = 1000


def verdict(name: str, evidence: Evidence, preset: str = "full") -> str:
    return decided(DECIDED_BY[name], name, evidence, preset).verdict


def verdicts(name: str, evidence: Evidence, preset: str = "full") -> list[str]:
    """Of its parts."""
    return [part.verdict for part in decided(DECIDED_BY[name], name, evidence, preset).parts]


def trained(seeds: int, fit: Any = 0.99) -> dict[str, Any]:
    """Coordinates, train accuracies of PlainNet and ResNet, and attributes of what was measured of networks."""
    return {
        "data_vars": {
            "reached_train_accuracy": (("network", "seed"), [[0.15] * seeds, list(numpy.broadcast_to(fit, seeds))])
        },
        "coords": {"network": [PLAIN, RESIDUAL], "seed": range(FIRST_SEED, FIRST_SEED + seeds)},
        "attrs": {"data": "mnist", "chance": 0.1},
    }


# -- accuracies


def fake_twins(seeds: int = 9, titles: tuple[str, ...] = TITLES, chance: float = 0.1, **changed: Any) -> xarray.Dataset:
    """Accuracies of PlainNet, ResNet and ResNeXt, as (train, test); one number, or one a seed."""
    reached = {PLAIN: (0.15, 0.14), RESIDUAL: (0.99, 0.95), PATHS: (0.99, 0.96)} | changed
    given = dict(zip(titles, reached.values(), strict=True))
    rows = numpy.array([[numpy.broadcast_to(value, seeds) for value in given[title]] for title in titles])
    return xarray.Dataset(
        {
            **{
                f"reached_{what}_accuracy": (("network", "seed"), rows[:, place])
                for place, what in enumerate(("train", "test"))
            },
            "train_accuracy": (("network", "seed", "rate"), numpy.stack([rows[:, 0], rows[:, 0] - 0.05], -1)),
        },
        {"network": list(titles), "seed": range(FIRST_SEED, FIRST_SEED + seeds), "rate": [0.01, 0.1]},
        {"data": "mnist", "chance": chance},
    )


def test_plainnets_that_do_not_train() -> None:
    found = accuracy.evidence({DEEP: fake_twins()})
    reached = by_name(found)["C1"]["train accuracy above chance / what is possible, PlainNet"]
    assert reached == pytest.approx([0.05 / 0.9] * 9)
    assert verdict("C1", found) == "reproduced"
    assert verdict("C1", accuracy.evidence({DEEP: fake_twins(PlainNet=(0.9, 0.8))})) == "not reproduced"
    assert verdict("C1", accuracy.evidence({DEEP: fake_twins(4)})) == "open"
    assert verdict("C1", accuracy.evidence({SMALL: fake_twins()})) == "open"


def test_plainnet_counts_at_the_better_rate() -> None:
    """At the other one it may have diverged."""
    data = fake_twins(2, PlainNet=(0.2, 0.2))
    data["train_accuracy"].loc[{"network": PLAIN, "rate": 0.1}] = [0.5, nan]
    data["train_accuracy"].loc[{"network": PLAIN, "seed": FIRST_SEED + 1}] = nan
    assert accuracy.above_chance(data) == pytest.approx([(0.5 - 0.1) / 0.9, (0.2 - 0.1) / 0.9])


def test_where_resnets_do_not_fit_a_subject_is_open() -> None:
    """On CIFAR-100 less is asked of them."""
    low = [0.99] * 8 + [0.94]
    decision = decided(ACCURACY, "C1", accuracy.evidence({DEEP: fake_twins(ResNet=(low, 0.4))}))
    assert decision.verdict == "open"
    assert "0.94 at least, and 0.95 is asked" in decision.reason
    many = accuracy.evidence({"cifar100-110": fake_twins(chance=0.01, PlainNet=(0.02, 0.02), ResNet=(0.8, 0.6))})
    (beside,) = decided(ACCURACY, "C1", many).subjects
    assert (beside.verdict, beside.decides) == ("reproduced", False)


def test_resnext_is_compared_seed_by_seed() -> None:
    subject, titles = "cifar10-110-bottleneck", (PLAIN, RESIDUAL, FOUR_PATHS)
    steps = numpy.linspace(0.960, 0.964, 9)
    better = accuracy.evidence({subject: fake_twins(9, titles, ResNeXt=(0.99, steps))})
    assert by_name(better)["C2"]["test accuracy, ResNeXt - ResNet"] == pytest.approx(list(steps - 0.95))
    assert verdict("C2", better) == "reproduced"
    worse = accuracy.evidence({subject: fake_twins(9, titles, ResNeXt=(0.99, steps - 0.02))})
    assert verdict("C2", worse) == "not reproduced"
    assert verdict("C2", accuracy.evidence({DEEP: fake_twins()})) == "open"


def test_resnexts_of_four_paths_have_resnets_parameters() -> None:
    counts = [
        sum(weight.numel() for weight in names.build(f"{family}20-cifar-bottleneck{paths}").parameters())
        for family, paths in (("resnet", ""), ("resnext", "-c4"))
    ]
    assert counts[1] / counts[0] == pytest.approx(1, abs=0.05)


def test_subjects_are_never_pooled() -> None:
    found = accuracy.evidence({DEEP: fake_twins(), "digits-20": fake_twins(1, PlainNet=(0.9, 0.8))})
    assert verdict("C1", found) == "reproduced"
    measured = found[accuracy.C1]
    assert isinstance(measured, list)
    assert [(one.subject, one.count) for one in measured] == [(DEEP, 9), ("digits-20", 1)]
    assert by_name(found, "digits-20")["C1"]["train accuracy, PlainNet"] == [0.9]


def population(condition: list[float], gap: list[float], train: float = 1.0) -> xarray.Dataset:
    fit = numpy.array([1.0] * (len(gap) - 1) + [train])
    columns = {
        "condition": numpy.array(condition),
        "train_accuracy": fit,
        "test_accuracy": fit + numpy.array(gap),
        "seed": numpy.full(len(gap), FIRST_SEED),
        "model": numpy.array(["resnet8"] * len(gap)),
    }
    return xarray.Dataset({name: ("case", values) for name, values in columns.items()}, attrs={"data": "mnist, 3000"})


def test_conditioning_and_generalisation() -> None:
    places, falling = [float(k) for k in range(40)], [-0.001 * k for k in range(40)]
    found = generalisation.evidence(population(places, falling))
    rank = by_name(found)["C14"]["Spearman of cond of hidden states and test - train accuracy"]
    assert rank.value == pytest.approx(-1)
    assert verdict("C14", found) == "reproduced"
    assert verdict("C14", generalisation.evidence(population(places, falling[::-1]))) == "not reproduced"
    assert verdict("C14", generalisation.evidence(population(places[:30], falling[:30]))) == "open"
    unfit = decided(GENERALISATION, "C14", generalisation.evidence(population(places, falling, 0.98)))
    assert unfit.verdict == "open"
    assert "below 0.99: resnet8" in unfit.reason
    few = generalisation.evidence(population(places[:3], falling[:3]))
    assert verdict("C14", few) == "open"


def test_the_population_has_forty_configurations_of_all_networks() -> None:
    chosen = GENERALISATION.presets["full"].population
    assert len(set(chosen)) == len(chosen) == 40
    assert {text.partition(":")[0] for text in chosen} == {PLAIN, RESIDUAL, PATHS}
    assert {int(text.partition(":")[2].partition("-")[0]) for text in chosen} == {8, 12, 16, 20}
    with pytest.raises(InputError, match=r"population: expected PlainNet, ResNet, ResNeXt, a colon .* got mnist"):
        GeneralisationSettings(("mnist",))


# -- condition numbers


def fake_conditions(layers: int = 21, seeds: int = 8, fit: float = 0.99, **changed: Any) -> xarray.Dataset:
    """Of a network whose odd layers are inside branches. weight, hidden, alive: log10 by layer, of PlainNet and ResNet;
    alive ones are those of hidden states unless they are given."""
    values = {
        "weight": {PLAIN: numpy.linspace(1, 5, layers), RESIDUAL: numpy.resize([1.0, 1.4, 1.2, 1.5, 1.1], layers)},
        "hidden": {PLAIN: numpy.full(layers, inf), RESIDUAL: numpy.array([6.0] + [2.0] * (layers - 1))},
    }
    values["alive"] = dict(values["hidden"])
    for name, value in changed.items():
        what, title = name.split("_")
        values[what][title] = numpy.broadcast_to(value, layers)
        if what == "hidden" and f"alive_{title}" not in changed:
            values["alive"][title] = values[what][title]
    shape, about = (2, seeds, layers), trained(seeds, fit)
    data = about["data_vars"]
    for what, of in values.items():
        logs = numpy.broadcast_to(numpy.stack([of[PLAIN], of[RESIDUAL]])[:, None], shape)
        status = numpy.where(numpy.isinf(logs), "infinite", numpy.where(logs > 12, "numerically infinite", "finite"))
        data |= {
            f"{what}_condition": (("network", "seed", "layer"), 10.0**logs),
            f"{what}_status": (("network", "seed", "layer"), status),
            f"{what}_infinity": (("network", "seed", "layer"), numpy.full(shape, INFINITY)),
        }
    data["dead_units"] = ("network", "seed", "layer"), numpy.isinf(data["hidden_condition"][1]).astype(int)
    between = numpy.arange(layers) % 2 == 0
    between[-1] = False
    data["between"] = ("network", "seed", "layer"), numpy.broadcast_to(between, shape)
    return xarray.Dataset(**about).assign_coords(layer=range(layers))


def test_logarithms_of_infinite_numbers() -> None:
    found = layer_conditions.logarithms(fake_conditions(hidden_ResNet=[inf] + [nan] + [3.0] * 19), "hidden")
    assert found.sel(network=RESIDUAL, seed=FIRST_SEED).values[:3].tolist() == pytest.approx(
        [log10(INFINITY), nan, 3], nan_ok=True
    )


def test_weights_that_are_worse_conditioned_and_worse_with_depth() -> None:
    good = weights.evidence({DEEP: fake_conditions()})
    assert by_name(good)["C3"]["median log10 cond of weights, PlainNet - ResNet"] == pytest.approx([3 - 1.2] * 8)
    assert by_name(good)["C4"]["Spearman of layer and cond of weights, PlainNet"] == pytest.approx([1] * 8)
    assert by_name(good)["C4"]["log10 of the largest cond of weights, PlainNet / ResNet"] == pytest.approx([3.5] * 8)
    assert [verdict(name, good) for name in ("C3", "C4")] == ["reproduced"] * 2
    falling = weights.evidence({DEEP: fake_conditions(weight_PlainNet=numpy.linspace(5, 1, 21))})
    assert [verdict(name, falling) for name in ("C3", "C4")] == ["reproduced", "not reproduced"]
    # ResNet's largest one is no tenth of PlainNet's.
    both = weights.evidence({DEEP: fake_conditions(weight_ResNet=numpy.linspace(1, 5, 21))})
    assert [verdict(name, both) for name in ("C3", "C4")] == ["not reproduced", "inconclusive"]
    unfit = weights.evidence({DEEP: fake_conditions(fit=0.9)})
    assert [verdict(name, unfit) for name in ("C3", "C4")] == ["open"] * 2


def of_both_subjects(**changed: Any) -> Evidence:
    return hidden.evidence({DEEP: fake_conditions(**changed), SMALL: fake_conditions(**changed)})


def test_singular_hidden_states() -> None:
    good = of_both_subjects()
    found = by_name(good)["C5"]
    assert found["share of layers with infinite cond of hidden states, PlainNet"] == [1.0] * 8
    assert found["layers after the first with infinite cond of hidden states, ResNet"] == [0.0] * 8
    assert found["units that are zero for the whole batch, a layer, PlainNet"] == [1.0] * 8
    assert verdict("C5", good, "quick") == "reproduced"
    # Without its dead channels the same network is well conditioned.
    dead = of_both_subjects(alive_PlainNet=3.0)
    assert verdicts("C5", dead) == ["reproduced", "not reproduced"] * 2
    assert verdict("C5", dead) == "partly reproduced"
    # Up to rounding is not exactly; without dead channels it counts.
    rounded = of_both_subjects(hidden_PlainNet=17.0)
    assert verdicts("C5", rounded) == ["not reproduced", "reproduced"] * 2
    assert by_name(rounded)["C5"]["share of layers with numerically infinite cond or worse, PlainNet"] == [1.0] * 8
    singular = numpy.array([2.0] * 4 + [inf] + [2.0] * 16)
    assert verdicts("C5", of_both_subjects(hidden_ResNet=singular)) == ["inconclusive"] * 4
    only_dead = of_both_subjects(hidden_ResNet=singular, alive_ResNet=2.0)
    assert verdicts("C5", only_dead) == ["inconclusive", "reproduced"] * 2
    # A state inside a branch decides nothing.
    inside = of_both_subjects(hidden_ResNet=numpy.roll(singular, 1))
    assert by_name(inside)["C5"]["layers after the first with infinite cond of hidden states, ResNet"] == [0.0] * 8
    assert by_name(inside)["C5"]["share of layers, those inside branches too, ResNet"] == pytest.approx([1 / 20] * 8)


def test_both_subjects_are_parts() -> None:
    found = hidden.evidence({SMALL: fake_conditions()})
    assert verdicts("C5", found, "quick") == ["open", "open", "reproduced", "reproduced"]
    assert verdict("C5", found, "quick") == "open"


FALL = "log10 cond of hidden states without dead channels, first tenth / median of the rest, ResNet"


def test_condition_numbers_that_fall() -> None:
    good = of_both_subjects()
    assert by_name(good)["C6"][FALL] == pytest.approx([4] * 8)
    assert verdict("C6", good, "quick") == "reproduced"
    little = of_both_subjects(hidden_ResNet=numpy.array([3.0] + [2.0] * 20))
    assert verdicts("C6", little) == ["reproduced", "not reproduced"] * 2
    assert verdict("C6", of_both_subjects(hidden_ResNet=2.0)) == "not reproduced"
    # Of 20 states between blocks two are the first tenth.
    longer = fake_conditions(41, hidden_ResNet=numpy.array([6.0, 9.0, 4.0, 9.0] + [2.0, 9.0] * 18 + [2.0]))
    assert hidden.fall(longer) == pytest.approx([3] * 8)
    # Dead channels make no state worse.
    dead = numpy.array([inf] + [2.0] * 20)
    found = of_both_subjects(hidden_ResNet=dead, alive_ResNet=2.5)
    assert by_name(found)["C6"][FALL] == pytest.approx([0] * 8)
    assert by_name(found)["C6"]["layers with infinite cond of hidden states, ResNet"] == [1.0] * 8


def test_an_infinite_first_state_counts_as_numerical_infinity() -> None:
    first = numpy.array([inf] + [2.0] * 20)
    assert by_name(of_both_subjects(hidden_ResNet=first))["C6"][FALL] == pytest.approx([10] * 8)


def test_linear_units() -> None:
    good = linear.evidence({"mnist-164-linear": fake_conditions()})
    found = by_name(good)["C7"]
    assert found["log10 cond / numerical infinity, first hidden states, PlainNet"] == [0.0] * 8
    assert found["log10 cond of hidden states at the last block, PlainNet / ResNet"] == pytest.approx([10] * 8)
    assert verdict("C7", good) == "reproduced"
    # The last block alone, of ten.
    last = numpy.array([1.0] * 18 + [8.0] * 3)
    alone = linear.evidence({"mnist-164-linear": fake_conditions(hidden_PlainNet=last)})
    typical = by_name(alone)["C7"]["log10 cond of hidden states, median over blocks of PlainNet / ResNet"]
    assert typical == pytest.approx([-1] * 8)
    assert verdicts("C7", alone) == ["reproduced", "not reproduced", "reproduced"]
    # Linear networks need not fit.
    unfit = linear.evidence({"mnist-164-linear": fake_conditions(fit=0.9)})
    assert verdict("C7", unfit) == "reproduced"
    assert verdict("C7", linear.evidence({"mnist-60-connected-linear": fake_conditions()})) == "open"


def test_deeper_networks_stand_beside_the_others() -> None:
    found = deeper.evidence({"mnist-200": fake_twins()}, {"mnist-200": fake_conditions()})
    assert {claim.id for claim in found} == {"C1", "C2", "C3", "C4", "C5", "C6"}
    for claim in found:
        decision = decided(DECIDED_BY[claim.id], claim.id, found)
        assert decision.verdict == "open"
        assert [(one.subject, one.decides) for one in decision.subjects] == [("mnist-200", False)]


# -- distributions and ranks


def fake_sizes(
    largest: dict[tuple[str, str], float], end: dict[tuple[str, str], float] | None = None, **about: Any
) -> xarray.Dataset:
    """p99 of PlainNet over ResNet's, which is 1, by what and place: the largest over all looks, and in the end (else
    the same); 1 where nothing is given."""
    shared = trained(about.get("seeds", 3), about.get("fit", 0.99))
    seeds = len(shared["coords"]["seed"])
    for name, given in (("largest", largest), ("p99", largest if end is None else end)):
        plain = [[given.get((what, place), 1.0) for place in histograms.PLACES] for what in histograms.WHAT]
        rows = numpy.stack([numpy.broadcast_to(plain, (seeds, 3, 2)), numpy.ones((seeds, 3, 2))])
        shared["data_vars"][name] = ("network", "seed", "what", "place"), rows
    shared["attrs"] |= {"chance": 0.01, "title": about.get("title", "110 layers")}
    return xarray.Dataset(**shared).assign_coords(what=list(histograms.WHAT), place=list(histograms.PLACES))


def fake_ranks(plain: Any, residual: Any, singular: tuple[float, float] = (0.0, 0.0), **about: Any) -> xarray.Dataset:
    """Shares by layer; singular: whether condition numbers are infinite, PlainNet's and ResNet's."""
    shared = trained(8, about.get("fit", 0.99))
    kinds = {**dict.fromkeys(histograms.SHARES.values(), (plain, residual))}
    kinds |= dict.fromkeys(histograms.SINGULAR.values(), singular)
    for name, given in kinds.items():
        rows = numpy.stack([numpy.broadcast_to(values, (8, 2, 5)) for values in given])
        shared["data_vars"][name] = ("network", "seed", "when", "layer"), rows
    shared["attrs"]["title"] = about.get("title", "60 layers")
    return xarray.Dataset(**shared).assign_coords(when=list(histograms.WHEN))


LARGE, LINEAR_UNITS = "cifar100-110", {"title": "60 layers, fully connected, linear units, on mnist"}
BLOWN = {("activations", "layer 1"): 1e4, ("weights", "layer 1"): 1e3, ("gradients", "layer 1"): 50.0}
FADED = {("weights", "last layer but one"): 0.01}


def test_values_that_blow_up_at_the_first_layer() -> None:
    found = histograms.evidence({LARGE: fake_sizes(BLOWN | FADED)}, {})
    quantity = "log10 of the largest p99 of weights, layer 1, PlainNet / ResNet"
    assert by_name(found)["C8"][quantity] == pytest.approx([3] * 3)
    assert verdict("C8", found) == "reproduced"
    # Layer 1 counts at its largest, the last layer but one in the end.
    along = histograms.evidence({LARGE: fake_sizes(BLOWN, FADED)}, {})
    assert verdict("C8", along) == "reproduced"
    assert by_name(along)["C8"]["log10 p99 of weights in the end, layer 1, PlainNet / ResNet"] == [0] * 3
    everywhere = {(what, place): 1e4 for what in histograms.WHAT for place in histograms.PLACES}
    parts = verdicts("C8", histograms.evidence({LARGE: fake_sizes(everywhere)}, {}))
    assert parts == ["reproduced"] * 3 + ["not reproduced"] * 2
    parts = verdicts("C8", histograms.evidence({LARGE: fake_sizes({})}, {}))
    assert parts == ["not reproduced"] * 3 + ["reproduced", "not reproduced"]
    silent = histograms.evidence({LARGE: fake_sizes({("gradients", "layer 1"): 0.0})}, {})
    assert histograms.ratio(fake_sizes({("gradients", "layer 1"): 0.0}), "gradients", "layer 1").tolist() == [-inf] * 3
    assert verdicts("C8", silent)[2] == "not reproduced"


def test_ratios_of_networks_that_do_not_fit_are_open() -> None:
    """But for linear ones, which stand beside the others."""
    sizes = {
        LARGE: fake_sizes(BLOWN | FADED, fit=0.6),
        f"{LARGE}-linear": fake_sizes(BLOWN | FADED, fit=0.6, **LINEAR_UNITS),
    }
    decision = decided(HISTOGRAMS, "C8", histograms.evidence(sizes, {}))
    assert decision.verdict == "open"
    assert [subject.verdict for subject in decision.subjects] == ["open", "reproduced"]


def test_ranks_of_gradients() -> None:
    low, full = [0.1, 0.2, 0.3, 1.0, 1.0], [0.5, 1.0, 1.0, 1.0, 1.0]
    ranks = {
        SMALL: fake_ranks(low, full, (1.0, 0.0)),
        f"{SMALL}-linear": fake_ranks(1.0, 1.0, ([1, 1, 0, 0, 0], 0.0), fit=0.9, **LINEAR_UNITS),  # type: ignore[arg-type]
    }
    found = histograms.evidence({}, ranks)
    named = by_name(found)["C15"]
    assert named["rank share of errors at initialisation, PlainNet"] == pytest.approx([0.3] * 8)
    assert named["share of layers with infinite cond of errors at initialisation, PlainNet"] == [1.0] * 8
    linear_ones = by_name(found, f"{SMALL}-linear")["C15"]
    assert linear_ones["share of layers with infinite cond of errors early in training, PlainNet"] == [0.4] * 8
    assert verdicts("C15", found, "quick") == ["reproduced"] * 2 + ["not reproduced"] * 2
    assert verdict("C15", found, "quick") == "partly reproduced"
    missing = histograms.evidence({}, {SMALL: fake_ranks([nan] * 5, 1.0, (nan, 0.0))})
    assert verdicts("C15", missing) == ["inconclusive"] * 2 + ["open"] * 2


# -- DiracNets


def fake_drift(seeds: int = 3, test: Any = 0.96) -> xarray.Dataset:
    """test: accuracies of ResNet; DiracNet has 0.14."""
    rows = {name: (("network", "seed"), numpy.array([[1.0, 2.0, 3.0]] * 3)) for name in ("distance", "first_distance")}
    rows |= {
        name: (("network", "seed"), numpy.array([[0.1] * 3, [0.2] * 3, [nan] * 3])) for name in ("drift", "factor")
    }
    whole = fake_twins(3, ResNeXt=(0.99, test)).assign_coords(network=list(dirac.TITLES)).assign(rows)
    return whole.isel(seed=slice(seeds))


def test_diracnets_are_reported_with_intervals() -> None:
    evidence = dirac.evidence({"cifar10-32": fake_drift()})
    found = by_name(evidence)["C17"]
    assert found["mean |a - 1|, DiracNet"] == [0.1] * 3
    assert found["test accuracy, ResNet - DiracNet"] == pytest.approx([0.96 - 0.14] * 3)
    low, high = found["95 % interval of its mean, |h^L - h^0| / |h^0|, ResNet"]
    assert (low + high) / 2 == pytest.approx(2)
    assert high - low == pytest.approx(2 * 4.302653 / 3**0.5)  # t of two degrees of freedom


def test_resnet_ahead_of_diracnet() -> None:
    assert verdict("C17", dirac.evidence({"cifar10-32": fake_drift()})) == "reproduced"
    assert verdict("C17", dirac.evidence({"cifar10-32": fake_drift(test=0.1)})) == "not reproduced"
    assert verdict("C17", dirac.evidence({"cifar10-32": fake_drift(2)})) == "open"
    assert verdict("C17", dirac.evidence({"mnist-20-connected": fake_drift()}), "quick") == "open"
