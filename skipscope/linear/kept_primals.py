"""Products with a Hessian whose primal part, what does not depend on the vectors, is computed once and kept.

H V by forward over reverse is the derivative of the gradient along V. Every product evaluates the loss and its gradient
anew, whose values are always the same, and beside them the tangents, which are linear in V. Below `vmap`, `jvp` and
`grad` all of it is one sequence of operations on plain tensors. The first product is watched operation by operation:
what depends on V is told from what does not, and the results of the latter are kept. In later products an operation
whose result is kept is not computed. On a GPU what remains is captured as one CUDA graph (`captured`).

    depends on V     an operation with an input in memory that such an operation has written; V itself
    kept             the results of all other operations, unless they are
    run each time    views, which cost nothing, and whatever lies in memory that is written again after it was made:
                     ReLU(inplace=True) must find what it found the first time
    refused          random numbers; numbers read from tensors (`item()`), since what is done with them stays unseen;
                     writes to memory from before the product (a counter); a second product with other operations, or
                     with tensors of other shapes or from other places than in the first

Kept results take the memory of two to six of the gradient's graphs (CNNs and transformers of torchvision), and what
depends on V two or three for each vector. On a CPU watching takes as long as what is saved: there nothing is kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from skipscope.linear.captured import WARM_UP, CapturedProduct, Product
from skipscope.linear.derivative import SAME_PRODUCT
from skipscope.linear.memory import SHARE_OF_FREE_MEMORY, free_bytes, in_blocks, out_of_memory

FEW_VECTORS = 2  # in a block up to which the primal part is so large a share of the time that watching is worth it
ONLY_SHAPES = {"aten::is_same_size", "aten::_has_same_storage_numel"}  # what they read, though they give no tensor
# Tangents that are zero have no memory. Torch gives most operations real zeros in their place; of the others, these two
# read what is not there when a dispatch mode runs them: a segmentation fault (torch 2.15).
NEED_REAL_ZEROS = {torch.ops.aten.mul.Scalar, torch.ops.aten.add.Scalar}


class CannotKeepError(RuntimeError):
    """This product has to be computed as a whole each time."""


class NoRoomError(CannotKeepError):
    """What would be kept takes more memory than it may."""


class KeptPrimals:
    """A product with vectors of one shape. The first call computes all of it and keeps the primal part; later calls
    compute the rest, and raise `CannotKeepError` where they meet other operations than the first."""

    def __init__(self, product: Product, most_bytes: float = math.inf) -> None:
        """most_bytes: that kept results and, at its peak, the rest of a product may take together."""
        self._product: Product | None = product
        self._most_bytes = most_bytes
        self._operations: list[_Operation] = []
        self._read: list[Tensor] = []  # what was there before the product
        self._kept_storages: set[int] = set()
        self._kind: tuple[torch.Size, torch.dtype] | None = None
        self.kept_bytes, self.peak_bytes = 0, 0  # of kept results; of the rest of a product, at its peak

    def __call__(self, vectors: Tensor) -> Tensor:
        assert self._product is not None, "nobody calls it after it has become a holder"
        kind = vectors.shape, vectors.dtype
        # In memory where nothing primal lies, and always laid out in the same way.
        own = vectors.detach().clone(memory_format=torch.contiguous_format)
        if self._kind is None:
            result = self._record(self._product, own)
            self._kind = kind
        elif kind == self._kind:
            replay = _Replay(self._operations)
            result = replay.watch(self._product, own)
            replay.finish()
        else:
            raise CannotKeepError(f"recorded for vectors {self._kind}, got {kind}")
        # A product that does not depend on the vectors, as one with a zero matrix, is itself kept.
        return result.clone() if _storage_of(result) in self._kept_storages else result

    def become_a_holder(self) -> None:
        """Give up the product, and with it whoever made it: a captured graph needs only what it reads to stay."""
        self._product = None

    def _record(self, product: Product, vectors: Tensor) -> Tensor:
        recording = _Recording(vectors, self._most_bytes)
        result = recording.watch(product, vectors)
        self._operations, self._read = recording.operations, recording.read
        memories = recording.keep()
        self._kept_storages = {memory.number for memory in memories}
        self.kept_bytes, self.peak_bytes = sum(memory.bytes for memory in memories), recording.peak_bytes
        return result

    @property
    def operations(self) -> int:
        return len(self._operations)

    @property
    def kept_operations(self) -> int:
        """How many are not computed anew; views are, and are most of the others that do not depend on the vectors."""
        return sum(operation.is_kept for operation in self._operations)


class KeptProducts:
    """Products with several matrices, one for each batch, on a GPU: of few vectors, captured with their primal part
    kept, for the shape that came last."""

    def __init__(self, device: torch.device, batches: int, bytes_per_vector: int) -> None:
        self._device, self._count, self._bytes_per_vector = device, batches, bytes_per_vector
        self._batches: list[_KeptBatch] = []
        self._room = 0.0  # bytes that all of them may take together

    def of(self, number: int, product: Product, V: Tensor) -> Tensor | None:
        """product(V), which belongs to the batch of that number; None where it is not captured, or not yet."""
        if V.shape[2] > FEW_VECTORS:
            return None
        while len(self._batches) <= number:
            self._batches.append(_KeptBatch(self._bytes_per_vector))
        taken = sum(batch.bytes for batch in self._batches)
        if not taken:
            self._room = SHARE_OF_FREE_MEMORY * free_bytes(self._device)
        return self._batches[number].of(product, V, self._room - taken)

    def all_of(self, V: Tensor) -> Iterator[Tensor] | None:
        """The products of all batches, where all of them are captured."""
        if len(self._batches) < self._count or any(batch.captured_shape != V.shape for batch in self._batches):
            return None
        return (batch.again(V) for batch in self._batches)

    def forget(self) -> None:
        """Give up the graphs and what was kept; both are made again when many products come again."""
        self._batches = []

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy begins anew."""
        return KeptProducts, (self._device, self._count, self._bytes_per_vector)


