"""Decoding of blocks to SI units on the joint side, in one compiled pass."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from drivers.ads._checksum import checksum
from drivers.ads.axes.scaling import AxisScaling
from drivers.ads.layout import AXIS_VALID, CHANNEL_BITS, Sizes, structure
from drivers.ads.ring.clock import dc_to_ns, filetimes_to_ns
from drivers.frame import CHANNELS
from rt_core.jit import jit
from rt_core.types import BoolArray, FloatArray, IntArray

_Words = np.ndarray[Any, np.dtype[np.uint32]]
_FLOATS = 100
#: Channel -> field of an axis: double number, or `_FLOATS` and float number.
_FIELDS = {
    "q": 0, "dq": 1, "q_motor": 2, "setpoint": 3, "tau": _FLOATS + 8, "current": _FLOATS + 9,
    "temperature": _FLOATS + 10,
}  # fmt: skip


@dataclass(frozen=True)
class Block:
    """A complete block of m samples in SI units, joint side; times are since 1970 [ns]."""

    number: int
    intact: BoolArray  # (m,): the checksum is correct
    counter: IntArray  # (m,): cycle, its PLC time and its distributed-clock time
    plc_ns: IntArray
    dc_ns: IntArray  # 0 where there is none
    channels: dict[str, FloatArray]  # (m, n) by name, in the order of `drivers.frame.CHANNELS`
    status_word: IntArray  # (m, n)
    valid: BoolArray | None  # (m, n); None: all are valid


class Decoder:
    """Decoder of the blocks of one PLC program.

    `channels` is `Info.nChannels`; the attribute has the names, in the order of `drivers.frame.CHANNELS`.  `places`
    (n,) is the index of each joint's axis in the PLC's list.
    """

    def __init__(self, sizes: Sizes, channels: int, places: Sequence[int], scaling: AxisScaling) -> None:
        self.channels = tuple(name for name in CHANNELS if channels >> CHANNEL_BITS[name] & 1)
        self._dtype = np.dtype(structure("ST_ThetaBlock", sizes))
        self._bytes = self._dtype.itemsize
        sample = np.dtype(structure("ST_ThetaSample", sizes))
        self._samples = slice(8, 8 + sizes.block_samples * sample.itemsize)
        self._shape = (sizes.block_samples, sample.itemsize // 4)
        self._places = np.array(places, dtype=np.intp)
        ones, zeros = np.ones(len(places)), np.zeros(len(places))
        factors = {
            "q": (scaling.position, scaling.position_zero), "dq": (scaling.velocity, zeros),
            "q_motor": (scaling.motor_position, scaling.motor_zero),
            "setpoint": (scaling.position, scaling.position_zero), "tau": (scaling.torque, zeros),
            "current": (scaling.current, zeros), "temperature": (ones, zeros),
        }  # fmt: skip
        self._fields = np.array([_FIELDS[name] for name in self.channels], dtype=np.intp)
        self._factor = np.array([factors[name][0] for name in self.channels])
        self._zero = np.array([factors[name][1] for name in self.channels])
        self._must_be_finite = np.array([name != "temperature" for name in self.channels])
        self.decode(bytes(self._bytes))  # compile before the first samples

    @property
    def block_bytes(self) -> int:
        """Size of a block [bytes]."""
        return self._bytes

    def numbers(self, raw: Any) -> tuple[int, int]:
        """Return `nBlock` and `nBlockEnd` of the bytes of a block."""
        view = memoryview(raw).cast("B")
        return int.from_bytes(view[:8], "little"), int.from_bytes(view[self._bytes - 8 : self._bytes], "little")

    def decode(self, raw: Any) -> Block:
        """Decode the bytes of a complete block."""
        data = np.frombuffer(
            raw, dtype=np.uint8, count=self._bytes
        ).copy()  # aligned, and independent of the caller's buffer
        samples = data[self._samples]
        words: _Words = samples.view(np.uint32).reshape(self._shape)
        doubles = samples.view(np.float64).reshape(self._shape[0], -1)
        m, n = self._shape[0], len(self._places)
        values = np.empty((m, len(self._fields), n))
        status = np.empty((m, n), dtype=np.int64)
        valid = np.empty((m, n), dtype=np.bool_)
        intact = np.empty(m, dtype=np.bool_)
        all_valid = _decode(
            words, words.view(np.float32), doubles, self._places, self._fields, self._factor, self._zero,
            self._must_be_finite, values, status, valid, intact,
        )  # fmt: skip
        head = doubles[:, :3].copy().view(np.int64)
        dc = head[:, 2]
        return Block(
            number=int(data[:8].view(np.uint64)[0]), intact=intact, counter=head[:, 0],
            plc_ns=filetimes_to_ns(head[:, 1]),
            dc_ns=dc_to_ns(dc) if dc.all() else np.where(dc != 0, dc_to_ns(dc), 0),
            channels={name: values[:, k] for k, name in enumerate(self.channels)}, status_word=status,
            valid=None if all_valid else valid,
        )  # fmt: skip


@jit  # not `kernel`: with its floating-point flags `isfinite` is unreliable
def _decode(
    words: _Words, floats: np.ndarray[Any, np.dtype[np.float32]], doubles: FloatArray, places: IntArray,
    fields: IntArray, factor: FloatArray, zero: FloatArray, must_be_finite: BoolArray, values: FloatArray,
    status: IntArray, valid: BoolArray, intact: BoolArray,
) -> bool:  # fmt: skip
    """Decode m samples, given as rows of 32-bit words, floats and doubles; return whether all are valid.

    Field `f` of an axis is its double number `f`, or its float number `f - _FLOATS` if `f >= _FLOATS`.
    """
    all_valid = True
    last = words.shape[1] - 1
    for i in range(words.shape[0]):
        intact[i] = checksum(words[i, :last]) == words[i, last]
        for j in range(places.shape[0]):
            word = 6 + 12 * places[j]
            bits = words[i, word + 11]
            good = bits & np.uint32(AXIS_VALID) != 0
            status[i, j] = bits >> np.uint32(16)
            for c in range(fields.shape[0]):
                if fields[c] < _FLOATS:
                    value = doubles[i, word // 2 + fields[c]]
                else:
                    value = np.float64(floats[i, word + fields[c] - _FLOATS])
                value = value * factor[c, j] - zero[c, j]
                values[i, c, j] = value
                if must_be_finite[c] and not np.isfinite(value):
                    good = False
            valid[i, j] = good
            all_valid = all_valid and good
    return all_valid
