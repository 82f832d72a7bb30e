"""Paper A: how the Jacobians of residual blocks align in training.

theory/    its theorems as code
networks/  its networks
studies/   one module per study: settings, what is run, quantities and claims together
views/     what a report shows of its datasets; figures/ draws them
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from skipscope.registration import Paper

if TYPE_CHECKING:
    from skipscope.models.families import NetworkNames
    from skipscope.report.views import ViewOfMeasure


def _views() -> Mapping[str, ViewOfMeasure]:
    from skipscope.papers.a.views import VIEWS

    return VIEWS


def _figures() -> Mapping[str, Callable[..., Any]]:
    from skipscope.papers.a.figures import FIGURES

    return FIGURES


def _networks() -> Sequence[NetworkNames]:
    from skipscope.papers.a.networks.names import AlignmentNames

    return (AlignmentNames(),)


PAPER = Paper(
    letter="A",
    title="Li, Papyan: Residual Alignment: Uncovering the Mechanisms of Residual Networks",
    package=__name__,
    studies={
        "alignment": "Residual alignment of a type of network on a data set (RA1 to RA4)",
        "counterfactuals": "Residual alignment with one thing changed",
        "collapse": "Alignment and neural collapse along the training",
        "theorem31": "Aligned Jacobians make a line: theorem 3.1",
        "theorem33": "Free Jacobians align: theorem 3.3",
    },
    networks=_networks,
    views=_views,
    figures=_figures,
)
