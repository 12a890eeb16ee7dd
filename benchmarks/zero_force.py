"""Zero-force control of the simulated 9-joint arm: hovering, guiding, wrong payload, estimates of velocity, and cost.

    python benchmarks/zero_force.py [--quick] [--figures FOLDER]

The arm has sensor noise, 20-bit encoders and a cycle of delay between measurement and torque.  The cost of a cycle
stands beside Pinocchio's nonlinear effects alone.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pinocchio as pin

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rt_core.hand_guiding import GuidingState, ZeroForceController, ZeroForceSettings
from rt_core.hand_guiding import rows as c
from service.operations.hand_guiding_replay import GuidingRecord
from service.reports.figures import guiding_figure, guiding_torque_figure
from tests.lab.arms.simulated import twin
from tests.lab.hand_guiding.frames import MS
from tests.lab.hand_guiding.rig import (
    SENSORS,
    Rig,
    T,
    Trace,
    believed,
    exact,
    random_poses,
    robot,
    tip_jacobian,
    with_payload,
)

HAND_N = 20.0
DRIFT_DEG = 1.0
TARGET_US = 20.0
ROUNDS, CYCLES = 101, 200
PAYLOAD_KG, PAYLOAD_ERROR = 3.0, 0.2
OBSERVER_ERROR = {20: 4e-3, 16: 12e-3}  # [rad/s] by bits of the encoders


def poses() -> np.ndarray:
    return random_poses(robot(), 20, seed=1)


def record_of(traces: list[Trace]) -> GuidingRecord:
    joined = [
        np.concatenate([getattr(x, name) for x in traces]) for name in ("t", "q", "dq", "tau", "residual", "margin")
    ]
    states = [state for x in traces for state in x.states]
    return GuidingRecord(*joined, states, np.concatenate([x.force for x in traces]))


def hover(seconds: float) -> dict[str, Any]:
    """Largest drift over all poses [deg], untouched."""
    drift, states = [], []
    for pose in poses():
        rig = Rig(robot(), exact(), start=pose)
        drift.append(0.0)
        for _ in range(round(seconds / T)):
            sample = rig.cycle(rig.frame())
            drift[-1] = max(drift[-1], float(np.degrees(np.abs(sample.true_q - pose)).max()))
        states.append(rig.controller.state)
    return {"seconds": seconds, "drift_deg": max(drift), "guiding": states.count(GuidingState.GUIDING)}


def hand(rig: Rig, seed: int) -> np.ndarray:
    """A force of 20 N at the flange in a direction that it can move in."""
    way = tip_jacobian(rig.truth, rig.sample.true_q) @ np.random.default_rng(seed).normal(size=rig.arm.n)
    force: np.ndarray = HAND_N * way / np.linalg.norm(way)
    return force


def guide(share: float) -> dict[str, Any]:
    """Push for 1.5 s at each pose, let go; how far, how fast, and the time to standstill [s]."""
    way, speed, stop, good = [], [], [], 0
    for k, pose in enumerate(poses()):
        rig = Rig(robot(), exact(), ZeroForceSettings(friction_share=share), pose)
        rig.run(2.1)
        rig.push(hand(rig, k))
        pushed = rig.run(1.5)
        rig.push(np.zeros(3))
        after = rig.run(5.0)
        moving = np.flatnonzero(np.abs(after.dq).max(axis=1) > 1e-3)
        way.append(float(np.abs(pushed.q[-1] - pushed.q[0]).max()))
        speed.append(float((np.abs(pushed.dq) / rig.controller._limits[c.SPEED]).max()))
        stop.append((moving[-1] + 1) * T if moving.size else 0.0)
        good += rig.controller.state is GuidingState.GUIDING and not after.dq[-200:].any()
    return {"share": share, "least_way_rad": min(way), "speed": max(speed), "stop_s": max(stop), "at_rest": good}


def payload(pushed: bool) -> dict[str, Any]:
    """With 20 % too much and too little: how many are refused, get an alarm or hold; largest speed and way.

    The way is from the beginning, or from where the hand has let go.
    """
    refused = alarms = still = rest = 0
    speed = way = 0.0
    arm = believed(with_payload(robot(), PAYLOAD_KG))
    for k, pose in enumerate(poses()):
        for sign in (-1.0, 1.0):
            rig = Rig(with_payload(robot(), PAYLOAD_KG * (1.0 + sign * PAYLOAD_ERROR)), arm, start=pose)
            limit = rig.controller._limits[c.SPEED]
            free = [rig.run(2.1)]
            if pushed and rig.controller.state is GuidingState.GUIDING:
                rig.push(hand(rig, k))
                trace = rig.run(1.0)
                speed = max(speed, float((np.abs(trace.dq) / limit).max()))
                rig.push(np.zeros(3))
                free, pose = [], rig.sample.true_q.copy()
            free.append(rig.run(10.0))
            for _ in range(10):  # what has broken away goes on until its alarm
                resting = bool(np.abs(free[-1].dq[-500:]).max() < 1e-3)
                if resting or rig.controller.state is not GuidingState.GUIDING:
                    break
                free.append(rig.run(1.0))
            speed = max(speed, *(float((np.abs(x.dq) / limit).max()) for x in free))
            way = max(way, *(float(np.abs(x.q - pose).max()) for x in free))
            guiding = rig.controller.state is GuidingState.GUIDING
            refused += rig.controller._refused
            alarms += not guiding and not rig.controller._refused
            still += guiding and resting
            rest += resting
    return {
        "pushed": pushed,
        "sessions": 2 * len(poses()),
        "refused": refused,
        "alarms": alarms,
        "at_rest_without": still,
        "at_rest": rest,
        "speed": speed,
        "way_rad": way,
    }


def velocities(bits: int) -> list[dict[str, Any]]:
    """Error of velocity estimates of a guided arm [rad/s], and how late they are [ms]."""
    sensors = SENSORS.model_copy(update={"encoder_bits": bits})
    rig = Rig(robot(), exact(), start=poses()[6], sensors=sensors, channels=())
    rig.run(2.1)
    rng = np.random.default_rng(3)
    q, dq, ddq, observed, measured = [], [], [], [], []
    for k in range(6000):
        if k % 300 == 0:
            rig.push(HAND_N * rng.normal(size=3))
        s = rig.sample
        q.append(s.q.copy()), dq.append(s.true_dq.copy()), ddq.append(s.true_ddq.copy()), measured.append(s.dq.copy())
        rig.cycle(rig.frame())
        observed.append(rig.controller.status.velocity)
    position, true, rate = np.array(q), np.array(dq)[50:], np.array(ddq)[50:]
    difference = np.vstack((np.zeros(9), np.diff(position, axis=0))) / T
    discount = float(rig.controller._scalars[c.DISCOUNT])
    low, track = np.zeros_like(difference), np.zeros_like(difference)
    x, v = position[0].copy(), np.zeros(9)
    for k in range(1, position.shape[0]):
        low[k] = discount * low[k - 1] + (1.0 - discount) * difference[k]
        error = position[k] - (x + T * v)
        x, v = x + T * v + (1.0 - discount**2) * error, v + (1.0 - discount) ** 2 / T * error
        track[k] = v
    estimates = {
        "measured by the drive": np.array(measured),
        "observer": np.array(observed),
        "difference": difference,
        "difference, low-passed": low,
        "observer of second order": track,
    }
    moving = np.abs(true) > 0.02
    out = []
    for name, values in estimates.items():
        error = values[50:] - true
        lag = -float((error * rate)[moving].sum() / (rate**2)[moving].sum())
        out.append(
            {
                "bits": bits,
                "name": name,
                "rms": float(np.sqrt(np.mean(error[moving] ** 2))),
                "still_rms": float(np.sqrt(np.mean(error[~moving] ** 2))),
                "lag_ms": 1e3 * lag,
            }
        )
    return out


def cost(name: str, channels: tuple[str, ...]) -> dict[str, Any]:
    """Processor time of a cycle beside Pinocchio's nonlinear effects, in turn."""
    model = robot(name)
    controller = ZeroForceController(exact(name), ZeroForceSettings(speed_share=1.0, frozen_s=np.inf))
    rig = Rig(model, exact(name), start=random_poses(model, 1)[0], channels=channels)
    rig.run(0.05)
    frames = []
    for k in range(ROUNDS * CYCLES):
        frame = rig.frame()
        frame.seq, frame.t_bus_ns = k, k * MS
        frames.append(frame)
    oracle = twin(model)
    store = oracle.createData()
    q, dq = frames[0].q, np.full(model.n, 0.1)
    own, peer = [], []
    at = 0
    for _ in range(ROUNDS):
        begin = time.thread_time()
        for frame in frames[at : at + CYCLES]:
            controller.step(frame)
        own.append((time.thread_time() - begin) / CYCLES)
        at += CYCLES
        begin = time.thread_time()
        for _ in range(CYCLES):
            pin.nonLinearEffects(oracle, store, q, dq)
        peer.append((time.thread_time() - begin) / CYCLES)
    assert controller.state is GuidingState.GUIDING, controller.status
    return {
        "robot": name,
        "joints": model.n,
        "velocity": "measured" if "dq" in channels else "observed",
        "cycle_us": 1e6 * float(np.median(own)),
        "pinocchio_us": 1e6 * float(np.median(peer)),
    }


