"""Start of a bus up to SAFE-OP; every wait has a deadline, every failure names the slave and its AL status."""

import time
from dataclasses import dataclass

from drivers.driver import DriverConfigError, DriverConnectionError
from drivers.ethercat.bus.al_status import PREOP, SAFEOP, STATE_NAMES, AlStatus
from drivers.ethercat.bus.bus import Bus
from drivers.ethercat.bus.interface import refuse_other_master
from drivers.ethercat.bus.master import TRIES, status_text
from drivers.ethercat.bus.network import check_network, expected_slaves
from drivers.ethercat.bus.slave_recovery import SlaveImage
from drivers.ethercat.config import EthercatConfig
from drivers.ethercat.drive.scaling import JointScaling
from drivers.ethercat.drive.setup import DriveSetup, check_time
from drivers.ethercat.errors import BusStateError
from drivers.ethercat.pdo import SdoWrite

_REG_WATCHDOG_DIVIDER, _REG_WATCHDOG_TIME = 0x0400, 0x0420
#: 100 us a step, the default of ETG.1000.4.
_USUAL_DIVIDER = 2498
_REG_FMMU_COUNT, _REG_FMMU, _FMMU_BYTES = 0x0004, 0x0600, 16
_REG_SYNC_MANAGER, _SYNC_MANAGER_BYTES = 0x0800, 8
_SM_OUTPUTS, _SM_WATCHDOG_TRIGGER = 2, 0x40
_REG_FEATURES, _FEATURE_DC, _FEATURE_DC_64 = 0x0008, 0x04, 0x08
_REG_DC_DELAY = 0x0928


@dataclass
class StartedBus:
    """A bus in SAFE-OP."""

    scaling: JointScaling
    images: list[SlaveImage]  # by position
    has_dc: bool
    expected_wkc: int
    weights: list[tuple[int, int]]  # by position; contribution of outputs and inputs to the working counter


def slave_name(position: int, config: EthercatConfig) -> str:
    """Return the joint and the position of a slave, for messages."""
    if position in config.positions:
        return f"joint {config.drive[config.positions.index(position)].joint!r} (position {position})"
    return f"position {position}"


def state_problems(left: dict[int, AlStatus | None], config: EthercatConfig) -> str:
    """Return the slaves that are not in the wanted state, for messages."""
    return "; ".join(
        f"{slave_name(position, config)} is {'' if status is None else 'in '}{status_text(status)}"
        for position, status in left.items()
    )


def start(bus: Bus, config: EthercatConfig, until_ns: int) -> StartedBus:
    """Open the bus and bring it to SAFE-OP, configured; it is left open, also on failure.

    `until_ns` is the deadline [ns of CLOCK_MONOTONIC].  Raises `DriverConfigError` or `NetworkMismatchError` if the bus
    or a drive does not match the configuration; `DriverConnectionError`, `BusStateError` or `SdoError` if an interface
    or a slave fails, or another master is active.
    """
    bus.open()
    for name in config.interfaces:
        refuse_other_master(name)
    check_network(expected_slaves(config), found := bus.scan(), config.interface)
    all_positions = range(len(found))
    _wait_state(bus, config, PREOP, all_positions, until_ns)
    setups = [DriveSetup(bus, config, joint, until_ns).run() for joint in range(len(config.drive))]
    has_dc = _start_clocks(bus, config, all_positions)
    watchdogs = [_set_watchdog(bus, config, position) for position in all_positions]
    check_time(until_ns, config)
    lengths = {
        position: (config.device_of(joint).outputs.size, config.device_of(joint).inputs.size)
        for joint, position in enumerate(config.positions)
    }
    bus.map_process_data(lengths)
    _wait_state(bus, config, SAFEOP, all_positions, until_ns)
    sdos = dict(zip(config.positions, (written for _, written in setups), strict=True))
    ratings = [rating for rating, _ in setups]
    devices = [config.device_of(joint) for joint in range(len(config.drive))]
    images = [_image(bus, position, watchdogs[position], sdos.get(position, [])) for position in all_positions]
    _check_watchdogs(config, images)
    return StartedBus(
        JointScaling(config.drive, devices, ratings), images, has_dc, bus.expected_wkc,
        [bus.wkc_weight(position) for position in all_positions],
    )  # fmt: skip


