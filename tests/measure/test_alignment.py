"""Residual alignment: networks whose answer is known, and dense float64 references."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy
import pytest
import torch
import xarray
from torch import Tensor, nn

import skipscope as ss
from skipscope.data import digits
from skipscope.measure import alignment as measured
from skipscope.measure.alignment_summary import alignment_summary, depth_fit
from skipscope.measure.jacobian_pairs import cosines, coupling, random_frames, repeated
from skipscope.models import build
from skipscope.spectrum.orthonormal import fixed_signs
from tests.measure.nets import Net, dense

N = 24


class Linear(nn.Module):
    """h + W_i h: the Jacobian of a branch is its matrix, at any state."""

    def __init__(self, matrices: Sequence[Tensor]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(matrix.shape[1], matrix.shape[0], bias=False) for matrix in matrices)
        self.double()
        for layer, matrix in zip(self.layers, matrices, strict=True):
            layer.weight.data.copy_(matrix)

    def forward(self, h: Tensor) -> Tensor:
        for layer in self.layers:
            h = h + layer(h)
        return h


class Plain(nn.Module):
    """relu(W_i h), without skips."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(N, N), nn.ReLU()) for _ in range(count))

    def forward(self, h: Tensor) -> Tensor:
        for block in self.blocks:
            h = block(h)
        return h


def orthogonal(seed: int, n: int = N) -> Tensor:
    return random_frames(1, n, n, torch.Generator("cpu").manual_seed(seed))[0]


def spectrum(first: float, n: int = N, ratio: float = 0.8) -> Tensor:
    return first * ratio ** torch.arange(n, dtype=torch.float64, device="cpu")


def of_matrices(*matrices: Tensor, batch: int = 2, k: int = 5, **options: Any) -> xarray.Dataset:
    x = torch.randn(batch, matrices[0].shape[1], dtype=torch.float64)
    return measured(ss.trace(Linear(matrices), x), x, k=k, **options)


# -- known answers


def test_common_vectors_are_perfectly_aligned() -> None:
    U = orthogonal(0)
    found = of_matrices(*(U @ torch.diag(spectrum(1 / i)) @ U.mT for i in (1, 2, 3)))
    for name in ("ujv", "vju", "ujv_signed", "vju_signed"):
        assert float(found[f"coupling_{name}"].max()) < 1e-12
    numpy.testing.assert_allclose(found["u1v1"], 1, atol=1e-12)
    numpy.testing.assert_allclose(found["left_cosine"], 1, atol=1e-12)
    numpy.testing.assert_allclose(found["value"][:, 0], [spectrum(1 / i)[:10].numpy() for i in (1, 2, 3)], atol=1e-14)
    expected = numpy.diag(spectrum(0.5)[:5].numpy())
    numpy.testing.assert_allclose(found["ujv"][1, 2, 0], expected, atol=1e-7)
    assert found["ujv"].dtype == numpy.float32
    short = alignment_summary(found)
    assert short["ujv_count"].values.tolist() == [6, 4, 2]
    assert short["ujv"].values.max() < 1e-12
    assert float(short["u1v1"]) == pytest.approx(1, abs=1e-12)


def test_left_and_right_vectors_of_their_own_are_aligned_but_not_interchangeable() -> None:
    U, V = orthogonal(0), orthogonal(1)
    found = of_matrices(*(U @ torch.diag(spectrum(1 / i)) @ V.mT for i in (1, 2)))
    assert float(found["coupling_ujv"].max()) < 1e-12
    assert float(found["coupling_vju"].min()) > 0.5
    numpy.testing.assert_allclose(numpy.abs(found["u1v1"]), float((U[:, 0] @ V[:, 0]).abs()), atol=1e-12)


def test_opposite_signs_are_seen_by_the_signed_version_alone() -> None:
    U = orthogonal(0)
    J = U @ torch.diag(spectrum(1)) @ U.mT
    found = of_matrices(J, -J)
    assert float(found["coupling_ujv"].max()) < 1e-12
    numpy.testing.assert_allclose(found["coupling_ujv_signed"][..., 0], [[0, 2], [2, 0]], atol=1e-12)
    numpy.testing.assert_allclose(found["u1v1"][:, 0], [1, -1], atol=1e-12)
    numpy.testing.assert_allclose(found["ujv"][0, 1, 0].values.diagonal(), -spectrum(1)[:5].numpy(), atol=1e-6)


