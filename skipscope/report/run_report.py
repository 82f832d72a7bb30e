"""The report of a run, from its folder alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from skipscope.report.page import page
from skipscope.report.views import views
from skipscope.runs import RunFolder, SavedRun, load_run


def write_report(path: Path | str) -> Path:
    """Write report.html and figures/ into a run folder and give the report's path."""
    saved = load_run(path)
    shown = views({name: saved.dataset(name) for name in saved.names})
    figures = {name: figure for view in shown for name, figure in view.figures.items()}
    with RunFolder.reopened(saved.path) as run:
        for name, (_, figure) in figures.items():
            # One copy of the library beside the figures serves them all.
            drawn = figure.to_html(include_plotlyjs="directory", div_id=name, config={"displaylogo": False})
            run.write_text(f"figures/{name}.html", drawn)
        if figures:
            run.write_text("figures/plotly.min.js", _plotly())
        text = page(
            title=f"skipscope: {saved.record['what']}",
            summary=_summary(saved),
            record=saved.record,
            claims=[decision.to_dict() for decision in saved.claims],
            tables=[table for view in shown for table in view.tables],
            figures=list(figures.values()),
        )
        return run.write_text("report.html", text)


def _summary(saved: SavedRun) -> list[str]:
    verdicts = [decision.verdict for decision in saved.claims]
    lines: list[str] = []
    source: dict[str, Any] = saved.record["parameters"].get("source", {})
    if source:
        lines.append(f"Measured: {source['description']}, {source['weights']}; input: {source['input']}.")
    if verdicts:
        counts = ", ".join(f"{verdicts.count(v)} {v}" for v in ("reproduced", "not reproduced", "inconclusive"))
        lines.append(f"Of {len(verdicts)} {'claim' if len(verdicts) == 1 else 'claims'}: {counts}.")
    if saved.record["status"] != "finished":
        lines.append(f"This run is not complete: its status is '{saved.record['status']}'.")
    if saved.changed:
        lines.append(f"Not as the run wrote them: {', '.join(saved.changed)}.")
    return [*lines, *saved.record.get("notes", [])]


def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())
