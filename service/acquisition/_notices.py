"""What a driver tells, as events of the daemon: at once, and less and less often of what comes again and again."""

from collections import deque
from collections.abc import Callable

from drivers.driver import Notice

#: Between two events about one subject; doubled up to the last until it keeps quiet for that long.
_FIRST_GAP_NS, _LAST_GAP_NS = 1_000_000_000, 60_000_000_000


class NoticeTeller:
    """Passes notices on to `tell`; of each subject the newest is told in the end."""

    def __init__(self, tell: Callable[[str, str], None]) -> None:
        self._tell = tell
        self._waiting: dict[str, tuple[Notice, int]] = {}  # by subject: the newest, and how many are left out for it
        self._next: dict[str, tuple[int, int]] = {}  # by subject: when to tell again [ns], and the gap before that

    def turn(self, notices: deque[Notice], now_ns: int) -> None:
        """Take the notices, and tell what is due."""
        while notices:
            notice = notices.popleft()
            left_out = self._waiting[notice.subject][1] + 1 if notice.subject in self._waiting else 0
            self._waiting[notice.subject] = notice, left_out
        for subject, (notice, left_out) in list(self._waiting.items()):
            next_ns, gap_ns = self._next.get(subject, (now_ns - 2 * _LAST_GAP_NS, 0))
            if now_ns >= next_ns:
                more = f" ({left_out} notices before this one are left out)" if left_out else ""
                self._tell(notice.kind, notice.text + more)
                gap_ns = _FIRST_GAP_NS if now_ns - next_ns > _LAST_GAP_NS else min(2 * gap_ns, _LAST_GAP_NS)
                self._next[subject] = now_ns + gap_ns, gap_ns
                del self._waiting[subject]
