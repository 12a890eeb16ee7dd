"""Hosts made of files, to be looked at instead of this one."""

from pathlib import Path

LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units
Max open files            {files}                 524288               files
Max locked memory         {memlock}              unlimited            bytes
Max realtime priority     {rtprio}                    98
"""
#: A PC that was set up for a bus at its last processor.
GOOD: dict[str, str] = {
    "proc/sys/kernel/osrelease": "6.1.0-29-rt-amd64",
    "proc/sys/kernel/version": "#1 SMP PREEMPT_RT Debian 6.1.123-1",
    "proc/sys/kernel/sched_rt_runtime_us": "950000",
    "proc/sys/kernel/sched_rt_period_us": "1000000",
    "proc/self/limits": LIMITS.format(files="1024", memlock="unlimited", rtprio="98"),
    "proc/self/status": "Name:\tpython\nCapEff:\t0000000000803000\n",
    "sys/kernel/realtime": "1",
    "sys/devices/system/cpu/online": "0-3",
    "sys/devices/system/cpu/isolated": "3",
    "sys/devices/system/cpu/nohz_full": "3",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave",
    "sys/devices/system/cpu/cpu3/cpufreq/scaling_governor": "performance",
    "sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc",
    "sys/devices/system/clocksource/clocksource0/available_clocksource": "tsc hpet acpi_pm",
    "sys/class/net/lo/flags": "0x9",
    "sys/class/net/enp3s0/flags": "0x1003",
    "sys/class/net/enp3s0/carrier": "1",
    "sys/class/net/enp3s0/ifindex": "3",
    "run/NetworkManager/devices/3": "[device]\nmanaged=false\n",
    "run/systemd/netif/links/3": "ADMIN_STATE=unmanaged\n",
}
CARD = "enp3s0"


def make_host(root: Path, changes: dict[str, str | None] | None = None) -> Path:
    """Write the files of `GOOD` below `root`, with changes; None leaves a file out."""
    for name, text in {**GOOD, **(changes or {})}.items():
        if text is None:
            continue
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", encoding="utf-8")
    device = root / "sys/class/net" / CARD
    if device.is_dir():
        place_card(root, "pci0000:00/0000:00:1c.0/0000:03:00.0", "igb")
    return root


def place_card(root: Path, place: str, driver: str) -> None:
    """Put the card where `place` is among the host's devices, with a driver."""
    device = root / "sys/devices" / place
    device.mkdir(parents=True)
    (device / "driver").symlink_to(f"/sys/bus/any/drivers/{driver}")
    link = root / "sys/class/net" / CARD / "device"
    link.unlink(missing_ok=True)
    link.symlink_to(device)
