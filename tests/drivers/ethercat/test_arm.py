"""What the drives of an arm are sent: targets of commands, extrapolated where the loop is late, within limits."""

from __future__ import annotations

import struct
from copy import deepcopy

import numpy as np
import pytest

from drivers.ethercat.arm import Arm
from drivers.ethercat.config import EthercatConfig
from drivers.ethercat.errors import CommandRefusedError
from drivers.ethercat.process_data import ProcessData
from drivers.ethercat.scaling import JointScaling, Ratings
from tests.drivers.ethercat.ethercat_configs import make_config, settings

ENABLED, READY = 0x1637, 0x1631
TURN = 2.0 * np.pi


def arm(bridge_cycles: int, **drive: float) -> tuple[Arm, ProcessData]:
    """Two enabled drives at zero."""
    config = make_config(2, bridge_cycles=bridge_cycles, enable=True)
    tables = [each.model_copy(update=drive) for each in config.drive]
    config = config.model_copy(update={"drive": tables})
    devices = [config.device_of(k) for k in range(2)]
    scaling = JointScaling(tables, devices, [Ratings(1.0, 1.0)] * 2)
    data = ProcessData(config, scaling)
    made = Arm(config, scaling, data)
    made.enable(0)
    for word in (0x1650, READY, 0x1633, ENABLED):
        data.decode([struct.pack("<HiihhH", word, 0, 0, 0, 0, 0)] * 2)
        made.step(0, None)
    assert made.enabled
    return made, data


def sent(images: list[bytes]) -> np.ndarray:
    """Target positions (2,) [rad], joint side, of gears of 101."""
    counts = [struct.unpack_from("<i", image, 2)[0] for image in images]
    return np.array(counts) * TURN / (1_048_576 * 101.0)


def commanded(made: Arm) -> None:
    """Command a steady speed up to cycle 12."""
    for cycle in (10, 11, 12):
        made.command(np.array([1e-3, -2e-3]) * (cycle - 9), cycle)
        made.step(0, None)


@pytest.mark.parametrize(("cycle", "steps"), [(13, 3.0), (14, 4.0), (16, 6.0), (17, 3.0)])
def test_a_late_loop_sends_the_position_extrapolated_to_the_present(cycle: int, steps: float) -> None:
    made, _ = arm(3)
    commanded(made)
    np.testing.assert_allclose(sent(made.images_at(cycle)), [1e-3 * steps, -2e-3 * steps], atol=1e-7)


def test_without_bridging_the_last_target_is_sent() -> None:
    made, _ = arm(0)
    commanded(made)
    assert made.images_at(20) == made.images


def test_extrapolation_keeps_to_the_position_limits() -> None:
    made, _ = arm(8, position_min_rad=-0.5, position_max_rad=0.0045)
    commanded(made)
    np.testing.assert_allclose(sent(made.images_at(18)), [0.0045, -0.016], atol=1e-7)


def test_the_speed_of_a_gap_is_that_over_its_cycles() -> None:
    made, _ = arm(8)
    commanded(made)
    made.command(np.array([7e-3, -14e-3]), 16)
    made.step(0, None)
    np.testing.assert_allclose(sent(made.images_at(18)), [8e-3, -16e-3], atol=1e-7)


def test_drives_that_dropped_out_are_not_moved() -> None:
    made, data = arm(8)
    commanded(made)
    data.decode([struct.pack("<HiihhH", READY, 0, 0, 0, 0, 0)] * 2)
    made.step(0, None)
    np.testing.assert_allclose(sent(made.images_at(16)), 0.0, atol=1e-9)
    with pytest.raises(CommandRefusedError):
        made.command(np.zeros(2), 16)


def test_a_joint_whose_float_is_no_number_is_not_valid() -> None:
    tables = deepcopy(settings(2))
    tables["device"]["servo"]["tx"]["1A00"][3] = "6077:00:32 torque f"
    tables["device"]["servo"]["torque_unit"] = "mNm"
    config = EthercatConfig.model_validate(tables)
    scaling = JointScaling(config.drive, [config.device_of(k) for k in range(2)], [Ratings(1.0, 1.0)] * 2)
    data = ProcessData(config, scaling)
    channels = data.decode([struct.pack("<HiifhH", ENABLED, 0, 0, torque, 0, 0) for torque in (1.0, np.nan)])
    assert data.finite(channels, None) is not None
    np.testing.assert_array_equal(data.finite(channels, None), [True, False])
    np.testing.assert_array_equal(data.finite(channels, np.array([False, True])), [False, False])


@pytest.mark.parametrize("entry", ["6041:00:32 statusword f", "6064:00:32 position f"])
def test_states_and_positions_are_whole_numbers(entry: str) -> None:
    tables = deepcopy(settings(2))
    tables["device"]["servo"]["tx"]["1A00"][0 if "status" in entry else 1] = entry
    with pytest.raises(ValueError, match="floating-point"):
        EthercatConfig.model_validate(tables)
