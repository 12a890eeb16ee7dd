"""The daemon as its systemd unit starts it: notifications, capabilities, and the watchdog."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator

import psutil
import pytest

from service.client import Control
from service.supervisor.supervisor import STOP_STAGES
from tests.lab.deployment.units import START_S, WATCHDOG_S, Service, Unit, bits, pids, status_of

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="capabilities are given by root only")

REALTIME = "\n[arm.realtime]\npriority = 5\n"
BUS = Unit("thetad.service", "thetad-ethercat.conf")
SETS = ("CapEff", "CapPrm", "CapInh", "CapAmb")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A daemon with the drop-in for a bus, and an arm that asks for a real-time priority."""
    with Service(BUS, tmp_path_factory.mktemp("service"), REALTIME) as service:
        yield service


@pytest.fixture
def control(service: Service) -> Iterator[Control]:
    with Control(service.endpoint()) as control:
        yield control


def sets(pid: int) -> dict[str, int]:
    status = status_of(pid)
    return {name: int(status[name], 16) for name in SETS}


def test_it_tells_of_its_start(service: Service) -> None:
    heard = service.hear_until("READY=1", START_S)
    assert heard[0].startswith("STATUS=")
    assert " starting" in heard[0]
    assert "WATCHDOG=1" not in heard
    assert "WATCHDOG=1" in service.hear_until("WATCHDOG=1")


def test_the_acquisition_alone_has_capabilities(service: Service, control: Control) -> None:
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


def test_the_acquisition_alone_is_in_real_time(service: Service, control: Control) -> None:
    found = pids(control.request("status"))
    acquisition = found.pop("acquisition")
    assert os.sched_getscheduler(acquisition) == os.SCHED_FIFO
    assert os.sched_getparam(acquisition).sched_priority == 5
    assert int(status_of(acquisition)["VmLck"].split()[0]) > 1000
    assert "realtime_refused" not in service.log.read_text()
    for pid in [service.pid, *found.values()]:
        assert os.sched_getscheduler(pid) == os.SCHED_OTHER


def test_an_acquisition_that_is_restarted_has_them_again(service: Service, control: Control) -> None:
    before = pids(control.request("status"))["acquisition"]
    service.forget()
    os.kill(before, signal.SIGKILL)
    heard = service.hear_until(r"STATUS=\d+ processes ready")
    assert any("space6/acquisition" in message for message in heard)
    after = pids(control.request("status"))["acquisition"]
    assert after != before
    assert sets(after) == dict.fromkeys(SETS, bits(BUS.words("AmbientCapabilities")))
    assert os.sched_getscheduler(after) == os.SCHED_FIFO


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
