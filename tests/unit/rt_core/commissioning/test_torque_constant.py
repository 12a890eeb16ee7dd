"""Torque constants from a known payload: gravity by Pinocchio, current by a simulated arm that carries it."""

from dataclasses import replace

import numpy as np
import pinocchio as pin
import pytest

from drivers.files.robots.file import load_robot
from rt_core.commissioning.bidirectional import both_ways
from rt_core.commissioning.findings import CommissioningError
from rt_core.commissioning.profiles import there_and_back
from rt_core.commissioning.torque_constant import payload_torque, torque_constants
from rt_core.model.inertia import transform_inertial
from rt_core.model.robot import RobotModel, Transmission
from rt_core.model.urdf_writer import urdf_from_model
from rt_core.types import FloatArray
from sim_backend.drive.drive_arm import DRIVE_ARM_SETTINGS, DriveArm
from sim_backend.drive.modes import CSP

RATE_HZ = 500.0
MASS, CENTRE = 3.0, (0.02, -0.05, 0.1)
ARM7 = load_robot("arm7").model
CONSTANTS = np.array([0.11, -0.12, 0.09, 0.1, 0.06, -0.05, 0.04])
RATIOS = np.diag([100.0, -120.0, 100.0, 80.0, 80.0, 60.0, 50.0])
MIDDLE = np.array([0.2, 0.6, -0.3, 1.0, 0.4, 0.7, -0.2])


def test_torque_of_the_payload_is_that_of_pinocchio() -> None:
    """The torque of all links with it less that without it."""
    model = pin.buildModelFromXML(urdf_from_model(ARM7, ARM7.inertial))
    data = model.createData()
    loaded = model.copy()
    tip = pin.SE3(ARM7.tip_rotation, ARM7.tip_translation)
    loaded.inertias[7] = loaded.inertias[7] + pin.Inertia(MASS, tip.act(np.array(CENTRE)), np.zeros((3, 3)))
    loaded_data = loaded.createData()
    q, dq, ddq = np.random.default_rng(1).uniform(-1.5, 1.5, (3, 20, 7))
    wanted = [
        pin.rnea(loaded, loaded_data, *state) - pin.rnea(model, data, *state) for state in zip(q, dq, ddq, strict=True)
    ]
    np.testing.assert_allclose(payload_torque(ARM7, q, dq, ddq, MASS, CENTRE), wanted, atol=1e-9)


def loaded(model: RobotModel) -> RobotModel:
    """The arm with the payload on its flange."""
    inertial = model.inertial.copy()
    point = MASS * np.array([1.0, *CENTRE, *np.zeros(6)])
    x, y, z = CENTRE
    point[4:] = MASS * np.array([y * y + z * z, -x * y, x * x + z * z, -x * z, -y * z, x * x + y * y])
    inertial[-1] += transform_inertial(point, model.tip_rotation, model.tip_translation)
    return replace(model, inertial=inertial)


def currents(model: RobotModel, rows: FloatArray, seed: int) -> tuple[FloatArray, FloatArray]:
    """Positions and currents of the simulated arm along rows."""
    settings = DRIVE_ARM_SETTINGS.model_copy(update={"rate_hz": RATE_HZ, "seed": seed, "current_noise": (0.02,) * 7})
    arm = DriveArm(model, settings, start=rows[0])
    coupling = model.coupling
    around = (np.repeat(rows[:1], 250, axis=0), rows, np.repeat(rows[-1:], 50, axis=0))
    samples = [arm.step([CSP] * 7, coupling @ row) for row in np.vstack(around)]
    q, current = (np.array([getattr(sample, name) for sample in samples]) for name in ("q", "current"))
    return q, current


@pytest.mark.parametrize("coupled", [False, True])
def test_constants_of_a_simulated_arm(coupled: bool) -> None:
    matrix = RATIOS.copy()
    if coupled:
        matrix[6, 5] = 20.0  # a wrist motor that also turns with the joint before it
    model = replace(ARM7, transmission=Transmission(matrix, np.zeros(7), CONSTANTS))
    way = 0.7 * np.array([1.0, 1.0, -1.0, 1.0, 1.0, -1.0, 1.0])
    start = MIDDLE - 0.5 * way
    rows = there_and_back(start, way, 2.5, 0.3, RATE_HZ)
    found = []
    for arm, seed in ((model, 1), (loaded(model), 2)):
        q, current = currents(arm, rows, seed)
        found.append(both_ways(np.arange(len(q)) / RATE_HZ, q, current, start, way, 2.5, 0.3))
    torque = payload_torque(model, found[1].q, found[1].dq, found[1].ddq, MASS, CENTRE)
    constants = torque_constants(matrix, [found[1].level - found[0].level], [torque])
    known = [k for k, constant in enumerate(constants) if constant.determined]
    assert set(known) >= {0, 1, 2, 3, 4, 5}  # the first by inertia alone: its axis is vertical
    for k in known:
        constant = constants[k]
        assert np.sign(constant.value) == np.sign(CONSTANTS[k])
        assert abs(constant.value - CONSTANTS[k]) < 4.0 * constant.std + 0.01 * abs(CONSTANTS[k])
        assert constant.std < 0.2 * abs(CONSTANTS[k])


def test_a_motor_that_the_payload_does_not_load_is_left_open() -> None:
    torque = np.zeros((20, 1))
    (constant,) = torque_constants(np.eye(1), [np.ones((20, 1))], [torque])
    assert not constant.determined
    assert "does not change" in constant.text


def test_stated_deviations_hold() -> None:
    rng = np.random.default_rng(3)
    torque = np.linspace(2.0, 9.0, 20)[:, None]
    within = []
    for _ in range(400):
        change = torque / (100.0 * 0.1) + 0.3 + 0.02 * rng.normal(size=torque.shape)
        (constant,) = torque_constants(np.array([[100.0]]), [change], [torque])
        assert constant.determined
        within.append(abs(constant.value - 0.1) < 1.96 * constant.std)
    assert 0.9 < np.mean(within) <= 1.0


def test_what_is_wrong_is_refused() -> None:
    with pytest.raises(CommissioningError, match="mass"):
        payload_torque(ARM7, *np.zeros((3, 1, 7)), 0.0, CENTRE)
    with pytest.raises(CommissioningError, match="same places"):
        torque_constants(np.eye(1), [np.zeros((3, 1))], [np.zeros((4, 1))])