def story(folder: Path) -> None:
    """Figures of an operator who guides the arm to and fro, and of one whose model is wrong."""
    folder.mkdir(parents=True, exist_ok=True)
    rig = Rig(robot(), exact(), start=poses()[6])
    traces = [rig.run(3.0)]
    for k, seconds in enumerate((1.2, 0.8, 1.5, 1.0)):
        rig.push(hand(rig, 10 + k))
        traces.append(rig.run(seconds))
        rig.push(np.zeros(3))
        traces.append(rig.run(1.5))
    rig.controller.stop()
    traces.append(rig.run(1.5))
    record = record_of(traces)
    (folder / "guiding.png").write_bytes(guiding_figure(robot(), record, "guided by hand, 20 N at the flange"))
    (folder / "guiding_torque.png").write_bytes(guiding_torque_figure(robot(), record))
    rig = Rig(with_payload(robot(), 2.4), believed(with_payload(robot(), 2.0)), start=poses()[9])
    traces = [rig.run(2.5)]
    rig.push(hand(rig, 10))
    traces.append(rig.run(1.0))
    rig.push(np.zeros(3))
    traces.append(rig.run(6.0))
    record = record_of(traces)
    (folder / "payload.png").write_bytes(guiding_figure(robot(), record, "payload of 2.4 kg, 2 kg in the model"))
    (folder / "payload_torque.png").write_bytes(guiding_torque_figure(robot(), record))


