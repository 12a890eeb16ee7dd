"""`DriveGroup`: targets, extrapolation of a late loop, limits, enabling, missing inputs."""

import struct
from copy import deepcopy

import numpy as np
import pytest

from drivers.driver import CommandRefusedError
from drivers.ethercat.config import EthercatConfig
from drivers.ethercat.drive.drive_group import DriveGroup
from drivers.ethercat.drive.process_data import ProcessData
from tests.lab.ethercat.configs import make_config, settings
from tests.lab.ethercat.drives import (
    DISABLED,
    ENABLED,
    FAULT,
    READY,
    SWITCHED_ON,
    TURN,
    arm,
    controlwords,
    enabled,
    group_of,
    sent,
    step,
)


def switched_on(**changes: float) -> tuple[DriveGroup, ProcessData]:
    """Two drives on their way to be enabled."""
    made, data = arm(**changes)
    made.enable(0)
    for word in (DISABLED, READY, SWITCHED_ON):
        step(made, data, word)
    return made, data


def commanded(made: DriveGroup) -> None:
    """Command a steady speed up to cycle 12."""
    for cycle in (10, 11, 12):
        made.step(0, None)
        made.command(np.array([1e-3, -2e-3]) * (cycle - 9), cycle)


@pytest.mark.parametrize("cycle", [13, 16, 17, 30])
def test_a_late_loop_sends_the_position_extrapolated_until_the_drives_hold(cycle: int) -> None:
    made, _ = enabled(3)
    commanded(made)
    late = cycle - 13
    steps = 3.0 + (late if late <= 3 else 2)  # the drives know the second step, and bridge three more
    np.testing.assert_allclose(sent(made.images_at(cycle)), [1e-3 * steps, -2e-3 * steps], atol=1e-7)
    made.step(0, None)  # and there it stays
    np.testing.assert_allclose(sent(made.images_at(cycle + 1)), [1e-3 * steps, -2e-3 * steps], atol=1e-7)


def test_a_late_loop_goes_on_at_the_speed_that_the_drives_know() -> None:
    made, data = enabled(3)
    commanded(made)

    def late(cycle: int, joint_1: float) -> None:
        np.testing.assert_allclose(sent(made.images_at(cycle))[0], joint_1, atol=1e-7)
        step(made, data, ENABLED)

    late(13, 3e-3)
    made.command(np.array([3.5e-3, -6e-3]), 13)
    late(16, 5.5e-3)  # two steps of 1 mrad, and then that of 0.5
    made.command(np.array([6e-3, -6e-3]), 16)
    late(21, 8e-3)  # three of the mean of 2.5 mrad in three cycles, from where they knew, and they hold
    made.command(np.array([8e-3, -6e-3]), 21)
    late(23, 8.5e-3)  # of the mean of 2.5 mrad in five cycles
    for cycle in range(24, 50):
        late(cycle, 8.5e-3)
    made.command(np.array([8.6e-3, -6e-3]), 49)
    late(52, 8.6e-3)  # they stood


def test_without_further_commands_the_last_target_stays() -> None:
    made, data = enabled(8)
    commanded(made)
    for cycle in range(13, 40):
        np.testing.assert_allclose(sent(made.images_at(cycle)), [3e-3, -6e-3], atol=1e-7)
        step(made, data, ENABLED)


def test_a_long_pause_does_not_make_room_for_a_long_step() -> None:
    made, data = enabled(4, velocity_max_rad_s=1.0)
    made.command(np.zeros(2), 10)
    for _ in range(3):
        step(made, data, ENABLED)
    with pytest.raises(CommandRefusedError, match="velocity_max_rad_s"):
        made.command(np.array([5.1e-3, 0.0]), 5010)
    made.command(np.array([4.9e-3, 0.0]), 5010)  # five cycles at 1 rad/s


def test_positions_beyond_32_bits_of_counts_are_refused() -> None:
    made, _ = enabled()
    most = 2**31 / (1_048_576 * 101.0) * TURN
    made.command(np.array([0.999 * most, 0.0]), 10)
    for position in (1.001 * most, -1.001 * most):
        with pytest.raises(CommandRefusedError, match=r"joint_2.*32 bits"):
            made.command(np.array([0.0, position]), 11)


