"""Opening of HDF5, MATLAB 7.3 and Parquet, by libraries that `thetad[formats]` installs."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

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
        raise DataError(f"{path}: not a complete {kind} file: {' '.join(str(error).split())}") from error


def open_hdf5(path: Path) -> ArraySource:
    """Open the datasets of all groups, by `group/name`, and fields of tables by `name.field`.

    A MATLAB 7.3 file has the names of a MATLAB file, `struct.field`, and its arrays as MATLAB shows them.
    """
    h5py = _library("h5py", path)
    matlab = path.suffix.lower() == ".mat"
    places: dict[str, tuple[str, str | None]] = {}

    def visit(group: Any, prefix: str, above: tuple[int, ...]) -> None:
        for key in group:
            item = group.get(key)  # None behind a dead link
            if prefix == "" and key.startswith("#"):  # MATLAB's own groups
                continue
            if isinstance(item, h5py.Group):
                address = int(h5py.h5o.get_info(item.id).addr)
                if address not in above:  # links may form a circle
                    visit(item, f"{prefix}{key}/", (*above, address))
            elif isinstance(item, h5py.Dataset):
                with suppress(TypeError):  # of a kind that NumPy does not have
                    for field in item.dtype.names or (None,):
                        shown = f"{prefix}{key}".replace("/", "." if matlab else "/")
                        places[shown if field is None else f"{shown}.{field}"] = (f"{prefix}{key}", field)

    def read(name: str) -> Any:
        with _damage(path, "HDF5"), h5py.File(path) as file:
            at, field = places[name]
            dataset = file[at]
            if matlab and dataset.attrs.get("MATLAB_class") == b"char":
                return np.array("text")
            if matlab and "MATLAB_empty" in dataset.attrs:
                return np.zeros(tuple(int(size) for size in dataset[()]))
            array = np.asarray(dataset[()] if field is None else dataset[field])
            return array.T if matlab else array

    with _damage(path, "HDF5"), h5py.File(path) as file:
        visit(file, "", ())
    return ArraySource(path, list(places), read)


def open_parquet(path: Path) -> ArraySource:
    """Open a Parquet file; missing values are NaN, and a column of lists of one length is an array (N, k)."""
    parquet, arrow = _library("pyarrow.parquet", path), _library("pyarrow", path)
    types = arrow.types
    with _damage(path, "Parquet"):
        schema = parquet.read_schema(path)

    def column(name: str) -> Any:
        return parquet.read_table(path, columns=[name])[name].combine_chunks()

    def read(name: str) -> Any:
        with _damage(path, "Parquet"):
            found, of = column(name), schema.field(name).type
            if types.is_list(of) or types.is_large_list(of) or types.is_fixed_size_list(of):
                rows, there = found.drop_null(), found.is_valid().to_numpy(zero_copy_only=False)
                values = np.atleast_1d(numbers(name, rows.flatten(), of.value_type))
                if values.size % max(len(rows), 1) or len(set(rows.value_lengths().to_pylist())) > 1:
                    raise DataError(f"{path}: column {name!r} holds lists of different lengths")
                array = np.full((len(found), values.size // max(len(rows), 1)), np.nan)
                array[there] = values.reshape(len(rows), -1)
                return array
            return numbers(name, found, of)

    def numbers(name: str, found: Any, of: Any) -> Any:
        if types.is_decimal(of) or types.is_null(of) or (types.is_boolean(of) and found.null_count):
            found = found.cast(arrow.uint8()) if types.is_boolean(of) else found
            return found.cast(arrow.float64()).to_numpy(zero_copy_only=False)
        if not (types.is_integer(of) or types.is_floating(of) or types.is_boolean(of)):
            raise DataError(f"{path}: column {name!r} holds {of}, not real numbers")
        return found.to_numpy(zero_copy_only=False)

    def dates(name: str) -> IntArray | None:
        with _damage(path, "Parquet"):
            if not types.is_timestamp(schema.field(name).type):
                return None
            found = column(name)
            if found.null_count:
                raise DataError(f"{path}: column {name!r} has no time stamp in {found.null_count} rows")
            return np.asarray(found.cast(arrow.timestamp("ns", found.type.tz)).cast(arrow.int64()), dtype=np.int64)

    return ArraySource(path, list(schema.names), read, dates)
