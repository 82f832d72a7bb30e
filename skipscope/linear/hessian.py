"""The Hessian of a loss over a set of batches, with respect to a model's parameters.

    L(theta) = (1/N) sum_b n_b loss_b(theta)   where each call of the loss gives its batch's mean
    L(theta) = sum_b loss_b(theta)             where each call gives its batch's sum
    H = d^2 L / d theta^2                      theta: the chosen parameters, flattened, in the order of the model

A block of k vectors is one pass over the batches, by one of three routes (`route`; `reason` says why not another):

    forward over reverse     H V = d/de grad L(theta + e V) at e = 0, for all vectors at once by `vmap`, as many as fit
                             in memory; on a GPU, where second derivatives of convolutions take ten times as long
    recorded gradients       the graph of every batch's gradient is kept and differentiated once more for each vector:
                             on a CPU, where batches stay the same and the graphs take no more than a quarter of the
                             free memory; half to three quarters of the time of the other two
    double backward          the same with the graph recorded anew for each block, vector by vector: on a CPU where
                             graphs are large, and where an operation has no forward mode

Forward mode and double backward are compared when the operator is made (`agreement`), on the first batch and a random
vector; that and a second one show whether the product is symmetric (`asymmetry`): an operation whose second derivative
is wrong gives another matrix, which is refused. PyTorch's fused weight norm is such an operation; it is evaluated in
parts instead.

The weights are copied, so that later training does not move the operator, and evaluated in any floating type. The model
runs in evaluation mode with its random state, modes and gradients left as they were.

Cost of a block: about 2 k gradients of the loss with recorded gradients, 2 + 2 k otherwise; memory of 4 times the
gradient's graph, for each vector at once in forward mode.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils import _pytree as pytree

from skipscope.errors import InputError, first_line
from skipscope.linear.derivative import attempt
from skipscope.linear.hessian_options import (
    Loss,
    Params,
    Reduction,
    checked_batches,
    checked_reduction,
    chosen_parameters,
    described,
    listed,
)
from skipscope.linear.hessian_products import (
    Function,
    GraphSize,
    RecordedGradient,
    WeightNormInParts,
    asymmetry_of,
    double_backward,
    forward_over_reverse,
)
from skipscope.linear.memory import free_bytes, in_blocks
from skipscope.linear.operator import Operator
from skipscope.numerics import normal, random_numbers, seed_of
from skipscope.trace.inputs import Inputs
from skipscope.trace.undisturbed import kept_places, undisturbed, unwrapped

FORWARD = "forward over reverse"
RECORDED = "recorded gradients"
BACKWARD = "double backward, vector by vector"
SHARE_FOR_GRAPHS = 0.25  # of the free memory that recorded gradients may keep
LITTLE = 4 << 20  # bytes of a gradient's graph up to which many vectors at once are faster than one after another
REPEATED_WITHIN = 1e-4  # relative: kernels that add in no fixed order give other roundings, random numbers other losses
GRAPHS_PER_VECTOR = 4  # graphs of the gradient's size that a vector needs at its peak
SYMMETRIC_WITHIN = {
    torch.float32: 1e-3,
    torch.float64: 1e-6,
}  # of <w, H v> - <v, H w>, relative to unrelated vectors' size


class Hessian(Operator):
    """One symmetric matrix: shape (1, p, p)."""

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        batches: Any,
        *,
        params: Params = None,
        reduction: Reduction | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """batches: pairs (input, target), an iterable that can be read again and again, or one pair.
        params: names or prefixes of names, or a predicate of name and parameter; all that require gradients by default.
        reduction: what the loss does with a batch; its own attribute of that name by default, else "mean".
        dtype: the floating type to evaluate in; the model's own by default, but float32 for half precision."""
        self.model, self.loss_function, self.batches = unwrapped(model), loss, checked_batches(batches)
        self.params, self.reduction = params, checked_reduction(loss, reduction)
        self.name = f"the Hessian of {type(self.model).__name__}"
        chosen = chosen_parameters(self.model, params)
        own = next(iter(chosen.values())).dtype
        self.dtype = dtype or (own if own.itemsize >= 4 else torch.float32)
        self.device = next(iter(chosen.values())).device
        self.sizes = {name: parameter.shape for name, parameter in chosen.items()}
        self.theta = torch.cat([parameter.detach().flatten().to(self.dtype) for parameter in chosen.values()])
        self.shape = (1, len(self.theta), len(self.theta))
        # A shared parameter has several names; `functional_call` binds them all to the chosen one.
        taken = {id(parameter) for parameter in chosen.values()}
        self._fixed = {n: self._converted(p).clone() for n, p in self.model.named_parameters() if id(p) not in taken}
        self._buffers = {n: self._converted(b).clone() for n, b in self.model.named_buffers()}
        self._survey(evaluated_elsewhere=self.dtype != own)
        self.route, self.reason, self.agreement, self.asymmetry = self._choose_route()
        self._recorded: list[tuple[RecordedGradient, int]] = []
        self._at_once, self._seen_at_once = True, False  # many vectors of a recorded gradient: possible? seen to be so?

    # -- products

    def _matmat(self, V: Tensor) -> Tensor:
        total, samples = torch.zeros_like(V), 0
        with undisturbed(self.model):
            if self.route == RECORDED:
                for gradient, count in self._gradients():
                    total += self._weight(count) * self._product_of_recorded(gradient, V)
                return total
            for function, count in self._functions():
                samples += count
                part = in_blocks(partial(self._product, function), V, self.bytes_per_vector)
                total += self._weight(count) * part
        self._check_samples(samples)
        return total

    @property
    def vectors_at_once(self) -> int | None:
        """On a CPU each vector takes as long as it would alone, and one after another are fewer in all; a GPU takes
        little longer for two."""
        return 1 if self.device.type == "cpu" else None

    def _rmatmat(self, U: Tensor) -> Tensor:
        return self._matmat(U)

    def _product(self, function: Function, V: Tensor) -> Tensor:
        return (double_backward if self.route == BACKWARD else forward_over_reverse)(function, self.theta, V)

    def _gradients(self) -> list[tuple[RecordedGradient, int]]:
        if not self._recorded:
            recorded = [(RecordedGradient(function, self.theta), count) for function, count in self._functions()]
            self._check_samples(sum(count for _, count in recorded))
            self._recorded = recorded
        return self._recorded

    def _product_of_recorded(self, gradient: RecordedGradient, V: Tensor) -> Tensor:
        if not self._at_once or self._graph > LITTLE or V.shape[2] == 1:
            return gradient.product(V)
        product = attempt(lambda: in_blocks(partial(gradient.product, at_once=True), V, self.bytes_per_vector))
        if not self._seen_at_once and isinstance(product, Tensor):
            self._seen_at_once = self._at_once = self._is_product(product, gradient, V)
        if isinstance(product, str):
            self._at_once = False
        return product if self._at_once and isinstance(product, Tensor) else gradient.product(V)

    def _is_product(self, product: Tensor, gradient: RecordedGradient, V: Tensor) -> bool:
        """Whether a combination of the products is the product of the combination: not every operation's derivative
        survives being batched."""
        mixture = normal((1, V.shape[2], 1), random_numbers("probes", 0), torch.float32).to(V)
        expected = gradient.product(V @ mixture)
        allowed = torch.finfo(self.dtype).eps ** 0.5 * expected.norm()
        return bool((product @ mixture - expected).norm() <= allowed)

    def forget(self) -> None:
        """Drop recorded gradients; the next product records them again."""
        self._recorded = []

    def take(self, samples: Sequence[int]) -> Operator:
        if list(samples) != [0]:
            raise InputError(f"{self.name} is a single matrix, number 0; got {list(samples)}")
        return self

    def double(self) -> Operator:
        if self.dtype == torch.float64:
            return self
        return Hessian(
            self.model,
            self.loss_function,
            self.batches,
            params=self.params,
            reduction=self.reduction,
            dtype=torch.float64,
        )

    def unflatten(self, vector: Tensor) -> dict[str, Tensor]:
        """A vector (p,), such as an eigenvector, by the names of the parameters."""
        parts = vector.split([shape.numel() for shape in self.sizes.values()])
        return {name: part.view(shape) for (name, shape), part in zip(self.sizes.items(), parts, strict=True)}

    # -- the loss

    def _functions(self) -> Iterator[tuple[Function, int]]:
        """The loss of every batch as a function of theta, and the batch's samples."""
        for number, pair in enumerate(self.batches):
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                raise InputError(f"batch {number}: expected a pair (input, target), got {described(pair)}")
            inputs = Inputs.of(self.model, pair[0]).map(self._converted)
            target = pytree.tree_map_only(Tensor, self._converted, pair[1])
            counted = isinstance(target, Tensor) and target.dim() > 0
            yield partial(self._evaluate, inputs, target), target.shape[0] if counted else inputs.batch

    def _evaluate(self, inputs: Inputs, target: Any, theta: Tensor) -> Tensor:
        buffers = {name: buffer.clone() for name, buffer in self._buffers.items()}  # a forward pass may write to them
        values = {**self._fixed, **buffers, **self.unflatten(theta)}
        with WeightNormInParts(), kept_places(self.model):
            output = torch.func.functional_call(self.model, values, inputs.args, inputs.kwargs)
        if not isinstance(self.loss_function, nn.Module):
            return self.loss_function(output, target)
        state = [*self.loss_function.named_parameters(), *self.loss_function.named_buffers()]
        converted = {name: self._converted(tensor) for name, tensor in state}
        with kept_places(self.loss_function):
            value: Tensor = torch.func.functional_call(self.loss_function, converted, (output, target))
        return value

    def _converted(self, tensor: Tensor) -> Tensor:
        return tensor.detach().to(self.device, self.dtype if tensor.is_floating_point() else tensor.dtype)

    def _check_samples(self, samples: int) -> None:
        if samples != self.samples:
            raise InputError(f"batches gave {self.samples} samples at first and {samples} now; give the same each time")

    def _weight(self, count: int) -> float:
        return count / self.samples if self.reduction == "mean" else 1.0

    # -- when it is made

    def _survey(self, evaluated_elsewhere: bool) -> None:
        """Loss, gradient, samples and the size of the gradient's graph, in one pass."""
        theta = self.theta.clone().requires_grad_()
        losses, gradients, counts, graph = [], torch.zeros_like(theta), [], 0
        with undisturbed(self.model), torch.enable_grad():
            for number, (function, count) in enumerate(self._functions()):
                graph_of_batch = GraphSize()
                try:
                    with saved_tensors_hooks(graph_of_batch.pack, lambda tensor: tensor):
                        value = function(theta)
                except RuntimeError as error:
                    if not evaluated_elsewhere or isinstance(error, torch.OutOfMemoryError):
                        raise
                    raise InputError(
                        f"{type(self.model).__name__} or its loss cannot be evaluated in {self.dtype} "
                        f"({first_line(error)}); give the model's own type as dtype="
                    ) from error
                self._check_loss(value, number)
                if number == 0:
                    self._check_repeatable(function, value)
                share = count if self.reduction == "mean" else 1
                gradient = attempt(partial(torch.autograd.grad, value, theta))
                if isinstance(gradient, str):
                    raise InputError(f"{self.name}: the loss cannot be differentiated ({gradient})")
                gradients += share * gradient[0]
                losses.append(share * value.item())
                counts.append(count)
                graph = max(graph, graph_of_batch.bytes)
            if not counts:
                raise InputError("batches is empty: expected at least one pair (input, target)")
            if not isinstance(self.batches, list | tuple):
                with torch.no_grad():
                    again = [
                        (count if self.reduction == "mean" else 1) * function(theta).item()
                        for function, count in self._functions()
                    ]
                if not math.isclose(sum(again), sum(losses), rel_tol=1e-3):
                    raise InputError(
                        f"batches gave another loss when it was read again ({sum(again):g} after {sum(losses):g}); "
                        "turn random augmentation off, or give a list of batches"
                    )
        self.samples, self.batch_count = sum(counts), len(counts)
        parts = self.samples if self.reduction == "mean" else 1
        self.loss, self.gradient = sum(losses) / parts, gradients / parts
        self._graph = graph
        self.bytes_per_vector = GRAPHS_PER_VECTOR * (graph + theta.numel() * theta.element_size())

    def _check_repeatable(self, function: Function, value: Tensor) -> None:
        """A model that draws random numbers in evaluation mode has another loss, and another Hessian, in every pass."""
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed_of("another draw", 0))
            again = function(self.theta).item()
        if not math.isclose(again, value.item(), rel_tol=REPEATED_WITHIN):
            raise InputError(
                f"two passes over batch 0 gave the losses {value.item():g} and {again:g}: the model or the loss draws "
                "random numbers in evaluation mode too (dropout called with training=True, torch.rand); make it "
                "deterministic"
            )

    def _check_loss(self, value: Any, number: int) -> None:
        if not isinstance(value, Tensor) or value.dim() > 0:
            got = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
            raise InputError(
                f"batch {number}: expected the loss to be one number (a tensor of shape ()), got {got}; take the mean "
                "or the sum over the batch and say which with reduction="
            )
        if not value.isfinite():
            raise InputError(f"batch {number}: the loss is {value.item()}; check the weights and the batch")
        if not value.requires_grad:
            raise InputError(
                f"batch {number}: the loss does not depend on the chosen parameters ({listed(list(self.sizes))}); "
                "look for detach() or no_grad() in the model or the loss"
            )

    def _fastest_on_a_cpu(self) -> str:
        """Graphs are kept of batches that stay the same, and while they fit."""
        kept = GRAPHS_PER_VECTOR * self._graph * self.batch_count
        if isinstance(self.batches, list | tuple) and kept <= SHARE_FOR_GRAPHS * free_bytes(self.device):
            return RECORDED
        return FORWARD if self._graph <= LITTLE else BACKWARD

    def _choose_route(self) -> tuple[str, str, float, float]:
        """The route, why not the other, the relative difference of products by both (NaN: only one works), and how far
        the route's products are from symmetric."""
        shape = (1, self.shape[1], 2)
        probes = normal(shape, random_numbers("probes", 0), torch.float32).to(self.theta)
        first, second = probes.split(1, 2)
        found: dict[str, Tensor] = {}
        errors: dict[str, str] = {}
        with undisturbed(self.model):
            function, _ = next(self._functions())
            backward = partial(double_backward, function, self.theta)  # slow on a GPU: of one vector, if that will do
            forward = partial(forward_over_reverse, function, self.theta, probes)
            for route, product in ((FORWARD, forward), (BACKWARD, partial(backward, first))):
                product_of_probes = attempt(product)
                if isinstance(product_of_probes, str):
                    errors[route] = product_of_probes
                else:
                    found[route] = product_of_probes
        if not found:
            raise InputError(
                f"{self.name}: no second derivative, neither by {FORWARD} ({errors[FORWARD]}) nor by double backward "
                f"({errors[BACKWARD]})"
            )
        agreement = math.nan
        if len(found) == 2:
            scale = found[BACKWARD].norm().item()
            difference = (found[FORWARD][:, :, :1] - found[BACKWARD]).norm().item()
            agreement = difference / scale if scale else difference
            if agreement > torch.finfo(self.dtype).eps ** 0.5:
                errors[FORWARD] = f"gives a product that is off by {agreement:.1e}"
        asymmetry: dict[str, float] = {}
        for route in [route for route in found if route not in errors] + [route for route in found if route in errors]:
            if route == BACKWARD:
                with undisturbed(self.model):
                    found[route] = torch.cat([found[route], backward(second)], 2)
            asymmetry[route] = asymmetry_of(found[route], probes)
            if asymmetry[route] <= SYMMETRIC_WITHIN[self.dtype]:
                reasons = [f"no {other}: {error}" for other, error in errors.items() if other != route]
                choice = route == FORWARD and BACKWARD in found and self.device.type == "cpu"
                fastest = self._fastest_on_a_cpu() if choice else route
                return fastest, "; ".join(reasons), agreement, asymmetry[route]
        wrong = {route: error for route, error in asymmetry.items() if bool(found[route].isfinite().all())}
        if not wrong:
            raise InputError(self._not_finite())
        raise InputError(
            f"{self.name}: its products are not symmetric ("
            + ", ".join(f"{route}: off by {error:.1e}" for route, error in wrong.items())
            + "); an operation of the model or the loss has a wrong second derivative; write it with other operations"
        )

    def _not_finite(self) -> str:
        """What is said of products with NaN or infinite entries; the loss itself is finite, or would be refused."""
        gradient = "finite" if bool(self.gradient.isfinite().all()) else "not finite either"
        larger = "" if self.dtype == torch.float64 else "; dtype=torch.float64 holds larger numbers"
        return (
            f"{self.name}: its products are not finite (NaN or infinite), although the loss is {self.loss:.3g}; its "
            f"gradient is {gradient}, and the largest weight {self.theta.abs().max().item():.3g}. Usually numbers are "
            "so large that derivatives overflow, as after a training that diverged, or an operation has no second "
            "derivative there (a square root or a norm at exactly zero). Take weights from before that, or change the "
            f"operation{larger}"
        )
