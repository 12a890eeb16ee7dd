"""An arm of three axes behind a PLC: what the PLC is made of, and the driver's configuration of the same."""

from pathlib import Path
from typing import Any

from drivers.ads.config import AdsConfig
from sim_backend.plc.settings import PlcSettings, parse_plc

NET_ID = "5.80.201.11.1.1"
ROBOT = "space6"
#: Every unit and side once.
AXES: list[dict[str, Any]] = [
    {"name": "Base", "unit": "deg", "gear_ratio": 101.0, "torque_unit": "permille", "rated_torque_nm": 1.3},
    {"name": "Shoulder", "unit": "rad", "gear_ratio": 121.0, "sign": -1, "offset_rad": 0.3, "torque_unit": "Nm"},
    {"name": "Elbow", "unit": "rev", "side": "motor", "gear_ratio": 101.0, "offset_rad": -0.4, "torque_unit": "mNm"},
    {"name": "Roll", "unit": "mrad", "gear_ratio": 51.0, "torque_side": "joint", "torque_unit": "Nm"},
    {"name": "Pitch", "unit": "deg", "gear_ratio": 51.0, "sign": -1, "current_unit": "mA", "torque_unit": "Nm"},
    {"name": "Yaw", "unit": "deg", "gear_ratio": 51.0, "motor_unit": "rev", "torque_unit": "percent",
     "rated_torque_nm": 0.5, "current_unit": "percent", "rated_current_a": 2.0},
]  # fmt: skip
_JOINTS = [f"joint_{k + 1}" for k in range(len(AXES))]


def plc(**changes: Any) -> PlcSettings:
    axes = [{"joint": joint, **axis} for joint, axis in zip(_JOINTS, AXES, strict=True)]
    return parse_plc({"robot": ROBOT, "net_id": NET_ID, "axis": axes} | changes, "test", Path())


def axis_tables() -> list[dict[str, Any]]:
    return [{"joint": joint, **axis} for joint, axis in zip(_JOINTS, AXES, strict=True)]


def config(address: str = "127.0.0.1", **changes: Any) -> AdsConfig:
    return AdsConfig.model_validate({"net_id": NET_ID, "host": address, "axis": axis_tables()} | changes)
