"""Products with kept primal parts against the same products computed as a whole; and what is not kept."""

from __future__ import annotations

import copy
import weakref
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from skipscope.linear import Hessian, captured, hessian, kept_primals
from skipscope.linear.captured import CAPTURED_AT, Product
from skipscope.linear.hessian_products import double_backward, forward_over_reverse
from skipscope.linear.kept_primals import FEW_VECTORS, CannotKeepError, KeptPrimals, KeptProducts, NoRoomError
from skipscope.linear.memory import SHARE_OF_FREE_MEMORY
from skipscope.trace.undisturbed import undisturbed

ON_GPU = torch.cuda.is_available()


class Convolutions(nn.Module):
    def __init__(self, inplace: bool) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(1, 3, 3, padding=1), nn.BatchNorm2d(3)
        self.second, self.head = nn.Conv2d(3, 3, 3, padding=1, stride=2), nn.Linear(3, 3)
        self.norm.running_mean = torch.tensor([0.1, -0.2, 0.3])
        self.norm.running_var = torch.tensor([0.5, 2.0, 1.5])
        self.inplace = inplace

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.norm(self.first(x)), inplace=self.inplace)
        return self.head(F.relu(self.second(h), inplace=self.inplace).mean((2, 3)))


class BasicBlock(nn.Module):
    """As in torchvision: a sum and a ReLU in place."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 3, 3, padding=1)
        self.conv1, self.bn1 = nn.Conv2d(3, 3, 3, padding=1, bias=False), nn.BatchNorm2d(3)
        self.conv2, self.bn2 = nn.Conv2d(3, 3, 3, padding=1, bias=False), nn.BatchNorm2d(3)
        self.relu, self.head = nn.ReLU(inplace=True), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        identity = self.relu(self.stem(x))
        out = self.relu(self.bn1(self.conv1(identity)))
        out = self.bn2(self.conv2(out))
        out += identity
        return self.head(self.relu(out).mean((2, 3)))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = nn.TransformerEncoderLayer(4, 2, 6, batch_first=True, activation="gelu")
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.block(x).mean(1))


class WrittenBetween(nn.Module):
    """A primal value is read, written in place, and read again; tangents are written into primal memory."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        shift = x.square().mean(1, keepdim=True)
        h = self.layer(x) + shift
        shift.mul_(2).add_(1)
        h = torch.tanh(h) + shift
        part = shift.expand_as(h)[:, 1:].clone()
        part += h[:, 1:]
        return self.head(torch.sin(torch.cat([h[:, :1], part], 1)))


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(4, 6), nn.LayerNorm(6), nn.Softplus(), nn.Linear(6, 5), nn.Softplus(), nn.Linear(5, 3)
    )


def squares(output: Tensor, target: Tensor) -> Tensor:
    return (
        (output - torch.eye(3).to(output)[target]).square().mean()
    )  # torch 2.15 fails in the forward mode of mse_loss


IMAGES, TOKENS, VECTORS = (1, 6, 6), (3, 4), (4,)
SMOOTHED = partial(F.cross_entropy, label_smoothing=0.1)
CASES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], Callable[[Tensor, Tensor], Tensor]]] = {
    "convolutions": (lambda: Convolutions(inplace=False), IMAGES, F.cross_entropy),
    "convolutions in place": (lambda: Convolutions(inplace=True), IMAGES, F.cross_entropy),
    "basic block": (BasicBlock, IMAGES, SMOOTHED),
    "mlp": (mlp, VECTORS, SMOOTHED),
    "squares": (mlp, VECTORS, squares),
    "attention": (Attention, TOKENS, F.cross_entropy),
    "written between": (WrittenBetween, VECTORS, F.cross_entropy),
}


def hessian_of(name: str, dtype: torch.dtype = torch.float64) -> Hessian:
    make, shape, loss = CASES[name]
    torch.manual_seed(3)
    model = make().to(dtype)
    return Hessian(model, loss, (torch.randn(5, *shape, dtype=dtype), torch.randint(0, 3, (5,))))


def block(H: Hessian, width: int, seed: int) -> Tensor:
    random = torch.Generator(H.device).manual_seed(seed)
    return torch.randn(1, H.shape[2], width, dtype=H.dtype, device=H.device, generator=random)


