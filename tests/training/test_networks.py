"""Trained networks: what they fit, and how they are found again in a run folder and in the cache."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import skipscope
from skipscope.data import Dataset, digits
from skipscope.data.dataset import Images
from skipscope.errors import InputError
from skipscope.models.weights import load_weights
from skipscope.runs import RunFolder
from skipscope.runs.record import write_record
from skipscope.training import Settings
from skipscope.training.network_files import Trained, digest_of, read
from skipscope.training.networks import Network, train_into, trained
from tests.flips import flipped

TINY = "resnet8-digits-n8"


def network(seed: int = 0) -> Network:
    return Network(TINY, digits().subset(samples=128), Settings(epochs=1), seed)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SKIPSCOPE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "networks"


class Counted:
    """`trained`, with the number of steps that it took."""

    def __init__(self) -> None:
        self.steps = 0

    def __call__(self, run: RunFolder, seed: int = 0) -> Trained:
        self.steps = 0
        return trained(network(seed), run, self.count)

    def count(self, done: int, total: int) -> None:
        self.steps += 1


def record_of(path: Path) -> dict[str, Any]:
    return json.loads((path / "run.json").read_text())


def notes(path: Path) -> list[str]:
    return record_of(path).get("notes", [])


def assert_same(one: Trained, other: Trained) -> None:
    assert one.file == other.file
    assert one.test_accuracy == other.test_accuracy
    for key, value in one.model.state_dict().items():
        torch.testing.assert_close(value, other.model.state_dict()[key], rtol=0, atol=0)


# -- what a network fits


def data_of(name: str, shape: tuple[int, ...], classes: int) -> Dataset:
    split = Images(torch.zeros((8, *shape)), torch.arange(8) % classes)
    return Dataset(name, tuple(map(str, range(classes))), split, split)


@pytest.mark.parametrize(
    ("model", "data", "message"),
    [
        (
            "resnet8-cifar",
            ("digits", (1, 8, 8), 10),
            "resnet8-cifar is for images of 3 x 32 x 32 in 10 classes, and digits has images of 1 x 8 x 8 in 10 "
            "classes; take resnet8-digits",
        ),
        ("resnet8-cifar-n8", ("cifar100", (3, 32, 32), 100), "in 100 classes; take resnet8-cifar100-n8"),
        ("plainnet8-cifar100-n8-nonorm", ("cifar10", (3, 32, 32), 10), "take plainnet8-cifar-n8-nonorm"),
        ("resnet8-mnist", ("digits", (1, 8, 8), 10), "take resnet8-digits"),
        ("resnet8-cifar", ("flowers", (3, 32, 32), 17), "no name of a network fits"),
        ("resnet8-digits", ("flowers", (3, 8, 8), 10), "no name of a network fits"),
        ("resnet8-nothing", ("digits", (1, 8, 8), 10), "no input 'nothing'"),
    ],
)
def test_a_network_that_does_not_fit_its_data(model: str, data: tuple[str, tuple[int, ...], int], message: str) -> None:
    with pytest.raises(InputError) as caught:
        Network(model, data_of(*data), Settings(epochs=1), 0)
    assert message in str(caught.value)


def test_data_that_no_name_fits_take_a_network_with_enough_outputs() -> None:
    Network(TINY, digits().subset(classes=[3, 5, 8]), Settings(epochs=1), 0)
    Network("resnet8-imagenette-n8", data_of("flowers", (3, 96, 96), 7), Settings(epochs=1), 0)


# -- its key


def test_whatever_changes_a_network_changes_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    base = network()
    key = base.key
    assert key == Network(TINY, digits().subset(samples=128), Settings(epochs=1, seed=7), seed=0).key
    others = [
        dataclasses.replace(base, model="resnet8-digits"),
        dataclasses.replace(base, model="plainnet8-digits-n8"),
        dataclasses.replace(base, data=digits().subset(samples=130)),
        dataclasses.replace(base, settings=Settings(epochs=2)),
        dataclasses.replace(base, seed=1),
    ]
    assert len({key, *(other.key for other in others)}) == 6
    with monkeypatch.context() as patch:
        patch.setattr(skipscope, "__version__", "0.0.1")
        assert base.key != key
    with monkeypatch.context() as patch:
        patch.setattr("torch.nn.init.kaiming_normal_", torch.nn.init.kaiming_uniform_)
        assert base.key != key
    assert base.key == key


# -- the cache


def test_a_network_is_kept_with_its_key(cache: Path, tmp_path: Path) -> None:
    with RunFolder(tmp_path / "run", "a test") as run:
        found = trained(network(), run, lambda done, total: None)
        assert run.has(found.file)
    (kept,) = cache.iterdir()
    assert kept.read_bytes() == (tmp_path / "run" / found.file).read_bytes()
    with safe_open(kept, "pt") as file:
        about = json.loads(file.metadata()["skipscope"])
    assert f"{about['key']}.safetensors" == kept.name
    assert sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir()) == [Path(found.file).name]


def test_a_network_is_trained_once(cache: Path, tmp_path: Path) -> None:
    once = Counted()
    found, steps = [], []
    for name in ("a", "a", "b"):
        with RunFolder(tmp_path / name, "a test", former="resume") as run:
            for _ in range(2):
                found.append(once(run))
                steps.append(once.steps)
    assert steps == [2, 0, 0, 0, 0, 0]
    for one in found[1:]:
        assert_same(one, found[0])
        assert str(one.history.loss) == str(found[0].history.loss)
    assert (tmp_path / "b" / found[-1].file).is_file()


def about(file: Path) -> dict[str, Any]:
    with safe_open(file, "pt") as content:
        return json.loads(content.metadata()["skipscope"])


def foreign(file: Path) -> None:
    """The weights of the same network, by somebody else."""
    save_file(load_file(file), file)


def another(file: Path) -> None:
    save_file(load_file(file), file, {"skipscope": json.dumps({**about(file), "key": "another"})})


def other_shapes(file: Path) -> None:
    state = {name: value[..., :1].contiguous() if value.dim() else value for name, value in load_file(file).items()}
    save_file(state, file, {"skipscope": json.dumps(about(file))})


def other_weights(file: Path) -> None:
    save_file({n: v + 1 for n, v in load_file(file).items()}, file, {"skipscope": json.dumps(about(file))})


def no_history(file: Path) -> None:
    save_file(load_file(file), file, {"skipscope": json.dumps({**about(file), "history": None})})


def truncated(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-10])


def empty(file: Path) -> None:
    file.write_bytes(b"")


BREAK: list[Callable[[Path], None]] = [
    *(truncated, empty, foreign, another, other_shapes, other_weights, no_history),
]


@pytest.mark.parametrize("damage", BREAK, ids=lambda damage: damage.__name__)
def test_a_bad_file_in_the_cache_is_ignored_and_replaced(
    damage: Callable[[Path], None], cache: Path, tmp_path: Path
) -> None:
    once = Counted()
    with RunFolder(tmp_path / "a", "a test") as run:
        expected = once(run)
    (kept,) = cache.iterdir()
    whole = (tmp_path / "a" / expected.file).read_bytes()
    damage(kept)
    assert kept.read_bytes() != whole
    with RunFolder(tmp_path / "b", "a test") as run:
        assert_same(once(run), expected)
        assert once.steps == 2
        assert_same(once(run), expected)
        assert once.steps == 0
    assert len(notes(tmp_path / "b")) == 1
    assert "cache of trained networks was ignored" in notes(tmp_path / "b")[0]
    with RunFolder(tmp_path / "c", "a test") as run:  # the cache has been mended
        assert_same(once(run), expected)
        assert once.steps == 0
    assert notes(tmp_path / "c") == []


@pytest.mark.parametrize("damage", BREAK, ids=lambda damage: damage.__name__)
def test_a_bad_file_in_the_run_folder_is_made_again(
    damage: Callable[[Path], None], cache: Path, tmp_path: Path
) -> None:
    """Even one with the right hash, as a former version copied it from its cache."""
    once = Counted()
    with RunFolder(tmp_path / "run", "a test") as run:
        expected = once(run)
    for kept in cache.iterdir():
        kept.unlink()
    file = tmp_path / "run" / expected.file
    damage(file)
    with RunFolder(tmp_path / "run", "a test", former="resume") as run:
        run.copy(file, expected.file)
        assert run.has(expected.file)
        assert_same(once(run), expected)
        assert once.steps == 2
        assert run.has(expected.file)


def better_accuracy(file: Path) -> None:
    """In the header, with the same number of digits."""
    content = file.read_bytes()
    before = re.search(rb'test_accuracy\\": ([0-9.]+)[,}]', content)
    assert before is not None
    file.write_bytes(content.replace(before[0], before[0].replace(before[1], b"0.99999999999999999"[: len(before[1])])))


@pytest.mark.parametrize("where", ["cache", "run"])
def test_a_changed_header_is_not_believed(where: str, cache: Path, tmp_path: Path) -> None:
    once = Counted()
    with RunFolder(tmp_path / "run", "a test") as run:
        expected = once(run)
    (kept,) = cache.iterdir()
    better_accuracy(kept)
    if where == "run":
        better_accuracy(tmp_path / "run" / expected.file)
    out = tmp_path / ("run" if where == "run" else "new")
    with RunFolder(out, "a test", former="resume") as run:
        assert_same(once(run), expected)
        assert once.steps == 2
    said = [note for note in notes(out) if "changed after it was written" in note or "not as the run wrote it" in note]
    assert len(said) == (2 if where == "run" else 1)
    assert all("trained" in note for note in said)


def test_a_changed_header_is_not_taken_for_a_kill(tmp_path: Path) -> None:
    with RunFolder(tmp_path, "train") as run:
        expected = train_into(network(), run, lambda done, total: None)
    better_accuracy(tmp_path / expected.file)
    for recorded in (True, False):
        if not recorded:
            write_record(tmp_path, {**record_of(tmp_path), "hashes": {}})
            better_accuracy(tmp_path / expected.file)
        with RunFolder(tmp_path, "train", former="resume") as run:
            assert_same(train_into(network(), run, lambda done, total: None), expected)
        assert any("was trained again" in note for note in notes(tmp_path))


def test_no_flipped_bit_gives_another_network(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "run", "train") as run:
        expected = train_into(network(), run, lambda done, total: None)
    one, key = network(), network().key
    whole = (tmp_path / "run" / expected.file).read_bytes()
    for _, changed in flipped(whole, 200):
        (tmp_path / "a").write_bytes(changed)
        with pytest.raises(InputError):
            read(one, key, tmp_path, "a", lambda text: None)


def test_a_damaged_checkpoint_stops_a_resumed_run(tmp_path: Path) -> None:
    """It is neither resumed from nor left out: the user decides."""

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    run = RunFolder(tmp_path, "train")
    with pytest.raises(KeyboardInterrupt), run:
        train_into(network(), run, stop)
    (file,) = (tmp_path / "checkpoints").iterdir()
    _, changed = next(flipped(file.read_bytes(), 1))
    file.write_bytes(changed)
    run = RunFolder(tmp_path, "train", former="resume")
    with pytest.raises(InputError, match=r"training\.safetensors is not a whole.*delete it to train again"), run:
        train_into(network(), run, lambda done, total: None)
    file.unlink()
    with RunFolder(tmp_path, "train", former="resume") as run:
        train_into(network(), run, lambda done, total: None)


def test_no_flipped_bit_is_loaded_as_weights(tmp_path: Path) -> None:
    """As --weights does."""
    with RunFolder(tmp_path / "run", "train") as run:
        file = tmp_path / "run" / train_into(network(), run, lambda done, total: None).file
        demo = run.write_checkpoint("demo", network().initial())
    for whole in (file, demo):
        model = network().initial()
        load_weights(model, whole)
        expected = digest_of(model.state_dict())
        for place, changed in flipped(whole.read_bytes(), 60):
            (tmp_path / "a.safetensors").write_bytes(changed)
            try:
                load_weights(model, tmp_path / "a.safetensors")
            except InputError:
                continue
            assert digest_of(model.state_dict()) == expected, place  # the digest's own name was hit


def test_a_file_of_before_there_were_digests_is_read_and_noted(cache: Path, tmp_path: Path) -> None:
    once = Counted()
    with RunFolder(tmp_path / "a", "a test") as run:
        expected = once(run)
    (kept,) = cache.iterdir()
    weights = load_file(kept)
    save_file(weights, kept, {"skipscope": json.dumps({**about(kept), "weights": digest_of(weights)})})
    with RunFolder(tmp_path / "b", "a test") as run:
        assert_same(once(run), expected)
        assert once.steps == 0
    (note,) = notes(tmp_path / "b")
    assert "older version" in note


@pytest.mark.parametrize("place", ["/dev/null/x", "file"])
def test_a_cache_that_cannot_be_used_is_noted(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SKIPSCOPE_CACHE", str(tmp_path / place))
    once = Counted()
    with RunFolder(tmp_path / "run", "a test") as run:
        expected = once(run)
        once(run, seed=1)
        assert once.steps == 2
        assert_same(once(run), expected)
        assert once.steps == 0
    (note,) = notes(tmp_path / "run")  # once, however many networks there are
    assert "cannot be kept in the cache" in note
    assert "SKIPSCOPE_CACHE" in note
    assert "--out" not in note


# -- trained for its own sake


def test_a_network_of_its_own_run_is_trained_once_and_again_when_it_is_broken(tmp_path: Path) -> None:
    steps: list[int] = []

    def go_on(former: Any) -> Trained:
        steps.clear()
        with RunFolder(tmp_path, "train", former=former) as run:
            found = train_into(network(), run, lambda done, total: steps.append(done))
            assert run.has(found.file)
        return found

    expected = go_on("refuse")
    assert steps == [1, 2]
    assert_same(go_on("resume"), expected)
    assert steps == []
    truncated(tmp_path / expected.file)
    assert_same(go_on("resume"), expected)
    assert steps == [1, 2]
    record = record_of(tmp_path)
    del record["hashes"][expected.file]  # killed between the file and the record
    write_record(tmp_path, record)
    assert_same(go_on("resume"), expected)
    assert steps == []


# -- snapshots


def test_snapshots_are_the_network_on_its_way(cache: Path, tmp_path: Path) -> None:
    def of(epochs: int, snapshots: tuple[int, ...] = ()) -> Network:
        settings = Settings(epochs=epochs, schedule="constant")
        return Network(TINY, digits().subset(samples=128), settings, 0, snapshots=snapshots)

    watched = of(2, (0, 1, 2))
    assert watched.key != of(2).key
    with RunFolder(tmp_path / "run", "test") as run:
        made = trained(watched, run, lambda done, total: None)
        again = trained(watched, run, lambda done, total: pytest.fail("it was trained again"))
        shorter = trained(of(1), run, lambda done, total: None)
    for found in (made, again):
        assert sorted(found.snapshots) == [0, 1, 2]
        for epoch, expected in ((0, watched.initial()), (1, shorter.model), (2, found.model)):
            model = found.at(epoch)
            assert not model.training
            for name, value in model.state_dict().items():
                assert torch.equal(value, expected.state_dict()[name]), (epoch, name)
    with pytest.raises(InputError, match=r"no snapshot after 5 epochs, there are \[0, 1, 2\]"):
        made.at(5)
