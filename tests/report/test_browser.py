"""Reports in a real browser. Skipped where there is no Chromium: `make setup` installs it where it can."""

from __future__ import annotations

import csv
import io
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import xarray

from skipscope.inspection.result import Result, load
from skipscope.papers.kit.running import run_studies
from skipscope.report import write_page, write_report
from skipscope.report.table import number
from skipscope.runs import RunFolder
from tests.report.test_page import saved

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]


@pytest.fixture(scope="module", name="browser")
def _browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module", name="run")
def _run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = saved(tmp_path_factory.mktemp("browser") / "run", decided=True)
    write_report(path)
    return path


class Opened:
    """A page from disk, with all that it complained of and all that it asked for."""

    def __init__(self, browser: Any, file: Path) -> None:
        self.page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme="light")
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(file.as_uri())

    def close(self) -> None:
        """Nothing was wrong and nothing left the page."""
        self.page.close()
        assert self.complaints == []
        left = [url for url in self.requests if not url.startswith(("file:", "data:", "blob:"))]
        assert left == []
        assert len([url for url in self.requests if url.startswith("file:")]) == 1


@pytest.fixture(name="opened")
def _opened(browser: Any, run: Path) -> Iterator[Opened]:
    opened = Opened(browser, run / "report.html")
    yield opened
    opened.close()


@pytest.fixture(scope="module", name="shown")
def _shown(browser: Any, run: Path) -> Iterator[Opened]:
    """One page for tests that leave it as they found it."""
    opened = Opened(browser, run / "report.html")
    yield opened
    opened.close()


def drawn(page: Any, name: str) -> Any:
    """A figure's element, after it came into view and was drawn."""
    element = page.locator(f'.plot[data-name="{name}"]')
    element.scroll_into_view_if_needed()
    page.wait_for_function('name => document.querySelector(`.plot[data-name="${name}"] .main-svg`)', arg=name)
    return element


def downloaded(page: Any, button: Any) -> list[list[str]]:
    with page.expect_download() as waiting:
        button.click()
    return list(csv.reader(io.StringIO(Path(waiting.value.path()).read_text())))


def test_the_map_answers_to_clicks_and_keys(shown: Opened, run: Path) -> None:
    page, spectra = shown.page, load(run)["spectra"]
    cells = page.locator(".cell")
    assert cells.count() == 6
    cells.nth(2).click()
    page.wait_for_selector(".unit .main-svg")
    panel = page.locator(".unit")
    assert panel.locator("h3").inner_text() == "stage2.2, skip: identity"
    largest = float(spectra["largest"].sel(unit="stage2.2").mean())
    assert number(largest) in panel.inner_text()
    assert panel.locator(".main-svg").count() >= 1
    page.keyboard.press("ArrowRight")
    assert panel.locator("h3").inner_text().startswith("stage2.3")
    cells.nth(3).click()  # once more: closed
    assert panel.is_hidden()


@pytest.mark.slow
def test_the_map_is_coloured_by_what_the_reader_picks(opened: Opened, run: Path) -> None:
    page = opened.page
    before = page.locator(".cell").nth(0).get_attribute("title")
    page.locator(".picks select").last.select_option(label="growth of a perturbation, random")
    title = page.locator(".cell").nth(0).get_attribute("title")
    growth = float(load(run)["perturbations"]["actual"].sel(kind="random").isel(unit=0).median())
    assert title != before
    assert title == f"stage1.0: growth of a perturbation, random {number(growth)}"


def test_unconverged_units_are_marked_in_the_map(shown: Opened) -> None:
    cell = shown.page.locator(".cell").nth(1)
    assert "unsure" in cell.get_attribute("class")
    assert cell.inner_text().endswith("*")


@pytest.mark.slow
def test_axes_switch_between_linear_and_logarithmic(opened: Opened) -> None:
    page = opened.page
    page.locator(".cell").nth(0).click()
    page.wait_for_selector(".unit .main-svg")
    read = "() => document.querySelector('.unit .small').layout.yaxis.type"
    assert page.evaluate(read) == "linear"
    page.locator(".unit button", has_text="y: linear").first.click()
    assert page.evaluate(read) == "log"


@pytest.mark.slow
def test_hover_writes_numbers_as_tables_do(opened: Opened, run: Path) -> None:
    page = opened.page
    bars = drawn(page, "spectra-proportions")
    bars.locator(".bars .point path").first.hover(force=True)
    page.wait_for_selector(".hoverlayer .hovertext")
    share = float(load(run)["spectra"]["share_above"].isel(unit=0).mean())
    assert f": {number(share)}" in page.locator(".hoverlayer .hovertext").first.text_content()


def test_the_theme_switches_page_and_figures(opened: Opened) -> None:
    page = opened.page
    drawn(page, "spectra-scree")
    read = """() => [getComputedStyle(document.body).backgroundColor,
        document.querySelector('.plot[data-name="spectra-scree"]').layout.template.layout.font.color]"""
    light = page.evaluate(read)
    page.locator("#theme").click()
    page.wait_for_function("() => document.documentElement.dataset.theme === 'dark'")
    dark = page.evaluate(read)
    assert light[0] != dark[0]
    assert light[1] != dark[1]


