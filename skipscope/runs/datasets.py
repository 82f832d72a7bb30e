"""Datasets as the bytes of a netCDF file, and back.

HDF5, which netCDF files are made of, does not forgive: a disk that fills up while it writes is a segmentation fault,
and of 390 files with one flipped bit its reader took 39 for other numbers, raised errors of many kinds on 169 and never
came back from two. So a file is built and parsed in memory, is compared with its SHA-256 before the parser sees it
wherever that is known, and whatever the parser raises becomes one message.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skipscope.errors import SMALL_FILE, InputError, first_line
from skipscope.runs.whole_files import reason_of

if TYPE_CHECKING:
    import xarray

ENGINE: Any = "h5netcdf"
REMEDY = "put back a copy of it, or run the command again"


def dataset_bytes(dataset: xarray.Dataset) -> bytes:
    """The content of a .nc file."""
    file = io.BytesIO()
    dataset.to_netcdf(file, engine=ENGINE)
    return file.getvalue()


def read_dataset(path: Path, sha256: str | None = None) -> xarray.Dataset:
    """A dataset of a run folder, in memory. sha256: of the file as it was written, where that is known."""
    try:
        content = path.read_bytes()
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {reason_of(error)}; {REMEDY}") from error
    if sha256 is not None and hashlib.sha256(content).hexdigest() != sha256:
        raise InputError(f"{path} is damaged: its SHA-256 is not the one that was recorded; {REMEDY}")
    return dataset_in(content, path)


def dataset_in(content: bytes, path: Path) -> xarray.Dataset:
    """path: what messages call it."""
    import xarray

    try:
        with _no_reports_of_closing():
            return xarray.load_dataset(io.BytesIO(content), engine=ENGINE)
    except Exception as error:  # as many kinds as there are layers: h5py, h5netcdf, xarray
        if isinstance(error, MemoryError) and len(content) > SMALL_FILE:
            raise
        raise InputError(
            f"{path} cannot be read as a dataset, it is damaged or no netCDF file ({first_line(error)}); {REMEDY}"
        ) from error


@contextlib.contextmanager
def _no_reports_of_closing() -> Iterator[None]:
    """A file that h5netcdf could not open is closed by it once more when it is forgotten, which fails in its own way;
    Python would report that with a traceback."""
    before = sys.unraisablehook

    def quiet(about: Any) -> None:
        if not str(getattr(about.object, "__module__", "")).startswith(ENGINE):
            before(about)

    sys.unraisablehook = quiet
    try:
        yield
    finally:
        sys.unraisablehook = before
