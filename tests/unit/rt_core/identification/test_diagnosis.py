"""What is wrong with data or robot file is named where it leaves little, and nothing is named otherwise."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from drivers.files.robots.file import load_robot
from rt_core.identification.diagnostics.added_variables import gravity_axes, tilted
from rt_core.identification.diagnostics.intervals import consistent_shifts, widened
from rt_core.identification.diagnostics.noise import row_noise
from rt_core.identification.diagnostics.row_filter import RowFilter, sampled_torque
from rt_core.identification.estimate import EstimatorOptions, disturb
from rt_core.identification.identify import Identification, finding_text, identify
from rt_core.identification.least_squares import compress, solve
from rt_core.identification.methods import Method
from rt_core.identification.preprocess import SignalPiece, SignalSettings, prepare, zero_phase
from rt_core.identification.rows import build_rows
from rt_core.model.base import base_parameters
from rt_core.model.parameters import standard_parameters
from rt_core.model.regressor import regressor
from rt_core.model.robot import Joint, RobotModel
from tests.lab.arms.batch import Motion, arm, motion
from tests.lab.arms.harmonic_drive import coloured

SETTINGS = SignalSettings(cutoff_hz=10.0, min_velocity=np.full(3, 0.015))
NOISE = np.array([0.3, 0.3, 0.2])
Change = Callable[[Motion], Motion]


@pytest.fixture(scope="module")
def recordings() -> list[Motion]:
    found = []
    for seed in range(2):
        made = motion(arm(), seconds=30.0, seed=seed)
        found.append(replace(made, tau=made.tau + np.random.default_rng(seed).normal(size=made.tau.shape) * NOISE))
    return found


def fit(made: Motion, model: RobotModel | None = None) -> Identification:
    model = arm() if model is None else model
    settings = replace(SETTINGS, min_velocity=np.full(model.n, 0.015))
    return identify(model, base_parameters(model), prepare(made.t, made.q, made.tau, settings), settings)


def wrong(found: Identification, model: RobotModel) -> int:
    """Count values that are called determined and are more than four standard deviations from the truth."""
    true = found.base.theta(standard_parameters(model, found.base.standard))
    determined = np.array([s == "determined" for s in found.status])
    return int((determined & (np.abs(found.theta - true) > 4.0 * found.std)).sum())


def test_nothing_is_found_in_good_data(recordings: list[Motion]) -> None:
    for made in recordings:
        found = fit(made)
        assert found.verdict == "ok"
        assert found.diagnosis.named is None
        assert found.diagnosis.unexplained is None
        assert (found.diagnosis.sigma < 1.3 * found.diagnosis.noise).all()
        assert wrong(found, arm()) == 0


def columns(made: Motion, **changes: np.ndarray) -> Motion:
    return replace(made, **changes)


ORDER = [0, 2, 1]
CASES: dict[str, tuple[Change, str]] = {
    "torque late": (lambda m: columns(m, tau=np.roll(m.tau, 2, axis=0)), "torque_late"),
    "torque of one late": (
        lambda m: columns(m, tau=np.stack((m.tau[:, 0], np.roll(m.tau[:, 1], 5), m.tau[:, 2]), axis=1)),
        "torque_late",
    ),
    "clock slow": (lambda m: columns(m, t=0.95 * m.t), "clock"),
    "half the rate": (lambda m: columns(m, t=0.5 * m.t), "gravity"),
    "twice the time": (lambda m: columns(m, t=2.0 * m.t), "gravity"),
    "a third of it": (lambda m: columns(m, t=0.3 * m.t), "gravity"),
    "another rate": (lambda m: columns(m, t=1.5 * m.t), "clock"),
    "torques swapped": (lambda m: columns(m, tau=m.tau[:, ORDER]), "torque_channels"),
    "torque turned": (lambda m: columns(m, tau=m.tau * [1.0, -1.0, 1.0]), "torque_channels"),
    "positions swapped": (lambda m: columns(m, q=m.q[:, ORDER]), "positions"),
    "a right angle off": (lambda m: columns(m, q=m.q + np.pi / 2.0 * (np.arange(3) == 1)), "positions"),
    "joints swapped": (lambda m: columns(m, q=m.q[:, ORDER], tau=m.tau[:, ORDER]), "positions"),
}


@pytest.mark.parametrize("case", CASES)
def test_the_cause_is_named_and_nothing_wrong_is_determined(recordings: list[Motion], case: str) -> None:
    change, kind = CASES[case]
    for made in recordings:
        found = fit(change(made))
        assert found.verdict in ("doubtful", "not_explained")
        assert "determined" not in found.status
        named = found.diagnosis.named
        assert named is not None, found.reasons
        assert named.kind == kind
        assert "rate" not in case or "the time stamps seem to run 50 " in found.reasons[0]


@pytest.mark.parametrize("exchanged", [True, False])
def test_exchanged_joints_are_told_that_leave_most_of_the_residual(exchanged: bool) -> None:
    """At the wrist, beside noise of low frequency: each joint's torque is explained, and none comes to its noise."""
    model = load_robot("space6").model
    made, rng = motion(model), np.random.default_rng(0)
    noise = np.stack([coloured(rng, made.t.size, 1.0, 0.94) for _ in range(model.n)], axis=1)
    made = columns(made, tau=made.tau + 0.03 * np.std(made.tau, axis=0) * noise)
    order = [0, 1, 2, 3, 5, 4]
    found = fit(columns(made, q=made.q[:, order], tau=made.tau[:, order]) if exchanged else made, model)
    named = found.diagnosis.named
    assert (named is not None) is exchanged
    assert named is None or "joint_5 and joint_6 exchanged fit better" in finding_text(named, model)
    assert named is None or named.left > 0.5
    assert ("determined" in found.status) is not exchanged


