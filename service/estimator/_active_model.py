"""The active model of an arm's estimator: activation, adoption, and monitoring for drift and sudden changes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from drivers.files.robots.file import RobotFile
from rt_core.model.base import payload_columns
from rt_core.model.ranges import checked_speeds
from rt_core.model.temperature import TemperatureRange
from rt_core.online import OnlineEstimator
from rt_core.online.monitors.change import ChangeDetector
from rt_core.online.monitors.change_rules import VELOCITY_KNOWN_S, ChangeSettings
from rt_core.online.monitors.drift import Change, DriftDetector
from rt_core.online.monitors.payload_estimate import payload_information
from rt_core.online.report import EstimateReport
from rt_core.types import FloatArray
from service.config.load import ConfigError
from service.protocol.control import ControlError

if TYPE_CHECKING:
    from service.models.document import ModelFile

#: Takes the kind of an event, a text for people, and plain data.
ReportEvent = Callable[[str, str, dict[str, Any]], None]

_PREFIX = "active_"


@dataclass(frozen=True)
class SavedModel:
    """The active model in a state file: the one adopted last, and the one compared with.

    `theta` and `constants` (p,) are those of the adopted model; None, with an empty `adopted`, without one. `compared`
    is the digest of the model that the states `detector` and `change` belong to; `change` is empty in files of versions
    without it. `temperatures` are those that the adopted model was identified at, None where friction does not follow
    them. `speeds` (n,) are those that its friction was identified up to, None where the model does not say.
    """

    adopted: str
    model: str | None
    configured: str
    theta: FloatArray | None
    constants: FloatArray | None
    compared: str
    detector: Mapping[str, Any]
    change: Mapping[str, Any]
    temperatures: TemperatureRange | None = None
    speeds: FloatArray | None = None


class ActiveModel:
    """Activates models, has the estimator adopt them, and monitors drift and sudden changes from the active one.

    Parameters
    ----------
    robot : RobotFile
        The estimator's.
    report_event : callable
        Takes events.
    look_s : float
        Of the frames' clock between two calls of `observe` [s].
    invalid_reason : callable
        Why no result of the frames is valid at present; empty if they are.
    """

    def __init__(
        self, estimator: OnlineEstimator, robot: RobotFile, report_event: ReportEvent, look_s: float = 1.0,
        invalid_reason: Callable[[], str] = str,
    ) -> None:  # fmt: skip
        self.estimator, self.robot, self.look_s = estimator, robot, look_s
        self.report_event, self._frames_invalid_reason = report_event, invalid_reason
        self.model: str | None = None  # its id, if it has one
        self._adopted = ""  # the model adopted last; empty if the active model was not adopted
        self._configured = ""  # SHA-256 of the file in the configuration
        self._constants: FloatArray | None = None
        self._theta: FloatArray | None = None
        self._compared = ""  # digest of the model that the detector compares with
        self._saved: SavedModel | None = None  # until a model has been activated
        self._digest = ""  # of the active model's values
        self._temperatures: TemperatureRange | None = None  # of its identification
        self._reported_temperature = "ok"
        self.speeds: FloatArray | None = None  # (n,) that its friction was identified up to
        self.detector = self._detector()
        self.change = self._change()
        self._payload = payload_columns(estimator.base, estimator.model)

    def _detector(self) -> DriftDetector:
        e, (names, joints) = self.estimator, self._names()
        return DriftDetector(names, joints, e.base.layout, e.settings.memory_s, e.update_s, look_s=self.look_s)

    def _change(self) -> ChangeDetector:
        e, (names, joints) = self.estimator, self._names()
        settings = ChangeSettings(
            capacity_kg=e.model.payload_bound or np.inf, least_s=VELOCITY_KNOWN_S if e.has_dq else 0.0
        )
        return ChangeDetector(names, joints, e.base.layout, e.update_s, e.settings.cutoff_hz, settings)

    def _names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the names of the parameters and of the joints."""
        return tuple(self.estimator.base.names), tuple(joint.name for joint in self.estimator.model.joints)

    # ------------------------------------------------------------ what is active

    def start(self, path: Path | None, saved: SavedModel | None) -> None:
        """Begin with the configured model at `path`, or continue with the one adopted since.

        `saved` comes from the state that the estimator resumes, None if it starts anew. A model file that was
        configured since then takes precedence.

        Raises
        ------
        ConfigError
            The model is another robot's; and the errors of `load_model`.
        """
        configured = None if path is None else load_active(path, self.robot)
        self._configured = "" if path is None else hashlib.sha256(path.read_bytes()).hexdigest()
        if saved is not None and saved.adopted and saved.configured == self._configured:
            self._restore(saved)
            self._adopted, self.model, self._compared = saved.adopted, saved.model, saved.compared
            self._predict_by(saved.theta, saved.constants, saved.temperatures)
            self.speeds = saved.speeds
            return
        self._saved = saved
        if configured is not None:
            constants = configured.base.layout.shape[:, 0]
            self.model = self._configured
            self._predict_by(configured.theta, constants, configured.temperatures)
            self.speeds = None if configured.ranges is None else configured.ranges.speed
            self._compare(configured.theta, constants, configured.covariance)

    def read(self, state: Mapping[str, Any]) -> SavedModel | None:
        """Read and check what `state` gave to the state file; None if the file has no active model.

        Raises
        ------
        ValueError
            It is incomplete, or of another arm.
        """
        given = {key.removeprefix(_PREFIX): value for key, value in state.items() if key.startswith(_PREFIX)}
        if not given:
            return None
        texts = [given.get(name) for name in ("adopted", "model", "configured", "compared")]
        if not all(isinstance(text, str) for text in texts):
            raise ValueError("the saved state does not say which model is active")
        adopted, model, configured, compared = map(str, texts)
        theta = constants = None
        if adopted:
            theta, constants = (self._saved_values(given, name) for name in ("theta", "constants"))
        temperatures, speeds = self._range(given.get("temperatures")), self.speeds_of(given)
        detector = {key.removeprefix("drift_"): value for key, value in given.items() if key.startswith("drift_")}
        self._detector().restore(detector)
        change = {key.removeprefix("change_"): value for key, value in given.items() if key.startswith("change_")}
        if change:
            self._change().restore(change)
        return SavedModel(
            adopted, model or None, configured, theta, constants, compared, detector, change, temperatures, speeds
        )

    def _saved_values(self, given: Mapping[str, Any], name: str) -> FloatArray:
        value, p = _array(given.get(name)), len(self.estimator.base)
        if value is None or value.shape != (p,) or not np.isfinite(value).all():
            raise ValueError(f"{name} of the saved state's active model: expected {p} finite values")
        if name == "constants" and (value < 0.0).any():
            raise ValueError("constants of the saved state's active model are negative")
        return value

    def state(self) -> dict[str, Any]:
        """Return the content of the state file: no model is adopted twice, and the monitors continue."""
        values: dict[str, Any] = {"adopted": self._adopted, "model": self.model or ""}
        values |= {"configured": self._configured, "compared": self._compared}
        if self._adopted:
            values |= {"theta": self._theta, "constants": self._constants}
            if self._temperatures is not None:
                values["temperatures"] = np.stack((self._temperatures.lower, self._temperatures.upper))
            if self.speeds is not None:
                values["speeds"] = self.speeds
        values |= {f"drift_{key}": value for key, value in self.detector.state().items()}
        values |= {f"change_{key}": value for key, value in self.change.state().items()}
        return {_PREFIX + key: value for key, value in values.items()}

    def _predict_by(
        self, theta: FloatArray | None, constants: FloatArray | None, temperatures: TemperatureRange | None
    ) -> None:
        self.estimator.set_active(theta, constants)
        self._keep(theta, temperatures)

    def _range(self, limits: object) -> TemperatureRange | None:
        """Return the temperature range of a model from plain values; raises `ValueError` or `TypeError`."""
        return None if limits is None else TemperatureRange.from_plain(limits, self.estimator.model.n)

    def speeds_of(self, given: Mapping[str, Any]) -> FloatArray | None:
        """Return the speeds (n,) of a model from plain values; raises `ValueError` or `TypeError` if they are none."""
        return checked_speeds(given.get("speeds"), self.estimator.model.n)

    def _keep(self, theta: FloatArray | None, temperatures: TemperatureRange | None) -> None:
        self._temperatures = None if theta is None else temperatures
        self._theta, self._constants = theta, self.estimator.base.layout.shape[:, 0].copy()
        self._digest = "" if theta is None else values_digest(theta, self._constants)

    # ------------------------------------------------------------ requests

    def activate(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Serve the verb `activate`; a model with the id of the one adopted last is not adopted again."""
        model, adopt, robot = args.get("model"), args.get("adopt") or False, args.get("robot")
        if not isinstance(adopt, bool) or not (model is None or (isinstance(model, str) and 0 < len(model) <= 200)):
            raise ControlError("bad_argument", "activate: adopt is true or false, and model a text of at most 200")
        if robot is not None and robot != self.robot.sha256:
            raise ControlError(
                "bad_argument",
                f"activate: robot: the model is of another robot ({robot!r:.80}) than {self.robot.model.name!r} of this"
                f" arm as it is now ({self.robot.sha256})",
            )
        try:
            theta, constants, covariance = (_array(args.get(name)) for name in ("theta", "constants", "covariance"))
            self._check_covariance(theta, covariance)
            seen, speeds = self._range(args.get("temperatures")), self.speeds_of(args)
            self._check_range(theta, seen)
            adopted = self._take(theta, constants, covariance, seen, model) if adopt else False
            if not adopt:
                self._predict_by(theta, constants, seen)
        except (ValueError, TypeError) as error:
            raise ControlError(
                "bad_argument", f"theta, constants, covariance, temperatures or speeds: {error}"
            ) from error
        if not adopt or adopted:
            self.speeds = None if theta is None else speeds
        if not adopt:
            self._compare(theta, constants, covariance)
            self._saved, self._adopted = None, ""
            self.model = None if theta is None else model
        return {"active": "estimate" if theta is None else "model", "model": self.model, "adopted": adopted}

    def _check_covariance(self, theta: FloatArray | None, covariance: FloatArray | None) -> None:
        if covariance is not None and (theta is None or covariance.shape != (len(self.estimator.base),) * 2):
            raise ValueError("covariance needs theta, and a row and a column for each of its values")

    def _check_range(self, theta: FloatArray | None, seen: TemperatureRange | None) -> None:
        if theta is not None and seen is None and self.estimator.has_temperature:
            raise ValueError("friction follows temperature, and the model does not say at which it was identified")

    def _take(
        self, theta: FloatArray | None, constants: FloatArray | None, covariance: FloatArray | None,
        temperatures: TemperatureRange | None, model: str | None,
    ) -> bool:  # fmt: skip
        """Adopt a model, unless it is the last adopted one; return whether it was adopted."""
        if theta is None or covariance is None:
            raise ValueError("a model can be adopted only with its theta and covariance")
        key = model or values_digest(theta, constants, covariance)
        if key == self._adopted:
            return False
        self.estimator.adopt(theta, covariance, constants, temperatures)
        self._keep(theta, temperatures)
        self._refer(theta, covariance, adopted=True)
        self._compared, self._saved = values_digest(theta, constants, covariance), None
        self._adopted, self.model = key, model
        text = f"the estimate goes on from model {model or 'without an id'}"
        self.report_event("model_adopted", text, {"model": model})
        return True

    # ------------------------------------------------------------ drift

    def _compare(self, theta: FloatArray | None, constants: FloatArray | None, covariance: FloatArray | None) -> None:
        """Compare with a model that is not adopted; continue if it is the same as before, or before a restart."""
        key = "" if theta is None else values_digest(theta, constants, covariance)
        if key == self._compared:
            return
        if self._saved is not None and key == self._saved.compared:
            self._restore(self._saved)
        else:
            self._refer(theta, covariance, adopted=False)
        self._compared = key

    def _refer(self, theta: FloatArray | None, covariance: FloatArray | None, *, adopted: bool) -> None:
        """Set the model to compare with."""
        self._report(self.detector.set_model(theta, covariance, adopted=adopted))  # of the model before
        self.change.set_model(theta is not None, payload_information(self._payload, covariance), theta)

    def _restore(self, saved: SavedModel) -> None:
        """Restore the saved monitors."""
        self.detector.restore(saved.detector)
        if saved.change:
            self.change.restore(saved.change)
        else:
            self.change.set_model(True)

    def observe(self, report: EstimateReport) -> None:
        """Compare the active model with an estimate; about once a second of the frames' clock.

        A change by a payload or a sensor is no drift of the arm, and may not be known yet while it is being classified.
        """
        spoiled = bool(self.change.invalid_reason)
        if spoiled or self.change.status == "classifying":
            self._report(self.detector.skip(report, spoiled=spoiled))
        else:
            self._report(self.detector.observe(report, self.estimator.residual_power))

    def observe_changes(self, t_ns: int) -> None:
        """Detect sudden changes of the arm from its residual up to `t_ns`; ten times a second."""
        broken = self.estimator.trust.broken(self._names()[1])
        for change in self.change.observe(self.estimator.take_evidence(), t_ns, broken):
            self.report_event(change.kind, change.text, {"model": self.model, **change.data})

    def snapshot(self) -> dict[str, Any]:
        """Return the state of the monitors, for `rollback`."""
        return {"model": self._digest, "drift": self.detector.state(), "change": self.change.checkpoint()}

    def rollback(self, snapshot: Mapping[str, Any]) -> None:
        """Restore the monitors from `snapshot`, unless another model was active."""
        if snapshot.get("model") == self._digest:
            self.detector.restore(snapshot["drift"])
            self.change.rollback(snapshot["change"])

    @property
    def reported(self) -> list[str]:
        """Reports that still hold: "drift", "invalid", "sensor", "payload"."""
        change = self.change.report()
        holds = {
            "drift": self.detector.report().state == "drifted",
            "invalid": self.detector.invalid,
            "sensor": bool(change["sensor_faults"]),
            "payload": change["payload"] is not None,
        }
        return [what for what, does in holds.items() if does]

    def _report(self, changes: tuple[Change, ...]) -> None:
        for change in changes:
            data: dict[str, Any] = {"joints": list(change.joints), "parameters": list(change.parameters)}
            if change.kind == "drift":
                data = self.status()["drift"]
            self.report_event(change.kind, change.text, {"model": self.model, **data})

    # ------------------------------------------------------------ temperature

    def temperature(self) -> dict[str, Any] | None:
        """Return `temperature` of a status message: present temperatures, and whether the model covers them.

        None where friction does not follow temperature.
        """
        return self._temperature_of(self._temperatures)

    def temperature_invalid_reason(self, seen: TemperatureRange) -> str:
        """Return why a model identified at `seen` does not hold at the present temperatures; empty if it does."""
        found = self._temperature_of(seen)
        return "" if found is None else str(found["reason"])

    def _temperature_of(self, seen: TemperatureRange | None) -> dict[str, Any] | None:
        present = self.estimator.temperature
        if present is None:
            return None
        names = [joint.name for joint in self.estimator.model.joints]
        lacking = np.flatnonzero(self.estimator.lacks_temperature & self.estimator.has_frames)
        state, joints, reason = "ok", [names[j] for j in lacking], ""
        if joints:
            state = "missing"
            reason = f"no temperature of {', '.join(joints)}: its friction follows it, and nothing is estimated"
        elif seen is not None and self.estimator.has_frames:
            outside = np.flatnonzero(seen.outside(present))
            if outside.size:
                state, joints = "outside", [names[j] for j in outside]
                reason = "; ".join(seen.reason(names[j], int(j), f"{present[j]:.1f}") for j in outside)
        fitted = None if seen is None else seen.plain
        values = [float(v) if np.isfinite(v) else None for v in present]
        refused = self.estimator.refused_temperatures
        return {
            "state": state, "joints": joints, "reason": reason, "present": values, "fitted": fitted, "refused": refused,
        }  # fmt: skip

    def check_temperature(self) -> None:
        """Report when temperatures are missing, or outside those of the active model."""
        found = self.temperature()
        if found is None or found["state"] == self._reported_temperature:
            return
        self._reported_temperature = found["state"]
        self.report_event(f"temperature_{found['state']}", found["reason"] or "temperatures are known again", found)

    @property
    def frames_invalid_reason(self) -> str:
        """Why no model is valid at present; empty if the frames are."""
        return self._frames_invalid_reason()

    @property
    def settled(self) -> bool:
        """Whether no sudden change is being classified, and no sensor is known to be faulty."""
        return self.change.status != "classifying" and not self.change.report()["sensor_faults"]

    @property
    def theta(self) -> FloatArray | None:
        """(p,) parameters of the active model; None without one."""
        return self._theta

    @property
    def identity(self) -> str:
        """The active model's id, or a digest of its values; empty without one."""
        return "" if self._theta is None else self.model or self._compared or self._adopted

    @property
    def digest(self) -> str:
        """Digest of the parameters and constants of the active model; empty without one."""
        return self._digest

    @property
    def invalid_reason(self) -> str:
        """Why the active model is not valid, as far as it is known; empty otherwise."""
        if frames := self._frames_invalid_reason():
            return frames
        # An invalid estimate is reported until it has moved for a while; an adoption may have corrected it meanwhile.
        if self.detector.invalid and "invalid" in self.estimator.report().status:
            return "the torque of a joint is not explained"
        temperature = self.temperature()
        if temperature is not None and temperature["reason"]:
            return str(temperature["reason"])
        return self.change.invalid_reason or self.detector.report().text

    def status(self) -> dict[str, Any]:
        """Return `model`, `drift` and `change` of a status message, and `temperature` where friction follows it."""
        found = self.detector.report()
        drift = {
            "state": found.state,
            "since": None if found.since_ns is None else found.since_ns * 1e-9,
            "joints": found.joints,
            "parameters": [asdict(parameter) for parameter in found.parameters],
            "levels": found.levels,
            "reason": found.text,
        }
        change = self.change.report() | {"capacity_kg": self.estimator.model.payload_bound}
        status = {"model": self.model, "drift": drift, "change": change}
        temperature = self.temperature()
        return status if temperature is None else status | {"temperature": temperature}


def load_active(path: Path, robot: RobotFile) -> ModelFile:
    """Return a model file of `robot`.

    Raises `ModelFileError`, or `ConfigError` if it is another robot's.
    """
    from service.models.document import load_model

    model = load_model(path)
    if model.robot.sha256 != robot.sha256:
        raise ConfigError(
            f"{path}: is a model of robot {model.robot.model.name!r}, not of {robot.model.name!r} as it is"
        )
    return model


def _array(value: object) -> FloatArray | None:
    return None if value is None else np.array(value, dtype=np.float64)


def values_digest(*values: FloatArray | None) -> str:
    """Return a digest that identifies a model by its values."""
    content = json.dumps([None if value is None else value.tolist() for value in values])
    return "values:" + hashlib.sha256(content.encode()).hexdigest()
