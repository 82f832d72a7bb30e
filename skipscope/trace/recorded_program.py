"""A `Program` from one recorded forward pass, for a model that `torch.export` cannot take.

The model runs once, on its real tensors, while every operation that torch dispatches is written into a graph. Python
sees real numbers, so branches on values, sizes that depend on values and `.item()` work: the graph has the branch that
was taken. Then the graph alone runs once more to take out what writes in place. What the exporter keeps whole
(attention, norms, linear maps, convolutions) is whole here too.

Such a graph holds for one batch size and for one branch. At any other batch, and after a change of the weights, it is
compared with the model before it is used. Where numbers leave torch and come back (numpy, `.item()` in a formula), the
graph would hold them fixed, and its derivatives would miss a path: that is found by moving the inputs a little, and
such a graph is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import torch
from torch import Tensor, fx, nn
from torch._C._functorch import is_functorch_wrapped_tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensorMode, dispatch_functionalize
from torch.fx import traceback as fx_traceback
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from skipscope.errors import InputError, TraceError
from skipscope.module_hooks import Call, following
from skipscope.numerics import measuring
from skipscope.trace.freshness import WeightsSeen
from skipscope.trace.inputs import Inputs, signature_of
from skipscope.trace.model_output import REPLAY_TOLERANCE, call_untouched, floats, relative_error
from skipscope.trace.program import Program, Values, last_uses
from skipscope.trace.undisturbed import undisturbed


@dataclass(frozen=True)
class Movement:
    """How far the inputs are moved to see whether a graph follows its model, and how well it has to."""

    steps: tuple[float, ...]  # of an input's size
    missed: float  # the share of the model's change that the graph may miss
    roundings: int  # by which both may differ


FINE = Movement((2e-3, 5e-4), 0.01, 20)
COARSE = Movement((0.3, 0.1), 0.3, 4)  # where a part is computed in half precision
CONSTANT_TYPES = (bool, int, float, complex, str, type(None), torch.dtype, torch.device)  # what a graph can hold


class RecordedProgram(Program):
    """Of one pass: at another batch, or with other weights, the model may take another branch."""

    why = ""  # the model could not be exported
    _agreed: tuple[list[Any], WeightsSeen] | None = None  # the inputs and weights at which it is the model

    def of(self, model: nn.Module) -> Self:
        twin = super().of(model)
        assert isinstance(twin, type(self))
        twin._agreed = None
        return twin

    @cached_property
    def rounding(self) -> float:
        """Of the coarsest floating type in it."""
        types = {leaf.dtype for node in self.nodes for leaf in floats(node.meta.get("val"))}
        return max((torch.finfo(dtype).eps for dtype in types), default=0.0)

    @property
    def tolerance(self) -> float:
        """The relative error of a replay: inside autocast, linear maps are recorded in parts, each with a rounding."""
        return max(REPLAY_TOLERANCE, COARSE.roundings * self.rounding if self.is_coarse else 0.0)

    @property
    def is_coarse(self) -> bool:
        return self.rounding > torch.finfo(torch.float32).eps

    def agrees_at(self, inputs: Inputs) -> None:
        """Remember that here it computes what the model does."""
        leaves = pytree.tree_leaves((inputs.args, inputs.kwargs))
        seen = WeightsSeen(self.model, (name for node, name in self.weights.items() if node.users))
        self._agreed = (leaves, seen)

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Values:
        values = super().bind(args, kwargs)
        leaves = pytree.tree_leaves((tuple(args), dict(kwargs)))
        if any(isinstance(leaf, Tensor) and leaf.is_meta for leaf in leaves) or self._is_known(leaves):
            return values
        axis = next((axis for node in self.inputs if (axis := self.batch_axis(node)) is not None), 0)
        inputs = Inputs(tuple(args), dict(kwargs), axis, self.traced_batch)
        expected = call_untouched(self.model, inputs)
        try:
            error = relative_error(self.output(values), expected)
        except (torch.OutOfMemoryError, MemoryError):
            raise
        except Exception:  # an operation that meets a shape of another branch, or an output with other leaves
            error = float("inf")
        if not error <= self.tolerance:
            raise InputError(
                f"the graph of {type(self.model).__name__} was recorded from one pass, and at this batch the model "
                f"computes something else (a relative error of {error:.1e}): its values take another branch; trace it "
                "again with this batch"
            )
        self.agrees_at(inputs)
        return values

    def output(self, values: Values) -> Any:
        """What the whole graph makes of bound inputs."""
        values = dict(values)
        kept = {leaf for leaf in self.outputs if isinstance(leaf, fx.Node)}
        with torch.no_grad(), measuring():
            self.run(self.nodes, values, self.traced_batch, drop=last_uses(self.nodes, kept))
        return self.unflatten(values, self.traced_batch)

    def _is_known(self, leaves: Sequence[Any]) -> bool:
        if self._agreed is None:
            return False
        known, seen = self._agreed
        return seen.changed() is None and all(
            torch.equal(a, b) if isinstance(a, Tensor) and isinstance(b, Tensor) else a is b or a == b
            for a, b in zip(known, leaves, strict=True)
        )


def recorded(model: nn.Module, inputs: Inputs) -> RecordedProgram:
    """The graph of one pass of `model` at `inputs`. Whatever cannot be recorded raises; it is for the caller to say."""
    weights = _weights(model)
    leaves, in_spec = pytree.tree_flatten((inputs.args, inputs.kwargs))
    spots = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    with undisturbed(model):
        own = inputs.map(Tensor.clone)  # a model may write into its input
        first, out = _pass_of_the_model(model, list(weights.values()), own)
        values = _constants_as_inputs(first)
    with undisturbed(model):  # once more, for the pass may have written to buffers
        tensors = [*weights.values(), *(leaves[i].clone() for i in spots), *values]
        second = _without_writing(first, tensors)
    graph = second.graph
    nodes = [node for node in graph.nodes if node.op == "placeholder"]
    count = len(weights)
    by_spot = dict(zip(spots, nodes[count : count + len(spots)], strict=True))
    constants: dict[fx.Node, Any] = dict(zip(nodes[count + len(spots) :], values, strict=True))
    constants |= {n: getattr(second, str(n.target)) for n in graph.nodes if n.op == "get_attr"}
    user = _input_nodes(graph, model, inputs, leaves, by_spot)
    held = dict(zip(nodes[:count], weights, strict=True))
    for node in [*held, *constants]:
        if not node.users:
            graph.erase_node(node)
    outputs = graph.output_node()
    found: Any = iter(outputs.args[0])  # type: ignore[arg-type]
    outputs.args = (tuple(next(found) if isinstance(leaf, Tensor) else _constant(leaf) for leaf in out[0]),)
    return RecordedProgram(
        model,
        graph,
        inputs=user,
        weights={node: name for node, name in held.items() if node.users},
        constants={node: value for node, value in constants.items() if node.users},
        in_spec=in_spec,
        out_spec=out[1],
        batch_symbol=None,
        traced_batch=inputs.batch,
    )


def check_it_follows(program: RecordedProgram, inputs: Inputs) -> None:
    """A TraceError where the graph misses a part of what the model does when its inputs change a little."""
    model = program.model
    if inputs.is_meta(model):
        return
    here = call_untouched(model, inputs)
    movement = COARSE if program.is_coarse else FINE
    missed = [_missed(program, other, here, movement) for other in _others(inputs, movement)]
    known = [share for share in missed if share is not None]
    if known and min(known) > movement.missed:
        raise TraceError(
            f"when the inputs change a little, {min(1.0, min(known)):.0%} of the change of the output is not in the "
            "recorded graph: the forward computes with numbers taken out of tensors (numpy, .item(), .tolist()), which "
            "a graph holds fixed"
        )


def _others(inputs: Inputs, movement: Movement) -> Iterator[Inputs]:
    if not any(tensor.is_floating_point() for tensor in inputs.tensors()):
        yield inputs.rolled()
        return
    for step in movement.steps:
        generator = torch.Generator().manual_seed(0)

        def moved(tensor: Tensor, step: float = step, generator: torch.Generator = generator) -> Tensor:
            if not tensor.is_floating_point() or not torch.isfinite(tensor).any():
                return tensor
            size = tensor[torch.isfinite(tensor)].square().mean().sqrt().item()
            noise = torch.randn(tensor.shape, generator=generator, dtype=tensor.dtype).to(tensor.device)
            return tensor + step * size * noise

        yield inputs.map(moved)


def _missed(program: RecordedProgram, other: Inputs, here: Any, movement: Movement) -> float | None:
    """The part of the change of the model's output that the graph does not have; None where it cannot be told."""
    try:
        there = call_untouched(program.model, other)
        found = program.output(Program.bind(program, other.args, other.kwargs))
    except (torch.OutOfMemoryError, MemoryError):
        raise
    except Exception:  # another branch: nothing can be said of the one that was recorded
        return None
    share = None
    for before, after, ours in zip(*(floats(some) for some in (here, there, found)), strict=False):
        if before.shape != after.shape or ours.shape != after.shape:
            return None
        finite = torch.isfinite(before) & torch.isfinite(after) & torch.isfinite(ours)
        if not finite.any():
            continue
        change, gap = ((a - b)[finite].abs().max().item() for a, b in ((after, before), (after, ours)))
        smallest = movement.roundings * program.rounding * after[finite].abs().max().item()
        if max(gap, movement.missed * change) > smallest:  # else both are lost in rounding
            share = max(share or 0.0, gap / change if change else float("inf"))
    return share


