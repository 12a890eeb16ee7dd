"""The real jobs process with its real runners, without the rest of a daemon: the test takes the supervisor's part."""

import contextlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import psutil

from service.config.load import Config, parse_config
from tests.lab.daemon.lone_process import DEADLINE_S, SupervisorSide

FINISHED = ("succeeded", "failed", "cancelled")


def configuration(state: Path, robot: str = "space6", arm: Mapping[str, Any] | None = None, **jobs: Any) -> Config:
    """A daemon's configuration with one simulated arm, which nobody starts."""
    ports = dict.fromkeys(("frames_port", "estimates_port", "control_port"), 0) | {"http": False}
    table = {
        "daemon": {"state_dir": str(state), "log_level": "debug", **ports},
        "jobs": {"least_free_mb": 1.0, "priority": "normal", **jobs},
        "arm": [{"name": "arm", "robot": robot, "driver": {"kind": "sim"}, **(arm or {})}],
    }
    return parse_config(table, "test", state.parent)


class JobsProcess(SupervisorSide):
    """Starts, asks, kills it."""

    def __init__(self, config: Config, log: Path) -> None:
        super().__init__(config, log, "jobs")

    def start(self) -> Self:
        """Start the process and wait until it is ready."""
        self._ready = False
        self._launch("--epoch", str(time.time_ns() // 1000))
        self._until(lambda: self._ready, DEADLINE_S)
        return self

    def event(self, kind: str, text: str = "", arm: str = "arm", **data: Any) -> None:
        """Tell it of an event as the supervisor would."""
        self._send({"type": "event", "t_ns": time.time_ns(), "event": kind, "text": text, "arm": arm, "data": data})

    def submit(self, kind: str, /, **parameters: Any) -> int:
        """Queue a job; parameters that begin with `_` are the request's own."""
        own = {name[1:]: parameters.pop(name) for name in list(parameters) if name.startswith("_")}
        return int(self.request("submit", kind=kind, parameters=parameters, **own)["id"])

    def wait(self, *ids: int, timeout_s: float = 240.0) -> list[dict[str, Any]]:
        """Wait until jobs have finished and return all of them."""
        deadline = time.monotonic() + timeout_s
        while True:
            jobs = [self.request("job", id=id) for id in ids]
            if all(job["state"] in FINISHED for job in jobs):
                return jobs
            assert time.monotonic() < deadline, [(job["id"], job["state"], job["waits"], job["doing"]) for job in jobs]
            self.pause(0.1)

    def pause(self, seconds: float) -> None:
        """Let time pass, and answer what is asked meanwhile."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0.0:
            self._receive(left)

    def runners(self) -> list[psutil.Process]:
        """Runners that are alive."""
        if self.process is None:
            return []
        found = []
        for process in psutil.Process(self.process.pid).children():
            with contextlib.suppress(psutil.Error):
                if "service.jobs.execution.runner" in process.cmdline():
                    found.append(process)
        return found

    def await_runners(self, count: int = 1) -> list[psutil.Process]:
        """Wait until so many run, and return them."""
        while len(found := self.runners()) < count:
            self.pause(0.05)
        return found

    def __enter__(self) -> Self:
        return self if self.process is not None else self.start()
