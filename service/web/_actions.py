"""Actions of the dashboard: a closed list of forms, and the requests they become.

No input of a browser is passed on unchanged: arms are those of the configuration, recordings must be in the list,
models and jobs have numbers, and every other value is from a list or a number within a range.
"""

from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from drivers.files.table import StrictTable, describe
from rt_core.identification.methods import Method
from service.config.load import Config, ConfigError
from service.protocol.control import ControlError
from service.web._recordings import find_recording

_OWNER = "the dashboard"


_Arm = Annotated[str, Field(max_length=32)]
_Id = Annotated[int, Field(ge=1, lt=2**62)]
#: The last seconds, the recording of a job, or a recording by its name in the list.
_Recording = Annotated[
    str, Field(max_length=200, pattern=r"^(live:[0-9]{1,5}(\.[0-9]{1,3})?|job:[0-9]{1,18}|file:[A-Za-z0-9._-]{1,150})$")
]
_Model = Annotated[str, Field(max_length=100, pattern=r"^(active|job:[0-9]{1,18}|model:[0-9a-f]{4,64})$")]
_Span = Annotated[str, Field(max_length=40, pattern=r"^[0-9.]{1,12}s?:[0-9.]{1,12}s?$")]


class Stop(StrictTable):
    """Stop an arm: a run or guiding, or (`disable`) the motion of its configuration."""

    do: Literal["abort", "disarm", "disable"]
    arm: _Arm


class Arm(StrictTable):
    """Switch the drives on; the permit is used elsewhere."""

    do: Literal["arm"]
    arm: _Arm
    for_s: float | None = Field(None, ge=1.0, le=3600.0)


class Record(StrictTable):
    """Start or stop recording."""

    do: Literal["record"]
    arm: _Arm
    action: Literal["start", "stop"]


class Identify(StrictTable):
    """Queue a job that fits a model to a recording."""

    do: Literal["identify"]
    arm: _Arm
    recording: _Recording
    span: _Span | None = None
    method: Method = "wls"


class ModelTest(StrictTable):
    """Queue a job that validates a model on a recording, and with `promote` activates it if it is better."""

    do: Literal["validate", "promote"]
    arm: _Arm
    model: _Model
    recording: _Recording
    span: _Span | None = None


class Reidentify(StrictTable):
    """Queue identification, validation and promotion with the last frames of an arm."""

    do: Literal["reidentify"]
    arm: _Arm
    promote: bool = True


class JobAction(StrictTable):
    """Cancel a job, or queue it again."""

    do: Literal["cancel", "retry"]
    id: _Id


class Rollback(StrictTable):
    """Make the previous model active again."""

    do: Literal["rollback"]
    arm: _Arm
    reason: str = Field("", max_length=200)


Action = Stop | Arm | Record | Identify | ModelTest | Reidentify | JobAction | Rollback
_ACTIONS: TypeAdapter[Action] = TypeAdapter(Annotated[Action, Field(discriminator="do")])


def read_action(data: bytes) -> Action:
    """Parse a browser's action; raises `ControlError` of type "bad_argument"."""
    try:
        return _ACTIONS.validate_json(data)
    except ValidationError as error:
        raise ControlError("bad_argument", describe(error, Action)[:1000]) from error


def verb_of(action: Action) -> str:
    """Return the verb of an action."""
    return "submit" if isinstance(action, Identify | ModelTest) else action.do


def reads_folder(action: Action) -> bool:
    """Return whether `to_request` has to read a folder, which may be on a slow disk."""
    return isinstance(action, Identify | ModelTest) and action.recording.startswith("file:")


def to_request(action: Action, config: Config) -> tuple[str, dict[str, Any]]:
    """Return verb and arguments of an action; raises `ControlError` of type "bad_argument"."""
    match action:
        case JobAction():
            return action.do, {"id": action.id}
        case Record():
            return action.do, {"arm": action.arm, "action": action.action, "owner": _OWNER}
        case Identify() | ModelTest():
            given = action.model_dump(exclude={"do", "arm"}, exclude_none=True)
            given["recording"] = _resolved(action.recording, action.arm, config)
            return "submit", {"kind": action.do, "arm": action.arm, "parameters": given}
        case _:
            return action.do, action.model_dump(exclude={"do"}, exclude_none=True)


def _resolved(text: str, arm: str, config: Config) -> str:
    kind, _, name = text.partition(":")
    if kind != "file":
        return text
    try:
        path = find_recording(config, config.find(arm), name)
    except ConfigError as error:
        raise ControlError("bad_argument", str(error)) from error
    except OSError as error:
        raise ControlError("failed", f"recording: its folder cannot be read: {error.strerror}") from error
    if path is None:
        raise ControlError("bad_argument", f"recording: arm {arm} has none named {name}")
    return str(path)
