"""`skipscope demo`: a residual network and its plain twin, trained on the embedded digits and measured side by side.

Both have the same weights in number and in initial value and see the same batches; the one difference is that a block
of the residual one adds its entry to its exit. About a minute on 2 cores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skipscope.errors import SkipscopeError, first_line
from skipscope.progress import Announce, Progress, announced, called, with_progress

if TYPE_CHECKING:
    import xarray

    from skipscope.data import Dataset
    from skipscope.findings import Finding
    from skipscope.models.resnet import ResNet
    from skipscope.training import History, Settings

__all__ = ["ReportError", "Result", "demo"]

WHAT = "demo"
PARTS = 3  # that are announced: two trainings and the measurements
ON_A_TERMINAL = ("history-residual", "history-plain", "spectra-residual", "spectra-plain")  # datasets


@dataclass(frozen=True)
class Result:
    """What the run folder holds."""

    folder: Path
    record: dict[str, Any]  # of run.json
    datasets: Mapping[str, xarray.Dataset]

    @property
    def findings(self) -> list[Finding]:
        """What the numbers mean: three to six findings where enough was measured, the gravest first."""
        from skipscope.findings import findings_of

        return findings_of(self.datasets)

    def to_dict(self) -> dict[str, Any]:
        """All but the singular values themselves, which are in data/spectra-*.nc."""
        return {
            "folder": str(self.folder),
            "findings": [finding.to_dict() for finding in self.findings],
            "run": self.record,
            "measured": {
                name: data.drop_dims("index", errors="ignore").to_dict() for name, data in self.datasets.items()
            },
        }

    def __str__(self) -> str:
        """What was found, in short."""
        from skipscope.findings import in_lines

        return "\n\n".join([*self.record["notes"][:1], in_lines(self.findings)])

    @property
    def full(self) -> str:
        """With all notes, and tables of some units."""
        from skipscope.inspection import Result as Inspection

        shown = Inspection({name: _short(self.datasets[name]) for name in ON_A_TERMINAL}, {})
        return "\n\n".join([str(self), *self.record["notes"][1:], shown.numbers])


class ReportError(Exception):
    """The report could not be made; the run itself is whole. failure: why."""

    def __init__(self, result: Result, failure: Exception) -> None:
        super().__init__(f"{result.folder}: the report could not be made: {first_line(failure)}")
        self.result, self.failure = result, failure


@with_progress
def demo(
    out: Path | str = "skipscope-demo",
    *,
    seed: int = 0,
    depth: int = 32,
    channels: Sequence[int] = (8, 16, 32),
    epochs: int = 15,
    images: int = 128,
    samples: int = 3,
    progress: Progress | bool | None = None,
    announce: Announce | None = None,
) -> Result:
    """Train, measure, and write a run folder with a report.

    images: test images that profiles and condition numbers are measured on. samples: the first of them, that spectra
    are measured on. progress: called often, with how much is done and how much there is; an exception that it raises
    ends the run. announce: in its place, called with the part that is at work, and how much of that is done.

    Where the report cannot be made, because of a bug in a view, the error is a ReportError that has the result.
    """
    from skipscope.cores import one_thread
    from skipscope.data import digits
    from skipscope.demo.twins import steps, twins
    from skipscope.report import write_report
    from skipscope.runs import RunFolder, load_run
    from skipscope.training import Settings

    counted, finish = announced("demo", called(progress), PARTS)
    announce = announce or counted
    data = digits()
    settings = Settings(epochs=epochs, seed=seed)
    networks = twins(seed, depth, channels, classes=data.classes)
    parameters = {"data": data.name, "depth": depth, "channels": channels, "images": images, "samples": samples}
    folder = RunFolder(Path(out), WHAT, parameters={**parameters, **vars(settings)}, seed=seed, former="replace")
    with folder as run, one_thread():  # images of 8 x 8 are little work
        run.used(f"data {data.name}", data.describe())
        histories = {}
        for name, model in networks.items():
            histories[name] = _trained(name, model, data, settings, announce)
            history = histories[name].to_dataset().assign_attrs(measure="history", network=name)
            run.write_dataset(f"history-{name}", history)
            run.write_checkpoint(name, model)
        run.note(_about_the_networks(networks["residual"]))
        run.note(_about_the_training(histories))

        measured: dict[str, xarray.Dataset] = {}
        planned = steps(networks, data, images, samples, seed)
        for done, (name, network, measure) in enumerate(planned):
            announce("measuring", done, len(planned))
            measured[name] = measure().assign_attrs(network=network)
            run.write_dataset(name, measured[name])
        announce("measuring", len(planned), len(planned))
        run.note(_about_the_last_stage(measured["spectra-residual"], measured["spectra-plain"]))
        run.note(_about_the_law(*(measured[f"law-{which}"] for which in ("as-trained", "raised", "control"))))
    failure = None
    try:
        write_report(run.path)
    except Exception as error:
        failure = error
    saved = load_run(run.path)
    result = Result(saved.path, saved.record, {name: saved.dataset(name) for name in saved.names})
    if failure is not None:
        raise ReportError(result, failure) from failure
    finish()
    return result


# -- work


def _trained(name: str, model: ResNet, data: Dataset, settings: Settings, announce: Announce) -> History:
    """Trains the network and leaves it in evaluation mode."""
    from skipscope.training import train

    history = train(
        model,
        data.train,
        settings,
        test=data.test,
        progress=lambda done, total: announce(f"training the {name} network", done, total),
    )
    if history.diverged_at is not None:
        raise SkipscopeError(
            f"the {name} network diverged at step {history.diverged_at}: its loss is not finite; "
            "there is nothing to measure, try another seed"
        )
    model.eval()
    return history


# -- words


def _about_the_networks(residual: ResNet) -> str:
    weights = sum(weight.numel() for weight in residual.parameters())
    return (
        f"Two networks of {residual.depth} layers and {weights:,} weights were trained on scikit-learn's digits with "
        "the same initial weights, batches and settings. In one of them each block adds its entry to its exit; in its "
        "plain twin it does not."
    )


def _about_the_training(histories: Mapping[str, History]) -> str:
    residual, plain = (f"{histories[name].test_accuracy[-1]:.1%}" for name in ("residual", "plain"))
    return f"Test accuracy: {residual} with skips, {plain} without. One seed: an example, not a statistic."


def _about_the_last_stage(*spectra: xarray.Dataset) -> str:
    stages = [found.isel(unit=-1) for found in spectra]
    residual, plain = (f"{stage['rank'].mean().item():.0f}" for stage in stages)
    return (
        f"Of {stages[0]['exits'].item()} directions at the last stage's exit, {residual} can be reached by small "
        f"changes at its entry with skips and {plain} without (rank of the stage's Jacobian, mean over "
        f"{stages[0].sizes['sample']} images)."
    )


def _about_the_law(as_trained: xarray.Dataset, raised: xarray.Dataset, control: xarray.Dataset) -> str:
    from skipscope.demo.twins import RAISED

    before, after = (int((law["ones_at_least"] > 0).sum()) for law in (as_trained, raised))
    return (
        f"Thresholds raised: those of every block's inner ReLUs, by {RAISED:g} standard deviation. The law then "
        f"predicts singular values of exactly 1 in {after} of {raised['ones'].size} pairs of block and image (as "
        f"trained: in {before}), and {raised['ones'].sum().item():.0f} are there; in the plain twin, treated alike, "
        f"{control['ones'].sum().item():.0f}."
    )


def _short(dataset: xarray.Dataset) -> xarray.Dataset:
    """Of units, the middle one of each stage, and whole stages."""
    if "unit" not in dataset.dims:
        return dataset
    of_stage: dict[tuple[str, int], list[str]] = {}
    for unit in dataset["unit"]:
        of_stage.setdefault((unit["kind"].item(), unit["stage"].item()), []).append(unit.item())
    return dataset.sel(unit=[names[len(names) // 2] for names in of_stage.values()])
