"""Process data of all drives: images to channels in SI units, controlwords and targets to images."""

from collections.abc import Callable, Sequence

import numpy as np

from drivers.ethercat.config import MODES, TARGETS, EthercatConfig
from drivers.ethercat.drive.scaling import JointScaling
from drivers.ethercat.pdo import PdoLayout
from drivers.frame import CHANNELS
from rt_core.types import BoolArray, FloatArray, IntArray

_Row = tuple[int | float, ...]
#: Channel of each meaning in the inputs.
_CHANNEL_OF = {
    "position": "q", "velocity": "dq", "current": "current", "torque": "tau", "motor_position": "q_motor",
    "temperature": "temperature",
}  # fmt: skip


class ProcessData:
    """Decoder and encoder of process images; a channel exists if every drive maps it.

    `channels` are in the order of `drivers.frame.CHANNELS`; `rows` are the last inputs of each drive, by the meanings
    of its layout, and `statuswords` those of `rows`.
    """

    def __init__(self, config: EthercatConfig, scaling: JointScaling) -> None:
        devices = [config.device_of(joint) for joint in range(len(config.drive))]
        self._inputs = [device.inputs for device in devices]
        self._outputs = [device.outputs for device in devices]
        self._mode = MODES[config.mode]
        self._target = TARGETS.get(config.mode)
        ends = np.cumsum([0, *(len(layout.meanings) for layout in self._inputs)]).tolist()
        self._scales: dict[str, tuple[IntArray, FloatArray, FloatArray | None]] = {}
        factors = {
            "position": (scaling.position, scaling.position_zero), "velocity": (scaling.velocity, None),
            "current": (scaling.current, None), "torque": (scaling.torque, None),
            "motor_position": (scaling.motor_position, scaling.motor_zero),
            "temperature": (scaling.temperature, scaling.temperature_zero),
        }  # fmt: skip
        for meaning, channel in _CHANNEL_OF.items():
            if all(meaning in layout.meanings for layout in self._inputs):
                places = [end + layout.meanings.index(meaning) for end, layout in zip(ends, self._inputs, strict=False)]
                self._scales[channel] = (np.array(places), *factors[meaning])
        self._floats = [
            channel
            for meaning, channel in _CHANNEL_OF.items()
            if channel in self._scales and any(layout.is_float(meaning) for layout in self._inputs)
        ]
        present = {*self._scales, *(["setpoint"] if config.mode == "csp" else [])}
        self.channels = tuple(name for name in CHANNELS if name in present)
        self._status = [layout.meanings.index("statusword") for layout in self._inputs]
        self._position = [layout.meanings.index("position") for layout in self._inputs]
        self._mode_shown = [
            layout.meanings.index("mode_display") if "mode_display" in layout.meanings else None
            for layout in self._inputs
        ]
        self._shows_mode = any(place is not None for place in self._mode_shown)
        self._no_modes: list[int | None] = [None] * len(self._inputs)
        self._writers = [_writer(layout, self._target) for layout in self._outputs]
        self.rows: list[_Row] = []
        self.statuswords: list[int] = []

    def decode(self, images: Sequence[bytes]) -> dict[str, FloatArray]:
        """Decode images, one per drive, to new arrays by channel; `LayoutError` for another length than mapped."""
        self.rows = rows = [layout.unpack(image) for layout, image in zip(self._inputs, images, strict=True)]
        self.statuswords = [int(row[place]) for row, place in zip(rows, self._status, strict=True)]
        values = np.array([value for row in rows for value in row], dtype=np.float64)
        channels = {}
        for channel, (places, factor, zero) in self._scales.items():
            raw = values[places] * factor
            if zero is not None:
                raw -= zero
            channels[channel] = raw
        return channels

    def finite(self, channels: dict[str, FloatArray], valid: BoolArray | None) -> BoolArray | None:
        """Return `valid` (n,), False also for joints with a floating-point channel that is not finite."""
        for channel in self._floats:
            good = np.isfinite(channels[channel])
            if not good.all():
                valid = good if valid is None else valid & good
        return valid

    @property
    def status_array(self) -> IntArray:
        """Statuswords (n,), a new array."""
        return np.array(self.statuswords, dtype=np.int64)

    @property
    def shown_modes(self) -> list[int | None]:
        """Modes of operation that the drives show (6061); None where it is not mapped."""
        if not self._shows_mode:
            return self._no_modes
        return [
            None if place is None else int(row[place]) for row, place in zip(self.rows, self._mode_shown, strict=True)
        ]

    @property
    def position_counts(self) -> list[int]:
        """Actual positions in counts."""
        return [int(row[place]) for row, place in zip(self.rows, self._position, strict=True)]

    def value(self, joint: int, meaning: str) -> int | float | None:
        """Return the last input of a drive by meaning; None if it is not mapped or not yet received."""
        meanings = self._inputs[joint].meanings
        if meaning not in meanings or not self.rows:
            return None
        return self.rows[joint][meanings.index(meaning)]

    def encode(self, controlwords: Sequence[int], targets: Sequence[int]) -> list[bytes]:
        """Encode output images; `targets` are digits of the mode's target (0 where the mode has none)."""
        return [
            write(controlword, self._mode, target)
            for write, controlword, target in zip(self._writers, controlwords, targets, strict=True)
        ]

    @property
    def idle_images(self) -> list[bytes]:
        """Output images of zeros: no torque, whatever the layout."""
        return [bytes(layout.size) for layout in self._outputs]


def _writer(layout: PdoLayout, target: str | None) -> Callable[[int, int, int], bytes]:
    """Return `write(controlword, mode, target)`, everything else zero."""
    values: list[int | float] = [0] * len(layout.meanings)
    control = layout.meanings.index("controlword")
    mode = layout.meanings.index("mode") if "mode" in layout.meanings else -1
    aim = layout.meanings.index(target) if target is not None else -1
    pack = layout.codec.pack

    def write(controlword: int, mode_value: int, target_value: int) -> bytes:
        values[control] = controlword
        if mode >= 0:
            values[mode] = mode_value
        if aim >= 0:
            values[aim] = target_value
        return pack(*values)

    return write