@pytest.mark.parametrize("degrees", [2.0, 30.0, 180.0])
def test_gravity_is_found_to_a_degree(recordings: list[Motion], degrees: float) -> None:
    true = arm().gravity
    believed = replace(arm(), gravity=tilted(true, np.radians([degrees, 0.0])))
    found = fit(recordings[0], believed)
    named = found.diagnosis.named
    cosine = named.gravity @ true / np.linalg.norm(named.gravity) / np.linalg.norm(true)
    assert np.degrees(np.arccos(np.clip(cosine, -1.0, 1.0))) < 1.0
    assert "robot file decides" not in finding_text(named, believed)
    assert "determined" not in found.status


def test_an_error_without_a_name_is_not_given_one(recordings: list[Motion]) -> None:
    made = recordings[0]
    found = fit(columns(made, tau=made.tau + 60.0 * np.sin(3.0 * made.q)))
    assert found.diagnosis.named is None
    assert found.verdict in ("doubtful", "not_explained")
    assert any("largest residuals" in reason for reason in found.reasons)


@pytest.mark.parametrize("kind", ["friction", "reversal", "yielding"])
def test_what_the_model_has_no_parameters_for_widens_what_it_moves(recordings: list[Motion], kind: str) -> None:
    """Friction that falls with speed or turns early, and motors that wind up their gears: a bias in every block."""
    model, made = arm(), recordings[0]
    if kind == "friction":
        falling = 0.6 * model.dynamics.coulomb * np.sign(made.dq) * np.exp(-((made.dq / 0.15) ** 2))
        changed = columns(made, tau=made.tau + falling)
    elif kind == "reversal":
        turned = np.roll(np.sign(made.dq), -1, axis=0) - np.sign(made.dq)
        changed = columns(made, tau=made.tau + model.dynamics.coulomb * turned)
        late = fit(columns(changed, tau=np.roll(changed.tau, 2, axis=0))).diagnosis.named
        assert abs(late.estimate[0] - 2.0 * made.t[1]) < 4.0 * late.std[0]  # and no less, though friction is early
    else:
        changed = columns(made, q=made.q + 3e-3 * made.tau / np.sqrt(np.mean(made.tau**2, axis=0)))
    found = fit(changed)
    formed = [f for f in found.diagnosis.findings if f.kind == kind]
    assert formed
    assert all(f"joint {model.joints[f.joint or 0].name}: its " in finding_text(f, model) for f in formed)
    assert (found.diagnosis.named, found.diagnosis.unexplained) == (None, None)
    assert wrong(found, model) == 0
    error = np.abs(found.theta - found.base.theta(standard_parameters(model, found.base.standard)))
    unwidened = np.sqrt(np.maximum(found.std**2 - np.sum(found.diagnosis.shifts**2, axis=0), 0.0))
    assert (error > 4.0 * unwidened).any() or kind == "reversal"  # it did harm


