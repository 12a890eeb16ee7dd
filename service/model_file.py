"""The model file: a YAML document that carries everything a prediction needs, and where it came from.

The robot description is embedded, so that a model file stands alone.  `theta` and `covariance` hold
the full estimate; in `parameters`, which people read, a value that the data do not determine is null.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from drivers.recording import Recording, Span
from drivers.robot_file import RobotFile, robot_from_source
from rt_core.batch.identify import Identification
from rt_core.batch.preprocess import SignalSettings
from rt_core.model.base import BaseParameters, base_parameters
from rt_core.types import FloatArray

FORMAT = "thetad-model/1"
_SIZE_LIMIT = 64 * 2**20


class ModelFileError(ValueError):
    """A model file that cannot be read, or does not fit; the message names file and field."""


@dataclass(frozen=True)
class ModelFile:
    """A model as read from its file.

    Attributes
    ----------
    robot : RobotFile
        The embedded robot description.
    base : BaseParameters
    theta : (p,) float64
    covariance : (p, p) float64
    settings : SignalSettings
        How the signals were prepared; a validation prepares its own the same way.
    document : dict
        The whole file.
    """

    path: Path
    robot: RobotFile
    base: BaseParameters
    theta: FloatArray
    covariance: FloatArray
    settings: SignalSettings
    document: dict[str, Any]

    @property
    def fit_error(self) -> float | None:
        """Relative torque error of the identification, None for an online model."""
        value = self.document.get("metrics", {}).get("relative_error")
        return None if value is None else float(value)


def digest(content: Any) -> str:
    """SHA-256 of plain JSON content, independent of key order."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def settings_document(settings: SignalSettings) -> dict[str, Any]:
    """Plain form of signal settings, with the defaults resolved."""
    speeds = settings.min_velocity
    return {
        "cutoff_hz": settings.cutoff_hz,
        "rate_hz": settings.row_rate_hz,
        "filter_order": settings.filter_order,
        "trim_s": settings.trim,
        "min_velocity": None if speeds is None else [float(v) for v in speeds],
    }


def settings_from_document(document: dict[str, Any]) -> SignalSettings:
    """Signal settings of a model file."""
    speeds = document.get("min_velocity")
    return SignalSettings(
        cutoff_hz=float(document["cutoff_hz"]),
        rate_hz=float(document["rate_hz"]),
        filter_order=int(document["filter_order"]),
        trim_s=float(document["trim_s"]),
        min_velocity=None if speeds is None else np.asarray(speeds, dtype=np.float64),
    )


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def parameter_table(
    base: BaseParameters, theta: FloatArray, std: FloatArray, status: tuple[str, ...], hide: tuple[str, ...]
) -> list[dict[str, Any]]:
    """One entry per base parameter; the value of a parameter whose status is in `hide` is null."""
    rows: list[dict[str, Any]] = []
    for k, expression in enumerate(base.expressions):
        shown = status[k] not in hide
        relative = std[k] / abs(theta[k]) if theta[k] != 0.0 else np.inf
        rows.append(
            {
                "name": base.names[k],
                "expression": expression,
                "unit": base.layout.units[k],
                "value": _finite(theta[k]) if shown else None,
                "std": _finite(std[k]),
                "relative_std": _finite(relative),
                "status": status[k],
            }
        )
    return rows


def batch_document(
    result: Identification, robot: RobotFile, recording: Recording, settings: SignalSettings, span: Span | None
) -> dict[str, Any]:
    """The model file of a batch identification, as plain data."""
    chosen = settings_document(settings)
    solution = result.solution
    return {
        "format": FORMAT,
        "kind": "batch",
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "thetad": version("thetad"),
        "verdict": result.verdict,
        "reasons": list(result.reasons),
        "robot": {"name": robot.model.name, "sha256": robot.sha256, "source": robot.source},
        "data": {
            "recording": None if recording.path is None else recording.path.name,
            "sha256": recording.sha256,
            "robot": recording.robot,
            "span": "0:1" if span is None else str(span),
            "rows": [int(c) for c in result.metrics.count],
            "row_rate_hz": result.rows.rate_hz,
            "band_hz": result.rows.band_hz,
            "first_s": float(result.rows.t[0]),
            "last_s": float(result.rows.t[-1]),
        },
        "settings": chosen,
        "settings_sha256": digest(chosen | {"method": result.method}),
        "method": result.method,
        "condition_number": _finite(solution.condition_number),
        "scaled_condition_number": _finite(solution.scaled_condition_number),
        "rank": solution.rank,
        "noise": {
            "std": [float(v) for v in solution.sigma],
            "inflation": [float(v) for v in result.uncertainty.inflation],
        },
        "metrics": result.metrics.as_dict(),
        "parameters": parameter_table(result.base, result.theta, result.std, result.status, ("undetermined",)),
        "theta": [float(v) for v in result.theta],
        "covariance": [[float(v) for v in row] for row in result.uncertainty.covariance],
    }


