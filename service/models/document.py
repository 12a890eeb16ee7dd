"""The model file: a YAML document with everything that a prediction needs, and the model's origin.

The robot description is embedded, so that a model file stands alone. `theta` and `covariance` hold the full estimate;
in `parameters`, which people read, a value that the data do not determine is null. A model with elastic joints has a
format of its own, so that versions that know rigid joints alone refuse it.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from drivers.files.atomic_write import write_text as write_text
from drivers.files.recordings.recording import Recording
from drivers.files.robots.file import RobotFile, robot_from_source
from rt_core.elastic.arm import elastic_base
from rt_core.identification.identify import Identification, finding_text
from rt_core.identification.joint_verdict import verdicts_of
from rt_core.identification.preprocess import SignalSettings
from rt_core.identification.rows import Rows
from rt_core.model.base import BaseParameters, base_parameters, needing_gravity
from rt_core.model.friction import REFERENCE_TEMPERATURE
from rt_core.model.parameters import friction_constants, with_constants
from rt_core.model.ranges import IdentifiedRanges, extent
from rt_core.model.robot import RobotModel
from rt_core.model.temperature import MAX_C, MIN_C, TemperatureRange
from rt_core.types import FloatArray
from service.models._schema import SIZE_LIMIT, RangesTable, SettingsTable, TemperatureTable, check_document, read_yaml
from service.models.origin import Dataset, origin_of

FORMAT, ELASTIC_FORMAT = "thetad-model/1", "thetad-model/2"
#: Statuses of a batch model whose value is hidden: the data do not support it.
HIDDEN = ("undetermined", "prior")
_ASYMMETRY = 1e-9  # of a covariance, relative to its largest entry
_INDEFINITE = 1e-8  # least eigenvalue of a correlation matrix that rounding explains


class ModelFileError(ValueError):
    """A model file that is unreadable or does not fit; the message names file and field."""


@dataclass(frozen=True)
class ModelFile:
    """A model as read from its file.

    `robot` is the embedded description; its model has the friction constants that were found. `settings` say how the
    signals were prepared; a validation prepares its own the same way. `document` is the whole file. `standard` (P,) is
    a full set of standard parameters that is physically consistent link by link, where the method gives one.
    `temperatures` are those that friction was identified at; None if it does not follow them.  `ranges` are speeds,
    loads and, where recorded, temperatures of the identification; older and online models have none.
    """

    path: Path
    robot: RobotFile
    base: BaseParameters
    theta: FloatArray
    covariance: FloatArray
    settings: SignalSettings
    document: dict[str, Any]
    standard: FloatArray | None = None
    temperatures: TemperatureRange | None = None
    ranges: IdentifiedRanges | None = None

    @property
    def fit_error(self) -> float | None:
        """Relative torque error of the identification, None for an online model."""
        value = (self.document.get("metrics") or {}).get("relative_error")
        return None if value is None else float(value)

    @property
    def values(self) -> dict[str, Any]:
        """Parameters of `rigid`, constants and, where known, temperatures and speeds, as arguments for an estimator."""
        base, theta, _ = self.rigid
        values = {"theta": theta.tolist(), "constants": base.layout.shape[:, 0].tolist()}
        values |= {} if self.temperatures is None else {"temperatures": self.temperatures.plain}
        return values if self.ranges is None else values | {"speeds": self.ranges.speed.tolist()}

    @property
    def springs(self) -> list[dict[str, Any]]:
        """Entries of the elastic joints; empty where joints are rigid."""
        return list(self.document.get("elastic", ()))

    @cached_property
    def rigid(self) -> tuple[BaseParameters, FloatArray, FloatArray]:
        """Base parameters, their values (p,) and covariance (p, p), where the motors move as the links do.

        A value that rests on one without a variance in the file has zeros in the covariance.
        """
        if not self.springs:
            return self.base, self.theta, self.covariance
        base = base_parameters(self.robot.model)
        mapping = base.mapping[:, self.base.independent]
        covariance = mapping @ self.covariance @ mapping.T
        open_ = np.asarray(mapping[:, np.diag(self.covariance) == 0.0].any(axis=1))
        covariance[open_] = covariance[:, open_] = 0.0
        return base, mapping @ self.theta, 0.5 * (covariance + covariance.T)

    @property
    def origin(self) -> str:
        """Origin of the model: a recording, or the daemon's arm."""
        data = self.document["data"]
        return str(data.get("recording") or data.get("arm") or "unknown data")


