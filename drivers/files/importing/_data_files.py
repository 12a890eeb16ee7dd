"""Opening of logs by their suffix, as float64, or int64 for integers; some by libraries of `thetad[formats]`."""

import struct
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io

from drivers.files.importing._mapping import CsvTable, Ref
from drivers.files.importing._ros_bags import BAG_SUFFIXES, bag_file, read_mcap_bag, read_sqlite_bag
from drivers.files.importing._text_files import TextSource
from drivers.files.importing.data_source import ArraySource, DataError, DataNotFoundError, DataSource, Progress
from drivers.files.recordings.mcap_scan import Scan
from drivers.files.recordings.recording import RecordingError, read_recording
from rt_core.types import FloatArray, IntArray

#: What the parsers of NumPy, SciPy and zipfile raise on incomplete or damaged files.
_DAMAGE = (
    ArithmeticError, EOFError, LookupError, MemoryError, NotImplementedError, OSError, RecursionError, RuntimeError,
    SyntaxError, TypeError, ValueError, struct.error, tokenize.TokenError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip

HDF5_SUFFIXES = (".h5", ".hdf5")
TEXT_SUFFIXES = (".csv", ".txt", ".tsv", ".dat")
SUFFIXES = (*TEXT_SUFFIXES, ".npz", ".npy", ".mat", *HDF5_SUFFIXES, ".parquet", *BAG_SUFFIXES)


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


class MatrixSource(DataSource):
    """One array (N, k) without names; columns are numbered from 0."""

    def __init__(self, path: Path, array: FloatArray) -> None:
        super().__init__(path)
        self._array = array

    @property
    def names(self) -> list[str]:
        """Numbers of the columns."""
        return [str(i) for i in range(self._array.shape[1])]

    def has(self, ref: Ref) -> bool:
        """Return whether the array has a column of that number."""
        return isinstance(ref, int) and 0 <= ref < self._array.shape[1]

    def load(self, refs: Iterable[Ref]) -> dict[Ref, FloatArray | IntArray]:
        return {ref: self._array[:, int(ref)] for ref in refs}


def open_data(path: Path, csv: CsvTable, masking: bool = False, progress: Progress | None = None) -> DataSource:
    """Open a log by its suffix.

    For text files: `csv` describes the layout, `masking` turns empty fields into NaN instead of an error, and
    `progress` is called while reading.  Raises `DataNotFoundError`; `DataError` if the file is empty, of an unknown
    format, incomplete, or damaged.
    """
    try:
        if path.is_dir():
            path = bag_file(path)
        with path.open("rb"):  # what cannot be read is not damaged
            size = path.stat().st_size
    except FileNotFoundError:
        raise DataNotFoundError(f"{path}: no such file") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    if size == 0:
        raise DataError(f"{path}: the file is empty")
    suffix = path.suffix.lower()
    try:
        if suffix in TEXT_SUFFIXES:
            return TextSource(path, csv, masking=masking, progress=progress)
        if suffix == ".npz":
            return _open_npz(path)
        if suffix == ".npy":
            return _open_npy(path)
        if suffix == ".mat":
            return _open_mat(path)
        if suffix == ".mcap":
            return _open_recording(path)
        if suffix == ".db3":
            return read_sqlite_bag(path)
        if suffix in HDF5_SUFFIXES:
            return open_hdf5(path)
        if suffix == ".parquet":
            return open_parquet(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    raise DataError(f"{path}: format {suffix or 'without suffix'!r} is not known; known are {', '.join(SUFFIXES)}")


def _open_npz(path: Path) -> DataSource:
    if not zipfile.is_zipfile(path):
        raise DataError(f"{path}: not a complete NPZ file; it was cut off, or is of another format")
    try:
        with np.load(path, allow_pickle=False) as archive:
            names = list(archive.files)
    except _DAMAGE as error:
        raise DataError(f"{path}: the NPZ file is damaged: {error}") from error

    def read(name: str) -> Any:
        try:
            with warnings.catch_warnings(action="ignore"), np.load(path, allow_pickle=False) as archive:
                return archive[name]
        except _DAMAGE as error:
            if "allow_pickle" in str(error):
                raise DataError(f"{path}: array {name!r} cannot be read without running its pickle") from error
            raise DataError(f"{path}: array {name!r} is damaged: {error}") from error

    return ArraySource(path, names, read)


def _open_npy(path: Path) -> DataSource:
    try:
        with warnings.catch_warnings(action="ignore"):
            array = np.load(path, allow_pickle=False)
    except _DAMAGE as error:
        raise DataError(f"{path}: not a complete NPY file of numbers: {error}") from error
    if array.dtype.names:
        return ArraySource(path, list(array.dtype.names), lambda name: array[name])
    if array.ndim != 2 or array.dtype.kind not in "iufb":
        raise DataError(
            f"{path}: holds {array.dtype} of shape {array.shape}; a table of numbers (N, columns) is needed"
        )
    return MatrixSource(path, array.astype(np.float64))


def _open_mat(path: Path) -> DataSource:
    try:
        with warnings.catch_warnings(action="ignore"):
            content = scipy.io.loadmat(path, simplify_cells=True)
    except NotImplementedError:  # version 7.3 is HDF5
        return open_hdf5(path)
    except (*_DAMAGE, scipy.io.matlab.MatReadError) as error:
        raise DataError(f"{path}: not a complete MATLAB file (up to v7): {error}") from error
    arrays: dict[str, Any] = {}

    def flatten(prefix: str, value: Any) -> None:
        if isinstance(value, dict):
            for key, item in value.items():
                flatten(f"{prefix}.{key}" if prefix else key, item)
        else:
            arrays[prefix] = value

    flatten("", {key: value for key, value in content.items() if not key.startswith("__")})
    return ArraySource(path, list(arrays), lambda name: arrays[name])


def _open_recording(path: Path) -> DataSource:
    try:
        scan = Scan(path)
        states = read_mcap_bag(scan)
        if states is not None:
            return states
        recording = read_recording(path)
    except RecordingError as error:
        raise DataError(str(error)) from error
    arrays: dict[str, Any] = {"t": recording.t, "t_ns": recording.t_ns, "seq": recording.seq, **recording.channels}
    return ArraySource(path, list(arrays), lambda name: arrays[name])