def run(quick: bool) -> tuple[dict[str, Any], list[str], list[str]]:
    """All figures; lines to print, and what misses its target."""
    problems: list[str] = []
    lines: list[str] = []

    def line(text: str, good: bool = True) -> None:
        lines.append(text)
        if not good:
            problems.append(text)

    h = hover(5.0 if quick else 60.0)
    line(
        f"hovering, 20 poses, {h['seconds']:g} s: drifts at most {h['drift_deg']:.2g} deg (target {DRIFT_DEG:g}), "
        f"{h['guiding']} still guiding",
        h["drift_deg"] < DRIFT_DEG and h["guiding"] == 20,
    )
    guided = [guide(share) for share in (0.75, 1.0)]
    for g in guided:
        line(
            f"hand of {HAND_N:g} N for 1.5 s, {g['share']:.0%} of friction asked for: moves at least "
            f"{g['least_way_rad']:.2f} rad, at {g['speed']:.0%} of the speed limit, at rest {g['stop_s']:.1f} s later "
            f"at most, {g['at_rest']} of 20",
            g["least_way_rad"] > 0.1 and g["at_rest"] == 20 and g["speed"] < 1.0,
        )
    loads = [payload(pushed) for pushed in (False, True)]
    for p in loads:
        what = "after a push" if p["pushed"] else "untouched"
        line(
            f"payload wrong by {PAYLOAD_ERROR:.0%} of {PAYLOAD_KG:g} kg, {what}, {p['sessions']} sessions: "
            f"{p['refused']} refused at the first sample, {p['alarms']} alarms, "
            f"{p['at_rest_without']} at rest without, at rest in the end {p['at_rest']}, "
            f"{p['speed']:.0%} of the speed limit, {p['way_rad']:.3f} rad at most",
            p["refused"] + p["alarms"] + p["at_rest_without"] == p["sessions"] and p["speed"] < 1.0,
        )
    estimates = [e for bits in (20, 16) for e in velocities(bits)]
    for e in estimates:
        line(
            f"velocity, {e['bits']} bits, {e['name']}: error {1e3 * e['rms']:.2f} mrad/s moving, "
            f"{1e3 * e['still_rms']:.2f} at rest, {e['lag_ms']:.2f} ms late"
            + (f" (target {1e3 * OBSERVER_ERROR[e['bits']]:g} mrad/s, 1 ms)" if e["name"] == "observer" else ""),
            e["name"] != "observer" or (e["rms"] < OBSERVER_ERROR[e["bits"]] and e["lag_ms"] < 1.0),
        )
    costs = [cost(name, ch) for name in ("space6", "arm7", "arm9") for ch in (("dq", "tau"), ("tau",))]
    for k in costs:
        line(
            f"cycle, {k['joints']} joints, velocity {k['velocity']}: {k['cycle_us']:.1f} us (target {TARGET_US:g}), "
            f"Pinocchio's nonlinear effects alone {k['pinocchio_us']:.1f} us",
            k["cycle_us"] < TARGET_US,
        )
    result = {"hover": h, "guide": guided, "payload": loads, "velocity": estimates, "cost": costs}
    return result, lines, problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="hover for 5 s instead of 60")
    parser.add_argument("--figures", type=Path, help="also write figures of a session into this folder")
    arguments = parser.parse_args()
    if arguments.figures is not None:
        story(arguments.figures)
    _, lines, problems = run(arguments.quick)
    print(*lines, sep="\n")
    for problem in problems:
        print(f"MISSED: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
