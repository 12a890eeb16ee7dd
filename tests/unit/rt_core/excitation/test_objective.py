"""Measures of excitation against NumPy on a regressor built from torques; extreme eigenvalues against LAPACK."""

from dataclasses import replace

import numpy as np
import pytest

from drivers.files.robots.file import load_robot
from rt_core.excitation._extremes import extremes
from rt_core.excitation._measure import measure, measure_gradient
from rt_core.excitation.fourier import Basis, FourierSeries, States
from rt_core.excitation.objective import Excitation
from rt_core.excitation.settings import Objective
from rt_core.model.base import base_parameters
from rt_core.model.dynamics import inverse_dynamics
from rt_core.model.friction import Friction
from rt_core.model.robot import RobotModel
from rt_core.types import FloatArray
from tests.lab.arms.excitation import three, two


def motion(model: RobotModel, seed: int = 0, count: int = 60) -> States:
    rng = np.random.default_rng(seed)
    series = FourierSeries(0.2, rng.normal(size=model.n), *rng.normal(size=(2, model.n, 3)))
    return Basis.grid(count, 0.2, 3).states(series)


def stacked(model: RobotModel, states: States) -> FloatArray:
    base = base_parameters(model)
    columns = []
    for name, source in zip(base.names, base.layout.source, strict=True):
        torque = np.zeros_like(states[0])
        symbol, i = name.rstrip("0123456789"), int(source)
        if base.layout.is_link[len(columns)]:
            body = np.zeros((model.n, 10))
            body.flat[i] = 1.0
            torque = inverse_dynamics(model.geometry, model.gravity, body, *states)
        elif symbol == "Ia":
            torque[:, i] = states[2][:, i]
        elif symbol == "fv":
            torque[:, i] = states[1][:, i]
        elif symbol == "fc":
            torque[:, i] = np.sign(states[1][:, i])
        elif symbol == "off":
            torque[:, i] = 1.0
        else:
            raise AssertionError(name)
        columns.append(torque.ravel())
    return np.array(columns).T


@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("make", [two, three])
def test_measures(make: type, scaled: bool) -> None:
    model = make()
    states = motion(model)
    W = stacked(model, states)
    if scaled:
        W = W / np.linalg.norm(W, axis=0) * np.sqrt(W.shape[0])
    M = W.T @ W / W.shape[0]
    expected: dict[Objective, float] = {
        "condition": float(np.linalg.cond(W)),
        "d_optimal": float(-np.linalg.slogdet(M)[1]),
        "e_optimal": float(-np.log(np.linalg.eigvalsh(M)[0])),
    }
    for kind, value in expected.items():
        np.testing.assert_allclose(Excitation(model, kind, scaled).value(states), value, rtol=1e-8)


@pytest.mark.parametrize("scaled", [True, False])
def test_spectrum(scaled: bool) -> None:
    model = three()
    states = motion(model, 3)
    W = stacked(model, states)
    unit = W / np.linalg.norm(W, axis=0)
    excitation = Excitation(model, "condition", scaled)
    found = excitation.spectrum(states)
    used = unit if scaled else W
    values = np.linalg.svd(used / np.sqrt(W.shape[0]), compute_uv=False)
    np.testing.assert_allclose(found.singular_values, values if not scaled else values * np.sqrt(W.shape[0]), rtol=1e-9)
    np.testing.assert_allclose(found.condition_scaled, np.linalg.cond(unit), rtol=1e-8)
    np.testing.assert_allclose(found.condition_unscaled, np.linalg.cond(W), rtol=1e-8)
    assert found.condition_number == (found.condition_scaled if scaled else found.condition_unscaled)
    # Standard deviation with all parameters, over that of the parameter alone.
    inflation = np.sqrt(np.diag(np.linalg.inv(W.T @ W))) * np.linalg.norm(W, axis=0)
    np.testing.assert_allclose(found.inflation, inflation, rtol=1e-7)
    weak = excitation.weakest(found, 3)
    least = np.linalg.svd(used, full_matrices=False)[2][-1] ** 2
    assert [w.name for w in weak] == [excitation.layout.names[c] for c in np.argsort(-least)[:3]]
    np.testing.assert_allclose([w.share for w in weak], np.sort(least)[::-1][:3], rtol=1e-6)
    assert weak[0].expression.startswith(weak[0].name)


