"""Descriptions of PLCs: the shipped one, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from sim_backend.ethercat.settings import load_segment
from sim_backend.plc.settings import PlcFileError, load_plc
from tests.lab.ads.plc_bench import CONFIG, JOINTS, make, parsed


def test_the_shipped_one_has_the_axes_of_the_servo_drives():
    plc, segment = load_plc(CONFIG), load_segment(CONFIG.parents[1] / "ethercat/arm9_segment.toml")
    keys = ("joint", "gear_ratio", "sign", "offset_rad", "rated_torque_nm", "rated_current_a")
    for axis, drive in zip(plc.axis, segment.drive, strict=True):
        assert [getattr(axis, key) for key in keys] == [getattr(drive, key) for key in keys]
    assert {axis.unit for axis in plc.axis} == {"deg", "rad"}
    assert make(plc).model.n == 9


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"robots": "arm9"}, "robots: unknown key; did you mean 'robot'"),
        ({"net_id": "1.2.3"}, "net_id: '1.2.3' is no AMS net id"),
        ({"axis": [{"joint": "joint_1", "unit": "furlong"}]}, r"axis\[0\].unit"),
        ({"axis": [{"joint": "joint_1"}]}, "torque_unit = 'permille' needs rated_torque_nm"),
        ({"axis": [{"joint": "joint_1", "torque_unit": "Nm", "gear": 3}]}, r"axis\[0\].gear: unknown key"),
        ({"axis": [{"joint": "a", "torque_unit": "Nm", "unit": "mm", "side": "motor"}]}, "needs a unit of angle"),
        ({"axis": [{"joint": j, "torque_unit": "Nm", "name": "A"} for j in JOINTS]}, "same name"),
        ({"cycle_us": 10_000, "heartbeat_ms": 15}, "heartbeat_ms = 15 is less than two cycles"),
        ({"block_samples": 10_000, "blocks": 100_000}, "smaller blocks"),
    ],
)  # fmt: skip
def test_what_is_refused_names_the_place(change, message):
    with pytest.raises(PlcFileError, match=message):
        parsed(**change)


def test_axes_that_are_not_the_robots():
    axes = [{"joint": joint, "torque_unit": "Nm"} for joint in JOINTS[:-1]]
    with pytest.raises(PlcFileError, match="list one axis for each"):
        make(parsed(axis=axes))
    with pytest.raises(PlcFileError, match="robot"):
        make(parsed(robot="arm99"))


def test_files(tmp_path):
    with pytest.raises(PlcFileError, match="cannot be read"):
        load_plc(Path(tmp_path / "none.toml"))
    bad = tmp_path / "bad.toml"
    bad.write_text("robot = ")
    with pytest.raises(PlcFileError, match="not valid TOML"):
        load_plc(bad)