# -- the first pass: what the model does


def _weights(model: nn.Module) -> dict[str, Tensor]:
    """Every parameter and buffer, tied ones under their first name."""
    found = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return {name: weight for name, weight in found.items() if weight is not None}


def _pass_of_the_model(
    model: nn.Module, weights: Sequence[Tensor], inputs: Inputs
) -> tuple[fx.GraphModule, tuple[list[Any], pytree.TreeSpec]]:
    """The operations of one pass as a graph of the weights and the input tensors; the output, flattened."""
    output: list[tuple[list[Any], pytree.TreeSpec]] = []

    def run(*_: Tensor) -> list[Tensor]:
        # The tensors themselves are what is followed, so the model runs on its own weights and not on substitutes.
        output.append(pytree.tree_flatten(model(*inputs.args, **inputs.kwargs)))
        return [leaf for leaf in output[-1][0] if isinstance(leaf, Tensor)]

    with fx_traceback.preserve_node_meta(), _noted_calls(model):
        graph = _traced(run, [*weights, *inputs.tensors()], pre_dispatch=True)
    return graph, output[-1]


def _traced(run: Callable[..., Any], tensors: Sequence[Tensor], pre_dispatch: bool) -> fx.GraphModule:
    trace = make_fx(run, tracing_mode="real", pre_dispatch=pre_dispatch, _error_on_data_dependent_ops=False)
    return trace(*tensors)


