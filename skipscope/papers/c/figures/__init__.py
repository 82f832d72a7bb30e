"""The figures of paper C: those in FIGURES are `ss.plot.NAME`."""

from skipscope.papers.c.figures.layer_conditions import hidden_conditions, rank_shares, weight_conditions
from skipscope.papers.c.figures.twins import generalisation, twin_accuracies, twin_curves

FIGURES = {
    figure.__name__: figure
    for figure in (
        generalisation,
        hidden_conditions,
        rank_shares,
        twin_accuracies,
        twin_curves,
        weight_conditions,
    )
}