def test_unrelated_jacobians_are_at_the_chance_level() -> None:
    n, count = 64, 12
    matrices = [orthogonal(i, n) @ torch.diag(spectrum(1, n, 0.9)) @ orthogonal(100 + i, n).mT for i in range(count)]
    short = alignment_summary(of_matrices(*matrices, batch=1, k=10, chance=32))
    for name in ("ujv", "vju", "ujv_signed", "vju_signed"):
        assert float(short[f"{name}_over_chance"].sel(pairs="all")) == pytest.approx(1, abs=0.01)
    assert abs(float(short["u1v1"])) < 0.2
    assert bool(short["ujv_spread"].isnull().all())  # of one sample there is none
    assert short.attrs["samples"] == 1


def test_chance_is_that_of_random_rotations_of_the_whole_matrix() -> None:
    n, k, draws = 30, 6, 400
    S = spectrum(1, n, 0.85)
    J = orthogonal(0, n) @ torch.diag(S) @ orthogonal(1, n).mT
    found = of_matrices(J, batch=1, k=k, chance=400)
    U, _, Vt = torch.linalg.svd(J)
    generator = numpy.random.default_rng(0)
    unsigned, signed = [], []
    for _ in range(draws):
        left, right = (torch.as_tensor(_rotation(generator, n), device="cpu") for _ in range(2))
        grid = U[:, :k].mT @ (left @ J @ right) @ Vt[:k].mT
        for values, panel in ((unsigned, grid.abs()), (signed, grid)):
            values.append(float((panel - torch.diag(S[:k])).norm() / S[:k].norm()))
    for name, values in (("chance", unsigned), ("chance_signed", signed)):
        error = (numpy.var(values, ddof=1) / draws + float(found[f"{name}_error"][0, 0, 0]) ** 2) ** 0.5
        assert abs(float(found[name][0, 0, 0]) - numpy.mean(values)) < 4 * error
        assert float(found[f"{name}_error"][0, 0, 0]) == pytest.approx(numpy.std(values) / draws**0.5, rel=0.3)


def _rotation(generator: numpy.random.Generator, n: int) -> numpy.ndarray:
    """Uniform, by Householder reflections of random vectors: another way than the QR of the measurement."""
    rotation = numpy.eye(n)
    for size in range(2, n + 1):
        vector = generator.standard_normal(size)
        vector[0] += numpy.copysign(numpy.linalg.norm(vector), vector[0])
        vector /= numpy.linalg.norm(vector)
        rotation[n - size :] -= 2 * numpy.outer(vector, vector @ rotation[n - size :])
    return numpy.asarray(rotation * generator.choice([-1, 1], (n, 1)))


@pytest.mark.parametrize("route", ["dense", "iterative"])
def test_energy_gap_and_counts_of_prescribed_spectra(route: str) -> None:
    values = torch.zeros(N, dtype=torch.float64, device="cpu")
    values[:6] = torch.tensor([4.0, 3.0, 2.0, 1.0, 0.3, 0.1], dtype=torch.float64, device="cpu")
    J = orthogonal(0) @ torch.diag(values) @ orthogonal(1).mT
    found = of_matrices(J, 2 * J, k=4, classes=2, route=route)
    numpy.testing.assert_allclose(found["energy"], 25 / 30.1, rtol=1e-12)
    numpy.testing.assert_allclose(found["gap"], 0.5, rtol=1e-12)
    numpy.testing.assert_allclose(found["frobenius"], [[30.1**0.5] * 2, [2 * 30.1**0.5] * 2], rtol=1e-12)
    assert float(found["energy_error"].max()) < 1e-12  # nothing is left for the probes
    assert (found["large"] == 5).all()
    assert (found["numerical_rank"] == 6).all()
    assert (found["k_used"] == 4).all()
    assert bool(found["exact"].all()) == (route == "dense")


