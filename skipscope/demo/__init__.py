"""`skipscope demo`: a residual network and its plain twin, trained on the embedded digits and measured side by side.

Both have the same weights in number and in initial value and see the same batches; the one difference is that a block
of the residual one adds its entry to its exit. About a minute on 2 cores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skipscope.errors import SkipscopeError

if TYPE_CHECKING:
    import xarray

    from skipscope.report import Table

__all__ = ["Result", "demo"]

Progress = Callable[[str, int, int], None]  # what is done now, how much of it is done, how much there is
WHAT = "demo"
PRESET = "quick"
RAISED = 1.0  # standard deviations by which the inner thresholds are raised where the law is put to the test


@dataclass(frozen=True)
class Result:
    folder: Path
    record: dict[str, Any]  # of run.json
    networks: dict[str, dict[str, Any]]
    measured: dict[str, xarray.Dataset]
    claims: list[dict[str, Any]]
    tables: list[Table]
    summary: list[str]

    def to_dict(self) -> dict[str, Any]:
        """All but the singular values themselves, which are in data/spectra.nc."""
        return {
            "folder": str(self.folder),
            "run": self.record,
            "summary": self.summary,
            "networks": self.networks,
            "claims": self.claims,
            "measured": {name: _numbers(dataset) for name, dataset in self.measured.items()},
        }

    def __str__(self) -> str:
        from skipscope.report.page import in_words

        verdicts = [f"{c['id']} {c['verdict']}: {c['claim']}\n   {in_words(c['measured'])}" for c in self.claims]
        return "\n\n".join([*self.summary, *map(str, self.tables), "Claims", *verdicts])


def demo(
    out: Path | str = "skipscope-demo",
    *,
    seed: int = 0,
    depth: int = 32,
    channels: Sequence[int] = (8, 16, 32),
    epochs: int = 15,
    images: int = 128,
    samples: int = 3,
    progress: Progress | None = None,
) -> Result:
    """Train, measure, and write a run folder.

    images: test images that profiles and condition numbers are measured on. samples: the first of them, that spectra
    are measured on. progress: called often; an exception that it raises ends the run.
    """
    from skipscope.data import digits
    from skipscope.demo import claims, measurements, tables
    from skipscope.demo.twins import Twin, twins
    from skipscope.report.figures import profile_figure, scree_figure
    from skipscope.report.page import page
    from skipscope.runs import RunFolder
    from skipscope.studies.d.verify import evidence as jacobian_evidence
    from skipscope.training import Settings, accuracy, train

    report = progress or (lambda what, done, total: None)
    data = digits()
    settings = Settings(epochs=epochs, seed=seed)
    untrained = twins(seed, depth, channels, classes=data.classes)
    parameters = {"data": data.name, "depth": depth, "channels": channels, "images": images, "samples": samples}
    folder = RunFolder(
        Path(out), WHAT, parameters={**parameters, **vars(settings)}, preset=PRESET, seed=seed, former="replace"
    )
    with folder as run, _one_thread():
        networks: dict[str, dict[str, Any]] = {}
        trained: list[Twin] = []
        for name, model in untrained.items():
            what = f"training the {name} network"
            history = train(
                model,
                data.train,
                settings,
                progress=lambda done, total, what=what: report(what, done, total),  # type: ignore[misc]
            )
            if history.diverged_at is not None:
                raise SkipscopeError(
                    f"the {name} network diverged at step {history.diverged_at}: its loss is not finite; "
                    "there is nothing to measure, try another seed"
                )
            networks[name] = {
                "layers": depth,
                "weights": sum(p.numel() for p in model.parameters()),
                "test_accuracy": accuracy(model, data.test),
                "history": history.to_dict(),
            }
            run.write_checkpoint(name, model)
            trained.append(Twin(name, model, data.test_batch(images, seed)))
        run.write_json("networks.json", networks)

        measured: dict[str, xarray.Dataset] = {}
        steps: dict[str, Callable[[], xarray.Dataset]] = {
            "profile": lambda: measurements.profiles(trained, seed),
            "condition": lambda: measurements.conditions(trained),
            "spectra": lambda: measurements.spectra(trained, samples),
            "verification": lambda: measurements.verifications(trained, samples),
            "law": lambda: measurements.law(trained, samples, RAISED),
        }
        for done, (name, measure) in enumerate(steps.items()):
            report("measuring", done, len(steps))
            measured[name] = measure()
            run.write_dataset(name, measured[name])
        report("measuring", len(steps), len(steps))

        decisions = [
            claims.JACOBIAN.decide(jacobian_evidence([measured["verification"]]), PRESET),
            claims.LAW.decide(claims.law_evidence(measured["law"]), PRESET),
        ]
        run.write_claims(decisions)
        decided = [decision.to_dict() for decision in decisions]
        shown = tables.all_tables(networks, measured)
        summary = tables.summary(networks, measured)
        figures = {
            "profile": profile_figure(measured["profile"], tables.PROFILE_PANELS),
            "spectra": scree_figure(measured["spectra"], tables.shown_units(measured["spectra"])),
        }
        for name, figure in figures.items():
            # One copy of the library beside the figures serves them all.
            figure_page = figure.to_html(include_plotlyjs="directory", div_id=name, config={"displaylogo": False})
            run.write_text(f"figures/{name}.html", figure_page)
        run.write_text("figures/plotly.min.js", _plotly())
        text = page(
            title="skipscope demo: a residual network and its plain twin",
            summary=summary,
            record=run.record,
            claims=decided,
            tables=shown,
            figures=[(tables.CAPTIONS[name], figure) for name, figure in figures.items()],
        )
        run.write_text("report.html", text)
    return Result(run.path, run.record, networks, measured, decided, shown, summary)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Images of 8 x 8 are too little work to share: a second thread saves a third of the time on an idle machine and
    doubles it on a busy one. And the numbers do not depend on the count of cores."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _numbers(dataset: xarray.Dataset) -> dict[str, Any]:
    """Coordinates, and every variable with its dimensions."""
    short = dataset.drop_dims("index", errors="ignore")
    return {
        "coords": {name: coord.values for name, coord in short.coords.items()},
        "variables": {name: {"dims": array.dims, "values": array.values} for name, array in short.data_vars.items()},
    }


def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())
