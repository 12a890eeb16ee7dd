"""`thetad deploy install`: what it says it would do, what it does in another root, and what it leaves alone."""

import configparser
import os
import pwd
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from service.deployment.install import SHIPPED, DeployError, escaped, make_plan
from tests.lab.command_line import Outcome, thetad

CARD = "lab-nic0"
UNIT = "etc/systemd/system/thetad.service"
tools = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("systemd-sysusers") is None, reason="needs root and systemd's tools"
)


def install(root: Path, *more: object) -> Outcome:
    return thetad("deploy", "install", "--root", root, "--prefix", "/opt/thetad", *more)


def tree(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir()}


def test_a_dry_run_shows_everything_and_does_nothing(tmp_path: Path) -> None:
    done = install(tmp_path, "--interface", CARD, "--dry-run", "--json").ok()
    assert done.json["done"] is False
    assert {file["state"] for file in done.json["files"]} == {"new"}
    assert f"/{UNIT}" in [file["path"] for file in done.json["files"]]
    assert [command[0] for command in done.json["commands"]] == ["systemd-sysusers", "systemd-tmpfiles", "systemctl"]
    assert tree(tmp_path) == set()
    text = install(tmp_path, "--interface", CARD, "--dry-run").out
    assert all(f"new      {file['path']}\n" in text for file in done.json["files"])


@tools
def test_everything_is_put_in_place(tmp_path: Path) -> None:
    planned = install(tmp_path, "--interface", CARD, "--dry-run", "--json").json
    assert install(tmp_path, "--interface", CARD, "--json").ok().json == {**planned, "done": True}
    assert {file["path"].lstrip("/") for file in planned["files"]} < tree(tmp_path)
    # The user is there, and owns what it is to own.
    (entry,) = re.findall(r"^thetad:.*$", (tmp_path / "etc/passwd").read_text(), re.M)
    _, _, uid, gid, _, home, shell = entry.split(":")
    assert (home, Path(shell).name) == ("/var/lib/thetad", "nologin")
    folder = (tmp_path / "etc/thetad").stat()
    assert (folder.st_uid, folder.st_gid, folder.st_mode & 0o777) == (0, int(gid), 0o750)
    assert (tmp_path / "etc/thetad/thetad.toml").stat().st_mode & 0o777 == 0o640
    assert int(uid) != 0
    # The service is enabled.
    wants = tmp_path / "etc/systemd/system/multi-user.target.wants/thetad.service"
    assert os.readlink(wants).endswith("/thetad.service")
    # The card's name is where enp3s0 was: escaped in names of units, plain elsewhere.
    for file in planned["files"]:
        assert "enp3s0" not in (tmp_path / file["path"].lstrip("/")).read_text(), file
    drop_in = (tmp_path / "etc/systemd/system/thetad.service.d/ethercat.conf").read_text()
    assert "BindsTo=thetad-card@lab\\x2dnic0.service" in drop_in
    # Neither file says anything of other cards, and networkd meets ours before netplan's.
    manager = configparser.ConfigParser()
    manager.read(tmp_path / "etc/NetworkManager/conf.d/90-thetad.conf")
    assert manager.sections() == ["device-thetad"]
    assert dict(manager["device-thetad"]) == {"match-device": "interface-name:lab-nic0", "managed": "0"}
    (network,) = (tmp_path / "etc/systemd/network").iterdir()
    assert network.name < "10-netplan-lab-nic0.network"
    # Once more: nothing to do.
    again = install(tmp_path, "--interface", CARD, "--json").ok()
    assert {file["state"] for file in again.json["files"]} == {"same", "kept"}


