"""Neural collapse on a simplex, against the dense formulas in numpy, and along a trained network."""

from __future__ import annotations

import sys
from typing import Any

import numpy
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import skipscope as ss
from skipscope.data import digits
from skipscope.measure import collapse
from skipscope.models import build
from skipscope.training import Settings, train
from tests.measure.nets import Net
from tests.trace.nets import Residual, mlp


class Classifier(nn.Module):
    """A hidden layer that passes its inputs on, and a head."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.hidden = nn.Identity()
        self.head = nn.Linear(weight.shape[1], len(weight), dtype=weight.dtype)
        self.head.weight.data = weight.clone()
        nn.init.zeros_(self.head.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.hidden(x))


def simplex(classes: int, size: int, seed: int = 0) -> Tensor:
    """C points in n dimensions: equal norms, all cosines -1 / (C - 1)."""
    random = numpy.random.default_rng(seed)
    basis = numpy.linalg.qr(random.standard_normal((size, classes)))[0]
    return torch.tensor((numpy.eye(classes) - 1 / classes) @ basis.T)


def dense(h: numpy.ndarray, y: numpy.ndarray, W: numpy.ndarray) -> dict[str, float]:
    """The paper's formulas with n x n matrices and a pseudo-inverse."""
    classes = len(W)
    mean = numpy.array([h[y == c].mean(0) for c in range(classes)])
    M = (mean - mean.mean(0)).T
    within = sum(numpy.cov(h[y == c].T, bias=True) for c in range(classes)) / classes
    between = M @ M.T / classes
    norms = numpy.sqrt((M**2).sum(0))
    pairs = [(c, d) for c in range(classes) for d in range(classes) if c != d]
    cosines = numpy.array([M[:, c] @ M[:, d] / norms[c] / norms[d] for c, d in pairs])
    variance = [((h[y == c] - mean[c]) ** 2).sum(1).mean() for c in range(classes)]
    cdnv = [(variance[c] + variance[d]) / 2 / ((mean[c] - mean[d]) ** 2).sum() for c, d in pairs]
    nearest = ((h[:, None] - mean) ** 2).sum(2).argmin(1)
    return {
        "nc1": numpy.trace(within @ numpy.linalg.pinv(between, rcond=1e-10, hermitian=True)) / classes,
        "nc2_equinorm": norms.std() / norms.mean(),
        "nc2_equiangular": cosines.std(),
        "nc2_maximal_angle": numpy.abs(cosines + 1 / (classes - 1)).mean(),
        "nc3": ((W.T / numpy.linalg.norm(W) - M / numpy.linalg.norm(M)) ** 2).sum(),
        "nc4": ((h @ W.T).argmax(1) != nearest).mean(),
        "cdnv": numpy.mean(cdnv),
        "nearest_mean_accuracy": (nearest == y).mean(),
        "accuracy": ((h @ W.T).argmax(1) == y).mean(),
    }


def in_numpy(h: Tensor, y: Tensor, W: Tensor) -> dict[str, float]:
    return dense(*(tensor.cpu().numpy() for tensor in (h, y, W)))


def random_features(classes: int, size: int, counts: list[int]) -> tuple[Tensor, Tensor, Tensor]:
    """Features, labels in mixed order, and a weight."""
    random = numpy.random.default_rng(1)
    y = random.permutation(numpy.repeat(numpy.arange(classes), counts))
    h = random.standard_normal((len(y), size)) + 2 * random.standard_normal((classes, size))[y] + 3
    return torch.tensor(h), torch.tensor(y), torch.tensor(random.standard_normal((classes, size)))


def value(data: Any, name: str) -> float:
    return float(data[name][-1] if "layer" in data[name].dims else data[name])


NUMBERS = ("nc1", "nc2_equinorm", "nc2_equiangular", "nc2_maximal_angle", "nc3", "nc4", "cdnv")


