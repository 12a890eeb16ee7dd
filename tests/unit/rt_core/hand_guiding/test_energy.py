"""The arm never gains energy from the controller: kinetic energy and work in closed loop, by Pinocchio.

With gravity carried, `d(kinetic)/dt = dq . (tau - gravity - offset - friction) + hand . velocity`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pinocchio as pin
import pytest

from rt_core.hand_guiding import ZeroForceSettings
from rt_core.model.robot import RobotModel
from sim_backend.arm.settings import SimSettings
from tests.lab.arms.simulated import twin
from tests.lab.hand_guiding.rig import IDEAL, SENSORS, Rig, T, Trace, believed, exact, random_poses, robot


def energies(model: RobotModel, trace: Trace) -> np.ndarray:
    oracle = twin(model)
    oracle.armature = model.dynamics.armature
    store = oracle.createData()
    out = []
    for q, v in zip(trace.q, trace.dq, strict=True):
        M = pin.crba(oracle, store, q)
        out.append(0.5 * v @ (np.triu(M) + np.triu(M, 1).T) @ v)
    return np.array(out)


def work_of_the_hand(model: RobotModel, trace: Trace) -> float:
    """Of a constant force: the force times the way of the flange."""
    oracle = twin(model)
    store = oracle.createData()
    ends = []
    for q in (trace.q[0], trace.q[-1]):
        pin.forwardKinematics(oracle, store, q)
        ends.append(store.oMi[model.n].act(model.tip_translation))
    return float(trace.force[0] @ (ends[1] - ends[0]))


@pytest.mark.parametrize(
    ("sensors", "delay", "name"),
    [
        pytest.param(
            sensors, delay, name, marks=() if (noisy, delay) == (True, 2) or name in kept else pytest.mark.soak
        )
        for noisy, sensors in enumerate((IDEAL, SENSORS))
        for delay in (1, 2)
        for name in ("arm9", "arm7", "space6", "space6_stribeck")
        for kept in [("space6", "space6_stribeck") if (noisy, delay) == (0, 1) else ()]
    ],
)
def test_no_energy_comes_from_the_controller(name: str, delay: int, sensors: SimSettings) -> None:
    model = robot(name)
    settings = ZeroForceSettings(
        friction_share=1.0, damping_time_s=0.2, delay_cycles=delay, ramp_s=0.1, takeover_watch_s=0.0, speed_share=0.5
    )
    start = random_poses(model, 1, seed=3, share=0.3)[0]
    rig = Rig(model, exact(name), settings, start, sensors, delay)
    rig.run(0.2)
    rig.push(np.array([20.0, -20.0, 25.0]))
    pushed = rig.run(0.25)
    rig.push(np.zeros(3))
    after = rig.run(3.0)
    walls = np.array([(j.lower, j.upper) for j in model.joints]) * 0.9
    assert np.all((after.q > walls[:, 0]) & (after.q < walls[:, 1]))  # a wall's spring would keep energy
    gained = energies(model, pushed)
    assert gained.max() > 0.05
    assert gained[-1] - gained[0] < work_of_the_hand(model, pushed)
    coasting = energies(model, after)
    # The first cycles still have the torque of before; then energy falls, all the way to rest.
    step = 20
    change = coasting[10 + step :: step] - coasting[10:-step:step]
    assert np.all(change <= 1e-6 * coasting[0])
    assert coasting[-1] < 1e-9


def test_little_of_the_energy_that_coriolis_compensation_offers_arrives() -> None:
    """Why it is limited: an arm without friction or damping that folds would be fed."""
    model = robot()
    d = model.dynamics
    slippery = replace(d, coulomb=0.0 * d.coulomb, breakaway=0.0 * d.coulomb, viscous=0.0 * d.viscous)
    free = replace(model, dynamics=slippery)
    base_start = random_poses(model, 1, seed=5, share=0.3)[0]
    settings = ZeroForceSettings(
        damping_time_s=1e4, ramp_s=0.05, takeover_watch_s=0.0, speed_share=1.0, residual_time_s=1e3
    )
    rig = Rig(free, believed(free), settings, base_start, IDEAL)
    rig.run(0.1)
    rig.push(np.array([40.0, 40.0, 0.0]))
    rig.run(0.3)
    rig.push(np.zeros(3))
    after = rig.run(0.5)
    energy = energies(free, after)[10:]
    assert energy[0] > 0.5
    oracle = twin(free)
    store = oracle.createData()
    zero = np.zeros(9)
    power = [
        v @ (pin.nle(oracle, store, q, v) - pin.nle(oracle, store, q, zero))
        for q, v in zip(after.q, after.dq, strict=True)
    ]
    offered = T * np.clip(power, 0.0, None).sum()
    assert offered > 0.2
    # What comes all the same is due to the delay: gravity is carried where the arm was.
    assert np.clip(np.diff(energy), 0.0, None).sum() < 0.35 * offered
