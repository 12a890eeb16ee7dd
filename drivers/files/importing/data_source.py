"""An opened log of any format, and its errors; columns by name, by `name[k]` for column k of an array, or by number."""

import difflib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from drivers.files.importing._mapping import ImportFailedError, Ref
from rt_core.types import FloatArray, IntArray

#: Called with the fraction of the data read or written, 0 to 1.
Progress = Callable[[float], None]

INDEXED = re.compile(r"(.+)\[(\d+)\]")


class DataError(ImportFailedError, ValueError):
    """The data cannot be read, or contradict the mapping."""


class DataNotFoundError(ImportFailedError, FileNotFoundError):
    """The data file does not exist."""


class DataSource(ABC):
    """An opened log."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.warnings: tuple[str, ...] = ()
        self.joint_names: tuple[str, ...] = ()  # that the columns of arrays belong to; empty where the log has none

    @property
    @abstractmethod
    def names(self) -> list[str]:
        """Names of the columns or arrays."""

    @abstractmethod
    def load(self, refs: Iterable[Ref]) -> dict[Ref, FloatArray | IntArray]:
        """Load columns, each (N,), or arrays of their own shape."""

    def load_dates(self, ref: Ref) -> IntArray | None:
        """Return a column (N,) of dates in ns since 1970, None if it holds none."""
        del ref  # few formats hold dates
        return None

    def has(self, ref: Ref) -> bool:
        """Return whether a column exists."""
        if isinstance(ref, int):
            return False
        match = INDEXED.fullmatch(ref)
        return ref in self.names or (match is not None and match[1] in self.names)

    def check(self, ref: Ref, where: str) -> None:
        """Raise `DataError` with the existing columns if `ref` is none of them; `where` is the mapping's key."""
        if not self.has(ref):
            raise DataError(f"{self.path}: {where} names column {ref!r}, which is absent; {self._present(ref)}")

    def _present(self, ref: Ref) -> str:
        names = self.names
        lower = {name.lower(): name for name in names}
        close = difflib.get_close_matches(str(ref).lower(), list(lower), 1)
        hint = f"did you mean {lower[close[0]]!r}? " if close else ""
        shown = ", ".join(names[:40]) + (f", and {len(names) - 40} more" if len(names) > 40 else "")
        return f"{hint}present are: {shown or 'none'}"


class ArraySource(DataSource):
    """Named arrays; `dates` returns a column of time stamps in ns since 1970, None if it holds none."""

    def __init__(
        self, path: Path, names: list[str], read: Callable[[str], Any],
        dates: Callable[[str], IntArray | None] = lambda _: None,
    ) -> None:  # fmt: skip
        super().__init__(path)
        self._names, self._read, self._dates = names, read, dates

    def load_dates(self, ref: Ref) -> IntArray | None:
        """Return a column (N,) of dates in ns since 1970, None if it holds none."""
        return self._dates(str(ref)) if str(ref) in self._names else None

    @property
    def names(self) -> list[str]:
        """Names of the arrays."""
        return self._names

    def load(self, refs: Iterable[Ref]) -> dict[Ref, FloatArray | IntArray]:
        """Load arrays; raises `DataError` for text, complex numbers, objects."""
        found: dict[Ref, FloatArray | IntArray] = {}
        for ref in refs:
            name = str(ref)
            match = INDEXED.fullmatch(name)
            if name in self._names or match is None:
                found[ref] = self._numbers(name)
                continue
            array = self._numbers(match[1])
            index = int(match[2])
            if array.ndim != 2 or index >= array.shape[1]:
                raise DataError(
                    f"{self.path}: {name}: array {match[1]!r} has shape {array.shape}, no column {index} (from 0)"
                )
            found[ref] = array[:, index]
        return found

    def _numbers(self, name: str) -> FloatArray | IntArray:
        array = np.asarray(self._read(name))
        if array.dtype.kind in "iu":
            return array.astype(np.int64)
        if array.dtype.kind in "fb":
            return array.astype(np.float64)
        raise DataError(f"{self.path}: array {name!r} holds {array.dtype}, not real numbers")
