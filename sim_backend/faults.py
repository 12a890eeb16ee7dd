"""Faults of a simulated bus and their schedule, common to EtherCAT segments and PLCs."""

from collections.abc import Sequence
from typing import Annotated, Generic, Self, TypeVar

from pydantic import Field, model_validator

from drivers.files.table import NonNegative
from sim_backend.tables import Table

Count = Annotated[int, Field(ge=1)]
Reference = Annotated[int, Field(ge=0, strict=True)] | Annotated[str, Field(min_length=1, strict=True)]
"""Name of a joint, or a number from 0."""


class ScheduledFault(Table):
    """A `[[fault]]` of a file, at `at_s` or in `cycle`, both counted from the start of the schedule."""

    at_s: NonNegative | None = None
    """Time [s]."""
    cycle: Annotated[int, Field(ge=0)] | None = None
    """Cycle of the machine or task."""

    @model_validator(mode="after")
    def _one_time(self) -> Self:
        if (self.at_s is None) == (self.cycle is None):
            raise ValueError("give either at_s or cycle")
        return self


FaultT = TypeVar("FaultT", bound=ScheduledFault)


class FaultSchedule(Generic[FaultT]):
    """Faults in the order of their times.

    Parameters
    ----------
    faults : sequence of ScheduledFault
    cycle_ns : int, optional
        Cycle [ns] in which `at_s` is counted; None: `at_s` counts host time.
    """

    def __init__(self, faults: Sequence[FaultT], cycle_ns: int | None = None) -> None:
        self._timed: list[tuple[int, FaultT]] = []
        self._counted: list[tuple[int, FaultT]] = []
        for fault in faults:
            if fault.cycle is not None:
                self._counted.append((fault.cycle, fault))
            elif cycle_ns is None:
                self._timed.append((round((fault.at_s or 0.0) * 1e9), fault))
            else:
                self._counted.append((round((fault.at_s or 0.0) * 1e9 / cycle_ns), fault))
        for entries in (self._timed, self._counted):
            entries.sort(key=lambda entry: entry[0])
        self._start: tuple[int, int] | None = None

    @property
    def left(self) -> int:
        """Number of faults still to come."""
        return len(self._timed) + len(self._counted)

    def begin(self, cycle: int, now_ns: int = 0) -> None:
        """Start the schedule at a cycle and a host time [ns]; further calls change nothing."""
        if self._start is None:
            self._start = cycle, now_ns

    def due(self, cycle: int, now_ns: int = 0) -> list[FaultT]:
        """Remove and return the faults due by a cycle and a host time [ns]; none before `begin`."""
        if self._start is None:
            return []
        found: list[FaultT] = []
        for entries, elapsed in ((self._timed, now_ns - self._start[1]), (self._counted, cycle - self._start[0])):
            count = sum(first <= elapsed for first, _ in entries)
            found += [fault for _, fault in entries[:count]]
            del entries[:count]
        return found
