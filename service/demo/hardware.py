"""Hardware of a demonstration: simulated drives on a virtual cable, in a network namespace, or a PLC on loopback."""

import ctypes
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any, Literal, Self

from drivers.files.shipped import shipped
from drivers.timing import Histogram, sleep_until
from service.config.arm_tables import RealtimeConfig
from service.config.load import ConfigError
from service.worker.realtime import apply_realtime
from sim_backend.ethercat.link import Link, enable_loopback

Bus = Literal["ethercat", "ads"]

_SHIPPED = shipped("configs")
_NEW_NETWORK = 0x40000000  # CLONE_NEWNET
_READY_S = 120.0  # the first start compiles
_STOP_S = 5.0
_PROBE_CYCLE_NS = 1_000_000
_PLC_ADDRESS = "127.0.0.2"  # as in the shipped configuration
#: Files of arm and hardware by bus, with a placeholder for the robot.
_FILES = {
    "ethercat": ("ethercat_{}.toml", "ethercat/{}_segment.toml"),
    "ads": ("twincat_{}.toml", "twincat/{}_plc.toml"),
}


class RehearsalError(RuntimeError):
    """The simulated bus could not be set up; the message says why."""


def bus_configuration(bus: Bus, robot: str) -> tuple[dict[str, Any], Path]:
    """Return the arm's table of the shipped configuration and the hardware's file; raises `ConfigError`."""
    config, hardware = (_SHIPPED / name.format(robot) for name in _FILES[bus])
    if not (config.is_file() and hardware.is_file()):
        before, after = _FILES[bus][0].split("{}")
        files = _SHIPPED.glob(f"{before}*{after}")
        known = sorted(path.name.removeprefix(before).removesuffix(after) for path in files)
        raise ConfigError(f"robot {robot}: there is no simulated hardware for it; there is for {', '.join(known)}")
    arm: dict[str, Any] = tomllib.loads(config.read_text(encoding="utf-8"))["arm"][0]
    return arm, hardware


def own_network() -> None:
    """Move this process to a new network namespace with a loopback interface; raises `RehearsalError` if denied."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEW_NETWORK) != 0:
        reason = os.strerror(ctypes.get_errno())
        raise RehearsalError(f"a network namespace of its own is refused ({reason}): run it as root (sudo)")
    enable_loopback()


class Hardware:
    """A command of `thetad sim` in a process of its own; a virtual cable `link` is created before and removed after."""

    def __init__(self, *arguments: str, link: Link | None = None) -> None:
        self._link = link
        self._log = tempfile.TemporaryFile("w+b")  # noqa: SIM115 - closed by `stop`
        self._command = [sys.executable, "-m", "service.cli.main", "sim", *arguments]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        """Create the cable and wait until the hardware answers; raises `RehearsalError`."""
        if self._link is not None:
            self._link.up()
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=self._log)
        try:
            self._await_ready(self._process)
        except RehearsalError:
            self.stop()
            raise
        return self

    def _await_ready(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            line = process.stdout.readline() if selector.select(_READY_S) else b""
        if not line or json.loads(line).get("event") != "ready":
            raise RehearsalError(f"the simulated hardware does not start: {self._last_line() or 'no answer'}")

    def _last_line(self) -> str:
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""

    def stop(self) -> str:
        """Stop the hardware and remove the cable; return its last line of output."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()
        if self._link is not None and self._link.exists():
            self._link.down()
        output = self._last_line()
        self._log.close()
        return output

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def simulated_drives(segment: Path, priority: int) -> Hardware:
    """Return servo drives at the far end of a virtual cable; `priority` of SCHED_FIFO."""
    return Hardware("ethercat", str(segment), "--priority", str(priority), link=Link())


def simulated_plc(file: Path) -> Hardware:
    """Return a PLC on loopback, at the shipped configuration's address."""
    return Hardware("plc", str(file), "--address", _PLC_ADDRESS)


def empty_loop(config: RealtimeConfig, seconds: float) -> dict[str, Any]:
    """Return percentiles of the period [us] of an empty 1 kHz loop, in its own process with these settings."""
    command = [sys.executable, "-m", "service.demo.hardware", config.model_dump_json(), str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=seconds + 30.0)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def _empty_loop(config: RealtimeConfig, seconds: float) -> dict[str, Any]:
    period = Histogram()
    apply_realtime(config)
    last_ns = time.monotonic_ns()
    deadline_ns, end_ns = last_ns, last_ns + round(seconds * 1e9)
    while deadline_ns < end_ns:
        deadline_ns += _PROBE_CYCLE_NS
        now_ns = time.monotonic_ns()
        if deadline_ns < now_ns:  # skip to the grid
            deadline_ns += (now_ns - deadline_ns) // _PROBE_CYCLE_NS * _PROBE_CYCLE_NS + _PROBE_CYCLE_NS
        sleep_until(deadline_ns)
        now_ns = time.monotonic_ns()
        period.add(now_ns - last_ns)
        last_ns = now_ns
    return period.summary()


if __name__ == "__main__":
    print(json.dumps(_empty_loop(RealtimeConfig.model_validate_json(sys.argv[1]), float(sys.argv[2]))))
