"""Trajectories against paths in closed form and against a plain numpy reference of hooked states."""

from __future__ import annotations

import itertools
import math
import sys
from typing import Any

import numpy
import pytest
import torch
import xarray
from torch import Tensor, nn

import skipscope as ss
from skipscope.measure import trajectories
from skipscope.measure.trajectories import METRICS
from tests.measure.nets import Net
from tests.trace.nets import CASES, D, Residual, mlp
from tests.trace.test_cases import inputs, traced


class Path(nn.Module):
    """Units that add a fixed vector each, whatever comes: the states are a polygon."""

    def __init__(self, steps: Tensor) -> None:
        super().__init__()
        self.units = nn.ModuleList(Residual(nn.Linear(steps.shape[1], steps.shape[1])) for _ in steps)
        for unit, step in zip(self.units, steps, strict=True):
            nn.init.zeros_(unit.branch.weight)
            unit.branch.bias.data = step.clone()

    def forward(self, x: Tensor) -> Tensor:
        for unit in self.units:
            x = unit(x)
        return x


def along(steps: Tensor, samples: int = 2, **options: Any) -> xarray.Dataset:
    model, x = Path(steps.double()).double(), torch.zeros(samples, steps.shape[1]).double()
    return trajectories(ss.trace(model, x), x, **options)


def metrics(data: xarray.Dataset) -> list[float]:
    return [float(data[name][0, 0]) for name in METRICS]


def reference(states: list[numpy.ndarray]) -> dict[str, numpy.ndarray]:
    """Of one sample, by loops over the formulas."""
    steps = [after - before for before, after in itertools.pairwise(states)]
    lengths = numpy.array([math.sqrt((step**2).sum()) for step in steps])
    total = sum(step / length for step, length in zip(steps, lengths, strict=True) if length)
    singular = numpy.linalg.svd(numpy.array(states) - numpy.mean(states, 0), compute_uv=False)
    cosines = [a @ b / math.sqrt((a @ a) * (b @ b)) for a, b in itertools.pairwise(steps)]
    return {
        "line_shape": (lengths > 0).sum() / math.sqrt((total**2).sum()),
        "step_variation": math.sqrt(((lengths - lengths.mean()) ** 2).mean()) / lengths.mean(),
        "first_component": singular[0] ** 2 / (singular**2).sum(),
        "chord_ratio": lengths.sum() / math.sqrt(((states[-1] - states[0]) ** 2).sum()),
        "step_norm": lengths,
        "cosine": numpy.array([*cosines, numpy.nan]),
    }


# -- closed forms


def test_a_line_with_equal_steps() -> None:
    data = along(torch.tensor([1.0, -2, 3]).repeat(5, 1))
    assert metrics(data) == pytest.approx([1, 0, 1, 1], abs=1e-14)
    assert data["step_norm"].values == pytest.approx(math.sqrt(14))
    assert data["cosine"].values[:, :-1] == pytest.approx(1)
    assert data["cosine"][:, -1].isnull().all()
    assert data["zero_steps"].values.tolist() == [[0, 0]]


def test_a_line_with_growing_steps_and_one_that_turns_back() -> None:
    lengths = torch.tensor([1.0, 2, 3, 6])
    data = along(lengths[:, None] * torch.tensor([0.6, 0.8]))
    assert metrics(data) == pytest.approx([1, math.sqrt(3.5) / 3, 1, 1])
    back = along(torch.tensor([1.0, -1, 1])[:, None] * torch.tensor([0.6, 0.8]))
    assert metrics(back) == pytest.approx([3, 0, 1, 3])
    assert back["cosine"].values[:, :2] == pytest.approx(-1)


def test_a_right_angle() -> None:
    data = along(torch.tensor([[3.0, 0], [0, 4]]))
    # Centred states (0,0), (3,0), (3,4): covariance [[6, 4], [4, 32/3]] in sums of squares.
    first = (50 / 3 + math.sqrt((14 / 3) ** 2 + 64)) / 2
    assert metrics(data) == pytest.approx([math.sqrt(2), 0.5 / 3.5, first / (50 / 3), 7 / 5])
    assert data["cosine"].values[:, 0] == pytest.approx(0, abs=1e-15)


