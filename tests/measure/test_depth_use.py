"""Use of depth against hooks on the models' own modules."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import skipscope as ss
from tests.measure.language import CASES, TOKENS, WORDS, Case, apply_head, first, logits_of, traced
from tests.measure.nets import Net
from tests.slow import thinned
from tests.trace.beyond_sums import STREAMS, HyperConnection
from tests.trace.nets import D, UNet


def noted(model: nn.Module, case: Case, ids: Tensor) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """States (every unit's entry, then the last), branches and logits, by hooks."""
    entries: dict[str, Tensor] = {}
    branches: dict[str, Tensor] = {}
    handles = []
    for path in (*case.entries, case.last):
        module = model.get_submodule(path)
        handles.append(module.register_forward_pre_hook(lambda m, args, p=path: entries.update({p: args[0]})))
    for path in case.branches:
        module = model.get_submodule(path)
        handles.append(module.register_forward_hook(lambda m, args, out, p=path: branches.update({p: first(out)})))
    with torch.no_grad():
        logits = logits_of(model(ids))
    for handle in handles:
        handle.remove()
    return [entries[p] for p in (*case.entries, case.last)], [branches[p] for p in case.branches], logits


def without(model: nn.Module, path: str, ids: Tensor) -> Tensor:
    """Logits with a branch that gives zeros."""

    def zero(module: nn.Module, args: Any, out: Any) -> Any:
        return (torch.zeros_like(out[0]), *out[1:]) if isinstance(out, tuple) else torch.zeros_like(out)

    handle = model.get_submodule(path).register_forward_hook(zero)
    with torch.no_grad():
        logits = logits_of(model(ids))
    handle.remove()
    return logits


def kl(logits: Tensor, other: Tensor) -> Tensor:
    p, q = (torch.log_softmax(some, -1) for some in (logits, other))
    return F.kl_div(q, p, reduction="none", log_target=True).sum(-1)


@pytest.mark.parametrize("name", thinned(CASES, fast=("written", "gpt2", "bert")))
def test_against_hooks(name: str) -> None:
    model, trunk, ids = traced(name)
    case = CASES[name]
    states, branches, logits = noted(model, case, ids)
    data = ss.depth_use(trunk, ids)
    exits = states[1:]
    for i, (h, branch, after) in enumerate(zip(states, branches, exits, strict=False)):
        close(data["influence"][i], 1 - F.cosine_similarity(h, after, dim=-1))
        close(data["branch_share"][i], branch.norm(dim=-1) / h.norm(dim=-1))
        close(data["branch_cosine"][i], F.cosine_similarity(branch, h, dim=-1))
        ratio = after.norm(dim=-1) / h.norm(dim=-1)
        close(data["growth"].sel(scope="all")[i], ratio.prod(1) ** (1 / TOKENS))
        close(data["growth"].sel(scope="without the first")[i], ratio[:, 1:].prod(1) ** (1 / (TOKENS - 1)))
        close(data["block_influence"].sel(scope="without the first")[i], data["influence"][i, :, 1:].mean("position"))
        removed = without(model, case.branches[i], ids)
        close(data["skip_kl"][i], kl(logits, removed))
        if case.causal:
            change = F.cross_entropy(removed[:, :-1].mT, ids[:, 1:], reduction="none")
            change = change - F.cross_entropy(logits[:, :-1].mT, ids[:, 1:], reduction="none")
            close(data["skip_loss_change"][i, :, :-1], change)
            assert data["skip_loss_change"][i, :, -1].isnull().all()
    for i, h in enumerate(states):
        close(data["state_norm"][i], h.norm(dim=-1))
        close(data["lens_kl"][i], kl(logits, apply_head(model, case, h)).detach())
        for scope, inside in (("all", h), ("without the first", h[:, 1:])):
            here = data.sel(scope=scope).isel(state=i)
            size, start = inside.norm(dim=-1).mean(1), states[0][:, -inside.shape[1] :].norm(dim=-1).mean(1)
            close(here["total_growth"], size / start)
            flat = inside.flatten(1).abs().cpu().numpy()
            close(here["massive_ratio"], flat.max(1) / numpy.median(flat, axis=1))
            at = [(int(p), int(d)) for p, d in zip(here["massive_position"], here["massive_dimension"], strict=True)]
            close(here["massive_value"], torch.stack([h[b, p, d] for b, (p, d) in enumerate(at)]))
    assert data.attrs["targets"].startswith("next tokens" if case.causal else "none: positions see later ones")
    assert data["lens_kl"][-1].max() < 1e-12


def close(found: Any, expected: Any) -> None:
    expected = expected.cpu() if isinstance(expected, Tensor) else expected
    numpy.testing.assert_allclose(numpy.asarray(found), numpy.asarray(expected), rtol=1e-9, atol=1e-11)


def test_images_count_as_one_position() -> None:
    torch.manual_seed(0)
    model, x = Net(bias=0).double().eval(), torch.rand(4, 1, 8, 8, dtype=torch.float64)
    nn.init.constant_(model.stem.bias, 0.5)  # no state is zero throughout
    trunk = ss.trace(model, x)
    targets = torch.tensor([0, 1, 2, 0])
    data = ss.depth_use(trunk, x, targets=targets)
    assert data.sizes["position"] == data.sizes["scope"] == 1
    assert data["influence"].isnull().all(("sample", "position")).values.tolist() == [False, False, True, False, True]
    h = torch.relu(model.stem(x))
    after = model.a(h)
    close(data["influence"][0, :, 0], 1 - F.cosine_similarity(h.flatten(1), after.flatten(1)).detach())
    largest = h.flatten(1).abs().argmax(1) // 64
    assert data["massive_dimension"][0, :, 0].values.tolist() == largest.tolist()
    h = torch.relu(model.padded.skip(model.b(after)))  # without the branch of the third unit
    removed = model.head(model.projected(model.c(h)).mean((2, 3)))
    close(data["skip_kl"][2], kl(model(x), removed).detach())
    before, without_it = (F.cross_entropy(logits, targets, reduction="none") for logits in (model(x), removed))
    close(data["skip_loss_change"][2], (without_it - before).detach())
    assert data["lens_kl"].dims == ("state", "sample")
    assert data["lens_kl"][:-1].isnull().values[:, 0].tolist() == [True] * 5  # of other shapes than the last


class OfStreams(nn.Module):
    """A language model whose state has several streams that every unit mixes, and a head that adds them up."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(WORDS, D), nn.Linear(D, WORDS)
        self.scale = nn.Parameter(torch.rand(TOKENS, STREAMS, D))  # so that streams and positions differ
        self.blocks = nn.ModuleList(HyperConnection() for _ in range(3))

    def apply_head(self, streams: Tensor) -> Tensor:
        return self.head(F.layer_norm(streams.sum(2), (D,)))

    def forward(self, ids: Tensor) -> Tensor:
        streams = self.embed(ids)[:, :, None] * self.scale
        for block in self.blocks:
            streams = block(streams)
        return self.apply_head(streams)


def test_states_of_several_streams_are_those_of_a_position() -> None:
    torch.manual_seed(0)
    model, ids = OfStreams().double().eval(), torch.randint(0, WORDS, (2, TOKENS))
    trunk = ss.trace(model, ids)
    assert [unit.kind for unit in trunk.units] == 3 * ["streams"]
    data = ss.depth_use(trunk, ids)
    assert (data.attrs["positions"], data.attrs["targets"]) == ("tokens", "next tokens")
    assert data.attrs["head"] == f"logits of {WORDS} classes"
    states = [trunk.at(ids).entry(unit) for unit in trunk.units] + [trunk.at(ids).exit(trunk.units[-1])]
    logits = model(ids).detach()
    loss = F.cross_entropy(logits[:, :-1].mT, ids[:, 1:], reduction="none")
    close(data["loss"][:, :-1], loss)
    for i, (h, after) in enumerate(pairwise(states)):
        removed = without(model, f"blocks.{i}.branch", ids)
        close(data["skip_kl"][i], kl(logits, removed))
        change = F.cross_entropy(removed[:, :-1].mT, ids[:, 1:], reduction="none") - loss
        close(data["skip_loss_change"][i, :, :-1], change)
        close(data["influence"][i], 1 - F.cosine_similarity(h.flatten(2), after.flatten(2), dim=-1))
    for i, h in enumerate(states):
        close(data["lens_kl"][i], kl(logits, model.apply_head(h)).detach())
        close(data["state_norm"][i], h.flatten(2).norm(dim=-1))
        largest = h.flatten(1).abs().argmax(1)
        found = data.isel(state=i).sel(scope="all")
        close(found["massive_position"], largest // (STREAMS * D))
        close(found["massive_dimension"], largest % D)
    last = ss.depth_use(trunk, ids, tokens=[-1])
    assert last["position"].values.tolist() == [TOKENS - 1]
    assert ss.depth_use(trunk, trunk.at(ids), skipping=False).attrs["targets"].startswith("none: a point")


def test_units_samples_tokens_and_a_point() -> None:
    _, trunk, ids = traced("written")
    whole = ss.depth_use(trunk, ids)
    seen: list[tuple[int, int]] = []
    some = ss.depth_use(
        trunk, ids, units=[1, 3], samples=[2], tokens=[-1, 2], progress=lambda done, total: seen.append((done, total))
    )
    assert some["position"].values.tolist() == [4, 2]
    assert some["scope"].values.tolist() == ["all"]  # the first position is not among them
    assert seen[-1] == (5, 5)
    for name in ("influence", "skip_kl", "skip_loss_change"):
        close(some[name], whole[name].isel(unit=[1, 3], sample=[2], position=[4, 2]))
    close(some["lens_kl"], whole["lens_kl"].isel(state=[1, 3, 4], sample=[2], position=[4, 2]))
    close(some["block_influence"][..., 0], some["influence"].mean("position"))
    at_point = ss.depth_use(trunk, trunk.at(ids), skipping=False)
    assert at_point.attrs["targets"].startswith("none: a point holds no token ids")
    assert "skip_kl" not in at_point
    after = torch.cat([ids[:, 1:], torch.full((3, 1), -100)], 1)
    given = ss.depth_use(trunk, trunk.at(ids), targets=after)
    close(given["skip_loss_change"], whole["skip_loss_change"])


def test_what_cannot_be_measured_is_named() -> None:
    _, trunk, ids = traced("written")
    torch.manual_seed(0)
    model, x = UNet("add").double().eval(), torch.randn(2, 1, 8, 8).double()
    data = ss.depth_use(ss.trace(model, x), x)
    assert "do not form a chain of states" in data.attrs["head"]
    assert "lens_kl" not in data
    with pytest.raises(ss.InputError, match="there is no distribution to compare them with: the units of UNet"):
        ss.depth_use(ss.trace(model, x), x, targets=torch.tensor([0, 1]))
    assert ss.depth_use(trunk, ids, head=False).attrs["head"] == "no logits: head=False"
    for options, message in (
        ({"units": []}, "names no unit"),
        ({"units": [1, 0]}, "each once and in their order"),
        ({"tokens": [9]}, "positions below 5"),
        ({"targets": torch.zeros(3)}, "expected whole numbers of shape"),
        ({"targets": torch.full((3, TOKENS), WORDS)}, f"expected classes from 0 to {WORDS - 1}"),
        ({"targets": torch.zeros(3, 4, dtype=torch.int64)}, "targets: expected the shape"),
    ):
        with pytest.raises(ss.InputError, match=message):
            ss.depth_use(trunk, ids, **options)
    net = ss.trace(Net().eval(), torch.rand(2, 1, 8, 8))
    with pytest.raises(ss.InputError, match=r"tokens=\[0\]: expected states of shape"):
        ss.depth_use(net, torch.rand(2, 1, 8, 8), tokens=[0])


def test_padding_is_nothing_to_predict() -> None:
    model, _, ids = traced("gpt2")
    mask = torch.ones_like(ids)
    mask[0, 3:] = 0
    batch = {"input_ids": ids, "attention_mask": mask}
    data = ss.depth_use(ss.trace(model, batch), batch, skipping=False)
    assert data["loss"].isnull().values.tolist() == [
        [False, False, True, True, True],
        [False] * 4 + [True],
        [False] * 4 + [True],
    ]
    expected = F.cross_entropy(model(**batch).logits[0, :2], ids[0, 1:3], reduction="none")
    close(data["loss"][0, :2], expected.detach())


def test_features_are_not_taken_for_logits() -> None:
    model, _, ids = traced("bert")
    inner = model.get_submodule("bert")
    data = ss.depth_use(ss.trace(inner, ids), ids)
    assert data.attrs["head"].startswith("no head") or data.attrs["head"].startswith("no logits")
    assert "skip_kl" not in data
    assert "influence" in data
    with pytest.raises(ss.InputError, match="head=True, but there are no logits: the units of UNet"):
        ss.depth_use(ss.trace(UNet("cat").eval(), torch.randn(2, 1, 8, 8)), torch.randn(2, 1, 8, 8), head=True)


def test_the_model_is_left_as_it_was() -> None:
    torch.manual_seed(1)
    model = CASES["written"].make().train()
    ids = torch.randint(0, WORDS, (2, TOKENS))
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    state = torch.random.get_rng_state()
    ss.depth_use(ss.trace(model, ids), ids)
    assert model.training
    assert torch.equal(state, torch.random.get_rng_state())
    assert all(torch.equal(before[name], weight) for name, weight in model.state_dict().items())
    assert all(weight.requires_grad and weight.grad is None for weight in model.parameters())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
