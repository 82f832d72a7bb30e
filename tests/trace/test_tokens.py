"""The path of some tokens against the Jacobian of the whole sequence, by reverse mode in float64."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import skipscope as ss
from skipscope.linear.token_route import OWN_PATH, WHOLE_SEQUENCE
from skipscope.trace.tokens.along import Along
from skipscope.trace.tokens.path import TokenPath
from tests.slow import thinned

WIDTH, TOKENS = 8, 6


class Block(nn.Module):
    """x + what `act` makes of it; then x + a gated feed-forward part, scaled as LayerScale does."""

    def __init__(self, act: Callable[[Block, Tensor], Tensor]) -> None:
        super().__init__()
        self.act = act
        self.norm, self.after = nn.LayerNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.gate, self.up, self.down = nn.Linear(WIDTH, 12), nn.Linear(WIDTH, 12), nn.Linear(12, WIDTH)
        self.scale = nn.Parameter(torch.rand(WIDTH) + 0.5)
        self.mix = nn.Parameter(torch.randn(TOKENS, TOKENS))
        self.convolution = nn.Conv1d(WIDTH, WIDTH, 3, padding=1)
        self.both = nn.MultiheadAttention(WIDTH, 2, batch_first=True)

    def forward(self, h: Tensor) -> Tensor:
        h = h + self.scale * self.act(self, self.norm(h))
        x = self.after(h)
        return h + self.down(F.silu(self.gate(x)) * self.up(x))


def heads(x: Tensor, count: int = 2) -> Tensor:
    return x.unflatten(2, (count, -1)).transpose(1, 2)


def later() -> Tensor:
    return torch.ones(TOKENS, TOKENS, dtype=torch.bool).triu(1)


def fused(block: Block, x: Tensor) -> Tensor:
    found = F.scaled_dot_product_attention(heads(block.q(x)), heads(block.k(x)), heads(block.v(x)), is_causal=True)
    return block.out(found.transpose(1, 2).flatten(2))


def grouped(block: Block, x: Tensor) -> Tensor:
    """One head of keys and values for two of queries."""
    k, v = (heads(part(x)[..., : WIDTH // 2], 1) for part in (block.k, block.v))
    found = F.scaled_dot_product_attention(heads(block.q(x)), k, v, is_causal=True, enable_gqa=True)
    return block.out(found.transpose(1, 2).flatten(2))


def added_mask(block: Block, x: Tensor) -> Tensor:
    """Numbers that are added hide the later tokens, and the first token sees nothing at all."""
    mask = torch.zeros(TOKENS, TOKENS, dtype=x.dtype).masked_fill(later(), float("-inf"))
    mask = mask.masked_fill(torch.arange(TOKENS)[:, None] == 0, float("-inf"))
    found = F.scaled_dot_product_attention(heads(block.q(x)), heads(block.k(x)), heads(block.v(x)), attn_mask=mask)
    return block.out(found.transpose(1, 2).flatten(2))


def both_ways(block: Block, x: Tensor) -> Tensor:
    """With weights written out: no mask, queries and keys folded into one axis with the heads, rotations, a split."""
    turn = torch.linspace(0, 1, TOKENS, dtype=x.dtype)[:, None]
    q, k = (part.cos() * turn.cos() + torch.cat(list(part.chunk(2, -1))[::-1], -1) for part in (block.q(x), block.k(x)))
    q, k, v = (heads(part).reshape(-1, TOKENS, WIDTH // 2) for part in (q, k, block.v(x)))
    weights = torch.softmax(torch.baddbmm(turn.T.expand(len(q), TOKENS, TOKENS), q, k.mT, alpha=0.5), -1)
    return block.out((weights @ v).reshape(-1, 2, TOKENS, WIDTH // 2).transpose(1, 2).flatten(2))


def written(block: Block, x: Tensor) -> Tensor:
    scores = (heads(block.q(x)) @ heads(block.k(x)).mT).masked_fill(later(), float("-inf"))
    return block.out((torch.softmax(scores, -1) @ heads(block.v(x))).transpose(1, 2).flatten(2))


def module(block: Block, x: Tensor) -> Tensor:
    found: Tensor = block.both(x, x, x, attn_mask=later(), need_weights=False)[0]
    return found


def fixed_mixing(block: Block, x: Tensor) -> Tensor:
    return block.out((block.v(x).mT @ block.mix).mT)


def convolved(block: Block, x: Tensor) -> Tensor:
    return block.convolution(x.mT).mT


def pooled(block: Block, x: Tensor) -> Tensor:
    return block.out(block.v(x) * block.q(x).mean(1, keepdim=True))


def moved(block: Block, x: Tensor) -> Tensor:
    return block.out(x.roll(1, 1))


def summed_up(block: Block, x: Tensor) -> Tensor:
    return block.out(block.v(x).cumsum(1))


def blind_row(block: Block, x: Tensor) -> Tensor:
    """Causal, but all that query 1 sees is hidden by a finite number: it sees all tokens alike. Hardly visible."""
    lowest = torch.finfo(x.dtype).min
    mask = torch.zeros(TOKENS, TOKENS, dtype=x.dtype, device=x.device).masked_fill(later(), lowest)
    mask = mask.masked_fill((torch.arange(TOKENS) == 1)[:, None], lowest)
    found = F.scaled_dot_product_attention(heads(block.q(x)), heads(block.k(x)), heads(block.v(x)), attn_mask=mask)
    return 1e-4 * block.out(found.transpose(1, 2).flatten(2))


def scores_alone(block: Block, x: Tensor) -> Tensor:
    """Queries times keys that never become weights of values."""
    gate = (block.q(x) @ block.k(x).mT).tanh().mean(-1, keepdim=True)
    return 1e-4 * block.out(block.v(x) * gate)


class Net(nn.Module):
    def __init__(self, act: Callable[[Block, Tensor], Tensor], blocks: int = 2) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(act) for _ in range(blocks))
        self.head = nn.Linear(WIDTH, 3)

    def forward(self, h: Tensor) -> Tensor:
        for block in self.blocks:
            h = block(h)
        return self.head(h)


def fresh(act: Callable[[Block, Tensor], Tensor]) -> tuple[ss.Trunk, Any]:
    torch.manual_seed(1)
    model, x = Net(act).double().eval(), torch.randn(2, TOKENS, WIDTH, dtype=torch.float64)
    trunk = ss.trace(model, x)
    assert len(trunk.units) == 4
    return trunk, trunk.at(x)


traced = cache(fresh)


def whole(span: Any, point: Any) -> Tensor:
    """(B, T, d, T, d), sample by sample."""
    J = torch.func.jacrev(span.bound(point))(span.argument(point))
    return torch.stack([J[b, :, :, b] for b in range(len(J))])


CAUSAL = {"fused": fused, "grouped": grouped, "added mask": added_mask, "written": written, "module": module}
PAIRS = [([3], [3]), ([5], [5]), ([0], [0]), ([1], [4]), ([4], [1]), ([0, 2], [3, 1])]


@pytest.mark.parametrize("name", thinned([*CAUSAL, "both ways"], fast=("both ways",)))
def test_units_and_blocks_against_the_whole_sequence(name: str) -> None:
    trunk, point = traced({**CAUSAL, "both ways": both_ways}[name])
    spans = [trunk.units[0], trunk.units[1], trunk.units[2].branch, trunk.span(0, 1)]
    for span in spans:
        J = whole(span, point)
        for entries, exits in PAIRS:
            path = span.at_tokens(point, entries, exits)  # type: ignore[attr-defined]
            assert not isinstance(path, str), path
            found = torch.func.jacrev(path.bound())(path.state)
            expected = J[:, exits][:, :, :, entries]
            own = torch.stack([found[b, :, :, b] for b in range(len(J))])
            torch.testing.assert_close(own, expected, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("name", thinned(CAUSAL, fast=("written",)))
def test_several_causal_blocks_follow_all_tokens_from_the_first_to_the_last(name: str) -> None:
    trunk, point = traced(CAUSAL[name])
    stage = trunk.stages[0]
    J = whole(stage, point)
    for entry, exit_ in ((3, 3), (1, 3), (5, 5)):
        path = stage.at_tokens(point, [entry], [exit_])
        assert not isinstance(path, str), path
        assert path.positions == list(range(entry, exit_ + 1))
        operator = stage.jacobian(point, tokens=(entry, exit_))
        assert operator.token_route == OWN_PATH
        torch.testing.assert_close(operator.dense(), J[:, exit_, :, entry], rtol=1e-11, atol=1e-13)
    assert stage.at_tokens(point, [0], [5]) == "all tokens take part"


@pytest.mark.parametrize("act", thinned([both_ways, blind_row, scores_alone], fast=(blind_row, scores_alone)))
def test_several_blocks_that_see_both_ways_take_the_whole_sequence(act: Callable[[Block, Tensor], Tensor]) -> None:
    """Known from the masks and the graph: a random product would not show what little comes back."""
    trunk, point = traced(act)
    stage = trunk.stages[0]
    operator = stage.jacobian(point, tokens=(2, 2))
    assert operator.token_route is not None
    assert operator.token_route.startswith(f"{WHOLE_SEQUENCE}: tokens see later ones")
    torch.testing.assert_close(operator.dense(), whole(stage, point)[:, 2, :, 2], rtol=1e-11, atol=1e-13)


def test_every_entry_token_is_compared_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block that is a millionth of the others."""
    monkeypatch.setattr(TokenPath, "_is_causal", lambda *_: True)
    trunk, point = fresh(blind_row)
    stage = trunk.stages[0]
    operator = stage.jacobian(point, tokens=([3, 5], [3]))
    assert operator.token_route is not None
    assert operator.token_route.startswith(f"{WHOLE_SEQUENCE}: the path of the chosen tokens differs")
    torch.testing.assert_close(operator.dense()[:, :, WIDTH:], whole(stage, point)[:, 3, :, 5], rtol=1e-9, atol=1e-16)


