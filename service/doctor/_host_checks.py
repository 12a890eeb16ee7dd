"""Checks of kernel, processors, limits, clock and the network cards of a bus: facts and needs in, findings out."""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from service.doctor._needs import Needs
from service.doctor.facts import UNLIMITED, Card, Facts
from service.doctor.finding import Finding, failed_or_warning
from service.supervisor.capabilities import CAPABILITIES

MIN_FILES, FEW_FILES = 1024, 256
_SLOW_CLOCKS = ("hpet", "acpi_pm", "jiffies", "refined-jiffies")
_SERVICE = "run the daemon by its unit (thetad deploy install)"


def check_host(
    facts: Facts, needs: Needs, synchronised: bool | None, interpreter: int | None, closed: Collection[int] = ()
) -> Iterator[Finding]:
    """Yield the findings about a host.

    `synchronised`: whether the kernel's clock is; None if unknown. `interpreter` holds the capabilities of the Python
    interpreter's file; None if unreadable. `closed` are processors that this process may not use.
    """
    yield _kernel(facts)
    yield _isolated(facts, needs, closed)
    yield _governor(facts, needs)
    yield _throttling(facts, needs)
    yield _priority(facts, needs)
    yield _memory(facts, needs)
    yield _open_files(facts)
    yield _raw_ethernet(facts, needs)
    yield _interpreter(interpreter)
    yield _clocksource(facts)
    yield _synchronised(synchronised)


def _kernel(facts: Facts) -> Finding:
    if facts.realtime:
        return Finding("kernel", "ok", f"{facts.release}, PREEMPT_RT")
    return Finding(
        "kernel", "warning", f"{facts.release}, not PREEMPT_RT",
        "a kernel with PREEMPT_RT makes late cycles rarer; on Debian: apt install linux-image-rt-amd64",
    )  # fmt: skip


def _isolated(facts: Facts, needs: Needs, closed: Collection[int]) -> Finding:
    name, have = "isolated_processors", f"{_list(facts.isolated)} of {_list(facts.online)}"
    missing = sorted(set(needs.processors) - set(facts.online))
    if missing:
        text = f"[arm.realtime] processors names {_list(missing)}; there are {_list(facts.online)}"
        return Finding(name, "failed", text, "name processors that are there")
    refused = sorted(set(needs.processors) & set(closed))
    if refused:
        text = f"[arm.realtime] processors names {_list(refused)}, which this process may not use"
        remedy = "let it: AllowedCPUs= of its unit, or the cpuset of its container; or name others"
        return Finding(name, "failed", text, remedy)
    shared = sorted(set(needs.processors) - set(facts.isolated))
    if shared:
        text = f"{have}; the loop's processors {_list(shared)} are not"
        number = _list(shared)
        remedy = f"on the kernel's command line: isolcpus={number} nohz_full={number} rcu_nocbs={number}"
        return Finding(name, "warning", text, remedy)
    ticking = sorted(set(needs.processors) - set(facts.without_tick))
    if ticking:
        text, number = f"{have}; the kernel's tick goes on on {_list(ticking)}", _list(needs.processors)
        remedy = f"on the kernel's command line: nohz_full={number} rcu_nocbs={number}"
        return Finding(name, "warning", text, remedy)
    if needs.processors or (facts.isolated and not needs.loops):
        return Finding(name, "ok", have)
    usable = [number for number in facts.online if number not in closed]
    if len(usable) < 2:
        return Finding(name, "warning", have, "the loop shares the only processor with all else: take another computer")
    last = max(set(usable) & set(facts.isolated) or usable)
    remedy = f"processors = [{last}] in [arm.realtime]"
    if last not in facts.isolated:
        remedy = f"isolcpus={last} nohz_full={last} rcu_nocbs={last} on the kernel's command line, and {remedy}"
    return Finding(name, "warning", f"{have}; no loop has one of its own", remedy)


