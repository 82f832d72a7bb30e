"""The figures of paper A: those in FIGURES are `ss.plot.NAME`."""

from skipscope.papers.a.figures.emergence import collapse_in_training, counterfactuals, emergence

FIGURES = {figure.__name__: figure for figure in (collapse_in_training, counterfactuals, emergence)}
