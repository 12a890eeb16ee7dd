"""Logging waits for nobody: a real process whose stderr, a pipe, is not read."""

import fcntl
import json
import os
import select
import subprocess
import sys

LINES = 4000  # of 800 bytes: three times what the queue and the pipe hold
SCRIPT = f"""
import faulthandler, os, signal, sys
from service.io.log import configure, crash_fd, get_log
from service.supervisor.daemon import announce
configure()
log = get_log("test")
faulthandler.register(signal.SIGUSR1, crash_fd())
for part in range(2):
    for number in range({LINES}):
        log.info("x" * 700, number=number)
    os.kill(os.getpid(), signal.SIGUSR1)
    announce("ready", part=part)
    sys.stdin.readline()
"""


def line(stream: int) -> bytes:
    """What can be read, within a time in which a process that does not wait has long gone on."""
    assert select.select((stream,), (), (), 60.0)[0], "the process waits for its reader"
    return os.read(stream, 1 << 16)


def test_a_log_that_is_not_read_stops_nothing_and_what_is_dropped_is_told() -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", SCRIPT], stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdin and process.stdout and process.stderr  # noqa: PT018 - for the types
        out, log = process.stdout.fileno(), process.stderr.fileno()
        fcntl.fcntl(log, fcntl.F_SETPIPE_SZ, 4096)
        try:
            assert json.loads(line(out)) == {"event": "ready", "part": 0}
            data = b""
            while b"log_lines_dropped" not in data or not data.endswith(b"\n"):
                data += line(log)
            # The stack, which does not wait, may be cut, with a line of the log behind it.
            found = [json.loads(each[each.index(b"{") :]) for each in data.splitlines() if b"{" in each]
            numbers = [each["number"] for each in found if "number" in each]
            assert numbers == sorted(set(numbers))  # whole and in order
            assert sum(each.get("count", 0) for each in found) == LINES - len(numbers)
            process.stdin.write(b"\n")
            process.stdin.flush()
            assert json.loads(line(out)) == {"event": "ready", "part": 1}
            process.stdin.close()
            assert process.wait(60.0) == 0  # it ends without a reader
        finally:
            process.kill()
