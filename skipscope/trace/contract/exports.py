"""The contract in the names of libraries that people put hooks on models with.

Each map has, for each unit, Python expressions that give its states and its terms inside that library:

    nnsight          inside `with model.trace(x):`, where `model` is nnsight's model around the traced one
    transformerlens  of `cache`, from `bridge.run_with_cache(x)`, where `bridge` is a TransformerBridge of it
    json             no expressions; modules, indices, factors and norms, for plain forward hooks

A term that a library's names cannot say has no expression but a reason. The names of TransformerLens are asked from
TransformerLens: its adapter of the architecture says which of its components stands for which module.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

from torch import nn

from skipscope.errors import InputError
from skipscope.trace.contract.places import Contract, HookPlace, HookStep, Summand, UnitContract

LIBRARIES = ("json", "nnsight", "transformerlens")


class _NoName(Exception):  # noqa: N818 - carries the reason into the map; no error of the program
    """Why a library has no expression for something."""


class _Library(ABC):
    """How one library writes what a contract says."""

    about: str

    @abstractmethod
    def place(self, place: HookPlace) -> str: ...

    @abstractmethod
    def weight(self, name: str) -> str: ...

    @abstractmethod
    def called(self, path: str, value: str) -> str:
        """A module applied to a value."""

    def summand(self, summand: Summand) -> str:
        if summand.exact is not None:
            text = self.place(summand.exact)
        else:
            text = self.place(summand.place)
            for step in summand.steps:
                text = self._after(step, text)
        return text if summand.coefficient == 1 else f"{text} * {summand.coefficient!r}"

    def _after(self, step: HookStep, value: str) -> str:
        if step.value is not None:
            return f"{value} * {step.value!r}"
        if step.kind == "factor":
            return f"{value} * {self.weight(step.what)}"
        if step.module is not None:
            return self.called(step.module, value)
        return _operation(step, value)


class _NNsight(_Library):
    about = "inside `with model.trace(x):`, where model is nnsight's around the traced one; in the order of the pass"

    def place(self, place: HookPlace) -> str:
        if place.call > 1:
            raise _NoName(f"{place} is one of several calls of a module, which nnsight's names do not tell apart")
        index = "".join(f"[{part!r}]" for part in place.index)
        side = "output" if place.side == "output" else "inputs"
        # What is written into later has to be copied when it is met.
        return f"{_attribute(place.module)}.{side}{index}{'.clone()' if place.overwritten else ''}{place.reshaped}"

    def weight(self, name: str) -> str:
        return _attribute(name)

    def called(self, path: str, value: str) -> str:
        return f"{_attribute(path)}({value})"


class _TransformerLens(_Library):
    about = "of cache, from bridge.run_with_cache(x), where bridge is a TransformerBridge of the traced model"

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names  # of the modules, by path

    def place(self, place: HookPlace) -> str:
        if place.call > 1:
            raise _NoName(f"{place} is one of several calls of a module, which the cache does not keep apart")
        if place.module not in self.names:
            raise _NoName(f"TransformerLens has no hook on {place.module}")
        if place.index not in (((), (0,)) if place.side == "output" else ((0, 0), (1, "hidden_states"))):
            raise _NoName(f"TransformerLens hooks the first tensor of {place.module}, and this is {place}")
        hook = "hook_out" if place.side == "output" else "hook_in"
        return f'cache["{self.names[place.module]}.{hook}"]{place.reshaped}'

    def weight(self, name: str) -> str:
        raise _NoName(f"it is multiplied by the weight {name}, which is not in the cache")

    def called(self, path: str, value: str) -> str:
        raise _NoName(f"{path} is applied to it, and the cache has no hook behind that")


def exported(contract: Contract, library: str) -> dict[str, Any]:
    if library not in LIBRARIES:
        raise InputError(f"export {library!r}: expected one of {', '.join(LIBRARIES)}")
    if library == "json":
        return {"library": "json", **contract.to_dict()}
    writes: _Library = (
        _NNsight() if library == "nnsight" else _TransformerLens(transformer_lens_names(contract.network))
    )
    return {
        "library": library,
        "about": writes.about,
        "model": contract.model,
        "holds": contract.holds,
        "units": [_unit(unit, writes) for unit in contract.units],
    }


def _unit(unit: UnitContract, library: _Library) -> dict[str, Any]:
    found: dict[str, Any] = {
        "index": unit.index,
        "unit": unit.unit,
        "holds": unit.holds,
        "problem": unit.problem,
        "adds_residual": unit.adds_residual,
        "parallel": unit.parallel,
    }
    if not unit.holds or unit.entry is None or unit.exit is None or unit.skip is None:
        return found
    return {
        **found,
        "entry": _written(library, unit.entry),
        "skip": _written(library, unit.skip),
        "branches": [
            {
                **_written(library, branch),
                "module": branch.place.module,
                "output_index": list(branch.place.index),
                "factor": branch.factor,
                "norm": branch.norm,
            }
            for branch in unit.branches
        ],
        "tail": [step.what for step in unit.tail],
        "exit": _written(library, unit.exit),
    }


def _written(library: _Library, what: HookPlace | Summand) -> dict[str, str | None]:
    try:
        text = library.place(what) if isinstance(what, HookPlace) else library.summand(what)
    except _NoName as why:
        return {"expression": None, "reason": str(why)}
    return {"expression": text}


def _attribute(path: str) -> str:
    """`layers.0.mlp` -> `model.layers[0].mlp`"""
    parts = (f"[{part}]" if part.isdigit() else f".{part}" for part in path.split("."))
    return f"model{''.join(parts)}"


def _operation(step: HookStep, value: str) -> str:
    """An operation of the block's own code, where it has no other tensors."""
    node = step.after
    assert node is not None
    rest = [argument for argument in node.args if argument is not step.before]
    if node.args[:1] != (step.before,) or node.kwargs or len(node.all_input_nodes) > 1:
        raise _NoName(f"the block's own code applies {step.what} to it, with other tensors")
    return f"torch.ops.{node.target}({', '.join([value, *map(repr, rest)])})"


