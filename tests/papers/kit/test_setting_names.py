"""Settings are known by the text of the modules, so that a slip is found before torch is imported."""

from __future__ import annotations

import pytest

from skipscope.errors import InputError
from skipscope.papers.kit.catalogue import find
from skipscope.papers.kit.names import ids, require_possible_settings


@pytest.mark.parametrize("id", list(ids()))
def test_every_setting_of_every_study_is_possible(id: str) -> None:
    (study,) = find(id)
    require_possible_settings(id, [*study.keys, *study.old_names, *(f"{study.name}.{key}" for key in study.keys)])


def test_a_slip_is_refused_with_what_was_meant() -> None:
    with pytest.raises(InputError, match=r"no setting 'wdith' in A\.skips \(did you mean width\?\)"):
        require_possible_settings("A.skips", ["wdith"])
    with pytest.raises(InputError, match="skipscope study show B lists the settings"):
        require_possible_settings("B,D.law", ["nothing like it"])