class _KeptBatch:
    def __init__(self, bytes_per_vector: int) -> None:
        self._bytes_per_vector = bytes_per_vector
        self._recorder = _Recorder()
        self._captured = CapturedProduct(self._recorder.record, _nothing, WARM_UP - 1)
        self._too_many = FEW_VECTORS + 1  # vectors, for the memory that there was
        self.captured_shape: torch.Size | None = None

    @property
    def bytes(self) -> int:
        kept = self._recorder.kept
        return 0 if kept is None else kept.kept_bytes + kept.peak_bytes

    def of(self, product: Product, V: Tensor, room: float) -> Tensor | None:
        if V.shape[2] >= self._too_many:
            return None
        if V.shape != self.captured_shape:
            self.captured_shape = self._recorder.kept = None
        self._recorder.now = product, V, room
        try:
            found = self._captured.of(V, partial(self._is_product, product, V))
        finally:
            self._recorder.now = None
        if found is not None:
            if self._recorder.kept is not None:
                self._recorder.kept.become_a_holder()
            self.captured_shape = V.shape
            return found
        self._recorder.kept = None
        if self._recorder.had_no_room:
            self._too_many, self._recorder.had_no_room = V.shape[2], False
            self._captured = CapturedProduct(self._recorder.record, _nothing, WARM_UP - 1)  # for fewer vectors
        return None

    def again(self, V: Tensor) -> Tensor:
        found = self._captured.of(V, _yes)
        assert found is not None, "it was captured for this shape"
        return found

    def _is_product(self, product: Product, V: Tensor, found: Tensor) -> bool:
        """To rounding, for each vector: a GPU may add up in another order."""
        expected = in_blocks(product, V, self._bytes_per_vector)
        off = (found - expected).norm(dim=1)
        return bool((off <= SAME_PRODUCT * torch.finfo(V.dtype).eps * expected.norm(dim=1)).all())


class _Recorder:
    """What makes the product that is captured. It does not refer to the batch that uses it, so that a batch is freed as
    soon as nobody else does."""

    def __init__(self) -> None:
        self.now: tuple[Product, Tensor, float] | None = None  # what is recorded, with what vectors, in how many bytes
        self.kept: KeptPrimals | None = None
        self.had_no_room = False

    def record(self) -> Product:
        assert self.now is not None, "it is there while a product is asked for"
        product, V, room = self.now
        kept = KeptPrimals(product, room)
        try:
            kept(V)
        except Exception as error:
            self.had_no_room = isinstance(error, NoRoomError) or out_of_memory(error)
            raise
        self.kept = kept
        return kept


