"""The features of labelled samples: batch by batch, at the layers of a model and before its classifier."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from skipscope.constraints import Constrained, Expectation, at_least
from skipscope.errors import InputError
from skipscope.measure.layers import float_tensors, main_tensor
from skipscope.measure.trajectories import stages_of
from skipscope.module_hooks import Call, following
from skipscope.trace import Trunk
from skipscope.trace.inputs import Inputs
from skipscope.trace.undisturbed import undisturbed


@runtime_checkable
class Split(Protocol):
    """Labelled images that are read when asked, as the splits of `skipscope.data`."""

    labels: Tensor

    def images(self, chosen: Tensor | slice) -> Tensor: ...


# -- data


@dataclass(frozen=True)
class Batches(Constrained):
    """Pairs (inputs, labels) that can be read twice; of each class at most the first `samples_per_class`."""

    data: Any
    batch: Annotated[int, at_least(1)]
    samples_per_class: Annotated[int | None, at_least(1)]

    def expectations(self) -> Iterator[Expectation]:
        if isinstance(self.data, Split) or self._is_pair:
            return
        both, kind = hasattr(self.data, "train") and hasattr(self.data, "test"), type(self.data).__name__
        yield not both, "data: expected one part of a data set, got both; pass its .train or its .test"
        yield (
            isinstance(self.data, Iterable) and not isinstance(self.data, Tensor),
            f"data: expected (x, labels), a split or batches, got {kind}",
        )
        yield (
            iter(self.data) is not self.data,
            f"data is a {kind}, which can be read only once; give a list or a data loader",
        )

    @property
    def _is_pair(self) -> bool:
        return isinstance(self.data, tuple | list) and len(self.data) == 2 and isinstance(self.data[1], Tensor)

    def __iter__(self) -> Iterator[tuple[Any, Tensor]]:
        seen: dict[int, int] = {}
        for x, labels in self._whole():
            kept = self._kept(labels.tolist(), seen)
            if kept and len(kept) == len(labels):
                yield x, labels
            elif kept:
                yield _taken(x, len(labels), torch.tensor(kept, device="cpu")), labels[kept]

    def _whole(self) -> Iterator[tuple[Any, Tensor]]:
        if isinstance(self.data, Split):
            labels = _checked_labels(self.data.labels)
            for chosen in torch.arange(len(labels), device=labels.device).split(self.batch):
                yield self.data.images(chosen), labels[chosen]
        elif self._is_pair:
            x, labels = self.data[0], _checked_labels(self.data[1])
            for chosen in torch.arange(len(labels), device="cpu").split(self.batch):
                yield _taken(x, len(labels), chosen), labels[chosen.to(labels.device)]
        else:
            for number, pair in enumerate(self.data):
                if not isinstance(pair, tuple | list) or len(pair) != 2 or not isinstance(pair[1], Tensor):
                    raise InputError(f"batch {number}: expected a pair (x, labels), got {type(pair).__name__}")
                yield pair[0], _checked_labels(pair[1])

    def _kept(self, labels: Sequence[int], seen: dict[int, int]) -> list[int]:
        kept = []
        for place, label in enumerate(labels):
            seen[label] = seen.get(label, 0) + 1
            if self.samples_per_class is None or seen[label] <= self.samples_per_class:
                kept.append(place)
        return kept


def _checked_labels(labels: Tensor) -> Tensor:
    if labels.dim() != 1 or labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise InputError(f"labels: expected whole numbers of shape (N,), got {labels.dtype} {tuple(labels.shape)}")
    return labels


def _taken(x: Any, count: int, chosen: Tensor) -> Any:
    """Some samples of a tensor or of all tensors of a batch."""
    wrong = [
        tuple(t.shape) for t in pytree.tree_leaves(x) if isinstance(t, Tensor) and (not t.dim() or len(t) != count)
    ]
    if wrong:
        raise InputError(f"data: expected {count} samples along axis 0 as there are labels, got a tensor of {wrong[0]}")
    return pytree.tree_map_only(Tensor, lambda t: t[chosen.to(t.device)], x)


# -- layers


@dataclass(frozen=True)
class Features:
    """What a model makes of a batch: the state at every layer, the last of which enters the classifier."""

    model: nn.Module
    classifier: str
    layers: tuple[str, ...] = ()  # paths of modules, whose outputs are taken
    trunk: Trunk | None = None

    @property
    def weight(self) -> Tensor:
        """(classes, features)"""
        weight: Tensor = self.model.get_submodule(self.classifier).weight  # type: ignore[assignment]
        return weight.detach()

    def at(self, x: Any) -> tuple[dict[str, Tensor], Tensor]:
        """(B, n) of every layer in the model's own type, and the classifier's output."""
        x = placed(self.model, x)
        found: dict[str, Tensor] = {}
        if self.trunk is not None:
            point = self.trunk.at(x)
            states = [state for stage in stages_of(self.trunk, point) for state in stage]
            found = {state.name: state.at(point).flatten(1) for state in states}
        with _kept_calls(self.model, [*self.layers, self.classifier]) as calls:
            inputs = _run(self.model, x)[0]
        for path in self.layers:
            found[path] = _by_sample(path, calls[path][-1][1] if calls[path] else None, inputs.batch)
        shapes = [tuple(entry.shape) for entry, _ in calls[self.classifier]]
        if len(shapes) != 1 or len(shapes[0]) != 2 or shapes[0][0] != inputs.batch:
            raise InputError(
                f"classifier={self.classifier!r}: expected one call per batch with an input of shape "
                f"({inputs.batch}, features), got {', '.join(map(str, shapes)) or 'no call'}"
            )
        ((entry, logits),) = calls[self.classifier]
        found[f"entry of {self.classifier}"] = entry
        return found, logits


def placed(model: nn.Module, x: Any) -> Any:
    """The batch on the model's device, floats in the type of its weights."""
    weight = next(model.parameters())

    def moved(tensor: Tensor) -> Tensor:
        return tensor.to(weight.device, weight.dtype) if tensor.is_floating_point() else tensor.to(weight.device)

    return pytree.tree_map_only(Tensor, moved, x)


