"""What a configuration asks of the host."""

from __future__ import annotations

from dataclasses import dataclass

from drivers.ethercat.config import EthercatConfig
from service.config.load import BusConfig, Config
from service.config.realtime import RealtimeConfig


@dataclass(frozen=True)
class Loop:
    """The cycle of one arm."""

    arm: str
    cycle_hz: float
    realtime: RealtimeConfig


@dataclass(frozen=True)
class Needs:
    """What is asked of the host; without a configuration nothing is, and what is missing is a warning at most."""

    loops: tuple[Loop, ...] = ()
    interfaces: tuple[str, ...] = ()  # of EtherCAT
    priority: int = 0  # highest of SCHED_FIFO
    processors: tuple[int, ...] = ()  # of all loops; empty: any
    lock_memory: bool = False


def needs_of(config: Config, interface: str | None = None) -> Needs:
    """Return what `config` asks for, and `interface` beside."""
    loops, interfaces = [], [] if interface is None else [interface]
    for arm in config.arm:
        ethercat = isinstance(arm.driver, EthercatConfig)
        if isinstance(arm.driver, EthercatConfig):
            interfaces += arm.driver.interfaces
        settings = arm.realtime or (RealtimeConfig() if ethercat else None)
        if settings is None and isinstance(arm.driver, BusConfig):
            settings = RealtimeConfig(lock_memory=False)  # behind a PLC: nothing is asked for without the table
        if settings is not None:
            rate = float(arm.driver.cycle_hz) if isinstance(arm.driver, EthercatConfig) else 1000.0
            loops.append(Loop(arm.name, rate, settings))
    return Needs(
        loops=tuple(loops),
        interfaces=tuple(dict.fromkeys(interfaces)),
        priority=max((loop.realtime.priority for loop in loops), default=0),
        processors=tuple(sorted({number for loop in loops for number in loop.realtime.processors or ()})),
        lock_memory=any(loop.realtime.lock_memory for loop in loops),
    )
