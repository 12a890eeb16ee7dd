"""Step `joints`: a small, slow motion of each joint checks signs, units and order of the signals."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rt_core.commissioning import joint_check
from rt_core.commissioning.findings import CommissioningError, Finding
from rt_core.commissioning.gravity_check import CHECK as GRAVITY
from rt_core.commissioning.gravity_check import check_gravity, tells_scale
from rt_core.commissioning.gravity_terms import Gravity, GravityMotion
from rt_core.commissioning.mirror_images import mirror_images
from rt_core.commissioning.profiles import EASE_PEAK, aligned, there_and_back
from rt_core.model.dynamics import inverse_dynamics
from rt_core.types import FloatArray
from service.commission._signals import torque, torque_source
from service.commission._site import Move
from service.commission.context import Context, Step
from service.commission.errors import StepFailedError
from service.io.trajectory_file import Trajectory

#: Largest share of the velocity limit, and of the joint's range, of a first motion.
_SPEED, _RANGE = 0.05, 0.2
_MIN_LEG_S, _DWELL_S = 0.8, 0.3
_EACH_S = 3.0  # of a run, in addition to its motion
#: Share of the very first motion of a real arm's joint.
_FIRST = 0.1


def _way(context: Context, k: int, here: float, share: float = 1.0) -> float:
    """Return the signed size of a joint's first motion, to the side with more room."""
    joint, settings = context.robot.model.joints[k], context.settings
    size = settings.small_rad if joint.kind == "revolute" else settings.small_m
    size = share * min(size, _RANGE * (joint.upper - joint.lower))
    return size if joint.upper - here >= here - joint.lower else -size


def _leg_s(context: Context, k: int, share: float = 1.0) -> float:
    way, limit = abs(_way(context, k, 0.0, share)), context.robot.model.joints[k].velocity
    return max(_MIN_LEG_S, round(EASE_PEAK * way / (_SPEED * limit), 1))


def _shares(context: Context) -> tuple[float, ...]:
    """Return the shares of the first motions: on a real arm first a tenth, because a wrong scale makes it larger."""
    return (1.0,) if context.place.rehearsal else (_FIRST, 1.0)


@dataclass(frozen=True)
class _Judged:
    """A motion, the findings of its checks, and its effect on gravity; None if unknown."""

    move: Move
    results: list[Finding]
    gravity: GravityMotion | None


def _run(context: Context) -> tuple[str, dict[str, Any]]:
    names = context.names
    checks: list[dict[str, Any]] = []
    found: dict[str, Any] = {"checks": checks, "recordings": [], "seen": context.folder.seen()}
    gravities: list[GravityMotion] = []
    short: list[str] = []  # joints that have only moved by a tenth
    for k, name in enumerate(names):
        for share in _shares(context):
            context.report(k / len(names), f"a small motion of {name}")
            judged = _move(context, k, share, found)
            results = judged.results
            # Without questions a tenth has to confirm the joint's scale, or somebody has to have seen it before.
            confirmed = judged.gravity is not None and tells_scale(judged.gravity)
            last = share == 1.0 or not (context.ask is not None or name in found["seen"] or confirmed)
            if not last:  # only findings that forbid the longer motion
                results = [result for result in results if result.verdict == "wrong" and _clear(result)]
            elif share < 1.0:
                results = _after_a_tenth(results)
            doubt = _conclude(context, k, share, judged.move, results, found)
            checks += [{"joint_name": name, **vars(result)} for result in results]
            if doubt:
                raise StepFailedError(doubt, found)
            judged.move.check(f"the first motion of {name}", found)
            if last:
                gravities += [] if judged.gravity is None else [judged.gravity]
                short += [name] if share < 1.0 else []
                break
        if context.ask is not None:
            found["seen"] = context.folder.see(name)
    _withdraw_mirrored(context, gravities, checks)
    _check_confirmed(context, short, found)
    open_ = open_checks(found)
    more = f"; open: {'; '.join(open_)}" if open_ else ""
    count = sum(check["verdict"] == "ok" for check in checks)
    return f"{count} of {len(checks)} checks are fine{more}", found


