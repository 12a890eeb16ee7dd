"""Schema of a model file, and safe reading of YAML.

The file is checked before anything in it is used: a damaged or edited one is refused with the field's name.
"""

from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from drivers.files.table import Finite, NonNegative, Positive, describe
from rt_core.identification.identify import Verdict
from rt_core.identification.preprocess import Velocity

#: A model of nine joints has 200 kB; much more is no model.
SIZE_LIMIT = 16 * 2**20
_DEPTH_LIMIT = 20


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class SettingsTable(_Table):
    """How the signals were prepared; see `rt_core.identification.preprocess.SignalSettings`."""

    cutoff_hz: Positive
    rate_hz: Positive
    filter_order: int = Field(ge=1, le=20)
    trim_s: NonNegative
    min_velocity: list[NonNegative] | None
    velocity: Velocity = "measured"


class RobotEntry(_Table):
    """The embedded robot description."""

    name: str
    sha256: str
    source: dict[str, Any]


class ParameterEntry(_Table):
    """One base parameter in readable form."""

    name: str
    expression: str
    unit: str
    value: Finite | None
    std: NonNegative | None
    relative_std: NonNegative | None
    status: str


class ConstantEntry(_Table):
    """A velocity constant of friction; predictions use `used`, also where `value` is not known."""

    name: str
    unit: str
    value: Finite | None
    lower: NonNegative | None
    upper: NonNegative | None
    used: NonNegative
    status: str


class TemperatureTable(_Table):
    """Temperatures of each joint that friction was identified at [degC]; null for a joint that did not move."""

    reference_c: Finite
    lower: list[Finite | None]
    upper: list[Finite | None]


class RangesTable(_Table):
    """Speed and load of each joint that the model was identified up to, and its temperatures then, where recorded."""

    speed: list[NonNegative]
    load: list[NonNegative]
    lower_c: list[Finite | None] | None
    upper_c: list[Finite | None] | None


class JointEntry(_Table):
    """Determination of one joint."""

    name: str
    verdict: str
    counts: dict[str, int]
    reason: str


class StiffnessEntry(_Table):
    """Stiffness of a spring; without a value where the data do not determine it."""

    value: Finite | None
    std: NonNegative | None
    status: str
    reason: str


class SpringEntry(_Table):
    """An elastic joint; `drive` and `online_start` are those of `elastic.json`."""

    joint: str
    unit: str
    stiffness: StiffnessEntry
    stiffness_cubic: Finite | None
    drive: dict[str, JsonValue]
    online_start: dict[str, JsonValue]


class MetricsTable(_Table):
    """Figures of the fit; only this one is used again."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, JsonValue]
    relative_error: NonNegative | None


class ModelDocument(_Table):
    """A whole model file."""

    model_config = ConfigDict(extra="forbid")
    format: str
    kind: Literal["batch", "online"]
    created: str
    thetad: str
    verdict: Verdict
    reasons: list[str]
    notes: list[str] = []
    findings: list[dict[str, JsonValue]] = []
    robot: RobotEntry
    data: dict[str, JsonValue]
    settings: SettingsTable
    settings_sha256: str
    method: str
    condition_number: NonNegative | None = None
    scaled_condition_number: NonNegative | None = None
    rank: int | None = None
    noise: dict[str, JsonValue] | None = None
    metrics: MetricsTable | None = None
    estimator: dict[str, JsonValue] = {}
    constants: list[ConstantEntry] = []
    joints: list[JointEntry] = []
    temperature: TemperatureTable | None = None
    ranges: RangesTable | None = None
    needs_gravity: list[str] = []
    elastic: list[SpringEntry] = []
    standard: list[Finite] | None = None
    parameters: list[ParameterEntry]
    theta: list[Finite]
    covariance: list[list[Finite]]
    values_sha256: str | None = None


def check_document(document: object) -> ModelDocument:
    """Return the typed form of a model file's content; raises `ValueError` that names the field."""
    try:
        return ModelDocument.model_validate(document)
    except ValidationError as error:
        raise ValueError(f"field {describe(error, ModelDocument)}; the file is damaged or was edited") from None


def read_yaml(text: str) -> Any:
    """Return the content of a YAML document without aliases and of bounded depth; raises `ValueError` otherwise.

    The events are checked first: building the content recurses and follows aliases, so that a small hostile file could
    exhaust the stack or the memory.
    """
    try:
        found = _hazard(text)
        if found is None:
            return yaml.load(text, Loader=yaml.CSafeLoader)
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        found = " ".join(str(error).split())
    raise ValueError(f"not valid YAML: {found}")


def _hazard(text: str) -> str | None:
    """Return why a document is too dangerous to build, if it is."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        if isinstance(event, yaml.AliasEvent):
            return "aliases have no place in a model file"
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _DEPTH_LIMIT:
                return f"nested more than {_DEPTH_LIMIT} deep"
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
    return None
