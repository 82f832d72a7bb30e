"""Reading a report in a real browser: the first screen, the map, comparisons, the keyboard and paper."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

import skipscope as ss
from skipscope.demo import Result
from skipscope.findings import Finding, Summary, Tile
from skipscope.report import write_page
from skipscope.report.content import content_of
from skipscope.report.page import page as rendered_page
from skipscope.report.table import number
from skipscope.runs import RunFolder, load_run
from tests.report.synthetic import spectra_data
from tests.report.test_browser import CHROMIUM, Opened, _browser, drawn  # noqa: F401 - a fixture
from tests.report.test_page import saved
from tests.slow import thinned

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")
SKIPS = ["projection", "identity", "gated", "pad", "none", "identity", ""]
OVERVIEW = Summary(
    "two networks",
    "The plain network loses more directions.",
    (
        Finding(
            "gain", "stage2.3 amplifies most.", severity="unusual", unit="stage2.3", network="plain", figure="depth"
        ),
        Finding("fine", "All Jacobians are right.", severity="normal"),
    ),
    (Tile("lost", "34 % | 56 %", "residual | plain"), Tile("largest", "2.5"), Tile("units", "6")),
    "spectra-residual-together",
)


def two_networks(path: Path, factor: float = 3.0) -> Path:
    """The second one amplifies more, by that factor; all kinds of skips, attention and MLP by turns."""
    residual = spectra_data(network="residual").assign_coords(
        skip=("unit", SKIPS), branch=("unit", [*["attention", "linear"] * 3, ""])
    )
    plain = spectra_data(network="plain")
    plain["largest"] = factor * plain["largest"]
    with RunFolder(path, "demo") as run:
        run.write_dataset("spectra-residual", residual)
        run.write_dataset("spectra-plain", plain)
    return path


@pytest.fixture(scope="module", name="file")
def _file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reading")
    content = replace(content_of(load_run(two_networks(folder / "run"))), overview=OVERVIEW)
    file = folder / "report.html"
    file.write_text(rendered_page([content]), encoding="utf-8")
    return file


@pytest.fixture(name="opened")
def _opened(browser: Any, file: Path) -> Iterator[Opened]:
    opened = Opened(browser, file)
    yield opened
    opened.close()


@pytest.fixture(scope="module", name="one_page")
def _one_page(browser: Any, file: Path) -> Iterator[Opened]:
    opened = Opened(browser, file)
    yield opened
    opened.close()


@pytest.fixture(name="shown")
def _shown(one_page: Opened) -> Opened:
    """One page for tests of the map, which is as at its start: no unit is open, and the first of everything picked."""
    page = one_page.page
    for cell in page.locator(".cell[aria-pressed=true]").all():
        cell.click()
    for select in page.locator(".trunk .picks select").all():
        select.select_option(index=0)
    page.evaluate("() => scrollTo(0, 0)")
    return one_page


def on_screen(page: Any, selector: str) -> bool:
    box = page.locator(selector).first.bounding_box()
    size = page.viewport_size
    return bool(box and box["y"] >= 0 and box["y"] + box["height"] <= size["height"] and box["width"] <= size["width"])


# -- the first screen


def test_the_message_is_there_without_scrolling(opened: Opened) -> None:
    page = opened.page
    page.wait_for_selector(".headline-figure .main-svg")
    for selector in (".about", ".headline", ".tiles", ".findings", ".headline-figure .plot"):
        assert on_screen(page, selector), selector
    networks = page.locator(".headline-figure .legendtext").all_text_contents()
    assert networks == ["residual", "plain"]
    assert page.locator("#summary dl").count() == 0
    assert page.locator("#made dt", has_text="versions").count() == 1


def test_the_picture_of_the_first_screen_has_the_panels_of_the_headline(browser: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    x = torch.randn(6, 5, 8)
    trunk = ss.trace(small_transformer(), x)
    result = ss.Result({"profile": ss.profile(trunk, x)}, {"trunk": trunk.to_dict()})
    opened = Opened(browser, result.report(tmp_path / "run"))
    page = opened.page
    page.wait_for_selector(".headline-figure .main-svg")
    titles = page.locator(".headline-figure .annotation-text").all_text_contents()
    assert titles == ["state RMS at a unit's entry", "gradient RMS at a unit's entry"]
    assert on_screen(page, ".headline-figure .plot")
    assert page.locator(".headline-figure .legendtext").all_text_contents() == ["attention", "MLP"]
    assert page.locator(".headline-figure .xaxislayer-above text").count() > 0  # units are named below both panels
    whole = page.locator("[id='plot-0-profile']")
    whole.scroll_into_view_if_needed()
    page.wait_for_selector("[id='plot-0-profile'] .main-svg")
    assert whole.locator(".annotation-text").count() == 6
    opened.close()


def small_transformer() -> torch.nn.Module:
    return torch.nn.TransformerEncoder(
        torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, norm_first=True),
        3,
        enable_nested_tensor=False,
    ).eval()


def test_the_map_of_one_network_names_it(browser: Any, tmp_path: Path) -> None:
    with RunFolder(tmp_path / "run", "study D.law") as run:
        run.write_dataset("spectra", spectra_data(network="units without skips"))
    opened = Opened(browser, write_page([run.path], tmp_path / "page.html"))
    assert opened.page.locator("#map .only-network").inner_text() == "Network: units without skips"
    opened.close()


@pytest.mark.parametrize("theme", thinned(["light", "dark"], ["light"]))
def test_a_phone_shows_the_headline_and_the_tiles(theme: str, browser: Any, file: Path) -> None:
    opened = Opened(browser, file)
    page = opened.page
    page.emulate_media(color_scheme=theme)
    page.set_viewport_size({"width": 390, "height": 844})
    page.reload()
    page.wait_for_function("() => document.documentElement.scrollWidth <= innerWidth")
    assert on_screen(page, ".headline")
    assert on_screen(page, ".tiles")
    opened.page.close()
    assert opened.complaints == []


@pytest.mark.slow
def test_long_paragraphs_are_behind_a_click(opened: Opened) -> None:
    words = opened.page.locator(".words", has_text="All numbers in words")
    assert not words.locator("p").is_visible()
    words.locator("summary").click()
    assert words.locator("p").is_visible()


def test_a_finding_opens_its_unit_and_leads_to_its_figure(shown: Opened) -> None:
    page = shown.page
    page.locator(".findings li", has_text="amplifies most").locator("span", has_text="amplifies").click()
    page.wait_for_selector(".unit .main-svg")
    assert page.locator(".unit h3").inner_text() == "stage2.3, skip: identity"
    assert page.locator(".picks select").first.input_value() == "1"  # the plain network
    assert page.evaluate("() => document.activeElement.title").startswith("stage2.3: ")
    page.locator(".findings a").first.click()
    assert page.evaluate("() => document.querySelector(':target').dataset.name") == "spectra-plain-depth"


@pytest.mark.slow
def test_severity_is_a_word(shown: Opened) -> None:
    assert shown.page.locator(".findings .severity").all_inner_texts() == ["! unusual", "✓ normal"]


# -- the map


def pick(page: Any, place: int, label: str) -> None:
    page.locator(".trunk .picks select").nth(place).select_option(label=label)


def test_the_open_unit_stays_open(opened: Opened) -> None:
    page = opened.page
    page.locator(".cell").nth(2).click()
    heading = page.locator(".unit h3")
    assert heading.inner_text() == "stage2.2, branch: attention, skip: gated"
    pick(page, 1, "mean singular value")
    assert heading.is_visible()
    page.locator("#theme").click()
    assert heading.is_visible()
    pick(page, 0, "plain")
    assert heading.inner_text() == "stage2.2, skip: identity"
    assert page.locator(".cell[aria-pressed=true]").count() == 1
    assert page.locator(".trunk .picks select").nth(1).input_value() == "1"  # the mean singular value


@pytest.mark.slow
def test_networks_are_compared_in_the_open_unit(shown: Opened, file: Path) -> None:
    page = shown.page
    page.locator(".cell").nth(0).click()
    assert page.locator(".unit th").all_inner_texts() == ["", "residual", "plain"]
    run = ss.load(file.parent / "run")
    wanted = [
        number(float(run[f"spectra-{name}"]["largest"].sel(unit="stage1.0").mean())) for name in ("residual", "plain")
    ]
    row = page.locator(".unit tr", has_text="largest singular value")
    assert row.locator("td").all_inner_texts() == ["largest singular value", *wanted]


def colours(page: Any) -> list[str]:
    return page.eval_on_selector_all(".block", "all => all.map(one => one.style.background)")


def test_all_networks_have_one_scale(shown: Opened) -> None:
    page = shown.page
    pick(page, 1, "largest singular value")
    ends, residual = page.locator(".scale").inner_text(), colours(page)
    pick(page, 0, "plain")
    assert page.locator(".scale").inner_text() == ends
    assert "keeps size" in ends
    assert colours(page) != residual  # the same colours would hide that one amplifies three times as much
    pick(page, 1, "share of singular values 0")
    assert page.locator(".scale").inner_text().startswith("0")


def test_blocks_are_drawn_with_their_skips(shown: Opened) -> None:
    page = shown.page
    kinds = page.eval_on_selector_all(".cell", "all => all.map(one => one.dataset.skip)")
    assert kinds == ["projection", "identity", "gated", "other", "none", "identity"]
    paths = page.eval_on_selector_all(".cell .wires", "all => all.map(one => one.innerHTML)")
    assert len(set(paths)) == 5
    assert "<circle" not in paths[4]  # nothing is added where there is no skip
    assert page.locator(".kinds span").all_inner_texts() == [
        "projected skip",
        "identity skip",
        "gated skip",
        "skip: pad",
        "no skip",
        "from top to bottom: attention, MLP",
    ]
    assert page.locator(".transition").count() == 2
    assert page.locator(".stage-name").first.inner_text().split() == ["stage1", "40", "numbers"]


@pytest.mark.slow
def test_attention_and_mlp_are_in_rows_of_their_own(shown: Opened) -> None:
    boxes = [cell.bounding_box() for cell in shown.page.locator(".cell").all()]
    assert boxes[0]["x"] == boxes[1]["x"]
    assert boxes[0]["y"] < boxes[1]["y"]
    assert boxes[0]["y"] == boxes[2]["y"] == boxes[4]["y"]


def test_the_keyboard_reaches_findings_and_units(shown: Opened) -> None:
    page = shown.page
    page.locator(".findings button").focus()
    page.keyboard.press("Enter")
    assert page.locator(".unit h3").inner_text().startswith("stage2.3")
    page.keyboard.press("ArrowRight")
    assert page.locator(".unit h3").inner_text().startswith("stage3.4")
    page.keyboard.press("Home")
    assert page.locator(".unit h3").inner_text().startswith("stage1.0")
    page.keyboard.press("Enter")
    assert page.locator(".unit").is_hidden()


# -- figures


def test_no_figure_can_be_sent_anywhere(shown: Opened, browser: Any, tmp_path: Path) -> None:
    plot = drawn(shown.page, "spectra-plain-scree")
    alone = Opened(browser, ss.plot.save(ss.plot.scree(spectra_data()), tmp_path / "scree.html"))
    alone.page.wait_for_selector(".modebar-btn", state="attached")
    for titles in (
        plot.locator(".modebar-btn").evaluate_all("all => all.map(one => one.dataset.title)"),
        alone.page.locator(".modebar-btn").evaluate_all("all => all.map(one => one.dataset.title)"),
    ):
        assert titles
        assert not [title for title in titles if re.search("share|cloud|edit|plotly", title, re.IGNORECASE)]
    alone.close()


@pytest.mark.slow
def test_panels_are_below_each_other_on_a_phone(browser: Any, file: Path) -> None:
    opened = Opened(browser, file)
    page = opened.page
    page.set_viewport_size({"width": 390, "height": 844})
    for name in ("spectra-residual-together", "spectra-plain-scree"):
        titles = (
            drawn(page, name)
            .locator(".annotation-text")
            .evaluate_all(
                "all => all.map(one => { const { left, right, top, bottom } = one.getBoundingClientRect();"
                " return [left, right, top, bottom]; })"
            )
        )
        for k, first in enumerate(titles):
            assert first[0] >= 0
            assert first[1] <= 390
            for second in titles[:k]:
                apart = first[0] >= second[1] or second[0] >= first[1] or first[2] >= second[3] or second[2] >= first[3]
                assert apart, name
    page.set_viewport_size({"width": 1280, "height": 900})  # and beside each other again
    read = "() => document.querySelector('[data-name=\"spectra-plain-scree\"]').layout.xaxis2.domain[0]"
    page.wait_for_function(f"() => ({read})() > 0.1")
    opened.close()


def test_every_axis_has_a_label(small_demo: Result) -> None:
    for name, figure in ss.load(small_demo.folder).figures.items():
        layout = figure.layout.to_plotly_json()
        for letter in "xy":
            axes = {key: own for key, own in layout.items() if key.startswith(f"{letter}axis")}
            for key, own in axes.items():
                shown = own.get("showticklabels") is not False
                assert not shown or own.get("title", {}).get("text") or own.get("matches"), (name, key)


# -- several runs


def test_runs_are_compared_on_shared_axes_and_one_scale(browser: Any, tmp_path: Path) -> None:
    first, second = two_networks(tmp_path / "first"), two_networks(tmp_path / "second", factor=9.0)
    opened = Opened(browser, write_page([first, second], tmp_path / "both.html"))
    page = opened.page
    drawn(page, "differences")
    assert page.locator("#differences tbody tr").count() == 5
    plot = page.locator('.plot[data-name="spectra-residual-together"]')
    plot.first.scroll_into_view_if_needed()
    page.wait_for_function(
        "() => [...document.querySelectorAll('[data-name=\"spectra-residual-together\"]')].every(one => one.layout)"
    )
    ranges = plot.evaluate_all("all => all.map(one => one.layout.yaxis3.range)")
    assert ranges[0] == pytest.approx(ranges[1])
    assert numpy.diff(ranges[0]) > 0
    scales = page.locator(".scale").all_inner_texts()
    assert len(scales) == 2
    assert scales[0] == scales[1]
    opened.close()


@pytest.mark.slow
def test_runs_with_other_units_have_no_differences(browser: Any, tmp_path: Path) -> None:
    with RunFolder(tmp_path / "other", "demo") as run:
        data = spectra_data()
        run.write_dataset("spectra", data.assign_coords(unit=[f"h.{k}" for k in range(data.sizes["unit"])]))
    opened = Opened(browser, write_page([two_networks(tmp_path / "run"), tmp_path / "other"], tmp_path / "both.html"))
    assert opened.page.locator("#differences").count() == 0
    assert opened.page.locator(".trunk").count() == 2
    opened.close()


# -- on paper


def test_headings_stay_with_what_follows_on_paper(opened: Opened, tmp_path: Path) -> None:
    page = opened.page
    page.emulate_media(media="print")
    for selector in ("h1", "h2", "summary", "thead"):
        read = "all => all.map(one => getComputedStyle(one).breakAfter)"
        assert set(page.eval_on_selector_all(selector, read)) == {"avoid"}, selector
    assert set(page.eval_on_selector_all("figure", "all => all.map(one => getComputedStyle(one).breakInside)")) == {
        "avoid"
    }
    assert not page.locator("header").is_visible()
    page.emulate_media(media="screen")
    drawn(page, "spectra-plain-scree")
    width = "() => document.querySelector('[data-name=spectra-plain-scree] .main-svg').width.baseVal.value"
    before = page.evaluate(width)
    assert before > 1000
    page.evaluate("() => dispatchEvent(new Event('beforeprint'))")
    page.wait_for_function("() => [...document.querySelectorAll('.plot')].every(one => one.querySelector('.main-svg'))")
    widths = page.eval_on_selector_all(".plot .main-svg", "all => all.map(one => one.getBoundingClientRect().width)")
    assert max(widths) <= 680  # what a page of paper has
    page.evaluate("() => dispatchEvent(new Event('afterprint'))")
    page.wait_for_function(f"() => ({width})() === {before}")
    page.pdf(path=tmp_path / "report.pdf")
    assert (tmp_path / "report.pdf").stat().st_size > 50_000


@pytest.mark.slow
def test_a_study_with_claims_still_reads(browser: Any, tmp_path: Path) -> None:
    opened = Opened(browser, write_page([saved(tmp_path / "run", decided=True)], tmp_path / "report.html"))
    assert opened.page.locator("#claims tbody tr").count() == 1
    assert opened.page.locator("h1").count() == 1
    opened.close()
