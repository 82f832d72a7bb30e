"""Neural collapse: how far the features of a class have shrunk to one point, and these points to a simplex.

(Papyan, Han and Donoho, 2020.) With the mean m_c of the features of class c, the mean m of the C class means, the
matrix M with the columns m_c - m (n x C), and the classifier's weight W (C x n):

nc1                   tr(S_W S_B^+) / C: S_W the covariance within classes, S_B = M M^T / C that of the class means
nc2_equinorm          standard deviation / mean of |m_c - m|
nc2_equiangular       standard deviation of the cosines of m_c - m and m_d - m over all pairs of classes
nc2_maximal_angle     mean of | cosine + 1 / (C - 1) | over these pairs: C directions cannot be further apart
nc3                   | W^T / |W|_F - M / |M|_F |_F^2, between 0 and 4
nc4                   share of samples whose largest score is not that of the nearest class mean
cdnv                  mean over all pairs of (V_c + V_d) / (2 |m_c - m_d|^2), V_c the mean of |h - m_c|^2 in class c
nearest_mean_accuracy share of samples whose nearest class mean is that of their own class
accuracy              share of samples whose largest score is their label's

Collapsed features have nc1 to nc4 and cdnv zero. nc3, nc4 and accuracy are those of the last layer, the features that
enter the classifier; its bias is not part of nc3. All others are there for every layer (dimension `layer`).

Every class counts the same, however many samples it has: m is the mean of the class means, and S_W the mean over
classes of their covariances, squares divided by the number of the class's samples. With as many samples in every class
these are the paper's. Standard deviations are of the numbers themselves (squares divided by their number).

**nc1 without n x n matrices.** Let M = U S V^T with r = `rank` singular values s_k above zero. Then
S_B = U S^2 U^T / C, so S_B^+ = C U S^-2 U^T, and the trace is cyclic:

    tr(S_W S_B^+) / C = tr(S^-2 U^T S_W U) = sum_k < (u_k^T (h - m_c))^2 > / s_k^2

with < > the mean over classes of the means over their samples. Only the components of h - m_c along the span of M
count, and u_k = M v_k / s_k, so u_k^T (h - m_c) = v_k^T (M^T (h - m_c)) / s_k: C products per sample. s_k and v_k
are
those of the C x C triangle of M = Q R. The columns of M sum to zero: r is C - 1 at most. Singular values that rounding
of the features could have made count as zero: those up to eps sqrt(C) times the root mean square of |h| in the class
where it is largest, with the eps of the features' type. `notes` report r < C - 1.

Cost: two passes over the data, each with the model's own forward pass and one through the trunk; in memory C x n
numbers of float64 per layer and the states of one batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from skipscope.errors import InputError, TraceError
from skipscope.linear.memory import free_bytes
from skipscope.measure.descriptions import described
from skipscope.measure.features import Batches, Features, check_classifier, checked_layers, found_classifier, placed
from skipscope.measure.selection import refuse_batch_statistics
from skipscope.memory_limit import Memory, with_memory
from skipscope.renamed import renamed_parameters
from skipscope.trace import Trunk, trace
from skipscope.trace.running_statistics import never_seen
from skipscope.trace.undisturbed import unwrapped

if TYPE_CHECKING:
    import xarray

BATCH = 256
TRACED = 2  # samples that the trunk is traced with
NAMED = 10  # classes that a message names
REREAD_TOLERANCE = 1e-4  # of the size of features: by how much class means may differ when the data is read twice


@renamed_parameters(samples="samples_per_class")
@with_memory
def collapse(
    model: nn.Module,
    data: Any,
    *,
    classifier: str | None = None,
    layers: Sequence[str] | None = None,
    batch: int = BATCH,
    samples_per_class: int | None = None,
    memory: Memory | None = None,
) -> xarray.Dataset:
    """Measure a classifier's features over labelled data; dimension `layer`.

    data: (x, labels), a split such as `digits().train`, or batches of such pairs that can be read twice and are the
    same each time. All classes of the classifier must be there, labelled 0, 1, ...
    classifier: the path of the last nn.Linear; by default the one whose output is the model's.
    layers: paths of modules whose outputs are measured as well, [] for none; by default the entry of every residual
    unit and the last exit, where units are found.
    batch: samples at a time, where data is not batches already. samples_per_class: how many of each class at most;
    the first ones are taken.
    """
    import xarray

    if not isinstance(model, nn.Module):
        raise InputError(f"expected a torch.nn.Module as the model, got {type(model).__name__}")
    refuse_batch_statistics(model)
    model, batches = unwrapped(model), Batches(data, batch, samples_per_class)
    features, notes = _features(model, batches, classifier, layers)
    measured, counts = _class_means(features, batches)
    differ, right = _spreads(features, batches, measured, counts)
    rows = [layer.numbers() for layer in measured]
    total, last, weight = int(counts.sum()), measured[-1], features.weight.double()
    notes += [layer.about for layer in measured if layer.about]
    if alone := (counts == 1).nonzero().flatten().tolist():
        notes.append(f"classes with one sample, which has no spread: {_listed(alone)}")
    dataset = xarray.Dataset(
        {name: (("layer",), numpy.array([row[name] for row in rows])) for name in rows[0]}
        | {
            "nc3": float((weight / weight.norm() - last.centred / last.centred.norm()).square().sum()),
            "nc4": differ / total,
            "accuracy": right / total,
            "samples": (("label",), counts.cpu().numpy()),
        },
        {"layer": [layer.name for layer in measured], "label": list(range(len(counts)))},
        {
            "measure": "collapse",
            "mode": "eval",
            "classifier": features.classifier,
            "dtype": str(last.dtype).removeprefix("torch."),
            "computed_in": "float64",
            "weights": "every class counts the same",
            "notes": "; ".join(notes),
        },
    )
    return described(dataset)


class ClassMeans:
    """Class means of one layer's features, how far its samples are from them, and what else is summed over them."""

    def __init__(self, name: str, means: Tensor, scale: Tensor, dtype: torch.dtype, counts: Tensor) -> None:
        """means: (C, n), which becomes `centred`. scale: the size of the features."""
        self.name, self.scale, self.dtype, self.counts = name, scale, dtype, counts
        self.classes, self.size = means.shape
        self.mean = means.mean(0)
        self.centred = means.sub_(self.mean)
        self.gram = self.centred @ self.centred.mT
        _, S, Vt = torch.linalg.svd(torch.linalg.qr(self.centred.mT, mode="r").R, full_matrices=False)
        rounding = torch.finfo(dtype).eps * self.classes**0.5 * self.scale
        above = rounding.clamp_min(max(means.shape) * torch.finfo(torch.float64).eps * S[0]) < S
        self.rank = min(int(above.sum()), self.classes - 1)
        self.values, self.vectors = S[: self.rank], Vt[: self.rank]  # (r,), (r, C)
        self._along = torch.zeros_like(self.values)
        self._squares = self.gram.new_zeros(self.classes)
        self._nearest_right = 0

    @property
    def about(self) -> str:
        if self.rank == self.classes - 1:
            return ""
        return f"at {self.name} the class means span {self.rank} dimensions, fewer than {self.classes - 1}"

    def add(self, value: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """h - m_c of every sample, (B, n), and the class of its nearest mean."""
        from_mean = value.double() - self.mean - self.centred[labels]
        products = from_mean @ self.centred.mT  # B, C
        components = products @ self.vectors.mT / self.values  # B, r: u_k^T (h - m_c)
        self._along += (components.square() / self.counts[labels, None]).sum(0)
        self._squares.index_add_(0, labels, from_mean.square().sum(1))
        nearest = self._nearest(products, labels)
        self._nearest_right += int((nearest == labels).sum())
        return from_mean, nearest

    def _nearest(self, products: Tensor, labels: Tensor) -> Tensor:
        """|h - m_d|^2 - |h - m_c|^2 = |m_d - m_c|^2 - 2 (h - m_c) (m_d - m_c): the smallest over d; c is the sample's
        own class."""
        norms = self.gram.diagonal()
        apart = norms[:, None] + norms - 2 * self.gram  # C, C
        own = products.gather(1, labels[:, None])
        return (apart[labels] - 2 * (products - own)).argmin(1)

    def numbers(self) -> dict[str, float | int]:
        norms = self.centred.norm(dim=1)
        first, second = torch.triu_indices(self.classes, self.classes, 1, device=norms.device)  # all pairs
        cosines = (self.gram / (norms[:, None] * norms))[first, second]
        apart = torch.cdist(self.centred, self.centred, compute_mode="donot_use_mm_for_euclid_dist")[first, second]
        variances = self._squares / self.counts
        within = self._along / self.classes  # mean squares along u_k
        return {
            "nc1": float((within / self.values.square()).sum()) if self.rank else float("nan"),
            "cdnv": float(((variances[first] + variances[second]) / (2 * apart.square())).mean()),
            "nc2_equinorm": float(norms.std(correction=0) / norms.mean()),
            "nc2_equiangular": float(cosines.std(correction=0)),
            "nc2_maximal_angle": float((cosines + 1 / (self.classes - 1)).abs().mean()),
            "nearest_mean_accuracy": self._nearest_right / int(self.counts.sum()),
            "rank": self.rank,
            "size": self.size,
        }


# -- layers


def _features(
    model: nn.Module, batches: Batches, classifier: str | None, layers: Sequence[str] | None
) -> tuple[Features, list[str]]:
    first = next(iter(batches), None)
    if first is None:
        raise InputError("data is empty: expected labelled samples")
    x, labels = first
    if classifier is None:
        classifier = found_classifier(model, x, int(labels.max()) + 1)
    else:
        check_classifier(model, classifier)
    if layers is not None:
        return Features(model, classifier, checked_layers(model, layers)), never_seen(model)
    trunk, notes = _trunk(model, x)
    return Features(model, classifier, trunk=trunk), notes


def _trunk(model: nn.Module, x: Any) -> tuple[Trunk | None, list[str]]:
    """None where there is none, and why."""
    first = pytree.tree_map_only(Tensor, lambda t: t[:TRACED], x)
    try:
        trunk = trace(model, placed(model, first))
    except TraceError as error:
        why = f"the model was not traced ({error})"
        return None, [*never_seen(model), f"only the features before the classifier: {why}"]
    if not trunk.units:
        return None, [*trunk.notes, "only the features before the classifier: the model has no residual units"]
    return trunk, list(trunk.notes)


# -- first pass


def _class_means(features: Features, batches: Batches) -> tuple[list[ClassMeans], Tensor]:
    """The layers with their class means, and the number of samples of every class."""
    weight = features.weight
    classes = len(weight)
    sums: dict[str, Tensor] = {}
    squares: dict[str, Tensor] = {}
    types: dict[str, torch.dtype] = {}
    counts = torch.zeros(classes, dtype=torch.int64, device=weight.device)
    for x, labels in batches:
        found, _ = features.at(x)
        labels = _checked(labels, classes).to(weight.device)
        if not sums:
            _check_fits(found, classes)
            types = {name: value.dtype for name, value in found.items()}
            sums = {
                name: value.new_zeros(classes, value.shape[1], dtype=torch.float64) for name, value in found.items()
            }
            squares = {name: total.new_zeros(classes) for name, total in sums.items()}
        for name, value in found.items():
            if not torch.isfinite(value).all():
                raise InputError(f"the features at {name} have NaN or infinite entries; check the weights and the data")
            sums[name].index_add_(0, labels, value.double())
            squares[name].index_add_(0, labels, value.double().square().sum(1))
        counts.index_add_(0, labels, torch.ones_like(labels))
    _check_counts(counts, features.classifier)
    scales = {name: (square / counts).max().sqrt() for name, square in squares.items()}
    layers = [
        ClassMeans(name, sums.pop(name).div_(counts[:, None]), scale, types[name], counts)
        for name, scale in scales.items()
    ]
    return layers, counts


def _checked(labels: Tensor, classes: int) -> Tensor:
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        raise InputError(
            f"labels: expected 0 to {classes - 1}, the classifier's classes, got {int(labels.min())} to "
            f"{int(labels.max())}"
        )
    return labels.long()


def _check_counts(counts: Tensor, classifier: str) -> None:
    if missing := (counts == 0).nonzero().flatten().tolist():
        raise InputError(
            f"data: expected samples of all {len(counts)} classes of {classifier}, got none of {_listed(missing)}"
        )
    if len(counts) < 2 or int(counts.max()) < 2:
        raise InputError(
            f"data: expected at least 2 classes, one of them with 2 samples, got {len(counts)} with at most "
            f"{int(counts.max())}"
        )


def _check_fits(found: dict[str, Tensor], classes: int) -> None:
    """Class means, and the copies that are made of the largest."""
    sizes = [value.shape[1] for value in found.values()]
    needed, free = 8 * classes * (sum(sizes) + 3 * max(sizes)), free_bytes(next(iter(found.values())).device)
    if needed > free:
        raise InputError(
            f"class means of {len(sizes)} layers need {needed / 2**30:,.2f} GiB, {free / 2**30:,.2f} GiB are free; "
            "name fewer layers=, or none: layers=[]"
        )


# -- second pass


def _spreads(features: Features, batches: Batches, layers: Sequence[ClassMeans], counts: Tensor) -> tuple[int, int]:
    """Adds all samples to the layers. How many answers of the classifier are not the nearest mean's, and how many are
    right."""
    reread = torch.zeros_like(counts)
    shift = torch.zeros_like(layers[-1].centred)
    differ = right = 0
    for x, labels in batches:
        found, scores = features.at(x)
        labels = labels.to(counts.device, torch.int64)
        reread.index_add_(0, labels, torch.ones_like(labels))
        for layer in layers:
            from_mean, nearest = layer.add(found[layer.name], labels)
        shift.index_add_(0, labels, from_mean)
        answers = scores.argmax(1)
        differ += int((nearest != answers).sum())
        right += int((answers == labels).sum())
    if (
        not torch.equal(reread, counts)
        or (shift / counts[:, None]).norm(dim=1).max() > REREAD_TOLERANCE * layers[-1].scale
    ):
        raise InputError(
            "data gave other samples when it was read the second time; turn random augmentation off, or give a list "
            "of batches"
        )
    return differ, right


def _listed(classes: Sequence[int]) -> str:
    more = len(classes) - NAMED
    return ", ".join(map(str, classes[:NAMED])) + (f" and {more} more" if more > 0 else "")
