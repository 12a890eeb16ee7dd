"""Online estimate of spring and friction of one elastic joint, from the frames of its arm."""

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from rt_core.elastic.rows import Drive
from rt_core.model.robot import RobotModel
from rt_core.online.elastic import Deflection, ElasticJointEstimator, ElasticOnlineSettings
from rt_core.online.elastic.estimator import NAMES
from rt_core.types import FloatArray
from service.config.arm_tables import ElasticConfig
from service.config.load import ConfigError
from service.estimator._frame_consumer import FrameBlock, FrameConsumer
from service.operations.elastic.file import ElasticFile, load_elastic
from service.operations.elastic.online import estimate_document

_WARM_S = 2.0  # of motion, in which every kernel is used
_SAME = 1e-6


class ElasticTracker(FrameConsumer):
    """The online estimate of the joint of one `[[arm.elastic]]`; without a file none until a model is active.

    Frames are gathered and taken together at the update rate, because a call for each would cost more than its work.
    Raises `ConfigError` if joint, frames or file do not fit.
    """

    def __init__(self, spring: ElasticConfig, model: RobotModel, channels: Sequence[str], rate_hz: float) -> None:
        names = [joint.name for joint in model.joints]
        if spring.joint not in names:
            raise ConfigError(f"joint: robot {model.name!r} has no joint {spring.joint!r}; it has {', '.join(names)}")
        self.joint, self.index, self.prefix = spring.joint, names.index(spring.joint), f"elastic {spring.joint} "
        self.spring, self._model, self._channels, self._rate_hz = spring, model, tuple(channels), rate_hz
        self.estimator: ElasticJointEstimator | None = None
        self._known: ElasticFile | None = None  # what it has begun with
        self._saved: Mapping[str, Any] = {}  # state that was restored before
        self._offset, self._unit, self._from_current = 0.0, 0.0, False
        self._gathered = np.empty((5, max(1, round(rate_hz / ElasticOnlineSettings().update_hz))))
        self._count = 0
        self._origin_ns: int | None = None
        self._row_ns: int | None = None  # of the latest row, on the clock of the present frames
        if spring.model is None:
            _motor_torque(spring, None, channels)  # what is lacking is refused at once
            return
        try:
            known = load_elastic(spring.model)
        except ConfigError as error:
            raise ConfigError(f"model: {error}") from error
        if known.joint != spring.joint:
            raise ConfigError(f"model: {spring.model}: is of joint {known.joint}, not of {spring.joint}")
        self.prepared(known)()

    def prepared(self, known: ElasticFile | None) -> Callable[[], None]:
        """Return what begins with an off-line result, or goes on where it has begun with it; with None it ends.

        Raises `ConfigError` if frames or drive do not fit, or the values are impossible at this rate.
        """
        if known is None:
            return partial(self._begin, None, None, from_current=False)
        from_current = _motor_torque(self.spring, known, self._channels)
        _same_drive(self.spring, known, self._model, self.index, from_current=from_current)
        return partial(self._begin, known, self._made(known), from_current=from_current)

    def _begin(self, known: ElasticFile | None, estimator: ElasticJointEstimator | None, *, from_current: bool) -> None:
        if known == self._known:
            return
        if known is not None:
            self._offset = known.start.motor_offset
            self._unit = (known.torque_constant or 0.0) if from_current else 1.0 / known.drive.gear_ratio
        self.estimator, self._known, self._from_current = estimator, known, from_current
        self._count, self._row_ns = 0, None
        saved, self._saved = self._saved, {}
        if saved:
            self.rollback(saved)

    def _made(self, known: ElasticFile) -> ElasticJointEstimator:
        settings, begin = known.start.settings(self.spring.forgetting), known.start
        limit, top = self._model.joints[self.index].velocity, self.spring.top_velocity
        if top is None and math.isfinite(limit):
            top = max(begin.top_velocity, limit)
        settings = settings if top is None else replace(settings, top_velocity=top)
        try:
            deflection = Deflection(begin.lag_s, begin.zero, begin.errors)
            return ElasticJointEstimator(known.drive, begin.values, self._rate_hz, settings, deflection)
        except ValueError as error:
            raise ConfigError(f"model: {self.spring.origin}: {error}") from error

    def warm_up(self) -> None:
        """Compile every kernel, without changing the estimate."""
        settings = ElasticOnlineSettings(cutoff_hz=self._rate_hz / 50.0)
        spare = ElasticJointEstimator(Drive(1.0, None), dict.fromkeys(NAMES, 1.0), self._rate_hz, settings)
        t = np.arange(round(_WARM_S * spare.rate_hz)) / spare.rate_hz
        motor, torque = 10.0 * spare.settings.min_velocity * t, np.ones_like(t)
        spare.take(t, motor, motor, torque, torque if spare.sensor else None)
        spare.report()
        spare.restart_stream()

    def push(self, block: FrameBlock) -> None:
        """Collect frames; those that are masked, or lack a signal, count as left out."""
        if self.estimator is None:
            return
        if self._origin_ns is None:
            self._origin_ns = block.t_ns[0]
        t_s = (np.array(block.t_ns) - self._origin_ns) * 1e-9
        begin = 0
        while begin < len(block):
            end = min(len(block), begin + self._gathered.shape[1] - self._count)
            columns = self._gathered[:, self._count : self._count + end - begin]
            columns[0] = t_s[begin:end]
            columns[1:] = math.nan
            if not block.masked:
                self._fill(columns, block, slice(begin, end))
            self._count, begin = self._count + end - begin, end
            if self._count == self._gathered.shape[1]:
                self.take()

    def _fill(self, columns: FloatArray, block: FrameBlock, some: slice) -> None:
        j, (q, q_motor, tau) = self.index, map(block.channels.get, ("q", "q_motor", "tau"))
        torque = block.channels.get("current") if self._from_current else tau
        if q is None or q_motor is None or torque is None or torque.shape[1] <= j:
            return
        columns[1] = q_motor[some, j] - self._offset
        columns[2] = q[some, j]
        columns[3] = self._unit * torque[some, j]
        if self._known is None or not self._known.sensor:
            columns[4] = 0.0
        elif tau is not None:
            columns[4] = tau[some, j]
        if block.valid is not None:
            columns[1:, ~block.valid[some, j]] = math.nan

    def take(self) -> None:
        """Update the estimate with the collected frames."""
        t, motor, link, torque, sensor = (channel[: self._count] for channel in self._gathered)
        self._count = 0
        one = self.estimator
        if one is not None and one.take(t, motor, link, torque, sensor if one.sensor else None):
            self._row_ns = (self._origin_ns or 0) + round(one.time_s * 1e9)

    def restart_stream(self) -> None:
        """Restart the filters with a new clock; parameters stay."""
        self._count, self._origin_ns, self._row_ns = 0, None, None
        if self.estimator is not None:
            self.estimator.restart_stream()

    def reset(self) -> None:
        """Discard everything but the values that it has begun with."""
        self._count, self._row_ns, self._saved = 0, None, {}
        if self.estimator is not None:
            self.estimator.reset()

    def state(self) -> dict[str, Any]:
        """Return the estimator's state."""
        return dict(self._saved) if self.estimator is None else self.estimator.state()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the estimator's state; collected frames are dropped, and the latest row is not known any more."""
        self._count, self._row_ns = 0, None
        if self.estimator is None:
            self._saved = dict(state)
        else:
            self.estimator.restore(state)

    def rollback(self, snapshot: Mapping[str, Any]) -> None:
        """Restore a snapshot, unless it is of another beginning."""
        with contextlib.suppress(ValueError, TypeError):
            self.restore(snapshot)

    def document(self) -> dict[str, Any] | None:
        """Return the present estimate as plain values, unknown ones null; None before it has begun."""
        if self.estimator is None:
            return None
        row_t = None if self._row_ns is None else self._row_ns * 1e-9
        return {"row_t": row_t, **estimate_document(self.estimator.report())}


