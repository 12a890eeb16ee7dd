"""The daemon under the restrictions of its unit, applied by this kernel."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from numba.core.caching import UserProvidedCacheLocator

from service.client import Control, Subscriber
from tests.lab.daemon.daemons import await_message, await_status
from tests.lab.deployment.sandbox import APPLIED, USER
from tests.lab.deployment.units import ROOT, START_S, Service, Unit, status_of
from tests.lab.web.http_client import ask

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="name spaces and mounts need root"),
    pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd's tools are not installed"),
]
#: What a program finds that tries what the daemon must not.
PROBE = """
import ctypes, errno, json, os, socket
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
    "tmp": tried(lambda: open("/tmp/probe", "w").close()),
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


def test_restrictions_are_in_force(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "own").touch()
    os.chown(tmp_path / "own", USER, USER)
    command = [*within(tmp_path), sys.executable, "-c", PROBE]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == FOUND
    assert not Path("/tmp/probe").exists()


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


def test_what_is_not_applied_is_said_to_be() -> None:
    """deploy/README.md names the restrictions that no test has ever put into force."""
    unit = Unit("thetad.service")
    kinds = ("Private", "Protect", "Restrict", "SystemCall", "Lock", "NoNew", "Capability", "Remove")
    rest = {key for key in unit.values if key.startswith(kinds)} - APPLIED
    rest = {key for key in rest if unit.one(key) != "no"}
    text = " ".join((ROOT / "deploy" / "README.md").read_text(encoding="utf-8").split())
    said = re.findall(r"seen only by `systemd-analyze`: (.*?)\.", text)
    assert sorted(rest) == re.findall(r"`(\w+)`", said[0])
