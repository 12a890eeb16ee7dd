"""Connect to a PLC program and check that it fits the configuration of an arm."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from drivers.ads._errors import VERSION_INVALID, AdsConnectionError, AdsError
from drivers.ads.axes.scaling import AxisScaling
from drivers.ads.config import AdsConfig
from drivers.ads.layout import Sizes
from drivers.ads.link.link import CONFIG, RUN, STATES, STOP, Link
from drivers.ads.link.program import Head, Info, PlcProgram
from drivers.ads.ring.clock import FILETIME_1970
from drivers.ads.ring.decode import Decoder
from drivers.driver import DriverConfigError
from drivers.timing import now_ns, sleep_until

#: Time limit for a program to count a cycle, and to write its first block.
_COUNT_NS = 500_000_000
_LOOK_NS = 5_000_000
#: Valid times of a PLC: 2000 to 2200 [100 ns since 1601].
_TIMES = range(FILETIME_1970 + 946_684_800 * 10**7, FILETIME_1970 + 7_258_118_400 * 10**7)
_TRIES = 3  # lookups of the variables, repeated after an online change meanwhile
_MIN_BLOCKS = 3  # one is being written, and another may be until a request is answered


@dataclass(frozen=True)
class Attached:
    """Variables of a PLC program that fits the configuration."""

    program: PlcProgram
    info: Info
    places: tuple[int, ...]  # index of each joint's axis in the PLC's list
    scaling: AxisScaling
    decoder: Decoder
    head: Head  # as last read
    dc: bool  # whether samples have a distributed-clock time

    @property
    def sizes(self) -> Sizes:
        """Constants of the program."""
        return self.program.sizes

    @property
    def block_ns(self) -> int:
        """Time that a block covers [ns]."""
        return self.sizes.block_samples * self.info.cycle_ns

    def blocks(self, interval_ns: int) -> int:
        """Return the number of blocks completed in an interval, at least one."""
        return max(interval_ns // self.block_ns, 1)

    def cycles(self, interval_ns: int) -> int:
        """Return the cycles of two polls and a block."""
        return -(-2 * interval_ns // self.info.cycle_ns) + self.sizes.block_samples


def attach(link: Link, config: AdsConfig) -> Attached:
    """Connect if not open, check the PLC and its variables, wait until its program counts; raises `DriverError`."""
    state = link.state()[0] if link.is_open else link.open()[0]
    check_running(link, state)
    program = _looked_up(link, config)
    try:
        return _attached(link, config, program)
    except BaseException:
        program.close()
        raise


def _looked_up(link: Link, config: AdsConfig) -> PlcProgram:
    for _ in range(_TRIES):
        program = PlcProgram(link, config.variables)
        if not program.moved():
            return program
        program.close()
    raise AdsError(
        f"ADS {link.target}: {config.variables}: online changes came while its variables were looked up",
        VERSION_INVALID,
    )


def _attached(link: Link, config: AdsConfig, program: PlcProgram) -> Attached:
    info = program.info
    if not 50_000 <= info.cycle_ns <= 1_000_000_000:
        raise DriverConfigError(f"{config.variables}.stInfo.nCycleNs = {info.cycle_ns} is not a cycle time of a task")
    places = axis_places(config, info.names)
    _check_ring(config, program.sizes, info)
    _check_motion(config, program, info)
    scaling = AxisScaling(config.axis)
    decoder = Decoder(program.sizes, info.channels, places, scaling)
    if "q" not in decoder.channels:
        raise DriverConfigError(
            f"{config.variables}.stInfo.nChannels = {info.channels:#x}: the PLC states no positions"
        )
    if config.mode != "none" and "setpoint" not in decoder.channels:
        raise DriverConfigError(
            f"{config.variables}.stInfo.nChannels = {info.channels:#x}: the PLC states no set positions, from which a "
            'motion has to begin: add CHANNEL_SETPOINT to nChannels of FB_Theta, or set mode = "none"'
        )
    head, dc = _wait_until_counting(link, program, decoder, config)
    return Attached(program, info, places, scaling, decoder, head, dc)


def check_running(link: Link, state: int) -> None:
    """Raise `AdsConnectionError` unless the PLC is in run mode."""
    if state != RUN:
        remedy = {
            STOP: "start the PLC program (Login, Start; or activate the boot project)",
            CONFIG: "activate the configuration and restart TwinCAT in run mode",
        }.get(state, "bring it to run mode")
        raise AdsConnectionError(f"ADS {link.target}: the PLC is in {STATES.get(state, str(state))} mode: {remedy}")


def axis_places(config: AdsConfig, names: Sequence[str]) -> tuple[int, ...]:
    """Return the index of each joint's axis in the PLC's list; raises `DriverConfigError`."""
    if config.axis[0].name is None:
        if len(config.axis) > len(names):
            raise DriverConfigError(
                f"the PLC has {len(names)} axes ({', '.join(names)}), the configuration {len(config.axis)}"
            )
        return tuple(range(len(config.axis)))
    known = {name.casefold(): place for place, name in enumerate(names)}
    places = []
    for axis in config.axis:
        assert axis.name is not None
        if axis.name.casefold() not in known:
            raise DriverConfigError(
                f"joint {axis.joint!r}: the PLC has no axis {axis.name!r}; it has: {', '.join(names)}"
            )
        places.append(known[axis.name.casefold()])
    return tuple(places)


def _check_ring(config: AdsConfig, sizes: Sizes, info: Info) -> None:
    if sizes.blocks < _MIN_BLOCKS:
        raise DriverConfigError(
            f"the PLC's ring has {sizes.blocks} blocks, {_MIN_BLOCKS} are the least: raise BLOCKS in the PLC"
        )
    whole_ms = (sizes.blocks - 2) * sizes.block_samples * info.cycle_ns * 1e-6
    if config.poll_ms > whole_ms:
        raise DriverConfigError(
            f"poll_ms = {config.poll_ms:g} is longer than the {whole_ms:g} ms for which blocks stay in the PLC's ring: "
            "shorten poll_ms, or raise BLOCKS in the PLC"
        )


def _check_motion(config: AdsConfig, program: PlcProgram, info: Info) -> None:
    if config.mode == "none":
        return
    sizes = program.sizes
    if program.by_address and not program.versioned:
        raise DriverConfigError(
            "the server has neither symbols for elements of arrays nor a symbol version: an online change could not "
            'be seen before set positions are written to an address; set mode = "none"'
        )
    if sizes.axes != len(config.axis):
        raise DriverConfigError(
            f"the PLC has {sizes.axes} axes ({', '.join(info.names)}) and the configuration {len(config.axis)}: an arm "
            'is commanded whole; list all axes, or set mode = "none"'
        )
    if info.heartbeat_ms < 2 * config.poll_ms:
        raise DriverConfigError(
            f"poll_ms = {config.poll_ms:g} is too long for the PLC's heartbeat time of {info.heartbeat_ms} ms"
        )
    lead = round(config.lead_ms * 1e6 / info.cycle_ns)
    if lead + sizes.block_samples > sizes.setpoints:
        raise DriverConfigError(
            f"lead_ms = {config.lead_ms:g} and a block are {lead + sizes.block_samples} cycles, a buffer of the PLC "
            f"holds {sizes.setpoints} set positions: shorten lead_ms, or raise SETPOINTS in the PLC"
        )
    # At its command a frame is a block and a poll old, and the command goes out with the next poll.
    least = 2 * sizes.block_samples + math.ceil(3.0 * config.poll_ms * 1e6 / info.cycle_ns) + 2
    if lead < least:
        raise DriverConfigError(
            f"lead_ms = {config.lead_ms:g} is less than two blocks of {sizes.block_samples} samples and three "
            f"times poll_ms = {config.poll_ms:g}, which are {least * info.cycle_ns * 1e-6:g} ms: set positions would "
            "come too late; lengthen lead_ms"
        )


def _wait_until_counting(link: Link, program: PlcProgram, decoder: Decoder, config: AdsConfig) -> tuple[Head, bool]:
    """Wait until the program has counted and written a block; return its head, and whether samples have DC times."""
    first, _ = program.read([])
    until_ns = now_ns() + _COUNT_NS + program.sizes.block_samples * program.info.cycle_ns
    while True:
        head, found = program.read([max(first.blocks - 1, 0)])
        if head.samples != first.samples:
            _check_time(config, first, head)
        if head.samples != first.samples and head.blocks:
            number, last = decoder.numbers(found[0])
            if number == last:
                return head, bool(decoder.decode(found[0]).dc_ns[-1])
            first = head
        if now_ns() > until_ns:
            raise AdsConnectionError(
                f"ADS {link.target}: {config.variables}: the program counts no cycles (nSamples = {head.samples}): is "
                "FB_Theta called in a task, and does no breakpoint hold it?"
            )
        sleep_until(now_ns() + _LOOK_NS)


def _check_time(config: AdsConfig, before: Head, head: Head) -> None:
    """Check the times of two cycles; raises `DriverConfigError`."""
    if head.time not in _TIMES:
        wrong = "is not within the years 2000 to 2200"
    elif head.time <= before.time and head.start == before.start:
        wrong = "does not advance with the cycles"
    else:
        return
    raise DriverConfigError(
        f"{config.variables}.stHead.nTime = {head.time} {wrong}: give FB_Theta's input nTime the time of each cycle, "
        "in 100 ns since 1601, as F_GetTaskTime() returns it"
    )
