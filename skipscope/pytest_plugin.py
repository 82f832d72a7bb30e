"""For tests of your own models with pytest: the fixture `assert_trainable`, wherever skipscope is installed.

    def test_my_network_is_expected_to_train(assert_trainable):
        assert_trainable(MyNetwork(), some_images)

pytest loads this when it starts, so that torch and the check are imported only where the fixture is called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from torch import nn

    from skipscope.check import Forecast


@pytest.fixture(scope="session")
def assert_trainable() -> Callable[..., Forecast]:
    """A function of a model, a batch and the options of `skipscope.check`. It fails, in the words of that check, unless
    the model is expected to train, and returns the forecast."""

    def assert_trainable(model: nn.Module, x: Any, **options: Any) -> Forecast:
        __tracebackhide__ = True
        from skipscope.check import check
        from skipscope.errors import SkipscopeError

        try:
            forecast = check(model, x, **options)
        except SkipscopeError as error:  # of the model or the batch: its message says what to do
            problem = str(error)
        else:
            if forecast.trains:
                return forecast
            problem = f"{type(model).__name__}: {forecast.short}"
        pytest.fail(problem, pytrace=False)

    return assert_trainable
