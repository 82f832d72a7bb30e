"""The verdicts that ship with the package, and the page that shows them, from the committed results.

    python scripts/verdicts.py

Reads every claims.json below docs/results that was judged under today's rules, keeps the best evidence for each part of
each claim, and writes skipscope/papers/verdicts.json and docs/claims.md.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from skipscope.papers.kit.catalogue import study_of
from skipscope.papers.kit.verdicts import Found, Judged, best_of, numbers, to_ship
from skipscope.registration import papers
from skipscope.runs.decisions import EDITION, Decision, Verdict

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
SHIPPED = ROOT / "skipscope" / "papers" / "verdicts.json"
PAGE = ROOT / "docs" / "claims.md"

FILTER = """
<p>
<label>Paper <select id="paper"><option value="">all</option>{papers}</select></label>
<label>Verdict <select id="verdict"><option value="">all</option>{verdicts}</select></label>
<span id="shown"></span>
</p>
"""
SCRIPT = """
<script>
(() => {
  const [paper, verdict, shown] = ["paper", "verdict", "shown"].map((id) => document.getElementById(id));
  const rows = [...document.querySelectorAll("tr[data-paper]")];
  function update() {
    for (const row of rows) {
      const wanted = (!paper.value || row.dataset.paper === paper.value)
        && (!verdict.value || row.dataset.verdict === verdict.value);
      row.hidden = !wanted;
    }
    const claims = new Set(rows.filter((row) => !row.hidden).map((row) => row.dataset.claim));
    shown.textContent = `${claims.size} claims`;
  }
  paper.addEventListener("change", update);
  verdict.addEventListener("change", update);
  update();
})();
</script>
"""


def main() -> None:
    rows = best_of(committed(), "it was not run under these rules")
    lines = [json.dumps(entry) for entry in to_ship(rows)]
    SHIPPED.write_text("[\n" + ",\n".join(lines) + "\n]\n")
    PAGE.write_text("\n".join(page(rows)) + "\n")


def committed() -> Iterator[Found]:
    for file in sorted(RESULTS.glob("**/claims.json")):
        for content in json.loads(file.read_text()):
            if content.get("edition", 1) == EDITION:
                content.pop("run", None)  # the name of the run folder, where several are in one file
                yield file.parent.relative_to(RESULTS).as_posix(), Decision.from_dict(content)


def page(rows: list[Judged]) -> Iterator[str]:
    counts = Counter(row.decision.verdict for row in rows)
    parts = sum(len(row.claim.parts) for row in rows)
    verdicts = [verdict for verdict in get_args(Verdict) if counts[verdict]]
    yield from ("---", "hide:", "  - toc", "---", "")  # the table takes all of the width
    yield "# All claims and their verdicts"
    yield ""
    yield "Made by `scripts/verdicts.py` from the results that are committed here; `skipscope study verdicts` prints"
    yield f"the same. {len(rows)} claims, {parts} parts: {', '.join(f'{counts[each]} {each}' for each in verdicts)}."
    yield "No correction is made for the number of parts. Intervals are at 95 %, over networks. *Open* means that what"
    yield "decides the claim was not run; *reported*, that there is nothing to judge."
    yield "[How claims are judged](studies.md). Rules of the first edition pooled networks of different kinds, or could"
    yield "not pass; its verdicts are kept beside."
    letters = "".join(f"<option>{paper.letter}</option>" for paper in papers())
    yield FILTER.format(papers=letters, verdicts="".join(f"<option>{each}</option>" for each in verdicts))
    yield "<table>"
    yield (
        "<thead><tr><th>claim</th><th>verdict</th><th>value (interval)</th><th>subject, networks</th>"
        "<th>first edition</th><th>made by</th></tr></thead>"
    )
    yield "<tbody>"
    for row in rows:
        yield from in_html(row)
    yield "</tbody></table>"
    yield SCRIPT


def in_html(row: Judged) -> Iterator[str]:
    from markupsafe import escape

    decision = row.decision
    about = f'data-paper="{row.claim.letter}" data-claim="{row.claim.id}" data-verdict="{decision.verdict}"'
    alone = decision.parts[0] if len(decision.parts) == 1 else None
    value = numbers(alone) if alone else ""
    why = decision.cost or decision.reason
    explained = f"{'<br>' if value else ''}<small>{escape(why)}</small>" if why else ""
    made = "<br>".join(
        f"{linked(source) + '<br>' if source else ''}<code>{escape(command)}</code>"
        for source, command in row.commands.items()
    )
    yield (
        f'<tr {about} id="{row.claim.id}"><td><strong>{row.claim.id}</strong> {escape(row.claim.text)}</td>'
        f"<td>{decision.verdict}</td><td>{value}{explained}</td>"
        f"<td>{', '.join(row.subjects)}{f', {row.networks}' if row.networks else ''}</td>"
        f"<td>{decision.first_edition}</td>"
        f'<td><a href="paper-{row.claim.letter.lower()}.html">{study_of(row.claim).id}</a><br>{made}</td></tr>'
    )
    for part, source in zip(decision.parts, row.sources or [""] * len(decision.parts), strict=False):
        if alone:
            break
        networks = f"{part.subject}{f', {part.networks}' if part.networks else ''}"
        yield (
            f"<tr {about}><td>&emsp;{escape(part.name)}</td><td>{part.verdict}</td><td>{numbers(part)}</td>"
            f"<td>{escape(networks)}</td><td></td><td>{linked(source) if source else ''}</td></tr>"
        )


def linked(source: str) -> str:
    return f'<a href="results/{source}/README.html">{source}</a>'


if __name__ == "__main__":
    main()