@pytest.mark.parametrize("links", [True, False])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_robot_file_decides_between_gravity_and_its_opposite(sign: float, links: bool) -> None:
    """In slow motion one with the opposite first moments fits as well as the other."""
    true, slow = arm(), 20.0
    made = motion(true, rate_hz=50.0)
    base = base_parameters(true)
    dq, ddq = made.dq / slow, made.ddq / slow**2
    tau = regressor(true, base.layout, made.q, dq, ddq) @ base.theta(standard_parameters(true, base.standard))
    tau += np.random.default_rng(0).normal(size=tau.shape) * NOISE
    settings = SignalSettings(cutoff_hz=1.0, min_velocity=np.full(3, 0.015 / slow))
    gravity = np.array([0.0, 0.3, -1.0]) * sign * 9.4
    believed = replace(true, gravity=gravity, inertial=true.inertial if links else None)
    signals = prepare(slow * made.t, made.q, tau, settings)
    named = identify(believed, base_parameters(believed), signals, settings).diagnosis.named
    assert named.gravity[2] * (-1.0 if links else -sign) > 0.0
    assert "the robot file decides" in finding_text(named, believed)


@pytest.mark.parametrize("channel", ["q", "tau"])
def test_a_merged_channel_of_a_small_joint_is_doubted(recordings: list[Motion], channel: str) -> None:
    made = recordings[0]
    merged = getattr(made, channel).copy()
    merged[:, 2] = merged.mean(axis=1) if channel == "q" else 0.5 * (merged[:, 1] + merged[:, 2])
    found = fit(columns(made, **{channel: merged}))
    assert found.verdict == "doubtful"
    assert "joint elbow: 4" in found.reasons[0]
    assert "determined" not in found.status


def test_axes_of_a_tilt() -> None:
    for g in (np.array([0.0, 0.0, -9.81]), np.array([3.0, -5.0, 2.0])):
        axes = gravity_axes(g)
        np.testing.assert_allclose(axes @ axes.T, np.eye(2), atol=1e-15)
        np.testing.assert_allclose(axes @ g, 0.0, atol=1e-14)
        assert np.linalg.norm(tilted(g, np.array([0.3, 0.4]))) == pytest.approx(np.linalg.norm(g))
        cosine = tilted(g, np.array([0.3, 0.4])) @ g / (g @ g)
        assert np.arccos(cosine) == pytest.approx(0.5)


def test_a_widened_covariance_is_one_and_holds_at_least_the_blocks() -> None:
    A = np.random.default_rng(0).normal(size=(4, 4))
    covariance = A @ A.T
    covariance[3] = covariance[:, 3] = 0.0
    covariance[3, 3] = np.inf
    std = np.sqrt(np.diag(covariance))
    shift = np.array([[0.1, -3.0, 0.0, 5.0]])
    out = widened(covariance, std * np.array([0.5, 1.0, 3.0, 1.0]), shift)
    known = out[:3, :3]
    assert np.linalg.eigvalsh(known).min() > 0.0
    np.testing.assert_allclose(np.diag(known), (std[:3] * [1.0, 1.0, 3.0]) ** 2 + shift[0, :3] ** 2)
    assert np.isinf(out[3, 3])


@pytest.mark.parametrize("slow", [True, False])
@pytest.mark.parametrize("coarse", [True, False])
def test_signals_pass_the_filter_of_the_rows(recordings: list[Motion], slow: bool, coarse: bool) -> None:
    """As measured, and at a lower rate for what is smooth, with the mask of either kind of rows."""
    model, made = arm(), recordings[0]
    base = base_parameters(model)
    theta = base.theta(standard_parameters(model, base.standard))
    settings = replace(SETTINGS, min_velocity=np.full(3, 0.1))
    signals = prepare(made.t, made.q, made.tau, settings)
    rows = build_rows(model, base, signals, settings, slow=slow, every=3)
    rows_filter = RowFilter(model, rows, signals, settings, coarse=coarse)
    assert (rows_filter.rate_hz == signals.rate_hz) != coarse
    torque = rows_filter.apply([sampled_torque(model, base, theta, piece) for piece in rows_filter.pieces])
    expected = np.where(rows.use, rows.predict(theta), 0.0)
    # friction that starts between two samples of the lower rate is a sample off
    assert np.abs(torque - expected).max() < (0.05 if coarse else 1e-9) * np.abs(expected).max()
    if not coarse:
        filtered = rows_filter.apply([piece.tau for piece in signals.pieces])
        np.testing.assert_allclose(filtered, np.where(rows.use, rows.tau, 0.0), atol=1e-9)


