"""Are wrong values ever called determined?  Random nonsense recordings, by kind of fault.

A simulated or real recording is damaged at random: channels permuted, turned, scaled, shifted, clipped, wrapped,
masked, merged, late.  Then it is identified as a user would, with the checks of an import.  Counted are the values
called `determined` and those of them that are more than four stated standard deviations (and 2 %) from the truth; of
real arms the truth is the fit to the undamaged recording, with its own standard deviations.

Real recordings are taken from THETAD_DATA where that is set.

    THETAD_DATA=../shared/data python benchmarks/nonsense.py --jobs 2 --json nonsense.json
    python benchmarks/nonsense.py --merge first.json second.json

Parts of a run (`--from`, `--count`) are merged into one table.  The exit code is 1 if more than 1 % are wrong.
"""

import os

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import argparse
import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from drivers.files.importing.checks import fault_text, plausibility
from drivers.files.importing.importer import load_data
from drivers.files.recordings.recording import Recording, RecordingMeta
from drivers.files.robots.file import RobotFile, load_robot
from rt_core.channels import position_faults, rolls_over
from rt_core.identification.preprocess import DataError
from rt_core.model.base import BaseParameters, base_parameters
from rt_core.model.parameters import standard_parameters
from rt_core.types import FloatArray
from service.models.origin import Dataset
from service.operations.identify import identify_recording, signal_settings
from sim_backend.arm.robot import SimulatedArm
from sim_backend.arm.settings import MotionSettings, SimSettings

ARMS = ("space6", "arm7")
#: Mapping and robot file, and the recording below THETAD_DATA.
REAL = {
    "staubli_tx40": "staubli_tx40/tx40.npz",
    "franka_panda": "franka_panda/panda_exciting.npz",
    "kuka_lwr4": "kuka_lwr4/measurements_2.npz",
}
_SECONDS = 40.0
_RATE_HZ = 200.0  # real recordings are averaged down to it
_LIMIT = 4.0  # stated standard deviations
_ALLOWED = 0.01  # share of the determined values that may be wrong
_RELATIVE = 0.02

Channels = dict[str, FloatArray]
Damage = Callable[[Channels, np.random.Generator], None]


def _joint(c: Channels, rng: np.random.Generator) -> int:
    return int(rng.integers(c["q"].shape[1]))


def _pair(c: Channels, rng: np.random.Generator) -> list[int]:
    return [int(j) for j in rng.choice(c["q"].shape[1], 2, replace=False)]


def torques_swapped(c: Channels, rng: np.random.Generator) -> None:
    i, j = _pair(c, rng)
    c["tau"][:, [i, j]] = c["tau"][:, [j, i]]


def torques_permuted(c: Channels, rng: np.random.Generator) -> None:
    c["tau"] = c["tau"][:, rng.permutation(c["tau"].shape[1])]


def positions_swapped(c: Channels, rng: np.random.Generator) -> None:
    i, j = _pair(c, rng)
    for name in ("q", "dq"):
        if name in c:
            c[name][:, [i, j]] = c[name][:, [j, i]]


def joints_swapped(c: Channels, rng: np.random.Generator) -> None:
    i, j = _pair(c, rng)
    for name in c:
        c[name][:, [i, j]] = c[name][:, [j, i]]


def torque_turned(c: Channels, rng: np.random.Generator) -> None:
    c["tau"][:, _joint(c, rng)] *= -1.0


def position_turned(c: Channels, rng: np.random.Generator) -> None:
    j = _joint(c, rng)
    for name in ("q", "dq"):
        if name in c:
            c[name][:, j] *= -1.0


def torque_scaled(c: Channels, rng: np.random.Generator) -> None:
    c["tau"][:, _joint(c, rng)] *= float(rng.choice([0.5, 0.8, 1.1, 1.3, 2.0]))


def torque_late(c: Channels, rng: np.random.Generator) -> None:
    c["tau"] = np.roll(c["tau"], int(rng.integers(1, 15)), axis=0)


def torque_of_one_late(c: Channels, rng: np.random.Generator) -> None:
    j = _joint(c, rng)
    c["tau"][:, j] = np.roll(c["tau"][:, j], int(rng.integers(1, 15)))


