"""False alarms and power of the diagnosis of a fit, on random arms and motions that no constant was read from.

Clean recordings give the rate at which a test of a small error exceeds its limits, and how often a cause is named.
Recordings with one known error give how often it is named, how often another is, and the share of values called
determined that are wrong by more than four of their standard deviations.  Friction of another form than the
model's and gears that yield are errors without a name: whatever is named there is false.

    python benchmarks/diagnosis_rates.py --count 50 --json rates.json
"""

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rt_core.identification.diagnostics.added_variables import IDENTIFIABLE, tilted
from rt_core.identification.diagnostics.diagnosis import CERTAIN
from rt_core.identification.identify import Identification, identify
from rt_core.identification.preprocess import SignalSettings, prepare
from rt_core.model.base import base_parameters
from rt_core.model.dh import DhRow, chain_from_dh
from rt_core.model.parameters import standard_parameters
from rt_core.model.regressor import regressor
from rt_core.model.robot import JointDynamics, RobotModel
from rt_core.types import FloatArray

RATE_HZ = 250.0
SECONDS = 30.0
NOISE = 0.01  # of the torque's rms
ENCODER = 1e-5  # rad
Channels = tuple[FloatArray, FloatArray, FloatArray, FloatArray]
KINDS = (
    "clean", "stribeck", "gears_yield", "tilt", "gravity_turned", "zero", "torque_late", "velocity_late",
    "torque_scale", "torque_sign", "torques_swapped", "clock",
)  # fmt: skip
#: What counts as right for each kind of error; nothing does where the error has no name.
RIGHT = {
    "tilt": ("tilt", "gravity"), "gravity_turned": ("tilt", "gravity"), "zero": ("zero",),
    "torque_late": ("torque_late",), "velocity_late": ("velocity_late",), "torque_scale": ("torque_scale",),
    "torque_sign": ("torque_channels",), "torques_swapped": ("torque_channels",), "clock": ("clock",),
}  # fmt: skip


def random_arm(rng: np.random.Generator) -> RobotModel:
    """Three to six joints with right angles between most, and bodies that get lighter."""
    n = int(rng.integers(3, 7))
    rows = [
        DhRow(
            f"j{k}",
            a=float(rng.choice([0.0, rng.uniform(0.1, 0.5)])),
            alpha=float(rng.choice([np.pi / 2, -np.pi / 2, 0.0, rng.uniform(-1.5, 1.5)])),
            d=float(rng.choice([0.0, rng.uniform(0.1, 0.5)])),
        )
        for k in range(n)
    ]
    links = np.zeros((n, 10))
    for k in range(n):
        mass = 8.0 * 0.7**k * rng.uniform(0.5, 1.5)
        com, size = rng.uniform(-0.2, 0.2, 3), rng.uniform(0.05, 0.2, 3)
        tensor = mass * (np.diag(np.sum(size**2) - size**2) + com @ com * np.eye(3) - np.outer(com, com))
        links[k] = [mass, *(mass * com), tensor[0, 0], tensor[0, 1], tensor[1, 1], *tensor[2, :2], tensor[2, 2]]
    scale = np.asarray(0.6 ** np.arange(n), dtype=np.float64)
    viscous, coulomb, offset = (scale * rng.uniform(low, high, n) for low, high in ((1, 6), (1, 6), (-1, 1)))
    dynamics = JointDynamics(0.3 * scale, viscous, coulomb, offset)
    gravity = np.array([0.0, 0.0, -9.81]) if rng.random() < 0.7 else np.array([0.0, 9.81, 0.0])
    joints = chain_from_dh(rows).joints
    return RobotModel("random", joints, gravity, inertial=links, dynamics=dynamics)


def recording(model: RobotModel, rng: np.random.Generator, kind: str, amount: float) -> Channels:
    """Time, position, velocity and torque with noise, and with an error of the data."""
    t = np.arange(int(SECONDS * RATE_HZ)) / RATE_HZ
    q, dq, ddq = np.zeros((3, t.size, model.n))
    for j in np.repeat(np.arange(model.n), 4):
        w, phase, size = 2 * np.pi * rng.uniform(0.1, 0.8), rng.uniform(0, 2 * np.pi), rng.uniform(0.2, 0.6)
        q[:, j] += size * np.sin(w * t + phase)
        dq[:, j] += size * w * np.cos(w * t + phase)
        ddq[:, j] -= size * w**2 * np.sin(w * t + phase)
    base = base_parameters(model)
    tau = regressor(model, base.layout, q, dq, ddq) @ base.theta(standard_parameters(model, base.standard))
    friction = model.dynamics.coulomb if model.dynamics is not None else np.zeros(model.n)
    if kind == "stribeck":
        tau += 0.6 * friction * np.sign(dq) * np.exp(-((dq / 0.15) ** 2))
    if kind == "gears_yield":  # the torque winds up the gear: the motor's position is recorded
        q = q + 2e-3 * tau / np.sqrt(np.mean(tau**2, axis=0))
    size = np.sqrt(np.mean(tau**2, axis=0))
    tau = tau + NOISE * size * rng.standard_normal(tau.shape)
    q = q + ENCODER * rng.standard_normal(q.shape)
    dq = dq + 1e-3 * rng.standard_normal(q.shape)
    wrong = int(rng.integers(1, model.n))
    if kind == "zero":
        q[:, wrong] += amount * np.radians(3.0)
    if kind == "torque_late":
        tau = np.stack([np.interp(t - amount * 4e-3, t, x) for x in tau.T], axis=1)
    if kind == "velocity_late":
        dq = np.stack([np.interp(t - amount * 10e-3, t, x) for x in dq.T], axis=1)
    if kind == "torque_scale":
        tau[:, wrong] *= 1.0 + 0.1 * amount
    if kind == "clock":
        t = t * (1.0 + 0.05 * amount)
    if kind == "torque_sign":
        tau[:, wrong] *= -1.0
    if kind == "torques_swapped":
        tau[:, [wrong - 1, wrong]] = tau[:, [wrong, wrong - 1]]
    return t, q, dq, tau