def plain_product(H: Hessian) -> Product:
    function, _ = next(H._functions())
    return partial(forward_over_reverse, function, H.theta)


def relative(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", CASES)
def test_is_the_product_for_other_vectors(name: str, dtype: torch.dtype) -> None:
    H = hessian_of(name, dtype)
    rounding = 32 * torch.finfo(dtype).eps
    with undisturbed(H.model):
        plain = plain_product(H)
        function, _ = next(H._functions())
        for width in (1, 2, 5):
            kept = KeptPrimals(plain)
            for seed in range(4):
                V = block(H, width, seed)
                expected, found = plain(V), kept(V)
                assert relative(found, expected) <= rounding
                assert relative(found, double_backward(function, H.theta, V)) < 4 * rounding
            assert 0 < kept.kept_operations < kept.operations
            assert kept.kept_bytes > 0


class Calls(TorchDispatchMode):
    """Counts operations that are computed."""

    def __init__(self) -> None:
        super().__init__()
        self.count: Counter[str] = Counter()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count[function._schema.name.removeprefix("aten::")] += 1
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", ["convolutions", "basic block"])
def test_primal_convolutions_are_computed_once(name: str) -> None:
    H = hessian_of(name)
    with undisturbed(H.model):
        plain = plain_product(H)
        kept = KeptPrimals(plain)
        kept(block(H, 2, 0))
        with Calls() as whole:
            plain(block(H, 2, 1))
        with Calls() as rest:
            kept(block(H, 2, 1))
    layers = sum(isinstance(module, nn.Conv2d) for module in H.model.modules())
    written_over = 1 if name == "basic block" else 0  # the stem's, in place, by the ReLU that follows
    assert rest.count["convolution"] <= whole.count["convolution"] - layers + written_over
    assert rest.count["convolution_backward"] < whole.count["convolution_backward"]
    assert rest.count.total() < whole.count.total()


def test_a_flat_loss_and_what_is_given_away() -> None:
    torch.manual_seed(0)
    H = Hessian(nn.Linear(3, 2), lambda output, target: (output * target).mean(), (torch.ones(4, 3), torch.ones(4, 2)))
    with undisturbed(H.model):
        kept = KeptPrimals(plain_product(H))
        for _ in range(3):
            found = kept(block(H, 2, 1))
            assert not found.any()
            found.fill_(1)  # somebody else's now


def test_neither_vectors_nor_results_are_shared() -> None:
    H = hessian_of("basic block")
    V, W = block(H, 2, 0), block(H, 2, 1)
    with undisturbed(H.model):
        plain = plain_product(H)
        kept = KeptPrimals(plain)
        expected, other = plain(V), plain(W)
        given = V.clone()
        first = kept(given)
        given.fill_(7)
        second = kept(W)
        assert relative(first, expected) < 1e-14
        third = kept(V)
        assert relative(second, other) < 1e-14
        second.zero_()
        first.zero_()
        assert relative(third, expected) < 1e-14
        assert relative(kept(W), other) < 1e-14


def test_vectors_in_the_memory_of_what_is_primal() -> None:
    H = hessian_of("mlp")
    with undisturbed(H.model):
        plain = plain_product(H)
        kept = KeptPrimals(plain)
        kept(H.theta[None, :, None])
        V = block(H, 1, 1)
        assert relative(kept(V), plain(V)) < 1e-14
        assert kept.kept_operations > 0
        across = torch.stack([V, V], 3)[..., 0]
        assert not across.is_contiguous()
        assert relative(kept(across), plain(V)) < 1e-14


# -- what is refused


def test_random_numbers_are_refused() -> None:
    with pytest.raises(CannotKeepError, match="draws random numbers"):
        KeptPrimals(lambda V: V * F.dropout(torch.ones(3), 0.5, training=True))(torch.ones(3))
    H = hessian_of("mlp")
    with undisturbed(H.model), pytest.raises(RuntimeError, match="random"):  # by `vmap` already
        KeptPrimals(partial(forward_over_reverse, lambda theta: F.dropout(theta, 0.5, True).sum(), H.theta))(
            block(H, 1, 0)
        )


def test_numbers_read_from_tensors_are_refused() -> None:
    x = torch.arange(3.0)

    def loss(theta: Tensor) -> Tensor:
        return theta.square().sum() * (2.0 if x.max().item() > 1 else 1.0)

    with pytest.raises(CannotKeepError, match="reads numbers"):
        KeptPrimals(partial(forward_over_reverse, loss, torch.ones(4)))(torch.ones(1, 4, 2))


def test_running_averages_and_counters_are_refused() -> None:
    mean, var, x = torch.zeros(2), torch.ones(2), torch.randn(5, 2)
    with pytest.raises(CannotKeepError, match="running averages"):
        KeptPrimals(lambda V: V * F.batch_norm(x, mean, var, training=True).sum())(torch.ones(3))
    counter = torch.zeros(1)
    with pytest.raises(CannotKeepError, match="memory from before"):
        KeptPrimals(lambda V: V * counter.add_(1))(torch.ones(3))


class Alternating:
    """A loss that is evaluated in one of two ways, by turns."""

    def __init__(self, *ways: Callable[[Tensor], Tensor]) -> None:
        self.ways, self.calls = ways, 0

    def __call__(self, theta: Tensor) -> Tensor:
        self.calls += 1
        return self.ways[self.calls % len(self.ways)](theta).sum()


@pytest.mark.parametrize(
    "ways",
    [
        (torch.exp, torch.sin),
        (torch.exp, lambda theta: theta.exp().exp()),
        (lambda theta: theta.exp().exp(), torch.exp),
        (lambda theta: 2 * theta.exp(), lambda theta: 3 * theta.exp()),
        (lambda theta: theta[:2].exp(), lambda theta: theta[:1].exp()),
        (lambda theta: theta[:2].exp() * 2, lambda theta: theta[1:3].exp() * 2),
    ],
    ids=["function", "fewer", "more", "number", "shape", "place"],
)
def test_another_sequence_of_operations_is_refused(ways: Any) -> None:
    kept = KeptPrimals(partial(forward_over_reverse, Alternating(*ways), torch.ones(4)))
    kept(torch.ones(1, 4, 2))
    with pytest.raises(CannotKeepError):
        kept(torch.ones(1, 4, 2))
    with pytest.raises(CannotKeepError, match="recorded for"):
        kept(torch.ones(1, 4, 3))


def test_another_kept_result_is_refused() -> None:
    x, turns = torch.arange(3.0), iter(range(2))

    def product(V: Tensor) -> Tensor:
        return V * (x.exp(), x.sin())[next(turns)]

    kept = KeptPrimals(product)
    kept(torch.ones(3))
    with pytest.raises(CannotKeepError, match="another input"):
        kept(torch.ones(3))


def test_too_little_room() -> None:
    H = hessian_of("convolutions")
    with undisturbed(H.model):
        kept = KeptPrimals(plain_product(H))
        kept(block(H, 2, 0))
        needed = kept.kept_bytes + kept.peak_bytes
        KeptPrimals(plain_product(H), 1.2 * needed)(block(H, 2, 0))
        with pytest.raises(NoRoomError, match="bytes are more"):
            KeptPrimals(plain_product(H), 0.8 * needed)(block(H, 2, 0))


# -- in a Hessian


class Recorder:
    """In place of a capture: counts how often one is made, and says which products were replayed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.captures, self.replays = 0, 0
        monkeypatch.setattr(captured, "captured", self._captured)

    def _captured(self, record: Callable[[], Product], example: Tensor, warm_up: int) -> Product:
        self.captures += 1
        product = copy.copy(record())  # the original becomes a holder
        product(example)

        def replay(vectors: Tensor) -> Tensor:
            self.replays += 1
            with torch.no_grad():
                return product(vectors)

        return replay


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    monkeypatch.setattr(hessian, "PRIMALS_KEPT_ON", "cpu")
    return Recorder(monkeypatch)


def two_batches(reduction: str = "mean", make: Callable[[], nn.Module] = BasicBlock) -> Hessian:
    torch.manual_seed(3)
    batches = [(torch.randn(n, *IMAGES), torch.randint(0, 3, (n,))) for n in (3, 5)]
    batches = [(x.double(), target) for x, target in batches]
    H = Hessian(make().double().eval(), nn.CrossEntropyLoss(reduction=reduction), batches)
    H.route = hessian.FORWARD
    return H


@pytest.mark.skipif(ON_GPU, reason="in place of a GPU")
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_many_products_with_few_vectors_are_captured(recorder: Recorder, reduction: str) -> None:
    H = two_batches(reduction)
    dense = H.dense()
    for width in (1, 2, 1):
        for seed in range(CAPTURED_AT + 3):
            V = block(H, width, seed)
            assert relative(H.matmat(V), dense @ V) < 1e-13
    assert (recorder.captures, recorder.replays) == (2 * 3, 2 * 3 * 4)
    wide = block(H, FEW_VECTORS + 1, 0)
    for _ in range(CAPTURED_AT):
        H.matmat(wide)
    H.matmat(V)
    assert (recorder.captures, recorder.replays) == (2 * 3, 2 * (3 * 4 + 1))
    twin = copy.deepcopy(H)
    assert twin._kept.all_of(V) is None
    assert relative(twin.matmat(V), dense @ V) < 1e-13
    H.forget()
    assert relative(H.matmat(V), dense @ V) < 1e-13
    assert recorder.replays == 2 * (3 * 4 + 1)


@pytest.mark.skipif(ON_GPU, reason="in place of a GPU")
def test_the_model_is_not_called_for_captured_products(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    H = two_batches()
    V = block(H, 1, 0)
    expected, *_ = (H.matmat(V) for _ in range(CAPTURED_AT))
    monkeypatch.setattr(H, "_functions", lambda: 1 / 0)
    assert relative(H.matmat(V), expected) < 1e-13


@pytest.mark.skipif(ON_GPU, reason="in place of a GPU")
def test_batches_that_may_change_are_not_kept(recorder: Recorder) -> None:
    H = two_batches()
    H.batches = dict(enumerate(H.batches)).values()
    for _ in range(CAPTURED_AT + 2):
        H.matmat(block(H, 1, 0))
    assert recorder.captures == 0


@pytest.mark.skipif(ON_GPU, reason="in place of a GPU")
def test_another_product_is_not_used(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    H = two_batches()
    V = block(H, 2, 0)
    expected = H.matmat(V)
    call = KeptPrimals.__call__
    monkeypatch.setattr(KeptPrimals, "__call__", lambda self, vectors: (1 + 1e-12) * call(self, vectors))
    for _ in range(CAPTURED_AT + 2):
        assert relative(H.matmat(V), expected) < 1e-14
    assert (recorder.captures, recorder.replays) == (2, 2)
    assert H._kept.all_of(V) is None


@pytest.mark.skipif(ON_GPU, reason="in place of a GPU")
def test_without_room_for_many_vectors_fewer_are_captured(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    H = two_batches()
    with undisturbed(H.model):
        kept = KeptPrimals(plain_product(H))
        kept(block(H, 2, 0))
    room = 6 * (kept.kept_bytes + kept.peak_bytes)  # the second batch has 5 / 3 of the first one's samples
    monkeypatch.setattr(kept_primals, "free_bytes", lambda device: room / SHARE_OF_FREE_MEMORY)
    monkeypatch.setattr(kept_primals, "FEW_VECTORS", 16)
    dense = H.dense()
    for width, captures in ((16, 1), (2, 3), (16, 3)):
        for _ in range(CAPTURED_AT + 1):
            V = block(H, width, 1)
            assert relative(H.matmat(V), dense @ V) < 1e-13
        assert recorder.captures >= captures
    assert H._kept.all_of(block(H, 16, 1)) is None


@pytest.mark.skipif(ON_GPU, reason="in place of a GPU")
def test_out_of_memory_leaves_the_plain_product(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    H = two_batches()
    V = block(H, 2, 0)
    expected = H.matmat(V)

    def fails(self: KeptPrimals, vectors: Tensor) -> Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(KeptPrimals, "__call__", fails)
    for _ in range(CAPTURED_AT + 2):
        assert relative(H.matmat(V), expected) < 1e-14
    assert recorder.captures == 2
    assert all(batch.bytes == 0 for batch in H._kept._batches)


@pytest.mark.skipif(ON_GPU, reason="in place of a GPU")
def test_a_hessian_is_freed_with_what_it_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hessian, "PRIMALS_KEPT_ON", "cpu")

    def fake(record: Callable[[], Product], example: Tensor, warm_up: int) -> Product:
        product = record()
        result = product(example)

        def replay(vectors: Tensor) -> Tensor:
            return result.clone()

        replay.product = product  # type: ignore[attr-defined]
        return replay

    monkeypatch.setattr(captured, "captured", fake)
    H = two_batches()
    V = block(H, 1, 0)
    for _ in range(CAPTURED_AT + 1):
        H.matmat(V)
    kept = [weakref.ref(recorded(batch)) for batch in H._kept._batches]
    assert all(one() is not None for one in kept)
    H.forget()
    assert all(one() is None for one in kept)
    for _ in range(CAPTURED_AT + 1):
        H.matmat(V)
    kept = [weakref.ref(recorded(batch)) for batch in H._kept._batches]
    del H
    assert all(one() is None for one in kept)


def recorded(batch: Any) -> KeptPrimals:
    kept: KeptPrimals = batch._recorder.kept
    return kept


def test_tangents_without_memory() -> None:
    """Times a number and plus a number: torch's own way from a dispatch mode is a segmentation fault."""

    def product(V: Tensor) -> Tensor:
        zeros = torch._efficientzerotensor((3,), device=V.device)
        return V * torch.ops.aten.add.Scalar(torch.ops.aten.mul.Scalar(zeros, 2.0), 3.0)

    kept = KeptPrimals(product)
    for size in (1.0, 2.0):
        assert kept(size * torch.ones(3)).tolist() == [3 * size] * 3


def test_no_products_without_batches() -> None:
    kept = KeptProducts(torch.device("cpu"), 2, 100)
    V = torch.ones(1, 3, 2)
    assert kept.all_of(V) is None
    assert kept.of(0, lambda V: 2 * V, torch.ones(1, 3, FEW_VECTORS + 1)) is None
    assert kept.all_of(V) is None


@pytest.mark.skipif(not ON_GPU, reason="needs a GPU")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", CASES)
def test_captured_products_on_a_gpu(name: str, dtype: torch.dtype) -> None:
    make, shape, loss = CASES[name]
    torch.manual_seed(3)
    pairs = [
        (torch.randn(n, *shape, dtype=dtype, device="cuda"), torch.randint(0, 3, (n,), device="cuda")) for n in (3, 5)
    ]
    H = Hessian(make().to("cuda", dtype), loss, pairs)
    assert H.route == hessian.FORWARD
    dense, size = H.dense(), 1e3 * torch.finfo(dtype).eps
    torch.cuda.synchronize()
    for width in (1, 2, 5):
        for seed in range(CAPTURED_AT + 3):
            V = block(H, width, seed)
            assert relative(H.matmat(V), dense @ V) < size
        assert (H._kept.all_of(V) is not None) == (width <= FEW_VECTORS)
        assert relative(H.matmat(V.contiguous()), dense @ V) < size
    V = block(H, 1, 0)
    for _ in range(CAPTURED_AT):
        H.matmat(V)
    first = H.matmat(V)
    expected = first.clone()
    H.matmat(2 * V)
    assert torch.equal(first, expected)  # not the memory that the next product is written to


@pytest.mark.skipif(not ON_GPU, reason="needs a GPU")
def test_what_is_kept_on_a_gpu_is_freed() -> None:
    torch.manual_seed(3)
    x, target = torch.randn(256, 1, 32, 32, device="cuda"), torch.randint(0, 3, (256,), device="cuda")
    H = Hessian(BasicBlock().cuda(), nn.CrossEntropyLoss(), [(x, target)])
    V = block(H, 1, 0)
    H.matmat(V)
    before = torch.cuda.memory_allocated()
    for _ in range(CAPTURED_AT):
        H.matmat(V)
    held = torch.cuda.memory_allocated() - before
    assert min(held, recorded(H._kept._batches[0]).kept_bytes) > 4 * x.nbytes
    H.forget()
    assert torch.cuda.memory_allocated() - before < held / 4
    assert relative(H.matmat(V), H.dense() @ V) < 1e-4