def test_a_closed_circle_has_no_length_and_no_direction() -> None:
    count = 12
    angles = torch.arange(count).double() * 2 * math.pi / count
    data = along(torch.stack([angles.cos(), angles.sin()], 1))
    assert float(data["line_shape"][0, 0]) > 1e14
    assert float(data["chord_ratio"][0, 0]) > 1e14
    assert float(data["step_variation"][0, 0]) == pytest.approx(0, abs=1e-14)
    assert data["cosine"].values[:, :-1] == pytest.approx(math.cos(2 * math.pi / count))


def test_half_a_circle() -> None:
    count = 12
    angles = (torch.arange(count).double() + 0.5) * math.pi / count
    data = along(torch.stack([angles.cos(), angles.sin()], 1))
    # The sum of the chords' directions is 1 / sin(pi / 2L), straight up.
    score = count * math.sin(math.pi / (2 * count))
    assert metrics(data)[:2] == pytest.approx([score, 0], abs=1e-14)
    assert metrics(data)[3] == pytest.approx(score)


def test_a_random_walk_is_about_the_root_of_its_length() -> None:
    generator = torch.Generator(torch.get_default_device()).manual_seed(0)
    for length in (9, 36):
        steps = torch.randn(length, 500, generator=generator)
        assert float(along(steps)["line_shape"][0, 0]) == pytest.approx(math.sqrt(length), rel=0.1)


def test_steps_of_length_zero_are_left_out_and_counted() -> None:
    data = along(torch.tensor([[1.0, 0], [0, 0], [0, 1], [0, 0]]))
    assert float(data["line_shape"][0, 0]) == pytest.approx(math.sqrt(2))
    assert float(data["step_variation"][0, 0]) == pytest.approx(1)
    assert data["zero_steps"].values.tolist() == [[2, 2]]
    assert data["cosine"].isnull().all()
    still = along(torch.zeros(3, 2))
    assert all(still[name].isnull().all() for name in METRICS)
    one = along(torch.tensor([[1.0, 0], [0, 0], [0, 0]]))
    assert one["line_shape"].isnull().all()
    assert float(one["first_component"][0, 0]) == pytest.approx(1)


def test_fewer_than_two_steps_have_no_metrics() -> None:
    data = along(torch.tensor([[3.0, 4]]))
    assert all(data[name].isnull().all() for name in METRICS)
    assert data["step_norm"].values == pytest.approx(5)


# -- networks


def small() -> tuple[Net, Tensor]:
    torch.manual_seed(0)
    return Net(bias=-0.5).double().eval(), torch.randn(4, 1, 8, 8).double()


def hooked(model: nn.Module, names: list[str], x: Tensor) -> dict[str, numpy.ndarray]:
    """(B, n) entries, and under "exit" the last output."""
    found: dict[str, numpy.ndarray] = {}

    def keep(name: str) -> object:
        def hook(module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
            found[name] = args[0].flatten(1).cpu().numpy()
            found["exit"] = output.flatten(1).cpu().numpy()

        return hook

    handles = [model.get_submodule(name).register_forward_hook(keep(name)) for name in names]
    with torch.no_grad():
        model(x)
    for handle in handles:
        handle.remove()
    return found


def test_stages_of_a_resnet_are_those_of_a_numpy_reference() -> None:
    model, x = small()
    data = trajectories(ss.trace(model, x), x)
    assert data["state"].values.tolist() == ["a", "b", "padded", "c", "projected", "exit of projected"]
    assert data["state_stage"].values.tolist() == [1, 1, 1, 2, 2, 3]
    assert data["shape"].values.tolist() == ["2 x 8 x 8", "4 x 4 x 4", "4 x 2 x 2"]
    assert data["step"].values.tolist() == ["a", "b", "c"]
    assert data["line_shape"].dims == ("stage", "sample")
    assert data["step_norm"].dims == data["cosine"].dims == ("sample", "step")
    states = hooked(model, ["a", "b", "padded", "c", "projected"], x)
    for b in range(len(x)):
        expected = reference([states[name][b] for name in ("a", "b", "padded")])
        for name in METRICS:
            assert float(data[name][0, b]) == pytest.approx(expected[name], rel=1e-12)
        assert data["step_norm"].values[b, :2] == pytest.approx(expected["step_norm"], rel=1e-12)
        assert data["cosine"].values[b, 0] == pytest.approx(expected["cosine"][0], rel=1e-12)
        assert data["step_norm"].values[b, 2] == pytest.approx(
            numpy.linalg.norm(states["projected"] - states["c"], axis=1)[b]
        )
    assert data["line_shape"][1:].isnull().all()


def test_units_and_samples_are_parts_of_the_whole() -> None:
    model, x = small()
    trunk = ss.trace(model, x)
    whole = trajectories(trunk, x, labels=["p", "q", "r", "s"])
    part = trajectories(trunk, trunk.at(x), units=["a", "b"], samples=[3, 1], labels=["p", "q", "r", "s"])
    assert part["state"].values.tolist() == ["a", "b", "exit of b"]
    assert part["sample"].values.tolist() == [3, 1]
    assert part["label"].values.tolist() == ["s", "q"]
    for name in METRICS:
        assert part[name][0].values == pytest.approx(whole[name][0].sel(sample=[3, 1]).values)
    seen = whole["projection"].sel(plane="random", sample=[3, 1])[:, :3]
    assert part["projection"].sel(plane="random").values == pytest.approx(seen.values)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.units])
