"""Is every unit's Jacobian the derivative, and its transpose the transpose? `linear.verify` on all, and a control.

adjoint_error               |<J v, u> - <v, J^T u>| / (|J v| |u|), the largest over the samples
slope_zeroth, slope_first   how r0(e) = |f(x + e d) - f(x)| and r1(e) = |f(x + e d) - f(x) - e J d| fall with e: 1, and
                            2 where f is smooth; a piecewise linear f has r1 drop to rounding instead
seen                        smooth, piecewise linear, linear, at a kink, not tested, wrong or not a derivative: the
                            worst over the samples
passed                      1 where both tests are passed by every sample

The control is the first unit's Jacobian with products that are off by 0.1 %: the tests must reject it (attributes
`control_passed`, `control_seen`), otherwise that the others pass says nothing.

Cost per unit: two products, and ten evaluations of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy
from torch import Tensor

from skipscope.errors import InputError
from skipscope.linear import Jacobian, Operator, Verification, verify
from skipscope.measure.descriptions import described
from skipscope.measure.selection import Jacobians, Units, chosen_units, labels, point_of
from skipscope.memory_limit import Memory, with_memory
from skipscope.trace import Trunk

if TYPE_CHECKING:
    import xarray

WRONG = 1e-3  # relative error of the control


@with_memory
def verification(
    trunk: Trunk,
    x: Any,
    *,
    units: Units = None,
    memory: Memory | None = None,
) -> xarray.Dataset:
    """Test every unit at a batch of model inputs or a point; dimension `unit`."""
    chosen, point = chosen_units(trunk, units), point_of(trunk, x)
    found = verification_of(Jacobians(chosen, point)).assign_coords(labels(chosen))
    return described(found.assign_attrs(mode="eval", notes="; ".join(trunk.notes)))


def verification_of(operators: Mapping[str, Operator]) -> xarray.Dataset:
    """The same for operators, by name."""
    import xarray

    found = [verify(operator) for operator in operators.values()]
    name, control = _control(operators)

    def column(values: Iterable[Any], dtype: Any = None) -> tuple[str, numpy.ndarray]:
        return "unit", numpy.array(list(values), dtype=dtype)

    dataset = xarray.Dataset(
        {
            "adjoint_error": column(result.adjoint_error for result in found),
            "adjoint_tolerance": column(result.adjoint_tolerance for result in found),
            "slope_zeroth": column(result.slopes[0] if result.slopes else numpy.nan for result in found),
            "slope_first": column(result.slopes[1] if result.slopes else numpy.nan for result in found),
            "seen": column((result.seen for result in found), object),
            "passed": column(int(result.passed) for result in found),
        },
        {"unit": list(operators)},
        {
            "measure": "verification",
            "control_unit": name,
            "control_error": WRONG,
            "control_passed": int(control.passed),
            "control_seen": control.seen,
        },
    )
    return described(dataset)


def _control(operators: Mapping[str, Operator]) -> tuple[str, Verification]:
    """Of the first Jacobian whose state does not lie on a kink, where there is one."""
    tested: tuple[str, Verification] | None = None
    for name, operator in operators.items():
        right = operator.double()
        if isinstance(right, Jacobian):
            wrong = _OffByALittle(right.function, right.state, right.axis, name=name, exit_axis=right.exit_axis)
            tested = name, verify(wrong)
            if tested[1].seen != "at a kink":
                return tested
    if tested is None:
        raise InputError("there is no Jacobian among the operators, so there is nothing to test")
    return tested


class _OffByALittle(Jacobian):
    """A Jacobian whose products are wrong by one in a thousand and whose transposed products are not."""

    def _push(self, V: Tensor) -> Tensor:
        return (1 + WRONG) * super()._push(V)
