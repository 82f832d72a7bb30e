"""What a shell offers after TAB. It waits for the answer, so nothing here imports torch: names are from modules that do
without it, presets and sources are written down (and compared with the library's by a test), studies are read from
their files."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from skipscope.models.alignment_names import NAMES as TYPES
from skipscope.models.names import FAMILIES, INPUTS

PRESETS = {
    "smoke": "seconds, decides nothing",
    "quick": "minutes on 2 cores",
    "full": "one GPU, under 10 minutes",
    "paper": "the paper's own scale",
}
SOURCES = {
    "skipscope": "a network of ours",
    "torchvision": "a network of torchvision",
    "timm": "a network of timm",
    "hf": "a transformer: a name, or a directory",
}
DEPTHS = (8, 14, 20, 32, 56, 110)  # usual ones; any 6 n + 2 is a depth
DEVICES = ("cpu", "cuda", "cuda:0", "cuda:1", "mps")

Offered = list[tuple[str, str]]  # value and explanation

_STUDY = re.compile(r'= Study\(\s*id="([A-Z])\.(\w+)",\s*title="([^"]*)"')


def studies() -> dict[str, str]:
    """The ids and titles of all studies."""
    found: dict[str, str] = {}
    for file in sorted((Path(__file__).parent.parent / "studies").glob("*/*.py")):
        for paper, name, title in _STUDY.findall(file.read_text(encoding="utf-8")):
            found[f"{paper}.{name}"] = title
    return found


def one_of(*values: str, **explained: str) -> Callable[[str], Offered]:
    """Completes an option whose values are few."""

    def complete(incomplete: str) -> Offered:
        return _beginning(dict.fromkeys(values, "") | explained, incomplete)

    return complete


def complete_study(incomplete: str) -> Offered:
    """Of several the last one."""
    ids = studies()
    papers = {id.partition(".")[0]: f"all studies of paper {id.partition('.')[0]}" for id in ids}
    before, comma, last = incomplete.rpartition(",")
    return [(f"{before}{comma}{value}", explained) for value, explained in _beginning(papers | ids, last)]


def complete_network(incomplete: str) -> Offered:
    """NAME of skipscope:NAME; depths and inputs once the family is there."""
    families = [family for family in FAMILIES if incomplete.startswith(family)]
    types = [f"{kind}-" for kind in TYPES]
    if not families and not incomplete.startswith(tuple(types)):
        first = dict.fromkeys(FAMILIES, "and a depth, such as 20") | dict.fromkeys(types, "and an input, such as mnist")
        return _beginning(first, incomplete)
    names = [f"{family}{depth}-{data}" for family in families for depth in DEPTHS for data in INPUTS]
    names += [f"{kind}{data}" for kind in types for data in INPUTS]
    return _beginning(dict.fromkeys(names, ""), incomplete)


def complete_model(incomplete: str) -> Offered:
    source, colon, name = incomplete.partition(":")
    if colon and source == "skipscope":
        return [(f"skipscope:{value}", said) for value, said in complete_network(name)]
    sources = {f"{source}:": said for source, said in SOURCES.items()}
    return _beginning(sources, incomplete) + _python_files(incomplete)


def _python_files(incomplete: str) -> Offered:
    if not incomplete:
        return []
    typed = Path(f"{incomplete}*")  # with the star its last part is never empty
    folder, begin = typed.parent, typed.name.removesuffix("*")
    found = sorted(path for path in folder.glob("*") if path.name.startswith(begin))
    folders = [(f"{path}/", "") for path in found if path.is_dir()]
    return folders + [(f"{path}:", "and a function that returns the model") for path in found if path.suffix == ".py"]


def _beginning(values: dict[str, str], incomplete: str) -> Offered:
    return [(value, said) for value, said in values.items() if value.startswith(incomplete)]
