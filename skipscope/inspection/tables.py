"""Labelled datasets as tables of pandas: everything in one long table, or one dataset with a column per variable."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from skipscope.errors import InputError

if TYPE_CHECKING:
    import pandas
    import xarray

FIRST = ("dataset", "variable")
LAST = "value"


def long_table(datasets: Mapping[str, xarray.Dataset]) -> pandas.DataFrame:
    """One row per number: `dataset`, `variable`, a column per dimension, `value`.

    A row has nothing in the columns of dimensions that its variable does not have. Variables of words are left out, so
    that `value` is a column of numbers; yes and no are 1 and 0.
    """
    import pandas

    tables = []
    for name, dataset in datasets.items():
        if taken := [own for own in (*FIRST, LAST) if own in dataset.dims]:
            raise InputError(
                f"{name} has a dimension '{taken[0]}', which is the name of a column of the long table; rename it, or "
                f"ask for that dataset alone: to_pandas('{name}')"
            )
        for variable, data in dataset.data_vars.items():
            if data.dtype.kind not in "fiub":
                continue
            series = data.astype(float).to_series() if data.dims else pandas.Series([float(data)])
            table = series.rename(LAST).reset_index() if data.dims else series.rename(LAST).to_frame()
            table.insert(0, "variable", str(variable))
            table.insert(0, "dataset", name)
            tables.append(table)
    if not tables:
        return pandas.DataFrame(columns=[*FIRST, LAST])
    found = pandas.concat(tables, ignore_index=True)
    dimensions = [column for column in found.columns if column not in (*FIRST, LAST)]
    for column in dimensions:  # numbers of samples stay whole where other rows have none
        if found[column].dtype.kind == "f" and (found[column].dropna() % 1 == 0).all():
            found[column] = found[column].astype("Int64")
    return found[[*FIRST, *dimensions, LAST]]


def wide_table(dataset: xarray.Dataset, over: Sequence[str] | None) -> pandas.DataFrame:
    """One row per combination of the dimensions `over`, a column per variable that has no others.

    over: by default the dimensions that most variables have. What the dataset knows of them (the stage of a unit, the
    kind of its skip) has columns too.
    """
    if over is None:
        counts = Counter(data.dims for data in dataset.data_vars.values() if data.dims)
        chosen = counts.most_common(1)[0][0] if counts else ()
    else:
        chosen = (over,) if isinstance(over, str) else tuple(over)
        if unknown := [name for name in chosen if name not in dataset.dims]:
            known = ", ".join(map(str, dataset.dims)) or "none"
            raise InputError(f"over={chosen}: there is no dimension {unknown[0]!r}; there are {known}")
        if not chosen or len(set(chosen)) < len(chosen):
            known = ", ".join(map(str, dataset.dims)) or "none"
            raise InputError(f"over={list(chosen)}: expected one dimension or more, each once, of {known}")
    fitting = [name for name, data in dataset.data_vars.items() if set(data.dims) <= set(chosen)]
    beside = [name for name, data in dataset.coords.items() if not set(data.dims) <= set(chosen)]
    table = dataset[fitting].drop_vars(beside, errors="ignore").to_dataframe(dim_order=list(chosen)).reset_index()
    return table[[*chosen, *(column for column in table.columns if column not in chosen)]]
