"""The daemon as its systemd unit starts it: notifications, capabilities, watchdog, and restrictions."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from numba.core.caching import UserProvidedCacheLocator

from service.client import Control, Subscriber
from service.supervisor._worker_pool import STOP_STAGES
from tests.lab.daemon.daemons import await_message, await_status
from tests.lab.deployment.sandbox import USER
from tests.lab.deployment.units import ROOT, START_S, WATCHDOG_S, Service, Unit, bits, pids, status_of
from tests.lab.web.http_client import ask

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives capabilities and makes name spaces")

REALTIME = "\n[arm.realtime]\npriority = 5\n"
BUS = Unit("thetad.service", "thetad-ethercat.conf")
SETS = ("CapEff", "CapPrm", "CapInh", "CapAmb")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A daemon with the drop-in for a bus, and an arm that asks for a real-time priority."""
    with Service(BUS, tmp_path_factory.mktemp("service"), REALTIME) as service:
        service.hear_until("READY=1", START_S)
        yield service


@pytest.fixture
def control(service: Service) -> Iterator[Control]:
    with Control(service.endpoint()) as control:
        yield control


def sets(pid: int) -> dict[str, int]:
    status = status_of(pid)
    return {name: int(status[name], 16) for name in SETS}


def test_the_acquisition_alone_has_capabilities_and_is_in_real_time(service: Service, control: Control) -> None:
    given = bits(BUS.words("AmbientCapabilities"))
    found = pids(control.request("status"))
    acquisition = found.pop("acquisition")
    assert set(found) == {"gateway", "estimator", "jobs", "web"}
    assert sets(acquisition) == dict.fromkeys(SETS, given)
    for role, pid in found.items():
        assert sets(pid) == dict.fromkeys(SETS, 0), role
    # The supervisor may lend them, and uses none itself: nor do the threads of its sockets.
    for thread in os.listdir(f"/proc/{service.pid}/task"):
        assert sets(int(thread)) == {"CapEff": 0, "CapPrm": given, "CapInh": 0, "CapAmb": 0}
    assert os.sched_getscheduler(acquisition) == os.SCHED_FIFO
    assert os.sched_getparam(acquisition).sched_priority == 5
    assert int(status_of(acquisition)["VmLck"].split()[0]) > 1000
    assert "realtime_refused" not in service.log.read_text()
    for pid in [service.pid, *found.values()]:
        assert os.sched_getscheduler(pid) & ~os.SCHED_RESET_ON_FORK == os.SCHED_OTHER  # the flag is the supervisor's


def test_a_supervisor_that_hangs_falls_silent_and_says_where_it_hung(service: Service) -> None:
    service.hear_until("WATCHDOG=1")
    children = psutil.Process(service.pid).children(recursive=True)
    service.process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, service.pid, os.WSTOPPED)
    service.forget()
    with pytest.raises(TimeoutError):
        service.hear(2.0 * WATCHDOG_S)
    # What systemd does then; a process that is stopped takes the signal when it goes on.
    service.process.send_signal(signal.SIGABRT)
    service.process.send_signal(signal.SIGCONT)
    assert service.process.wait(30.0) == -signal.SIGABRT
    assert psutil.wait_procs(children, timeout=30.0)[1] == []
    log = service.log.read_text()
    assert "Fatal Python error: Aborted" in log
    assert re.search(r"supervisor\.py.* in run", log)


def test_times_of_the_unit_are_beyond_those_of_the_daemon() -> None:
    unit = Unit("thetad.service")
    longest = sum(seconds for _, seconds in STOP_STAGES)
    assert float(unit.one("WatchdogSec")) > longest  # in its end the loop does not turn
    assert float(unit.one("TimeoutStopSec")) > longest
    assert float(unit.one("TimeoutStartSec")) > 300.0  # daemon.start_s


# ---------------------------------------------------------------- under the unit's restrictions, applied by this kernel

