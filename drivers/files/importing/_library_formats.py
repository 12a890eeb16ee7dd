"""Opening of HDF5, MATLAB 7.3 and Parquet, by libraries that `thetad[formats]` installs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from drivers.files.importing._mapping import Ref
from drivers.files.importing.data_source import ArraySource, DataError
from rt_core.types import IntArray

HDF5_SUFFIXES = (".h5", ".hdf5")


def _library(name: str, path: Path) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise DataError(f"{path}: reading it needs {name.partition('.')[0]}: pip install 'thetad[formats]'") from error


@contextmanager
def _damage(path: Path, kind: str) -> Iterator[None]:
    try:
        yield
    except (ArithmeticError, LookupError, MemoryError, OSError, RuntimeError, TypeError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path}: not a complete {kind} file: {error}") from error


def open_hdf5(path: Path) -> ArraySource:
    """Open the datasets of all groups, by `group/name`, and fields of tables by `name.field`.

    A MATLAB 7.3 file has the names of a MATLAB file, `struct.field`, and its arrays as MATLAB shows them.
    """
    h5py = _library("h5py", path)
    matlab = path.suffix.lower() == ".mat"
    places: dict[str, tuple[str, str | None]] = {}

    def visit(name: str, item: Any) -> None:
        if not isinstance(item, h5py.Dataset) or name.startswith("#"):  # MATLAB's own groups
            return
        shown = name.replace("/", ".") if matlab else name
        for field in item.dtype.names or (None,):
            places[shown if field is None else f"{shown}.{field}"] = (name, field)

    def read(name: str) -> Any:
        with _damage(path, "HDF5"), h5py.File(path) as file:
            at, field = places[name]
            array = np.asarray(file[at][()] if field is None else file[at][field])
            return array.T if matlab else array

    with _damage(path, "HDF5"), h5py.File(path) as file:
        file.visititems(visit)
    return ArraySource(path, list(places), read)


class _ParquetSource(ArraySource):
    """Columns of a Parquet file; a column of lists of one length is an array (N, k)."""

    def __init__(self, path: Path, names: list[str], read: Callable[[str], Any], dates: Callable[[str], Any]) -> None:
        super().__init__(path, names, read)
        self._dates = dates

    def load_dates(self, ref: Ref) -> IntArray | None:
        """Return a column (N,) of time stamps in ns since 1970, None if it holds none."""
        return self._dates(str(ref)) if str(ref) in self.names else None


def open_parquet(path: Path) -> ArraySource:
    """Open a Parquet file; missing values are NaN."""
    parquet, arrow = _library("pyarrow.parquet", path), _library("pyarrow", path)
    with _damage(path, "Parquet"):
        schema = parquet.read_schema(path)

    def column(name: str) -> Any:
        return parquet.read_table(path, columns=[name])[name].combine_chunks()

    def read(name: str) -> Any:
        with _damage(path, "Parquet"):
            found = column(name)
            if not hasattr(found.type, "value_type"):
                return found.to_numpy(zero_copy_only=False)
            return np.array([np.nan if row is None else row for row in found.to_pylist()])

    def dates(name: str) -> IntArray | None:
        with _damage(path, "Parquet"):
            if not arrow.types.is_timestamp(schema.field(name).type):
                return None
            found = column(name)
            if found.null_count:
                raise DataError(f"{path}: column {name!r} has no time stamp in {found.null_count} rows")
            return np.asarray(found.cast(arrow.timestamp("ns", found.type.tz)).cast(arrow.int64()), dtype=np.int64)

    return _ParquetSource(path, list(schema.names), read, dates)
