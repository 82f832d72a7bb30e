"""Paper C: why very deep plain networks become singular.

theory/    its theorems as code
networks/  its networks
studies/   one module per study: settings, what is run, quantities and claims together
views/     what a report shows of its datasets; figures/ draws them
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from skipscope.registration import Paper

if TYPE_CHECKING:
    from skipscope.report.views import ViewOfMeasure


def _views() -> Mapping[str, ViewOfMeasure]:
    from skipscope.papers.c.views import VIEWS

    return VIEWS


def _figures() -> Mapping[str, Callable[..., Any]]:
    from skipscope.papers.c.figures import FIGURES

    return FIGURES


def _measures() -> Mapping[str, Callable[..., Any]]:
    from skipscope.papers.c.measures import layer_sensitivity, sensitivity

    return {"sensitivity": sensitivity, "layer_sensitivity": layer_sensitivity}


PAPER = Paper(
    letter="C",
    title="Oyedotun, Al Ismaeil, Aouada: Training very deep neural networks: Rethinking the role of skip connections",
    package=__name__,
    studies={
        "theorems": "Products of many weights: theorems 1 to 3, propositions 1 and 3",
        "accuracy": "Accuracies of very deep networks with skips and without (tables 1 to 4, figures 2 and 3)",
        "histograms": "Activations, weights and gradients at both ends, and ranks of gradients (figures 4 to 6)",
        "weights": "Condition numbers of weights, layer by layer (figures 7 and 8)",
        "hidden": "Condition numbers of hidden states, layer by layer (figure 9)",
        "linear": "Condition numbers in networks with linear units (figures 12 and 13)",
        "deeper": "Networks of 200 layers (figures 10 and 11)",
        "dirac": "DiracNets: an identity in the weights in place of skips",
    },
    views=_views,
    figures=_figures,
    measures=_measures,
)