def test_the_estimated_energy_is_within_its_error() -> None:
    torch.manual_seed(0)
    J = torch.randn(60, 60, dtype=torch.float64, device="cpu")
    exact, estimated = (of_matrices(J, J.mT, k=5, route=route) for route in ("dense", "iterative"))
    assert float(exact["energy_error"].max()) == 0
    for name in ("energy", "frobenius"):
        error = estimated[f"{name}_error"]
        assert bool((error > 0).all())
        assert bool((abs(estimated[name] - exact[name]) < 4 * error).all())
    assert bool(estimated["numerical_rank"].isnull().all())
    assert bool(estimated["large"].isnull().all())  # more than the ten that were computed


def test_products_alone_give_what_the_matrices_give() -> None:
    torch.manual_seed(1)
    model, x = Net().double(), torch.randn(3, 1, 8, 8, dtype=torch.float64)
    trunk = ss.trace(model, x)
    whole, products = (measured(trunk, x, k=6, route=route) for route in ("dense", "iterative"))
    assert bool(products["converged"].all())
    for name in ("value", "coupling_ujv", "coupling_ujv_signed", "coupling_vju", "chance", "right_cosine", "u1v1"):
        numpy.testing.assert_allclose(products[name], whole[name], atol=1e-8, err_msg=name)
    assert (products["reason_ujv"] == whole["reason_ujv"]).all()


# -- a network with stages, against autograd


def masked_branch(unit: Any, h: Tensor) -> tuple[list[Callable[[Tensor], Tensor]], Tensor]:
    """diag(mask) F with the mask held at the state h; and the unit's exit."""

    def branch(state: Tensor) -> Tensor:
        return unit.second(torch.relu(unit.first(state)))

    a = unit.skip(h) + branch(h)
    return [lambda state, b=b: (a[b : b + 1] > 0) * branch(state) for b in range(len(h))], torch.relu(a)


def reference(model: Net, x: Tensor) -> list[Tensor]:
    """(B, m, n) of every unit."""
    h, found = torch.relu(model.stem(x)), []
    for unit in (model.a, model.b, model.padded, model.c, model.projected):
        functions, after = masked_branch(unit, h)
        found.append(torch.cat([dense(f, h[b : b + 1]) for b, f in enumerate(functions)]).cpu())
        h = after.detach()
    return found


