"""What a Hessian is taken of: which parameters, which batches, and what the loss does with a batch."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

from torch import Tensor, nn

from skipscope.errors import InputError

Loss = Callable[[Any, Any], Tensor]
Params = str | Sequence[str] | Callable[[str, nn.Parameter], bool] | None
Reduction = Literal["mean", "sum"]


def chosen_parameters(model: nn.Module, params: Params) -> dict[str, nn.Parameter]:
    """Those that are named, by name or prefix, or that a predicate picks; a shared one once, by its first name."""
    # A shared parameter may be asked for by any of its names.
    known = dict(model.named_parameters(remove_duplicate=False))
    if not known:
        raise InputError(f"{type(model).__name__} has no parameters, and so no curvature")
    if params is None:
        picked = [name for name, parameter in known.items() if parameter.requires_grad]
        missing = "none of its parameters requires gradients; name some with params="
    elif callable(params):
        picked = [name for name, parameter in known.items() if params(name, parameter)]
        missing = "params= picks none of its parameters"
    else:
        wanted = [params] if isinstance(params, str) else list(params)
        for entry in wanted:
            if not any(_under(name, entry) for name in known):
                prefixes = {".".join(name.split(".")[:depth]) for name in known for depth in range(1, 9)}
                near = difflib.get_close_matches(entry, sorted(prefixes), 3) or list(known)[:3]
                raise InputError(
                    f"{type(model).__name__} has no parameter or module {entry!r}; did you mean {', '.join(near)}?"
                )
        picked = [name for name in known if any(_under(name, entry) for entry in wanted)]
        missing = "params=[] names none of its parameters"
    chosen: dict[str, nn.Parameter] = {}
    for name in picked:
        if not any(known[name] is parameter for parameter in chosen.values()):
            chosen[name] = known[name]
    if not chosen or not sum(parameter.numel() for parameter in chosen.values()):
        raise InputError(f"{type(model).__name__}: {missing}")
    odd = [name for name, parameter in chosen.items() if not parameter.is_floating_point()]
    if odd:
        raise InputError(f"parameters {listed(odd)} are not real floating-point numbers; leave them out with params=")
    if len({parameter.device for parameter in chosen.values()}) > 1:
        raise InputError("the chosen parameters are on several devices; move the model to one, or choose with params=")
    return chosen


def checked_batches(batches: Any) -> Iterable[Any]:
    if isinstance(batches, tuple | list) and len(batches) == 2:
        if not isinstance(batches[1], tuple | list):
            return [tuple(batches)]
        if not isinstance(batches[0], tuple | list):
            raise InputError(
                f"expected pairs (input, target) as batches, got {described(batches[0])} and "
                f"{described(batches[1])}; one pair with a target like that goes into a list: [(input, target)]"
            )
    if isinstance(batches, Tensor) or not isinstance(batches, Iterable):
        raise InputError(f"expected pairs (input, target) as batches, got {described(batches)}")
    if iter(batches) is batches:
        raise InputError(
            f"batches is a {type(batches).__name__}, which can be read only once; give a list or a data loader"
        )
    return batches


def checked_reduction(loss: Loss, reduction: str | None) -> Reduction:
    if reduction not in (None, "mean", "sum"):
        raise InputError(f"expected reduction to be 'mean' or 'sum', got {reduction!r}")
    own = {"batchmean": "mean"}.get(getattr(loss, "reduction", ""), getattr(loss, "reduction", None))
    if own in ("mean", "sum") and reduction not in (None, own):
        raise InputError(f"{type(loss).__name__} gives a batch's {own}, but reduction={reduction!r}; leave it out")
    return "sum" if (reduction or own) == "sum" else "mean"


def _under(name: str, entry: str) -> bool:
    return name == entry or name.startswith(f"{entry}.")


def described(thing: Any) -> str:
    length = f" of length {len(thing)}" if isinstance(thing, tuple | list) else ""
    return (
        f"a tensor of shape {tuple(thing.shape)}" if isinstance(thing, Tensor) else f"a {type(thing).__name__}{length}"
    )


def listed(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
