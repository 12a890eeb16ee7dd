"""Step `payload`: torque constants from a known payload, if only current is measured."""

from typing import Any

import numpy as np

from rt_core.commissioning.bidirectional import Return, both_ways, same_places
from rt_core.commissioning.findings import CommissioningError
from rt_core.commissioning.profiles import EASE_PEAK, Sweep, there_and_back
from rt_core.commissioning.torque_constant import payload_torque, torque_constants
from rt_core.types import FloatArray
from service.commission._signals import check_source, states_constants
from service.commission.context import Context, SkippedError, Step
from service.commission.errors import StepFailedError
from service.commission.settings import Payload
from service.commission.steps._friction import DWELL_S, RAMP_S, path, size_text

#: Highest speed, as a share of the velocity limits: enough for the payload's inertia to show.
_SPEED = 0.25
#: Directions of the joints of odd and of even number on each path.
_PATHS = ((1.0, 1.0), (1.0, -1.0))
_EACH_S, _MOUNT_S = 5.0, 20.0


def _run(context: Context) -> tuple[str, dict[str, Any]]:
    signals, payload = context.found("signals"), context.settings.payload
    source = check_source(context.robot, signals["channels"], payload)
    if payload is None:
        raise SkippedError("torque is measured" if source.channel == "tau" else "torque constants are stated")
    transmission = context.robot.model.transmission
    assert transmission is not None
    recordings: list[str] = []
    context.confirm("Is the flange empty, as it will be when the arm is identified?")
    without = _measure(context, None, recordings)
    context.place.mount(payload)
    try:
        loaded = _measure(context, payload, recordings)
    except StepFailedError as error:
        raise StepFailedError(f"{error}; take the payload off before you go on", error.result) from error
    context.place.mount(None)
    model = context.robot.model
    pairs = [same_places(a, b) for a, b in zip(without, loaded, strict=True)]
    change = [b.level - a.level for a, b in pairs]
    torque = [payload_torque(model, b.q, b.dq, b.ddq, payload.mass, payload.centre) for _, b in pairs]
    constants = torque_constants(transmission.matrix, change, torque)
    stated = transmission.torque_constant if states_constants(context.robot) else np.full(model.n, np.nan)
    rows = [
        {
            "name": name, "torque_constant": constant.value, "std": constant.std, "determined": constant.determined,
            "stated": given, "text": constant.text,
        }
        for name, constant, given in zip(context.names, constants, stated, strict=True)
    ]  # fmt: skip
    found = {"payload": vars(payload), "motors": rows, "recordings": recordings}
    open_ = [row["name"] for row in rows if not row["determined"]]
    if open_ and not source.scaled:
        raise StepFailedError(
            f"the payload does not show the torque constants of {', '.join(open_)}: mount it with its "
            "centre off their axes, begin in another posture (--from joints), or state them as torque_constant in "
            "[transmission]",
            found,
        )
    return f"{model.n - len(open_)} of {model.n} torque constants determined", found


def _measure(context: Context, payload: Payload | None, recordings: list[str]) -> list[Return]:
    """Move forth and back along all paths; return the currents place by place."""
    posture = np.array(context.found("joints")["posture"])
    what = "without payload" if payload is None else f"with {payload.mass:g} kg"
    leg_s = context.settings.sweep_s
    found = []
    for number, signs in enumerate(_PATHS):
        start, way = _path(context, posture, signs)
        rate = context.row_rate(2.0 * leg_s + DWELL_S)
        trajectory = context.table(there_and_back(start, way, leg_s, DWELL_S, rate), rate)
        context.report((number + (0 if payload is None else len(_PATHS))) / (2 * len(_PATHS)), what)
        move = context.moved(
            f"Move all joints by {size_text(context, way)} and back, {what}?",
            trajectory, 2.0 * leg_s + DWELL_S, name=f"current {what}", found={"recordings": recordings}, start=start,
        )  # fmt: skip
        recordings.append(str(move.path))
        move.check(f"the motion {what}", {"recordings": recordings})
        recording = move.recording()
        channels = recording.channels
        try:
            found.append(both_ways(recording.t, channels["q"], channels["current"], start, way, leg_s, DWELL_S))
        except CommissioningError as error:
            raise StepFailedError(f"the motion {what}: {error}", {"recordings": recordings}) from error
    return found


def _path(context: Context, posture: FloatArray, signs: tuple[float, float]) -> tuple[FloatArray, FloatArray]:
    """Return start (n,) and displacement (n,) of a motion about the posture; `signs` of odd and even joints."""
    reach = Sweep(context.settings.sweep_s / EASE_PEAK, RAMP_S, DWELL_S)
    first, last = path(context, posture, _SPEED, reach)
    sign = np.where(np.arange(len(first)) % 2 == 0, *signs)
    return np.where(sign > 0.0, first, last), np.where(sign > 0.0, last - first, first - last)


def _seconds(context: Context) -> float:
    if context.settings.payload is None:
        return 0.0
    return 2.0 * (len(_PATHS) * (2.0 * context.settings.sweep_s + _EACH_S) + _MOUNT_S)


PAYLOAD = Step("payload", "torque constants from a known payload, where only current is measured", _run, _seconds)
