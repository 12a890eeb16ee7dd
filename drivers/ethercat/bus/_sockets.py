"""Access to SOEM's raw sockets, for precise waiting and for discarding stale frames."""

import os
import select
import socket
import stat
import time

from drivers.ethercat.bus._frame_filter import attach

#: Frames discarded in one call: more than a socket holds by default.
_MAX_STALE = 1000
#: After so many exchanges in a row with a frame on the other one only, a socket of a ring is not waited for.
_ABSENT_AFTER = 3


class FrameSockets:
    """Duplicates of the sockets that a master has opened, all but those of `before` (`open_sockets`).

    SOEM's receive time-outs round up to two kernel ticks, so one lost frame would cost 5 to 8 ms; waiting on the
    duplicates is precise.
    """

    def __init__(self, before: set[int]) -> None:
        self.stale = 0  # frames discarded
        self.filtered = False  # whether the kernel accepted the filter
        self._sockets: list[socket.socket] = []
        self._missed: dict[socket.socket, int] = {}  # exchanges in a row with a frame on the other one only
        for number in sorted(open_sockets() - before):
            copy = socket.socket(fileno=os.dup(number))
            if copy.family == socket.AF_PACKET:
                self._sockets.append(copy)
            else:
                copy.close()

    def __len__(self) -> int:
        return len(self._sockets)

    @property
    def dead(self) -> bool:
        """Whether a network device was removed: its socket stays dead, also if there is another one of its name."""
        return not all(one.getsockname()[0] for one in self._sockets)

    @property
    def one_sided(self) -> bool:
        """Whether nothing arrives on one of the sockets, as with a cable out at the master."""
        return any(missed >= _ABSENT_AFTER for missed in self._missed.values())

    def admit(self, image_bytes: int | None = None) -> None:
        """Accept only consistent frames, with `image_bytes` of process data unless None.

        Where the kernel has no room for the length check, `filtered` is False and only consistency is checked.
        """
        refused = [one for one in self._sockets if not attach(one, image_bytes)]
        self.filtered = not refused
        if image_bytes is not None:
            for one in refused:
                attach(one)

    def close(self) -> None:
        """Close the copies."""
        for one in self._sockets:
            one.close()
        self._sockets.clear()

    def flush(self) -> None:
        """Discard the frames that wait in the sockets.

        SOEM has 16 indices for frames: an answer 16 frames late would pass for a later one, and so would all after it.
        """
        for one in self._sockets:
            try:
                for _ in range(_MAX_STALE):
                    one.recv(2048, socket.MSG_DONTWAIT)
                    self.stale += 1
                    self._missed[one] = 0
            except OSError:  # nothing more; or the link is down, and the next exchange has no answer
                continue

    def wait(self, deadline_ns: int) -> int:
        """Wait until each socket has a frame, but for one that has long had none (`one_sided`).

        Return the remaining time for SOEM [us], 0 if a socket has no frame.
        """
        missing = set(self._sockets)
        waiting = {one for one in missing if self._missed.get(one, 0) < _ABSENT_AFTER}
        while waiting:
            left_ns = deadline_ns - time.monotonic_ns()
            ready = select.select(waiting, [], [], left_ns * 1e-9)[0] if left_ns > 0 else []
            if not ready:
                break
            waiting.difference_update(ready)
            missing.difference_update(ready)
        if missing:  # a side that was absent may be there again
            missing.difference_update(select.select(missing, [], [], 0.0)[0])
        if len(missing) < len(self._sockets):  # otherwise the frame was lost
            self._missed = {one: self._missed.get(one, 0) + 1 if one in missing else 0 for one in self._sockets}
        return 0 if missing else max((deadline_ns - time.monotonic_ns()) // 1000, 0)

    def set_blocking(self, blocking: bool) -> None:
        """Let SOEM block in the kernel, or poll until its own time-out, which is precise to the microsecond."""
        for one in self._sockets:
            os.set_blocking(one.fileno(), blocking)


def open_sockets() -> set[int]:
    """Return the file descriptors of this process's sockets."""
    numbers: set[int] = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                numbers.add(int(name))
        except OSError:  # the listing's own
            continue
    return numbers