def test_targets_outside_the_limits_or_not_finite_are_refused() -> None:
    made, _ = enabled(position_min_rad=-3.0, position_max_rad=3.0, velocity_max_rad_s=2.0)
    made.command(np.zeros(2), 10)
    for target, message in (
        ([0.0, np.nan], "not 2 finite"), ([0.0], "not 2 finite"), ([3.5, 0.0], "joint_1.*position_max_rad"),
        ([0.0, -3.5], "joint_2.*position_min_rad"), ([0.0, 0.1], "joint_2.*velocity_max_rad_s"),
    ):  # fmt: skip
        with pytest.raises(CommandRefusedError, match=message):
            made.command(np.array(target), 11)


def test_extrapolation_needs_bridging_and_keeps_to_the_position_limits() -> None:
    made, _ = enabled(0)
    commanded(made)
    assert made.images_at(20) == made.images
    made, _ = enabled(8, position_min_rad=-0.5, position_max_rad=0.0045)
    commanded(made)
    np.testing.assert_allclose(sent(made.images_at(18)), [0.0045, -0.016], atol=1e-7)
    made.disable()
    assert made.images_at(18) == made.images  # a late frame does not overtake a stop


def test_the_speed_of_a_gap_is_that_over_its_cycles() -> None:
    made, _ = enabled(8)
    commanded(made)
    made.step(0, None)
    made.command(np.array([7e-3, -14e-3]), 16)
    np.testing.assert_allclose(sent(made.images_at(18)), [8e-3, -16e-3], atol=1e-7)


def test_drives_that_dropped_out_are_not_moved() -> None:
    made, data = enabled(8)
    commanded(made)
    data.decode([struct.pack("<HiihhH", READY, 0, 0, 0, 0, 0)] * 2)
    made.step(0, None)
    np.testing.assert_allclose(sent(made.images_at(16)), 0.0, atol=1e-9)
    with pytest.raises(CommandRefusedError):
        made.command(np.zeros(2), 16)


# --- enabling


def test_a_drive_that_is_enabled_holds_while_the_others_are_not() -> None:
    """Its target stays, although gravity moves the drive."""
    made, data = switched_on()
    for sag in range(20):
        step(made, data, ENABLED, SWITCHED_ON, counts=(-10 * sag, sag))
        assert [struct.unpack_from("<i", image, 2)[0] for image in made.images] == [0, sag]
    step(made, data, ENABLED, ENABLED, counts=(0, 0))
    assert made.enabled
    assert [struct.unpack_from("<i", image, 2)[0] for image in made.images] == [0, 19]


def test_one_slow_drive_switches_all_off_again_and_is_named() -> None:
    made, data = switched_on(enable_timeout_ms=100.0)
    for ms in range(101):
        assert step(made, data, ENABLED, READY, ns=ms * 1_000_000) == [0x0F, 0x07]
    step(made, data, ENABLED, READY, ns=100_000_001)
    assert step(made, data, ENABLED, READY, ns=101_000_000) == [0x02, 0x00]
    assert "joint_2 is in 'ready to switch on'" in made.failure
    assert "joint_1" not in made.failure


def test_a_drive_that_drops_out_while_others_are_enabled_is_the_reason() -> None:
    made, data = switched_on()
    step(made, data, SWITCHED_ON, ENABLED)
    step(made, data, SWITCHED_ON, FAULT)
    assert "joint_2 is in 'fault'" in made.failure
    assert step(made, data, SWITCHED_ON, FAULT) == [0, 0]


def test_stop_all_on_fault_can_be_switched_off() -> None:
    made, data = enabled(stop_all_on_fault=False)
    for _ in range(50):
        assert step(made, data, ENABLED, FAULT) == [0x0F, 0x00]
    made, data = enabled()
    step(made, data, ENABLED, FAULT)
    assert step(made, data, ENABLED, FAULT) == [0x02, 0x00]


