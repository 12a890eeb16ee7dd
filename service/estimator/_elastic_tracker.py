"""Online estimate of spring and friction of one elastic joint, from the frames of its arm."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rt_core.model.robot import RobotModel
from rt_core.online.elastic import ElasticJointEstimator
from rt_core.types import FloatArray
from service.config.arm_tables import ElasticConfig
from service.config.load import ConfigError
from service.estimator._frame_consumer import FrameBlock, FrameConsumer
from service.operations.elastic.file import ElasticFile, load_elastic
from service.operations.elastic.online import estimate_document

_WARM_S = 2.0  # of motion, in which every kernel is used
_SAME = 1e-6


class ElasticTracker(FrameConsumer):
    """The online estimate of one joint; `ValueError` if the file's values or settings are impossible at this rate.

    Frames are gathered and taken together at the update rate, because a call for each would cost more than its work.
    `forgetting` is a constant factor instead of the variable one; no frame is faster than `top_velocity` [rad/s], None
    for the file's; `from_current`: the motor's torque is torque constant times current, else it is `tau`.
    """

    def __init__(
        self, joint: str, index: int, known: ElasticFile, rate_hz: float, *, forgetting: float | None,
        top_velocity: float | None, from_current: bool,
    ) -> None:  # fmt: skip
        self.joint, self.index, self.prefix = joint, index, f"elastic {joint} "
        self._offset, self._from_current = known.start.motor_offset, from_current
        self._unit = (known.torque_constant or 0.0) if from_current else 1.0 / known.drive.gear_ratio
        settings = known.start.settings(forgetting)
        if top_velocity is not None:
            settings = replace(settings, top_velocity=top_velocity)

        def make() -> ElasticJointEstimator:
            begin = known.start
            return ElasticJointEstimator(
                known.drive, begin.values, rate_hz, settings, lag_s=begin.lag_s, zero=begin.zero, errors=begin.errors
            )

        self._make = make
        self.estimator = make()
        self._gathered = np.empty((5, max(1, round(rate_hz / settings.update_hz))))
        self._count = 0
        self._origin_ns: int | None = None
        self._row_ns: int | None = None  # of the latest row, on the clock of the present frames

    def warm_up(self) -> None:
        """Compile every kernel, without changing the estimate."""
        spare = self._make()
        t = np.arange(round(_WARM_S * spare.rate_hz)) / spare.rate_hz
        motor = spare.drive.gear_ratio * 10.0 * spare.settings.min_velocity * t
        link, torque = motor / spare.drive.gear_ratio, np.ones_like(t)
        spare.take(t, motor, link, torque, torque if spare.sensor else None)
        spare.report()
        spare.restart_stream()

    def push(self, block: FrameBlock) -> None:
        """Collect frames; those that are masked, or lack a signal, count as left out."""
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
        if not self.estimator.sensor:
            columns[4] = 0.0
        elif tau is not None:
            columns[4] = tau[some, j]
        if block.valid is not None:
            columns[1:, ~block.valid[some, j]] = math.nan

    def take(self) -> None:
        """Update the estimate with the collected frames."""
        t, motor, link, torque, sensor = (channel[: self._count] for channel in self._gathered)
        self._count = 0
        if self.estimator.take(t, motor, link, torque, sensor if self.estimator.sensor else None):
            self._row_ns = (self._origin_ns or 0) + round(self.estimator.time_s * 1e9)

    def restart_stream(self) -> None:
        """Restart the filters with a new clock; parameters stay."""
        self._count, self._origin_ns, self._row_ns = 0, None, None
        self.estimator.restart_stream()

    def reset(self) -> None:
        """Discard everything but the file's values."""
        self._count, self._row_ns = 0, None
        self.estimator.reset()

    def state(self) -> dict[str, Any]:
        """Return the estimator's state."""
        return self.estimator.state()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the estimator's state; collected frames are dropped, and the latest row is not known any more."""
        self._count, self._row_ns = 0, None
        self.estimator.restore(state)

    def document(self) -> dict[str, Any]:
        """Return the present estimate as plain values; unknown ones are null."""
        return {
            "row_t": None if self._row_ns is None else self._row_ns * 1e-9,
            **estimate_document(self.estimator.report()),
        }


def make_tracker(spring: ElasticConfig, model: RobotModel, channels: Sequence[str], rate_hz: float) -> ElasticTracker:
    """Make the estimate of one `[[arm.elastic]]`; `ConfigError` if joint, frames or file do not fit it."""
    names = [joint.name for joint in model.joints]
    if spring.joint not in names:
        raise ConfigError(f"joint: robot {model.name!r} has no joint {spring.joint!r}; it has {', '.join(names)}")
    try:
        known = load_elastic(spring.model)
    except ConfigError as error:
        raise ConfigError(f"model: {error}") from error
    if known.joint != spring.joint:
        raise ConfigError(f"model: {spring.model}: is of joint {known.joint}, not of {spring.joint}")
    from_current = _motor_torque(spring, known, channels)
    j = names.index(spring.joint)
    _same_drive(spring, known, model, j, from_current=from_current)
    limit = model.joints[j].velocity
    top = spring.top_velocity
    if top is None and math.isfinite(limit):
        top = max(known.start.top_velocity, limit)
    try:
        return ElasticTracker(
            spring.joint, j, known, rate_hz,
            forgetting=spring.forgetting, top_velocity=top, from_current=from_current,
        )  # fmt: skip
    except ValueError as error:
        raise ConfigError(f"model: {spring.model}: {error}") from error


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
                f"model: {spring.model}: {what} {ours:.6g}{unit}, but {theirs:.6g}{unit} in [transmission] of robot "
                f"{model.name!r} for joint {spring.joint}: correct the robot file, or identify the joint again with it"
            )


def _motor_torque(spring: ElasticConfig, known: ElasticFile, channels: Sequence[str]) -> bool:
    """Return whether the motor's torque comes from the current; `ConfigError` where the frames lack a channel."""
    there = f"the source has {', '.join(channels)}"
    for name, what in (("q", "the angle of the link"), ("q_motor", "the angle of the motor")):
        if name not in channels:
            raise ConfigError(
                f"joint: {spring.joint}: frames have no {name}, {what}: its spring shows between both; {there}"
            )
    if known.sensor and "tau" not in channels:
        raise ConfigError(f"joint: {spring.joint}: frames have no tau for its torque sensor; {there}")
    if "current" in channels:
        if known.torque_constant is None:
            raise ConfigError(
                f"model: {spring.model}: has no torque constant, and frames have the motor's current: identify it with "
                "--torque-constant, or a robot that has one"
            )
        return True
    if known.sensor or "tau" not in channels:
        raise ConfigError(f"joint: {spring.joint}: frames have no current for the torque of its motor; {there}")
    return False
