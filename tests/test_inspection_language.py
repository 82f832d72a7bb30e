"""`skipscope inspect` on language models: prompts from a file, the measures of tokens, text on the axes."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import pytest
import torch

import skipscope as ss
from skipscope.errors import InputError
from skipscope.inspection.inspecting import Budget, Work
from skipscope.inspection.language import Language, TokenText, has_tokens
from skipscope.measure.token_jacobians import members_of
from skipscope.report.views import views
from tests.commands import run_command
from tests.measure.language import traced
from tests.models.tiny_language import save_folder

LINES = ["the skip carries a state past a block", "a state of an entry", "the block carries a skip of a state"]


class Done(NamedTuple):
    exit_code: int
    stdout: str
    stderr: str


def done_command(*words: str) -> Done:
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        code = run_command(patch, *words)
    return Done(code, out.getvalue(), err.getvalue())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("llama")
    save_folder(place / "model")
    (place / "prompts.txt").write_text("\n".join(LINES), encoding="utf-8")
    return place


@pytest.fixture(scope="module")
def run(folder: Path) -> tuple[Path, str]:
    """A run folder, and what was said."""
    out = folder / "run"

    def none(work: Work, name: str, *_: Any) -> Iterator[tuple[str, str]]:
        work.done[name] = []
        return iter(())

    words = ("inspect", f"hf:{folder / 'model'}", "--text-file", str(folder / "prompts.txt"), "--budget", "40s")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Work, "through", none)  # spectra and the like take longer than all of this
        patch.setattr(Work, "alignment", lambda *_: iter(()))
        patch.setattr("skipscope.inspection.inspecting._conditioning", lambda *_: iter(()))
        done = done_command(*words, "--out", str(out))
    assert done.exit_code == 0, done.stderr
    return out, done.stderr


def test_prompts_of_a_file_are_measured_with_their_text(run: tuple[Path, str]) -> None:
    path, said = run
    assert "2 of 3 prompts cut to 5 tokens, the length of the shortest (number 2)" in said
    result = ss.load(path)
    assert {"depth_use", "coupling", "lens"} <= set(result.datasets)
    depth = result["depth_use"]
    assert depth.attrs["targets"] == "next tokens"
    assert depth["token"].values.tolist()[0] == LINES[0].split()[:5]
    assert {"skip_kl", "lens_kl", "loss"} <= set(depth)
    assert result["lens"].attrs["prompts"] == 3
    assert "lens" not in result["lens"]  # the matrices would fill the run folder
    assert result["coupling"].sizes["pair"] == 3
    assert "pair_text" not in result["coupling"].coords  # another pair of words in every prompt


def test_numbers_are_those_of_the_functions(run: tuple[Path, str], folder: Path) -> None:
    from skipscope.models import resolve

    source = resolve(f"hf:{folder / 'model'}", text=LINES)
    expected = ss.depth_use(ss.trace(source.model, source.batch), source.batch)
    numpy.testing.assert_allclose(ss.load(run[0])["depth_use"]["skip_kl"], expected["skip_kl"], rtol=1e-4, atol=1e-9)


def test_the_run_folder_says_what_the_model_is(run: tuple[Path, str], folder: Path) -> None:
    source = json.loads((run[0] / "run.json").read_text())["parameters"]["source"]
    assert source["configuration"]["model_type"] == "llama"
    assert source["configuration"]["hidden_size"] == 16
    assert source["revision"] is None
    assert list(source["weight_files"]) == ["model.safetensors"]
    assert source["input"].startswith("3 prompts of ")
    assert "cut to 5 tokens" in source["input"]


def test_the_report_has_the_words(run: tuple[Path, str]) -> None:
    page = (run[0] / "report.html").read_text(encoding="utf-8")
    assert "token by token" in page
    figure = ss.load(run[0]).figures["depth_use-tokens"]
    assert figure.layout.xaxis.ticktext == tuple(f"{k}: {word}" for k, word in enumerate(LINES[0].split()[:5]))
    assert len(figure.data) == 3


@pytest.mark.slow
def test_one_text_puts_words_on_the_pairs(folder: Path) -> None:
    source = folder / "one"
    done = done_command(
        "inspect", f"hf:{folder / 'model'}", "--text", LINES[0], "--budget", "20s", "--out", str(source), "--json"
    )
    assert done.exit_code == 0, done.stderr
    data = ss.load(source)["coupling"]
    assert data["pair_text"].values.tolist() == ["'block' to 'block'", "'a' to 'block'", "'a' to 'a'"]
    assert data.sizes["sample"] == 1  # the other sample is the same text
    (view,) = views({"coupling": data})
    assert view.figures["coupling"].figure.data[1].customdata[0][1].startswith("'block' to 'block', in the vectors of ")
    assert "7 to 7 ('block' to 'block')" in view.tables[0].about
    measured = json.loads(done.stdout)["measured"]
    assert "lens" not in measured["lens"]["data_vars"]


@pytest.mark.slow
def test_padding_is_said_and_keeps_lens_and_coupling_out(folder: Path) -> None:
    out = folder / "padded"
    words = ("inspect", f"hf:{folder / 'model'}", "--text-file", str(folder / "prompts.txt"), "--input-shape", "7")
    done = done_command(*words, "--budget", "20s", "--out", str(out))
    assert done.exit_code == 0, done.stderr
    assert "1 of 3 prompts padded to 7 tokens" in done.stderr
    result = ss.load(out)
    assert "depth_use" in result.datasets
    assert {name: result.left_out[name] for name in ("coupling", "lens")} == dict.fromkeys(
        ("coupling", "lens"), "some prompts are padded, and padding says nothing about words"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--text-file", "nowhere.txt"], "no text file nowhere.txt"),
        (["--text-file", "prompts.txt", "--text", "the skip"], "--text and --text-file both say what the input is"),
        (["--text-file", "prompts.txt", "--samples", "9"], "has 3 prompts; give as many lines"),
        (["--weights", "nowhere.gguf"], "no file nowhere.gguf"),
        (["--weights", "prompts.txt"], "cannot be read as weights|neither a safetensors file"),
    ],
)
def test_wrong_words(folder: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], message: str) -> None:
    monkeypatch.chdir(folder)
    done = done_command("inspect", "hf:model", *options)
    assert done.exit_code == 2
    assert re.search(message, done.stderr), done.stderr


def test_units_at_prompts_of_a_file(folder: Path) -> None:
    done = done_command("units", f"hf:{folder / 'model'}", "--text-file", str(folder / "prompts.txt"), "--json")
    assert done.exit_code == 0, done.stderr
    units = json.loads(done.stdout)["units"]
    shortest = min(len(line.split()) for line in LINES)
    assert [unit["entry_shape"][0] for unit in units] == [shortest] * len(units)


def test_a_text_file_is_for_language_models(folder: Path) -> None:
    done = done_command("inspect", "skipscope:resnet8-digits", "--text-file", str(folder / "prompts.txt"))
    assert done.exit_code == 2
    assert "needs a Hugging Face language model" in done.stderr


# ---- in Python


def test_texts_of_pairs_and_padding() -> None:
    here, kept = language(60, TokenText([["a", "b", "c", "d", "e"]] * 3))
    assert dict(here._coupling()) == {}
    assert kept["coupling"]["pair_text"].values.tolist() == ["'e' to 'e'", "'c' to 'e'", "'c' to 'c'"]
    (view,) = views({"coupling": kept["coupling"]})
    assert "4 to 4 ('e' to 'e'), 2 to 4 ('c' to 'e')" in view.tables[0].about
    padded, kept = language(60, TokenText([["a", "b", "c", "d", "e"]] * 3, padded=True))
    assert [name for name, why in (*padded._coupling(), *padded._lens()) if "padded" in why] == ["coupling", "lens"]
    assert not kept


def test_images_are_no_tokens() -> None:
    x = torch.rand(2, 1, 8, 8)
    assert not has_tokens(ss.trace(ss.build("resnet8-digits-n4"), x), x)


def language(seconds: float, text: TokenText | None = None) -> tuple[Language, dict[str, Any]]:
    _, trunk, x = traced("written")
    kept: dict[str, Any] = {}
    work = Work(trunk, trunk.units, trunk.at(x), Budget(seconds, torch.device("cpu")), kept.__setitem__, print)
    return Language(work, x, text, 0), kept


def test_a_short_budget_leaves_out_what_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skipscope.inspection.language.product_seconds", lambda J: 1e3)
    here, kept = language(60)
    left_out = dict(here.measured())
    assert list(kept) == ["depth_use"]
    assert list(left_out) == ["coupling", "lens"]
    assert all(why.startswith("about ") for why in left_out.values())


def test_less_time_means_fewer_tokens_and_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skipscope.inspection.language.FEWEST_BLOCKS", 2)
    here, kept = language(100)
    members = members_of(here.work.trunk, None, "block")
    # 8 products for each of 2 blocks at one token of one text, 32 s of 40; more at three pairs of two texts.
    monkeypatch.setattr("skipscope.inspection.language.product_seconds", lambda J: 2.0)
    left_out = dict(here._coupling())
    assert len(members) == 2
    assert kept["coupling"].sizes["pair"] == kept["coupling"].sizes["sample"] == 1
    assert list(left_out) == ["coupling at more than 2 of 2 blocks, at one token of one text"]


def test_token_text_must_fit() -> None:
    _, trunk, x = traced("written")
    with pytest.raises(InputError, match="expected for each sample the text of as many tokens"):
        TokenText([["a", "b"], ["a"]])
    with pytest.raises(InputError, match="token_text: expected the text of 3 x 5 tokens, got 1 x 2"):
        ss.inspect(trunk.model, x, token_text=[["a", "b"]], budget="5s")


@pytest.mark.slow
def test_a_model_on_disk_is_inspected_and_the_record_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, out = tmp_path / "model", tmp_path / "run"
    save_folder(folder)
    command = ["inspect", f"hf:{folder}", "--text", "the skip carries a state", "--budget", "2s", "--out", str(out)]
    assert run_command(monkeypatch, *command, "--memory", "300MB") == 0
    capsys.readouterr()
    parameters = json.loads((out / "run.json").read_text())["parameters"]
    assert parameters["memory"] == "300MB"
    assert parameters["source"]["weights"] == f"weights from {folder}, on disk"
    assert run_command(monkeypatch, *command, "--force", "--memory", "lots") == 2
    assert "--memory lots: expected a size" in capsys.readouterr().err
