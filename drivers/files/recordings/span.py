"""Spans of recordings, in fractions of the duration (`0:0.6`) or seconds (`0.1s:4.91s`)."""

import math
from dataclasses import dataclass
from typing import Self


class SpanError(ValueError):
    """A span that is invalid, reversed, or outside the recording."""


@dataclass(frozen=True)
class Span:
    """From `start` (included) to `stop` (not included, unless it is the recording's end)."""

    start: float | None = None  # None: the recording's start or end
    stop: float | None = None
    seconds: bool = False  # since the recording's first sample, instead of fractions of its duration, 0 to 1

    def __post_init__(self) -> None:
        for name, value in (("start", self.start), ("end", self.stop)):
            if value is None:
                continue
            if not math.isfinite(value):
                raise SpanError(f"span {self}: its {name} is not a finite number")
            if value < 0.0:
                raise SpanError(f"span {self}: its {name} is negative; the recording starts at 0")
            if not self.seconds and value > 1.0:
                raise SpanError(
                    f"span {self}: {value:g} is not a fraction from 0 to 1; write {value:g}s if seconds are meant"
                )
        if self.start is not None and self.stop is not None and self.start >= self.stop:
            raise SpanError(f"span {self}: its start is not before its end; write START:STOP")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `START:STOP`; either may be empty, both are fractions or both end in `s`; raises `SpanError`."""
        sides = text.strip().split(":")
        if len(sides) != 2:
            raise SpanError(f"span {text!r}: expected START:STOP, such as 0:0.6 or 0.1s:4.91s")
        values: list[float | None] = []
        units: set[bool] = set()
        for side in sides:
            side = side.strip()
            if not side:
                values.append(None)
                continue
            seconds = side.endswith("s")
            try:
                value = float(side.removesuffix("s"))
            except ValueError:
                raise SpanError(
                    f"span {text!r}: {side!r} is not a number; use fractions (0:0.6) or seconds (0.1s:4.91s)"
                ) from None
            if value != 0.0 or seconds:
                units.add(seconds)
            values.append(value)
        if len(units) > 1:
            raise SpanError(f"span {text!r}: one side is in seconds and the other a fraction; give both the same way")
        return cls(values[0], values[1], seconds=units == {True})

    def bounds(self, first: float, last: float, tolerance: float = 0.0) -> tuple[float, float]:
        """Return the times [s] of start and end in a recording from `first` to `last` [s]; an end at `last` is `inf`.

        An end up to `tolerance` [s] beyond `last` counts as the recording's end.  Raises `SpanError`: the span starts
        or ends after the recording does.
        """
        length = last - first
        start = 0.0 if self.start is None else self.start
        stop = self.stop
        if self.seconds:
            if start > last or (stop is not None and stop > last + tolerance):
                raise SpanError(f"span {self}: the recording ends at {last:.6g} s")
        else:
            start = first + start * length
            stop = None if stop is None or stop >= 1.0 else first + stop * length
        if stop is None or stop >= last - 1e-10:
            stop = math.inf
        return start, stop

    def __str__(self) -> str:
        suffix = "s" if self.seconds else ""
        sides = ["" if value is None else f"{value:.15g}{suffix}" for value in (self.start, self.stop)]
        return ":".join(sides)