@pytest.mark.parametrize(("classes", "size"), [(2, 5), (4, 4), (10, 30)])
def test_collapsed_features_on_a_simplex_have_zeros(classes: int, size: int) -> None:
    corners = simplex(classes, size).to(torch.get_default_device())
    y = torch.arange(5 * classes) % classes
    model = Classifier(3 * corners)
    model.head.bias.data = -3 * corners.sum(1)  # undoes the features' offset of 1
    data = collapse(model, (2 * corners[y] + 1, y), layers=[])
    assert [value(data, name) for name in NUMBERS] == pytest.approx([0] * len(NUMBERS), abs=1e-10)
    assert value(data, "nearest_mean_accuracy") == 1
    assert int(data["rank"][-1]) == classes - 1
    assert data["samples"].values.tolist() == [5] * classes


@pytest.mark.parametrize(
    ("classes", "size", "counts"),
    [(4, 12, [9, 9, 9, 9]), (4, 12, [3, 20, 7, 2]), (6, 3, [10] * 6), (2, 7, [5, 4]), (5, 5, [6] * 5)],
)
@pytest.mark.parametrize("batch", [4, 256])
def test_every_number_is_that_of_the_dense_formula(classes: int, size: int, counts: list[int], batch: int) -> None:
    """Also unequal classes, and fewer features than classes."""
    h, y, W = random_features(classes, size, counts)
    data = collapse(Classifier(W), (h, y), layers=["hidden"], batch=batch)
    expected = in_numpy(h, y, W)
    for name, number in expected.items():
        assert value(data, name) == pytest.approx(number, rel=1e-9), name
    assert data["layer"].values.tolist() == ["hidden", "entry of head"]
    assert data["nc1"].values[0] == pytest.approx(data["nc1"].values[1])
    assert data["size"].values.tolist() == [size, size]


def test_class_means_that_span_fewer_dimensions_are_said() -> None:
    h, y, W = random_features(4, 12, [9, 9, 9, 9])
    means = torch.stack([h[y == c].mean(0) for c in range(4)])
    flat = h - means[y] + torch.tensor([[0.0], [1], [2], [3]])[y].double() * means[:1]  # all means on one line
    data = collapse(Classifier(W), (flat, y), layers=[])
    assert int(data["rank"][0]) == 1
    assert "at entry of head the class means span 1 dimensions, fewer than 3" in data.attrs["notes"]
    assert value(data, "nc1") == pytest.approx(in_numpy(flat, y, W)["nc1"], rel=1e-8)


def test_one_mean_for_all_classes_has_no_number() -> None:
    """Also where the means differ by the order of their sums."""
    h, _, W = random_features(3, 4, [30, 30, 30])
    y = torch.arange(3).repeat_interleave(30)
    for features in (torch.ones(90, 4).double(), torch.cat([h[:30].roll(7 * c, 0) for c in range(3)])):
        data = collapse(Classifier(W), (features, y), layers=[])
        assert numpy.isnan(value(data, "nc1"))
        assert int(data["rank"][0]) == 0


def test_rounding_of_float32_features_makes_no_dimension() -> None:
    h, y, W = random_features(4, 12, [50] * 4)
    means = torch.stack([h[y == c].mean(0) for c in range(4)])
    flat = h - means[y] + 100 * means[torch.tensor([0, 1, 2, 2])[y]]  # two classes with one mean
    data = collapse(Classifier(W.float()), (flat.float(), y), layers=[])
    assert int(data["rank"][0]) == 2
    assert value(data, "nc1") == pytest.approx(in_numpy(flat, y, W)["nc1"], rel=1e-3)
    assert data.attrs["dtype"] == "float32"


# -- data


def test_all_ways_to_give_data_agree() -> None:
    data = digits()
    split = data.train.select(torch.arange(300))
    torch.manual_seed(0)
    model, layers = build("resnet8-digits-n8").eval(), ["stage3.0"]
    whole = collapse(model, split, batch=50, layers=layers)
    x, y = split.images(), split.labels
    batches = [(x[:120], y[:120]), (x[120:], y[120:])]
    for given in ((x, y), batches, [[x, y]]):
        other = collapse(model, given, layers=layers)
        for name in NUMBERS:
            assert other[name].values == pytest.approx(whole[name].values, rel=1e-5)
    some = collapse(model, batches, samples_per_class=7, layers=layers)
    kept = torch.cat([(y == c).nonzero().flatten()[:7] for c in range(10)])
    assert some["samples"].values.tolist() == [7] * 10
    expected = collapse(model, (x[kept], y[kept]), layers=layers)
    for name in NUMBERS:
        assert some[name].values == pytest.approx(expected[name].values, rel=1e-5)