def test_the_csv_of_a_figure_holds_the_dataset(shown: Opened, run: Path) -> None:
    page = shown.page
    figure = page.locator("figure", has=page.locator('[data-name="spectra-scree"]'))
    rows = downloaded(page, figure.locator("button.csv"))
    assert rows[0] == ["panel", "series", "rank / size", "singular value", "label"]
    spectra = load(run)["spectra"]
    for unit in ("stage1.1", "stage2.3", "stage3.5", "stage 3"):
        wanted = spectra["value"].sel(unit=unit).isel(sample=1).dropna("index").values.tolist()
        found = [float(row[3]) for row in rows[1:] if row[0].rstrip(" *") == unit and row[1] == "sample 1"]
        assert found == wanted, unit


@pytest.mark.slow
def test_the_csv_of_a_table_holds_its_cells(opened: Opened) -> None:
    page = opened.page
    table = page.locator("details", has_text="Spectra of a net")
    rows = downloaded(page, table.locator("button.csv").first)
    assert rows[0][:2] == ["unit", "size"]
    assert [row[0] for row in rows[1:3]] == ["stage1.0", "stage1.1 *"]


@pytest.mark.slow
def test_curves_can_be_toggled(opened: Opened) -> None:
    page = opened.page
    plot = drawn(page, "spectra-scree")
    plot.locator(".legendtoggle").first.click()
    page.wait_for_function(
        "() => document.querySelector('.plot[data-name=\"spectra-scree\"]').data.some(t => t.visible === 'legendonly')"
    )


def test_everything_can_be_reached_with_the_keyboard(opened: Opened) -> None:
    page = opened.page
    seen = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        seen.add(page.evaluate("() => document.activeElement.id || document.activeElement.classList[0] || ''"))
    assert {"jump", "theme", "cell", "csv"} <= seen


@pytest.mark.slow
def test_a_legend_answers_to_the_keyboard(opened: Opened) -> None:
    page = opened.page
    drawn(page, "spectra-scree").locator(".legendtoggle").first.press("Enter")
    read = "() => document.querySelector('.plot[data-name=\"spectra-scree\"]').data.map(trace => trace.visible)"
    hidden = page.evaluate(read)
    assert hidden.count("legendonly") == len(hidden) / 2  # one of two samples, in every panel
    page.locator("#theme").click()
    assert page.evaluate(read) == hidden  # and stays so


@pytest.mark.slow
def test_infinite_numbers_are_words_in_the_csv(browser: Any, tmp_path: Path) -> None:
    data = xarray.Dataset(
        {
            "weight_condition": (("weight", "reduction"), [[3.0, 3.0], [numpy.inf, numpy.inf]]),
            "weight_status": (("weight", "reduction"), [["finite"] * 2, ["infinite"] * 2]),
            "weight_rank": (("weight", "reduction"), [[4, 4], [3, 3]]),
            "weight_full_rank": (("weight", "reduction"), [[4, 4], [4, 4]]),
        },
        {"weight": ["a", "b"], "weight_shape": ("weight", ["4 x 4"] * 2), "reduction": ["max", "matrix"]},
        {"measure": "conditioning"},
    )
    with RunFolder(tmp_path / "run", "study") as run:
        run.write_dataset("conditioning", data)
    opened = Opened(browser, write_report(tmp_path / "run"))
    rows = downloaded(opened.page, opened.page.locator("figure button.csv"))
    assert [row[3] for row in rows[1:]] == ["3", "", "infinite"]
    opened.close()


def test_on_paper_everything_is_drawn(opened: Opened, tmp_path: Path) -> None:
    page = opened.page
    page.locator("#theme").click()  # dark, which paper is not
    page.pdf(path=tmp_path / "report.pdf")
    assert page.locator(".plot .main-svg").count() >= page.locator(".plot").count()
    assert page.evaluate("() => document.documentElement.dataset.theme") == "dark"
    assert (tmp_path / "report.pdf").stat().st_size > 50_000


def test_a_narrow_window_needs_no_sideways_scrolling(opened: Opened) -> None:
    opened.page.set_viewport_size({"width": 420, "height": 800})
    opened.page.wait_for_function("() => document.documentElement.scrollWidth <= innerWidth")


def test_the_demo_opens(browser: Any, small_demo: Result) -> None:
    opened = Opened(browser, small_demo.folder / "report.html")
    opened.page.locator(".cell").first.click()
    opened.page.wait_for_selector(".unit .main-svg")
    for name in opened.page.eval_on_selector_all(".plot[data-name]", "plots => plots.map(plot => plot.dataset.name)"):
        drawn(opened.page, name)
    opened.close()


@pytest.mark.slow
def test_a_study_opens(browser: Any, tmp_path: Path) -> None:
    run_studies("D.spectra", tmp_path / "run", preset="smoke")
    opened = Opened(browser, write_report(tmp_path / "run"))
    assert opened.page.locator("#claims tbody tr").count() == 5
    for name in opened.page.eval_on_selector_all(".plot[data-name]", "plots => plots.map(plot => plot.dataset.name)"):
        drawn(opened.page, name)
    opened.close()


def test_two_runs_side_by_side(browser: Any, tmp_path: Path) -> None:
    one, other = (saved(tmp_path / name, network=name, only=["spectra"]) for name in ("one net", "another net"))
    opened = Opened(browser, write_page([one, other], tmp_path / "both.html"))
    page = opened.page
    assert page.locator(".trunk").count() == 2
    pair = page.locator('.plot[data-name="spectra-scree"]')
    pair.first.scroll_into_view_if_needed()
    page.wait_for_function("() => document.querySelectorAll('[data-name=\"spectra-scree\"] .main-svg').length >= 2")
    first, second = (pair.nth(k).bounding_box() for k in range(2))
    assert first["y"] == second["y"]
    assert first["x"] + first["width"] <= second["x"]
    opened.close()