def _move(context: Context, k: int, share: float, found: dict[str, Any]) -> _Judged:
    """Move joint `k` by a share of its first way and back, and judge the recording."""
    n, name = context.robot.model.n, context.names[k]
    leg_s, way = _leg_s(context, k, share), 0.0

    def make(here: FloatArray) -> Trajectory:
        nonlocal way
        found.setdefault("posture", here.tolist())
        way = _way(context, k, float(here[k]), share)
        change = np.zeros(n)
        change[k] = way
        rate = context.row_rate(2.0 * leg_s + _DWELL_S)
        return context.table(there_and_back(here, change, leg_s, _DWELL_S, rate), rate)

    question = f"Move {name} slowly by {_size_text(context, k, share)} and back, the others stay?"
    move = context.moved(question, make, 2.0 * leg_s + _DWELL_S, name=f"first motion of {name}", found=found)
    found["recordings"].append(str(move.path))
    found["side"] = "positive" if way > 0.0 else "negative"
    return _judge(context, move, k, way, leg_s, short=share < 1.0)


def _after_a_tenth(results: list[Finding]) -> list[Finding]:
    """Discount what so short a motion need not show: velocity, and all of a joint that friction may have held."""
    held = any(result.check == joint_check.POSITION and result.verdict != "ok" for result in results)
    return [
        replace(result, verdict="cannot_tell", margin=np.nan)
        if result.verdict == "wrong" and (held or result.check == joint_check.VELOCITY) and not _clear(result)
        else result
        for result in results
    ]


def _clear(result: Finding) -> bool:
    """Return whether a tenth of the way is proof: friction may hold a joint, but not move it further or back."""
    if result.check == joint_check.POSITION:
        return result.value > 2.0 or result.value < -0.5
    return result.kind == "masses"


def _conclude(context: Context, k: int, share: float, move: Move, results: list[Finding], found: dict[str, Any]) -> str:
    """Return why the step cannot go on, or ""; ask about the visible motion, `StepFailedError` if it was another."""
    wrong = [result for result in results if result.verdict == "wrong"]
    if any(result.check != GRAVITY for result in wrong):
        return next(result.text for result in wrong if result.check != GRAVITY)
    if share == 1.0 and results and results[0].check == joint_check.POSITION and results[0].verdict == "cannot_tell":
        return results[0].text
    if move.stopped:
        return ""
    _ask_what_moved(context, k, share, found)
    if not wrong:
        return ""
    # masses may be nominal and cables pull: who has seen the joint move as described knows better
    question = f"{wrong[0].text}. You have seen {context.names[k]} move as described: go on all the same?"
    if context.ask is None or not context.ask(question):
        return wrong[0].text
    results[results.index(wrong[0])] = replace(wrong[0], verdict="cannot_tell")
    return ""


def _withdraw_mirrored(context: Context, gravities: list[GravityMotion], checks: list[dict[str, Any]]) -> None:
    """Withdraw findings about joints that may be inverted together with others."""
    fine = {check["joint"]: check for check in checks if check["check"] == GRAVITY and check["verdict"] == "ok"}
    for k, joints in mirror_images(gravities, fine).items():
        others = ", ".join(context.names[j] for j in joints)
        text = f"{fine[k]['text']}: an arm with {others} inverted in all signals would tell the same"
        fine[k] |= {"verdict": "cannot_tell", "margin": np.nan, "text": text}


def _check_confirmed(context: Context, short: list[str], found: dict[str, Any]) -> None:
    """Check that direction and scale of each joint are confirmed by more than its own signals.

    Raises `StepFailedError`: a real arm would move at full speed although nobody has looked and gravity is no proof;
    `short` names joints for which it was no proof of the scale.
    """
    fine = [check for check in found["checks"] if check["check"] == GRAVITY and check["verdict"] == "ok"]
    confirmed = {check["joint_name"] for check in fine}
    unknown = [name for name in context.names if name in short or name not in confirmed | set(found["seen"])]
    if unknown and not context.place.rehearsal:
        raise StepFailedError(
            f"no one has seen which way and how far {', '.join(unknown)} really moves, and gravity does not show it; "
            "do this step once without --yes; later calls need no one",
            found,
        )


