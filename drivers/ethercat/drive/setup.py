"""Setup of each drive in PRE-OP: expected values, ratings, init SDOs, PDO mapping."""

import math
import struct
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from drivers.driver import DriverConfigError, DriverConnectionError
from drivers.ethercat.bus import objects
from drivers.ethercat.bus.bus import Bus, with_retries
from drivers.ethercat.config import MODES, EthercatConfig, SdoValue, address, describe, interpolation_period
from drivers.ethercat.drive.scaling import Ratings
from drivers.ethercat.errors import SdoError, SdoTimeoutError
from drivers.ethercat.pdo import PdoLayout, SdoWrite, assignment_object, mapping_difference, remap_writes

_RATING_TOLERANCE = 0.01
_MODE, _MODE_DISPLAY = 0x6060, 0x6061
#: Time limit for a drive to show a new mode of operation [s].
_MODE_S = 0.2
T = TypeVar("T")


def encode(value: SdoValue) -> SdoWrite:
    """Return the SDO that writes a configured value."""
    return SdoWrite(*address(value.object), objects.encode(value.type, str(value.value)))


def check_time(until_ns: int, config: EthercatConfig, where: str = "") -> None:
    """Raise `DriverConnectionError` after `until_ns`; `where` is what is being configured."""
    if time.monotonic_ns() > until_ns:
        raise DriverConnectionError(
            f"EtherCAT on {config.interface}: not started within start_timeout_s = {config.start_timeout_s:g}"
            + (f": {where} was being configured" if where else "")
        )


