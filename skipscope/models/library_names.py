"""Names of models that other libraries and Python files have, read in their source text: importing a library takes
seconds, and a typing error is to be reported at once.

The files are searched, not understood. A name is refused only where it is nowhere in them, so that one that is made in
a way that is not foreseen here is left for the library itself to judge.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from skipscope.errors import InputError

PART = 0.05  # by which a beginning that is like it counts less than a whole name
WELL_KNOWN = ("llama", "gpt2", "bert", "vit", "resnet18", "resnet50", "vit_base_patch16_224")  # examples in messages
ALIKE = 0.6  # of two names, from which on one may have been meant for the other

# Of each source: the package, the files in it, how a name is declared, and how the library is called in a message.
DECORATED = r"@register_model\b(?:\(\s*(?:name=\"(\w+)\")?\s*\))?[\s\S]*?^def (\w+)"
DECLARED = {
    "torchvision": ("torchvision", "models/**/*.py", DECORATED, "torchvision"),
    "timm": ("timm", "models/*.py", DECORATED, "timm"),
    "hf": (
        "transformers",
        "models/auto/*auto*.py",
        r"\"((?![A-Z_]+\")[\w.-]+)\"(?:, |: )\"\w+Config\"",
        "Hugging Face",
    ),
}


def require_library_name(source: str, name: str) -> None:
    """Refuse a name that the library certainly does not have; nothing where the library is not here."""
    package, files, declared, title = DECLARED[source]
    wanted = re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])")
    texts = list(_texts(package, files))
    if not texts or any(wanted.search(text) for text in texts):
        return
    found = {
        last
        for text in texts
        for groups in re.findall(declared, text, re.MULTILINE)
        for last in [next(filter(None, [groups] if isinstance(groups, str) else groups))]
    }
    if found:
        raise unknown_name(title, name, sorted(found))


def require_in_file(file: Path, name: str) -> None:
    """Refuse the name of a function that is nowhere in a Python file, which is not run for it."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, ValueError):  # whoever runs it says what is wrong with it
        return
    made_otherwise = re.search(r"\bimport\s+\*|\b(?:globals|exec|setattr|__getattr__|vars)\b", text)
    if made_otherwise or not name or re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text):
        return
    functions = [found for kind in ("def", "class") for found in re.findall(rf"^{kind} (\w+)", text, re.MULTILINE)]
    if functions:  # else somebody runs the file, and says what is in it
        close = difflib.get_close_matches(name, functions, n=1)
        meant = f" (did you mean {close[0]}?)" if close else ""
        raise InputError(f"{file} has no '{name}'; it has {', '.join(functions[:6])}{meant}")


def unknown_name(kind: str, name: str, known: Iterable[str]) -> InputError:
    """The error for a name that a library does not have, with the names that it may have meant."""
    known = list(known)
    longer = [candidate for candidate in known if candidate.startswith(name)]
    close = longer[:4] or _closest(name, known, 4)
    examples = [candidate for candidate in WELL_KNOWN if candidate in known] or known[:1]
    others = f"; it knows {len(known)} names, such as {', '.join(examples)}"
    hint = f"; did you mean {', '.join(close)}?" if close else others
    return InputError(f"{kind} has no model '{name}'{hint}")


def _closest(name: str, known: Sequence[str], count: int) -> list[str]:
    """Names that are like it, or that begin like it: of a long name a part is often typed."""

    def likeness(candidate: str) -> float:
        whole, beginning = (difflib.SequenceMatcher(None, name, text) for text in (candidate, candidate[: len(name)]))
        return max(whole.ratio(), beginning.ratio() - PART)

    scores = {candidate: likeness(candidate) for candidate in known}
    alike = [candidate for candidate in known if scores[candidate] >= ALIKE]
    return sorted(alike, key=lambda candidate: (-scores[candidate], len(candidate)))[:count]


def _texts(package: str, files: str) -> Iterator[str]:
    try:
        spec = find_spec(package)  # does not import it
    except (ImportError, ValueError):
        return
    for place in (spec.submodule_search_locations or ()) if spec is not None else ():
        for file in sorted(Path(place).glob(files)):
            try:
                yield file.read_text(encoding="utf-8")
            except (OSError, ValueError):
                continue
