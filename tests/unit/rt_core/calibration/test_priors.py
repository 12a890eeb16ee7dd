"""Priors: they count as information, and what they carry is told from what the poses show."""

import numpy as np
import pytest

from rt_core.calibration.calibrate import calibrate
from rt_core.calibration.error_model import error_model
from rt_core.calibration.sample import Sample
from rt_core.calibration.settings import CalibrationError, CalibrationSettings
from rt_core.types import FloatArray
from service.operations.calibration.document import base_frame
from sim_backend.arm.laser_tracker import TrackedArm, TrackerSettings
from tests.lab.arms.calibration import BASE, TOOL, UR10, as_measured, forward, postures, truth

SIZE = 1e-3
STATUSES_WITH_VALUE = CalibrationSettings(prior_length=SIZE, prior_angle=SIZE)
#: What a point in a frame of its own never shows of a UR (`test_identifiability`).
HIDDEN = {"theta1", "d1", "theta6", "d6", "a6", "alpha6"}


def drawn(seed: int, count: int = 60) -> tuple[TrackedArm, FloatArray]:
    """Arm whose errors are drawn from the prior, and postures."""
    arm = TrackedArm.of(UR10, TrackerSettings(seed=seed, error_length=SIZE, error_angle=SIZE, noise=1e-4))
    return arm, np.random.default_rng(500 + seed).uniform(-2.8, 2.8, (count, 6))


@pytest.mark.slow
def test_stated_intervals_cover_what_is_measured_and_what_is_believed() -> None:
    """Also those of the base, which poses without a prior show only as the nominal zero of joint 1 has it."""
    z: dict[str, list[float]] = {"determined": [], "prior": [], "base": []}
    for seed in range(40):
        arm, q = drawn(seed)
        result = calibrate(UR10, q, arm.measure(q)[0], STATUSES_WITH_VALUE)
        assert result.verdict == "ok"
        true = dict(zip(arm.model.names, arm.errors, strict=True))
        for p in result.parameters:
            assert p.prior == SIZE
            z[p.status].append((p.value - true[p.name]) / p.std)
        carried = {p.name for p in result.parameters if p.status == "prior"}
        assert carried >= HIDDEN
        assert not carried & {"a2", "a3", "theta3", "alpha1", "alpha2"}
        base = arm.model.frame("base", np.zeros(arm.model.size))[1]
        for value, at, std in zip(result.base.translation, base, result.base.translation_std, strict=True):
            z["base"].append((value - at) / std)
    assert len(z["determined"]) > 600
    for kind, values in z.items():
        # What is believed is but 40 draws of each; base's coordinates share that of joint 1's height.
        low, high = (0.9, 1.1) if kind == "determined" else (0.75, 1.3)
        assert low < np.sqrt(np.mean(np.square(values))) < high, kind
        assert np.mean(np.abs(values) < 1.96) > 0.9, kind


def test_covariance_is_the_inverse_of_both_informations() -> None:
    arm, q = drawn(3)
    measured = arm.measure(q)[0]
    result = calibrate(UR10, q, measured, STATUSES_WITH_VALUE)
    free = np.array([result.model.index(name) for name in result.free])
    J = result.model.jacobian(Sample.of(q, measured), result.x, free).reshape(-1, free.size) / result.scale[0]
    believed = np.array([0.0 if "_" in name else SIZE**-2 for name in result.free])
    expected = np.linalg.inv(J.T @ J + np.diag(believed))
    from_priors = np.diag(expected @ np.diag(believed) @ expected) / np.diag(expected)
    assert not result.dependence.found
    std = np.sqrt(np.diag(expected))
    np.testing.assert_allclose(np.sqrt(np.diag(result.covariance)), std, rtol=0.05)
    for p in result.parameters:
        share = from_priors[result.free.index(p.name)]
        if abs(share - 0.5) > 0.1:
            assert (p.status == "prior") == (share > 0.5), p.name


