"""A harmonic-drive joint at constant speeds under a brake, written down from the equations of motion alone.

    J_in*ddtheta_in = Km*Ia - T_k/N - b_in*dtheta_in - b_inD*sgn
    T_out = J_out*ddtheta_out + brake,     T_k = T_out + b_out*dtheta_out + b_outC*sgn = k1*d + k2*d^3

with `d = theta_in/N - theta_out`.  Figures of Sun et al., stage (c), N = 290.  With `more` there is also friction that
falls with speed (eq. 15) and that goes with the link's angle (eq. 18), for which the paper has no figures:

    C1*tanh(dtheta_in/omega1) + C2*dtheta_in*exp(-|dtheta_in/omega_s|),     A1*sin theta_out + A2*cos theta_out
"""

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from scipy.signal import lfilter

from rt_core.elastic.identify import ElasticFit
from rt_core.elastic.rows import Drive, ElasticRows, elastic_rows
from rt_core.identification.preprocess import SignalSettings
from rt_core.types import BoolArray, FloatArray

N = 290.0
TRUTH = {"k1": 3.965e5, "k2": 1.336e11, "b_in": 0.035, "b_inD": 0.135, "b_out": 635.663, "b_outC": 30.96}
MORE = {"C1": 0.4, "omega1": 4.0, "C2": 0.08, "omega_s": 15.0, "A1": 20.0, "A2": -12.0}
J_IN, J_OUT = 5e-5, 12.0
RATE, RAMP = 500.0, 0.3
SPEEDS, LOADS = (0.02, 0.04, 0.06), (100.0, 300.0, 500.0, 700.0)
SETTINGS = SignalSettings(cutoff_hz=10.0)
NOISE = (0.02, 1.5)
MOTOR_COUNTS, LINK_COUNTS = 2.0**16, 2.0**20  # of a turn


@dataclass(frozen=True)
class Recorded:
    """What was measured, and the true deflection `d`, speed `v` (link side) and where speed is constant."""

    t: FloatArray
    theta_in: FloatArray
    theta_out: FloatArray
    motor_torque: FloatArray
    sensor_torque: FloatArray
    d: FloatArray
    v: FloatArray
    steady: BoolArray
    truth: dict[str, float]

    def rows(self, *, sensor: bool = True, inertia: float | None = None, ratio: float = N) -> ElasticRows:
        return elastic_rows(
            self.t, self.theta_in, self.theta_out, self.motor_torque, Drive(ratio, inertia), SETTINGS,
            sensor_torque=self.sensor_torque if sensor else None,
        )  # fmt: skip


def deflection(torque: FloatArray, k1: float, k2: float) -> FloatArray:
    """Real root of `k1*d + k2*d^3 = torque` (Cardano)."""
    if k2 == 0.0:
        return torque / k1
    h, g = k1 / (3.0 * k2), torque / (2.0 * k2)
    root = np.sqrt(g**2 + h**3)
    return np.cbrt(g + root) + np.cbrt(g - root)


def coloured(rng: np.random.Generator, size: int, std: float, pole: float = 0.9) -> FloatArray:
    """Noise of first order with the given standard deviation."""
    white = rng.standard_normal(size + 200) * std * np.sqrt(1.0 - pole**2)
    return np.asarray(lfilter([1.0], [1.0, -pole], white)[200:])


def record(seed: int | None = 0, *, noise: tuple[float, float] = NOISE, **experiment: Any) -> Recorded:
    """Measured `exact(**experiment)`; `seed=None` for no noise and no quantisation."""
    clean = exact(**experiment)
    return clean if seed is None else measured(clean, seed, noise)


def measured(clean: Recorded, seed: int, noise: tuple[float, float] = NOISE) -> Recorded:
    """`clean` with noise on the torques of motor and sensor [N*m], and counts in place of angles."""
    rng = np.random.default_rng(seed)

    def counted(angle: FloatArray, counts: float) -> FloatArray:
        step, phase = 2.0 * np.pi / counts, rng.uniform()  # where the counts lie is chance
        return step * (np.floor(angle / step + phase) + 0.5 - phase)

    return replace(
        clean, motor_torque=clean.motor_torque + coloured(rng, clean.t.size, noise[0]),
        sensor_torque=clean.sensor_torque + coloured(rng, clean.t.size, noise[1]),
        theta_in=counted(clean.theta_in, MOTOR_COUNTS), theta_out=counted(clean.theta_out, LINK_COUNTS),
    )  # fmt: skip