#: What a program finds that tries what the daemon must not.
PROBE = """
import ctypes, errno, json, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def tried(do):
    try:
        result = do()
    except OSError as error:
        return errno.errorcode[error.errno]
    return errno.errorcode[ctypes.get_errno()] if result == -1 else "done"
print(json.dumps({
    "etc": tried(lambda: open("/etc/thetad-probe", "w")),
    "own": tried(lambda: open("../own", "a")),
    "sysctl": tried(lambda: open("/proc/sys/kernel/hostname", "w")),
    "tmp": tried(lambda: open(f"/tmp/{sys.argv[1]}", "w").close()),
    "state": tried(lambda: open("probe", "w").close()),
    "tcp": tried(lambda: socket.socket().close()),
    "packet": tried(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW)),
    "vsock": tried(lambda: socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)),
    "users": tried(lambda: libc.unshare(0x10000000)),
    "reboot": tried(lambda: libc.reboot(0)),
    "disk": os.path.exists("/dev/sda") or os.path.exists("/dev/vda") or os.path.exists("/dev/mem"),
    "others": [pid for pid in os.listdir("/proc") if pid.isdigit() and int(pid) != os.getpid()],
}))
"""
FOUND = {
    "etc": "EROFS", "own": "EROFS", "sysctl": "EROFS", "tmp": "done", "state": "done", "tcp": "done",
    "packet": "EAFNOSUPPORT", "vsock": "EAFNOSUPPORT", "users": "EPERM", "reboot": "EPERM", "disk": False,
    "others": [],
}  # fmt: skip


def within(folder: Path) -> list[str]:
    return ["env", f"PYTHONPATH={ROOT}", sys.executable, "-m", "tests.lab.deployment.sandbox", str(folder)]


def take_kernels(cache: Path) -> None:
    """What has been compiled beside the sources; the unit's cache is elsewhere, and to compile all takes minutes."""
    for file in ROOT.glob("*/**/*.nbc"):
        source = str(file.parents[1] / "any.py")  # its folder counts
        place = cache / UserProvidedCacheLocator.get_suitable_cache_subpath(source)  # type: ignore[no-untyped-call]
        place.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, place)
    for path in (cache.parent, cache, *cache.rglob("*")) if cache.exists() else ():
        os.chown(path, USER, USER)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd's tools are not installed")
def test_restrictions_are_in_force(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "own").touch()
    os.chown(tmp_path / "own", USER, USER)
    command = [*within(tmp_path), sys.executable, "-c", PROBE, name := f"thetad-probe-{uuid.uuid4()}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == FOUND
    assert not Path("/tmp", name).exists()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd's tools are not installed")
def test_the_daemon_works_under_them(tmp_path: Path) -> None:
    take_kernels(tmp_path / "cache" / "numba")
    with Service(Unit("thetad.service"), tmp_path, within=within(tmp_path)) as service:
        service.hear_until("READY=1", START_S)
        with (
            Control(service.endpoint()) as control,
            Subscriber(service.endpoint("estimates"), ["space6/estimate"]) as estimates,
        ):
            await_message(estimates)
            found = await_status(control, lambda found: found["space6/estimator"]["info"].get("received", 0) > 1000)
        assert {process["state"] for process in found.values()} == {"ready"}
        assert ask(service.endpoint("http"), "/readyz").status == 200
        supervisor = psutil.Process(service.pid)
        for process in (supervisor, *supervisor.children(recursive=True)):
            status = status_of(process.pid)
            assert set(status["Uid"].split()) == {str(USER)}
            assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
            assert {int(status[name], 16) for name in ("CapBnd", "CapEff", "CapPrm", "CapInh", "CapAmb")} == {0}
        levels = {json.loads(line)["level"] for line in service.log.read_text().splitlines()}
        assert not levels & {"warning", "error", "critical"}  # nothing that it was refused
        service.forget()
        service.process.terminate()
        heard = [*service.hear_until("STOPPING=1"), *service.hear_until("STATUS=stopping: SIGTERM")]
        assert "READY=1" not in heard
        assert service.process.wait(30.0) == 0
