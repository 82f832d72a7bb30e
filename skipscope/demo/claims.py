"""The claims that the demo decides, with their rules, and the evidence from its datasets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from skipscope.linear.verify import ADJOINT_TOLERANCE
from skipscope.runs import Claim

if TYPE_CHECKING:
    import xarray

PAPER = "Rothauge, Yao, Hu, Mahoney: linearised stability of residual networks"
SLOPE = (0.9, 1.1)
EQUAL = 0.9  # of the pairs with a predicted plateau


def _jacobian_rule(measured: Mapping[str, Any]) -> bool | None:
    low, high = measured["slope of r0, smallest"], measured["slope of r0, largest"]
    return bool(
        measured["passed"] == measured["Jacobians"]
        and SLOPE[0] <= low <= high <= SLOPE[1]
        and measured["largest adjoint error"] <= ADJOINT_TOLERANCE
        and measured["wrong Jacobian rejected"]
    )


def _law_rule(measured: Mapping[str, Any]) -> bool | None:
    if measured["bounds violated"] or measured["ones without skips"]:
        return False
    if not measured["with 2 r < n - z"]:
        return None
    return bool(measured["of them with exactly n - z - 2 r ones"] >= EQUAL * measured["with 2 r < n - z"])


JACOBIAN = Claim(
    id="D1",
    paper=PAPER,
    claim="The Jacobian is the derivative of the block, and its transpose is its transpose.",
    statistic="Jacobian test (r0 and r1 against the step) and adjoint test of every block of both networks",
    expected=(
        f"r0 falls with slope {SLOPE[0]} to {SLOPE[1]}; r1 with slope 1.9 or more, or to rounding where no kink of a "
        f"ReLU is crossed; adjoint error at most {ADJOINT_TOLERANCE:.0e}; a Jacobian that is off by 0.1 % is rejected"
    ),
    rule=_jacobian_rule,
)

LAW = Claim(
    id="D3",
    paper=f"ours, on {PAPER}",
    claim=(
        "A unit with n outputs, z of them inactive, and r active inner ReLUs has at least z singular values 0, at "
        "least n - z - 2 r equal to 1, at most r above 1 and at most r between 0 and 1."
    ),
    statistic="counts against bounds, for every unit with an identity skip and every sample",
    expected=(
        f"no bound violated; exactly n - z - 2 r ones in {EQUAL:.0%} of the pairs (unit, sample) with 2 r < n - z, and "
        "there are such pairs; no value 1 in the same blocks without skips"
    ),
    rule=_law_rule,
)


def jacobian_evidence(verification: xarray.Dataset) -> dict[str, Any]:
    slopes = verification["slope_zeroth"]
    return {
        "Jacobians": int(verification["passed"].size),
        "passed": int(verification["passed"].sum()),
        "largest adjoint error": float(verification["adjoint_error"].max()),
        "slope of r0, smallest": float(slopes.min()),
        "slope of r0, largest": float(slopes.max()),
        "seen": ", ".join(f"{n} {kind}" for kind, n in Counter(verification["seen"].values.ravel()).items()),
        "wrong Jacobian rejected": not verification.attrs["control_passed"],
    }


def law_evidence(law: xarray.Dataset) -> dict[str, Any]:
    n, z, r = law["size"], law["inactive"], law["inner_active"]
    violated = (law["zeros"] < z) | (law["ones"] < n - z - 2 * r) | (law["above"] > r) | (law["below"] > r)
    plateau = 2 * r < n - z
    evidence: dict[str, Any] = {
        "pairs of unit and sample": int(n.size),
        "bounds violated": int(violated.sum()),
        "with 2 r < n - z": int(plateau.sum()),
        "of them as trained": int(plateau.sel(variant="as trained").sum()),
        "of them with exactly n - z - 2 r ones": int((plateau & (law["ones"] == n - z - 2 * r)).sum()),
        "ones without skips": int(law["control_ones"].sum()),
    }
    if not evidence["with 2 r < n - z"]:
        evidence["reason"] = "no unit has 2 r < n - z, so nothing was predicted to be exactly 1"
    return evidence