@contextmanager
def _noted_calls(model: nn.Module) -> Iterator[None]:
    """Every node gets the calls of modules that it is made in, as an exported one has them."""
    open_calls: list[tuple[str, tuple[str, type]]] = []

    def note() -> None:
        fx_traceback.get_current_meta()["nn_module_stack"] = dict(open_calls)

    def entered(call: Call) -> None:
        key = call.path if call.number == 1 else f"{call.path}@{call.number - 1}"
        open_calls.append((key, (call.path, type(call.module))))
        note()

    def left(call: Call, output: Any) -> None:
        open_calls.pop()
        note()

    with following(dict(model.named_modules()), entered=entered, left=left, after_errors=True):
        yield


def _constants_as_inputs(module: fx.GraphModule) -> list[Tensor]:
    """Tensors that are neither weights nor inputs become placeholders too, for the second pass; returns them."""
    graph = module.graph
    last = [node for node in graph.nodes if node.op == "placeholder"][-1]
    known: dict[int, fx.Node] = {}
    values: list[Tensor] = []
    for node in list(graph.nodes):
        value = getattr(module, str(node.target)) if node.op == "get_attr" else None
        if not isinstance(value, Tensor):
            continue
        if id(value) not in known:
            with graph.inserting_after(last):
                last = known[id(value)] = graph.placeholder(f"constant_{len(values)}")
            last.meta = dict(node.meta)
            values.append(value)
        node.replace_all_uses_with(known[id(value)])
        graph.erase_node(node)
    module.recompile()
    return values


# -- the second pass: the same without writing in place