def decomposed(J: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """Of one matrix, with the signs that all measurements fix."""
    U, S, Vt = torch.linalg.svd(J, full_matrices=False)
    V = Vt.mT
    signs = fixed_signs(V[None])[0]
    return (U * signs)[:, :k], S[:k], (V * signs)[:, :k]


def test_grids_and_couplings_are_those_of_dense_jacobians() -> None:
    torch.manual_seed(0)
    k = 5
    model, x = Net(bias=0.0).double(), torch.randn(2, 1, 8, 8, dtype=torch.float64)
    found = measured(ss.trace(model, x), x, k=k)
    jacobians = reference(model, x)
    for i, J in enumerate(jacobians):
        for j, other in enumerate(jacobians):
            fits = (J.shape == other.shape) and i not in (2, 4)
            for sample in range(2):
                here = found.isel(unit=i, other=j, sample=sample)
                if J.shape[1:] != other.shape[1:]:
                    assert here["reason_ujv"].item() == "states of other shapes"
                    assert here["ujv"].isnull().all()
                    assert here["coupling_ujv"].isnull()
                    continue
                U, _, V = decomposed(other[sample], k)
                S = decomposed(J[sample], k)[1]
                grid = U.mT @ J[sample] @ V
                numpy.testing.assert_allclose(here["ujv"], grid, atol=1e-6)
                expected = (grid.abs() - torch.diag(S)).norm() / S.norm()
                numpy.testing.assert_allclose(here["coupling_ujv"], expected, atol=1e-10)
                numpy.testing.assert_allclose(
                    here["coupling_ujv_signed"], (grid - torch.diag(S)).norm() / S.norm(), atol=1e-10
                )
                own = decomposed(J[sample], k)[0]
                numpy.testing.assert_allclose(here["left_cosine"], torch.linalg.svdvals(own.mT @ U), atol=1e-10)
                if fits:
                    back = V.mT @ J[sample] @ U
                    numpy.testing.assert_allclose(here["vju"], back, atol=1e-6)
                    numpy.testing.assert_allclose(
                        here["coupling_vju"], (back.abs() - torch.diag(S)).norm() / S.norm(), atol=1e-10
                    )
                else:
                    assert here["reason_vju"].item() == "states of other shapes"
    square = found["u1v1"].notnull().all("sample").values.tolist()
    assert square == [True, True, False, True, False]
    assert found["entries"].values.tolist() == [J.shape[2] for J in jacobians]
    for i, J in enumerate(jacobians):
        S = torch.linalg.svdvals(J)
        numpy.testing.assert_allclose(found["value"][i, :, :10], S[:, :10], atol=1e-10)
        numpy.testing.assert_allclose(found["energy"][i], S[:, :k].square().sum(1) / S.square().sum(1), atol=1e-10)
    short = alignment_summary(found)
    assert short["ujv_count"].values.tolist() == [2, 2, 0]  # a and b alone fit each other


def test_a_network_on_digits_has_the_couplings_of_its_dense_jacobians() -> None:
    torch.manual_seed(0)
    x = digits().train.images(slice(0, 2)).double().to(torch.get_default_device())
    trunk = ss.trace(build("resnet14-digits-n4").double(), x)
    found = measured(trunk, x, k=10)
    point = trunk.at(x)
    jacobians = [unit.jacobian(point, of="branch", tail=True).dense().cpu() for unit in trunk.units]
    fitting = 0
    for i, j in numpy.ndindex(6, 6):
        if jacobians[i].shape != jacobians[j].shape:
            continue
        fitting += 1
        for sample in range(2):
            (U, _, V), S = decomposed(jacobians[j][sample], 10), torch.linalg.svdvals(jacobians[i][sample])[:10]
            grid = U.mT @ jacobians[i][sample] @ V
            here = found.isel(unit=i, other=j, sample=sample)
            numpy.testing.assert_allclose(here["ujv"], grid, atol=1e-6)
            numpy.testing.assert_allclose(
                here["coupling_ujv"], (grid.abs() - torch.diag(S)).norm() / S.norm(), atol=1e-10
            )
    assert fitting == 8


def test_the_skip_is_in_the_whole_unit_and_the_tail_can_be_left_out() -> None:
    torch.manual_seed(0)
    model, x = Net(bias=0.0).double(), torch.randn(1, 1, 8, 8, dtype=torch.float64)
    trunk = ss.trace(model, x)
    unit = trunk["a"]
    for options, J in (
        ({"of": "unit"}, unit.jacobian(x)),
        ({"tail": False}, unit.jacobian(x, of="branch")),
        ({}, unit.jacobian(x, of="branch", tail=True)),
    ):
        found = measured(trunk, x, k=4, units=["a"], chance=0, grids=False, **options)
        numpy.testing.assert_allclose(found["value"][0, 0], torch.linalg.svdvals(J.dense()[0])[:9].cpu(), atol=1e-10)
        assert "ujv" not in found
        assert "chance" not in found


# -- networks without skips, tokens, pieces of a batch


def test_a_module_without_a_skip_is_measured_whole() -> None:
    torch.manual_seed(0)
    model, x = Plain(3).double(), torch.randn(2, N, dtype=torch.float64)
    trunk = ss.trace(model, x, units=[f"blocks.{i}" for i in range(3)])
    found = measured(trunk, x, k=4)
    assert found["part"].values.tolist() == ["unit"] * 3
    h = x
    for i, block in enumerate(model.blocks):
        J = dense(block, h)
        numpy.testing.assert_allclose(found["value"][i], torch.linalg.svdvals(J)[:, :9].detach().cpu(), atol=1e-10)
        h = block(h)


class ToFloat32(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.float()


def test_a_module_that_only_runs_in_float32_says_so_and_counts_its_rank_so() -> None:
    torch.manual_seed(0)
    model = Plain(2)
    with torch.no_grad():
        for block in model.blocks:
            block.append(ToFloat32())
            block[0].weight.copy_(orthogonal(0)[:, :3] @ orthogonal(1)[:, :3].mT)
            block[0].bias.fill_(5)
    x = torch.randn(2, N)
    found = measured(ss.trace(model, x, units=["blocks.0", "blocks.1"]), x, k=5)
    assert found["arithmetic"].values.tolist() == ["float32"] * 2
    assert found.attrs["computed_in"] == "float32"
    assert (found["numerical_rank"] <= 3).all()
    assert (found["k_used"] <= 3).all()


class Mixing(nn.Module):
    """Tokens that mix: h + A h B."""

    def __init__(self) -> None:
        super().__init__()
        self.mixed = nn.ModuleList(nn.Linear(4, 4, bias=False) for _ in range(2))
        self.inner = nn.ModuleList(nn.Linear(6, 6, bias=False) for _ in range(2))

    def forward(self, h: Tensor) -> Tensor:
        for mixed, inner in zip(self.mixed, self.inner, strict=True):
            h = h + mixed(inner(h).mT).mT
        return h


def test_jacobians_can_be_restricted_to_tokens() -> None:
    torch.manual_seed(0)
    model, x = Mixing().double(), torch.randn(2, 4, 6, dtype=torch.float64)
    trunk = ss.trace(model, x)
    found = measured(trunk, x, k=3, tokens=(-1, -1))
    for i in range(2):
        J = model.mixed[i].weight[-1, -1] * model.inner[i].weight
        numpy.testing.assert_allclose(found["value"][i, 0], torch.linalg.svdvals(J).detach().cpu(), atol=1e-12)
    wide = measured(trunk, x, k=3, tokens=([0, 1], -1))
    assert wide["entries"].values.tolist() == [12, 12]
    assert wide["exits"].values.tolist() == [6, 6]
    assert (wide["reason_vju"] == "states of other shapes").all()


def test_samples_in_pieces_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    model, x = Net().double(), torch.randn(3, 1, 8, 8, dtype=torch.float64)
    trunk = ss.trace(model, x)
    calls: list[tuple[int, int]] = []
    together = measured(trunk, x, k=4, progress=lambda *done: calls.append(done))
    assert calls == [(step, 10) for step in range(1, 11)]
    monkeypatch.setattr(sys.modules["skipscope.measure.alignment"], "free_bytes", lambda device: 1)
    calls.clear()
    apart = measured(trunk, x, k=4, progress=lambda *done: calls.append(done))
    assert calls[-1] == (30, 30)
    for name in ("value", "ujv", "coupling_vju", "chance", "energy", "left_cosine"):
        numpy.testing.assert_allclose(apart[name], together[name], atol=1e-6 if name == "ujv" else 1e-12)
    some = measured(trunk, x, k=4, samples=[2])
    assert some["sample"].values.tolist() == [2]
    numpy.testing.assert_allclose(some["coupling_ujv"][..., 0], together["coupling_ujv"][..., 2], atol=1e-12)


# -- guards


def test_vectors_beyond_the_rank_do_not_count() -> None:
    U, V = orthogonal(0), orthogonal(1)
    low = torch.zeros(N, dtype=torch.float64, device="cpu")
    low[:3] = torch.tensor([3.0, 2.0, 1.0], dtype=torch.float64, device="cpu")
    J = [U @ torch.diag(low) @ V.mT, U @ torch.diag(spectrum(1)) @ V.mT, orthogonal(2) @ torch.diag(low) @ V.mT]
    found, three = (of_matrices(*J, k=k) for k in (5, 3))
    assert found["k_used"][:, 0].values.tolist() == [3, 5, 3]
    assert float(found["coupling_ujv"][:2, :2].max()) < 1e-12
    for name in ("coupling_ujv", "coupling_vju", "coupling_ujv_signed"):
        for i, j in ((0, 1), (0, 2), (1, 0), (2, 0)):
            numpy.testing.assert_allclose(found[name][i, j], three[name][i, j], atol=1e-12)
    assert found["left_cosine"][0, 1, 0].isnull().values.tolist() == [False] * 3 + [True] * 2


@pytest.mark.parametrize("route", ["dense", "iterative"])
def test_a_zero_jacobian_has_no_coupling_and_says_why(route: str) -> None:
    found = of_matrices(torch.zeros(N, N, dtype=torch.float64, device="cpu"), orthogonal(0), k=3, route=route)
    assert found["k_used"][:, 0].values.tolist() == [0, 3]
    assert found["reason_ujv"][:, :, 0].values.tolist() == [["zero Jacobian"] * 2, ["zero Jacobian", ""]]
    assert found["coupling_ujv"].notnull()[..., 0].values.tolist() == [[False, False], [False, True]]
    assert found["u1v1"][0].isnull().all()
    assert found["energy"][0].isnull().all()
    assert float(found["frobenius"][0].max()) == 0
    assert int(alignment_summary(found)["ujv_count"].sel(pairs="all")) == 0


def test_repeated_values_are_flagged_and_their_spaces_compared() -> None:
    values = torch.ones(N, dtype=torch.float64, device="cpu")
    values[:4] = torch.tensor([3.0, 3.0, 2.0, 1.5], dtype=torch.float64, device="cpu")
    turn = torch.eye(N, dtype=torch.float64, device="cpu")
    turn[:2, :2] = orthogonal(5, 2)
    U = orthogonal(0)
    first, second = (A @ torch.diag(values) @ A.mT for A in (U, U @ turn))
    found = of_matrices(first, second, k=3)
    assert found["repeated"][0, 0].values.tolist() == [True, True, False, False, *[True] * 4]
    numpy.testing.assert_allclose(found["left_cosine"], 1, atol=1e-10)


def test_not_converged_is_said() -> None:
    torch.manual_seed(0)
    found = of_matrices(torch.randn(120, 120, dtype=torch.float64), k=3, route="iterative", max_products=40)
    assert not bool(found["converged"].all())


def test_the_tolerance_is_that_of_the_residuals() -> None:
    torch.manual_seed(0)
    J = torch.randn(200, 200, dtype=torch.float64)
    exact = of_matrices(J, k=3, route="dense")
    for tolerance in (1e-2, 1e-6):
        found = of_matrices(J, k=3, route="iterative", tol=tolerance)
        assert bool(found["converged"].all())
        assert float(found["residual"].max()) <= tolerance * float(found["value"].max())
        numpy.testing.assert_allclose(found["value"], exact["value"], rtol=0, atol=tolerance * exact["value"].max())


def test_states_that_are_not_finite_are_refused() -> None:
    torch.manual_seed(0)
    model, x = Net(), torch.randn(2, 1, 8, 8)
    trunk = ss.trace(model, x)
    x[0, 0, 0, 0] = float("nan")
    with pytest.raises(ss.InputError, match="NaN or infinite"):
        measured(trunk, x)


class Normalised(nn.Module):
    def __init__(self, running: bool) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(N, N), nn.BatchNorm1d(N, track_running_stats=running)

    def forward(self, h: Tensor) -> Tensor:
        return h + self.norm(self.linear(h))


def test_a_model_in_training_mode_is_measured_in_evaluation_mode() -> None:
    torch.manual_seed(0)
    model, x = Normalised(True).train(), torch.randn(4, N)
    assert model.norm.running_var is not None
    model.norm.running_var.uniform_(0.5, 2)
    found = measured(ss.trace(model, x), x, k=3)
    assert model.training
    assert model.norm.training
    scale = model.norm.weight / (model.norm.running_var + model.norm.eps).sqrt()
    expected = torch.linalg.svdvals(scale.double()[:, None] * model.linear.weight.double())
    numpy.testing.assert_allclose(found["value"][0, 0], expected[:8].detach().cpu(), atol=1e-6)


def test_batch_statistics_are_refused() -> None:
    torch.manual_seed(0)
    model, x = Normalised(False), torch.randn(4, N)
    trunk = ss.trace(model, x)
    for batch in (x, x[:1]):  # of one sample, the Jacobian would be zero
        with pytest.raises(ss.InputError, match="norm is a batch norm without running statistics"):
            measured(trunk, batch)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 0}, "k=0: expected a whole number"),
        ({"classes": 0}, "classes=0: expected a whole number"),
        ({"chance": 1}, "chance=1: expected 0, or at least 2"),
        ({"of": "skip"}, "of='skip': expected branch or unit"),
        ({"route": "fast"}, "route='fast': expected one of"),
        ({"tol": 0.0}, "tol=0.0: expected a share of s_1"),
        ({"units": []}, "names no unit"),
        ({"samples": 9}, "samples=9"),
        ({"tokens": (0, 0)}, "tokens= needs states of shape"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ss.InputError, match=message):
        of_matrices(orthogonal(0), **options)


