"""Jobs of kind `elastic_joint`: from a recording to parameters, or to one clear sentence."""

import csv
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.files.recordings.recording import Recording, Span, write_recording
from service.jobs.kinds import find_kind
from service.operations.errors import OperationError
from service.operations.kind import Outcome
from tests.lab.arms.elastic_rig import DRIVE, KM, ROBOT, recording_of
from tests.lab.arms.harmonic_drive import TRUTH, N, record

LAG = 2e-3


@pytest.fixture(scope="module")
def measured() -> Recording:
    """Two joints, of which the second is elastic."""
    return recording_of(record(1, lag=LAG, zero=0.1))


@pytest.fixture(scope="module")
def recording(measured: Recording, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("elastic") / "rig.mcap"
    write_recording(path, measured)
    return path


def run(recording: Path, folder: Path, **parameters: Any) -> Outcome:
    kind = find_kind("elastic_joint")
    return kind.run_here(kind.read({"recording": str(recording), "joint": "elbow", **parameters}), folder)


def test_parameters_with_intervals(recording: Path, tmp_path: Path) -> None:
    outcome = run(recording, tmp_path, sensor=True, **DRIVE)
    assert (outcome.verdict, outcome.accepted) == ("ok", True)
    assert outcome.summary.startswith("ok: elbow: k1 3.9")
    document = json.loads((tmp_path / "elastic.json").read_text())
    assert document["drive"] == {"gear_ratio": N, "torque_constant": KM, "rotor_inertia": None}
    found = document["parameters"]
    assert list(found) == [*TRUTH, "lag", "zero"]
    for name, true in (TRUTH | {"lag": LAG, "zero": 0.1}).items():
        p = found[name]
        assert abs(p["value"] - true) < 4.0 * p["std"], name
        assert p["lower"] < p["value"] < p["upper"]
    assert outcome.metrics["parameters"] == found
    rows = list(csv.DictReader((tmp_path / "stiffness.csv").read_text().splitlines()))
    assert list(rows[0]) == ["t_s", "deflection_rad", "motor_torque_nm", "sensor_torque_nm", "spring_torque_nm"]
    assert len(rows) == document["row_count"]
    d = np.array([float(row["deflection_rad"]) for row in rows])
    spring = np.array([float(row["spring_torque_nm"]) for row in rows])
    np.testing.assert_allclose(spring, TRUTH["k1"] * d + TRUTH["k2"] * d**3, rtol=0.02)


def test_drive_from_the_robot_file(recording: Path, tmp_path: Path) -> None:
    robot = tmp_path / "rig.toml"
    robot.write_text(ROBOT)
    run(recording, tmp_path / "out", joint=2, robot=str(robot), stage="coulomb", sensor=True, lag=LAG, zero=0.1)
    document = json.loads((tmp_path / "out/elastic.json").read_text())
    assert document["drive"] == {"gear_ratio": 290.0, "torque_constant": 0.4, "rotor_inertia": pytest.approx(5e-5)}
    assert [fit["rows"] for fit in document["other_fits"]] == ["motor", "sensor"]
    assert not {"lag", "zero"} & set(document["parameters"])


def lacking(measured: Recording, path: Path, *names: str, **changed: Any) -> Path:
    channels = {k: v for k, v in measured.channels.items() if k not in names} | changed
    write_recording(path, replace(measured, channels=channels).span(Span.parse("0:0.2")))
    return path


@pytest.mark.parametrize(
    ("lost", "parameters", "message"),
    [
        (("q_motor",), DRIVE, "no channel q_motor, the angle of the motor, for joint elbow; it has q, current, tau"),
        (("tau",), DRIVE | {"sensor": True}, "no channel tau for the torque sensor"),
        (("current",), DRIVE | {"sensor": True}, "no channel current: with `sensor`"),
        (("current", "tau"), DRIVE, "no channel current or tau"),
    ],
)
def test_missing_channel(
    measured: Recording, tmp_path: Path, lost: tuple[str, ...], parameters: dict[str, Any], message: str
) -> None:
    path = lacking(measured, tmp_path / "lacking.mcap", *lost)
    with pytest.raises(OperationError, match=message):
        run(path, tmp_path / "out", **parameters)
    assert not (tmp_path / "out").exists()


def test_torque_computed_from_current_is_no_sensor(measured: Recording, tmp_path: Path) -> None:
    path = lacking(measured, tmp_path / "rig.mcap", tau=KM * N * measured.channels["current"])
    with pytest.raises(OperationError, match="no torque sensor"):
        run(path, tmp_path / "out", sensor=True, **DRIVE)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"joint": 3, **DRIVE}, "3 of a recording of 2 joints"), ({"gear_ratio": 0.0}, "gear ratio 0"),
        ({"gear_ratio": 1e200}, "gear_ratio"), ({"lag": 0.5, **DRIVE}, "lag"),
        ({"torque_constant": KM, "gear_ratio": 1e-300}, "gear ratio 1e-300"),
        ({"gear_ratio": N, "torque_constant": 0.0}, "torque_constant: 0 N*m/A"),
        ({"gear_ratio": N, "torque_constant": 1e-300}, "torque_constant: 1e-300 N*m/A"),
        ({"cutoff_hz": 0.01, **DRIVE}, "no stretch of 400 s"),
        ({"cutoff_hz": 400.0, **DRIVE}, "cut-off 400 Hz is too high"), ({"stage": "d", **DRIVE}, "stage: should be"),
    ],
)  # fmt: skip
def test_wrong_parameters(recording: Path, tmp_path: Path, parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(OperationError, match=re.escape(message)):
        run(recording, tmp_path, **parameters)


@pytest.mark.parametrize(("factor", "message"), [(0.0, "is zero throughout"), (1e300, "motor torque .* reaches")])
def test_current_that_no_motor_has(measured: Recording, tmp_path: Path, factor: float, message: str) -> None:
    path = lacking(measured, tmp_path / "rig.mcap", current=factor * measured.channels["current"])
    with pytest.raises(OperationError, match=f"rig.mcap, joint elbow.*{message}"):
        run(path, tmp_path / "out", **DRIVE)


def test_coupled_motor_is_refused(recording: Path, tmp_path: Path) -> None:
    robot = tmp_path / "rig.toml"
    robot.write_text(ROBOT.replace("gear_ratio = [1.0, 290.0]", "matrix = [[1.0, 0.0], [5.0, 290.0]]"))
    with pytest.raises(OperationError, match="motor and joint elbow are coupled with slide"):
        run(recording, tmp_path / "out", robot=str(robot))
