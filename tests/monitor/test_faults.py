"""What happens to a model, a folder or a rate while it trains does not end the training."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune

import skipscope as ss
from skipscope.monitor.objective import Objective
from skipscope.runs import load_run
from skipscope.runs.folder import RunFolder
from tests.monitor.loops import X, Y, small_model


def doubled(model: nn.Module) -> None:
    model.double()


def pruned(model: nn.Module) -> None:
    prune.l1_unstructured(model[-1], "weight", 0.3)  # type: ignore[index, no-untyped-call]


def normed(model: nn.Module) -> None:
    parametrizations.weight_norm(model[-1])  # type: ignore[index]


def shortened(model: nn.Module) -> None:
    del model[1]  # type: ignore[attr-defined]


def lengthened(model: nn.Module) -> None:
    model.append(nn.Linear(3, 3))  # type: ignore[operator]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (pruned, "has not the modules and weights any more that it was traced with"),
        pytest.param(normed, "any more that it was traced with", marks=pytest.mark.slow),
        pytest.param(shortened, "any more that it was traced with", marks=pytest.mark.slow),
        pytest.param(doubled, "traced with torch.float32, got torch.float64", marks=pytest.mark.slow),
        pytest.param(lengthened, "the model has changed since the first look", marks=pytest.mark.slow),
    ],
)
def test_a_model_that_changes_is_left_out(change: Callable[[nn.Module], None], reason: str) -> None:
    model = small_model(blocks=2)
    watch = ss.Monitor(model, X[:8], 1, ["sizes", "stable_rank"], None)
    watch.step()
    change(model)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        for _ in range(3):
            watch.step()
    assert any(reason in str(one.message) for one in heard)
    assert reason in watch.left_out["stable_rank"]
    assert watch["stable_rank"]["step"].values.tolist() == [1]


@pytest.fixture(scope="module", name="trunk")
def _trunk() -> ss.Trunk:
    return ss.trace(small_model(blocks=1), X[:8])


def test_without_losses_a_training_goes_on_where_it_was(trunk: ss.Trunk, tmp_path: Path) -> None:
    watch = partial(ss.Monitor, trunk, X[:8], 2, ["sizes"], None, out=tmp_path / "run")
    with watch() as first:
        for _ in range(4):
            first.step()
        first.step(float("nan"), step=6)
    assert first.exit_code == 1
    with watch(former="resume") as second:
        assert second.steps.last == 6
        for _ in range(2):
            second.step()
        assert second.recorded["sizes"].steps == [0, 2, 4, 6, 8]
    with watch(former="resume") as third:
        third.step(step=5)
    assert third.recorded["sizes"].steps == [0, 2, 4]
    assert third.exit_code == 0
    assert [*load_run(tmp_path / "run").record["hashes"]] == ["data/sizes.nc"]
    assert not (tmp_path / "run/data/alarms.nc").exists()


def test_an_optimizer_of_another_model_gives_a_warning(trunk: ss.Trunk) -> None:
    other = torch.optim.SGD(small_model(blocks=1).parameters(), lr=0.1)
    with pytest.warns(UserWarning, match="has none of the model's weights"):
        ss.Monitor(trunk, X[:8], 1, ["sizes"], None, optimizer=other)


@pytest.mark.parametrize(
    ("loss", "reason"),
    [
        (lambda output: output.detach().sum(), "does not require grad"),
        (lambda output: torch.ones(1, requires_grad=True) * 2, "does not depend on the states"),
    ],
)
def test_a_loss_without_gradients_gives_a_warning(
    trunk: ss.Trunk, loss: Callable[[Tensor], Tensor], reason: str
) -> None:
    with pytest.warns(UserWarning, match=f"gradients cannot be measured: .*{reason}"):
        ss.Monitor(trunk, X[:8], 1, ["sizes"], None, loss=loss)


def test_a_loss_that_is_told_after_its_step_has_the_rate_of_that_step(trunk: ss.Trunk) -> None:
    watch = ss.Monitor(trunk, X[:8], 10, ["sizes"], None, rate=0.1)
    watch.step()
    watch.steps.note_loss(2.0)  # as the Trainer of transformers does
    assert watch["loss"]["rate"].values.tolist() == [0.1]


@pytest.mark.parametrize("step", ["3", 2.7, -1, True])
def test_a_number_of_a_step_is_a_whole_number(trunk: ss.Trunk, step: object) -> None:
    with pytest.raises(ss.InputError, match="expected the number of a step, a whole number from 0 on"):
        ss.Monitor(trunk, X[:8], 1, ["sizes"], None).step(1.0, step=step)  # type: ignore[arg-type]


def test_a_folder_that_is_gone_gives_a_warning(trunk: ss.Trunk, tmp_path: Path) -> None:
    watch = ss.Monitor(trunk, X[:8], 1, ["sizes"], None, out=tmp_path / "run")
    shutil.rmtree(tmp_path / "run")
    (tmp_path / "run").touch()
    with pytest.warns(UserWarning, match="the monitor cannot (save|end its run folder)"):
        watch.close()


def test_an_unknown_word_for_a_former_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ss.InputError, match="former='x': expected one of refuse, replace, resume"):
        RunFolder(tmp_path / "run", "monitor", former="x")  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()


def test_warnings_that_are_errors_do_not_end_a_training(trunk: ss.Trunk, capsys: pytest.CaptureFixture[str]) -> None:
    rates = iter([0.1] * 3)
    watch = ss.Monitor(
        trunk, X[:8], 1, ["sizes"], None, rate=lambda: next(rates), writers=[lambda numbers, step: 1 / 0]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            watch.step(1.0)
    said = capsys.readouterr().err
    assert "gives a writer up at step 1: division by zero" in said
    assert said.count("the rate cannot be read") == 1


class Centred(nn.Module):
    """A loss with a running mean and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("centre", torch.zeros(3))
        self.register_buffer("seen", torch.zeros(()))
        self.dropout = nn.Dropout(0.5)

    def forward(self, output: Tensor, targets: Tensor) -> Tensor:
        self.centre: Tensor
        self.centre.mul_(0.9).add_(output.detach().mean(0), alpha=0.1)
        self.seen = self.seen + 1
        return nn.functional.cross_entropy(self.dropout(output - self.centre), targets)


@pytest.mark.parametrize("of", [lambda loss: loss, lambda loss: loss.forward, lambda loss: partial(loss)])
def test_a_loss_that_is_a_module_keeps_its_buffers_and_modes(of: Callable[[nn.Module], Callable[..., Tensor]]) -> None:
    loss = Centred()
    before = dict(loss.named_buffers())
    objective = Objective(of(loss), Y[:8])
    output = torch.randn(8, 3, requires_grad=True)
    values = [objective(output) for _ in range(2)]
    values[0].backward()  # type: ignore[no-untyped-call]
    assert values[0] == values[1]  # no dropout, and the same centre
    assert all(value is before[name] for name, value in loss.named_buffers())
    assert not any(bool(value.any()) for value in before.values())
    assert all(part.training for part in loss.modules())
