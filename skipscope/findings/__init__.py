"""What the numbers of a run mean: a few ranked findings, against the usual ranges of models of the same kind.

    findings_of(datasets)      from the datasets of one or several networks to ranked findings
    summary_of(datasets, ...)  the first screen of a report: the headline, the findings, three numbers, one picture

A finding is computed from datasets alone, so that it is the same in Python, on the command line and in a report that is
made from a run folder later. `usual.py` has the ranges, which `scripts/usual_ranges.py` measures.
"""

from skipscope.findings.finding import SEVERITIES, Finding, Severity, Summary, Tile, as_html, in_lines
from skipscope.findings.ranking import findings_of
from skipscope.findings.summary import summary_of

__all__ = ["SEVERITIES", "Finding", "Severity", "Summary", "Tile", "as_html", "findings_of", "in_lines", "summary_of"]