def found_classifier(model: nn.Module, x: Any, classes: int) -> str:
    """The path of the linear layer that gives the model's answers.

    x: a batch. classes: how many there are at least. Where the output of one layer is the model's own output it is
    that one; else the only one whose output has the size of the model's.
    """
    paths = [path for path, module in model.named_modules() if isinstance(module, nn.Linear)]
    with _kept_calls(model, paths) as calls:
        inputs, output = _run(model, placed(model, x))
    answers = [leaf for leaf in float_tensors(output) if leaf.dim() == 2 and len(leaf) == inputs.batch]
    sized = [
        path
        for path, made in calls.items()
        if len(made) == 1 and any(made[0][1].shape == a.shape and a.shape[1] >= classes for a in answers)
    ]
    same = [path for path in sized if any(torch.equal(calls[path][0][1], answer) for answer in answers)]
    chosen = same or sized
    if len(chosen) == 1:
        return chosen[0]
    named = ", ".join(sized or [path for path, made in calls.items() if made]) or "none"
    raise InputError(
        f"{type(model).__name__}: expected one nn.Linear that gives the scores of at least {classes} classes, found "
        f"{len(chosen)}; name it with classifier=, one of: {named}"
    )


def check_classifier(model: nn.Module, path: str) -> None:
    modules = dict(model.named_modules())
    linear = [name for name, module in modules.items() if isinstance(module, nn.Linear)]
    if path not in linear:
        got = type(modules[path]).__name__ if path in modules else "no such module"
        raise InputError(f"classifier={path!r}: expected an nn.Linear, one of {', '.join(linear) or 'none'}; got {got}")


def checked_layers(model: nn.Module, layers: Sequence[str]) -> tuple[str, ...]:
    if isinstance(layers, str):
        raise InputError(f"layers={layers!r}: expected a list of names")
    known = dict(model.named_modules())
    for path in layers:
        if not path or path not in known:
            raise InputError(f"layers: the model has no module {path!r}; see model.named_modules()")
    return tuple(dict.fromkeys(layers))


def _by_sample(path: str, output: Any, batch: int) -> Tensor:
    main = main_tensor(output)
    if main is None or main.dim() < 2 or len(main) != batch:
        got = "no float tensor" if main is None else tuple(main.shape)
        raise InputError(f"layers: expected {path!r} to return a tensor with {batch} samples along axis 0, got {got}")
    return main.flatten(1)


def _run(model: nn.Module, x: Any) -> tuple[Inputs, Any]:
    inputs = Inputs.of(model, x)
    with undisturbed(model):
        return inputs, model(*inputs.args, **inputs.kwargs)


@contextmanager
def _kept_calls(model: nn.Module, paths: Sequence[str]) -> Iterator[dict[str, list[tuple[Any, Any]]]]:
    """Input and output of every call of some modules."""
    calls: dict[str, list[tuple[Any, Any]]] = {path: [] for path in paths}

    def keep(call: Call, output: Any) -> None:
        entry = next(iter((*call.args, *call.kwargs.values())), None)
        copied = pytree.tree_map_only(Tensor, lambda t: t.detach().clone(), (entry, output))  # later code may change it
        calls[call.path].append(copied)

    with following({path: model.get_submodule(path) for path in calls}, left=keep):
        yield calls
