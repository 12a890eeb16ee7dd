"""Where the joints of an arm stand, and which are not confirmed, kept for the next run of its acquisition."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from rt_core.types import FloatArray
from service.io.log import Log
from service.io.state_file import StateError, load_state, save_state

FILE_NAME = "positions.state"
EVERY_NS = 1_000_000_000  # between two writes
DOUBTS = (0.0, 1.0, 2.0, 3.0)  # none; came back elsewhere; not known at some start; both


def load_positions(path: Path, owner: str, n: int, log: Log) -> FloatArray | str | None:
    """Return (n, 2): where each joint stood [rad or m], NaN if it moved, and doubts as of `ReturnedDrives.stood`.

    None if there is no file; the reason, also in the log, if it is damaged, or of another robot or other settings.
    """
    try:
        stood = np.asarray(load_state(path, owner).get("stood"))
        if stood.shape == (n, 2) and stood.dtype == np.float64 and np.isin(stood[:, 1], DOUBTS).all():
            return stood
        reason = f"{path}: holds no positions of {n} joints"
    except FileNotFoundError:
        return None
    except (OSError, StateError) as error:
        reason = str(error)
    log.warning("positions_unknown", reason=reason)
    return reason


class PositionKeeper:
    """Writes what an acquisition says in its heartbeats, in a thread: it must not wait for a disk itself."""

    def __init__(self, path: Path, owner: str, log: Log) -> None:
        self._path, self._owner, self._log, self._failed = path, owner, log, False
        self._pool = ThreadPoolExecutor(1, "positions")
        self._kept: Any = None
        self._next_ns = 0

    def note(self, stood: Any, now_ns: int, *, last: bool = False) -> None:
        """Keep `stood`, as of `load_positions` with None for NaN, if it is another; once a second, but for the last."""
        if stood is not None and stood != self._kept and (last or now_ns >= self._next_ns):
            self._kept, self._next_ns = stood, now_ns + EVERY_NS
            self._pool.submit(self._save, stood)

    def _save(self, stood: Any) -> None:
        try:
            self._path.parent.mkdir(exist_ok=True)  # an estimator that makes it may still compile
            save_state(self._path, {"stood": np.array(stood, np.float64)}, self._owner)
            self._failed = False
        except (OSError, TypeError, ValueError) as error:  # who was not confirmed is not forgotten: the old file stays
            if not self._failed:
                self._log.warning("positions_not_kept", reason=str(error))
            self._kept, self._failed = None, True

    def close(self) -> None:
        """Finish writing."""
        self._pool.shutdown()
