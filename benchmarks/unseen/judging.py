"""Thresholds from one list of networks, and how often they are right about another.

The thresholds of an optimiser are those with the largest balanced accuracy on the networks of the calibration list that
are trained with it. For gradient descent the networks of `results/check.json` count too: those that train, which did it
in a quarter of the time, and the others with as much time as the calibration list has. No published network may break
one. They are found rule by rule: each begins where no network that
trains breaks it, halfway to the next that fails, and then all are moved in turn, to halfway between two networks, where
that makes the accuracy larger; of equally good places the one farthest out is taken. Rounded to two digits, outwards.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

from benchmarks.check import WORDS, read, wilson
from skipscope.check.rules import Rule, broken, rules_for
from skipscope.check.short_training import DOUBTFUL
from skipscope.optimisers import OPTIMISERS

NOT_MEASURED = "not finite"


def optimiser_of(record: Mapping[str, Any]) -> str:
    return str(record["words"]).rpartition(" ")[2]


def expected_to_train(record: Mapping[str, Any]) -> bool:
    """As `ss.check` has it: numbers that are not finite are a finding of their own."""
    return not reasons(record)


def reasons(record: Mapping[str, Any]) -> tuple[str, ...]:
    if math.isnan(record["signals"]["gradient_growth"]):
        return (NOT_MEASURED,)
    return broken(record["signals"], optimiser_of(record))


def fit(networks: Iterable[dict[str, Any]], longer: Iterable[dict[str, Any]]) -> str:
    """longer: the networks of `results/check.json` that failed there, with as much time as the others have."""
    networks, stored = list(networks), read()
    published = list(stored["published"].values())
    earlier = [*longer, *(each for each in (stored["networks"] | stored["later"]).values() if each["trains"])]
    lines = []
    for optimiser in OPTIMISERS:
        own = [each for each in networks if optimiser_of(each) == optimiser]
        lines.append(f"{optimiser}: {len(own)} networks, {sum(each['trains'] for each in own)} train")
        rules = fitted(rules_for(optimiser), own + (earlier if optimiser == "sgd" else []), published)
        for rule, now in zip(rules, rules_for(optimiser), strict=True):
            caught = sum(rule.broken(each["signals"]) for each in own if not each["trains"])
            threshold = rounded(rule.threshold, rule.above)
            lines.append(f"  {rule.name:28} {threshold:9.4g}   now {now.threshold:9.4g}   {caught} failures caught")
        wrong = [each for each in own if each["trains"] != expected_to_train(each)]
        lines += [f"  wrong now: {each['words']}, {max(each['accuracy'].values()):.2f}" for each in wrong]
    return "\n".join(lines)


def fitted(
    rules: Iterable[Rule], networks: list[dict[str, Any]], published: list[dict[str, float]]
) -> tuple[Rule, ...]:
    """With other thresholds. networks: those whose numbers are finite count."""
    networks = [each for each in networks if not math.isnan(each["signals"]["gradient_growth"])]
    found = [replace(rule, threshold=_without_false_alarms(rule, networks, published)) for rule in rules]
    best = -1.0
    while (accuracy := _accuracy(found, networks)) > best:
        best = accuracy
        for number, rule in enumerate(found):
            limit = (max if rule.above else min)(signals[rule.signal] for signals in published)
            places = [each for each in _places(rule, networks) if (each >= limit if rule.above else each <= limit)]
            tried = [[*found[:number], replace(rule, threshold=place), *found[number + 1 :]] for place in places]
            better = max(reversed(tried), key=lambda rules: _accuracy(rules, networks))  # the farthest out of the best
            if _accuracy(better, networks) > _accuracy(found, networks):
                found = better
    return tuple(found)


def _without_false_alarms(rule: Rule, networks: list[dict[str, Any]], published: list[dict[str, float]]) -> float:
    sign = 1 if rule.above else -1
    last = max(sign * signals[rule.signal] for signals in (*published, *_signals(networks, trains=True)))
    beyond = [sign * signals[rule.signal] for signals in _signals(networks, trains=False)]
    return sign * (last + min((value for value in beyond if value > last), default=math.inf)) / 2


def _signals(networks: list[dict[str, Any]], trains: bool) -> list[dict[str, float]]:
    return [each["signals"] for each in networks if each["trains"] == trains]


def _places(rule: Rule, networks: list[dict[str, Any]]) -> list[float]:
    """Halfway between neighbouring values; inner ones first."""
    values = sorted({each["signals"][rule.signal] for each in networks}, reverse=not rule.above)
    return [(one + following) / 2 for one, following in pairwise(values)]


def _accuracy(rules: Iterable[Rule], networks: Iterable[Mapping[str, Any]]) -> float:
    rules = list(rules)
    return balanced(
        Counter((bool(each["trains"]), not any(rule.broken(each["signals"]) for rule in rules)) for each in networks)
    )[0]


def rounded(threshold: float, above: bool) -> float:
    """Two digits, further out."""
    if not math.isfinite(threshold) or threshold == 0:
        return threshold
    unit = 10.0 ** (math.floor(math.log10(abs(threshold))) - 1)
    return round((math.ceil if above else math.floor)(threshold / unit) * unit, 12)


def balanced(counts: Counter[tuple[bool, bool]]) -> tuple[float, float, float]:
    """Balanced accuracy and its 95 % interval, from counts of (trains, expected to).

    The mean of two shares; the intervals of both (Wilson) are combined by square and add (Zou and Donner 2008).
    """
    shares, below, above = [], [], []
    for truth in (True, False):
        right, total = counts[truth, truth], counts[truth, True] + counts[truth, False]
        low, high = wilson(right, total)
        shares.append(right / total)
        below.append(right / total - low)
        above.append(high - right / total)
    mean = sum(shares) / 2
    return mean, mean - math.hypot(*below) / 2, mean + math.hypot(*above) / 2


def learns(record: Mapping[str, Any]) -> bool:
    """As `ss.check` has it where copies are trained."""
    return bool(record["short_training"]["learns"])


def counted(
    records: Iterable[Mapping[str, Any]], said: Callable[[Mapping[str, Any]], bool] = expected_to_train
) -> Counter[tuple[bool, bool]]:
    return Counter((bool(record["trains"]), said(record)) for record in records)


def figure(counts: Counter[tuple[bool, bool]]) -> str:
    share, low, high = balanced(counts)
    return f"{100 * share:.1f} %, 95 % interval {100 * low:.1f} % to {100 * high:.1f} %"


def ceiling(records: Iterable[Mapping[str, Any]]) -> float:
    """What a random forest on all signals and the optimiser reaches, as the balanced accuracy of ten parts, each judged
    by the other nine: about how much these signals hold."""
    import numpy
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.metrics import balanced_accuracy_score
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    finite = [each for each in records if not math.isnan(each["signals"]["gradient_growth"])]
    signals = numpy.array([[*each["signals"].values(), optimiser_of(each) == "adam"] for each in finite])
    trains = numpy.array([each["trains"] for each in finite])
    parts = StratifiedKFold(10, shuffle=True, random_state=0)
    forest = RandomForestClassifier(500, class_weight="balanced", random_state=0)
    return float(balanced_accuracy_score(trains, cross_val_predict(forest, signals, trains, cv=parts)))


def report(networks: Mapping[str, Mapping[str, Any]], plain: Mapping[str, Mapping[str, Any]]) -> str:
    """networks: of the judging list. plain: of the list of plain networks with batch norm."""
    counts = counted(plain.values())
    lines = [
        *_figures(networks, "unseen networks", expected_to_train),
        "",
        "Those that it is wrong about:",
        "",
        *_table({name: each for name, each in networks.items() if each["trains"] != expected_to_train(each)}),
        "",
        f"Of {len(plain)} further plain networks with batch norm of 24 to 44 layers, drawn for this, "
        f"{sum(each['trains'] for each in plain.values())} train, and {counts[True, True] + counts[False, False]} "
        "verdicts are right:",
        "",
        *_table(plain),
    ]
    return "\n".join(lines)


def report_of_short_training(networks: Mapping[str, Mapping[str, Any]]) -> str:
    """networks: of the second list."""
    rules = counted(networks.values())
    share = statistics.median(
        each["short_training"]["seconds"] / (each["seconds"] or 0.1) for each in networks.values()
    )
    short, whole = (
        sum(seconds) / 60
        for seconds in (
            (each["short_training"]["seconds"] for each in networks.values()),
            (each["seconds"] for each in networks.values()),
        )
    )
    doubtful = [each for each in networks.values() if not learns(each) and each["short_training"]["learnt"] >= DOUBTFUL]
    wrong = {name: each for name, each in networks.items() if each["trains"] != learns(each)}
    lines = [
        *_figures(networks, "other unseen networks, with a short training", learns),
        "",
        f"The rules alone have {figure(rules)} on the same networks. The short trainings took {short:.0f} minutes of "
        f"one core, the trainings that say what is true {whole:.0f} (of the median network: {share:.0%}). "
        f"{len(doubtful)} verdicts are narrow.",
        "",
        "Those that it is wrong about:",
        "",
        "| network | best accuracy | trains | learnt | learns | rules alone |",
        "|---|---:|---|---:|---|---|",
    ]
    for name, each in wrong.items():
        cells = (
            f"{name}: {each['words']}",
            f"{max(each['accuracy'].values()):.2f}",
            WORDS[each["trains"]],
            f"{each['short_training']['learnt']:.2f}",
            WORDS[learns(each)],
            WORDS[expected_to_train(each)],
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _figures(
    networks: Mapping[str, Mapping[str, Any]], what: str, said: Callable[[Mapping[str, Any]], bool]
) -> Iterator[str]:
    every = counted(networks.values(), said)
    right, total = every[True, True] + every[False, False], every.total()
    train = every[True, True] + every[True, False]
    yield (
        f"**Balanced accuracy on {total} {what}: {figure(every)}.** {right} verdicts are right, with "
        f"{every[True, False]} false alarms and {every[False, True]} misses. {train} of the networks train, "
        f"{100 * train / total:.0f} %."
    )
    yield ""
    yield "| networks | train | of these expected to | fail | of these expected to | balanced accuracy |"
    yield "|---|---:|---:|---:|---:|---|"
    groups = {"all": networks}
    for word in ("connected", "convolutional", "transformer"):
        groups[word] = {name: each for name, each in networks.items() if each["words"].startswith(word)}
    for optimiser in OPTIMISERS:
        groups[optimiser] = {name: each for name, each in networks.items() if optimiser_of(each) == optimiser}
    groups["no skips"] = {name: each for name, each in networks.items() if "no skips" in each["words"]}
    groups["with skips"] = {name: each for name, each in networks.items() if "no skips" not in each["words"]}
    for title, group in groups.items():
        counts = counted(group.values(), said)
        trains, fails = (sum(counts[truth, said] for said in (True, False)) for truth in (True, False))
        cells = (title, trains, counts[True, True], fails, counts[False, False], figure(counts))
        yield f"| {' | '.join(map(str, cells))} |"


def _table(records: Mapping[str, Mapping[str, Any]]) -> list[str]:
    lines = ["| network | best accuracy | trains | expected to train | broken |", "|---|---:|---|---|---|"]
    for name, record in records.items():
        cells = (
            f"{name}: {record['words']}",
            f"{max(record['accuracy'].values()):.2f}",
            WORDS[record["trains"]],
            WORDS[expected_to_train(record)],
            ", ".join(reasons(record)),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return lines
