"""The claims that the demo decides, and the evidence for them in its datasets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from skipscope.studies.d.claims import CLAIMS

if TYPE_CHECKING:
    import xarray

JACOBIAN, LAW = (claim for claim in CLAIMS if claim.id in ("D1", "D3"))


def law_evidence(law: xarray.Dataset) -> dict[str, Any]:
    n, z, r = law["size"], law["inactive"], law["inner_active"]
    violated = (law["zeros"] < z) | (law["ones"] < n - z - 2 * r) | (law["above"] > r) | (law["below"] > r)
    plateau = 2 * r < n - z
    pairs, equal = int(plateau.sum()), int((plateau & (law["ones"] == n - z - 2 * r)).sum())
    return {
        "trained networks": 1,
        "pairs of unit and sample": int(n.size),
        "bounds violated": int(violated.sum()),
        "pairs with 2 r < n - z": pairs,
        "of them as trained": int(plateau.sel(variant="as trained").sum()),
        "share of generic pairs with equality": equal / pairs if pairs else None,
        "ones without skips": int(law["control_ones"].sum()),
    }
