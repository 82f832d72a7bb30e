"""Reports of run folders from somebody who means harm: names are text, and nothing else, wherever they are shown."""

from __future__ import annotations

import csv
import io
import json
import re
import urllib.parse
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy
import pytest

import skipscope as ss
from skipscope.report import Table, write_page, write_report
from skipscope.report.document import file_names, policy_for
from skipscope.report.style import without_foreign_markup
from skipscope.visible import visible
from tests.commands import run_command
from tests.report.hostile import ADDRESS, CODE, FILE, NAMES, hostile
from tests.report.synthetic import spectra_data
from tests.report.test_browser import CHROMIUM, Opened, _browser  # noqa: F401 - a fixture

browser_needed = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")


@pytest.fixture(scope="module", name="run")
def _run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = hostile(tmp_path_factory.mktemp("hostile") / "run")
    write_report(path)
    return path


class Elements(HTMLParser):
    """What a page is made of: its tags with their attributes, and the kinds of its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def pages(run: Path) -> list[Path]:
    return [run / "report.html", *sorted((run / "figures").glob("*.html"))]


def test_no_name_becomes_an_element_or_an_attribute(run: Path) -> None:
    assert len(pages(run)) > 5
    for page in pages(run):
        elements = Elements(page.read_text()).found
        assert not [tag for tag, _ in elements if tag in ("img", "iframe", "object", "form", "base")], page
        for tag, attributes in elements:
            assert not [name for name in attributes if name.startswith("on")], (page, tag)
            links = [attributes.get(name) or "#" for name in ("href", "src")]
            assert all(link.startswith(("#", "plotly.min.js")) for link in links), (page, tag)


def test_every_page_has_the_policy(run: Path) -> None:
    for page in pages(run):
        (policy,) = [
            attributes["content"] or ""
            for tag, attributes in Elements(page.read_text()).found
            if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
        ]
        assert "default-src 'none'" in policy, page
        assert "base-uri 'none'" in policy
        assert "form-action 'none'" in policy
        scripts = policy.partition("script-src")[2].partition(";")[0].split()
        assert all(source.startswith("'sha256-") or source in ("'self'", "file:") for source in scripts), page


def test_a_page_of_one_figure_has_the_policy_too(tmp_path: Path) -> None:
    path = ss.plot.save(ss.plot.scree(spectra_data(network=NAMES[1])), tmp_path / "new" / "scree.html")
    text = path.read_text()
    assert "default-src &#39;none&#39;" in text
    assert "file:" not in text.partition("</head>")[0]
    assert f"<script>{CODE}" not in text
    assert policy_for(["a"]) != policy_for(["b"])


def test_files_of_figures_are_inside_and_have_names_of_their_own(run: Path) -> None:
    names = [file.name for file in (run / "figures").iterdir()]
    assert all(re.fullmatch(r"[\w.-]+", name) for name in names)
    assert file_names(["a/b", "a?b", "../..", "", "a-b"]) == {
        "a/b": "a-b",
        "a?b": "a-b-2",
        "../..": "figure",
        "": "figure-2",
        "a-b": "a-b-3",
    }
    assert file_names(["A", "a", "a-2", "ß", "SS"]) == {"A": "A", "a": "a-2", "a-2": "a-2-2", "ß": "ß", "SS": "SS-2"}
    assert any("img" in name for name in names)  # of the dataset with the odd name
    record = json.loads((run / "run.json").read_text())
    assert f"data/{FILE}.nc" in record["hashes"]


def texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for part in value.values() for text in texts(part)]
    if isinstance(value, (list, tuple, numpy.ndarray)):
        return [text for part in value for text in texts(part)]
    return []


def test_no_figure_holds_markup_but_our_own(run: Path) -> None:
    for name, figure in ss.load(run).figures.items():
        tags = {tag for text in texts(figure.to_plotly_json()) for tag in re.findall(r"<[^<>]*>", text)}
        assert tags <= {"<br>", "<sub>", "</sub>", "<sup>", "</sup>", "<extra>", "</extra>"}, name


def test_a_figure_without_foreign_markup_is_left_alone() -> None:
    figure = ss.plot.scree(spectra_data())
    assert without_foreign_markup(figure) is figure
    assert ss.plot.depth(spectra_data()).layout.height


def test_a_terminal_obeys_no_name(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert "\x1b" not in str(ss.load(run))
    assert str(Table("t", ["unit"], [["a\nb"]])).splitlines()[-1] == r"a\nb"
    assert visible("a\u061cb") == "a\\u061cb"
    assert visible("a\x1b[2J\u202eb\x9b\r\nä\t") == "a\\x1b[2J\\u202eb\\x9b\\r\nä\t"
    odd = tmp_path / "\x1b[2Jrun"
    assert run_command(monkeypatch, "report", odd) == 2
    shown = capsys.readouterr()
    assert "\x1b" not in shown.out + shown.err
    assert r"\x1b[2Jrun" in shown.err


@browser_needed
def test_nothing_runs_and_nothing_leaves_the_report(browser: Any, run: Path) -> None:
    opened = Opened(browser, run / "report.html")
    page = opened.page
    for plot in page.locator(".plot").all():
        plot.scroll_into_view_if_needed()
    page.wait_for_function(
        "() => [...document.querySelectorAll('.plot')].every(plot => plot.querySelector('.main-svg'))"
    )
    for cell in page.locator(".cell").all():
        cell.click()
        page.wait_for_function(
            "() => [...document.querySelectorAll('.unit .small')].every(one => one.querySelector('.main-svg'))"
        )
        for text in page.locator(".unit .legendtext").all()[:2]:
            text.hover(force=True)
    assert page.evaluate("() => window.harmed") is None
    links = page.eval_on_selector_all(
        "svg a, a", "all => all.map(a => a.getAttribute('href') || a.getAttribute('xlink:href'))"
    )
    assert all(link.startswith("#") for link in links)
    styles = page.eval_on_selector_all("[style]", "all => all.map(one => one.getAttribute('style'))")
    assert not [style for style in styles if ADDRESS in style]
    opened.close()


@browser_needed
@pytest.mark.parametrize("name", ["*img*-scree", "*-proportions", pytest.param("*", marks=pytest.mark.slow)])
def test_nothing_runs_and_nothing_leaves_a_figure(name: str, browser: Any, run: Path) -> None:
    files = sorted((run / "figures").glob(f"{name}.html"))
    assert files
    for file in files:
        opened = Opened(browser, file)
        opened.page.wait_for_selector(".main-svg")
        assert opened.page.evaluate("() => window.harmed") is None, file
        assert opened.page.locator("svg a").count() == 0, file
        opened.page.close()
        assert opened.complaints == [], file
        assert {urllib.parse.urlparse(url).scheme for url in opened.requests} <= {"file", "data", "blob"}, file


@browser_needed
def test_the_policy_stops_what_escaping_would_let_through(browser: Any, run: Path, tmp_path: Path) -> None:
    for page in (run / "report.html", next((run / "figures").glob("*.html"))):
        spoilt = tmp_path / page.name
        harm = f'<img src="{ADDRESS}/a.png" onerror="{CODE}"><script>{CODE}</script><form action="{ADDRESS}"></form>'
        spoilt.write_text(page.read_text().replace("</body>", f"{harm}</body>"))
        opened = Opened(browser, spoilt)
        opened.page.evaluate("() => { const form = document.querySelector('form'); if (form) form.submit(); }")
        opened.page.wait_for_timeout(200)
        assert opened.page.evaluate("() => window.harmed") is None
        assert opened.page.url.startswith("file:")
        opened.page.close()
        assert len([text for text in opened.complaints if "Content Security Policy" in text]) >= 3


@browser_needed
def test_a_csv_file_holds_no_formula(browser: Any, run: Path) -> None:
    opened = Opened(browser, run / "report.html")
    page = opened.page
    cells: list[str] = []
    for button in page.locator("button.csv").all():
        page.evaluate("() => document.querySelectorAll('details').forEach(one => { one.open = true; })")
        with page.expect_download() as waiting:
            button.click()
        rows = list(csv.reader(io.StringIO(Path(waiting.value.path()).read_text(encoding="utf-8"))))
        cells += [cell for row in rows for cell in row]
    assert not [cell for cell in cells if re.match(r"[=@]|[+-](?![\d.]*(e[+-]?\d+)?( ±.*)?$)", cell) and cell != "-"]
    assert any(cell.startswith("'=HYPERLINK") for cell in cells)
    assert any(cell.startswith("<a href=") for cell in cells)  # as it is: a file of text
    opened.close()


@pytest.mark.slow
def test_two_hostile_runs_side_by_side(run: Path, tmp_path: Path) -> None:
    text = write_page([run, run], tmp_path / "both.html").read_text()
    assert f"<script>{CODE}" not in text
    assert "<img" not in text.partition('<script type="text/plain"')[0]
