"""The units of deploy/ as systemd reads them, and a daemon started as they say."""

import json
import os
import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from service.supervisor.capabilities import CAPABILITIES
from tests.lab.closing import Closing

ROOT = Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "deploy"
PROGRAM = "/opt/thetad/.venv/bin/thetad"
CONFIGURATION = "/etc/thetad/thetad.toml"
START_S, DEADLINE_S = 120.0, 30.0  # a start may compile; one that is tried again goes on from there
#: In place of WatchdogSec=, so that a test need not wait for it.
WATCHDOG_S = 1.0


class Unit:
    """The settings of a unit and its drop-ins: the values of each key, in order; an empty one takes back the others."""

    def __init__(self, *files: str) -> None:
        self.values: dict[str, list[str]] = {}
        for file in files:
            for line in (DEPLOY / file).read_text(encoding="utf-8").splitlines():
                key, sign, value = line.partition("=")
                if not sign or line.startswith("#"):
                    continue
                if not value:
                    self.values[key] = []
                else:
                    self.values.setdefault(key, []).append(value)

    def one(self, key: str) -> str:
        """The last value of a key; empty if there is none."""
        return (self.values.get(key) or [""])[-1]

    def words(self, key: str) -> list[str]:
        """All words of all values of a key."""
        return [word for value in self.values.get(key, []) for word in value.split()]


def privileges(unit: Unit) -> list[str]:
    """The command that gives a program the unit's capabilities, with the ways of an ordinary user.

    Root's own rights are switched off (noroot), so that the kernel treats this user's processes like those of any other
    while files stay readable.
    """
    ambient = [name.removeprefix("CAP_").lower() for name in unit.words("AmbientCapabilities")]
    bounding = [name.removeprefix("CAP_").lower() for name in unit.words("CapabilityBoundingSet")]
    wanted = ",".join(["-all", *(f"+{name}" for name in ambient)])
    command = ["setpriv", "--securebits", "+noroot", "--inh-caps", wanted, "--ambient-caps", wanted]
    command += ["--bounding-set", ",".join(["-all", *(f"+{name}" for name in bounding)])]
    return [*command, "--no-new-privs"] if unit.one("NoNewPrivileges") == "yes" else command


class Service(Closing):
    """A daemon started by the unit's command line, and the socket that it tells its state to.

    `folder` takes the place of the directories in /etc, /var and /run; `more` is added to the shipped configuration;
    the command `within` starts the daemon, in place of one that gives it the unit's capabilities.
    """

    def __init__(self, unit: Unit, folder: Path, more: str = "", within: list[str] | None = None) -> None:
        text = (DEPLOY / "thetad.toml").read_text(encoding="utf-8")
        places = {"/var/lib/thetad": folder / "state", "/run/thetad": folder / "run"}
        for place, instead in places.items():
            assert f'"{place}"' in text
            text = text.replace(place, str(instead))
        ports = "".join(f"{name}_port = 0\n" for name in ("frames", "estimates", "control", "http"))
        self.config = folder / "thetad.toml"
        self.config.write_text(text.replace("[daemon]\n", f"[daemon]\n{ports}") + more, encoding="utf-8")
        (folder / "state").mkdir(mode=0o700)
        self.log = folder / "log"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(folder / "notify"))
        (folder / "notify").chmod(0o666)  # like systemd's: it looks at who writes
        program = str(Path(sys.executable).with_name("thetad"))
        line = unit.one("ExecStart").replace(PROGRAM, program).replace(CONFIGURATION, str(self.config))
        environment = {**os.environ, "NOTIFY_SOCKET": str(folder / "notify")}
        environment["WATCHDOG_USEC"] = str(round(WATCHDOG_S * 1e6))
        for setting in unit.values["Environment"]:
            name, _, value = setting.partition("=")
            environment |= {name: value.replace("/var/cache/thetad", str(folder / "cache"))} if within else {}
        command = ["prlimit", f"--core={unit.one('LimitCORE')}", *(within or privileges(unit)), *shlex.split(line)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, env=environment, cwd=folder / "state", umask=int(unit.one("UMask"), 8),
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log,
            )  # fmt: skip

    @property
    def pid(self) -> int:
        """Of the supervisor: neither prlimit nor setpriv stays."""
        return self.process.pid

    def hear(self, timeout_s: float = DEADLINE_S) -> str:
        """The next message; raises TimeoutError."""
        self.socket.settimeout(timeout_s)
        return self.socket.recv(4096).decode()

    def hear_until(self, wanted: str, within_s: float = DEADLINE_S) -> list[str]:
        """All messages up to and with one that matches the regular expression `wanted` as a whole."""
        heard: list[str] = []
        deadline = time.monotonic() + within_s
        while not heard or not re.fullmatch(wanted, heard[-1]):
            left = deadline - time.monotonic()
            try:
                heard.append(self.hear(min(left, 1.0)))
            except TimeoutError:
                told = (wanted, heard, self.log.read_text())
                assert left > 1.0, told
                assert self.process.poll() is None, told
        return heard

    def forget(self) -> None:
        """Leave out what has arrived until now."""
        self.socket.setblocking(False)
        while True:
            try:
                self.socket.recv(4096)
            except BlockingIOError:
                return

    def endpoint(self, name: str = "control") -> str:
        """Of a socket, as the log tells it once the daemon is ready."""
        lines = (json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{"))
        return next(str(line["endpoints"][name]) for line in lines if line.get("event") == "ready")

    def close(self) -> None:
        self.socket.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


def status_of(pid: int) -> dict[str, str]:
    """`/proc/PID/status`."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def bits(names: Iterable[str]) -> int:
    """The set of capabilities."""
    return sum(1 << CAPABILITIES[name] for name in names)


def pids(status: dict[str, Any]) -> dict[str, int]:
    """Process ids by role."""
    return {process["role"]: process["pid"] for process in status["processes"]}
