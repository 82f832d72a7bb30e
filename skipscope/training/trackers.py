"""Activations, weights and gradients of chosen layers while a network trains: their whole distributions, as they are.

Oyedotun et al. (figures 4 to 6) show them for the first layer and the last but one of networks of 110 layers, without
any normalisation. A `Tracker` is the function of a hook: `At([0, 1, 5], Tracker(None, data.train))`. At every look it
passes the same few batches through the model itself, eagerly, as a training step would: with the statistics of the
batch, and with the gradient of the mean cross-entropy of each batch. The images are not augmented, and the model keeps
its own precision. Nothing of the model changes: buffers are copies, gradients are not stored.

Layers are the modules that hold a `weight` with two or more dimensions, or make one by torch's parametrizations, in the
order in which they are called. Of a parametrised layer the weight is the one that it multiplies by.

activations  what a layer passes on: the input of the next layer that depends on its output, so with norm, activation
             and skip where there are any; for the last one the output of the network
weights      the entries of `weight`
gradients    the entries of its gradient, one gradient per batch

Memory does not grow with the number of batches (`streaming.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import attrgetter
from typing import Any

import numpy
import torch
import xarray
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F
from torch.nn.utils import parametrize

from skipscope.data.dataset import Split
from skipscope.errors import InputError
from skipscope.module_hooks import Call, following
from skipscope.numerics import seed_of
from skipscope.trace.undisturbed import kept_places
from skipscope.training.history import History
from skipscope.training.streaming import RELATIVE_ERROR, Distribution, Stream, bin_edges
from skipscope.training.surroundings import in_mode, same_kernels_each_time

Layer = str | int  # a module's name, or its place in the order of calls
WHAT = ("activations", "weights", "gradients")
QUANTILES = (0.001, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 0.999)
ENDS = (0, -2)  # the first layer and the last but one
STATISTICS = ("count", "zeros", "nan", "infinite", "mean", "deviation", "minimum", "maximum")


class Tracker:
    """layers: names of modules, or places in the order of calls from 0; None: the first and the last but one.

    batches, batch: how many samples are taken from the split, without repetition and the same at every look; seed:
    which ones. what: some of activations, weights, gradients. training: False for running statistics and no dropout.
    """

    def __init__(
        self,
        layers: Sequence[Layer] | None,
        split: Split,
        *,
        batches: int = 4,
        batch: int = 128,
        what: Sequence[str] = WHAT,
        training: bool = True,
        seed: int = 0,
    ) -> None:
        self.layers: tuple[Layer, ...] = ENDS if layers is None else tuple(layers)
        self.what = tuple(what)
        if not self.layers:
            raise InputError("Tracker: expected names or places of layers, got none; None takes two of them")
        if not self.what or not set(self.what) <= set(WHAT) or len(set(self.what)) < len(self.what):
            raise InputError(f"Tracker: expected what from {', '.join(WHAT)}, each of them once, got {list(self.what)}")
        if batches < 1 or batch < 2:
            raise InputError(f"Tracker: expected batches of at least 1 and batch of at least 2, got {batches}, {batch}")
        if len(split) < batches * batch:
            raise InputError(
                f"Tracker: expected {batches * batch} samples ({batches} batches of {batch}), got {len(split)}; "
                "take fewer or smaller batches"
            )
        self.split, self.training, self.seed = split, training, seed
        self.batches, self.batch = batches, batch

    def __call__(self, model: nn.Module, epoch: int, history: History) -> xarray.Dataset:
        """One look; dimensions `what`, `layer`, `quantile` and `bin`."""
        weight = next(model.parameters(), None)
        if weight is None:
            raise InputError(f"Tracker: {type(model).__name__} has no weights to look at")
        cuda = [weight.device] if weight.device.type == "cuda" else []
        buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
        with torch.random.fork_rng(cuda), torch.enable_grad(), same_kernels_each_time(), kept_places(model):
            layers = called_layers(model, buffers, self._images(self._samples()[:2], weight))
            names = chosen_layers(self.layers, list(layers))
            streams = {what: {name: Stream(weight.device) for name in names} for what in self.what}
            if "weights" in streams:
                for name, stream in streams["weights"].items():
                    stream.update(weight_of(layers[name]))
            if self.what != ("weights",):
                with in_mode(model, training=self.training):
                    self._pass(model, buffers, layers, streams)
        found = {what: {name: one.distribution() for name, one in streams[what].items()} for what in self.what}
        return self._dataset(found, names, list(layers))

    def _pass(
        self,
        model: nn.Module,
        buffers: dict[str, Tensor],
        layers: Mapping[str, nn.Module],
        streams: Mapping[str, Mapping[str, Stream]],
    ) -> None:
        """All batches through the model; fills the streams of activations and gradients."""
        weights = {name: weight_of(layers[name]) for name in streams.get("gradients", ())}
        frozen = [name for name, weight in weights.items() if not weight.requires_grad]
        if frozen:
            raise InputError(
                f"Tracker: expected layers whose weight has requires_grad, got {', '.join(frozen)}; leave out gradients"
            )
        for chosen in self._samples().split(self.batch):
            images = self._images(chosen, next(model.parameters())).requires_grad_()
            with parametrize.cached(), streaming_activations(layers, streams.get("activations", {})) as finish:
                weights = {name: weight_of(layers[name]) for name in weights}  # those that this pass multiplies by
                outputs = functional_call(model, buffers, (images,))
                finish(outputs)
            if weights:
                labels = self.split.labels[chosen.to(self.split.device)].to(outputs.device)
                loss = F.cross_entropy(outputs, labels)
                gradients = torch.autograd.grad(loss, list(weights.values()), materialize_grads=True)
                for name, gradient in zip(weights, gradients, strict=True):
                    streams["gradients"][name].update(gradient)

    def _samples(self) -> Tensor:
        generator = torch.Generator("cpu").manual_seed(seed_of("tracker", self.seed))
        order = torch.randperm(len(self.split), generator=generator, device="cpu")
        return order[: self.batches * self.batch]

    def _images(self, chosen: Tensor, like: Tensor) -> Tensor:
        return self.split.images(chosen.to(self.split.device)).to(like.device, like.dtype)

    def _dataset(
        self, found: Mapping[str, Mapping[str, Distribution]], names: list[str], order: list[str]
    ) -> xarray.Dataset:
        def table(value: Callable[[Distribution], Any]) -> numpy.ndarray:
            return numpy.array([[value(found[what][name]) for name in names] for what in self.what])

        everything = [one for of_layers in found.values() for one in of_layers.values()]
        bins = numpy.unique(numpy.concatenate([one.bins()[0] for one in everything]))

        def histogram(one: Distribution) -> numpy.ndarray:
            counts = numpy.zeros(len(bins), dtype=numpy.int64)
            numbers, held = one.bins()
            counts[numpy.searchsorted(bins, numbers)] = held
            return counts

        place = ("what", "layer")
        data: dict[str, Any] = {name: (place, table(attrgetter(name))) for name in STATISTICS}
        data["p99_abs"] = (place, table(lambda one: one.absolute_quantile(0.99)))
        data["quantiles"] = ((*place, "quantile"), table(lambda one: one.quantile(QUANTILES)))
        data["histogram"] = ((*place, "bin"), table(histogram))
        return xarray.Dataset(
            data,
            {
                "what": list(self.what),
                "layer": names,
                "number": ("layer", [order.index(name) + 1 for name in names]),
                "quantile": list(QUANTILES),
                "bin": bins,
                **_edges(bins),
            },
            {
                "layers": len(order),
                "batches": self.batches,
                "batch": self.batch,
                "mode": "training" if self.training else "evaluation",
                "seed": self.seed,
                "relative_error": RELATIVE_ERROR,
            },
        )


def distributions(results: Mapping[int, xarray.Dataset]) -> xarray.Dataset:
    """The looks of one tracker, `hook.results`, along the dimension `epoch`."""
    if not results:
        raise InputError("distributions: expected the results of a hook that was called, got none")
    epochs = sorted(results)
    looks = [results[epoch].drop_vars(["low", "high"]) for epoch in epochs]
    for epoch, look in zip(epochs, looks, strict=True):
        for name in ("what", "layer"):
            if look[name].values.tolist() != looks[0][name].values.tolist():
                raise InputError(
                    f"distributions: expected looks at one {name}, got {looks[0][name].values.tolist()} at epoch "
                    f"{epochs[0]} and {look[name].values.tolist()} at epoch {epoch}"
                )
    bins = numpy.unique(numpy.concatenate([look["bin"].values for look in looks]))
    alike = [look.reindex(bin=bins, fill_value={"histogram": 0}) for look in looks]
    joined = xarray.concat(alike, xarray.IndexVariable("epoch", epochs), join="exact", combine_attrs="override")
    return joined.assign_coords(_edges(bins)).assign_attrs(measure="distributions")


def _edges(bins: numpy.ndarray) -> dict[str, Any]:
    return {name: ("bin", edge) for name, edge in zip(("low", "high"), bin_edges(bins), strict=True)}


def weight_of(module: nn.Module) -> Tensor:
    """The weight that a layer multiplies by; inside of `parametrize.cached` that of the pass itself."""
    weight = module.weight
    assert isinstance(weight, Tensor)
    return weight


def _has_weight(module: nn.Module) -> bool:
    own: Tensor | None = dict(module.named_parameters(recurse=False)).get("weight")
    if own is None and parametrize.is_parametrized(module, "weight"):
        own = weight_of(module)
    return own is not None and own.dim() >= 2


def called_layers(model: nn.Module, buffers: dict[str, Tensor], images: Tensor) -> dict[str, nn.Module]:
    """The layers in the order of their first calls, in evaluation mode, where no branch is left out by chance."""
    found: dict[str, nn.Module] = {}

    def note(call: Call) -> None:
        found.setdefault(call.path, call.module)

    layers = {name: module for name, module in model.named_modules() if _has_weight(module)}
    with following(layers, entered=note), in_mode(model, training=False), torch.no_grad():
        functional_call(model, buffers, (images,))
    if not found:
        raise InputError(f"Tracker: {type(model).__name__} calls no module with a weight of two or more dimensions")
    return found


def chosen_layers(layers: Sequence[Layer], names: list[str]) -> list[str]:
    found = []
    for layer in layers:
        if isinstance(layer, str):
            if layer not in names:
                raise InputError(f"Tracker: no layer '{layer}' is called; expected one of {', '.join(names)}")
            found.append(layer)
        else:
            if not -len(names) <= layer < len(names):
                raise InputError(f"Tracker: expected a layer from {-len(names)} to {len(names) - 1}, got {layer}")
            found.append(names[layer])
    return list(dict.fromkeys(found))  # in a network of two layers the first one is also the last but one


@contextmanager
def streaming_activations(layers: Mapping[str, nn.Module], streams: Mapping[str, Stream]) -> Iterator[Any]:
    """Inside, a forward pass fills the streams; call what it gives with the pass's output."""
    waiting: list[tuple[str, Any]] = []  # layers that have been called, and where their output is in autograd's graph

    def give(state: Tensor) -> None:
        for call in list(waiting):
            name, node = call
            if _depends(state.grad_fn, node):
                streams[name].update(state)
                waiting.remove(call)

    def entered(call: Call) -> None:
        for state in (*call.args, *call.kwargs.values()):
            if isinstance(state, Tensor):
                give(state)

    def left(call: Call, output: Any) -> None:
        if not isinstance(output, Tensor) or output.grad_fn is None:
            raise InputError(f"Tracker: expected one tensor with a gradient as the output of '{call.path}'")
        waiting.append((call.path, output.grad_fn))

    def finish(output: Tensor) -> None:
        give(output)
        if waiting:
            unused = ", ".join(sorted({name for name, _ in waiting}))
            raise InputError(f"Tracker: expected layers that the network's output depends on, got {unused}")

    followed = {name: layers[name] for name in streams}
    with following(layers, entered=entered), following(followed, left=left):
        yield finish


def _depends(node: Any, on: Any) -> bool:
    """Whether autograd would come from one node of its graph to the other; the near ones are looked at first."""
    seen, waiting = {node}, deque([node])
    while waiting:
        here = waiting.popleft()
        if here is on:
            return True
        for before, _ in () if here is None else here.next_functions:
            if before not in seen:
                seen.add(before)
                waiting.append(before)
    return False
