"""Which call of which module executed a node."""

from __future__ import annotations

from torch import fx

from skipscope.trace.program import Program

Call = tuple[str, ...]  # keys of nested calls, outermost first; a second call of one module has another key


class Calls:
    def __init__(self, program: Program) -> None:
        self.modules = dict(program.model.named_modules(remove_duplicate=False))
        self._stacks: dict[fx.Node, tuple[tuple[str, str], ...]] = {}

    def stack(self, node: fx.Node) -> tuple[tuple[str, str], ...]:
        """(key, path) of every module call around the node, the model itself first."""
        if node not in self._stacks:
            stack = node.meta.get("nn_module_stack") or {}
            entries = [(key, value[0]) for key, value in stack.items() if not key.startswith("_empty")]
            self._stacks[node] = tuple(entries) or (("", ""),)
        return self._stacks[node]

    def of(self, node: fx.Node) -> Call:
        return tuple(key for key, _ in self.stack(node))

    def path(self, node: fx.Node) -> str:
        """The path of the innermost module that executed the node; empty for the model itself."""
        return self.stack(node)[-1][1]

    def in_leaf(self, node: fx.Node) -> bool:
        """Was the node executed by a module without children that is not the model itself?"""
        path = self.path(node)
        module = self.modules.get(path)
        return path != "" and module is not None and next(module.children(), None) is None
