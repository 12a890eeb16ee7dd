"""Whatever comes in, torque that goes out is finite and keeps to its limit and rate; damping keeps to the delay."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from drivers.frame import JointFrame
from rt_core.hand_guiding import GuidingState, ZeroForceController, ZeroForceSettings
from rt_core.hand_guiding import rows as c
from tests.lab.hand_guiding.frames import MS, frame
from tests.lab.hand_guiding.rig import exact
from tests.unit.rt_core.hand_guiding.test_session import HELD, controller

EVENTS = ("good", "fast", "backwards", "none", "nan", "absurd", "jump", "late", "back", "torque", "stop")


def event(kind: str, at_ms: int, q: float, value: float) -> JointFrame | None:
    """A frame at a time, or what comes in its place."""
    if kind == "none":
        return None
    dq = {"fast": value, "backwards": -value, "nan": np.nan, "absurd": 1e160}.get(kind, 0.0)
    tau = np.array([value * 20.0 if kind == "torque" else -HELD])
    sample = frame(at_ms, q + (1.0 if kind == "jump" else 0.0), dq, tau=tau)
    if kind == "back":
        sample.t_bus_ns -= 1000 * MS
    return sample


@given(
    events=st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(1, 12), st.floats(-1.9, 1.9)), max_size=40),
    limit=st.sampled_from([6.0, 11.0, 90.0]),
    rise_s=st.sampled_from([0.01, 0.05, 0.5]),
    start=st.sampled_from([-HELD, -HELD + 2.0, HELD, 1e4]),
)
@hypothesis_settings(max_examples=80)
def test_torque_is_finite_and_within_its_limit_and_rate(
    events: list[tuple[str, int, float]], limit: float, rise_s: float, start: float
) -> None:
    zero_force = controller(
        ramp_s=0.02, takeover_watch_s=0.0, torque_limit=(limit,), torque_rise_s=rise_s, speed_limit=(1.0,)
    )
    before = float(zero_force.step(frame(0, 0.0, tau=np.array([start])))[0])
    assert before == (start if abs(start) <= limit else 0.0) or before == 0.0
    at, q = 0, 0.0
    for kind, count, value in [("good", 30, 0.0), *events]:
        if kind == "stop":
            zero_force.stop()
        for _ in range(count):
            step = 7 if kind == "late" else 1
            at += step
            q += 1e-3 * value if kind == "fast" else 0.0
            waiting = zero_force.state is GuidingState.WAITING  # the drives are not in torque mode yet
            out = float(zero_force.step(event(kind, at, q, value))[0])
            assert abs(out) <= limit
            assert waiting or abs(out - before) <= limit / rise_s * step * 1e-3 * (1.0 + 1e-9) + 1e-12
            before = out


@pytest.mark.parametrize(
    ("delay", "period_s", "hz"), [(1, 1e-3, 60.0), (2, 1e-3, 60.0), (3, 1e-3, 40.0), (2, 2e-3, 60.0)]
)
@pytest.mark.parametrize("observed", [False, True])
def test_all_dampers_and_springs_together_are_stable_with_their_delay(
    delay: int, period_s: float, hz: float, observed: bool
) -> None:
    """The smallest inertia, less a tenth, on everything that may act at once, by the eigenvalues of its motion."""
    settings = ZeroForceSettings(delay_cycles=delay, observer_hz=hz, braking_time_s=0.004 if period_s < 2e-3 else 0.005)
    zero_force = ZeroForceController(exact(), settings, period_s)
    rows = zero_force._limits
    most = rows[c.MAX_DAMPING + observed]
    held = rows[c.HOLD_DAMPER] + rows[c.WALL_DAMPER]
    damper = held + np.minimum(rows[c.BRAKE], np.maximum(0.0, most - held))
    spring = rows[c.HOLD_SPRING] + rows[c.WALL_SPRING]
    discount = float(zero_force._scalars[c.DISCOUNT]) if observed else None
    for d, k in zip(damper / zero_force.model.inertia, spring / zero_force.model.inertia, strict=True):
        assert largest_eigenvalue(d / 0.9, k / 0.9, period_s, delay, discount) < 1.0
    # What it would be without the bound.
    free = (rows[c.HOLD_DAMPER] + rows[c.WALL_DAMPER] + rows[c.BRAKE]) / zero_force.model.inertia
    if observed and delay > 1:
        assert largest_eigenvalue(float(free.max()) / 0.9, 0.0, period_s, delay, discount) > 1.0


def largest_eigenvalue(damper: float, spring: float, dt: float, delay: int, discount: float | None) -> float:
    """Of one cycle of a unit mass on a late damper and spring; by `discount` with the observer's velocity."""

    def cycle(x: np.ndarray) -> np.ndarray:
        (q, v), late, (Q, V, A) = x[:2], list(x[2 : 2 + delay]), x[2 + delay :]
        w = v
        if discount is not None:
            p, ahead = discount, Q + dt * (V + 0.5 * dt * A)
            e = q - ahead
            Q, V = ahead + (1.0 - p**3) * e, V + dt * A + 1.5 * (1.0 - p) ** 2 * (1.0 + p) * e / dt
            A, w = A + (1.0 - p) ** 3 * e / dt**2, V
        late.append(-damper * w - spring * q)
        a = late.pop(0)
        return np.array([q + v * dt + 0.5 * a * dt * dt, v + a * dt, *late, Q, V, A])

    states = np.eye(5 + delay)
    if discount is None:
        states[-3:] = 0.0
    return float(np.abs(np.linalg.eigvals(np.array([cycle(x) for x in states]).T)).max())


@pytest.mark.parametrize(
    "wrong", [{"damping_time_s": 0.002}, {"hold_hz": 10.0, "delay_cycles": 3, "observer_hz": 15.0}]
)
def test_damping_that_comes_too_late_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"bound damping: damping_time_s must be above .* s and hold_hz below"):
        ZeroForceController(exact(), replace(ZeroForceSettings(), **wrong))
