"""One thread per process: tests run side by side. SKIPSCOPE_TEST_DEVICE=cuda runs them on a GPU.

With several workers (`pytest -n 2`), tests of one file run in one worker, so that fixtures of a module are made once.
Files that share something expensive (smoke runs of a paper, exported networks, the demo) also run in one worker, and
what takes longest starts first, so that no worker is left with a long file at the end.
"""

from __future__ import annotations

import gc
import os
import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy
import pytest
import torch

from skipscope import memory_limit

if TYPE_CHECKING:
    from skipscope.inspection import Result

torch.set_num_threads(1)
os.environ.setdefault("OMP_NUM_THREADS", "1")  # of the programs that tests start
if device := os.environ.get("SKIPSCOPE_TEST_DEVICE"):
    torch.set_default_device(device)

# Beginnings of paths, and the name of the group that they belong to; every other file is a group of its own.
TOGETHER = {
    "tests/papers/a/": "paper A",
    "tests/papers/b/": "paper B",
    "tests/papers/test_theory_views.py": "paper B",  # of the same smoke runs
    "tests/papers/c/": "paper C",
    "tests/papers/d/": "paper D",
    "tests/trace/test_cases.py": "small networks",  # exported once: tests.trace.test_cases.traced
    "tests/linear/test_jacobian.py": "small networks",
    "tests/linear/test_verify.py": "small networks",
    "tests/measure/test_every_trunk.py": "small networks",
    "tests/measure/test_profile.py": "small networks",
    "tests/measure/test_stability.py": "small networks",
    "tests/measure/test_trajectories.py": "small networks",
    "tests/trace/test_surgery": "small networks",
    "tests/measure/test_coupling.py": "small language models",  # tests.measure.language
    "tests/measure/test_depth_use.py": "small language models",
    "tests/measure/test_lens.py": "small language models",
    "tests/measure/test_normality.py": "small language models",
    "tests/report/test_language_views.py": "small language models",
    "tests/report/test_browser": "demo",  # test_browser_reading.py too
    "tests/report/test_hostile.py": "demo",
    "tests/report/test_results_first.py": "demo",
    "tests/test_demo.py": "demo",
}
SMALL_DEMO: dict[str, Any] = {"depth": 8, "channels": (4, 6, 8), "epochs": 2, "images": 16, "samples": 2}
LONGEST_FIRST = (
    "demo",
    "tests/test_docs.py",
    "small networks",
    "paper B",
    "tests/trace/test_families.py",
    "tests/test_check.py",
    "tests/models/test_resnet.py",
    "tests/measure/test_alignment.py",
    "paper A",
    "paper C",
    "paper D",
    "tests/papers/kit/test_running.py",
    "tests/report/test_page.py",
    "tests/trace/test_outer_sums.py",
    "tests/trace/test_random.py",
    "tests/trace/test_held_points.py",
    "tests/linear/test_law.py",
    "tests/trace/test_tails.py",
)


def group_of(name: str) -> str:
    """The group of a test, by the name that pytest gives it."""
    file = name.partition("::")[0]
    return next((group for beginning, group in TOGETHER.items() if file.startswith(beginning)), file)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {group: place for place, group in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: places.get(group_of(item.nodeid), len(places)))


def pytest_collection_finish() -> None:
    """Python looks for unreachable objects less often: in files that export many networks a seventh of the time went
    into looking through all that is there, again and again, with all imported modules among it."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def pytest_unconfigure() -> None:
    gc.unfreeze()  # libraries report what is left at the end


@pytest.hookimpl(optionalhook=True)  # only there with pytest-xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    config.option.loadscopereorder = False  # the order above, not the number of tests
    return ByGroup(config, log)


@pytest.fixture(autouse=True)
def _random_numbers_of_its_own() -> None:
    """What a test draws does not depend on the tests that ran before it in the same worker."""
    random.seed(0)
    numpy.random.seed(0)
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _no_limit_of_a_former_test() -> Iterator[None]:
    """Models that were opened with memory= limit the process until they are freed, which is up to the collector."""
    yield
    memory_limit._standing.clear()


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing that a test trains stays on the machine, and nothing is downloaded."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SKIPSCOPE_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("SKIPSCOPE_OFFLINE", "1")
        yield


@pytest.fixture(scope="session")
def small_demo(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """The demo at its smallest, for all tests that look at what it leaves."""
    from skipscope.demo import demo

    return demo(tmp_path_factory.mktemp("demo") / "run", **SMALL_DEMO)