def digest(content: Any) -> str:
    """Return the SHA-256 of plain JSON content, independent of key order."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def settings_document(settings: SignalSettings) -> dict[str, Any]:
    """Return signal settings as plain data, with the defaults resolved."""
    speeds = settings.min_velocity
    table: dict[str, Any] = {
        "cutoff_hz": settings.cutoff_hz, "rate_hz": settings.row_rate_hz, "filter_order": settings.filter_order,
        "trim_s": settings.trim, "min_velocity": None if speeds is None else [float(v) for v in speeds],
    }  # fmt: skip
    # only where it is not the default, so that earlier files keep their digest
    return table if settings.velocity == "measured" else table | {"velocity": settings.velocity}


def _signal_settings(table: SettingsTable) -> SignalSettings:
    speeds = table.min_velocity
    return SignalSettings(
        cutoff_hz=table.cutoff_hz, rate_hz=table.rate_hz, filter_order=table.filter_order, trim_s=table.trim_s,
        min_velocity=None if speeds is None else np.asarray(speeds, dtype=np.float64), velocity=table.velocity,
    )  # fmt: skip


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def finite_covariance(covariance: FloatArray) -> FloatArray:
    """Return a covariance with zeros for unknown entries; the parameters' statuses mark these."""
    open_ = ~np.isfinite(np.diag(covariance))
    out = np.where(np.isfinite(covariance), covariance, 0.0)
    out[open_] = 0.0
    out[:, open_] = 0.0
    return np.asarray(out)


def parameter_table(
    base: BaseParameters, theta: FloatArray, std: FloatArray, status: tuple[str, ...], hide: tuple[str, ...]
) -> list[dict[str, Any]]:
    """Return one entry per base parameter; the value of a parameter whose status is in `hide` is null."""
    rows: list[dict[str, Any]] = []
    for k, expression in enumerate(base.expressions):
        shown = status[k] not in hide
        relative = std[k] / abs(theta[k]) if theta[k] != 0.0 else np.inf
        rows.append(
            {
                "name": base.names[k], "expression": expression, "unit": base.layout.units[k],
                "value": _finite(theta[k]) if shown else None,
                "std": _finite(std[k]) if status[k] != "dropped" else None,
                "relative_std": _finite(relative) if status[k] != "dropped" else None, "status": status[k],
            }
        )  # fmt: skip
    return rows


def estimator_document(result: Identification) -> dict[str, Any]:
    """Return how the parameters were estimated, for the record."""
    options, search, consistent = result.options, result.estimate.search, result.estimate.consistent
    out: dict[str, Any] = {"seed": options.seed}
    if options.method == "iwls":
        out["loss"] = options.loss
    if search is not None:
        out |= {
            "formulation": options.formulation, "evaluations": int(search.evaluations), "stopped": search.stopped,
            "converged": bool(search.converged), "cost": float(search.cost), "at_bound": list(search.at_bound),
        }  # fmt: skip
    if options.bounds is not None:
        out["bounds"] = {name: [float(v) for v in pair] for name, pair in options.bounds.items()}
    if consistent is not None:
        out |= {
            "prior": None if options.prior is None else options.prior.name,
            "link_weight": float(consistent.link_weight),
            "smallest_eigenvalue": [float(v) for v in consistent.smallest_eigenvalue],
            "data_share": [float(v) for v in consistent.data_share],
        }
    if result.estimate.dropped.any():
        out["dropped"] = [n for n, gone in zip(result.base.names, result.estimate.dropped, strict=True) if gone]
    return out


