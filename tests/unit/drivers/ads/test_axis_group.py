"""`AxisGroup`: enabling, limits and stops, without a PLC; refusals of `AdsConfig`."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from drivers.ads.axes.axis_group import AxisGroup
from drivers.ads.axes.scaling import AxisScaling
from drivers.ads.config import AdsConfig
from drivers.ads.layout import ENABLED, ENABLING, FAULT, OFF, Sizes
from drivers.ads.link.program import Head
from drivers.driver import CommandRefusedError
from drivers.frame import JointFrame

MS = 1_000_000
HEAD = Head(
    start=1, samples=100, blocks=10, time=0, state=OFF, reason=0, underruns=0, refused=0, sequence=0, exceeded=0
)
CONFIG = {
    "net_id": "1.2.3.4.1.1",
    "axis": [{"joint": "a", "position_min_rad": -1.0, "position_max_rad": 1.0, "velocity_max_rad_s": 2.0},
             {"joint": "b"}],
}  # fmt: skip


def arm(**changes: Any) -> AxisGroup:
    config = AdsConfig.model_validate(CONFIG | changes)
    made = AxisGroup(config, AxisScaling(config.axis), [0, 1], Sizes(2), MS)
    made.observe(HEAD, 0)
    return made


def enable_of(made: AxisGroup, at_ns: int = 0) -> bool | None:
    """Return whether the next command enables the axes; None if nothing is written."""
    command = made.next_command(20, at_ns)
    return None if command is None else command.enable


def frame(seq: int, cycle: int) -> tuple[JointFrame, int]:
    return JointFrame(seq, 0, 0, q=np.zeros(2), setpoint=np.zeros(2)), cycle


def enabled_arm() -> AxisGroup:
    made = arm()
    made.enable()
    assert (enable_of(made), enable_of(made)) == (False, True), "the PLC requires the change"
    made.observe(replace(HEAD, state=ENABLED), 0)
    made.frame(*frame(0, 99))
    assert made.enabled
    return made


@pytest.mark.parametrize("state", [ENABLING, ENABLED])
def test_axes_of_another_program_are_left_alone(state: int) -> None:
    made = arm()
    assert made.next_command(20, 0) is None
    made.observe(replace(HEAD, state=state), 0)
    with pytest.raises(CommandRefusedError, match="another program commands them"):
        made.enable()
    assert made.next_command(20, 0) is None
    assert not made.enabled


@pytest.mark.parametrize(
    ("target", "text"),
    [([1.1, 0.0], "joint 'a' to 1.1 exceeds position_max_rad = 1"), ([-1.1, 0.0], "position_min_rad"),
     ([0.9, 0.0], "velocity_max_rad_s = 2"), ([np.nan, 0.0], "finite"), ([0.0], "2 finite numbers")],
)  # fmt: skip
def test_targets_outside_limits(target: list[float], text: str) -> None:
    made = enabled_arm()
    with pytest.raises(CommandRefusedError, match=text):
        made.command(np.array(target))


def test_steps_are_judged_by_the_cycles_between_them() -> None:
    made = enabled_arm()
    made.command(np.zeros(2))
    made.frame(*frame(1, 100))
    with pytest.raises(CommandRefusedError, match="velocity_max_rad_s"):
        made.command(np.array([0.003, 0.0]))
    made.command(np.array([0.002, 50.0]))
    made.frame(*frame(3, 102))
    made.command(np.array([0.006, 50.0]))


def test_enabled_only_with_a_frame_since_the_axes_are_on() -> None:
    made = arm()
    made.enable()
    made.next_command(20, 0)
    made.next_command(20, 0)
    made.frame(*frame(0, 98))
    made.observe(replace(HEAD, state=ENABLED), 0)
    assert not made.enabled
    made.frame(*frame(1, 99))
    assert made.enabled


def test_the_first_step_is_judged_by_the_cycles_that_are_left() -> None:
    made = enabled_arm()
    near = np.array([0.09, 0.0])  # 50 cycles of half the lead allow 0.1 rad
    made.observe(replace(HEAD, state=ENABLED, samples=150), 0)  # 30 of them are left
    with pytest.raises(CommandRefusedError, match="velocity_max_rad_s"):
        made.command(near)
    made.observe(replace(HEAD, state=ENABLED, samples=110), 0)
    made.command(near)


def test_axes_switched_off_by_the_plc_stay_off() -> None:
    made = enabled_arm()
    made.observe(replace(HEAD, state=FAULT, reason=5), MS)
    assert not made.enabled
    assert made.failure == "the PLC switched the axes off: an axis reports a fault"
    assert enable_of(made) is False
    made.observe(replace(HEAD, state=OFF), MS)
    assert enable_of(made) is None


def test_enabling_has_a_time_limit() -> None:
    made = arm(enable_timeout_ms=50.0)
    made.enable()
    made.observe(HEAD, 990 * MS)  # the time limit starts with the first command
    made.next_command(20, 1000 * MS)
    made.next_command(20, 1010 * MS)
    made.observe(replace(HEAD, state=ENABLING), 1040 * MS)
    assert enable_of(made) is True
    made.observe(replace(HEAD, state=ENABLING), 1060 * MS)
    assert made.failure == "not enabled within 50 ms: the axes are 'enabling'"
    assert enable_of(made) is False


def test_a_stop_is_completed_before_axes_are_enabled_again() -> None:
    made = enabled_arm()
    made.disable()
    with pytest.raises(CommandRefusedError, match="still stopping"):
        made.enable()
    assert enable_of(made) is False
    made.observe(replace(HEAD, state=OFF), MS)
    made.enable()
    assert made.active


MIN: dict[str, Any] = {"net_id": "5.80.201.232.1.1", "axis": [{"joint": "a"}]}


def test_net_ids() -> None:
    for net_id in ("5.80.201.232.1.1", "0.0.0.0.0.0", "255.255.255.255.255.255"):
        assert AdsConfig.model_validate(MIN | {"net_id": net_id}).target.net_id == net_id
    for net_id in ("", "1.2.3.4", "1.2.3.4.5.6.7", "1.2.3.4.5.256", "1.2.3.4.5.", "1.2.3.4.5.x"):
        with pytest.raises(ValidationError, match="net_id"):
            AdsConfig.model_validate(MIN | {"net_id": net_id})


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"axis": [{"joint": "a"}, {"joint": "a"}]}, "joint 'a' is given to 2 axes"),
        ({"axis": [{"joint": "a", "name": "X"}, {"joint": "b", "name": "x"}]}, "name 'x' is given to 2 axes"),
        ({"axis": [{"joint": "a", "torque_unit": "permille"}]}, "needs rated_torque_nm"),
        ({"axis": [{"joint": "a", "current_unit": "percent"}]}, "needs rated_current_a"),
        ({"axis": [{"joint": "a", "unit": "mm", "side": "motor"}]}, "needs a unit of angle"),
        ({"axis": [{"joint": "a", "position_min_rad": 1.0, "position_max_rad": 1.0}]}, "not below"),
        ({"enable": True, "mode": "none"}, 'needs mode = "csp"'),
        ({"axis": [{"joint": "a", "name": "X"}, {"joint": "b"}]}, "name is given to some axes only"),
        ({"enable_timeout_ms": 7001.0}, "less than or equal to 7000"),
        ({"pol_ms": 5.0}, "pol_ms"),
    ],
)
def test_invalid_settings(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(ValidationError, match=text):
        AdsConfig.model_validate(MIN | changes)