# -- the names of TransformerLens


def transformer_lens_names(model: nn.Module | None) -> dict[str, str]:
    """The component of TransformerLens that stands for each module, by the module's path."""
    config = getattr(model, "config", None)
    if model is None or config is None:
        raise InputError("export transformerlens: expected a language model of transformers, which has a config")
    try:
        from transformer_lens.factories.architecture_adapter_factory import ArchitectureAdapterFactory
        from transformer_lens.model_bridge.sources import build_bridge_config_from_hf
    except ImportError as error:
        raise InputError(
            "export transformerlens: the names are asked from TransformerLens (3 or later), which is not installed "
            "here; install the extra skipscope[hooks]"
        ) from error
    kind, prefix = _architecture(model)
    try:
        settings = build_bridge_config_from_hf(config, kind, "traced by skipscope", next(model.parameters()).dtype)
        mapping = ArchitectureAdapterFactory.select_architecture_adapter(settings).get_component_mapping()
    except Exception as error:  # whatever it says to an architecture that it does not know
        raise InputError(
            f"export transformerlens: TransformerLens does not know {kind} ({str(error).splitlines()[0]}); it "
            "knows many language models with their heads, as AutoModelForCausalLM makes them"
        ) from error
    known = {f"{prefix}{path}": module for path, module in model.named_modules() if path}
    return {path.removeprefix(prefix): own for path, own in _names(mapping, "", "", known) if path in known}


def _architecture(model: Any) -> tuple[str, str]:
    """The class that TransformerLens knows the model by, and where the model is in it: one that was loaded without its
    head has the same modules, one step further in."""
    name = type(model).__name__
    saved = [str(kind) for kind in getattr(model.config, "architectures", None) or ()]
    prefix = getattr(model, "base_model_prefix", "")
    if saved and name not in saved and prefix and not hasattr(model, prefix):
        return saved[0], f"{prefix}."
    return name, ""


def _names(
    components: Mapping[str, Any], path: str, own: str, known: Mapping[str, nn.Module]
) -> Iterator[tuple[str, str]]:
    """(path of the module, name of the component), of nested components too."""
    for name, component in components.items():
        below = f"{path}.{component.name}".strip(".") if component.name else path
        named = f"{own}.{name}".strip(".")
        items = [(below, named)]
        if component.is_list_item:
            items = [(f"{below}.{i}", f"{named}.{i}") for i in range(len(known.get(below, ())))]  # type: ignore[arg-type]
        for place, called in items:
            if component.name:
                yield place, called
            yield from _names(component.submodules, place, called, known)
