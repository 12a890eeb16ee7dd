"""Tables in text files, such as CSV."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from drivers.files.importing._mapping import CsvTable, Ref
from drivers.files.importing.data_source import DataError, DataSource, Progress
from rt_core.types import FloatArray, IntArray

_MISSING = ("", "nan", "na", "n/a", "null", "none", "-")
_LOOKAHEAD = 200


class TextSource(DataSource):
    """A table in a text file, with or without a header; raises `DataError` without a row of numbers."""

    def __init__(self, path: Path, csv: CsvTable, masking: bool, progress: Progress | None) -> None:
        super().__init__(path)
        self._csv, self._masking, self._progress = csv, masking, progress
        self._encoding = "utf-8-sig" if csv.encoding.lower().replace("_", "-") in ("utf-8", "utf8") else csv.encoding
        self._names: list[str] = []
        self._first_row = 0  # number of lines before the first row
        self._delimiter: str | None = None  # None: any white space
        self._width = 0
        self._inspect()

    @property
    def names(self) -> list[str]:
        """Names in the header, or the columns' numbers without one."""
        return self._names or [str(i) for i in range(self._width)]

    def has(self, ref: Ref) -> bool:
        """Return whether there is a column of that name, or of that number from 0."""
        return 0 <= ref < self._width if isinstance(ref, int) else ref in self._names

    def check(self, ref: Ref, where: str) -> None:
        """Raise `DataError` if the column does not exist, or if its name occurs twice."""
        super().check(ref, where)
        if isinstance(ref, str) and self._names.count(ref) > 1:
            raise DataError(f"{self.path}: {where}: the header has column {ref!r} twice; name it by its number from 0")

    def load(self, refs: Iterable[Ref]) -> dict[Ref, FloatArray | IntArray]:
        """Load columns (N,); raises `DataError` with line and column of what is not a number."""
        indices = {ref: ref if isinstance(ref, int) else self._names.index(ref) for ref in refs}
        used = sorted(set(indices.values()))
        try:
            table = np.loadtxt(
                self._rows(), delimiter=self._delimiter, comments=None, quotechar='"', usecols=used, ndmin=2,
                dtype=np.float64,
            )  # fmt: skip
        except ValueError:
            table = self._read_fields(used)
        return {ref: np.ascontiguousarray(table[:, used.index(index)]) for ref, index in indices.items()}

    def load_dates(self, ref: Ref) -> IntArray | None:
        """Return a column of ISO 8601 dates in ns since 1970; None if its first row holds none.

        Raises `DataError` with the line of what is no date.
        """
        index = ref if isinstance(ref, int) else self._names.index(ref)
        found: list[int] = []
        for number, line in self._data_lines():
            fields = self._fields(line)
            value = _date(fields[index]) if index < len(fields) else None
            if value is None:
                if not found:
                    return None
                shown = fields[index] if index < len(fields) else ""
                raise DataError(f"{self.path}: line {number}, column {self.names[index]!r}: {shown!r} is not a date")
            found.append(value)
        return np.array(found, dtype=np.int64)

    def _lines(self) -> Iterator[tuple[int, str]]:
        """Yield line numbers from 1 and lines."""
        try:
            with self.path.open(encoding=self._encoding, newline=None) as file:
                yield from enumerate(file, start=1)
        except UnicodeDecodeError as error:
            raise DataError(
                f"{self.path}: not {self._csv.encoding} text ({error.reason}); set csv.encoding, such as 'latin-1'"
            ) from None

    def _data_lines(self) -> Iterator[tuple[int, str]]:
        comment = self._csv.comment
        for number, line in self._lines():
            if number > self._first_row and not line.isspace() and line.lstrip()[0] not in comment:
                yield number, line.replace(",", ".") if self._csv.decimal == "," else line

    def _rows(self) -> Iterator[str]:
        size = self.path.stat().st_size
        done = 0
        for count, (_, line) in enumerate(self._data_lines()):
            done += len(line)
            if self._progress is not None and count % 8192 == 0:
                self._progress(min(done / size, 1.0))
            yield line

    def _fields(self, line: str) -> list[str]:
        if self._delimiter is None:
            fields = line.split()
        elif '"' in line:
            fields = _split_quoted(line.rstrip("\r\n"), self._delimiter)
        else:
            fields = line.rstrip("\r\n").split(self._delimiter)
        return [field.strip().strip('"').strip() for field in fields]

    def _inspect(self) -> None:
        """Find the delimiter, the header and the first row of numbers."""
        csv = self._csv
        head: list[tuple[int, str]] = []
        for number, line in self._lines():
            if number > csv.skip_rows and line.strip():
                head.append((number, line))
            if len(head) >= _LOOKAHEAD:
                break
        plain = [item for item in head if item[1].lstrip()[0] not in csv.comment]
        if not plain:
            raise DataError(f"{self.path}: holds no rows")
        if csv.header is True:
            header: tuple[int, str] | None = plain[0]
            first = plain[1 + csv.skip_after_header :][:1]
            # A header may itself be a comment, as numpy.savetxt writes it.
            if head[0][0] < plain[0][0] and self._is_row(plain[0][1], plain[1][1] if len(plain) > 1 else None):
                header, first = head[0], plain[csv.skip_after_header :][:1]
            if not first:
                raise DataError(f"{self.path}: holds a header but no rows")
            first_line = first[0]
        else:
            width = len(self._split(plain[-1][1]))
            after = [*plain[1:], ("", None)]
            rows = [a for a, b in zip(plain, after, strict=True) if self._is_row(a[1], b[1], width)]
            if not rows:
                raise DataError(
                    f"{self.path}: no row of numbers in its first {len(head)} lines; check csv.delimiter and "
                    f"csv.decimal (first line: {head[0][1].strip()[:60]!r})"
                )
            first_line = rows[0]
            header = None
        self._delimiter = self._sniff(first_line[1])
        self._width = len(self._fields(first_line[1]))
        self._first_row = first_line[0] - 1
        if csv.header == "auto":
            before = [item for item in head if item[0] < first_line[0]]
            fitting = [item for item in before if len(self._header(item[1])) == self._width]
            named = [item for item in fitting if item in plain]
            # The first of several lines has the names (units may follow), or the last of several comments.
            header = named[0] if named else fitting[-1] if fitting else None
        if header is not None:
            self._names = self._header(header[1])
            if len(self._names) != self._width:
                raise DataError(
                    f"{self.path}: the header (line {header[0]}) has {len(self._names)} columns and the first row "
                    f"(line {first_line[0]}) {self._width}; check csv.delimiter"
                )

    def _header(self, line: str) -> list[str]:
        return self._fields(line.strip().lstrip(self._csv.comment).strip() if self._csv.comment else line.strip())

    def _sniff(self, line: str) -> str | None:
        delimiter = self._csv.delimiter
        if delimiter == "auto":
            candidates = [c for c in (";", "\t", ",") if c in line and c != self._csv.decimal]
            return candidates[0] if candidates else None
        return None if delimiter == "whitespace" else delimiter

    def _split(self, line: str) -> list[str]:
        """Return the fields of a line whose delimiter is not known yet."""
        self._delimiter = self._sniff(line)
        return self._fields(line.replace(",", ".") if self._csv.decimal == "," else line)

    def _is_row(self, line: str, after: str | None = None, width: int | None = None) -> bool:
        """Return whether a line holds numbers.

        Text beside them, such as a mode or a date, is allowed if the line `after` has text in the same columns and the
        file so many fields: a preamble or a header has not.
        """
        numbers = [_number(field) for field in self._split(line)]
        if not any(value is not None and np.isfinite(value) for value in numbers):
            return False
        text = [value is None for value in numbers]
        if not any(text):
            return True
        if after is None or (width is not None and len(text) != width) or 2 * sum(text) > len(text):
            return False
        return text == [_number(field) is None for field in self._split(after)]

    def _read_fields(self, used: list[int]) -> FloatArray:
        """Read field by field: missing values become NaN if `masking`, otherwise an error with their place."""
        rows: list[list[float]] = []
        for number, line in self._data_lines():
            fields = self._fields(line)
            if len(fields) <= used[-1]:
                raise DataError(
                    f"{self.path}: line {number} has {len(fields)} columns, line {self._first_row + 1} has "
                    f"{self._width}; the file was cut off or is damaged there"
                )
            row: list[float] = []
            for index in used:
                value = _number(fields[index])
                if value is None or (np.isnan(value) and not self._masking):
                    name = self.names[index]
                    what = "is empty" if not fields[index] else f"{fields[index]!r} is not a number"
                    hint = " (missing = 'mask' in the mapping marks such samples invalid)" if value is not None else ""
                    raise DataError(f"{self.path}: line {number}, column {name!r}: {what}{hint}")
                row.append(value)
            rows.append(row)
        return np.array(rows, dtype=np.float64)


def _number(field: str) -> float | None:
    """Return the value of a field; NaN for a missing value; None for anything else."""
    if field.lower() in _MISSING:
        return np.nan
    try:
        return float(field)
    except ValueError:
        return None


def _date(field: str) -> int | None:
    """Return an ISO 8601 date and time in ns since 1970, in UTC without a time zone; None for anything else."""
    if len(field) < len("2026-01-01T00:00") or field[4:5] != "-":
        return None
    try:
        moment = datetime.fromisoformat(field)
    except ValueError:
        return None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    whole = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (whole.days * 86_400 + whole.seconds) * 1_000_000_000 + whole.microseconds * 1000


def _split_quoted(line: str, delimiter: str) -> list[str]:
    fields: list[str] = []
    quoted = False
    start = 0
    for position, character in enumerate(line):
        if character == '"':
            quoted = not quoted
        elif character == delimiter and not quoted:
            fields.append(line[start:position])
            start = position + 1
    return [*fields, line[start:]]