def _without_writing(module: fx.GraphModule, tensors: Sequence[Tensor]) -> fx.GraphModule:
    modes = [node for node in module.graph.nodes if node.op == "call_function" and _is_mode(node)]
    # Casts of autocast happen below the level at which the first pass is recorded: there all operations are recorded.
    pre_dispatch = not any("autocast" in node.name for node in modes)
    if pre_dispatch:
        for node in reversed(modes):
            module.graph.erase_node(node)
        module.recompile()
    mode = FunctionalTensorMode(pre_dispatch=pre_dispatch, export=pre_dispatch)
    with fx_traceback.preserve_node_meta():
        found = _traced(dispatch_functionalize(fx.Interpreter(module).run, mode), tensors, pre_dispatch)
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    for node in list(found.graph.nodes):
        if _lacks_derivative(node.target):
            node.target = WithoutDerivative(node.target)
        if "val" in node.meta:
            node.meta["val"] = pytree.tree_map_only(Tensor, lambda value: _of_one_mode(value, fake), node.meta["val"])
    return found


class WithoutDerivative:
    """An operation of which torch has no derivative, such as an int8 layer: it would be taken for a constant."""

    def __init__(self, operation: Any) -> None:
        self.operation, self.__name__, self.tags = operation, operation._schema.name.split("::")[-1], operation.tags

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        for leaf in pytree.tree_leaves((args, kwargs)):
            if isinstance(leaf, Tensor) and (leaf.requires_grad or is_functorch_wrapped_tensor(leaf)):
                raise InputError(
                    f"{self.operation} has no derivative; measure the float model that this one was made from"
                )
        return self.operation(*args, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> WithoutDerivative:
        return self


def _lacks_derivative(target: Any) -> bool:
    if not isinstance(target, torch._ops.OpOverload) or target.namespace == "aten":
        return False
    keys = ("Autograd", "AutogradCPU", "AutogradCUDA", "CompositeImplicitAutograd")
    return not any(torch._C._dispatch_has_kernel_for_dispatch_key(target.name(), key) for key in keys)


def _is_mode(node: fx.Node) -> bool:
    """Does the node switch gradients or autocast on or off?"""
    name = getattr(node.target, "__name__", "")
    return not isinstance(node.target, torch._ops.OpOverload) and ("grad_enabled" in name or "autocast" in name)


def _of_one_mode(value: Tensor, fake: FakeTensorMode) -> Tensor:
    """Shape and type alone: tensors without values can be computed with where they are of one mode."""
    with fake:
        return torch.empty_strided(tuple(value.shape), value.stride(), dtype=value.dtype, device=value.device)


# -- the placeholders of the inputs


def _input_nodes(
    graph: fx.Graph, model: nn.Module, inputs: Inputs, leaves: Sequence[Any], by_spot: Mapping[int, fx.Node]
) -> list[fx.Node]:
    """One node for each leaf of the inputs, also for those that are no tensors; with the names of the arguments."""
    names = _input_names(model, inputs)
    nodes = []
    for i, leaf in enumerate(leaves):
        if i in by_spot:
            node = by_spot[i]
            node._rename(names[i])
            node.target = node.name
        else:
            first = next(iter(graph.nodes))
            with graph.inserting_before(first):
                node = graph.placeholder(names[i])
            node.meta["val"] = leaf
        nodes.append(node)
    return nodes


def _input_names(model: nn.Module, inputs: Inputs) -> list[str]:
    parameters = signature_of(model).parameters.values()
    positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    paths, _ = pytree.tree_flatten_with_path((inputs.args, inputs.kwargs))
    names = []
    for (_, which, *rest), _ in paths:
        key = getattr(which, "idx", None)
        first = str(getattr(which, "key", "")) if key is None else [*positional, *map(str, range(999))][key]
        parts = [first, *(str(getattr(k, "idx", getattr(k, "key", getattr(k, "name", "")))) for k in rest)]
        name = re.sub(r"\W", "_", "_".join(parts))
        names.append(name if name.isidentifier() else f"input_{name}")
    return names


def _constant(leaf: Any) -> Any:
    """A leaf of an output that is no tensor, if a graph can hold it."""
    return leaf if isinstance(leaf, CONSTANT_TYPES) else None