def online_document(
    robot: RobotFile,
    base: BaseParameters,
    settings: SignalSettings,
    theta: FloatArray,
    std: FloatArray,
    covariance: FloatArray,
    status: tuple[str, ...],
    source: dict[str, Any],
) -> dict[str, Any]:
    """The model file of an online estimate; `source` tells the daemon, epoch, frames and settings it came from."""
    chosen = settings_document(settings)
    hidden = ("unestimated", "invalid")
    supported = all(s not in hidden for s in status)
    reasons = [] if supported else [f"{sum(s in hidden for s in status)} of {len(status)} parameters are not estimated"]
    return {
        "format": FORMAT,
        "kind": "online",
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "thetad": version("thetad"),
        "verdict": "ok" if supported else "not_explained" if "invalid" in status else "weak_excitation",
        "reasons": reasons,
        "robot": {"name": robot.model.name, "sha256": robot.sha256, "source": robot.source},
        "data": source,
        "settings": chosen,
        "settings_sha256": digest(chosen | {"method": "vff_rls"}),
        "method": "vff_rls",
        "parameters": parameter_table(base, theta, std, status, hidden),
        "theta": [float(v) for v in theta],
        "covariance": [[float(v) for v in row] for row in covariance],
    }


def write_model(document: dict[str, Any], path: Path) -> None:
    """Write a model file; it appears whole or not at all."""
    text = yaml.dump(document, Dumper=yaml.CSafeDumper, default_flow_style=None, sort_keys=False, width=2**16)
    write_text(path, text)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def load_model(path: str | Path) -> ModelFile:
    """Read a model file and check that it is whole and consistent.

    Raises
    ------
    ModelFileError
        Naming the file, the field, and what to do.
    """
    path = Path(path)
    try:
        if path.stat().st_size > _SIZE_LIMIT:
            raise ModelFileError(f"{path}: {path.stat().st_size} bytes is too large for a model file")
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ModelFileError(
            f"{path}: no such file; a model file is written by `thetad identify ... -o FILE`"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ModelFileError(f"{path}: cannot be read as text: {error}") from error
    try:
        document = yaml.load(text, Loader=yaml.CSafeLoader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ModelFileError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        found = document.get("format") if isinstance(document, dict) else None
        raise ModelFileError(f"{path}: format is {found!r}, expected {FORMAT!r}: not a model file of this version")
    return _checked(path, document)


def _checked(path: Path, document: dict[str, Any]) -> ModelFile:
    try:
        robot = robot_from_source(document["robot"]["source"], f"{path}: robot")
        settings = settings_from_document(document["settings"])
        theta = np.asarray(document["theta"], dtype=np.float64)
        covariance = np.asarray(document["covariance"], dtype=np.float64)
        names = tuple(row["name"] for row in document["parameters"])
    except (KeyError, TypeError) as error:
        raise ModelFileError(f"{path}: field {error} is missing or of the wrong type: the file is damaged") from error
    except ValueError as error:
        raise ModelFileError(f"{path}: {error}") from error
    if robot.sha256 != document["robot"].get("sha256"):
        raise ModelFileError(f"{path}: robot.sha256 does not match the embedded robot: the file was edited")
    base = base_parameters(robot.model)
    if base.names != names:
        raise ModelFileError(f"{path}: parameters are not the base parameters of the embedded robot; identify again")
    p = len(base)
    if theta.shape != (p,) or covariance.shape != (p, p):
        raise ModelFileError(f"{path}: theta or covariance do not have {p} entries: the file is damaged")
    if not (np.isfinite(theta).all() and np.isfinite(covariance).all()):
        raise ModelFileError(f"{path}: theta or covariance hold values that are not finite: the file is damaged")
    return ModelFile(path, robot, base, theta, covariance, settings, document)
