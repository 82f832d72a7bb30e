"""Paper B: the Hessian of networks with shortcuts of depth n.

theory/    its theorems as code
networks/  its networks
studies/   one module per study: settings, what is run, quantities and claims together
views/     what a report shows of its datasets; figures/ draws them
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from skipscope.registration import Paper

if TYPE_CHECKING:
    from skipscope.report.views import ViewOfMeasure


def _views() -> Mapping[str, ViewOfMeasure]:
    from skipscope.papers.b.views import VIEWS

    return VIEWS


PAPER = Paper(
    letter="B",
    title="Li, Jiao, Han, Weissman: Demystifying ResNet",
    package=__name__,
    studies={
        "theorem2": "The Hessian at zero weights: theorem 2",
        "theorem1": "Small weights that interpolate: the construction of theorem 1",
        "initial": "Conditioning of the Hessian at initialisation (figure 4)",
        "dynamics": "Conditioning and index of the Hessian on the way to the optimum (figures 5 and 6)",
        "learning": "Final losses at the best learning rate (figures 7 and 8)",
        "norms": "Deeper networks have smaller weights (figures 2 and 3)",
        "shortcuts": "Shortcuts of depths 1 to 4 (figure 9)",
    },
    views=_views,
)