def batch_document(
    result: Identification, data: Dataset, created: str | None = None, springs: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """Return the file of a batch identification, with `springs` if any; `created` (ISO 8601, UTC) is now by default."""
    recording, robot = data.recording, data.robot
    chosen = settings_document(replace(data.settings, velocity=result.velocity))
    solution, method = result.solution, result.options.method
    consistent = result.estimate.consistent
    used = result.model.dynamics
    where = friction_constants(result.model)
    return with_digest(
        {
            "format": ELASTIC_FORMAT if springs else FORMAT, "kind": "batch",
            "created": datetime.now(UTC).isoformat(timespec="seconds") if created is None else created,
            "thetad": version("thetad"), "verdict": result.verdict, "reasons": list(result.reasons),
            "notes": list(result.notes), "findings": findings_document(result),
            "robot": {"name": robot.model.name, "sha256": robot.sha256, "source": robot.source},
            "data": {
                "robot": recording.robot, "span": "0:1" if data.span is None else str(data.span),
                "rows": [int(c) for c in result.metrics.count], "row_rate_hz": result.rows.rate_hz,
                "band_hz": result.rows.band_hz, **origin_of(recording, result.rows.t),
            },
            "settings": chosen, "settings_sha256": digest(chosen | {"method": method}), "method": method,
            "estimator": estimator_document(result), "condition_number": _finite(solution.condition_number),
            "scaled_condition_number": _finite(solution.scaled_condition_number), "rank": solution.rank,
            "noise": {
                "std": [float(v) for v in solution.sigma],
                "inflation": [float(v) for v in result.uncertainty.inflation],
            },
            "metrics": result.metrics.as_dict(),
            "constants": [
                {
                    "name": c.name, "unit": c.unit, "value": _finite(c.value), "lower": _finite(c.lower),
                    "upper": _finite(c.upper), "used": float(getattr(used, where[c.name][0])[where[c.name][1]]),
                    "status": "doubtful" if result.verdict == "doubtful" and c.status == "determined" else c.status,
                }
                for c in result.estimate.constants
            ],
            "joints": [
                {"name": joint.name, "verdict": v.word, "counts": dict(v.counts), "reason": v.reason}
                for joint, v in zip(result.model.joints, verdicts_of(result), strict=True)
            ],
            "standard": None if consistent is None else [float(v) for v in consistent.phi],
            **temperature_table(result.temperatures), "ranges": ranges_of(result.rows, recording).plain,
            **_without_gravity(result.model, result.base), **({"elastic": list(springs)} if springs else {}),
            "parameters": parameter_table(result.base, result.theta, result.std, result.status, HIDDEN),
            "theta": [float(v) for v in result.theta],
            "covariance": [[float(v) for v in row] for row in finite_covariance(result.uncertainty.covariance)],
        }
    )  # fmt: skip


def findings_document(result: Identification) -> list[dict[str, Any]]:
    """Return the significant errors that the tests found, as plain data."""
    return [
        {
            "cause": f.kind, "joint": None if f.joint is None else result.model.joints[f.joint].name,
            "estimate": [float(v) for v in f.estimate], "std": [float(v) for v in f.std], "unit": f.unit,
            "z": _finite(f.z), "left": f.left, "named": f.named,
            "gravity": None if f.gravity is None else [float(v) for v in f.gravity],
            "text": finding_text(f, result.model),
        }
        for f in result.diagnosis.findings
    ]  # fmt: skip


#: What predictions and readers use; its digest shows a change.
_VALUES = ("parameters", "theta", "covariance", "standard", "constants", "temperature", "ranges", "elastic")


def with_digest(document: dict[str, Any]) -> dict[str, Any]:
    """Return a model file with the digest of its values."""
    return document | {"values_sha256": _values_digest(document)}


def _values_digest(document: Mapping[str, Any]) -> str:
    return digest({key: document[key] for key in _VALUES if document.get(key) is not None})


def ranges_of(rows: Rows, recording: Recording) -> IdentifiedRanges:
    """Return speeds and loads of the rows in use, and the temperatures that were recorded meanwhile."""
    lower = upper = None
    if "temperature" in recording.channels:
        seen = recording.channels["temperature"][(recording.t >= rows.t[0]) & (recording.t <= rows.t[-1])]
        possible = [c[(c >= MIN_C) & (c <= MAX_C)] for c in seen.T]
        lower = np.array([x.min() if x.size else np.nan for x in possible])
        upper = np.array([x.max() if x.size else np.nan for x in possible])
    return IdentifiedRanges(extent(rows.dq, rows.use), extent(rows.tau, rows.use), lower, upper)


def temperature_table(seen: TemperatureRange | None) -> dict[str, Any]:
    """Return the entry with the temperatures that friction was identified at; empty for None."""
    if seen is None:
        return {}
    lower, upper = seen.plain
    return {"temperature": {"reference_c": REFERENCE_TEMPERATURE, "lower": lower, "upper": upper}}


def _without_gravity(model: RobotModel, base: BaseParameters) -> dict[str, Any]:
    """Return the entry that names what only gravity would show, for an arm without it."""
    names = needing_gravity(model, base)
    return {"needs_gravity": list(names)} if names else {}


def _constants_of(robot: RobotFile, base: BaseParameters, columns: FloatArray) -> Iterator[tuple[str, str, float]]:
    """Return name, unit and value of each friction constant, from those of the columns that it shapes."""
    codes = {source: laws for _, source, laws in robot.model.friction.constants}
    for name, (source, joint) in friction_constants(robot.model).items():
        shaped = np.isin(base.layout.law, codes[source]) & (base.layout.source == joint)
        unit = "rad/s" if robot.model.joints[joint].kind == "revolute" else "m/s"
        if shaped.any():
            yield name, unit, float(columns[shaped][0])


def online_document(
    robot: RobotFile, settings: SignalSettings, snapshot: Mapping[str, Any], source: dict[str, Any]
) -> dict[str, Any]:
    """Return the model file of an online estimate; `source` is the origin of its arm, frames and settings.

    `snapshot` is as the verb of that name replies: `theta`, `std`, `status` (p,) and `covariance` (p, p); in `meta` the
    friction `constants` (p,), by default those of the robot; `temperatures` that it has learned from, if friction
    follows them.
    """
    base, limits = base_parameters(robot.model), snapshot.get("temperatures")
    theta, std, covariance = (np.asarray(snapshot[name], dtype=np.float64) for name in ("theta", "std", "covariance"))
    status = tuple(snapshot["status"])
    used = np.asarray(snapshot.get("meta", {}).get("constants", base.layout.shape[:, 0]), dtype=np.float64)
    temperatures = None if limits is None else TemperatureRange.from_plain(limits, robot.model.n)
    chosen = settings_document(settings)
    hidden = ("unestimated", "invalid", "doubted", "starved")
    supported = all(s not in hidden for s in status)
    verdicts = {"invalid": "not_explained", "doubted": "doubtful"}
    reasons = [] if supported else [f"{sum(s in hidden for s in status)} of {len(status)} parameters are not estimated"]
    return with_digest(
        {
            "format": FORMAT, "kind": "online", "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "thetad": version("thetad"),
            "verdict": "ok" if supported else next((v for s, v in verdicts.items() if s in status), "weak_excitation"),
            "reasons": reasons, "robot": {"name": robot.model.name, "sha256": robot.sha256, "source": robot.source},
            "data": source, "settings": chosen, "settings_sha256": digest(chosen | {"method": "vff_rls"}),
            "method": "vff_rls",
            "constants": [
                {
                    "name": name, "unit": unit, "value": None, "lower": None, "upper": None, "used": value,
                    "status": "given",
                }
                for name, unit, value in _constants_of(robot, base, used)
            ],
            **temperature_table(temperatures), "parameters": parameter_table(base, theta, std, status, hidden),
            "theta": [float(v) for v in theta], "covariance": [[float(v) for v in row] for row in covariance],
        }
    )  # fmt: skip


def model_text(document: dict[str, Any]) -> str:
    """Return the text of a model file, with the digest of its values."""
    return str(
        yaml.dump(with_digest(document), Dumper=yaml.CSafeDumper, default_flow_style=None, sort_keys=False, width=2**16)
    )


def write_model(document: dict[str, Any], path: Path) -> None:
    """Write a model file atomically.

    Raises `ModelFileError` if a variance is not positive, or the covariance not positive semidefinite: such a file is
    never written.
    """
    problem = covariance_problem(np.array(document["covariance"]))
    if problem is not None:
        raise ModelFileError(f"{path} is not written: {problem}; the fit is numerically unsound, identify again")
    write_text(path, model_text(document))


def covariance_problem(covariance: FloatArray) -> str | None:
    """Return why a covariance (p, p) cannot be one; None if it can.

    Rows of zeros stand for parameters without a value, and count as absent.
    """
    if not np.isfinite(covariance).all():
        return "covariance holds NaN or infinity"
    if np.abs(covariance - covariance.T).max(initial=0.0) > _ASYMMETRY * np.abs(covariance).max(initial=0.0):
        return "covariance is not symmetric"
    if (np.diag(covariance) < 0.0).any():
        return "covariance has a negative variance"
    known = np.diag(covariance) > 0.0
    if np.abs(covariance[~known]).max(initial=0.0) > 0.0:
        return "covariance has a variance of zero beside covariances"
    scale = np.sqrt(np.diag(covariance)[known])
    least = float(np.linalg.eigvalsh(covariance[np.ix_(known, known)] / np.outer(scale, scale)).min(initial=0.0))
    return None if least >= -_INDEFINITE else f"covariance is not positive semidefinite (eigenvalue {least:.2g})"


def load_model(path: str | Path) -> ModelFile:
    """Read a model file and check that it is complete and consistent.

    Raises `ModelFileError`, naming the file, the field, and what to do.
    """
    path = Path(path)
    try:
        if path.exists() and not path.is_file():
            raise ModelFileError(f"{path}: is not a file; a model file is written by `thetad identify ... -o FILE`")
        if path.stat().st_size > SIZE_LIMIT:
            raise ModelFileError(f"{path}: {path.stat().st_size} bytes is too large for a model file")
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ModelFileError(
            f"{path}: no such file; a model file is written by `thetad identify ... -o FILE`"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ModelFileError(f"{path}: cannot be read as text: {error}") from error
    try:
        document = read_yaml(text)
    except ValueError as error:
        raise ModelFileError(f"{path}: {error}") from error
    found = document.get("format") if isinstance(document, dict) else None
    if found == "thetad-elastic-arm/1":  # has neither the robot nor the covariance
        raise ModelFileError(f"{path}: {found} is of an earlier version and no model file: identify again for one")
    if not isinstance(document, dict) or found not in (FORMAT, ELASTIC_FORMAT):
        shown = f"format is {found!r:.60}" if found is not None else "there is no format"
        wanted = f"expected {FORMAT!r} or {ELASTIC_FORMAT!r}"
        raise ModelFileError(f"{path}: {shown}, {wanted}: not a model file of this version")
    try:
        return model_from_document(path, document)
    except ValueError as error:
        raise ModelFileError(f"{path}: {error}") from error


def model_from_document(path: Path, document: dict[str, Any]) -> ModelFile:
    """Return the model of a document, which `path` names in messages; `ValueError` if it is damaged."""
    table = check_document(document)
    robot = robot_from_source(table.robot.source, "robot.source")
    if (robot.sha256, robot.model.name) != (table.robot.sha256, table.robot.name):
        raise ValueError(
            "robot: its name or sha256 is not that of the embedded robot: the file was edited; identify again"
        )
    settings = _signal_settings(table.settings)
    if digest(settings_document(settings) | {"method": table.method}) != table.settings_sha256:
        raise ValueError("settings_sha256 does not match the settings: the file was edited; identify again")
    if settings.min_velocity is not None and settings.min_velocity.size != robot.model.n:
        raise ValueError(
            f"settings.min_velocity has {settings.min_velocity.size} values for {robot.model.n} joints; identify again"
        )
    robot = replace(robot, model=with_constants(robot.model, {row.name: row.used for row in table.constants}))
    if (table.format == ELASTIC_FORMAT) != bool(table.elastic):
        raise ValueError(f"elastic: it belongs to models of format {ELASTIC_FORMAT}, and to all of those")
    if table.elastic and [row.joint for row in table.elastic] != [joint.name for joint in robot.model.joints]:
        raise ValueError("elastic: its joints are not those of the embedded robot; identify again")
    base = elastic_base(robot.model) if table.elastic else base_parameters(robot.model)
    if base.names != tuple(row.name for row in table.parameters):
        raise ValueError("parameters are not the base parameters of the embedded robot; identify again")
    p = len(base)
    if len(table.theta) != p or len(table.covariance) != p or any(len(row) != p for row in table.covariance):
        raise ValueError(f"theta or covariance do not have {p} entries: the file is damaged")
    theta, covariance = np.array(table.theta), np.array(table.covariance)
    problem = covariance_problem(covariance)
    if problem is not None and not (table.values_sha256 is None and "semidefinite" in problem):  # an older file
        raise ValueError(f"{problem}: the file is damaged")
    if table.values_sha256 is not None and _values_digest(document) != table.values_sha256:
        raise ValueError(
            "values_sha256 does not match parameters, theta and covariance: the file was edited or damaged"
        )
    standard = None if table.standard is None else np.array(table.standard)
    if standard is not None and standard.shape != (len(base.standard),):
        raise ValueError(f"standard has {standard.size} values, not {len(base.standard)}: the file is damaged")
    temperatures = _temperatures(table.temperature, base, robot.model.n)
    ranges = _ranges(table.ranges, robot.model.n)
    return ModelFile(path, robot, base, theta, covariance, settings, document, standard, temperatures, ranges)


def _ranges(table: RangesTable | None, n: int) -> IdentifiedRanges | None:
    if table is None:
        return None
    lists = (table.speed, table.load, table.lower_c, table.upper_c)
    if any(values is not None and len(values) != n for values in lists):
        raise ValueError(f"ranges: expected {n} values each: the file is damaged")
    speed, load, lower, upper = (None if values is None else np.array(values, dtype=np.float64) for values in lists)
    assert speed is not None
    assert load is not None
    return IdentifiedRanges(speed, load, lower, upper)


def _temperatures(table: TemperatureTable | None, base: BaseParameters, n: int) -> TemperatureRange | None:
    if base.layout.has_temperature != (table is not None):
        raise ValueError("temperature: it belongs to models whose friction follows temperature, and to all of those")
    if table is None:
        return None
    if table.reference_c != REFERENCE_TEMPERATURE or len(table.lower) != n or len(table.upper) != n:
        raise ValueError(f"temperature: expected {n} bounds each, about {REFERENCE_TEMPERATURE:g} degC; identify again")
    return TemperatureRange.from_plain([table.lower, table.upper], n)
