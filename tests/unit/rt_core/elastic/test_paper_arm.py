"""Table III of Sun et al. through the simulated arm: a harmonic drive that swings a load, with noise and counts."""

from __future__ import annotations

from pathlib import Path

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


@pytest.mark.parametrize("seed", [1, 2])
def test_stage_c_recovers_all_six(seed: int, tmp_path: Path) -> None:
    answer = identify_elastic_joint([swung(tmp_path, seed)]).answer
    assert answer.verdict == "ok", answer.reasons
    for name, true in TRUTH.items():
        p = answer[name]
        assert p.value == pytest.approx(true, rel=0.02), name
        assert p.lower < true < p.upper, name