@tools
def test_what_somebody_has_changed_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "etc/thetad").mkdir(parents=True)
    (tmp_path / "etc/thetad/thetad.toml").write_text("mine = true\n")
    (tmp_path / UNIT).parent.mkdir(parents=True)
    (tmp_path / UNIT).write_text("# mine\n")
    before = tree(tmp_path)
    refused = install(tmp_path)
    assert refused.code == 1
    assert f"changed  /{UNIT}" in refused.out
    assert "--force" in refused.out
    assert tree(tmp_path) == before
    install(tmp_path, "--force").ok()
    assert (tmp_path / f"{UNIT}.old").read_text() == "# mine\n"
    assert "ExecStart=/opt/thetad/" in (tmp_path / UNIT).read_text()
    assert (tmp_path / "etc/thetad/thetad.toml").read_text() == "mine = true\n"  # not even then
    (tmp_path / UNIT).write_text("# mine, 2\n")  # what was kept once stays
    assert install(tmp_path, "--force").code == 0
    assert (tmp_path / f"{UNIT}.old.2").read_text() == "# mine, 2\n"
    assert (tmp_path / f"{UNIT}.old").read_text() == "# mine\n"


@tools
def test_what_an_earlier_version_has_put_in_place_gives_way(tmp_path: Path) -> None:
    """Of two files for the card networkd would take the first by its name, and say so of the other for ever."""
    old = tmp_path / "etc/systemd/network/10-thetad.network"
    old.parent.mkdir(parents=True)
    old.write_text("[Match]\nName=old-card\n")
    kept = old.with_name(f"{old.name}.old")
    kept.write_text("# kept by an administrator\n")
    assert old.name not in install(tmp_path, "--dry-run").out  # without a bus nothing of a bus is touched
    assert f"obsolete /{old.relative_to(tmp_path)}" in install(tmp_path, "--interface", CARD).ok().out
    assert not old.exists()
    assert kept.read_text() == "# kept by an administrator\n"
    assert old.with_name(f"{old.name}.old.2").read_text() == "[Match]\nName=old-card\n"
    assert {path.name for path in old.parent.glob("*.network")} == {"05-thetad.network"}
    assert "obsolete" not in install(tmp_path, "--interface", CARD).out


def test_the_service_runs_the_program_of_the_prefix(tmp_path: Path) -> None:
    prefix = tmp_path / "opt/thetad-2"  # that has the usual one in it
    plan = make_plan(tmp_path, prefix, shipped=shutil.copytree(SHIPPED, prefix / "deploy"))
    unit = next(file.content for file in plan.files if file.source == "thetad.service")
    assert f"ExecStart={prefix}/.venv/bin/thetad serve -c /etc/thetad/thetad.toml" in unit
    assert f"Documentation=file://{prefix}/deploy/README.md\n" in unit
    assert "/opt/" not in unit.replace("because /opt is", "").replace(str(prefix), "")


@pytest.mark.parametrize("prefix", ["/home/anna/thetad", "/opt/100%", "/opt/my lab"])
def test_places_that_the_service_could_not_run_from(tmp_path: Path, prefix: str) -> None:
    done = install(tmp_path, "--dry-run", "--prefix", prefix)
    assert done.code == 1
    assert f"not done: {prefix}" in done.out


def test_this_host_needs_the_program_and_systemd() -> None:
    plan = make_plan(Path("/"), Path("/nowhere/thetad"))
    assert any("/nowhere/thetad/.venv/bin/thetad: is not there" in each for each in plan.hindrances)
    assert any("not started by systemd" in each for each in plan.hindrances) != Path("/run/systemd/system").is_dir()
    assert ("systemctl", "daemon-reload") in plan.commands


@pytest.mark.parametrize(
    ("interface", "units", "reloads"),
    [(CARD, ["systemd-networkd.service", "NetworkManager.service"], ["networkctl", "nmcli"]),
     (CARD, [], []),
     (None, ["NetworkManager.service"], [])],
)  # fmt: skip
def test_who_cares_for_cards_reads_its_files_again(interface: str | None, units: list[str], reloads: list[str]) -> None:
    plan = make_plan(Path("/"), Path("/opt/thetad"), interface, running=units.__contains__)
    assert [command[0] for command in plan.commands if command[-1] == "reload"] == reloads