def test_more_vectors_than_there_are() -> None:
    found = of_matrices(orthogonal(0, 4) * torch.tensor([4.0, 3, 2, 1], device="cpu"), k=10)
    assert found.sizes["row"] == found.sizes["rank"] == 4
    numpy.testing.assert_allclose(found["energy"], 1, rtol=1e-12)
    assert found["gap"].isnull().all()


# -- pure functions


def test_coupling_by_hand() -> None:
    grid = torch.tensor([[2.0, 1.0], [0.0, -1.0]], dtype=torch.float64)
    values = torch.tensor([2.0, 1.0], dtype=torch.float64)
    two, one, none = (torch.tensor(count) for count in (2, 1, 0))
    assert float(coupling(grid, values, two)) == pytest.approx((1 / 5) ** 0.5)
    assert float(coupling(grid, values, two, signed=True)) == pytest.approx(1)
    assert float(coupling(grid, values, one)) == 0
    assert bool(coupling(grid, values, none).isnan())


def test_cosines_of_planes_at_a_known_angle() -> None:
    first = torch.eye(4, dtype=torch.float64)[:, :2]
    second = first.clone()
    second[:, 1] = torch.tensor([0, 0.6, 0.8, 0], dtype=torch.float64)
    counts = torch.tensor(2)
    numpy.testing.assert_allclose(cosines(first, second.flip(1), counts, counts).cpu(), [1, 0.6], atol=1e-12)
    assert cosines(first, second, counts, torch.tensor(1)).isnan().tolist() == [False, True]


