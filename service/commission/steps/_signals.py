"""Steps `robot`: is the description complete enough for motion; `signals`: channels, rate and noise at rest."""

from typing import Any

import numpy as np

from rt_core.commissioning.at_rest import at_rest, position_text
from rt_core.commissioning.findings import CommissioningError
from rt_core.model.base import base_parameters
from service.commission._signals import check_source, states_constants
from service.commission._site import SPARE_S
from service.commission.context import Context, Step
from service.commission.errors import StepFailedError
from service.io.trajectory_file import MAX_CYCLES
from service.motion.trajectory_run import MAX_S

_REST_S = 3.0
#: Largest motion at rest in that time, as a share of the joint's range.
_RESTS = 2e-3


def _describe(context: Context) -> tuple[str, dict[str, Any]]:
    model = context.robot.model
    missing = [
        f"{name} of {joint.name}"
        for joint in model.joints
        for name in ("lower", "upper", "velocity")
        if not np.isfinite(getattr(joint, name))
    ]
    if missing:
        lacks = f"robot {model.name} states no {', '.join(missing)}"
        raise StepFailedError(f"{lacks}: an arm is not moved without; add them to the robot file")
    unlimited = [joint.name for joint in model.joints if not np.isfinite(joint.effort)]
    notes = list(context.robot.warnings)
    if unlimited:
        notes.append(f"no effort limit of {', '.join(unlimited)}: the size of their torque cannot be judged")
    if model.inertial is None:
        notes.append("no link parameters: neither torque of a trajectory nor signs of gravity can be judged ahead")
    if not np.any(model.gravity):
        notes.append("gravity is zero: masses do not show")
    count = len(base_parameters(model))
    stated = ("name", "kind", "lower", "upper", "velocity", "effort")
    joints = [{key: getattr(joint, key) for key in stated} for joint in model.joints]
    found = {
        "robot": model.name, "sha256": context.robot.sha256, "joints": joints, "gravity": model.gravity,
        "friction": model.friction.law, "base_parameters": count, "notes": notes,
    }  # fmt: skip
    return f"{model.n} joints, {count} base parameters", found


def _run(context: Context) -> tuple[str, dict[str, Any]]:
    context.report(0.1, "frames at rest")
    frames = context.place.site().rest(_REST_S)
    model, names = context.robot.model, context.names
    if "q" not in frames.channels:
        raise StepFailedError("the source delivers no q: an arm is not moved without")
    n = frames.channels["q"].shape[1]
    if n != model.n:
        raise StepFailedError(f"the source has {n} joints, robot {model.name} has {model.n}")
    try:
        rest = at_rest(frames.t, frames.seq, frames.channels)
    except CommissioningError as error:
        raise StepFailedError(str(error)) from error
    source = check_source(context.robot, frames.channels, context.settings.payload)
    notes = []
    if rest.lost:
        notes.append(f"{rest.lost} cycles were lost within {_REST_S:g} s")
    if source.channel == "current":
        known = states_constants(context.robot)
        notes.append(f"torque is that of the current; torque constants are {'stated' if known else 'not known'}")
    notes += [
        f"{channel} of {name} is not measured"
        for channel, values in rest.mean.items()
        for name, value in zip(names, values, strict=True)
        if not np.isfinite(value)
    ]
    _check_limits(context, frames.rate_hz or rest.rate_hz)
    before = context.folder.result("signals")
    if before is not None and before["channels"] != list(frames.channels):
        raise StepFailedError(
            f"the source delivers {', '.join(frames.channels)}, and delivered {', '.join(before['channels'])} when it "
            "was checked: begin again by --from signals"
        )
    wrong = [
        f"{name} has no torque: its {source.channel} is never measured"
        for name, value in zip(names, rest.mean[source.channel], strict=True)
        if not np.isfinite(value)
    ]
    for k, joint in enumerate(model.joints):
        here = float(rest.mean["q"][k])
        if text := position_text(here, joint.lower, joint.upper, turns=joint.kind == "revolute"):
            wrong.append(f"{joint.name} {text}")
        elif rest.moved[k] > _RESTS * (joint.upper - joint.lower):
            wrong.append(f"{joint.name} does not rest: it moved by {rest.moved[k]:.3g} within {_REST_S:g} s")
    found = {
        "arm": context.place.site().arm, "rate_hz": rest.rate_hz, "nominal_hz": frames.rate_hz, "lost": rest.lost,
        "channels": list(frames.channels), "torque_from": source.channel, "torque_units": source.units,
        "mean": rest.mean, "noise": rest.noise, "notes": notes, "wrong": wrong,
    }  # fmt: skip
    if wrong:
        raise StepFailedError(wrong[0], found)
    return f"{rest.rate_hz:.4g} frames/s with {', '.join(frames.channels)}", found


def _check_limits(context: Context, rate_hz: float) -> None:
    """Fail now where a later step would fail after minutes of motion."""
    if context.settings.payload is not None and context.ask is None and not context.place.rehearsal:
        raise StepFailedError("--payload: a person has to mount it and take it off: leave out --yes for this")
    site, longest_s = context.place.site(), context.settings.longest_run_s
    if longest_s + SPARE_S > site.permit_max_s:
        raise StepFailedError(
            f"a run of {longest_s:g} s needs a permit for {longest_s + SPARE_S:g} s, and {site.arm} grants "
            f"safety.permit_max_s = {site.permit_max_s:g} s at most: take fewer --periods, a shorter --period or a "
            "higher --first-speed, or raise it in [arm.safety]"
        )
    period_s, most_s = context.settings.longest_period_s, min(MAX_S, MAX_CYCLES / rate_hz)
    if period_s > most_s:
        raise StepFailedError(
            f"the slowest run takes {period_s:g} s, and {site.arm} can check at most {most_s:.0f} s ahead: take a "
            "shorter --period or a higher --first-speed"
        )


ROBOT = Step("robot", "the description: limits, geometry, what is to be identified", _describe, lambda _: 1.0)
SIGNALS = Step(
    "signals", "frames at rest: channels, rate, noise, units of the positions", _run, lambda _: _REST_S + 1.0,
    repeated=True,
)  # fmt: skip
