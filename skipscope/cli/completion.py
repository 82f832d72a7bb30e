"""What a shell offers after TAB. It waits for the answer, so nothing here imports torch: names are from modules that do
without it, and sources are written down (and compared with the library's by a test)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from skipscope.models.names import FAMILIES, INPUTS, beginnings

SOURCES = {
    "skipscope": "a network of ours",
    "torchvision": "a network of torchvision",
    "timm": "a network of timm",
    "hf": "a transformer: a name, or a directory",
}
DEPTHS = (8, 14, 20, 32, 56, 110)  # usual ones; any 6 n + 2 is a depth
DEVICES = ("cpu", "cuda", "cuda:0", "cuda:1", "mps")

Offered = list[tuple[str, str]]  # value and explanation


def one_of(*values: str, **explained: str) -> Callable[[str], Offered]:
    """Completes an option whose values are few."""

    def complete(incomplete: str) -> Offered:
        return offered(dict.fromkeys(values, "") | explained, incomplete)

    return complete


def complete_network(incomplete: str) -> Offered:
    """NAME of skipscope:NAME; depths and inputs once the family is there."""
    families = [family for family in FAMILIES if incomplete.startswith(family)]
    types = [f"{beginning}-" for beginning in beginnings()]
    if not families and not incomplete.startswith(tuple(types)):
        first = dict.fromkeys(FAMILIES, "and a depth, such as 20") | dict.fromkeys(types, "and an input, such as mnist")
        return offered(first, incomplete)
    names = [f"{family}{depth}-{data}" for family in families for depth in DEPTHS for data in INPUTS]
    names += [f"{kind}{data}" for kind in types for data in INPUTS]
    return offered(dict.fromkeys(names, ""), incomplete)


def complete_model(incomplete: str) -> Offered:
    source, colon, name = incomplete.partition(":")
    if colon and source == "skipscope":
        return [(f"skipscope:{value}", explained) for value, explained in complete_network(name)]
    sources = {f"{source}:": explained for source, explained in SOURCES.items()}
    return offered(sources, incomplete) + _python_files(incomplete)


def _python_files(incomplete: str) -> Offered:
    if not incomplete:
        return []
    typed = Path(f"{incomplete}*")  # with the star its last part is never empty
    folder, begin = typed.parent, typed.name.removesuffix("*")
    found = sorted(path for path in folder.glob("*") if path.name.startswith(begin))
    folders = [(f"{path}/", "") for path in found if path.is_dir()]
    return folders + [(f"{path}:", "and a function that returns the model") for path in found if path.suffix == ".py"]


def offered(values: dict[str, str], incomplete: str) -> Offered:
    return [(value, explained) for value, explained in values.items() if value.startswith(incomplete)]
