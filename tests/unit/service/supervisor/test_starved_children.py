"""A process that is silent because others have the processors does not hang; real processes, a real scheduler."""

import contextlib
import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from service.supervisor._worker_handle import WorkerHandle, scheduled_ns, starved_ns
from service.worker.resources import BACKGROUND, FRAME_PATH, NICENESS, SLICE_NS

LIMIT_NS = 250_000_000
BUSY = "while True: pass"


@contextlib.contextmanager
def one_of_two_on_a_processor(role: str) -> Iterator[WorkerHandle]:
    """A busy process that comes last on its processor, where another is busy, and has given no sign of life since."""
    processor = min(os.sched_getaffinity(0))
    first = subprocess.Popen([sys.executable, "-c", BUSY])
    last = subprocess.Popen([sys.executable, "-c", BUSY])
    managed = WorkerHandle(role, None, process=last)
    try:
        for process in (first, last):
            os.sched_setaffinity(process.pid, {processor})
        os.sched_setscheduler(last.pid, os.SCHED_IDLE, os.sched_param(0))
        managed.on_ready(time.monotonic_ns())
        yield managed
    finally:
        for process in (first, last):
            process.kill()
            process.wait()


def wait_until_starved(managed: WorkerHandle, time_ns: int) -> None:
    deadline = time.monotonic() + 60.0
    while starved_ns(managed.pid) - managed.heartbeat_starved_ns < time_ns:
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.parametrize("role", ["jobs", "estimator"])
def test_time_without_a_processor_is_not_silence(role: str) -> None:
    with one_of_two_on_a_processor(role) as managed:
        wait_until_starved(managed, 3 * LIMIT_NS)
        assert not managed.hangs(managed.heartbeat_ns + 4 * LIMIT_NS, LIMIT_NS)
        deadline = time.monotonic() + 60.0
        managed.ran_at_request_ns = -1
        while not managed.waits_for_processor():
            assert time.monotonic() < deadline
            managed.ran_at_request_ns = scheduled_ns(managed.pid)[0]
        managed.send_signal(signal.SIGSTOP)  # from here on it hangs, whatever it has been short of
        os.waitid(os.P_PID, managed.pid, os.WSTOPPED | os.WNOWAIT)
        limit_ns = managed.heartbeat_ns + LIMIT_NS + starved_ns(managed.pid) - managed.heartbeat_starved_ns
        assert not managed.hangs(limit_ns, LIMIT_NS)
        assert managed.hangs(limit_ns + 1, LIMIT_NS)
        assert not managed.waits_for_processor()


def test_it_is_told_less_and_less_often() -> None:
    managed = WorkerHandle("jobs", None)
    assert [s for s in range(1, 600) if managed.starved_event_due(s * 1_000_000_000)] == [1, 61, 181, 421]


def test_a_process_that_stands_still_hangs_at_the_limit_on_a_busy_processor_too() -> None:
    with one_of_two_on_a_processor("jobs") as managed:
        managed.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, managed.pid, os.WSTOPPED | os.WNOWAIT)
        managed.on_heartbeat(time.monotonic_ns())
        time.sleep(0.5)
        assert managed.hangs(managed.heartbeat_ns + LIMIT_NS + 1, LIMIT_NS)


SCRIPT = """
import ctypes, json, os, struct, sys
import zmq
from service.worker.resources import apply_scheduling

def attributes(thread):
    found = ctypes.create_string_buffer(56)
    assert ctypes.CDLL(None).syscall({"x86_64": 315, "aarch64": 275}[os.uname().machine], thread, found, 56, 0) == 0
    _, policy, _, nice, _, slice_ns, *_ = struct.unpack("=IIQiIQQQII", found.raw)
    return policy, nice, slice_ns

os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
apply_scheduling(sys.argv[1])
with zmq.Context() as context, context.socket(zmq.PUB):
    (found,) = {attributes(int(thread)) for thread in os.listdir("/proc/self/task")}
print(json.dumps(found))
"""


def test_a_supervisor_goes_before_what_it_starts() -> None:
    script = """import os, subprocess, sys
from service.worker.resources import keep_priority_from_children, raise_priority
os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
if raise_priority():
    keep_priority_from_children()
print(os.getpriority(0, 0), flush=True)
subprocess.run([sys.executable, "-c", "import os; print(os.getpriority(0, 0))"])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    permitted, chosen = (subprocess.check_output([*way, "nice"], text=True).strip() for way in (["nice", "-n-10"], []))
    assert done.stdout.split() == ([permitted, "0"] if chosen == "0" else [chosen, chosen])


@pytest.mark.parametrize("role", ["acquisition", "jobs"])
def test_frames_are_first(role: str) -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT, role], capture_output=True, text=True, check=True, timeout=60)
    policy, nice, slice_ns = json.loads(done.stdout)
    before = os.getpriority(os.PRIO_PROCESS, 0)
    assert policy == os.SCHED_OTHER
    assert nice == min(before + NICENESS * (role in BACKGROUND), 19)
    release = tuple(int(part) for part in platform.release().split(".")[:2])
    if release >= (6, 12):
        assert (slice_ns == SLICE_NS) == (role in FRAME_PATH)
