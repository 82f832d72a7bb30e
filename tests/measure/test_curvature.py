"""Curvature against closed forms and dense float64 Hessians, and its two solvers against each other."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
import xarray
from torch import Tensor, nn

import skipscope as ss
from skipscope.linear import Hessian
from skipscope.measure import curvature
from tests.seeded import generator


class Bowl(nn.Module):
    """With `quadratic` the loss is (1/2) sum_i s_i theta_i^2: its eigenvalues are s, at every theta."""

    def __init__(self, slopes: list[float]) -> None:
        super().__init__()
        self.theta, self.slopes = nn.Parameter(torch.ones(len(slopes), dtype=torch.float64)), slopes

    def forward(self, x: Tensor) -> Tensor:
        return x * (self.theta.square() @ torch.tensor(self.slopes, dtype=self.theta.dtype)) / 2


def average(output: Tensor, target: Tensor) -> Tensor:
    return output.mean()


ONE = (torch.ones(1, 1, dtype=torch.float64), torch.zeros(1))


def small_net() -> tuple[nn.Module, list[tuple[Tensor, Tensor]]]:
    """Drawn on the CPU, so that it is the same network on every device."""
    torch.manual_seed(5)
    with torch.device("cpu"):
        model = nn.Sequential(nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 8), nn.Tanh(), nn.Linear(8, 3)).double()
        x, y = torch.randn(40, 6, dtype=torch.float64), torch.randint(0, 3, (40,))
    device = torch.get_default_device()
    x, y = x.to(device), y.to(device)
    return model.to(device), [(x[:25], y[:25]), (x[25:], y[25:])]


# -- exact


def test_known_saddle() -> None:
    data = curvature(Bowl([3.0, -2.0, 0.5, 1.0, -1.0]), average, ONE)
    numpy.testing.assert_allclose(data["value"], [3, 1, 0.5, -1, -2], rtol=1e-14)
    assert float(data["index"]) == 0.4
    assert float(data["trace"]) == pytest.approx(1.5)
    assert float(data["largest_magnitude"]) == pytest.approx(3)
    assert float(data["tenth_percentile"]) == pytest.approx(0.7)  # 0.4 of the way from 0.5 to 1
    assert float(data["cond10"]) == pytest.approx(3 / 0.7)
    assert float(data["condition"]) == pytest.approx(6)
    assert (str(data["cond10_status"].values), str(data["condition_status"].values)) == ("finite", "finite")
    assert float(data["loss"]) == pytest.approx(0.75)
    assert float(data["gradient_norm"]) == pytest.approx(math.sqrt(9 + 4 + 0.25 + 1 + 1))


def test_two_layer_shortcut_at_zero() -> None:
    """Theorem 2 of Demystifying ResNet: x + W2 W1 x at zero weights has eigenvalues +-sv(M), d times each."""

    class Shortcut(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = (nn.Parameter(torch.zeros(3, 3, dtype=torch.float64)) for _ in range(2))

        def forward(self, x: Tensor) -> Tensor:
            return x + x @ self.first.T @ self.second.T

    x, y = (torch.randn(40, 3, dtype=torch.float64, generator=generator(seed)) for seed in (0, 1))
    data = curvature(Shortcut(), lambda output, target: (output - target).square().sum(1).mean() / 2, (x, y))
    magnitudes = torch.linalg.svdvals((x - y).T @ x / 40).cpu().repeat_interleave(3).numpy()
    numpy.testing.assert_allclose(data["value"], [*magnitudes, *-magnitudes[::-1]], rtol=1e-12)
    assert float(data["index"]) == 0.5
    assert float(data["gradient_norm"]) < 1e-15
    assert float(data["condition"]) == pytest.approx(magnitudes[0] / magnitudes[-1])
    assert float(data["cond10"]) == pytest.approx(magnitudes[0] / numpy.quantile(magnitudes, 0.1))


def test_exact_is_the_spectrum_of_the_dense_hessian() -> None:
    model, batches = small_net()
    data = curvature(model, nn.CrossEntropyLoss(), batches)
    assert data.attrs["solver"] == "exact"
    matrix = Hessian(model, nn.CrossEntropyLoss(), batches).dense()[0]
    expected = torch.linalg.eigvalsh(matrix).flip(0).cpu().numpy()
    numpy.testing.assert_allclose(data["value"], expected, atol=float(data["residual"][0]))
    assert float(data["residual"][0]) < 1e-12
    assert float(data["symmetry_error"]) < 1e-14
    assert float(data["trace"]) == pytest.approx(float(matrix.trace()), rel=1e-12)
    tolerance = data.attrs["tolerance"]
    assert float(data["index"]) == (expected < -tolerance).mean()
    zeros = round(float(data["share_zero"]) * len(expected))
    assert zeros == 9  # adding a constant to all logits: 8 weights and the bias
    assert str(data["condition_status"].values) == "numerically infinite"


def test_a_float32_model_is_evaluated_in_float64_unless_asked() -> None:
    model, batches = small_net()
    model = model.float()
    batches = [(x.float(), y) for x, y in batches]
    exact = curvature(model, nn.CrossEntropyLoss(), batches)
    assert exact.attrs["dtype"] == "float64"
    single = curvature(model, nn.CrossEntropyLoss(), batches, dtype=torch.float32)
    assert single.attrs["dtype"] == "float32"
    numpy.testing.assert_allclose(single["value"], exact["value"], atol=float(single["residual"][0]))
    assert float(single["residual"][0]) < 1e-4
    assert float(single["share_zero"]) >= float(exact["share_zero"])


def test_infinite_is_told_from_numerically_infinite() -> None:
    class Unused(nn.Linear):
        """The second input is always zero."""

        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x * torch.tensor([1.0, 0.0], dtype=x.dtype))

    x = torch.randn(5, 2, dtype=torch.float64, generator=generator(0))
    unused = curvature(Unused(2, 1).double(), nn.MSELoss(), (x, x[:, :1]))
    assert (float(unused["condition"]), str(unused["condition_status"].values)) == (math.inf, "infinite")
    assert int(unused["zero_rows"]) == 1
    same = torch.stack([x[:, 0], x[:, 0] / 3], 1)
    redundant = curvature(nn.Linear(2, 1).double(), nn.MSELoss(), (same, x[:, :1]))
    assert int(redundant["zero_rows"]) == 0
    assert str(redundant["condition_status"].values) != "finite"
    fine = curvature(nn.Linear(2, 1).double(), nn.MSELoss(), (x, x[:, :1]))
    assert (str(fine["condition_status"].values), float(fine["index"])) == ("finite", 0)


# -- lanczos


@pytest.fixture(scope="module")
def both() -> tuple[xarray.Dataset, xarray.Dataset]:
    model, batches = small_net()
    exact = curvature(model, nn.CrossEntropyLoss(), batches)
    return exact, curvature(model, nn.CrossEntropyLoss(), batches, route="lanczos", k=6, probes=12, steps=30)


def test_both_ends_are_within_their_residuals(both: Any) -> None:
    exact, found = both
    assert found.attrs["solver"] == "lanczos"
    p = exact.sizes["eigenvalue"]
    assert found["eigenvalue"].values.tolist() == [*range(6), *range(p - 6, p)]
    assert bool(found["converged"].all())
    assert float(found["residual"].max()) < 1e-9
    error = abs(found["value"] - exact["value"])  # aligned by the place in the order
    assert error.sizes["eigenvalue"] == 12
    assert bool((error <= found["residual"] + exact["residual"]).all())
    assert float(found["largest_magnitude"]) == pytest.approx(float(exact["largest_magnitude"]))


def test_estimates_are_within_their_errors(both: Any) -> None:
    exact, found = both
    for name in ("trace", "index", "share_zero"):
        error = abs(float(found[name] - exact[name]))
        assert error <= 4 * float(found[f"{name}_error"]), name
    assert float(found["trace_error"]) < 0.3 * abs(float(exact["trace"]))
    for name in ("loss", "gradient_norm"):
        assert float(found[name]) == pytest.approx(float(exact[name]), rel=1e-12)


def test_density_has_the_moments_of_the_spectrum(both: Any) -> None:
    exact, found = both
    grid, density, error = (found[name].values for name in ("grid", "density", "density_error"))
    step = grid[1] - grid[0]
    assert density.sum() * step == pytest.approx(1, abs=1e-3)
    p = exact.sizes["eigenvalue"]
    first = (grid * density).sum() * step
    assert abs(first - float(found["trace"]) / p) < 1e-3 * float(found["largest_magnitude"])
    second = (grid**2 * density).sum() * step - found.attrs["width"] ** 2  # less the smoothing's own
    expected = float((exact["value"] ** 2).mean())
    assert abs(second - expected) <= 4 * (grid**2 * error).sum() * step
    assert second == pytest.approx(expected, rel=0.3)


def test_what_is_inside_is_missing_and_said_so(both: Any) -> None:
    _, found = both
    for name in ("tenth_percentile", "cond10", "condition"):
        assert math.isnan(float(found[name]))
        assert name in found.attrs["not_measured"]
    assert str(found["condition_status"].values) == "not measured"


def test_condition_of_a_definite_hessian_from_both_ends() -> None:
    x = torch.randn(60, 12, dtype=torch.float64, generator=generator(4))
    model = nn.Linear(12, 2, bias=False).double()
    exact = curvature(model, nn.MSELoss(), (x, x[:, :2]))
    found = curvature(model, nn.MSELoss(), (x, x[:, :2]), route="lanczos", k=3)
    assert str(found["condition_status"].values) == "finite"
    assert float(found["condition"]) == pytest.approx(float(exact["condition"]), rel=1e-8)
    assert "condition" not in found.attrs["not_measured"]
    # A spectrum of single points: the quadrature is exact, and so is the index.
    assert (float(found["index"]), float(found["index_error"])) == (0, 0)


def test_saddle_by_lanczos() -> None:
    slopes = [4.0] * 30 + [-1.0] * 50 + [0.0] * 20
    found = curvature(Bowl(slopes), average, ONE, route="lanczos", k=2)
    numpy.testing.assert_allclose(found["value"], [4, 4, -1, -1], atol=1e-9)
    # Probes of random signs see every one of these axes with the same weight.
    assert float(found["index"]) == pytest.approx(0.5, abs=1e-12)
    assert float(found["share_zero"]) == pytest.approx(0.2, abs=1e-12)
    assert float(found["trace"]) == pytest.approx(70)


def test_flat_everywhere() -> None:
    for mode in ("exact", "lanczos"):
        found = curvature(Bowl([0.0, 0.0, 0.0]), average, ONE, route=mode)  # type: ignore[arg-type]
        assert (float(found["index"]), float(found["share_zero"]), float(found["trace"])) == (0, 1, 0)


def test_few_products_leave_values_that_have_not_converged() -> None:
    model, batches = small_net()
    found = curvature(model, nn.CrossEntropyLoss(), batches, route="lanczos", k=5, max_products=10, density=False)
    assert not bool(found["converged"].all())
    assert bool((found["residual"] > 0).all())


def test_without_density_there_is_a_trace() -> None:
    model, batches = small_net()
    found = curvature(model, nn.CrossEntropyLoss(), batches, route="lanczos", k=2, density=False, probes=16)
    assert "density" not in found
    assert math.isnan(float(found["index"]))
    assert "index, share_zero: density=False" in found.attrs["not_measured"]
    exact = curvature(model, nn.CrossEntropyLoss(), batches)
    assert abs(float(found["trace"] - exact["trace"])) <= 4 * float(found["trace_error"])


# -- conventions, memory, what is left behind


def test_mean_and_sum() -> None:
    model, batches = small_net()
    mean = curvature(model, nn.CrossEntropyLoss(), batches)
    total = curvature(model, nn.CrossEntropyLoss(reduction="sum"), batches)
    numpy.testing.assert_allclose(total["value"], 40 * mean["value"], atol=1e-11)
    assert (mean.attrs["reduction"], total.attrs["reduction"]) == ("mean", "sum")
    assert (mean.attrs["samples"], mean.attrs["batches"], mean.attrs["mode"]) == (40, 2, "eval")


def test_chosen_parameters_are_listed() -> None:
    model, batches = small_net()
    data = curvature(model, nn.CrossEntropyLoss(), batches, params="2")
    assert data["parameter"].values.tolist() == ["2.weight", "2.bias"]
    assert data["size"].values.tolist() == [80, 8]
    assert data.attrs["parameters"] == data.sizes["eigenvalue"] == 88


def test_too_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    model, batches = small_net()
    vector = 8 * 185

    def leave(free: int) -> None:
        module = sys.modules["skipscope.measure.curvature"]  # the name in the package is the function's
        monkeypatch.setattr(module, "free_bytes", lambda device: free)

    leave(200 * vector)
    with pytest.raises(ss.InputError, match=r"185 parameters need .* GiB are free.*lanczos"):
        curvature(model, nn.CrossEntropyLoss(), batches, route="exact")
    found = curvature(model, nn.CrossEntropyLoss(), batches, k=2, probes=8, steps=64)
    assert found.attrs["solver"] == "lanczos"
    assert (found.attrs["probes"], found.attrs["steps"]) == (2, 32)
    assert found.attrs["memory_bytes"] <= 200 * vector
    leave(vector)
    with pytest.raises(ss.InputError, match="smaller k"):
        curvature(model, nn.CrossEntropyLoss(), batches)


@pytest.mark.parametrize("mode", ["exact", "lanczos"])
def test_the_model_is_left_as_it_was(mode: Any) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 2))
    x, y = torch.randn(8, 3), torch.randint(0, 2, (8,))
    nn.functional.cross_entropy(model(x), y).backward()
    model[3].eval()
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    modes, random = [module.training for module in model.modules()], torch.get_rng_state()
    first = curvature(model, nn.CrossEntropyLoss(), (x, y), route=mode, k=2)
    again = curvature(model, nn.CrossEntropyLoss(), (x, y), route=mode, k=2)
    assert torch.equal(torch.get_rng_state(), random)
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())
    assert all(torch.equal(p.grad, gradient) for p, gradient in zip(model.parameters(), gradients, strict=True))
    xarray.testing.assert_identical(first, again)


def test_progress_and_a_file(tmp_path: Path) -> None:
    model, batches = small_net()
    for mode, expected in (("exact", [(185, 185)]), ("lanczos", [(0, 3), (1, 3), (2, 3), (3, 3)])):
        seen: list[tuple[int, int]] = []
        data = curvature(
            model,
            nn.CrossEntropyLoss(),
            batches,
            route=mode,  # type: ignore[arg-type]
            k=2,
            steps=8,
            progress=lambda done, parts, seen=seen: seen.append((done, parts)),
        )
        assert seen == expected
        data.to_netcdf(tmp_path / f"{mode}.nc", engine="h5netcdf")
        read = xarray.load_dataset(tmp_path / f"{mode}.nc", engine="h5netcdf")
        assert str(read["condition_status"].values) == str(data["condition_status"].values)
        numpy.testing.assert_array_equal(read["value"], data["value"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"route": "all"}, "expected auto, exact or lanczos"),
        ({"k": 0}, "at least one eigenvalue"),
        ({"probes": 1}, "at least 2"),
        ({"params": "3"}, "no parameter or module '3'; did you mean"),
        ({"reduction": "sum"}, "gives a batch's mean"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    model, batches = small_net()
    with pytest.raises(ss.InputError, match=message):
        curvature(model, nn.CrossEntropyLoss(), batches, **options)
    with pytest.raises(ss.InputError, match="has no parameters"):
        curvature(nn.Tanh(), nn.CrossEntropyLoss(), batches)
