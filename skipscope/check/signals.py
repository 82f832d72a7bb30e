"""What a check measures: a profile of the states, layer by layer, and one number for each question.

With h_0 the first state (what enters the second layer: the units of the input are gone), h_L the last (what enters the
last layer, or what a mean over places was taken of before it), n_0 and n_L entries of a sample, B samples, J the
Jacobian of h_L by h_0:

growth            log10 of RMS(h_L) / RMS(h_0)
contrast          log10 of s_L / s_0; s: the share of a state's energy that differs between samples,
                  1 - |mean of h|^2 / mean of |h|^2. A network that maps all inputs to one direction loses it
rank              r_L / min(r_0, n_L); r: exp(entropy) of the squared singular values of the centred states, from 1 to
                  B - 1; of more samples than the thresholds know, the mean over groups of that many
gradient_growth   log10 of |J|_F / sqrt(min(n_0, n_L)), the RMS of the singular values of J, from g = dF/dh for random
                  linear functionals F of h_L
sensitivity       log10 of |J d| / |D|, root mean squares over the samples; d: from a sample's h_0 to that of the next,
                  D: the same for h_L. A linear network has 0. Above it, a small step towards another sample goes
                  further than the whole way: gradients of neighbouring inputs have nothing in common. |J d| is
                  from the same functionals, with one sample changed at a time
gradient_rank     exp(entropy) of the squared singular values of J^T u for PROBES random u, the mean over the samples,
                  from 1 to PROBES, over that of the u or n_0: near 1 / PROBES the gradients that come back all point
                  the same way
shattering        sensitivity times the share of directions that gradients have lost, 1 - gradient_rank, at least 0:
                  large where gradients of neighbouring inputs have nothing in common and the network is too narrow to
                  follow each of them on its own. A wide one may have a large sensitivity, and trains
loss              the cross-entropy with random labels over that of a guess, ln C, where the output looks like scores of
                  C classes: a float tensor (B, C)

errors: standard errors of these over the samples, by leaving samples out in turn. The jackknife (Quenouille 1956, Tukey
1958): with t_j a statistic of all samples but those of group j, of g groups, its variance is about (g - 1) / g times
the sum of (t_j - mean of t)^2. The functionals whose gradients are followed back are drawn for every sample, so that
their own scatter is part of it. With few samples the error is itself rough; what the weights would be with another seed
is no part of it.

With B below the number of samples that the thresholds
know, C, a state differs in fewer directions than it has: r_0 would grow at most to r_0 (C - 1) / (B - 1), and r_L not
fall, so that `rank` would be at least r_L / min(r_0 (C - 1) / (B - 1), n_L): `rank_at_least`.

Numbers below the smallest of float32 count as that, so that logarithms are finite. Cost: PROBES + 1 passes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from skipscope.check.states import Pass, State, floats, training_pass
from skipscope.errors import InputError
from skipscope.measure.profile import effective_rank
from skipscope.numerics import normal, random_numbers

if TYPE_CHECKING:
    import xarray

PROBES = 8
GROUPS = 32
CALIBRATED = 32  # samples with which the thresholds were found: the rank of states grows with their number
SMALLEST = 1.4e-45  # of float32
CONTRAST_OF_EQUAL_SAMPLES = 1e-20  # the share of the energy that rounding leaves between them


@dataclass(frozen=True)
class Measured:
    """signals: by name, NaN where one cannot be measured. layers: the profile.

    by_layer: those signals that every state has, from the first state to it or from it to the last; NaN before the
    first. not_finite: the first state of which some number is not. gradient_not_finite: the last state that is reached
    by gradients which are not all finite, while all states are.
    """

    signals: dict[str, float]
    errors: dict[str, float]
    rank_at_least: float
    layers: xarray.Dataset
    by_layer: dict[str, list[float]]
    input_rms: float | None
    cut: tuple[str, ...]
    frozen: tuple[str, ...]
    not_finite: str = ""
    gradient_not_finite: str = ""


def measured(model: nn.Module, x: Any, seed: int = 0) -> Measured:
    with training_pass(model, x) as run:
        named = [(state.layer, state.tensor) for state in run.states]
        named += [("the output", tensor) for tensor in floats(run.output)]
        bad = [name for name, tensor in named if not tensor.isfinite().all()]
        profiles = [_profile(run, state) for state in run.states]
        back = _follow_back(run, profiles, seed)
        losses = _losses(run, seed)
    if profiles[0]["contrast"] < CONTRAST_OF_EQUAL_SAMPLES:
        raise InputError(f"check: expected samples that differ, got {run.batch} that are the same")
    first, last = profiles[back.first], profiles[-1]
    moved = math.nan if back.moved is None else float(back.moved.mean().sqrt())
    loss = math.nan if losses is None else float(losses.mean())
    by_layer = {
        "growth": [_log_ratio(profile["rms"], first["rms"]) for profile in profiles],
        "rank": [_rank_kept(first, profile) for profile in profiles],
        "gradient_growth": [_gain(profile, last) for profile in profiles],
    }
    for values in by_layer.values():
        values[: back.first] = [math.nan] * back.first
    return Measured(
        {**_signals(first, last, moved), "loss": loss},
        {} if back.ends is None else _errors(*back.ends, back.moved, losses),
        _rank_kept(first, last, 1.0 if first is last else max(1.0, (CALIBRATED - 1) / (run.batch - 1))),
        _dataset(run, profiles, seed),
        by_layer,
        run.input_rms,
        run.cut,
        run.frozen,
        next(iter(bad), ""),
        "" if bad or back.not_finite is None else run.states[back.not_finite].layer,
    )


def _profile(run: Pass, state: State) -> dict[str, float]:
    """The numbers of one state; `distance` is that between a sample and the next, an RMS."""
    found = {
        "rms": _rms(state.tensor),
        "entries": state.tensor.numel() / run.batch,
        **dict.fromkeys(("contrast", "distance", "rank", "gradient_rms", "gradient_rank"), math.nan),
    }
    if state.axis is None or not state.tensor.isfinite().all():
        return found
    rows = state.by_sample(state.tensor, run.batch)
    energy = float(rows.square().sum())
    found["contrast"] = float((rows - rows.mean(0)).square().sum()) / energy if energy else 0.0
    found["distance"] = float(_to_the_next(rows).square().sum(1).mean().sqrt())
    ranks = [_rank(group - group.mean(0)) for group in _groups_of(rows)]
    found["rank"] = sum(ranks) / len(ranks)
    return found


@dataclass(frozen=True)
class _Back:
    """first: the number of the first state, run's own or the next that the last one depends on.

    moved: |J d|^2 of that state for every sample (B,), the mean over functionals. ends: what the first and the last
    state have of every sample, None where it has no axis of samples. not_finite: the last state with a gradient that
    is not.
    """

    first: int
    moved: Tensor | None
    ends: tuple[_End, _End] | None
    not_finite: int | None


def _follow_back(run: Pass, profiles: list[dict[str, float]], seed: int) -> _Back:
    """Put gradients of random functionals of the last state into the profiles."""
    generator = random_numbers("functionals", seed)
    tensors = [state.tensor for state in run.states]
    squares: list[list[float]] = [[] for _ in tensors]
    ends: dict[int, list[Tensor]] = {}  # gradients of whole states are kept of the first and the last alone
    for _ in range(PROBES):
        direction = normal(tensors[-1].shape, generator)
        found = torch.autograd.grad(
            tensors[-1], tensors, direction.to(tensors[-1]), retain_graph=True, allow_unused=True
        )
        reached = [index for index, gradient in enumerate(found) if gradient is not None]
        for index in reached:
            squares[index].append(_rms(found[index]) ** 2)
        for index in {next(index for index in reached if index >= run.first), reached[-1]}:
            ends.setdefault(index, []).append(found[index])
    for profile, each in zip(profiles, squares, strict=True):
        profile["gradient_rms"] = (sum(each) / PROBES) ** 0.5 if each else math.nan
    not_finite = [
        index for index, each in enumerate(squares) if index >= run.first and not all(map(math.isfinite, each))
    ]
    first, last = min(ends), max(ends)
    found_at: dict[int, _End] = {}
    moved = None
    for index, gradients in ends.items():
        state = run.states[index]
        if state.axis is None or not all(bool(each.isfinite().all()) for each in (state.tensor, *gradients)):
            continue
        states = state.by_sample(state.tensor, run.batch)
        rows = torch.stack([state.by_sample(gradient, run.batch) for gradient in gradients], 1)  # B, PROBES, n
        found_at[index] = _End.of(states, rows)
        profiles[index]["gradient_rank"] = float(found_at[index].gradient_ranks.mean())
        if index == first:
            along = (rows * _to_the_next(states)[:, None]).sum(2)  # B, PROBES
            moved = along.square().mean(1).cpu()
    both = (found_at[first], found_at[last]) if first in found_at and last in found_at else None
    return _Back(first, moved, both, max(not_finite, default=None))


def _to_the_next(rows: Tensor) -> Tensor:
    """From every sample to the one after it: (B, n)."""
    return rows.roll(-1, 0) - rows


def _rms(tensor: Tensor) -> float:
    return float(tensor.detach().double().square().mean().sqrt())


def _rank(rows: Tensor) -> float:
    return float(effective_rank(rows)) if bool(rows.any()) else 0.0


def _signals(first: dict[str, float], last: dict[str, float], moved: float) -> dict[str, float]:
    sensitivity = _log_ratio(moved, last["distance"])
    gradient_rank = first["gradient_rank"] / min(last["gradient_rank"], first["entries"])
    return {
        "growth": _log_ratio(last["rms"], first["rms"]),
        "contrast": _log_ratio(last["contrast"], first["contrast"]),
        "rank": _rank_kept(first, last),
        "gradient_growth": _gain(first, last),
        "sensitivity": sensitivity,
        "gradient_rank": gradient_rank,
        "shattering": _shattering(sensitivity, gradient_rank),
    }


def _shattering(sensitivity: float, gradient_rank: float) -> float:
    return sensitivity * (1 - min(gradient_rank, 1.0))


def _rank_kept(first: dict[str, float], last: dict[str, float], more: float = 1.0) -> float:
    """A state has no more directions than entries. more: times as many as the first state shows."""
    return last["rank"] / min(more * first["rank"], last["entries"]) if first["rank"] else 0.0


def _gain(first: dict[str, float], last: dict[str, float]) -> float:
    spread = first["entries"] / min(first["entries"], last["entries"])
    return _log_ratio(first["gradient_rms"], last["gradient_rms"]) + math.log10(spread) / 2


def _log_ratio(above: float, below: float) -> float:
    if math.isnan(above) or math.isnan(below) or math.isinf(above) or math.isinf(below):
        return math.nan
    return math.log10(max(above, SMALLEST)) - math.log10(max(below, SMALLEST))


def _losses(run: Pass, seed: int) -> Tensor | None:
    """Of every sample, over that of a guess: (B,)."""
    scores = next(iter(floats(run.output)), None)
    if scores is None or scores.dim() != 2 or scores.shape[0] != run.batch or scores.shape[1] < 2:
        return None
    classes = scores.shape[1]
    generator = random_numbers("labels", seed)
    labels = torch.randint(classes, (run.batch,), generator=generator, device="cpu")
    return F.cross_entropy(scores.detach().double().cpu(), labels, reduction="none") / math.log(classes)


def _dataset(run: Pass, profiles: list[dict[str, float]], seed: int) -> xarray.Dataset:
    import numpy
    import xarray

    columns = ("rms", "contrast", "rank", "gradient_rms")
    return xarray.Dataset(
        {name: ("layer", numpy.array([profile[name] for profile in profiles])) for name in columns},
        coords={"layer": [state.layer for state in run.states]},
        attrs={
            "measure": "check",
            "mode": "batch norms as in training, dropout off",
            "gradient": "of random linear functionals of the last state",
            "samples": run.batch,
            "probes": PROBES,
            "seed": seed,
        },
    )


# -- standard errors


@dataclass(frozen=True)
class _End:
    """What the first or the last state has of every sample, and the gradients of all functionals there.

    entries: of a sample. energies, gradient_squares, gradient_ranks: (B,). distances: squares of those to the next
    sample, (B,). grams: of every group of samples whose rank
    is taken, products of the centred rows.
    """

    entries: int
    energies: Tensor
    distances: Tensor
    grams: list[Tensor]
    gradient_squares: Tensor
    gradient_ranks: Tensor

    @classmethod
    def of(cls, rows: Tensor, gradients: Tensor) -> _End:
        """rows: (B, n). gradients: (B, functionals, n)."""
        centred = [group - group.mean(0) for group in _groups_of(rows)]
        squares = gradients.square().sum((1, 2))
        ranks = torch.tensor([_rank(each) for each in gradients], dtype=torch.float64, device="cpu")
        return cls(
            rows.shape[1],
            rows.square().sum(1).cpu(),
            _to_the_next(rows).square().sum(1).cpu(),
            [(g @ g.mT).cpu() for g in centred],
            squares.cpu(),
            ranks,
        )


def _groups_of(rows: Tensor) -> list[Tensor]:
    """As many samples in a group as the thresholds know, so that more of them make a rank steadier, not larger."""
    return [group for group in rows.split(CALIBRATED) if len(group) == min(len(rows), CALIBRATED)]


def _errors(first: _End, last: _End, moved: Tensor | None, losses: Tensor | None) -> dict[str, float]:
    """Standard errors of the signals that rules look at; moved, losses: (B,)."""
    batch = len(first.energies)

    def growth(kept: Tensor) -> float:
        return _log_ratio_of_sums(last.energies[kept], first.energies[kept]) / 2

    def gradient_growth(kept: Tensor) -> float:
        return _log_ratio_of_sums(first.gradient_squares[kept], last.gradient_squares[kept]) / 2

    def gradient_rank(kept: Tensor) -> float:
        return float(first.gradient_ranks[kept].mean()) / min(float(last.gradient_ranks[kept].mean()), first.entries)

    def shattering(kept: Tensor) -> float:
        if moved is None:
            return math.nan
        return _shattering(_log_ratio_of_sums(moved[kept], last.distances[kept]) / 2, gradient_rank(kept))

    def loss(kept: Tensor) -> float:
        return math.nan if losses is None else float(losses[kept].mean())

    of_groups = [
        _jackknife(partial(_rank_of_grams_kept, before, after, last.entries), len(before))
        for before, after in zip(first.grams, last.grams, strict=True)
    ]
    return {
        "growth": _jackknife(growth, batch),
        "rank": math.sqrt(sum(error**2 for error in of_groups)) / len(of_groups),
        "gradient_growth": _jackknife(gradient_growth, batch),
        "gradient_rank": _jackknife(gradient_rank, batch),
        "shattering": _jackknife(shattering, batch),
        "loss": _jackknife(loss, batch),
    }


def _jackknife(statistic: Callable[[Tensor], float], batch: int) -> float:
    """statistic: of the samples whose numbers it is given."""
    groups = min(batch, GROUPS)
    number = torch.arange(batch, device="cpu")
    values = torch.tensor([statistic(number[number % groups != group]) for group in range(groups)], dtype=torch.float64)
    return math.sqrt((groups - 1) / groups * float((values - values.mean()).square().sum()))


def _rank_of_grams_kept(first: Tensor, last: Tensor, entries: int, kept: Tensor) -> float:
    """first, last: Gram matrices."""
    before = _rank_of_gram(first[kept][:, kept])
    return _rank_of_gram(last[kept][:, kept]) / min(before, entries) if before else 0.0


def _rank_of_gram(gram: Tensor) -> float:
    """Effective rank of the rows behind a Gram matrix, centred once more: some of them were left out."""
    centred = gram - gram.mean(0) - gram.mean(1, keepdim=True) + gram.mean()
    squares = torch.linalg.eigvalsh(centred).clamp_min(0)
    return float(torch.exp(torch.special.entr(squares / squares.sum()).sum())) if float(squares.sum()) > 0 else 0.0


def _log_ratio_of_sums(above: Tensor, below: Tensor) -> float:
    smallest = torch.finfo(torch.float64).tiny
    return math.log10(max(float(above.sum()), smallest)) - math.log10(max(float(below.sum()), smallest))
