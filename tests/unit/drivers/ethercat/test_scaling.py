"""Conversion between counts and joint-side SI units, against values by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.ethercat.config import DeviceTable, DriveTable
from drivers.ethercat.drive.scaling import JointScaling, Ratings
from tests.lab.ethercat.configs import SERVO


def scaling(drive: dict[str, Any] | None = None, device: dict[str, Any] | None = None) -> JointScaling:
    tables = {"joint": "a", "device": "servo", "gear_ratio": 100.0} | (drive or {})
    return JointScaling(
        [DriveTable.model_validate(tables)],
        [DeviceTable.model_validate(SERVO | {"counts_per_rev": 4096} | (device or {}))],
        [Ratings(torque_nm=2.0, current_a=5.0)],
    )


def test_motor_side_encoder() -> None:
    s = scaling()
    assert 409600 * s.position[0] - s.position_zero[0] == pytest.approx(2 * math.pi)  # 100 motor turns
    assert 409600 * s.velocity[0] == pytest.approx(2 * math.pi)
    assert 1000 * s.torque[0] == pytest.approx(200.0)  # rated torque times gear
    assert 500 * s.current[0] == pytest.approx(2.5)


def test_joint_side_encoder_and_torque_sensor_and_temperature() -> None:
    device = {"position_side": "joint", "torque_side": "joint"}
    s = scaling(device=device | {"temperature_scale": 0.5, "temperature_offset": -40.0})
    assert 4096 * s.position[0] == pytest.approx(2 * math.pi)
    assert 1000 * s.torque[0] == pytest.approx(2.0)
    assert 130 * s.temperature[0] - s.temperature_zero[0] == pytest.approx(25.0)


def test_sign_applies_to_all_and_offset_to_the_angle_of_the_drive() -> None:
    s = scaling(drive={"sign": -1, "offset_rad": 0.5})
    # The drive's angle is 0.5 rad where the joint has its zero.
    counts = 0.5 / (2 * math.pi) * 409600
    assert counts * s.position[0] - s.position_zero[0] == pytest.approx(0.0, abs=1e-12)
    assert 409600 * s.position[0] - s.position_zero[0] == pytest.approx(-(2 * math.pi - 0.5))
    assert s.velocity[0] < 0 > s.torque[0]
    assert s.current[0] < 0


def test_motor_position_is_zero_where_the_joint_is() -> None:
    s = scaling(
        drive={"offset_rad": 0.5},
        device={
            "tx": {**SERVO["tx"], "1A01": ["6063:00:32 motor_position"]},
            "motor_counts_per_rev": 1024,
            "position_side": "joint",
        },
    )
    turns = 50.0 / (2 * math.pi)  # 0.5 rad at the joint, gear 100
    assert turns * 1024 * s.motor_position[0] - s.motor_zero[0] == pytest.approx(0.0, abs=1e-9)


def test_velocity_units() -> None:
    in_a_turn = {"counts/s": 4096, "0.1counts/s": 40960, "rpm": 60, "0.001rpm": 60000, "mrad/s": 2000 * math.pi}
    for unit, digits in in_a_turn.items():
        s = scaling(drive={"gear_ratio": 1.0}, device={"velocity_unit": unit})
        assert digits * s.velocity[0] == pytest.approx(2 * math.pi)


def test_torque_units() -> None:
    for unit, digits in (("permille", 1500), ("mNm", 3000), ("0.01Nm", 300)):
        s = scaling(drive={"gear_ratio": 1.0}, device={"torque_unit": unit})
        assert digits * s.torque[0] == pytest.approx(3.0)
        assert s.torque_digits(np.array([3.0])) == [digits]


@given(st.floats(-20.0, 20.0), st.sampled_from([-1, 1]), st.floats(-3.0, 3.0))
def test_position_there_and_back(q: float, sign: int, offset: float) -> None:
    s = scaling(drive={"sign": sign, "offset_rad": offset})
    (counts,) = s.position_counts(np.array([q]))
    assert counts * s.position[0] - s.position_zero[0] == pytest.approx(q, abs=0.5 * abs(s.position[0]) + 1e-12)


def test_targets_are_limited_to_their_types() -> None:
    s = scaling()
    assert s.position_counts(np.array([1e9])) == [2**31 - 1]
    assert s.position_counts(np.array([-1e9])) == [-(2**31)]
    assert s.torque_digits(np.array([1e9])) == [2**15 - 1]
    assert s.velocity_digits(np.array([-1e9])) == [-(2**31)]
