"""Models for hand guiding: the verbs `guiding_model` and `validity`, for which an acquisition has no time."""

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
        active, estimator, given = self._active, self._active.estimator, _brings_model(args)
        name, theta, base, digest, invalid_reason = self._model(args)
        if theta is None:
            raise ControlError("unavailable", f"no model of arm {self._arm.name} is active: {_HOW}")
        if invalid_reason:
            which, how = ("model", "") if given else ("active model", f"; {_HOW}")
            raise ControlError("unavailable", f"the {which} is not valid: {invalid_reason}{how}")
        present = estimator.temperature
        try:
            with np.errstate(over="ignore", invalid="ignore"):  # what comes of numbers of a request is checked
                model = GuidingModel.of(estimator.model, base, theta, temperature=present)
        except ValueError as error:
            raise ControlError("unavailable", str(error)) from error
        try:
            speeds = active.speeds_of(args) if given else active.speeds
        except (ValueError, TypeError) as error:
            raise ControlError("bad_argument", f"speeds of the model: {error}") from error
        return {
            "arm": self._arm.name, "model": name, "digest": digest, "values": plain_model(model),
            "robot": active.robot.source, "temperature": None if present is None else present.tolist(),
            "speeds": None if speeds is None else speeds.tolist(),
        }  # fmt: skip

    def _model(self, args: Mapping[str, Any]) -> tuple[str, FloatArray | None, BaseParameters, str, str]:
        """Return name, parameters, base, digest and why it is not valid, of a request's model or the active one."""
        active, base = self._active, self._active.estimator.base
        if not _brings_model(args):
            return active.identity, active.theta, base, active.digest, active.invalid_reason
        active.check_robot(args.get("robot"))
        try:
            theta, constants = (active.values_of(args, field) for field in ("theta", "constants"))
        except ValueError as error:
            raise ControlError("bad_argument", str(error)) from error
        base = _with_constants(base, active.robot.model, constants)
        reason, name = active.frames_invalid_reason(), args.get("name")
        if not reason and active.estimator.has_temperature:
            try:
                seen = TemperatureRange.from_plain(args.get("temperatures"), active.estimator.model.n)
            except (ValueError, TypeError) as error:
                text = "friction follows temperature, and the model does not say at which it holds"
                raise ControlError("bad_argument", f"{text}: {error}") from error
            reason = active.temperature_invalid_reason(seen)
        shown = name if isinstance(name, str) and name else "of the request"
        return shown, theta, base, values_digest(theta, base.layout.shape[:, 0]), reason

    def _on_validity(self, args: dict[str, Any]) -> dict[str, Any]:
        name, theta, base, digest, invalid_reason = self._model(args)
        found = {"arm": args["arm"], "model": name, "digest": digest, "doubt": invalid_reason}
        present = self._active.estimator.temperature
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
