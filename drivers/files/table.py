"""Bases of the tables of files and of requests, numbers in them, and the text of what is wrong with them."""

import difflib
import tomllib
import types
from collections.abc import Callable
from dataclasses import is_dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

Positive = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
_MAX_ERRORS = 20  # described of one table
TableT = TypeVar("TableT", bound=BaseModel)


class StrictTable(BaseModel):
    """A frozen table; unknown keys, NaN, infinity and wrong types are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)
    #: Fields that are no keys of the file.
    not_keys: ClassVar[tuple[str, ...]] = ()


class Table(StrictTable):
    """A table of a robot, mapping or bus configuration file: `x_deg` stands for `x`."""

    @model_validator(mode="after")
    def _one_unit_each(self) -> Self:
        for name in type(self).model_fields:
            if name.endswith("_deg") and getattr(self, name) is not None:
                radians = name.removesuffix("_deg")
                if getattr(self, radians) is not None:
                    raise ValueError(f"{radians} and {name} are both given; keep one")
        return self


def read_file(path: Path, error_type: Callable[[str], Exception]) -> bytes:
    """Return the content of a file; raises `error_type`, which names it."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise error_type(f"{path}: cannot be read: {error.strerror or error}") from error


def parse_toml(data: bytes, label: object, error_type: Callable[[str], Exception]) -> dict[str, Any]:
    """Return the content of a TOML file; raises `error_type`, which begins with `label`."""
    try:
        return tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise error_type(f"{label}: not valid TOML: {error}") from error


def check_table(kind: type[TableT], content: object, label: object, error_type: Callable[[str], Exception]) -> TableT:
    """Return the table of type `kind` with this content; raises `error_type`, which begins with `label`."""
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        raise error_type(f"{label}: {describe(error, kind)}") from error


def describe(error: ValidationError, kind: Any, where: str = "") -> str:
    """Describe what is wrong with a table of type `kind`, in one line: path of each key below `where`, and remedy."""
    texts = [_describe_one(item, kind, where) for item in error.errors(include_url=False)[:_MAX_ERRORS]]
    more = [f"and {error.error_count() - _MAX_ERRORS} more"] if error.error_count() > _MAX_ERRORS else []
    return "; ".join(dict.fromkeys(texts + more))


def _describe_one(item: ErrorDetails, kind: Any, path: str) -> str:
    choices = _choices(kind)  # of types at this place
    for key in item["loc"]:
        if isinstance(key, int):
            path += f"[{key}]"
            choices = [each for choice in choices for part in get_args(choice) for each in _choices(part)]
            continue
        inner = [each for choice in choices for each in _choices(_fields(choice).get(key))]
        entries = [each for choice in choices if get_origin(choice) is dict for each in _choices(get_args(choice)[1])]
        tagged = [each for each in choices if _tagged(each, key)]
        if len(choices) > 1 and (tagged or not inner):  # pydantic adds which of several types it tried
            choices = tagged or [each for each in choices if key == getattr(each, "__name__", "")] or choices
        else:
            path, choices = f"{path}.{key}" if path else key, inner or entries or choices
    message = item["msg"].removeprefix("Value error, ")
    if item["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        known = [name for each in choices for name in _fields(each) if name not in getattr(each, "not_keys", ())]
        close = difflib.get_close_matches(str(item["loc"][-1]), known, 1)
        message = "unknown key" + (f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(known)}")
    elif item["type"] in ("missing", "missing_argument"):
        message = "is missing"
    elif not isinstance(item["input"], (dict, list)):
        message += f" (is {item['input']!r:.200})"
    return f"{path}: {message}" if path else message


def _choices(kind: Any) -> list[Any]:
    """Return the types that a value of type `kind` may have."""
    if get_origin(kind) is Annotated:
        return _choices(get_args(kind)[0])
    if get_origin(kind) in (Union, types.UnionType):
        return [each for part in get_args(kind) for each in _choices(part)]
    return [] if kind in (None, types.NoneType, ...) else [kind]


def _fields(kind: Any) -> dict[str, Any]:
    """Return the types of the keys of a table; empty for another type."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return {field.alias or name: field.annotation for name, field in kind.model_fields.items()}
    return get_type_hints(kind) if is_dataclass(kind) else {}


def _tagged(kind: Any, key: str) -> bool:
    """Return whether `key` is the value by which a union knows a table."""
    return any(get_origin(hint) is Literal and key in get_args(hint) for hint in _fields(kind).values())
