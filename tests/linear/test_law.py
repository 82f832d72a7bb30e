"""The theorem itself on dense float64 matrices, and what `law_or_reason` makes of units with all kinds of skip."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import skipscope as ss
from skipscope.linear.law import Law, law_of, law_or_reason
from tests import seeded
from tests.measure.nets import Unit, dense, padded

ROUNDING = 1e-9


def selection(m: int, n: int, carried: int, generator: torch.Generator) -> Tensor:
    """m x n: `carried` of the rows are different unit vectors, the others are zero."""
    device = generator.device
    S = torch.zeros(m, n, dtype=torch.float64, device=device)
    rows = torch.randperm(m, generator=generator, device=device)[:carried]
    columns = torch.randperm(n, generator=generator, device=device)[:carried]
    S[rows, columns] = 1
    return S


@pytest.mark.parametrize("factor", [1.0, 0.5, -2.0])
@pytest.mark.parametrize(
    ("m", "n", "carried", "r", "inactive"),
    [
        (40, 40, 40, 5, 0),  # the identity, up to the order of its rows
        (40, 40, 40, 5, 12),
        (40, 80, 20, 4, 0),  # the padded skip of a residual network: twice the channels, a quarter of the places
        (40, 80, 20, 4, 11),
        (40, 80, 20, 1, 30),
        (40, 80, 20, 18, 7),  # no plateau is predicted
        (60, 30, 25, 5, 10),  # more exits than entries
        (60, 30, 30, 10, 3),
        (40, 80, 0, 6, 4),  # a skip that brings nothing
        (24, 24, 12, 0, 5),  # a branch that does nothing
    ],
)
def test_the_theorem_on_random_matrices(m: int, n: int, carried: int, r: int, inactive: int, factor: float) -> None:
    for seed in range(10):
        generator = seeded.generator(seed)
        device = generator.device
        S = factor * selection(m, n, carried, generator)
        U, V = (torch.randn(size, r, dtype=torch.float64, generator=generator, device=device) for size in (m, n))
        D = torch.ones(m, dtype=torch.float64, device=device)
        D[torch.randperm(m, generator=generator, device=device)[:inactive]] = 0
        values = torch.linalg.svdvals(D[:, None] * (S + U @ V.mT / 3))
        a, e, c = m - inactive, int((S.ne(0).any(1) & D.ne(0)).sum()), abs(factor)
        rank = min(a, n, e + r)
        zeros = int((values <= ROUNDING).sum())
        at, above = int(((values - c).abs() <= ROUNDING).sum()), int((values > c + ROUNDING).sum())
        below = len(values) - zeros - at - above
        assert zeros >= min(m, n) - rank
        assert at >= e - 2 * r
        assert above <= r
        assert below <= rank - max(0, e - r)
        if 2 * r < e:  # generic weights: all four are met exactly
            assert (zeros, at, above) == (min(m, n) - rank, e - 2 * r, r)
            assert below == rank - (e - r)


def traced(skip: Callable[[Tensor], Tensor], after: int, stride: int) -> tuple[Unit, Tensor, ss.Unit]:
    torch.manual_seed(1)
    model, x = Unit(2, after, stride, -2.0, skip).double(), torch.randn(2, 2, 8, 8).double()
    return model, x, ss.trace(nn.Sequential(model), x)[0]


SKIPS: dict[str, tuple[Callable[[Tensor], Tensor], int, int, float]] = {
    "identity": (lambda x: x, 2, 1, 1.0),
    "padded": (padded, 4, 2, 1.0),
    "turned": (lambda x: x.flip(3).transpose(2, 3), 2, 1, 1.0),
    "halved": (lambda x: 0.5 * x, 2, 1, 0.5),
    "negative": (lambda x: -1.5 * x, 2, 1, 1.5),
    "mean of four": (lambda x: F.avg_pool2d(x, 2), 2, 2, 0.5),
    "scaled and padded": (lambda x: 0.7 * padded(x), 4, 2, 0.7),
}


@pytest.mark.parametrize("name", SKIPS)
def test_units_obey_the_law(name: str) -> None:
    """And where convolutions have dependent columns, the number of values c follows from their rank."""
    skip, after, stride, factor = SKIPS[name]
    model, x, unit = traced(skip, after, stride)
    law = law_or_reason(unit, unit.trunk.at(x))
    assert isinstance(law, Law), law
    middle = model.first(x).gt(0).flatten(1)
    active = model(x).gt(0).flatten(1)
    brought = model.skip(torch.ones_like(x)).ne(0).flatten(1)
    assert law.rank.tolist() == middle.sum(1).tolist()
    assert law.active.tolist() == active.sum(1).tolist()
    assert law.carried.tolist() == (active & brought).sum(1).tolist()
    assert law.factor.tolist() == pytest.approx([factor] * 2)
    assert law.generic.all()
    values = torch.linalg.svdvals(dense(model, x))
    at = ((values - factor).abs() <= ROUNDING).sum(1)
    above, zeros = (values > factor + ROUNDING).sum(1), (values <= ROUNDING).sum(1)
    assert (at >= law.ones_at_least).all()
    branch, brings = dense(lambda h: model.second(torch.relu(model.first(h))), x), dense(model.skip, x)
    for sample in range(2):
        rows, e = active[sample], (active & brought)[sample]
        J_R, S = branch[sample], brings[sample]
        constraints = torch.cat([J_R[e], (J_R[rows] @ S[e].mT).mT], 1)  # e x (n + a): x with constraints^T x = 0
        assert int(at[sample]) == int(e.sum()) - int(torch.linalg.matrix_rank(constraints))
    assert (zeros >= law.zeros_at_least).all()
    assert (above <= law.above_at_most).all()
    assert (values.shape[1] - at - above - zeros <= law.below_at_most).all()


def test_solvers_get_the_law_of_identities_only() -> None:
    for name, (skip, after, stride, _) in SKIPS.items():
        _, x, unit = traced(skip, after, stride)
        assert (law_of(unit, unit.trunk.at(x)) is not None) == (name == "identity")


@pytest.mark.parametrize(
    ("skip", "after", "stride", "reason"),
    [
        (nn.Conv2d(2, 4, 1, 2), 4, 2, "the projection skip has rows that are not orthogonal"),
        (lambda x: F.avg_pool2d(x, 3, 2, 1), 2, 2, "the pool skip has rows that are not orthogonal"),
        (
            lambda x: x * torch.tensor([1.0, 0.5], dtype=x.dtype, device=x.device)[:, None, None],
            *(2, 1, "the scaled skip brings entries with different factors"),
        ),
        (lambda x: F.interpolate(x[:, :, ::2, ::2], scale_factor=2), 2, 1, "not orthogonal"),
    ],
)
def test_why_the_law_does_not_apply(skip: Callable[[Tensor], Tensor], after: int, stride: int, reason: str) -> None:
    _, x, unit = traced(skip, after, stride)
    found = law_or_reason(unit, unit.trunk.at(x))
    assert isinstance(found, str)
    assert reason in found


FORMS: dict[str, Callable[[nn.Module, nn.Module, Tensor, Tensor], Tensor]] = {
    "x + f + f": lambda f, g, mask, x: (lambda y: x + y + y)(f(x)),
    "sum of f, x, f": lambda f, g, mask, x: (lambda y: sum([y, x, y]))(f(x)),
    "x - f - f": lambda f, g, mask, x: (lambda y: x - y - y)(f(x)),
    "x + f + g + f": lambda f, g, mask, x: (lambda y: x + y + g(x) + y)(f(x)),
    "x + (f - f / 2)": lambda f, g, mask, x: (lambda y: x + (y - y / 2))(f(x)),
    "a broadcast product": lambda f, g, mask, x: x + (f[0](x)[:, :, None] * mask).flatten(1),
    "relu of x + f + f": lambda f, g, mask, x: (lambda y: torch.relu(x + y + y))(f(x)),
    "x + 2 f": lambda f, g, mask, x: torch.add(x, f(x), alpha=2),
}


class Form(nn.Module):
    def __init__(self, form: Callable[[nn.Module, nn.Module, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.form = form
        self.f, self.g = (nn.Sequential(nn.Linear(12, r), nn.ReLU(), nn.Linear(r, 12)) for r in (4, 2))
        self.register_buffer("mask", torch.tensor([[1.0, 0, 0], [0, 0, 0], [0, 2, 0], [0, 0, 0]]))

    def forward(self, x: Tensor) -> Tensor:
        return self.form(self.f, self.g, self.mask, x)


@pytest.mark.parametrize("name", FORMS)
def test_sums_of_every_form_have_the_values_of_their_matrix(name: str) -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(Form(FORMS[name])).double(), torch.randn(3, 12, dtype=torch.float64)
    trunk = ss.trace(model, x)
    (unit,) = trunk.units
    J = unit.jacobian(x)
    expected = torch.linalg.svdvals(J.dense().cpu())
    for route in ("auto", "law"):
        found = ss.singular_values(J, route=route)
        assert ((found.values - expected).abs() <= found.bound + 1e-14).all(), (route, found)
    law = law_or_reason(unit, trunk.at(x))
    assert isinstance(law, Law)
    assert (law.zeros_at_least.cpu() <= (expected <= ROUNDING).sum(1)).all()
    assert (law.ones_at_least.cpu() <= ((expected - 1).abs() <= ROUNDING).sum(1)).all()


def test_factors_that_are_wrong_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever made them wrong: the bound holds, and without a route that was asked for another one is taken."""
    torch.manual_seed(0)
    model, x = nn.Sequential(Form(FORMS["x + 2 f"])).double(), torch.randn(3, 12, dtype=torch.float64)
    J = ss.trace(model, x)[0].jacobian(x)
    expected = torch.linalg.svdvals(J.dense().cpu())
    right = Law.factors
    monkeypatch.setattr(Law, "factors", lambda law, sample: (2 * right(law, sample)[0], right(law, sample)[1]))
    asked, free = ss.singular_values(J, route="law"), ss.singular_values(J)
    assert asked.bound.max() > 1e-3 * asked.values.max()
    assert ((asked.values - expected).abs() <= asked.bound).all()
    assert "law" not in free.routes
    assert ((free.values - expected).abs() <= free.bound).all()


class Masked(nn.Module):
    """Minus infinities in the narrowest place of the branch, which a softmax turns into zeros."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(12, 3), nn.Linear(3, 12)
        self.register_buffer("mask", torch.tensor([False, True, False]))

    def forward(self, x: Tensor) -> Tensor:
        scores = self.first(x).masked_fill(self.mask, float("-inf"))
        return x + self.last(torch.softmax(scores, -1))


def test_a_mask_of_infinities_is_no_cut() -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(Masked()).double(), torch.randn(3, 12, dtype=torch.float64)
    J = ss.trace(model, x)[0].jacobian(x)
    found = ss.singular_values(J)
    assert ((found.values - torch.linalg.svdvals(J.dense().cpu())).abs() <= found.bound + 1e-14).all()
