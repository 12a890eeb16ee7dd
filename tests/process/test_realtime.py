"""What a process asks of the system for its cycle, and what it says it did not get; each in a process of its own."""

import json
import os
import subprocess
import sys

import pytest

SCRIPT = """
import gc, json, os, resource, sys, zmq
from service.worker.realtime import RealtimeConfig, apply_realtime
if sys.argv[2] == "unprivileged":
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))
    os.setuid(65534)
socket = zmq.Context().socket(zmq.PUB)
refused = apply_realtime(RealtimeConfig.model_validate_json(sys.argv[1]))
locked = [line for line in open("/proc/self/status") if line.startswith("VmLck")][0].split()[1]
latency = "/dev/cpu_dma_latency"
links = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
held = any(os.path.exists(link) and os.readlink(link) == latency for link in links)
print(json.dumps({
    "held": held, "wakes_within_us": int.from_bytes(open(latency, "rb").read(4), sys.byteorder) if held else None,
    "refused": refused, "policy": os.sched_getscheduler(0),
    "priorities": sorted(os.sched_getparam(int(thread)).sched_priority for thread in os.listdir("/proc/self/task")),
    "processors": sorted(os.sched_getaffinity(0)), "locked_kb": int(locked), "collecting": gc.isenabled(),
}))
"""

LATENCY = "/dev/cpu_dma_latency"
root = pytest.mark.skipif(os.geteuid() != 0, reason="real-time scheduling is given to root only")


def applied(config: dict[str, object], who: str = "same") -> dict[str, object]:
    command = [sys.executable, "-c", SCRIPT, json.dumps(config), who]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    result: dict[str, object] = json.loads(done.stdout)
    return result


@root
def test_everything_that_was_asked_for() -> None:
    one = min(os.sched_getaffinity(0))
    found = applied({"priority": 60, "processors": [one], "lock_memory": True})
    assert found["refused"] == []
    assert (found["policy"], found["priorities"]) == (os.SCHED_FIFO, [0, 59, 60])  # that of sockets is below the loop's
    assert found["processors"] == [one]
    assert isinstance(found["locked_kb"], int)
    assert found["locked_kb"] > 1000
    assert found["collecting"] is False


@root
@pytest.mark.skipif(not os.path.exists(LATENCY), reason="a container without the device of sleep states")
def test_processors_stay_awake_as_long_as_the_process_lives() -> None:
    found = applied({"stay_awake": True})
    assert found["refused"] == []
    assert (found["held"], found["wakes_within_us"]) == (True, 0)
    assert applied({})["held"] is False


@root
def test_each_refusal_has_a_remedy() -> None:
    found = applied({"priority": 60, "processors": [4095], "lock_memory": True, "stay_awake": True}, "unprivileged")
    refused = found["refused"]
    assert isinstance(refused, list)
    processors, memory, priority, awake = refused
    assert "4095" in processors
    assert "may use" in processors
    assert "CAP_IPC_LOCK" in memory
    assert "CAP_SYS_NICE" in priority
    reason = "Permission denied" if os.path.exists(LATENCY) else "No such file or directory"  # as in a container
    assert f"{LATENCY}: {reason}" in awake
    assert found["policy"] == os.sched_getscheduler(0)  # as it was