def test_works_on_every_trunk(name: str) -> None:
    _, trunk = traced(name)
    data = trajectories(trunk, inputs(CASES[name], 3))
    assert data.sizes["sample"] == 3
    assert data["projection"].notnull().all()
    assert (data["line_shape"].fillna(1) >= 1 - 1e-12).all()
    assert (data["chord_ratio"].fillna(1) >= 1 - 1e-12).all()


def test_a_transformer_as_a_whole_and_one_token() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(D, 2, 16, dropout=0, batch_first=True, norm_first=True)
    model = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False).double().eval()
    x = torch.randn(3, 5, D).double()
    trunk = ss.trace(model, x)
    whole, last = trajectories(trunk, x), trajectories(trunk, x, tokens=-1)
    assert trajectories(trunk, x, tokens=(-1, -1)).identical(last)
    point = trunk.at(x)
    states = [state.cpu().numpy() for state in point.states]
    assert whole.sizes["state"] == 7
    assert last["shape"].values.tolist() == [str(D)]
    for b in range(3):
        for data, path in ((whole, [s[b].ravel() for s in states]), (last, [s[b, -1] for s in states])):
            expected = reference(path)
            for name in METRICS:
                assert float(data[name][0, b]) == pytest.approx(expected[name], rel=1e-12)


def test_a_network_without_skips_by_names_of_its_modules() -> None:
    torch.manual_seed(0)
    blocks = [nn.Sequential(nn.Linear(D, D), nn.ReLU()) for _ in range(4)]
    model, x = nn.Sequential(nn.Linear(3, D), *blocks, nn.Linear(D, 2)).double(), torch.randn(5, 3).double()
    names = ["1", "2", "3", "4"]
    data = trajectories(ss.trace(model, x, units=names), x, samples=[4, 0])
    states = hooked(model, names, x)
    for place, b in enumerate((4, 0)):
        expected = reference([states[name][b] for name in (*names, "exit")])
        for name in METRICS:
            assert float(data[name][0, place]) == pytest.approx(expected[name], rel=1e-12)
    assert data["state"].values.tolist() == [*names, "exit of 4"]


def test_an_exit_that_no_unit_goes_on_from_ends_its_stage() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(Residual(mlp()), Residual(mlp()), nn.Linear(D, 6), Residual(mlp(6)), Residual(mlp(6)))
    data = trajectories(ss.trace(model, torch.randn(3, D)), torch.randn(3, D))
    assert data["state"].values.tolist() == ["0", "1", "exit of 1", "3", "4", "exit of 4"]
    assert data["state_stage"].values.tolist() == [1, 1, 1, 2, 2, 2]
    assert data["line_shape"].notnull().all()


# -- planes


