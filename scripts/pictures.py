"""Pictures of the documentation, from a run of the demo.

    skipscope demo --out skipscope-demo
    python scripts/pictures.py skipscope-demo

Writes docs/pictures/*.png: figures by ss.plot, and the report as Chromium shows it. Needs the extra `export` and
Playwright (both are among the development requirements), and Chromium.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import skipscope as ss

PICTURES = Path(__file__).parent.parent / "docs" / "pictures"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
WIDTH = 1000  # of a figure, in pixels
CLICKED = 7  # the unit that the map shows
SIZES = {"": (1400, 900), "-phone": (390, 844)}  # of windows, by the end of a picture's name


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="the folder of a demo")
    run = parser.parse_args().run
    PICTURES.mkdir(parents=True, exist_ok=True)
    for name, figure in figures(ss.load(run)).items():
        ss.plot.save(figure(), PICTURES / f"{name}.png", width=WIDTH, scale=1)
    screenshots(run / "report.html")


def figures(result: ss.Result) -> dict[str, Callable[[], Any]]:
    both = {network: result[f"profile-{network}"] for network in ("residual", "plain")}
    spectra, plain = result["spectra-residual"], result["spectra-plain"]
    return {
        "profile": lambda: ss.plot.profile(both),
        "scree": lambda: ss.plot.scree(spectra),
        "scree-plain": lambda: ss.plot.scree(plain),
        "proportions": lambda: ss.plot.proportions(spectra),
        "together": lambda: ss.plot.together({"residual": spectra, "plain": plain}),
        "depth": lambda: ss.plot.depth(spectra),
        "law": lambda: ss.plot.law({name: result[f"law-{name}"] for name in ("as-trained", "raised")}),
        "growth": lambda: ss.plot.growth(result["stability-residual"]),
        "prediction": lambda: ss.plot.prediction(result["stability-residual"]),
        "conditioning": lambda: ss.plot.conditioning({name: result[f"conditioning-{name}"] for name in both}),
        "training": lambda: ss.plot.training({name: result[f"history-{name}"] for name in both}),
    }


def screenshots(report: Path) -> None:
    """The first screen on a desk and on a phone, light and dark; the map with an open unit, light and dark."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        for end, (width, height) in SIZES.items():
            page = browser.new_page(viewport={"width": width, "height": height}, color_scheme="light")
            page.goto(report.resolve().as_uri())
            page.wait_for_selector(".headline-figure .main-svg", state="attached")
            page.wait_for_timeout(500)  # the figure fades in
            page.screenshot(path=PICTURES / f"report-top{end}.png")
            page.locator("#theme").click()
            page.wait_for_timeout(500)
            page.screenshot(path=PICTURES / f"report-top{end}-dark.png")
            page.close()
        page = browser.new_page(viewport={"width": 1400, "height": 900}, color_scheme="light")
        page.goto(report.resolve().as_uri())
        page.locator(".cell").nth(CLICKED).click()
        page.wait_for_selector(".unit .main-svg")
        for name in ("report", "report-dark"):
            page.evaluate("() => document.querySelector('#map').scrollIntoView()")
            page.wait_for_timeout(500)
            page.screenshot(path=PICTURES / f"{name}.png")
            page.locator("#theme").click()
        browser.close()


if __name__ == "__main__":
    main()
