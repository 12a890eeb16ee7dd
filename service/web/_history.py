"""The last hour of an arm, a row a second, in a file that is mapped to memory: a restart does not lose it.

A row holds what estimate, torque and frame say; NaN without support in the data, or where nothing has arrived lately.
"""

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from drivers.frame import CHANNELS
from service.protocol.control import ControlError
from service.protocol.messages import STATUSES_WITH_VALUE, EstimateMessage, Message

HOUR = 3600  # rows, and seconds
EVERY_NS = 1_000_000_000
FRESH_NS = 3_000_000_000  # greatest age of a value in a new row
MAX_COLUMNS = 64  # in one answer
_PARAMETERS = ("theta", "std")
_JOINTS = ("lam", "innovation", "sigma", "measured", "predicted", *CHANNELS)


class History:
    """Rows of one arm by their Unix time, in the file `path`; in memory alone without one, or if it is unusable."""

    def __init__(self, path: Path | None = None) -> None:
        self._path, self._key = path, 0
        self._rows: Any = np.zeros(0, [("key", np.uint32), ("time", np.float64)])

    def add(self, meta: dict[str, Any], messages: Sequence[Message | None], now_ns: int, time_s: float) -> None:
        """Write the row of a Unix time [s], `now_ns` of CLOCK_MONOTONIC; `meta` is that of the arm's estimator."""
        sizes = dict.fromkeys(_PARAMETERS, len(meta["parameters"])) | dict.fromkeys(_JOINTS, len(meta["joints"]))
        key = zlib.crc32(repr((meta["hash"], sizes)).encode())  # rows of other models are skipped when read
        if key != self._key:
            columns = [(name, np.float32, (size,)) for name, size in sizes.items()]
            self._key, self._rows = key, self._mapped(np.dtype([*self._rows.dtype.descr[:2], *columns]))
        row = self._rows[int(time_s) % HOUR]
        row["key"], row["time"] = key, time_s
        fresh = [m for m in messages if m is not None and now_ns - m.envelope.t_host_ns < FRESH_NS]
        for name, size in sizes.items():
            found = (getattr(getattr(message, "frame", message), name, None) for message in fresh)
            row[name] = next((values for values in found if values is not None and len(values) == size), np.nan)
        for message in fresh:
            if isinstance(message, EstimateMessage) and len(message.status) == sizes["theta"]:
                for name in _PARAMETERS:
                    row[name][~np.isin(message.status, STATUSES_WITH_VALUE)] = np.nan

    def columns(self, names: Sequence[str], now_s: float, time_s: float) -> dict[str, list[float]]:
        """Return `at` (CLOCK_MONOTONIC [s]) and columns such as "theta.3"; raises `ControlError` for unknown ones."""
        times = self._rows["time"]
        age = time_s - times
        order = np.flatnonzero((self._rows["key"] == self._key) & (age >= 0.0) & (age < HOUR))
        order = order[np.argsort(times[order])]
        found = {"at": (now_s - time_s + times[order]).round(3).tolist()}
        for name in names[:MAX_COLUMNS]:
            column, _, index = name.partition(".")
            known = column in self._rows.dtype.names[2:] and index.isdecimal() and len(index) < 5
            if self._key and (not known or int(index) >= self._rows[column].shape[1]):
                raise ControlError("bad_argument", f"of: there is no column {name[:40]!r}; one is 'q.0', of joint 0")
            found[name] = self._rows[column][order, int(index)].tolist() if self._key else []
        return found

    def _mapped(self, dtype: np.dtype[Any]) -> Any:
        size = HOUR * dtype.itemsize
        try:
            if self._path is None:
                raise FileNotFoundError
            if not self._path.exists() or self._path.stat().st_size != size:
                self._path.write_bytes(bytes(size))  # not a sparse file: a full disk is an error here, not later
            rows = np.memmap(self._path, dtype, "r+", shape=(HOUR,))
            rows["key"].max()  # touches every page: otherwise the process would seem to grow for an hour
            return rows
        except OSError:
            return np.zeros(HOUR, dtype)
