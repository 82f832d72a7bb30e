"""What reports show of measurements of language models."""

from __future__ import annotations

import pytest
import torch

import skipscope as ss
from skipscope.report.views import views
from tests.measure.language import traced
from tests.measure.nets import Net


@pytest.fixture(scope="module")
def trunk_and_ids() -> tuple[ss.Trunk, object]:
    return traced("written")[1:]


def test_use_of_depth(trunk_and_ids: tuple[ss.Trunk, object]) -> None:
    data = ss.depth_use(*trunk_and_ids)
    data.attrs["network"] = "a net"
    (view,) = views({"depth_use": data})
    units, states = view.tables
    assert [row[0] for row in units.rows] == data["unit"].values.tolist()
    assert [row[0] for row in states.rows] == data["state"].values.tolist()
    assert "all positions but the first" in units.about
    assert list(view.figures) == ["depth_use", "depth_use-states"]
    names = {trace.name for trace in view.figures["depth_use-states"].figure.data}
    assert names == {"a net, all positions", "a net, without the first position"}
    (sentence,) = view.sentences
    assert sentence.startswith("On a net, blocks.")
    assert "the prediction moves least without blocks." in sentence
    assert {one.title for one in view.numbers} == {"block influence", "KL of the prediction without the branch"}
    (without,) = views({"depth_use": ss.depth_use(*trunk_and_ids, head=False, tokens=[0])})
    assert "KL without it" not in without.tables[0].columns


def test_block_coupling(trunk_and_ids: tuple[ss.Trunk, object]) -> None:
    data = ss.coupling(*trunk_and_ids, k=2, tokens=[(4, 4), (1, 4)])
    data.attrs["network"] = "a net"
    (view,) = views({"coupling": data})
    (table,) = view.tables
    assert table.columns == [
        "block",
        "with the others",
        "with the next",
        "between tokens",
        "by chance",
        "largest value",
    ]
    assert [row[0] for row in table.rows] == ["blocks.0", "blocks.1"]
    mean = data["coupling"].mean(("sample", "pair")).values
    assert float(table.rows[0][1]) == pytest.approx(mean[0, 1], rel=1e-2)
    assert table.rows[1][2] == "-"  # the last has no next one
    left, right = view.figures["coupling"].figure.data
    assert left.z.shape == right.z.shape == (2, 2)
    assert view.sentences[0].startswith("On a net, the Jacobian of one block is at m = ")
    (one_pair,) = views({"coupling": ss.coupling(*trunk_and_ids, k=2, chance=0)})
    assert "between tokens" not in one_pair.tables[0].columns
    assert len(one_pair.figures["coupling"].figure.data) == 1


def test_jacobian_lens(trunk_and_ids: tuple[ss.Trunk, object]) -> None:
    trunk, ids = trunk_and_ids
    data = ss.lens(trunk, ids, tol=0.15)
    data.attrs["network"] = "a net"
    (view,) = views({"lens": data})
    (table,) = view.tables
    assert table.columns[:4] == ["unit", "standard error", "split-half cosine", "cosine with identity"]
    assert [row[0] for row in table.rows] == [
        name if good else f"{name} *" for name, good in zip(data["unit"].values, data["converged"].values, strict=True)
    ]
    assert not data["converged"].all()
    assert "Not converged: " in table.about
    assert list(view.figures) == ["lens", "lens-prompts"]
    assert view.sentences[0].startswith("On a net, the Jacobian lens of 3 prompts has a standard error of at most ")
    (one,) = views({"lens": ss.lens(trunk, ids, samples=1)})
    assert list(one.figures) == ["lens"]
    assert one.sentences == ["the Jacobian lens comes from 1 prompt, too few for a standard error."]


def test_eigenvalues(trunk_and_ids: tuple[ss.Trunk, object]) -> None:
    data = ss.normality(*trunk_and_ids, tokens=-1)
    data.attrs["network"] = "a net"
    (view,) = views({"normality": data})
    (table,) = view.tables
    assert table.columns == ["unit", "spectral radius", "departure", "s1 / radius", "rotation", "|J|"]
    assert "at position -1" in table.about
    assert list(view.figures) == ["normality", "normality-plane"]
    assert len(view.figures["normality-plane"].figure.data) == 4
    assert view.sentences[0].startswith("On a net, the Jacobians depart from normality by ")
    (curves,) = view.curves
    assert all(len(points[0].x) == 8 for points in curves.of.values())


def test_units_without_eigenvalues_are_named() -> None:
    torch.manual_seed(0)
    x = torch.rand(2, 1, 8, 8)
    (view,) = views({"normality": ss.normality(ss.trace(Net(bias=0).eval(), x), x)})
    assert "Left out: padded goes from a state of shape (2, 8, 8)" in view.tables[0].about
    assert view.tables[0].rows[2][1] == "-"


def test_words_of_a_text_are_on_the_axis(trunk_and_ids: tuple[ss.Trunk, object]) -> None:
    data = ss.depth_use(*trunk_and_ids)
    samples, tokens = data.sizes["sample"], data.sizes["position"]
    words = [[f"word {sample} {place}" for place in range(tokens)] for sample in range(samples)]
    (view,) = views({"depth_use": data.assign_coords(token=(("sample", "position"), words))})
    assert list(view.figures) == ["depth_use", "depth_use-states", "depth_use-tokens"]
    figure = view.figures["depth_use-tokens"].figure
    assert figure.layout.xaxis.ticktext == tuple(f"{place}: word 0 {place}" for place in range(tokens))
    influence, lens, skipped = figure.data
    assert influence.z.shape == skipped.z.shape == (data.sizes["unit"], tokens)
    assert lens.z.shape == (data.sizes["state"], tokens)
    expected = data["influence"].isel(sample=0).transpose("unit", "position").values
    assert 10**influence.z == pytest.approx(expected, rel=1e-4)
    (plain,) = views({"depth_use": data})
    assert "depth_use-tokens" not in plain.figures
