"""Places of a daemon's processes before the scheduler; each in a process of its own."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys

import pytest

from service.worker.scheduling import BACKGROUND, FRAME_PATH, NICENESS, SLICE_NS
from service.worker.worker import ROLES

SCRIPT = """
import ctypes, json, os, struct, sys
import zmq
from service.worker.scheduling import apply_scheduling

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


@pytest.mark.skipif(sys.platform != "linux", reason="the scheduler of Linux")
@pytest.mark.parametrize("role", ROLES)
def test_frames_are_first(role: str) -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT, role], capture_output=True, text=True, check=True, timeout=60)
    policy, nice, slice_ns = json.loads(done.stdout)
    before = os.getpriority(os.PRIO_PROCESS, 0)
    assert policy == os.SCHED_OTHER
    assert nice == min(before + NICENESS * (role in BACKGROUND), 19)
    release = tuple(int(part) for part in platform.release().split(".")[:2])
    if release >= (6, 12):
        assert (slice_ns == SLICE_NS) == (role in FRAME_PATH)
