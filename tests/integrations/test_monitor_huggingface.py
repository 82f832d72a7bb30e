"""The monitor as a callback of the Trainer of transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import skipscope as ss
from skipscope.runs import load_run

pytestmark = pytest.mark.integration
transformers = pytest.importorskip("transformers")
VOCABULARY, LENGTH = 32, 8


def model() -> Any:
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY, n_positions=LENGTH, n_embd=16, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0
    )
    return transformers.GPT2LMHeadModel(config)


def sequences() -> list[dict[str, torch.Tensor]]:
    numbers = torch.Generator().manual_seed(1)
    rows = torch.randint(VOCABULARY, (24, LENGTH), generator=numbers)
    return [{"input_ids": row, "labels": row} for row in rows]


def next_token_loss(output: Any) -> torch.Tensor:
    ids = torch.stack([row["input_ids"] for row in sequences()[:4]])
    logits = output["logits"][:, :-1].flatten(0, 1)
    return torch.nn.functional.cross_entropy(logits, ids[:, 1:].flatten())


def fitted(folder: Path, watch: bool) -> tuple[Any, ss.Monitor | None]:
    network, data = model(), sequences()
    monitor = None
    if watch:
        ids = torch.stack([row["input_ids"] for row in data[:4]])
        measures = ["sizes", "stable_rank", "sharpness"]
        x = {"input_ids": ids}
        monitor = ss.Monitor(network, x, 2, measures, None, loss=next_token_loss, out=folder / "run")
    arguments = transformers.TrainingArguments(
        output_dir=str(folder / "trainer"),
        max_steps=6,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        learning_rate=0.01,
        logging_steps=2,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        disable_tqdm=True,
        seed=0,
    )
    callbacks = [] if monitor is None else [monitor.huggingface()]
    transformers.Trainer(network, arguments, train_dataset=data, callbacks=callbacks).train()
    return network, monitor


def test_a_training_is_the_same_and_its_folder_is_finished(tmp_path: Path) -> None:
    alone, _ = fitted(tmp_path / "alone", watch=False)
    network, monitor = fitted(tmp_path / "watched", watch=True)
    assert all(torch.equal(one, two) for one, two in zip(network.parameters(), alone.parameters(), strict=True))
    assert monitor is not None
    assert not monitor.left_out
    run = load_run(tmp_path / "watched" / "run")
    assert run.record["status"] == "finished"
    assert run.dataset("sizes")["step"].values.tolist() == [0, 2, 4, 6]
    assert run.dataset("sizes").sizes["unit"] == 4
    assert run.dataset("loss")["step"].values.tolist() == [2, 4, 6]
    # The schedule falls from 0.01 to 0; the Trainer sets the next rate before it tells of the step.
    rates = [0.01 * (6 - made) / 6 for made in (1, 3, 5)]
    assert run.dataset("loss")["rate"].values.tolist() == pytest.approx(rates)
    assert run.dataset("sharpness")["rate"].values.tolist() == pytest.approx(rates)


def test_a_second_training_goes_on_in_the_same_run(tmp_path: Path) -> None:
    network, data = model(), sequences()
    ids = torch.stack([row["input_ids"] for row in data[:4]])
    monitor = ss.Monitor(network, {"input_ids": ids}, 2, ["sizes"], None, loss=next_token_loss, out=tmp_path / "run")
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path / "trainer"),
        max_steps=2,
        per_device_train_batch_size=4,
        optim="sgd",
        learning_rate=0.1,
        logging_steps=1,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        disable_tqdm=True,
    )
    for _ in range(2):
        transformers.Trainer(network, arguments, train_dataset=data, callbacks=[monitor.huggingface()]).train()
    run = load_run(tmp_path / "run")
    assert run.record["status"] == "finished"
    assert run.dataset("sizes")["step"].values.tolist() == [0, 2, 4]
    assert run.dataset("loss")["step"].values.tolist() == [1, 2, 3, 4]
    assert run.dataset("loss")["rate"].values.tolist() == pytest.approx([0.1, 0.05, 0.1, 0.05])
