"""Paper D: the stability of residual units by linearisation.

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
    from skipscope.papers.d.views import VIEWS

    return VIEWS


def _figures() -> Mapping[str, Callable[..., Any]]:
    from skipscope.papers.d.figures import FIGURES

    return FIGURES


PAPER = Paper(
    letter="D",
    title="Rothauge, Yao, Hu, Mahoney: Residual Networks as Nonlinear Systems: Stability Analysis using Linearization",
    package=__name__,
    studies={
        "verify": "The Jacobian test and the adjoint test",
        "law": "The exact law of a unit's spectrum",
        "spectra": "Scree plots of units, down-sampling units and stages (figure 1)",
        "proportions": "Shares of singular values, unit by unit (figure 2)",
        "perturbations": "How perturbations travel (figure 3)",
        "projections": "Perturbations on singular vectors (figure 4)",
        "scaling": "The plateau of a scaled skip (figure 5, left)",
        "noise": "Weights between trained ones and noise (figure 5, right)",
    },
    views=_views,
    figures=_figures,
)
