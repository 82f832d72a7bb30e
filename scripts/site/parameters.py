"""Docstrings of the reference: `name: what it means` for parameters and fields becomes a list.

An extension of griffe, which reads the docstrings for mkdocs (mkdocs.yml). In the code such a docstring is plain text,
several parameters to a line where they are short.
"""

from __future__ import annotations

import re
from typing import Any

from griffe import Class, Extension, Function, Object


class ParameterLists(Extension):
    def on_function(self, *, func: Function, **kwargs: Any) -> None:
        _rewrite(func, [parameter.name for parameter in func.parameters])

    def on_class_members(self, *, cls: Class, **kwargs: Any) -> None:
        _rewrite(cls, [name for name, member in cls.members.items() if member.is_attribute])
        for name in ("__init__", "forward"):
            if name in cls.members and isinstance(member := cls.members[name], Function):
                _rewrite(cls, [parameter.name for parameter in member.parameters])


def _rewrite(documented: Object, names: list[str]) -> None:
    if documented.docstring is not None and names:
        documented.docstring.value = listed(documented.docstring.value, names)


def listed(text: str, names: list[str]) -> str:
    """The same text, each `name: ...` at the start of a line or after a sentence as an item of a list."""
    name = "|".join(map(re.escape, names))
    start = re.compile(rf"(?:^|(?<=[.;] )|(?<=\n))((?:{name})(?:, (?:{name}))*): ")
    paragraphs = []
    for paragraph in text.split("\n\n"):
        first, *items = start.split(paragraph)
        lines = [first.strip()] if first.strip() else []
        lines += ["\n".join(_item(words, about) for words, about in zip(items[::2], items[1::2], strict=True))]
        paragraphs.append("\n\n".join(lines) if items else paragraph)
    return "\n\n".join(paragraphs)


def _item(words: str, about: str) -> str:
    named = ", ".join(f"`{word}`" for word in words.split(", "))
    return f"- {named}: {' '.join(about.split())}"