def host_with_program(root: Path, interpreter: str) -> Path:
    """A host below `root` with a program in /opt/thetad whose Python is a link to `interpreter`."""
    program = root / "opt/thetad/.venv/bin/thetad"
    python = root / interpreter.lstrip("/")
    for file in (program, python):
        file.parent.mkdir(parents=True)
        file.touch()
        file.chmod(0o755)
    program.with_name("python").symlink_to("python3")
    program.with_name("python3").symlink_to(interpreter)
    return program


def test_an_interpreter_that_the_service_does_not_see(tmp_path: Path) -> None:
    seen, hidden = tmp_path / "seen", tmp_path / "hidden"
    host_with_program(seen, "/usr/bin/python3.11")
    assert make_plan(seen, Path("/opt/thetad")).hindrances == ()
    host_with_program(hidden, "/root/.local/share/uv/python/cpython-3.11/bin/python3.11")
    (text,) = make_plan(hidden, Path("/opt/thetad")).hindrances
    assert "/root/.local/share/uv/python/cpython-3.11/bin/python3.11: the service does not see /root" in text
    # Also where a folder on the way is the link.
    bin_ = seen / "usr/bin"
    bin_.rename(seen / "home")
    bin_.symlink_to("../home")
    (text,) = make_plan(seen, Path("/opt/thetad")).hindrances
    assert "which is /home/python3.11: the service does not see /home" in text


def test_a_program_that_is_closed_to_the_service(tmp_path: Path) -> None:
    program = host_with_program(tmp_path, "/usr/bin/python3.11")
    program.chmod(0o750)
    (text,) = make_plan(tmp_path, Path("/opt/thetad")).hindrances
    assert text.endswith("may not use /opt/thetad/.venv/bin/thetad: chmod o+rx '/opt/thetad/.venv/bin/thetad'")
    program.chmod(0o755)
    (tmp_path / "usr/bin").chmod(0o700)
    (text,) = make_plan(tmp_path, Path("/opt/thetad")).hindrances
    assert text.endswith("may not use /usr/bin: chmod o+x '/usr/bin'")


def test_bad_input(tmp_path: Path) -> None:
    install(tmp_path / "none", "--dry-run").refused("--root", "not a folder")
    install(tmp_path, "--dry-run", "--prefix", "here").refused("--prefix", "not absolute")
    install(tmp_path, "--dry-run", "--interface", "a/b").refused("a/b", "network interface")
    thetad("deploy", "install", "--dry-run", "--interface", "nosuch0").refused("nosuch0", "there is")
    with pytest.raises(DeployError, match="clone"):
        make_plan(tmp_path, Path("/opt/thetad"), shipped=tmp_path)


@tools
def test_a_command_that_fails_is_named(tmp_path: Path) -> None:
    """A file where a folder has to be."""
    (tmp_path / "etc/systemd/system").mkdir(parents=True)
    (tmp_path / "etc/systemd/system/multi-user.target.wants").write_text("in the way")
    done = install(tmp_path)
    assert done.code == 3, done
    assert "systemctl --root=" in done.err


@pytest.mark.skipif(os.geteuid() != 0, reason="somebody else is made by root only")
def test_without_root_nothing_is_done(tmp_path: Path) -> None:
    nobody = pwd.getpwnam("nobody").pw_uid
    script = f"""
import os, sys
import service.deployment.install
from service.cli.main import build_parser, main
build_parser()
os.setuid({nobody})
sys.exit(main(sys.argv[1:]))
"""
    command = [sys.executable, "-c", script, "deploy", "install", "--root", "/", "--prefix", "/opt/thetad"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=SHIPPED.parent)
    assert done.returncode == 2, done
    assert "needs root" in done.stderr


@tools
def test_names_are_escaped_as_systemd_does() -> None:
    names = ["enp3s0", "lab-nic0", "eth0.5", "br_lab", "a:b", "é"]
    theirs = subprocess.run(["systemd-escape", *names], capture_output=True, text=True, check=True).stdout.split()
    assert [escaped(name) for name in names] == theirs
