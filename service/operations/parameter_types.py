"""Types of values that parameters of several operations have."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field


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
Positive = Annotated[float, Field(gt=0.0, lt=1e9)]
NotNegative = Annotated[float, Field(ge=0.0, lt=1e9)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