def test_how_well_a_motion_determines() -> None:
    """The smaller the angle between two columns, the larger the inflation; scaling of columns has no part in it."""
    model = two()
    q, dq, ddq = motion(model)
    excitation = Excitation(model, "condition", False)
    i = excitation.layout.names.index("fv2")
    found = []
    for share in (1.0, 1e-2, 1e-6, 0.0):  # speeds that differ by ever less leave viscous friction in Coulomb friction
        slow = dq.copy()
        slow[:, 1] = np.sign(dq[:, 1]) * (1.0 + share * np.abs(dq[:, 1]))
        spectrum = excitation.spectrum((q, slow, ddq))
        W = stacked(model, (q, slow, ddq))
        rest = np.delete(W, i, axis=1)
        outside = W[:, i] - rest @ np.linalg.lstsq(rest, W[:, i], rcond=1e-13)[0]
        if share:
            alone = np.linalg.norm(W[:, i]) / np.linalg.norm(outside)
            assert spectrum.inflation[i] == pytest.approx(alone, rel=1e-3)
        found.append(spectrum.determination)
    assert found == ["good", "good", "poor", "undetermined"]


def test_a_joint_that_rests_is_not_determined() -> None:
    model = two()
    q, dq, ddq = motion(model)
    dq[:, 1] = ddq[:, 1] = 0.0
    q[:, 1] = 0.3
    excitation = Excitation(model, "condition", True)
    assert 1e6 < excitation.value((q, dq, ddq)) < np.inf
    spectrum = excitation.spectrum((q, dq, ddq))
    assert spectrum.condition_number == np.inf
    assert spectrum.inflation[excitation.layout.names.index("fv2")] == np.inf


def test_friction_that_no_motion_shows_is_left_out() -> None:
    dyn = Excitation(load_robot("space6_dyn").model, "condition", True)  # vb of 1e-3 rad/s, below standstill
    assert dyn.left_out == tuple(f"fb{i + 1}" for i in range(6))
    seen = Excitation(load_robot("space6_stribeck").model, "condition", True)
    assert seen.left_out == ()
    assert {"fb1", "fb6"} <= set(seen.layout.names)


def test_friction_by_load_needs_links() -> None:
    model = replace(two(), friction=Friction(load=True))
    states = motion(model)
    with_links = Excitation(model, "condition", True)
    assert {"k1_1", "k1_2"} <= set(with_links.layout.names)
    assert np.isfinite(with_links.value(states))
    without = Excitation(replace(model, inertial=None), "condition", True)
    assert without.left_out == ("k1_1", "k1_2")
    assert np.isfinite(without.value(states))


def some_information(p: int, spread: float, seed: int = 0) -> FloatArray:
    """Symmetric matrix whose eigenvalues lie between 1 and `spread` squared."""
    rng = np.random.default_rng(seed)
    vectors = np.linalg.qr(rng.normal(size=(p, p)))[0]
    values = np.exp(rng.uniform(0.0, 2.0 * np.log(spread), p))
    found = (vectors * values) @ vectors.T
    return np.asarray(0.5 * (found + found.T))


@pytest.mark.parametrize("spread", [1.5, 1e4])
@pytest.mark.parametrize("p", [1, 2, 91])
def test_extremes_are_those_of_lapack(p: int, spread: float) -> None:
    M = some_information(p, spread, p)
    values = np.linalg.eigvalsh(M)
    low, high, logarithm = extremes(M.copy())
    assert low == pytest.approx(values[0], rel=1e-13 * spread**2)
    assert high == pytest.approx(values[-1], rel=1e-12)
    assert logarithm == pytest.approx(np.linalg.slogdet(M)[1], rel=1e-9, abs=1e-13 * spread**2)


def test_a_diagonal_and_a_singular_matrix() -> None:
    assert extremes(np.diag([4.0, 2.0, 9.0]))[:2] == pytest.approx((2.0, 9.0))
    low, high, logarithm = extremes(np.ones((3, 3)))
    assert abs(low) < 1e-15
    assert high == pytest.approx(3.0)
    assert logarithm < -30.0
    assert extremes(np.zeros((3, 3)))[:2] == (0.0, 0.0)


def test_the_smooth_form_bounds_the_measure() -> None:
    M = some_information(20, 40.0)
    for kind in ("condition", "e_optimal"):
        sharp = measure(M.copy(), kind, False)  # type: ignore[arg-type]
        sharp = np.log(sharp) if kind == "condition" else sharp
        before = np.inf
        for order in (1.0, 4.0, 16.0, 64.0):
            smooth = measure_gradient(M, kind, False, order)[0]  # type: ignore[arg-type]
            assert sharp <= smooth <= sharp + np.log(20) / order
            assert smooth < before
            before = smooth


def test_a_direction_that_is_not_determined_stays_finite() -> None:
    M = np.diag([1.0, 4.0, 0.0])
    assert measure(M.copy(), "condition", False) == pytest.approx(1e7 * np.sqrt(10.0), rel=1e-6)
    assert np.isfinite(measure_gradient(M, "condition", True, 4.0)[1]).all()
    assert measure(np.zeros((3, 3)), "condition", False) == np.inf