def torque_clipped(c: Channels, rng: np.random.Generator) -> None:
    j = _joint(c, rng)
    limit = float(rng.uniform(0.4, 0.8)) * float(np.abs(c["tau"][:, j]).max())
    c["tau"][:, j] = np.clip(c["tau"][:, j], -limit, limit)


def torque_spikes(c: Channels, rng: np.random.Generator) -> None:
    j = _joint(c, rng)
    at = rng.choice(c["tau"].shape[0], 100, replace=False)
    c["tau"][at, j] += 5.0 * np.abs(c["tau"][:, j]).max() * rng.choice([-1.0, 1.0], at.size)


def torque_held(c: Channels, rng: np.random.Generator) -> None:
    j = _joint(c, rng)
    first = int(rng.integers(c["tau"].shape[0] // 2))
    c["tau"][first : first + c["tau"].shape[0] // 4, j] = c["tau"][first, j]


def torque_merged(c: Channels, rng: np.random.Generator) -> None:
    i, j = _pair(c, rng)
    c["tau"][:, i] = 0.5 * (c["tau"][:, i] + c["tau"][:, j])


def torque_copied(c: Channels, rng: np.random.Generator) -> None:
    i, j = _pair(c, rng)
    c["tau"][:, i] = c["tau"][:, j]


def position_wrapped(c: Channels, rng: np.random.Generator) -> None:
    j = _joint(c, rng)
    middle = float(np.median(c["q"][:, j]))
    c["q"][:, j] = np.mod(c["q"][:, j] - middle, 2.0 * np.pi)


def position_dropouts(c: Channels, rng: np.random.Generator) -> None:
    j = _joint(c, rng)
    for first in rng.choice(c["q"].shape[0] - 5, int(rng.integers(1, 40)), replace=False):
        c["q"][first : first + int(rng.integers(1, 4)), j] = 0.0


def zero_off(c: Channels, rng: np.random.Generator) -> None:
    c["q"][:, _joint(c, rng)] += np.radians(float(rng.uniform(2.0, 20.0))) * float(rng.choice([-1.0, 1.0]))


def zero_moves(c: Channels, rng: np.random.Generator) -> None:
    j, half = _joint(c, rng), c["q"].shape[0] // 2
    c["q"][half:, j] += np.radians(float(rng.uniform(2.0, 10.0)))


def position_scaled(c: Channels, rng: np.random.Generator) -> None:
    j = _joint(c, rng)
    factor = float(rng.choice([0.9, 1.1, 1.5]))
    for name in ("q", "dq"):
        if name in c:
            c[name][:, j] *= factor


def position_merged(c: Channels, rng: np.random.Generator) -> None:
    i, j = _pair(c, rng)
    for name in ("q", "dq"):
        if name in c:
            c[name][:, i] = c[name][:, i] + c[name][:, j]


def velocity_late(c: Channels, rng: np.random.Generator) -> None:
    if "dq" in c:
        c["dq"] = np.roll(c["dq"], int(rng.integers(2, 15)), axis=0)


def velocity_scaled(c: Channels, rng: np.random.Generator) -> None:
    if "dq" in c:
        c["dq"][:, _joint(c, rng)] *= float(rng.choice([-1.0, 0.8, 1.3]))


DAMAGES: dict[str, Damage] = {
    f.__name__: f
    for f in (
        torques_swapped, torques_permuted, positions_swapped, joints_swapped, torque_turned, position_turned,
        torque_scaled, torque_late, torque_of_one_late, torque_clipped, torque_spikes, torque_held, torque_merged,
        torque_copied, position_wrapped, position_dropouts, zero_off, zero_moves, position_scaled, position_merged,
        velocity_late, velocity_scaled,
    )
}  # fmt: skip
#: Faults that no recording can tell: a common factor of all torques, and the first and last joint's zero.
GRAVITIES = ("base_tilted", "base_turned_over")


@lru_cache
def _base(arm: str) -> BaseParameters:
    return base_parameters(load_robot(arm).model)


@lru_cache
def _simulated(arm: str, seed: int) -> tuple[RobotFile, Recording]:
    robot = load_robot(arm)
    simulated = SimulatedArm(
        robot.model, SimSettings(seed=seed, rate_hz=_RATE_HZ), MotionSettings(seed=seed), seed=seed
    )
    data = simulated.simulate(_SECONDS)
    channels = {name: np.array(data.channels[name]) for name in ("q", "dq", "tau")}
    return robot, _recording(robot, data.t, channels)


@lru_cache
def _real(arm: str) -> tuple[RobotFile, Recording, FloatArray, FloatArray]:
    """Return robot, recording, and what the undamaged recording says (p,) with its standard deviations (p,)."""
    robot = load_robot(arm)
    full = load_data(Path(os.environ["THETAD_DATA"]) / REAL[arm], arm)[0]
    k = max(1, round(1.0 / (_RATE_HZ * float(np.median(np.diff(full.t))))))
    n = full.samples // k * k
    t, *values = (
        x[:n].reshape(n // k, k, -1).mean(axis=1) for x in (full.t, *(full.channels[name] for name in full.channels))
    )
    recording = _recording(robot, t[:, 0], dict(zip(full.channels, values, strict=True)))
    found = identify_recording(Dataset(recording, robot, signal_settings(robot)), base=_base(arm))
    return robot, recording, found.theta, found.std


def _recording(robot: RobotFile, t: FloatArray, channels: Channels) -> Recording:
    names = tuple(joint.name for joint in robot.model.joints)
    units = tuple("rad" if joint.kind == "revolute" else "m" for joint in robot.model.joints)
    meta = RecordingMeta(robot.model.name, names, units, 1.0 / float(np.median(np.diff(t))))
    t_ns = np.round(t * 1e9).astype(np.int64)
    return Recording(t, t_ns, np.arange(t.size, dtype=np.int64), channels, meta)


def refused(recording: Recording, robot: RobotFile) -> str | None:
    """Return why an import would refuse the recording; None if it would not."""
    turns = [2.0 * np.pi if unit == "rad" else 0.0 for unit in recording.units]
    for fault in position_faults(recording.t, recording.channels["q"], turns):
        text = fault_text(fault, recording.t, recording.joint_names, recording.units, False)
        if text is not None:
            return text
    if any(rolls_over(recording.channels["tau"][:, j]) for j in range(recording.n)):
        return "torque rolls over"
    wrong, _ = plausibility(recording.t, recording.channels, recording.joint_names, recording.units, robot.model.joints)
    return wrong[0] if wrong else None


def one(task: tuple[str, int, str, str]) -> dict[str, Any]:
    """Damage and identify one recording: arm, seed, kind of damage, method."""
    arm, seed, kind, method = task
    from rt_core.identification.estimate import EstimatorOptions

    rng = np.random.default_rng(seed)
    robot, recording, *known_by = _real(arm) if arm in REAL else _simulated(arm, seed % 4)
    channels = {name: values.copy() for name, values in recording.channels.items()}
    if rng.random() < 0.5:
        channels.pop("dq", None)
    if kind in DAMAGES:
        DAMAGES[kind](channels, rng)
    elif kind == "base_tilted":
        from rt_core.model.urdf import rotation_from_rpy

        turn = rotation_from_rpy(np.radians(rng.uniform(-40.0, 40.0, 3)))
        robot = replace(robot, model=replace(robot.model, gravity=turn @ robot.model.gravity))
    elif kind == "base_turned_over":
        robot = replace(robot, model=replace(robot.model, gravity=-robot.model.gravity))
    damaged = _recording(robot, recording.t, channels)
    base = None if kind in GRAVITIES else _base(arm)  # the directions of gravity decide what can be told
    out: dict[str, Any] = {"arm": arm, "seed": seed, "kind": kind, "determined": 0, "wrong": 0, "reason": ""}
    since = time.perf_counter()
    reason = refused(damaged, robot)
    if reason is not None:
        return out | {"verdict": "refused", "reason": reason, "seconds": time.perf_counter() - since}
    try:
        found = identify_recording(
            Dataset(damaged, robot, signal_settings(robot)), options=EstimatorOptions(method=method), base=base
        )  # type: ignore[arg-type]
    except DataError as error:
        return out | {"verdict": "refused", "reason": str(error), "seconds": time.perf_counter() - since}
    known = np.array([s == "determined" for s in found.status])
    if known_by:
        # a tilted arm has other parameters, which the undamaged recording does not tell
        values, deviations = (dict(zip(_base(arm).names, x, strict=True)) for x in known_by)
        truth, doubt = (np.array([d.get(name, np.nan) for name in found.base.names]) for d in (values, deviations))
        known &= np.isfinite(truth)
    else:
        truth, doubt = found.base.theta(standard_parameters(robot.model, found.base.standard)), np.zeros(known.size)
    error = np.abs(found.theta - truth)
    wrong = known & (error > _LIMIT * np.hypot(found.std, doubt)) & (error > _RELATIVE * np.abs(truth)) & (error > 2e-3)
    return out | {
        "verdict": found.verdict,
        "reason": "; ".join((*found.notes, *found.reasons)),
        "determined": int(known.sum()),
        "wrong": int(wrong.sum()),
        "values": int(known.size),
        "names": [found.base.names[k] for k in np.flatnonzero(wrong)],
        "seconds": time.perf_counter() - since,
    }


def table(results: list[dict[str, Any]]) -> str:
    """Return the counts by kind as text."""
    by_kind: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in results:
        by_kind[row["kind"]].append(row)
    heads = ("runs", "refused", "rejected", "doubtful", "weak, ok", "determined", "wrong", "in runs")
    lines = [f"{'kind':22s}" + "".join(f"{head:>11s}" for head in heads)]
    for kind, rows in sorted(by_kind.items()):
        verdicts = [row["verdict"] for row in rows]
        counts = (
            len(rows),
            verdicts.count("refused"),
            verdicts.count("not_explained"),
            verdicts.count("doubtful"),
            verdicts.count("weak_excitation") + verdicts.count("ok"),
            sum(r["determined"] for r in rows),
            sum(r["wrong"] for r in rows),
            sum(r["wrong"] > 0 for r in rows),
        )
        lines.append(f"{kind:22s}" + "".join(f"{count:11d}" for count in counts))
    total = sum(r["determined"] for r in results)
    lines.append(
        f"{len(results)} recordings: {sum(r['wrong'] for r in results)} of {total} determined values wrong, in "
        f"{sum(r['wrong'] > 0 for r in results)} recordings"
    )
    return "\n".join(lines)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000, help="recordings (2000)")
    parser.add_argument("--from", dest="first", type=int, default=0, help="number of the first recording (0)")
    parser.add_argument("--merge", nargs="+", type=Path, help="only print the table of these results")
    parser.add_argument("--method", default="wls", help="estimator (wls)")
    parser.add_argument("--kinds", nargs="+", help="kinds of damage (all, and none)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (2)")
    parser.add_argument("--json", type=Path, help="write every result here")
    args = parser.parse_args()
    results: list[dict[str, Any]] = []
    if args.merge:
        for path in args.merge:
            results += json.loads(path.read_text())
    else:
        arms = (*ARMS, *(REAL if "THETAD_DATA" in os.environ else ()))
        kinds = args.kinds or ["none", *DAMAGES, *GRAVITIES]
        numbers = range(args.first, args.first + args.count)
        tasks = [(arms[k // len(kinds) % len(arms)], k, kinds[k % len(kinds)], args.method) for k in numbers]
        with ProcessPoolExecutor(args.jobs, mp_context=get_context("spawn")) as pool:
            for result in pool.map(one, tasks, chunksize=4):
                results.append(result)
                if args.json is not None and len(results) % 50 == 0:
                    args.json.write_text(json.dumps(results, indent=1))
    if args.json is not None:
        args.json.write_text(json.dumps(results, indent=1))
    print(table(results))
    if sum(r["wrong"] for r in results) > _ALLOWED * sum(r["determined"] for r in results):
        sys.exit(1)


if __name__ == "__main__":
    main()