def test_a_float64_part_of_a_float32_model_stays_as_it_is() -> None:
    def act(block: Block, x: Tensor) -> Tensor:
        return written(block, block.exact(x.double()).float())

    torch.manual_seed(0)
    model = Net(act)
    for block in model.blocks:
        block.exact = nn.Linear(WIDTH, WIDTH).double()
    x = torch.randn(2, TOKENS, WIDTH)
    trunk = ss.trace(model.eval(), x)
    unit, point = trunk.units[0], trunk.at(x)
    operator = unit.jacobian(point, tokens=(2, 2))
    assert operator.token_route == OWN_PATH
    torch.testing.assert_close(operator.dense(), whole(unit, point)[:, 2, :, 2], rtol=1e-4, atol=1e-5)


REFUSED = {
    "mixing": (fixed_mixing, "mixes tokens"),
    "convolution": (convolved, "conv1d"),
    "mean": (pooled, "mean mixes tokens"),
    "roll": (moved, "roll mixes tokens"),
    "running sum": (summed_up, "cumsum mixes tokens"),
}


@pytest.mark.parametrize("name", thinned(REFUSED, fast=("convolution",)))
def test_what_is_no_attention_takes_the_whole_sequence_and_says_why(name: str) -> None:
    act, reason = REFUSED[name]
    trunk, point = traced(act)
    unit = trunk.units[0]
    operator = unit.jacobian(point, tokens=(2, 2))
    assert operator.token_route is not None
    assert operator.token_route.startswith(WHOLE_SEQUENCE)
    assert reason in operator.token_route
    torch.testing.assert_close(operator.dense(), whole(unit, point)[:, 2, :, 2], rtol=1e-11, atol=1e-13)


