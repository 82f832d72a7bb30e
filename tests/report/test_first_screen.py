"""What a reader sees first: the headline, findings with their places, tiles and one picture, whatever is missing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from skipscope.findings import Finding, Summary, Tile
from skipscope.report.content import Content, content_of
from skipscope.report.first_screen import figure_named, first_screen, place_in_map
from skipscope.report.page import page
from skipscope.runs import RunFolder, load_run
from tests.findings.test_findings import profile
from tests.report.hostile import CODE, NAMES
from tests.report.synthetic import spectra_data
from tests.report.test_page import saved

HEADLINE = "stage2.2 amplifies 6 times."
OVERVIEW = Summary(
    "a net on nothing",
    HEADLINE,
    (
        Finding("gain", HEADLINE, ("a smaller rate",), severity="problem", unit="stage2.2", network="a net"),
        Finding("rank", "half is lost", severity="unusual", unit="stage3.5", numbers={"rank": 0.51234}, figure="scree"),
        Finding("fine", "nothing else", severity="normal"),
    ),
    (Tile("largest", "6 x", "in stage2.2"), Tile("units", "6"), Tile("samples", "2")),
    "spectra-depth",
)


@pytest.fixture(scope="module", name="content")
def _content(tmp_path_factory: pytest.TempPathFactory) -> Content:
    return replace(content_of(load_run(saved(tmp_path_factory.mktemp("first") / "run"))), overview=OVERVIEW)


def above_the_sections(text: str) -> str:
    return text.partition('id="summary"')[2].partition("</section>")[0]


def test_findings_are_joined_with_map_and_figures(content: Content) -> None:
    screen = first_screen(content)
    assert screen["leading"]["place"] == {"network": "a net", "unit": "stage2.2"}
    rank, fine = screen["findings"]
    assert (rank["place"], rank["figure"]) == ({"network": "a net", "unit": "stage3.5"}, "spectra-scree")
    assert rank["numbers"] == "rank: 0.512"
    assert (fine["place"], fine["figure"], fine["sign"]) == (None, "", "✓")
    assert screen["figure"] == "spectra-depth"


def test_the_screen_has_headline_tiles_findings_and_picture(content: Content) -> None:
    text = above_the_sections(page([content]))
    assert f'<h1 class="headline">{HEADLINE}</h1>' in text
    assert "<strong>6 x</strong><small>in stage2.2</small>" in text
    assert 'data-of="plot-0-spectra-depth"' in text
    assert "<small>To try: a smaller rate</small>" in text
    for severity in ("problem", "unusual", "normal"):  # a word and a sign, not a colour alone
        assert f"</i> {severity}</span>" in text
    assert text.count(HEADLINE) == 1  # not a second time in the list


def test_of_a_figure_with_many_panels_the_headline_has_those_it_is_about(content: Content) -> None:
    assert "data-panels" not in above_the_sections(page([content]))
    about = replace(OVERVIEW, panels=("state_rms", "gradient_rms"))
    assert ' data-panels="state_rms gradient_rms"' in above_the_sections(page([replace(content, overview=about)]))


def test_a_study_says_its_title_and_its_preset(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "law", "study D.law", preset="smoke") as run:
        run.write_dataset("spectra", spectra_data(network="a net"))
    about = content_of(load_run(run.path)).overview.about
    assert about == "The exact law of a unit's spectrum; a net; preset smoke"


def test_networks_that_were_changed_for_one_test_are_not_what_was_looked_at(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "demo", "demo") as run:
        for network in ("residual", "raised"):
            run.write_dataset(f"spectra-{network}", spectra_data(network=network))
        run.write_dataset("profile", profile(network="residual"))
    content = content_of(load_run(run.path))
    assert content.overview.about == "residual"
    assert content.facts["model"] == "residual; raised"  # at the end of the page there is all of it


def test_metadata_are_at_the_end_and_paragraphs_behind_details(content: Content) -> None:
    whole = page([content])
    text = above_the_sections(whole)
    assert "versions" not in text
    assert "<dt>versions</dt>" in whole.partition('id="made"')[2]
    assert "<summary>All numbers in words</summary><p>" in text


def test_a_screen_of_nothing(content: Content) -> None:
    text = above_the_sections(page([replace(content, overview=Summary("", ""))]))
    assert '<h1 class="headline">skipscope: study</h1>' in text
    for part in ("findings", "tiles", "headline-figure"):
        assert f'class="{part}"' not in text
    unknown = replace(OVERVIEW, figure="no such figure")
    assert "headline-figure" not in above_the_sections(page([replace(content, overview=unknown)]))


def test_no_more_than_six_findings(content: Content) -> None:
    many = replace(OVERVIEW, findings=tuple(Finding("a", f"sentence {k}") for k in range(9)))
    assert len(first_screen(replace(content, overview=many))["findings"]) == 6


def test_names_in_findings_are_text(content: Content) -> None:
    findings = tuple(Finding(name, name, (name,), unit=name, numbers={name: 1.0}, figure=name) for name in NAMES)
    tiles = tuple(Tile(name, name, name) for name in NAMES[:3])
    text = page([replace(content, overview=Summary(NAMES[0], NAMES[1], findings, tiles, NAMES[2]))])
    assert f"<script>{CODE}" not in text
    assert "<img" not in above_the_sections(text)


def test_warnings_stand_above_everything(content: Content) -> None:
    text = above_the_sections(page([replace(content, warnings=("This run is not complete.",))]))
    assert "This run is not complete." in text.partition("<h1")[0]


def test_a_figure_by_its_name_its_beginning_or_its_end() -> None:
    figures = ["spectra-a-scree", "spectra-b-scree", "history"]
    assert figure_named("history", figures) == "history"
    assert figure_named("spectra-b", figures) == "spectra-b-scree"
    assert figure_named("scree", figures) == "spectra-a-scree"
    assert figure_named("scree", figures, "b") == "spectra-b-scree"
    assert figure_named("growth", figures) == figure_named("", figures) == ""


def test_a_layer_is_found_in_its_unit() -> None:
    maps = [{"network": "a", "units": [{"name": "1"}, {"name": "1.attn"}]}, {"network": "b", "units": [{"name": "1"}]}]
    assert place_in_map("1.attn.proj", "a", maps) == {"network": "a", "unit": "1.attn"}
    assert place_in_map("1.mlp", "b", maps) == {"network": "b", "unit": "1"}
    assert place_in_map("10", "a", maps) is None
    assert place_in_map("", "a", maps) is None