def _governor(facts: Facts, needs: Needs) -> Finding:
    name = "governor"
    if not facts.governors:
        return Finding(name, "not applicable", "no frequency is governed here")
    concerned = {n: g for n, g in facts.governors.items() if n in needs.processors} or facts.governors
    value = ", ".join(sorted(set(concerned.values())))
    if set(concerned.values()) == {"performance"}:
        return Finding(name, "ok", value)
    return Finding(name, "warning", value, "cpupower frequency-set -g performance, at each start of the computer")


def _throttling(facts: Facts, needs: Needs) -> Finding:
    name, runtime, period = "realtime_share", facts.rt_runtime_us, facts.rt_period_us
    if runtime is None or period is None:
        return Finding(name, "unknown", "the kernel does not tell")
    if runtime < 0 or runtime >= 0.9 * period:
        return Finding(name, "ok", "all" if runtime < 0 else f"{runtime / period:.0%} of each {period / 1e6:g} s")
    return Finding(
        name, failed_or_warning(needs.priority > 0), f"{runtime / period:.0%} of each {period / 1e6:g} s",
        "sysctl kernel.sched_rt_runtime_us=950000: a loop that has used up its share stands still until the next one",
    )  # fmt: skip


def _priority(facts: Facts, needs: Needs) -> Finding:
    allowed = 99 if _has(facts, "CAP_SYS_NICE") else facts.rtprio
    value = f"up to {allowed}" if allowed else "none"
    if allowed >= max(needs.priority, 1):
        return Finding("realtime_priority", "ok", value)
    if needs.priority:
        value += f"; [arm.realtime] asks for {needs.priority}"
    remedy = f"{_SERVICE}, or `rtprio 98` in /etc/security/limits.d for its user"
    return Finding("realtime_priority", failed_or_warning(needs.priority > 0), value, remedy)


def _memory(facts: Facts, needs: Needs) -> Finding:
    name = "locked_memory"
    if _has(facts, "CAP_IPC_LOCK") or facts.memlock >= UNLIMITED:
        return Finding(name, "ok", "any amount")
    value = f"at most {facts.memlock / 1e6:.0f} MB, and the acquisition locks all of its pages"
    remedy = f"{_SERVICE}, or `memlock unlimited` in /etc/security/limits.d for its user"
    return Finding(name, failed_or_warning(needs.lock_memory), value, remedy)


def _open_files(facts: Facts) -> Finding:
    value = "no limit" if facts.open_files >= UNLIMITED else str(facts.open_files)
    if facts.open_files >= MIN_FILES:
        return Finding("open_files", "ok", value)
    verdict = failed_or_warning(facts.open_files < FEW_FILES)
    return Finding("open_files", verdict, value, f"ulimit -n {MIN_FILES}: each subscriber takes one")


def _raw_ethernet(facts: Facts, needs: Needs) -> Finding:
    name, wanted = "raw_ethernet", ("CAP_NET_RAW", "CAP_NET_ADMIN")
    missing = [each for each in wanted if not _has(facts, each)]
    if not missing:
        return Finding(name, "ok", " and ".join(wanted))
    value = f"without {' and '.join(missing)}"
    if not needs.interfaces:
        return Finding(name, "not applicable", f"{value}; only EtherCAT needs it")
    return Finding(name, "failed", value, f"{_SERVICE}, or try with sudo")


def _interpreter(capabilities: int | None) -> Finding:
    name = "interpreter_rights"
    if capabilities is None:
        return Finding(name, "unknown", "the file of the interpreter cannot be read")
    if not capabilities:
        return Finding(name, "ok", "none in its file")
    named = [each for each, bit in CAPABILITIES.items() if capabilities >> bit & 1] or [f"{capabilities:#x}"]
    return Finding(
        name, "warning", f"its file gives {', '.join(named)} to every program in Python",
        f"{_SERVICE} and take them away: setcap -r, on the file of the interpreter",
    )  # fmt: skip


