"""All friction of a harmonic drive through the simulated arm: one convention for the simulation and the estimator."""

from __future__ import annotations

from pathlib import Path

import pytest

from drivers.files.robots.file import load_robot
from rt_core.elastic.identify import identify_elastic_joint
from rt_core.elastic.rows import Drive, elastic_rows
from rt_core.identification.preprocess import SignalSettings
from sim_backend.arm.robot import SimulatedArm
from sim_backend.arm.settings import MotionSettings, SegmentSettings, SimSettings
from tests.lab.arms.harmonic_drive import J_IN, MORE, TRUTH, N
from tests.unit.rt_core.elastic.test_paper_arm import KM, ROBOT

RATE = 250.0
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
        SegmentSettings(kind="paul", duration_s=8.4 * share / s, speed=s, amplitude=0.9 * share) for s, share in SWINGS
    )
    settings = SimSettings(
        seed=1, rate_hz=RATE, torque_sensor="link", torque_noise=(1.5,), current_noise=(0.05,), encoder_bits=20
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
        assert p.lower is not None
        assert p.upper is not None
        assert p.lower < true < p.upper, p
        assert p.value == pytest.approx(true, rel=0.05 if name in ("b_in", "C2", "omega_s", *TRUTH) else 0.3), p
