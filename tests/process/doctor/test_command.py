"""`thetad doctor` on this host, beside what the system tells by other ways; and its lines beside the page on them."""

import os
import re
import resource
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from service.doctor.examine import file_capabilities
from tests.lab.command_line import Outcome, thetad
from tests.lab.console import Varying, check_page, differs, surroundings

ROOT = Path(__file__).resolve().parents[3]
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


def test_bad_input(tmp_path: Path) -> None:
    thetad("doctor", "-c", tmp_path / "none.toml").refused("none.toml", "cannot be read")
    thetad("doctor", "--cycle-s", "-1").refused("--cycle-s", "0 to 3600")
    done = thetad("doctor", "--interface", "nosuch0", "--cycle-s", "0", "--json")
    assert (done.code, values(done)["card"]["verdict"]) == (1, "failed")


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


def test_every_line_is_explained_and_no_other() -> None:
    page = (ROOT / "docs" / "doctor.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^### `([a-z_]+)`$", page, re.M)) == HOST | CARD | SITE | {"cycle"}


def findings(lines: Sequence[str]) -> dict[str, tuple[str, list[str]]]:
    """Verdict and lines of each finding, by name."""
    found: dict[str, tuple[str, list[str]]] = {}
    for line in lines:
        if match := re.match(r"(ok|warning|failed|unknown|-) +([a-z_]+) ", line):
            found[match.group(2)] = (match.group(1), [])
        list(found.values())[-1][1].append(line)
    return found


def by_finding(shown: Sequence[str], printed: Sequence[str], patterns: Sequence[Varying]) -> str:
    """Say where what is printed is not what is shown, but for findings that have another verdict on this host."""
    *shown, _ = shown
    *printed, counts = printed
    wanted, found = findings(shown), findings(printed)
    if list(wanted) != list(found):
        return f"{list(wanted)} are shown, printed were {list(found)}"
    number = Counter(verdict.replace("-", "not applicable") for verdict, _ in found.values())
    if Counter({name: int(count) for count, name in re.findall(r"(\d+) ([a-z ]+)", counts)}) != number:
        return f"{number} are the verdicts, printed was {counts}"
    same = [name for name, (verdict, _) in wanted.items() if verdict == found[name][0]]
    if not list((ROOT / "rt_core").rglob("*.nbc")):
        same.remove("kernel_cache")  # tells how many there are, or that there are none
    if len(same) < 5:
        return f"{same} alone are as shown: the page is of another kind of computer"
    here = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource").read_text().strip()
    for name in same:
        lines = [re.sub(f"{here}$", "tsc", line) if name == "clocksource" else line for line in found[name][1]]
        if wrong := differs(wanted[name][1], lines, patterns):
            return wrong
    return ""


@pytest.mark.slow
def test_the_page_shows_what_is_printed(tmp_path: Path) -> None:
    check_page(ROOT / "docs" / "doctor.md", tmp_path, surroundings(), by_finding)