def test_a_path_that_differs_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong rule is seen: here attention forgets what the token itself adds to its keys."""
    from skipscope.trace.tokens import attention

    monkeypatch.setattr(attention, "columns", lambda left, own, others, places: left @ others)
    trunk, point = fresh(fused)
    operator = trunk.units[0].jacobian(point, tokens=(2, 2))
    assert operator.token_route is not None
    assert operator.token_route.startswith(f"{WHOLE_SEQUENCE}: the path of the chosen tokens differs from it by")
    torch.testing.assert_close(operator.dense(), whole(trunk.units[0], point)[:, 2, :, 2], rtol=1e-11, atol=1e-13)


def test_other_forms_of_the_operator_follow_the_same_path() -> None:
    trunk, point = traced(fused)
    unit = trunk.units[0]
    J = unit.jacobian(point, of="branch", tail=True, tokens=(-1, -1), channels=([0, 2, 3], [5, 1]))
    expected = whole(unit.branch, point)[:, -1, [5, 1]][:, :, -1][:, :, [0, 2, 3]]
    assert J.shape == (2, 2, 3)
    for form, samples in ((J, [0, 1]), (J.take([1]), [1]), (J.T.T, [0, 1]), (2.0 * J, [0, 1])):
        assert form.token_route == OWN_PATH
        factor = 2.0 if form is not J and form.name.startswith("2") else 1.0
        torch.testing.assert_close(form.dense(), factor * expected[samples], rtol=1e-11, atol=1e-13)
    assert ss.verify(unit.jacobian(point, tokens=(2, 2))).passed
    twice = unit.jacobian(point, tokens=([2, 2], 2))
    assert twice.token_route == f"{WHOLE_SEQUENCE}: a token is named twice"
    assert unit.jacobian(point).token_route is None


def test_changed_weights_are_refused() -> None:
    trunk, point = fresh(fused)
    J = trunk.units[0].jacobian(point, tokens=(2, 2))
    with torch.no_grad():
        next(trunk.model.parameters()).add_(1)
    with pytest.raises(ss.InputError, match="the weights have changed"):
        J.matmat(torch.ones(2, WIDTH, 1, dtype=torch.float64))


def test_where_a_reshape_puts_the_tokens() -> None:
    here = Along(1)  # of (2, 6, 8)
    assert here.reshaped((2, 6, 8), (12, 8), 6) == Along(0, outer=2)
    assert Along(0, outer=2).reshaped((12, 8), (2, 6, 2, 4), 6) == Along(1)
    assert here.reshaped((2, 6, 8), (2, 48), 6) == Along(1, inner=8)
    assert here.reshaped((2, 6, 8), (2, 3, 2, 8), 6) is None  # the sequence is split
    value = torch.arange(96).reshape(12, 8)
    chosen = Along(0, outer=2).rows(value, torch.tensor([1, 4]), 6)
    torch.testing.assert_close(chosen, value.reshape(2, 6, 8)[:, [1, 4]].reshape(4, 8))


def test_constants_are_freed_with_the_operator() -> None:
    """Among them are the unit's weights in float64: those of all units would be several times the model."""
    trunk, point = traced(fused)
    J = trunk.units[0].jacobian(point, tokens=(2, 2))
    J.dense()
    ss.svd(J, 2)
    path = J.function.function  # type: ignore[attr-defined]
    assert isinstance(path, TokenPath)
    watched = weakref.ref(path)
    gc.disable()
    try:
        del J, path
        assert watched() is None
    finally:
        gc.enable()
