"""The arm never gains energy from the controller: kinetic energy and work in closed loop, by Pinocchio.

With gravity carried, `d(kinetic)/dt = dq . (tau - gravity - offset - friction) + hand . velocity`.
"""

from __future__ import annotations

import numpy as np
import pinocchio as pin
import pytest

from rt_core.hand_guiding import ZeroForceSettings
from rt_core.model.robot import RobotModel
from sim_backend.arm.settings import SimSettings
from tests.lab.arms.simulated import twin
from tests.lab.hand_guiding.rig import IDEAL, SENSORS, Rig, Trace, exact, random_poses, robot


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
    ("name", "delay", "sensors"), [("space6", 1, IDEAL), ("space6_stribeck", 2, SENSORS), ("arm9", 2, SENSORS)]
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
