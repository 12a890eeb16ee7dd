"""What is said about folders, disks, keys and ports: real ones, made for it."""

import ast
import os
import socket
import tempfile
from pathlib import Path
from typing import Any

import pytest

from service.config.load import Config, load_config, parse_config
from service.doctor._needs import needs_of
from service.doctor._site_checks import check_cache, check_site
from service.doctor.finding import Finding
from service.security.files import make_directory
from service.security.keys import SERVER_KEY, new_pair, write_pair
from service.supervisor.directories import StateLock, make_runtime

root = pytest.mark.skipif(os.geteuid() != 0, reason="folders of somebody else are made by root only")
SIM = {"name": "arm", "robot": "arm7", "driver": {"kind": "sim"}}


def config(tmp_path: Path, arm: dict[str, Any] | None = None, **daemon: Any) -> Config:
    places = {"state_dir": str(tmp_path / "state"), "runtime_dir": str(tmp_path / "run")}
    ports = dict.fromkeys(("frames_port", "estimates_port", "control_port", "http_port"), 0)
    table = {"daemon": {**places, **ports, **daemon}, "arm": [{**SIM, **(arm or {})}]}
    return parse_config(table, "test", tmp_path, needs_key=False)


def site(tmp_path: Path, arm: dict[str, Any] | None = None, **daemon: Any) -> dict[str, Finding]:
    return {found.name: found for found in check_site(config(tmp_path, arm, **daemon))}


def test_a_site_that_is_well(tmp_path: Path) -> None:
    before = site(tmp_path)
    assert "will be made" in before["state_dir"].value
    for name in ("state", "run"):
        (tmp_path / name).mkdir(mode=0o700)
    found = site(tmp_path)
    assert {each.verdict for each in [*before.values(), *found.values()]} == {"ok", "not applicable"}
    assert "mode 0700" in found["state_dir"].value


