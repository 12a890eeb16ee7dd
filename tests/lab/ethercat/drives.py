"""A `DriveGroup` of two drives without a bus: inputs as bytes, outputs as numbers."""

import struct
from typing import Any

import numpy as np

from drivers.ethercat.config import DriveTable, EthercatConfig
from drivers.ethercat.drive.drive_group import DriveGroup
from drivers.ethercat.drive.process_data import ProcessData
from drivers.ethercat.drive.scaling import JointScaling, Ratings
from tests.lab.ethercat.configs import make_config

DISABLED, READY, SWITCHED_ON, ENABLED, FAULT = 0x1650, 0x1631, 0x1633, 0x1637, 0x1618
TURN = 2.0 * np.pi


def arm(bridge_cycles: int = 0, **changes: Any) -> tuple[DriveGroup, ProcessData]:
    """Two drives at zero, not enabled; `changes` are keys of the bus or of every drive."""
    drive = {key: changes.pop(key) for key in list(changes) if key in DriveTable.model_fields}
    config = make_config(2, bridge_cycles=bridge_cycles, **changes)
    tables = [each.model_copy(update=drive) for each in config.drive]
    config = config.model_copy(update={"drive": tables})
    made, data = group_of(config)
    step(made, data, DISABLED)
    return made, data


def group_of(config: EthercatConfig, torque_nm: float = 1.0, current_a: float = 1.0) -> tuple[DriveGroup, ProcessData]:
    """The drives of a configuration, each with these ratings."""
    n = len(config.drive)
    scaling = JointScaling(config.drive, [config.device_of(k) for k in range(n)], [Ratings(torque_nm, current_a)] * n)
    data = ProcessData(config, scaling)
    return DriveGroup(config, scaling, data), data


def step(
    made: DriveGroup, data: ProcessData, *words: int, counts: tuple[int, int] = (0, 0), valid: list[bool] | None = None,
    ns: int = 0,
) -> list[int]:  # fmt: skip
    """Run one cycle with the statuswords of the drives (or one for both); return the controlwords."""
    both = words if len(words) == 2 else words * 2
    data.decode([struct.pack("<HiihhH", word, at, 0, 0, 0, 0) for word, at in zip(both, counts, strict=True)])
    made.step(ns, valid)
    return controlwords(made.images)


def enabled(bridge_cycles: int = 0, counts: tuple[int, int] = (0, 0), **changes: Any) -> tuple[DriveGroup, ProcessData]:
    """Two enabled drives at `counts`."""
    made, data = arm(bridge_cycles, **changes)
    made.enable(0)
    for word in (DISABLED, READY, SWITCHED_ON, ENABLED):
        step(made, data, word, counts=counts)
    assert made.enabled
    return made, data


def controlwords(images: list[bytes]) -> list[int]:
    return [struct.unpack_from("<H", image)[0] for image in images]


def sent(images: list[bytes]) -> np.ndarray:
    """Target positions (2,) [rad], joint side, of gears of 101."""
    return np.array([struct.unpack_from("<i", image, 2)[0] for image in images]) * TURN / (1_048_576 * 101.0)
