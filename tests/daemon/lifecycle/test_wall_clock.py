"""The wall clock is set by an hour, forward and back, while a daemon runs.

The daemon's processes have a CLOCK_REALTIME of their own (`wall_clock.c`), which a file sets.
"""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from service.client import Control, Jobs, Subscriber
from service.supervisor.launch import DaemonProcess
from tests.lab.daemon.daemons import await_message, await_status, config, log_lines, processes, start
from tests.lab.web.http_client import ask

HOUR_S = 3600
WAIT_S = 1800.0  # of a job that is not due meanwhile
RATE_HZ = 200.0
QUICK = {"robot": "space6", "methods": ["ols"], "seconds": 2.0, "seeds": 1}


class Clock:
    """CLOCK_REALTIME of a daemon, `ahead_s` ahead of the true one."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "ahead"
        library = folder / "wall_clock.so"
        source = Path(__file__).parents[2] / "lab" / "daemon" / "wall_clock.c"
        command = ["cc", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o", library, source, "-ldl"]
        subprocess.run(command, check=True, timeout=60)
        self.environment = {"LD_PRELOAD": str(library), "WALL_CLOCK_FILE": str(self._path)}
        self.set(0)

    def set(self, ahead_s: int) -> None:
        new = self._path.with_suffix(".new")
        new.write_text(f"{ahead_s}\n")
        new.replace(self._path)
        self.ahead_s = ahead_s

    def shown_by(self, t_ns: int) -> bool:
        """Whether a time since 1970 [ns] was told by this clock within the last minute."""
        return -1.0 < time.time() + self.ahead_s - t_ns * 1e-9 < 60.0


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> Clock:
    return Clock(tmp_path_factory.mktemp("clock"))


@pytest.fixture(scope="module")
def daemon(folder: Path, clock: Clock) -> Iterator[DaemonProcess]:
    driver = {"kind": "sim", "settings": {"rate_hz": RATE_HZ}}
    arm = {"name": "axis", "robot": "space6", "driver": driver, "recorder": {"directory": "recordings"}}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in clock.environment.items():
            patch.setenv(name, value)
        daemon = start(config(folder, arm, http=True, http_port=0), folder)
    yield daemon
    log = log_lines(folder)
    daemon.stop()
    assert '"level": "error"' not in log


@pytest.mark.parametrize("hours", [1, -1])
def test_frames_estimates_jobs_and_answers_go_on(daemon: DaemonProcess, clock: Clock, hours: int) -> None:
    """No frame is lost, nothing is restarted, and a job that is running then ends as if nothing had been."""
    with (
        Control(daemon.endpoints["control"]) as control,
        Subscriber(daemon.endpoints["frames"], ["axis/frame"]) as frames,
        Subscriber(daemon.endpoints["estimates"], ["axis/estimate"]) as estimates,
    ):
        jobs = Jobs(control)
        before = await_message(frames).envelope
        await_message(estimates)
        id = jobs.submit("compare", QUICK).id
        await_status(control, lambda found: found["jobs"]["info"]["running"] > 0)
        later = jobs.submit("compare", QUICK, due_s=WAIT_S).id
        clock.set(hours * HOUR_S)
        after = await_message(frames, lambda message: message.envelope.seq >= before.seq + 2 * RATE_HZ).envelope
        assert after.epoch == before.epoch
        assert after.t_host_ns - before.t_host_ns < 60 * 10**9  # by CLOCK_MONOTONIC, which nobody sets
        seq = estimates.counts["axis/estimate", "estimator"].expected
        await_message(estimates, lambda message: message.envelope.seq > seq + 10)
        assert frames.lost == estimates.lost == 0
        assert jobs.wait(id, 120.0).state == "succeeded"
        told = {event.kind: event.t_ns for event in jobs.events(job=id)}
        assert clock.shown_by(told["job_succeeded"])  # it was set indeed
        due = jobs.cancel(later).due
        assert datetime.fromisoformat(str(due)).timestamp() <= time.time() + clock.ahead_s + WAIT_S  # not hours later
        found = processes(control)
        assert all((process["restarts"], process["state"]) == (0, "ready") for process in found.values())
        for reader in ("estimator", "recorder"):
            info = found[f"axis/{reader}"]["info"]
            assert (info["lost"], info["repeated"], info["epochs"]) == (0, 0, 1)
        assert found["axis/acquisition"]["info"]["dropped"] == 0
    assert ask(daemon.endpoints["http"], "/readyz").status == 200


def test_what_is_started_after_the_clock_was_set_back_is_the_later(daemon: DaemonProcess, clock: Clock) -> None:
    """Estimator and recorder take the frames of an acquisition that began, by the clock, before the one it follows."""
    clock.set(-HOUR_S)
    with Control(daemon.endpoints["control"]) as control:
        os.kill(processes(control)["axis/acquisition"]["pid"], signal.SIGKILL)
        await_status(
            control,
            lambda found: all(found[f"axis/{reader}"]["info"]["epochs"] == 2 for reader in ("estimator", "recorder")),
        )
        found = processes(control)
        received = found["axis/estimator"]["info"]["received"]
        await_status(control, lambda found: found["axis/estimator"]["info"]["received"] > received + RATE_HZ)
    epoch = found["axis/estimator"]["info"]["source_epoch"]
    assert epoch > time.time_ns() // 1000 - 600 * 10**6  # not an hour ago
