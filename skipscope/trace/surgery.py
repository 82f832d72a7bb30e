"""Surgery on one unit of a trunk, without touching the model: another factor on its skip, other weights.

    unit                            exit = tail(branch(h) + skip(h))
    with_scaled_skip(unit, alpha)   exit = tail(branch(h) + alpha skip(h))
    with_weights(unit, weights)     the same function with other values of some parameters

What comes back is a unit like any other: it can be called, it has branch, skip and tail, a Jacobian, a spectrum and a
law. Its entry states, and its context if it has one, are those of the model as it is. With the skip's Jacobian S, the
branch's J_R and the tail's derivative D_alpha at the new sum

    J_alpha = D_alpha (alpha S + J_R).

The mask D_alpha of a ReLU depends on alpha, and the law of `linear.law` holds with the skip's own factor times |alpha|
for c: z outputs are inactive at this alpha, and at least n - z - 2 r singular values are |alpha| if the skip is the
identity. The others are not |alpha| times what they were.

How: a graph's weights are looked up by name each time that it runs. A changed unit runs the same graph with a program
of its own, which answers some of the names itself and multiplies the skip where the unit's sum reads it. Nothing is
written to the model, not even for a moment, and the weights that were not replaced are still the live ones.

Both changes are those of figure 5 in Rothauge, Yao, Hu, Mahoney: Residual Networks as Nonlinear Systems: Stability
Analysis using Linearization. There weights theta turn into Gaussian noise eta, scaled to |eta| = |theta| tensor by
tensor. In the mean square over eta

    convex   t theta + (1 - t) eta              has the norm |theta| sqrt(t^2 + (1 - t)^2)
    norm     sqrt(t) theta + sqrt(1 - t) eta    has the norm |theta|

The first, which is the paper's, loses norm on the way: at t = 1/2 the factor is 0.71, and 1/2 for the Jacobian of a
branch of two layers, which widens the plateau by itself. The second is the control.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from math import isfinite, sqrt
from typing import Any

import torch
from torch import Tensor, fx, nn

from skipscope.errors import InputError
from skipscope.numerics import normal, random_numbers
from skipscope.trace import operations
from skipscope.trace.graph_point import GraphPoint
from skipscope.trace.graph_trunk import GraphPath, GraphTrunk, GraphUnit
from skipscope.trace.naming import parameters_read
from skipscope.trace.program import Program, Values
from skipscope.trace.structure import Part
from skipscope.trace.trunk import Unit

MIXTURES = ("convex", "norm")


def with_scaled_skip(unit: Unit, alpha: float) -> GraphUnit:
    """The unit with exit = tail(branch(h) + alpha skip(h)); for alpha = 1 the unit as it was."""
    unit = _of_a_graph(unit)
    alpha = float(alpha)
    if not isfinite(alpha):
        raise InputError(f"alpha={alpha}: expected a finite factor for the skip of {unit.name}")
    region = unit.part.region
    before = _factors(unit.trunk.program)
    factors = {
        node: (region.skip, alpha * before[node][1] if node in before else alpha)
        for node in region.sums
        if region.skip in node.all_input_nodes
    }
    if alpha != 1 and region.skip_kind == "identity":
        region = replace(region, skip_kind="scaled")
    return _changed(unit, replace(unit.part, name=f"{unit.name}, skip times {alpha:g}", region=region), factors=factors)


def with_weights(unit: Unit, weights: Mapping[str, Tensor]) -> GraphUnit:
    """The unit with other values of some of its parameters, by their full names in the model (`unit.parameter_names`).

    The values are copied, in the floating type and on the device of the parameters that they stand for. A shared
    parameter may be given under any of its names. A module that is called twice is changed in this unit only.
    """
    unit = _of_a_graph(unit)
    values: dict[str, Tensor] = {}
    for name, weight in weights.items():
        for own in _own_names(unit, name):
            value = _in_place_of(unit.trunk.program.weight(own), weight, name)
            if own in values and not torch.equal(values[own], value):
                raise InputError(f"{name} came twice, under another name with another value; give a shared weight once")
            values[own] = value
    return _changed(unit, replace(unit.part, name=f"{unit.name}, other weights"), weights=values)


def noisy_weights(unit: Unit, t: float, *, seed: int, mixture: str = "convex") -> dict[str, Tensor]:
    """Mixtures of the unit's weights (t = 1) with noise (t = 0), for `with_weights`.

    Of every convolution and linear layer in the branch; biases, norms and the skip stay as they are. The noise of a
    tensor depends on the seed and its name alone: it is the same for every t and both mixtures.
    mixture: "convex" t theta + (1 - t) eta, or "norm" sqrt(t) theta + sqrt(1 - t) eta.
    """
    unit = _of_a_graph(unit)
    if not 0 <= t <= 1:
        raise InputError(f"t={t}: expected a share of the weights from 0 (noise) to 1 (as they are)")
    if mixture not in MIXTURES:
        raise InputError(f"mixture={mixture!r}: expected one of {', '.join(MIXTURES)}")
    names = branch_matrices(unit)
    if not names:
        raise InputError(f"the branch of {unit.name} has no weight of a convolution or linear layer to mix with noise")
    kept, added = (t, 1 - t) if mixture == "convex" else (sqrt(t), sqrt(1 - t))
    mixed = {}
    for name in names:
        weight = unit.trunk.program.weight(name).detach()
        theta = weight.double()
        eta = _gaussian(theta, seed, name)
        mixed[name] = (kept * theta + added * (theta.norm() / eta.norm()) * eta).to(weight.dtype)
    return mixed


def branch_matrices(unit: Unit) -> list[str]:
    """The names of the branch's convolution and linear weights: parameters of two or more dimensions that a
    convolution or a matrix product reads. A layer scale or a table of position biases is none."""
    unit = _of_a_graph(unit)
    structure = unit.trunk.structure
    products = [node for node in unit.branch.piece.nodes if operations.name(node) in operations.LINEAR_MIX]
    read = (parameters_read(structure.program, structure.flow, node) for node in products)
    found = {name for some in read for name, parameter in some.items() if parameter.dim() >= 2}
    return [name for name in unit.parameter_names if name in found]


Factors = Mapping[fx.Node, tuple[fx.Node, float]]  # by the sum: one of its terms, and what it is multiplied by


class ChangedProgram(Program):
    """The same graph with some weights of its own, and with factors on terms of sums."""

    def __init__(self, program: Program, weights: Mapping[str, Tensor], factors: Factors) -> None:
        self.__dict__.update(vars(program))
        earlier: Mapping[str, Tensor] = program.own_weights if isinstance(program, ChangedProgram) else {}
        self.own_weights: Mapping[str, Tensor] = {**earlier, **weights}
        self.factors: Factors = {**_factors(program), **factors}

    def lookup(self, name: str) -> Any:
        return self.own_weights[name] if name in self.own_weights else super().lookup(name)

    def run(
        self,
        nodes: Iterable[fx.Node],
        values: Values,
        batch: int,
        *,
        zero: Mapping[fx.Node, frozenset[fx.Node]] | None = None,
        **options: Any,
    ) -> None:
        waiting: list[fx.Node] = []
        for node in nodes:
            if node not in self.factors or self.factors[node][0] in (zero or {}).get(node, ()):
                waiting.append(node)
                continue
            super().run(waiting, values, batch, zero=zero, **options)
            waiting = []
            # Only this sum sees the factor: the branch may read the same value, before or after.
            term, factor = self.factors[node]
            value = values[term]
            values[term] = factor * value
            super().run([node], values, batch, zero=zero, **options)
            if term in values:
                values[term] = value
        super().run(waiting, values, batch, zero=zero, **options)


class ChangedTrunk(GraphTrunk):
    """The trunk that a changed unit belongs to. Points are those of the model as it is; pieces run changed."""

    def __init__(self, trunk: GraphTrunk, program: ChangedProgram) -> None:
        self.__dict__.update(vars(trunk))
        self._trunk, self.program = trunk, program

    @property
    def point(self) -> GraphPoint | None:  # type: ignore[override]
        return self._trunk.point

    def at(self, x: Any) -> GraphPoint:
        return self._trunk.at(x)


class ChangedUnit(GraphUnit):
    @cached_property
    def skip(self) -> GraphPath:
        path = super().skip
        if any(node in _factors(self.trunk.program) for node in self.part.region.sums):
            path.operations = [*path.operations, "mul"]
        return path


def _changed(
    unit: GraphUnit, part: Part, *, weights: Mapping[str, Tensor] | None = None, factors: Factors | None = None
) -> GraphUnit:
    program = ChangedProgram(unit.trunk.program, weights or {}, factors or {})
    return ChangedUnit(ChangedTrunk(unit.trunk, program), unit.index, part)


def _factors(program: Program) -> Factors:
    return program.factors if isinstance(program, ChangedProgram) else {}


def _of_a_graph(unit: Unit) -> GraphUnit:
    if isinstance(unit, GraphUnit):
        return unit
    if not isinstance(unit, Unit):
        raise InputError(f"expected a unit of a trunk, such as trunk[0], got {type(unit).__name__}")
    raise InputError(
        f"{unit.name} was named by the user and runs as the model's own module, which surgery would have to touch; "
        "trace the model without units=[...], or trace this module alone"
    )


def _own_names(unit: GraphUnit, name: str) -> list[str]:
    """The names under which the unit reads a parameter of the model."""
    model = unit.trunk.model
    parameters = dict(model.named_parameters(remove_duplicate=False))
    own = [other for other in unit.parameter_names if name == other or parameters.get(name) is parameters.get(other)]
    if own and name in parameters:
        return own
    near = difflib.get_close_matches(name, unit.parameter_names, 3) or unit.parameter_names[:3]
    raise InputError(f"{unit.name} uses no parameter {name!r}; some that it uses: {', '.join(near) or 'none'}")


def _in_place_of(parameter: Tensor, weight: Tensor, name: str) -> nn.Parameter:
    if not isinstance(weight, Tensor) or weight.shape != parameter.shape:
        got = tuple(weight.shape) if isinstance(weight, Tensor) else type(weight).__name__
        raise InputError(f"{name}: expected a tensor of shape {tuple(parameter.shape)}, got {got}")
    if not torch.isfinite(weight).all():
        raise InputError(f"{name}: the new weight has NaN or infinite entries")
    return nn.Parameter(weight.detach().to(parameter, copy=True), requires_grad=False)


def _gaussian(like: Tensor, seed: int, name: str) -> Tensor:
    """Drawn on the CPU in float64: one seed gives the same numbers on every device."""
    return normal(like.shape, random_numbers(seed, name), device=like.device)
