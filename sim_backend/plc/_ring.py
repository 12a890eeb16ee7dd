"""Ring of blocks of samples, as the PLC program writes it."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from drivers.ads.layout import LATEST, RING, Sizes
from rt_core.types import FloatArray, IntArray
from sim_backend.plc._machine import Measured
from sim_backend.plc._memory import Memory

#: Fields of an axis and the channels that they belong to.
_VALUES = {
    "fPosition": ("q", "position"), "fVelocity": ("dq", "velocity"), "fMotorPosition": ("q_motor", "motor_position"),
    "fTorque": ("tau", "torque"), "fCurrent": ("current", "current"), "fTemperature": ("temperature", "temperature"),
}  # fmt: skip

#: Largest values of the types that need no conversion.
_MAX = {np.dtype("<u8"): 2**63 - 1, np.dtype("<i8"): 2**63 - 1, np.dtype("<u4"): 2**32 - 1}


def _weights(words: int) -> NDArray[np.uint32]:
    """Return the weight of each word in the second sum of the checksum."""
    return np.arange(words, 0, -1, dtype=np.uint32)


def wrapped(value: int, kind: np.dtype[Any]) -> Any:
    """Convert a number to another type, keeping the lowest bits, as an IEC conversion does."""
    return value if 0 <= value <= _MAX.get(kind, -1) else np.int64(value).astype(kind)


class Ring:
    """Writes samples into the layout's variables under `prefix`; missing fields are skipped, other channels stay 0."""

    def __init__(self, memory: Memory, prefix: str, sizes: Sizes, channels: tuple[str, ...]) -> None:
        self._sizes = sizes
        ring = memory.array(f"{prefix}.{RING}")
        place = memory.place(f"{prefix}.{RING}")
        latest = memory.place(f"{prefix}.{LATEST}")
        assert place.type.element is not None
        block = place.type.element
        rows = np.ndarray((sizes.blocks, block.size), np.uint8, memory.image, place.offset)
        self._blocks, self._latest = rows, np.ndarray((latest.size,), np.uint8, memory.image, latest.offset)
        names = ring.dtype.names or ()
        self._begin = ring["nBlock"] if "nBlock" in names else None
        self._end = ring["nBlockEnd"] if "nBlockEnd" in names else None
        samples = ring["aSample"]  # (blocks, samples)
        sample_names = samples.dtype.names or ()
        self._counters = {name: samples[name] for name in ("nCounter", "nTime", "nDcTime") if name in sample_names}
        axes = samples["aAxis"]  # (blocks, samples, axes)
        axis_names = axes.dtype.names or ()
        fields = [
            (axes[field], name)
            for field, (channel, name) in _VALUES.items()
            if channel in channels and field in axis_names
        ]
        self._values = [each for each in fields if each[0].dtype.kind == "f"]
        self._rounded = [each for each in fields if each[0].dtype.kind != "f"]  # altered to whole numbers
        self._setpoint = axes["fSetpoint"] if "setpoint" in channels and "fSetpoint" in axis_names else None
        self._status = axes["nStatus"] if "nStatus" in axis_names else None
        item = block.item("aSample")
        assert item is not None
        size = samples.dtype.itemsize
        self._words = np.ndarray(
            (sizes.blocks, sizes.block_samples, size // 4), "<u4", memory.image, place.offset + item.offset,
            (block.size, size, 4),
        )  # fmt: skip
        self._weights = _weights(size // 4 - 1)
        self._checksum = samples["nChecksum"] if "nChecksum" in sample_names else None

    def append(
        self, counter: int, time_100ns: int, dc_ns: int, measured: Measured, setpoint: FloatArray, status: IntArray
    ) -> bool:
        """Write a sample; return whether it completed a block."""
        number, index = divmod(counter, self._sizes.block_samples)
        place = number % self._sizes.blocks, index
        if index == 0 and self._begin is not None:
            self._begin[place[0]] = wrapped(number, self._begin.dtype)
        for name, value in (("nCounter", counter), ("nTime", time_100ns), ("nDcTime", dc_ns)):
            if name in self._counters:
                self._counters[name][place] = wrapped(value, self._counters[name].dtype)
        for view, name in self._values:
            view[place] = getattr(measured, name)
        for view, name in self._rounded:
            view[place] = np.rint(getattr(measured, name)).astype(np.int64)
        if self._setpoint is not None:
            self._setpoint[place] = setpoint
        if self._status is not None:
            self._status[place] = status
        if self._checksum is not None:
            words = self._words[place][:-1]
            first, second = int(words.sum(dtype=np.uint32)), int(np.dot(words, self._weights))
            self._checksum[place] = wrapped(first ^ (second << 16 & 0xFFFFFFFF | second >> 16), self._checksum.dtype)
        if index + 1 < self._sizes.block_samples:
            return False
        if self._end is not None:
            self._end[place[0]] = wrapped(number, self._end.dtype)
        self._latest[:] = self._blocks[place[0]]
        return True