def one_after_the_other(*parts: Recorded) -> Recorded:
    """Recordings that each begin and end at rest at the same angle, as one; the truth is that of the last."""
    lengths = [part.t.size / RATE for part in parts]
    starts = np.concatenate(([0.0], np.cumsum(lengths[:-1])))
    whole = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in ("theta_in", "theta_out", "motor_torque", "sensor_torque", "d", "v", "steady")
    }
    t = np.concatenate([part.t + start for part, start in zip(parts, starts, strict=True)])
    return Recorded(t=t, truth=parts[-1].truth, **whole)


@cache
def exact(
    *, speeds: tuple[float, ...] = SPEEDS, loads: tuple[float, ...] = LOADS, directions: tuple[int, ...] = (1, -1),
    hold: float = 1.2, lag: float = 0.0, zero: float = 0.0, k1: float = TRUTH["k1"], k2: float = TRUTH["k2"],
    gravity: bool = False, more: tuple[tuple[str, float], ...] = (), there_and_back: bool = False, begin: float = 0.0,
) -> Recorded:  # fmt: skip
    """Constant speed for `hold` s at each load, speed and direction, with ramps between.

    `lag` [s] makes the link encoder's samples late, `zero` [rad] has to be added to the deflection that is measured.
    The loads are those of a brake, or with `gravity` act one way whatever the direction.  `more` are items of further
    friction.  With `there_and_back` the link goes through all speeds one way before it turns; it begins at `begin`.
    """
    p = TRUTH | {"k1": k1, "k2": k2} | dict(more)
    plan = [(L, s * v) for L in loads for v in speeds for s in directions]
    if there_and_back:
        plan = [(L, s * v) for L in loads for s in directions for v in speeds]
    segment = 2.0 * RAMP + hold
    t = np.arange(0.0, len(plan) * segment, 1.0 / RATE)
    load, top = (np.array(x) for x in zip(*plan, strict=True))
    start = begin + np.concatenate(([0.0], np.cumsum(top * (hold + RAMP))))

    def state(at: FloatArray) -> tuple[FloatArray, ...]:
        """Link angle, speed, sign, torques of sensor and spring, deflection at times `at`."""
        at = np.clip(at, 0.0, len(plan) * segment - 1e-9)
        k = (at / segment).astype(int)
        u = at - k * segment
        x = np.clip(np.minimum(u, segment - u) / RAMP, 0.0, 1.0)  # ramps are smoothsteps
        v = top[k] * (3.0 * x**2 - 2.0 * x**3)
        a = np.where(u < 0.5 * segment, 1.0, -1.0) * top[k] * (6.0 * x - 6.0 * x**2) / RAMP
        ramp = top[k] * RAMP * (x**3 - 0.5 * x**4)
        late = top[k] * (hold + RAMP) - ramp
        q = start[k] + np.where(u < RAMP, ramp, np.where(u < RAMP + hold, top[k] * (u - 0.5 * RAMP), late))
        s = np.tanh(v / 1e-3)
        sensor = J_OUT * a + load[k] * (1.0 if gravity else s)
        spring = sensor + p["b_out"] * v + p["b_outC"] * s
        if "A1" in p:
            spring = spring + p["A1"] * np.sin(q) + p["A2"] * np.cos(q)
        return q, v, s, sensor, spring, deflection(spring, p["k1"], p["k2"])

    _, v, s, sensor, spring, d = state(t)
    h = 1e-4

    def motor_angle(at: FloatArray) -> FloatArray:
        q, *_, d = state(at)
        return q + d

    before, here, after = motor_angle(t - h), motor_angle(t), motor_angle(t + h)
    dtheta_in, ddtheta_in = N * (after - before) / (2.0 * h), N * (after - 2.0 * here + before) / h**2
    motor = J_IN * ddtheta_in + spring / N + p["b_in"] * dtheta_in + p["b_inD"] * s
    if "C1" in p:
        motor = motor + p["C1"] * np.tanh(dtheta_in / p["omega1"])
        motor = motor + p["C2"] * dtheta_in * np.exp(-np.abs(dtheta_in) / p["omega_s"])
    theta_out = state(t - lag)[0] + zero
    u = np.mod(t, segment)
    return Recorded(t, N * here, theta_out, motor, sensor, d, v, (u > RAMP) & (u < RAMP + hold), p)


def open_parameters(fit: ElasticFit) -> dict[str, str]:
    """Return the reasons of the parameters without a value, by name; check that they have nothing else."""
    for p in fit.parameters:
        undetermined = p.status == "undetermined"
        assert (p.value is None) == (p.std is None) == (p.lower is None) == (p.upper is None) == undetermined, p
        assert (p.reason is not None) == undetermined, p
    return {p.name: p.reason or "" for p in fit.parameters if p.value is None}
