"""What the controller takes from an identified model, against Pinocchio and written laws."""

from dataclasses import replace

import numpy as np
import pinocchio as pin
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from rt_core.hand_guiding import GuidingModel
from rt_core.hand_guiding.rows import C_BREAKAWAY, C_DRY, C_SLOPE, COORDINATE_WIDTH
from rt_core.model.base import base_parameters
from rt_core.model.dynamics import inverse_dynamics
from rt_core.model.forward import equations_of_motion
from rt_core.model.friction import Friction
from rt_core.model.parameters import standard_parameters
from rt_core.model.robot import JointDynamics
from tests.lab.arms.simulated import random_arm, twin
from tests.lab.hand_guiding.frames import guiding_model
from tests.lab.hand_guiding.rig import exact, robot


@pytest.mark.parametrize("name", ["arm9", "space6"])
def test_base_parameters_alone_give_gravity_coriolis_and_mass_matrix(name: str) -> None:
    model, guiding = robot(name), exact(name)
    oracle = twin(model)
    store = oracle.createData()
    oracle.armature = model.dynamics.armature
    q, dq = np.random.default_rng(1).uniform(-2.0, 2.0, (2, 20, model.n))
    links = guiding.arm[:, 37:]
    bias = inverse_dynamics(model.geometry, model.gravity, links, q, dq, np.zeros_like(q))
    mass, _ = equations_of_motion(model.geometry, model.gravity, links, q, dq)
    for k in range(20):
        right = pin.nle(oracle, store, q[k], dq[k])
        assert np.allclose(bias[k], right, atol=1e-9 * np.abs(right).max())
        M = pin.crba(oracle, store, q[k])
        M = np.triu(M) + np.triu(M, 1).T
        assert np.allclose(mass[k] + guiding.rotor, M, atol=1e-9 * M.max())


@given(seed=st.integers(0, 10_000), law=st.sampled_from(["coulomb_viscous", "stribeck", "harmonic_drive_input"]))
@hypothesis_settings(max_examples=30)
def test_what_is_compensated_is_never_more_than_the_friction(seed: int, law: str) -> None:
    rng = np.random.default_rng(seed)
    one = lambda low, high: np.array([rng.uniform(low, high)])  # noqa: E731
    d = JointDynamics(
        one(0.1, 1.0), one(0.0, 5.0), one(0.0, 5.0), one(-1.0, 1.0), breakaway=one(0.0, 8.0),
        stribeck_velocity=one(0.005, 0.5), quadratic_friction=one(-1.0, 1.0), cubic_friction=one(-1.0, 1.0),
        tanh_torque=one(-2.0, 2.0), tanh_velocity=one(0.01, 0.5), decaying_viscous=one(-5.0, 5.0),
        decay_velocity=one(0.01, 0.5),
    )  # fmt: skip
    quadratic = "even" if seed % 2 else "odd"
    model = replace(random_arm(1, seed, prismatic=0.0), dynamics=d, friction=Friction(law, quadratic=quadratic))
    row = guiding_model(model).coordinates[0]
    speed = np.linspace(model.standstill_velocity[0], model.joints[0].velocity, 3000)
    (fc,), (fv,), (fb,), (vb,) = d.coulomb, d.viscous, d.breakaway, d.stribeck_velocity
    (k2,), (k3,) = d.quadratic_friction, d.cubic_friction

    def friction(v: np.ndarray) -> np.ndarray:
        s = np.sign(v)
        if law == "coulomb_viscous":
            return fc * s + fv * v
        if law == "stribeck":
            square = k2 * v**2 * (1.0 if quadratic == "even" else s)
            return (fc + (fb - fc) * np.exp(-((v / vb) ** 2))) * s + fv * v + square + k3 * v**3
        fading = d.decaying_viscous * v * np.exp(-np.abs(v / d.decay_velocity))
        return fv * v + d.tanh_torque * np.tanh(v / d.tanh_velocity) + fading + fc * s

    given_back = row[C_DRY] + row[C_SLOPE] * speed
    assert row[C_DRY] >= 0.0
    assert row[C_SLOPE] >= 0.0
    least = np.minimum(friction(speed), -friction(-speed))
    if given_back.max() > 0.0:
        assert np.all(given_back <= least + 1e-2 * np.abs(least).max())  # between the points of the grid
    if law == "coulomb_viscous":
        assert row[C_DRY] == pytest.approx(fc, abs=1e-9)
        assert row[C_SLOPE] == pytest.approx(fv, abs=1e-9)
    if law == "stribeck":
        assert row[C_BREAKAWAY] == pytest.approx(max(fb, row[C_DRY]), abs=1e-6)


def test_friction_of_a_coupled_motor_stays_at_the_motor() -> None:
    model = random_arm(3, 4, coupled=True, prismatic=0.0)
    guiding = guiding_model(model)
    weights = guiding.coordinates[:, COORDINATE_WIDTH:]
    at = [int(np.flatnonzero((weights == row).all(axis=1))[0]) for row in model.coupling]
    assert np.allclose(guiding.coordinates[at, C_DRY], model.dynamics.coulomb)
    assert np.allclose(guiding.coordinates[at, C_SLOPE], model.dynamics.viscous)
    # A rotor inertia may count as a link's; together they are right.
    q = np.array([[0.3, -0.5, 0.9]])
    mass, _ = equations_of_motion(model.geometry, model.gravity, guiding.arm[:, 37:], q, 0.0 * q)
    M = pin.crba(twin(model), twin(model).createData(), q[0])
    rotors = model.coupling.T @ np.diag(model.dynamics.armature) @ model.coupling
    assert np.allclose(mass[0] + guiding.rotor, np.triu(M) + np.triu(M, 1).T + rotors)


@pytest.mark.parametrize("name", ["arm9", "space6"])
def test_the_smallest_inertia_is_below_the_mass_matrix_everywhere(name: str) -> None:
    model, guiding = robot(name), exact(name)
    oracle = twin(model)
    oracle.armature = model.dynamics.armature
    rng = np.random.default_rng(5)
    root = np.sqrt(guiding.inertia)
    smallest = []
    for _ in range(100):
        q = rng.uniform([j.lower for j in model.joints], [j.upper for j in model.joints])
        M = pin.crba(oracle, oracle.createData(), q)
        M = np.triu(M) + np.triu(M, 1).T
        smallest.append(np.linalg.eigvalsh(M / np.outer(root, root))[0])
    assert 0.9 < min(smallest) < 1.3


def test_models_that_cannot_be_used_are_refused() -> None:
    model = robot()
    base = base_parameters(model)
    theta = base.theta(standard_parameters(model, base.standard))
    with pytest.raises(
        ValueError, match=r"arm9 is not physical: its mass matrix has the eigenvalue -.* identify again"
    ):
        GuidingModel.of(model, base, -theta)
    with pytest.raises(ValueError, match="needs 126 finite standard parameters"):
        GuidingModel.of(model, base, theta * np.nan)
    with pytest.raises(ValueError, match="needs 126 finite standard parameters"):
        GuidingModel.of(model, base, theta, np.zeros(3))
