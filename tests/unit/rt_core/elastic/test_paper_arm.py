"""Table III of Sun et al. through the simulated arm, and the elastic axes of a KUKA KR300."""

import json
from pathlib import Path

import numpy as np
import pytest

from drivers.files.robots.file import load_robot
from rt_core.elastic.identify import identify_elastic_joint
from rt_core.elastic.rows import Drive, ElasticRows, elastic_rows
from rt_core.identification.preprocess import SignalSettings
from sim_backend.arm.robot import SimulatedArm
from sim_backend.arm.settings import MotionSettings, PieceSettings, SimSettings
from tests.lab.arms.harmonic_drive import J_IN, TRUTH, N

KM = 0.4
ROBOT = f"""
format = 1
name = "swing"
kinematics = "mdh"
gravity = "floor"
[transmission]
gear_ratio = [{N}]
torque_constant = [{KM}]
[[joint]]
name = "elbow"
alpha_deg = 90
lower = -0.9
upper = 0.9
velocity = 0.4
effort = 1500
mass = 80.0
com = [0.0, -1.1, 0.0]
inertia = [3.0, 0.0, 3.0, 0.0, 0.0, 3.0]
armature = {J_IN * N**2}
viscous = {TRUTH["b_in"] * N**2}
coulomb = {TRUTH["b_inD"] * N}
stiffness = {TRUTH["k1"]}
stiffness_cubic = {TRUTH["k2"]}
spring_damping = 0.0
link_viscous = {TRUTH["b_out"]}
link_coulomb = {TRUTH["b_outC"]}
"""
#: There and back, so that gravity loads the spring from -700 to 700 N*m: share of the joint's limit of 0.4 rad/s, and
#: of its range of 0.9 rad either way.
SWINGS = ((0.05, 1.0), (0.1, 1.0), (0.15, 1.0))


def swung(folder: Path, seed: int) -> ElasticRows:
    path = folder / "swing.toml"
    path.write_text(ROBOT, encoding="utf-8")
    pieces = tuple(
        PieceSettings(kind="paul", duration_s=8.4 * share / s, speed=s, amplitude=0.9 * share) for s, share in SWINGS
    )
    settings = SimSettings(
        seed=seed, rate_hz=500.0, torque_sensor="link", torque_noise=(1.5,), current_noise=(0.05,), encoder_bits=20
    )
    motion = MotionSettings(kind="schedule", segments=pieces, centre=(0.0,))
    data = SimulatedArm(load_robot(path).model, settings, motion).simulate(sum(p.duration_s or 0.0 for p in pieces))
    c = data.channels
    return elastic_rows(
        data.t, c["q_motor"][:, 0], c["q"][:, 0], KM * c["current"][:, 0], Drive(N, J_IN), SignalSettings(),
        sensor_torque=c["tau"][:, 0],
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_stage_c_recovers_all_six(seed: int, tmp_path: Path) -> None:
    answer = identify_elastic_joint([swung(tmp_path, seed)]).answer
    assert answer.verdict == "ok", answer.reasons
    for name, true in TRUTH.items():
        p = answer[name]
        assert p.value == pytest.approx(true, rel=0.02), name
        assert p.lower < true < p.upper, name


def rows(data_dir: Path, recording: str, axis: int) -> ElasticRows:
    folder = data_dir / "kuka_kr300_elastic"
    known = json.loads((folder / "kr300.json").read_text())
    data = np.load(folder / f"trajectory_{recording}.npz")
    j, ratio = axis - 1, float(known["gear_ratio"][axis - 1])
    return elastic_rows(
        data["t"], ratio * np.deg2rad(data["q_motor_deg"][:, j]), np.deg2rad(data["q_link_deg"][:, j]),
        data["tau_motor_nm"][:, j], Drive(ratio, float(known["motor_inertia_kgm2_simulation_file"][j])),
        SignalSettings(),
    )  # fmt: skip


@pytest.mark.parametrize(("recordings", "axis"), [("A", 2), ("AB", 2), ("AB", 3)])
def test_axes_that_gravity_loads(data_dir: Path, recordings: str, axis: int) -> None:
    found = identify_elastic_joint([rows(data_dir, r, axis) for r in recordings], "coulomb", cubic=False).answer
    assert found.verdict == "doubtful"
    k1, lag = found["k1"], found["apparent_lag"]
    published = {2: 7.52e6, 3: 4.10e6}[axis]
    # axis 3 comes out stiffer than published; axis 2 softer, but its interval spans the published figure
    assert 0.4 * published < k1.lower < k1.upper < 1.5 * published
    if axis == 2:
        assert k1.lower < published < k1.upper
        assert any("errors of the deflection" in reason for reason in found.reasons)
    # the velocity coefficient of a regression of the deflection is 2.8 to 2.9 ms
    assert lag.value == pytest.approx(2.85e-3, abs=0.3e-3)


def test_viscous_friction_cannot_be_told_from_the_lag(data_dir: Path) -> None:
    found = identify_elastic_joint([rows(data_dir, "B", 3)], "viscous", cubic=False).answer
    assert found["k1"].value is not None
    assert {p.name for p in found.parameters if p.value is None} >= {"b_in", "lag"}
