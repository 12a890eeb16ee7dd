"""What is said about kernel, processors, limits, clock and card of hosts that are made of files."""

import os
from pathlib import Path

import pytest

from service.doctor._host_checks import check_card, check_host
from service.doctor._needs import Needs
from service.doctor.examine import closed_processors, coalescing
from service.doctor.facts import card_names, processor_list, read_card, read_facts
from service.doctor.finding import Finding
from tests.lab.hosts import CARD, LIMITS, make_host, place_card

NEEDS = Needs(interfaces=(CARD,), priority=80, processors=(3,), lock_memory=True)
CPU = "sys/devices/system/cpu"
CLOCK = "sys/devices/system/clocksource/clocksource0"
NET = f"sys/class/net/{CARD}"
KERNEL = {"proc/sys/kernel/version": "#1 SMP PREEMPT_DYNAMIC", "sys/kernel/realtime": None}
#: An ordinary user's process.
PLAIN = {
    "proc/self/status": "CapEff:\t0000000000000000\n",
    "proc/self/limits": LIMITS.format(files="1024", memlock="8388608", rtprio="0"),
}


def host(
    root: Path, changes: dict[str, str | None] | None = None, needs: Needs = NEEDS, synchronised: bool | None = True,
    interpreter: int | None = 0,
) -> dict[str, Finding]:  # fmt: skip
    facts = read_facts(make_host(root, changes))
    return {found.name: found for found in check_host(facts, needs, synchronised, interpreter)}


def card(root: Path, changes: dict[str, str | None] | None = None, coalescing: str | None = "") -> dict[str, Finding]:
    make_host(root, changes)
    return {found.name: found for found in check_card(read_card(CARD, root), card_names(root), coalescing)}


def test_a_host_that_was_set_up_is_well(tmp_path: Path) -> None:
    found = host(tmp_path)
    assert {name: each.verdict for name, each in found.items()} == dict.fromkeys(found, "ok")
    assert found["isolated_processors"].value == "3 of 0-3"
    assert found["governor"].value == "performance"  # of the loop's processor


def test_a_host_that_tells_nothing(tmp_path: Path) -> None:
    (tmp_path / "bare").mkdir()
    facts = read_facts(tmp_path / "bare")
    found = {each.name: each.verdict for each in check_host(facts, Needs(), None, None)}
    unknown = ("realtime_share", "clocksource", "clock", "interpreter_rights")
    assert [found[name] for name in (*unknown, "governor", "raw_ethernet")] == ["unknown"] * 4 + ["not applicable"] * 2
    assert [name for name, verdict in found.items() if verdict == "failed"] in ([], ["open_files"])


@pytest.mark.parametrize(
    ("changes", "name", "verdict", "words"),
    [
        (KERNEL, "kernel", "warning", "PREEMPT_RT"),
        ({f"{CPU}/isolated": ""}, "isolated_processors", "warning", "isolcpus=3 nohz_full=3 rcu_nocbs=3"),
        ({f"{CPU}/online": "0-1"}, "isolated_processors", "failed", "processors that are there"),
        ({f"{CPU}/cpu3/cpufreq/scaling_governor": "powersave"}, "governor", "warning", "performance"),
        ({"proc/sys/kernel/sched_rt_runtime_us": "500000"}, "realtime_share", "failed", "sched_rt_runtime_us"),
        (PLAIN, "realtime_priority", "failed", "rtprio 98"),
        (PLAIN, "locked_memory", "failed", "memlock"),
        (PLAIN, "raw_ethernet", "failed", "sudo"),
        ({"proc/self/limits": LIMITS.format(files="64", memlock="8", rtprio="0")}, "open_files", "failed", "1024"),
        ({f"{CLOCK}/current_clocksource": "hpet"}, "clocksource", "warning", "echo tsc"),
    ],
)
def test_what_is_missing_is_told_with_a_remedy(
    tmp_path: Path, changes: dict[str, str | None], name: str, verdict: str, words: str
) -> None:
    good = host(tmp_path / "good")
    found = host(tmp_path / "host", changes)
    assert good[name].verdict == "ok"
    assert found[name].verdict == verdict
    assert words in found[name].remedy
    if not changes.keys() & PLAIN.keys():
        assert [each for each in found if found[each] != good[each]] == [name]  # and nothing else is


def test_without_a_configuration_nothing_worse_than_a_warning(tmp_path: Path) -> None:
    found = host(tmp_path, {**KERNEL, **PLAIN, f"{CPU}/isolated": ""}, Needs(), synchronised=False)
    assert {each.verdict for each in found.values()} == {"ok", "warning", "not applicable"}
    assert "processors = [3]" in found["isolated_processors"].remedy


def test_processors_that_are_kept_from_this_process(tmp_path: Path) -> None:
    facts = read_facts(make_host(tmp_path, {f"{CPU}/isolated": ""}))

    def isolated(needs: Needs, *closed: int) -> Finding:
        return next(each for each in check_host(facts, needs, True, 0, closed) if each.name == "isolated_processors")

    found = isolated(NEEDS, 2, 3)
    assert (found.verdict, "processors names 3, which this process may not use" in found.value) == ("failed", True)
    assert "AllowedCPUs=" in found.remedy
    # Nor is one of them recommended.
    assert "processors = [1]" in isolated(Needs(), 2, 3).remedy
    assert "only processor" in isolated(Needs(), 1, 2, 3).remedy