def test_priors_leave_the_base_where_joint_1_has_it() -> None:
    """They widen its deviations by what the robot's own base may be off, and do not move it."""
    arm, q = drawn(1)
    measured, _ = arm.measure(q)
    plain, believed = calibrate(UR10, q, measured), calibrate(UR10, q, measured, STATUSES_WITH_VALUE)
    assert base_frame(plain) == base_frame(believed) == "joint1"
    values = {p.name: p for p in believed.parameters}
    for name in ("theta1", "d1"):
        value = values[name].value
        assert abs(value) < 1e-6 * SIZE
    turned = [float(base.rotation_std[2] or np.nan) for base in (plain.base, believed.base)]
    shifted = [np.linalg.norm(np.array(base.translation_std, dtype=float)) for base in (plain.base, believed.base)]
    assert turned[1] > SIZE > 3.0 * turned[0]
    assert shifted[1] > SIZE > 3.0 * shifted[0]


def test_what_noise_hides_is_the_priors() -> None:
    arm = truth(UR10, False, 120, seed=7)
    rng = np.random.default_rng(8)
    q = arm.q.copy()
    q[:, 4] = 1.2 + 0.002 * rng.normal(size=120)
    measured = as_measured(forward(UR10, q, arm.errors, BASE, TOOL), False) + rng.normal(0.0, 2e-4, (120, 3))
    plain = calibrate(UR10, q, measured)
    hidden = {item.name for item in plain.fixed if item.reason == "imprecise" and "_" not in item.name}
    assert hidden
    assert plain.scale[0] == pytest.approx(2e-4, rel=0.15)
    for p in plain.parameters:
        assert (p.value is None) == (p.status == "undetermined") == (p.name not in plain.free)
    settings = CalibrationSettings(prior_length=2e-3, prior_angle=2e-3)
    found = {p.name: p for p in calibrate(UR10, q, measured, settings).parameters}
    for name in hidden:
        p = found[name]
        assert p.status == "prior"
        assert 1.4e-3 < p.std <= 2e-3 * 1.001
        assert abs(p.value - arm.errors.get(name, 0.0)) < 4.0 * p.std


def test_measurements_without_noise_do_not_make_priors_sure() -> None:
    arm = TrackedArm.of(UR10, TrackerSettings(seed=6, error_length=SIZE, error_angle=SIZE, noise=0.0))
    q = postures(UR10, 60, np.random.default_rng(6))
    found = {p.name: p for p in calibrate(UR10, q, arm.measure(q)[0], STATUSES_WITH_VALUE).parameters}
    assert {found[name].status for name in HIDDEN} == {"prior"}
    assert min(found[name].std for name in HIDDEN) > 0.3 * SIZE


def test_priors_of_all_errors_are_no_reason_to_accept_poses_that_show_none() -> None:
    q = np.tile([0.1, -1.0, 1.2, 0.3, 1.0, 0.2], (40, 1))
    q[:, 0] = np.linspace(-2.0, 2.0, 40)
    measured = as_measured(forward(UR10, q, {"a2": 1e-3}, BASE, TOOL), False)
    result = calibrate(UR10, q, measured, STATUSES_WITH_VALUE)
    assert result.verdict == "undetermined"
    assert {p.value for p in result.parameters} == {None}
    arm, few = drawn(1, 8)
    readings = arm.measure(few)[0]
    with pytest.raises(CalibrationError, match="measure at least 12 postures"):
        calibrate(UR10, few, readings, STATUSES_WITH_VALUE)


def test_priors_of_frames_are_refused() -> None:
    q = postures(UR10, 30, np.random.default_rng(0))
    measured = as_measured(forward(UR10, q, {}, BASE, TOOL), False)
    frames = ((name, 1e-4, " is not of the arm") for name in ("tool_x", "base_rz"))
    for name, std, what in (*frames, ("a1", None, ": a standard deviation")):
        with pytest.raises(CalibrationError, match=f"priors: {name}{what}"):
            calibrate(UR10, q, measured, CalibrationSettings(priors=((name, std),)))  # type: ignore[arg-type]
    assert "tool_x" in error_model(UR10).names
