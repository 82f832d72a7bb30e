"""What every paper needs: studies, the quantities that they measure, and the claims that are judged by them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skipscope.deferred import defer

if TYPE_CHECKING:
    from skipscope.papers.kit.bench import Bench
    from skipscope.papers.kit.claims import Claim, Measured, Part
    from skipscope.papers.kit.criteria import Criterion
    from skipscope.papers.kit.quantities import Quantity
    from skipscope.papers.kit.study import Evidence, Study
    from skipscope.papers.kit.subjects import Subject

__all__ = ["Bench", "Claim", "Criterion", "Evidence", "Measured", "Part", "Quantity", "Study", "Subject"]

defer(
    __name__,
    {
        "bench": "Bench",
        "claims": "Claim Measured Part",
        "criteria": "Criterion",
        "quantities": "Quantity",
        "study": "Evidence Study",
        "subjects": "Subject",
    },
)