def test_the_kernel_is_asked_which_processors_this_process_may_take() -> None:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})  # what a process gives up it may take again
    try:
        assert closed_processors([*before, 4095]) == (4095,)
        assert os.sched_getaffinity(0) == {min(before)}
    finally:
        os.sched_setaffinity(0, before)


def test_a_limit_that_is_too_low_for_the_priority(tmp_path: Path) -> None:
    limits = {**PLAIN, "proc/self/limits": LIMITS.format(files="1024", memlock="unlimited", rtprio="50")}
    found = host(tmp_path, limits)
    assert (found["realtime_priority"].verdict, found["locked_memory"].verdict) == ("failed", "ok")
    assert "up to 50; [arm.realtime] asks for 80" in found["realtime_priority"].value


def test_rights_of_the_interpreter_and_a_clock_that_nobody_sets_are_named(tmp_path: Path) -> None:
    found = host(tmp_path, interpreter=1 << 13 | 1 << 23, synchronised=False)
    assert found["interpreter_rights"].verdict == found["clock"].verdict == "warning"
    assert "CAP_NET_RAW, CAP_SYS_NICE" in found["interpreter_rights"].value


def test_a_card_that_was_set_up_is_well(tmp_path: Path) -> None:
    found = card(tmp_path, coalescing="Adaptive RX: off\nrx-usecs: 0\nrx-frames: 0\ntx-usecs: 0\n")
    assert [each.verdict for each in found.values()] == ["ok"] * 4
    assert found["card_coalescing"].value == f"{CARD}: rx-usecs 0, tx-usecs 0"


@pytest.mark.parametrize(
    ("changes", "name", "verdict", "words"),
    [
        ({f"{NET}/flags": "0x1002"}, "card", "failed", "ip link set enp3s0 up"),
        ({f"{NET}/carrier": "0"}, "card", "failed", "cable"),
        ({f"{NET}/wireless/status": ""}, "card_driver", "failed", "PCI"),
        ({"run/NetworkManager/devices/3": "[device]\nmanaged=true\n"}, "card_manager", "warning", "--interface enp3s0"),
        ({"run/systemd/netif/links/3": "ADMIN_STATE=configured\n"}, "card_manager", "warning", "deploy install"),
    ],
)
def test_what_is_wrong_with_a_card(
    tmp_path: Path, changes: dict[str, str | None], name: str, verdict: str, words: str
) -> None:
    found = card(tmp_path, changes, "rx-usecs: 0\n")
    assert found.pop(name).verdict == verdict
    assert words in next(each.remedy for each in card(tmp_path / "b", changes).values() if each.name == name)
    assert {each.verdict for each in found.values()} == {"ok"}


def test_cards_behind_usb_and_virtual_ones(tmp_path: Path) -> None:
    make_host(tmp_path)
    (tmp_path / NET / "device").unlink()
    _, virtual, *_ = check_card(read_card(CARD, tmp_path), (), "")
    assert (virtual.verdict, "virtual" in virtual.value) == ("ok", True)
    # By where it is, whatever its driver is called.
    place_card(tmp_path, "pci0000:00/0000:00:14.0/usb2/2-1/2-1:1.0", "some_driver")
    _, driver, *_ = check_card(read_card(CARD, tmp_path), (), "")
    assert (driver.verdict, driver.value) == ("failed", f"{CARD}: some_driver, behind USB")


def test_coalescing(tmp_path: Path) -> None:
    on = card(tmp_path / "a", coalescing="rx-usecs: 3\ntx-usecs: 0\n")["card_coalescing"]
    assert (on.verdict, on.remedy) == ("warning", f"ethtool -C {CARD} rx-usecs 0 tx-usecs 0 (as root)")
    assert card(tmp_path / "b", coalescing=None)["card_coalescing"].verdict == "unknown"
    chosen = card(tmp_path / "c", coalescing="Adaptive RX: on  TX: off\nrx-usecs: 0\ntx-usecs: 0\n")["card_coalescing"]
    assert chosen.verdict == "warning"
    assert chosen.remedy == f"ethtool -C {CARD} adaptive-rx off rx-usecs 0 tx-usecs 0 (as root)"


def test_an_ethtool_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "ethtool"
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    def told(script: str) -> Finding:
        tool.write_text(f"#!/bin/sh\n{script}\n")
        tool.chmod(0o755)
        make_host(tmp_path / script[:9])
        return list(check_card(read_card(CARD, tmp_path / script[:9]), (), *coalescing(CARD)))[-1]

    assert told("printf 'rx-usecs: 0\\n'").value == f"{CARD}: rx-usecs 0"
    assert told("printf 'netlink error: Operation not supported\\n' >&2; exit 81").verdict == "not applicable"
    found = told("echo 'netlink error: Operation not permitted' >&2; exit 1")
    assert (found.verdict, found.value) == ("unknown", f"{CARD}: ethtool: netlink error: Operation not permitted")


def test_a_card_that_is_not_there(tmp_path: Path) -> None:
    make_host(tmp_path)
    (found,) = check_card(read_card("eth7", tmp_path), card_names(tmp_path), None)
    assert found.verdict == "failed"
    assert found.remedy == f"name one of: {CARD}"


def test_lists_of_processors() -> None:
    texts = ("", "0", "0-2,5", "(null)", "2-3,x")
    assert [processor_list(text) for text in texts] == [(), (0,), (0, 1, 2, 5), (), (2, 3)]