def _wait_state(bus: Bus, config: EthercatConfig, state: int, positions: range, until_ns: int) -> None:
    limit_ns = min(time.monotonic_ns() + round(config.state_timeout_ms * 1e6), until_ns)
    left = bus.wait_state(state, positions, limit_ns)
    if left:
        raise BusStateError(f"not all slaves reach {STATE_NAMES[state]}: {state_problems(left, config)}")


def _start_clocks(bus: Bus, config: EthercatConfig, all_positions: range) -> bool:
    if not config.dc:
        return False
    _check_clocks(bus, config, all_positions)
    if not bus.configure_dc():
        raise DriverConnectionError(f"no slave on {config.interface} has a distributed clock: set dc = false")
    for position in config.positions:
        bus.set_sync0(position, config.cycle_ns, config.shift_ns)
    return True


def _check_clocks(bus: Bus, config: EthercatConfig, all_positions: range) -> None:
    """Raise unless each drive and the reference, the first slave with a clock, have a clock of 64 bits."""
    reference = True
    for position in all_positions:
        features = bus.registers(position, _REG_FEATURES, 1)[0]
        if not features & _FEATURE_DC:
            if position in config.positions:
                raise DriverConfigError(f"{slave_name(position, config)} has no distributed clock: set dc = false")
            continue
        if not features & _FEATURE_DC_64 and (reference or position in config.positions):
            raise DriverConfigError(
                f"{slave_name(position, config)} has a distributed clock of 32 bits, 64 are needed: set dc = false"
            )
        reference = False


def _set_watchdog(bus: Bus, config: EthercatConfig, position: int) -> list[tuple[int, bytes]]:
    """Set the time of the watchdog; return what was written: address and data."""
    step_ns = 40 * (int.from_bytes(bus.registers(position, _REG_WATCHDOG_DIVIDER, 2), "little") + 2)
    wanted_ns = config.watchdog_ms * 1e6
    writes: list[tuple[int, bytes]] = []
    if wanted_ns > 0xFFFF * step_ns:  # a slave without the usual divider
        writes, step_ns = [(_REG_WATCHDOG_DIVIDER, _USUAL_DIVIDER.to_bytes(2, "little"))], 40 * (_USUAL_DIVIDER + 2)
    writes.append((_REG_WATCHDOG_TIME, min(max(round(wanted_ns / step_ns), 1), 0xFFFF).to_bytes(2, "little")))
    for _ in range(TRIES):
        for address, data in writes:
            bus.write_register(position, address, data)
        if all(bus.read_register(position, address, 2) == data for address, data in writes):
            return writes
    if position not in config.positions:  # a coupler may have none
        return writes
    raise DriverConnectionError(
        f"{slave_name(position, config)} does not take the time of its watchdog (registers 0x0400, 0x0420): without "
        "it the drive would run on when the master is gone"
    )


def _check_watchdogs(config: EthercatConfig, images: list[SlaveImage]) -> None:
    """Raise unless the outputs trigger the watchdog of each drive."""
    for position in config.positions:
        managers = images[position].sync_managers
        if len(managers) <= _SM_OUTPUTS or not managers[_SM_OUTPUTS][4] & _SM_WATCHDOG_TRIGGER:
            raise DriverConfigError(
                f"{slave_name(position, config)}: the sync manager of its outputs does not trigger the watchdog "
                "(control bit 6): it would run on when the master is gone; ask the drive's manufacturer for its EEPROM"
            )


def _image(bus: Bus, position: int, watchdog: list[tuple[int, bytes]], sdos: list[SdoWrite]) -> SlaveImage:
    fmmu_count, manager_count = bus.registers(position, _REG_FMMU_COUNT, 2)
    managers = []
    for k in range(min(manager_count, 4)):
        raw = bus.registers(position, _REG_SYNC_MANAGER + k * _SYNC_MANAGER_BYTES, _SYNC_MANAGER_BYTES)
        managers.append(raw[:5] + bytes([0, raw[6] & 0x01, 0]))
    fmmus = [bus.registers(position, _REG_FMMU + k * _FMMU_BYTES, _FMMU_BYTES) for k in range(min(fmmu_count, 4))]
    return SlaveImage(managers, fmmus, bus.registers(position, _REG_DC_DELAY, 4), watchdog, sdos)
