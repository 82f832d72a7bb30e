"""What is seen of a batch before a graph runs on it: the same inputs as at the trace, and indices that its tables have.

A GPU that meets an index outside of a table ends the process; on a CPU the message says neither which table it was nor
what it holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torch import Tensor, fx
from torch.utils import _pytree as pytree

from skipscope.errors import InputError
from skipscope.trace import operations

if TYPE_CHECKING:
    from skipscope.trace.program import Program, Values

TABLES = frozenset("embedding embedding_bag".split())
# What leaves every index as it is.
KEEPS_ALL = frozenset(
    "alias clone contiguous expand flatten permute reshape squeeze t to _to_copy transpose unflatten unsqueeze view "
    "_unsafe_view".split()
)


def check_structure(expected: pytree.TreeSpec, given: pytree.TreeSpec) -> None:
    """The structures of (args, kwargs)."""
    if given == expected:
        return
    (args, named), (got_args, got_named) = (_unflattened(spec) for spec in (expected, given))
    wanted, came = _in_words(args, named), _in_words(got_args, got_named)
    if wanted == came:  # they differ further inside
        wanted, came = (f"{words}: {form}" for words, form in ((wanted, (args, named)), (came, (got_args, got_named))))
    raise InputError(
        f"inputs: expected {wanted}, as the trunk was traced with, got {came}; pass the same inputs, or trace again "
        "with this batch"
    )


def _unflattened(spec: pytree.TreeSpec) -> tuple[tuple[Any, ...], dict[str, Any]]:
    args, kwargs = pytree.tree_unflatten([...] * spec.num_leaves, spec)
    return args, kwargs


def _in_words(args: tuple[Any, ...], named: dict[str, Any]) -> str:
    parts = []
    if args:
        parts.append(f"{len(args)} positional input{'' if len(args) == 1 else 's'}")
    if named:
        parts.append(f"key{'' if len(named) == 1 else 's'} {', '.join(named)}")
    return " and ".join(parts) or "no inputs"


def check_indices(program: Program, values: Values) -> None:
    """Inputs that are looked up in a table as they are, such as token ids."""
    for node in program.inputs:
        ids = values.get(node)
        if not isinstance(ids, Tensor) or ids.is_floating_point() or ids.is_meta or not ids.numel():
            continue
        for table in dict.fromkeys(_tables(node)):
            rows = int(table.args[0].meta["val"].shape[0])  # type: ignore[union-attr]
            try:
                least, most = (int(number) for number in ids.aminmax())
            except RuntimeError:  # inside of vmap nothing can be looked at
                break
            if least < 0 or most >= rows:
                raise InputError(
                    f"input {node.name!r}: expected ids from 0 to {rows - 1}, the rows of the embedding "
                    f"{_name(program, table)}, got ids from {least} to {most}; is the batch, or its tokenizer, that of "
                    "another model?"
                )


def _tables(node: fx.Node) -> Iterator[fx.Node]:
    """The lookups that a value is the index of, as it is."""
    for user in node.users:
        if operations.name(user) in TABLES and len(user.args) > 1 and user.args[1] is node:
            yield user
        elif operations.name(user) in KEEPS_ALL and user.args and user.args[0] is node:
            yield from _tables(user)


def _name(program: Program, table: fx.Node) -> str:
    """The module that looks up; tied weights have the name of another one."""
    stack = list((table.meta.get("nn_module_stack") or {}).values())
    return (stack[-1][0] if stack else "") or program.weights.get(table.args[0], str(table.args[0]))  # type: ignore[arg-type]
