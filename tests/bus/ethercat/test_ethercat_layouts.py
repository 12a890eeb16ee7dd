"""Drives of other layouts on one bus, and a ring."""

import tomllib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from drivers.ethercat.config import EthercatConfig
from tests.lab.ethercat.configs import SERVO, settings
from tests.lab.ethercat.namespace import ROOT
from tests.lab.ethercat.network import SegmentProcess, Segments
from tests.lab.ethercat.patient_driver import PatientDriver


def identity(name: str) -> dict[str, Any]:
    path = ROOT / "sim_backend" / "ethercat" / "devices" / f"{name}.toml"
    found = tomllib.loads(path.read_text())["identity"]
    return {key: found[key] for key in ("vendor_id", "product_code", "revision")}


HARMONIC = {
    "remap": False,
    "rx": {"1600": ["6040:00:16 controlword", "6060:00:8 mode", "0000:00:8", "607A:00:32 target_position"]},
    "tx": {
        "1A03": [
            "6041:00:16 statusword", "6061:00:8 mode_display", "0000:00:8", "6064:00:32 position",
            "2240:02:32 motor_position", "606C:00:32 velocity", "6077:00:16 torque", "6078:00:16 current",
            "2250:01:16 temperature", "603F:00:16 error_code", "60FD:00:32 digital_inputs",
        ]
    },
    "counts_per_rev": 524_288, "position_side": "joint", "motor_counts_per_rev": 65_536,
    "torque_side": "joint", "temperature_scale": 0.1,
}  # fmt: skip


@pytest.fixture(scope="module")
def mixed(segment: Segments) -> Iterator[SegmentProcess]:
    with segment("generic_servo", "harmonic_actuator", mountings=[{"gear_ratio": 101.0}, {"gear_ratio": 100.0}]) as p:
        yield p


def test_two_makes_on_one_bus(mixed: SegmentProcess) -> None:
    tables = settings(2, interface="m0", watchdog_ms=1000.0)
    tables["device"] = {"servo": SERVO, "harmonic": {**HARMONIC, **identity("harmonic_actuator")}}
    tables["drive"] = [
        {"joint": "a", "device": "servo", "gear_ratio": 101.0},
        {"joint": "b", "device": "harmonic", "gear_ratio": 100.0},
    ]
    with PatientDriver(EthercatConfig.model_validate(tables)) as driver:
        for _ in range(100):
            frame = driver.read()
        assert driver.info.channels == ("q", "dq", "current", "tau", "setpoint")  # only one has a second encoder
        np.testing.assert_allclose(frame.q, mixed.tell("truth")["x"], atol=1e-4)  # type: ignore[arg-type]
        driver.enable()
        for _ in range(1500):
            frame = driver.read()
        assert driver.report()["enabled"], driver.report()
        np.testing.assert_allclose(frame.q, mixed.tell("truth")["x"], atol=1e-3)  # type: ignore[arg-type]
        np.testing.assert_allclose(frame.tau, mixed.tell("truth")["u"], atol=2.0)  # type: ignore[arg-type]


def test_motor_side_and_temperature(segment: Segments, mixed: SegmentProcess) -> None:
    tables = settings(1, interface="m0", watchdog_ms=1000.0)
    tables["device"] = {"harmonic": {**HARMONIC, **identity("harmonic_actuator")}}
    tables["drive"] = [{"joint": "b", "device": "harmonic", "gear_ratio": 100.0, "position": 1}]
    tables["other"] = [{"position": 0, **identity("generic_servo")}]
    with PatientDriver(EthercatConfig.model_validate(tables)) as driver:
        for _ in range(50):
            frame = driver.read()
        assert driver.info.channels == ("q", "dq", "current", "tau", "q_motor", "temperature", "setpoint")
        assert frame.q_motor[0] == pytest.approx(100.0 * frame.q[0], abs=0.01)
        assert 10.0 < frame.temperature[0] < 60.0