def _nothing() -> None:
    """Weights are not looked at: products are those of a copy."""


def _yes(found: Tensor) -> bool:
    return True


# -- operation by operation


@dataclass(eq=False)
class _Memory:
    """A piece of memory that tensors lie in. Its number goes to no other one while this object is there."""

    number: int
    reference: StorageWeakRef
    bytes: int
    is_ours: bool  # made by an operation of the product
    moves: bool = False  # something in it depends on the vectors
    is_rewritten: bool = False  # it is written to after it was made
    is_kept: bool = False


@dataclass(eq=False)
class _Input:
    """A tensor that an operation takes. If it is kept it has to be the same tensor again."""

    shape: torch.Size
    dtype: torch.dtype
    offset: int | torch.SymInt
    memory: _Memory

    def is_again(self, tensor: Any) -> bool:
        if not isinstance(tensor, Tensor) or tensor.shape != self.shape or tensor.dtype != self.dtype:
            return False
        if not self.memory.is_kept:
            return True
        return _storage_of(tensor) == self.memory.number and bool(tensor.storage_offset() == self.offset)


@dataclass(eq=False)
class _Operation:
    function: OpOverload
    inputs: list[Any]  # numbers, types and so on, and an `_Input` for each tensor
    memories: list[_Memory]  # of the results
    is_kept: bool
    result: Any  # None where it is not kept

    def is_again(self, function: Any, inputs: list[Any]) -> bool:
        if function is not self.function or len(inputs) != len(self.inputs):
            return False
        return all(
            before.is_again(now) if isinstance(before, _Input) else type(before) is type(now) and before == now
            for before, now in zip(self.inputs, inputs, strict=True)
        )


