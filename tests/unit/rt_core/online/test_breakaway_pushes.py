"""What is no start: pushes while a torque drifts, stands still or is coarse, and what lies below Coulomb friction."""

from collections import Counter

import numpy as np
import pytest

from rt_core.model.base import base_parameters
from rt_core.model.friction import REFERENCE_TEMPERATURE, Friction
from rt_core.online.breakaway import LEFT_OUT, Start, StartDetector
from rt_core.online.breakaway.load import sliding_friction
from rt_core.types import FloatArray
from tests.lab.arms.sticking_joint import FB, FC, LOAD, RATE, Strokes, strokes
from tests.lab.arms.warm import warm_arm

PUSHES, PERIOD_S, PUSHED_S, BITS = 8, 2.0, 1.54, 20


def pushed(rate: float, *, noise: float = 0.0, count: float = 0.0) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Times, positions and torques (N,) of a joint that is pushed while its torque winds up from 5 N*m, at `rate`."""
    t = np.arange(1, round(PUSHES * PERIOD_S * RATE) + 1) / RATE
    phase = t % PERIOD_S
    gone = np.clip((phase - PUSHED_S) / 0.3, 0.0, 1.0)
    x = np.floor(t / PERIOD_S) * 0.05 + 0.05 * gone**2
    tau = 5.0 + rate * np.minimum(phase, PUSHED_S + 0.1)
    back = phase > PUSHED_S + 0.1
    tau[back] = 5.0 + (tau[back] - 5.0) * (PERIOD_S - phase[back]) / (PERIOD_S - PUSHED_S - 0.1)
    tau += noise * np.random.default_rng(1).standard_normal(t.size)
    step = 2.0 * np.pi / 2**BITS
    return t, np.round(x / step) * step, np.round(tau / count) * count if count else tau


def watched(
    t: FloatArray, x: FloatArray, tau: FloatArray, *, load: float = 0.0, slides: float | None = None
) -> list[Start]:
    def sliding() -> FloatArray:
        return np.full(1, slides or 0.0)

    watch = StartDetector(1, RATE, lambda q: (np.full(1, load), np.full(1, 0.02)), sliding)
    return watch.push(t, x[:, None], x[:, None], tau[:, None])


def reasons(found: list[Start]) -> Counter[str]:
    return Counter(s.left_out for s in found)


@pytest.mark.parametrize(("noise", "count"), [(0.0, 0.0), (0.3, 0.0), (0.01, 0.5)])
def test_a_push_while_an_integrator_winds_up_is_no_start(noise: float, count: float) -> None:
    """From 5 to 7 N*m: at each push the torque has risen for one and a half seconds, and beyond its noise."""
    found = watched(*pushed(1.3, noise=noise, count=count))
    assert len(found) >= PUSHES - 1
    assert set(reasons(found)) <= {"no rise", "not clear"}
    assert reasons(found)["no rise"] >= PUSHES // 2


def test_what_lies_below_coulomb_friction_was_pushed() -> None:
    """A torque that rises as before a start, but not as far as the joint's friction while it slides."""
    t, x, tau = pushed(4.0, noise=0.02)
    assert reasons(watched(t, x, tau))[""] >= PUSHES - 1  # nothing known of the joint speaks against it
    assert reasons(watched(t, x, tau, slides=12.0))[""] >= PUSHES - 1
    assert set(reasons(watched(t, x, tau, slides=FC))) == {"too low"}
    assert "Coulomb" in LEFT_OUT["too low"]


def coarse(r: Strokes, count: float) -> list[Start]:
    return watched(r.t, r.x, np.round(r.tau / count) * count, load=LOAD, slides=FC)


def test_starts_of_a_coarse_torque_are_known_no_better_than_its_count() -> None:
    r = strokes(14.0, noise=0.0)
    for count in (0.05, 0.1):
        good = [s for s in coarse(r, count) if not s.left_out]
        assert len(good) >= 4
        for start in good:
            assert start.std > 0.999 * count / np.sqrt(12.0)
            assert abs(start.torque - FB) < 4.0 * np.hypot(start.std, start.common_std) + 0.005 * FB
    assert not [s for s in coarse(r, 3.0) if not s.left_out]  # of so coarse a torque no rise can be told


def test_coulomb_friction_is_reported_as_far_as_the_estimate_knows_it() -> None:
    """Three standard deviations below, at the joint's temperature; nothing where that, or the parameter, is unknown."""
    model = warm_arm(Friction("coulomb_viscous", temperature="coulomb"))
    base, n = base_parameters(model), model.n
    fc, alpha = (base.names.index(name) for name in ("fc2", "alpha2"))
    theta, covariance = np.zeros(len(base)), 1e6 * np.eye(len(base))
    theta[[fc, alpha]] = 10.0, -0.1
    for column, std in ((fc, 0.3), (alpha, 0.0)):
        covariance[column, column] = std**2
    at = np.full(n, REFERENCE_TEMPERATURE + 20.0)
    found = sliding_friction(base, theta, covariance, n, at)
    assert found[1] == pytest.approx(10.0 - 2.0 - 0.9)
    assert np.flatnonzero(found).tolist() == [1]
    covariance[alpha, alpha] = 0.05**2
    found = sliding_friction(base, theta, covariance, n, at)
    assert found[1] == pytest.approx(8.0 - 3.0 * np.hypot(0.3, 20.0 * 0.05))
    assert not sliding_friction(base, theta, covariance, n, np.full(n, np.nan)).any()


def test_what_was_in_motion_before_the_rest_tells_nothing() -> None:
    """A joint that begins slowly, hardly more than half a second after it stopped: its start is told from the rest."""
    step, stops, begins = 2.0 * np.pi / 2**BITS, 1.0, 1.50
    t = np.arange(1, 2001) / RATE
    x = -0.15 * np.minimum(t - stops, 0.0) ** 2 + 45.0 * step * np.maximum(0.0, t - begins)
    noise = np.random.default_rng(3).standard_normal(t.size)
    tau = 12.0 + 14.0 * np.clip(t - stops, 0.0, begins - stops) + 0.02 * noise
    found = []
    for moving in (12.0 + 0.02 * noise, 10.0 + 30.0 * noise):
        found += watched(t, np.round(x / step) * step, np.where(t <= stops, moving, tau))
    plain, other = found
    assert not plain.left_out
    assert not other.left_out
    for name in ("torque", "std", "common_std"):
        assert getattr(other, name) == pytest.approx(getattr(plain, name), rel=1e-6)
