"""From a configuration to everything that is needed to read and command one arm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from drivers.ads.config import AdsConfig
from drivers.ads.decode import Decoder
from drivers.ads.errors import AdsConnectionError
from drivers.ads.layout import Sizes
from drivers.ads.link import CONFIG, RUN, STATES, STOP, Link
from drivers.ads.program import Head, Info, PlcProgram
from drivers.ads.scaling import AxisScaling
from drivers.driver import DriverConfigError
from drivers.ethercat.cycle import now_ns, sleep_until

#: How long a program may take to count a cycle, and to write its first block.
_COUNT_NS = 500_000_000
_LOOK_NS = 5_000_000


@dataclass(frozen=True)
class Attached:
    """Variables of a PLC program that fits the configuration.

    Attributes
    ----------
    program : PlcProgram
    info : Info
    places : sequence of int
        Place of each joint's axis among the PLC's.
    scaling : AxisScaling
    decoder : Decoder
    head : Head
        As read last.
    dc : bool
        The samples have a distributed-clock time.
    """

    program: PlcProgram
    info: Info
    places: tuple[int, ...]
    scaling: AxisScaling
    decoder: Decoder
    head: Head
    dc: bool

    @property
    def sizes(self) -> Sizes:
        """The constants of the program."""
        return self.program.sizes

    @property
    def block_ns(self) -> int:
        """Time that a block covers [ns]."""
        return self.sizes.block_samples * self.info.cycle_ns

    def blocks(self, interval_ns: int) -> int:
        """Blocks that are complete after an interval, at least one."""
        return max(interval_ns // self.block_ns, 1)

    def cycles(self, interval_ns: int) -> int:
        """Cycles within which a poll and the one after it happen, and a block is collected."""
        return -(-2 * interval_ns // self.info.cycle_ns) + self.sizes.block_samples


def attach(link: Link, config: AdsConfig) -> Attached:
    """Connect if the link is not open, check the PLC and its variables, and see its program count.

    Raises
    ------
    DriverConfigError
        Variables, axes or sizes do not fit.
    DriverConnectionError
        No connection, not in run mode, or the program does not count.
    """
    state = link.state()[0] if link.is_open else link.open()[0]
    check_running(link, state)
    program = PlcProgram(link, config.variables)
    info = program.info
    if not 50_000 <= info.cycle_ns <= 1_000_000_000:
        raise DriverConfigError(f"{config.variables}.stInfo.nCycleNs = {info.cycle_ns} is no cycle of a task")
    places = axis_places(config, info.names)
    _check_motion(config, program.sizes, info)
    scaling = AxisScaling(config.axis)
    decoder = Decoder(program.sizes, info.channels, places, scaling)
    if "q" not in decoder.channels:
        raise DriverConfigError(
            f"{config.variables}.stInfo.nChannels = {info.channels:#x}: the PLC states no positions"
        )
    head, dc = _see_it_count(link, program, decoder, config)
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
    """Place of each joint's axis in the PLC's list; raises `DriverConfigError`."""
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


def _check_motion(config: AdsConfig, sizes: Sizes, info: Info) -> None:
    if config.mode == "none":
        return
    if sizes.axes != len(config.axis):
        raise DriverConfigError(
            f"the PLC has {sizes.axes} axes ({', '.join(info.names)}) and the configuration {len(config.axis)}: an arm "
            'is commanded whole; list all axes, or set mode = "none"'
        )
    lead = round(config.lead_ms * 1e6 / info.cycle_ns)
    if lead + sizes.block_samples > sizes.setpoints:
        raise DriverConfigError(
            f"lead_ms = {config.lead_ms:g} and a block are {lead + sizes.block_samples} cycles, a buffer of the PLC "
            f"holds {sizes.setpoints} set positions: shorten lead_ms, or raise SETPOINTS in the PLC"
        )
    if lead < 2 * sizes.block_samples:
        raise DriverConfigError(
            f"lead_ms = {config.lead_ms:g} is less than two blocks of {sizes.block_samples} samples: set positions "
            "would come too late; lengthen lead_ms"
        )
    if info.heartbeat_ms < 2 * config.poll_ms:
        raise DriverConfigError(
            f"poll_ms = {config.poll_ms:g} is too long for the PLC's heartbeat time of {info.heartbeat_ms} ms"
        )


def _see_it_count(link: Link, program: PlcProgram, decoder: Decoder, config: AdsConfig) -> tuple[Head, bool]:
    """Wait until the program has counted and written a block; return its head, and whether samples have DC time."""
    first, _ = program.read([])
    until_ns = now_ns() + _COUNT_NS + program.sizes.block_samples * program.info.cycle_ns
    while True:
        head, found = program.read([max(first.blocks - 1, 0)])
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
