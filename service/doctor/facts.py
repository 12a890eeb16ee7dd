"""Facts about a host from files in /proc, /sys, /run and /etc below a root folder; None if unknown."""

import re
from dataclasses import dataclass
from pathlib import Path

UNLIMITED = 1 << 62
_RIGHTS = ("Max realtime priority", "Max locked memory", "Max open files")


@dataclass(frozen=True)
class Card:
    """A network interface."""

    name: str
    exists: bool
    up: bool = False
    link: bool = False
    driver: str | None = None  # None without a device, as for a virtual interface
    wireless: bool = False
    usb: bool = False
    managers: tuple[str, ...] = ()  # programs that manage it and may assign an address


@dataclass(frozen=True)
class Facts:
    """A host as seen by a process on it."""

    release: str  # of the kernel
    version: str
    realtime: bool  # PREEMPT_RT
    online: tuple[int, ...]  # processors
    isolated: tuple[int, ...]
    without_tick: tuple[int, ...]  # nohz_full
    governors: dict[int, str]  # by processor; empty without frequency scaling
    rt_runtime_us: int | None  # share of each period for real-time processes; -1: all
    rt_period_us: int | None
    rtprio: int  # limits of this process
    memlock: int  # bytes
    open_files: int
    capabilities: int  # effective
    clocksource: str | None
    clocksources: tuple[str, ...]


def read_facts(root: Path = Path("/")) -> Facts:
    """Read the facts of a host whose file system is at `root`."""
    system, kernel = root / "sys/devices/system", root / "proc/sys/kernel"
    clock = system / "clocksource/clocksource0"
    version = _text(kernel / "version") or ""
    limits = _limits(_text(root / "proc/self/limits") or "")
    policies = system.glob("cpu/cpu[0-9]*/cpufreq/scaling_governor")
    governors = {int(policy.parent.parent.name[3:]): _text(policy) or "" for policy in policies}
    return Facts(
        release=_text(kernel / "osrelease") or "", version=version,
        realtime=_text(root / "sys/kernel/realtime") == "1" or "PREEMPT_RT" in version,
        online=processor_list(_text(system / "cpu/online") or ""),
        isolated=processor_list(_text(system / "cpu/isolated") or ""),
        without_tick=processor_list(_text(system / "cpu/nohz_full") or ""), governors=dict(sorted(governors.items())),
        rt_runtime_us=_number(kernel / "sched_rt_runtime_us"), rt_period_us=_number(kernel / "sched_rt_period_us"),
        rtprio=limits["Max realtime priority"], memlock=limits["Max locked memory"],
        open_files=limits["Max open files"], capabilities=_effective(_text(root / "proc/self/status") or ""),
        clocksource=_text(clock / "current_clocksource"),
        clocksources=tuple((_text(clock / "available_clocksource") or "").split()),
    )  # fmt: skip


def read_card(name: str, root: Path = Path("/")) -> Card:
    """Read the facts of the network interface `name`."""
    folder = root / "sys/class/net" / name
    if not folder.is_dir():
        return Card(name, exists=False)
    flags = int(_text(folder / "flags") or "0", 16)
    link = folder / "device/driver"
    return Card(
        name, exists=True, up=bool(flags & 1), link=_text(folder / "carrier") == "1",
        driver=link.readlink().name if link.is_symlink() else None,
        wireless=(folder / "wireless").exists() or (folder / "phy80211").exists(),
        usb=any(re.fullmatch(r"usb\d+", part) for part in (folder / "device").resolve().parts),
        managers=_managers(_text(folder / "ifindex") or "", root),
    )  # fmt: skip


def card_names(root: Path = Path("/")) -> tuple[str, ...]:
    """Return the names of the host's network interfaces, without loopback."""
    folder = root / "sys/class/net"
    return tuple(sorted(path.name for path in folder.iterdir() if path.name != "lo")) if folder.is_dir() else ()


def processor_list(text: str) -> tuple[int, ...]:
    """Parse a processor list of the kernel, such as `0-3,6`; invalid pieces are ignored."""
    found: list[int] = []
    for piece in text.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", piece.strip())
        if match:
            found += range(int(match[1]), int(match[2] or match[1]) + 1)
    return tuple(found)


def _managers(index: str, root: Path) -> tuple[str, ...]:
    """Return the managers of the interface with number `index`, by their files in /run."""
    found = []
    network_manager = _text(root / "run/NetworkManager/devices" / index) or ""
    if re.search(r"^managed=true$", network_manager, re.M):
        found.append("NetworkManager")
    networkd = _text(root / "run/systemd/netif/links" / index) or ""
    if re.search(r"^ADMIN_STATE=(?!unmanaged)", networkd, re.M):
        found.append("systemd-networkd")
    return tuple(found)


def _limits(text: str) -> dict[str, int]:
    """Return soft limits of `/proc/self/limits`; 0 for missing ones."""
    found = dict.fromkeys(_RIGHTS, 0)
    for name in _RIGHTS:
        match = re.search(rf"^{name}\s+(\S+)", text, re.M)
        if match:
            found[name] = int(match[1]) if match[1].isdecimal() else UNLIMITED
    return found


def _effective(status: str) -> int:
    match = re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.M)
    return int(match[1], 16) if match else 0


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:  # missing or unreadable, as the carrier of an interface that is down
        return None


def _number(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text and re.fullmatch(r"-?\d+", text) else None