def test_neighbours_within_their_residuals_count_as_repeated() -> None:
    values = torch.tensor([[2.0, 1.0, 0.9, 0.1]], dtype=torch.float64)
    residuals = torch.tensor([[0.0, 0.06, 0.06, 0.0]], dtype=torch.float64)
    assert repeated(values, residuals, 1e-6).tolist() == [[False, True, True, False]]
    assert not repeated(values, 0 * residuals, 1e-6).any()


def test_triplets_have_signs_that_belong_together() -> None:
    torch.manual_seed(0)
    A = ss.Dense(torch.randn(2, 20, 12, dtype=torch.float64))
    for route in ("dense", "iterative"):
        found = ss.svd(A, 4, route=route)  # type: ignore[arg-type]
        torch.testing.assert_close(A.matmat(found.V), found.S[:, None] * found.U, atol=1e-8, rtol=0)
        assert (fixed_signs(found.V) == 1).all()
    with pytest.raises(ss.InputError, match="route='other'"):
        ss.svd(A, 4, route="other")  # type: ignore[arg-type]


def test_the_line_through_the_inverse_of_the_largest_values() -> None:
    U = orthogonal(0)
    found = of_matrices(*(U @ torch.diag(spectrum(1 / (3 + 0.5 * i))) @ U.mT for i in range(1, 13)), k=2, chance=0)
    fit = depth_fit(found)
    assert (fit.first, fit.units, fit.samples) == (3, 9, 2)
    assert (fit.slope, fit.intercept, fit.r_squared) == pytest.approx((0.5, 3, 1))
    late = depth_fit(found, first=9)
    assert late.units == 3
    assert late.slope == pytest.approx(0.5)
    assert numpy.isnan(depth_fit(found, first=10).slope)
    inverse = of_matrices(*(U @ torch.diag(spectrum(2 / i)) @ U.mT for i in range(1, 7)), k=2, chance=0)
    assert depth_fit(inverse, first=0).log_log_slope == pytest.approx(-1)
    assert "ujv_over_chance" not in alignment_summary(found)
    with pytest.raises(ss.InputError, match="first=-1"):
        depth_fit(found, first=-1)
    with pytest.raises(ss.InputError, match=r"expected a dataset of ss\.alignment"):
        alignment_summary(found.assign_attrs(measure="spectra"))
