"""Payload of an arm, from its model without payload and a recording or an estimate with it.

`rt_core.identification.payload` finds the ten parameters about the flange. Here they become mass, centre of mass, and
inertia about it, each with an interval and a status.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from drivers.files.recordings.recording import Recording, Span
from rt_core.identification.estimate import EstimatorOptions
from rt_core.identification.identify import Identification
from rt_core.identification.least_squares import compress
from rt_core.identification.payload import (
    NATURAL_LENGTH,
    PRESENT,
    RELATIVE_STD_LIMIT,
    Estimated,
    Payload,
    payload_from_change,
    payload_from_rows,
)
from rt_core.identification.physical.fit import noise_inflation
from rt_core.identification.status import ParameterStatus, Quantity
from rt_core.identification.uncertainty import estimate_covariance
from rt_core.model.base import payload_columns
from rt_core.model.inertia import mass_com_inertia, six
from rt_core.model.robot import RobotModel
from rt_core.statistics import NORMAL_QUANTILE_95
from rt_core.types import FloatArray
from rt_core.validation import torque_metrics
from service.models.document import ModelFile, load_model
from service.models.origin import Dataset, share_seen
from service.operations.identify import identify_recording

#: Name and unit of the reported quantities, in the order of the ten parameters.
QUANTITIES = (
    ("mass", "kg"),
    *((f"centre_{axis}", "m") for axis in "xyz"),
    *((f"inertia_{axes}", "kg*m^2") for axes in ("xx", "xy", "yy", "xz", "yz", "zz")),
)
#: Each quantity depends on these of the ten parameters.
_DEPENDS = ((0,), (0, 1), (0, 2), (0, 3), (0, 2, 3, 4), (0, 1, 2, 5), (0, 1, 3, 6), (0, 1, 3, 7), (0, 2, 3, 8),
            (0, 1, 2, 9))  # fmt: skip
#: Scatter between the two sets of data, relative to their noise, beyond which a payload does not explain the change.
SCATTER_LIMIT = 3.0
_SAME = 1e-9

PayloadVerdict = Literal["determined", "partly_determined", "doubtful", "no_payload", "not_determined", "not_explained"]


class PayloadError(ValueError):
    """The input does not allow a search for a payload; the message has reason and remedy."""


@dataclass(frozen=True)
class PayloadResult:
    """Result of the search for a payload.

    `quantities` come in the order of `QUANTITIES`: mass, centre of mass in the flange frame, inertia about it in the
    flange's axes. `scatter` is the rms of the change that a payload does not explain, relative to the noise; about 1 if
    all is well. It widens the intervals. `predicted` (K, n) is the torque of the arm with the payload at the
    identification's rows; None where no single payload gives it, because nothing explains the recording or other
    effects were fitted along with it.
    """

    verdict: PayloadVerdict
    reasons: tuple[str, ...]
    present: bool  # the mass is significantly above zero
    quantities: tuple[Quantity, ...]
    body: FloatArray | None  # (10,) nearest real one, in the flange frame; None if a quantity is open or doubtful
    scatter: float | None
    identification: Identification | None = None  # of the recording with payload, where one was given
    errors: tuple[float, float | None, float] | None = None  # of torque on it: without payload, with it, own fit
    predicted: FloatArray | None = None
    torque_std: float = 0.0  # relative standard deviation of the torque's scale that the intervals allow for
    torque_factor: Quantity | None = None  # measured torque over true torque, from a payload of known mass

    @property
    def known(self) -> bool:
        """Whether there is a payload whose mass is determined, even if doubtful."""
        return self.verdict in ("determined", "partly_determined", "doubtful")


def payload_in_recording(
    before: ModelFile, recording: Recording, *, span: Span | None = None, refit_effects: bool = False
) -> PayloadResult:
    """Find the payload in a recording with it, from the model `before` of the arm without.

    The recording is prepared as the model's own was, and fitted freely: its residuals give the noise. Raises
    `PayloadError` if the model cannot be used, or the recording is of another robot or the model's own; `DataError` if
    the recording cannot be used.
    """
    _check_before(before)
    origin = before.document["data"]
    known = origin.get("robot")
    if known and recording.robot and known != recording.robot:
        raise PayloadError(
            f"{recording.path}: is of robot {recording.robot}, but {before.path} was identified from one of {known}: "
            "give a recording of the same robot"
        )
    options = EstimatorOptions(constants="given")
    base, model = before.base, before.robot.model
    data = Dataset(recording, before.robot, before.settings, span)
    found = identify_recording(data, options=options, base=base)
    rows = found.rows
    if share_seen(origin, recording, rows.t) > 0.0:
        raise PayloadError(
            f"{recording.path}: is the recording that {before.path} was identified from, or one of them: a payload "
            "shows only between two recordings (or give --span a part that the model has not seen)"
        )
    if found.verdict == "not_explained":
        reasons = ("the robot's model does not explain the recording, with or without a payload", *found.reasons)
        why = "the recording is not explained"
        return PayloadResult("not_explained", reasons, False, _all_open(why), None, None, found)
    triangles = compress(rows.Y, rows.tau, rows.use)
    sigma = found.solution.sigma
    inflation = noise_inflation(triangles, found.solution, estimate_covariance(rows, found.solution).covariance)
    without = Estimated(before.theta, before.covariance)
    payload = payload_from_rows(
        base, model, without, triangles, sigma * np.sqrt(inflation), refit_effects=refit_effects
    )

    def error(theta: FloatArray) -> float:
        return torque_metrics(rows.tau, rows.predict(theta), rows.use).relative_error

    loaded = before.theta + payload_columns(base, model) @ payload.estimate
    errors = (error(before.theta), None if refit_effects else error(loaded), found.metrics.relative_error)
    result = _result(payload, refit_effects, _visible_limit(model), found, errors)
    return result if refit_effects else replace(result, predicted=rows.predict(loaded))


def payload_between(
    before: ModelFile, theta: FloatArray, covariance: FloatArray, *, refit_effects: bool = False
) -> PayloadResult:
    """Find the payload from the model `before` of the arm without it and base parameters (p,), (p, p) with it.

    Raises `PayloadError` if the model cannot be used.
    """
    _check_before(before)
    without, loaded = Estimated(before.theta, before.covariance), Estimated(theta, covariance)
    payload = payload_from_change(before.base, before.robot.model, without, loaded, refit_effects=refit_effects)
    return _result(payload, refit_effects, _visible_limit(before.robot.model))


def with_torque_scale(result: PayloadResult, torque_std: float = 0.0, known_mass: float | None = None) -> PayloadResult:
    """Return a result whose intervals allow for the scale of the torque, or that tells it from a known mass.

    A factor that all torques have in common does not show in any fit: mass and inertia have it, too. It is what an
    error of the torque constants does. `torque_std` is its relative standard deviation, at least 0 and below 1,
    `known_mass` the mass of the payload by weighing [kg]; `PayloadError` if one of them is out of range.
    """
    if not 0.0 <= torque_std < 1.0:
        raise PayloadError(f"the torque's relative standard deviation must be from 0 to 1, not {torque_std:g}")
    if known_mass is not None and not 0.0 < known_mass < np.inf:
        raise PayloadError(f"the known mass must be a positive number of kilograms, not {known_mass:g}")
    quantities = tuple(q if q.name.startswith("centre") else _scaled(q, torque_std) for q in result.quantities)
    mass = result.quantities[0]
    factor: Quantity | None = None
    reasons = result.reasons
    if known_mass is not None and mass.value is not None and mass.std is not None:
        value, std = mass.value / known_mass, mass.std / known_mass
        half = NORMAL_QUANTILE_95 * std
        factor = Quantity("torque_factor", "1", value, std, value - half, value + half, mass.status)
        reasons = (
            *reasons,
            f"with the known mass of {known_mass:g} kg, measured torque is {value:.4g} +- {half:.2g} (95 %) times the "
            "true one: divide the torque constants by it",
        )
    return replace(result, quantities=quantities, torque_std=torque_std, torque_factor=factor, reasons=reasons)


def _scaled(q: Quantity, torque_std: float) -> Quantity:
    if torque_std == 0.0 or q.value is None or q.std is None:
        return q
    std = float(np.hypot(q.std, torque_std * q.value))
    half = NORMAL_QUANTILE_95 * std
    return replace(q, std=std, lower=q.value - half, upper=q.value + half)


def load_after(path: Path, before: ModelFile) -> tuple[FloatArray, FloatArray]:
    """Read base parameters (p,) and covariance (p, p) with payload: a model file, or a daemon's snapshot (.json).

    Raises `PayloadError` if the file is neither, or of another robot.
    """
    if path.suffix == ".json":
        return _from_snapshot(path, before)
    after = load_model(path)
    if after.robot.sha256 != before.robot.sha256:
        raise PayloadError(
            f"{path}: is of robot {after.robot.model.name} (sha256 {after.robot.sha256[:12]}), {before.path} of "
            f"{before.robot.model.name} ({before.robot.sha256[:12]}): both models must be of the same robot file"
        )
    if after.document["verdict"] == "not_explained":
        raise PayloadError(f"{path}: does not explain its own recording: identify again")
    _check_rigid(after)
    _check_constants(path, after.base.layout.shape[:, 0], before)
    return after.theta, after.covariance


def _from_snapshot(path: Path, before: ModelFile) -> tuple[FloatArray, FloatArray]:
    base = before.base
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        meta = found["meta"]
        theta, covariance, mapping, constants = (
            np.asarray(values, dtype=np.float64)
            for values in (found["theta"], found["covariance"], meta["base_map"], meta["constants"])
        )
        names, robot, status = tuple(meta["parameters"]), str(meta["robot"]), tuple(found["status"])
    except (KeyError, TypeError, ValueError) as error:
        raise PayloadError(
            f"{path}: is not the answer of `thetad control snapshot`: {type(error).__name__} {error}"
        ) from error
    p = len(base)
    same = names == base.names and mapping.shape == base.mapping.shape and np.allclose(mapping, base.mapping, _SAME)
    if not same:
        raise PayloadError(
            f"{path}: is of robot {robot}, whose base parameters are not those of {before.robot.model.name} in "
            f"{before.path}: both must be of the same robot file"
        )
    if theta.shape != (p,) or covariance.shape != (p, p) or not (np.isfinite(theta) & np.isfinite(covariance)).all():
        raise PayloadError(f"{path}: theta or covariance do not hold {p} finite values: take another snapshot")
    if "invalid" in status:
        raise PayloadError(f"{path}: the estimator had stopped: its estimate is invalid; take another snapshot")
    _check_constants(path, constants, before)
    return theta, covariance


def _check_constants(path: Path, constants: FloatArray, before: ModelFile) -> None:
    if not np.allclose(constants, before.base.layout.shape[:, 0], rtol=_SAME, atol=0.0):
        raise PayloadError(
            f"{path}: its velocity constants of friction are not those of {before.path}, so that friction parameters "
            "cannot be compared: give the recording with payload instead"
        )


def _check_rigid(model: ModelFile) -> None:
    if model.springs:
        raise PayloadError(f"{model.path}: its joints are elastic: identify with --joints rigid to find a payload")


def _check_before(before: ModelFile) -> None:
    _check_rigid(before)
    if before.document["verdict"] == "not_explained":
        raise PayloadError(f"{before.path}: does not explain its own recording: identify the arm without payload again")
    open_ = [name for name, v in zip(before.base.names, np.diag(before.covariance), strict=True) if not v > 0.0]
    if open_:
        more = f" and {len(open_) - 5} more" if len(open_) > 5 else ""
        raise PayloadError(
            f"{before.path}: leaves {', '.join(open_[:5])}{more} open, so a payload cannot be separated from them: "
            "identify the arm without payload with `thetad identify --method physical`, which knows all within limits"
        )


#: Arms carry from a twentieth to half of their own mass: where a tenth of it would not show, "no payload" says nothing.
_VISIBLE_SHARE = 0.1


def _visible_limit(model: RobotModel) -> float:
    """Return the mass [kg] that has to show before its absence is stated; infinite if the arm's mass is not known."""
    if model.inertial is None or not (model.inertial[:, 0] > 0.0).all():
        return np.inf
    return float(_VISIBLE_SHARE * model.inertial[:, 0].sum())