def test_the_random_plane_is_one_matrix_for_all_states_of_a_size() -> None:
    model, x = small()
    trunk = ss.trace(model, x)
    data = trajectories(trunk, x)
    seen = data["projection"].sel(plane="random").values  # sample, state, axis
    states = hooked(model, ["a", "b", "padded"], x)
    flat = numpy.concatenate([states[name] for name in ("a", "b", "padded")])
    shown = seen[:, :3].transpose(1, 0, 2).reshape(-1, 2)
    matrix, _, rank, _ = numpy.linalg.lstsq(flat, shown, rcond=None)
    assert rank == 12
    assert flat @ matrix == pytest.approx(shown, abs=1e-10)
    assert trajectories(trunk, x, seed=1)["projection"].sel(plane="random").values != pytest.approx(seen)
    numpy.testing.assert_array_equal(trajectories(trunk, x)["projection"].values, data["projection"].values)


def test_random_planes_keep_squared_lengths_in_the_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["skipscope.measure.trajectories"], "COLUMNS", 30)  # in several parts
    model, x = Path(torch.full((1, 100), 0.5)).double(), torch.zeros(2, 100).double()
    trunk, squares = ss.trace(model, x), []
    for seed in range(60):
        points = trajectories(trunk, x, seed=seed)["projection"].sel(plane="random").values[0]
        squares.append(((points[1] - points[0]) ** 2).sum() / 25)
    # An exponential of mean 1: the mean of 60 has a deviation of 0.13.
    assert numpy.mean(squares) == pytest.approx(1, abs=0.4)


@pytest.mark.parametrize("samples", [4, 100])
def test_the_principal_plane_is_that_of_the_singular_vectors(samples: int) -> None:
    """From the Gram matrix of the states, and from that of their numbers where these are fewer."""
    torch.manual_seed(1)
    model = nn.Sequential(*(Residual(mlp()) for _ in range(3))).double()
    x = torch.randn(samples, D).double()
    data = trajectories(ss.trace(model, x), x)
    states = hooked(model, ["0", "1", "2"], x)
    flat = numpy.stack([states[name] for name in ("0", "1", "2", "exit")], 1).reshape(-1, D)
    U, S, _ = numpy.linalg.svd(flat - flat.mean(0), full_matrices=False)
    seen = data["projection"].sel(plane="principal").values.reshape(-1, 2)
    assert numpy.abs(seen) == pytest.approx(numpy.abs(U[:, :2] * S[:2]), abs=1e-8)
    assert float(data["principal_share"][0]) == pytest.approx((S[:2] ** 2).sum() / (S**2).sum())


def test_without_projections() -> None:
    data = along(torch.ones(3, 2), projections=False)
    assert "projection" not in data
    assert "plane" not in data.dims


# -- errors


def test_bad_input_is_refused() -> None:
    model, x = small()
    trunk = ss.trace(model, x)
    for options, message in (
        ({"labels": [0, 1]}, "expected 4 numbers or names, one per sample of the batch, got 2"),
        ({"units": []}, "names no unit"),
        ({"units": ["b", "a"]}, "in their order, got b, a"),
        ({"samples": [7]}, "positions in a batch of 4"),
        ({"tokens": 0}, r"shape \(tokens, channels\), that of a is \(2, 8, 8\)"),
    ):
        with pytest.raises(ss.InputError, match=message):
            trajectories(trunk, x, **options)  # type: ignore[arg-type]
    broken = x.clone()
    broken[2, 0, 0, 0] = float("nan")
    with pytest.raises(ss.InputError, match="states of a have NaN or infinite entries, first in"):
        trajectories(trunk, broken)
    trajectories(trunk, broken, samples=[0, 1])  # the others do not see it


def test_a_plane_of_too_many_states_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["skipscope.measure.trajectories"], "LARGEST_PLANE", 3)
    with pytest.raises(ss.InputError, match="choose fewer samples=, or projections=False"):
        along(torch.ones(3, 5))


def test_the_model_is_left_as_it_was() -> None:
    model, x = small()
    model.train()
    trajectories(ss.trace(model, x), x)
    assert all(module.training for module in model.modules())
    assert all(weight.grad is None for weight in model.parameters())
