"""The active model of an arm's estimator: activation, adoption, and monitoring for drift and sudden changes."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from drivers.files.robots.file import RobotFile
from rt_core.model.base import payload_columns
from rt_core.model.ranges import checked_speeds
from rt_core.model.temperature import TemperatureRange
from rt_core.online import OnlineEstimator
from rt_core.online.monitors.change import ChangeDetector
from rt_core.online.monitors.change_rules import VELOCITY_KNOWN_S, ChangeSettings
from rt_core.online.monitors.drift import Change, DriftDetector, Watched
from rt_core.online.monitors.payload_estimate import payload_information
from rt_core.online.report import EstimateReport
from rt_core.types import FloatArray
from service.config.load import ConfigError
from service.estimator._frame_consumer import FrameConsumer, part, prefixed
from service.estimator.elastic_tracking import ElasticTracking
from service.protocol.control import ControlError

#: Takes the kind of an event, a text for people, and plain data.
ReportEvent = Callable[[str, str, dict[str, Any]], None]


class ActiveModel(FrameConsumer):
    """Activates models, has the estimator adopt them, and monitors drift and sudden changes from the active one.

    `robot` is the estimator's; `report_event` takes events; `look_s` of the frames' clock are between two calls of
    `observe` [s]; `invalid_reason` says why no result of the frames is valid at present, empty if they are; `springs`
    are estimates of elastic joints, which may start from the active model, none by default.
    """

    prefix, required = "active_", True

    def __init__(
        self, estimator: OnlineEstimator, robot: RobotFile, report_event: ReportEvent, look_s: float = 1.0,
        invalid_reason: Callable[[], str] = str, springs: ElasticTracking | None = None,
    ) -> None:  # fmt: skip
        self.springs = ElasticTracking((), 1.0) if springs is None else springs
        self.estimator, self.robot, self.look_s = estimator, robot, look_s
        self.report_event, self.frames_invalid_reason = report_event, invalid_reason
        self.model: str | None = None  # its id, if it has one
        self._adopted = ""  # the model adopted last; empty if the active model was not adopted
        self._configured = ""  # SHA-256 of the file in the configuration
        self._constants: FloatArray | None = None
        self.theta: FloatArray | None = None  # (p,) of the active model
        self._compared = ""  # digest of the model that the detector compares with
        self._saved: Mapping[str, Any] = {}  # until a model has been activated
        self.digest = ""  # of the active model's parameters and constants; empty without one
        self._temperatures: TemperatureRange | None = None  # of its identification
        self._reported_temperature = "ok"
        self.speeds: FloatArray | None = None  # (n,) that its friction was identified up to
        self.detector = self._detector()
        self.change = self._change()
        self._payload = payload_columns(estimator.base, estimator.model)

    @property
    def _watched(self) -> Watched:
        e = self.estimator
        return Watched(tuple(e.base.names), tuple(joint.name for joint in e.model.joints), e.base.layout)

    def _detector(self) -> DriftDetector:
        e = self.estimator
        return DriftDetector(self._watched, e.settings.memory_s, e.update_s, look_s=self.look_s)

    def _change(self) -> ChangeDetector:
        e = self.estimator
        settings = ChangeSettings(
            capacity_kg=e.model.payload_bound or np.inf, least_s=VELOCITY_KNOWN_S if e.has_dq else 0.0
        )
        return ChangeDetector(self._watched, e.update_s, e.settings.cutoff_hz, settings)

    # ------------------------------------------------------------ what is active

    def start(self, path: Path | None) -> None:
        """Begin with the configured model at `path`, or continue with the one adopted since, if `restore` found one.

        A model file that was configured since then takes precedence. Raises `ConfigError`: the model is another
        robot's; and the errors of `load_model`.
        """
        configured, saved = None, self._saved
        if path is not None:
            from service.models.document import load_model

            configured = load_model(path)
            if configured.robot.sha256 != self.robot.sha256:
                there, own = configured.robot.model.name, self.robot.model.name
                raise ConfigError(f"{path}: is a model of robot {there!r}, not of {own!r} as it is")
            self._configured = hashlib.sha256(path.read_bytes()).hexdigest()
        if saved.get("adopted") and saved["configured"] == self._configured:
            self._restore(saved)
            self._saved = {}
            self._adopted, self.model, self._compared = saved["adopted"], saved["model"] or None, saved["compared"]
            self._predict_by(saved["theta"], saved["constants"], saved["temperatures"], saved["speeds"])
        elif configured is not None:
            try:
                self.springs.prepared(configured.springs)()
            except ConfigError as error:
                raise ConfigError(f"{path}: {error}") from error
            (base, theta, covariance), ranges = configured.rigid, configured.ranges
            constants = base.layout.shape[:, 0]
            self.model = self._configured
            self._predict_by(theta, constants, configured.temperatures, None if ranges is None else ranges.speed)
            self._compare(theta, constants, covariance)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Check a saved state, and keep it for `start` and `activate`; an empty one has no model."""
        self._saved = {}
        if not state:
            return
        if not all(isinstance(state.get(name), str) for name in ("adopted", "model", "configured", "compared")):
            raise ValueError("the saved state does not say which model is active")
        values: dict[str, Any] = dict.fromkeys(("theta", "constants"))
        if state["adopted"]:
            values = {name: self.values_of(state, name) for name in values}
            if (values["constants"] < 0.0).any():
                raise ValueError("constants of the saved state's active model are negative")
        values |= {"temperatures": self._range(state.get("temperatures")), "speeds": self.speeds_of(state)}
        self._detector().restore(part("drift_", state))
        if change := part("change_", state):
            self._change().restore(change)
        self._saved = {**state, **values}

    def values_of(self, given: Mapping[str, Any], name: str) -> FloatArray:
        """Return `theta` or `constants` (p,) of a model from plain values; raises `ValueError`."""
        p = len(self.estimator.base)
        try:
            value = np.array(given.get(name), dtype=np.float64)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{name} of the model: {error}") from error
        if value.shape != (p,) or not np.isfinite(value).all():
            raise ValueError(f"{name} of the model: expected {p} finite values")
        return value

    def state(self) -> dict[str, Any]:
        """Return the content of the state file: no model is adopted twice, and the monitors continue."""
        values: dict[str, Any] = {"adopted": self._adopted, "model": self.model or ""}
        values |= {"configured": self._configured, "compared": self._compared}
        if self._adopted:
            values |= {"theta": self.theta, "constants": self._constants}
            if self._temperatures is not None:
                values["temperatures"] = np.stack((self._temperatures.lower, self._temperatures.upper))
            if self.speeds is not None:
                values["speeds"] = self.speeds
        return values | prefixed("drift_", self.detector.state()) | prefixed("change_", self.change.state())

    def _predict_by(
        self, theta: FloatArray | None, constants: FloatArray | None, temperatures: TemperatureRange | None,
        speeds: FloatArray | None,
    ) -> None:  # fmt: skip
        self.estimator.set_active(theta, constants)
        self._keep(theta, temperatures, speeds)

    def _range(self, limits: object) -> TemperatureRange | None:
        """Return the temperature range of a model from plain values; raises `ValueError` or `TypeError`."""
        return None if limits is None else TemperatureRange.from_plain(limits, self.estimator.model.n)

    def speeds_of(self, given: Mapping[str, Any]) -> FloatArray | None:
        """Return the speeds (n,) of a model from plain values; raises `ValueError` or `TypeError` if they are none."""
        return checked_speeds(given.get("speeds"), self.estimator.model.n)

    def _keep(
        self, theta: FloatArray | None, temperatures: TemperatureRange | None, speeds: FloatArray | None
    ) -> None:  # fmt: skip
        self._temperatures, self.speeds = (None, None) if theta is None else (temperatures, speeds)
        self.theta, self._constants = theta, self.estimator.base.layout.shape[:, 0].copy()
        self.digest = "" if theta is None else values_digest(theta, self._constants)

    # ------------------------------------------------------------ requests

    def activate(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Serve the verb `activate`; a model with the id of the one adopted last is not adopted again."""
        model, adopt, robot = args.get("model"), args.get("adopt") or False, args.get("robot")
        if not isinstance(adopt, bool) or not (model is None or (isinstance(model, str) and 0 < len(model) <= 200)):
            raise ControlError("bad_argument", "activate: adopt is true or false, and model a text of at most 200")
        if robot is not None:
            self.check_robot(robot, "activate: robot: ")
        try:
            theta, constants, covariance = (_array(args.get(name)) for name in ("theta", "constants", "covariance"))
            seen, speeds = self._range(args.get("temperatures")), self.speeds_of(args)
            self._check(theta, covariance, seen)
            begin = self.springs.prepared(None if theta is None else args.get("elastic") or ())
            adopted = adopt and self._take(theta, constants, covariance, seen, speeds, model)
            if not adopt:
                self._predict_by(theta, constants, seen, speeds)
            begin()
        except (ValueError, TypeError) as error:
            names = "theta, constants, covariance, temperatures, speeds or elastic"
            raise ControlError("bad_argument", f"{names}: {error}") from error
        if not adopt:
            self._compare(theta, constants, covariance)
            self._saved, self._adopted = {}, ""
            self.model = None if theta is None else model
        return {"active": "estimate" if theta is None else "model", "model": self.model, "adopted": adopted}

    def check_robot(self, sha256: object, where: str = "") -> None:
        """Raise `ControlError` unless a model's robot has the hash of this arm's."""
        if sha256 != self.robot.sha256:
            raise ControlError(
                "bad_argument",
                f"{where}the model is of another robot ({sha256!r:.80}) than {self.robot.model.name!r} of this arm as "
                f"it is now ({self.robot.sha256})",
            )

    def _check(self, theta: FloatArray | None, covariance: FloatArray | None, seen: TemperatureRange | None) -> None:
        if covariance is not None and (theta is None or covariance.shape != (len(self.estimator.base),) * 2):
            raise ValueError("covariance needs theta, and a row and a column for each of its values")
        if theta is not None and seen is None and self.estimator.has_temperature:
            raise ValueError("friction follows temperature, and the model does not say at which it was identified")

    def _take(
        self, theta: FloatArray | None, constants: FloatArray | None, covariance: FloatArray | None,
        temperatures: TemperatureRange | None, speeds: FloatArray | None, model: str | None,
    ) -> bool:  # fmt: skip
        """Adopt a model, unless it is the last adopted one; return whether it was adopted."""
        if theta is None or covariance is None:
            raise ValueError("a model can be adopted only with its theta and covariance")
        key = model or values_digest(theta, constants, covariance)
        if key == self._adopted:
            return False
        self.estimator.adopt(theta, covariance, constants, temperatures)
        self._keep(theta, temperatures, speeds)
        self._refer(theta, covariance, adopted=True)
        self._compared, self._saved = values_digest(theta, constants, covariance), {}
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
        if key == self._saved.get("compared"):
            self._restore(self._saved)
        else:
            self._refer(theta, covariance, adopted=False)
        self._compared = key

    def _refer(self, theta: FloatArray | None, covariance: FloatArray | None, *, adopted: bool) -> None:
        """Set the model to compare with."""
        self._report_changes(self.detector.set_model(theta, covariance, adopted=adopted))  # of the model before
        self.change.set_model(theta is not None, payload_information(self._payload, covariance), theta)

    def _restore(self, saved: Mapping[str, Any]) -> None:
        """Restore the saved monitors; files of earlier versions have none of sudden changes."""
        self.detector.restore(part("drift_", saved))
        if change := part("change_", saved):
            self.change.restore(change)
        else:
            self.change.set_model(True)

    def observe(self, report: EstimateReport) -> None:
        """Compare the active model with an estimate; about once a second of the frames' clock.

        A change by a payload or a sensor is no drift of the arm, and may not be known yet while it is being classified.
        """
        spoiled = bool(self.change.invalid_reason)
        if spoiled or self.change.status == "classifying":
            self._report_changes(self.detector.skip(report, spoiled=spoiled))
        else:
            self._report_changes(self.detector.observe(report, self.estimator.residual_power))

    def observe_changes(self, t_ns: int) -> None:
        """Detect sudden changes of the arm from its residual up to `t_ns`; ten times a second."""
        broken = self.estimator.trust.broken(self._watched.joints)
        for change in self.change.observe(self.estimator.take_evidence(), t_ns, broken):
            self.report_event(change.kind, change.text, {"model": self.model, **change.data})

    def snapshot(self) -> dict[str, Any]:
        """Return the state of the monitors, for `rollback`."""
        return {"model": self.digest, "drift": self.detector.state(), "change": self.change.snapshot()}

    def rollback(self, snapshot: Mapping[str, Any]) -> None:
        """Restore the monitors from `snapshot`, unless another model was active."""
        if snapshot.get("model") == self.digest:
            self.detector.restore(snapshot["drift"])
            self.change.rollback(snapshot["change"])

    @property
    def reported(self) -> list[str]:
        """Reports that still hold: "drift", "invalid", "sensor", "payload"."""
        change = self.change.report()
        holds = {
            "drift": self.detector.report().state == "drifted", "invalid": self.detector.invalid,
            "sensor": bool(change["sensor_faults"]), "payload": change["payload"] is not None,
        }  # fmt: skip
        return [what for what, does in holds.items() if does]

    def _report_changes(self, changes: tuple[Change, ...]) -> None:
        for change in changes:
            data: dict[str, Any] = {"joints": list(change.joints), "parameters": list(change.parameters)}
            if change.kind == "drift":
                data = self.report()["drift"]
            self.report_event(change.kind, change.text, {"model": self.model, **data})

    # ------------------------------------------------------------ temperature

    def temperature_invalid_reason(self, seen: TemperatureRange | None) -> str:
        """Return why a model identified at `seen` does not hold at the present temperatures; empty if it does."""
        found = self._temperature(seen)
        return "" if found is None else str(found["reason"])

    def _temperature(self, seen: TemperatureRange | None) -> dict[str, Any] | None:
        """Return `temperature` of a status message: the present ones, and whether a model identified at `seen` holds.

        None where friction does not follow temperature.
        """
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
        found = self._temperature(self._temperatures)
        if found is None or found["state"] == self._reported_temperature:
            return
        self._reported_temperature = found["state"]
        self.report_event(f"temperature_{found['state']}", found["reason"] or "temperatures are known again", found)

    @property
    def settled(self) -> bool:
        """Whether no sudden change is being classified, and no sensor is known to be faulty."""
        return self.change.status != "classifying" and not self.change.report()["sensor_faults"]

    @property
    def identity(self) -> str:
        """The active model's id, or a digest of its values; empty without one."""
        return "" if self.theta is None else self.model or self._compared or self._adopted

    @property
    def invalid_reason(self) -> str:
        """Why the active model is not valid, as far as it is known; empty otherwise."""
        if frames := self.frames_invalid_reason():
            return frames
        # An invalid estimate is reported until it has moved for a while; an adoption may have corrected it meanwhile.
        if self.detector.invalid and "invalid" in self.estimator.report().status:
            return "the torque of a joint is not explained"
        if temperature := self.temperature_invalid_reason(self._temperatures):
            return temperature
        return self.change.invalid_reason or self.detector.report().text

    def report(self) -> dict[str, Any]:
        """Return `model`, `drift` and `change` of a status message, and `temperature` where friction follows it."""
        found = self.detector.report()
        drift = {
            "state": found.state, "since": None if found.since_ns is None else found.since_ns * 1e-9,
            "joints": found.joints, "parameters": [asdict(parameter) for parameter in found.parameters],
            "levels": found.levels, "reason": found.text,
        }  # fmt: skip
        change = self.change.report() | {"capacity_kg": self.estimator.model.payload_bound}
        status = {"model": self.model, "drift": drift, "change": change}
        temperature = self._temperature(self._temperatures)
        return status if temperature is None else status | {"temperature": temperature}


def _array(value: object) -> FloatArray | None:
    return None if value is None else np.array(value, dtype=np.float64)


def values_digest(*values: FloatArray | None) -> str:
    """Return a digest that identifies a model by its values."""
    content = json.dumps([None if value is None else value.tolist() for value in values])
    return "values:" + hashlib.sha256(content.encode()).hexdigest()
