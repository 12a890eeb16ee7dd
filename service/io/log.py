"""Logs: one JSON object per line on stderr, with process, arm and boot counter; on a terminal lines for people.

Whoever reads stderr may stop reading, or its disk may be full: no process waits for that. Unless it is a file, lines
wait in a queue of bounded size for a thread that alone may be held up. Those that find it full, or cannot be written,
are dropped, counted, and told of later as `log_lines_dropped`.
"""

import atexit
import contextlib
import functools
import json
import logging
import os
import select
import signal
import stat
import threading
from collections import deque
from datetime import UTC, datetime
from typing import Any, TypeAlias

import structlog

Log: TypeAlias = structlog.typing.FilteringBoundLogger

QUEUE_BYTES = 1 << 20  # of lines that wait: some thousands, a fraction of what the smallest process holds
EXIT_S = 0.3  # longest wait of a process that ends for its last lines: the shortest stage of a daemon's end has 0.9 s


class LineWriter:
    """Writes lines to a descriptor without waiting: to a file at once, elsewhere from a thread of its own."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lines: deque[bytes] = deque()
        self._waiting = self._dropped = self._told = 0  # bytes; lines
        self._change = threading.Condition()
        self._is_file = stat.S_ISREG(os.fstat(fd).st_mode)
        if not self._is_file:
            threading.Thread(target=self._run, name=f"lines-{fd}", daemon=True).start()
            atexit.register(self.drain)

    def write(self, line: bytes) -> None:
        """Write or queue a line with its line feed, or drop it."""
        with self._change:
            if self._is_file:
                self._put(line)
            elif self._waiting + len(line) > QUEUE_BYTES:
                self._dropped += 1
            else:
                self._lines.append(line)
                self._waiting += len(line)
                self._change.notify_all()

    def flush(self) -> None:
        """Wait for nothing, unlike a file."""

    def drain(self) -> None:
        """Wait until all lines are written, but not for long."""
        with self._change:
            self._change.wait_for(lambda: not self._lines, EXIT_S)

    def _run(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # they are to wake the main thread
        while True:
            with self._change:
                self._change.wait_for(lambda: self._lines)
                line = self._lines[0]
            self._put(line)
            with self._change:
                self._lines.popleft()
                self._waiting -= len(line)
                self._change.notify_all()

    def _put(self, line: bytes) -> None:
        if not self._written(line):
            with self._change:
                self._dropped += 1
        elif (count := self._dropped - self._told) and len(self._lines) <= 1:  # there is room again
            told = {"pid": os.getpid(), "count": count, "level": "warning", "event": "log_lines_dropped"}
            if self._written(_dumps(told | {"timestamp": datetime.now(UTC).isoformat()}) + b"\n"):
                self._told += count

    def _written(self, line: bytes) -> bool:
        while line:
            try:
                line = line[os.write(self._fd, line) :]
            except BlockingIOError:  # somebody has set it so, for all who have it
                select.select((), (self._fd,), ())
            except OSError:  # nobody reads any more, or the disk is full
                return False
        return True


_writer: Any = functools.cache(LineWriter)  # of stderr, in place of a file


def crash_fd() -> int:
    """Return a descriptor of stderr for a handler of signals: a pipe or a terminal is not waited for."""
    if any(kind(os.fstat(2).st_mode) for kind in (stat.S_ISFIFO, stat.S_ISCHR)):
        with contextlib.suppress(OSError):  # opened anew, as the flag would be that of all who have it
            return os.open("/proc/self/fd/2", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    return 2


def configure(level: str = "info") -> None:
    """Set up structlog for this process, and the thread that writes; each line is one write, so that none mix."""
    render: Any = _for_people if os.isatty(2) else structlog.processors.JSONRenderer(serializer=_dumps)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level, structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info, render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.BytesLoggerFactory(file=_writer(2)), cache_logger_on_first_use=True,
    )  # fmt: skip


def get_log(process: str, **bound: Any) -> Log:
    """Return a logger that writes `process` and the other bound values into every line."""
    log: Log = structlog.get_logger().bind(process=process, **bound)
    return log


def _for_people(_logger: object, _method: str, line: dict[str, Any]) -> bytes:
    """Return a line as time, process and what happened; warnings and errors with their level."""
    at, level = datetime.fromisoformat(line.pop("timestamp")).astimezone(), line.pop("level")
    who = "/".join(filter(None, (line.pop("arm", ""), line.pop("process", ""))))
    what = ("" if level in ("debug", "info") else f"{level}: ") + line.pop("event").replace("_", " ")
    details = [f"{key} {value}" for key, value in line.items() if key not in ("daemon", "epoch", "pid")]
    text = f"{at:%H:%M:%S}  {who:20}  {what}{': ' if details else ''}{', '.join(details)}"
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text).encode()  # of whoever, too


def _dumps(event: dict[str, Any], **options: Any) -> bytes:
    return json.dumps(event, **options).encode()