def _same_drive(spring: ElasticConfig, known: ElasticFile, model: RobotModel, j: int, *, from_current: bool) -> None:
    """Compare the file's drive with that of joint `j` in the robot file's [transmission], if there is one."""
    gears = model.transmission
    if gears is None:
        return
    pairs = [
        ("gear ratio", known.drive.gear_ratio, float(gears.matrix[j, j]), ""),
        ("motor offset", known.start.motor_offset, float(gears.offset[j]), " rad"),
    ]
    if from_current and gears.known and known.torque_constant is not None:
        pairs.append(("torque constant", known.torque_constant, float(gears.torque_constant[j]), " N*m/A"))
    for what, ours, theirs, unit in pairs:
        if not math.isclose(ours, theirs, rel_tol=_SAME, abs_tol=_SAME):
            raise ConfigError(
                f"model: {spring.origin}: {what} {ours:.6g}{unit}, but {theirs:.6g}{unit} in [transmission] of robot "
                f"{model.name!r} for joint {spring.joint}: correct the robot file, or identify the joint again with it"
            )


def _motor_torque(spring: ElasticConfig, known: ElasticFile | None, channels: Sequence[str]) -> bool:
    """Return whether the motor's torque comes from the current; `ConfigError` where the frames lack a channel."""
    there, sensor = f"the source has {', '.join(channels)}", known is not None and known.sensor
    for name, what in (("q", "the angle of the link"), ("q_motor", "the angle of the motor")):
        if name not in channels:
            raise ConfigError(
                f"joint: {spring.joint}: frames have no {name}, {what}: its spring shows between both; {there}"
            )
    if sensor and "tau" not in channels:
        raise ConfigError(f"joint: {spring.joint}: frames have no tau for its torque sensor; {there}")
    if "current" in channels:
        if known is not None and known.torque_constant is None:
            raise ConfigError(
                f"model: {spring.origin}: has no torque constant, and frames have the motor's current: identify it "
                "with --torque-constant, or a robot that has one"
            )
        return True
    if sensor or "tau" not in channels:
        raise ConfigError(f"joint: {spring.joint}: frames have no current for the torque of its motor; {there}")
    return False