class _Watch(TorchDispatchMode):
    """Sees every operation on plain tensors."""

    def __init__(self) -> None:
        super().__init__()
        self._refusal: CannotKeepError | None = None

    def watch(self, product: Product, vectors: Tensor) -> Tensor:
        try:
            with self:
                return product(vectors)
        except Exception as error:
            if self._refusal is None or self._refusal is error:
                raise
            raise self._refusal from error  # torch's interpreter of scripts makes another error of it

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        try:
            return self._see(function, args, kwargs or {})
        except CannotKeepError as error:
            self._refusal = error
            raise

    def _see(self, function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        raise NotImplementedError


class _Recording(_Watch):
    """Runs every operation and notes it."""

    def __init__(self, vectors: Tensor, most_bytes: float) -> None:
        super().__init__()
        self.operations: list[_Operation] = []
        self.read: list[Tensor] = []
        self.peak_bytes = 0
        self._most_bytes = most_bytes
        self._memories: dict[int, _Memory] = {}
        self._moving: list[_Memory] = []  # what was not freed when it was last looked at
        self._moving_bytes = self._primal_bytes = 0
        self._memory(vectors, is_ours=False).moves = True
        self.read.clear()  # a graph has vectors of its own

    def _see(self, function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        given = _by_name(function, args, kwargs)
        _check_repeatable(function, given)
        leaves = pytree.tree_leaves((args, kwargs))
        inputs = [self._input(leaf) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        read = [each.memory for each in inputs if isinstance(each, _Input)]
        targets = _targets(function, given)
        written = [self._memory(tensor, is_ours=False) for tensor in targets]
        if not all(memory.is_ours for memory in written):
            raise CannotKeepError(f"{function} writes to memory from before the product")
        result = _run(function, args, kwargs)
        if [_storage_of(tensor) for tensor in targets] != [memory.number for memory in written]:
            raise CannotKeepError(f"{function} gives a tensor other memory")
        made = [self._memory(tensor, is_ours=True) for tensor in _results(function, result)]
        moves = any(memory.moves for memory in read)
        for memory in written:
            memory.is_rewritten = True
        if moves:
            for memory in made + written:
                self._set_moving(memory)
        # A view takes no time, and autograd wants a new tensor each time.
        is_kept = not moves and not any(memory in read for memory in made)
        self.operations.append(_Operation(function, inputs, made, is_kept, result if is_kept else None))
        self._check_room()
        return result

    def keep(self) -> list[_Memory]:
        """What is kept in the end: not what was made before it was known that it would be rewritten."""
        for operation in self.operations:
            if any(memory.is_rewritten for memory in operation.memories):
                operation.is_kept, operation.result = False, None
            elif operation.is_kept:
                for memory in operation.memories:
                    memory.is_kept = True
        return [memory for memory in self._memories.values() if memory.is_kept]

    def _input(self, tensor: Tensor) -> _Input:
        return _Input(tensor.shape, tensor.dtype, tensor.storage_offset(), self._memory(tensor, is_ours=False))

    def _memory(self, tensor: Tensor, is_ours: bool) -> _Memory:
        """is_ours: whether memory that was not seen before was made by an operation."""
        number = _storage_of(tensor)
        if number not in self._memories:
            storage = tensor.untyped_storage()
            size = 0 if tensor._is_zerotensor() else storage.nbytes()
            self._memories[number] = _Memory(number, StorageWeakRef(storage), size, is_ours)
            if is_ours:
                self._primal_bytes += size
            else:
                self.read.append(tensor)
        return self._memories[number]

    def _set_moving(self, memory: _Memory) -> None:
        if not memory.moves and memory.is_ours:
            self._primal_bytes -= memory.bytes
            self._moving_bytes += memory.bytes
            self._moving.append(memory)
        memory.moves = True

    def _check_room(self) -> None:
        if self._moving_bytes > self.peak_bytes:
            self._moving = [memory for memory in self._moving if not memory.reference.expired()]
            self._moving_bytes = sum(memory.bytes for memory in self._moving)
            self.peak_bytes = max(self.peak_bytes, self._moving_bytes)
        if (needed := self._primal_bytes + self.peak_bytes) > self._most_bytes:
            raise NoRoomError(f"{needed} bytes are more than the {self._most_bytes:.0f} that may be taken")


class _Replay(_Watch):
    """Gives the results that were kept and runs the other operations, as long as they are the same ones."""

    def __init__(self, operations: Sequence[_Operation]) -> None:
        super().__init__()
        self._operations, self._number = operations, 0

    def _see(self, function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        number, self._number = self._number, self._number + 1
        if number == len(self._operations):
            raise CannotKeepError(f"{function} comes after the {number} operations that were recorded")
        operation = self._operations[number]
        if not operation.is_again(function, pytree.tree_leaves((args, kwargs))):
            raise CannotKeepError(
                f"operation {number}: {operation.function} was recorded, and now there is {function} or another input"
            )
        if not operation.is_kept:
            return _run(function, args, kwargs)
        return list(operation.result) if isinstance(operation.result, list) else operation.result

    def finish(self) -> None:
        if self._number != len(self._operations):
            raise CannotKeepError(
                f"{len(self._operations)} operations were recorded, and there were {self._number} now"
            )


def _run(function: OpOverload, args: Any, kwargs: dict[str, Any]) -> Any:
    if function in NEED_REAL_ZEROS and args[0]._is_zerotensor():
        args = (args[0].clone(), *args[1:])
    return function(*args, **kwargs)


def _by_name(function: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    if not isinstance(function, OpOverload):
        raise CannotKeepError(f"{function} is no single operation")
    names = (argument.name for argument in function._schema.arguments)
    return dict(zip(names, args, strict=False)) | kwargs


def _check_repeatable(function: OpOverload, given: dict[str, Any]) -> None:
    if torch.Tag.nondeterministic_seeded in function.tags:
        raise CannotKeepError(f"{function} draws random numbers")
    if given.get("training") and given.get("running_mean") is not None:  # a schema does not say that these are written
        raise CannotKeepError(f"{function} writes running averages")


def _targets(function: OpOverload, given: dict[str, Any]) -> list[Tensor]:
    """The tensors that an operation writes to."""
    if not function._schema.is_mutable:
        return []
    arguments = function._schema.arguments
    names = [argument.name for argument in arguments if argument.alias_info and argument.alias_info.is_write]
    return [leaf for leaf in pytree.tree_leaves([given.get(name) for name in names]) if isinstance(leaf, Tensor)]


def _results(function: OpOverload, result: Any) -> list[Tensor]:
    leaves = [leaf for leaf in pytree.tree_leaves(result) if leaf is not None]
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    if len(tensors) < len(leaves) and function._schema.name not in ONLY_SHAPES:
        raise CannotKeepError(f"{function} reads numbers from tensors")
    return tensors


def _storage_of(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
