"""Types of values that parameters of several operations have, and how commands offer them."""

from dataclasses import dataclass, fields
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, Field

from rt_core.settings import Bounded, Magnitude

T = TypeVar("T", bound=Bounded)


@dataclass(frozen=True)
class Option:
    """Option of a command for a parameter.

    `metavar` stands for its value in the help, `group` is a title in the help, `flag` its name where it is not the
    parameter's, and `value` what an option without a value means.
    """

    metavar: str = ""
    group: str = ""
    flag: str = ""
    value: Any = True


def option(
    default: Any, description: str, metavar: str = "", group: str = "", flag: str = "", *, value: Any = True,
    **bounds: Any,
) -> Any:  # fmt: skip
    """Declare a parameter that commands offer as an `Option`, too.

    `default` is `...` for a parameter that must be given, `bounds` are those of `pydantic.Field`.
    """
    field: Any = Field(default, description=description, **bounds)
    field.metadata.append(Option(metavar, group, flag, value))
    return field


def option_of(parameters: type[BaseModel], name: str) -> Option | None:
    """Return the option of a parameter, None if commands do not offer it."""
    return next((item for item in parameters.model_fields[name].metadata if isinstance(item, Option)), None)


def flag_of(parameters: type[BaseModel], name: str) -> str:
    """Return the name of the option of a parameter, such as `--min-velocity`; of one without an option its own."""
    option = option_of(parameters, name) if name in parameters.model_fields else None
    return name if option is None else option.flag or f"--{name.replace('_', '-')}"


def settings_in(parameters: BaseModel, kind: type[T], **others: Any) -> T:
    """Return the settings `kind` with the values of the parameters of the same names, and `others`."""
    shared = {field.name for field in fields(kind)} & set(type(parameters).model_fields)
    return kind(**{name: getattr(parameters, name) for name in shared} | others)


def _span(text: str) -> str:
    from drivers.files.recordings.span import Span

    Span.parse(text)
    return text


#: A reference to a recording or a model; the queue resolves it.
Reference = Annotated[str, Field(min_length=1)]
#: A robot: a name, a path, or a whole description as `service.operations.inputs.open_robot` reads it.
RobotText = Annotated[str, Field(min_length=1)]
#: A part of a recording, such as `0:0.6` or `1s:30s`.
SpanText = Annotated[str, AfterValidator(_span)]
#: What options that several operations have are for.
ROBOT = "robot file, or the name of one in configs/robots"
SPAN = "part to use: fractions (0:0.6) or seconds (0.1s:4.91s)"
Positive = Magnitude
NotNegative = Annotated[float, Field(ge=0.0, lt=1e9)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
