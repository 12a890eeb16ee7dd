"""The regressor and the inverse dynamics against Pinocchio."""

from dataclasses import replace

import numpy as np
import pinocchio as pin
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from rt_core.model.dynamics import inverse_dynamics
from rt_core.model.friction import LAW_LOAD, Friction
from rt_core.model.parameters import standard_layout
from rt_core.model.regressor import BLOCK, regressor, regressor_columns, sincos_block
from rt_core.model.robot import JointDynamics, RobotModel, Transmission
from tests.lab.arms.random_arms import KINDS, pinocchio_regressor, random_arm, random_motion

ARMS = 90


@pytest.mark.parametrize("kind", range(len(KINDS)), ids=KINDS)
def test_regressor_and_inverse_dynamics_equal_pinocchios(kind: int) -> None:
    prismatic, tilted = 0, 0
    for seed in range(kind, ARMS, len(KINDS)):
        model, twin = random_arm(seed)
        states = random_motion(np.random.default_rng(seed), 20, model.n)
        expected = pinocchio_regressor(twin, *states)
        Y = regressor(model, standard_layout(model), *states)
        scale = np.abs(expected).max()
        assert Y.shape == expected.shape
        assert np.abs(Y - expected).max() <= 1e-9 * scale, model.name
        store = twin.createData()
        tau = np.array([pin.rnea(twin, store, *state) for state in zip(*states, strict=True)])
        ours = inverse_dynamics(model.geometry, model.gravity, model.inertial, *states)
        assert np.abs(ours - tau).max() <= 1e-9 * np.abs(tau).max(), model.name
        assert np.abs(Y @ model.inertial.ravel() - tau).max() <= 1e-9 * np.abs(tau).max(), model.name
        prismatic += any(joint.kind == "prismatic" for joint in model.joints)
        tilted += bool(np.count_nonzero(model.gravity) == 3)
    assert prismatic > 15
    assert tilted > 5


@pytest.mark.parametrize("count", [1, BLOCK, 3 * BLOCK + 5])
def test_every_number_of_samples_gives_the_same_rows(count: int) -> None:
    model, _ = random_arm(16)
    model = replace(model, friction=Friction("coulomb_viscous"), armature=True, offset=True)
    layout = standard_layout(model)
    states = random_motion(np.random.default_rng(0), count, model.n)
    together = regressor(model, layout, *states)
    for k in range(count):
        alone = regressor(model, layout, *(x[k] for x in states))
        np.testing.assert_allclose(together[k], alone[0], rtol=1e-12, atol=1e-12 * np.abs(alone).max())
    assert regressor_columns(model, layout, *states).shape == (model.n, len(layout), count)


def test_layout_by_a_choice_of_columns() -> None:
    model, _ = random_arm(5)
    model = replace(model, friction=Friction("coulomb_viscous"), armature=True, offset=True)
    layout = standard_layout(model)
    chosen = np.random.default_rng(1).permutation(len(layout))[:17]
    states = random_motion(np.random.default_rng(1), 21, model.n)
    full = regressor(model, layout, *states)
    np.testing.assert_array_equal(regressor(model, layout.take(chosen), *states), full[:, :, chosen])


def coupled_arm(seed: int = 3) -> RobotModel:
    """Six joints; motor 6 also turns with joint 5, motor 3 with joint 2, opposite signs."""
    model, _ = random_arm(14)
    rng = np.random.default_rng(seed)
    matrix = np.diag(rng.uniform(30.0, 90.0, model.n) * rng.choice([-1.0, 1.0], model.n))
    matrix[2, 1], matrix[5, 4] = -0.7 * matrix[2, 2], 0.5 * matrix[5, 5]
    dynamics = JointDynamics(*rng.uniform(0.3, 2.0, (3, model.n)), rng.normal(size=model.n))
    return replace(
        model, transmission=Transmission(matrix, np.zeros(model.n), np.ones(model.n)), dynamics=dynamics,
        friction=Friction("coulomb_viscous"), armature=True, offset=True,
    )  # fmt: skip


@given(
    st.lists(
        st.one_of(
            st.floats(-1e6, 1e6),
            st.integers(-600_000, 600_000).map(lambda k: k * np.pi / 2),
            st.floats(-1e-5, 1e-5).map(lambda x: np.pi / 4 + x),
        ),
        min_size=BLOCK, max_size=BLOCK,
    )
)  # fmt: skip
@hypothesis_settings(max_examples=100)
def test_sine_and_cosine(angles: list[float]) -> None:
    S = np.zeros(32 * BLOCK)
    x = np.array(angles)
    sincos_block(x, S, BLOCK)
    np.testing.assert_allclose(S[30 * BLOCK : 31 * BLOCK], np.cos(x), rtol=0, atol=3e-16)
    np.testing.assert_allclose(S[31 * BLOCK :], np.sin(x), rtol=0, atol=3e-16)


def test_a_load_of_another_shape_is_refused() -> None:
    model = replace(coupled_arm(), transmission=None, friction=Friction("coulomb_viscous", load=True))
    layout = standard_layout(model)
    q, dq, ddq, load = np.random.default_rng(0).normal(size=(4, 20, model.n))
    Y = regressor(model, layout, q, dq, ddq, load=load)
    one = regressor(model, layout, q[3], dq[3], ddq[3], load=load[3])
    np.testing.assert_allclose(one[0], Y[3], rtol=1e-12, atol=1e-12)
    assert np.abs(one[0][:, layout.law == LAW_LOAD]).max() > 0.0
    for wrong in (load[:1], load[3], load.T):
        with pytest.raises(ValueError, match="load has shape"):
            regressor(model, layout, q, dq, ddq, load=wrong)
    with pytest.raises(ValueError, match="needs the load"):
        regressor(model, layout, q, dq, ddq)
