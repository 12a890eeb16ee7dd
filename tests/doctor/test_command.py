"""`thetad doctor` on this host, beside what the system tells by other ways; and its lines beside the page on them."""

from __future__ import annotations

import os
import re
import resource
import shutil
from pathlib import Path

import pytest

from service.doctor.examine import file_capabilities, synchronised
from tests.service.command_line import Outcome, thetad

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "doctor.md").read_text(encoding="utf-8")
VERDICTS = {"ok", "warning", "failed", "unknown", "not applicable"}
HOST = {
    "kernel", "isolated_processors", "governor", "realtime_share", "realtime_priority", "locked_memory", "open_files",
    "raw_ethernet", "interpreter_rights", "clocksource", "clock", "card", "kernel_cache",
}  # fmt: skip
CARD = {"card_driver", "card_manager", "card_coalescing"}
SITE = {"disk", "state_dir", "runtime_dir", "keys", "ports"}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A configuration that asks for something no host has."""
    path = tmp_path / "site.toml"
    path.write_text(
        f'[daemon]\nstate_dir = "{tmp_path}/state"\nruntime_dir = "{tmp_path}/run"\n'
        "frames_port = 0\nestimates_port = 0\ncontrol_port = 0\nhttp_port = 0\n"
        '[[arm]]\nname = "arm"\nrobot = "arm7"\n[arm.driver]\nkind = "sim"\n'
        "[arm.realtime]\nprocessors = [4095]\nlock_memory = false\n",
        encoding="utf-8",
    )
    return path


def values(done: Outcome) -> dict[str, dict[str, str]]:
    return {check["name"]: check for check in done.json["checks"]}


def test_this_host() -> None:
    done = thetad("doctor", "--cycle-s", "0", "--json")
    found = values(done)
    assert set(found) == HOST
    assert {check["verdict"] for check in found.values()} <= VERDICTS
    assert done.code == (1 if "failed" in {check["verdict"] for check in found.values()} else 0)
    assert os.uname().release in found["kernel"]["value"]
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert found["open_files"]["value"] in (str(limit), "no limit")
    online = os.sysconf("SC_NPROCESSORS_ONLN")
    assert re.search(rf"of 0-{online - 1}\b" if online > 1 else "of 0", found["isolated_processors"]["value"])
    source = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource").read_text().strip()
    assert found["clocksource"]["value"] == source
    for check in found.values():
        assert bool(check["remedy"]) == (check["verdict"] in ("warning", "failed")) or check["verdict"] == "unknown"
    assert done.json["counts"]["ok"] == sum(check["verdict"] == "ok" for check in found.values())


def test_a_configuration_that_cannot_be_met_fails(site: Path) -> None:
    done = thetad("doctor", "-c", site, "--cycle-s", "0.05", "--json")
    found = values(done)
    assert done.code == 1
    assert done.json["verdict"] == "failed"
    assert set(found) == HOST | SITE | {"cycle"}
    assert found["isolated_processors"]["verdict"] == "failed"
    assert "refused: processors 4095" in found["cycle"]["value"]
    assert re.search(r"woke late by \d+ µs \(median\)", found["cycle"]["value"])


def test_lines_for_people(site: Path) -> None:
    done = thetad("doctor", "-c", site, "--interface", "lo", "--cycle-s", "0")
    lines = done.out.splitlines()
    assert {line.split()[1] for line in lines[:-1] if not line.startswith(" ")} == HOST | CARD | SITE
    assert re.search(r"^failed   isolated_processors  .*4095", done.out, re.M)
    assert re.search(r"^-        keys ", done.out, re.M)
    assert re.search(r"\d+ failed", lines[-1])


def test_a_card_that_is_not_there_fails() -> None:
    done = thetad("doctor", "--interface", "nosuch0", "--cycle-s", "0", "--json")
    assert done.code == 1
    assert values(done)["card"]["verdict"] == "failed"


def test_bad_input(tmp_path: Path) -> None:
    thetad("doctor", "-c", tmp_path / "none.toml").refused("none.toml", "cannot be read")
    thetad("doctor", "--cycle-s", "-1").refused("--cycle-s", "0 to 3600")


def test_capabilities_in_a_file(tmp_path: Path) -> None:
    program = tmp_path / "program"
    shutil.copy("/bin/true", program)
    assert file_capabilities(program) == 0
    if os.geteuid() != 0:
        pytest.skip("capabilities are written into files by root only")
    # Version 2, effective; permitted: CAP_NET_RAW and CAP_CHECKPOINT_RESTORE (40).
    words = (0x02000001, 1 << 13, 0, 1 << 8, 0)
    os.setxattr(program, "security.capability", b"".join(word.to_bytes(4, "little") for word in words))
    assert file_capabilities(program) == 1 << 13 | 1 << 40
    assert file_capabilities(tmp_path / "none") is None


def test_the_kernel_tells_whether_its_clock_is_synchronised() -> None:
    assert synchronised() in (True, False)


def test_every_line_is_explained_and_no_other() -> None:
    assert set(re.findall(r"^### `([a-z_]+)`$", PAGE, re.M)) == HOST | CARD | SITE | {"cycle"}


def test_the_page_shows_the_lines_that_are_printed() -> None:
    shown = PAGE.split("$ thetad doctor\n")[1].split("```")[0]
    line = re.compile(r"^(ok|warning|failed|unknown|-) +([a-z_]+) ", re.M)
    printed = line.findall(thetad("doctor", "--cycle-s", "0").out)
    assert [name for _, name in line.findall(shown)] == [*(name for _, name in printed), "cycle"]
