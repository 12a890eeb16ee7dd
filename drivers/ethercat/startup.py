"""From a closed interface to drives in SAFE-OP: the part of the start before process data runs.

Every wait ends at a deadline, and every failure names the slave and its AL status.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from drivers.driver import DriverConnectionError
from drivers.ethercat.bus import Bus, al_code_text
from drivers.ethercat.config import EthercatConfig
from drivers.ethercat.errors import BusStateError
from drivers.ethercat.interface import refuse_other_master
from drivers.ethercat.network import check_network, expected_slaves
from drivers.ethercat.pdo import SdoWrite
from drivers.ethercat.recovery import PREOP, SAFEOP, STATE_NAMES, AlStatus
from drivers.ethercat.scaling import JointScaling, Ratings
from drivers.ethercat.setup import DriveSetup

_REG_WATCHDOG_DIVIDER, _REG_WATCHDOG_TIME = 0x0400, 0x0420
_REG_FMMU_COUNT, _REG_FMMU, _FMMU_BYTES = 0x0004, 0x0600, 16
_REG_SYNC_MANAGER, _SYNC_MANAGER_BYTES = 0x0800, 8
_REG_DC_DELAY = 0x0928


@dataclass
class SlaveImage:
    """What has to be written into a slave's controller again after it was without power."""

    sync_managers: list[bytes]  # as they are written: status and PDI byte 0
    fmmus: list[bytes]
    dc_delay: bytes
    watchdog: bytes  # register 0x0420
    sdos: list[SdoWrite]


@dataclass
class StartedBus:
    """A bus in SAFE-OP."""

    scaling: JointScaling
    images: list[SlaveImage]  # by position
    has_dc: bool
    expected_wkc: int
    weights: list[tuple[int, int]]  # by position; what each adds to the working counter by outputs and inputs


def status_text(status: AlStatus | None) -> str:
    """Return what a slave says of its state, readable; None: nothing."""
    return "not answering" if status is None else status.text(al_code_text)


def state_problems(left: dict[int, AlStatus | None], config: EthercatConfig) -> str:
    """Slaves that are not where they should be, readable."""
    joints = dict(zip(config.positions, (drive.joint for drive in config.drive), strict=True))
    texts = []
    for position, status in left.items():
        name = f"joint {joints[position]!r} (position {position})" if position in joints else f"position {position}"
        texts.append(f"{name} is {'' if status is None else 'in '}{status_text(status)}")
    return "; ".join(texts)


def start(bus: Bus, config: EthercatConfig, until_ns: int) -> StartedBus:
    """Open the bus and bring it to SAFE-OP, configured.

    Parameters
    ----------
    bus : Bus
        Not open yet; left open, also on failure.
    config : EthercatConfig
    until_ns : int
        When to have given up at the latest [ns of CLOCK_MONOTONIC].

    Raises
    ------
    DriverConfigError, NetworkMismatchError
        The bus or a drive is not what the configuration says.
    DriverConnectionError, BusStateError, SdoError
        An interface, a slave, or another master is in the way.
    """
    bus.open()
    for name in config.interfaces:
        refuse_other_master(name)
    check_network(expected_slaves(config), found := bus.scan(), config.interface)
    everyone = range(len(found))
    _wait_state(bus, config, PREOP, everyone, until_ns)
    setups = []
    for joint in range(len(config.drive)):
        _check_time(until_ns, config)
        setups.append(DriveSetup(bus, config, joint).run())
    has_dc = _start_clocks(bus, config)
    watchdogs = [_set_watchdog(bus, position, config.watchdog_ms) for position in everyone]
    _check_time(until_ns, config)
    lengths = {
        position: (config.device_of(joint).outputs.size, config.device_of(joint).inputs.size)
        for joint, position in enumerate(config.positions)
    }
    bus.map_process_data(lengths)
    _wait_state(bus, config, SAFEOP, everyone, until_ns)
    sdos = dict(zip(config.positions, (written for _, written in setups), strict=True))
    ratings: list[Ratings] = [rating for rating, _ in setups]
    devices = [config.device_of(joint) for joint in range(len(config.drive))]
    return StartedBus(
        JointScaling(config.drive, devices, ratings),
        [_image(bus, position, watchdogs[position], sdos.get(position, [])) for position in everyone],
        has_dc,
        bus.expected_wkc,
        [bus.wkc_weight(position) for position in everyone],
    )


def _check_time(until_ns: int, config: EthercatConfig) -> None:
    if time.monotonic_ns() > until_ns:
        raise DriverConnectionError(
            f"EtherCAT on {config.interface}: not started within start_timeout_s = {config.start_timeout_s:g}"
        )


def _wait_state(bus: Bus, config: EthercatConfig, state: int, positions: range, until_ns: int) -> None:
    limit_ns = min(time.monotonic_ns() + round(config.state_timeout_ms * 1e6), until_ns)
    left = bus.wait_state(state, positions, limit_ns)
    if left:
        raise BusStateError(f"not all slaves reach {STATE_NAMES[state]}: {state_problems(left, config)}")


def _start_clocks(bus: Bus, config: EthercatConfig) -> bool:
    if not config.dc:
        return False
    if not bus.configure_dc():
        raise DriverConnectionError(f"no slave on {config.interface} has a distributed clock: set dc = false")
    for position in config.positions:
        bus.set_sync0(position, config.cycle_ns, config.shift_ns)
    return True


def _set_watchdog(bus: Bus, position: int, time_ms: float) -> bytes:
    raw = bus.read_register(position, _REG_WATCHDOG_DIVIDER, 2)
    if raw is None:
        raise DriverConnectionError(f"the slave at position {position} went away during the start")
    step_ns = 40 * (int.from_bytes(raw, "little") + 2)
    data = min(max(round(time_ms * 1e6 / step_ns), 1), 0xFFFF).to_bytes(2, "little")
    bus.write_register(position, _REG_WATCHDOG_TIME, data)
    return data


def _image(bus: Bus, position: int, watchdog: bytes, sdos: list[SdoWrite]) -> SlaveImage:
    def registers(address: int, size: int) -> bytes:
        raw = bus.read_register(position, address, size)
        if raw is None:
            raise DriverConnectionError(f"the slave at position {position} went away during the start")
        return raw

    fmmu_count, manager_count = registers(_REG_FMMU_COUNT, 2)
    managers = []
    for k in range(min(manager_count, 4)):
        raw = registers(_REG_SYNC_MANAGER + k * _SYNC_MANAGER_BYTES, _SYNC_MANAGER_BYTES)
        managers.append(raw[:5] + bytes([0, raw[6] & 0x01, 0]))
    fmmus = [registers(_REG_FMMU + k * _FMMU_BYTES, _FMMU_BYTES) for k in range(min(fmmu_count, 4))]
    return SlaveImage(managers, fmmus, registers(_REG_DC_DELAY, 4), watchdog, sdos)