class DriveSetup:
    """Setup of the drive of joint number `joint`, from 0, until `until_ns` [ns of CLOCK_MONOTONIC] at the latest."""

    def __init__(self, bus: Bus, config: EthercatConfig, joint: int, until_ns: int) -> None:
        self._bus, self._config = bus, config
        self._drive = config.drive[joint]
        self._device = config.device_of(joint)
        self._position = config.positions[joint]
        self._timeout_ms = config.sdo_timeout_ms
        self._until_ns = until_ns
        self._where = f"joint {self._drive.joint!r} ({self._drive.device}, position {self._position})"

    def run(self) -> tuple[Ratings, list[SdoWrite]]:
        """Configure the drive; return its ratings, and what was written, for a recovery after a power loss.

        Raises `DriverConfigError`, which names object and values, if the drive does not match the configuration;
        `SdoError` if it refuses or does not answer; `DriverConnectionError` if the time is over.
        """
        self._check_expected()
        device = self._device
        torque_nm = self._rating(
            "rated_torque_nm", device.rated_torque_nm, device.rated_torque_object, self._needs_torque
        )
        current_a = self._rating(
            "rated_current_a", device.rated_current_a, device.rated_current_object, self._needs_current
        )
        ratings = Ratings(torque_nm, current_a)
        written = self._parameters()
        for write in written:
            self._write(write, "init")
        self._check_mode()
        for layout in (self._device.outputs, self._device.inputs):
            written += self._map(layout)
        return ratings, written

    @property
    def _needs_torque(self) -> bool:
        mapped = "torque" in self._device.inputs.meanings or "target_torque" in self._device.outputs.meanings
        return mapped and self._device.torque_unit == "permille"

    @property
    def _needs_current(self) -> bool:
        return "current" in self._device.inputs.meanings and self._device.current_unit == "permille"

    def _parameters(self) -> list[SdoWrite]:
        writes = [encode(value) for value in (*self._device.init, *self._drive.init)]
        mode = self._config.mode
        if mode != "none":
            writes.append(SdoWrite(_MODE, 0, bytes([MODES[mode]])))
        if mode in ("csp", "csv") and self._device.interpolation_period:
            value, exponent = interpolation_period(self._config.cycle_ns)
            writes += [SdoWrite(0x60C2, 1, bytes([value])), SdoWrite(0x60C2, 2, struct.pack("<b", exponent))]
        return writes

    def _transfer(self, transfer: Callable[[], T]) -> T:
        def timely() -> T:
            check_time(self._until_ns, self._config, self._where)
            return transfer()

        return with_retries(timely)

    def _check_mode(self) -> None:
        """Check that the drive accepted its mode, unless 6061 is mapped; 0: not shown yet."""
        mode = MODES[self._config.mode]
        if not mode or "mode_display" in self._device.inputs.meanings:
            return
        limit_ns = time.monotonic_ns() + round(_MODE_S * 1e9)
        while True:
            try:
                raw = self._transfer(partial(self._bus.sdo_read, self._position, _MODE_DISPLAY, 0, self._timeout_ms))
            except SdoError as error:
                if error.abort:  # the object does not exist
                    return
                raise
            shown = int.from_bytes(raw, "little", signed=True)
            if shown in (0, mode):
                return
            if time.monotonic_ns() > limit_ns:
                raise DriverConfigError(
                    f'{self._where}: mode = "{self._config.mode}" was written (6060:00 = {mode}), but the drive stays '
                    f"in mode of operation 6061:00 = {shown}: does it have this mode?"
                )
            time.sleep(0.005)

    def _write(self, write: SdoWrite, purpose: str) -> None:
        try:
            self._transfer(
                lambda: self._bus.sdo_write(self._position, write.index, write.subindex, write.data, self._timeout_ms)
            )
        except SdoTimeoutError as error:
            raise SdoTimeoutError(f"{self._where}: {purpose}: {error}") from error
        except SdoError as error:
            raise SdoError(f"{self._where}: {purpose}: {write}: {error}", error.abort) from error

    def _read(self, index: int, subindex: int) -> int:
        try:
            raw = self._transfer(lambda: self._bus.sdo_read(self._position, index, subindex, self._timeout_ms))
            return int.from_bytes(raw, "little")
        except SdoTimeoutError as error:
            raise SdoTimeoutError(f"{self._where}: {error}") from error
        except SdoError as error:
            raise SdoError(f"{self._where}: {error}", error.abort) from error

    def _map(self, layout: PdoLayout) -> list[SdoWrite]:
        writes = remap_writes(layout, self._device.remap)
        if self._device.remap:
            for write in writes:
                self._write(write, "mapping")
        elif self._assigned(layout) != [index for index, _ in layout.pdos]:
            for write in writes:
                self._write(write, "PDO assignment")
        else:
            writes = []
        mapped = {index: [self._read(index, k + 1) for k in range(self._read(index, 0))] for index, _ in layout.pdos}
        difference = mapping_difference(layout, self._assigned(layout), mapped)
        if difference:
            hint = "" if self._device.remap else " (remap = false: rx and tx must say what the drive has)"
            raise DriverConfigError(f"{self._where}: {difference}{hint}")
        return writes

    def _assigned(self, layout: PdoLayout) -> list[int]:
        index = assignment_object(layout)
        return [self._read(index, k + 1) for k in range(self._read(index, 0))]

    def _check_expected(self) -> None:
        for value in self._device.expect:
            write = encode(value)
            try:
                raw = self._transfer(
                    partial(self._bus.sdo_read, self._position, write.index, write.subindex, self._timeout_ms)
                )
            except SdoError as error:
                raise SdoError(f"{self._where}: expected {describe(value)}: {error}", error.abort) from error
            if raw != write.data:
                fits = len(raw) == objects.size_of(value.type)
                found = objects.decode(value.type, raw) if fits else f"0x{raw[::-1].hex()}"
                raise DriverConfigError(
                    f"{self._where}: the drive has {value.object} = {found}, expected is {describe(value)}: set the "
                    "drive, or correct the device table"
                )

    def _rating(self, key: str, given: float | None, object_: str, needed: bool) -> float:
        if not needed:
            return math.nan if given is None else given
        try:
            own = self._read(*address(object_)) * 1e-3
        except SdoError:
            if given is None:
                raise
            return given
        if own <= 0.0 and given is None:
            raise DriverConfigError(f"{self._where}: the drive has {object_} = 0: give {key}")
        if given is not None and own > 0.0 and abs(own - given) > _RATING_TOLERANCE * given:
            raise DriverConfigError(
                f"{self._where}: {key} = {given:g}, but the drive's {object_} says {own:g}: correct one of them"
            )
        return own if given is None else given