def test_folders_that_others_may_change_and_a_file_where_a_folder_is_to_be(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state").chmod(0o777)
    found = site(tmp_path)["state_dir"]
    assert (found.verdict, found.remedy) == ("warning", f"chmod go-w '{tmp_path}/state'")
    (tmp_path / "state").rmdir()
    (tmp_path / "state").write_text("")
    assert site(tmp_path)["state_dir"].verdict == "failed"


def site_of_nobody(settings: Config) -> dict[str, tuple[str, str]]:
    """Verdicts and remedies as the user nobody finds them."""
    reader, writer = os.pipe()
    other = os.fork()
    if other == 0:
        code = 1
        try:
            os.setgroups([])
            os.setuid(65534)
            os.write(writer, repr({each.name: (each.verdict, each.remedy) for each in check_site(settings)}).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as stream:
        found = stream.read()
    assert os.waitstatus_to_exitcode(os.waitpid(other, 0)[1]) == 0
    return dict(ast.literal_eval(found))


@root
def test_files_that_root_has_left_behind() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        for name in ("state", "run"):
            Path(folder, name).mkdir(mode=0o700)
            os.chown(Path(folder, name), 65534, 65534)
        settings = config(Path(folder))
        as_root = {found.name: found for found in check_site(settings)}
        assert (as_root["state_dir"].verdict, as_root["runtime_dir"].verdict) == ("warning", "failed")
        assert "as that user" in as_root["state_dir"].remedy
        lock = Path(folder, "state/lock")
        lock.write_text("")
        os.chown(lock, 65534, 65534)
        assert site_of_nobody(settings)["state_dir"][0] == "ok"
        os.chown(lock, 0, 0)
        assert site_of_nobody(settings)["state_dir"] == ("failed", f"sudo chown -R nobody: '{folder}/state'")
        lock.chmod(0o666)  # of somebody else, and of use all the same
        assert site_of_nobody(settings)["state_dir"][0] == "ok"
        Path(folder, "state/arm").mkdir(mode=0o755)
        assert site_of_nobody(settings)["state_dir"][0] == "failed"
        Path(folder, "state/arm").chmod(0o777)
        # Also in a folder of root that this user may write in.
        os.chown(Path(folder, "state"), 0, 0)
        Path(folder, "state").chmod(0o777)
        assert site_of_nobody(settings)["state_dir"][0] == "warning"


@root
def test_folders_that_this_user_cannot_use_or_enter() -> None:
    """Access is judged by who a process is: the checks are made as nobody, of folders of root."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        Path(folder, "state").mkdir(mode=0o755)
        Path(folder, "closed").mkdir(mode=0o700)
        found = site_of_nobody(config(Path(folder)))
        closed = config(Path(folder), state_dir=f"{folder}/closed/state", runtime_dir=f"{folder}/closed/run")
        inside = site_of_nobody(closed)
    assert found["state_dir"] == ("failed", "run it as root, or name a folder of your own")
    assert found["runtime_dir"][0] == "failed"
    assert "install -d -o nobody" in found["runtime_dir"][1]
    assert inside["disk"] == ("unknown", "run thetad doctor as the daemon's user")
    assert inside["state_dir"][0] == inside["runtime_dir"][0] == "failed"


def test_keys(tmp_path: Path) -> None:
    missing = site(tmp_path, require_keys=True)["keys"]
    assert missing.verdict == "failed"
    assert "thetad keys new --server" in missing.remedy
    make_directory(tmp_path / "state/keys")
    write_pair(tmp_path / "state/keys" / SERVER_KEY, new_pair(), "of a test")
    assert site(tmp_path, require_keys=True)["keys"].verdict == "ok"
    (tmp_path / "state/keys" / SERVER_KEY).chmod(0o644)
    assert "open to others" in site(tmp_path, require_keys=True)["keys"].value


def test_ports(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        taken = site(tmp_path, control_port=port)["ports"]
        assert (taken.verdict, str(port) in taken.value, str(port) in taken.remedy) == ("failed", True, True)
        assert site(tmp_path, http_port=port)["ports"] == taken
        assert site(tmp_path, http_port=port, http=False)["ports"].verdict == "ok"
    assert site(tmp_path, control_port=port)["ports"].verdict == "ok"
    elsewhere = site(tmp_path, bind="192.0.2.1", control_port=9873)["ports"]
    assert (elsewhere.verdict, elsewhere.remedy) == ("failed", "daemon.bind: give an address of this computer")


def test_ports_of_the_daemon_that_runs_on_this_state(tmp_path: Path) -> None:
    """Of those that are taken it is credited with what it was told alone."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_server(("127.0.0.1", 0)) as other:
        port, foreign = (each.getsockname()[1] for each in (server, other))
        running = config(tmp_path, frames_port=1, estimates_port=2, control_port=port, http=False)
        lock = StateLock(running.state_dir)
        lost = site(tmp_path, control_port=port)["ports"]
        assert (lost.verdict, f"perhaps by this daemon, process {os.getpid()}" in lost.value) == ("unknown", True)
        runtime = make_runtime(running)
        runtime.config.write_text(running.model_dump_json(), encoding="utf-8")
        own = site(tmp_path, control_port=port)["ports"]
        assert (own.verdict, own.value.endswith(f"of this daemon, process {os.getpid()}")) == ("ok", True)
        taken = site(tmp_path, control_port=port, http_port=foreign)["ports"]
        assert (taken.verdict, taken.value) == ("failed", f"{foreign} on 127.0.0.1: taken by another program")
        # A daemon that was told to take any port may have it.
        runtime.config.write_text(config(tmp_path).model_dump_json(), encoding="utf-8")
        assert site(tmp_path, control_port=port)["ports"].verdict == "unknown"
        lock.release()
        assert site(tmp_path, control_port=port)["ports"].verdict == "failed"


def test_room_on_the_disk(tmp_path: Path) -> None:
    assert site(tmp_path, {"recorder": {"max_gb": 0.001}})["disk"].verdict == "ok"
    assert site(tmp_path, {"recorder": {"max_gb": 1e6}})["disk"].verdict == "warning"
    endless = site(tmp_path, {"recorder": {}})["disk"]
    assert (endless.verdict, "recordings of arm have no limit" in endless.value) == ("warning", True)
    full = parse_config({"jobs": {"least_free_mb": 1e12}, "arm": [SIM]}, "test", tmp_path)
    assert [each.verdict for each in check_site(full) if each.name == "disk"] == ["failed"]
    # Recordings that are there count.
    assert "1.5 GB wanted" in site(tmp_path, {"recorder": {"max_gb": 1.0}})["disk"].value
    folder = tmp_path / "state/arm/recordings"
    folder.mkdir(parents=True)
    with (folder / "arm-20260101T000000.mcap").open("wb") as file:
        file.truncate(800_000_000)
    assert "0.7 GB wanted" in site(tmp_path, {"recorder": {"max_gb": 1.0}})["disk"].value


def test_the_cache_of_kernels(tmp_path: Path) -> None:
    package = tmp_path / "package"
    (package / "online/__pycache__").mkdir(parents=True)
    assert "compiles for minutes" in check_cache(package, {}).value
    (package / "online/__pycache__/rls.nbc").write_bytes(b"")
    assert check_cache(package, {}) == Finding("kernel_cache", "ok", f"{package}: 1 functions compiled")
    named = check_cache(package, {"NUMBA_CACHE_DIR": str(tmp_path / "cache")})
    assert (named.verdict, str(tmp_path / "cache") in named.value) == ("ok", True)
    (tmp_path / "file").write_text("")
    lost = check_cache(package, {"NUMBA_CACHE_DIR": str(tmp_path / "file")})
    assert (lost.verdict, "NUMBA_CACHE_DIR" in lost.remedy) == ("failed", True)


def test_what_a_configuration_asks_for(tmp_path: Path) -> None:
    assert needs_of(config(tmp_path)).loops == ()
    realtime = {"priority": 60, "processors": [1], "lock_memory": False}
    needs = needs_of(config(tmp_path, {"realtime": realtime}), "eth7")
    assert (needs.priority, needs.processors, needs.lock_memory, needs.interfaces) == (60, (1,), False, ("eth7",))
    assert needs.loops[0].cycle_hz == 1000.0
    bus = needs_of(load_config(Path("configs/ethercat_arm9.toml")))
    assert (bus.interfaces, bus.lock_memory, [loop.arm for loop in bus.loops]) == (("thetad0",), True, ["arm9"])