@pytest.mark.parametrize("cutoff_hz", [None, 20.0])
def test_the_noise_of_the_torque_is_known_where_it_is_white(recordings: list[Motion], cutoff_hz: float | None) -> None:
    made = recordings[0]
    tau = made.tau if cutoff_hz is None else zero_phase(made.tau, cutoff_hz, 500.0, 2)
    signals = prepare(made.t, made.q, tau, SETTINGS)
    noise = row_noise(signals, 1.0)
    if cutoff_hz is None:
        np.testing.assert_allclose(noise, NOISE, rtol=0.12)
    else:
        assert np.isnan(noise).all()


def test_a_pendulum_is_ok_although_no_motion_tells_its_mounting() -> None:
    joint = Joint("hinge", "revolute", np.eye(3), np.zeros(3), np.array([0.0, 1.0, 0.0]), lower=-2.5, upper=2.5)
    whole = arm()
    first = {name: x[:1] for name, x in vars(whole.dynamics).items() if isinstance(x, np.ndarray)}
    dynamics = replace(whole.dynamics, **first)
    model = replace(whole, joints=(joint,), inertial=whole.inertial[1:2], dynamics=dynamics)
    settings = replace(SETTINGS, min_velocity=np.full(1, 0.015))
    made = motion(model, seconds=20.0)
    tau = made.tau + 0.2 * np.random.default_rng(0).standard_normal(made.tau.shape)
    found = identify(model, base_parameters(model), prepare(made.t, made.q, tau, settings), settings)
    assert found.verdict == "ok", found.reasons
    assert not found.diagnosis.gravity_seen
    assert "mounting direction" in found.notes[0]


@pytest.mark.slow
def test_gravity_with_friction_that_depends_on_load(recordings: list[Motion]) -> None:
    true = arm()
    loaded = replace(
        true,
        friction=replace(true.friction, load=True),
        dynamics=replace(true.dynamics, load_friction=np.full(3, 0.15)),
    )
    made = recordings[0]
    base = base_parameters(loaded)
    theta = base.theta(standard_parameters(loaded, base.standard))
    tau = sampled_torque(loaded, base, theta, SignalPiece(made.t, made.q, made.dq, made.ddq, made.tau))
    made = replace(made, tau=tau + np.random.default_rng(0).normal(size=tau.shape) * NOISE)
    assert fit(made, loaded).diagnosis.named is None
    believed = replace(loaded, gravity=tilted(true.gravity, np.radians([30.0, 0.0])))
    named = fit(made, believed).diagnosis.named
    cosine = named.gravity @ true.gravity / np.linalg.norm(named.gravity) / np.linalg.norm(true.gravity)
    assert np.degrees(np.arccos(min(cosine, 1.0))) < 2.0


def test_a_prior_that_holds_a_value_holds_its_shift(recordings: list[Motion]) -> None:
    """With a covariance far below the data's own an error of the torque hardly moves the parameters."""
    model, made = arm(), recordings[0]
    base = base_parameters(model)
    rows = build_rows(model, base, prepare(made.t, made.q, made.tau, SETTINGS), SETTINGS)
    free = solve(compress(rows.Y, rows.tau, rows.use), len(base), "wls")
    sigma = free.weighted_with * np.linspace(1.0, 3.0, model.n)  # possible links explain some joints worse than others
    information = sum(rows.Y[j][:, rows.use[:, j]] @ rows.Y[j][:, rows.use[:, j]].T / s**2 for j, s in enumerate(sigma))
    covariance = np.linalg.inv(information)
    shifts = np.random.default_rng(0).normal(size=(2, len(base)))
    np.testing.assert_allclose(consistent_shifts(rows, sigma, covariance, shifts), shifts, rtol=1e-6)
    stiff = np.linalg.inv(np.linalg.inv(covariance) + np.diag(np.where(np.arange(len(base)) == 3, 1e12, 0.0)))
    held = consistent_shifts(rows, sigma, stiff, shifts)
    assert np.abs(held[:, 3]).max() < 1e-3 * np.abs(shifts[:, 3]).min()


@pytest.mark.parametrize("method", ["tls", "iv", "iwls", "physical"])
def test_good_data_are_good_by_every_method(recordings: list[Motion], method: Method) -> None:
    made = recordings[0]
    model = arm()
    other = prepare(made.t, disturb(made.q), made.tau, SETTINGS)
    signals = replace(prepare(made.t, made.q, made.tau, SETTINGS), disturbed=other)
    options = EstimatorOptions(method=method)
    found = identify(model, base_parameters(model), signals, SETTINGS, options)
    assert found.diagnosis.named is None
    assert max(r.z for r in found.diagnosis.tests if r.identifiable > 0.02) < 6.0
    assert wrong(found, model) == 0