def test_inputs_by_name() -> None:
    h, y, W = random_features(3, 6, [8, 8, 8])
    model = Classifier(W)
    expected = collapse(model, (h, y), layers=[])
    for name in NUMBERS:
        assert value(collapse(model, ({"x": h}, y), layers=[], samples_per_class=8, batch=5), name) == pytest.approx(
            value(expected, name)
        )


def test_bad_data_is_refused() -> None:
    h, y, W = random_features(4, 12, [5, 5, 5, 5])
    model = Classifier(W)
    some, broken = y != 2, h.clone()
    broken[0, 0] = float("inf")
    cases: list[tuple[Any, str]] = [
        ((h[some], y[some]), "samples of all 4 classes of head, got none of 2"),
        ((h, y + 1), "expected 0 to 3, the classifier's classes, got 1 to 4"),
        ((h, y.double()), "expected whole numbers"),
        ((h[:4], y), "expected 20 samples along axis 0"),
        ((broken, y), "features at entry of head have NaN or infinite"),
        ((h[:0], y[:0]), "data is empty"),
        ([], "data is empty"),
        (((h, y) for _ in range(1)), "which can be read only once"),
        (h, "got Tensor"),
        (digits(), "pass its .train or its .test"),
        ([h, (h, y)], r"batch 0: expected a pair \(x, labels\), got Tensor"),
    ]
    for given, message in cases:
        with pytest.raises(ss.InputError, match=message):
            collapse(model, given, classifier="head", layers=[])
    first = torch.stack([(y == c).nonzero()[0, 0] for c in range(4)])
    with pytest.raises(ss.InputError, match="one of them with 2 samples, got 4 with at most 1"):
        collapse(model, (h[first], y[first]), layers=[])
    for options in ({"batch": 0}, {"samples_per_class": 0}):
        with pytest.raises(ss.InputError, match="at least 1"):
            collapse(model, (h, y), **options)
    alone = torch.cat([first[:1], (y != 0).nonzero().flatten()])
    found = collapse(model, (h[alone], y[alone]), layers=[])
    assert "classes with one sample, which has no spread: 0" in found.attrs["notes"]


def test_data_that_changes_is_noticed() -> None:
    h, y, W = random_features(4, 12, [5, 5, 5, 5])

    class Augmented:
        times = 0

        def __iter__(self) -> Any:
            self.times += 1
            return iter([(h + self.times, y)])

    with pytest.raises(ss.InputError, match="other samples when it was read the second time"):
        collapse(Classifier(W), Augmented(), layers=[])


def test_means_that_do_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    h, y, W = random_features(4, 12, [5, 5, 5, 5])
    monkeypatch.setattr(sys.modules["skipscope.measure.collapse"], "free_bytes", lambda device: 100)
    with pytest.raises(ss.InputError, match="name fewer layers="):
        collapse(Classifier(W), (h, y), layers=[])


# -- the classifier


class Ended(nn.Module):
    """A wrapped network with something after it."""

    def __init__(self, body: nn.Module, end: Any) -> None:
        super().__init__()
        self.body, self.end = body, end

    def forward(self, x: Tensor) -> Any:
        return self.end(self.body(x))


def test_the_classifier_is_found_behind_a_softmax_and_inside_a_dictionary() -> None:
    h, y, W = random_features(3, 6, [8, 8, 8])
    for end in (lambda t: F.log_softmax(t, 1), lambda t: {"logits": t}, lambda t: (t, t.sum())):
        data = collapse(Ended(Classifier(W), end), (h, y), layers=[])
        assert data.attrs["classifier"] == "body.head"
        assert value(data, "accuracy") == pytest.approx(value(collapse(Classifier(W), (h, y), layers=[]), "accuracy"))