def _clocksource(facts: Facts) -> Finding:
    name, value = "clocksource", facts.clocksource
    if value is None:
        return Finding(name, "unknown", "the kernel does not tell")
    if value not in _SLOW_CLOCKS:
        return Finding(name, "ok", value)
    remedy = "each look at the clock takes microseconds; in the BIOS, or on the kernel's command line, tsc=reliable"
    if "tsc" in facts.clocksources:
        remedy = "echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource"
    return Finding(name, "warning", value, remedy)


def _synchronised(synchronised: bool | None) -> Finding:
    name = "clock"
    if synchronised is None:
        return Finding(name, "unknown", "the kernel does not tell")
    if synchronised:
        return Finding(name, "ok", "synchronised")
    return Finding(name, "warning", "not synchronised", "install chrony, or: timedatectl set-ntp true")


def _has(facts: Facts, name: str) -> bool:
    return bool(facts.capabilities >> CAPABILITIES[name] & 1)


def _list(numbers: Iterable[int]) -> str:
    """Format processors as the kernel does: `0-2,5`."""
    pieces: list[list[int]] = []
    for number in sorted(numbers):
        if pieces and number == pieces[-1][1] + 1:
            pieces[-1][1] = number
        else:
            pieces.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in pieces) or "none"


def check_card(card: Card, others: Sequence[str], coalescing: str | None, silent: str = "") -> Iterator[Finding]:
    """Yield the findings about one card; `others` are the names of all cards of the host.

    `coalescing` is the output of `ethtool -c`, empty if off; None if there is none, and `silent` says why not.
    """
    if not card.exists:
        known = ", ".join(others) or "none"
        yield Finding("card", "failed", f"{card.name}: not there", f"name one of: {known}")
        return
    yield _state(card)
    yield _driver(card)
    yield _managers(card)
    yield _coalescing(card, coalescing, silent)


def _state(card: Card) -> Finding:
    if not card.up:
        return Finding("card", "failed", f"{card.name}: down", f"ip link set {card.name} up (as root)")
    if not card.link:
        return Finding("card", "failed", f"{card.name}: no link", "plug in the cable, and switch the first drive on")
    return Finding("card", "ok", f"{card.name}: up, with a link")


def _driver(card: Card) -> Finding:
    value = f"{card.name}: {card.driver or 'virtual'}"
    if card.wireless or card.usb:  # USB alone takes a large part of a cycle
        kind = "wireless" if card.wireless else "behind USB"
        return Finding("card_driver", "failed", f"{value}, {kind}", "use a card on PCI Express")
    if card.driver is None:
        return Finding("card_driver", "ok", f"{value}, for simulated drives")
    return Finding("card_driver", "ok", value)


def _managers(card: Card) -> Finding:
    if not card.managers:
        return Finding("card_manager", "ok", f"{card.name}: none")
    value = f"{card.name}: {', '.join(card.managers)}"
    return Finding("card_manager", "warning", value, f"thetad deploy install --interface {card.name}")


def _coalescing(card: Card, text: str | None, silent: str) -> Finding:
    name = "card_coalescing"
    if text is None and silent:
        return Finding(name, "unknown", f"{card.name}: ethtool: {silent}", f"ethtool -c {card.name} (as root)")
    if text is None:
        return Finding(name, "unknown", f"{card.name}: ethtool is not installed", "apt install ethtool")
    values = {key: int(value) for key, value in re.findall(r"^([rt]x-usecs):\s*(\d+)$", text, re.M)}
    adaptive = re.findall(r"\b([RT]X): on\b", " ".join(re.findall(r"^Adaptive (.*)$", text, re.M)))
    if not values and not adaptive:
        return Finding(name, "not applicable", f"{card.name}: the card has none")
    found = [f"{key} {each}" for key, each in sorted(values.items())] + [f"adaptive {each}" for each in adaptive]
    value = f"{card.name}: {', '.join(found)}"
    if not any(values.values()) and not adaptive:
        return Finding(name, "ok", value)
    # With adaptation the card chooses the times itself, whatever their setting.
    off = "".join(f" adaptive-{each.lower()} off" for each in adaptive)
    return Finding(name, "warning", value, f"ethtool -C {card.name}{off} rx-usecs 0 tx-usecs 0 (as root)")
