"""Looks, one after another: each measure is one dataset with the dimension `step`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy

from skipscope.errors import InputError

if TYPE_CHECKING:
    import xarray

MEASURE = "monitor"  # the attribute `measure` of all of them; `part` says which it is


class Recorded:
    """The looks of one measure. Coordinates and attributes are those of the first."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.steps: list[int] = []
        self.columns: dict[str, list[numpy.ndarray]] = {}
        self._first: xarray.Dataset | None = None

    @classmethod
    def of(cls, name: str, dataset: xarray.Dataset) -> Recorded:
        """From what a run folder has of it."""
        found = cls(name)
        for place, step in enumerate(dataset["step"].values.tolist()):
            found.add(step, dataset.isel(step=place, drop=True))
        return found

    def add(self, step: int, look: xarray.Dataset) -> None:
        """A look at a step; one at a later or the same step, from before a resumption, is forgotten.

        One that does not fit the others is refused, and nothing is changed: a module was added, or renamed.
        """
        if self._first is not None:
            self._require_like(self._first, look)
        self.forget(step)
        self.steps.append(step)
        if self._first is None:
            self._first = look
        for key, values in look.data_vars.items():
            self.columns.setdefault(str(key), []).append(values.values)

    def forget(self, step: int) -> None:
        """All from this step on."""
        kept = sum(earlier < step for earlier in self.steps)
        del self.steps[kept:]
        for column in self.columns.values():
            del column[kept:]
        if not kept:
            self.columns, self._first = {}, None

    def _require_like(self, first: xarray.Dataset, look: xarray.Dataset) -> None:
        for dimension in {**first.sizes, **look.sizes}:
            before, now = (_labels(one, str(dimension)) for one in (first, look))
            if before != now:
                changed = [*(set(before) ^ set(now)), *now][:1]
                raise InputError(
                    f"the model has changed since the first look: it had {len(before)} of {dimension}, and has "
                    f"{len(now)} ({changed[0] if changed else 'none'} differs); make another monitor to go on"
                )
        shapes = [{str(key): one[key].shape for key in one.data_vars} for one in (first, look)]
        if shapes[0] != shapes[1]:
            raise InputError("the model has changed since the first look; make another monitor to go on")

    def column(self, key: str) -> numpy.ndarray:
        """(steps, ...)."""
        return numpy.stack(self.columns[key])

    def labels(self, dimension: str) -> list[str]:
        assert self._first is not None
        return [str(name) for name in self._first[dimension].values]

    def to_dataset(self, **about: Any) -> xarray.Dataset:
        import xarray

        first = self._first
        assert first is not None, "there is no dataset before the first look"
        data = {
            key: (("step", *first[key].dims), numpy.stack(column), first[key].attrs)
            for key, column in self.columns.items()
        }
        step = xarray.Variable("step", self.steps, {"long_name": "step of the training", "units": "count"})
        attributes = {**first.attrs, "measure": MEASURE, "part": self.name, **about}
        return xarray.Dataset(data, {**first.coords, "step": step}, attributes)


def _labels(look: xarray.Dataset, dimension: str) -> list[str]:
    """Numbers of places where a dimension has no names."""
    return [str(name) for name in look[dimension].values] if dimension in look.sizes else []
