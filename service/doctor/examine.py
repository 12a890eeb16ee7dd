"""All checks of this host, in the order of the report."""

import ctypes
import errno
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import rt_core
from service.config.arm_tables import RealtimeConfig
from service.config.load import Config
from service.doctor._host_checks import check_card, check_host
from service.doctor._needs import Loop, Needs, needs_of
from service.doctor._site_checks import check_cache, check_site
from service.doctor.cycle import CycleError, judge_cycle, try_in_process
from service.doctor.facts import card_names, read_card, read_facts
from service.doctor.finding import Finding

_TIME_ERROR = 5
_STA_UNSYNC = 0x40
#: Settings of the trial if the configuration has no cycle.
_ORDINARY = RealtimeConfig(lock_memory=False)
_ETHTOOL_S = 5.0


def examine(config: Config | None, interface: str | None, cycle_s: float) -> Iterator[Finding]:
    """Yield the findings about this host, as each is made.

    Without a `config` to run they are about any arm with a cycle, as warnings at most. `interface` is a further network
    card to check, `cycle_s` the length of each cycle's trial [s]; 0 for none.
    """
    needs = Needs(interfaces=(interface,) if interface else ()) if config is None else needs_of(config, interface)
    facts, interpreter = read_facts(), file_capabilities(Path(sys.executable).resolve())
    yield from check_host(facts, needs, synchronised(), interpreter, closed_processors(facts.online))
    if not needs.interfaces:
        yield Finding("card", "not applicable", "no bus on a network card; --interface names one")
    for name in needs.interfaces:
        yield from check_card(read_card(name), card_names(), *coalescing(name))
    yield check_cache(Path(rt_core.__file__ or "").parent)
    if config is not None:
        yield from check_site(config)
    if not cycle_s:
        return
    for loop in needs.loops or (Loop("", 1000.0, _ORDINARY),):
        try:
            yield judge_cycle(try_in_process(loop, cycle_s), loop.arm or None)
        except CycleError as error:
            yield Finding("cycle", "failed", str(error), "look at the lines on stderr")


def synchronised() -> bool | None:
    """Return whether the kernel's clock is synchronised (adjtimex(2)); None if unknown."""
    timex = ctypes.create_string_buffer(512)  # modes = 0: change nothing; larger than struct timex on any platform
    state = ctypes.CDLL(None, use_errno=True).adjtimex(timex)
    if state < 0:
        return None
    # unsigned modes; long offset, freq, maxerror, esterror; int status
    (status,) = struct.unpack_from("@i", timex, struct.calcsize("@Illll"))
    return bool(state != _TIME_ERROR and not status & _STA_UNSYNC)


def file_capabilities(path: Path) -> int | None:
    """Return the permitted capabilities in a file's attribute; None if unreadable."""
    try:
        raw = os.getxattr(path, "security.capability")
    except OSError as error:
        return 0 if error.errno in (errno.ENODATA, errno.ENOTSUP) else None
    # struct vfs_cap_data: magic and flags, then permitted and inheritable for 32 bits each
    low, high = struct.unpack_from("<4xI4xI", raw) if len(raw) >= 20 else (0, 0)
    return int(low | high << 32)


def coalescing(interface: str) -> tuple[str | None, str]:
    """Return the output of `ethtool -c`, empty if the card has no such settings; or None, and the reason."""
    tool = shutil.which("ethtool", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")
    if tool is None:
        return None, ""
    command = [tool, "-c", interface]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_ETHTOOL_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, str(error)
    if done.returncode == 0:
        return done.stdout, ""
    words = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]
    return ("", "") if "not supported" in words else (None, words)


def closed_processors(numbers: Iterable[int]) -> tuple[int, ...]:
    """Return the processors that this process may not use, because of its container or unit."""
    before, closed = os.sched_getaffinity(0), []
    try:
        for number in numbers:
            try:
                os.sched_setaffinity(0, {number})
            except (OSError, ValueError):
                closed.append(number)
    finally:
        os.sched_setaffinity(0, before)
    return tuple(closed)