def test_among_layers_of_one_size_it_is_the_one_that_gives_the_output() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 3), nn.ReLU(), nn.Linear(3, 3)).double()
    h, y, _ = random_features(3, 6, [8, 8, 8])
    assert collapse(model, (h, y), layers=["0"]).attrs["classifier"] == "2"
    with pytest.raises(ss.InputError, match=r"found 2; name it with classifier=, one of: body\.0, body\.2"):
        collapse(Ended(model, nn.Softmax(1)), (h, y), layers=[])
    named = collapse(Ended(model, nn.Softmax(1)), (h, y), classifier="body.2", layers=[])
    assert named.attrs["classifier"] == "body.2"


def test_a_wrong_classifier_is_refused() -> None:
    h, y, W = random_features(3, 6, [8, 8, 8])
    for name, message in (("hidden", "one of head; got Identity"), ("nosuch", "got no such module")):
        with pytest.raises(ss.InputError, match=message):
            collapse(Classifier(W), (h, y), classifier=name)
    with pytest.raises(ss.InputError, match="the model has no module 'nosuch'"):
        collapse(Classifier(W), (h, y), layers=["nosuch"])
    with pytest.raises(ss.InputError, match="found 0; name it with classifier=, one of: none"):
        collapse(nn.Sequential(nn.PReLU()).double(), (h, y))
    twice = nn.Linear(6, 6).double()
    with pytest.raises(ss.InputError, match=r"expected one call per batch .* got \(24, 6\), \(24, 6\)"):
        collapse(nn.Sequential(twice, twice), (h, y), classifier="0", layers=[])


# -- layers


def test_layers_are_the_states_of_the_trunk() -> None:
    torch.manual_seed(0)
    model = Net(bias=-0.5).double()
    x, y = torch.randn(30, 1, 8, 8).double(), torch.arange(30) % 3
    data = collapse(model, (x, y), batch=7)
    names = ["a", "b", "padded", "c", "projected"]
    assert data["layer"].values.tolist() == [*names, "exit of projected", "entry of head"]
    entries: dict[str, Tensor] = {}
    for name in names:
        model.get_submodule(name).register_forward_hook(lambda m, args, out, n=name: entries.update({n: args[0]}))
    model(x)
    for name in names:
        h = entries[name].detach().flatten(1).cpu().numpy()
        expected = dense(h, y.cpu().numpy(), numpy.ones((3, h.shape[1])))
        for number in ("nc1", "cdnv", "nc2_equinorm", "nc2_equiangular", "nc2_maximal_angle", "nearest_mean_accuracy"):
            assert float(data[number].sel(layer=name)) == pytest.approx(expected[number], rel=1e-8)


def test_a_network_without_units_has_its_features_alone() -> None:
    h, y, W = random_features(3, 6, [8, 8, 8])
    data = collapse(Classifier(W), (h, y))
    assert data["layer"].values.tolist() == ["entry of head"]
    assert "no residual units" in data.attrs["notes"]


def test_the_model_is_left_as_it_was() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(Residual(mlp()), nn.BatchNorm1d(8), nn.Linear(8, 2))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    collapse(model, (torch.randn(20, 8), torch.arange(20) % 2))
    assert all(module.training for module in model.modules())
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert not any(module._forward_hooks for module in model.modules())


def test_training_collapses_the_digits() -> None:
    """NC1 falls through training, and along the depth of the trained network."""
    torch.manual_seed(0)
    data = digits().to(torch.get_default_device())
    model = build("resnet8-digits-n4")
    before = collapse(model, data.train)
    train(model, data.train, Settings(epochs=4))
    after = collapse(model, data.train)
    assert value(after, "accuracy") > 0.9
    assert value(after, "nc1") < 0.5 * value(before, "nc1")
    assert value(after, "nc1") < 0.5 * float(after["nc1"][0])
    assert value(after, "nearest_mean_accuracy") > 0.9
    assert value(after, "nc4") < 0.1


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8])
def test_labels_of_any_whole_type(dtype: torch.dtype) -> None:
    model, x, labels = (
        nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)),
        torch.randn(20, 4),
        torch.arange(20) % 2,
    )
    expected = collapse(model, (x, labels), layers=[])
    assert collapse(model, (x, labels.to(dtype)), layers=[]).equals(expected)
