"""Zero-force control through a daemon: the simulated 9-joint arm at 1 kHz, guided by the verb `zero_force`.

    python benchmarks/zero_force_daemon.py [--poses 20] [--hover 60] [--figures FOLDER]
        [--only hover payload push full loaded]

At each pose the arm is brought there by a run, armed again, and guided: untouched; pushed by 20 N along each axis; the
same with all of the friction asked for; with a model whose payload is wrong by 20 % of 3 kg, untouched and pushed.
Positions are those of the frames that the daemon publishes.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from drivers.files.robots.file import RobotFile, load_robot
from rt_core.identification.preprocess import SignalSettings
from rt_core.model.base import base_parameters
from rt_core.model.parameters import standard_parameters
from rt_core.model.robot import RobotModel
from service.client import ClientTimeoutError, Control, ControlError, FrameMessage, Runs, Subscriber
from service.config.load import parse_config
from service.io.trajectory_file import Trajectory
from service.models.document import load_model, online_document, write_model
from service.reports.hand_guiding import draw_session
from service.supervisor.launch import DaemonProcess
from tests.lab.hand_guiding.rig import random_poses, with_payload

ARM, RATE_HZ, HAND_N = "arm9", 1000.0, 20.0
PAYLOAD_KG, SHARE = 3.0, 0.2
FIRST_S, PUSH_S, EACH_S = 3.0, 1.0, 5.0  # of the pushes: when, how long, and from one to the next
DRIFT_DEG, REST, REST_S = 1.0, 5e-3, 0.2
PERMIT_S = 600.0
#: What can be measured.
WHAT = ("hover", "payload", "push", "full", "loaded")


def push(k: int) -> dict[str, Any]:
    """A hand along axis `k` of the base, at its time after the drives went into torque mode."""
    force = [HAND_N if axis == k else 0.0 for axis in range(3)]
    return {"kind": "push", "after_s": FIRST_S + k * EACH_S, "duration_s": PUSH_S, "force": force}


def write_truth(folder: Path, robot: RobotFile, believed: RobotModel, name: str) -> Path:
    """Write a model file with the parameters of `believed`."""
    base = base_parameters(robot.model)
    theta = base.theta(standard_parameters(believed, base.standard))
    covariance = np.diag((1e-3 * np.maximum(np.abs(theta), 1e-3)) ** 2)
    settings = SignalSettings(10.0, min_velocity=robot.model.standstill_velocity)
    found = {"theta": theta, "std": np.sqrt(np.diag(covariance)), "covariance": covariance}
    found["status"] = ("estimated",) * len(base)
    document = online_document(robot, settings, found, {"arm": ARM, "frames": [0, 1]})
    write_model(document, folder / name)
    return folder / name


class Bench:
    """A daemon with the arm, brought from pose to pose."""

    def __init__(self, folder: Path, poses: np.ndarray, pushed: bool) -> None:
        self.robot = load_robot(ARM)
        self.folder = folder
        self.limit = 0.25 * np.array([joint.velocity for joint in self.robot.model.joints])
        model = write_truth(folder, self.robot, self.robot.model, "truth.yaml")
        arm = {
            "name": ARM,
            "robot": ARM,
            "model": str(model),
            "driver": {
                "kind": "sim",
                "mode": "csp",
                "start": poses[0].tolist(),
                "settings": {"rate_hz": RATE_HZ},
                "faults": [push(k) for k in range(3)] if pushed else [],
            },
            "safety": {"permit_max_s": 3600.0, "approach": 0.6, "silence_s": 2.0, "heartbeat_s": 5.0},
            "guiding": {},
            "state": {"resume": False},
            "recorder": {"enabled": False, "directory": str(folder / "recordings")},
        }
        ports = dict.fromkeys(("frames_port", "estimates_port", "control_port"), 0) | {"http": False}
        config = parse_config({"daemon": {"state_dir": str(folder / "state"), **ports}, "arm": [arm]}, "bench", folder)
        self.daemon = DaemonProcess(config, folder / "log").start(timeout_s=240.0)
        self.control = Control(self.daemon.endpoints["control"])
        self.runs = Runs(self.control, ARM)
        self.stream = Subscriber(self.daemon.endpoints["frames"], [f"{ARM}/frame"], timeout_s=30.0)
        self.stream.receive()
        self.rows: list[tuple[int, np.ndarray, np.ndarray]] = []

    def close(self) -> None:
        self.control.close()
        self.stream.close()
        self.daemon.stop()

    def _collect(self, _said: object = None) -> None:
        try:
            while isinstance(message := self.stream.receive(0.0), FrameMessage):
                frame = message.frame
                if frame.q is not None and frame.dq is not None:
                    self.rows.append((frame.t_bus_ns, frame.q, frame.dq))
        except ClientTimeoutError:
            return

    def permit(self) -> str:
        until = time.monotonic() + 20.0
        while True:
            try:
                return self.runs.arm(PERMIT_S)
            except ControlError as error:
                if "still stopping" not in str(error) or time.monotonic() > until:
                    raise
                time.sleep(0.1)

    def go(self, pose: np.ndarray) -> None:
        """Bring the arm to a pose in two runs, each too short for the pushes to begin."""
        newest = self.stream.newest()
        assert isinstance(newest, FrameMessage)
        assert newest.frame.q is not None
        self._go(0.5 * (newest.frame.q + pose))
        self._go(pose)

    def _go(self, pose: np.ndarray) -> None:
        """Bring the arm to a pose, by a trajectory that stands there."""
        joints = tuple(joint.name for joint in self.robot.model.joints)
        there = Trajectory(joints=joints, units=("rad",) * len(joints), table=np.tile(pose, (11, 1)), rate_hz=100.0)
        done = self.runs.run(there.as_message(), self.permit())
        assert done["run"]["outcome"] == "completed", done

    def guide(self, **args: Any) -> dict[str, Any]:
        """Guide once; what the daemon says of it, with `t`, `q`, `dq` of the frames in torque mode."""
        permit = self.permit()
        self._collect()
        self.rows.clear()
        done = self.runs.guide(permit, on_progress=self._collect, **args)["guiding"]
        self._collect()
        t = 1e-9 * (np.array([row[0] for row in self.rows]) - (done["began_ns"] or 0))
        kept = (t >= 0.0) & (t <= done["t_s"] + 0.5)
        done |= {"t": t[kept], "q": np.array([r[1] for r in self.rows])[kept]}
        done["dq"] = np.array([r[2] for r in self.rows])[kept]
        done["speed"] = float((np.abs(done["dq"]) / self.limit).max())
        done["lost"] = int(np.sum(np.diff(t) > 1.5 / RATE_HZ))
        return done


def hover(bench: Bench, poses: np.ndarray, seconds: float) -> tuple[str, bool]:
    drift, good = [], 0
    for pose in poses:
        bench.go(pose)
        done = bench.guide(for_s=seconds)
        drift.append(float(np.degrees(np.abs(done["q"] - done["q"][0]).max())))
        good += done["outcome"] == "completed"
        print(f"  pose {len(drift)}: {drift[-1]:.4f} deg, {done['outcome']}, {done['lost']} lost", file=sys.stderr)
    text = (
        f"hovering, {len(poses)} poses, {seconds:g} s: drifts at most {max(drift):.2g} deg (target {DRIFT_DEG:g}), "
        f"{good} still guiding at the end"
    )
    return text, max(drift) < DRIFT_DEG and good == len(poses)


def pushes(bench: Bench, poses: np.ndarray, share: float) -> tuple[str, bool]:
    way, speed, stop, good = [], [], [], 0
    for pose in poses:
        bench.go(pose)
        done = bench.guide(for_s=FIRST_S + 3 * EACH_S, friction_share=share)
        t, q, dq = done["t"], done["q"], done["dq"]
        best = 0.0
        for k in range(3):
            begin = FIRST_S + k * EACH_S
            during, after = (t >= begin) & (t < begin + PUSH_S), (t >= begin + PUSH_S) & (t < begin + EACH_S)
            best = max(best, float(np.abs(q[during] - q[during][0]).max()))
            moving = np.flatnonzero(np.abs(dq[after]).max(axis=1) > REST)
            stop.append(float(t[after][moving[-1]] - begin - PUSH_S) if moving.size else 0.0)
        way.append(best)
        speed.append(done["speed"])
        good += done["outcome"] == "completed"
        print(f"  pose {len(way)}: {best:.2f} rad, {speed[-1]:.0%}, {done['reason']}", file=sys.stderr)
    text = (
        f"hand of {HAND_N:g} N for {PUSH_S:g} s along each axis, {share:.0%} of friction asked for, {len(poses)} "
        f"poses: moves at least {min(way):.2f} rad, at most {max(speed):.0%} of the speed limit, at rest "
        f"{max(stop):.1f} s later at most, {good} guiding to the end"
    )
    return text, min(way) > 0.1 and max(speed) < 1.0 and good == len(poses) and max(stop) < EACH_S - PUSH_S - 0.1


def at_end(done: dict[str, Any], seconds: float) -> str:
    """What the arm does at the end of a session that nothing has stopped: an error of the model may have set it off."""
    last = (done["t"] > seconds - REST_S) & (done["t"] <= seconds)
    if last.any() and np.median(np.abs(done["dq"][last]), axis=0).max() < REST:
        return "at rest"
    return "within the margin" if (np.abs(done["residual"]) < np.array(done["margin"])).all() else "unseen"


def payload(bench: Bench, poses: np.ndarray, pushed: bool) -> tuple[str, bool]:
    seconds = FIRST_S + 3 * EACH_S if pushed else 10.0
    refused = alarms = still = within = 0
    speed = way = 0.0
    for sign in (-1.0, 1.0):
        believed = with_payload(bench.robot.model, sign * SHARE * PAYLOAD_KG)
        file = load_model(write_truth(bench.folder, bench.robot, believed, f"payload{sign:+.0f}.yaml"))
        model = {
            "theta": file.theta.tolist(), "constants": file.base.layout.shape[:, 0].tolist(),
            "robot": file.robot.sha256, "name": file.path.name,
        }  # fmt: skip
        for pose in poses:
            bench.go(pose)
            done = bench.guide(for_s=seconds, model=model)
            refused += done["t_s"] == 0.0
            alarms += done["outcome"] == "stopped" and done["t_s"] > 0.0
            ended = ""
            if done["outcome"] == "completed":
                ended = at_end(done, seconds)
                still += ended == "at rest"
                within += ended == "within the margin"
            speed = max(speed, done["speed"])
            way = max(way, float(np.abs(done["q"] - done["q"][0]).max()))
            print(
                f"  {sign:+.0f}: {done['outcome']} after {done['t_s']:.2f} s, {done['reason']} {ended}", file=sys.stderr
            )
    what = "pushed along each axis" if pushed else "untouched"
    sessions = 2 * len(poses)
    unseen = sessions - refused - alarms - still - within
    text = (
        f"payload wrong by {SHARE:.0%} of {PAYLOAD_KG:g} kg, less and more, {what}, {sessions} sessions of "
        f"{seconds:g} s: {refused} refused at the first sample, {alarms} alarms, {still} at rest at the end, {within} "
        f"moving with a residual within the margin, {unseen} moving unseen; at most {speed:.0%} of the speed limit and "
        f"{way:.3f} rad"
    )
    return text, unseen == 0 and speed < 1.0


def figures(bench: Bench, pose: np.ndarray, folder: Path) -> None:
    """A session with its pushes, recorded and drawn."""
    bench.go(pose)
    values = bench.control.request("guiding_model", 20.0, arm=ARM)
    bench.control.request("record", 20.0, arm=ARM, action="start")
    said: list[dict[str, Any]] = []
    done = bench.runs.guide(bench.permit(), for_s=FIRST_S + 3 * EACH_S, on_progress=lambda now: said.append(dict(now)))
    path = bench.control.request("record", 20.0, arm=ARM, action="stop")["path"]
    for name in draw_session(Path(path), folder, values, said[0]["settings"], done["guiding"]):
        print(name)


def measure(
    count: int, seconds: float, only: Sequence[str] = WHAT, folder: Path | None = None
) -> list[tuple[str, bool]]:
    """Return a line of each measurement at `count` poses, and whether it is good; draw a session into `folder`."""
    poses = random_poses(load_robot(ARM).model, 20, seed=1)[:count]
    found: list[tuple[str, bool]] = []
    for pushed in (False, True):
        wanted = {"push", "full", "loaded"} if pushed else {"hover", "payload"}
        if not wanted & set(only) and not (pushed and folder):
            continue
        with tempfile.TemporaryDirectory() as work:
            bench = Bench(Path(work), poses, pushed)
            try:
                if pushed and folder:
                    figures(bench, poses[6 % len(poses)], folder)
                found += [
                    hover(bench, poses, seconds) if name == "hover"
                    else payload(bench, poses, pushed) if name in ("payload", "loaded")
                    else pushes(bench, poses, 1.0 if name == "full" else 0.75)
                    for name in only
                    if name in wanted
                ]  # fmt: skip
            finally:
                bench.close()
    return found


def run(quick: bool) -> tuple[dict[str, Any], list[str], list[str]]:
    """Few poses, for `run.py`: results, lines, and what is missed."""
    found = measure(1, 5.0, ("hover", "payload")) if quick else measure(3, 20.0)
    lines = [f"zero-force in a daemon: {text}" for text, _ in found]
    missed = [line for line, (_, good) in zip(lines, found, strict=True) if not good]
    return {"lines": lines}, lines, missed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--poses", type=int, default=20)
    parser.add_argument("--hover", type=float, default=60.0, metavar="S")
    parser.add_argument("--figures", type=Path, metavar="FOLDER")
    parser.add_argument("--only", nargs="+", choices=WHAT, default=WHAT)
    arguments = parser.parse_args()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    found = measure(arguments.poses, arguments.hover, arguments.only, arguments.figures)
    for text, good in found:
        print(text)
        if not good:
            print(f"MISSED: {text}", file=sys.stderr)
    return 0 if all(good for _, good in found) else 1


if __name__ == "__main__":
    sys.exit(main())