def one(kind: str, seed: int) -> tuple[Identification, int, int]:
    """Fit one recording; return the result, the values called determined, and those of them that are wrong."""
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    true = random_arm(rng)
    amount = float(rng.choice([-1.0, 1.0]) * rng.uniform(0.5, 1.5))
    believed = true
    if kind in ("tilt", "gravity_turned"):
        angle = np.radians(4.0) * abs(amount) if kind == "tilt" else np.pi * rng.choice([0.5, 1.0])
        turn = rng.uniform(0, 2 * np.pi)
        believed = replace(true, gravity=tilted(true.gravity, angle * np.array([np.cos(turn), np.sin(turn)])))
    t, q, dq, tau = recording(true, rng, kind, amount)
    settings = SignalSettings(min_velocity=believed.standstill_velocity)
    signals = prepare(
        t, q, tau, settings, dq=dq if kind == "velocity_late" or (rng.random() < 0.5 and kind != "clock") else None
    )
    found = identify(believed, base_parameters(believed), signals, settings)
    truth = found.base.theta(standard_parameters(true, found.base.standard))
    determined = np.array([s == "determined" for s in found.status])
    return found, int(determined.sum()), int((determined & (np.abs(found.theta - truth) > 4.0 * found.std)).sum())


def rates(count: int, seed: int = 0, kinds: tuple[str, ...] = KINDS) -> dict[str, Any]:
    """Return for each kind of recording what the tests and the verdicts said, as plain data."""
    out: dict[str, Any] = {}
    for kind in kinds:
        start = time.perf_counter()
        z: list[float] = []
        named: list[str] = []
        verdicts: list[str] = []
        lefts: list[float] = []
        others: list[float] = []  # the least that an error with a certain z left that was not made
        noise: list[float] = []
        determined = wrong = 0
        right = RIGHT.get(kind, ())
        for k in range(count):
            found, d, w = one(kind, 1000 * seed + k)
            determined, wrong = determined + d, wrong + w
            z += [r.z for r in found.diagnosis.tests if r.identifiable > IDENTIFIABLE]
            cause = found.diagnosis.named
            named.append("" if cause is None else cause.kind)
            lefts += [] if cause is None else [cause.left]
            false = [r.left for r in found.diagnosis.tests if r.z > CERTAIN and r.kind not in right]
            others.append(min(false, default=1.0))
            verdicts.append(found.verdict)
            noise += (found.diagnosis.sigma / found.diagnosis.noise).tolist()
        out[kind] = {
            "recordings": count, "tests": len(z), "z_above_4": float(np.mean(np.array(z) > 4.0)),
            "z_above_6": float(np.mean(np.array(z) > 6.0)), "z_max": float(max(z, default=0.0)),
            "named_right": sum(x in right for x in named) / count,
            "named_false": sum(x != "" and x not in right for x in named) / count,
            "named": {x: named.count(x) for x in sorted(set(named))}, "left": sorted(round(x, 2) for x in lefts),
            "least_false_left": round(min(others), 2),
            "verdicts": {v: verdicts.count(v) for v in sorted(set(verdicts))},
            "determined": determined, "wrong": wrong,
            "sigma_over_noise": [float(np.nanquantile(noise, p)) for p in (0.5, 0.99, 1.0)],
            "seconds": round((time.perf_counter() - start) / count, 2),
        }  # fmt: skip
    return out


def main() -> None:
    """Print the rates, or write them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    found = rates(args.count, args.seed, tuple(args.kinds))
    if args.json is not None:
        args.json.write_text(json.dumps(found, indent=1))
    for kind, row in found.items():
        print(kind, json.dumps({k: v for k, v in row.items() if k != "left"}))


if __name__ == "__main__":
    main()
