"""The Jacobian lens against Jacobians of the whole model by torch, and its statistics against numpy."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import skipscope as ss
from skipscope.measure import lens_sweep
from skipscope.measure.fingerprint import same_forward_pass
from tests.measure.language import CASES, TOKENS, WIDTH, WORDS, Written, block_function, traced
from tests.measure.nets import Net
from tests.seeded import generator
from tests.slow import thinned
from tests.trace.nets import UNet


def brute(run: Any, entry: Tensor, sources: list[int] | None = None) -> Tensor:
    """Of every prompt: the mean over source positions of the sum over targets, from the whole Jacobian."""
    found = []
    for b in range(len(entry)):
        before, after = entry[:b], entry[b + 1 :]

        def of_prompt(h: Tensor, before: Tensor = before, after: Tensor = after) -> Tensor:
            return run(torch.cat([before, h, after]))

        J = torch.autograd.functional.jacobian(of_prompt, entry[b : b + 1])[b, :, :, 0]  # T, d, T, d
        found.append(J.sum(0)[:, sources or slice(None)].mean(1))
    return torch.stack(found)


@pytest.mark.parametrize("name", thinned(CASES, fast=("written", "gpt2", "bert")))
def test_against_the_jacobian_of_the_whole_model(name: str) -> None:
    model, trunk, ids = traced(name)
    case = CASES[name]
    data = ss.lens(trunk, ids)
    for block, unit in ((0, 0), (1, 2)):
        of_prompts = brute(*block_function(model, case.block.format(block), ids, case.last)).cpu()
        scale = float(of_prompts.abs().max())
        numpy.testing.assert_allclose(data["lens"][unit], of_prompts.mean(0), atol=case.rounding * scale)
        error = of_prompts.numpy().std(0, ddof=1) / 3**0.5
        numpy.testing.assert_allclose(data["lens_error"][unit], error, atol=case.rounding * scale)
        relative = numpy.linalg.norm(error) / numpy.linalg.norm(of_prompts.mean(0))
        assert float(data["relative_error"][unit]) == pytest.approx(relative, rel=1e-4)
    assert data.attrs["causal"] == case.causal
    assert data.attrs["sweep_error"] < 1e-5
    assert data.attrs["prompts"] == 3


def test_in_the_middle_of_a_block() -> None:
    model, trunk, ids = traced("written")
    assert isinstance(model, Written)
    block = model.blocks[1]

    def after(h: Tensor) -> Tensor:
        return h + block.down(F.gelu(block.up(block.before_mlp(h))))

    entry = trunk.at(ids).entry(trunk[3])
    expected = brute(after, entry, [1, 4]).cpu()
    data = ss.lens(trunk, ids, units=[trunk[3].name, 0], tokens=[1, 4])
    numpy.testing.assert_allclose(data["lens"][0], expected.mean(0), atol=1e-12)
    mean = expected.mean(0)
    cosine = float(mean.trace() / WIDTH**0.5 / mean.norm())
    assert float(data["identity_cosine"][0]) == pytest.approx(cosine, rel=1e-10)
    assert float(data["gain"][0]) == pytest.approx(float(mean.norm()) / WIDTH**0.5, rel=1e-10)
    assert data.attrs["tokens"] == "1, 4"


@pytest.fixture(scope="module")
def many() -> Tensor:
    return torch.randint(0, WORDS, (19, TOKENS), generator=generator(5))


def test_statistics_over_prompts(many: Tensor) -> None:
    """Each prompt alone gives the samples; pieces of a batch, a list and an iterator of batches give the same."""
    _, trunk, _ = traced("written")
    alone = numpy.stack([ss.lens(trunk, many[i : i + 1], compared_rows=0)["lens"].values for i in range(19)])
    data = ss.lens(trunk, many)
    numpy.testing.assert_allclose(data["lens"], alone.mean(0), atol=1e-12)
    numpy.testing.assert_allclose(data["lens_error"], alone.std(0, ddof=1) / 19**0.5, atol=1e-12)
    odd, even = alone[::2].mean(0).reshape(4, -1), alone[1::2].mean(0).reshape(4, -1)
    cosine = (odd * even).sum(1) / numpy.linalg.norm(odd, axis=1) / numpy.linalg.norm(even, axis=1)
    numpy.testing.assert_allclose(data["split_half_cosine"], cosine, rtol=1e-10)
    assert data["prompts"].values.tolist() == [8, 16, 19]
    numpy.testing.assert_allclose(data["history"][-1], data["relative_error"])
    batches = [many[:4], many[4:5], many[5:]]
    for some in (batches, iter(batches)):
        numpy.testing.assert_allclose(ss.lens(trunk, some)["lens"], data["lens"], atol=1e-12)
    first = ss.lens(trunk, batches, samples=7)
    numpy.testing.assert_allclose(first["lens"], alone[:7].mean(0), atol=1e-12)
    one = ss.lens(trunk, many, samples=[3])
    assert one["relative_error"].isnull().all()
    numpy.testing.assert_allclose(one["lens"], alone[3], atol=1e-12)


def test_the_stopping_rule(many: Tensor) -> None:
    _, trunk, _ = traced("written")
    seen: list[tuple[int, int]] = []
    loose = ss.lens(trunk, many, tol=0.9, progress=lambda done, total: seen.append((done, total)))
    assert loose.attrs["prompts"] == 8
    assert loose.attrs["stopped"] == "the tolerance was reached"
    assert loose["converged"].all()
    assert seen == [(8, 19)]
    strict = ss.lens(trunk, many, tol=1e-3)
    assert strict.attrs["prompts"] == 19
    assert strict.attrs["stopped"] == "all prompts were used"
    assert not strict["converged"].any()


@pytest.fixture(scope="module")
def float32() -> ss.Trunk:
    exact, _, ids = traced("written")
    model = Written().eval()
    model.load_state_dict(exact.state_dict())
    return ss.trace(model, ids)


TYPES = [(torch.bfloat16, 1e-3, 0.1), (None, 1e-8, 1e-5), ("tf32", 1e-8, 1e-2)]


@pytest.mark.parametrize(("dtype", "least", "most"), TYPES)
def test_other_types_have_the_error_that_they_say(float32: ss.Trunk, dtype: Any, least: float, most: float) -> None:
    """With all rows compared at one prompt the stored error is that of the whole lens."""
    _, exact, ids = traced("written")
    data = ss.lens(float32, ids[:1], dtype=dtype, compared_rows=WIDTH)
    expected = ss.lens(exact, ids[:1])["lens"]
    error = numpy.linalg.norm(data["lens"] - expected, axis=(1, 2)) / numpy.linalg.norm(expected, axis=(1, 2))
    # float32 weights are not those of the float64 model to the last digit
    numpy.testing.assert_allclose(data["arithmetic_error"], error, rtol=0.02, atol=3e-7)
    assert least < error.max() < most
    assert data["lens"].dtype == numpy.float64
    assert not torch.backends.cuda.matmul.allow_tf32


def test_blocks_of_rows_and_short_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    _, trunk, ids = traced("gpt2")
    whole = ss.lens(trunk, ids)
    sizes: list[int] = []
    plain = lens_sweep.pulled

    def small(function: Any, state: Tensor, cotangents: Tensor, arithmetic: Any) -> Tensor:
        if len(cotangents) > 3:
            raise MemoryError
        sizes.append(len(cotangents))
        return plain(function, state, cotangents, arithmetic)

    monkeypatch.setattr(lens_sweep, "pulled", small)
    halved = ss.lens(trunk, ids, compared_rows=0)
    assert max(sizes) == 2  # 8, 4, 2
    numpy.testing.assert_allclose(halved["lens"], whole["lens"], atol=1e-12)


def test_an_operation_that_cannot_be_batched(monkeypatch: pytest.MonkeyPatch) -> None:
    _, trunk, ids = traced("written")
    whole = ss.lens(trunk, ids)
    monkeypatch.setattr(lens_sweep, "attempt", lambda product: "no rule for batches")
    numpy.testing.assert_allclose(ss.lens(trunk, ids)["lens"], whole["lens"], atol=1e-12)


def test_units_that_were_named() -> None:
    model, trunk, ids = traced("written")
    named = ss.trace(model, ids, units=["blocks.0", "blocks.1"])
    data, whole = ss.lens(named, ids), ss.lens(trunk, ids)
    numpy.testing.assert_allclose(data["lens"], whole["lens"].sel(unit=data["unit"].values), atol=1e-12)
    assert numpy.isnan(data.attrs["sweep_error"])  # the code after the units is not known


def test_units_that_were_named_at_several_batches() -> None:
    """Such a trunk runs at its last point only, and what is seen at the first prompt has to be seen in time."""
    model, trunk, ids = traced("written")
    named = ss.trace(model, ids, units=["blocks.0", "blocks.1"])
    batches = [ids, ids.flip(0), ids.flip(1)]
    data, whole = ss.lens(named, batches), ss.lens(trunk, batches)
    numpy.testing.assert_allclose(data["lens"], whole["lens"].sel(unit=data["unit"].values), atol=1e-12)
    assert data.attrs["forward_sha256"] == ss.lens(named, ids).attrs["forward_sha256"]


def test_no_batch_is_read_that_is_not_needed() -> None:
    _, trunk, ids = traced("written")
    batches = iter([ids, ids, ids])
    assert ss.lens(trunk, batches, samples=len(ids)).attrs["prompts"] == len(ids)
    assert len(list(batches)) == 2


def test_the_fingerprint_knows_another_forward_pass() -> None:
    _, trunk, ids = traced("written")
    first, again = ss.lens(trunk, ids).attrs, ss.lens(trunk, trunk.at(ids), samples=2).attrs
    assert first["forward_sha256"] == again["forward_sha256"]
    changed = ss.lens(traced("gpt2")[1], ids).attrs  # of the same sizes
    assert same_forward_pass(first["forward_fingerprint"], again["forward_fingerprint"])
    assert not same_forward_pass(first["forward_fingerprint"], changed["forward_fingerprint"])
    assert "torch" in first["versions"]


def test_bad_input() -> None:
    _, trunk, ids = traced("written")
    for options, message in (
        ({"tol": 2.0}, "relative standard error, above 0 and below 1"),
        ({"compared_rows": -1}, "from 0 on"),
        ({"dtype": torch.int64}, "expected torch.float64, torch.float32"),
        ({"dtype": "half"}, "expected torch.float64, torch.float32"),
        ({"tokens": [TOKENS]}, "positions below 5"),
        ({"units": []}, "names no unit"),
        ({"units": [0, 0]}, "each unit once"),
    ):
        with pytest.raises(ss.InputError, match=message):
            ss.lens(trunk, ids, **options)
    with pytest.raises(ss.InputError, match="at least one batch of prompts"):
        ss.lens(trunk, [])
    with pytest.raises(ss.InputError, match="since there are several batches"):
        ss.lens(trunk, [ids], samples=[0])
    x = torch.rand(2, 1, 8, 8)
    with pytest.raises(ss.InputError, match=r"ss.lens needs states of one shape \(tokens, channels\)"):
        ss.lens(ss.trace(Net().eval(), x), x)
    with pytest.raises(ss.InputError, match="do not form a chain of states"):
        ss.lens(ss.trace(UNet("add").eval(), x), x)