def _result(
    payload: Payload, refit_effects: bool, visible_limit: float, found: Identification | None = None,
    errors: tuple[float, float | None, float] | None = None,
) -> PayloadResult:  # fmt: skip
    scatter = payload.scatter
    wider = max(scatter, 1.0)
    mass, std = float(payload.estimate[0]), wider * float(payload.std[0])
    doubtful = scatter > SCATTER_LIMIT
    reasons: list[str] = []
    if doubtful:
        advice = (
            "the arm or its mounting is not the same in both"
            if refit_effects
            else "friction or offsets may differ between them: warm the arm up alike, or try --refit-effects"
        )
        reasons.append(
            f"with and without payload differ by {scatter:.1f} times as much as noise and a payload explain: {advice}"
        )
    if not mass > PRESENT * std:
        seen = bool(np.isfinite(std)) and PRESENT * std < visible_limit
        verdict: PayloadVerdict = "no_payload" if seen else "not_determined"
        if verdict == "not_determined":
            why = (
                "the data show nothing of the mass"
                if not np.isfinite(std)
                else f"a mass below {PRESENT * std:.2g} kg would not show in these data"
            )
            reasons.insert(0, f"{why}: record a motion in which the wrist is lifted and turned")
        else:
            why = "no payload is seen"
            reasons.insert(
                0,
                f"no payload is seen: its estimated mass is {mass:.3g} ± {NORMAL_QUANTILE_95 * std:.2g} kg (95 %); "
                f"one of more than {PRESENT * std:.2g} kg would show",
            )
            if mass < -PRESENT * std:
                reasons.append(
                    "the mass is clearly negative: the arm carried more in the first data than in the second"
                )
        return PayloadResult(verdict, tuple(reasons), False, _all_open(why), None, scatter, found, errors)
    quantities = _quantities(payload, wider, doubtful)
    states = [q.status for q in quantities]
    if states[0] == "undetermined":
        verdict = "not_determined"
        reasons.insert(0, f"there is a payload, but its mass is known to ± {NORMAL_QUANTILE_95 * std:.2g} kg only")
    elif doubtful:
        verdict = "doubtful"
    else:
        verdict = "partly_determined" if "undetermined" in states else "determined"
    if "undetermined" in states[1:]:
        names = ", ".join(q.name for q in quantities[1:] if q.status == "undetermined")
        reasons.append(
            f"not determined: {names}; turning the wrist about all axes shows the centre of mass, fast turning the "
            "inertia"
        )
    body = None if doubtful or "undetermined" in states else payload.phi
    return PayloadResult(verdict, tuple(reasons), True, quantities, body, scatter, found, errors)


