"""Options of a command, generated from the parameters of its operation.

A parameter that a command offers is declared by `service.operations.parameter_types.option`: its default, what it is
for, and where the option's name differs. Type, choices and bounds are those of the parameter.
"""

import argparse
from collections.abc import Container
from contextlib import suppress
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from service.operations.kind import Kind, Parameters
from service.operations.parameter_types import flag_of, option_of


def add_options(parser: argparse.ArgumentParser, kind: Kind[Any], skip: Container[str] = ()) -> None:
    """Add the options of all parameters of `kind` but `skip`; they are None if they are not given."""
    groups: dict[str, Any] = {"": parser}
    for name, field in kind.parameters.model_fields.items():
        option = option_of(kind.parameters, name)
        if option is None or name in skip:
            continue
        if option.group not in groups:
            groups[option.group] = parser.add_argument_group(option.group)
        default = None if field.is_required() else field.get_default(call_default_factory=True)
        shown = f"{default:g}" if isinstance(default, float) else default
        note = "" if default is None or isinstance(default, (bool, list, dict)) else f" (default: {shown})"
        taken = _taken(field.annotation, option.value) | ({"metavar": option.metavar} if option.metavar else {})
        text = f"{field.description}{note}".replace("%", "%%")
        groups[option.group].add_argument(flag_of(kind.parameters, name), dest=name, help=text, **taken)


def _taken(annotation: Any, value: Any) -> dict[str, Any]:
    """Return how argparse reads a value of a type; of a number or a word, the number."""
    kinds = _alternatives(annotation)
    kind = next((kind for kind in kinds if get_origin(kind) is not Literal), None)
    if kind is None:
        return {"choices": get_args(kinds[0])}
    if kind is bool:
        return {"action": "store_const", "const": value}
    if get_origin(kind) is list:
        return {"nargs": "+"} | _taken(get_args(kind)[0], value)
    return {"nargs": "+", "type": _range} if get_origin(kind) is dict else {"type": kind}


def _alternatives(annotation: Any) -> list[Any]:
    """Return the types of a union but None, each without its bounds."""
    if get_origin(annotation) is Annotated:
        return _alternatives(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return [kind for item in get_args(annotation) if item is not type(None) for kind in _alternatives(item)]
    return [annotation]


def _range(text: str) -> tuple[str, tuple[float, float]]:
    name, _, given = text.partition("=")
    low, _, high = given.partition(":")
    with suppress(ValueError):
        if name:
            return name, (float(low), float(high))
    raise argparse.ArgumentTypeError(f"{text!r}: write NAME=LOW:HIGH, for example vb2=0.01:0.2")


def given(args: argparse.Namespace, kind: Kind[Any]) -> dict[str, Any]:
    """Return the parameters of `kind` that have an option of their own and were given."""
    named = [name for name in kind.parameters.model_fields if option_of(kind.parameters, name) is not None]
    values = {name: getattr(args, name) for name in named if getattr(args, name, None) is not None}
    return {name: dict(v) if v and isinstance(v, list) and isinstance(v[0], tuple) else v for name, v in values.items()}


def option(name: str, parameters: type[Parameters]) -> str:
    """Return the command's option for a parameter, or for a name in the parsed arguments."""
    return flag_of(parameters, name) if name in parameters.model_fields else f"--{name}"
