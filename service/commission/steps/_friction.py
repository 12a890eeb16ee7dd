"""Step `friction`: all joints at constant speeds, forth and back along one path; friction without a model."""

from typing import Any

import numpy as np

from rt_core.commissioning.findings import CommissioningError
from rt_core.commissioning.friction_law import fit_friction
from rt_core.commissioning.friction_sweep import SweepPasses, SweepPoint, sweep_passes, sweep_points
from rt_core.commissioning.profiles import Sweep
from rt_core.types import FloatArray
from service.commission._signals import TorqueSource, torque, torque_source
from service.commission.context import Context, Step
from service.commission.errors import StepFailedError

RAMP_S, DWELL_S = 0.4, 0.3
#: Margin to the position limits, as a share of the range.
_RESERVE = 0.03
_EACH_S = 4.0  # of a run, in addition to its motion
_SURE = 5.0  # standard deviations
_BETTER = 2.0  # by how much another direction has to speed up the slowest drive


def path(context: Context, posture: FloatArray, share: float, sweep: Sweep) -> tuple[FloatArray, FloatArray]:
    """Return the ends (n,) of a path about `posture` that `sweep` passes at `share` of each joint's velocity limit.

    A joint with less room has a shorter path and a lower speed.
    """
    joints = context.robot.model.joints
    lower, upper = (np.array([getattr(joint, name) for joint in joints]) for name in ("lower", "upper"))
    width, reserve = upper - lower, _RESERVE * (upper - lower)
    limit = np.array([joint.velocity for joint in joints])
    half = 0.5 * np.minimum(share * limit * sweep.reach_s, context.settings.room * width)
    middle = np.clip(posture, lower + reserve + half, upper - reserve - half)
    return middle - half, middle + half


def directions(coupling: FloatArray, velocity: FloatArray) -> FloatArray:
    """Return (n,) directions of the joints in which every drive moves, also those that turn several joints."""
    signs = np.ones(len(velocity))
    for j in range(len(velocity)):
        turned = signs.copy()
        turned[j] = -turned[j]
        now, then = (np.abs(coupling[: j + 1] @ (some * velocity)).min() for some in (signs, turned))
        if then > now * _BETTER:
            signs = turned
    return signs


def _run(context: Context) -> tuple[str, dict[str, Any]]:
    posture = np.array(context.found("joints")["posture"])
    settings, model = context.settings, context.robot.model
    sweep = Sweep(settings.sweep_s, RAMP_S, DWELL_S)
    recordings: list[str] = []
    sweeps: list[SweepPasses] = []
    notes: list[str] = []
    found: dict[str, Any] = {"recordings": recordings, "notes": notes}
    source: TorqueSource | None = None
    C = model.coupling
    signs = directions(C, np.array([joint.velocity for joint in model.joints]))
    count = len(settings.speeds)
    for number, share in enumerate(settings.speeds):
        first, last = path(context, posture, share, sweep)
        start, end = np.where(signs > 0.0, first, last), np.where(signs > 0.0, last, first)
        rate = context.row_rate(sweep.duration_s)
        trajectory = context.table(sweep.rows(start, end, rate), rate)
        percent = f"{100.0 * share:.3g} % of the velocity limits"
        context.report(number / count, f"{number + 1} of {count} speeds: {percent}")
        move = context.moved(
            f"Move all joints together along a line of {size_text(context, end - start)} at {percent}?",
            trajectory, sweep.duration_s, name=f"friction at {percent}", found=found, start=start,
        )  # fmt: skip
        recordings.append(str(move.path))
        move.check(f"the sweep at {percent}", found)
        recording = move.recording()
        source = torque_source(context.robot, recording.channels)
        if source is None:
            raise StepFailedError(f"{move.path}: holds neither torque nor current", found)
        tau = torque(context.robot, source, recording.channels)
        try:
            # friction acts at the drives: where two drives turn one joint, it changes sides in the drives' torques
            q, tau = recording.channels["q"] @ C.T, tau @ np.linalg.inv(C)
            sweeps.append(sweep_passes(recording.t, q, tau, C @ start, C @ end, sweep))
        except CommissioningError as error:  # a joint with stick-slip at low speed leaves the other speeds usable
            notes.append(f"no friction at {percent}: {error}")
    if not sweeps or source is None:
        raise StepFailedError(notes[0], found)
    points, delay = sweep_points(sweeps)
    joints = [
        _joint(name, j, points) | {"unit": source.units[j], "delay_s": float(delay[j])}
        for j, name in enumerate(context.names)
    ]
    wrong = [joint["name"] for joint in joints if (joint["friction"] < -_SURE * joint["friction_std"]).all()]
    found["joints"] = joints
    if wrong and source.scaled:  # without a known torque constant the sign of a current is unknown, too
        raise StepFailedError(
            f"friction of {wrong[0]} drives the joint: check the sign of its torque or current", found
        )
    curved = [joint["name"] for joint in joints if joint["law"] == "stribeck"]
    more = f"; it falls with speed at {', '.join(curved)}" if curved else ""
    return f"friction of {model.n} joints at {len(points)} of {count} speeds{more}", found


def _joint(name: str, j: int, points: list[SweepPoint]) -> dict[str, Any]:
    speed, friction, std = (np.array([getattr(p, key)[j] for p in points]) for key in ("speed", "friction", "std"))
    try:
        fit = fit_friction(speed, friction, std)
    except CommissioningError as error:
        raise StepFailedError(f"{name}: {error}: is its torque measured?") from error
    return {
        "name": name, "speed": speed, "friction": friction, "friction_std": std, "law": fit.law,
        "parameters": list(fit.names), "values": fit.values, "std": fit.std, "covariance": fit.covariance,
        "scatter": fit.scatter, "free": fit.free,
    }  # fmt: skip


def size_text(context: Context, way: FloatArray) -> str:
    """Return the largest distances of the joints as text."""
    turns = np.array(context.units) == "rad"
    parts = []
    if turns.any():
        parts.append(f"up to {np.degrees(np.abs(way[turns]).max()):.2g} degrees")
    if (~turns).any():
        parts.append(f"up to {1e3 * np.abs(way[~turns]).max():.2g} mm")
    return " and ".join(parts)


def _seconds(context: Context) -> float:
    sweep = Sweep(context.settings.sweep_s, RAMP_S, DWELL_S)
    return len(context.settings.speeds) * (sweep.duration_s + _EACH_S)


FRICTION = Step("friction", "constant speeds, forth and back: friction of each joint against speed", _run, _seconds)