def open_checks(found: dict[str, Any]) -> list[str]:
    """Return the open questions: every check with "cannot_tell", except for a direction that was seen."""
    seen, open_ = found.get("seen", []), dict[str, list[str]]()
    for check in found.get("checks", []):
        if check["verdict"] != "cannot_tell" or (
            check["check"] == GRAVITY and check["joint_name"] in seen and not check.get("kind")
        ):
            continue
        open_.setdefault(check["check"], []).append(check["joint_name"])
    return [f"{check} ({', '.join(dict.fromkeys(names))})" for check, names in open_.items()]


def _size_text(context: Context, k: int, share: float) -> str:
    size = abs(_way(context, k, 0.0, share))
    turns = context.robot.model.joints[k].kind == "revolute"
    return f"{np.degrees(size):.2g} degrees" if turns else f"{1e3 * size:.2g} mm"


def _ask_what_moved(context: Context, k: int, share: float, found: dict[str, Any]) -> None:
    """Ask the user about the visible motion: a drive connected to another joint is consistent in all its signals."""
    if context.ask is None:
        return
    name, size = context.names[k], _size_text(context, k, share)
    if share < 1.0:
        question = f"Did {name} move by about {size}, hardly to be seen, or not visibly at all?"
    else:
        question = (
            f"Was it {name} that moved, by about {size}, first in the {found['side']} direction of its description?"
        )
    if not context.ask(question):
        found["seen"] = context.folder.see(name, as_described=False)
        raise StepFailedError(
            f"{name}: another joint moved, the other way, or another distance than {size}: check order of the drives, "
            "sign and size of the gear ratio, counts per turn, and axis in the description",
            found,
        )


def _judge(context: Context, move: Move, k: int, way: float, leg_s: float, *, short: bool) -> _Judged:
    """Return all findings about one joint; those on torque only if position and velocity are right."""
    recording, names, model = move.recording(), context.names, context.robot.model
    q, channels = recording.channels["q"], recording.channels
    setpoint = channels.get("setpoint")
    confirmed = setpoint is not None and np.isfinite(setpoint[:, k]).all()
    command = setpoint[:, k] if confirmed and setpoint is not None else aligned(recording.t, q, way, leg_s, _DWELL_S)
    source = torque_source(context.robot, channels)
    tau = None if source is None else torque(context.robot, source, channels)
    unit = "N*m" if source is None else source.units[k]
    motion = joint_check.SmallMotion(k, recording.t, command, way, q, channels.get("dq"), tau)
    ranges = np.array([joint.upper - joint.lower for joint in model.joints])
    results = [joint_check.check_position(motion, names, ranges)]
    if results[0].verdict != "wrong" and (velocity := joint_check.check_velocity(motion, names)) is not None:
        results.append(velocity)
    if move.stopped or any(result.verdict == "wrong" for result in results):
        return _Judged(move, results, None)
    scaled = source is not None and source.scaled
    sign = joint_check.check_torque_sign(motion, names, unit)
    if sign is not None and not scaled and sign.kind == "inverted":
        sign = replace(sign, verdict="ok", text=f"{sign.text}: its torque constant will come out negative")
    size = joint_check.check_torque_size(motion, names, model.joints[k].effort, unit) if scaled else None
    results += [check for check in (sign, size) if check is not None]
    if scaled and model.inertial is not None and all(result.verdict != "wrong" for result in results):
        efforts = np.array([joint.effort for joint in model.joints])
        try:
            gravity = GravityMotion(k, joint_check.torque_passes(motion), _gravity(context), efforts)
        except CommissioningError as error:
            results.append(Finding(GRAVITY, k, "cannot_tell", np.nan, np.nan, np.nan, str(error)))
        else:
            return _Judged(move, [*results, check_gravity(gravity, names, short=short)], gravity)
    return _Judged(move, results, None)


def _gravity(context: Context) -> Gravity:
    """Return the gravity torque of the description."""
    model = context.robot.model
    inertial = model.inertial
    assert inertial is not None

    def gravity(q: FloatArray) -> FloatArray:
        rest = np.zeros_like(q)
        return inverse_dynamics(model.geometry, model.gravity, inertial, q, rest, rest)

    return gravity


def _seconds(context: Context) -> float:
    legs = [_leg_s(context, k, share) for k in range(context.robot.model.n) for share in _shares(context)]
    return sum(2.0 * leg_s + _DWELL_S + _EACH_S for leg_s in legs)


JOINTS = Step("joints", "a small motion of each joint: signs, units and order of the signals", _run, _seconds)
