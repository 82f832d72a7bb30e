"""B.norms: figures 2 and 3 of paper B, deeper networks end with smaller weights; and what depth does to the states.

    skipscope study run B.norms --preset quick --out DIR
    skipscope study run B.norms --preset full --device cuda --set residual_data=cifar10:PATH --out DIR

The paper finds that the deeper a residual network, the smaller its weights, all through the training: n-shortcut
networks from zero (figure 3) and pre-activation ResNets on CIFAR-10 (figure 2, from the preset full on). It argues that
states explode with depth at the usual initialisation, with batch normalisation more slowly, and not from zero, and
recalls that deeper networks have smaller branches (He et al.).

We expect all of it, with weights that fall more slowly than the one over the square root of the depth of theorem 1.

Norms are Frobenius norms, mean over the layers (convolutions of a ResNet). One learning rate for all depths, and as
many steps: these decide. Depths that learn faster are then ahead, so that norms at equal loss are reported besides, and
the share of the recorded steps at which norms fall from each depth to the next. States: variance over all entries after
each unit of the first stage, where all states have one shape; batch normalisation with the batch's own statistics,
since untrained running ones are the identity. "From zero" is the paper's initialisation of that name, 0.01 times the
usual weights of the units. Branches: standard deviation over all entries of test images, mean over the units of a
trained network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy
import torch
from torch import Tensor, nn

from skipscope.data import Dataset
from skipscope.errors import InputError
from skipscope.models import ResNet, build
from skipscope.models.blocks import Block
from skipscope.papers.b import PAPER
from skipscope.papers.b.checks.zero_weights import slope
from skipscope.papers.b.claims import decided_by
from skipscope.papers.b.networks import Samples, ShortcutSpec, grid, member_weights, train_ensemble
from skipscope.papers.b.networks.network import ZERO_FACTOR
from skipscope.papers.b.subjects import COMPONENTS, Task, task
from skipscope.papers.kit.bench import Bench
from skipscope.papers.kit.study import Evidence, Study
from skipscope.training import At, Settings, train
from skipscope.training.networks import Network

if TYPE_CHECKING:
    import xarray

MEASURE = "shortcut_norms"
RECORDED = 100  # points of a curve over the steps
NARROW = "-n4"  # option of the networks that are trained on digits: 4, 8 and 16 channels
IMAGES = 256  # whose states and branches are measured
KINDS = {"linear": "linear", "relu": "ReLU-mid", "residual": "pre-activation ResNets"}  # titles
STARTS = {"without BatchNorm": "-nonorm", "with BatchNorm": "", "from zero": "-nonorm"}  # option of the network's name


@dataclass(frozen=True)
class NormSettings:
    data: str = "mnist"
    depths: tuple[int, ...] = (6, 12, 24, 48)
    networks: int = 3  # seeds
    steps: int = 800
    rate: float = 0.3
    samples: int | None = 1000  # the first so many, for networks with ReLUs; linear ones have all
    initial: int = 122  # depth of the networks whose first states are measured
    trained: tuple[int, ...] = (8, 20, 50)  # depths of pre-activation ResNets on digits
    trained_networks: int = 5  # seeds of these
    epochs: int = 6  # of their training
    residual: tuple[int, ...] = ()  # depths of pre-activation ResNets on CIFAR-10; they need a GPU
    residual_data: str = "cifar10"
    residual_epochs: int = 40

    def __post_init__(self) -> None:
        if len(self.depths) < 2 or len(self.trained) < 2 or any(depth < 2 or depth % 2 for depth in self.depths):
            raise InputError(f"expected two even depths or more, got depths={self.depths}, trained={self.trained}")
        for key in ("networks", "trained_networks", "steps", "epochs", "samples"):
            given = getattr(self, key)
            if given is not None and given < 1:
                raise InputError(f"{key}: expected at least 1, got {given}")
        if not self.rate > 0:
            raise InputError(f"rate: expected a rate above 0, got {self.rate}")
        if self.residual_epochs < 5:
            raise InputError(f"residual_epochs: expected at least 5, for two drops, got {self.residual_epochs}")


def run(bench: Bench, settings: NormSettings) -> Evidence:
    subject = task(bench, settings.data)
    bench.note(
        "the seeds of trained networks in B.norms were raised from 3 to 5 after a look: with 3, B22 was inconclusive"
    )
    norms: dict[str, list[xarray.Dataset]] = {}
    for kind in ("linear", "relu"):
        norms[kind] = [
            bench.part(f"{kind}-{depth}", partial(_followed, bench, subject, settings, kind, depth))
            for depth in settings.depths
        ]
    digits = bench.data("digits")
    states = bench.part("states", partial(_states, bench, digits, settings))
    branches = [
        bench.part(f"branches-{depth}", partial(_branches, bench, digits, settings, depth))
        for depth in settings.trained
    ]
    if settings.residual:
        images = bench.data(settings.residual_data)
        training = residual_training(settings.residual_epochs, (0.4, 0.605))  # the paper's 81st and 122nd of 200 epochs
        norms["residual"] = [_residual(bench, images, training, depth) for depth in settings.residual]
    found = evidence(norms, states, branches)
    return {**found, "B14": {**found["B14"], **besides(norms)}}


def residual_training(epochs: int, drops: Sequence[float]) -> Settings:
    """As in fb.resnet.torch; drops: of the learning rate, as shares of the epochs."""
    return Settings(
        epochs,
        batch=128,
        rate=0.1,
        schedule="step",
        milestones=tuple(round(share * epochs) for share in drops),
        nesterov=True,
        weight_decay=1e-4,
        augmentation="crop-flip",
        precision="bfloat16",
    )


# -- what it decides


def evidence(
    norms: Mapping[str, Sequence[xarray.Dataset]], states: xarray.Dataset, branches: Sequence[xarray.Dataset]
) -> dict[str, dict[str, Any]]:
    seeds = {"seeds": states.sizes["seed"]}
    slopes = {name: _growth(states, name) for name in STARTS}
    return {
        "B14": {
            **seeds,
            **{
                f"slope of log mean |W|_F over log depth, {KINDS[kind]}": slopes_over_depth(
                    parts, lambda part: part["norm"].isel(step=-1)
                )
                for kind, parts in norms.items()
            },
        },
        "B22": {
            **seeds,
            "slope of log variance over depth, without BatchNorm": slopes["without BatchNorm"].tolist(),
            "slope of log variance over depth, with - without BatchNorm": (
                slopes["with BatchNorm"] - slopes["without BatchNorm"]
            ).tolist(),
            "|slope of log variance over depth|, from zero": abs(slopes["from zero"]).tolist(),
            "slope of log branch output over log depth of the network": slopes_over_depth(
                branches, lambda part: part["branch"]
            ),
            "the same, pre-activation ResNets on CIFAR-10": slopes_over_depth(
                norms.get("residual", ()), lambda part: part["branch"]
            ),
        },
    }


def besides(norms: Mapping[str, Sequence[xarray.Dataset]]) -> dict[str, list[float]]:
    """Of norms during training, by seed: what is reported beside the slopes in the end."""
    found = {}
    for kind, parts in norms.items():
        found[f"slope of log mean |W|_F over log depth at equal loss, {KINDS[kind]}"] = slopes_at_equal_loss(parts)
        found[f"share of the recorded steps with norms that fall with depth, {KINDS[kind]}"] = shares_falling(parts)
    return found


def slopes_over_depth(parts: Sequence[xarray.Dataset], value: Any) -> list[float]:
    """Of the log of a value (seed) over log depth, one slope a seed; none where there are no networks."""
    if not parts:
        return []
    depths = numpy.array([part.attrs["depth"] for part in parts], dtype=float)
    values = numpy.stack([value(part).values for part in parts])  # depths, seeds
    return [slope(depths, column) for column in values.T]


def slopes_at_equal_loss(parts: Sequence[xarray.Dataset]) -> list[float]:
    """As slopes_over_depth, of the norms where each depth first has the highest of the final losses of all depths."""
    targets = numpy.max([part["loss"].isel(step=-1).values for part in parts], axis=0)  # seeds
    return slopes_over_depth(parts, lambda part: _norms_at(part, targets))


def _norms_at(part: xarray.Dataset, losses: numpy.ndarray) -> xarray.DataArray:
    """Norms (seed) where the loss of each seed first comes down to one; linear between recorded steps."""
    import xarray

    found = []
    for loss, norm, target in zip(part["loss"].values, part["norm"].values, losses, strict=True):
        if not numpy.isfinite(target):
            found.append(numpy.nan)
            continue
        after = int((loss <= target).argmax())
        before = max(after - 1, 0)
        way = (loss[before] - target) / (loss[before] - loss[after]) if loss[before] > loss[after] else 1.0
        found.append(norm[before] + way * (norm[after] - norm[before]))
    return xarray.DataArray(found, dims="seed")


def shares_falling(parts: Sequence[xarray.Dataset]) -> list[float]:
    """By seed: of the recorded steps but the first, those at which each depth has smaller norms than the one before."""
    norms = numpy.stack([part["norm"].transpose("seed", "step").values for part in parts])[:, :, 1:]
    return (numpy.diff(norms, axis=0) < 0).all(0).mean(1).tolist()


def _growth(states: xarray.Dataset, start: str) -> numpy.ndarray:
    """Slopes of the log variance over the units, by seed."""
    logs = numpy.log(states["variance"].sel(start=start).transpose("unit", "seed").values)
    return numpy.polyfit(states["unit"].values, logs, 1)[0]


# -- norms


def _followed(bench: Bench, subject: Task, settings: NormSettings, kind: str, depth: int) -> xarray.Dataset:
    """Norms and losses (seed, step) of 2-shortcut networks from zero."""
    import xarray

    bench.steps(f"norms of {kind} 2-shortcut networks")(settings.depths.index(depth), len(settings.depths))
    linear = kind == "linear"
    spec = ShortcutSpec(depth, COMPONENTS, mid="identity" if linear else "relu")
    samples = subject.samples
    data = subject.moments if linear else Samples(samples.x[: settings.samples], samples.y[: settings.samples])
    seeds = bench.seeds(settings.networks)
    dtype = torch.float64 if linear or bench.device == "cpu" else torch.float32
    weights = member_weights(spec, grid(["zero"], seeds, [settings.rate]), dtype=dtype, device=bench.device)
    recorded = sorted({round(step) for step in numpy.linspace(0, settings.steps, RECORDED + 1).tolist()})
    trained = train_ensemble(spec, weights, data, settings.rate, settings.steps, record=recorded, weight_norms=True)
    assert trained.weight_norms is not None
    return xarray.Dataset(
        {"norm": (("seed", "step"), trained.weight_norms.numpy()), "loss": (("seed", "step"), trained.losses.numpy())},
        {"seed": seeds, "step": list(trained.recorded)},
        {
            "measure": MEASURE,
            "kind": kind,
            "depth": depth,
            "rate": settings.rate,
            "data": subject.name,
            "precision": str(dtype).removeprefix("torch."),
        },
    )


def _residual(bench: Bench, data: Dataset, settings: Settings, depth: int) -> xarray.Dataset:
    """Of one pre-activation ResNet. The checkpoint stays until the part is written: a run may be killed in between."""
    network = Network(f"preresnet{depth}-cifar", data.to(bench.device), settings, bench.seeds(1)[0], bench.device)
    checkpoint = bench.run.path / "checkpoints" / f"norms-{network.model}.training.safetensors"
    found = bench.part(f"residual-{depth}", partial(_residual_norms, bench, network, checkpoint, depth))
    checkpoint.unlink(missing_ok=True)
    return found


def _residual_norms(bench: Bench, network: Network, checkpoint: Path, depth: int) -> xarray.Dataset:
    """Norms (seed, step) by epoch, and the branches in the end."""
    import xarray

    images, settings = network.data, network.settings
    model = network.initial()
    hook = At(range(settings.epochs + 1), lambda model, epoch, history: {"norm": mean_norm(model)}, name="norms")
    history = train(
        model,
        images.train,
        settings,
        test=images.test,
        test_every=max(1, settings.epochs // 10),
        hooks=[hook],
        checkpoint=checkpoint,
        progress=bench.steps(f"training {network.title}"),
    )
    epochs = range(settings.epochs + 1)
    norms = [float(hook.results[epoch]["norm"]) if epoch in hook.results else numpy.nan for epoch in epochs]
    losses = [numpy.nan, *history.loss]
    branches = list(
        _branch_outputs(
            model.eval(), images.test_batch(min(IMAGES, len(images.test)), bench.seed).to(bench.device)
        ).values()
    )
    return xarray.Dataset(
        {
            "norm": (("seed", "step"), [norms]),
            "loss": (("seed", "step"), [losses + [numpy.nan] * (len(epochs) - len(losses))]),
            "branch": ("seed", [numpy.mean(branches)]),
            "test_error": ("seed", [1 - (history.test_accuracy[-1] or numpy.nan)]),
        },
        {"seed": bench.seeds(1), "step": list(epochs)},
        {
            "measure": MEASURE,
            "kind": "residual",
            "depth": depth,
            "data": images.name,
            "rate": settings.rate,
            "drops": list(settings.milestones),
            "precision": settings.precision,
        },
    )


def mean_norm(model: nn.Module) -> float:
    """Of the convolutions."""
    norms = [module.weight.detach().norm() for module in model.modules() if isinstance(module, nn.Conv2d)]
    return float(torch.stack(norms).mean())


# -- states and branches


def _images(bench: Bench, data: Dataset) -> Tensor:
    return data.test_batch(min(IMAGES, len(data.test)), bench.seed).to(bench.device)


def _states(bench: Bench, data: Dataset, settings: NormSettings) -> xarray.Dataset:
    """Variance (start, seed, unit) after each unit of the first stage: what enters has the scale of the images."""
    import xarray

    images = _images(bench, data)
    seeds = bench.seeds(settings.networks)
    found = []
    for start, option in STARTS.items():
        rows = []
        for seed in seeds:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                model = build(f"preresnet{settings.initial}-digits{option}").to(bench.device)
            if start == "from zero":
                _shrink(model)
            rows.append(_variances(model.train(), images))
        found.append(rows)
    variance = numpy.array(found)
    return xarray.Dataset(
        {"variance": (("start", "seed", "unit"), variance)},
        {"start": list(STARTS), "seed": seeds, "unit": range(1, variance.shape[-1] + 1)},
        {"measure": MEASURE, "kind": "states", "depth": settings.initial, "data": data.name, "images": len(images)},
    )


@torch.no_grad()
def _shrink(model: ResNet) -> None:
    for block in model.blocks.values():
        for convolution in block.modules():
            if isinstance(convolution, nn.Conv2d):
                convolution.weight.mul_(ZERO_FACTOR)


@torch.no_grad()
def _variances(model: ResNet, images: Tensor) -> list[float]:
    h, found = model.stem(images), []
    for block in model.stage1:
        h = block(h)
        found.append(float(h.double().var()))
    return found


def _branches(bench: Bench, data: Dataset, settings: NormSettings, depth: int) -> xarray.Dataset:
    """Mean standard deviation (seed) of the branches of networks trained on digits; NaN where one diverged."""
    import xarray

    images = _images(bench, data)
    seeds = bench.seeds(settings.trained_networks)
    means, errors = [], []
    for seed in seeds:
        found = bench.trained(f"preresnet{depth}-digits{NARROW}", data, Settings(settings.epochs), seed=seed)
        outputs = list(_branch_outputs(found.model, images).values())
        means.append(numpy.nan if found.diverged else float(numpy.mean(outputs)))
        errors.append(1 - found.test_accuracy)
    return xarray.Dataset(
        {"branch": ("seed", means), "test_error": ("seed", errors)},
        {"seed": seeds},
        {"measure": MEASURE, "kind": "branches", "depth": depth, "data": data.name, "images": len(images)},
    )


@torch.no_grad()
def _branch_outputs(model: ResNet, images: Tensor) -> dict[str, float]:
    """The standard deviation of each unit's branch."""
    found: dict[str, float] = {}

    def seen(block: Block, name: str, h: Tensor) -> None:
        found[name] = float(block.branch(h).double().std())

    handles = [
        block.register_forward_pre_hook(lambda block, inputs, name=name: seen(block, name, inputs[0]))
        for name, block in model.blocks.items()
    ]
    try:
        model(images)
    finally:
        for handle in handles:
            handle.remove()
    return found


STUDY = Study(
    PAPER,
    "norms",
    paper_found="The deeper a residual network, the smaller its weights; states explode at the usual initialisation.",
    we_expect="The same; weights fall like the depth to the power -0.4, more slowly than theorem 1's -0.5.",
    presets={
        "smoke": NormSettings(
            "digits", (4, 8), 1, 10, samples=50, initial=20, trained=(8, 14), trained_networks=1, epochs=1
        ),
        "quick": NormSettings(),
        "full": NormSettings(samples=None, residual=(20, 56, 110)),
        "paper": NormSettings(networks=10, steps=1000, samples=None, residual=(20, 56, 110), residual_epochs=200),
    },
    cost={
        "smoke": "seconds",
        "quick": "a minute on 2 cores",
        "full": "9 minutes on one H200 beside other work, most for a ResNet-110; a stopped run goes on with --resume",
        "paper": "half an hour on one GPU",
    },
    run=run,
    claims=decided_by("B.norms"),
)