def _all_open(why: str) -> tuple[Quantity, ...]:
    return tuple(Quantity(name, unit, None, None, None, None, "undetermined", why) for name, unit in QUANTITIES)


def _quantities(payload: Payload, wider: float, doubtful: bool) -> tuple[Quantity, ...]:
    """Return mass, centre and inertia about it with intervals, by linear propagation; `wider` widens them."""
    phi = payload.estimate
    mass, com, inertia = mass_com_inertia(phi)
    values = np.concatenate(([mass], com, six(inertia)))
    moved = _derivatives(phi)
    stds = wider * np.sqrt(np.einsum("ij,jk,ik->i", moved, payload.covariance, moved))
    natural = mass * np.array([1.0] + 3 * [NATURAL_LENGTH / mass] + 6 * [NATURAL_LENGTH**2])
    out = []
    for (name, unit), value, std, size, needs in zip(QUANTITIES, values, stds, natural, _DEPENDS, strict=True):
        status: ParameterStatus = "undetermined"
        reason: str | None = None
        if not np.isfinite(payload.std[list(needs)]).all():
            reason = "the data show nothing of it"
            out.append(Quantity(name, unit, None, None, None, None, status, reason))
            continue
        if std <= RELATIVE_STD_LIMIT * abs(value):
            status = "doubtful" if doubtful else "determined"
        elif std <= RELATIVE_STD_LIMIT * size:
            status = "doubtful" if doubtful else "weak"
        half = NORMAL_QUANTILE_95 * float(std)
        if status == "undetermined":
            reason = f"known to ± {half:.2g} {unit} only"
            out.append(Quantity(name, unit, None, float(std), None, None, status, reason))
        else:
            out.append(Quantity(name, unit, float(value), float(std), float(value) - half, float(value) + half, status))
    return tuple(out)


