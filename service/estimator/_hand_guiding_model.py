"""Models for hand guiding: the verbs `guiding_model` and `validity`, for which an acquisition has no time."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from rt_core.hand_guiding import GuidingModel
from rt_core.hand_guiding.model import friction_left
from rt_core.model.base import BaseParameters
from rt_core.model.friction import REFERENCE_TEMPERATURE
from rt_core.model.robot import RobotModel
from rt_core.model.temperature import TemperatureRange
from rt_core.types import FloatArray
from service.config.load import ArmConfig
from service.estimator._active_model import ActiveModel, values_digest
from service.models.hand_guiding_arrays import plain_model
from service.protocol.control import ControlError
from service.worker.worker import Handler

_HOW = (
    "identify the arm and promote the model (`thetad jobs reidentify`), or for a rehearsal give a model file "
    "(`thetad guide ARM --model FILE`)"
)


#: Change of a temperature after which the remaining friction is computed again [K].
_RENEW_K = 0.5


class HandGuidingModelSource:
    """Handlers of the verbs `guiding_model` and `validity`; compiles everything now if `arm` has a table `guiding`."""

    def __init__(self, arm: ArmConfig, active: ActiveModel) -> None:
        self._arm, self._active = arm, active
        self._left: tuple[tuple[object, ...], float] = ((), np.inf)
        self.handlers: Mapping[str, Handler] = {"guiding_model": self._on_model, "validity": self._on_validity}
        if arm.guiding is not None:
            base = active.estimator.base
            with suppress(ValueError):  # an arm without mass
                warm = np.full(active.estimator.model.n, REFERENCE_TEMPERATURE)
                GuidingModel.of(active.estimator.model, base, np.zeros(len(base)), temperature=warm)

    def _on_model(self, args: dict[str, Any]) -> dict[str, Any]:
        if self._arm.guiding is None:
            raise ControlError("bad_argument", f"arm {self._arm.name} has no table [arm.guiding] in its configuration")
        estimator = self._active.estimator
        name, theta, base = self._given(args) if _brings_model(args) else self._active_values()
        present = estimator.temperature
        try:
            with np.errstate(over="ignore", invalid="ignore"):  # what comes of numbers of a request is checked
                model = GuidingModel.of(estimator.model, base, theta, temperature=present)
        except ValueError as error:
            raise ControlError("unavailable", str(error)) from error
        invalid_reason = self._given_invalid_reason(args)
        if invalid_reason:
            raise ControlError("unavailable", f"the model is not valid: {invalid_reason}")
        robot = self._active.robot.source
        try:
            speeds = self._active.speeds_of(args) if _brings_model(args) else self._active.speeds
        except (ValueError, TypeError) as error:
            raise ControlError("bad_argument", f"speeds of the model: {error}") from error
        digest = values_digest(theta, base.layout.shape[:, 0])
        values = plain_model(model)
        started = None if present is None else present.tolist()
        return {
            "arm": self._arm.name, "model": name, "digest": digest, "values": values, "robot": robot,
            "temperature": started, "speeds": None if speeds is None else speeds.tolist(),
        }  # fmt: skip

    def _active_values(self) -> tuple[str, FloatArray, BaseParameters]:
        """Return name, parameters and their base of the active model."""
        active = self._active
        if active.theta is None:
            raise ControlError("unavailable", f"no model of arm {self._arm.name} is active: {_HOW}")
        if active.invalid_reason:
            raise ControlError("unavailable", f"the active model is not valid: {active.invalid_reason}; {_HOW}")
        return active.identity, active.theta, active.estimator.base

    def _given(self, args: Mapping[str, Any]) -> tuple[str, FloatArray, BaseParameters]:
        """Return name, parameters and their base of the model in a request."""
        robot, base = self._active.robot, self._active.estimator.base
        if args.get("robot") != robot.sha256:
            raise ControlError(
                "bad_argument",
                f"the model is of another robot ({args.get('robot')!r:.80}) than {robot.model.name!r} of this arm as "
                f"it is now ({robot.sha256})",
            )
        p, values = len(base), []
        for field in ("theta", "constants"):
            try:
                value = np.array(args.get(field), dtype=np.float64)
            except (ValueError, TypeError) as error:
                raise ControlError("bad_argument", f"{field} of the model: {error}") from error
            if value.shape != (p,) or not np.isfinite(value).all():
                raise ControlError("bad_argument", f"{field} of the model: expected {p} finite values")
            values.append(value)
        name = args.get("name")
        shown = name if isinstance(name, str) and name else "of the request"
        return shown, values[0], _with_constants(base, robot.model, values[1])

    def _given_invalid_reason(self, args: Mapping[str, Any]) -> str:
        """Return why the model in a request is not valid at present: encoders, temperatures; empty if it is."""
        estimator = self._active.estimator
        if _brings_model(args) and self._active.frames_invalid_reason:
            return self._active.frames_invalid_reason
        if not _brings_model(args) or not estimator.has_temperature:
            return ""
        try:
            seen = TemperatureRange.from_plain(args.get("temperatures"), estimator.model.n)
        except (ValueError, TypeError) as error:
            raise ControlError(
                "bad_argument", f"friction follows temperature, and the model does not say at which it holds: {error}"
            ) from error
        return self._active.temperature_invalid_reason(seen)

    def _on_validity(self, args: dict[str, Any]) -> dict[str, Any]:
        active = self._active
        name, digest, invalid_reason = active.identity, active.digest, active.invalid_reason
        theta, base = active.theta, active.estimator.base
        if _brings_model(args):
            name, theta, base = self._given(args)
            digest, invalid_reason = values_digest(theta, base.layout.shape[:, 0]), self._given_invalid_reason(args)
        found = {"arm": args["arm"], "model": name, "digest": digest, "doubt": invalid_reason}
        present = active.estimator.temperature
        if args.get("started") is None or present is None or theta is None or invalid_reason:
            return found
        started = np.array(args["started"], dtype=np.float64)
        return {**found, "friction": self._friction_left(theta, base, digest, started, present)}

    def _friction_left(
        self, theta: FloatArray, base: BaseParameters, digest: str, started: FloatArray, present: FloatArray
    ) -> float:
        """Return `friction_left`, computed again where a temperature has changed enough."""
        key = (digest, *started.tolist(), *np.round(present / _RENEW_K).tolist())
        if self._left[0] != key:
            self._left = key, friction_left(self._active.estimator.model, base, theta, started, present)
        return self._left[1]


def _brings_model(args: Mapping[str, Any]) -> bool:
    return any(args.get(field) is not None for field in ("theta", "constants", "robot", "name"))


def _with_constants(base: BaseParameters, robot: RobotModel, constants: FloatArray) -> BaseParameters:
    """Return base parameters with a model's own friction constants (p,)."""
    shape = base.layout.shape.copy()
    shape[:, 0] = np.where(np.isin(base.layout.law, robot.friction.shaped), constants, shape[:, 0])
    standard = base.standard.shape.copy()
    standard[base.independent] = shape
    return replace(base, standard=replace(base.standard, shape=standard))
