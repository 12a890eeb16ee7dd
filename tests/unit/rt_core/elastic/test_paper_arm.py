"""Table III of Sun et al. through the simulated arm: a harmonic drive that swings a load, with noise and counts."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from drivers.files.robots.file import RobotFile, load_robot
from rt_core.elastic.identify import ElasticFit, ElasticJoint, identify_elastic_joint
from rt_core.elastic.rows import Drive, ElasticRows, elastic_rows
from rt_core.identification.preprocess import SignalSettings
from rt_core.online.elastic import ElasticJointEstimator
from rt_core.types import FloatArray
from service.operations.elastic._prior import deflection_errors
from sim_backend.arm.robot import SimulatedArm, SimulatedData
from sim_backend.arm.settings import MotionSettings, PieceSettings, SimSettings
from tests.lab.arms.harmonic_drive import J_IN, MORE, TRUTH, N

KM, RATE = 0.4, 500.0
SPEEDS = (0.05, 0.1, 0.15)  # of the joint's limit: 0.02, 0.04 and 0.06 rad/s
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


def swing() -> RobotFile:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "swing.toml"
        path.write_text(ROBOT, encoding="utf-8")
        return load_robot(path)


@cache
def swung(seed: int) -> SimulatedData:
    """There and back at three speeds, so that gravity loads the spring from -700 to 700 N*m."""
    pieces = tuple(PieceSettings(kind="paul", duration_s=4.2 * 0.8 / (0.4 * s), speed=s, amplitude=0.9) for s in SPEEDS)
    settings = SimSettings(
        seed=seed, rate_hz=RATE, torque_sensor="link", torque_noise=(1.5,), current_noise=(0.05,), encoder_bits=20
    )
    motion = MotionSettings(kind="schedule", segments=pieces, centre=(0.0,))
    return SimulatedArm(swing().model, settings, motion).simulate(sum(piece.duration_s or 0.0 for piece in pieces))


def rows(data: SimulatedData) -> ElasticRows:
    c = data.channels
    return elastic_rows(
        data.t, c["q_motor"][:, 0], c["q"][:, 0], KM * c["current"][:, 0], Drive(N, J_IN), SignalSettings(),
        sensor_torque=c["tau"][:, 0],
    )  # fmt: skip


@cache
def found(seed: int) -> ElasticJoint:
    return identify_elastic_joint([rows(swung(seed))])


@pytest.mark.parametrize("seed", [1, 2])
def test_stage_c_recovers_all_six(seed: int) -> None:
    answer = found(seed).answer
    assert answer.verdict == "ok", answer.reasons
    for name, true in TRUTH.items():
        p = answer[name]
        assert p.value == pytest.approx(true, rel=0.02), name
        assert p.lower < true < p.upper, name


def test_stages_a_and_b_take_up_the_friction_that_they_leave_out() -> None:
    """With noise and counts they are the truth and what is projected on it of that friction, in closed form."""
    data = swung(1)
    exact = data.elastic
    d, v, w = (exact.q_motor - data.q)[:, 0], exact.dq_motor[:, 0], data.dq[:, 0]
    viscous = {"motor": TRUTH["b_in"] * N**2 * v, "sensor": -TRUTH["b_out"] * w}
    coulomb = {"motor": N * np.sign(v), "sensor": -np.sign(w)}
    dry = {"motor": TRUTH["b_inD"] * coulomb["motor"], "sensor": TRUTH["b_outC"] * coulomb["sensor"]}
    lost = {side: viscous[side] + dry[side] for side in viscous}
    lost["coupled"] = 0.5 * (lost["motor"] + lost["sensor"])

    def agrees(fit: ElasticFit, true: list[float], left_out: FloatArray, *more: FloatArray) -> None:
        at = np.rint(fit.fit.rows.t * RATE).astype(int)
        columns = np.stack([d, d**3, *more], axis=1)[at]
        scale = np.linalg.norm(columns, axis=0)
        expected = np.array(true) + np.linalg.lstsq(columns / scale, left_out[at])[0] / scale
        assert np.abs(fit.fit.values / np.array(true) - 1.0).max() > 0.01  # it is not the truth
        np.testing.assert_allclose(fit.fit.values, expected, rtol=0.01)

    spring = [TRUTH["k1"], TRUTH["k2"]]
    for fit in identify_elastic_joint([rows(data)], "stiffness", lag_s=0.0, zero=0.0).fits:
        agrees(fit, spring, lost[fit.rows])
    both_alone = identify_elastic_joint([rows(data)], "coulomb", lag_s=0.0, zero=0.0).fits[:2]
    for fit, name in zip(both_alone, ("b_inD", "b_outC"), strict=True):
        agrees(fit, [*spring, TRUTH[name]], viscous[fit.rows], coulomb[fit.rows])


def test_the_online_estimate_converges_from_far_off() -> None:
    data, off_line = swung(1), found(1).answer
    start = {name: (0.7 if k % 2 else 1.3) * true for k, (name, true) in enumerate(TRUTH.items())}
    fit, c = off_line.fit, data.channels
    estimator = ElasticJointEstimator(
        Drive(N, J_IN), start, RATE, lag_s=fit.value("lag"), zero=fit.value("zero"),
        errors=deflection_errors(fit, doubtful=False),
    )  # fmt: skip
    estimator.take(data.t, c["q_motor"][:, 0], c["q"][:, 0], KM * c["current"][:, 0], c["tau"][:, 0])
    said = estimator.report()
    assert said.valid, said.reason
    for name, true in TRUTH.items():
        assert said[name].value == pytest.approx(true, rel=0.05), name


FULL_RATE = 250.0
#: Share of the joint's limit of 0.4 rad/s, and of its range of 0.9 rad either way.
SWINGS = ((0.02, 0.25), (0.04, 0.4), (0.08, 0.7), (0.15, 1.0), (0.3, 1.0), (0.6, 1.0))
FRICTION = f"""
tanh_torque = {MORE["C1"] * N}
tanh_velocity = {MORE["omega1"] / N}
decaying_viscous = {MORE["C2"] * N**2}
decay_velocity = {MORE["omega_s"] / N}
link_cyclic_sine = {MORE["A1"]}
link_cyclic_cosine = {MORE["A2"]}
[model]
friction = "harmonic_drive_input"
"""


def test_the_full_stage_recovers_the_simulated_joint(tmp_path: Path) -> None:
    path = tmp_path / "swing.toml"
    path.write_text(ROBOT + FRICTION, encoding="utf-8")
    pieces = tuple(
        PieceSettings(kind="paul", duration_s=8.4 * share / s, speed=s, amplitude=0.9 * share) for s, share in SWINGS
    )
    settings = SimSettings(
        seed=1, rate_hz=FULL_RATE, torque_sensor="link", torque_noise=(1.5,), current_noise=(0.05,), encoder_bits=20
    )
    motion = MotionSettings(kind="schedule", segments=pieces, centre=(0.0,))
    data = SimulatedArm(load_robot(path).model, settings, motion).simulate(sum(p.duration_s or 0.0 for p in pieces))
    c = data.channels
    rows = elastic_rows(
        data.t, c["q_motor"][:, 0], c["q"][:, 0], KM * c["current"][:, 0], Drive(N, J_IN), SignalSettings(),
        sensor_torque=c["tau"][:, 0],
    )  # fmt: skip
    fit = identify_elastic_joint([rows], "full").answer
    assert fit.verdict == "ok", fit.reasons
    for name, true in (TRUTH | MORE).items():
        p = fit[name]
        assert p.value is not None, p
        assert p.lower < true < p.upper, p
        assert p.value == pytest.approx(true, rel=0.05 if name in ("b_in", "C2", "omega_s", *TRUTH) else 0.3), p