def _derivatives(phi: FloatArray) -> FloatArray:
    """Return the derivatives (10, 10) of mass, centre of mass and inertia about it with respect to `phi` (10,)."""
    mass, h = float(phi[0]), phi[1:4]
    out = np.eye(10)
    out[1:4, 1:4] = np.eye(3) / mass
    out[1:4, 0] = -h / mass**2
    out[4:, 0] = six(h @ h * np.eye(3) - np.outer(h, h)) / mass**2
    for k, unit in enumerate(np.eye(3)):
        out[4:, 1 + k] = -six(2.0 * h[k] * np.eye(3) - np.outer(unit, h) - np.outer(h, unit)) / mass
    return out


def payload_document(result: PayloadResult) -> dict[str, Any]:
    """Return a result as plain data."""
    rows = [
        {key: getattr(q, key) for key in ("name", "unit", "value", "std", "lower", "upper", "status", "reason")}
        for q in result.quantities
    ]
    out: dict[str, Any] = {
        "verdict": result.verdict, "reasons": list(result.reasons), "present": result.present, "mass": rows[0],
        "centre_of_mass": rows[1:4], "inertia": rows[4:], "frame": "flange", "scatter": result.scatter,
        "torque_std": result.torque_std, "torque_factor": None, "body": None,
    }  # fmt: skip
    if result.body is not None:
        mass, com, inertia = mass_com_inertia(result.body)
        out["body"] = {"mass": mass, "centre_of_mass": com.tolist(), "inertia": inertia.tolist()}
    if result.torque_factor is not None:
        f = result.torque_factor
        out["torque_factor"] = {"value": f.value, "std": f.std, "lower": f.lower, "upper": f.upper}
    if result.errors is not None:
        keys = ("without_payload", "with_payload", "own_fit")
        out["relative_error"] = dict(zip(keys, result.errors, strict=True))
    return out
