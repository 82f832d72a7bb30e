"""The claims that the demo decides, and the evidence for them in its datasets."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from skipscope.studies.d.claims import CLAIMS

if TYPE_CHECKING:
    import xarray

JACOBIAN, LAW = (claim for claim in CLAIMS if claim.id in ("D1", "D3"))


def jacobian_evidence(verification: xarray.Dataset) -> dict[str, Any]:
    slopes = verification["slope_zeroth"]
    return {
        "Jacobians": int(verification["passed"].size),
        "slope of r0, smallest": float(slopes.min(skipna=False)),
        "slope of r0, largest": float(slopes.max(skipna=False)),
        "Jacobians with r1 neither of slope 1.9 nor at rounding": int((verification["seen"] == "wrong").sum()),
        "largest adjoint error": float(verification["adjoint_error"].max(skipna=False)),
        "seen": ", ".join(f"{n} {kind}" for kind, n in Counter(verification["seen"].values.ravel()).items()),
        "wrong Jacobian rejected": not verification.attrs["control_passed"],
    }


def law_evidence(law: xarray.Dataset) -> dict[str, Any]:
    n, z, r = law["size"], law["inactive"], law["inner_active"]
    violated = (law["zeros"] < z) | (law["ones"] < n - z - 2 * r) | (law["above"] > r) | (law["below"] > r)
    plateau = 2 * r < n - z
    pairs, equal = int(plateau.sum()), int((plateau & (law["ones"] == n - z - 2 * r)).sum())
    return {
        "pairs of unit and sample": int(n.size),
        "bounds violated": int(violated.sum()),
        "pairs with 2 r < n - z": pairs,
        "of them as trained": int(plateau.sel(variant="as trained").sum()),
        "share of generic pairs with equality": equal / pairs if pairs else None,
        "ones without skips": int(law["control_ones"].sum()),
    }