def with_mode_display(shown: int) -> tuple[DriveGroup, ProcessData, list[bytes]]:
    """Two drives that show their mode, and their inputs when they are enabled."""
    tables = deepcopy(settings(2, enable_timeout_ms=100.0))
    tables["device"]["servo"]["tx"]["1A00"].append("6061:00:8 mode_display")
    made, data = group_of(EthercatConfig.model_validate(tables))
    made.enable(0)
    for word in (DISABLED, READY, SWITCHED_ON):
        data.decode([struct.pack("<HiihhHb", word, 0, 0, 0, 0, 0, mode) for mode in (8, shown)])
        made.step(0, None)
    return made, data, [struct.pack("<HiihhHb", ENABLED, 0, 0, 0, 0, 0, mode) for mode in (8, shown)]


@pytest.mark.parametrize(("shown", "words"), [(3, [0x0F, 0x07]), (0, [0x0F, 0x0F]), (8, [0x0F, 0x0F])])
def test_a_drive_has_to_show_its_mode(shown: int, words: list[int]) -> None:
    """One in another mode is not switched on; one that shows none yet is, and does not count as enabled."""
    made, data, inputs = with_mode_display(shown)
    assert controlwords(made.images) == words
    if shown != 3:
        data.decode(inputs)
        made.step(0, None)
    assert made.enabled == (shown == 8)
    made.step(100_000_001, None)
    assert made.failure.endswith(f"joint_2 shows mode of operation {shown} (6061) instead of 8") == (shown != 8)


def test_the_time_to_stop_is_the_configured_one() -> None:
    made, data = enabled(stop_timeout_ms=100.0, cycle_hz=2000)
    made.disable()
    assert [step(made, data, 0x1617) for _ in range(202)] == [[0x02, 0x02]] * 200 + [[0x00, 0x00]] * 2


# --- missing inputs


@pytest.mark.parametrize(("bridge_cycles", "bridged"), [(0, 20), (30, 30)])
def test_missing_inputs_are_bridged_for_a_while_and_then_stop_all(bridge_cycles: int, bridged: int) -> None:
    made, data = enabled(bridge_cycles)
    for _ in range(bridged):
        assert step(made, data, ENABLED, valid=[True, False]) == [0x0F, 0x0F]
    assert made.enabled
    assert step(made, data, ENABLED, valid=[True, False])[1] == 0x02
    assert not made.enabled
    assert made.report(1)["dropped_out"]
    assert made.report(1)["state"] == "unknown"
    words = [step(made, data, ENABLED, valid=[True, False]) for _ in range(501)]
    assert words[0] == [0x02, 0x02]
    assert words[-1] == [0x00, 0x00]


def test_one_valid_cycle_resets_the_count_of_missing_inputs() -> None:
    made, data = enabled()
    for _ in range(5):
        for _ in range(20):
            step(made, data, ENABLED, valid=[False, False])
        step(made, data, ENABLED, valid=None)
    assert made.enabled
    assert [step(made, data, ENABLED, valid=[False, False]) for _ in range(30)][-1] == [0x02, 0x02]


def test_a_joint_whose_float_is_no_number_is_not_valid() -> None:
    tables = deepcopy(settings(2))
    tables["device"]["servo"]["tx"]["1A00"][3] = "6077:00:32 torque f"
    tables["device"]["servo"]["torque_unit"] = "mNm"
    _, data = group_of(EthercatConfig.model_validate(tables))
    channels = data.decode([struct.pack("<HiifhH", ENABLED, 0, 0, torque, 0, 0) for torque in (1.0, np.nan)])
    np.testing.assert_array_equal(data.finite(channels, None), [True, False])
    np.testing.assert_array_equal(data.finite(channels, np.array([False, True])), [False, False])


def test_a_joint_at_its_largest_torque_is_valid() -> None:
    """Safety checks skip invalid joints, and must not skip this one."""
    _, data = group_of(make_config(2), 12.3, 4.56)
    channels = data.decode([struct.pack("<HiihhH", ENABLED, 0, 0, torque, 0, 0) for torque in (32767, -32768)])
    assert data.finite(channels, None) is None


def test_a_stop_is_completed_before_drives_are_enabled_again() -> None:
    made, data = enabled()
    made.disable()
    for _ in range(3):  # not sent yet, sent, under way
        with pytest.raises(CommandRefusedError, match="still stopping"):
            made.enable(0)
        assert step(made, data, ENABLED) == [0x02, 0x02]
    step(made, data, DISABLED)
    made.enable(0)
    for word in (DISABLED, READY, SWITCHED_ON, ENABLED):
        step(made, data, word)
    assert made.enabled
