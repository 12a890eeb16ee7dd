"""Springs of all joints of an arm, each from one or more recordings, and the apparent lag of their link encoders."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from drivers.files.recordings.join import JoinError, refuse_duplicates
from drivers.files.recordings.recording import Recording, Span
from rt_core.elastic.common_lag import CommonLag, Lag, common_lag, deflection_lag
from rt_core.elastic.identify import ElasticFit
from rt_core.identification.preprocess import DataError
from rt_core.model.robot import RobotModel
from rt_core.validation import Metrics, torque_metrics
from service.operations.elastic.joint import ElasticJointError, fit_document, joint_fit, joint_rows, joint_signals
from service.operations.elastic.parameters import read_elastic_joint

FORMAT = "thetad-elastic-joints/1"


@dataclass(frozen=True)
class JointOutcome:
    """Fit of a joint, or the error that prevented it; and the apparent lag of its link encoder.

    `within` is the torque error of the fit within each of the recordings.
    """

    name: str
    fit: ElasticFit | None
    error: ElasticJointError | DataError | None
    lag: Lag | None
    within: tuple[Metrics, ...] = ()


@dataclass(frozen=True)
class ElasticJoints:
    """Springs of some joints; `lag` is their mean apparent lag.

    An apparent lag includes the joint's own viscous friction: `lag - N^2*b_in/k1`.
    """

    recordings: tuple[Recording, ...]
    stage: str
    joints: tuple[JointOutcome, ...]
    lag: CommonLag | None

    @property
    def accepted(self) -> bool:
        """Whether the data determine the stiffness of at least one joint."""
        return any(joint.fit is not None and joint.fit.verdict != "not_determined" for joint in self.joints)

    def document(self) -> dict[str, Any]:
        """Return the result as plain data, for `--json`."""
        return {
            "format": FORMAT, "recordings": [{"path": str(r.path), "sha256": r.sha256} for r in self.recordings],
            "stage": self.stage,
            "joints": [
                {"joint": joint.name, "apparent_lag": None if joint.lag is None else asdict(joint.lag)}
                | (
                    {"verdict": "not_determined", "reasons": [str(joint.error)], "parameters": {}}
                    if joint.fit is None
                    else fit_document(joint.fit) | {"recordings": _errors(joint, joint.fit)}
                )
                for joint in self.joints
            ],
            "common_apparent_lag": None if self.lag is None else asdict(self.lag),
        }  # fmt: skip


def _errors(joint: JointOutcome, fit: ElasticFit) -> list[dict[str, Any]]:
    """Return the torque error within each recording, in order."""
    sides = fit.fit.terms.sides
    return [
        {"relative_error": m.relative_error, "rmse_nm": dict(zip(sides, m.rmse.tolist(), strict=True))}
        for m in joint.within
    ]


def identify_joints(
    recordings: Sequence[Recording], joints: Sequence[int], parameters: Mapping[str, Any], model: RobotModel | None
) -> ElasticJoints:
    """Identify the spring of each of `joints` (from 0 on), from all recordings of it together.

    `parameters` are those of a job of kind `elastic_joint`, but for recording and joint. Raises `ElasticJointError` if
    the recordings are not of the same joints, or one is given twice; `SpanError` if the span lies outside a recording.
    """
    try:
        refuse_duplicates(recordings)
    except JoinError as error:
        raise ElasticJointError(str(error)) from error
    first = recordings[0]
    for other in recordings[1:]:
        if (other.robot, other.joint_names) != (first.robot, first.joint_names):
            raise ElasticJointError(f"{other.path} is of another arm or other joints than {first.path}: one at a time")
    span = parameters.get("span")
    parts = [r.span(None if span is None else Span.parse(span)) for r in recordings]
    outcomes = tuple(_outcome(parts, j, parameters, model) for j in joints)
    stage = read_elastic_joint({"recording": str(first.path), "joint": 1, **parameters}).stage
    lags = [joint.lag for joint in outcomes if joint.lag is not None]
    return ElasticJoints(tuple(recordings), stage, outcomes, common_lag(lags))


def _outcome(
    parts: Sequence[Recording], j: int, parameters: Mapping[str, Any], model: RobotModel | None
) -> JointOutcome:
    name, lag = parts[0].joint_names[j], None
    try:
        rows = []
        for recording in parts:
            p = read_elastic_joint({"recording": str(recording.path), "joint": j + 1, **parameters})
            rows.append(joint_rows(p, joint_signals(p, recording, model)))
        try:
            lag = deflection_lag(rows, cubic=p.cubic)
        except DataError:
            lag = None  # the fit reports the same, with its reasons
        found = joint_fit(p, rows)
    except (ElasticJointError, DataError) as error:
        return JointOutcome(name, None, error, lag)
    fit, ends = found.answer.fit, np.cumsum([each.count for each in rows])[:-1]
    within = zip(np.split(fit.measured, ends), np.split(fit.predicted, ends), strict=True)
    return JointOutcome(name, found.answer, None, lag, tuple(torque_metrics(*each) for each in within))
