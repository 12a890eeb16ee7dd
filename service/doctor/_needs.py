"""Requirements of a configuration on the host."""

from dataclasses import dataclass

from drivers.ethercat.config import EthercatConfig
from service.config.arm_tables import RealtimeConfig
from service.config.load import BusConfig, Config


@dataclass(frozen=True)
class Loop:
    """The cycle of one arm."""

    arm: str
    cycle_hz: float
    realtime: RealtimeConfig


@dataclass(frozen=True)
class Needs:
    """Requirements on the host; without a configuration none, so that a shortcoming is a warning at most."""

    loops: tuple[Loop, ...] = ()
    interfaces: tuple[str, ...] = ()  # of EtherCAT
    priority: int = 0  # highest of SCHED_FIFO
    processors: tuple[int, ...] = ()  # of all loops; empty: any
    lock_memory: bool = False


def needs_of(config: Config, interface: str | None = None) -> Needs:
    """Return the requirements of `config`, and of `interface` if given."""
    loops, interfaces = [], [] if interface is None else [interface]
    for arm in config.arm:
        ethercat = isinstance(arm.driver, EthercatConfig)
        if isinstance(arm.driver, EthercatConfig):
            interfaces += arm.driver.interfaces
        settings = arm.realtime or (RealtimeConfig() if ethercat else None)
        if settings is None and isinstance(arm.driver, BusConfig):
            settings = RealtimeConfig(lock_memory=False)  # behind a PLC nothing is required without the table
        if settings is not None:
            rate = float(arm.driver.cycle_hz) if isinstance(arm.driver, EthercatConfig) else 1000.0
            loops.append(Loop(arm.name, rate, settings))
    return Needs(
        loops=tuple(loops), interfaces=tuple(dict.fromkeys(interfaces)),
        priority=max((loop.realtime.priority for loop in loops), default=0),
        processors=tuple(sorted({number for loop in loops for number in loop.realtime.processors or ()})),
        lock_memory=any(loop.realtime.lock_memory for loop in loops),
    )  # fmt: skip
