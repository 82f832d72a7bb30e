"""The figures of paper D: those in FIGURES are `ss.plot.NAME`."""

from skipscope.papers.d.figures.noise import mixture_histograms, mixtures
from skipscope.papers.d.figures.scaling import plateau

FIGURES = {figure.__name__: figure for figure in (mixture_histograms, mixtures, plateau)}
